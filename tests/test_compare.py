"""One grammar for questions: every measure by any columns, with intervals and differences."""

import random
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.comparing import MEASURES, compare
from stateanalytics.stats.intervals import newcombe, poisson_interval, wilson
from tests.failures import run as failed_run
from tests.failures import store
from tests.frames import AS_OF, WHOSE, ago, facts
from tests.test_report import run


def ended(name, status, hours, **rest):
    times = {"started_at": ago(hours=hours + 1), "ended_at": ago(hours=hours)}
    return run(name, status, **{**times, **rest})


RUNS = [
    ended("a", "failed", 25, project="x", cost_usd=1.0),
    ended("b", "completed", 25.5, project="x", cost_usd=2.0),
    ended("c", "timed_out", 26, project="y"),
    ended("d", "completed", 49, project=None, cost_usd=4.0),
    run("open", "running", project="x", cost_usd=8.0),
]


def asked(measure, rows=RUNS, **how):
    return compare(facts(rows), measure, **how).frame


def values(measure, rows=RUNS, **how):
    return asked(measure, rows, **how)["value"].to_list()


# --- by hand ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "value", "n", "n_of"),
    [
        ("completed", 0.5, 2, 4),
        ("failed", 0.5, 2, 4),
        ("timed_out", 0.25, 1, 4),
        ("retried", None, 0, 0),
        ("runs", 5.0, 5, 5),
        ("failures", 2.0, 2, 4),
        ("incidents", 2.0, 2, 2),
        ("cost_usd", 15.0, 4, 5),
        ("lost_usd", 1.0, 4, 5),
        ("retry_usd", None, 0, 5),
        ("tokens", None, 0, 5),
        ("calls", None, 0, 0),
        ("failed_calls", None, 0, 0),
    ],
)
def test_each_measure_counts_what_it_says(measure, value, n, n_of):
    assert asked(measure).select("value", "n", "n_of").row(0) == (value, n, n_of)


def test_what_failures_or_retries_cost_is_not_zero_where_it_is_not_known():
    rows = [
        ended("a", "failed", 30, project="x", attempt=1),
        ended("b", "failed", 20, project="x", attempt=2),
        ended("c", "completed", 10, project="x", cost_usd=5.0, attempt=1),
        ended("d", "completed", 9, project="y", cost_usd=7.0, attempt=1),
    ]
    for measure in ("lost_usd", "retry_usd"):
        found = asked(measure, rows, by="project").select("value", "n", "n_of").rows()
        assert found == [(None, 0, 3), (0.0, 1, 1)], measure


def test_a_cost_has_the_last_digit_that_costs_have():
    rows = [ended("a", "completed", 9, cost_usd=1.8009035)]
    assert asked("cost_usd", rows)["value"].item() == 1.800904  # not the even 1.800903 of Python


def test_groups_may_be_several_columns_and_null_is_a_group():
    found = asked("failed", by=["project", "kind"]).sort("project", nulls_last=True)
    assert found.select("project", "n", "n_of").rows() == [("x", 1, 2), ("y", 1, 1), (None, 0, 1)]


def test_the_interval_of_a_share_of_independent_runs_is_wilsons():
    found = asked("failed").select("low", "high").row(0)
    assert found == pytest.approx(wilson(2, 4))


def test_the_interval_of_a_count_of_single_runs_is_garwoods():
    many = [ended(str(n), "failed", 20 + n / 10, cost_usd=1.0) for n in range(30)]
    for measure in ("failures", "cost_usd"):
        low, high = asked(measure, many).select("low", "high").row(0)
        assert (low, high) == pytest.approx(poisson_interval(30), rel=0.02)


def test_runs_of_one_request_count_once_in_an_interval():
    alone = [ended(str(n), "failed" if n < 8 else "completed", 20 + n / 9) for n in range(16)]
    together = [row | {"invocation_id": f"i{row['entity_id'] < '3'}"} for row in alone]
    width = pl.col("high") - pl.col("low")
    single, shared = (asked("failed", rows).select(width).item() for rows in (alone, together))
    assert shared > 1.5 * single


