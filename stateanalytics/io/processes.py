"""Whether a process that a program wrote down is alive on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

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
