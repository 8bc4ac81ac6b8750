"""The one way a file of text is opened: regular files only, and never more than a bound.

A pipe would block for ever, a device may never end, and what `stat` says is old by the
time a file is read: what was opened is looked at again, and reading stops at the bound
whatever size was told.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, BinaryIO

import polars as pl

from stateanalytics.io.budget import over_growth, spending

# Windows alone has O_BINARY, without which it would end a file at Ctrl-Z.
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)
_PIECE = 1 << 20


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file to read from, through links too.

    Parameters
    ----------
    path : str or pathlib.Path

    Returns
    -------
    file
        Opened without waiting for anybody.

    Raises
    ------
    OSError
        If there is none, it may not be read, or it is a directory, a pipe or a device.
    """
    handle, _ = _opened(path)
    try:
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def beginning_of(path: Path, n_bytes: int = 1 << 16) -> bytes:
    """The first bytes of a file, those of UTF-16 as UTF-8; none where it cannot be opened.

    A file that may not be read so hides no other from whoever looks through a folder.
    """
    try:
        with open_regular(path) as file:
            begin = file.read(n_bytes)
    except OSError:
        return b""
    is_utf16 = begin.startswith((b"\xff\xfe", b"\xfe\xff"))
    return begin.decode("utf-16", "replace").encode() if is_utf16 else begin


def _opened(path: str | Path) -> tuple[int, os.stat_result]:
    """The handle of a regular file, and what it is."""
    _check_regular(os.stat(path))  # noqa: PTH116 - opening a device may do something already
    handle = os.open(path, _FLAGS)
    try:
        status = os.fstat(handle)
        _check_regular(status)
    except BaseException:
        os.close(handle)
        raise
    return handle, status


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def read_octets(path: str | Path, max_bytes: int | None = None) -> tuple[bytes, os.stat_result]:
    """All of a regular file, and what it was when it was opened.

    Parameters
    ----------
    path : str or pathlib.Path
    max_bytes : int, optional
        A larger file is not read; by default one that is larger than the budget's document,
        and never one that grows too much.

    Raises
    ------
    OSError
        As `open_regular`; with ``EFBIG`` if it is larger.

    Examples
    --------
    >>> read_octets("/dev/zero", 10)
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file
    """
    spent = spending()
    spent.draw()
    handle, status = _opened(path)
    # Not as a file of Python's: of a small one that is made for longer than it is read.
    try:
        if max_bytes is None:
            max_bytes = spent.budget.document_bytes
        if max_bytes is not None and status.st_size > max_bytes:
            raise _too_large(status.st_size, max_bytes)
        most = spent.budget.most_bytes(status, max_bytes)
        if status.st_size > most:
            raise over_growth(status, most)
        pieces = [os.read(handle, status.st_size + 1)]
        # Room on disk is not known of what grew meanwhile, or has no size.
        bound = float("inf") if max_bytes is None else max_bytes
        left = bound + 1 - len(pieces[0])
        # A short answer is the whole of a file that did not grow; some tell no size at all.
        if len(pieces[0]) != status.st_size or not pieces[0]:
            while left > 0 and (piece := os.read(handle, int(min(left, _PIECE)))):
                pieces.append(piece)
                left -= len(piece)
    finally:
        os.close(handle)
    if left <= 0:
        raise _too_large(None, bound)
    return b"".join(pieces), status


def _too_large(size: int | None, most: float) -> OSError:
    found = "more" if size is None else f"{size:,} bytes, more"
    return OSError(errno.EFBIG, f"{found} than the {most:,.0f} that are read")


def read_parquet(file: IO[bytes], status: os.stat_result) -> pl.DataFrame:
    """The rows of a Parquet file, of which few bytes may hold billions.

    Raises
    ------
    OverBoundError
        If it has more than a file of its size may have, or the budget of the read is spent.
    """
    spent = spending()
    most = spent.budget.most_rows(status)
    rows = pl.read_parquet(file, n_rows=None if most == float("inf") else int(most) + 1)
    if rows.height > most:
        raise over_growth(status, most, "rows")
    spent.draw(n_rows=rows.height)
    return rows


def decoded_or_none(octets: bytes | None) -> str | None:
    """Text; None where there is none, or it is not UTF-8."""
    try:
        return None if octets is None else octets.decode()
    except UnicodeDecodeError:
        return None
