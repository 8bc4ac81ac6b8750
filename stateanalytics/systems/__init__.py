"""All systems: those of this package, and those of installed packages.

A package adds a system by the entry-point group ``stateanalytics.systems``: the name of the
entry is that of the system, its value leads to a `System`. See ``docs/adding_a_system.md``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from stateanalytics.errors import ArgumentError, StateAnalyticsError, did_you_mean, in_short
from stateanalytics.systems.base import System

if TYPE_CHECKING:
    from stateanalytics.core.schema import Frame

__all__ = ["BUILT_IN", "GROUP", "all_systems", "detail_frames", "limits_of_systems", "system_named"]

BUILT_IN = ("lionagi", "agent_orchestrator", "opencode", "claude_code", "codex")
GROUP = "stateanalytics.systems"


@cache
def all_systems() -> tuple[System, ...]:
    """Every system, in the order in which paths are tried and pages name them.

    Raises
    ------
    StateAnalyticsError
        If two installed packages have a system of the same name.

    Warns
    -----
    RuntimeWarning
        For an installed system that cannot be loaded; it is excluded.

    Examples
    --------
    >>> [known.name for known in all_systems()][:2]
    ['lionagi', 'agent_orchestrator']
    """
    systems = {name: import_module(f"stateanalytics.systems.{name}").SYSTEM for name in BUILT_IN}
    origins = dict.fromkeys(BUILT_IN, "stateanalytics")
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        origin = entry.dist.name if entry.dist else entry.value
        loaded = _loaded(entry, origin)
        if loaded is None:
            continue
        if loaded.name in systems:
            raise StateAnalyticsError(
                f"Two packages define a system {loaded.name!r}: {origins[loaded.name]} "
                f"and {origin}.",
                "uninstall one of the two",
            )
        systems[loaded.name], origins[loaded.name] = loaded, origin
    return tuple(systems.values())


def system_named(name: str) -> System:
    """The system with a name.

    Raises
    ------
    ArgumentError
        If there is none; the error lists all names.

    Examples
    --------
    >>> system_named("opencode").runs.entity_type
    'turn'
    """
    for known in all_systems():
        if known.name == name:
            return known
    names = [known.name for known in all_systems()]
    raise ArgumentError(
        f"There is no system {in_short(name)}; there are {', '.join(names)}.",
        "use one of these, or install the package that adds it" + did_you_mean(name, names),
    )


@cache
def limits_of_systems() -> Mapping[str, Mapping[str, float]]:
    """The time limits for open work, of systems that have their own."""
    return {known.name: known.limits for known in all_systems() if known.limits}


@cache
def stop_commands() -> Mapping[str, str]:
    """How a person stops a run, by system; ID is the id of the run, empty: not known."""
    return {known.name: known.runs.stop for known in all_systems()}


@cache
def detail_frames(systems: frozenset[str] | None = None) -> Mapping[str, Frame]:
    """The frames that some systems, or all, add to the canonical ones, by name."""
    chosen = (known for known in all_systems() if systems is None or known.name in systems)
    return {frame.name: frame for known in chosen for frame in known.frames()}


def _loaded(entry: EntryPoint, origin: str) -> System | None:
    """The system of an entry point; None, with a warning, where its package is broken."""
    try:
        value = entry.load()
    # Whatever the code of somebody else's package raises on import.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if isinstance(value, System):
            return value
        problem = f"{entry.value} is a {type(value).__name__}, not a System"
    warnings.warn(
        f"The system {entry.name!r} of the package {origin} cannot be loaded and is excluded: "
        f"{problem}",
        RuntimeWarning,
        stacklevel=3,
    )
    return None
