"""The commands that ask questions: what they print, narrow, mask and refuse."""

import csv
import io
import json
import re
import shlex
import tomllib

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli.questions import _for_terminal, _rules_by_title
from stateanalytics.questions import questions_of
from stateanalytics.state.attention import STANDINGS
from tests.conftest import ROOT
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, session, write_store
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")
STORE = str(SAMPLES / "state.db")
AS_OF = ("--as-of", "2026-05-25T06:00Z")


@pytest.fixture
def rows_of(run):
    """The rows of an answer about the sample."""

    def rows(command, *arguments):
        code, out, err = run(command, STORE, *arguments, "--format", "json")
        assert code == 0, err
        return json.loads(out)

    return rows


# --- failures --------------------------------------------------------------------------

SHOWS = ("clusters", "parameters", "lift", "incidents", "mass", "related")
SHOWN_ELSEWHERE = ("codes", "members", "change")


@pytest.fixture(scope="module")
def clusters(demo):
    return sa.failures.clusters(demo)


@pytest.mark.slow
@pytest.mark.parametrize("show", [*a_few(SHOWS, 2), *a_few(SHOWN_ELSEWHERE, 0)])
def test_every_answer_is_a_table_for_people(run, show):
    code, out, err = run("failures", STORE, "--show", show, "--limit", "2")
    assert (code, "(2 rows)" in out) == (0, True)
    assert "did not fit" not in err
    assert "\x1b" not in out


@pytest.mark.slow
def test_clusters_are_those_of_the_library(run, rows_of, demo):
    found = rows_of("failures", "--week", "2026-W21", "--show", "clusters")
    expected = sa.failures.clusters(demo, window="2026-W21")
    assert [row["cluster_id"] for row in found] == expected["cluster_id"].to_list()


@pytest.mark.slow
def test_faults_come_first_and_their_clusters_and_rows_are_one_step_away(run, rows_of, demo):
    found = rows_of("failures", "--week", "2026-W21")
    expected = sa.failures.faults(demo, window="2026-W21", nested=True)
    assert [row["fault_id"] for row in found] == expected["fault_id"].to_list()
    (fault, *_) = expected.sort("n_clusters", descending=True).to_dicts()
    week, chosen = ("--week", "2026-W21"), ("--cluster", fault["fault_id"][:9])
    clusters = rows_of("failures", *week, "--show", "clusters", *chosen)
    assert [row["cluster_id"] for row in clusters] == fault["cluster_ids"]
    assert len(rows_of("failures", *week, *chosen)) == fault["n_rows"]
    for cluster in fault["cluster_ids"]:
        (of_cluster,) = rows_of("failures", *week, "--show", "faults", "--cluster", cluster)
        assert of_cluster["fault_id"] == fault["fault_id"]
    lives = rows_of("failures", "--show", "life", *chosen)
    assert {row["fault_id"] for row in lives} == {fault["fault_id"]}
    code, _, err = run("failures", STORE, "--show", "codes", *chosen)
    assert (code, "--cluster does not apply to --show codes" in err) == (2, True)


@pytest.mark.slow
def test_a_code_and_a_cluster_narrow(run, rows_of, clusters):
    found = rows_of("failures", "--code", "run.failed", "--show", "codes")
    assert {row["code"][:10] for row in found} == {"run.failed"}
    row = clusters.row(0, named=True)
    members = rows_of("failures", "--show", "members", "--cluster", row["cluster_id"])
    assert len(members) == row["n_rows"]


@pytest.mark.slow
def test_secrets_are_masked_and_counted_unless_asked_for(run):
    asked = ("failures", STORE, "--show", "members", "--format", "csv")
    code, out, err = run(*asked)
    assert (code, "sk-test-" in out) == (0, False)
    assert "masked: " in err and "× API key" in err
    code, out, err = run(*asked, "--no-redact")
    assert (code, "sk-test-" in out, "masked" in err) == (0, True, False)


