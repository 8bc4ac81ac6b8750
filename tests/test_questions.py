"""A question is declared once, and can be asked everywhere."""

import inspect
import json

import click
import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import cli, questions
from stateanalytics.cli import options
from stateanalytics.cli.questions import VIEWS
from stateanalytics.errors import ArgumentError
from stateanalytics.mcp_server import Tools
from stateanalytics.questions import Question, Tool
from stateanalytics.snapshot import Snapshot
from tests.commands_page import PAGE, with_questions
from tests.samples import SAMPLES


def long_runs(snap, *, window=None, policy=None, longer_than_s: float = 3600.0):
    """Runs that took long, the longest first.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    longer_than_s : float
        Show only runs that took longer than this many seconds. Others are too many.
    """
    runs = sa.survival.spells(snap, window=window, policy=policy)
    longer = runs.filter(pl.col("duration_s") > longer_than_s)
    return longer.select("entity_id", "duration_s").sort("duration_s", descending=True)


NEW = Question(
    "runs that took long",
    "failures.long_runs",
    "failures --show long-runs",
    options=("window", "longer_than_s"),
    columns=("entity_id", "duration_s"),
    table="long_runs",
    tool=Tool("long_runs", ("entity_id", "duration_s"), about="In seconds."),
)


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_a_question_is_a_command_a_table_a_tool_and_a_row_of_the_page(monkeypatch, demo, capsys):
    """A newcomer adds one in a single place."""
    monkeypatch.setattr(sa.failures, "long_runs", long_runs, raising=False)
    monkeypatch.setattr(questions, "QUESTIONS", (*questions.QUESTIONS, NEW))
    asked = ["failures", str(SAMPLES / "state.db"), "--show", "long-runs", "-f", "json"]
    assert cli.run([*asked, "--longer-than-s", "20000"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows and min(row["duration_s"] for row in rows) > 20_000
    assert cli.run(["failures", str(SAMPLES / "state.db"), "--longer-than-s", "1"]) == 2
    assert "--longer-than-s belongs to --show long-runs" in capsys.readouterr().err
    assert cli.run(["failures", "--help"]) == 0
    helped = " ".join(capsys.readouterr().out.split())
    assert "long-runs runs that took long" in helped
    assert "Show only runs that took longer than this many seconds. [default: 3600.0]" in helped

    fresh = Snapshot(**{name: getattr(demo, name) for name in ("entities", "transitions", "events",
                     "findings", "sources", "as_of", "details")})  # fmt: skip
    assert fresh.sql("FROM long_runs").equals(long_runs(demo))
    assert "long_runs" in fresh.table("tables")["name"]

    tool = Tools(demo, sa.Policy.v1()).by_name()["long_runs"]
    assert tool.__doc__.startswith("Runs that took long, the longest first. In seconds.")
    assert [*inspect.signature(tool).parameters] == ["limit", "week"]
    answer = json.loads(tool(week="2026-W21", limit=2))
    assert answer["data"] == long_runs(demo, window="2026-W21").head(2).to_dicts()

    page = with_questions(PAGE.read_text("utf-8"))
    words = "| `--show long-runs` | runs that took long | `sa.failures.long_runs` | `long_runs` |"
    assert words in page


@pytest.mark.parametrize(
    "question", questions.QUESTIONS, ids=lambda question: question.mode or question.gives
)
def test_a_question_names_what_there_is(question):
    if question.function:
        public, _, name = question.function.rpartition(".")
        space = getattr(sa, public) if public else sa
        assert name in space.__all__, f"add it to {public or 'stateanalytics'}/__init__.pyi"
        takes = inspect.signature(question.answer()).parameters
        made = [key for key in question.options if key not in options.OPTIONS]
        assert {*made} <= {*takes}
        tool_takes = question.tool.options if question.tool else ()
        assert {*tool_takes} <= {*takes, *question.options}
        if question.over == "snapshot" and question.command not in ("", "thresholds"):
            assert "window" not in question.options or "window" in takes
    else:
        assert {*question.options} <= {*options.OPTIONS}
    assert question.view in {"", *VIEWS}
    assert question.table or question.command


@pytest.mark.parametrize(
    ("asked_by", "tool", "words"),
    [
        ("failurs --show codes", "", "questions.csv, row 1, column 'asked_by': .*mean 'failures'"),
        ("failures", "failurs", "tools.csv, row 1, column 'asked_by': .*did you mean 'failures'"),
        ("", "", "tools.csv, row 1, column 'asked_by': needed what asks a question; found ''"),
    ],
)
def test_a_question_or_tool_of_nothing_is_refused(asked_by, tool, words):
    with pytest.raises(ArgumentError, match=words):
        questions._joined([Question("codes", asked_by=asked_by)], {tool: Tool("codes", ())})


def test_an_example_of_an_unknown_command_is_refused(monkeypatch):
    rows = [{"command": "reprot", "line": "stateanalytics reprot"}]
    monkeypatch.setattr("stateanalytics.core.package_tables.table_rows", lambda *_: rows)
    with pytest.raises(ArgumentError, match=r"examples.csv, row 1, .*did you mean 'report'"):
        questions.examples_of("report")


def test_help_lists_every_command_wherever_its_row_is():
    first, *others = questions.ALL_COMMANDS.values()
    listed = [known for group in cli._by_heading([*others, first]).values() for known in group]
    assert sorted(listed) == sorted([first, *others])


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"kind": "word"}, "column 'words': needed words"),
        ({"words": ("a", "b")}, "column 'words': needed words .*; found 'a|b'"),
        ({"kind": "number", "default": ("ten",)}, "column 'default': needed a value .*'ten'"),
        ({"kind": "count", "alone": "0"}, "column 'alone': needed a value .*; found '0'"),
        ({"kind": "switch", "default": ("on",)}, "column 'default': needed yes, no or nothing"),
        ({"flags": ()}, "column 'flags': needed what people type"),
    ],
)
def test_an_option_that_makes_no_sense_names_its_row_and_column(monkeypatch, cells, words):
    row = options._Row("x", ("--x",), "text", "Do so.")._replace(**cells)
    monkeypatch.setattr(options, "_ROWS", {"first": row, "x": row})
    with pytest.raises(ArgumentError, match=f"cli/data/options.csv, row 2, {words}"):
        options.option("x")


@pytest.mark.parametrize(("default", "value"), [((), None), (("yes",), True), (("no",), False)])
def test_a_switch_is_as_its_default_says(monkeypatch, default, value):
    row = options._Row("x", ("--x/--no-x",), "switch", "Do so.", default=default)
    monkeypatch.setattr(options, "_ROWS", {"x": row})
    [made] = click.command()(options.option("x")(lambda x: x)).params
    assert made.default is value


def test_a_mode_is_that_of_one_question():
    for command in questions.COMMANDS:
        modes = [question.mode for question in questions.questions_of(command)]
        assert len(modes) == len({*modes}) > 0
