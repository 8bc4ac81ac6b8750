"""A session's lifecycle of three axes: as its record holds it, or made up from older keys."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import with_defaults
from stateanalytics.systems.agent_orchestrator.lifecycle_payload import (
    PAYLOAD_COLUMNS,
    USUAL_HANDLE,
    read_payloads,
)
from stateanalytics.systems.agent_orchestrator.records import pull_request_number
from stateanalytics.systems.agent_orchestrator.statuses import legacy_status_rule
from stateanalytics.systems.agent_orchestrator.stored_values import (
    NotJsonError,
    is_filled,
    read_json,
    stored_moment,
    trim,
    write_json,
)
from stateanalytics.systems.agent_orchestrator.words import LEGACY_STATUSES

MOMENT = pl.Datetime("us", "UTC")

RECORD_KEYS = (
    "sessionId",
    "status",
    "lifecycle",
    "stateVersion",
    "statePayload",
    "pr",
    "createdAt",
    "runtimeHandle",
    "tmuxName",
    "role",
)
"""The keys of a flat session record that decide its lifecycle, named as they are stored."""

LIFECYCLE_COLUMNS: dict[str, pl.DataType] = {
    name: MOMENT if name.endswith("_at") else pl.String() for name in PAYLOAD_COLUMNS
} | {"pr_number": pl.Int64()}
"""The columns of a lifecycle: three axes, flat."""

# Legacy status -> session state, session reason, is started, is completed, is terminated.
_FROM_STATUS = {
    "spawning": ("not_started", "spawn_requested", False, False, False),
    "idle": ("idle", "awaiting_external_review", True, False, False),
    "needs_input": ("needs_input", "awaiting_user_input", True, False, False),
    "stuck": ("stuck", "probe_failure", True, False, False),
    "merged": ("idle", "merged_waiting_decision", True, False, False),
    "done": ("done", "research_complete", True, True, False),
    "errored": ("terminated", "error_in_process", True, False, False),
    "killed": ("terminated", "manually_killed", True, False, True),
    "terminated": ("terminated", "manually_killed", True, False, True),
    "cleanup": ("terminated", "manually_killed", True, False, True),
}
_AT_WORK = ("working", "task_in_progress", True, False, False)
_SYNTHESIS = pl.DataFrame(
    [(status, *_FROM_STATUS.get(status, _AT_WORK)) for status in LEGACY_STATUSES],
    schema=["_status", "session_state", "session_reason", "_started", "_completed", "_terminated"],
    orient="row",
)
_EMPTY_HANDLES = ("null", "0", "false", '""')


def synthesize_lifecycle(records: pl.DataFrame, *, now: datetime) -> pl.DataFrame:
    """Add the three axes that Agent Orchestrator makes up for a record without them.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records: one text column a stored key (`RECORD_KEYS`). An absent column
        counts as an absent key.
    now : datetime
        The clock, in UTC: it stands for a creation time that cannot be read.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 17)
        With `LIFECYCLE_COLUMNS`. Moments are ``Datetime("us", "UTC")``;
        ``runtime_handle`` is JSON text.

    Notes
    -----
    Agent Orchestrator's ``synthesizeCanonicalLifecycle``. It forgets review and CI states
    (``ci_failed`` becomes working on a task), and all its times are the creation time:
    none of them is an observation.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> import polars as pl
    >>> records = pl.DataFrame({"status": ["errored"], "createdAt": ["2026-04-01"]})
    >>> synthesize_lifecycle(records, now=datetime(2026, 5, 1, tzinfo=UTC)).select(
    ...     "session_state", "session_reason", "runtime_state"
    ... ).row(0)
    ('terminated', 'error_in_process', 'unknown')
    """
    filled = with_defaults(records, dict.fromkeys(RECORD_KEYS, pl.String()))
    return (
        filled.with_columns(
            _status=_normal_status(pl.col("status")),
            _at=pl.coalesce(stored_moment("createdAt"), pl.lit(now).cast(MOMENT)),
            runtime_handle=_handle("runtimeHandle"),
        )
        .join(_SYNTHESIS, on="_status", how="left", maintain_order="left")
        .with_columns(**_session_axis())
        .with_columns(**_pull_request_axis())
        .with_columns(**_runtime_axis())
        .select(*records.columns, *(pl.col(name) for name in LIFECYCLE_COLUMNS))
    )


def _normal_status(status: pl.Expr) -> pl.Expr:
    """A word of today's vocabulary; anything unknown counts as spawning."""
    known = pl.when(status.is_in(LEGACY_STATUSES)).then(status).otherwise(pl.lit("spawning"))
    return pl.when(status == "starting").then(pl.lit("working")).otherwise(known)


