"""Folders for private copies and half-written outputs, which do not outlive their process.

Each holds a file that its process keeps locked; a half-written file is locked itself. The
lock ends with the process, however that ends, so what can be locked belongs to nobody any
more: the next load, or the next output to the same directory, deletes it. A process id would
not do; it may be another's by now, or of another container.

The copies have names, for SQLite opens no file without one (it resolves the links in
``/proc``), so they cannot be files that vanish by themselves.
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
"""How the name of an output begins until it is whole."""
# People name files of their own after the program, and nothing else shows that these are theirs.
_MADE_HERE = re.compile(rf"\.?{PREFIX}[0-9a-f]{{12}}")

_HINT = "set TMPDIR to a folder with room, for example `TMPDIR=/var/tmp`"
_LOCK = "in-use"
_YOUNG_S = 60.0  # its maker may be about to lock it
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
        Where to make it, hidden; by default where temporary files go.

    Raises
    ------
    NoRoomError
        If there is no room, no place for temporary files, or ``TMPDIR`` names one that cannot
        be used: a copy elsewhere may lie on a disk that is not encrypted.
    OSError
        If it cannot be made in ``parent``.
    """
    asked = os.environ.get("TMPDIR") if parent is None else None
    if asked and not (Path(asked).is_dir() and os.access(asked, os.W_OK | os.X_OK)):
        raise NoRoomError(f"TMPDIR={asked} cannot be used, and a copy goes nowhere else.", _HINT)
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
    """A path that nothing has yet, with a name that `delete_if_abandoned` recognizes."""
    return parent / f"{prefix}{secrets.token_hex(6)}"


def delete_abandoned_folders(
    parent: Path | None = None, *, young_s: float = _YOUNG_S
) -> list[Path]:
    """Delete the folders and files that killed processes of this user left, and say which.

    Parameters
    ----------
    parent : pathlib.Path, optional
        Where to look; by default where temporary files go.
    young_s : float
        Folders that changed more recently are left alone, in seconds.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    folders = sorted([*place.glob(f"{PREFIX}*"), *place.glob(f"{HIDDEN}*")])
    return [folder for folder in folders if delete_if_abandoned(folder, young_s=young_s)]


def delete_abandoned_now_and_then(parent: Path | None = None) -> None:
    """Delete the folders that killed processes left, unless this one looked just now.

    Each look goes through the folders of all that is open, here and in other processes: of
    a thousand stores that are opened one after another, each would look at those before it.
    """
    place, now_s = parent or Path(tempfile.gettempdir()), time.monotonic()
    if now_s >= _NEXT_LOOK_S.get(place, now_s):
        _NEXT_LOOK_S[place] = now_s + _EVERY_S
        delete_abandoned_folders(place)


def delete_if_abandoned(path: Path, *, young_s: float) -> bool:
    """Whether a folder or file belonged to nobody any more, and is deleted."""
    with suppress(OSError):
        status = path.lstat()
        is_mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not is_mine or path.is_symlink() or time.time() - status.st_mtime < young_s:
            return False
        is_file = stat.S_ISREG(status.st_mode)
        is_unlocked = not is_file and not any(path.iterdir())  # its maker was killed before
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
    """Lock an open file, and say whether that was possible: another process may have."""
    try:
        import fcntl
    except ImportError:  # no such lock on Windows: folders are deleted by their makers only
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
