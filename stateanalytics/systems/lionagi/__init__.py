"""lionagi's ``state.db``, releases 0.26.0 to 0.36.0, and the directories next to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.systems import base

_later = partial(base.when_called, __name__)


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if folder := environment.get("LIONAGI_HOME"):
        yield base.expanded(folder) / "state.db"
    yield home / ".lionagi" / "state.db"


SYSTEM = base.System(
    name="lionagi",
    title="lionagi",
    home=base.Home(usual_places=_usual_places, variable="LIONAGI_HOME"),
    stores=base.Stores(
        recognises=_later("reading:recognises"),
        read=_later("reading:read"),
        read_uncached=_later("reading:read_uncached"),
        needs="tables 'sessions', 'branches' and 'progressions'",
        lies_at=("state.db", ".lionagi/state.db"),
        companions=_later("reading:companions"),
        unread_kinds=_later("directories:unread_kinds"),
    ),
    tables=_later("frames:tables"),
    frames=_later("frames:frames"),
    words=base.Words(
        vocabulary=STATUS_WORDS,
        reason_codes=lambda: base.codes_from_csv(__name__),
        are_codes_closed=True,
    ),
    runs=base.Runs(
        meaning="A run is a session. Its branches repeat it; plays, shows, invocations and "
        "schedules are counted separately, never as runs.",
        part_types=("branch",),
        stop="li kill ID",
        texts=_later("events:texts"),
        calls=_later("events:calls"),
        turns=_later("events:turns"),
    ),
    detecting=_later("detectors:detecting"),
    thresholds=lambda: base.Thresholds(
        constants=partial(base.constants_from_csv, __name__),
        kind_constants=_later("detectors:kind_constants"),
    ),
    auditing=_later("audits:auditing"),
    past=base.Rewinding(
        history="whole", rewind=_later("reading:rewind"), is_by_links=True, last_update_is_life=True
    ),
    ends=base.Ends(
        # Not `run.cancelled.stale_auto`: that sweep by age closes rows without a process id, too.
        death_codes=("session.phantom.process_dead", "session.orphaned.no_process"),
        death_messages=("process_exited_without_status",),
        of_silences=_later("detectors:silence_ends"),
    ),
    links=base.Links(drives_agents=True, shares_directories=True),
)
