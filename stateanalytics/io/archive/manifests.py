"""The record of one archiving run: what it observed, and the files that hold what was new."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stateanalytics.io.opening import read_octets

SCHEMA_VERSION = 1
"""Of the canonical frames: raised when a column changes its meaning or its type."""

MAX_MANIFEST_BYTES = 64_000_000

ACROSS = "across"
"""In place of a week: rows of work that is open, spans weeks or changed after it was archived."""

_NAME = re.compile(r"([0-9a-f]{16})-(\d{6})-([0-9a-f]{8})\.json")
_WEEK = re.compile(rf"\d{{4}}-W\d{{2}}|{ACROSS}")
_WORD = re.compile(r"[A-Za-z0-9_]{1,80}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shard:
    """One file of rows.

    Attributes
    ----------
    frame, week : str
        Which frame the rows are of, and the ISO week of their work, or `ACROSS`.
    sha256 : str
        The digest of the whole file.
    n_rows, n_bytes : int
        How much it holds.
    """

    frame: str
    week: str
    sha256: str
    n_rows: int
    n_bytes: int

    def path(self, root: Path, system: str, key: str) -> Path:
        """Where it lies in an archive."""
        name = f"{self.frame}-{self.sha256[:32]}.parquet"
        return root / "shards" / system / key / self.week / name


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What one run observed of one source, and where its rows are.

    Attributes
    ----------
    key, number, run : str and int
        The `source_key`; how many runs it had seen before it, so that a clock that runs
        backwards puts nothing in disorder; and the run's own name.
    label, system, format, place : str
        The source as it was named, whose it is, its storage generation, and where it lay.
    observed_at, first_at, last_at : datetime
        When the run looked, by its clock; the oldest and the newest moment that were proven.
    is_live, size_bytes, fingerprint
        As of `schema.SOURCES`.
    content, files : str
        Digests of all frames, and of names, sizes and times of its files (empty: not known).
    counts, findings : mapping of str to int
        Rows of each frame that it observed, and of each code of its findings.
    status : str
        ``complete``, or ``partial`` where some of the source could not be read.
    bodies, redacted : bool
        What was asked for.
    schema_version, package : int and str
        Which version wrote it.
    shards : tuple of Shard
        The files with what was new, and with all its findings.
    """

    key: str
    number: int
    run: str
    label: str
    system: str
    format: str
    place: str
    observed_at: datetime
    first_at: datetime | None
    last_at: datetime | None
    is_live: bool
    size_bytes: int
    fingerprint: str
    content: str
    files: str
    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    status: str
    bodies: bool
    redacted: bool
    schema_version: int = SCHEMA_VERSION
    package: str
    shards: tuple[Shard, ...]

    @property
    def name(self) -> str:
        """Its file."""
        return f"{self.key}-{self.number:06}-{self.run}.json"

    @property
    def proven_at(self) -> datetime:
        """The newest moment that was proven; where none was, one before all others."""
        return self.last_at or _LONG_AGO

    @property
    def order(self) -> tuple[datetime, int, str]:
        """What orders observations of one source: what they prove, then which was made last."""
        return (self.proven_at, self.number, self.run)

    def as_json(self) -> str:
        """Its text."""
        moments = {name: _written(getattr(self, name)) for name in _MOMENTS}
        return json.dumps({**asdict(self), **moments}, indent=1)

    @classmethod
    def of(cls, given: Any) -> Manifest:
        """The manifest that a document says.

        Raises
        ------
        ValueError, TypeError, KeyError, OverflowError
            If it says none.
        """
        known = {each.name: given[each.name] for each in fields(cls)}
        known |= {name: _moment(known[name]) for name in _MOMENTS}
        known["shards"] = tuple(_shard(each) for each in known["shards"])
        manifest = cls(**known)
        _check_kinds(manifest)
        for name in (*manifest.counts, manifest.label, manifest.format, manifest.fingerprint):
            name.encode()  # no frame holds half a character
        if not (_NAME.fullmatch(manifest.name) and _WORD.fullmatch(manifest.system)):
            raise ValueError("not the values of a manifest")
        return manifest


_MOMENTS = ("observed_at", "first_at", "last_at")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "datetime": (datetime,),
    "datetime | None": (datetime, type(None)),
    "Mapping[str, int]": (dict,),
    "tuple[Shard, ...]": (tuple,),
}
"""What a field may hold, by its annotation."""


def _check_kinds(record: Manifest | Shard) -> None:
    """An error where a field holds something else; numbers are counts that a frame can hold."""
    for each in fields(record):
        value = getattr(record, each.name)
        if type(value) not in _KINDS[str(each.type)]:
            raise TypeError(each.name)
        numbers = value.values() if isinstance(value, dict) else (value,)
        if any(isinstance(n, int) and not 0 <= n < 2**63 for n in numbers):
            raise ValueError(each.name)
        if isinstance(value, dict) and any(type(n) is not int for n in numbers):
            raise TypeError(each.name)


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _moment(text: str | None) -> datetime | None:
    moment = None if text is None else datetime.fromisoformat(text)
    return None if moment is None else moment.astimezone(UTC)


def _shard(given: Mapping[str, Any]) -> Shard:
    shard = Shard(**{each.name: given[each.name] for each in fields(Shard)})
    _check_kinds(shard)
    # They become a path, which must not lead out of the archive.
    if not (
        _WORD.fullmatch(shard.frame)
        and _WEEK.fullmatch(shard.week)
        and _DIGEST.fullmatch(shard.sha256)
    ):
        raise ValueError("not the values of a shard")
    return shard


def source_key(host: str, place: str) -> str:
    """What names a source in an archive: where it lies, on which machine."""
    return sha256(f"{host}\0{place}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


@cache
def package_version() -> str:
    """The version of this program; looking it up takes as long as all else of a source."""
    return version("stateanalytics")


def manifest_paths(root: Path) -> dict[str, list[Path]]:
    """By source key the manifests of an archive, in the order in which they were written."""
    folder = root / "manifests"
    by_key: dict[str, list[Path]] = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():  # noqa: PTH208 - names sort faster
        if match := _NAME.fullmatch(name):
            by_key.setdefault(match[1], []).append(folder / name)
    return by_key


def last_runs(root: Path) -> dict[str, Manifest]:
    """By source key the run that was made last, of those that can be read; without its files."""
    found = {
        key: next((run for path in reversed(paths) for run in read_manifests([path])[0]), None)
        for key, paths in manifest_paths(root).items()
    }
    return {key: replace(run, shards=()) for key, run in found.items() if run is not None}


def read_manifests(paths: Iterable[Path]) -> tuple[list[Manifest], dict[Path, str]]:
    """The manifests of one source, oldest observation first, and what is wrong with others."""
    read, wrong = [], {}
    for path in paths:
        try:
            given = json.loads(read_octets(path, MAX_MANIFEST_BYTES)[0].decode("utf-8"))
            # What a newer version writes may have other fields.
            manifest = Manifest.of(given) if given["schema_version"] <= SCHEMA_VERSION else None
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            wrong[path] = f"is no manifest: {type(error).__name__}"
            continue
        if manifest is None:
            wrong[path] = f"has schema version {given['schema_version']}, newer than this program"
        elif manifest.name != path.name:
            wrong[path] = "is the manifest of another run"
        else:
            read.append(manifest)
    return sorted(read, key=lambda manifest: manifest.order), wrong