def test_a_difference_of_shares_is_newcombes():
    now = [ended(f"n{n}", "failed" if n < 12 else "completed", 24 + n) for n in range(20)]
    then = [ended(f"t{n}", "failed" if n < 2 else "completed", 200 + n) for n in range(20)]
    window = (ago(days=7), AS_OF)
    row = asked("failed", now + then, window=window, against="before").row(0, named=True)
    assert (row["n"], row["n_of"], row["n_before"], row["n_of_before"]) == (12, 20, 2, 20)
    found = [row[name] for name in ("difference", "difference_low", "difference_high")]
    assert found == pytest.approx(newcombe(12, 20, 2, 20))
    assert row["verdict"] == "worse"
    same = asked("completed", now + then, window=window, against="before")
    assert same["verdict"].item() == "worse"
    count = asked("runs", now + then, window=window, against="before")
    assert count["verdict"].item() == "not_enough_data"  # two of seven days of data


def test_too_few_tell_nothing():
    rows = [ended("n", "failed", 24), ended("t", "completed", 200)]
    found = asked("failed", rows, window=(ago(days=7), AS_OF), against="before")
    assert found.select("q_value", "verdict").row(0) == (None, "not_enough_data")


def test_a_group_of_one_window_is_zero_runs_in_the_other():
    rows = [*(ended(f"n{n}", "failed", 24 + n, project="new") for n in range(9)), *RUNS]
    found = asked("failures", rows, by="project", window=(ago(days=7), AS_OF), against="before")
    assert found.filter(project="new").select("value", "value_before").row(0) == (9.0, 0.0)


def test_sums_of_windows_of_different_length_are_compared_for_as_many_days():
    rows = [ended(str(n), "completed", 12 + 24 * n) for n in range(40)]
    found = asked("runs", rows, window=(ago(days=10), AS_OF), against=(ago(days=30), ago(days=10)))
    row = found.row(0, named=True)
    assert (row["value"], row["value_before"]) == (10, 20)
    assert row["difference"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    ("measure", "per_run"), [("failures", 1), ("incidents", 1), ("lost_usd", 2)]
)
@pytest.mark.parametrize("times", [1, 3])
def test_failures_and_incidents_and_lost_cost_are_compared_for_as_many_ended_runs(
    measure, per_run, times
):
    days = {"window": (ago(days=7), AS_OF), "against": "before"}

    def week(name, n, since):
        return [
            ended(f"{name}{i}", "failed" if i % 4 else "completed", since + i * 1.6, cost_usd=2.0)
            for i in range(n)
        ]

    rows = [*week("now", 20 * times, 1), *week("then", 20, 24 * 7 + 1)]
    row = asked(measure, rows, **days).row(0, named=True)
    assert (row["value"], row["value_before"]) == (15 * times * per_run, 15 * per_run)
    assert row["difference"] == pytest.approx(0, abs=1e-9)
    assert row["verdict"] == "no_difference"
    none = asked(measure, rows[: 20 * times], **days)
    assert none["verdict"].item() == "not_enough_data", "nothing ran the week before"


@pytest.mark.parametrize("usd", [0.001, 1.0, 50.0])
def test_what_a_loss_of_nothing_proves_does_not_depend_on_the_currency(usd):
    days = {"window": (ago(days=7), AS_OF), "against": "before"}
    rows = [ended(f"n{i}", "completed", 1 + i, cost_usd=usd) for i in range(30)]
    rows += [
        ended(f"t{i}", "failed" if i < 2 else "completed", 24 * 7 + 1 + i, cost_usd=usd)
        for i in range(30)
    ]
    row, counted = (
        asked(measure, rows, **days).row(0, named=True) for measure in ("lost_usd", "failures")
    )
    assert row["high"] / usd == pytest.approx(counted["high"])
    assert row["q_value"] == pytest.approx(counted["q_value"])


# --- time ---------------------------------------------------------------------------------


