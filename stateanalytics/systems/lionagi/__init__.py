"""lionagi's ``state.db``, releases 0.26.0 to 0.36.0, and the directories next to it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.systems.base import Ends, Stores, System, codes_from_csv, expanded, later

_HERE = "stateanalytics.systems.lionagi"


def _usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    if folder := environment.get("LIONAGI_HOME"):
        yield expanded(folder) / "state.db"
    yield home / ".lionagi" / "state.db"


SYSTEM = System(
    name="lionagi",
    title="lionagi",
    run_is="A run is a session. Its branches repeat it; plays, shows, invocations and "
    "schedules are counted as what they are, never as runs.",
    usual_places=_usual_places,
    variable="LIONAGI_HOME",
    stores=Stores(
        recognises=later(f"{_HERE}.reading:recognises"),
        read=later(f"{_HERE}.reading:read"),
        read_uncached=later(f"{_HERE}.reading:read_uncached"),
        needs="tables 'sessions', 'branches' and 'progressions'",
        lies_at=("state.db", ".lionagi/state.db"),
        companions=later(f"{_HERE}.reading:companions"),
        unread_kinds=later(f"{_HERE}.directories:unread_kinds"),
    ),
    tables=later(f"{_HERE}.raw:tables"),
    count_errors=later(f"{_HERE}.events:count_errors"),
    vocabulary=STATUS_WORDS,
    frames=later(f"{_HERE}.frames:frames"),
    reason_codes=lambda: codes_from_csv(_HERE),
    are_codes_closed=True,
    part_types=("branch",),
    last_update_is_life=True,
    detectors=later(f"{_HERE}.detectors:detectors"),
    releases=(
        *("2026-05-20", "2026-05-21", "0.26.0", "2026-05-23", "0.26.1", "0.26.7", "2026-05-30"),
        *("0.27.0", "0.27.2", "2026-07", "2026-07-04", "0.28.0", "2026-07-05", "2026-07-06"),
        *("2026-07-08", "0.29.0", "2026-07-12", "2026-07-13", "0.29.1", "2026-08", "2026-08-06"),
        *("2026-08-09", "2026-08-15", "0.34", "0.35", "0.36"),
    ),
    features=later(f"{_HERE}.detectors:features"),
    constants=later(f"{_HERE}.constants:constants"),
    kind_constants=later(f"{_HERE}.constants:kind_constants"),
    audits=later(f"{_HERE}.audits:audits"),
    advice={
        "audit.transition_illegal_before_0_28": "nothing to repair: lionagi has refused this since "
        "0.28; count the entity by its last status",
        "audit.open_without_sign_of_life": "check whether its process is alive; if not, let the "
        "reaper close it, or `li kill ID`",
        "audit.parent_ended_before_children": "check whether the child still works; if not, "
        "`li kill ID` closes it",
    },
    judge_transitions=later(f"{_HERE}.audits:judge_transitions"),
    history="whole",
    rewind=later(f"{_HERE}.rewinding:rewind"),
    rewinds_by_links=True,
    phantoms=later(f"{_HERE}.phantoms:phantoms"),
    dispositions=later(f"{_HERE}.frames:dispositions"),
    ends=Ends(
        # Not `run.cancelled.stale_auto`: that sweep by age closes rows without a process id, too.
        death_codes=("session.phantom.process_dead", "session.orphaned.no_process"),
        death_messages=("process_exited_without_status",),
        of_silences=later(f"{_HERE}.constants:silence_ends"),
    ),
    drives_agents=True,
    shares_directories=True,
)
