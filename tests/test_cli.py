"""The command line, as a person and as a program use it."""

import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from stateanalytics import cli
from stateanalytics.cli import querying, questions
from stateanalytics.cli.output import (
    Request,
    as_csv,
    as_json,
    changed_only,
    program,
    show_in_browser,
)
from stateanalytics.cli.reports import _by_week
from stateanalytics.core.tables import as_table
from stateanalytics.demo_data import demo_path
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, write_store
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")
HOSTILE = "=HYPERLINK(1)\x1b[31m\u202e red\x07"


def session(of, **more):
    began = dict.fromkeys(("created_at", "started_at"), NOW_S - 7200)
    ended = dict.fromkeys(("ended_at", "last_message_at"), NOW_S - 3600)
    return {"id": of, "progression_id": "p", "status": "completed", **began, **ended, **more}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    why = {"status_reason_code": "run.failed.exception", "status_reason_summary": "it broke"}
    failed = session("b", name=HOSTILE, status="failed", **why)
    written = write_store(
        tmp_path_factory.mktemp("home") / "state.db",
        sessions=[session("a", name="good"), failed, session("c", status="done", name=None)],
        plays=[{"id": "p1", "status": "merged", "show_id": "s", "name": "x"}],
        messages=[{"id": "m", "created_at": NOW_S, "content": '{"x": "said"}', "role": "user"}],
    )
    return str(written)


@pytest.fixture
def refused(run):
    """What a command says that ends with code 2 and prints nothing."""

    def refused(*arguments):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        return err

    return refused


# --- sql -------------------------------------------------------------------------------


def test_sql_prints_a_table(run, store):
    code, out, err = run("sql", store, "SELECT entity_id, severity FROM states ORDER BY ALL")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["entity_id", "severity"]
    assert "b          critical" in out
    assert out.endswith("(4 rows)\n")


def test_sql_binds_parameters(run, store):
    query = "SELECT entity_id FROM entities WHERE name = $who OR entity_id = $id"
    code, out, _ = run("sql", store, query, "-p", "who=good", "-p", "id=it's; =x")
    assert code == 0
    assert "(1 row)" in out
    assert run("sql", store, "SELECT $who", "-p", "who")[0] == 2
    assert "needs a value for $who" in run("sql", store, "SELECT $who")[2]


def test_sql_says_when_it_cut_the_result(run, store):
    code, out, err = run("sql", store, "FROM range(100)", "--max-rows", "3")
    assert (code, "(3 rows)" in out) == (0, True)
    assert err.startswith("note: The result was truncated: these are its first 3 rows")
    assert "--max-rows" in err
    code, out, err = run("sql", store, "FROM range(200)")
    assert (code, "(200 rows)" in out, err) == (0, True, "")


def test_a_query_out_of_time_is_a_failed_run(run, store):
    code, _, err = run("sql", store, "SELECT count(*) FROM range(100000000000)", "--timeout", "0.1")
    assert code == 1
    assert "limit of 0.1 s" in err


