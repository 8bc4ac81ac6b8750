"""Output files: written as a whole or not at all, and never over an input."""

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

from stateanalytics.errors import ArgumentError, NoRoomError, StateAnalyticsError, StoreBusyError
from stateanalytics.io import processes
from stateanalytics.io.files import LOG_ENDINGS, files_below, refuse_scheme

PRIVATE = 0o600
"""The mode of a file with secrets: for its owner only."""
MOST_WAIT_S = 600.0
"""Longest wait for other processes that write to a folder."""
_LOOK_EVERY_S = 0.05
_NO_ROOM_BYTES = 2**16


def write_output(
    path: str | Path, content: bytes, *, inputs: Iterable[Path] = (), is_private: bool = False
) -> Path:
    """Write a file under a temporary name and rename it, so that it is complete or absent.

    Parameters
    ----------
    path : str or pathlib.Path
        Where to write. Devices and pipes are written to directly, also through the system's
        links such as ``/dev/stdout``.
    content : bytes
        The whole content.
    inputs : iterable of pathlib.Path
        Files and directories that were read: see `refuse_inputs`.
    is_private : bool
        Whether only the owner may read it. Otherwise the mode is that of the replaced file, or
        follows the umask.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    ArgumentError
        If the path is an input, a symbolic link, a directory, or cannot be written; an
        existing file stays as it was.

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
    """Let a function write a file or folder under a temporary name, and rename it when complete.

    Parameters
    ----------
    path : str or pathlib.Path
        Where to write; a folder must not exist yet.
    write : callable
        ``write(path)`` creates it, in a folder that no other user can read.
    inputs, is_private
        As for `write_output`.

    Raises
    ------
    ArgumentError
        As for `write_output`, and if something other than a regular file is there.
    """
    target = _target(path, inputs)
    if target.exists() and not target.is_file():
        what = "a folder that is there already" if target.is_dir() else "no regular file"
        raise ArgumentError(f"{str(path)!r} is {what}.", "name a new file or folder")
    processes.delete_abandoned_now_and_then(target.parent)
    try:
        folder = processes.make_private_folder(target.parent)
        try:
            # In a folder below, because the output may have the name of the lock.
            output = folder.path / "output" / target.name
            output.parent.mkdir()
            write(output)
            if is_private:
                output.chmod(PRIVATE | (0o100 if output.is_dir() else 0))
            output.replace(target)
        except Exception as error:
            # Libraries have errors of their own for a disk without room.
            is_ours = isinstance(error, StateAnalyticsError)
            if is_ours or shutil.disk_usage(folder.path).free > _NO_ROOM_BYTES:
                raise
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        finally:
            folder.delete()
    except OSError as error:
        raise _not_written(path, error) from None
    return target


def _target(path: str | Path, inputs: Iterable[Path]) -> Path:
    """The expanded path of an output, if it may be written."""
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
    """Refuse an output without an existing folder, before the work begins."""
    refuse_scheme(target)
    folder = target.parent
    if not folder.is_dir():
        raise ArgumentError(
            f"{str(target)!r} cannot be written: there is no folder {str(folder)!r}.",
            f"make it first: Path({str(folder)!r}).mkdir(parents=True)",
            shell=f"make it first: mkdir -p {shlex.quote(str(folder))}",
        )


def _not_written(path: str | Path, error: OSError) -> StateAnalyticsError:
    problem = f"{str(path)!r} cannot be written: {error.strerror or error}."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoomError(problem, "free some space, or name a file on another disk")
    return ArgumentError(
        problem, "name a file in a directory that exists and that you may write to"
    )


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, to read, change and write files in it.

    The lock is on the folder itself, so it leaves no file behind, and it ends with the process,
    however that ends. Where such locks do not exist (Windows, some network drives) there is no
    waiting.

    Raises
    ------
    StoreBusyError
        If another process holds the lock for ten minutes: it may be stopped for good.
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
                pass  # this file system has no locks
            break
        yield
    finally:
        with suppress(OSError):  # closing alone would leave the lock to a forked process
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def refuse_inputs(target: Path, inputs: Iterable[Path]) -> None:
    """Refuse an output that would change an input.

    Parameters
    ----------
    target : pathlib.Path
        The output.
    inputs : iterable of pathlib.Path
        Files with their SQLite logs, and directories with everything in them, through
        whatever links.

    Raises
    ------
    ArgumentError
        If the path is one of them; or if it is a symbolic link, which could be redirected to
        an input between this check and the writing.
    """
    if target.is_symlink() and not (_is_link_of_system(target) and _is_stream(target)):
        raise ArgumentError(
            f"{str(target)!r} is a symbolic link, and links are not followed when writing.",
            "name the file itself; without an output the result goes to standard output",
        )
    for path in inputs:
        if _is_part_of(target, path):
            raise ArgumentError(
                f"{str(target)!r} is {'in ' if path.is_dir() else ''}{str(path)!r}, "
                "which was read.",
                "write it to another directory",
            )


def _is_part_of(target: Path, path: Path) -> bool:
    if path.is_dir():
        place, folder = Path(os.path.realpath(target)), Path(os.path.realpath(path))
        return place.is_relative_to(folder) or _is_linked_into(target, path)
    # SQLite keeps the logs of a store next to the file itself, not next to a link to it.
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
    """Whether a file is also in a directory, by a hard link or through a link in there."""
    try:
        wanted = target.stat()
    except (OSError, ValueError):
        return False
    if not stat.S_ISREG(wanted.st_mode):
        return False
    files = files_below(str(folder), is_strict=False)
    return any(os.path.samestat(wanted, status) for _, status in files)


def _is_link_of_system(target: Path) -> bool:
    """Whether it is a link to an open file, such as ``/dev/stdout``, which cannot be redirected."""
    return os.path.realpath(target.parent) in ("/dev", os.path.realpath("/proc/self/fd"))


def _is_stream(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def put_whole(target: Path, content: bytes, *, is_private: bool = False) -> None:
    """Write a file next to its final place, under a hidden name, and rename it."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    processes.delete_abandoned_now_and_then(target.parent)
    temporary = processes.new_path(target.parent)
    # Created exclusively, so that no link is followed, with the mode that the umask leaves.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, PRIVATE if is_private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            processes.lock(file.fileno())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not is_private and target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
