"""Every chart on the sample, with text in all of its data that would run if it could."""

import dataclasses

import polars as pl

import stateanalytics as sa
from stateanalytics import charts
from stateanalytics.charts.timeline import chart_timeline

HOSTILE = (
    '</script><script>window.PWNED="text"</script><img src=x onerror="window.PWNED=1">'
    "javascript:window.PWNED=2 {{window.PWNED=3}} '+(window.PWNED=4)+' datum.x"
)
# Words of ours, which choose a colour or a place; everything else may come from a store.
OURS = {
    *("ending", "severity", "trend", "is_member", "measure", "group_kind", "unit", "coverage"),
    *("week", "mistake", "lane", "parent", "depth"),
}


def hostile(frame: pl.DataFrame) -> pl.DataFrame:
    """The same frame with an attack behind every text in it."""
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    return frame.with_columns(pl.col([t for t in texts if t not in OURS]) + HOSTILE)


def every_chart(snap: sa.Snapshot, window: str = "2026-W21") -> dict[str, object]:
    """Each public chart by its name, with hostile text."""
    spells = snap.table("spells").filter(pl.col("left_out").is_null())
    detections = sa.detectors.detect(snap, detectors=["B1", "B2", "B4", "A6"])
    agreement = sa.detectors.agreement(detections)
    advice = sa.thresholds.recommend(snap)
    incidents = sa.failures.incidents(snap, window=window)
    codes = sa.failures.codes(snap, window=window)
    since = codes["first_at"].min()
    longest = spells.sort("duration_s", descending=True)["entity_id"][0]
    one = spells.filter(entity_id=longest)
    curve = advice.curves.filter(name=advice.curves["name"][0])
    sheet = sa.thresholds.stale(snap)
    strata = [name for name in ("system", "kind", "stratum") if name in sheet.columns]
    sheet = sheet.partition_by(strata)[0] if strata else sheet
    steps = sa.survival.run_spells.count_spells(spells)
    by_type = (
        sa.states(snap)
        .group_by("entity_type")
        .agg(
            (pl.col("severity") == name).sum().alias(name)
            for name in ("critical", "warning", "info")
        )
    )
    over_time = (
        spells.with_columns(label=pl.col("started_at").dt.strftime("%d %b"))
        .group_by("label", "ending")
        .agg(n=pl.len())
        .drop_nulls()
        .sort("label")
    )
    events = pl.DataFrame({"at": one["started_at"].to_list() + one["ended_at"].to_list()})
    alarms = pl.DataFrame(
        {
            "detector": ["stuck", "silent"],
            "started_at": one["started_at"].to_list() * 2,
            "ended_at": [one["ended_at"][0] or snap.as_of] * 2,
            "is_censored": [False, True],
        }
    )
    return {
        "alarms": charts.chart_alarms(events, hostile(alarms)),
        "cumulative incidence": charts.chart_cumulative_incidence(
            hostile(sa.survival.cumulative_incidence(spells)), what=HOSTILE
        ),
        "disagreement": charts.chart_disagreement(hostile(agreement.pairs)),
        "durations": charts.chart_durations(steps),
        "failure codes": charts.chart_failure_codes(hostile(codes)),
        "failure trend": charts.chart_failure_trend(
            hostile(sa.failures.clusters(snap, window=window)), since=since, sentence=HOSTILE
        ),
        "false alarms": charts.chart_false_alarms(hostile(sheet), what=HOSTILE),
        "incidents": charts.chart_incidents(hostile(incidents)),
        "intersections": charts.chart_intersections(
            hostile(sa.detectors.intersections(detections))
        ),
        "limits": charts.chart_limits(hostile(snap.table("timeouts"))),
        "over time": charts.chart_over_time(hostile(over_time)),
        "compared": charts.chart_compare(
            dataclasses.replace(
                snap, entities=snap.entities.with_columns(pl.col("project") + HOSTILE)
            ).compare("failed", by="project", every="1d"),
            sentence=HOSTILE,
        ),
        "severity": charts.chart_severity(hostile(by_type)),
        "survival": charts.chart_survival(
            hostile(sa.survival.kaplan_meier(spells, by=["kind"])), what=HOSTILE
        ),
        "timeline": chart_timeline(hostile(sa.session(snap, longest).timeline)),
        "weeks": charts.chart_weeks(hostile(snap.weeks(4))),
        "worksheet": charts.chart_worksheet(hostile(curve)),
    }
