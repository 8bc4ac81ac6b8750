"""The processes that run queries, as this one sees them: started, asked, killed in time.

One that has answered is kept for the next query. Two threads that ask at once have one
each. None of them outlives this process, and a fork of it starts its own.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from stateanalytics.errors import QueryError, QueryRefusedError, QueryTimeoutError
from stateanalytics.io.private_folders import PrivateFolder, make_private_folder
from stateanalytics.io.processes import isolated
from stateanalytics.sql.parsing import broken_down, too_slow
from stateanalytics.sql.worker import Read, Run, Start

_START_S = 120.0
_LOOK_EVERY_S = 0.1  # for Ctrl-C, which ends no wait in itself
_MOST_IDLE = 2
_ERRORS = {kind.__name__: kind for kind in (QueryError, QueryRefusedError, QueryTimeoutError)}


class WorkerProcess:
    """A process of ours that runs queries.

    Attributes
    ----------
    pid : int
        Its number.
    is_spent : bool
        Whether it must not be asked again: it is late, dead, or keeps memory.
    """

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            isolated("stateanalytics.sql.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert isinstance(self._process.stdout, io.BufferedReader)
        # Without its buffer, whose lock a fork would inherit from the thread that reads.
        output, self._process.stdout = self._process.stdout.detach(), None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(output, self._answers), daemon=True).start()
        self.pid = self._process.pid
        self.end = weakref.finalize(self, _end, self._process, os.getpid())
        self.is_spent = True
        libraries = [entry for entry in sys.path if Path(entry).is_absolute()]
        answer, _ = self._exchange(Start(libraries, str(folder)), _START_S)
        if answer is None:
            self.end()
            raise QueryError(
                "The process that runs queries did not start.",
                f"{sys.executable} -c 'import duckdb, nanoarrow, polars' says why",
            )

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return not self.is_spent and self._process.poll() is None

    def ask(self, message: Read | Run, within_s: float, asked: Read) -> dict[str, Any]:
        """The answer to a message; kills the process if it does not come in time.

        Raises
        ------
        QueryError
            What the query ended with.
        """
        answer, is_late = self._exchange(message, within_s)
        if answer is None:
            self.end()
            if is_late:
                raise too_slow(asked.timeout_s)
            raise broken_down(self._process.returncode, asked.memory_bytes)
        if "error" in answer:
            kind = _ERRORS[answer["error"]]
            raise kind(answer["problem"], answer["hint"], shell=answer["shell"])
        return answer

    def _exchange(
        self, message: Start | Read | Run, within_s: float
    ) -> tuple[dict[str, Any] | None, bool]:
        """What comes back, if anything does, and whether it was killed for that."""
        self.is_spent = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is dead: nothing comes back
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        until = time.monotonic() + within_s
        while (left_s := until - time.monotonic()) > 0:
            try:
                line = self._answers.get(timeout=min(left_s, _LOOK_EVERY_S))
            except queue.Empty:
                continue
            answer = json.loads(line) if line else {"is_spent": True}
            self.is_spent = answer.pop("is_spent")
            return (answer if line else None), False
        self._process.kill()
        return None, True


def _listen(output: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Put every line into a queue, which unlike a pipe can be waited for with a limit."""
    begun = b""
    with output:
        while piece := output.read(2**16):
            *lines, begun = (begun + piece).split(b"\n")
            for line in lines:
                answers.put(line)
    answers.put(b"")


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() == starter:
        process.kill()
        process.wait()
    else:
        process.returncode = 0  # a fork has no part in it, but for its end of the pipe
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # what was not written yet goes nowhere
        process.stdin.close()


class _Workers:
    """Those of this process that wait for a query, and the folder they are handed files in."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew; in a fork, whose parent goes on with the old ones."""
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._folder: PrivateFolder | None = None

    def folder(self) -> Path:
        with self._lock:
            # Somebody may clear the folder for temporary files of what is old.
            if self._folder is None or not self._folder.path.is_dir():
                self._folder = make_private_folder()
                atexit.register(_delete, self._folder, os.getpid())
            return self._folder.path

    @contextlib.contextmanager
    def one(self) -> Iterator[WorkerProcess]:
        worker = self._taken() or WorkerProcess(self.folder())
        try:
            yield worker
        finally:
            with self._lock:
                is_kept = worker.is_alive() and len(self._idle) < _MOST_IDLE
                if is_kept:
                    self._idle.append(worker)
            if not is_kept:
                worker.end()

    def _taken(self) -> WorkerProcess | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                worker = self._idle.pop()
            if worker.is_alive():
                return worker
            worker.end()


def _delete(folder: PrivateFolder, maker: int) -> None:
    if os.getpid() == maker:
        folder.delete()


_WORKERS = _Workers()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WORKERS.forget)


def worker() -> contextlib.AbstractContextManager[WorkerProcess]:
    """A process to ask, for the time of one query."""
    return _WORKERS.one()


def handing_folder() -> Path:
    """The private folder for what goes to such a process and comes from it."""
    return _WORKERS.folder()