@pytest.mark.slow
def test_rules_and_another_store_are_read(run, rows_of, tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text("[[rule]]\nname = 'limits'\naction = 'merge'\nmessage = 'rate limit'\n")
    shown = ("--show", "clusters")
    found = rows_of("failures", "--rules", str(path), *shown)
    assert "limits" in {row["template"] for row in found}
    [applied] = rows_of("failures", "--rules", str(path), "--show", "rules")
    assert applied["n_rows"] > 20
    change = rows_of("failures", "--show", "change", "--against", STORE, "--week", "2026-W21")
    assert {"new", "unclear"} == {row["status"] for row in change}


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120, 160])
def test_the_table_has_ids_that_lead_to_the_rows(run, rows_of, monkeypatch, clusters, width):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run("failures", STORE, "--show", "clusters")
    assert code == 0
    table = out.splitlines()
    assert table[0].split()[:5] == ["state", "title", "n_incidents", "cost", "id"]
    assert max(map(len, table)) <= width
    first = clusters.row(0, named=True)
    short = table[2][table[0].index("  id") + 2 :].split()[0]
    assert first["cluster_id"].removeprefix("v1:").startswith(short)
    assert len(rows_of("failures", "--cluster", short)) == first["n_rows"]


def test_a_window_in_which_nothing_failed_says_so_and_what_was_read(run):
    code, _, err = run("failures", STORE, "--show", "codes", "--week", "2020-W01")
    assert code == 0
    assert "nothing found in week 2020-W01" in err and "data that were read go from 20" in err


def test_where_no_run_failed_the_next_questions_are_named(run, tmp_path):
    write_store(tmp_path / "state.db", sessions=[session("a")])
    code, _, err = run("failures", tmp_path / "state.db")
    assert code == 0
    assert "no run failed; try --of calls" in err


def test_where_no_calls_are_recorded_the_systems_that_record_them_are_named(run, tmp_path):
    write_store(tmp_path / "state.db", sessions=[session("a")])
    for options in (("--of", "calls"), ("--show", "tools"), ("--show", "calls")):
        code, _, err = run("failures", tmp_path / "state.db", *options)
        assert code == 0
        assert "no calls of tools are recorded in what was read; those of lionagi" in err
        assert "Claude Code" in err and "stateanalytics doctor" in err
    _, _, err = run("failures", SAMPLES / "codex", "--of", "calls", "--week", "2025-W21")
    assert "calls recorded; none that failed is counted here" in err
    _, _, err = run("failures", SAMPLES / "codex", "--of", "calls")
    assert "recorded" not in err


@pytest.mark.parametrize(
    ("command", "column"),
    [
        (("report", "--weeks", "2"), "week"),
        (("report", "--weeks", "2", "--show", "all"), "week"),
        (("costs", "--by", "week"), "week"),
        (("failures", "--show", "mass"), "since"),
    ],
)
def test_tables_have_the_newest_period_first_and_files_the_oldest(run, tmp_path, command, column):
    runs = []
    for n in range(3):
        at = NOW_S - n * 7 * 86_400
        ended = {"ended_at": at + 60, "updated_at": at + 60}
        runs.append(session(f"s-{n}", created_at=at, started_at=at, **ended))
    store = write_store(tmp_path / "state.db", sessions=runs)
    whole = (command[0], store, *command[1:], "--as-of", str(NOW_S + 3600))
    code, out, err = run(*whole)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split()[0] == column
    shown = [line.split()[0] for line in lines[2:-1]]
    assert shown == sorted(shown, reverse=True) and len(set(shown)) > 1
    kept = [row[column] for row in json.loads(run(*whole, "--format", "json")[1])]
    assert kept == sorted(kept) and len(set(kept)) > 1


def test_costs_say_whether_runs_say_which_attempt_they_were(run, tmp_path, monkeypatch):
    as_of = ("--as-of", str(NOW_S))
    write_store(tmp_path / "state.db", sessions=[session("a")])
    _, _, err = run("costs", tmp_path / "state.db", *as_of)
    assert "n_first_pass and retries_usd are unknown: no run says which attempt it was" in err
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = run("costs", STORE)
    assert {"total", "reported_lost"} <= set(out.split()), "a narrow terminal shows costs"
    assert "n_first_pass and retries_usd are of runs that say which attempt they were\n" in err
    play = {"id": "p", "status": "merged", "session_id": "a", "attempt": 1}
    write_store(tmp_path / "known.db", sessions=[session("a", total_cost_usd=1.0)], plays=[play])
    _, _, err = run("costs", tmp_path / "known.db", *as_of)
    assert "which attempt they were; no retry cost anything" in err


