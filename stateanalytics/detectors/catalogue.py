"""The catalogue of all known detectors, by name and as a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import polars as pl

from stateanalytics.detectors.frames import DETECTORS
from stateanalytics.errors import ArgumentError, did_you_mean, found
from stateanalytics.systems import all_systems
from stateanalytics.systems.detector import Detector, Entry, catalogued

__all__ = ["Chosen", "Detector", "Entry", "chosen_detectors", "known", "named", "registry"]

Chosen = str | Detector | Sequence[str | Detector]
UNWELL = ("stalled", "process_dead", "orphaned", "misfired")


@cache
def registry() -> dict[str, Detector]:
    """Every known detector by its name: those of each system, then the policy's."""
    of_systems = [detector for system in all_systems() for detector in system.detecting().detectors]
    return {detector.name: detector for detector in (*of_systems, by_policy())}


def by_policy() -> Detector:
    """The policy as a detector: it fires where states are unwell."""
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
    """Every known rule for stale, stuck, slow or dead work, one row each.

    Parameters
    ----------
    own : iterable of Detector
        Your own rules to include.

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
            f"known needs your own detectors; found {found(strange[0])}.",
            "omit it, or give results of sa.detectors.Detector(…): sa.detectors.known([mine])",
        )
    rows = [_row(detector) for detector in (*registry().values(), *listed)]
    return DETECTORS.conform(pl.DataFrame(rows, infer_schema_length=None))


def chosen_detectors(
    asked: Chosen | None = None, function: str = "detect", *, has_alarms: bool = False
) -> tuple[Detector, ...]:
    """Detectors by name, number, group or as given.

    Parameters
    ----------
    asked : str, Detector or sequence of them, optional
        Names, numbers of a catalogue and rules of their own; ``"all"`` that can be evaluated
        from data; ``"system@version"``: those of one release. By default those of the current
        releases.
    function : str
        The calling function, for errors.
    has_alarms : bool
        Of a group and of the default, only those with known alarms.

    Raises
    ------
    ArgumentError
        If a name or a version is unknown, none is asked for, two share a name, or one cannot
        be evaluated from data.

    Examples
    --------
    >>> set(chosen_detectors()) < set(chosen_detectors("all"))
    True
    """
    if asked is None:
        current = (rule for rule in registry().values() if rule.is_default)
        return tuple(rule for rule in current if rule.restarts_on or not has_alarms)
    if isinstance(asked, str | Detector) or not isinstance(asked, Iterable):
        asked = [asked]
    grouped: dict[str, Detector] = {}
    singly: list[Detector] = []
    for rule in asked:
        if isinstance(rule, Detector):
            singly.append(rule)
        elif (group := _group(rule)) is None:
            singly.append(named(rule))
        else:
            grouped |= {own.name: own for own in group if own.restarts_on or not has_alarms}
    if not grouped and not singly:
        raise ArgumentError(
            f"{function} needs at least one detector; found none.",
            "omit detectors for those of the current releases, or name some: "
            "sa.detectors.known() lists them",
        )
    names = [detector.name for detector in singly]
    # A rule may be named in addition to its group; another rule with its name is a clash.
    clashes = {rule.name for rule in singly if grouped.get(rule.name, rule) is not rule}
    if twice := sorted(clashes | {name for name in names if names.count(name) > 1}):
        raise ArgumentError(
            f"{function} got two detectors called {twice[0]!r}.",
            "give yours a name of its own: dataclasses.replace(detector, name=…)",
        )
    for detector in singly:
        if not detector.is_offline:
            raise ArgumentError(
                f"Detector {detector.name!r} cannot be evaluated from data: {detector.why_not}.",
                "choose others; sa.detectors.known() shows which can, in is_offline",
                shell="choose others; stateanalytics detectors --list names them",
            )
    return tuple((grouped | {rule.name: rule for rule in singly}).values())


def _group(asked: object) -> list[Detector] | None:
    """The detectors of ``all`` or of a release; None for any other word."""
    if not isinstance(asked, str) or asked in registry():
        return None
    if asked == "all":
        return [rule for rule in registry().values() if rule.is_offline]
    name, at, version = asked.partition("@")
    if not at:
        return None
    everything = {system.name: system.detecting().releases for system in all_systems()}
    releases = {system: known for system, known in everything.items() if known}
    name = name.replace("-", "_")
    if name not in releases:
        raise ArgumentError(
            f"{name!r:.80} has no known releases of its detectors.",
            f"systems with releases: {', '.join(sorted(releases))}" + did_you_mean(name, releases),
        )
    place = _place(version, releases[name])
    if place is None:
        raise ArgumentError(
            f"There is no release {version!r:.80} of {name} whose detectors are known.",
            f"releases: {', '.join(releases[name])}; or one between them",
        )
    own = [rule for rule in registry().values() if rule.system == name and rule.is_offline]
    return [rule for rule in own if _first(rule) <= place <= _last(rule)]


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
    by_number = [
        detector for detector in by_name.values() if name and detector.entry.known_as == name
    ]
    if len(by_number) == 1:
        return by_number[0]
    if by_number:
        both = " and ".join(repr(detector.name) for detector in by_number)
        raise ArgumentError(f"{name!r} is the number of {both}.", "use one of the names")
    words = str(name).lower().replace("-", "_").split("_")
    similar = [other for other in by_name if any(word and word in other for word in words)][:3]
    near = did_you_mean(str(name), by_name) or (
        f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
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
    is_compared = bool(detector.compares) and detector.fires is None and detector.is_offline
    own = ("name", "question", "system", "construct", "upper_s", "liveness", "is_default")
    of_entry = ("known_as", "since", "until", "origin", "page", "rule")
    return {
        **{name: getattr(detector, name) for name in (*own, "is_offline")},
        **{name: getattr(entry, name) or None for name in of_entry},
        "family": entry.family,
        "clock": entry.clock,
        "entity_types": ", ".join(detector.entity_types),
        "measures": ", else ".join(detector.compares) or None,
        "comparison": detector.comparison if is_compared else None,
        "threshold_s": None if limit is None else float(limit),
        "threshold": detector.threshold_words() or None,
        "scope": entry.scope_words or None,
        "inputs": ", ".join(detector.reads) or None,
        "label": detector.one_label,
        "has_alarms": detector.is_offline and detector.restarts_on is not None,
        "why_not": detector.why_not or None,
    }


def titles() -> dict[str, str]:
    """What people call each rule, by its name; where two share a title, the name is part of it."""
    rules = registry().values()
    n_of = Counter(rule.title for rule in rules)
    return {rule.name: rule.title + f" {rule.name}" * (n_of[rule.title] > 1) for rule in rules}


def stood_together(a: Detector, b: Detector) -> bool:
    """Whether both were shown on one page at the same time.

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
    return _first(a) <= _last(b) and _first(b) <= _last(a)


