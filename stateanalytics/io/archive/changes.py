"""Whether the files of a source are as they were, without opening any."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path

# A write within the same tick of a file system's clock leaves the time as it was.
_TICK_NS = 2_000_000_000


def digest_of_files(paths: Iterable[str | Path], now: datetime, *words: object) -> str:
    """A digest of names, sizes and times of files; empty where it would prove nothing.

    Parameters
    ----------
    paths : iterable of str or pathlib.Path
        Files, and directories with all that is in them; what is not there counts as such.
    now : datetime
        The clock before anything was read: a file that was written after it, or just before,
        so that the next write may have the same time, proves nothing.
    *words : object
        What else must be the same.
    """
    total = sha256(repr(words).encode())
    newest = 0
    seen: set[tuple[int, int]] = set()
    try:
        for path in sorted({str(path) for path in paths}):
            for file, status in _files(path, seen):
                newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                facts = (
                    file,
                    status.st_ino,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                )
                total.update(repr(facts).encode())
    except OSError:
        return ""
    return total.hexdigest() if newest < now.timestamp() * 1e9 - _TICK_NS else ""


def _files(path: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, os.stat_result]]:
    """What is at a path, through links as readers go; a directory ``seen`` before is left out."""
    try:
        status = os.stat(path)  # noqa: PTH116 - so many Paths are slow
    except (FileNotFoundError, NotADirectoryError):
        return
    if not stat.S_ISDIR(status.st_mode):
        yield path, status
    elif (own := (status.st_dev, status.st_ino)) not in seen:
        seen.add(own)
        with os.scandir(path) as entries:
            names = sorted(entry.path for entry in entries)
        for name in names:
            yield from _files(name, seen)
