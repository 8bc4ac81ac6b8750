"""All known detectors, by name, and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import polars as pl

from stateanalytics.detectors.frames import DETECTORS
from stateanalytics.errors import ArgumentError, did_you_mean, found
from stateanalytics.systems import all_systems
from stateanalytics.systems.detector import Detector, Entry, catalogued

__all__ = ["Chosen", "Detector", "Entry", "chosen_detectors", "known", "named", "registry"]

Chosen = Sequence[str | Detector]
UNWELL = ("stalled", "process_dead", "orphaned", "misfired")


@cache
def registry() -> dict[str, Detector]:
    """Every known detector by its name: those of each system, then the policy's."""
    of_systems = [detector for system in all_systems() for detector in system.detectors()]
    return {detector.name: detector for detector in (*of_systems, by_policy())}


def by_policy() -> Detector:
    """The detector that the policy itself is: what states call unwell."""
    word = pl.col("policy_health")
    return catalogued(
        "policy",
        known_as="policy",
        family="policy",
        fires=word.is_in(UNWELL),
        scope=word.is_not_null(),
        scope_words="everything that has a health",
        entity_types=(
            *("session", "play", "show", "invocation", "schedule", "schedule_run"),
            *("engine_run", "dispatch", "execution", "turn"),
        ),
        label=word,
        measures="silence_s",
        inputs=("policy_health",),
        construct="silence",
        question="stale",
        liveness="unknown stays unknown",
        origin="sa.states, by the policy that is given",
        page="this report",
        rule="ADR-0033's health is stalled, process_dead, orphaned or misfired",
    )


def known(own: Iterable[Detector] = ()) -> pl.DataFrame:
    """Every known rule that calls work stale, stuck, slow or dead, one row each.

    Parameters
    ----------
    own : iterable of Detector
        Rules of yours to list with them.

    Returns
    -------
    polars.DataFrame
        `frames.DETECTORS`, in the order of the systems' catalogues. Those
        that cannot be evaluated from data alone are listed with the reason, in
        ``why_not``.

    Examples
    --------
    >>> listed = known()
    >>> stuck = listed.filter(name="dashboard_stuck_60m")
    >>> stuck.select("known_as", "construct", "threshold").row(0)
    ('B2', 'elapsed', '1 h')
    >>> listed.filter(is_offline=False)["why_not"].null_count()
    0
    """
    listed = own if isinstance(own, Iterable) else [own]
    if strange := [rule for rule in listed if not isinstance(rule, Detector)]:
        raise ArgumentError(
            f"known needs detectors of yours; found {found(strange[0])}.",
            "leave it out, or give what sa.detectors.Detector(…) makes: sa.detectors.known([mine])",
        )
    rows = [_row(detector) for detector in (*registry().values(), *listed)]
    return DETECTORS.conform(pl.DataFrame(rows, infer_schema_length=None))


def chosen_detectors(asked: Chosen | None, function: str = "detect") -> tuple[Detector, ...]:
    """The detectors that someone asked for; all that can be evaluated by default.

    Raises
    ------
    ArgumentError
        If a name is unknown, none is asked for, two share a name, or one cannot be
        evaluated from data.
    """
    by_name = registry()
    if asked is None:
        return tuple(detector for detector in by_name.values() if detector.is_offline)
    if isinstance(asked, str | Detector) or not isinstance(asked, Iterable):
        asked = [asked]
    chosen = tuple(rule if isinstance(rule, Detector) else named(rule) for rule in asked)
    if not chosen:
        raise ArgumentError(
            f"{function} needs at least one detector; found none.",
            "leave detectors out for all of them, or name some: sa.detectors.known() lists them",
        )
    names = [detector.name for detector in chosen]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ArgumentError(
            f"{function} got two detectors called {twice[0]!r}.",
            "give yours a name of its own: dataclasses.replace(detector, name=…)",
        )
    for detector in chosen:
        if not detector.is_offline:
            raise ArgumentError(
                f"Detector {detector.name!r} cannot be evaluated from data: {detector.why_not}.",
                "choose others; sa.detectors.known() says which can, in is_offline",
                shell="choose others; stateanalytics detectors --list names them",
            )
    return chosen