def _handle(key: str) -> pl.Expr:
    """A stored handle, if it is JSON, as `JSON.stringify` writes it; each odd one is read once."""
    return pl.col(key).map_batches(_handle_texts, return_dtype=pl.String)


def _handle_texts(texts: pl.Series) -> pl.Series:
    is_odd = ~texts.str.contains(USUAL_HANDLE)
    read = {text: _handle_text(text) for text in texts.filter(is_odd).unique()}
    return texts.replace_strict(
        list(read), list(read.values()), default=texts, return_dtype=pl.String
    )


def _handle_text(text: str) -> str | None:
    try:
        value = read_json(text)
    except NotJsonError:
        return None
    return None if value is None else write_json(value)


def _session_axis() -> dict[str, pl.Expr]:
    role, session_id = pl.col("role"), pl.col("sessionId")
    is_orchestrator = (role == "orchestrator").fill_null(False) | session_id.str.ends_with(
        "-orchestrator"
    ).fill_null(False)
    by_role = pl.when(is_orchestrator).then(pl.lit("orchestrator")).otherwise(pl.lit("worker"))
    return {
        "kind": by_role,
        "started_at": pl.when("_started").then("_at"),
        "completed_at": pl.when("_completed").then("_at"),
        "terminated_at": pl.when("_terminated").then("_at"),
        "last_transition_at": pl.col("_at"),
    }


def _pull_request_axis() -> dict[str, pl.Expr]:
    has_url = is_filled(pl.col("pr"))
    is_merged = pl.col("_status") == "merged"
    return {
        "pr_state": pl.when(is_merged)
        .then(pl.lit("merged"))
        .otherwise(pl.when(has_url).then(pl.lit("open")).otherwise(pl.lit("none"))),
        "pr_reason": pl.when(is_merged)
        .then(pl.lit("merged"))
        .otherwise(pl.when(has_url).then(pl.lit("in_progress")).otherwise(pl.lit("not_created"))),
        "pr_number": pl.when(has_url).then(pull_request_number(pl.col("pr"))),
        "pr_url": pl.when(has_url).then("pr"),
        "pr_observed_at": pl.when(has_url).then("_at"),
    }


def _runtime_axis() -> dict[str, pl.Expr]:
    tmux_name = trim(pl.col("tmuxName"))
    has_name = is_filled(tmux_name)
    handle = pl.col("runtime_handle")
    has_handle = handle.is_not_null() & ~handle.is_in(_EMPTY_HANDLES)
    return {
        "runtime_state": pl.lit("unknown"),
        "runtime_reason": pl.lit("spawn_incomplete"),
        "runtime_observed_at": pl.when(has_handle | has_name).then("_at"),
        "tmux_name": pl.when(has_name).then(tmux_name),
    }


_MOMENTS = tuple(name for name in LIFECYCLE_COLUMNS if name.endswith("_at"))


