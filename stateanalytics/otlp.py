"""Spans of OpenTelemetry for what ended: lines of OTLP/JSON, which collectors read from a file.

This module writes the lines itself because ``opentelemetry-proto`` writes the ids of spans in
base64, where OTLP/JSON has hexadecimal; tests read them with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.redaction import redact as redact_frame
from stateanalytics.state.definitions import RUN, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, rows_of

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the semantic conventions that the attributes ``gen_ai.…`` are named by."""
_SPANS_A_LINE = 1_000
_INTERNAL, _OK, _ERROR = 1, 1, 2
_ATTRIBUTES = {
    "gen_ai.operation.name": "operation",
    "gen_ai.agent.name": "agent",
    "gen_ai.provider.name": "provider",
    "gen_ai.request.model": "model",
    "gen_ai.conversation.id": "session_id",
    "gen_ai.usage.input_tokens": "n_input_tokens",
    "gen_ai.usage.output_tokens": "n_output_tokens",
    "error.type": "error_type",
    "stateanalytics.entity.type": "entity_type",
    "stateanalytics.entity.id": "entity_id",
    "stateanalytics.kind": "kind",
    "stateanalytics.outcome": "outcome",
    "stateanalytics.severity": "severity",
    "stateanalytics.cost_usd": "cost_usd",
}


def as_otlp(snap: Facts, *, policy: Policy | None = None, redact: bool = True) -> Iterator[str]:
    """Lines of spans, one span for each entity that began and ended.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        The rules of states; v1 by default.
    redact : bool
        Whether what looks like a secret is masked.

    Yields
    ------
    str
        One ``TracesData`` of OTLP 1.x, ending in a line break: spans of one system, a thousand
        at most. Ids are digests of source, type and id: the same entity has the same span in
        every export, so that a backend recognises repeated ones.

    Notes
    -----
    A trace is an invocation, else a session with what belongs to it. What is open has no end,
    and no span; nor have rows that no rate counts (they repeat others, were imported, or have a
    status with an unknown meaning) and those without a beginning.
    """
    checked_snapshot(snap, "export")
    spans = _spans(snap, policy)
    masked = redact_frame(spans)[0] if redact else spans
    for (system,), rows in masked.group_by("system", maintain_order=True):
        for begin in range(0, rows.height, _SPANS_A_LINE):
            batch = rows[begin : begin + _SPANS_A_LINE].iter_rows(named=True)
            yield json.dumps(_traces(str(system), [_span(row) for row in batch])) + "\n"


def _spans(snap: Facts, policy: Policy | None) -> pl.DataFrame:
    rows = counted(rows_of(snap, policy=policy)).filter(
        ~pl.col("is_open"), pl.col("ended_at") >= pl.col("started_at")
    )
    origin = ["source", "system"]
    sessions = rows.filter(entity_type=RUN).select(
        *origin, session_id="entity_id", session_invocation="invocation_id"
    )
    is_part = (pl.col("entity_type") != RUN) & pl.col("session_id").is_not_null()
    placed = rows.join(
        sessions.unique([*origin, "session_id"]), on=[*origin, "session_id"], how="left"
    ).with_columns(
        root=pl.coalesce("invocation_id", "session_invocation", "session_id", "entity_id"),
        up_type=pl.coalesce(
            "parent_type", pl.when(is_part).then(pl.lit(RUN)).otherwise(pl.lit("invocation"))
        ),
        up_id=pl.coalesce(
            "parent_id", pl.when(is_part).then("session_id").otherwise("invocation_id")
        ),
    )
    # A parent in another trace, or one that is not exported, would leave the span without one.
    key = [*origin, "root", "up_type", "up_id"]
    parents = placed.select(*origin, "root", up_type="entity_type", up_id="entity_id").unique()
    is_itself = (pl.col("up_type") == pl.col("entity_type")) & (
        pl.col("up_id") == pl.col("entity_id")
    )
    linked = placed.join(parents.with_columns(is_exported=True), on=key, how="left").with_columns(
        has_parent=pl.col("is_exported").fill_null(value=False) & ~is_itself.fill_null(value=True)
    )
    is_run = pl.col("entity_type") == RUN
    is_bad = is_failure().fill_null(value=False)
    return linked.with_columns(
        operation=pl.when(is_run).then(pl.lit("invoke_agent")),
        title=pl.when(is_run & pl.col("agent").is_not_null())
        .then(pl.format("invoke_agent {}", "agent"))
        .otherwise("entity_type"),
        error_type=pl.when(is_bad).then(pl.col("reason_code").fill_null("_OTHER")),
        is_bad=is_bad,
        **{name: pl.col(name).cast(pl.String) for name in ("outcome", "severity")},
    ).sort(*origin, "started_at", "entity_type", "entity_id")


def _traces(system: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    resource = {"attributes": [_attribute("service.name", system)]}
    scope = {"scope": {"name": "stateanalytics"}, "spans": spans, "schemaUrl": SCHEMA_URL}
    spans_of_system = {"resource": resource, "scopeSpans": [scope], "schemaUrl": SCHEMA_URL}
    return {"resourceSpans": [spans_of_system]}


def _span(row: dict[str, Any]) -> dict[str, Any]:
    origin = (row["source"], row["system"])
    span = {
        "traceId": _digest(*origin, row["root"], length=32),
        "spanId": _digest(*origin, row["entity_type"], row["entity_id"]),
        "name": row["title"],
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanoseconds(row["started_at"]),
        "endTimeUnixNano": _nanoseconds(row["ended_at"]),
        "attributes": [
            _attribute(name, row[column])
            for name, column in _ATTRIBUTES.items()
            if row[column] is not None
        ],
        "status": {"code": _ERROR if row["is_bad"] else _OK},
    }
    if row["is_bad"] and row["reason_message"]:
        span["status"]["message"] = row["reason_message"]
    if row["has_parent"]:
        span["parentSpanId"] = _digest(*origin, row["up_type"], row["up_id"])
    return span


def _attribute(key: str, value: Any) -> dict[str, Any]:
    # Whole numbers of 64 bits are text in protobuf's JSON.
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    kind = "doubleValue" if isinstance(value, float) else "stringValue"
    return {"key": key, "value": {kind: value}}


def _nanoseconds(moment: Any) -> str:
    return str(int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000)


def _digest(*parts: str, length: int = 16) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=length // 2).hexdigest()
