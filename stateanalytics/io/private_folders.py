"""Folders for private copies and unfinished outputs, which do not outlive their process.

Each has a file that its process keeps locked; an unfinished file is locked itself. The lock
ends with the process, however that ends. So a folder that can be locked is abandoned, and the
next load, or the next output to the same directory, deletes it. A process id would not be
enough: another process, or one of another container, may have it by now.

The copies have names, because SQLite opens no file without one (it resolves the links in
``/proc``), so they cannot be unnamed files that the system deletes by itself.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stateanalytics.errors import NoRoomError

PREFIX = "stateanalytics-"
HIDDEN = f".{PREFIX}"
"""Prefix of the name of an unfinished output."""
# Users name their own files after the program, too, so only the exact pattern is ours.
_MADE_HERE = re.compile(rf"\.?{PREFIX}[0-9a-f]{{12}}")

_HINT = "set TMPDIR to a folder with room, for example `TMPDIR=/var/tmp`"
_LOCK = "in-use"
_YOUNG_S = 60.0  # a younger folder may not be locked yet
_EVERY_S = 600.0
_NEXT_LOOK_S: dict[Path, float] = {}


@dataclass(frozen=True)
class PrivateFolder:
    """A folder of this process; its lock ends with it.

    Attributes
    ----------
    path : pathlib.Path
        Readable by this user only.
    """

    path: Path
    _handle: int = field(repr=False)

    def delete(self) -> None:
        """Delete it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._handle)


def make_private_folder(parent: Path | None = None) -> PrivateFolder:
    """A new folder for this user only, for as long as this process lives.

    Parameters
    ----------
    parent : pathlib.Path, optional
        Where to create it, hidden; by default in the directory for temporary files.

    Raises
    ------
    NoRoomError
        If there is no room, no place for temporary files, or ``TMPDIR`` cannot be used: a copy
        elsewhere may be on a disk that is not encrypted.
    OSError
        If it cannot be created in ``parent``.
    """
    chosen = os.environ.get("TMPDIR") if parent is None else None
    if chosen and not (Path(chosen).is_dir() and os.access(chosen, os.W_OK | os.X_OK)):
        raise NoRoomError(f"TMPDIR={chosen} cannot be used, and a copy goes nowhere else.", _HINT)
    try:
        path = new_path(parent) if parent else new_path(Path(tempfile.gettempdir()), PREFIX)
        path.mkdir(mode=0o700)
        handle = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        if parent is not None:
            raise
        raise NoRoomError(f"No private copy can be made: {error}.", _HINT) from error
    lock(handle)
    return PrivateFolder(path, handle)


def new_path(parent: Path, prefix: str = HIDDEN) -> Path:
    """A new random path, with a name that `delete_if_abandoned` recognizes."""
    return parent / f"{prefix}{secrets.token_hex(6)}"


def delete_abandoned_folders(
    parent: Path | None = None, *, young_s: float = _YOUNG_S
) -> list[Path]:
    """Delete the folders and files that killed processes of this user left, and return them.

    Parameters
    ----------
    parent : pathlib.Path, optional
        Where to look; by default in the directory for temporary files.
    young_s : float
        Seconds; folders that changed more recently are kept.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    folders = sorted([*place.glob(f"{PREFIX}*"), *place.glob(f"{HIDDEN}*")])
    return [folder for folder in folders if delete_if_abandoned(folder, young_s=young_s)]


def delete_abandoned_now_and_then(parent: Path | None = None) -> None:
    """Delete the folders that killed processes left, unless this was done recently.

    Each search visits the folders of all open stores, here and in other processes: opening a
    thousand stores one after another would visit half a million.
    """
    place, now_s = parent or Path(tempfile.gettempdir()), time.monotonic()
    if now_s >= _NEXT_LOOK_S.get(place, now_s):
        _NEXT_LOOK_S[place] = now_s + _EVERY_S
        delete_abandoned_folders(place)


def delete_if_abandoned(path: Path, *, young_s: float) -> bool:
    """Delete a folder or file whose process has ended; return whether it was deleted."""
    with suppress(OSError):
        status = path.lstat()
        is_mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not is_mine or path.is_symlink() or time.time() - status.st_mtime < young_s:
            return False
        is_file = stat.S_ISREG(status.st_mode)
        # Empty: its process was killed before it created the lock.
        is_unlocked = not is_file and not any(path.iterdir())
        if (is_file or is_unlocked) and not _MADE_HERE.fullmatch(path.name):
            return False
        if is_unlocked:
            path.rmdir()
            return True
        flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)
        handle = os.open(path if is_file else path / _LOCK, flags)
        try:
            if lock(handle):
                path.unlink() if is_file else shutil.rmtree(path, ignore_errors=True)
                return not path.exists()
        finally:
            os.close(handle)
    return False


def lock(handle: int) -> bool:
    """Lock an open file; False where another process has locked it."""
    try:
        import fcntl
    except ImportError:  # Windows: folders are deleted by their own process only
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
