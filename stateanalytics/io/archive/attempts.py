"""What an archive was asked to collect and could not: one note a source, until it can."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from stateanalytics.io.files import as_moment, as_text, read_json_object
from stateanalytics.io.outputs import put_whole

FOLDER = "attempts"
_NAME = re.compile(r"[0-9a-f]{16}\.json")
_MOST_BYTES = 1_000_000


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
        # What holds notes alone is an archive too: the next run must find its way in.
        for folder in ("manifests", FOLDER):
            (root / folder).mkdir(parents=True, exist_ok=True)
        at = None if attempt.at is None else attempt.at.astimezone(UTC).isoformat()
        words = {"label": attempt.label, "at": at, "message": attempt.message}
        put_whole(path_of(root, attempt.key), json.dumps(words, indent=1).encode())


def read_attempts(root: Path) -> dict[str, Attempt]:
    """The notes of an archive, by source; one that cannot be read says so."""
    folder = root / FOLDER
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return {path.stem: _attempt(path) for path in paths if _NAME.fullmatch(path.name)}


def _attempt(path: Path) -> Attempt:
    words = read_json_object(path, max_bytes=_MOST_BYTES).value or {}
    label, at, message = as_text(words.get("label")), words.get("at"), as_text(words.get("message"))
    if label is None or message is None:
        return Attempt(path.stem, path.stem, None, "the note of it cannot be read")
    return Attempt(path.stem, label, as_moment(at), message)
