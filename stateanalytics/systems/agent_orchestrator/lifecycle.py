"""A session's lifecycle of three axes: as its record holds it, or made up from older keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import (
    NotJsonError,
    is_filled,
    is_integer,
    read_json,
    stored_moment,
    trim,
    with_defaults,
    write_json,
)
from stateanalytics.systems.agent_orchestrator.records import pull_request_number
from stateanalytics.systems.agent_orchestrator.statuses import (
    LEGACY_STATUSES,
    PAYLOAD_WORDS,
    legacy_status_rule,
)

_TEXT = r'"[^"\\\x00-\x1f]*"'
_WORD = r'"([a-z_]+)"'
_NUMBER = r"(?:0|-?[1-9][0-9]{0,14})"
_VALUE = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_DATA = rf"\{{(?:{_TEXT}:{_VALUE}(?:,{_TEXT}:{_VALUE})*)?\}}"
_HANDLE = rf'\{{"id":{_TEXT},"runtimeName":{_TEXT},"data":{_DATA}\}}'
USUAL_HANDLE = f"^{_HANDLE}$"
"""A handle as `JSON.stringify` writes it; another one may be written so, too."""

_PATTERNS = {
    "word": _WORD,
    "text": f"({_TEXT})",
    "text or null": f"(null|{_TEXT})",
    "integer": f"(null|{_NUMBER})",
    "handle": f"(null|{_HANDLE})",
}
_MOST_GROUPS = 16
"""Of so many the engine finds all in one pass; with one more it takes twice as long."""
Field = tuple[str, str, str, str]
"""Axis and key of the payload, column, and how the value is checked."""


def canonical_pattern(fields: tuple[Field, ...]) -> str:
    r"""The regular expression of a payload with every field, in order, and nothing else.

    Parameters
    ----------
    fields : tuple of Field
        In the order in which they are written.

    Returns
    -------
    str
        With one group a field, up to `_MOST_GROUPS`.

    Examples
    --------
    >>> canonical_pattern((("session", "state", "session_state", "word"),))
    '^\\{"version":2,"session":\\{"state":"([a-z_]+)"\\}\\}$'
    """
    axes: dict[str, list[str]] = {}
    for place, (axis, key, _, check) in enumerate(fields):
        value = _PATTERNS[check]
        ungrouped = value.replace("(", "(?:", 1)
        axes.setdefault(axis, []).append(f'"{key}":{value if place < _MOST_GROUPS else ungrouped}')
    parts = [rf'"{axis}":\{{{",".join(keys)}\}}' for axis, keys in axes.items()]
    return rf'^\{{"version":2,{",".join(parts)}\}}$'


def read_canonical(
    payloads: pl.Series, fields: tuple[Field, ...], known: Mapping[str, frozenset[str]]
) -> pl.DataFrame:
    """The fields of the payloads that are written as usual and hold known words only.

    Parameters
    ----------
    payloads : polars.Series of String, length n
        JSON texts.
    fields : tuple of Field
        The fields of a payload.
    known : mapping of str to frozenset of str
        Column to the words that it may hold.

    Returns
    -------
    polars.DataFrame, shape (n, len(fields) + 1)
        ``is_canonical`` (Boolean; the other columns are null where it is not true) and
        ``payload_<column>`` for every field.

    Notes
    -----
    A shortcut, and no other reading: a test holds that both readings agree. What has an
    escape, a space, another order, a nested handle or an unknown word is not canonical.

    Examples
    --------
    >>> import polars as pl
    >>> fields = (("pr", "number", "pr_number", "integer"),)
    >>> payloads = pl.Series(['{"version":2,"pr":{"number":42}}', '{"version": 2}'])
    >>> read_canonical(payloads, fields, {}).rows()
    [(True, 42), (False, None)]
    """
    names = [f"payload_{column}" for _, _, column, _ in fields]
    patterns = [canonical_pattern(fields)]
    if last := [f'"{key}":{_PATTERNS[check]}' for _, key, _, check in fields[_MOST_GROUPS:]]:
        # Only the end of a canonical payload looks like its last fields: no text has a quote.
        patterns.append(rf"{','.join(last)}\}}\}}$")
    groups = [
        group for each in patterns for group in payloads.str.extract_groups(each).struct.unnest()
    ]
    read = pl.DataFrame(group.alias(name) for group, name in zip(groups, names, strict=True))
    words = [column for _, _, column, check in fields if check == "word"]
    is_canonical = pl.all_horizontal(
        pl.col(names[0]).is_not_null(),
        *(pl.col(f"payload_{name}").is_in(sorted(known[name])) for name in words),
    ).fill_null(value=False)
    values = {
        f"payload_{column}": _group_value(pl.col(f"payload_{column}"), check)
        for _, _, column, check in fields
    }
    judged = read.select(is_canonical=is_canonical, **values)
    return judged.with_columns(pl.when("is_canonical").then(pl.col(names)).name.keep())


def _group_value(group: pl.Expr, check: str) -> pl.Expr:
    """The value of a group: null for the word null, texts without their quotes."""
    there = pl.when(group != "null").then(group)
    if check == "integer":
        return there.cast(pl.Int64)
    if check in {"text", "text or null"}:
        return there.str.strip_prefix('"').str.strip_suffix('"')
    return there


_FIELDS: tuple[Field, ...] = (
    ("session", "kind", "kind", "word"),
    ("session", "state", "session_state", "word"),
    ("session", "reason", "session_reason", "word"),
    ("session", "startedAt", "started_at", "text or null"),
    ("session", "completedAt", "completed_at", "text or null"),
    ("session", "terminatedAt", "terminated_at", "text or null"),
    ("session", "lastTransitionAt", "last_transition_at", "text"),
    ("pr", "state", "pr_state", "word"),
    ("pr", "reason", "pr_reason", "word"),
    ("pr", "number", "pr_number", "integer"),
    ("pr", "url", "pr_url", "text or null"),
    ("pr", "lastObservedAt", "pr_observed_at", "text or null"),
    ("runtime", "state", "runtime_state", "word"),
    ("runtime", "reason", "runtime_reason", "word"),
    ("runtime", "lastObservedAt", "runtime_observed_at", "text or null"),
    ("runtime", "handle", "runtime_handle", "handle"),
    ("runtime", "tmuxName", "tmux_name", "text or null"),
)
PAYLOAD_COLUMNS = {column: f"payload_{column}" for _, _, column, _ in _FIELDS}
"""Lifecycle column to the column that `read_payloads` puts its value in."""

PAYLOAD_TIMES = tuple(f"{axis}.{key}" for axis, key, _, _ in _FIELDS if key.endswith("At"))
"""Where a payload holds times."""

_AXES = ("session", "pr", "runtime")
_TEXTS = {name: pl.String() for name in PAYLOAD_COLUMNS.values()}
_SCHEMA = pl.Schema(
    {"payload": pl.String(), "reject_reason": pl.String(), "is_used": pl.Boolean()}
    | {f"has_{name}": pl.Boolean() for name in PAYLOAD_COLUMNS}
    | {**_TEXTS, "payload_pr_number": pl.Int64()}
)
_VERSION = 2
_INT64 = 2**63


def read_payloads(payloads: pl.Series) -> pl.DataFrame:
    """The fields of every payload, each one there or not.

    Parameters
    ----------
    payloads : polars.Series of String, length n
        JSON texts; null where a record has none.

    Returns
    -------
    polars.DataFrame, shape (n, 36)
        ``reject_reason`` (text; null where nothing is wrong), ``is_used`` (Boolean), and for
        every lifecycle column ``has_<column>`` (Boolean: is the key there, and to be
        used) and ``payload_<column>`` (its value; moments as they were written).

    Notes
    -----
    Payloads that are written as usual are read by `read_canonical`. JSON whose types matter
    cannot be read by an expression, so each distinct text of the others is read once. What
    is good of a damaged payload is kept, unknown words too.

    Examples
    --------
    >>> import polars as pl
    >>> payloads = pl.Series(['{"version":2,"pr":{"state":"lost"}}'])
    >>> read_payloads(payloads)["reject_reason"].item()
    "pr.state has the unknown word 'lost'"
    """
    known = {name: frozenset(words) for name, words in PAYLOAD_WORDS.items()}
    texts = payloads.cast(pl.String).rename("payload")
    usual = read_canonical(texts, _FIELDS, known)
    odd = texts.filter(~usual["is_canonical"]).drop_nulls().unique()
    rows = [(text, *_read_payload(text, known)) for text in odd]
    read = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    joined = texts.to_frame().join(read, on="payload", how="left", maintain_order="left")
    both = joined.hstack(usual.rename(lambda name: f"usual_{name}"))
    is_usual = pl.col("usual_is_canonical")
    return both.select(
        "reject_reason",
        pl.col("is_used", "^has_.*$").fill_null(value=False) | is_usual,
        *(
            pl.when(is_usual).then(f"usual_{name}").otherwise(name).alias(name)
            for name in PAYLOAD_COLUMNS.values()
        ),
    )


def _read_payload(text: str, known: Mapping[str, frozenset[str]]) -> tuple[object, ...]:
    axes, problems = _axes(text)
    fields = dict(_read_fields(axes, known, problems))
    return (
        problems[0] if problems else None,
        axes is not None,
        *(name in fields for name in PAYLOAD_COLUMNS),
        *(fields.get(name) for name in PAYLOAD_COLUMNS),
    )


def _axes(text: str) -> tuple[dict[str, dict[str, Any]] | None, list[str]]:
    """The axes of a payload that are objects, and what is wrong with it as a whole."""
    try:
        payload = read_json(text)
    except NotJsonError:
        return None, ["it is no JSON"]
    if not isinstance(payload, dict):
        return None, ["it is no object"]
    problems = []
    stored = payload.get("version")
    if isinstance(stored, bool) or stored != _VERSION:
        problems.append(f"version is {write_json(stored)[:40]}, not 2")
    for name in _AXES:
        if name in payload and not isinstance(payload[name], dict):
            problems.append(f"{name} is no object")
    return {name: payload[name] for name in _AXES if isinstance(payload.get(name), dict)}, problems


def _read_fields(
    axes: Mapping[str, dict[str, Any]] | None,
    known: Mapping[str, frozenset[str]],
    problems: list[str],
) -> Iterator[tuple[str, object]]:
    """Each field that is there with a usable value; what is wrong goes to ``problems``."""
    for axis, key, column, check in _FIELDS:
        values = (axes or {}).get(axis, {})
        if key not in values:
            continue
        value = values[key]
        problem = _problem(value, check, known.get(column, frozenset()))
        if problem:
            problems.append(f"{axis}.{key} {problem}")
        if not problem or (check == "word" and isinstance(value, str)):
            yield column, _value(value, check)


def _problem(value: object, check: str, words: frozenset[str]) -> str:
    """What is wrong with a value, in words; empty where it is good."""
    if check == "word" and isinstance(value, str):
        return "" if value in words else f"has the unknown word {value[:40]!r}"
    is_good, wanted = _CHECKS[check]
    return "" if is_good(value) else f"is {write_json(value)[:40]}, not {wanted}"


def _is_text_or_null(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_integer_or_null(value: object) -> bool:
    return value is None or is_integer(value)


def _is_handle_or_null(value: object) -> bool:
    return value is None or (
        isinstance(value, dict)
        and all(isinstance(value.get(key), str) for key in ("id", "runtimeName"))
    )


_CHECKS: dict[str, tuple[Callable[[object], bool], str]] = {
    "word": (lambda value: isinstance(value, str), "a word"),
    "text": (lambda value: isinstance(value, str), "a text"),
    "text or null": (_is_text_or_null, "a text"),
    "integer": (_is_integer_or_null, "a whole number"),
    "handle": (_is_handle_or_null, "an object with a text id and runtimeName"),
}


def _value(value: Any, check: str) -> object:
    if value is None:
        return None
    if check == "integer":
        number = int(value)
        return number if -_INT64 <= number < _INT64 else None
    if check == "handle":
        data = value.get("data")
        kept = {"id": value["id"], "runtimeName": value["runtimeName"]}
        return write_json(kept | {"data": data if isinstance(data, dict) else {}})
    return value


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