def test_a_query_may_come_from_standard_input(run, store, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 41 + 1 AS n\n"))
    assert "42" in run("sql", store, "-")[1]


@pytest.mark.slow
def test_sql_over_several_stores(run, store, tmp_path):
    other = str(write_store(tmp_path / "other.db", sessions=[session("z")]))
    query = "SELECT count(DISTINCT source) AS n FROM entities"
    assert run("sql", store, other, query, "-f", "csv")[1] == "n\n2\n"


def test_bodies_only_on_request(run, refused, store):
    query = "SELECT content FROM raw_messages"
    assert "--bodies" in refused("sql", store, query)
    assert "said" in run("sql", store, query, "--bodies")[1]


# --- formats ---------------------------------------------------------------------------

QUERY = "SELECT name, ended_at, duration_s, [1, 2] AS l FROM entity_states ORDER BY entity_id"


def test_csv_is_as_it_is_in_the_store(run, store):
    _, out, _ = run("sql", store, QUERY, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows[1]["name"] == HOSTILE
    assert rows[0]["ended_at"] == "2026-05-26T23:00:00.000000Z"
    assert rows[0]["l"] == "[1, 2]"
    assert rows[2]["name"] == ""


def test_safe_csv_disarms_formulas(run, store):
    _, out, _ = run("sql", store, QUERY.replace("[1, 2]", "'-1'"), "-f", "csv", "--safe-csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert rows[1]["name"] == f"'{HOSTILE}"
    assert rows[0]["l"] == "'-1"
    assert rows[0]["name"] == "good"


def test_json_is_json(run, store):
    _, out, _ = run("sql", store, QUERY + " LIMIT 2", "--format", "json")
    rows = json.loads(out)
    assert rows[1]["name"] == HOSTILE
    good = {"name": "good", "ended_at": "2026-05-26T23:00:00Z", "duration_s": 3600.0}
    assert rows[0] == {**good, "l": [1, 2]}
    _, out, _ = run("sql", store, "SELECT 'nan'::DOUBLE AS x, 'x'::BLOB AS b", "-f", "json")
    assert json.loads(out) == [{"x": None, "b": "78"}]
    assert json.loads(run("sql", store, "FROM states LIMIT 0", "-f", "json")[1]) == []


def test_the_suffix_chooses_the_format(run, store, tmp_path):
    for read in (pl.read_csv, pl.read_json, pl.read_parquet):
        path = tmp_path / f"out.{read.__name__.removeprefix('read_')}"
        code, out, err = run("sql", store, "SELECT 1 AS a, 'x' AS b", "-o", str(path))
        assert (code, out, err) == (0, "", "")
        assert read(path).rows() == [(1, "x")]
    path = tmp_path / "out.txt"
    run("sql", store, "SELECT 1 AS a", "-o", str(path))
    assert path.read_text() == "a\n-\n1\n(1 row)\n"


def test_parquet_keeps_the_types(run, store, tmp_path):
    path = tmp_path / "states.parquet"
    assert run("attention", "--show", "states", store, "-o", str(path))[0] == 0
    severities = ["critical", "warning", "info", "neutral"]
    assert pl.read_parquet(path).schema["severity"] == pl.Enum(severities)


def test_a_format_in_words_needs_no_suffix(run, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("sql", store, "SELECT 1 AS n", "-o", "x.log", "-f", "csv")[0] == 0
    assert (tmp_path / "x.log").read_text() == "n\n1\n"
    assert run("sql", "--schema", "states", "-o", "states.md")[0] == 0
    assert "## states" in (tmp_path / "states.md").read_text()
    assert run("sql", "--schema", "-o", "states.md", "-f", "csv")[0] == 2
    assert run("sql", "--schema", "-f", "markdown", "-o", "/nowhere/x.md")[0] == 2


# --- what is shown to eyes -------------------------------------------------------------


@pytest.mark.slow
def test_tables_hold_no_control_characters(run, store):
    for arguments in (
        ("attention", "--show", "states", store),
        ("attention", store),
        ("attention", "--show", "findings", store),
        ("sql", store, "SELECT name FROM entities"),
        ("sql", store, "SELECT 'x\x1b[31mx\u202e' AS \"c\x1b[31m\u202e\""),
    ):
        _, out, _ = run(*arguments)
        assert not {"\x1b", "\u202e", "\x07"} & {*out}
    assert "\\u202e" in out


def test_errors_hold_no_control_characters(run):
    _, _, err = run("attention", "--show", "states", "/nowhere/\x1b[31m\u202e.db")
    assert not {"\x1b", "\u202e"} & {*err}


def test_csv_and_json_for_eyes_are_harmless():
    frame = pl.DataFrame({"a\x1b": ["\x1b[31m\u202ex\x07"]})
    assert as_csv(frame, is_seen=True) == "a\\x1b\n\\u202ex\\x07\n"
    assert "\u202e" not in as_json(frame, is_seen=True)
    assert as_json(frame) == '[{"a\\u001b": "\\u001b[31m\u202ex\\u0007"}]\n'


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_table_fits_the_width(width):
    frame = pl.DataFrame({f"column_{i}": ["x" * (i * 7), "日本語" * i, None] for i in range(1, 12)})
    text, n_left_out = as_table(frame, width)
    from rich.cells import cell_len

    assert all(cell_len(line) <= width for line in text.splitlines())
    assert text.splitlines()[0].startswith("column_1"[: width - 1])
    assert (n_left_out == 0) == (width == 200)


def test_ids_are_never_cut():
    long = "run:" + "0123456789abcdef" * 8
    row = {"severity": "critical", "item_id": long, "id": "x" * 30, "message": "m" * 200}
    frame = pl.DataFrame([row | {"name": "n"}])
    for width in (20, 80, 200, 400):
        assert long in as_table(frame.select("item_id", "message"), width)[0]
    text, n_left_out = as_table(frame, 220)
    assert (long in text, "x" * 30 in text, n_left_out) == (True, True, 0)
    assert "…" in text
    # Where it does not fit it is left out as a whole, and counted.
    text, n_left_out = as_table(frame, 80)
    assert ("run:" in text, n_left_out) == (False, 4)


def test_what_is_said_in_words_has_the_room_and_moments_are_whole():
    row = {"name": "n" * 60, "at": datetime(2026, 5, 18, 9, 30), "message": "m" * 300}
    line = as_table(pl.DataFrame([row]), 100)[0].splitlines()[2]
    assert "2026-05-18 09:30:00" in line
    assert line.count("m") > 1.8 * line.count("n") > 20


def test_hundreds_that_are_open_do_not_hide_what_has_ended(run, tmp_path):
    running = [session(f"r{n}", status="running", ended_at=None) for n in range(60)]
    failed = [session("f", status="failed", status_reason_summary="it broke", ended_at=NOW_S - 60)]
    store = write_store(tmp_path / "state.db", sessions=[*running, *failed])
    _, out, _ = run("attention", str(store), "--as-of", "2027-01-01")
    rows = out.splitlines()[2:]
    assert [n for n, row in enumerate(rows) if "it broke" in row] == [questions.N_OPEN_FIRST]


def test_what_is_said_can_be_read_before_what_stands_behind_it_is_shown():
    said = "ToolError: Bash exited with code 127: poetry: not found"
    row = {"id": "3b3c21b1", "cost": "$4.39", "template": said, "code": "run.failed.exception"}
    frame = pl.DataFrame([row])
    for width, n_left_out in ((200, 0), (75, 0), (70, 1), (50, 1)):
        text, n = as_table(frame, width)
        assert n == n_left_out
        assert ("run.failed" in text) == (not n)
        assert said[:28] in text
    assert "poetry" in as_table(frame, 70)[0]


def test_a_wide_table_wraps_what_does_not_fit():
    words = " ".join(f"word{number}" for number in range(30))
    frame = pl.DataFrame({"entity": ["session:1"], "message": [words + " 日本語" * 30], "n": [7]})
    text, _ = as_table(frame, 60, is_wide=True)
    assert text.count("日") == text.count("語") == 30
    assert all(word in text.split() for word in words.split())
    from rich.cells import cell_len

    assert max(map(cell_len, text.splitlines())) <= 60
    assert text.splitlines()[2].endswith("7")


def test_a_table_of_a_command_says_durations_and_dollars_as_people_do_and_files_do_not(run, store):
    _, out, _ = run("attention", "--show", "states", store, "--wide")
    header, _, *rows = out.splitlines()
    assert "silence" in header.split()
    assert "silence_s" not in header
    assert any(re.search(r"\d (h|min|s|d)\b", row) for row in rows)
    _, out, _ = run("attention", "--show", "states", store, "-f", "csv")
    assert "silence_s" in out.splitlines()[0]


def test_a_table_names_the_system_where_there_are_several(capsys):
    frame = pl.DataFrame({"system": ["a", "b"], "severity": ["critical", "warning"], "n": [1, 2]})
    for rows, columns in [(frame, ["severity", "system", "n"]), (frame[:1], ["severity", "n"])]:
        Request().write(rows, columns=("severity", "n"))
        assert capsys.readouterr().out.splitlines()[0].split() == columns


@pytest.mark.parametrize("name", cli.cli.list_commands(None))
def test_every_line_of_help_is_a_whole_sentence(name):
    command = cli.cli.get_command(None, name)
    options = [one.help for one in command.params if one.param_type_name == "option"]
    lines = [command.get_short_help_str(200), *options]
    assert [line for line in lines if not re.fullmatch(r"[A-Z][a-z]+,? .*\.", line, re.S)] == []


WRITES = {
    "report": ([], ".html"),
    "show": (["6009d20f"], ".html"),
    "attention": ([], ".csv"),
    "thresholds": ([], ".csv"),
    "sql": (["FROM states"], ".csv"),
    "export": ([], ".duckdb"),
}


@pytest.mark.parametrize("command", WRITES)
def test_what_cannot_be_written_is_refused_before_anything_is_read(run, tmp_path, command):
    arguments, suffix = WRITES[command]
    of_no_kind, nowhere = tmp_path / "x.pdf", tmp_path / "absent" / f"x{suffix}"
    for place, told, hint in (
        (of_no_kind, "no known suffix. Hint: end it in", f"-o {of_no_kind.with_suffix(suffix)}"),
        (nowhere, "there is no folder", f"mkdir -p {nowhere.parent}"),
    ):
        code, _, err = run(command, str(tmp_path / "no.db"), *arguments, "-o", str(place))
        assert code == 2
        assert told in err and hint in err


def test_a_table_of_changes_shows_what_changed_and_counts_the_rest(capsys):
    frame = pl.DataFrame({"status": ["new", "unclear", "steady", "unclear"], "n": [1, 2, 3, 4]})
    assert changed_only(frame, "status", ("unclear", "steady"))["n"].to_list() == [1]
    assert "2 unclear, 1 steady: not shown; --format csv has them" in capsys.readouterr().err


def test_tables_of_nothing():
    assert as_table(pl.DataFrame(), 80) == ("\n\n", 0)
    assert as_table(pl.DataFrame({"a": []}), 80)[0] == "a\n-\n"


def test_long_lists_are_cut_and_said(run, store):
    asked = ("attention", "--show", "states", str(SAMPLES / "state.db"))
    _, out, err = run(*asked)
    assert "(50 rows)" in out
    assert "more rows; see them with --limit" in err
    assert "(7 rows)" in run(*asked, "--limit", "7")[1]
    assert "note: 1 more row; see" in run(*asked[:-1], store, "--limit", "3")[2]


# --- the other commands ----------------------------------------------------------------


def test_states_and_attention_can_be_narrowed(run, refused, store):
    assert "(1 row)" in run("attention", "--show", "states", store, "--type", "play")[1]
    _, out, _ = run("attention", "--show", "states", store, "--severity", "critical", "-f", "json")
    assert {row["severity"] for row in json.loads(out)} == {"critical"}
    _, out, _ = run("attention", store, "-f", "json")
    assert {row["entity_id"] for row in json.loads(out)} == {"b"}
    unknown = ("--type", "sesion")
    assert "did you mean 'session'" in refused("attention", "--show", "states", store, *unknown)
    code, _, err = run("attention", store, "--severity", "bad")
    assert (code, err.count("\n")) == (2, 1)
    assert run("attention", "--show", "findings", store, "--severity", "error")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("show", ["items", "states"])
def test_what_depends_on_the_instant_says_which_it_is_and_why(run, store, show):
    """Else a copy of May reads as if all that is open had been silent until today."""
    _, _, err = run("attention", store, "--show", show, "--as-of", "2026-05-25T12:00")
    assert "as of 2026-05-25 12:00 UTC (as asked)" in err
    assert "(the newest moment in the data)" in run("attention", store, "--show", show)[2]


@pytest.mark.slow
def test_similar_findings_are_one_line_of_a_table(run, tmp_path):
    sessions = [session(name, status="dnoe") for name in "abc"]
    store = str(write_store(tmp_path / "state.db", sessions=sessions))
    _, out, _ = run("attention", "--show", "findings", store)
    (line,) = [line for line in out.splitlines() if "status.unknown" in line]
    assert " 3 " in line
    _, out, _ = run("attention", "--show", "findings", store, "-f", "csv")
    assert out.count("status.unknown") == 3
    other = str(write_store(tmp_path / "other.db", sessions=sessions[:1]))
    _, out, _ = run("attention", "--show", "findings", store, other)
    (line,) = [line for line in out.splitlines() if "status.unknown" in line]
    assert " 4 " in line


def test_policies_are_compared(run, store):
    code, out, err = run("thresholds", store, "--against", "operator")
    assert (code, "c          neutral     info" in out) == (0, True)
    assert err == "note: 1 of type session from neutral to info\n"
    assert run("thresholds", store, "--against", "strict")[0] == 2
    assert run("thresholds", store, "--against", "/nowhere/x.toml")[0] == 2


def test_a_policy_can_be_a_file(run, refused, store, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"base": "v1", "idle_after_s": 60, "version": "mine"}')
    query = "SELECT DISTINCT policy_version FROM states"
    assert "mine" in run("sql", store, query, "--policy", str(path))[1]
    assert "There is no policy 'v2'" in refused("attention", store, "--policy", "v2")


@pytest.mark.slow
def test_schema_lists_and_finds(run, refused, store):
    code, out, _ = run("sql", "--schema")
    assert (code, "running_sessions" in out) == (0, True)
    _, out, _ = run("sql", "--schema", "states", "--format", "csv")
    assert out.splitlines()[0] == "frame,column,dtype,unit,meaning"
    assert "raw_sessions" in run("sql", store, "--schema")[1]
    assert "did you mean 'states'" in refused("sql", "--schema", "stats")
    assert run("sql", "--schema", "stats", "--format", "markdown")[0] == 2
    _, out, _ = run("sql", "--schema", "states", "--format", "markdown")
    assert "## states" in out
    assert "## entities" not in out


@pytest.mark.slow
def test_places_are_shown(run, home, monkeypatch, store, tmp_path):
    monkeypatch.setenv("LIONAGI_HOME", str(Path(store).parent))
    code, out, _ = run("doctor")
    assert code == 0
    assert f"place: {store}: lionagi 0." in out
    assert out.count("nothing there") == 7
    monkeypatch.setenv("LIONAGI_HOME", str(tmp_path))
    _, out, _ = run("doctor")
    _, _, err = run("attention", "--show", "states")
    # As many places are shown as are looked up.
    n_shown = len(re.findall(r"^place: ", out, re.MULTILINE))
    assert f"the {n_shown} usual places are empty" in err
    for name in (".lionagi", ".agent-orchestrator", ".ao", "opencode"):
        assert name in out


@pytest.mark.slow
def test_places_say_whose_of_which_version_and_how_large(run, home, tmp_path):
    for name, place in (("claude_code", ".claude"), ("agent_orchestrator", ".agent-orchestrator")):
        shutil.copytree(SAMPLES / name, home / place)
    _, out, _ = run("doctor")
    told = dict(re.findall(r"^place: (.*?): (.*)$", out, re.MULTILINE))
    of_claude_code = r"Claude Code [\d.]+: \d+ files, [\d.]+ kB"
    assert re.fullmatch(of_claude_code, told[str(tmp_path / ".claude")])
    of_ao = "Agent Orchestrator key=value records, JSON records, activity events: "
    assert told[str(tmp_path / ".agent-orchestrator")].startswith(of_ao)


def test_without_sources_the_usual_place_is_read_and_named(
    run, refused, monkeypatch, store, tmp_path
):
    monkeypatch.setenv("LIONAGI_HOME", str(Path(store).parent))
    code, _, err = run("attention", "--show", "states")
    assert code == 0
    assert err.startswith(f"note: reading {store}\nnote: as of ")
    monkeypatch.setenv("LIONAGI_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "usual places" in refused("attention", "--show", "states")


def test_demo_names_the_sample(run):
    code, out, err = run("doctor", "--demo")
    assert code == 0
    assert Path(out.strip()).name == "history"
    assert not err, "inside of $(…) somebody follows the advice already"


def test_weeks_begin_with_the_first_that_anything_is_known_of():
    weeks = ["2026-W10", "2026-W11", "2026-W12"]
    runs = {"measure": "runs", "unit": "1", "week": weeks, "value": [None, 3.0, None]}
    shares = {**runs, "measure": "unresolved", "unit": "share", "value": [None, None, 0.5]}
    frame = pl.concat(pl.DataFrame(rows) for rows in (shares, runs))
    assert _by_week(frame).columns == ["week", "runs", "unresolved"]
    assert _by_week(frame).rows() == [("2026-W11", "3", None), ("2026-W12", None, "50 %")]
    money = pl.DataFrame({**runs, "measure": "failure_cost_usd", "unit": "USD"})
    assert _by_week(money)["lost $"].to_list() == ["$3.00", None]
    assert _by_week(frame.filter(week="2026-W10"))["week"].to_list() == ["2026-W10"]


@pytest.mark.parametrize(
    ("named", "is_missing"),
    [
        ("web-1", False),  # a run may be called as its worktree is
        *((way, True) for way in ("./web-1", "..", "web-2")),
    ],
)
def test_show_tells_an_id_from_a_source(run, tmp_path, monkeypatch, named, is_missing):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("web-1").mkdir()
    Path("web-2").touch()
    code, _, err = run("show", named)
    assert code == 2
    assert ("the id of a run is missing" in err) == is_missing


@pytest.mark.parametrize("entity_id", ["x" * 5000, "~nobody-is-called-so"])
def test_show_asks_for_an_id_that_is_no_path(run, tmp_path, monkeypatch, entity_id):
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = run("show", entity_id)
    assert code == 2
    assert err.startswith("error: ")
    assert "the id of a run is missing" not in err


def test_a_page_that_cannot_be_opened_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    show_in_browser(tmp_path / "week.html")
    assert f"the page is {tmp_path}" in capsys.readouterr().err


@pytest.mark.slow
def test_an_as_of_in_the_future_is_pointed_out(run, store):
    code, _, err = run("attention", "--show", "states", store, "--as-of", "2999-01-01")
    assert code == 0
    assert "is in the future" in err
    past = run("attention", "--show", "states", store, "--as-of", "2026-05-27")[2]
    assert "in the future" not in past
    assert run("attention", "--show", "states", store, "--as-of", f"{NOW_S}")[0] == 0
    assert run("attention", "--show", "states", store, "--as-of", "soon")[0] == 2


# --- report ----------------------------------------------------------------------------


def test_report_writes_a_page_and_says_where(run, store, tmp_path):
    page = tmp_path / "week.html"
    code, out, err = run("report", store, "-o", str(page), "--title", "Mine & yours", "--json")
    assert (code, err) == (0, "")
    assert f"wrote {page}" in out
    assert "Mine &amp; yours" in page.read_text()
    assert json.loads((tmp_path / "week.json").read_text())["title"] == "Mine & yours"


@pytest.mark.slow
def test_report_may_look_for_processes(run, store, tmp_path):
    path = tmp_path / "numbers.json"
    asked = ("report", store, "-o", str(path), "--sections", "headline,provenance", "--probe")
    assert run(*asked)[0] == 0
    as_of = json.loads(path.read_text())["provenance"]["as_of"]
    assert as_of["at"] > "2026-06", "it is the clock, as in the other commands"


@pytest.mark.slow
def test_report_can_be_numbers_only(run, store, tmp_path):
    path = tmp_path / "numbers.json"
    asked = ("report", store, "-o", str(path), "--week", "2026-W22", "--sections", "headline")
    assert run(*asked)[0] == 0
    assert json.loads(path.read_text())["window"]["since"] == "2026-05-25T00:00:00Z"
    assert [one.name for one in tmp_path.iterdir()] == ["numbers.json"]


# --- mistakes --------------------------------------------------------------------------

ATTENTION = "attention --show states"
REMOVE = " Hint: remove it"
REFUSED = [
    # Queries.
    ("sql STORE 'DROP TABLE states'", "DROP was found"),
    ("""sql STORE "SELECT * FROM read_text('/etc/hostname')\"""", "no files"),
    ("sql STORE 'SELECT 1; SELECT 2'", "2 statements"),
    ("sql STORE 'SELECT nothing FROM states'", "no column 'nothing'"),
    ("sql STORE SELEC", "syntax error"),
    # Arguments.
    ("attentoin", "did you mean 'attention'"),
    ("sql", "Missing argument"),
    ("sql x 'SELECT 1' --max-rows 0", "--max-rows"),
    ("sql x 'SELECT 1' --timeout -1", "--timeout"),
    ("sql x 'SELECT 1' --format xml", "--format"),
    (f"{ATTENTION} --nope", "--nope"),
    (f"{ATTENTION} --json", "Hint: -f json"),
    ("doctor --json", "No such option '--json'. Hint: stateanalytics doctor --help"),
    ("costs STORE --by modle", "Hint: --by system,model; did you mean 'model'?"),
    ("show STORE", "the id of a run is missing"),
    ("report STORE --week 2026-W60", "no week 60"),
    ("report STORE --week last", "needs a day, an ISO week"),
    ("report STORE --since 2026-05-27 --until 2026-05-20", "runs forward"),
    ("report STORE --since 2030-01-01", "2030"),
    ("report STORE --week 2026-W22 --since 2026-05-20", "found both"),
    ("report STORE --since x", "needs a moment"),
    ("report STORE --policy nice", "There is no policy"),
    ("report STORE --as-of x", "as_of needs a moment"),
    ("report STORE -o /nowhere/week.html --sections headline", "cannot be written"),
    ("report STORE -o week.pdf", "Hint: end it in .html, .htm, .md, .json: -o week.html"),
    # A suffix, or a format, that the answer has not.
    *(
        (f"{command} {options}", words)
        for command in ("sql STORE 'SELECT 1'", "attention STORE --show findings")
        for options, words in (
            ("-o x.xlsx", "no known suffix. Hint: end it in .csv, .json, .parquet, .txt"),
            ("-o x.md", "'x.md' has no known suffix"),
            ("-o x.csv --format json", "The suffix of 'x.csv' means csv"),
            ("-o x.PARQUET -f table", "means parquet"),
        )
    ),
    ("report no.db --weeks -f html", "cannot be written as html. Hint: --format csv or json"),
    ("report no.db -f csv", "cannot be written as csv. Hint: --format html or email"),
    ("report no.db -f json -o n.csv", "'n.csv' means csv, but --format is json. Hint: change"),
    ("report no.db --weeks -o week.html", "has no known suffix. Hint: end it in .csv"),
    ("sql no.db FROM -f markdown", "cannot be written as markdown"),
    ("report no.db other.json --against last.json", "found 2 sources"),
    # An option that would be ignored; the value that it has by default is none that was typed.
    (f"{ATTENTION} no.db --week 2026-W21", f"--week belongs to --show items.{REMOVE}"),
    ("durations no.db --show limits --prob 0.5", f"--prob belongs to --show quantiles.{REMOVE}"),
    ("durations no.db --candidate 60", f"--candidate belongs to --show candidates.{REMOVE}"),
    ("failures no.db --leave-out-mass", f"--leave-out-mass belongs to --show change.{REMOVE}"),
    ("report no.db --weeks --title x", f"--title belongs to the page.{REMOVE}"),
    ("report no.db --weeks 2 --against last.json", f"--against belongs to --against.{REMOVE}"),
    ("report no.db --limits", f"--limits belongs to --weeks.{REMOVE}"),
    ("report no.db --wide", f"--wide belongs to --weeks or --against.{REMOVE}"),
    (
        "report no.db --against last.json --as-of 0",
        f"--as-of belongs to the page or --weeks.{REMOVE}",
    ),
    ("sql no.db --schema -p x=1", f"--param belongs to QUERY.{REMOVE}"),
    ("sql no.db --views --schema states", f"--views belongs to --views.{REMOVE}"),
    (
        "thresholds no.db --review --deaths 1",
        f"--deaths belongs to thresholds without --covering or --review or --against.{REMOVE}",
    ),
    ("thresholds no.db --review --against operator", f"--against belongs to --against.{REMOVE}"),
]


OF_THE_SAMPLE = [
    ("failures SAMPLE --show rules", "needs a file of rules. Hint: --rules"),
    ("failures SAMPLE --cluster ''", "There is no cluster ''"),
    ("failures SAMPLE --against SAMPLE", "--against belongs to --show change"),
    ("failures SAMPLE --cluster v1:no", "There is no cluster 'v1:no' here; there are"),
    ("failures SAMPLE --show codes --cluster v1:no", "--cluster does not apply to"),
    ("failures SAMPLE --rules no.toml", "cannot be read"),
    ("failures SAMPLE --week 2026-W21 --since 2026-05-01", "found both"),
    ("failures SAMPLE --show codes --ledger x.csv", "--ledger belongs to --show clusters or"),
    ("failures SAMPLE --show life --ledger no.csv", "cannot be read"),
    ("failures own v1:3dd4831bf7f3", "Nothing to record. Hint: --owner"),
    ("failures own x --owner a", "no id of a cluster"),
    ("failures own f1:x --owner a", "has it: stateanalytics failures own f1:x STORE …"),
    ("failures own v1:000000000000 SAMPLE --owner a", "There is no cluster"),
    ("failures own f1: SAMPLE --owner a", "There is no failure 'f1:' here; there are"),
    ("durations SAMPLE --show compare --by none", "needs a column whose values it"),
    ("durations SAMPLE --prob 1.5", "--prob"),
    ("durations SAMPLE --by colour", "colour"),
    ("durations SAMPLE --show mean", "mean"),
    ("durations SAMPLE --week 2026-W21 --since 2026-05-18", "remove one of them"),
    ("durations SAMPLE --show candidates --candidate -5", "needs a number above 0;"),
    (
        "thresholds SAMPLE --false-alarm -1",
        "false_alarm needs a number from 0; found -1.0. Hint: a number such as 5",
    ),
    ("thresholds SAMPLE --settings toml -f csv", "--settings chooses its own format"),
    ("thresholds SAMPLE --settings toml -o SAMPLE", "which was read"),
    ("detectors SAMPLE --detector dashboard_stuk_60m", "did you mean"),
    ("detectors SAMPLE --detector A8", "cannot be evaluated from data: lock"),
    ("detectors SAMPLE --detectors lionagi@7", "0.26.1, "),
    ("detectors SAMPLE --detectors B2,,B4", "no detector ''"),
    ("detectors SAMPLE --at 2020-01-01", "Nothing had started at"),
    ("detectors SAMPLE --at 2030-01-01", "is later"),
]


@pytest.mark.parametrize(("line", "words"), [*REFUSED, *a_few(OF_THE_SAMPLE, 3)])
def test_what_makes_no_sense_is_one_line_with_what_to_type(
    refused, store, tmp_path, monkeypatch, line, words
):
    monkeypatch.chdir(tmp_path)
    named = {"STORE": store, "SAMPLE": str(SAMPLES / "state.db")}
    err = refused(*(named.get(word, word) for word in shlex.split(line)))
    assert words in err and "Hint: " in err
    assert err.startswith("error: ") and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "last", "words"),
    [("sql", "FROM states", "The query comes last"), ("show", "6009d20f", "The id comes last")],
)
def test_a_source_behind_the_query_or_the_id_is_one_line_that_says_so(
    refused, store, command, last, words
):
    err = refused(command, last, str(store))
    assert words in err and err.count("\n") == 1
    assert f"Hint: stateanalytics {command} {store} " in err


def test_an_id_may_have_a_folder_of_its_name(run, store, tmp_path, monkeypatch):
    """As a worktree of a run has; the store is a pattern, which is no path that exists."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    code, out, _ = run("show", f"{store[:-1]}?", "a")
    assert (code, "good" in out) == (0, True)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("gone.db", None, "no file or directory"),
        ("", None, "has no state.db"),
        ("*.db", None, "No store matches"),
        ("x.db", b"", "empty"),
        ("x.db", b"hello", "is text"),
        ("x.db", b"SQLite format 3\0" + b"\0" * 50, "damaged"),
    ],
)
def test_a_wrong_path_is_one_line_and_code_2(refused, tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for arguments in (
        ("attention", "--show", "states"),
        ("report", "-o", str(tmp_path / "w.html")),
        ("sql",),
    ):
        query = ("SELECT 1",) if arguments == ("sql",) else ()
        err = refused(*arguments, str(path), *query)
        assert words in err and "Hint:" in err
        assert err.count("\n") == 1


def test_a_folder_of_folders_names_those_with_records(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "mine").symlink_to(SAMPLES / "opencode")
    err = refused("attention", str(tmp_path))
    assert err.endswith(f"Hint: name one of these: '{tmp_path / 'mine'}'\n")


PYTHON = re.compile(r"sa\.|snap\.|Policy\.|\w=[\"'(…]|\(\"|_s=|=True|params|datetime|None")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "--week", "last"), "--week 2026-W21, --since 7d, or --since 2026-05-18"),
        (("report", "--week", "2026-W60"), "--week 2026-W21"),
        (("report", "--since", "2030-01-01"), "begin it before that, as --since 2026-05-27 does"),
        (("report", "--since", "2030-01-01", "--until", "2030-01-02"), "or name a later --as-of"),
        (("report", "--since", "soon"), "--since 7d, or --since 2026-05-18"),
        (("report", "--policy", "gone.toml"), "name an existing file, or one of: v1"),
        (("report", "--week", "0001-W01"), "--compare none"),
        (("attention", "--until", "0001-01-01"), "--since 7d"),
        (("attention", "--show", "states", "--as-of", "now"), "ISO text such as 2026-05-18 or"),
        (("sql", "SELECT $who"), "Hint: -p who=…"),
        (("sql", "SELECT $who", "-p", "x=1"), "Hint: -p who=…"),
        (("sql", "SELECT content FROM raw_messages"), "Hint: add --bodies"),
        (("sql", "SELECT count(*) FROM range(1e12::BIGINT)", "--timeout", "0.01"), "--timeout …"),
        (("sql", "--schema", "stats"), "did you mean 'states'"),
        (("durations", "--by", "knd"), "lists them; did you mean 'kind'?"),
        (("durations", "--show", "limits", "--by", "knd"), "`stateanalytics sql --schema timeou"),
        (("report", "--compare", "yesterday"), "--compare previous, last-week, none"),
        (("detectors", "--at", "2099-01-01"), "a later --as-of"),
        (("durations", "--week", "last"), "--week 2026-W21"),
        (("failures", "--week", "last"), "--week 2026-W21"),
        (("detectors", "--detector", "nosuch"), "stateanalytics detectors --list"),
        (("show", "zzzz"), "`stateanalytics attention --show states` lists"),
        (("show", ""), "stateanalytics show state.db 6009d20f"),
        (("sql", ""), 'stateanalytics sql state.db "FROM states"'),
        (("sql", "SELECT 1", "--table", "teams=x.exe"), "Hint: --table teams=teams.csv"),
        (("report", "--weeks", "600"), "Hint: --weeks 52"),
        (("export", "--only", "nope", "-o", "x.duckdb"), "`stateanalytics sql --schema` lists"),
    ],
)
def test_hints_say_what_to_type_in_a_shell(run, store, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    command, *rest = arguments
    code, _, err = run(command, store, *rest)
    assert code in (1, 2)
    hint = err.partition("Hint: ")[2]
    assert words in f"Hint: {hint}"
    assert not PYTHON.search(hint.replace("-p who=…", "")), hint


def test_hints_about_sources_say_what_to_type_in_a_shell(run, tmp_path, monkeypatch):
    for name in ("LIONAGI_HOME", "HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for arguments in (
        ("attention", "--show", "states"),
        ("attention", "--show", "states", ""),
        ("attention", "--show", "states", "gone.db"),
        ("attention", "--show", "states", ":memory:"),
    ):
        _, _, err = run(*arguments)
        assert "Hint: " in err
        assert not PYTHON.search(err.partition("Hint: ")[2]), err
    _, _, err = run("attention", "--show", "states")
    assert "stateanalytics doctor lists the places and a sample" in err


FILES = {
    "policy file": ["attention", "--policy"],
    "rules": ["failures", "--rules"],
    "ledger": ["report", "--ledger"],
    "table": ["sql", "SELECT 1", "--table"],
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_not_there_is_told_in_one_way(refused, store, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    suffix = ".toml" if what in ("policy file", "rules") else ".csv"
    for there in ("mine", "x"):
        (tmp_path / f"{there}{suffix}").write_text("")
    command, *options = FILES[what]
    name = f"mime{suffix}"
    err = refused(command, store, *options, f"t={name}" if what == "table" else name)
    assert f"The {what} '{name}' cannot be read: No such file" in err
    assert "Hint: name an existing file" in err
    assert f"did you mean 'mine{suffix}'?" in err


@pytest.mark.slow
@pytest.mark.parametrize("old", cli.RENAMED)
def test_an_old_name_says_what_to_type_now(run, store, tmp_path, monkeypatch, old):
    code, out, err = run(old, store, "--wide")
    assert (code, out, err.count("\n")) == (2, "", 1)
    line = cli.RENAMED[old]
    assert f"`stateanalytics {old}` has a new name. Hint: stateanalytics {line}" in err
    # What it says runs, as far as options go: the files that it names are not here.
    monkeypatch.chdir(tmp_path)
    command, *options = line.split()
    if command == "archive":
        options += ["--to", "history"]
    sources = [] if command == "doctor" or "last.json" in line else [store]
    code, _, err = run(command, *sources, *options)
    assert "--help" not in err
    assert code == (2 if "last.json" in line else 0), err


@pytest.mark.parametrize(
    ("line", "words"),
    [("stateanalytics thr", "thresholds"), ("stateanalytics sql --sch", "--schema")],
)
def test_a_shell_completes_commands_and_options(capsys, monkeypatch, line, words):
    for name, value in (("_STATEANALYTICS_COMPLETE", "bash_complete"), ("COMP_WORDS", line)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    with pytest.raises(SystemExit, match="0"):
        cli.run()
    assert capsys.readouterr().out == f"plain,{words}\n"


def test_no_name_is_both_old_and_new_and_there_are_at_most_fourteen():
    assert not {*cli.RENAMED} & {*cli.COMMANDS}
    assert len(cli.COMMANDS) <= 14
    assert {line.split()[0] for line in cli.RENAMED.values()} <= {*cli.COMMANDS}


def test_views_are_listed_with_their_sql(run, tmp_path):
    code, out, _ = run("sql", "--views")
    assert (code, "running_sessions" in out) == (0, True)
    views = json.loads(run("sql", "--views", "-f", "json")[1])
    code, out, _ = run("export", "--views", str(tmp_path / "models"))
    assert (code, out) == (0, f"{tmp_path / 'models'}\n")
    for view in views:
        text = (tmp_path / "models" / f"{view['name']}.sql").read_text("utf-8")
        assert text == f"-- {view['meaning']}\n{view['sql']}\n"
    assert len(views) == len([*(tmp_path / "models").iterdir()])


def test_help_has_examples(run):
    for command in cli.COMMANDS:
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"stateanalytics {command}" in out.split("Examples:")[1]
    page = run("-h")[1]
    assert all(f"{heading}:\n" in page for heading in cli.GROUPS)
    assert run("--version")[1].startswith("stateanalytics, version")


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False])
def test_without_a_command_the_week_of_the_usual_places_is_summed_up(
    run, home, store, monkeypatch, is_there
):
    monkeypatch.setenv("LIONAGI_HOME", str(Path(store).parent if is_there else home))
    code, out, err = run()
    of_sample = "83 of 140 ended runs completed"
    assert (code, of_sample in out) == (0, not is_there)
    assert ("this is the sample" in err) is not is_there
    where, last = ("", out.splitlines()[-1])
    if not is_there:
        where = f" {shlex.quote(str(demo_path() / 'history'))}"
    assert last == f"The whole page: {program()} report{where} --open"


def test_the_summary_of_a_week_is_that_of_the_page(run, home, tmp_path):
    """Fewer sections are made, and no charts: the words are the same."""
    page = run("report", str(demo_path() / "history"), "-o", str(tmp_path / "week.html"))[1]
    assert page.splitlines()[1:] == run()[1].splitlines()[:-1]


def test_an_interruption_is_code_130(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("stateanalytics.snapshot.read_for_once", interrupted)
    code, _, err = run("attention", "--show", "states", "x")
    assert (code, err.strip()) == (130, "error: interrupted")


@pytest.mark.parametrize(
    ("name", "given", "otherwise"),
    [
        (cli._ALLOCATOR, None, "dirty_decay_ms:200,"),
        (cli._ALLOCATOR, "dirty_decay_ms:1", ""),
        (cli._ENGINE, None, "in-memory"),
        (cli._ENGINE, "streaming", ""),
    ],
)
def test_polars_is_set_up_for_commands_unless_somebody_says_otherwise(
    monkeypatch, name, given, otherwise
):
    monkeypatch.setattr(cli.os, "environ", {} if given is None else {name: given})
    monkeypatch.setattr(cli, "run", lambda _: 0)
    monkeypatch.setattr(cli.gc, "freeze", lambda: None)
    with pytest.raises(SystemExit):
        cli.main([])
    assert cli.os.environ[name].startswith(given or otherwise)


# --- as a process ----------------------------------------------------------------------


def process(*arguments, **more):
    command = [sys.executable, "-m", "stateanalytics", *arguments]
    how = {"capture_output": True, "text": True, "timeout": 60, **more}
    return subprocess.run(command, check=False, **how)


@pytest.mark.slow
def test_without_docstrings_everything_works(store):
    env = {**os.environ, "PYTHONOPTIMIZE": "2", "STATEANALYTICS_CACHE": "off"}
    done = process("attention", store, "-f", "csv", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == process("attention", store, "-f", "csv").stdout


@pytest.mark.slow
def test_as_a_process_nothing_but_the_answer_is_printed(store):
    """Within its limit of memory it reads raw tables too."""
    done = process("sql", store, "SELECT count(*) AS n FROM raw_sessions", "-f", "csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\n3\n", "")


@pytest.mark.slow
def test_as_a_process_that_loads_duckdb_it_ends_without_words_of_that():
    done = process("attention", SAMPLES / "codex", "-f", "json")
    assert done.returncode == 0
    assert {line.partition(":")[0] for line in done.stderr.splitlines()} == {"note"}


@pytest.mark.slow
def test_a_process_that_gave_up_ends_at_once(store):
    query = "SELECT levenshtein(repeat('a', 90000), repeat('b', 90000))"
    done = process("sql", store, query, "--timeout", "0.2")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_trouble(store):
    command = [sys.executable, "-m", "stateanalytics", "sql", store, "FROM range(300000)"]
    command += ["--max-rows", "300000", "-f", "csv"]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes) as writer:
        writer.stdout.readline()
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 141


@pytest.mark.parametrize(
    ("redirected", "name", "code"),
    [
        *((">&-", "codex", 0), ("2>&-", "codex", 0), ("2>&-", "no", 2)),
        *((">/dev/full", "codex", 1), ("<&-", "codex", 0)),
        (">/dev/full", "help", 1),
    ],
)
def test_a_stream_that_leads_nowhere_is_no_traceback(redirected, name, code):
    command = "mcp" if "<&" in redirected else "attention"
    of = ["--help"] if name == "help" else [command, SAMPLES / name]
    ours = [sys.executable, "-m", "stateanalytics", *of]
    shell = ["sh", "-c", f'exec "$@" {redirected}', "sh"]
    done = subprocess.run([*shell, *ours], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert ("error: Standard output has no room." in done.stderr) == (code == 1)


BUILDS_A_LONG_TEXT = (
    "SELECT length(string_agg(repeat('x', 100000), '')) "
    "FROM (SELECT unnest(list_transform([1], lambda x: 1)) FROM range(100000))"
)


@pytest.mark.slow
def test_memory_of_a_query_has_a_limit(store):
    """What would not fit into the machine is an error of one line."""
    done = process("sql", store, BUILDS_A_LONG_TEXT)
    assert done.returncode in (1, 2)
    assert "memory" in done.stderr


@pytest.mark.parametrize(
    ("size", "shown"),
    a_few([("5MB", "5 MB"), ("50MB", "50 MB"), ("0.5 gib", "0.5 GiB"), ("70000k", "70 MB")]),
)
def test_the_limit_of_memory_is_an_option(refused, store, size, shown):
    err = refused("sql", store, BUILDS_A_LONG_TEXT, "--memory-limit", size)
    assert f"more memory than its limit of {shown}" in err
    assert "--memory-limit" in err


@pytest.mark.parametrize(
    ("size", "n_bytes"), [("50MB", 50e6), ("0.5 gib", 2**29), ("70000k", 70e6), ("1.5g", 1.5e9)]
)
def test_a_size_is_read_as_people_write_it(size, n_bytes):
    assert querying._bytes(None, None, size) == n_bytes


@pytest.mark.parametrize("size", ["", "much", "2TB", "-1GB", "100", "1e9", "5KiB", "nan"])
def test_a_limit_of_memory_is_a_size(refused, store, size):
    assert "Hint: 500MB" in refused("sql", store, "SELECT 1", "--memory-limit", size)


def test_a_path_in_the_place_of_a_command_says_what_to_type(refused, tmp_path):
    assert f"Hint: stateanalytics report {tmp_path}" in refused(str(tmp_path))


def test_the_doctor_names_the_sample_that_errors_speak_of(run):
    code, out, _ = run("doctor")
    assert code == 0 and f"the sample: {demo_path()}" in out
