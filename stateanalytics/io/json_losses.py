"""Lines of JSON that are objects, and what to say of all others, and of files that are lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io.budget import OVER_BUDGET, BudgetSpentError, OverBoundError
from stateanalytics.io.files import without_halves
from stateanalytics.io.findings import counted, rows_counted
from stateanalytics.io.json_lines import (
    HALF_SURROGATE,
    TOO_LONG,
    UNFINISHED,
    Chunk,
    Fields,
    Parser,
    numbered,
    records_of,
)

Typed = Callable[[pl.DataFrame, pl.DataFrame, Parser], tuple[pl.DataFrame, ...]]
"""From the fields of records and their texts to rows of a system's frames."""
BAD = pl.Schema({"file": pl.String(), "line_no": pl.Int64(), "code": pl.String()})
"""One line that could not be read."""
_WORDS = {
    "record.not_json": ("warning", "a line that is no JSON object"),
    "record.not_utf8": ("warning", "a line that is not UTF-8"),
    "record.too_long": ("warning", TOO_LONG),
    "line.unfinished": ("info", UNFINISHED),
}


def objects_of(
    records: pl.DataFrame, fields: Fields, parser: Parser
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The lines that are JSON objects, with their fields, and the others.

    Parameters
    ----------
    records : polars.DataFrame
        From `json_lines.records_of`.
    fields : Fields
    parser : Parser

    Returns
    -------
    texts : polars.DataFrame
        ``row`` and ``text``, for further fields.
    objects : polars.DataFrame
        ``row``, ``file``, ``line_no`` and the fields.
    bad : polars.DataFrame
        `BAD`. Half a surrogate pair is read as a question mark.
    """
    texts = numbered(records.filter(pl.col("text").is_not_null()))
    if texts["text"].str.contains(HALF_SURROGATE).any():
        whole = pl.col("text").map_elements(lambda text: without_halves(text)[0], pl.String)
        texts = texts.with_columns(whole)
    read = parser.read(texts, fields)
    place = texts.select("row", "line_no", "is_finished", file="source")
    rows = place.join(read, on="row", how="left", maintain_order="left")
    unfinished = pl.when(~pl.col("is_finished")).then(pl.lit("line.unfinished"))
    not_text = pl.when("is_too_long").then(pl.lit("record.too_long"))
    bad = (
        rows.filter(~pl.col("is_object")).select(
            "file", "line_no", code=unfinished.otherwise(pl.lit("record.not_json"))
        ),
        records.filter(pl.col("text").is_null()).select(
            "line_no", file="source", code=not_text.otherwise(pl.lit("record.not_utf8"))
        ),
    )
    typed = [frame.select(pl.col(name).cast(kind) for name, kind in BAD.items()) for frame in bad]
    return texts, rows.filter("is_object"), pl.concat(typed)


def rows_of(
    piece: Sequence[Chunk], fields: Fields, typed: Typed, parser: Parser
) -> list[pl.DataFrame]:
    """The rows of a system's frames that some lines are read into, and `BAD` of the others."""
    texts, objects, bad = objects_of(records_of(piece), fields, parser)
    return [*typed(objects, texts, parser), bad]


def losses(
    bad: pl.DataFrame, lost: Sequence[tuple[str, OSError]], source: str, system: str
) -> pl.DataFrame:
    """Findings on lines that could not be read, counted by file, and on files that were lost.

    Parameters
    ----------
    bad : polars.DataFrame
        `BAD`.
    lost : sequence of (str, OSError)
        Files that could not be opened, or read to their end; what was read of one stays.
    source, system : str
        As in `schema.FINDINGS`.
    """
    spent = [(file, error) for file, error in lost if isinstance(error, BudgetSpentError)]
    files = [
        counted(source, system, code, "warning", message, table=file, action="the rest was read")
        for file, error in lost
        if not isinstance(error, BudgetSpentError)
        for code, message in [what_of(error)]
    ]
    if spent:
        n_bytes = sum(error.n_bytes for _, error in spent)
        message = f"files of which {n_bytes:,} bytes were not read: {spent[0][1]}"
        action = "raise the budget, or name fewer sources"
        files.append(
            counted(
                source, system, OVER_BUDGET, "warning", message, n_rows=len(spent),
                table=spent[0][0], action=action,
            )
        )  # fmt: skip
    by_file = bad.group_by("code", "file", maintain_order=True).agg(
        n_rows=pl.len().cast(pl.Int64), line_no=pl.col("line_no").min()
    )
    severities, words = (
        pl.col("code").replace_strict(
            {code: said[place] for code, said in _WORDS.items()}, return_dtype=pl.String
        )
        for place in (0, 1)
    )
    lines = rows_counted(
        by_file.with_columns(source=pl.lit(source)),
        system,
        pl.col("code"),
        severities,
        words,
        table=pl.col("file"),
        example=pl.format("line {}", "line_no"),
        action="left out",
    )
    return pool([*files, lines], schema.FINDINGS)


def what_of(error: OSError) -> tuple[str, str]:
    """The code of the finding on a file that could not be read, or not to its end, and why."""
    if isinstance(error, FileNotFoundError):
        return "file.vanished", "a file that was gone when it was to be opened"
    if isinstance(error, BudgetSpentError):
        return OVER_BUDGET, f"a file that is not read: {error}"
    if isinstance(error, OverBoundError):
        return "file.over_bound", f"a file that is larger than its bound: {error}"
    return "file.unreadable", f"a file that cannot be read ({error.strerror or error})"


def refuse(lost: pl.DataFrame, source: str, on_error: str) -> None:
    """End the load over the first loss, where the caller asked for it.

    Raises
    ------
    DamagedStoreError
        If something is lost, and ``on_error`` is ``raise``.
    """
    damage = lost.filter(pl.col("severity") != "info")
    if on_error != "raise" or damage.is_empty():
        return
    first = damage.row(0, named=True)
    raise DamagedStoreError(
        f"{source!r} was to be read whole, but it holds {first['message']} "
        f"({first['n_rows']} times, first: {first['example'] or first['table']}).",
        'read the rest with on_error="skip"',
    )
