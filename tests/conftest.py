"""What many tests share: where real data is, and what CI must not skip."""

import functools
import gc
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stateanalytics as sa
from stateanalytics import snapshot
from stateanalytics.reporting import Report
from tests.frames import facts
from tests.samples import the_week

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
SHIPPED = {
    "lionagi": ROOT / "data" / "samples" / "state.db",
    **{
        name: ROOT / "data" / "samples" / name
        for name in ("agent_orchestrator", "opencode", "claude_code", "codex")
    },
}
"""The sample of each system, in the order in which pages name them."""
EXTRACTS = ROOT / "tests" / "data"


def absent(what: str) -> None:
    """Skip for a developer who lacks a component; fail in CI, which must have it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is not here")


def component(name: str) -> ModuleType:
    """A module of another package that a test compares with; CI must have it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        absent(name)
        raise


@contextmanager
def a_browser():
    """A real browser, driven by playwright."""
    sync_api = component("playwright.sync_api")
    found = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if found is None:
        absent("Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium():
    with a_browser() as browser:
        yield browser


def pytest_report_header() -> str:
    """Say what the rows of real systems come from."""
    if SHARED.is_dir():
        return "real systems: every row of the oracles, and the stores, of ../shared"
    return "real systems: extracts of the oracles in tests/data; tests of real stores are skipped"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real stores beside the checkout; a clone of the repository has none."""
    if not SHARED.is_dir():
        pytest.skip("the folder ../shared is not here")
    return SHARED


@pytest.fixture(scope="session")
def demo() -> sa.Snapshot:
    """A week of every kind of trouble, read once; whoever closes it opens one of their own."""
    return the_week()


@pytest.fixture(scope="session")
def demo_week(demo: sa.Snapshot) -> Report:
    """The whole report on the week of the shipped sample; its page is made once as well."""
    return sa.report(demo, window="2026-W21")


@pytest.fixture(scope="session")
def small_week() -> Report:
    """The whole report on the small week of `tests.test_report`."""
    from tests.test_report import WEEK

    return sa.report(facts(WEEK))


@pytest.fixture(scope="session")
def oracles() -> Path:
    """The folder of oracle files: whole beside the checkout, else the extracts of its own."""
    return (SHARED if SHARED.is_dir() else EXTRACTS) / "oracles"


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference tables: whole beside the checkout, else what is kept here."""
    return (SHARED if SHARED.is_dir() else EXTRACTS) / "reference"


@pytest.fixture
def run(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run a command: its code, what it printed, and what it said beside."""
    from stateanalytics import cli

    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, and no variable that names a place elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LIONAGI_HOME", "AO_DATA_DIR", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


SAMPLE_READ: dict[Any, sa.Snapshot] = {}
"""What commands have read of the shipped sample, with all that was made of it since."""


@pytest.fixture(scope="module")
def read_once() -> Iterator[None]:
    """Let the commands of a module read each input once; what they make of it is tested there."""
    of_module: dict[Any, sa.Snapshot] = {}
    read = snapshot.read_for_once

    def read_or_kept(*sources: str, **options: Any) -> sa.Snapshot:
        if not sources or not all(Path(source).is_file() for source in sources):
            return read(*sources, **options)
        written = tuple(Path(source).stat().st_mtime_ns for source in sources)
        key = (sources, written, tuple(sorted(options.items())))
        is_sample = [Path(source) for source in sources] == [SHIPPED["lionagi"]]
        kept = SAMPLE_READ if is_sample else of_module
        if key not in kept:
            kept[key] = read(*sources, **options)
            # A command closes what it has read.
            object.__setattr__(kept[key], "close", lambda: None)
        return kept[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshot, "read_for_once", read_or_kept)
        yield


@pytest.fixture(scope="session")
def of_day(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], sa.Snapshot]:
    """One store as it was after so many days (`tests.test_observations`); each is read once."""
    from tests.test_observations import store_at

    store = tmp_path_factory.mktemp("days") / "state.db"

    @functools.cache
    def read(day: int) -> sa.Snapshot:
        store.unlink(missing_ok=True)
        return sa.read(store_at(store, day), progress=False)

    return read


@pytest.fixture(scope="session")
def lionagi_samples(shared: Path) -> Path:
    """Real lionagi stores of several releases."""
    return shared / "samples" / "lionagi"


def pytest_configure() -> None:
    """Collect no garbage while tests are collected: nearly all that is made then stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays, and let it look at the rest less often."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_unconfigure() -> None:
    """Let the interpreter end in silence.

    Hypothesis leaves a callback with the garbage collector. Through it everything that a
    test module holds outlives DuckDB's own clean-up, which then lists each type as leaked.
    """
    gc.callbacks.clear()
    gc.unfreeze()
