"""What reading needs of lionagi's status words: known, an end that has a time, at work.

What a word *means* is decided in `rules`, from the same table.
"""

from __future__ import annotations

from stateanalytics.core.vocabulary import TABLES, words_of

KNOWN: dict[str, tuple[str, ...]] = {
    entity_type: tuple(word.raw_status for word in words_of(entity_type)) for entity_type in TABLES
}


def _ends(entity_type: str, *, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    ends = (word.raw_status for word in words_of(entity_type) if word.is_terminal)
    return tuple(raw for raw in ends if raw not in but)


# Ends of work that ran, so that a missing time is a gap: a skipped fire or a play that
# was blocked before it began has no end to record.
ENDS_WITH_A_TIME: dict[str, tuple[str, ...]] = {
    "session": _ends("session"),
    "invocation": _ends("invocation"),
    "schedule_run": _ends("schedule_run", but=("skipped", "cancelled")),
    "engine_run": _ends("engine_run"),
}
RUNNING: dict[str, tuple[str, ...]] = {
    "session": ("running",),
    "invocation": ("running",),
    "play": ("running", "prepared"),
    "schedule_run": ("queued", "waiting_dependency", "running"),
    "engine_run": ("running",),
}