def test_steps_without_runs_are_zero_and_not_missing():
    found = asked("runs", RUNS[:4], every="1d").select("since", "value")
    assert found["value"].to_list() == [1.0, 3.0, 0.0, 0.0]
    assert (found["since"].diff().drop_nulls() == timedelta(days=1)).all()
    shares = asked("failed", RUNS[:4], every="1d")["value"].to_list()
    assert shares == [0.0, 2 / 3, None, None]
    names = ("created_at", "started_at", "ended_at")
    then = dict.fromkeys(names, datetime(2011, 12, 29, 20, tzinfo=UTC))
    # Samoa went over the date line on the 30th.
    how = {"window": ("2011-12-29", "2012-01-02"), "every": "1d", "tz": "Pacific/Apia"}
    days = asked("runs", [run("x", "completed", **then)], **how)
    assert days["value"].to_list() == [1.0, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "tz"),
    [("1d", None), ("1w", "America/Santiago"), ("1mo", "Asia/Kathmandu"), ("1q", "UTC")],
)
def test_steps_add_up_to_the_whole_in_every_zone(every, tz, demo):
    whole = demo.compare("failures", window="2026-Q2", tz=tz).frame["value"].item()
    steps = demo.compare("failures", window="2026-Q2", every=every, tz=tz).frame
    assert steps["value"].sum() == whole > 100
    assert (steps["until"][:-1] == steps["since"][1:]).all()


@pytest.mark.slow
def test_incidents_of_a_step_are_those_of_its_window(demo):
    steps = demo.compare("incidents", every="1w").frame.tail(3)
    for since, until, *counts in steps.select("since", "until", "value", "n_of").rows():
        alone = demo.compare("incidents", window=(since, until)).frame
        assert alone.select("value", "n_of").row(0) == tuple(counts)


def test_days_follow_the_clock_of_the_zone(demo):
    day = demo.compare("runs", window="2026-03-29", tz="Europe/Berlin").frame
    assert (day["until"] - day["since"]).item() == timedelta(hours=23)
    ends = demo.table("entity_states").filter(entity_type="session").select("ended_at")
    local = pl.col("ended_at").dt.convert_time_zone("Europe/Berlin").dt.date()
    assert day["n"].item() == ends.filter(local == pl.date(2026, 3, 29)).height
    nights = demo.compare("failed", by=["hour", "weekday"], tz="Europe/Berlin").frame
    assert nights["n_of"].sum() == demo.compare("failed").frame["n_of"].item()
    assert nights["weekday"].unique().sort().to_list()[:2] == ["Mon", "Tue"]


def test_each_step_can_be_compared_with_the_one_before(demo):
    found = demo.compare("failures", by="project", every="1mo", against="before").frame
    months = found.filter(project="mobile")
    assert months["value_before"].to_list()[1:] == months["value"].to_list()[:-1]
    assert months["verdict"][0] == "not_enough_data"


# --- the same number everywhere -----------------------------------------------------------


@pytest.mark.slow
def test_intervals_are_those_of_the_report(demo):
    report = sa.report(demo, window="2026-W21", sections=["headline"])
    numbers = {one["name"]: one for one in report.summary["headline"]["numbers"]}
    for name in ("completed", "timed_out"):
        found = demo.compare(name, window="2026-W21").frame.row(0, named=True)
        assert [found["low"], found["high"]] == pytest.approx(numbers[name]["interval"]), name


@pytest.mark.slow
@pytest.mark.parametrize("by", [[], ["model"], ["project", "kind"], ["month"]])
def test_costs_are_those_of_costs(by, demo):
    costs = sa.failures.costs(demo, by=by)
    for measure, column in (("cost_usd", "total_usd"), ("lost_usd", "total_lost_usd")):
        found = demo.compare(measure, by=by).frame
        there, here = (sorted(one.fill_null(-1)) for one in (costs[column], found["value"]))
        assert here == there, measure


