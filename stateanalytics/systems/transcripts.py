"""What readers of transcripts share: folders of JSON lines, one file a thread of work."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted
from stateanalytics.io.opening import read_octets
from stateanalytics.io.parts import Parts
from stateanalytics.systems.history import LOST, Past, with_rows_of

_MOST_BYTES = 64 * 2**20
Odd = Mapping[str, tuple[pl.DataFrame, str]]
"""By code of a finding the rows that it is about, and the column of its example."""


@cache
def table_of(package: str, name: str) -> pl.DataFrame:
    """A table in the folder ``data`` of a package, as text."""
    text = resources.files(package).joinpath("data", name).read_text("utf-8")
    return pl.DataFrame(list(csv.DictReader(text.splitlines())))


def words_of(package: str) -> dict[str, list[str]]:
    """The words of records that some version writes, by what they are of."""
    table = table_of(package, "known_words.csv")
    return {
        of: table.filter(of=of)["word"].to_list() for of in table["of"].unique(maintain_order=True)
    }


def strange(package: str, rows: pl.DataFrame, column: str, of: str) -> pl.DataFrame:
    """The rows with a word that no known version writes, or without one."""
    return rows.filter(~pl.col(column).is_in(words_of(package)[of]).fill_null(value=False))


def below_zero(rows: pl.DataFrame, usage: Iterable[str]) -> pl.DataFrame:
    """The rows that tell of less than nothing used."""
    return rows.filter(pl.any_horizontal(pl.col(name) < 0 for name in usage))


def empty_files(names: Iterable[str], *told: pl.DataFrame) -> pl.DataFrame:
    """The files without a single line, as ``file``; those of ``told`` have some."""
    known = pl.concat([rows.select("file") for rows in told])
    return pl.DataFrame({"file": list(names)}, schema={"file": pl.String}).join(
        known, on="file", how="anti"
    )


def findings_on(
    package: str, source: str, system: str, odd: Odd, sums: Mapping[str, str] = {}
) -> pl.DataFrame:
    """A finding for each code, in the words of ``data/findings.csv`` of a package.

    Parameters
    ----------
    package, source, system : str
    odd : mapping
        By code the rows that it is about, and the column of its example: the least words,
        so that the same rows give the same example in any order.
    sums : mapping of str to str
        Of some codes the column that says how many records each row stands for.
    """
    words = {row["code"]: row for row in table_of(package, "findings.csv").to_dicts()}
    return pool(
        [
            counted(
                source,
                system,
                code,
                words[code]["severity"],
                words[code]["message"],
                n_rows=int(rows[sums[code]].sum()) if code in sums else rows.height,
                example=", ".join(rows[column].drop_nulls().unique().sort().head(5)),
            )
            for code, (rows, column) in odd.items()
        ],
        schema.FINDINGS,
    )


def newer_than(versions: pl.Series, newest: tuple[int, ...]) -> list[str]:
    """Those versions that are newer, by their numbers."""
    told = versions.drop_nulls().unique()
    return [
        version
        for version in told
        if tuple(int(number[:9]) for number in re.findall(r"\d+", version)[:3]) > newest
    ]


def ids_in(path: Path, key: str) -> pl.DataFrame:
    """The ids that a file of prompts has under a key, as ``id``; what was typed is not kept."""
    try:
        octets, _ = read_octets(path, _MOST_BYTES)
    except OSError:
        octets = b""
    found = re.findall(rb'"%s"\s*:\s*"([0-9a-fA-F-]{36})"' % key.encode(), octets)
    ids = sorted({one.decode() for one in found})
    return pl.DataFrame({"id": ids}, schema={"id": pl.String})


def size_of(paths: Iterable[str | Path]) -> int:
    """How large those files are together; what is gone has no size."""
    sizes = []
    for path in paths:
        try:
            sizes.append(os.stat(path).st_size)  # noqa: PTH116 - thousands of Paths are slow
        except OSError:
            continue
    return sum(sizes)


def rewound_lines(
    past: Past, lines: pl.DataFrame, assemble: Callable[[pl.DataFrame], Parts]
) -> Past:
    """An instant, with a system's rows as a copy that was cut off there tells them.

    Parameters
    ----------
    past : Past
        As the shared history tells it.
    lines : polars.DataFrame
        The system's records of now: ``source``, ``file``, ``line_no``, ``at``.
    assemble : callable
        Makes the system's rows from some of them.
    """
    labels = lines["source"].unique().sort()
    if labels.is_empty():
        return past
    # A record without a moment came no later than the next one of its file that has one.
    by = pl.coalesce(
        pl.col("at"), pl.col("at").backward_fill().over("source", "file", order_by="line_no")
    )
    part = assemble(lines.filter((by <= past.at).fill_null(value=True)))
    known = {word: pl.lit(word == "present") for word in LOST}
    lost = part.entities.with_columns(**known).select(LOST)
    return with_rows_of(past, part, labels, lost)
