"""A system that nobody here uses, as an installed package: it gets everything, by one value."""

import ast
import dataclasses
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from stateanalytics import plugin
from tests.conftest import ROOT
from tests.examples import a_few
from tests.plugin.runs import write_runs
from tests.size import n_code_lines

HERE = ROOT / "tests" / "plugin"
PAGE = ROOT / "docs" / "adding_a_system.md"
SYSTEMS = "lionagi agent_orchestrator opencode claude_code codex pulse"
QUESTIONS = """
import json, sys
import polars as pl
import stateanalytics as sa
from stateanalytics.core.schema import ENTITIES
from tests.samples import SAMPLES
from stateanalytics.systems import all_systems

snap = sa.read(sys.argv[1], progress=False)
states = sa.states(snap)
spells = sa.survival.spells(snap)
fired = sa.detectors.detect(snap, detectors=["pulse_quiet", "pulse_hot", "policy"]).rows
alarms = sa.detectors.alarms(snap, detectors=["pulse_quiet"])
past = sa.detectors.detect(snap, at="2026-05-20T12:00Z", detectors=["pulse_hot"]).rows
advice = sa.thresholds.recommend(snap)
report = sa.report(snap, window="2026-W21", sections=["failures"])
both = sa.read([SAMPLES / "codex", sys.argv[1]], progress=False)
clusters = sa.failures.clusters(snap)
print(json.dumps({
    "systems": [known.name for known in all_systems()],
    "of": snap.sources["system"].to_list(),
    "findings": snap.findings.select("code", "n_rows").rows(),
    "ends": states["lifecycle"].cast(pl.String).value_counts().sort("lifecycle").rows(),
    "open": states.filter(~pl.col("is_terminal")).sort("entity_id").select(
        "entity_id", pl.col("health").cast(pl.String), pl.col("severity").cast(pl.String)).rows(),
    "bare": sa.states(snap.entities.select(ENTITIES.dtypes.names()), as_of=snap.as_of)
        .equals(states),
    "codes": sa.reasons(snap).filter(entity_id="run-00")["code"].to_list(),
    "known": sa.reason_codes().filter(origin="pulse")["what_to_do"].to_list(),
    "clusters": clusters.select("code", "template", "n_rows", "systems").rows(),
    "durations": spells.filter(pl.col("left_out").is_null())["duration_s"].sum(),
    "cut_off": spells.filter("is_censored").sort("entity_id")["cut_off_by"].to_list(),
    "limits": sa.survival.timeouts(snap)["limit_s"].unique().to_list(),
    "silences": sa.detectors.silence_gaps(snap)["gap_s"].max(),
    "fired": fired.filter("fires").sort("entity_id", "detector").select(
        "entity_id", "detector").rows(),
    "alarms": alarms["entity_id"].unique().sort().to_list(),
    "past": past["entity_id"].len(),
    "advice": advice.frame.select("name", "today_s").rows(),
    "settings": advice.to_json() != "",
    "sql": snap.sql(
        "SELECT count(*), sum(n_beats) FROM pulse_beats JOIN states USING (source, entity_id)"
    ).rows(),
    "schema": snap.sql("SELECT count(*) FROM columns WHERE frame = 'pulse_beats'").item(),
    "attention": sa.attention(snap)["entity_id"].len(),
    "audit": sa.audit(snap)["code"].to_list(),
    "report": report.as_html(),
    "beside": sa.report(both, window="2026-W21", sections=["systems"]).as_html(),
}, default=str))
"""

