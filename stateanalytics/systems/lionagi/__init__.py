"""lionagi's ``state.db``, releases 0.26.0 to 0.36.0, and the directories next to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.systems.base import (
    Auditing,
    Detecting,
    Ends,
    Home,
    Links,
    Rewinding,
    Runs,
    Stores,
    System,
    Thresholds,
    Words,
    codes_from_csv,
    expanded,
)

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts, Past
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.parts import Parts
    from stateanalytics.io.sqlite import Store
    from stateanalytics.systems.base import Tables

_HERE = "stateanalytics.systems.lionagi"

_RELEASES = (
    *("2026-05-20", "2026-05-21", "0.26.0", "2026-05-23", "0.26.1", "0.26.7", "2026-05-30"),
    *("0.27.0", "0.27.2", "2026-07", "2026-07-04", "0.28.0", "2026-07-05", "2026-07-06"),
    *("2026-07-08", "0.29.0", "2026-07-12", "2026-07-13", "0.29.1", "2026-08", "2026-08-06"),
    *("2026-08-09", "2026-08-15", "0.34", "0.35", "0.36"),
)


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if folder := environment.get("LIONAGI_HOME"):
        yield expanded(folder) / "state.db"
    yield home / ".lionagi" / "state.db"


@cache
def _detecting() -> Detecting:
    from stateanalytics.systems.lionagi.detectors import detectors, features

    return Detecting(detectors=detectors(), releases=_RELEASES, features=features())


def _thresholds() -> Thresholds:
    from stateanalytics.systems.lionagi.constants import constants, kind_constants

    return Thresholds(constants=constants, kind_constants=kind_constants)


@cache
def _auditing() -> Auditing:
    from stateanalytics.systems.lionagi.audits import audits, judge_transitions
    from stateanalytics.systems.lionagi.frames import dispositions
    from stateanalytics.systems.lionagi.phantoms import phantoms

    return Auditing(
        checks=audits(),
        advice={
            "audit.transition_illegal_before_0_28": "nothing to repair: lionagi has refused this "
            "since 0.28; count the entity by its last status",
            "audit.open_without_sign_of_life": "check whether its process is alive; if not, let "
            "the reaper close it, or `li kill ID`",
            "audit.parent_ended_before_children": "check whether the child still works; if not, "
            "`li kill ID` closes it",
        },
        judge_transitions=judge_transitions,
        phantoms=phantoms,
        dispositions=dispositions(),
    )


def _recognises(store: Store) -> bool:
    from stateanalytics.systems.lionagi.reading import recognises

    return recognises(store)


def _read_store(store: Store, **options: Any) -> Parts:
    from stateanalytics.systems.lionagi.reading import read

    return read(store, **options)


def _read_uncached(store: Store, **options: Any) -> Parts:
    from stateanalytics.systems.lionagi.reading import read_uncached

    return read_uncached(store, **options)


def _companions(path: Path) -> Iterable[Path]:
    from stateanalytics.systems.lionagi.reading import companions

    return companions(path)


def _unread_kinds(path: Path) -> Mapping[str, int]:
    from stateanalytics.systems.lionagi.directories import unread_kinds

    return unread_kinds(path)


def _tables() -> Tables:
    from stateanalytics.systems.lionagi.raw import tables

    return tables()


def _texts(facts: Facts, entity: Mapping[str, Any]) -> pl.DataFrame:
    from stateanalytics.systems.lionagi.calls import texts

    return texts(facts, entity)


def _calls(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.lionagi.frames import CALLS
    from stateanalytics.systems.tool_calls import in_order

    return in_order(facts.detail(CALLS))


def _frames() -> Sequence[Frame]:
    from stateanalytics.systems.lionagi.frames import frames

    return frames()


def _rewind(past: Past, facts: Facts) -> Past:
    from stateanalytics.systems.lionagi.rewinding import rewind

    return rewind(past, facts)


def _of_silences(facts: Facts) -> pl.DataFrame:
    from stateanalytics.systems.lionagi.constants import silence_ends

    return silence_ends(facts)


SYSTEM = System(
    name="lionagi",
    title="lionagi",
    home=Home(usual_places=_usual_places, variable="LIONAGI_HOME"),
    stores=Stores(
        recognises=_recognises,
        read=_read_store,
        read_uncached=_read_uncached,
        needs="tables 'sessions', 'branches' and 'progressions'",
        lies_at=("state.db", ".lionagi/state.db"),
        companions=_companions,
        unread_kinds=_unread_kinds,
    ),
    tables=_tables,
    frames=_frames,
    words=Words(
        vocabulary=STATUS_WORDS,
        reason_codes=lambda: codes_from_csv(_HERE),
        are_codes_closed=True,
    ),
    runs=Runs(
        meaning="A run is a session. Its branches repeat it; plays, shows, invocations and "
        "schedules are counted separately, never as runs.",
        part_types=("branch",),
        stop="li kill ID",
        texts=_texts,
        calls=_calls,
    ),
    detecting=_detecting,
    thresholds=_thresholds,
    auditing=_auditing,
    past=Rewinding(history="whole", rewind=_rewind, is_by_links=True, last_update_is_life=True),
    ends=Ends(
        # Not `run.cancelled.stale_auto`: that sweep by age closes rows without a process id, too.
        death_codes=("session.phantom.process_dead", "session.orphaned.no_process"),
        death_messages=("process_exited_without_status",),
        of_silences=_of_silences,
    ),
    links=Links(drives_agents=True, shares_directories=True),
)