@pytest.mark.slow
def test_durations_are_those_of_the_curve(demo):
    runs = sa.survival.spells(demo, window="2026-W21")
    medians = sa.survival.quantiles(sa.survival.kaplan_meier(runs, by="kind"), 0.5)
    found = demo.compare("duration", by="kind", window="2026-W21").frame.sort("kind")
    names = [f"duration{end}_s" for end in ("", "_low", "_high")]
    assert found.select("value", "low", "high").rows() == medians.sort("kind").select(names).rows()


@pytest.mark.slow
@pytest.mark.parametrize("measure", MEASURES)
def test_its_query_selects_the_same_rows(measure, demo):
    window = "2026-05"
    teams = pl.DataFrame({"project": ["billing", "mobile"], "team": ["red", "it's blue"]})
    snap = demo.with_table("teams", teams)
    calls = measure in ("calls", "failed_calls")
    by = ["tool"] if calls else ["kind", "teams.team", "weekday"]
    found = snap.compare(measure, by=by, window=window, tz="Asia/Kathmandu")
    counted = found.frame.filter(pl.col("n_of") > 0).with_columns(pl.col(pl.Enum).cast(str))
    in_sql = snap.sql(found.sql)
    if measure != "retried":  # whether an attempt is recorded is no condition of the query
        assert in_sql.height == counted.height
        both = counted.join(in_sql, on=by, nulls_equal=True, suffix="_sql")
        assert both["n_of"].equals(both["n_of_sql"], check_names=False)
        if "value" in in_sql.columns:
            assert both["value"].to_list() == pytest.approx(both["value_sql"].to_list())


def test_calls_are_selected_by_a_column_of_their_session(demo):
    found = demo.compare("calls", by="model")
    in_sql = demo.sql(found.sql).select("model", "value").rows()
    assert dict(in_sql) == dict(found.frame.select("model", "value").rows())
    assert len(in_sql) > 1


# --- retries ------------------------------------------------------------------------------


def test_what_retries_cost_is_known_by_attempts():
    rows = [
        ended("a", "failed", 30, cost_usd=1.0, attempt=1),
        ended("b", "completed", 20, cost_usd=3.0, attempt=2),
        ended("c", "completed", 10, cost_usd=5.0),
    ]
    assert values("retry_usd", rows) == [3.0]
    assert asked("retried", rows).select("n", "n_of").row(0) == (1, 2)
    assert values("retry_usd", rows[2:]) == [None]


def test_what_retries_cost_is_known_by_equal_prompts():
    rows = [
        ended("a", "failed", 30, cost_usd=1.0, directory="/w"),
        ended("b", "completed", 20, cost_usd=3.0, directory="/w"),
        ended("c", "completed", 10, cost_usd=5.0, directory="/w"),
        ended("d", "completed", 9, cost_usd=7.0, directory="/other"),
    ]
    said = (("a", 31, "mend"), ("b", 21, "mend"), ("c", 11, "test"), ("d", 10, "mend"))
    events = [
        WHOSE | {"entity_id": name, "at": ago(hours=hours), "seq": 1, "role": "user", "body": body}
        for name, hours, body in said
    ]
    snap = facts(rows, events=events)
    assert compare(snap, "retry_usd").frame["value"].item() == 3.0
    assert compare(snap, "retried").frame.select("n", "n_of").row(0) == (1, 4)


# --- drawn --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("by", ["project", "teams.owner"])
def test_what_is_chosen_in_the_chart_is_sql_for_the_runs_of_that_step(by, demo):
    owners = pl.DataFrame({"project": ["billing", "mobile"], "owner": ["ann", "it's bob"]})
    snap = demo.with_table("teams", owners)
    live = snap.compare("failed", by=by, every="1w", window="2026-05").chart().live()
    rows = live.chart.data.filter(pl.col("n_of") > 0).sort("n_of")
    for row in (rows.row(0, named=True), rows.row(-1, named=True)):
        at = {name: int(row[name].timestamp() * 1000) for name in ("since", "until")}
        chosen = {"value": {"vlPoint": {"or": [{by: row[by], **at}]}}, "store": []}
        live._vl_selections = {**live._vl_selections, "chosen_groups": chosen}
        assert live.selected["n_of"].to_list() == [row["n_of"]]
        assert snap.sql(live.sql).height == row["n_of"]


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["failed", "cost_usd", "duration", "incidents"])
def test_every_kind_of_measure_is_drawn_over_time_and_side_by_side(measure, demo):
    for how in ({"every": "1mo"}, {"window": "2026-05", "against": "before"}):
        chart = demo.compare(measure, by=["project"], **how).chart()
        assert chart.data["group"].n_unique() == 5
        assert "image/svg+xml" in chart._repr_mimebundle_()


