"""ADR-0033's words: every status with what it means, and the shape of a reason code.

`STATUS_WORDS` is the only place where a raw status becomes a lifecycle and an
outcome; `ADR_LIFECYCLES`, `ADR_HEALTHS` and `ADR_DELIVERIES` are the lists that the
ADR closes per entity. Words outside of them are kept under their own name and
reported, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

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
        The entity's own terminal word; None while it is open, and for entities that end without an
        outcome (teams, schedules).
    is_terminal, is_initial : bool
        Whether it is final; whether a history may begin with it.
    process_exit_code : int or None
        The exit code of a process that ends in this status, if it has one.
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
        Whether shipped code ever writes it.
    emitted_by : str
        Which part of the system writes it.
    meaning, what_to_do : str
        The reason in words, and the operator's next step.
    nearest : tuple of str
        For a code that no system writes: the codes that a system writes instead.
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


# Branches have no vocabulary of their own: they mirror their session's. Schedules have no status
# column: `enabled` 0/1 is read as their words. A schedule run may be born failed or skipped, when
# it never started at all. The word *imported* of shows is a legacy one: it says where the row
# came from, not what became of the show.
STATUS_WORDS = package_table("stateanalytics.core", "status_words.csv", StatusWord)

TABLES = {word.entity_type: word.table for word in STATUS_WORDS}
EXIT_CODES: Mapping[str, int] = {
    word.raw_status: word.process_exit_code
    for word in STATUS_WORDS
    if word.process_exit_code is not None
}


class _Listed(NamedTuple):
    """Words of one axis that ADR-0033 closes for an entity type; an absent list is open."""

    axis: Annotated[str, ("lifecycle", "health", "delivery")]
    entity_type: str
    words: tuple[str, ...]


_LISTED = package_table("stateanalytics.core", "adr_words.csv", _Listed)
ADR_LIFECYCLES, ADR_HEALTHS, ADR_DELIVERIES = (
    {row.entity_type: row.words for row in _LISTED if row.axis == axis}
    for axis in ("lifecycle", "health", "delivery")
)


_BAD_ENDS = ("failed", "timed_out", "aborted", "cancelled")
_ENDS = {word: word for word in ("completed", "succeeded", "merged", "skipped", *_BAD_ENDS)}
_OVER = {*_ENDS, "archived", "closed"}
_STORED = {(word.entity_type, word.raw_status) for word in STATUS_WORDS}
ADR_WORDS = tuple(
    StatusWord(entity_type, TABLES[entity_type], word, word, _ENDS.get(word), word in _OVER)
    for entity_type, words in ADR_LIFECYCLES.items()
    for word in words
    if (entity_type, word) not in _STORED
)
"""ADR-0033's lifecycle words that no known version of a system stores, each read as itself."""


def words_of(entity_type: str) -> tuple[StatusWord, ...]:
    """The status words of one entity type, in the order of a life.

    Examples
    --------
    >>> [word.raw_status for word in words_of("team")]
    ['active', 'archived']
    """
    return tuple(word for word in STATUS_WORDS if word.entity_type == entity_type)
