"""Which paths a pattern matches: `glob`, but ``**`` goes through no link and has an end."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from stateanalytics.errors import ArgumentError

MAX_DIRECTORIES = 200_000


def matching(pattern: str, *, max_directories: int = MAX_DIRECTORIES) -> list[str]:
    """The paths that match a pattern, each once, sorted.

    Parameters
    ----------
    pattern : str
        As for `glob.glob` with ``recursive=True``, except that ``**`` stands for no
        directory behind a symbolic link: links that lead upwards have no end.
    max_directories : int
        How many directories ``**`` may stand for.

    Returns
    -------
    list of str

    Raises
    ------
    ArgumentError
        If there are more.

    Examples
    --------
    >>> matching("no/such/**/state.db")
    []
    """
    return sorted(set(_found(pattern, iter(range(max_directories)))))


def _found(pattern: str, budget: Iterator[int]) -> Iterator[str]:
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.glob(pattern)  # noqa: PTH207 - patterns may be absolute
        return
    first = parts.index("**")
    rest = tuple(itertools.dropwhile(lambda part: part == "**", parts[first:]))
    before = str(Path(*parts[:first])) if first else ""
    after = str(Path(*rest)) if rest else ""
    for top in glob.glob(before) if before else [""]:  # noqa: PTH207
        for directory in _below(top):
            if next(budget, None) is None:
                raise ArgumentError(
                    f"{pattern!r} was to be searched for stores, but '**' stands for too many "
                    "directories.",
                    "begin the pattern further down, for example '~/projects/**/state.db'",
                )
            if not after and directory:
                yield directory
            yield from _found(os.path.join(glob.escape(directory), after or "*"), budget)  # noqa: PTH118


def _below(top: str) -> Iterator[str]:
    """A directory and those below it that are neither hidden nor behind a link."""
    for folder, names, _ in os.walk(top or "."):
        names[:] = sorted(name for name in names if not name.startswith("."))
        inside = os.path.relpath(folder, top or ".")
        yield top if inside == "." else os.path.join(top, inside)  # noqa: PTH118
