"""What lies at a place, without reading it: whose it is, how large, of which version."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stateanalytics.errors import SourceError
from stateanalytics.io.files import LOG_ENDINGS, open_regular
from stateanalytics.io.refusals import megabytes
from stateanalytics.io.sqlite import Store, open_store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import System
from stateanalytics.systems.places import found_by, looked

_MOST_COPIED = 2**30
"""A larger store is not copied only to say its version."""
_MOST_LOOKED_AT, _PART_BYTES = 20, 2**16


@dataclass(frozen=True)
class Seen:
    """What lies at a place.

    Attributes
    ----------
    path : pathlib.Path
    title : str
        Whose it is; empty: nobody's that is known.
    version : str
        Of its program or schema; empty: nothing says.
    n_files, size_bytes : int
        What would be opened to read it.
    """

    path: Path
    title: str
    version: str
    n_files: int
    size_bytes: int

    def __str__(self) -> str:
        whose = " ".join(filter(None, (self.title or "nobody that is known", self.version)))
        files = f"{self.n_files:,} file{'' if self.n_files == 1 else 's'}"
        return f"{whose}: {files}, {megabytes(self.size_bytes)}"


def look_at(path: Path) -> Seen | None:
    """What lies at a usual place; None: nothing to read.

    Examples
    --------
    >>> look_at(Path("/nowhere/at/all")) is None
    True
    """
    known, inputs = (None, [path]) if path.is_file() else found_by(path)
    if not (known or path.is_file()):
        return None
    sizes = [size for each in inputs for file in _opened(known, each) if (size := _size(file))]
    owners, versions = [known] if known else [], []
    for each in inputs:
        owner, version = _version(known, each)
        owners += [owner] if owner else []
        versions += [version] if version else []
    title = owners[0].title if owners else ""
    return Seen(path, title, ", ".join(dict.fromkeys(versions)), len(sizes), sum(sizes))


def _opened(known: System | None, path: Path) -> Iterator[str | Path]:
    if path.is_file():
        yield from (f"{path}{ending}" for ending in ("", *LOG_ENDINGS))
    elif known is not None and known.files is not None and known.files.opens is not None:
        yield from known.files.opens(path)
    else:
        yield from (
            os.path.join(folder, name)  # noqa: PTH118 - so many Paths are slow
            for folder, _, names in os.walk(path)
            for name in names
        )


def _written_ns(path: str | Path) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


def _size(path: str | Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def _version(known: System | None, path: Path) -> tuple[System | None, str]:
    if known is not None and known.files is not None and not _is_store(path):
        said = known.files.version(path)
        return known, said or _release(known.files.version_key, _opened(known, path))
    return schema_of(path, known)


def _release(key: str, files: Iterable[str | Path]) -> str:
    """What the file that was written last names as the version of its program."""
    if not key:
        return ""
    pattern = re.compile(rb'"%s"\s*:\s*"(\d+(?:\.\d+)*)' % key.encode())
    by_age = sorted(files, key=_written_ns, reverse=True)
    for path in by_age[:_MOST_LOOKED_AT]:
        try:
            with open_regular(Path(path)) as file:
                begin = file.read(_PART_BYTES)
                file.seek(max(0, _size(path) - _PART_BYTES))
                found = pattern.findall(begin + file.read(_PART_BYTES))
        except OSError:
            continue
        if found:
            return str(found[-1].decode())
    return ""


def schema_of(path: Path, known: System | None) -> tuple[System | None, str]:
    """Whose a database is, and the version of its schema; empty: nothing says."""
    if _size(path) > _MOST_COPIED:
        return known, ""
    try:
        with open_store(path) as store:
            owner = known or _owner(store)
            return owner, "" if owner is None else _schema_version(store, owner)
    except SourceError:
        return known, ""


def _is_store(path: Path) -> bool:
    return path.is_file() and path.suffix in (".db", ".sqlite", ".sqlite3")


def _owner(store: Store) -> System | None:
    for known in all_systems():
        if known.stores and looked(known, known.stores.recognises, store, store.label):
            return known
    return None


def _schema_version(store: Store, owner: System) -> str:
    tables = None if owner.tables is None else owner.tables()
    if tables is not None and tables.in_words is not None:
        return tables.in_words(store.tables).removeprefix(f"{owner.title} ")
    if tables is None or tables.version is None:
        return ""
    table, cell = tables.version
    newest = read_table(store, table, {"version": cell})[0]["version"].max()
    return "" if newest is None else f"schema {newest!s}"
