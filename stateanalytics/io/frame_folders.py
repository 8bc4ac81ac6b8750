"""Frames that belong together, as a folder of Parquet files with one head in JSON.

::

    fleet/head.json
    fleet/<frame>-<digest>.parquet

The head is written last and names each file by its digest: what was interrupted leaves what
was there before, and what was changed since is seen.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.schema import Frame
from stateanalytics.errors import (
    ArgumentError,
    DamagedStoreError,
    NotAStoreError,
    SourceNotFoundError,
    in_short,
)
from stateanalytics.io.files import read_json_object, refuse_scheme
from stateanalytics.io.opening import read_octets, read_parquet
from stateanalytics.io.outputs import put_whole, refuse_inputs

HEAD = "head.json"
MAX_HEAD_BYTES, MAX_FRAME_BYTES = 10_000_000, 8_000_000_000
_FILE = re.compile(r"[a-z]+-[0-9a-f]{32}\.parquet")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Kind:
    """What a folder holds: its name in heads and in messages, the version, what makes one."""

    name: str
    version: int
    made_by: str


def write_frames(
    path: str | Path, kind: Kind, head: Mapping[str, Any], frames: Mapping[str, pl.DataFrame]
) -> Path:
    """Write frames into a folder, in place of those of the same kind that it held.

    Raises
    ------
    ArgumentError
        If something else is there, or it cannot be written.
    """
    folder = _named(path, kind)
    refuse_inputs(folder, ())
    try:
        if folder.exists() and not _may_be(folder):
            raise ArgumentError(
                f"{str(path)!r} is no {kind.name}, and something is there.",
                "name a new folder, such as 'fleet/'",
            )
        folder.mkdir(parents=True, exist_ok=True)
        listed = {name: _put(folder, name, frame) for name, frame in frames.items()}
        told = {"kind": kind.name, "version": kind.version, **head, "frames": listed}
        put_whole(folder / HEAD, (json.dumps(told, indent=1) + "\n").encode())
        kept = {_file(name, each["sha256"]) for name, each in listed.items()}
        for file in folder.iterdir():
            if _FILE.fullmatch(file.name) and file.name not in kept:
                file.unlink()
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be written: {error.strerror or error}.",
            "name a folder that you may write to",
        ) from None
    return folder


def _named(path: str | Path, kind: Kind) -> Path:
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise ArgumentError(
            f"A {kind.name} needs the name of a folder; found {in_short(path)}.", "'fleet/'"
        )
    refuse_scheme(path)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ArgumentError(f"{str(path)!r}: {error}", "name the folder in full") from None


def _may_be(folder: Path) -> bool:
    """Is nothing there but what a run of `write_frames` leaves."""
    if not folder.is_dir():
        return False
    return all(file.name == HEAD or _FILE.fullmatch(file.name) for file in folder.iterdir())


def _file(name: str, digest: str) -> str:
    return f"{name}-{digest[:32]}.parquet"


def _put(folder: Path, name: str, frame: pl.DataFrame) -> dict[str, Any]:
    octets = io.BytesIO()
    frame.cast({name: _as_written(dtype) for name, dtype in frame.schema.items()}).write_parquet(
        octets
    )
    content = octets.getvalue()
    digest = sha256(content).hexdigest()
    put_whole(folder / _file(name, digest), content)
    return {"sha256": digest, "n_rows": frame.height, "n_bytes": len(content)}


def _as_written(dtype: pl.DataType) -> pl.DataType:
    """Enums are written as the words that they are: another version may have more of them."""
    return pl.String() if isinstance(dtype, pl.Enum) else dtype


def read_frames(
    path: str | Path, kind: Kind, shapes: Callable[[Mapping[str, Any]], Mapping[str, Frame]]
) -> tuple[Mapping[str, Any], dict[str, pl.DataFrame]]:
    """The head and the frames of a folder.

    Parameters
    ----------
    path : str or pathlib.Path
        The folder.
    kind : Kind
        What it must hold.
    shapes : callable
        From the head to the shapes of its frames; a ValueError, TypeError or KeyError says
        that the head makes no sense.

    Raises
    ------
    SourceNotFoundError
        If nothing is there.
    NotAStoreError
        If it is no such folder, or one of another version.
    DamagedStoreError
        If what it holds is not what was written.
    """
    folder = _named(path, kind)
    try:
        text = read_octets(folder / HEAD, MAX_HEAD_BYTES)[0].decode()
        head = json.loads(text)
        is_it = isinstance(head, dict) and head.get("kind") == kind.name
    except (OSError, ValueError, RecursionError) as error:
        raise _no_head(folder, kind, error) from None
    if not is_it:
        raise _no_head(folder, kind, ValueError())
    version = head.get("version")
    if type(version) is not int or version != kind.version:  # True is 1 to Python
        raise NotAStoreError(
            f"{str(path)!r} is a {kind.name} of version {version!r:.20}; this program "
            f"reads {kind.version}.",
            f"count it again: {kind.made_by}",
        )
    try:
        wanted = shapes(head)
        listed = {name: _listed(head["frames"][name]) for name in wanted}
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(folder, kind, f"its head makes no sense ({type(error).__name__})") from None
    return head, {name: _read(folder, kind, shape, listed[name]) for name, shape in wanted.items()}


def kind_at(path: str | Path) -> object:
    """What `write_frames` made at a path, of whatever version and however damaged; or None."""
    found = read_json_object(Path(path).expanduser() / HEAD, max_bytes=MAX_HEAD_BYTES).value
    return None if found is None else found.get("kind")


def _no_head(folder: Path, kind: Kind, error: Exception) -> Exception:
    if not folder.exists():
        return SourceNotFoundError(f"Nothing is at {str(folder)!r}.", f"make one: {kind.made_by}")
    if (folder / HEAD).exists() and not isinstance(error, OSError):
        return _damaged(folder, kind, "its head is none")
    return NotAStoreError(f"{str(folder)!r} is no {kind.name}.", f"make one: {kind.made_by}")


def _damaged(folder: Path, kind: Kind, problem: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"The {kind.name} {str(folder)!r} is damaged: {problem}.", f"make it again: {kind.made_by}"
    )


def _listed(told: Mapping[str, Any]) -> tuple[str, int, int]:
    digest, n_rows, n_bytes = told["sha256"], told["n_rows"], told["n_bytes"]
    if not _DIGEST.fullmatch(digest) or not all(type(n) is int for n in (n_rows, n_bytes)):
        raise ValueError(digest)
    return digest, n_rows, n_bytes


def _read(folder: Path, kind: Kind, shape: Frame, listed: tuple[str, int, int]) -> pl.DataFrame:
    digest, n_rows, n_bytes = listed
    file = _file(shape.name, digest)
    try:
        content, status = read_octets(folder / file, min(max(n_bytes, 0), MAX_FRAME_BYTES))
        if sha256(content).hexdigest() != digest:
            raise _damaged(folder, kind, f"{file} is not what was written")
        rows = read_parquet(io.BytesIO(content), status)
        plain = {name: _as_written(dtype) for name, dtype in shape.dtypes.items()}
        if dict(rows.schema) != plain or rows.height != n_rows:
            raise _damaged(folder, kind, f"{file} has other rows or columns")
        return shape.conform(rows)
    except OSError as error:
        problem = f"{file} cannot be read ({error.strerror or 'too short'})"
        raise _damaged(folder, kind, problem) from None
    except pl.exceptions.PolarsError:
        raise _damaged(folder, kind, f"{file} does not hold what its name says") from None
