"""What a package that adds a system imports: one module, with a version.

Names of this module stay as they are within one `PLUGIN_VERSION`; everything else of the
package may change at any release. ``docs/adding_a_system.md`` builds a system with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stateanalytics.core import schema
from stateanalytics.core.schema import Column, Frame
from stateanalytics.core.vocabulary import ReasonCode, StatusWord
from stateanalytics.io.cells import Cell
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.io.parts import Parts
from stateanalytics.io.processes import Process
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.systems.base import (
    Auditing,
    Constant,
    Detecting,
    Ends,
    Features,
    Files,
    Home,
    Links,
    Rewinding,
    Runs,
    Stores,
    System,
    Tables,
    Thresholds,
    Words,
    codes_from_csv,
)
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.omissions import kinds_of_files

if TYPE_CHECKING:
    import polars as pl

if TYPE_CHECKING:
    import polars as pl

PLUGIN_VERSION = 1
"""Raised when a name of this module is renamed, removed or means something else."""

__all__ = [
    "PLUGIN_VERSION",
    "Auditing",
    "Cell",
    "Column",
    "Constant",
    "Detecting",
    "Detector",
    "Ends",
    "Features",
    "Files",
    "Frame",
    "Home",
    "Links",
    "Parts",
    "Process",
    "ReasonCode",
    "Rewinding",
    "Runs",
    "StatusWord",
    "Store",
    "Stores",
    "System",
    "Tables",
    "Thresholds",
    "Words",
    "catalogue",
    "codes_from_csv",
    "counted",
    "kinds_of_files",
    "per_entity",
    "prices",
    "read_table",
    "schema",
]


def prices(own: str | Path | None = None) -> pl.DataFrame:
    """List prices of a million tokens of each known model, as `stateanalytics.failures.prices`.

    Parameters
    ----------
    own : str or pathlib.Path, optional
        A TOML file with prices of your own, which come first.

    Returns
    -------
    polars.DataFrame
        One row a model: ``model`` and the prices in dollars, ``input_usd`` and the like.

    Examples
    --------
    >>> prices().filter(model="gpt-5")["input_usd"].item()
    1.25
    """
    # Not at the top: what failures need is loaded after all systems are.
    from stateanalytics.failures.run_costs import prices as known

    return known(own)
