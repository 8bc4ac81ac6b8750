"""Processes: whether a recorded one is alive, those started here, and folders that end with them.

Stores are opened by processes of our own (`stateanalytics.io.sqlite_copy` explains why). To
start one takes twenty times as long as to copy a small store, so an idle one is used for the
next store; but not one that met a damaged store, whose state is unknown after that. They end
with this process, whose end closes their input.

Folders for private copies and unfinished outputs do not outlive their process either. Each has
a file that its process keeps locked; an unfinished file is locked itself. The lock ends with
the process, however that ends. So a folder that can be locked is abandoned, and the next load,
or the next output to the same directory, deletes it. A process id would not be enough: another
process, or one of another container, may have it by now. The copies have names, because SQLite
opens no file without one (it resolves the links in ``/proc``), so they cannot be unnamed files
that the system deletes by itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateanalytics.errors import NoRoomError

_PROC = Path("/proc")
_DEAD_STATES = ("Z", "X")
_LARGEST_PID = 2**31 - 1


@dataclass(frozen=True)
class Process:
    """A process that another program recorded.

    Attributes
    ----------
    session_id : str
        The session that it works for.
    pid : int
        Its id, which another process may have by now.
    start : str or None
        When it started, in the clock ticks of ``/proc/<pid>/stat``; None if not recorded.
    machine : str or None
        Its machine and namespace of ids, as `machine_name`; None if not recorded.
    is_waiting : bool
        Whether it waits for a person, which proves something only while it lives.
    """

    session_id: str
    pid: int
    start: str | None = None
    machine: str | None = None
    is_waiting: bool = False


def machine_name() -> str | None:
    """Name of the machine and its namespace of process ids; None where they are not known."""
    try:
        machine = Path("/etc/machine-id").read_text("ascii").strip()
        return f"linux:{machine}:{os.readlink(_PROC / 'self/ns/pid')}"  # noqa: PTH115 - no path
    except (OSError, ValueError):
        return None


def is_alive(process: Process) -> bool | None:
    """Whether a process still runs, with the recorded start; None where that is not known.

    A process of another machine or namespace of ids cannot be looked up. One with the same id
    and another start is a later process, and the recorded one has ended.
    """
    here = machine_name()
    is_foreign = None not in (process.machine, here) and process.machine != here
    if is_foreign or not 0 < process.pid <= _LARGEST_PID:
        return None
    try:
        stat = (_PROC / str(process.pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return _by_signal(process.pid)
    # The name is in brackets and may contain anything, brackets too.
    state, *fields = stat.rpartition(")")[2].split() or [""]
    if state in _DEAD_STATES:
        return False
    return None if process.start is None or len(fields) < 19 else fields[18] == process.start


def _by_signal(pid: int) -> bool | None:
    """False where no process has the id; more cannot be known without ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None


# An isolated process (-I -S) sees no libraries, which some packages import. Empty modules
# replace the packages above the module to run, so that it is found without importing them.
_START = """
import importlib, sys, types
above = sys.argv[2].split(".")[:-1]
for level in range(1, len(above) + 1):
    package = types.ModuleType(".".join(above[:level]))
    package.__path__ = ["/".join([sys.argv[1], *above[1:level]])]
    sys.modules[package.__name__] = package
importlib.import_module(sys.argv[2]).main()
"""


