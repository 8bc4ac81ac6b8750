"""``stateanalytics durations`` and ``timeouts``, as a person and as a program use them."""

import csv
import io
import json

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import cli
from stateanalytics.cli.questions import _for_terminal
from stateanalytics.questions import questions_of
from tests.samples import SAMPLES

pytestmark = pytest.mark.usefixtures("read_once")


@pytest.fixture(scope="module")
def store():
    return str(SAMPLES / "state.db")


@pytest.fixture
def snap(demo):
    return demo


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")

    def running(*arguments):
        code = cli.run([str(one) for one in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return running


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_of_a_kind_that_nobody_recorded_say_so():
    frame = pl.DataFrame({"kind": [None, "flow"], "n_runs": [3, 1]})
    question = questions_of("durations")[0]
    shown, columns = _for_terminal(frame, question, {"by": ["kind"]}, is_table=True)
    assert shown["kind"].to_list() == ["not recorded", "flow"]
    assert columns == ["kind"]


AS_OF = ("--as-of", "2026-05-25T06:00Z")


def test_durations_are_quantiles_with_words(run, store, snap):
    code, out, err = run("durations", store, *AS_OF, "-f", "csv")
    found = rows_of(out)
    assert code == 0
    expected = sa.survival.quantiles(
        sa.survival.kaplan_meier(sa.survival.spells(snap), by="kind"), [0.25, 0.5, 0.75, 0.95]
    )
    assert [row["in_words"] for row in found] == expected["in_words"].to_list()
    n_left_out = sa.survival.spells(snap)["left_out"].count()
    assert f"{n_left_out} of 390 runs are excluded: see --show left-out" in err


def test_durations_by_other_columns_and_shares(run, store):
    _, out, _ = run(
        "durations", store, *AS_OF, "--by", "agent", "--by", "kind", "--prob", "0.9", "-f", "csv"
    )
    found = rows_of(out)
    assert list(found[0])[:3] == ["agent", "kind", "prob"]
    assert {row["prob"] for row in found} == {"0.9"}


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
    ],
)
def test_each_thing_to_show_has_its_columns(run, store, show, columns):
    code, out, _ = run("durations", store, *AS_OF, "--show", show, "-f", "csv")
    assert code == 0
    assert list(rows_of(out)[0])[:3] == columns


@pytest.mark.parametrize(
    ("show", "columns"),
    [
        ("limits", ["kind", "limit_s", "limit_from"]),
        ("candidates", ["kind", "candidate_s", "is_today"]),
        ("implicit", ["kind", "at_s", "n_at"]),
        ("timeouts", ["source", "system", "entity_type"]),
    ],
)
def test_each_side_of_timeouts_has_its_columns(run, store, show, columns):
    code, out, _ = run("durations", store, *AS_OF, "--show", show, "-f", "csv")
    assert code == 0
    assert list(rows_of(out)[0])[:3] == columns


def test_candidates_are_those_that_were_asked_for_and_todays(run, store):
    _, out, _ = run(
        *("durations", store, *AS_OF, "--show", "candidates"),
        *("--candidate", "1200", "--by", "system", "-f", "json"),
    )
    found = json.loads(out)
    assert [row["candidate_s"] for row in found if not row["is_today"]] == [1200.0]


def test_a_window_of_the_command_line_is_that_of_the_library(run, store, snap):
    code, out, _ = run(
        "durations", store, *AS_OF, "--week", "2026-W20", "--show", "spells", "-f", "json"
    )
    assert code == 0
    assert len(json.loads(out)) == sa.survival.spells(snap, window="2026-W20").height


def test_tables_show_what_matters(run, store):
    _, out, _ = run("durations", store, *AS_OF, "--show", "implicit")
    assert "probably an undeclared timeout" in out
    assert "q_value" not in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("durations", "--prob", "1.5"), "--prob"),
        (("durations", "--by", "colour"), "colour"),
        (("durations", "--show", "mean"), "mean"),
        (("durations", "--week", "2026-W21", "--since", "2026-05-18"), "leave one of them out"),
        (
            ("durations", "--show", "candidates", "--candidate", "-5"),
            "needs a number above 0; found",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line_and_code_2(run, store, arguments, words):
    code, out, err = run(arguments[0], store, *AS_OF, *arguments[1:])
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_names_from_a_store_cannot_write_to_the_terminal(run, tmp_path):
    from tests.lionagi_stores import NOW_S, write_store

    hostile = "coder\x1b[31m\u202e\x07"
    sessions = [
        {
            "id": f"s{i}",
            "progression_id": "p",
            "status": "completed",
            "agent_name": hostile,
            "invocation_kind": hostile,
            "created_at": NOW_S - 90_000,
            "started_at": NOW_S - 90_000 - 500_000 * (i % 2),
            "ended_at": NOW_S - 86_000,
        }
        for i in range(12)
    ]
    store = write_store(tmp_path / "state.db", sessions=sessions)
    for arguments in (
        ("durations", store),
        ("durations", store, "--show", "change", "--by", "agent"),
        ("durations", store, "--show", "spells"),
        ("durations", store, "--show", "candidates"),
    ):
        code, out, err = run(*arguments, "--as-of", NOW_S)
        assert code == 0
        assert "coder" in out
        assert not {"\x1b", "\u202e", "\x07"} & set(out + err)


@pytest.mark.parametrize("show", ["quantiles", "change", "compare"])
def test_durations_are_told_apart_by_a_table_of_the_users_own(run, store, tmp_path, show):
    teams = tmp_path / "teams.csv"
    teams.write_text("project,owner\nbilling,ann\nsearch,bob\n", "utf-8")
    table, by = ("--table", f"teams={teams}"), ("--by", "teams.owner")
    code, out, err = run("durations", store, *AS_OF, "--show", show, *table, *by)
    assert (code, "ann" in out) == (0, True), err
    code, _, err = run("durations", store, *AS_OF, "--show", show, *by)
    assert code != 0
    assert "add it: --table teams=teams.csv" in err
