"""A digest of frames: the same rows in the same order give the same digest.

It is taken over the rows that were read, not over the file they came from: the same
rows may lie in a file in many ways, and reading the bytes of a store would drop the
locks of whoever has it open in this process. About .8 s for a million sessions on one
core; columns are digested side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import polars as pl


def fingerprint(frames: Iterable[pl.DataFrame]) -> str:
    """A digest of the names, types, values and order of all rows and columns.

    Parameters
    ----------
    frames : iterable of polars.DataFrame
        Their order counts. How they lie in memory does not, nor does the version of
        polars.

    Returns
    -------
    str
        64 hexadecimal digits (SHA-256).

    Examples
    --------
    >>> rows = pl.DataFrame({"id": ["a", "b"], "n": [1, None]})
    >>> fingerprint([rows]) == fingerprint([pl.concat([rows[:1], rows[1:]], rechunk=False)])
    True
    >>> fingerprint([rows]) == fingerprint([rows.reverse()])
    False
    """
    columns = [column for frame in frames for column in (None, *frame.get_columns())]
    with ThreadPoolExecutor() as threads:
        digests = list(threads.map(_digest, columns))
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _digest(column: pl.Series | None) -> bytes:
    """The digest of one column; of none where a frame begins."""
    if column is None:
        return b"frame"
    total = hashlib.sha256(f"{column.name!r} {type(column.dtype).__name__} {column.len()}".encode())
    if column.dtype in (pl.Enum, pl.Categorical):
        column = column.cast(pl.String)
    total.update(_octets(column.is_null().cast(pl.UInt8)))
    if column.dtype == pl.String:
        total.update(_octets(column.str.len_bytes().fill_null(0)))
        text = column.fill_null("").rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        total.update(text.buffers()[2] or b"")
    elif column.dtype != pl.Null:
        # What memory holds under a null is anybody's guess.
        numbers = column.to_physical()
        kept = numbers.cast(pl.UInt8) if numbers.dtype == pl.Boolean else numbers
        total.update(_octets(kept.fill_null(0)))
    return total.digest()


def _octets(numbers: pl.Series) -> memoryview:
    """The numbers of a column without nulls as they lie in memory, without a copy."""
    array = numbers.rechunk().to_arrow()
    size = array.type.bit_width // 8
    return memoryview(array.buffers()[1])[array.offset * size : (array.offset + len(array)) * size]
