"""The processes that touch stores for this one, each kept for the next store.

Why not this one, says `stateanalytics.io.sqlite_copy`, which they run. To start one takes
twenty times as long as to copy a small store, so one that has answered is asked again; not
one that met a damaged store, of which nobody knows what it left behind. They end with this
process, whose end closes their input.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stateanalytics.io.asked_process import AskedProcess
from stateanalytics.io.isolated import isolated

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
