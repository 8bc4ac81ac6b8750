"""Where Claude Code keeps its transcripts, and how they are told from other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from stateanalytics.io.files import legible, open_regular, read_json_object
from stateanalytics.io.processes import Process

SUFFIX = ".jsonl"
PROJECTS = "projects"
SETTINGS = "settings.json"
HISTORY = "history.jsonl"
_HEAD_BYTES = 2**16
_MOST_LOOKED_AT = 200
_TYPES = rb"user|assistant|system|summary|progress|attachment|file-history-snapshot|queue-operation"
_TYPES += rb"|permission-mode|ai-title|custom-title|agent-name|agent-setting|last-prompt|pr-link"
_TYPED = re.compile(rb'"type"\s*:\s*"(?:' + _TYPES + rb')"')
_OWN_KEY = re.compile(rb'"(?:sessionId|leafUuid|isSnapshotUpdate)"\s*:')
# Records of subagents' starts and ends, which their own transcripts tell better.
NO_TRANSCRIPTS = ("journal.jsonl", HISTORY)
_NO_FOLDERS = ("tool-results", "memory")


def find(path: Path) -> list[Path]:
    """The path itself, if it is a root, its ``projects``, one project or one transcript.

    Parameters
    ----------
    path : pathlib.Path
        Looked at for names and beginnings of files only.

    Returns
    -------
    list of pathlib.Path
        One input at most: usage is counted once over all transcripts of a root.
    """
    try:
        if path.is_file():
            return [path] if path.suffix == SUFFIX and is_transcript(path) else []
        root = path / PROJECTS
        folder = root if root.is_dir() and not root.is_symlink() else path
        found = any(is_transcript(file) for file in _first_files(folder))
    except OSError:
        return []
    return [path] if found else []


def _first_files(folder: Path) -> Iterator[Path]:
    """Some files that may be transcripts, of a project or of the projects of a root."""
    n_left = _MOST_LOOKED_AT
    for pattern in (f"*{SUFFIX}", f"*/*{SUFFIX}", f"*/subagents/*{SUFFIX}"):
        for file in folder.glob(pattern):
            if not n_left:
                return
            n_left -= 1
            if file.name not in NO_TRANSCRIPTS:
                yield file


def is_transcript(path: Path) -> bool:
    """Does a file begin with records of a transcript."""
    try:
        with open_regular(path) as file:
            begin = file.read(_HEAD_BYTES)
    except OSError:  # one file that may not be read hides no other
        return False
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        begin = begin.decode("utf-16", "replace").encode()
    return bool(_TYPED.search(begin)) and bool(_OWN_KEY.search(begin))


def evidence(path: Path) -> bool:
    """A transcript; settings and lists of prompts prove nothing."""
    return path.suffix == SUFFIX and path.name not in NO_TRANSCRIPTS and is_transcript(path)


def transcripts_of(path: Path) -> list[Path]:
    """Every transcript of an input, subagents' too, in the order of their paths.

    Notes
    -----
    Depth says nothing: older installations nested deeper. Links are not followed, as one
    may lead back.
    """
    if path.is_file():
        return [path, *sorted((path.with_suffix("") / "subagents").glob(f"agent-*{SUFFIX}"))]
    root = path / PROJECTS if (path / PROJECTS).is_dir() else path
    found = []
    for folder, inner, names in os.walk(root):
        if Path(folder).name != PROJECTS:
            inner[:] = [name for name in inner if name not in _NO_FOLDERS]
        told = (name for name in names if name.endswith(SUFFIX) and name not in NO_TRANSCRIPTS)
        found += [Path(folder) / name for name in told]
    return sorted(found)


def opens(path: Path) -> list[str | Path]:
    """All that is opened of an input, the notes on its subagents too."""
    files = transcripts_of(path)
    notes = (file.with_suffix(".meta.json") for file in files)
    beside = (path / SETTINGS, path / HISTORY)
    return [*files, *filter(Path.is_file, (*notes, *beside))]


def root_of(path: Path) -> Path:
    """The root itself, or that in which a project or transcript lies."""
    return next((each.parent for each in path.absolute().parents if each.name == PROJECTS), path)


def processes(path: Path) -> Iterator[Process]:
    """The processes that wrote down that they run; one that ends takes its note away."""
    for note in sorted((root_of(path) / "sessions").glob("*.json"))[:_MOST_LOOKED_AT]:
        said = read_json_object(note).value or {}
        session_id, pid = said.get("sessionId"), said.get("pid")
        if isinstance(session_id, str) and type(pid) is int:
            start, machine = (
                value if isinstance(value := said.get(key), str) else None
                for key in ("procStart", "pidDomain")
            )
            yield Process(legible(session_id), pid, start, machine)


def beside(path: Path) -> list[Path]:
    """The subagents of a transcript that is named alone."""
    folder = path.with_suffix("") / "subagents"
    return [folder] if path.is_file() and folder.is_dir() else []
