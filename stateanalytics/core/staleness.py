"""How long may work of a kind be silent, and is it silent for longer: staleness_check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import NUMBER, TEMPORARY, TEXT, Frame, adapt, encode
from stateanalytics.errors import ArgumentError, in_short, no_such

HOUR_S = 3600.0
STALLED_AFTER_S = MappingProxyType(
    {
        "agent": 6 * HOUR_S,
        "play": 6 * HOUR_S,
        "flow": 12 * HOUR_S,
        "fanout": 12 * HOUR_S,
        "show-play": 12 * HOUR_S,
        "engine": 12 * HOUR_S,
    }
)
"""Silence limits by kind of work, as last shipped; any other kind has the default, 6 h."""
DEFAULT_STALE_AFTER_S = 6 * HOUR_S
FIRST_KINDS = MappingProxyType(
    {kind: limit for kind, limit in STALLED_AFTER_S.items() if kind != "engine"}
)
"""The limits until 0.35, when engines got one of their own."""

STALENESS_VERSIONS = MappingProxyType({"v1": FIRST_KINDS, "v2": STALLED_AFTER_S})
"""``staleness_check``: v1 (0.26.1) did not look at the start, v2 (0.29.1) does."""

AGES = ("last_message_age_s", "updated_age_s", "started_age_s")
_STATUS = f"{TEMPORARY}status"


def staleness_by_age(
    frame: Any, *, thresholds: Mapping[str, float] | None = None, version: str = "v2"
) -> Any:
    """Is running work silent for longer than its kind may be.

    Parameters
    ----------
    frame : frame
        ``status``, ``invocation_kind``; ``last_message_age_s``, ``updated_age_s`` and
        ``started_age_s`` in seconds before now, null where no moment is known.
    thresholds : mapping of str to float, optional
        As for `classify_session_health`.
    version : str
        ``v1`` (0.26.1, which does not look at the start) or ``v2`` (0.29.1).

    Returns
    -------
    frame
        The same kind and rows, with ``staleness`` added: ``stale`` or null.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"status": "running", "invocation_kind": "flow",
    ...     "last_message_age_s": [None], "updated_age_s": [None], "started_age_s": [9.0]})
    >>> staleness_by_age(frame)["staleness"].item(), staleness_by_age(
    ...     frame, version="v1")["staleness"].item()
    (None, 'stale')
    """
    if version not in STALENESS_VERSIONS:
        raise no_such("version of staleness", version, STALENESS_VERSIONS)
    ages = AGES[:2] if version == "v1" else AGES
    needed = {"status": TEXT, "invocation_kind": TEXT, **dict.fromkeys(ages, NUMBER)}
    adapter = adapt(frame, needed, "staleness_by_age")
    aged, known = known_ages(adapter.frame, ages)
    coded = encode(aged, {_STATUS: ("status", ("running",))})
    limit = limit_s("invocation_kind", thresholds, STALENESS_VERSIONS[version])
    is_silent = silence_s(known, float("inf")) > limit
    is_stale = ((nw.col(_STATUS) == 0) & is_silent).fill_null(value=False)
    marked = coded.with_columns(staleness=nw.when(is_stale).then(nw.lit("stale")))
    return adapter.give_back(marked.drop([_STATUS, *known]))


def known_ages(frame: Frame, ages: Sequence[str]) -> tuple[Frame, list[str]]:
    """Add a copy of each age with NaN as null, and say how the copies are called."""
    known = {f"{TEMPORARY}{age}": nw.col(age).cast(nw.Float64) for age in ages}
    copied = frame.with_columns(
        nw.when(~age.is_nan()).then(age).alias(name) for name, age in known.items()
    )
    return copied, list(known)


def silence_s(ages: Sequence[str], never_s: float) -> nw.Expr:
    """The age of the first sign of life that is known, else ``never_s``."""
    return nw.coalesce(*(nw.col(age) for age in ages), nw.lit(never_s))


def limit_s(
    kind: str, thresholds: Mapping[str, float] | None, otherwise: Mapping[str, float]
) -> nw.Expr:
    """Seconds that work may be silent, by the column that holds its kind; never null."""
    return by_kind(kind, limits_by_kind(thresholds, otherwise))


def by_kind(kind: str, values: Mapping[str, Any]) -> nw.Expr:
    """The value of each row's kind, else ``values["default"]``; never null."""
    default = values["default"]
    of_kind = nw.col(kind).cast(nw.String)
    value_of_kind = nw.lit(default)
    for value in dict.fromkeys(values.values()):
        if value != default:
            # A few comparisons of short texts cost half of what looking them up does.
            is_one = (of_kind == name for name, own in values.items() if own == value)
            value_of_kind = (
                nw.when(reduce(or_, is_one)).then(nw.lit(value)).otherwise(value_of_kind)
            )
    return value_of_kind


def limits_by_kind(
    thresholds: Mapping[str, float] | None, otherwise: Mapping[str, float]
) -> dict[str, float]:
    """Seconds of silence by kind, the given ones over those of a version, and ``default``."""
    given = thresholds or {}
    checked = {kind: seconds(f"the threshold of {kind!r}", s) for kind, s in given.items()}
    return {"default": DEFAULT_STALE_AFTER_S, **otherwise, **checked}


def seconds(name: str, value: Any) -> float:
    """A number of seconds that a caller gave, or an error that says what is wrong with it."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
        raise ArgumentError(
            f"{name} needs seconds, zero or more; found {in_short(value)}.",
            'such as thresholds={"agent": 3600, "default": 21600}',
        )
    return float(value)