def _place(version: str, releases: Sequence[str]) -> int | None:
    """The place of the last release (or day) that is not after a version; None: no such one.

    ``0.29`` is the last known release that begins so; ``0.30`` is judged by the one before.
    """
    if version in releases:
        return releases.index(version)
    if not re.fullmatch(r"v?[0-9]{1,9}([.-][0-9]{1,9})*", version):
        return None
    numbers, is_day = _numbers(version), "-" in version
    same = [at for at, word in enumerate(releases) if _numbers(word) and ("-" in word) == is_day]
    before = [at for at in same if _numbers(releases[at])[: len(numbers)] <= numbers]
    # The rules of a release after the newest known one are unknown.
    newest = _numbers(releases[same[-1]]) if same else ()
    return before[-1] if before and numbers[: len(newest)] <= newest else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall("[0-9]+", version))


@cache
def _places(system: str | None) -> Mapping[str, int]:
    releases = {known.name: known.detecting().releases for known in all_systems()}
    return {word: place for place, word in enumerate(releases.get(system or "", ()))}


def _first(detector: Detector) -> int:
    return _places(detector.system).get(detector.entry.since, 0)


def _last(detector: Detector) -> int:
    """The last place of a rule: up to the release after its last one, or the day before its end."""
    places, until = _places(detector.system), detector.entry.until
    if until not in places:
        return len(places)
    if "-" in until:
        return places[until] - 1
    after = (at for word, at in places.items() if at > places[until] and "-" not in word)
    return next(after, len(places) + 1) - 1
