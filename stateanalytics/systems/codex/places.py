"""Where Codex keeps its rollouts, and how they are told from other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from stateanalytics.io.files import open_regular

SESSIONS, ARCHIVED = "sessions", "archived_sessions"
INDEX, HISTORY = "session_index.jsonl", "history.jsonl"
_PLAIN, _PACKED = ".jsonl", ".jsonl.zst"
_NAMED = re.compile(r"rollout-.+\.jsonl(?:\.zst)?")
_GENERATION = re.compile(r"state_\d{1,9}\.sqlite")
_HEAD_BYTES, _MOST_LOOKED_AT = 2**16, 200
_PACKED_HEAD = b"\x28\xb5\x2f\xfd"
_OWN = re.compile(rb'"type"\s*:\s*"(?:session_meta|turn_context|event_msg|response_item)"')
# Before there were envelopes, a rollout began with its instructions.
_LEGACY = re.compile(rb'^\s*\{(?=[^\n]*"instructions")(?=[^\n]*"timestamp")')


def find(path: Path) -> list[Path]:
    """The path itself, if it is a root, a folder of rollouts or one rollout.

    Parameters
    ----------
    path : pathlib.Path
        Looked at for names and beginnings of files only.

    Returns
    -------
    list of pathlib.Path
        One input at most: what forks inherit is counted once over all rollouts of a root.
    """
    try:
        if path.is_file():
            return [path] if is_rollout(path) else []
        looked_at = zip(range(_MOST_LOOKED_AT), _rollouts(path), strict=False)
        return [path] if any(is_rollout(file) for _, file in looked_at) else []
    except OSError:
        return []


def is_rollout(path: Path) -> bool:
    """Does a file begin with records of a rollout."""
    if not path.name.endswith((_PLAIN, _PACKED)):
        return False
    try:
        with open_regular(path) as file:
            begin = file.read(_HEAD_BYTES)
    except OSError:  # one file that may not be read hides no other
        return False
    if path.name.endswith(_PACKED):
        return begin.startswith(_PACKED_HEAD) and bool(_NAMED.fullmatch(path.name))
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        begin = begin.decode("utf-16", "replace").encode()
    is_legacy = bool(_NAMED.fullmatch(path.name)) and bool(_LEGACY.search(begin))
    return bool(_OWN.search(begin)) or is_legacy


def evidence(path: Path) -> bool:
    """A rollout; databases are made from rollouts, and prove nothing without them."""
    return is_rollout(path)


def _rollouts(path: Path) -> Iterator[Path]:
    """Files that are named like rollouts; of a root only those in its two folders."""
    folders = [path / name for name in (SESSIONS, ARCHIVED)]
    roots = [folder for folder in folders if folder.is_dir() and not folder.is_symlink()]
    for root in roots or [path]:
        for folder, inner, names in os.walk(root):
            inner.sort()
            for name in sorted(names):
                if _NAMED.fullmatch(name):
                    yield Path(folder) / name


def rollouts_of(path: Path) -> list[Path]:
    """Every rollout of an input, in the order of their paths; links are not followed.

    Notes
    -----
    Of a plain file and its packed twin the plain one counts: what is appended goes there.
    """
    if path.is_file():
        return [path]
    found = sorted(_rollouts(path))
    plain = {file for file in found if file.suffix == _PLAIN}
    return [file for file in found if file in plain or file.with_suffix("") not in plain]


def named_in(path: Path) -> list[Path]:
    """The index with the names of threads, where there is one."""
    index = path / INDEX
    return [index] if path.is_dir() and index.is_file() else []


def index_of(path: Path) -> Path | None:
    """The database of threads, the newest generation that there is."""
    found = [file for file in path.glob("state_*.sqlite") if _GENERATION.fullmatch(file.name)]
    return max(found, key=lambda file: int(file.stem[len("state_") :]), default=None)


def opens(path: Path) -> list[str | Path]:
    """All that is opened of an input."""
    history, index = path / HISTORY, index_of(path)
    stores = [] if index is None else [index, *(Path(f"{index}{end}") for end in ("-wal", "-shm"))]
    beside = [file for file in (history, *stores) if file.is_file()]
    return [*rollouts_of(path), *named_in(path), *beside]