# --- what is refused ----------------------------------------------------------------------


def test_the_old_name_says_what_to_type(demo):
    with pytest.raises(AttributeError, match=r'snap\.compare\("failed"'):
        sa.failures.rates(demo, by="project")


# --- properties ---------------------------------------------------------------------------

SOME = st.lists(
    st.tuples(
        st.sampled_from(["completed", "failed", "timed_out", "running", "cancelled"]),
        st.floats(0, 400),
        st.sampled_from(["x", "y", None]),
        st.sampled_from([None, 0.0, 1.5]),
        st.sampled_from([None, "i", "j"]),
    ),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(SOME, st.sampled_from(sorted(MEASURES)), st.sampled_from([None, "1d", "1w"]))
def test_order_and_groups_change_nothing_and_intervals_hold_their_value(some, measure, every):
    rows = [
        ended(str(n), status, hours, project=project, cost_usd=cost, invocation_id=request)
        for n, (status, hours, project, cost, request) in enumerate(some)
    ]
    for row in rows:
        if row["raw_status"] == "running":
            row["ended_at"] = None
    by = [] if MEASURES[measure].rows == "calls" else ["project"]
    found = asked(measure, rows, by=by, every=every)
    shuffled = random.Random(1).sample(rows, len(rows))
    assert found.equals(asked(measure, shuffled, by=by, every=every))
    known = found.drop_nulls(["low", "high"])
    assert ((known["low"] <= known["value"]) & (known["value"] <= known["high"])).all()
    assert (found["n"] <= found["n_of"]).all()
    if MEASURES[measure].kind == "sum" and not every:
        whole = asked(measure, rows)["value"].item()
        assert found["value"].sum() == pytest.approx(whole or 0.0)


def test_one_incident_of_many_runs_is_one():
    ends = [ago(days=1, minutes=n / 10) for n in range(12)]
    rows = [failed_run(f"{end}", reason_message="quota gone", ended=end) for end in ends]
    found = compare(store(*rows), "incidents").frame
    assert found.select("value", "n_of").row(0) == (1.0, 12)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"window": "2026-W21", "against": "before"}, "these two windows alone; a report judges "
         "by all earlier windows of this length."),
        ({"window": "2026-W12", "against": "2026-W11"}, "alone: there are fewer than 8 windows"),
        ({"every": "1mo", "against": "before"}, "Each step is judged by the one before it alone"),
        ({"window": "2026-W21"}, ""),
    ],
)  # fmt: skip
def test_a_comparison_says_what_it_judged_by(asked, words):
    found = sa.demo().compare("completed", **asked)
    assert words in found.judged_by
    assert repr(found).endswith(f"{found.frame}\n{found.judged_by}".rstrip("\n"))
    assert (found.judged_by in found._repr_html_()) and bool(words) == bool(found.judged_by)
    assert "judged_by" not in found.frame.columns


@pytest.mark.parametrize(
    ("measure", "asked", "words"),
    [
        ("cost_usd", {}, "Judged by these two windows alone."),
        ("completed", {"by": "project"}, "Judged by these two windows alone."),
        ("completed", {"every": "1d"}, "Each step is judged by the earlier window alone."),
    ],
)
def test_a_comparison_names_the_page_only_where_a_page_judges_it(measure, asked, words):
    found = sa.demo().compare(measure, window="2026-W21", against="2026-W20", **asked)
    assert found.judged_by == words