def test_one_command_lists_what_is_open_and_needs_attention(run, rows_of):
    week = ("--week", "2026-W21")
    every = rows_of("attention", *week)
    shown = {word: rows_of("attention", "--standing", word, *week) for word in STANDINGS}
    assert [row for row in every if row["standing"] == "open"] == shown["open"] != []
    assert sum(map(len, shown.values())) == len(every)
    page = sa.report(sa.read(STORE, progress=False), window="2026-W21", sections=["attention"])
    summary = page.summary["attention"]
    for word in ("open", "ended", "stopped"):
        assert summary[word]["n"] <= len(shown[word])
    assert summary["ended"]["n"] > 10
    assert " --standing ended --week 2026-W21</code> lists all." in page.as_html()
    _, _, err = run("attention", STORE, "--show", "states", "--standing", "open")
    assert "--standing belongs to --show items" in err


def test_the_count_is_of_the_items_that_were_asked_for(run, rows_of):
    asked = ("--type", "session", "--severity", "warning")
    n, (_, _, err) = len(rows_of("attention", *asked)), run("attention", STORE, *asked)
    words = "are critical or a warning (asked: session, warning) as of"
    assert n > 1 and f"note: {n} items {words}" in err
    _, _, err = run("attention", STORE, "--as-of", "1990-01-01")
    assert "note: nothing is recorded here up to 1990-01-01 00:00 UTC\n" in err


def test_tables_of_failures_say_that_an_incident_may_be_in_several_rows(run):
    note = "one incident may be in several rows, so n_incidents may add up to too many"
    for show in ("faults", "clusters"):
        assert note in run("failures", STORE, "--show", show)[2]
        assert note not in run("failures", STORE, "--show", show, "-f", "json")[2]
    assert note not in run("failures", STORE, "--show", "incidents")[2]


def test_how_hard_runs_were_is_a_row_for_each_of_them(run):
    _, out, err = run("failures", SAMPLES / "claude_code", "--show", "effort")
    shown = sa.failures.effort(sa.read(SAMPLES / "claude_code")).filter(effort="struggled")
    assert shown["entity_type"].n_unique() == 2
    n_sessions = shown.filter(entity_type="session").height
    assert len(re.findall(r"^struggled +session ", out, re.MULTILINE)) == n_sessions
    assert "turn " not in out
    assert re.search(r"\d+ turns of these sessions: not shown", err)


@pytest.mark.parametrize("show", ["faults", "codes"])
def test_a_code_that_nothing_has_names_one_that_is_like_it(run, show):
    code, _, err = run("failures", STORE, "--show", show, "--code", "run.faild")
    assert code == 0
    assert "nothing here has code run.faild or one below it; did you" in err
    assert "no run failed" not in err


def test_a_code_counts_the_same_in_faults_whose_clusters_have_several(rows_of, demo):
    """A full disk has two codes here, and was found under the more expensive one alone."""
    several = sa.failures.clusters(demo).filter(pl.col("code").n_unique().over("fault_id") > 1)
    whole = sa.failures.faults(demo).rows_by_key("fault_id", named=True, unique=True)
    for row in several.drop_nulls("code").iter_rows(named=True):
        (fault,) = (
            sa.failures.faults(demo, code=row["code"])
            .filter(fault_id=row["fault_id"])
            .rows(named=True)
        )
        counted = ("n_rows", "n_causes", "cost_usd", "run_s", "share", "code")
        assert [fault[name] for name in counted] == [row[name] for name in counted]
        assert fault["n_rows"] < whole[row["fault_id"]]["n_rows"]
    (row,) = rows_of("failures", "--code", "run.failed.artifact_write")
    assert (row["n_clusters"], row["n_rows"]) == (1, 2)


def test_an_incident_is_found_by_each_of_its_codes_and_clusters(rows_of, demo):
    several = sa.failures.incidents(demo, nested=True).filter(pl.col("n_clusters") > 1)
    incident = several.filter(pl.col("codes").list.len() > 1).row(0, named=True)
    for option, values in (("--code", incident["codes"]), ("--cluster", incident["cluster_ids"])):
        for value in values:
            found = rows_of("failures", "--show", "incidents", option, value)
            assert incident["incident_id"] in {row["incident_id"] for row in found}


