"""What a package that adds a system imports: one module, with a version.

Names of this module stay as they are within one `PLUGIN_VERSION`; everything else of the
package may change at any release. ``docs/adding_a_system.md`` builds a system with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.schema import Column, Frame
from stateanalytics.core.vocabulary import ReasonCode, StatusWord
from stateanalytics.io.cells import Cell
from stateanalytics.io.files import (
    as_count,
    as_moment,
    as_number,
    as_text,
    beginning_of,
    files_below,
    read_json_object,
    read_octets,
    without_halves,
)
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.io.json_lines import BAD, chunks_of, in_pieces, losses, records_of
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
from stateanalytics.systems.situations import cause_in, cause_of_error
from stateanalytics.systems.tool_calls import calls_from, inputs_of, results_of

PLUGIN_VERSION = 1
"""Raised when a name of this module is renamed, removed or means something else."""

__all__ = [
    "PLUGIN_VERSION", "Auditing", "Cell", "Column", "Constant", "Detecting", "Detector", "Ends",
    "Features", "Files", "Frame", "Home", "Links", "Parts", "Process", "ReasonCode", "Rewinding",
    "Runs", "StatusWord", "Store", "Stores", "System", "Tables", "Thresholds", "Words",
    "as_count", "as_moment", "as_number", "as_text", "beginning_of", "calls_from", "catalogue",
    "cause_in", "cause_of_error", "codes_from_csv", "counted", "files_below", "inputs_of",
    "json_records", "kinds_of_files", "per_entity", "prices", "read_octets", "read_table",
    "results_of", "schema",
]  # fmt: skip


def json_records(
    path: Path, label: str, system: str, *, name: str = ""
) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """The JSON objects of a file, one a line; a ``.json`` file may also be a single one.

    Parameters
    ----------
    path : pathlib.Path
        Plain, or compressed by Zstandard.
    label, system : str
        As in `schema.FINDINGS`.
    name : str
        How findings name the file; its own name if empty.

    Returns
    -------
    records : list of dict
        In the order of lines.
    findings : polars.DataFrame
        Lines that are no JSON object, counted, and a file that cannot be read to its end.

    Examples
    --------
    >>> json_records(Path("nowhere.jsonl"), "here", "a_system")[1]["code"].to_list()
    ['file.vanished']
    """
    file = name or path.name
    if path.suffix == ".json" and (whole := read_json_object(path).value) is not None:
        return [whole], schema.FINDINGS.empty()
    records: list[dict[str, Any]] = []
    bad: list[tuple[str, int, str]] = []
    lost: list[tuple[str, OSError]] = []
    try:
        for piece in in_pieces(chunks_of(path, file, file)):
            for row in records_of(piece).iter_rows(named=True):
                text = row["text"]
                value = None if text is None else _object_in(text)
                if isinstance(value, dict):
                    records.append(value)
                    continue
                code = "line.unfinished" if not row["is_finished"] else "record.not_json"
                if text is None:
                    code = "record.too_long" if row["is_too_long"] else "record.not_utf8"
                bad.append((file, row["line_no"], code))
    except OSError as error:
        lost.append((file, error))
    return records, losses(pl.DataFrame(bad, schema=BAD, orient="row"), lost, label, system)


def _object_in(text: str) -> object:
    """What a text of JSON says, however deep and large; null where it is none."""
    try:
        return json.loads(without_halves(text)[0])
    except (ValueError, RecursionError):
        return None


def prices(own: str | Path | None = None) -> pl.DataFrame:
    """List prices of a million tokens of each known model, as `stateanalytics.failures.prices`.

    Parameters
    ----------
    own : str or pathlib.Path, optional
        A TOML file with prices of your own, which come first.

    Returns
    -------
    polars.DataFrame
        One row per model: ``model`` and the prices in dollars, ``input_usd`` and the like.

    Examples
    --------
    >>> prices().filter(model="gpt-5")["input_usd"].item()
    1.25
    """
    # Not at the top: what failures need is loaded after all systems are.
    from stateanalytics.failures.run_costs import prices as known

    return known(own)
