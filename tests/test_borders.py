"""Numbers at the border of what a function takes: outside is refused, just inside is not."""

import inspect
import math

import duckdb
import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import charts
from stateanalytics.core import schema
from stateanalytics.detectors.gaps import silence_gaps
from stateanalytics.errors import ArgumentError, MissingColumnsError, found
from stateanalytics.failures.cause_groups import add_cause_groups
from stateanalytics.stats.intervals import wilson
from stateanalytics.survival.run_spells import count_spells
from stateanalytics.survival.time_limits import implicit_timeouts

SPELLS = pl.DataFrame(
    {
        "duration_s": [5.0, 8.0, 13.0],
        "ended": [True, True, False],
        "cause": ["completed", "failed", None],
        "ending": ["completed", "failed", "running"],
        "left_out": pl.Series([None] * 3, dtype=pl.String),
        "started_at": pl.Series([None] * 3, dtype=pl.Datetime("us", "UTC")),
        "timeout_s": pl.Series([None] * 3, dtype=pl.Float64),
    }
)
CURVE = sa.survival.kaplan_meier(SPELLS)

# A share of nothing and one of everything are none.
SHARES = {
    "conf_level of a curve": lambda share: sa.survival.kaplan_meier(SPELLS, conf_level=share),
    "prob of a quantile": lambda share: sa.survival.quantiles(CURVE, share),
    "confidence of wilson": lambda share: wilson(8, 10, confidence=share),
}


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("share", [0, 0.0, 1, 1.0, -0.1, 1.1, math.nan])
def test_a_share_lies_between_nought_and_one_and_is_neither(name, share):
    with pytest.raises(ArgumentError, match=r"between 0 and 1|strictly"):
        SHARES[name](share)


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_every_share_in_between_is_taken(name, share):
    SHARES[name](share)


@pytest.mark.parametrize("limit", [0, 0.0, -1.0, math.inf, math.nan])
def test_a_limit_of_nothing_or_without_an_end_is_none(limit):
    with pytest.raises(ArgumentError, match="candidates_s needs a number above 0"):
        sa.survival.timeout_candidates(SPELLS, candidates_s=[60, limit], by=())
    with pytest.raises(ArgumentError, match="thresholds_s needs a number above 0"):
        sa.survival.slow_thresholds(SPELLS, [60, limit], by=())


NEEDS_COLUMNS = [
    *(sa.survival.kaplan_meier, sa.survival.cumulative_incidence, sa.survival.quantiles),
    *(sa.survival.timeout_candidates, sa.survival.slow_thresholds),
    *(implicit_timeouts, count_spells),
    *(sa.detectors.agreement, sa.detectors.intersections, sa.detectors.disagreements),
    add_cause_groups,
    *(charts.chart_durations, charts.chart_severity, charts.chart_disagreement),
    *(charts.chart_intersections, charts.chart_failure_codes, charts.chart_incidents),
    *(charts.chart_survival, charts.chart_cumulative_incidence, charts.chart_limits),
    *(charts.chart_worksheet, charts.chart_false_alarms),
]


@pytest.mark.parametrize("function", NEEDS_COLUMNS, ids=lambda function: function.__name__)
def test_a_frame_of_something_else_is_refused_with_what_was_needed(function):
    with pytest.raises(MissingColumnsError, match=rf"{function.__name__} needs columns \["):
        function(pl.DataFrame({"x": [1]}))


NEEDS_SNAPSHOT = [
    *(sa.audit, sa.report, sa.detectors.alarms, sa.detectors.detect, silence_gaps),
    *(sa.survival.spells, sa.survival.timeouts, sa.survival.duration_change),
    *(sa.failures.change, sa.failures.clusters, sa.thresholds.recommend),
]


@pytest.mark.parametrize("function", NEEDS_SNAPSHOT, ids=lambda function: function.__name__)
def test_a_path_is_no_snapshot(function):
    words = r"\w needs a snapshot; found str 'state.db'\.\nHint: read"
    with pytest.raises(ArgumentError, match=words):
        function("state.db")


