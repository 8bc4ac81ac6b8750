"""Findings of lionagi's readers; their words are ``data/findings.csv``, by code."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import FINDINGS
from stateanalytics.io import findings
from stateanalytics.systems.lionagi.raw import SYSTEM

_WORDS = {
    row.pop("code"): {column: text for column, text in row.items() if text}
    for row in table_rows(__package__, "findings.csv")
}


def per_entity(rows: pl.DataFrame, source: str, code: str, **words: Any) -> pl.DataFrame:
    """One finding an entity; ``{column}`` in a message or an example is that of its row.

    Parameters
    ----------
    rows : polars.DataFrame
        ``entity_type``, ``entity_id``, and the columns that the words name.
    source, code : str
        The input, and a row of the table.
    **words
        In place of the table's, as of `io.findings.per_entity`.
    """
    if rows.is_empty():
        return FINDINGS.empty()
    known = {**_WORDS[code], **words}
    filled = {part: _filled(text) for part, text in known.items()}
    return findings.per_entity(rows, source, SYSTEM, code, **filled)


def counted(source: str, code: str, n_rows: int, example: Any = None, **words: Any) -> pl.DataFrame:
    """One finding about several rows; none where there are none."""
    known = {**_WORDS[code], **words}
    return findings.counted(source, SYSTEM, code, n_rows=n_rows, **{**known, "example": example})


def least(rows: pl.DataFrame, column: str) -> Any:
    """The least value, so that the same rows give the same example in any order."""
    return None if rows.is_empty() else rows[column].min()


def _filled(words: Any) -> Any:
    if not isinstance(words, str) or not (columns := re.findall(r"\{(\w+)\}", words)):
        return words
    return pl.format(re.sub(r"\{\w+\}", "{}", words), *columns)
