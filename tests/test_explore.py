"""Charts that filter each other: counts against SQL, what is chosen, and texts that stay texts."""

import json
from datetime import UTC, datetime, timedelta

import duckdb
import polars as pl
import pytest

import stateanalytics as sa
from benchmarks import bench_explore
from stateanalytics.core.text import as_written
from stateanalytics.errors import ArgumentError
from stateanalytics.sql.conditions import CrossFilter
from stateanalytics.widgets.exploring import BY, RUNS
from tests.test_charts_detectors import HOSTILE
from tests.test_report import KEY

WHEN = datetime(2026, 5, 4, tzinfo=UTC)
ROWS = pl.DataFrame(
    {
        "at": [WHEN + timedelta(hours=7 * n) if n % 11 else None for n in range(200)],
        "word": [[None, "it's", "b", "c"][n * n % 13 % 4] for n in range(200)],
        "took_s": [float(n**3) if n % 13 else None for n in range(200)],
        "share": [n / 200 if n % 17 else float("nan") for n in range(200)],
        "is_late": [n % 3 == 0 for n in range(200)],
    }
)
CHOICES = (
    {},
    {"word": [0]},
    {"word": [0, 3], "is_late": [1]},
    {"at": [2, 5], "took_s": [0, 6]},
    {"at": [1, 6], "word": [1, 2], "took_s": [3, 12], "share": [0, 8], "is_late": [0]},
)


@pytest.fixture(scope="module")
def rows():
    return CrossFilter(ROWS, ROWS.columns)


@pytest.fixture(scope="module")
def look(demo):
    return sa.explore(demo)


@pytest.fixture
def failures(demo):
    return sa.explore(demo, "failures")


@pytest.mark.slow
@pytest.mark.parametrize("chosen", CHOICES, ids=str)
def test_what_is_counted_by_places_is_what_the_sql_gives(rows, chosen):
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.register("given", ROWS.with_columns(pl.col("share").fill_nan(None)).to_arrow())

    def n(*conditions):
        where = " AND ".join(condition for condition in conditions if condition)
        found = database.execute(f"SELECT count(*) FROM given{' WHERE ' * bool(where)}{where}")
        return found.fetchall()[0][0]

    assert rows.n_rows(chosen) == n(rows.where(chosen)) == rows.selected(chosen).height
    for name, counts in rows.counts(chosen).items():
        one = rows.dimensions[name]
        others = rows.where({column: at for column, at in chosen.items() if column != name})
        assert counts == [n(others, one.condition([place])) for place in range(one.n_places)]


def test_every_value_has_its_place(rows):
    counts = rows.counts({})
    n = {"word": ROWS.height, "at": ROWS["at"].count(), "took_s": ROWS["took_s"].count()}
    n["share"] = ROWS["share"].is_finite().sum()
    assert {name: sum(counts[name]) for name in n} == n


@pytest.mark.parametrize(
    "values",
    [
        *([0.0, 0.0], [5.0], [-3.0, 1e12], [1e-9, 1e9]),
        [0.0, 5.62],  # just beyond a step
        *([1e-299, 9e299], [-9e299, 9e299]),
        *([datetime(1, 1, 1), datetime(2026, 1, 1)], [datetime(2026, 1, 1), datetime.max]),
    ],
)
def test_a_scale_holds_its_ends(values):
    assert sum(CrossFilter(pl.DataFrame({"x": values}), ["x"]).counts({})["x"]) == len(values)


def test_nothing_to_count_is_left_out():
    assert CrossFilter(ROWS.clear(), ROWS.columns).dimensions == {}
    empty = ROWS.with_columns(word=pl.lit(None, pl.String))
    assert "word" not in CrossFilter(empty, ROWS.columns).dimensions


def test_what_is_chosen_is_a_frame_and_sql_for_the_same_rows(demo):
    look = sa.explore(demo).choose(outcome=["timed_out", "failed"], duration_s=(600, 7_200))
    found = demo.sql(look.sql)
    assert 0 < found.height < sa.states(demo).height
    assert look.selected["entity_id"].to_list() == found["entity_id"].to_list()
    assert set(found["outcome"].cast(pl.String)) == {"timed_out", "failed"}
    look.choose(outcome=None, duration_s=None, started_at=("2026-05-18", "2026-05-20"))
    days = look.selected["started_at"].dt.strftime("%F").unique().sort().to_list()
    assert days == ["2026-05-18", "2026-05-19"]
    assert demo.sql(look.sql).height == look.selected.height


def test_any_table_can_be_explored_and_narrowed(demo):
    look = sa.explore(demo, "timeouts", by="kind", where="fits = 'at_limit'")
    assert look.selected.height == demo.sql(look.sql).height > 0
    owned = demo.with_table("owners", pl.DataFrame({"kind": ["a", "b", "b"], "n": [1, 2, 9]}))
    assert sa.explore(owned, "owners").choose(kind="b").selected["n"].to_list() == [2, 9]


