"""Files that are written: whole or not at all, and never over anything that was read."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stateanalytics.errors import ArgumentError, StoreBusyError
from stateanalytics.io.files import LOG_ENDINGS, files_below, refuse_scheme
from stateanalytics.io.private_folders import (
    delete_abandoned_now_and_then,
    lock,
    make_private_folder,
    new_path,
)

PRIVATE = 0o600
"""The mode of a file with secrets in it: for its owner only."""
MOST_WAIT_S = 600.0
"""For others that write to a folder."""
_LOOK_EVERY_S = 0.05


def write_output(
    path: str | Path, content: bytes, *, inputs: Iterable[Path] = (), is_private: bool = False
) -> Path:
    """Write a file beside its place and move it there, so that it is whole or not there.

    Parameters
    ----------
    path : str or pathlib.Path
        Where to. A device or a pipe is written to as it is, by the system's own links too,
        such as ``/dev/stdout``.
    content : bytes
        All of it.
    inputs : iterable of pathlib.Path
        Files and directories that were read: see `refuse_inputs`.
    is_private : bool
        Whether only the owner may read it. Otherwise as the user's umask says, or as the
        file that it takes the place of.

    Returns
    -------
    pathlib.Path
        Where it is now.

    Raises
    ------
    ArgumentError
        If the place is an input, a symbolic link, a directory, or cannot be written; what
        was there before is there still.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_output(Path(folder) / "week.html", b"<p>").read_bytes()
    b'<p>'
    """
    target = _target(path, inputs)
    try:
        if _is_stream(target):
            target.write_bytes(content)
        else:
            put_whole(target, content, is_private=is_private)
    except OSError as error:
        raise _not_written(path, error) from None
    return target


def put_in_place(
    path: str | Path,
    write: Callable[[Path], None],
    *,
    inputs: Iterable[Path] = (),
    is_private: bool = False,
) -> Path:
    """Let a function write a file, or a folder, beside its place, and move it there when whole.

    Parameters
    ----------
    path : str or pathlib.Path
        Where to; a folder must not be there yet.
    write : callable
        ``write(path)`` makes it, in a folder that nobody else can look into.
    inputs, is_private
        As for `write_output`.

    Raises
    ------
    ArgumentError
        As for `write_output`, and if the place is no regular file.
    """
    target = _target(path, inputs)
    if target.exists() and not target.is_file():
        what = "a folder that is there already" if target.is_dir() else "no regular file"
        raise ArgumentError(f"{str(path)!r} is {what}.", "name a new file or folder")
    delete_abandoned_now_and_then(target.parent)
    try:
        folder = make_private_folder(target.parent)
        try:
            made = folder.path / "output" / target.name  # it may be called as the lock is
            made.parent.mkdir()
            write(made)
            if is_private:
                made.chmod(PRIVATE | (0o100 if made.is_dir() else 0))
            made.replace(target)
        finally:
            folder.delete()
    except OSError as error:
        raise _not_written(path, error) from None
    return target


def _target(path: str | Path, inputs: Iterable[Path]) -> Path:
    """Where a path is, if nothing that was read is there."""
    refuse_scheme(path)
    try:
        target = Path(path).expanduser()
    except RuntimeError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be written: {error}", "name the directory in full"
        ) from None
    refuse_no_folder(target)
    refuse_inputs(target, inputs)
    return target


def refuse_no_folder(target: Path) -> None:
    """An error, before the work begins, where the folder of an output is not there."""
    refuse_scheme(target)
    folder = target.parent
    if not folder.is_dir():
        raise ArgumentError(
            f"{str(target)!r} cannot be written: there is no folder {str(folder)!r}.",
            f"make it first: Path({str(folder)!r}).mkdir(parents=True)",
            shell=f"make it first: mkdir -p {shlex.quote(str(folder))}",
        )


def _not_written(path: str | Path, error: OSError) -> ArgumentError:
    return ArgumentError(
        f"{str(path)!r} cannot be written: {error.strerror or error}.",
        "name a file in a directory that exists and that you may write to",
    )


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process or thread is in here with the same folder.

    For files that are read, changed and written. The lock is on the folder itself, so
    nothing is left there, and ends with the process, however that ends. Where there are no
    such locks (Windows, some network drives) nobody waits.

    Raises
    ------
    StoreBusyError
        If another one keeps it for ten minutes: it may be stopped, and would never let go.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        until_s = time.monotonic() + MOST_WAIT_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until_s:
                    time.sleep(_LOOK_EVERY_S)
                    continue
                raise StoreBusyError(
                    f"Another process has been writing to {str(folder)!r:.200} for more than "
                    f"{MOST_WAIT_S:g} s.",
                    "wait for it, or end it if it is stopped, and try again",
                ) from None
            except OSError:
                pass  # there are no locks here
            break
        yield
    finally:
        with suppress(OSError):  # a process that was forked meanwhile would keep the lock
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def refuse_inputs(target: Path, inputs: Iterable[Path]) -> None:
    """An error where writing to a path would change something that was read.

    Parameters
    ----------
    target : pathlib.Path
        Where somebody wants to write.
    inputs : iterable of pathlib.Path
        Files, with the logs that SQLite keeps beside them, and directories, with all that
        is or would be in them; by whatever link one gets there.

    Raises
    ------
    ArgumentError
        Which of them it is; or that the path is a symbolic link, which could be turned to
        an input between this check and the writing.
    """
    if target.is_symlink() and not (_is_link_of_system(target) and _is_stream(target)):
        raise ArgumentError(
            f"{str(target)!r} is a symbolic link, and links are not followed when writing.",
            "name the file itself; leave the output out for standard output",
        )
    for path in inputs:
        if _is_part_of(target, path):
            raise ArgumentError(
                f"{str(target)!r} is {'in ' if path.is_dir() else ''}{str(path)!r}, "
                "which was read.",
                "write elsewhere, such as to 'week.html' or 'result.csv' in another directory",
            )


def _is_part_of(target: Path, path: Path) -> bool:
    if path.is_dir():
        place, folder = Path(os.path.realpath(target)), Path(os.path.realpath(path))
        return place.is_relative_to(folder) or _is_linked_into(target, path)
    # SQLite keeps the logs of a store beside the file itself, wherever a link to it lies.
    stores = (path, Path(os.path.realpath(path)))
    logs = (store.with_name(store.name + ending) for store in stores for ending in LOG_ENDINGS)
    return any(_is_same(target, file) for file in (path, *logs))


def _is_same(target: Path, file: Path) -> bool:
    if os.path.realpath(target) == os.path.realpath(file):
        return True
    try:
        return target.samefile(file)
    except (OSError, ValueError):
        return False


def _is_linked_into(target: Path, folder: Path) -> bool:
    """Is a file one of a directory under another name: by a hard link, or through a link in it."""
    try:
        there = target.stat()
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(there.st_mode):
        return False
    files = files_below(str(folder), is_strict=False)
    return any(os.path.samestat(there, status) for _, status in files)


def _is_link_of_system(target: Path) -> bool:
    """Is it one of the links to open files: ``/dev/stdout``, ``/dev/fd/1``; nobody turns these."""
    folder = os.path.realpath(target.parent)
    return folder in ("/dev", os.path.realpath("/proc/self/fd"))


def _is_stream(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def put_whole(target: Path, content: bytes, *, is_private: bool = False) -> None:
    """Write a file next to its place, under a hidden name, and rename it."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    delete_abandoned_now_and_then(target.parent)
    beside = new_path(target.parent)
    # Made anew, so that nobody's link is followed, and with the mode that the umask leaves.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(beside, flags, PRIVATE if is_private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            lock(file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not is_private and target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