def isolated(module: str, *arguments: str) -> list[str]:
    """The command that runs ``main`` of a module of this package in an isolated process.

    Parameters
    ----------
    module : str
        Its full name. It finds modules of this package and the standard library only;
        neither the environment nor the working directory change what it imports.
    *arguments : str
        The last arguments of its ``sys.argv``.
    """
    root = str(Path(__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _START, root, module, *arguments]


def _identity() -> tuple[int, ...]:
    """Who may use a process: not a fork, and not this process after it gave up rights."""
    return os.getpid(), *(getattr(os, name, int)() for name in ("geteuid", "getegid"))


def limit_process(**most: int) -> None:
    """Let the system end this process beyond limits such as ``RLIMIT_CPU``, where it can.

    It leaves no dump of its memory behind.
    """
    with contextlib.suppress(ImportError):
        import resource

        for name, wanted in {"RLIMIT_CORE": 0, **most}.items():
            with contextlib.suppress(AttributeError, OSError, ValueError):
                kind = getattr(resource, name)
                _, hard = resource.getrlimit(kind)
                if hard == resource.RLIM_INFINITY or wanted < hard:
                    resource.setrlimit(kind, (wanted, hard))


class ChildProcess:
    """A process that answers requests, each a line of JSON, one after another.

    Parameters
    ----------
    command : sequence of str
        What to run; it reads requests from its input until that is closed.

    Attributes
    ----------
    pid : int
        Its process id.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._identity = _identity()
        # In a session of its own, so that Ctrl-C reaches only the parent.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def ask(self, request: str, *arguments: object) -> None:
        """Send a request; `answer` waits for the result."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: `answer` reports that
            self._process.stdin.write(json.dumps([request, *arguments]).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer of the process; without a valid one, a ``problem``."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"problem": "crashed", "found": f"exit code {self._process.wait()}"}
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            # Something in it printed, so later answers would belong to other requests.
            self._process.kill()
            return {"problem": "crashed", "found": f"no answer, but {line[:60]!r}"}

    @contextlib.contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """Kill it if request and answer take longer, which then counts as a crash."""
        timer = threading.Timer(limit_s, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def is_alive(self) -> bool:
        """Whether it runs and belongs to this process with its present rights."""
        return self._identity == _identity() and self._process.poll() is None

    def end(self) -> None:
        """Kill it, whatever it does; a fork only forgets it."""
        if self._identity[0] == os.getpid():
            self._process.kill()
            self._process.wait()
        else:
            self._process.returncode = 0
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # unsent requests are dropped
                pipe.close()


_MOST_IDLE = 2
_IDLE: list[StoreProcess] = []


class StoreProcess(ChildProcess):
    """A process that opens stores for this one; `idle_or_new` returns one."""

    def __init__(self) -> None:
        super().__init__(isolated("stateanalytics.io.sqlite_copy"))

    def keep(self) -> None:
        """Keep it idle for the next store; it must have answered every request."""
        if len(_IDLE) < _MOST_IDLE and self.is_alive():
            _IDLE.append(self)
        else:
            self.end()


def idle_or_new() -> StoreProcess:
    """A process for a store; return it with `keep`, or `end` it."""
    with contextlib.suppress(IndexError):  # another thread may take the last one
        while True:
            idle = _IDLE.pop()
            if idle.is_alive():
                return idle
            idle.end()
    return StoreProcess()


def start_ahead() -> None:
    """Start a process in the background, unless an idle one is there."""
    if not _IDLE:
        StoreProcess().keep()


@atexit.register
def end_idle() -> None:
    """End the idle processes."""
    with contextlib.suppress(IndexError):
        while True:
            _IDLE.pop().end()


def mentions(path: Path, words: Sequence[str], n_bytes: int) -> bool:
    """Whether the beginning of a file contains any of some words; read by another process.

    Closing a store drops every lock that the same process holds on it, through whatever
    connection, so this process never opens one itself.

    Parameters
    ----------
    path : pathlib.Path
        False for anything but a readable regular file.
    words : sequence of str
    n_bytes : int
        Length of the beginning.
    """
    answer = _answer("mentions", os.path.abspath(path), list(words), n_bytes)  # noqa: PTH100
    return answer.get("is_there", False) is True


def state_of_store(path: str | Path) -> str | None:
    """A text that changes with every write to a store; None where changes cannot be noticed.

    Parameters
    ----------
    path : str or Path
        The file, whether it exists or not. It is neither locked nor copied.

    Examples
    --------
    >>> from stateanalytics.demo_data import demo_path
    >>> store = demo_path() / "state.db"
    >>> state_of_store(store) == state_of_store(store) is not None
    True
    """
    return _answer("state", os.path.realpath(path)).get("state")


def _answer(request: str, *arguments: Any) -> dict[str, Any]:
    process = idle_or_new()
    try:
        process.ask(request, *arguments)
        answer = process.answer()
    except BaseException:
        process.end()
        raise
    process.keep()
    return answer


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
        with contextlib.suppress(OSError):
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
    with contextlib.suppress(OSError):
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
