"""What many tests share: where real data is, and what CI must not skip."""

import gc
import os
from pathlib import Path

import pytest

from tests import examples  # noqa: F401 - registers the profile that `make test` asks for

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"


def absent(what: str) -> None:
    """Skip for a developer who lacks a component; fail in CI, which must have it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is not here")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real stores and oracles beside the checkout."""
    if not SHARED.is_dir():
        absent("the folder ../shared")
    return SHARED


@pytest.fixture(scope="session")
def lionagi_samples(shared: Path) -> Path:
    """Real lionagi stores of several releases."""
    return shared / "samples" / "lionagi"


def pytest_unconfigure() -> None:
    """Let the interpreter end in silence.

    Hypothesis leaves a callback with the garbage collector. Through it everything that a
    test module holds outlives DuckDB's own clean-up, which then lists each type as leaked.
    """
    gc.callbacks.clear()
