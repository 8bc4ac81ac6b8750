"""What is said of an installation, and what is said where a part of it is missing."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path, PureWindowsPath

import polars as pl
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from stateanalytics.charts import chart_severity, selecting
from stateanalytics.cli import doctor as module
from stateanalytics.cli import run
from stateanalytics.errors import MissingComponentError, needing
from stateanalytics.systems.agent_orchestrator.logs import _activity
from stateanalytics.systems.agent_orchestrator.places import Faults, File, Kind
from stateanalytics.systems.places import usual_places
from stateanalytics.widgets.drawing import Shown, widget_libraries
from tests.conftest import ROOT
from tests.lionagi_stores import write_store

NEEDED = ["polars>=2.1", "click>=8.2", "xlsxwriter>=3.2 ; extra == 'excel'", "ruff; extra == 'dev'"]


@pytest.fixture
def asked(monkeypatch, capsys):
    """The exit code and the lines of `doctor`, of requirements and jobs that a test chooses."""

    def asked(*, needed=(), job=lambda: None):
        monkeypatch.setattr(module, "requires", lambda _: [*NEEDED, *needed])
        for name in ("_read", "_ask", "_draw"):
            monkeypatch.setattr(module, name, job)
        code = run(["doctor"])
        return code, capsys.readouterr().out

    return asked


def test_a_doctor_says_versions_places_and_what_works(asked):
    code, out = asked()
    assert code == 0
    assert re.search(r"^stateanalytics \S+ on Python 3\.\d+\.\d+", out)
    assert re.search(r"^libraries: polars \d\S+, click \d", out, re.M)
    assert "extra excel: xlsxwriter" in out and "dev" not in out
    assert all(f"place: {path}: " in out for path in usual_places())
    assert out.count("works: ") == 3


def test_a_doctor_looks_at_what_is_named(capsys, tmp_path, monkeypatch):
    samples = ROOT / "data" / "samples"
    transcript = next((samples / "claude_code" / "projects").rglob("*.jsonl"))
    (tmp_path / "stores").mkdir()
    write_store(tmp_path / "stores" / "one.db")
    history = samples / "twelve_weeks" / "history"
    seen = {
        samples / "codex": "Codex 0.",
        transcript: "Claude Code 2.1.144: 1 file",
        history: "an archive of 1 source",
        samples / "*.db": "",
        tmp_path / "stores": "",
    }
    assert run(["doctor", *map(str, seen)]) == 0
    *lines, matched, within = capsys.readouterr().out.splitlines()
    for line, (path, words) in zip(lines, seen.items(), strict=False):
        assert line.startswith(f"place: {path}: {words}")
    assert matched.startswith(f"place: {samples / 'state.db'}: lionagi 0.36.0: 1 file")
    assert within.startswith(f"place: {tmp_path / 'stores' / 'one.db'}: lionagi")
    monkeypatch.chdir(samples / "agent_orchestrator" / "projects" / "webshop" / "sessions")
    assert run(["doctor", ".", "app-1.json", str(tmp_path / "none")]) == 1
    here, alone, none = capsys.readouterr().out.splitlines()
    assert here.startswith("place: .: Agent Orchestrator JSON records")
    assert alone.startswith("place: app-1.json: Agent Orchestrator JSON records: 1 file")
    assert none.endswith(f"There is no file or directory '{tmp_path / 'none'}'.")


def test_what_is_missing_is_told_from_what_is_needed(asked):
    code, out = asked(needed=["nobody-made-this>=1; extra == 'spark'"])
    assert code == 0
    assert "extra spark: not installed are nobody-made-this>=1; pip install 'stateana" in out
    code, out = asked(needed=["nobody-made-this>=1"])
    assert code == 1
    assert "libraries: not installed are nobody-made-this>=1" in out
    assert "Hint: pip install" in out


def test_what_another_python_needs_is_not_missing_here(asked):
    major, minor = sys.version_info[:2]
    code, out = asked(needed=[f"nobody-made-this>=1; python_version < '{major}.{minor}'"])
    assert (code, "nobody-made-this" in out) == (0, False)
    code, out = asked(needed=[f"nobody-made-this>=1; python_version < '{major}.{minor + 1}'"])
    assert (code, "not installed are nobody-made-this>=1;" in out) == (1, True)


def test_what_does_not_work_is_said_and_the_rest_is_tried(asked):
    def broken():
        raise OSError("no room\x1b[31m")

    code, out = asked(job=broken)
    assert (code, out.count("fails: "), "\x1b" in out) == (1, 3, False)


def test_a_copy_that_was_never_installed_is_said(asked, monkeypatch, capsys):
    def unknown(name):
        raise PackageNotFoundError(name)

    asked()
    monkeypatch.setattr(module, "requires", unknown)
    assert run(["doctor"]) == 1
    assert "copied, not installed" in capsys.readouterr().out


CORE_ONLY = """
import sys
from importlib.machinery import PathFinder

