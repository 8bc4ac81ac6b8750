"""The meaning of a stored status (lifecycle, outcome, whether it is over), and the delivery.

The entity type and the stored status select one *cell* of a small table, which is made for each
policy from `vocabulary.STATUS_WORDS` and `vocabulary.ADR_WORDS`. Everything that depends only on
the status is looked up there. If a system recorded the lifecycle in ADR-0033's words
(``recorded_lifecycle``), that and the recorded outcome select the cell.

ADR-0033's delivery is whether an entity produced what it promised, by entity type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from operator import or_

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY, Frame, encode, lookup
from stateanalytics.core.schema import LIFECYCLES, OUTCOMES
from stateanalytics.core.vocabulary import ADR_WORDS, STATUS_WORDS, TABLES, StatusWord
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.state.policy import EMPTY, NULL, Policy

CELL = f"{TEMPORARY}cell"
_TYPE = f"{TEMPORARY}type"
_STATUS = f"{TEMPORARY}status"
_LIFECYCLE = f"{TEMPORARY}lifecycle"
_OUTCOME = f"{TEMPORARY}outcome"

TYPES = tuple(TABLES)
RECORDED_TYPES = ("session", None)
"""Types with recorded cells of their own: sessions, and all others together."""

_BAD_ENDS = ("failed", "timed_out", "cancelled", "aborted")
_PAIRS = (
    *product(LIFECYCLES, (None,)),
    *product(GOOD_ENDS, GOOD_ENDS),
    *product(_BAD_ENDS, _BAD_ENDS),
    *product(("archived", "closed"), OUTCOMES),
    *((word, "unknown") for word in LIFECYCLES if word not in ("archived", "closed")),
    ("skipped", "skipped"),
)
"""The valid pairs of lifecycle and outcome; any other pair counts as unknown."""
_WORDS: dict[tuple[str | None, str | None], StatusWord] = {
    (word.entity_type, word.raw_status): word for word in (*STATUS_WORDS, *ADR_WORDS)
}


@dataclass(frozen=True)
class StatusCell:
    """One entity type with one stored status, and its meaning under a policy.

    Attributes
    ----------
    entity_type : str or None
        None: a type that has no table of words.
    raw_status : str or None
        The status as stored; None: none was stored, or (``is_known_text`` false) some
        text that no table has.
    is_known_text : bool
        Whether ``raw_status`` is the text itself.
    word : StatusWord or None
        The word that it is read as; None: outside of the vocabulary.
    is_recorded : bool
        Whether the system itself recorded the word, in the vocabulary of ADR-0033.
    """

    entity_type: str | None
    raw_status: str | None
    is_known_text: bool
    word: StatusWord | None
    is_recorded: bool = False

    @property
    def lifecycle(self) -> str:
        """ADR-0033's word; ``unknown`` outside of the vocabulary."""
        return self.word.lifecycle if self.word else "unknown"

    @property
    def outcome(self) -> str | None:
        """The terminal word; None while not over."""
        return self.word.outcome if self.word else "unknown"

    @property
    def is_terminal(self) -> bool | None:
        """Whether it is over; None: not known, outside of the vocabulary."""
        return self.word.is_terminal if self.word else None

    @property
    def is_legacy(self) -> bool:
        """Whether it has no usable status, so that rates exclude it."""
        is_mirror = self.entity_type == "branch" and self.raw_status is None and self.is_known_text
        return self.lifecycle == "unknown" and not is_mirror

    @property
    def is_good_end(self) -> bool:
        """Whether it ended well, by any of the words for that."""
        return self.outcome in GOOD_ENDS

    @property
    def is_without_evidence(self) -> bool:
        """Whether it ended well without the evidence that the completion gate requires."""
        return self.word is not None and self.word.raw_status == "completed_empty"


