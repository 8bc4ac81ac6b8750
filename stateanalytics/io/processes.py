"""Processes: whether a recorded one is alive, and those that this program starts itself.

Stores are opened by processes of our own (`stateanalytics.io.sqlite_copy` explains why). To
start one takes twenty times as long as to copy a small store, so an idle one is used for the
next store; but not one that met a damaged store, whose state is unknown after that. They end
with this process, whose end closes their input.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """

    session_id: str
    pid: int
    start: str | None = None
    machine: str | None = None


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
    rights = (getattr(os, name, int)() for name in ("geteuid", "getegid"))
    return os.getpid(), *rights


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
