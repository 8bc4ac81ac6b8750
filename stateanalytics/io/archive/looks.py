"""When each source of an archive was collected last, whether or not anything was new in it."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from stateanalytics.core.windows import WEEK
from stateanalytics.io.files import as_moment, read_json_object
from stateanalytics.io.outputs import put_whole

FOLDER = "looks"
STATUSES = ("archived", "unchanged")
"""What became of a source that was collected; of one that was not, an attempt tells."""

_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}\.json")
_KEY = re.compile(r"[0-9a-f]{16}")
_MOST_BYTES = 8_000_000
_AHEAD = timedelta(hours=1)
"""By how much the clocks of two machines may differ."""


@dataclass(frozen=True)
class Look:
    """The last time that a source was collected.

    Attributes
    ----------
    at : datetime
        When, by the clock of who collected it.
    status : str
        Of `STATUSES`.
    """

    at: datetime
    status: str


def note_looks(root: Path, statuses: Mapping[str, str], at: datetime) -> None:
    """Keep a note of some sources that were collected just now, by their keys.

    Raises
    ------
    OSError
        If the archive cannot be written to.
    """
    if not statuses:
        return
    at = at.astimezone(UTC)
    path = root / FOLDER / f"{at:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}.json"
    path.parent.mkdir(exist_ok=True)
    put_whole(path, json.dumps({"at": at.isoformat(), "sources": dict(statuses)}).encode())


def drop_old_looks(root: Path, now: datetime) -> None:
    """Delete each note whose sources all stand in newer ones, so that they stay few.

    Raises
    ------
    OSError
        If the archive cannot be written to.
    """
    notes, _ = _notes(root)
    told: set[str] = set()
    # What a clock that was ahead wrote would be the newest for ever.
    for path, looks in sorted(notes, key=lambda note: _age(note, now)):
        if looks.keys() <= told:
            path.unlink(missing_ok=True)
        told |= looks.keys()


def read_looks(root: Path) -> tuple[dict[str, Look], list[Path]]:
    """The last look at each source of an archive, by its key, and notes that cannot be read."""
    notes, unreadable = _notes(root)
    last: dict[str, Look] = {}
    for _, looks in notes:
        for key, look in looks.items():
            if key not in last or last[key].at < look.at:
                last[key] = look
    return last, unreadable


def stale(sources: pl.DataFrame) -> pl.DataFrame:
    """The sources that were collected last more than a week before the last time any was.

    Parameters
    ----------
    sources : polars.DataFrame
        ``source`` and ``looked_at``, null where none of an archive.

    Returns
    -------
    polars.DataFrame
        The same columns, longest ago first.
    """
    behind = pl.col("looked_at").max() - pl.col("looked_at")
    return sources.filter(behind > WEEK).select("source", "looked_at").sort("looked_at", "source")


_Note = tuple[Path, dict[str, Look]]


def _age(note: _Note, now: datetime) -> tuple[bool, timedelta, str]:
    path, looks = note
    at = next((look.at for look in looks.values()), now)
    return at > now + _AHEAD, now - at, path.name


def _notes(root: Path) -> tuple[list[_Note], list[Path]]:
    folder = root / FOLDER
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    notes, unreadable = [], []
    for path in paths:
        if not _NAME.fullmatch(path.name):
            continue
        given = read_json_object(path, max_bytes=_MOST_BYTES)
        if given.value is None and given.problem is None:
            continue  # another run has just found it to be old
        if (looks := _looks(given.value or {})) is None:
            unreadable.append(path)
        else:
            notes.append((path, looks))
    return notes, unreadable


def _looks(given: Mapping[str, object]) -> dict[str, Look] | None:
    at, statuses = as_moment(given.get("at")), given.get("sources")
    if at is None or not isinstance(statuses, dict):
        return None
    if not all(_KEY.fullmatch(key) and status in STATUSES for key, status in statuses.items()):
        return None
    return {key: Look(at, status) for key, status in statuses.items()}
