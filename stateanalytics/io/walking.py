"""Every file below a path, through links as readers go: to see what was written, or is read."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator

DEPTH = 5
"""How deep behind a link files are looked for: no system's records lie deeper, and a link may
lead to the root of a disk."""

Seen = dict[tuple[int, int], float]
"""Directories by device and number, and how deep was looked below each."""


def files_below(
    path: str, seen: Seen | None = None, *, is_strict: bool, depth: float = math.inf
) -> Iterator[tuple[str, os.stat_result]]:
    """Each file at a path or below it, by name, with its status; what is not there has none.

    Parameters
    ----------
    path : str
        A file or a directory.
    seen : dict, optional
        What was looked at before, which is left out and added to.
    is_strict : bool
        Whether what cannot be looked at is an error; else it is passed over.
    depth : float
        How many levels of directories are looked at.

    Raises
    ------
    OSError
        If ``is_strict`` and something cannot be looked at.
    """
    seen = {} if seen is None else seen
    try:
        status = os.stat(path)  # noqa: PTH116 - so many Paths are slow
        own = status.st_dev, status.st_ino
        if not stat.S_ISDIR(status.st_mode):
            yield path, status
            return
        if depth <= seen.get(own, 0):
            return
        seen[own] = depth
        with os.scandir(path) as entries:
            below = sorted((entry.path, entry.is_symlink()) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        if is_strict:
            raise
        return
    for name, is_link in below:
        left = min(depth - 1, DEPTH if is_link else math.inf)
        yield from files_below(name, seen, is_strict=is_strict, depth=left)
