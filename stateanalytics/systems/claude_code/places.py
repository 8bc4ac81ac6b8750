"""Where Claude Code keeps its transcripts, and how to tell them from other files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from stateanalytics.io.files import beginning_of, folders_below, legible, read_json_object
from stateanalytics.io.processes import Process

HISTORY = "history.jsonl"
_SUFFIX = ".jsonl"
_PROJECTS = "projects"
_SETTINGS = "settings.json"
_MOST_FILES = 200
_TYPES = rb"user|assistant|system|summary|progress|attachment|file-history-snapshot|queue-operation"
_TYPES += rb"|permission-mode|ai-title|custom-title|agent-name|agent-setting|last-prompt|pr-link"
_TYPED = re.compile(rb'"type"\s*:\s*"(?:' + _TYPES + rb')"')
_OWN_KEY = re.compile(rb'"(?:sessionId|leafUuid|isSnapshotUpdate)"\s*:')
# The journal lists starts and ends of subagents; their own transcripts say more.
_NO_TRANSCRIPTS = ("journal.jsonl", HISTORY)
_NO_FOLDERS = ("tool-results", "memory")


def find(path: Path) -> list[Path]:
    """The path itself, if it is a root, its ``projects``, one project or one transcript.

    Parameters
    ----------
    path : pathlib.Path
        Only the names and the first bytes of files are looked at.

    Returns
    -------
    list of pathlib.Path
        One input at most: usage is counted once over all transcripts of a root.
    """
    try:
        if path.is_file():
            return [path] if path.suffix == _SUFFIX and _is_transcript(path) else []
        root = path / _PROJECTS
        folder = root if root.is_dir() else path
        return [path] if any(_is_transcript(file) for file in _first_files(folder)) else []
    except OSError:
        return []


def _first_files(folder: Path) -> Iterator[Path]:
    """Some files that may be transcripts, of a project or of the projects of a root."""
    patterns = (f"*{_SUFFIX}", f"*/*{_SUFFIX}", f"*/subagents/*{_SUFFIX}")
    files = (file for pattern in patterns for file in folder.glob(pattern))
    yield from (file for file in islice(files, _MOST_FILES) if file.name not in _NO_TRANSCRIPTS)


def _is_transcript(path: Path) -> bool:
    """Whether a file begins with records of a transcript."""
    begin = beginning_of(path)
    return bool(_TYPED.search(begin)) and bool(_OWN_KEY.search(begin))


def evidence(path: Path) -> bool:
    """Whether a file is a transcript; settings and lists of prompts are no evidence."""
    return path.suffix == _SUFFIX and path.name not in _NO_TRANSCRIPTS and _is_transcript(path)


def transcripts_of(path: Path) -> list[Path]:
    """Every transcript of an input, subagents' too, in the order of their paths.

    Notes
    -----
    Folders of any depth count: workflows and older installations nest deeper. Linked folders
    count once.
    """
    if path.is_file():
        return [path, *sorted((path.with_suffix("") / "subagents").rglob(f"agent-*{_SUFFIX}"))]
    root = path / _PROJECTS if (path / _PROJECTS).is_dir() else path
    return sorted(
        Path(folder) / name
        for folder, names in folders_below([root], _NO_FOLDERS)
        for name in names
        if name.endswith(_SUFFIX) and name not in _NO_TRANSCRIPTS
    )


def opens(path: Path, transcripts: list[Path] | None = None) -> list[str | Path]:
    """Every file that is opened of an input, the notes on its subagents too."""
    files = transcripts_of(path) if transcripts is None else transcripts
    notes = (file.with_suffix(".meta.json") for file in files)
    return [*files, *filter(Path.is_file, (*notes, path / _SETTINGS, path / HISTORY))]


def _root_of(path: Path) -> Path:
    """The root itself, or the root of a project or transcript."""
    return next(
        (folder.parent for folder in path.absolute().parents if folder.name == _PROJECTS), path
    )


def settings_of(path: Path) -> dict[str, Any]:
    """The settings of a root, or of the root of a project or transcript."""
    return read_json_object(_root_of(path) / _SETTINGS).value or {}


def processes(path: Path) -> Iterator[Process]:
    """The running processes by their notes; a process that ends deletes its note."""
    for file in sorted((_root_of(path) / "sessions").glob("*.json"))[:_MOST_FILES]:
        note = read_json_object(file).value or {}
        session_id, pid = note.get("sessionId"), note.get("pid")
        if isinstance(session_id, str) and type(pid) is int:
            start, machine = (
                value if isinstance(value := note.get(key), str) else None
                for key in ("procStart", "pidDomain")
            )
            # The status is only written when it changes, so a busy process may still hang.
            is_waiting = note.get("status") == "waiting"
            yield Process(legible(session_id), pid, start, machine, is_waiting)


def companions(path: Path) -> list[Path]:
    """The folder of subagents, if the path is a single transcript that has one."""
    folder = path.with_suffix("") / "subagents"
    return [folder] if path.is_file() and folder.is_dir() else []
