"""Small HTML tables of explorers; text of a store stands in them as text."""

from __future__ import annotations

import html
from collections.abc import Sequence

import polars as pl

from stateanalytics.core.text import visible


def table(caption: str, frame: pl.DataFrame, columns: Sequence[str]) -> str:
    """A frame as a small HTML table."""
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    lines = "".join(
        "<tr>" + "".join(f"<td>{safe(value)}</td>" for value in row) + "</tr>"
        for row in frame.select(columns).iter_rows()
    )
    return (
        f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{lines}</tbody></table>"
    )


def safe(value: object) -> str:
    """Text of a store, as text."""
    return html.escape(visible("" if value is None else str(value)))