def test_a_hand_on_the_page_and_choose_are_one(demo):
    look = sa.explore(demo)
    look.widget.chosen = {"outcome": [0], "no column": [1], "kind": [99], "model": ["x"]}
    assert look.chosen == {"outcome": [0]}
    assert look.widget.answer["n"] == look.selected.height
    look.choose(outcome=None, kind="flow")
    assert look.widget.chosen == look.chosen
    assert look.widget.answer["sql"] == look.sql


def test_failures_of_a_code_are_those_of_the_table(demo, failures):
    code = failures.selected["code"].drop_nulls().mode().sort()[0]
    chosen = failures.choose(code=code)
    assert chosen.selected.height == sa.failures.members(demo).filter(code=code).height
    assert chosen.widget.answer["rows"]["columns"][-1] == "message"


def test_an_unknown_word_or_column_names_near_ones(failures, demo):
    with pytest.raises(ArgumentError, match=r"run.failed.exeption.*\n.*did you mean"):
        failures.choose(code="run.failed.exeption")
    with pytest.raises(ArgumentError, match=r"Nothing is counted by 'modle'(.|\n)*'model'"):
        failures.choose(modle="x")
    with pytest.raises(ArgumentError, match=r"no column 'modle' in failures(.|\n)*'model'"):
        sa.explore(demo, "failures", by=["modle"])
    with pytest.raises(ArgumentError, match="no table 'failure'"):
        sa.explore(demo, "failure")


@pytest.mark.parametrize("ends", [5, "abc", (1, 2, 3), ("x", "y"), (None, 5), (float("nan"), 5)])
def test_a_stretch_needs_two_ends(failures, ends):
    with pytest.raises(ArgumentError, match="run_s is selected by the two ends"):
        failures.choose(run_s=ends)


def test_ends_may_stand_either_way(failures):
    assert failures.choose(run_s=(60, 0)).chosen == failures.choose(run_s=(0, 60)).chosen


@pytest.mark.parametrize("values", [[timedelta(1)], [[1]], [{"a": 1}], [b"\xff"]], ids=repr)
def test_what_nothing_is_counted_by_is_said(demo, values):
    snap = demo.with_table("odd", pl.DataFrame({"x": values * 2, "n": [1, 2]}))
    with pytest.raises(ArgumentError, match="Nothing is counted by 'x'"):
        sa.explore(snap, "odd", by="x")
    assert "by n" in repr(sa.explore(snap, "odd"))
    with pytest.raises(ArgumentError, match="no column '3'"):
        sa.explore(snap, "odd", by=3)


@pytest.mark.parametrize("where", ["n = 1 OR n > 2", "n <> 2 -- not the second"])
def test_a_condition_and_odd_names_stay_whole_in_sql(demo, where):
    rows = {"n": [1, 2, 3], "order": ["a", "a", "b"], "my at": [WHEN] * 3}
    snap = demo.with_table("odd", pl.DataFrame(rows))
    look = sa.explore(snap, "odd", by=["order", "my at"], where=where).choose(order="b")
    assert look.selected["n"].to_list() == snap.sql(look.sql)["n"].to_list() == [3]


def test_a_table_without_rows_says_so(demo):
    empty = sa.explore(demo, "failures", where="failed_at < TIMESTAMPTZ '2020-01-01'")
    assert empty.widget.answer["n_of"] == 0
    assert empty._repr_html_() == as_written(empty.as_html()), "no amount is a formula"
    assert empty.as_html().startswith("<p>0 of 0 rows</p>")


@pytest.mark.slow
def test_secrets_are_masked_and_hostile_text_is_text(demo):
    told = pl.DataFrame({"who": [HOSTILE, KEY], "said": [HOSTILE, KEY], "n": [1, 2]})
    snap = demo.with_table("told", told)
    for is_redacted in (True, False):
        look = sa.explore(snap, "told", by=["who", "n"], redact=is_redacted)
        look.choose(who=KEY)
        everything = look.as_html() + json.dumps([look.widget.dimensions, look.widget.answer])
        assert (KEY in everything) is not is_redacted
        assert "<img" not in look.as_html()


def test_it_shows_itself_with_and_without_a_kernel(look):
    bundle = look._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert "Newest rows" in bundle["text/html"]
    assert look._display_() is look.widget, "what marimo asks for"
    assert repr(look).startswith(f"Explorer of 388 rows of {RUNS} by {', '.join(BY[RUNS])}")


@pytest.mark.slow
def test_a_choice_is_answered_faster_than_words_are_counted():
    """All charts of 200,000 runs beside DuckDB that counts four columns of texts."""
    [row] = bench_explore.run(200_000)
    assert row.ratio > 0.7, row
