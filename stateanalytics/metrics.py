"""The numbers that an alert needs, as OpenMetrics text: few, and bounded in number."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import polars as pl
from prometheus_client import Metric
from prometheus_client.openmetrics.exposition import generate_latest

from stateanalytics.auditing import all_findings, audit
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.redaction import redact
from stateanalytics.core.text import ANSI, UNSEEN
from stateanalytics.queries import judged_effort
from stateanalytics.state.attention import attention_items
from stateanalytics.state.definitions import RUN, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, population
from stateanalytics.state.states import states_and_reasons
from stateanalytics.systems.base import OTHER
from stateanalytics.thresholds.advice import recommend

MOST_VALUES = 10
"""Values of a label that a store fills: the most frequent ones; others count as `POOLED`."""
POOLED = "_OTHER"
"""What OpenTelemetry calls an ``error.type`` that has no name of its own."""
NONE = "none"
_LONGEST_VALUE = 80
_DAY_US = 86_400_000_000


def limits(snap: Facts, *, policy: Policy | None = None) -> pl.DataFrame:
    """The limits of open runs: the recommended ones, else today's.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        The policy with today's thresholds; v1 by default.

    Returns
    -------
    polars.DataFrame
        ``system``, ``kind`` (null: every kind), ``other_kinds`` (of the kind ``other``: what it
        does not hold for), ``measure`` (``silence``, ``slow``, ``time_limit``), ``limit_s``.
    """
    shape: dict[str, Any] = {
        **dict.fromkeys(("system", "kind", "measure"), pl.String),
        "other_kinds": pl.List(pl.String),
        "limit_s": pl.Float64,
    }
    rows = [
        {
            "system": constant.system,
            "kind": constant.kind,
            "other_kinds": list(constant.other_kinds),
            "measure": _measure(constant.is_of_silence, constant.mistake),
            "limit_s": constant.today_s if recommended_s is None else recommended_s,
        }
        for constant, recommended_s in recommend(snap, policy=policy).constants()
        if constant.is_of_silence or constant.evidence == "runs"
    ]
    return pl.DataFrame(rows, schema=shape).drop_nulls("limit_s")


def _measure(is_of_silence: bool, mistake: str) -> str:
    if is_of_silence:
        return "silence"
    return "time_limit" if mistake == "lost_run" else "slow"


def as_openmetrics(
    snap: Facts, *, policy: Policy | None = None, limits: pl.DataFrame | None = None
) -> str:
    """What is there, what is open and past its limits, and what ended in the last day.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        The rules of states; v1 by default.
    limits : polars.DataFrame, optional
        The answer of `limits`, which reads all of history; None: metrics without limits.

    Returns
    -------
    str
        OpenMetrics 1.0, gauges only, without timestamps and exemplars, so that the textfile
        collector of node_exporter takes it too. The same data give the same text.

    Notes
    -----
    Labels are words of vocabularies, or the `MOST_VALUES` most frequent texts of a store,
    without what looks like a secret. Where OpenTelemetry's semantic conventions name what a
    label says, it has that name, with ``_`` for dots.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> as_openmetrics(demo()).splitlines()[1]
    '# TYPE stateanalytics_as_of_timestamp_seconds gauge'
    """
    checked_snapshot(snap, "metrics")
    metrics = SimpleNamespace(collect=lambda: _metrics(snap, policy, limits))
    text: bytes = generate_latest(metrics)  # type: ignore[no-untyped-call]
    return text.decode()


def _metrics(snap: Facts, policy: Policy | None, limits: pl.DataFrame | None) -> Iterator[Metric]:
    states, reasons = states_and_reasons(snap, policy=policy)
    rows = population(snap.entities, states, as_of=snap.as_of)
    runs = _short_and_masked(
        counted(rows, RUN).with_columns(is_bad=is_failure().fill_null(value=False))
    )
    opened = runs.filter("is_open")
    is_recent = pl.lit(snap.as_of) - pl.col("placed_at") < pl.duration(microseconds=_DAY_US)
    ended = runs.filter(~pl.col("is_open"), is_recent)
    kinds = few("kind")
    seconds = "seconds"
    as_of = pl.DataFrame({"value": [snap.as_of.timestamp()]})
    yield _gauge("as_of_timestamp", "The instant of all these metrics.", as_of, seconds)
    newest = snap.sources.group_by("system").agg(value=pl.col("last_at").max().dt.epoch("s"))
    yield _gauge("newest_timestamp", "The newest moment in the data.", newest, seconds)
    there = _counts(rows.filter(~pl.col("is_mirror")), "system", "entity_type", "severity")
    yield _gauge("entities", "Entities of every type, by severity.", there)
    efforts = judged_effort(snap, policy)
    items = attention_items(snap, states, reasons, policy=policy, efforts=efforts)
    needing = _counts(items, "system", "severity")
    yield _gauge("attention_items", "Items that need attention.", needing)
    findings = all_findings(snap, states, audit(snap, policy=policy, states=states))
    yield _gauge("findings", "Problems in the data themselves.", _counts(findings, "severity"))
    yield _gauge("open_runs", "Open runs.", _counts(opened, "system", kinds))
    for measure in ("silence", "age"):
        longest = opened.group_by("system", kind=kinds).agg(value=pl.col(f"{measure}_s").max())
        yield _gauge(f"open_run_{measure}", f"The longest {measure} of a run.", longest, seconds)
    if limits is not None:
        yield from _past_limits(opened, limits)
    error = few(pl.when("is_bad").then(pl.col("reason_code").fill_null(POOLED)))
    ends = _counts(ended, "system", "outcome", error.alias("error_type"))
    yield _gauge("day_ended_runs", "Runs that ended in the 24 hours before.", ends)
    yield from _spent(ended)


def _short_and_masked(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs with short texts, without secrets and invisible characters."""
    masked = redact(runs.select("kind", "model", "provider", "reason_code"))[0]
    # Before counting: two texts that look the same would be two series of one name.
    printed = pl.all().str.replace_all(ANSI, "").str.replace_all(rf"{UNSEEN}|\r", "")
    short = masked.select(printed.str.slice(0, _LONGEST_VALUE))
    return runs.with_columns(short).with_columns(
        pl.col("kind", "model", "provider").fill_null(NONE)
    )


