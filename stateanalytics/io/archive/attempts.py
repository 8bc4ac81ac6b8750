"""What an archive was asked to collect and could not: one note a source, until it can."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stateanalytics.io.outputs import put_whole

FOLDER = "attempts"


@dataclass(frozen=True)
class Attempt:
    """The last time that a source was asked for and gave nothing.

    Attributes
    ----------
    key, label : str
        The `manifests.source_key`, and how it was named.
    at : datetime or None
        When; None: the note cannot be read.
    message : str
        Why it gave nothing.
    """

    key: str
    label: str
    at: datetime | None
    message: str


def path_of(root: Path, key: str) -> Path:
    """Where the note of a source lies."""
    return root / FOLDER / f"{key}.json"


def note_attempts(root: Path, failed: Iterable[Attempt], collected: Iterable[str]) -> None:
    """Keep a note of what failed, and none of what was collected since.

    Raises
    ------
    OSError
        If the archive cannot be written to.
    """
    for key in collected:
        path_of(root, key).unlink(missing_ok=True)
    for attempt in failed:
        (root / FOLDER).mkdir(parents=True, exist_ok=True)
        at = None if attempt.at is None else attempt.at.astimezone(UTC).isoformat()
        words = {"label": attempt.label, "at": at, "message": attempt.message}
        put_whole(path_of(root, attempt.key), json.dumps(words, indent=1).encode())


def read_attempts(root: Path) -> dict[str, Attempt]:
    """The notes of an archive, by source; one that cannot be read says so."""
    folder = root / FOLDER
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return {path.stem: _attempt(path) for path in paths if not path.name.startswith(".")}


def _attempt(path: Path) -> Attempt:
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
        at = datetime.fromisoformat(words["at"]).astimezone(UTC)
        return Attempt(path.stem, str(words["label"]), at, str(words["message"]))
    except (OSError, ValueError, TypeError, KeyError):
        return Attempt(path.stem, path.stem, None, "the note of it cannot be read")
