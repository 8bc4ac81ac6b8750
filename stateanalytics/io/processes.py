"""Whether a process that a program wrote down is alive on this machine."""

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
    """A process, as a program wrote it down.

    Attributes
    ----------
    session_id : str
        The session that it works for.
    pid : int
        Its id, which another process may have by now.
    start : str or None
        When it started, in the clock ticks of ``/proc/<pid>/stat``; None: not written.
    machine : str or None
        On which machine, in which space of ids, as `machine_name`; None: not written.
    """

    session_id: str
    pid: int
    start: str | None = None
    machine: str | None = None


def machine_name() -> str | None:
    """Name of the machine and of its space of process ids; None where they are not known."""
    try:
        machine = Path("/etc/machine-id").read_text("ascii").strip()
        return f"linux:{machine}:{os.readlink(_PROC / 'self/ns/pid')}"  # noqa: PTH115 - no path
    except (OSError, ValueError):
        return None


def is_alive(process: Process) -> bool | None:
    """Whether it is there, with the start that was written down; null: nothing says.

    A process of another machine, or of another space of ids, cannot be looked for. One with
    the same id and another start is a later one, and what was written down is over.
    """
    here = machine_name()
    is_foreign = None not in (process.machine, here) and process.machine != here
    if is_foreign or not 0 < process.pid <= _LARGEST_PID:
        return None
    try:
        stat = (_PROC / str(process.pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return _by_signal(process.pid)
    # The name stands in brackets and may hold anything, brackets too.
    state, *fields = stat.rpartition(")")[2].split() or [""]
    if state in _DEAD_STATES:
        return False
    return None if process.start is None or len(fields) < 19 else fields[18] == process.start


def _by_signal(pid: int) -> bool | None:
    """Whether the id is nobody's, which is all that can be known without ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None


# An isolated process (-I -S) sees no libraries, and some packages import them: empty
# modules stand for those above the one to run, so that it is found without them.
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
    """The command that runs ``main`` of a module of this package in a process of its own.

    Parameters
    ----------
    module : str
        Its full name. It finds modules of this package, and no libraries but Python's own;
        neither the environment nor the working directory change what it imports.
    *arguments : str
        The last of its ``sys.argv``.
    """
    root = str(Path(__file__).parents[1])
    return [sys.executable, "-I", "-S", "-c", _START, root, module, *arguments]


def _identity() -> tuple[int, ...]:
    """Who may ask a process: a fork starts its own, and whoever gave up rights has fewer."""
    rights = (getattr(os, name, int)() for name in ("geteuid", "getegid"))
    return os.getpid(), *rights


class AskedProcess:
    """A process, from its start to its end.

    Parameters
    ----------
    command : sequence of str
        What to run; it reads requests from its input until that is closed.

    Attributes
    ----------
    pid : int
        Its number.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._identity = _identity()
        # In a session of its own, so that Ctrl-C is for the process that asks.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def ask(self, request: str, *arguments: object) -> None:
        """Send a request; `answer` waits for what comes back."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is dead: nothing comes back
            self._process.stdin.write(json.dumps([request, *arguments]).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next thing that the process says; what is no answer has a ``problem``."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return {"problem": "crashed", "found": f"exit code {self._process.wait()}"}
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            # Something in it prints, and what comes next would answer another question.
            self._process.kill()
            return {"problem": "crashed", "found": f"no answer, but {line[:60]!r}"}

    @contextlib.contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """Kill it where asking and answering take longer: it has crashed then."""
        timer = threading.Timer(limit_s, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def is_alive(self) -> bool:
        """Whether it can be asked, by whoever this process is now."""
        return self._identity == _identity() and self._process.poll() is None

    def end(self) -> None:
        """Kill it, whatever it does; a fork lets go of it only."""
        if self._identity[0] == os.getpid():
            self._process.kill()
            self._process.wait()
        else:
            self._process.returncode = 0
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # what was not written yet goes nowhere
                pipe.close()


_MOST_IDLE = 2
_IDLE: list[StoreProcess] = []


class StoreProcess(AskedProcess):
    """A process of ours that opens stores; `idle_or_new` gives one."""

    def __init__(self) -> None:
        super().__init__(isolated("stateanalytics.io.sqlite_copy"))

    def keep(self) -> None:
        """Let it wait for the next store; it has answered all that it was asked."""
        if len(_IDLE) < _MOST_IDLE and self.is_alive():
            _IDLE.append(self)
        else:
            self.end()


def idle_or_new() -> StoreProcess:
    """A process to ask; give it back with `keep`, or `end` it."""
    with contextlib.suppress(IndexError):  # another thread may take the last one
        while True:
            idle = _IDLE.pop()
            if idle.is_alive():
                return idle
            idle.end()
    return StoreProcess()


def start_ahead() -> None:
    """Let a process start while this one is busy with something else, unless one waits."""
    if not _IDLE:
        StoreProcess().keep()


@atexit.register
def end_idle() -> None:
    """End the processes that wait."""
    with contextlib.suppress(IndexError):
        while True:
            _IDLE.pop().end()


def mentions(path: Path, words: Sequence[str], n_bytes: int) -> bool:
    """Does the beginning of a file hold any of some words; looked at by another process.

    Closing a store drops every lock that the same process holds on it, through whatever
    connection; so this process never opens one to look inside.

    Parameters
    ----------
    path : pathlib.Path
        Where there is no regular file that may be read, there are no words.
    words : sequence of str
    n_bytes : int
        How much of it is looked at.
    """
    asked = ("mentions", os.path.abspath(path), list(words), n_bytes)  # noqa: PTH100
    return _answer(*asked).get("is_there", False) is True


def state_of_store(path: str | Path) -> str | None:
    """What is another as soon as anybody has written to a store; None where nothing tells.

    Parameters
    ----------
    path : str or Path
        The file, whether it is there or not. It is looked at, never locked, and neither
        copied nor read.

    Examples
    --------
    >>> from stateanalytics.demo_data import demo_path
    >>> store = demo_path() / "state.db"
    >>> state_of_store(store) == state_of_store(store) is not None
    True
    """
    return _answer("state", os.path.realpath(path)).get("state")


def _answer(*asked: Any) -> dict[str, Any]:
    process = idle_or_new()
    try:
        process.ask(*asked)
        answer = process.answer()
    except BaseException:
        process.end()
        raise
    process.keep()
    return answer
