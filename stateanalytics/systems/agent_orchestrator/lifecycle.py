"""A session's lifecycle as Agent Orchestrator reads it from its record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import with_defaults
from stateanalytics.systems.agent_orchestrator.javascript import is_filled
from stateanalytics.systems.agent_orchestrator.legacy_status import legacy_status_rule
from stateanalytics.systems.agent_orchestrator.lifecycle_payload import (
    PAYLOAD_COLUMNS,
    read_payloads,
)
from stateanalytics.systems.agent_orchestrator.moments import DateReader, iso_ms, moment
from stateanalytics.systems.agent_orchestrator.synthesis import (
    LIFECYCLE_COLUMNS,
    synthesize_lifecycle,
)
from stateanalytics.systems.agent_orchestrator.words import Version

_MOMENTS = tuple(name for name in LIFECYCLE_COLUMNS if name.endswith("_at"))


def parse_lifecycle(
    records: pl.DataFrame,
    *,
    now: datetime,
    version: Version = "head",
    is_tolerant: bool = False,
    dates: DateReader = iso_ms,
) -> pl.DataFrame:
    """Add the three axes of every session record, and how they came about.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records as `synthesize_lifecycle` takes them. The payload is in
        ``lifecycle`` (JSON text), or in ``statePayload`` where ``stateVersion`` is "2".
    now : datetime
        The clock, in UTC: it stands for a creation time that cannot be read.
    version : {"trinity", "head", "final"}, default "head"
        Whose reader. Trinity knows only ``statePayload`` and fewer reasons.
    is_tolerant : bool, default False
        Use what is good in a payload that Agent Orchestrator would reject as a whole: words
        are kept as they are, also unknown ones; fields of a wrong type count as absent.
    dates : callable, default `iso_ms`
        How stored times are read.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 21)
        With the 17 lifecycle columns and: ``payload_key`` (``lifecycle``,
        ``statePayload`` or null), ``ao_would_reject`` (null without a payload),
        ``reject_reason`` (text) and ``is_synthesized`` (no payload was used).

    Raises
    ------
    ArgumentError
        If the version is unknown.

    Notes
    -----
    Agent Orchestrator's ``parseCanonicalLifecycle``: a payload is accepted or rejected as a
    whole (one unknown word loses all three axes), and each field that an accepted one
    lacks is filled from `synthesize_lifecycle`. Its readers first replace the flat
    ``status`` by that of the payload, good or bad: see `refresh_status`.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> payload = '{"version":2,"session":{"state":"stuck","reason":"probe_failure"}}'
    >>> records = pl.DataFrame({"status": ["working"] * 2, "lifecycle": [payload, "[]"]})
    >>> parse_lifecycle(records, now=datetime(2026, 5, 1, tzinfo=UTC)).select(
    ...     "session_state", "pr_state", "reject_reason"
    ... ).rows()
    [('stuck', 'none', None), ('working', 'none', 'it is no object')]
    """
    made_up = synthesize_lifecycle(records, now=now, version=version, dates=dates)
    chosen = _choose_payload(made_up, version)
    read = read_payloads(chosen["_payload"], version=version, is_tolerant=is_tolerant)
    merged = chosen.hstack(read).with_columns(**_merged(dates))
    kept = [*records.columns, *LIFECYCLE_COLUMNS]
    return merged.select(
        *kept,
        payload_key=pl.col("_key"),
        ao_would_reject=pl.when(pl.col("_key").is_not_null()).then(
            pl.col("reject_reason").is_not_null()
        ),
        reject_reason=pl.col("reject_reason"),
        is_synthesized=~pl.col("is_used"),
    )


def refresh_status(records: pl.DataFrame) -> pl.DataFrame:
    """Replace the flat status by that of the payload, as Agent Orchestrator's readers do.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records with the text columns ``status`` and ``lifecycle``.

    Returns
    -------
    polars.DataFrame
        The same rows; ``status`` is the legacy status of the payload in ``lifecycle``,
        valid or not, where there is one.

    Notes
    -----
    Agent Orchestrator's ``readMetadataRaw``. Apply it to JSON records before
    `parse_lifecycle`: a record that is rejected is then synthesised from what it said.

    Examples
    --------
    >>> import polars as pl
    >>> payload = '{"session":{"state":"terminated","reason":"migrated_from_archive"}}'
    >>> records = pl.DataFrame({"status": ["working"], "lifecycle": [payload]})
    >>> refresh_status(records)["status"].item()
    'terminated'
    """
    filled = with_defaults(records, {"status": pl.String(), "lifecycle": pl.String()})
    read = read_payloads(filled["lifecycle"], version="head", is_tolerant=True)
    axes = {name.removeprefix("payload_"): name for name in read.columns}
    words = filled.select("status").hstack(read.select(**axes))
    refreshed = words.select(pl.coalesce(legacy_status_rule(library=pl), "status"))
    return filled.with_columns(refreshed.to_series().alias("status"))


def _choose_payload(frame: pl.DataFrame, version: Version) -> pl.DataFrame:
    names = ("lifecycle", "stateVersion", "statePayload")
    frame = with_defaults(frame, dict.fromkeys(names, pl.String()))
    has_first = is_filled(pl.col("lifecycle")) & pl.lit(version != "trinity")
    has_second = (pl.col("stateVersion") == "2").fill_null(False) & is_filled(
        pl.col("statePayload")
    )
    key = pl.when(has_first).then(pl.lit("lifecycle")).when(has_second).then(pl.lit("statePayload"))
    payload = pl.when(has_first).then("lifecycle").when(has_second).then("statePayload")
    return frame.with_columns(_key=key, _payload=payload)


def _merged(dates: DateReader) -> Mapping[str, pl.Expr]:
    """Each field: the payload's where it is there and good, else the made-up one."""
    merged = {}
    for name, dtype in LIFECYCLE_COLUMNS.items():
        value = pl.col(PAYLOAD_COLUMNS[name])
        if name in _MOMENTS:
            value = moment(dates(value))
        has_value = pl.col(f"has_{name}")
        if name == "last_transition_at":
            has_value = has_value & value.is_not_null()
        merged[name] = pl.when(has_value).then(value).otherwise(pl.col(name)).cast(dtype)
    return merged
