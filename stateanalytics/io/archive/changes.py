"""Whether the files of a source are as they were, without opening any."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from stateanalytics.io.walking import Seen, files_below

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
    seen: Seen = {}
    try:
        for path in sorted({str(path) for path in paths}):
            for file, status in files_below(path, seen, is_strict=True):
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