def test_a_code_leaves_a_consequence_the_cause_that_has_another_code(demo):
    (whole,) = sa.failures.faults(demo).filter(pl.col("cause_id").is_not_null()).rows(named=True)
    narrowed = sa.failures.faults(demo, code=whole["code"]).filter(fault_id=whole["fault_id"])
    assert narrowed.select("title", "cause_id").row(0) == (whole["title"], whole["cause_id"])


@pytest.mark.slow
def test_a_file_holds_every_column(run, tmp_path, clusters):
    path = tmp_path / "clusters.parquet"
    assert run("failures", STORE, "--show", "clusters", "-o", path)[0] == 0
    assert pl.read_parquet(path).columns == clusters.columns


# --- durations -------------------------------------------------------------------------


def csv_rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_of_a_kind_that_nobody_recorded_say_so():
    frame = pl.DataFrame({"kind": [None, "flow"], "n_runs": [3, 1]})
    question = questions_of("durations")[0]
    shown, columns = _for_terminal(frame, question, {"by": ["kind"]}, is_table=True)
    assert shown["kind"].to_list() == ["not recorded", "flow"]
    assert columns == ["kind"]


@pytest.mark.slow
def test_durations_are_quantiles_with_words(run, rows_of, demo):
    code, out, err = run("durations", STORE, *AS_OF, "-f", "csv")
    found = csv_rows(out)
    assert code == 0
    spells = sa.survival.spells(demo)
    curve = sa.survival.kaplan_meier(spells, by="kind")
    expected = sa.survival.quantiles(curve, [0.25, 0.5, 0.75, 0.95])
    assert [row["in_words"] for row in found] == expected["in_words"].to_list()
    n_left_out = spells["left_out"].count()
    assert f"{n_left_out} of 390 durations are excluded: see --show left-out" in err


def test_durations_by_other_columns_and_shares(run, rows_of):
    by = ("--by", "agent", "--by", "kind")
    _, out, _ = run("durations", STORE, *AS_OF, *by, "--prob", "0.9", "-f", "csv")
    found = csv_rows(out)
    assert list(found[0])[:3] == ["agent", "kind", "prob"]
    assert {row["prob"] for row in found} == {"0.9"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("show", "columns"),
    [
        ("curve", ["kind", "duration_s", "n_at_risk"]),
        ("outcomes", ["kind", "cause", "duration_s"]),
        ("slow", ["kind", "threshold_s", "known_as"]),
        ("change", ["dimension", "value", "measure"]),
        ("compare", ["dimension", "value", "against"]),
        ("never-ending", ["kind", "share", "share_low"]),
        ("spells", ["source", "system", "entity_type"]),
        ("left-out", ["left_out", "meaning", "n"]),
        ("limits", ["kind", "limit_s", "limit_from"]),
        ("candidates", ["kind", "candidate_s", "is_today"]),
        ("implicit", ["kind", "at_s", "n_at"]),
        ("timeouts", ["source", "system", "entity_type"]),
    ],
)
def test_each_answer_has_its_columns(run, show, columns):
    code, out, _ = run("durations", STORE, *AS_OF, "--show", show, "-f", "csv")
    assert code == 0
    assert list(csv_rows(out)[0])[:3] == columns


@pytest.mark.slow
def test_candidates_are_those_that_were_asked_for_and_todays(run, rows_of):
    asked = ("--show", "candidates", "--candidate", "1200", "--by", "system")
    _, out, _ = run("durations", STORE, *AS_OF, *asked, "-f", "json")
    found = json.loads(out)
    assert [row["candidate_s"] for row in found if not row["is_today"]] == [1200.0]


def test_a_window_of_the_command_line_is_that_of_the_library(run, rows_of, demo):
    week = ("--week", "2026-W20", "--show", "spells")
    code, out, _ = run("durations", STORE, *AS_OF, *week, "-f", "json")
    assert code == 0
    assert len(json.loads(out)) == sa.survival.spells(demo, window="2026-W20").height


def test_tables_show_what_matters(run, rows_of):
    _, out, _ = run("durations", STORE, *AS_OF, "--show", "implicit")
    assert "probably an undeclared timeout" in out
    assert "q_value" not in out


