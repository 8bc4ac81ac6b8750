"""Lifecycle payloads exactly as Agent Orchestrator writes them, read in one vectorised step."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

_TEXT = r'"[^"\\\x00-\x1f]*"'
_WORD = r'"([a-z_]+)"'
_NUMBER = r"(?:0|-?[1-9][0-9]{0,14})"
_VALUE = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_DATA = rf"\{{(?:{_TEXT}:{_VALUE}(?:,{_TEXT}:{_VALUE})*)?\}}"
_PATTERNS = {
    "word": _WORD,
    "text": f"({_TEXT})",
    "text or null": f"(null|{_TEXT})",
    "integer": f"(null|{_NUMBER})",
    "handle": rf'(null|\{{"id":{_TEXT},"runtimeName":{_TEXT},"data":{_DATA}\}})',
}
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
        With one group a field.

    Examples
    --------
    >>> canonical_pattern((("session", "state", "session_state", "word"),))
    '^\\{"version":2,"session":\\{"state":"([a-z_]+)"\\}\\}$'
    """
    axes: dict[str, list[str]] = {}
    for axis, key, _, check in fields:
        axes.setdefault(axis, []).append(f'"{key}":{_PATTERNS[check]}')
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
    groups = payloads.str.extract_groups(canonical_pattern(fields)).struct.rename_fields(names)
    read = groups.struct.unnest()
    words = [column for _, _, column, check in fields if check == "word"]
    is_canonical = pl.all_horizontal(
        pl.col(names[0]).is_not_null(),
        *(pl.col(f"payload_{name}").is_in(sorted(known[name])) for name in words),
    ).fill_null(value=False)
    values = {
        f"payload_{column}": _value(pl.col(f"payload_{column}"), check)
        for _, _, column, check in fields
    }
    judged = read.select(is_canonical=is_canonical, **values)
    return judged.with_columns(pl.when("is_canonical").then(pl.col(names)).name.keep())


def _value(group: pl.Expr, check: str) -> pl.Expr:
    """The value of a group: null for the word null, texts without their quotes."""
    there = pl.when(group != "null").then(group)
    if check == "integer":
        return there.cast(pl.Int64)
    if check in {"text", "text or null"}:
        return there.str.strip_prefix('"').str.strip_suffix('"')
    return there
