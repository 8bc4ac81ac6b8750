"""Systems that keep files and directories, not one SQLite store: who reads which path.

`PATH_READERS` is the one list: a path that is named is shown to each in turn, and the
first that finds its own records in it reads it. Whatever none of them knows is opened
as a SQLite store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stateanalytics.io.parts import Parts
from stateanalytics.systems import agent_orchestrator, opencode


@dataclass(frozen=True)
class PathReader:
    """How the files of one system are found and read.

    Attributes
    ----------
    system : str
        One of `schema.SYSTEMS`.
    find : callable
        ``find(path) -> list of Path``: what of that path to read, one input each; empty
        where it holds nothing of this system. It looks at names and beginnings only.
    read : callable
        ``read(path, *, label, bodies, on_error) -> Parts`` of one path that ``find`` gave.
    """

    system: str
    find: Callable[[Path], list[Path]]
    read: Callable[..., Parts]


PATH_READERS: tuple[PathReader, ...] = (
    PathReader("agent_orchestrator", agent_orchestrator.find, agent_orchestrator.read),
    PathReader("opencode", opencode.find, opencode.read),
)


def found_by(path: Path) -> tuple[PathReader | None, list[Path]]:
    """The first system that finds its records in a path, and what it would read."""
    for reader in PATH_READERS:
        if found := reader.find(path):
            return reader, found
    return None, []
