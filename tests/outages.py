"""Weeks of failures whose truth is known: independent ones, outages, retries, fan-outs.

Nothing here knows how incidents are found. A failure is a dictionary; ``fault`` is the truth.
"""

from datetime import UTC, datetime

import polars as pl

from stateanalytics.failures.counting import incident_count
from stateanalytics.failures.incident_grouping import add_incidents

MONDAY = datetime(2026, 5, 18, tzinfo=UTC)
WEEK_S = 7 * 86_400.0
#: How often something fails in each hour of a week: even, more by day, hardly but at work.
EVEN = [1.0] * 168
BY_DAY = [1.0 if h % 24 in range(8, 20) and h < 120 else 0.2 for h in range(168)]
AT_WORK = [1.0 if h % 24 in range(9, 18) and h < 120 else 0.05 for h in range(168)]
RHYTHMS = {"even": EVEN, "by day": BY_DAY, "at work": AT_WORK}
LIMIT = {"code": "limit", "template": "429 slow down", "cause_group": "provider_limit"}
DISK = [
    {"template": text, "cause_group": "disk_full"}
    for text in ("ENOSPC: no space left", "No space left on device", "disk is full", "quota: disk")
]
NETWORK = [
    {"template": text, "cause_group": "network"}
    for text in ("ECONNRESET", "getaddrinfo ENOTFOUND <*>", "fetch failed", "Connection refused")
]
MANY = [
    *({**LIMIT, "provider": provider} for provider in "pqr"),
    *DISK,
    *NETWORK,
    *({"template": f"bug {i}", "cause_group": "bug"} for i in range(6)),
    *({"template": f"odd {i}"} for i in range(6)),
]


def poisson(draw, mean):
    n, at = 0, draw.expovariate(1)
    while at < mean:
        n, at = n + 1, at + draw.expovariate(1)
    return n


def independent(draw, mean, rhythm, kinds=(LIMIT,), tasks=60):
    """About so many failures a week, each for a reason of its own."""
    hours = draw.choices(range(168), rhythm, k=poisson(draw, mean))
    return [
        {
            **draw.choice(kinds),
            "at": 3600 * (hour + draw.random()),
            "fault": f"own {i}",
            "name": f"task {draw.randrange(tasks)}",
            "directory": f"/w/{draw.randrange(8)}",
        }
        for i, hour in enumerate(hours)
    ]


def outage(draw, n, seconds, kinds=(LIMIT,), *, fault="outage", begins=None):
    """All runs that came within this time failed: the first and the last at its ends."""
    begins = draw.random() * (WEEK_S - seconds) if begins is None else begins
    moments = [0.0, seconds, *(seconds * draw.random() for _ in range(n - 2))]
    return [
        {
            **draw.choice(kinds),
            "at": begins + at,
            "fault": fault,
            "name": f"task {draw.randrange(60)}",
            "directory": f"/w/{draw.randrange(8)}",
        }
        for at in moments
    ]


def retries(draw, waits_s, kinds=(LIMIT,)):
    """One task, tried again after each of these waits."""
    at, task = draw.random() * WEEK_S / 2, {"name": "mend it", "directory": "/w/1"}
    rows = [{**task, **draw.choice(kinds), "at": at, "fault": "retries"}]
    for wait in waits_s:
        at += wait * draw.uniform(0.8, 1.2)
        rows.append({**task, **draw.choice(kinds), "at": at, "fault": "retries"})
    return rows


def fan_outs(draw, n_tries, wait_s, n=24, kinds=(LIMIT,)):
    """One fan-out, tried again after each wait, with an invocation for each try."""
    begins = draw.random() * WEEK_S / 2
    return [
        {
            **draw.choice(kinds),
            "at": begins + wait_s * attempt + 60 * draw.random(),
            "fault": "fan-out",
            "request": f"try {attempt}",
            "name": f"part {i}",
            "directory": "/w/2",
        }
        for attempt in range(n_tries)
        for i in range(n)
    ]


def week(*parts):
    """The `members` of a week, with their truth and the incidents that are found."""
    failures = [row for part in parts for row in part]
    texts = ("code", "template", "cause_group", "provider", "name", "directory", "fault")
    rows = pl.DataFrame(
        {
            "at": pl.Series([row["at"] for row in failures], dtype=pl.Float64),
            "request": pl.Series([row.get("request") for row in failures], dtype=pl.String),
            **{
                name: pl.Series([row.get(name) for row in failures], dtype=pl.String)
                for name in texts
            },
        }
    )
    number = pl.int_range(pl.len()).cast(pl.String)
    key = pl.concat_str(pl.col("code", "template").fill_null("-"), separator="|")
    members = rows.select(
        *texts,
        source=pl.lit("host-1/.agents/state.db"),
        system=pl.lit("lionagi"),
        entity_type=pl.lit("session"),
        entity_id=number,
        session_id=number,
        unit=number,
        invocation_id="request",
        message="template",
        cluster_id=key,
        cause=pl.coalesce("request", number),
        failed_at=pl.lit(MONDAY) + pl.duration(microseconds=pl.col("at") * 1e6),
    )
    return add_incidents(members, span_s=WEEK_S)


def n_incidents(rows, fault=None):
    """As every page counts them."""
    chosen = rows if fault is None else rows.filter(fault=fault)
    return chosen.select(incident_count()).item()


def false_links(rows):
    """Links among independent failures, or from them to an outage outside of its time: n, of."""
    is_own = pl.col("fault").str.starts_with("own")
    outages = (
        rows.filter(~is_own)
        .group_by("fault")
        .agg(since=pl.col("failed_at").min(), until=pl.col("failed_at").max())
    )
    outside = rows.filter(is_own)
    for since, until in outages.select("since", "until").iter_rows():
        outside = outside.filter(~pl.col("failed_at").is_between(since, until))
    of_outages = rows.filter(~is_own)["incident_id"].drop_nulls().unique()
    apart = outside.filter(~pl.col("incident_id").is_in(of_outages.implode()).fill_null(False))
    return outside.height - n_incidents(apart), outside.height