def parse_lifecycle(
    records: pl.DataFrame,
    *,
    now: datetime,
    read: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Add the three axes of every session record, and how they came about.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records as `synthesize_lifecycle` takes them. The payload is in
        ``lifecycle`` (JSON text), or in ``statePayload`` where ``stateVersion`` is "2".
    now : datetime
        The clock, in UTC: it stands for a creation time that cannot be read.
    read : polars.DataFrame, optional
        What `read_payloads` gave of ``lifecycle``, where it is at hand.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 20)
        With the 17 lifecycle columns and: ``payload_key`` (``lifecycle``,
        ``statePayload`` or null), ``reject_reason`` (text; null where nothing is wrong with
        the payload) and ``is_synthesized`` (no payload was used).

    Notes
    -----
    Agent Orchestrator rejects a payload as a whole: one unknown word loses all three axes.
    Here what is good of it is used: words are kept as they are, also unknown ones, and
    fields of a wrong type count as absent. Each field that is absent is filled from
    `synthesize_lifecycle`. Agent Orchestrator's readers first replace the flat ``status``
    by that of the payload, good or bad: see `refresh_status`.

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
    made_up = synthesize_lifecycle(records, now=now)
    chosen = _choose_payload(made_up)
    if read is None or not chosen["_payload"].equals(chosen["lifecycle"]):
        read = read_payloads(chosen["_payload"])
    merged = chosen.hstack(read).with_columns(**_merged())
    kept = [*records.columns, *LIFECYCLE_COLUMNS]
    return merged.select(
        *kept,
        payload_key=pl.col("_key"),
        reject_reason=pl.col("reject_reason"),
        is_synthesized=~pl.col("is_used"),
    )


def refresh_status(records: pl.DataFrame, read: pl.DataFrame | None = None) -> pl.DataFrame:
    """Replace the flat status by that of the payload, as Agent Orchestrator's readers do.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records with the text columns ``status`` and ``lifecycle``.
    read : polars.DataFrame, optional
        What `read_payloads` gave of ``lifecycle``, where it is at hand.

    Returns
    -------
    polars.DataFrame
        The same rows; ``status`` is the legacy status of the payload in ``lifecycle``,
        valid or not, where there is one.

    Notes
    -----
    Agent Orchestrator's ``readMetadataRaw``. Apply it before `parse_lifecycle`: what a
    damaged payload lacks is then made up from the words that it does hold.

    Examples
    --------
    >>> import polars as pl
    >>> payload = '{"session":{"state":"terminated","reason":"migrated_from_archive"}}'
    >>> records = pl.DataFrame({"status": ["working"], "lifecycle": [payload]})
    >>> refresh_status(records)["status"].item()
    'terminated'
    """
    filled = with_defaults(records, {"status": pl.String(), "lifecycle": pl.String()})
    if read is None:
        read = read_payloads(filled["lifecycle"])
    axes = {name.removeprefix("payload_"): name for name in read.columns}
    words = filled.select("status").hstack(read.select(**axes))
    refreshed = words.select(pl.coalesce(legacy_status_rule(pl), "status"))
    return filled.with_columns(refreshed.to_series().alias("status"))


def _choose_payload(frame: pl.DataFrame) -> pl.DataFrame:
    names = ("lifecycle", "stateVersion", "statePayload")
    frame = with_defaults(frame, dict.fromkeys(names, pl.String()))
    has_first = is_filled(pl.col("lifecycle"))
    has_second = (pl.col("stateVersion") == "2").fill_null(False) & is_filled(
        pl.col("statePayload")
    )
    key = pl.when(has_first).then(pl.lit("lifecycle")).when(has_second).then(pl.lit("statePayload"))
    payload = pl.when(has_first).then("lifecycle").when(has_second).then("statePayload")
    return frame.with_columns(_key=key, _payload=payload)


def _merged() -> Mapping[str, pl.Expr]:
    """Each field: the payload's where it is there and good, else the made-up one."""
    merged = {}
    for name, dtype in LIFECYCLE_COLUMNS.items():
        value = pl.col(PAYLOAD_COLUMNS[name])
        if name in _MOMENTS:
            value = stored_moment(value)
        has_value = pl.col(f"has_{name}")
        if name == "last_transition_at":
            has_value = has_value & value.is_not_null()
        merged[name] = pl.when(has_value).then(value).otherwise(pl.col(name)).cast(dtype)
    return merged
