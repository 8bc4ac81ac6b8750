"""Every canonical frame: its row, key and columns, each said once, in ``data/``.

Everything that leaves `sources` has the shape written here, whatever system it
came from. The page `stateanalytics sql --schema`, ``snap.schema()`` and the tables that
SQL sees are all made from this module.

Conventions, everywhere: moments are ``Datetime("us", "UTC")`` and end in ``_at``;
durations are float seconds and end in ``_s``; counts start with ``n_``; Booleans
with ``is_`` or ``has_``; ids are strings; **null means not known**.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import polars as pl

from stateanalytics.core.package_tables import table_rows

MOMENT = pl.Datetime("us", "UTC")

# --- vocabularies (ADR-0033's words; what is closed there is an Enum here) -------------

LIFECYCLES = (
    "draft",
    "planned",
    "pending",
    "queued",
    "enabled",
    "active",
    "running",
    "idle",
    "paused",
    "blocked",
    "run_complete",
    "completed",
    "succeeded",
    "merged",
    "failed",
    "timed_out",
    "cancelled",
    "aborted",
    "skipped",
    "archived",
    "closed",
    "disabled",
    "unknown",
)
OUTCOMES = (
    "succeeded",
    "completed",
    "merged",
    "failed",
    "timed_out",
    "cancelled",
    "aborted",
    "skipped",
    "unknown",
)
HEALTHS = (
    "ok",
    "running",
    "due",
    "idle",
    "degraded",
    "disconnected",
    "blocked",
    "stalled",
    "misfired",
    "process_dead",
    "orphaned",
    "unknown",
)
DELIVERIES = ("passed", "partial", "missing", "invalid", "not_expected", "unknown")
SEVERITIES = ("critical", "warning", "info", "neutral")
TONES = ("danger", "warning", "info", "success", "neutral")
CLAIM_STATUSES = ("observed", "inferred", "hypothesis", "verified", "disputed", "superseded")
DIMENSIONS = ("lifecycle", "health", "delivery")
END_WRITERS = ("executor", "observer", "import")
FINDING_SEVERITIES = ("error", "warning", "info")

TEXT, INTEGER, REAL, YES_NO = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()


@dataclass(frozen=True)
class Column:
    """One column of a canonical frame."""

    name: str
    dtype: pl.DataType
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Frame:
    """One canonical frame: what a row is, what identifies it, its columns."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def named(self, *names: str) -> tuple[Column, ...]:
        """Its columns of these names, for a frame in which they mean the same."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in names)

    @cached_property
    def dtypes(self) -> pl.Schema:
        """The frame's columns and dtypes, in order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @cached_property
    def _without_rows(self) -> pl.DataFrame:
        # A small store asks for ninety of these, a quarter of the time it takes to read.
        return pl.DataFrame(schema=self.dtypes)

    def empty(self) -> pl.DataFrame:
        """A frame of this shape without rows."""
        return self._without_rows.clone()

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give ``frame`` exactly these columns: in order, cast, absent ones null."""
        if list(frame.schema.items()) == list(self.dtypes.items()):
            return frame
        there = set(frame.columns)
        return frame.select(
            given if name in there else absent for name, (given, absent) in self._written.items()
        )

    @cached_property
    def _written(self) -> dict[str, tuple[pl.Expr, pl.Expr]]:
        """Each column as `conform` takes it: cast where it is there, null where it is not."""
        return {
            name: (pl.col(name).cast(dtype), pl.lit(None, dtype=dtype).alias(name))
            for name, dtype in self.dtypes.items()
        }


NO_WORD = "none"
"""In a ``recorded_`` column: the axis does not apply, which null would leave to the rules."""

CODE_SEPARATOR = ", "
"""What joins reason codes into one text."""

RECORDED_REASON = ("dimension", "code", "message", "claim_status", "confidence", "evidence")
"""The keys of each object in ``recorded_reasons``: columns of `REASONS`."""

ENTITY_KEY = ("source", "system", "entity_type", "entity_id")

_DTYPES = MappingProxyType(
    {
        **{"text": TEXT, "integer": INTEGER, "real": REAL, "yes_no": YES_NO, "moment": MOMENT},
        **{"day": pl.Date(), "texts": pl.List(TEXT), "any": pl.Unknown()},
        "lifecycle": pl.Enum(LIFECYCLES),
        "outcome": pl.Enum(OUTCOMES),
        "health": pl.Enum(HEALTHS),
        "delivery": pl.Enum(DELIVERIES),
        "severity": pl.Enum(SEVERITIES),
        "tone": pl.Enum(TONES),
        "dimension": pl.Enum(DIMENSIONS),
        "claim_status": pl.Enum(CLAIM_STATUSES),
    }
)


def frames_of(package: str, like: Frame | None = None) -> tuple[Frame, ...]:
    """The frames that a package writes down: ``data/frames.csv``, and ``data/columns.csv``.

    Parameters
    ----------
    package : str
    like : Frame, optional
        What has the columns that a row only names, without a dtype; else the first row
        above of that name.

    Notes
    -----
    A dtype is a key of `_DTYPES`, or the words of an Enum with ``|`` between them.
    """
    shared = {column.name: column for column in like.columns} if like else {}
    columns: dict[str, dict[str, Column]] = {}
    described: dict[str, Column] = {}
    for row in table_rows(package, "columns.csv"):
        name, dtype = row["column"], row["dtype"]
        if dtype:
            words = pl.Enum(dtype.split("|")) if "|" in dtype else _DTYPES[dtype]
            column = Column(name, words, row["meaning"], row["unit"])
            described.setdefault(name, column)
        else:
            column = shared.get(name) or described[name]
        columns.setdefault(row["frame"], {})[name] = column
    return tuple(
        Frame(
            row["frame"],
            row["row"],
            tuple(filter(None, row["key"].split("|"))),
            tuple(columns[row["frame"]].values()),
        )
        for row in table_rows(package, "frames.csv")
    )


_OWN = frames_of("stateanalytics.core")
ENTITIES, TRANSITIONS, EVENTS, FINDINGS, STATES, REASONS, AUDIT = _OWN[:7]
SOURCES, SPELLS, TIMEOUTS, PHANTOMS, CHANGES, DIFF = _OWN[7:13]
RETURNED = _OWN[11:]
"""Frames that functions of `stateanalytics` itself return and SQL cannot name."""
KEY_COLUMNS = ENTITIES.named(*ENTITY_KEY)

FACTS = (ENTITIES, TRANSITIONS, EVENTS, FINDINGS, SOURCES)
DERIVED = (STATES, REASONS, AUDIT, SPELLS, TIMEOUTS)
FRAMES = {frame.name: frame for frame in (*FACTS, *DERIVED)}
"""Every canonical frame; systems add theirs (`systems.detail_frames`)."""
