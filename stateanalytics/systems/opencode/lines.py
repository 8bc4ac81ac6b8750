r"""Lines of a log, a stream or a capture: bytes in, one text a record out.

A line that is not UTF-8 or no JSON is counted and left out; the rest is read. Of a last
line without its line break it is said, as a writer may be in the middle of it. Streams
put ``data: `` before each record and empty lines between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

CHUNK_BYTES = 32 * 2**20
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def read_lines(path: Path) -> Iterator[pl.DataFrame]:
    """The records of a file, some megabytes at a time.

    Parameters
    ----------
    path : pathlib.Path
        A file of lines.

    Yields
    ------
    polars.DataFrame
        ``line_no`` (from 1), ``text`` (null: the line is not UTF-8), and ``is_finished``:
        does a line break end it.
    """
    n_before = 0
    for octets, is_finished in _chunks(path):
        frame = _split(octets).to_frame("text").with_row_index("line_no", n_before + 1)
        frame = frame.with_columns(
            is_finished=(pl.int_range(pl.len()) < pl.len() - 1) | is_finished
        )
        n_before += frame.height
        text = pl.col("text")
        yield (
            frame.with_columns(text.str.strip_chars())
            .filter((text != "").fill_null(value=True))
            .filter(~text.str.contains(r"^(?:event|id|retry):|^:").fill_null(value=False))
            .with_columns(text.str.strip_prefix("data:").str.strip_chars_start())
        )


def _split(octets: bytes) -> pl.Series:
    """The lines of a text; null where one is not UTF-8."""
    lines = octets.split(b"\n")
    try:
        return pl.Series(lines, dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series([_decoded(line) for line in lines], dtype=pl.String)


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _chunks(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Lines, some megabytes at a time, and whether the last of them has its line break.

    Text in UTF-16 is taken whole and converted.
    """
    with path.open("rb") as file:
        begin = file.read(4)
        file.seek(0)
        encoding = next((name for bom, name in _BOMS if begin.startswith(bom)), None)
        if encoding is not None:
            converted = file.read().decode(encoding, "replace").encode()
            yield converted, converted.endswith(b"\n")
            return
        rest = b""
        while chunk := file.read(CHUNK_BYTES):
            whole, newline, rest_of_chunk = chunk.rpartition(b"\n")
            if newline:
                yield rest + whole, True
                rest = rest_of_chunk
            else:
                rest += chunk
        if rest:
            yield rest, False