@dataclass(frozen=True)
class StatusTable:
    """The table of one policy.

    Attributes
    ----------
    policy : Policy
        The policy, which may read a status as another one.
    has_recorded : bool
        Whether there are cells for recorded lifecycles, which some frames do not need.

    Examples
    --------
    >>> cells = StatusTable(Policy.v1())
    >>> [cell.entity_type for cell in cells.all if cell.outcome == "merged"]
    ['show', 'play']
    """

    policy: Policy
    has_recorded: bool = False

    @cached_property
    def statuses(self) -> tuple[str, ...]:
        """Every status that a table or the policy names, the empty text first."""
        words = (word.raw_status for word in (*STATUS_WORDS, *ADR_WORDS))
        read = (stored for _, stored, _ in self.policy.read_as if stored not in (NULL, EMPTY))
        return ("", *dict.fromkeys([*words, *read]))

    @cached_property
    def all(self) -> tuple[StatusCell, ...]:
        """The cells in the order of their numbers: for each type null, the texts, any other.

        Cells for recorded lifecycles come last.
        """
        stored = tuple(
            self._cell(entity_type, raw_status, is_known)
            for entity_type in (*TYPES, None)
            for raw_status, is_known in (
                (None, True),
                *((text, True) for text in self.statuses),
                (None, False),
            )
        )
        return stored + (_RECORDED_CELLS if self.has_recorded else ())

    def _cell(self, entity_type: str | None, raw_status: str | None, is_known: bool) -> StatusCell:
        read = self.policy.status_read(entity_type or "", raw_status) if is_known else None
        return StatusCell(entity_type, raw_status, is_known, _WORDS.get((entity_type, read)))

    def add(self, frame: Frame) -> Frame:
        """Add `CELL`, the number of each row's cell, from ``entity_type`` and ``raw_status``.

        ``recorded_lifecycle`` and ``recorded_outcome`` take precedence if they are used.
        """
        words = {_STATUS: ("raw_status", self.statuses), _TYPE: ("entity_type", TYPES)}
        coded = encode(frame, words)
        n_slots = len(self.statuses) + 2
        slot = (
            nw.when(nw.col("raw_status").is_null())
            .then(nw.lit(0, nw.Int16))
            .otherwise(nw.col(_STATUS).cast(nw.Int16).fill_null(n_slots - 2) + 1)
        )
        entity_type = nw.col(_TYPE).cast(nw.Int16).fill_null(len(TYPES))
        numbered = coded.with_columns((entity_type * n_slots + slot).alias(CELL))
        if self.has_recorded:
            numbered = self._with_recorded(numbered)
        return numbered.drop(list(words))

    def _with_recorded(self, frame: Frame) -> Frame:
        words = {
            _LIFECYCLE: ("recorded_lifecycle", LIFECYCLES),
            _OUTCOME: ("recorded_outcome", OUTCOMES),
        }
        coded = encode(frame, words)
        lifecycle = nw.col(_LIFECYCLE).cast(nw.Int16)
        outcome = nw.col(_OUTCOME).cast(nw.Int16).fill_null(len(OUTCOMES))
        pair = (lifecycle * (len(OUTCOMES) + 1) + outcome).alias(_LIFECYCLE)
        unknown = _PAIRS.index(("unknown", "unknown"))
        places = [
            _PAIRS.index(known) if known in _PAIRS else unknown
            for known in product(LIFECYCLES, (*OUTCOMES, None))
        ]
        placed = lookup(coded.with_columns(pair), {_LIFECYCLE: (_LIFECYCLE, places)})
        first = len(self.all) - len(_RECORDED_CELLS)
        is_session = (nw.col("entity_type").cast(nw.String) == "session").fill_null(value=False)
        start = nw.when(is_session).then(nw.lit(first, nw.Int16))
        group = start.otherwise(nw.lit(first + len(_PAIRS), nw.Int16))
        cell = nw.coalesce(group + nw.col(_LIFECYCLE), nw.col(CELL)).alias(CELL)
        return placed.with_columns(cell).drop(list(words))

    def is_type(self, *types: str | None) -> nw.Expr:
        """Whether the row has one of these types; never null."""
        return self.where(lambda cell: cell.entity_type in types)

    def has_status(self, entity_type: str, *statuses: str) -> nw.Expr:
        """Whether the row has this type and one of these statuses as read; never null."""
        return self.where(
            lambda cell: (
                cell.entity_type == entity_type
                and cell.word is not None
                and cell.word.raw_status in statuses
            )
        )

    def where(self, holds: Callable[[StatusCell], bool | None]) -> nw.Expr:
        """Whether a condition holds for the cell of the row; never null."""
        numbers = [number for number, cell in enumerate(self.all) if holds(cell)]
        runs = _runs(numbers)
        if not 0 < len(runs) <= _FEW:
            return nw.col(CELL).is_in(numbers)
        # Cells of a type are adjacent, and a range is cheaper than a set, above all in SQL.
        return reduce(or_, (_within(first, last) for first, last in runs))