@pytest.mark.slow
def test_a_summary_in_place_of_a_snapshot_is_named_once(demo):
    with pytest.raises(ArgumentError, match=r"^audit needs a snapshot; found Summary as of .*…\."):
        sa.audit(sa.summarize(demo))
    assert found("x" * 80) == f"str '{'x' * 58}…"


@pytest.mark.parametrize(("other", "words"), [(5, "int 5"), ("x", "str 'x'")])
def test_known_detectors_with_what_is_none(other, words):
    with pytest.raises(ArgumentError, match=f"known needs your own detectors; found {words}"):
        sa.detectors.known(other)


# Values that hold what they are given, and what takes nothing at all.
HOLDERS = (
    *("Advice", "Budget", "Costs", "Detector", "Entry", "Policy", "Rules"),
    *("Snapshot", "Summary"),
    *("demo", "known", "prices", "read", "reason_codes"),
    *("load_ipython_extension", "unload_ipython_extension"),
)
SPACES = {name: getattr(sa, name) for name in ("failures", "survival", "detectors", "thresholds")}
PUBLIC = {
    f"{place}.{name}": getattr(module, name)
    for place, module in {"sa": sa, "charts": charts, **SPACES}.items()
    for name in module.__all__
    if callable(getattr(module, name)) and name not in HOLDERS
}


SOON = {"window": "2026-W21"}
REFUSED = [
    ("thresholds.recommend", {"costs": 5}, "costs needs Costs; found 5"),
    ("thresholds.recommend", {"most_sessions": 0}, "most_sessions needs a whole number from 1"),
    ("thresholds.recommend", {"conf_level": 95}, "conf_level must be a share between 0 and 1"),
    *(("thresholds.covering", {"loses": loses}, "loses") for loses in (0, 1.0, "few")),
    *(
        ("thresholds.review", {"changes": {name: change}}, words)
        for name, change, words in (
            (
                "sloth",
                ("2026-05-20", 1800, 3600),
                "There is no threshold of silence or length 'sloth'",
            ),
            ("slow", 3600, "A change needs a moment"),
            ("slow", ("soon", 1800, 3600), "slow needs a moment"),
            ("slow", ("2026-05-20", 0, 3600), "slow"),
        )
    ),
    *(
        ("failures.mass_failures", {name: number}, name)
        for name, number in (("share", 2), ("least", 0), ("step_s", 0), ("step_s", 1e30))
    ),
    *(
        ("failures.parameters", {"n_values": n}, "n_values needs a whole number from 1")
        for n in (0, -1, True, 2.0)
    ),
    *(
        ("failures.incidents", {"gap_s": gap_s}, "gap_s needs a number from 0")
        for gap_s in (-0.001, math.inf, math.nan)
    ),
    (
        "failures.change",
        SOON | {"before": ("2026-05-17", "2026-05-20")},
        "The earlier period ends .* after the later one",
    ),
    ("failures.change", {"fdr": 0}, "fdr must be a share between 0 and 1; found 0"),
    ("failures.change", {"earlier": "x"}, "needs a snapshot; found str"),
    ("failures.related", {"n": 0}, "n needs a whole number"),
    ("survival.duration_change", {"by": "colour"}, "no column of spells 'colour'; there are"),
    ("survival.duration_change", {"fdr": 5}, "fdr must be a share"),
    ("sa.report", {"window": "2026-W60"}, "no week 60 in 2026"),
    ("sa.report", {"window": "2027-W01"}, "the data end, or are read as of, 2026"),
    ("sa.report", {"policy": "v1"}, "policy needs a Policy; found 'v1'"),
    ("weeks", {"n": 0}, "n needs a whole number from 1; found 0"),
    ("weeks", {"n": 1.5}, "n needs a whole number"),
    ("weeks", {"n": 1_000}, "n needs at most 520 weeks; found 1000"),
    ("weeks", {"top": -1}, "top needs a whole number from 0"),
    ("compare", {"measure": "faild"}, "no measure 'faild'(.|\n)*did you mean 'failed'"),
    *(
        ("compare", {"measure": "failed", **how}, words)
        for how, words in (
            ({"by": "projekt"}, "no column 'projekt'(.|\n)*'project'"),
            ({"every": "2d"}, "length of a step; found '2d'"),
            ({"every": "often"}, "length of a step"),
            ({"tz": "Europe/Berlim"}, "no time zone(.|\n)*Europe/Berlin"),
            ({"tz": "../../etc/passwd"}, "no time zone"),
            ({"window": "2026-13"}, "no '2026-13' in the calendar"),
            ({"window": "2026-02-30"}, "no '2026-02-30' in the calendar"),
            ({"against": "before"}, "no earlier window than all time"),
            ({**SOON, "against": "2026-05"}, "earlier period ends 2026-06-01(.|\n)*W20"),
            ({"by": "teams.team"}, "no table 'teams' of yours"),
        )
    ),
]


