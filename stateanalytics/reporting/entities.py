"""How a single entity is shown: its status pill, its command and its row in the list of runs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.text import shell_word
from stateanalytics.core.words import dollars, how_long
from stateanalytics.io.archive.delta import name_of
from stateanalytics.reporting.material import Material, Plain, iso
from stateanalytics.state.definitions import RUN
from stateanalytics.state.policy import NAMES, Policy

LEGACY_TOOLTIP = (
    "Sessions created before the current status vocabulary. Excluded from live operational metrics."
)
"""The text of ADR-0025 for a status outside of its vocabulary."""


@dataclass(frozen=True)
class Colours:
    """A soft background and a strong foreground, for light and for dark pages.

    The contrasts are those of the ADR's table; a test computes them again.
    """

    light_background: str
    light_foreground: str
    light_contrast: float
    dark_background: str
    dark_foreground: str
    dark_contrast: float


COLOURS: Mapping[str, Colours] = {
    "success": Colours("#ECFDF3", "#067647", 5.4, "#062C1B", "#86EFAC", 10.8),
    "running": Colours("#EFF6FF", "#175CD3", 5.5, "#0B1E3D", "#93C5FD", 9.2),
    "error": Colours("#FEF3F2", "#B42318", 6.0, "#3B0A0A", "#FCA5A5", 9.0),
    "warning": Colours("#FFFAEB", "#B54708", 5.2, "#3A2604", "#FCD34D", 10.0),
    "stale": Colours("#FFF7ED", "#C2410C", 4.9, "#331C05", "#FDBA74", 9.5),
    "neutral": Colours("#F3F4F6", "#374151", 9.4, "#1F2937", "#D1D5DB", 10.0),
    "review": Colours("#F5F3FF", "#6D28D9", 6.5, "#23153E", "#C4B5FD", 9.1),
}


TOKEN_OF_TONE: Mapping[str, str] = {
    "danger": "error",
    "warning": "warning",
    "info": "running",
    "success": "success",
}
# The ADR names icons for the six statuses, and one for silence.
ICON_OF_LIFECYCLE: Mapping[str, str] = {
    **dict.fromkeys(("running", "active", "enabled"), "activity"),
    **dict.fromkeys(("completed", "succeeded", "merged", "run_complete"), "check"),
    "failed": "x-circle",
    "timed_out": "hourglass",
    **dict.fromkeys(("aborted", "blocked"), "stop"),
    **dict.fromkeys(("cancelled", "skipped"), "slash"),
}
STALE_ICON = "clock"
OTHER_ICON = "dash"


def pill_of(row: Mapping[str, Any]) -> Plain:
    """The status pill of an entity: its label, colour, icon and tooltip.

    Parameters
    ----------
    row : mapping
        ``lifecycle``, ``tone``, ``effective_state`` and ``is_legacy``.

    Returns
    -------
    dict
        ``label``, ``token`` (of ADR-0025's colours), ``icon``, ``is_dotted`` and ``tooltip``
        (None: the label is enough).

    Examples
    --------
    >>> row = {"lifecycle": "running", "tone": "danger", "effective_state": "stale running"}
    >>> pill_of({**row, "is_legacy": False})["icon"]
    'clock'
    >>> pill_of({**row, "is_legacy": True})["tooltip"][:45]
    'Sessions created before the current status vo'
    """
    state = row["effective_state"] or (row["lifecycle"] or "unknown").replace("_", " ")
    is_legacy = bool(row["is_legacy"])
    usual = ICON_OF_LIFECYCLE.get(row["lifecycle"], OTHER_ICON)
    icon = STALE_ICON if state.startswith("stale ") else usual
    return {
        "label": state,
        "token": TOKEN_OF_TONE.get(row["tone"], "neutral"),
        "icon": OTHER_ICON if is_legacy else icon,
        "is_dotted": is_legacy,
        "tooltip": LEGACY_TOOLTIP if is_legacy else None,
    }


_LONGEST_PLACE = 120
_KEY = ("entity_type", "entity_id")
_COLUMNS = (*_KEY, "source", "name", "kind", "agent", "model", "project", "invocation_id")


def named_runs(summary: Plain, material: Material) -> list[Plain]:
    """The rows of the list of runs: every entity that a section names.

    Parameters
    ----------
    summary : dict
        The sections of a report, as they were made.
    material : Material
        What they were made from.

    Returns
    -------
    list of dict
        By type and id; where several stores have an id, all of them. ``command`` shows the
        whole history of an entity.
    """
    named = pl.LazyFrame(
        sorted(set(_ids(summary))), schema=dict.fromkeys(_KEY, pl.String), orient="row"
    )
    rows = material.ever.lazy().join(named, on=_KEY, how="semi").sort(*_KEY, "source").collect()
    # A single run is shown from its own store, which is faster to read than a whole pattern.
    place = _read_at(material.facts, material.policy) + _as_read(material.facts)
    return [_row(row, place) for row in rows.iter_rows(named=True)]


def place_of(facts: Facts, policy: Policy) -> str:
    """The inputs as arguments of a command; empty where nothing was read from a file.

    The options for the instant and the policy come first, where the caller chose them.
    """
    place = _as_read(facts)
    # For many stores, the folder or pattern that named them; commands expand it themselves.
    named = _arguments(facts.named)
    is_long = len(place) > _LONGEST_PLACE and 0 < len(named) < len(place)
    return _read_at(facts, policy) + (named if is_long else place) if place else ""


def _read_at(facts: Facts, policy: Policy) -> str:
    """The options for an instant and a policy; the file of a custom policy is not known here."""
    at = f"{facts.as_of.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}".removesuffix(".000000")
    name = next((name for name in NAMES if Policy.named(name) == policy), "policy.toml")
    instant = f"--as-of {at}Z " if facts.as_of_from == "given" else ""
    return instant + (f"--policy {name} " if name != "v1" else "")


def _as_read(facts: Facts) -> str:
    """Each input that was read, as arguments of a command."""
    if facts.sources.is_empty():
        return ""
    archives = [path.parents[1] for path in facts.inputs if path.parent.name == "manifests"]
    live = facts.sources
    if archives:
        # The source of archived rows is the original store; the input is the archive.
        live = live.filter(pl.col("looked_at").is_null())
    return _arguments([*map(_relative, archives), *live["source"]])


def _arguments(paths: Iterable[str]) -> str:
    return " ".join(map(_argument, dict.fromkeys(paths)))


def _argument(path: str) -> str:
    """A path as a shell argument, with ``~`` for the home folder, to hide the name of the user."""
    home = f"{Path.home()}{os.sep}"
    # A shell does not expand a tilde inside of quotes.
    return f"~/{shell_word(path[len(home) :])}" if path.startswith(home) else shell_word(path)


def _relative(path: Path) -> str:
    relative, named = os.path.relpath(path), name_of(path)
    return named if named != str(path) or relative.startswith(os.pardir) else relative


def show_command(entity: Mapping[str, Any], place: str) -> str:
    """The command that shows an entity; its id is quoted for the shell."""
    # After two dashes, an id that begins like an option is read as an id.
    dashes = "--" if entity["entity_id"].startswith("-") else ""
    own = _argument(entity.get("source") or "")
    # Where many stores were read, it is faster to read only that of the entity.
    is_alone = len(place) > _LONGEST_PLACE and f" {own} " in f" {place} "
    inputs = _READ_AT.sub("", place)
    how, own = place.removesuffix(inputs).rstrip(), own if is_alone else inputs
    return command("show", how, dashes, own, shlex.quote(entity["entity_id"]))


_READ_AT = re.compile(r"^(--(as-of|policy) \S+ )*")
PROGRAM = "stateanalytics"
"""How commands begin in a summary; `with_program` replaces it."""


def command(*arguments: str) -> str:
    """A command of this package, without the arguments that are empty."""
    return " ".join((PROGRAM, *filter(None, arguments)))


def with_program(part: Any, program: str) -> Any:
    """The same plain data, with commands that begin with ``program`` instead of `PROGRAM`.

    Examples
    --------
    >>> with_program([{"command": "stateanalytics show a.db s1"}], "python -m stateanalytics")
    [{'command': 'python -m stateanalytics show a.db s1'}]
    """
    if isinstance(part, Mapping):
        own = part.get("command")
        walked = {key: with_program(value, program) for key, value in part.items()}
        if isinstance(own, str) and own.startswith(f"{PROGRAM} "):
            walked["command"] = program + own.removeprefix(PROGRAM)
        return walked
    return [with_program(one, program) for one in part] if isinstance(part, list) else part


def _ids(part: Any) -> Iterator[tuple[str, str]]:
    """Type and id of everything that has an id; without a type it is a run."""
    if isinstance(part, Mapping):
        if part.get("entity_id"):
            yield part.get("entity_type", RUN), part["entity_id"]
        # The page shows only the first late runs; the JSON has them all.
        shown = {**part, "rows": part["rows"][: part["n_shown"]]} if "n_shown" in part else part
        for value in shown.values():
            yield from _ids(value)
    elif isinstance(part, list):
        for value in part:
            yield from _ids(value)


def _row(row: Plain, place: str) -> Plain:
    lasted = row["age_s"] if row["is_open"] else row["duration_s"]
    cost = row["cost_usd"]
    return {
        **{name: row[name] for name in _COLUMNS},
        "pill": pill_of(row),
        "severity": row["severity"],
        "began_at": iso(row["started_at"] or row["created_at"]),
        "ended_at": None if row["is_open"] else iso(row["placed_at"]),
        "lasted": None if lasted is None else how_long(lasted),
        "cost": None if cost is None else dollars(cost),
        "code": row["reason_code"],
        "message": row["reason_message"],
        "command": show_command(row, place),
    }