def _recorded_cell(entity_type: str | None, lifecycle: str, outcome: str | None) -> StatusCell:
    is_over = outcome is not None
    word = StatusWord(entity_type or "", "", lifecycle, lifecycle, outcome, is_terminal=is_over)
    known = None if lifecycle == "unknown" else word
    return StatusCell(entity_type, None, is_known_text=True, word=known, is_recorded=True)


_RECORDED_CELLS = tuple(
    _recorded_cell(entity_type, *pair) for entity_type in RECORDED_TYPES for pair in _PAIRS
)
_FEW = 3


def _within(first: int, last: int) -> nw.Expr:
    cell = nw.col(CELL)
    return cell == first if first == last else cell.is_between(first, last)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges: the first and last number of each.

    Examples
    --------
    >>> _runs([1, 2, 3, 7])
    [(1, 3), (7, 7)]
    """
    held = set(numbers)
    firsts = [n for n in numbers if n - 1 not in held]
    lasts = [n for n in numbers if n + 1 not in held]
    return list(zip(firsts, lasts, strict=True))


DELIVERY_OR_NONE = (*schema.DELIVERIES, None)
NO_DELIVERY = len(schema.DELIVERIES)
"""Position in `DELIVERY_OR_NONE` for entities without any delivery."""

RECORDED_DELIVERIES = (*schema.DELIVERIES, schema.NO_WORD)
"""The deliveries that a system may record, by position as in `DELIVERY_OR_NONE`."""

DELIVERY_RULE = f"{TEMPORARY}delivery_rule"
DELIVERY = f"{TEMPORARY}delivery"

WORDS: Mapping[str, str | None] = {
    "ended_without_evidence": "missing",
    "does_not_apply": None,
    "nothing_is_promised": "not_expected",
    "promise_invalid": "invalid",
    "no_contract": "not_expected",
    "verdict_invalid": "invalid",
    "contract_is_empty": "not_expected",
    "not_over_yet": "unknown",
    "verified": "passed",
    "optional_missing": "partial",
    "required_missing": "missing",
    "not_verified": "unknown",
}
"""Every rule in order of precedence, with its delivery."""

_NONE = ("invocation", "schedule", "team", "branch", "engine_run", "dispatch", None)
_NOT_EXPECTED = ("show", "schedule_run", "play")


def delivery_rules(table: StatusTable) -> dict[str, nw.Expr]:
    """The rules as expressions that are never null, by name.

    They read ``has_contract``, ``is_contract_valid``, ``is_verdict_valid``, ``verdict``
    and ``n_expected``. A play delivers what its session delivers: `evaluate` applies that.

    Notes
    -----
    While work is open its verdict is provisional, so the delivery is ``unknown`` and never
    ``missing``. After a failed verdict it is ``missing``, even if much was produced;
    ``n_required_missing`` and ``n_produced`` have the counts.
    """

    def yes(expression: nw.Expr) -> nw.Expr:
        return expression.fill_null(value=False)

    verdict = nw.col("verdict")
    return {
        "ended_without_evidence": table.where(lambda cell: cell.is_without_evidence),
        "does_not_apply": table.is_type(*_NONE),
        "nothing_is_promised": table.is_type(*_NOT_EXPECTED),
        "promise_invalid": yes(~nw.col("is_contract_valid")),
        "no_contract": ~yes(nw.col("has_contract")),
        "verdict_invalid": yes(~nw.col("is_verdict_valid")),
        "contract_is_empty": yes(nw.col("n_expected") == 0),
        "not_over_yet": ~table.where(lambda cell: cell.is_terminal),
        "verified": yes(verdict == "passed"),
        "optional_missing": yes(verdict == "warning"),
        "required_missing": yes(verdict == "failed"),
        "not_verified": nw.lit(value=True),
    }


def delivery_values() -> tuple[int, ...]:
    """The position in `DELIVERY_OR_NONE` of the delivery of each rule of `WORDS`."""
    return tuple(DELIVERY_OR_NONE.index(word) for word in WORDS.values())