@pytest.mark.slow
def test_names_from_a_store_cannot_write_to_the_terminal(run, tmp_path):

    hostile = "coder\x1b[31m\u202e\x07"
    names = {"agent_name": hostile, "invocation_kind": hostile}
    times = {"created_at": NOW_S - 90_000, "ended_at": NOW_S - 86_000}
    sessions = [
        session(f"s{i}", started_at=NOW_S - 90_000 - 500_000 * (i % 2), **names, **times)
        for i in range(12)
    ]
    store = write_store(tmp_path / "state.db", sessions=sessions)
    for shown in ("quantiles", "change --by agent", "spells", "candidates"):
        code, out, err = run("durations", store, "--show", *shown.split(), "--as-of", NOW_S)
        assert code == 0
        assert "coder" in out
        assert not {"\x1b", "\u202e", "\x07"} & set(out + err)


@pytest.mark.slow
@pytest.mark.parametrize("show", ["quantiles", "change", "compare"])
def test_durations_are_told_apart_by_a_table_of_the_users_own(run, tmp_path, show):
    teams = tmp_path / "teams.csv"
    teams.write_text("project,owner\nbilling,ann\nsearch,bob\n", "utf-8")
    table, by = ("--table", f"teams={teams}"), ("--by", "teams.owner")
    code, out, err = run("durations", STORE, *AS_OF, "--show", show, *table, *by)
    assert (code, "ann" in out) == (0, True), err
    code, _, err = run("durations", STORE, *AS_OF, "--show", show, *by)
    assert code != 0
    assert "add it: --table teams=teams.csv" in err


# --- thresholds ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_table_says_today_and_recommended_and_what_is_missing(run):
    code, out, err = run("thresholds", STORE)
    assert (code, "stale.flow" in out) == (0, True)
    assert "recommended" in out.splitlines()[0].split()
    assert re.search(r"\d+ thresholds: .*\d+ cannot tell, .*\d+ not enough data", err)


@pytest.mark.slow
def test_settings_are_written_as_toml(run, tmp_path):
    target = tmp_path / "thresholds.toml"
    assert run("thresholds", STORE, "--settings", "toml", "-o", target)[0] == 0
    assert "lionagi" in tomllib.loads(target.read_text("utf-8"))


@pytest.mark.slow
def test_costs_are_passed_on(run):
    command = ["thresholds", STORE, "--settings", "json", "--false-alarm", "7", "--deaths", "2"]
    code, out, _ = run(*command, "--lost-run", "8", "--run-hour", "9", "--undetected-hour", "1")
    assert code == 0
    given = {"false_alarm": 7, "undetected_hour": 1, "lost_run": 8, "run_hour": 9}
    assert json.loads(out)["costs"] == {**given, "deaths_per_100_hours": 2}


def test_a_table_of_disagreements_needs_no_catalogue(run):
    code, out, _ = run("detectors", STORE, "--wide")
    first = out.splitlines()[3]
    assert code == 0
    assert "dead (studio, 2026-07-05)" in first
    assert "they measure different" in first
    assert "phantom_v2" not in out
    both = run("detectors", STORE, "--rows", "--detectors", "all", "-f", "csv")[1]
    every = pl.read_csv(both.encode()).head(200)
    shown = _rules_by_title(every)
    assert shown.filter(pl.col("flagged_by") == pl.col("not_by")).is_empty()
    assert "phantom_v2,state_doctor,failed,construct" in run("detectors", STORE, "-f", "csv")[1]


def test_a_list_that_needs_no_store_wins(run):
    code, out, _ = run("detectors", "--rows", "--list")
    assert code == 0
    assert "staleness_v1" in out


PAGE = (ROOT / "docs" / "questions.md").read_text("utf-8")
ASKED = re.findall(r"^\|[^|]+\| `stateanalytics ([^`]+)` \|", PAGE, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ASKED)
def test_each_command_of_the_page_of_questions_answers(run, home, asked):
    (home / ".lionagi").symlink_to(SAMPLES)
    (home / ".agent-orchestrator").symlink_to(SAMPLES / "agent_orchestrator")
    code, out, err = run(*shlex.split(asked))
    assert (code, bool(out)) == (0, True), err


def test_the_page_of_questions_answers_each_of_the_threads():
    page = PAGE.partition("Forty-two")[2]
    threads, project = set(), ""
    for cell in re.findall(r"(?:\| |\()([^|()]*#[^|()]*)(?: \|$|\))", page, re.M):
        for thread in cell.split(", "):
            project = thread.partition("#")[0] or project
            threads.add((project, thread.partition("#")[2]))
    assert len(threads) == 42
