"""Every reason code that is known, what it means and what to do about it.

One registry: the codes of each system (`System.reason_codes`: that it writes, or that its
words are mapped to), ``adr0033`` (most of which nobody writes) and ``stateanalytics`` (the
reasons that this package infers). Codes outside of it stay visible under their own name;
the audit has a row for each, where the system closes its list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl

from stateanalytics.core.engines import TEXT, adapt
from stateanalytics.core.package_tables import read_table
from stateanalytics.core.vocabulary import TABLES, ReasonCode
from stateanalytics.state.signatures import domain
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import codes_from_csv

LEGACY_IMPORTED = "legacy.imported"
"""The one code of two segments."""

DOMAINS = (*TABLES, "run", "schedule_definition", "system", "knowledge")
"""First segments: domains of the recorders, ADR-0033's entity types, and those we infer about."""


class _InferredCause(NamedTuple):
    dimension: str
    cause: str
    meaning: str
    what_to_do: str


def _inferred() -> Iterator[ReasonCode]:
    """What an inferred reason says, for every entity that it may be inferred about."""
    causes = read_table("stateanalytics.state", "inferred_codes.csv", _InferredCause)
    for entity_type in TABLES:
        for cause in causes:
            yield ReasonCode(
                f"{domain(entity_type)}.{cause.dimension}.{cause.cause}",
                "stateanalytics",
                (entity_type,),
                "",
                cause.meaning,
                cause.what_to_do,
                emitted_by="states",
            )


def _registry() -> Mapping[str, ReasonCode]:
    """All codes; ADR-0033's words come before a system's, an earlier system's before a later."""
    everything = (
        *_inferred(),
        *(code for system in reversed(all_systems()) for code in system.reason_codes()),
        *codes_from_csv("stateanalytics.state"),
    )
    return MappingProxyType({code.code: code for code in everything})


REGISTRY: Mapping[str, ReasonCode] = _registry()

OURS = ("adr0033", "stateanalytics")
"""Origins of codes that every system may write."""

# Either namespace's rule, registered or not: the recorders' ``domain.status.cause`` or ADR-0033's
# ``entity_type.dimension.cause``.
_SEGMENT = "[a-z][a-z0-9_]*"
FORM = rf"^(?:{'|'.join(DOMAINS)})\.{_SEGMENT}\.{_SEGMENT}$"


def parents(code: str) -> tuple[str, ...]:
    """The groups a code belongs to, widest first.

    Examples
    --------
    >>> parents("run.failed.exit_nonzero")
    ('run', 'run.failed')
    """
    parts = code.split(".")
    return tuple(".".join(parts[:size]) for size in range(1, len(parts)))


def reason_codes() -> pl.DataFrame:
    """The registry as a frame, sorted by code; lists are joined by ``|``.

    Examples
    --------
    >>> reason_codes().filter(pl.col("origin") == "adr0033").height
    14
    """
    rows = [
        {
            **vars(known),
            "entity_types": "|".join(known.entity_types),
            "nearest": "|".join(known.nearest),
            "domain": parents(known.code)[0],
        }
        for known in REGISTRY.values()
    ]
    return pl.DataFrame(rows).sort("code")


def with_code_facts(frame: Any, *, column: str = "reason_code") -> Any:
    """What the registry says about the code of each row.

    Parameters
    ----------
    frame : frame
    column : str, default "reason_code"
        The column of codes.

    Returns
    -------
    frame
        The same rows and kind with ``code_domain`` (``run``), ``code_group``
        (``run.failed``), ``is_code_valid``, ``is_code_registered`` (null without a
        code), ``code_meaning`` and ``code_what_to_do`` (null for unregistered codes).

    Examples
    --------
    >>> codes = pl.DataFrame({"reason_code": ["run.failed.exception", "made.up"]})
    >>> with_code_facts(codes).select("code_group", "is_code_valid").rows()
    [('run.failed', True), ('made', False)]
    """
    adapter = adapt(frame, {column: TEXT}, "with_code_facts")
    code = nw.col(column)
    meanings = {known.code: known.meaning for known in REGISTRY.values()}
    steps = {known.code: known.what_to_do for known in REGISTRY.values()}
    is_formed = code.str.contains(FORM)
    return adapter.give_back(
        adapter.frame.with_columns(
            code_domain=code.str.replace_all(r"\..*$", ""),
            code_group=code.str.replace_all(r"\.[^.]*$", ""),
            is_code_valid=is_formed | (code == LEGACY_IMPORTED),
            is_code_registered=nw.when(~code.is_null()).then(code.is_in(sorted(REGISTRY))),
            code_meaning=code.replace_strict(meanings, default=None, return_dtype=nw.String),
            code_what_to_do=code.replace_strict(steps, default=None, return_dtype=nw.String),
        )
    )