COMMANDS = """
import io, json, sys
from contextlib import redirect_stdout
from stateanalytics import cli

printed = []
for arguments in json.loads(sys.argv[1]):
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as page:
        code = cli.run(arguments)
    page.flush()
    printed.append((code, page.buffer.getvalue().decode()))
print(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("pulse") / "runs")


def environment(*more: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, (ROOT, HERE, *more)))
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "COLUMNS": "200"}


def run(*arguments: object, more: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A process in which the plug-in is installed, as far as Python can tell."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment(*more), capture_output=True, text=True, timeout=180, check=False
    )


def command(*arguments: object) -> str:
    done = run("-m", "stateanalytics", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def answers(folder):
    done = run("-c", QUESTIONS, folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_module_has_all_that_it_needs_and_a_system_at_most_18_attributes():
    tree = ast.parse((HERE / "pulse_system.py").read_text("utf-8"))
    imported = [
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stateanalytics")
        for name in node.names
    ]
    assert imported == ["stateanalytics.plugin"]
    assert plugin.PLUGIN_VERSION == 1
    assert [name for name in plugin.__all__ if not hasattr(plugin, name)] == []
    assert len(dataclasses.fields(plugin.System)) <= 18


def test_it_is_at_most_100_lines_of_code():
    assert n_code_lines(HERE / "pulse_system.py") <= 100


def test_it_is_found_by_its_entry_point_and_reads_what_is_its_own(answers):
    assert answers["systems"] == SYSTEMS.split()
    assert answers["of"] == ["pulse"]
    assert answers["findings"] == [["line.not_json", 1]]


def test_it_gets_states_also_of_a_bare_frame(answers):
    assert answers["ends"] == [["completed", 48], ["failed", 12], ["running", 2]]
    assert answers["open"] == [["lively", "running", "info"], ["silent", "stalled", "critical"]]
    assert answers["bare"]


def test_it_gets_reasons_failures_and_what_needs_attention(answers):
    assert answers["codes"] == ["run.failed.no_memory"]
    assert answers["known"] == ["Give it more."]
    [cluster] = answers["clusters"]
    assert cluster == ["run.failed.no_memory", "worker <*> was killed at <*>", 12, "pulse"]
    assert answers["attention"] == 13
    assert answers["audit"] == ["audit.open_without_sign_of_life"]


def test_it_gets_durations_limits_and_silences(answers):
    # Runs of 3 to 9 beats a minute apart and half a minute more; one open for 5 minutes,
    # one that fell silent after one.
    whole = sum(60.0 * (3 + number % 7) + 30.0 for number in range(60))
    assert answers["durations"] == whole + 300.0 + 60.0
    assert answers["cut_off"] == ["as_of", "last_activity"]
    assert answers["limits"] == [900.0]
    assert answers["silences"] == 9 * 3600.0


def test_it_gets_detectors_at_any_instant_and_alarms(answers):
    of_silent = [["silent", "policy"], ["silent", "pulse_quiet"]]
    assert answers["fired"] == [["lively", "pulse_hot"], *of_silent]
    # A heartbeat of five minutes is too slow for it, even while the run goes on.
    assert answers["alarms"] == ["lively", "silent"]
    assert answers["past"] > 20


def test_it_gets_advice_on_its_threshold(answers):
    assert answers["advice"] == [["pulse.quiet", 120.0]]
    assert answers["settings"]


def test_it_gets_sql_over_its_own_frame(answers):
    assert answers["sql"] == [[62, 356]]
    assert answers["schema"] == 6


def test_it_gets_a_report(answers):
    page = answers["report"]
    assert "It ran out of memory." in page
    assert "<h3>Pulse</h3>" in answers["beside"]
    assert "A run is a file." in answers["beside"]


@pytest.mark.slow
def test_it_gets_the_command_line(folder, tmp_path):
    page = tmp_path / "week.html"
    expected = [
        (["sql", "--schema"], "pulse_beats"),
        (["detectors", "--list", "--limit", "200"], "pulse_quiet"),
        (["failures", folder, "--show", "codes", "--week", "2026-W21"], "run.failed.no_memory"),
        (["report", folder, "-o", page, "--week", "2026-W21"], ""),
    ]
    check_commands(expected)
    assert "It ran out of memory." in page.read_text("utf-8")


@pytest.mark.slow
def test_it_gets_commands_of_functions_that_it_gets(folder):
    expected = [
        (["detectors", folder, "--detector", "pulse_hot"], "pulse_hot"),
        (["sql", folder, "SELECT count(*) AS n FROM entities"], "62"),
        (["thresholds", folder], "pulse.quiet"),
    ]
    check_commands(expected)


def check_commands(expected):
    # One process for all: the next test starts one of its own for a command.
    arguments = [[str(word) for word in words] for words, _ in expected]
    done = run("-c", COMMANDS, json.dumps(arguments))
    assert done.returncode == 0, done.stderr
    for (words, said), (code, printed) in zip(expected, json.loads(done.stdout), strict=True):
        assert code == 0, (words, done.stderr)
        assert said in printed, words


@pytest.mark.slow
def test_without_a_name_its_usual_place_is_looked_up(folder, home):
    (home / ".pulse").symlink_to(folder)
    assert "62" in command("sql", "SELECT count(*) AS n FROM entities")


def _installed(folder: Path, module: str, text: str, entry: str) -> Path:
    """A package on the path, with an entry point of the group."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[stateanalytics.systems]\n{entry}\n")
    (folder / f"{module}.py").write_text(text)
    return folder


LIST = "import stateanalytics.systems as s; print(*(known.name for known in s.all_systems()))"


@pytest.mark.parametrize(
    ("text", "problem"),
    a_few(
        [
            pytest.param("1 / 0", "ZeroDivisionError", id="it raises"),
            pytest.param("SYSTEM = 'x'", "is a str, not a System", id="it is no system"),
            pytest.param("", "AttributeError", id="it is not there"),
        ],
        1,
    ),
)
def test_a_broken_package_is_a_warning_and_costs_its_own_rows_only(tmp_path, text, problem):
    folder = _installed(tmp_path, "broken_system", text, "broken = broken_system:SYSTEM")
    done = run("-c", LIST, more=(folder,))
    assert done.stdout.split() == SYSTEMS.split()
    assert "RuntimeWarning: The system 'broken' of the package broken_system" in done.stderr
    assert problem in done.stderr
    shown = run("-m", "stateanalytics", "doctor", more=(folder,)).stderr.splitlines()
    [line] = [line for line in shown if problem in line]
    assert line.startswith("warning: The system 'broken'") and "Runtime" not in str(shown)


