"""What many tests share: where real data is, and what CI must not skip."""

import gc
import os
from pathlib import Path

import pytest

import stateanalytics as sa
from tests import examples  # noqa: F401 - registers the profile that `make test` asks for
from tests.frames import facts

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
def demo() -> sa.Snapshot:
    """The shipped sample, read once; whoever closes it opens one of their own."""
    return sa.demo()


@pytest.fixture(scope="session")
def demo_week(demo: sa.Snapshot) -> sa.Report:
    """The whole report on the week of the shipped sample; its page is made once as well."""
    return sa.report(demo, window="2026-W21")


@pytest.fixture(scope="session")
def small_week() -> sa.Report:
    """The whole report on the small week of `tests.test_report`."""
    from tests.test_report import WEEK

    return sa.report(facts(WEEK))


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
