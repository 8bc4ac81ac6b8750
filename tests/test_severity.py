"""The severity cascade: ADR-0033's, on every engine, and by any policy."""

import itertools

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core import schema
from stateanalytics.errors import ColumnTypeError, MissingColumnsError
from stateanalytics.state.health import derive_severity
from stateanalytics.state.policy import TONES_OF, Policy, SeverityRule
from tests.engines import assert_same_rows, on_every_engine
from tests.examples import examples
from tests.slow_states import cascade

AXES = {"outcome": schema.OUTCOMES, "health": schema.HEALTHS, "delivery": schema.DELIVERIES}
ODD = ("FAILED", "", "merged ", "état")

# From harmless to alarming, as the cascade ranks each axis alone; the order of words
# that share a rule is of no account.
WORSE = {
    "outcome": (None, "completed", "skipped", "timed_out", "failed"),
    "health": (None, "running", "idle", "stalled", "process_dead"),
    "delivery": (None, "partial", "missing"),
}
RANK = {"neutral": 0, "info": 1, "warning": 2, "critical": 3}


def states(rows):
    return pl.DataFrame(rows, schema=dict.fromkeys(AXES, pl.String), orient="row")


def every_combination():
    return states(list(itertools.product(*[[None, *words, ODD[0]] for words in AXES.values()])))


def expected(frame):
    judged = [cascade(*row) for row in frame.select(*AXES).rows()]
    columns = {"severity": pl.String, "tone": pl.String, "severity_rule": pl.Int64}
    return frame.hstack(pl.DataFrame(judged, schema=columns, orient="row"))


@on_every_engine
def test_every_combination_of_words_is_judged_as_the_adr_says(engine):
    frame = every_combination()
    assert_same_rows(engine.back(derive_severity(engine.of(frame))), expected(frame))


word = {axis: st.sampled_from([None, *words, *ODD]) for axis, words in AXES.items()}


@examples(60)
@given(st.lists(st.tuples(*word.values()), max_size=40))
def test_bulk_equals_row_by_row(rows):
    frame = states(rows)
    assert derive_severity(frame).equals(expected(frame))


@pytest.mark.parametrize("axis", AXES)
@examples(60)
@given(row=st.tuples(*word.values()))
def test_worsening_one_axis_never_lowers_severity(axis, row):
    place = list(AXES).index(axis)
    worse = [(*row[:place], value, *row[place + 1 :]) for value in WORSE[axis]]
    ranks = [RANK[severity] for severity in derive_severity(states(worse))["severity"]]
    assert ranks == sorted(ranks)


@on_every_engine
def test_no_rows_give_no_rows_with_the_new_columns(engine):
    found = engine.back(derive_severity(engine.of(states([]))))
    assert found.columns == [*AXES, "severity", "tone", "severity_rule"]
    assert found.height == 0


@on_every_engine
def test_columns_of_nulls_only_are_neutral(engine):
    nothing = pl.DataFrame({axis: [None] for axis in AXES})
    found = engine.back(derive_severity(engine.of(nothing)))
    assert found.select("severity", "tone", "severity_rule").rows() == [("neutral", "neutral", 14)]


def test_severity_that_is_already_there_is_replaced_in_its_place():
    frame = states([("failed", None, None)]).with_columns(severity=pl.lit("?"), last=pl.lit(1))
    found = derive_severity(frame)
    assert found.columns == [*AXES, "severity", "last", "tone", "severity_rule"]
    assert found["severity"].item() == "critical"


FEWER = pl.Enum(["elsewhere", "timed_out", "failed"])


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(schema.OUTCOMES), FEWER])
def test_coded_words_are_read_as_words(dtype):
    frame = states([("failed", None, None), (None, None, None), ("timed_out", None, None)])
    found = derive_severity(frame.with_columns(pl.col("outcome").cast(dtype)))
    assert found["severity_rule"].to_list() == [1, 14, 6]
    assert found["outcome"].dtype == dtype


def test_a_duckdb_enum_is_read_as_words():
    outcome = "'failed'::ENUM('failed', 'x') AS outcome"
    query = f"SELECT {outcome}, NULL::VARCHAR AS health, 'odd' AS delivery"
    relation = duckdb.connect().sql(query)
    assert derive_severity(relation).fetchall()[0][-1] == 1


def test_a_lazy_frame_stays_lazy():
    assert isinstance(derive_severity(states([]).lazy()), pl.LazyFrame)


def test_the_evidence_of_every_rule_can_be_kept():
    found = derive_severity(states([("failed", "stalled", None)]), with_evidence=True)
    assert found["outcome is failed or aborted"].to_list() == [True]
    assert found["health is stalled"].to_list() == [True]
    assert found["delivery is missing"].to_list() == [False]


def test_nothing_of_the_machinery_is_left_in_the_frame():
    assert not [name for name in derive_severity(states([])).columns if name.startswith("_")]


def test_a_missing_column_says_which_and_what_to_type():
    frame = pl.DataFrame({"outcome": ["failed"], "healht": ["ok"], "delivery": ["passed"]})
    with pytest.raises(MissingColumnsError, match=r"needs columns \['health'\].*\n.*'healht'"):
        derive_severity(frame)


def test_a_column_of_numbers_is_refused():
    frame = states([]).with_columns(health=pl.lit(1))
    with pytest.raises(ColumnTypeError, match=r"words in column 'health'; found Int32"):
        derive_severity(frame)


def test_what_is_no_frame_is_refused():
    with pytest.raises(ColumnTypeError, match="needs a frame; found list"):
        derive_severity([{"outcome": "failed"}])


def test_adr0025_makes_an_abort_neutral_and_nothing_else():
    frame = every_combination()
    mild = derive_severity(frame, policy=Policy.adr0025())
    changed = mild.filter(mild["severity"] != derive_severity(frame)["severity"])
    assert changed["outcome"].unique().to_list() == ["aborted"]
    alone = derive_severity(states([("aborted", "ok", None)]), policy=Policy.adr0025())
    assert alone.select("severity", "tone").row(0) == ("neutral", "neutral")


def test_the_operator_policy_raises_blocked_and_unknown_and_nothing_else():
    frame = every_combination()
    before, after = (derive_severity(frame, policy=p) for p in (Policy.v1(), Policy.operator()))
    changed = after.filter(after["severity"] != before["severity"])
    of_health = changed["health"].is_in(["blocked", "unknown"]).fill_null(value=False)
    assert (of_health | (changed["outcome"] == "unknown")).all()
    rows = [(None, "blocked", None), ("unknown", None, None), ("completed", "unknown", None)]
    found = derive_severity(states(rows), policy=Policy.operator())
    assert found["severity"].to_list() == ["warning", "info", "info"]


def test_a_rule_of_ones_own_is_followed_and_shows_its_number():
    mine = (SeverityRule(40, "delivery", ("unknown",), "warning", "warning"),)
    policy = Policy.v1().replace(severity_rules=mine + Policy.v1().severity_rules)
    found = derive_severity(states([("failed", "ok", "unknown")]), policy=policy)
    assert found.select("severity", "severity_rule").row(0) == ("warning", 40)


def test_severity_and_tone_always_go_together_as_in_the_adr():
    for policy in (Policy.v1(), Policy.adr0025(), Policy.operator(), Policy.parity()):
        found = derive_severity(every_combination(), policy=policy)
        for severity, tone in found.select("severity", "tone").unique().rows():
            assert tone in TONES_OF[severity]