class Core(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in FOREIGN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Core
"""


def brought_by(extras: set[str]) -> set[str]:
    """The distributions that an installation with these extras has, to the last one needed."""
    waiting, there = [("stateanalytics", extras)], set()
    while waiting:
        name, chosen = waiting.pop()
        there.add(canonicalize_name(name))
        for text in requires(name) or ():
            asked = Requirement(text)
            environments = [{"extra": extra} for extra in {"", *chosen}]
            if canonicalize_name(asked.name) not in there and (
                asked.marker is None or any(map(asked.marker.evaluate, environments))
            ):
                waiting.append((asked.name, asked.extras))
    return there


@pytest.mark.slow
def test_what_a_plain_installation_brings_is_enough_for_the_main_job(tmp_path):
    """No import leads beyond the core; `pip install stateanalytics` is all that a report needs."""
    core = brought_by(set())
    assert {"polars", "duckdb", "altair"} <= core
    assert core.isdisjoint({"pyarrow", "numpy", "pandas", "ipywidgets", "mcp"})
    owners = packages_distributions().items()
    foreign = {name for name, of in owners if core.isdisjoint(map(canonicalize_name, of))}
    assert {"ipywidgets", "mcp", "pyarrow", "pytest"} <= foreign
    (tmp_path / "sitecustomize.py").write_text(f"FOREIGN = {sorted(foreign)!r}\n{CORE_ONLY}")
    script = (
        "from stateanalytics.cli import run\n"
        "try: import ipywidgets\n"
        "except ModuleNotFoundError: pass\n"
        "else: raise SystemExit('the extras are there')\n"
        "store = 'data/samples/state.db'\n"
        f"out = {str(tmp_path)!r}\n"
        "for line in (['doctor'], ['attention', store], ['failures', store],\n"
        "             ['export', store, '--metrics', '-'], ['sql', store, 'FROM states'],\n"
        "             ['export', store, '-o', f'{out}/facts.sqlite'],\n"
        "             ['report', store, '-o', f'{out}/week.html']):\n"
        "    assert run(line) == 0, line\n"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    how = {"capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, check=False, **how)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert (tmp_path / "week.html").stat().st_size > 50_000


@pytest.mark.slow
def test_the_jobs_of_a_doctor_are_done():
    for job in (module._read, module._ask, module._draw):
        job()


def test_every_extra_that_an_error_names_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [path.read_text("utf-8") for path in (ROOT / "stateanalytics").rglob("*.py")]
    named = set(re.findall(r"extra=\"(\w+)\"", "\n".join(texts)))
    assert {"excel", "models", "notebook"} <= named
    assert named <= set(extras["optional-dependencies"])


class _Still(Shown):
    def __repr__(self):
        return "still"

    def as_html(self):
        return "<p>first view</p>"

    @property
    def widget(self):
        with widget_libraries():
            import ipywidgets  # noqa: F401


def test_an_explorer_without_widgets_shows_its_first_view_and_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = _Still()._repr_mimebundle_()
    assert bundle["text/html"].endswith("<p>first view</p></div>")
    assert "<p>Hint: pip install &#x27;stateanalytics[notebook]&#x27;" in bundle["text/html"]
    assert set(bundle) == {"text/html", "text/plain"}


def test_a_chart_to_choose_from_says_what_it_needs(monkeypatch):
    def without_anywidget(_):
        """What altair's stand-in does."""
        raise ImportError("No module named 'anywidget'")

    monkeypatch.setattr(selecting, "SelectableChart", without_anywidget)
    counts = pl.DataFrame({"entity_type": ["a"], "critical": [1], "warning": [0], "info": [0]})
    with pytest.raises(MissingComponentError, match=r"needs anywidget.*\n.*\[notebook\]"):
        chart_severity(counts).live()


def test_only_imports_are_taken_for_a_missing_part():
    with pytest.raises(ValueError, match="odd"), needing("x", "It", extra="excel", instead="y"):
        raise ValueError("odd")


def test_usual_places_are_below_the_home_of_a_windows_user():
    home = PureWindowsPath(r"C:\Users\me")
    places = [path for path in usual_places({}, home) if not isinstance(path, Path)]
    assert len(places) == len(usual_places({}, home))
    assert str(places[0]) == r"C:\Users\me\.lionagi\state.db"
    assert all(path.is_relative_to(home) for path in places)


def test_paths_of_agent_orchestrator_are_told_alike_on_windows(monkeypatch):
    monkeypatch.setattr(os, "sep", "\\")
    root, name = r"C:\Users\me\.agent-orchestrator", r"\projects\web\sessions\app-1.json"
    assert Faults("ao", root).below(root + name) == "projects/web/sessions/app-1.json"
    log = File(rf"{root}\worktrees\app-1\.ao\activity.jsonl", Kind.ACTIVITY)
    [entry] = _activity({"state": "active"}, log)
    assert entry["session_id"] == "app-1"
