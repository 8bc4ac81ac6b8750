"""Possibly malicious files are parsed by a process of its own, with limits of time and memory.

A library that parses such a file cannot be interrupted from Python. The bytes read of it are
bounded already, by the room that it takes on disk (`stateanalytics.io.budget`); here the system
kills a process that still needs too much time or memory, and the caller continues. Rows come
back as Arrow files, of which nothing is run.

The process finds no libraries before the request that names their folders, so imports of
libraries are inside of functions.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateanalytics.io.processes import ChildProcess, isolated, limit_process

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.io.json_lines import Chunk, Typed

LEAST_S = 20.0
BYTES_A_SECOND = 50_000
"""A file may take `LEAST_S` of processor time, and a second per so many bytes on disk."""
LEAST_MEMORY_BYTES = 2 * 2**30
MEMORY_RATIO = 200
"""It may take `LEAST_MEMORY_BYTES`, and so many times its bytes on disk."""
_WALL_RATIO = 20
"""Wall time per processor time: a loaded machine is slower."""


def parsed_apart(
    path: Path, name: str, fields: Mapping[str, Any], typed: Typed
) -> tuple[list[list[pl.DataFrame]], OSError | None]:
    """The rows of one file, parsed by a process of its own.

    Parameters
    ----------
    path : pathlib.Path
    name : str
        The name of the file in its rows.
    fields, typed
        As for `json_lines.typed_rows`; ``typed`` is a function of a module, or a partial of one.

    Returns
    -------
    pieces : list of list of polars.DataFrame
        The result of `json_lines.typed_rows` for each piece.
    error : OSError or None
        Why some rows are missing.
    """
    import polars as pl

    from stateanalytics.io.budget import BudgetSpentError, OverBoundError, on_disk, spending
    from stateanalytics.io.processes import make_private_folder

    spent = spending()
    called = typed if isinstance(typed, partial) else partial(typed)
    try:
        status = path.stat()
        spent.draw()
    except BudgetSpentError as error:
        error.n_bytes = status.st_size
        return [], error
    except OSError as error:
        return [], error
    n_bytes = on_disk(status)
    most_s = LEAST_S + n_bytes / BYTES_A_SECOND
    most_bytes = LEAST_MEMORY_BYTES + MEMORY_RATIO * n_bytes
    folder = make_private_folder()
    pieces: list[list[pl.DataFrame]] = []
    process = ChildProcess(isolated(__name__))
    try:
        process.ask(
            "parse",
            [entry for entry in sys.path if Path(entry).is_absolute()],
            [called.func.__module__, called.func.__name__, called.keywords],
            [os.path.abspath(path), name, fields, vars(spent.budget)],  # noqa: PTH100
            [most_s, most_bytes, str(folder.path)],
        )
        with process.within(_WALL_RATIO * most_s):
            answer = process.answer()
        if "problem" in answer:
            return [], OverBoundError(
                f"reading it took more than {most_s:,.0f} seconds of processor time or "
                f"{most_bytes:,} bytes of memory ({answer['found']}): its {n_bytes:,} bytes on "
                "disk are not read"
            )
        pieces = [
            [pl.read_ipc((folder.path / file).read_bytes()) for file in files]
            for files in answer["pieces"]
        ]
        with contextlib.suppress(BudgetSpentError):  # what was read is kept
            spent.draw(**answer["spent"])
    except OSError as error:
        return pieces, error
    finally:
        process.end()
        folder.delete()
    return pieces, _lost(*answer["lost"]) if answer["lost"] else None


def _lost(kind: str, reason: str, n_bytes: int) -> OSError:
    """The error that the process met, so that the caller can count it."""
    from stateanalytics.io.budget import BudgetSpentError, OverBoundError

    if kind == BudgetSpentError.__name__:
        return BudgetSpentError(reason, n_bytes)
    return OverBoundError(reason) if kind == OverBoundError.__name__ else OSError(reason)


def main() -> None:
    """Answer one request; see `parsed_apart`."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # printed text must not become part of an answer
    _, libraries, (module, function, keywords), of_file, limits = json.loads(
        sys.stdin.buffer.readline()
    )
    sys.path[:] = libraries
    limit_process(RLIMIT_CPU=1 + int(time.process_time() + limits[0]), RLIMIT_DATA=limits[1])
    typed = partial(getattr(import_module(module), function), **keywords)
    answers.write(json.dumps(_parsed(typed, of_file, Path(limits[2]))) + "\n")
    answers.flush()


def _parsed(typed: Typed, of_file: list[Any], folder: Path) -> dict[str, Any]:
    from stateanalytics.io.budget import Budget, spend
    from stateanalytics.io.json_lines import Parser, chunks_of, in_pieces, typed_rows

    path, name, fields, limits = of_file
    lost: list[str | int] = []

    def chunks() -> Iterator[Chunk]:
        try:
            yield from chunks_of(Path(path), name, "transcript")
        except OSError as error:
            reason = str(error.strerror or error)
            lost.extend([type(error).__name__, reason, getattr(error, "n_bytes", 0)])

    pieces: list[list[str]] = []
    n_rows = n_bytes = 0
    with Parser() as parser, spend(Budget(**limits)):
        for piece in in_pieces(chunks()):
            n_rows += sum(len(chunk.lines) for chunk in piece)
            n_bytes += sum(chunk.n_bytes for chunk in piece)
            names: list[str] = []
            for frame in typed_rows(piece, fields, typed, parser):
                names.append(f"{len(pieces)}-{len(names)}.arrow")
                frame.write_ipc(folder / names[-1])
            pieces.append(names)
    spent = {"n_rows": n_rows, "grown_bytes": n_bytes, "processor_s": time.process_time()}
    return {"pieces": pieces, "lost": lost, "spent": spent}