def named(name: object) -> Detector:
    """A known detector by its name, or by its number in a catalogue.

    Raises
    ------
    ArgumentError
        If there is none; the error lists near matches.

    Examples
    --------
    >>> named("B2").name
    'dashboard_stuck_60m'
    """
    by_name = registry()
    if isinstance(name, str) and name in by_name:
        return by_name[name]
    by_number = [detector for detector in by_name.values() if detector.entry.known_as == name]
    if len(by_number) == 1:
        return by_number[0]
    if by_number:
        both = " and ".join(repr(detector.name) for detector in by_number)
        raise ArgumentError(f"{name!r} is the number of {both}.", "use one of the names")
    words = str(name).lower().replace("-", "_").split("_")
    alike = [other for other in by_name if any(word and word in other for word in words)][:3]
    near = did_you_mean(str(name), by_name) or (
        f"; did you mean {' or '.join(map(repr, alike))}?" if alike else ""
    )
    raise ArgumentError(
        f"There is no detector {name!r:.80}; there are {len(by_name)}.",
        f"sa.detectors.known() lists them, or make one: sa.detectors.Detector(…){near}",
        shell=f"stateanalytics detectors --list names them{near}",
    )


def _row(detector: Detector) -> dict[str, object]:
    entry, limit = detector.entry, detector.threshold_s
    if not isinstance(limit, int | float):
        limit = limit["default"] if isinstance(limit, Mapping) else None
    is_compared = bool(detector.compares) and detector.fires is None
    return {
        "name": detector.name,
        "known_as": entry.known_as or None,
        "family": entry.family,
        "question": detector.question,
        "system": detector.system,
        "entity_types": ", ".join(detector.entity_types),
        "since": entry.since or None,
        "until": entry.until or None,
        "origin": entry.origin or None,
        "page": entry.page or None,
        "construct": detector.construct,
        "measures": ", else ".join(detector.compares) or None,
        "comparison": detector.comparison if is_compared and detector.is_offline else None,
        "threshold_s": None if limit is None else float(limit),
        "threshold": detector.threshold_words() or None,
        "upper_s": detector.upper_s,
        "liveness": detector.liveness,
        "clock": entry.clock,
        "scope": entry.scope_words or None,
        "inputs": ", ".join(detector.reads) or None,
        "rule": entry.rule or None,
        "label": detector.one_label,
        "is_offline": detector.is_offline,
        "has_alarms": detector.is_offline and detector.restarts_on is not None,
        "why_not": detector.why_not or None,
    }


ORDER = (
    *("2026-05-20", "2026-05-21", "0.26.0", "2026-05-23", "0.26.1", "0.26.7", "2026-05-30"),
    *("0.27.0", "0.27.2", "2026-07", "2026-07-04", "0.28.0", "2026-07-05", "2026-07-06"),
    *("2026-07-08", "0.29.0", "2026-07-12", "2026-07-13", "0.29.1", "2026-08", "2026-08-06"),
    *("2026-08-09", "2026-08-15", "0.34", "0.35"),
)
"""Releases and days that life spans name, in the order in which they came."""

_PLACE = {word: place for place, word in enumerate(ORDER)}


def stood_together(a: Detector, b: Detector) -> bool:
    """Did people see both on one page at one time.

    Examples
    --------
    >>> from stateanalytics.detectors.catalogue import named
    >>> stood_together(named("B2"), named("B4")), stood_together(named("B2/30"), named("B4"))
    (True, False)
    """
    if not a.entry.page or a.entry.page != b.entry.page:
        return False
    if a.entry.version_of and a.entry.version_of == b.entry.version_of:
        return False
    return _begin(a) <= _end(b) and _begin(b) <= _end(a)


def _begin(detector: Detector) -> int:
    return _PLACE.get(detector.entry.since, 0)


def _end(detector: Detector) -> int:
    return _PLACE.get(detector.entry.until, len(ORDER))
