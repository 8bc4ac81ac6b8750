"""The sections of a report, in the order of the page: each makes plain data from one material.

A section is a module here, whose `SECTION` says its name and place and which function gives
its numbers and sentences, and the template of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules

from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.reporting.material import Section

HEADLINE = "headline"
"""The section that every report has: its finding stands at the top of the page."""

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
SECTIONS: tuple[Section, ...] = tuple(
    sorted((module.SECTION for module in _MODULES), key=lambda section: section.place)
)


def choose_sections(names: Iterable[str] | None) -> tuple[Section, ...]:
    """The sections of those names in the order of the page; all of them for None.

    Raises
    ------
    ArgumentError
        If a name is no section's.
    """
    if names is None:
        return SECTIONS
    several = isinstance(names, Iterable) and not isinstance(names, str)
    wanted = list(names) if several else [names]
    known = [section.name for section in SECTIONS]
    for name in wanted:
        if name not in known:
            raise ArgumentError(
                f"A report has no section {in_short(name)}; there are {', '.join(known)}.",
                "name some of these" + did_you_mean(str(name), known),
            )
    return tuple(section for section in SECTIONS if section.name in {*wanted, HEADLINE})
