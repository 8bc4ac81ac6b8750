"""A process of ours that answers requests, each a line of JSON, one after another."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from typing import Any


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
