"""What one reader hands over for one input, before inputs are pooled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from stateanalytics.io.appending import Kept
    from stateanalytics.io.sqlite import Store


@dataclass(frozen=True)
class Parts:
    """The canonical frames of one input.

    Attributes
    ----------
    system : str
        Which orchestrator wrote the input.
    format : str
        The storage generation that was recognised.
    entities, transitions, events, findings : polars.DataFrame
        As documented in `stateanalytics.core.schema`.
    details : mapping of str to polars.DataFrame
        Per-system frames by name.
    label : str
        How the user named the input; the ``source`` column of every frame.
    size_bytes : int
        Size of what was read.
    is_live : bool
        Whether a writer had it open.
    stores : tuple of Store
        Private copies that stay open for raw tables; whoever pools the parts closes them.
    kept : mapping of str to Kept
        Tables that the next read of the same input can go on from.
    """

    system: str
    format: str
    entities: pl.DataFrame
    transitions: pl.DataFrame
    events: pl.DataFrame
    findings: pl.DataFrame
    details: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    label: str = ""
    size_bytes: int = 0
    is_live: bool = False
    stores: tuple[Store, ...] = ()
    kept: Mapping[str, Kept] = field(default_factory=dict)