def _past_limits(opened: pl.DataFrame, limits: pl.DataFrame) -> Iterator[Metric]:
    """The narrowest limit for each kind, and how many open runs are past their limit."""
    is_same_kind = pl.col("kind") == pl.col("limited_kind")
    is_other_kind = (pl.col("limited_kind") == OTHER) & ~pl.col("kind").is_in(pl.col("other_kinds"))
    breadth = (
        pl.when(is_same_kind.fill_null(value=False)).then(0).when(is_other_kind).then(1)
        .when(pl.col("limited_kind").is_null()).then(2)
    )  # fmt: skip
    key = ("system", "kind", "measure")
    applied = (
        opened.select("system", "kind").unique()
        .join(limits.rename({"kind": "limited_kind"}), on="system")
        .with_columns(breadth=breadth).drop_nulls("breadth")
        .filter(pl.col("breadth") == pl.col("breadth").min().over(key))
        # The longest of several: a run that is past it is past all of them.
        .group_by(key).agg(pl.col("limit_s").max())
    )  # fmt: skip
    duration = pl.when(pl.col("measure") == "silence").then("silence_s").otherwise("age_s")
    is_past = (duration > pl.col("limit_s")).fill_null(value=False)
    judged = opened.with_columns(pooled=few("kind")).join(applied, on=["system", "kind"])
    yield _gauge(
        "limit",
        "The limit for runs of a kind: the recommended one, otherwise the current one.",
        judged.filter(pl.col("pooled") != POOLED)
        .group_by("system", "kind", "measure").agg(value=pl.col("limit_s").max()),
        "seconds",
    )  # fmt: skip
    past = judged.group_by("system", "measure", kind="pooled").agg(value=is_past.sum())
    yield _gauge("open_runs_past_limit", "Open runs beyond a limit.", past)


def _spent(ended: pl.DataFrame) -> Iterator[Metric]:
    """Tokens and cost of a day, with the labels of OpenTelemetry's ``gen_ai`` attributes."""
    labels = (
        few("model").alias("gen_ai_request_model"),
        few("provider").alias("gen_ai_provider_name"),
    )
    tokens = ended.group_by("system", *labels).agg(
        input=pl.col("n_input_tokens").sum(), output=pl.col("n_output_tokens").sum()
    )
    of_type = tokens.unpivot(
        ["input", "output"],
        index=["system", "gen_ai_request_model", "gen_ai_provider_name"],
        variable_name="gen_ai_token_type",
        value_name="value",
    )
    yield _gauge("day_tokens", "Tokens of the runs that ended in the 24 hours before.", of_type)
    cost = ended.group_by("system", *labels).agg(value=pl.col("cost_usd").sum().round(6))
    yield _gauge("day_cost", "Reported cost of these runs.", cost, "usd")


def few(column: str | pl.Expr) -> pl.Expr:
    """A column with its `MOST_VALUES` most frequent texts, the others as `POOLED`; null stays null.

    Examples
    --------
    >>> texts = pl.DataFrame({"kind": [*"aab", *(f"k{n:02}" for n in range(20))]})
    >>> texts.select(few("kind").alias("kind"))["kind"].value_counts(sort=True).row(0)
    ('_OTHER', 12)
    """
    texts = pl.col(column) if isinstance(column, str) else column
    n_of = pl.when(texts.is_not_null()).then(-texts.count().over(texts).cast(pl.Int64))
    order = pl.struct(n=n_of.fill_null(1), text=texts).rank("dense")
    return pl.when(texts.is_null() | (order <= MOST_VALUES)).then(texts).otherwise(pl.lit(POOLED))


def _counts(rows: pl.DataFrame, *labels: str | pl.Expr) -> pl.DataFrame:
    return rows.group_by(*labels).agg(value=pl.len())


def _gauge(name: str, meaning: str, rows: pl.DataFrame, unit: str = "") -> Metric:
    """One metric, a gauge: what it counts shrinks when a store deletes rows."""
    # A unit stands at the end of the name, where `Metric` puts it.
    metric = Metric(f"stateanalytics_{name}", meaning, "gauge", unit)
    labels = [column for column in rows.columns if column != "value"]
    texts = rows.with_columns(pl.col(labels).cast(pl.String)).select(*labels, "value")
    for *values, value in texts.drop_nulls("value").sort(texts.columns).iter_rows():
        pairs = zip(labels, values, strict=True)
        metric.add_sample(metric.name, {label: text for label, text in pairs if text}, value)
    return metric