@pytest.mark.parametrize(("name", "how", "words"), REFUSED, ids=str)
def test_an_argument_that_makes_no_sense_is_refused_in_words(demo, name, how, words):
    function = PUBLIC[name] if "." in name else getattr(sa.Snapshot, name)
    with pytest.raises(ArgumentError, match=words):
        function(demo, **how)


def refused(name, nonsense):
    """The error of a public function that is given one thing for all that it needs."""
    asked = inspect.signature(PUBLIC[name]).parameters.values()
    needed = {one.name: one.kind for one in asked if one.default is one.empty}
    named = {name: "x" for name, kind in needed.items() if kind is kind.KEYWORD_ONLY}
    given = [nonsense] * (len(needed) - len(named))
    if name == "failures.mine_templates" and isinstance(nonsense, pl.DataFrame):
        given = [nonsense["x"]]
    with pytest.raises(sa.errors.StateAnalyticsError, match=r"\nHint: \S") as error:
        made = PUBLIC[name](*given, **named)
        next(made)  # what follows a store begins when it is first asked
    return str(error.value)


@pytest.mark.parametrize("nonsense", [3, None, "nothing here", pl.DataFrame({"x": [1]})], ids=str)
@pytest.mark.parametrize("name", PUBLIC)
def test_nonsense_is_refused_with_what_to_type(name, nonsense):
    if name == "sa.collect" and isinstance(nonsense, str):
        # A name of nothing ends nothing: it is a row of the coverage.
        assert sa.collect(nonsense, nonsense)["status"].to_list() == ["failed"]
        return
    refused(name, nonsense)


@pytest.fixture(scope="module")
def elsewhere(demo):
    """Frames of another engine, by what they hold, and counts in place of facts."""
    relations = {
        "entities": demo.entities,
        "spells": SPELLS,
        "curve": CURVE,
        "detections": sa.detectors.detect(demo).rows.head(50),
    }
    engine = duckdb.connect()
    given = {name: engine.from_arrow(frame.to_arrow()) for name, frame in relations.items()}
    nothing = {shape.name: shape.empty() for shape in schema.FACTS}
    return given | {"a summary": sa.summarize(sa.Snapshot(**nothing, as_of=demo.as_of))}


SERVES_SUMMARIES = ("sa.merge", "sa.report")


@pytest.mark.parametrize("what", ["entities", "spells", "curve", "detections", "a summary"])
@pytest.mark.parametrize("name", PUBLIC)
def test_a_relation_or_a_summary_is_refused_in_one_line(name, what, elsewhere):
    if what == "a summary" and name in SERVES_SUMMARIES:
        PUBLIC[name](elsewhere[what])
        return
    problem, hint = refused(name, elsewhere[what]).split("\n")
    assert len(problem) < 1000 and hint
