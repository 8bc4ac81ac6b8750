"""Where Codex keeps its rollouts, and how to tell them from other files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from stateanalytics.io.files import beginning_of, folders_below

HISTORY = "history.jsonl"
_FOLDERS, _NAMES = ("sessions", "archived_sessions"), "session_index.jsonl"
_PLAIN, _PACKED = ".jsonl", ".jsonl.zst"
_ROLLOUT_NAME = re.compile(r"rollout-.+\.jsonl(?:\.zst)?")
_INDEX_NAME = re.compile(r"state_\d{1,9}\.sqlite")
_MOST_FILES = 200
_PACKED_BEGINNING = b"\x28\xb5\x2f\xfd"
_RECORD = re.compile(rb'"type"\s*:\s*"(?:session_meta|turn_context|event_msg|response_item)"')
# Old rollouts have records without an envelope and begin with the instructions.
_LEGACY_RECORD = re.compile(rb'^\s*\{(?=[^\n]*"instructions")(?=[^\n]*"timestamp")')


def find(path: Path) -> list[Path]:
    """The path itself, if it is a root, a folder of rollouts or one rollout.

    Parameters
    ----------
    path : pathlib.Path
        Only the names and the first bytes of files are looked at.

    Returns
    -------
    list of pathlib.Path
        One input at most: what forks inherit is counted once over all rollouts of a root.
    """
    try:
        if path.is_file():
            return [path] if is_rollout(path) else []
        candidates = zip(range(_MOST_FILES), _rollouts(path), strict=False)
        return [path] if any(is_rollout(file) for _, file in candidates) else []
    except OSError:
        return []


def is_rollout(path: Path) -> bool:
    """Whether a file begins with records of a rollout.

    The databases are made from rollouts, so without rollouts they are no evidence.
    """
    if not path.name.endswith((_PLAIN, _PACKED)):
        return False
    begin = beginning_of(path)
    has_name = bool(_ROLLOUT_NAME.fullmatch(path.name))
    if path.name.endswith(_PACKED):
        return has_name and begin.startswith(_PACKED_BEGINNING)
    return bool(_RECORD.search(begin)) or (has_name and bool(_LEGACY_RECORD.search(begin)))


def _rollouts(path: Path) -> Iterator[Path]:
    """Files named like rollouts; in a root, only those in its two folders of rollouts."""
    folders = [path / name for name in _FOLDERS]
    for folder, names in folders_below([*filter(Path.is_dir, folders)] or [path]):
        for name in sorted(names):
            if _ROLLOUT_NAME.fullmatch(name):
                yield Path(folder) / name


def rollouts_of(path: Path) -> list[Path]:
    """Every rollout of an input, in the order of their paths; linked folders count once.

    Notes
    -----
    If a file exists both plain and compressed, the plain one is read: Codex appends to it.
    """
    if path.is_file():
        return [path]
    files = sorted(_rollouts(path))
    plain = {file for file in files if file.suffix == _PLAIN}
    return [file for file in files if file in plain or file.with_suffix("") not in plain]


def named_in(path: Path) -> list[Path]:
    """The file with the names of threads, if there is one."""
    names = path / _NAMES
    return [names] if path.is_dir() and names.is_file() else []


def index_of(path: Path) -> Path | None:
    """The database of threads with the highest version in its name, if there is one."""
    indexes = [file for file in path.glob("state_*.sqlite") if _INDEX_NAME.fullmatch(file.name)]
    return max(indexes, key=lambda file: int(file.stem.removeprefix("state_")), default=None)


def opens(path: Path, rollouts: list[Path] | None = None) -> list[str | Path]:
    """Every file that is opened of an input."""
    index = index_of(path)
    stores = [] if index is None else [index, *(Path(f"{index}{end}") for end in ("-wal", "-shm"))]
    others = [file for file in (path / HISTORY, *stores) if file.is_file()]
    return [*([*rollouts_of(path), *named_in(path)] if rollouts is None else rollouts), *others]