FAILING = """
from dataclasses import replace
from stateanalytics.systems.base import Files, Stores
from pulse_system import SYSTEM as PULSE, find

def fail(*_given, **_options):
    raise KeyError("beat")

SYSTEM = replace(PULSE, name="failing", files=Files(find=find, read=fail))
OF_STORES = replace(PULSE, name="failing", files=None, stores=Stores(recognises=fail, read=fail))
BEATS = Stores(recognises=lambda store: "beats" in store.tables, read=fail)
AND_READS = replace(OF_STORES, stores=BEATS)
"""
READ = """
import json, sys
import stateanalytics as sa
for on_error, *paths in json.loads(sys.argv[1]):
    print("---")
    try:
        snap = sa.read(paths, on_error=on_error, progress=False)
    except sa.errors.SourceError as error:
        print(error)
    else:
        print(snap.sources["system"].to_list(), snap.entities.height > 100)
        print(snap.findings.filter(code="source.unreadable").select("severity", "message").rows())
"""
SAMPLE = ROOT / "data" / "samples" / "state.db"


@pytest.fixture
def failing(tmp_path):
    """A folder in which the failing system is installed, and files of its own in it."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one.pulse.jsonl").write_text("{}")
    with closing(sqlite3.connect(tmp_path / "files" / "beats.db")) as store:
        store.execute("CREATE TABLE beats (at)")
    return partial(_installed, tmp_path, "failing_system", FAILING)


def read_failing(folder, *asked):
    """What each reading gave, in one process; and what that process said beside."""
    done = run("-c", READ, json.dumps(asked, default=str), more=(folder,))
    return [text.strip() for text in done.stdout.split("---\n")[1:]], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "path"),
    a_few(
        [
            pytest.param("AND_READS", "files/beats.db", id="a store"),
            pytest.param("SYSTEM", "files/one.pulse.jsonl", id="a file"),
        ]
    ),
)
def test_a_reader_that_fails_costs_its_own_rows_only_and_is_counted(failing, value, path):
    folder = failing(f"a_failing = failing_system:{value}")
    own = folder / path
    asked = ["skip", SAMPLE, own], ["raise", SAMPLE, own], ["skip", own]
    (skipped, raised, alone), said = read_failing(folder, *asked)
    assert skipped.splitlines() == [
        "['lionagi'] True",
        "[('error', \"the system 'failing' cannot read it: KeyError: 'beat'\")]",
    ], said
    assert raised.startswith("The system 'failing' cannot read ")
    assert "KeyError: 'beat'" in raised
    assert alone.startswith("Nothing could be read: of "), said
    assert "the system 'failing' cannot read it" in alone


@pytest.mark.slow
def test_a_system_that_cannot_look_at_a_store_is_passed_over(failing):
    folder = failing("a_failing = failing_system:OF_STORES")
    asked = ["skip", SAMPLE], ["skip", SAMPLE, folder / "files" / "beats.db"]
    (sample, with_beats), said = read_failing(folder, *asked)
    assert sample.splitlines() == ["['lionagi'] True", "[]"], said
    assert "not a known store" in with_beats
    assert "The system 'failing' cannot examine" in said


def test_two_packages_with_one_name_are_an_error(tmp_path):
    text = "from dataclasses import replace\nfrom pulse_system import SYSTEM\n"
    folder = _installed(tmp_path, "other_pulse", text, "pulse = other_pulse:SYSTEM")
    done = run("-c", LIST, more=(folder,))
    assert done.returncode == 1
    assert "Two packages define a system 'pulse'" in done.stderr
    assert "Hint: uninstall one of the two" in done.stderr


def test_the_page_shows_exactly_that_code():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    shown = "".join(block for block in blocks if not block.startswith("import stateanalytics"))
    assert _lines(shown) == _lines((HERE / "pulse_system.py").read_text("utf-8"))
    (entry,) = re.findall(r"```ini\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    points = HERE / "pulse_system-1.0.dist-info" / "entry_points.txt"
    assert entry == points.read_text("utf-8")


@pytest.mark.slow
def test_the_questions_of_the_page_run(folder):
    page = PAGE.read_text("utf-8")
    (questions,) = re.findall(r"```python\n(import stateanalytics.*?)```", page, re.DOTALL)
    done = run("-c", questions.replace("runs/", str(folder)))
    assert done.returncode == 0, done.stderr


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]
