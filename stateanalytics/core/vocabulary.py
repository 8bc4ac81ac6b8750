"""ADR-0033's words: every status with what it means, and the shape of a reason code.

`STATUS_WORDS` is the only place where a raw status becomes a lifecycle and an
outcome; `ADR_LIFECYCLES`, `ADR_HEALTHS` and `ADR_DELIVERIES` are the lists that the
ADR closes per entity. Words outside of them are kept under their own name and
reported, never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from stateanalytics.core.package_tables import package_table
from stateanalytics.core.schema import LIFECYCLES, OUTCOMES


@dataclass(frozen=True)
class StatusWord:
    """One stored status of one entity type.

    Attributes
    ----------
    entity_type, table, raw_status : str
        Whose status it is, the table it is stored in, the word as it is stored.
    lifecycle : str
        ADR-0033's word for it.
    outcome : str or None
        The entity's own terminal word; None while not terminal, and for entities
        that end without an outcome (teams, schedules).
    is_terminal, is_initial : bool
        May nothing follow; may a history begin with it.
    process_exit_code : int or None
        What the process that ends so returns to its shell, where it returns.
    """

    entity_type: str
    table: str
    raw_status: str
    lifecycle: Annotated[str, LIFECYCLES]
    outcome: Annotated[str, OUTCOMES] | None = None
    is_terminal: bool = False
    is_initial: bool = False
    process_exit_code: int | None = None


@dataclass(frozen=True)
class ReasonCode:
    """One reason code.

    Attributes
    ----------
    code, origin : str
        The code, and who defines it: a system, ``adr0033`` or ``stateanalytics``.
    entity_types : tuple of str
        Types whose rows carry it.
    statuses : str
        Statuses that it is written with, in words: the second segment is not always one.
    since_release, since_date, since_commit, constant : str
        Where its system got it from; empty where that is not recorded.
    is_emitted : bool
        Does shipped code ever write it.
    emitted_by : str
        Which part of the system does.
    meaning, what_to_do : str
        The reason in words, and the operator's next step.
    nearest : tuple of str
        For a code that no system writes: the codes that one writes in such a case.
    """

    code: str
    origin: str
    entity_types: tuple[str, ...]
    statuses: str
    meaning: str
    what_to_do: str
    is_emitted: bool = True
    emitted_by: str = ""
    since_release: str = ""
    since_date: str = ""
    since_commit: str = ""
    constant: str = ""
    nearest: tuple[str, ...] = ()


TABLES = MappingProxyType(
    {
        "session": "sessions",
        "branch": "branches",
        "show": "shows",
        "play": "plays",
        "invocation": "invocations",
        "schedule": "schedules",
        "schedule_run": "schedule_runs",
        "team": "teams",
        "engine_run": "engine_runs",
        "dispatch": "dispatch_outbox",
    }
)

EXIT_CODES = MappingProxyType(
    {
        "completed": 0,
        "completed_empty": 1,
        "failed": 1,
        "timed_out": 124,
        "aborted": 130,
        "cancelled": 143,
    }
)

_BAD_ENDS = ("failed", "timed_out", "aborted", "cancelled")


# Branches have no vocabulary of their own: they mirror their session's. Schedules have no status
# column: `enabled` 0/1 is read as their words. A schedule run may be born failed or skipped, when
# it never started at all. The word *imported* of shows is a legacy one: it says where the row
# came from, not what became of the show.
STATUS_WORDS = package_table("stateanalytics.core", "status_words.csv", StatusWord)

# ADR-0033, "Per-entity lifecycle vocabularies". A list that is absent is not closed there.
ADR_LIFECYCLES = MappingProxyType(
    {
        "session": ("pending", "running", "completed", *_BAD_ENDS),
        "show": ("draft", "planned", "active", "completed", "merged", "failed", "archived"),
        "play": (
            "planned", "queued", "running", "run_complete", "merged",
            "failed", "blocked", "timed_out", "cancelled", "skipped",
        ),
        "invocation": (
            "pending", "running", "succeeded", "failed", "timed_out", "cancelled", "skipped",
        ),
        "schedule": ("enabled", "paused", "disabled"),
        "team": ("active", "idle", "blocked", "closed"),
    }
)  # fmt: skip


def _words_as_themselves() -> tuple[StatusWord, ...]:
    """ADR-0033's lifecycle words that no known version of a system stores, each read as itself."""
    stored = {(word.entity_type, word.raw_status) for word in STATUS_WORDS}
    return tuple(
        StatusWord(entity_type, TABLES[entity_type], word, word, _ENDS.get(word), word in _OVER)
        for entity_type, words in ADR_LIFECYCLES.items()
        for word in words
        if (entity_type, word) not in stored
    )


_ENDS = {word: word for word in ("completed", "succeeded", "merged", "skipped", *_BAD_ENDS)}
_OVER = {*_ENDS, "archived", "closed"}
ADR_WORDS = _words_as_themselves()
ADR_HEALTHS = MappingProxyType(
    {
        "session": ("ok", "running", "idle", "stalled", "process_dead", "orphaned"),
        "show": ("ok", "running", "blocked"),
        "play": ("ok", "running", "stalled"),
        "invocation": (),
        "schedule": ("ok", "due", "running", "misfired"),
        "team": ("ok", "orphaned"),
    }
)
ADR_DELIVERIES = MappingProxyType(
    {
        "session": ("passed", "partial", "missing", "not_expected"),
        "show": ("passed", "partial", "missing", "not_expected"),
        "play": ("passed", "partial", "missing", "not_expected"),
        "invocation": (),
        "team": (),
    }
)


def words_of(entity_type: str) -> tuple[StatusWord, ...]:
    """The status words of one entity type, in the order of a life.

    Examples
    --------
    >>> [word.raw_status for word in words_of("team")]
    ['active', 'archived']
    """
    return tuple(word for word in STATUS_WORDS if word.entity_type == entity_type)
