"""The fields of a lifecycle payload, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from stateanalytics.systems.agent_orchestrator.stored_values import (
    NotJsonError,
    is_integer,
    read_json,
    write_json,
)
from stateanalytics.systems.agent_orchestrator.words import PAYLOAD_WORDS

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
