"""One file at a time, with every doubt: what cannot be read is named, and the rest goes on."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io.budget import OVER_BUDGET, BudgetSpentError
from stateanalytics.io.cells import shown
from stateanalytics.io.files import legible, read_octets, without_halves
from stateanalytics.io.findings import MAX_ROWS_PER_CODE
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HALVES = "escapes of half a surrogate pair, which are no characters"
_HARMLESS = ("info",)


@dataclass(frozen=True)
class Fault:
    """What was wrong with a file, or with some lines of it.

    Attributes
    ----------
    code, severity, message, action : str
        As in `schema.FINDINGS`.
    path : str
        The file, below the input.
    n_rows : int
        Lines or records that it concerns.
    example : str, optional
    session_id : str, optional
        The session whose record it is.
    """

    code: str
    severity: str
    message: str
    path: str
    n_rows: int = 1
    example: str | None = None
    session_id: str | None = None
    action: str = "left out"


_FAULTS = {part.name: pl.Int64 if part.name == "n_rows" else pl.String for part in fields(Fault)}


@dataclass(frozen=True)
class Faults:
    """The faults of one input; with ``on_error="raise"`` the first that costs data ends it.

    Attributes
    ----------
    label : str
        The input.
    root : str
        What paths are shown below.
    on_error : str
        ``skip`` or ``raise``.
    """

    label: str
    root: str
    on_error: str = "skip"
    faults: list[Fault] = field(default_factory=list)

    def below(self, path: str) -> str:
        """A path as it is shown: below the input."""
        return legible(self._relative(path))

    def note_name(self, path: str) -> None:
        """Say so where the name of a file that is read is not UTF-8."""
        if not path.isascii() and self.below(path) != self._relative(path):
            message = "its name is not UTF-8"
            action = "read; its name is shown with escapes"
            self.add(Fault("file.name_not_utf8", "info", message, self.below(path), action=action))

    def _relative(self, path: str) -> str:
        relative = path.removeprefix(self.root).replace(os.sep, "/").lstrip("/")
        return relative or os.path.basename(path)  # noqa: PTH119

    def add(self, fault: Fault) -> None:
        """Keep a fault, or end the load.

        Raises
        ------
        DamagedStoreError
            If data are lost and the caller asked for it.
        """
        if self.on_error == "raise" and fault.severity not in _HARMLESS:
            raise DamagedStoreError(
                f"{self.label!r} was to be read whole, but {fault.path!r}: {fault.message}"
                + (f" ({fault.example})." if fault.example else "."),
                "leave on_error='raise' out to read the rest and find this under snap.findings",
            )
        self.faults.append(fault)

    def findings(self) -> pl.DataFrame:
        """All of them in the shape of `schema.FINDINGS`; many of one code are counted."""
        names = {"path": "table", "session_id": "entity_id"}
        rows = pl.DataFrame([asdict(fault) for fault in self.faults], schema=_FAULTS).rename(names)
        is_listed = pl.int_range(pl.len()).over("code") < MAX_ROWS_PER_CODE
        more = rows.filter(~is_listed).group_by("code", "severity", maintain_order=True)
        counted = more.agg(pl.col("n_rows").sum()).with_columns(
            message=pl.lit("more of the same, not listed one by one"), action=pl.lit("left out")
        )
        named = pl.concat([rows.filter(is_listed), counted], how="diagonal").with_columns(
            source=pl.lit(self.label),
            system=pl.lit(SYSTEM),
            entity_type=pl.when(pl.col("entity_id").is_not_null()).then(pl.lit("session")),
        )
        return schema.FINDINGS.conform(named)


class Content(NamedTuple):
    """What was in a file: its text (None: it cannot be read), size and last change."""

    text: str | None
    problem: str | None = None
    size_bytes: int = 0
    modified_s: float | None = None


def read_file(path: str, faults: Faults, *, session_id: str | None = None) -> Content:
    """The text of a file, however it is encoded.

    Parameters
    ----------
    path : str
        May be gone by now, unreadable, a pipe, in another encoding.
    faults : Faults
        Where to say what was wrong.
    session_id : str, optional
        The session whose record it is.
    """

    def lost(code: str, problem: str) -> Content:
        fault = Fault(code, "warning", problem, faults.below(path), session_id=session_id)
        faults.add(fault)
        return Content(None, problem)

    try:
        octets, status = read_octets(path)
    except FileNotFoundError:
        return lost("file.vanished", "it was gone when it was to be opened")
    except OSError as error:
        code = "file.too_large" if error.errno == errno.EFBIG else "file.unreadable"
        code = OVER_BUDGET if isinstance(error, BudgetSpentError) else code
        return lost(code, f"it cannot be read: {error.strerror}")
    text, odd = _decoded(octets)
    whole, n_halves = without_halves(text)
    if odd or n_halves:
        below = faults.below(path)
        found = (("file.not_utf8", odd, 1), ("file.half_surrogate", _HALVES, n_halves))
        for code, message, n_rows in found:
            if message and n_rows:
                fault = Fault(code, "info", message, below, n_rows, None, session_id, "converted")
                faults.add(fault)
    return Content(whole, None, len(octets), status.st_mtime)


def _decoded(octets: bytes) -> tuple[str, str | None]:
    """A text, and what was odd about its encoding."""
    try:
        text = octets.decode("utf-8")
    except UnicodeDecodeError:
        if octets.startswith(_UTF16):
            return octets.decode("utf-16", "replace"), "it is UTF-16, not UTF-8"
        return octets.decode("utf-8-sig", "replace"), "some bytes are not UTF-8"
    return text.removeprefix("\ufeff"), None


def example(text: str) -> str:
    """The beginning of a text as one printable line."""
    return shown(text)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for a moment that is not known, where a rule insists on one."""
