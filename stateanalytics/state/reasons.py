"""The reasons of states, stored and derived, and the registry of their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import narwhals as nw
import polars as pl

from stateanalytics.core import engines, schema
from stateanalytics.core.joins import Rows
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.session_health import by_kind
from stateanalytics.core.vocabulary import TABLES, ReasonCode
from stateanalytics.core.windows import Moment
from stateanalytics.core.words import how_long
from stateanalytics.state import display, lifecycle
from stateanalytics.state.evaluate import Evaluation, evaluate, kinds_of
from stateanalytics.state.health import (
    HEALTH,
    HEALTH_OR_NONE,
    HEALTH_RULE,
    OPEN_RULES,
    RETRY_SCHEDULED,
    RULES,
    RUNAWAY,
    RUNS_AWAY,
)
from stateanalytics.state.lifecycle import WORDS as DELIVERY_WORDS
from stateanalytics.state.policy import Policy
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import codes_from_csv

DOMAINS = (*TABLES, "run", "schedule_definition", "system", "knowledge")
"""First segments of codes: domains of recorders, entity types of ADR-0033, and our own."""


class _InferredCause(NamedTuple):
    dimension: str
    cause: str
    meaning: str
    what_to_do: str


def _inferred() -> Iterator[ReasonCode]:
    """The codes of inferred reasons, for each entity type that has them."""
    causes = package_table("stateanalytics.state", "inferred_codes.csv", _InferredCause)
    for entity_type in TABLES:
        for cause in causes:
            yield ReasonCode(
                f"{display.domain(entity_type)}.{cause.dimension}.{cause.cause}",
                "stateanalytics",
                (entity_type,),
                "",
                cause.meaning,
                cause.what_to_do,
                emitted_by="states",
            )


def _registry() -> Mapping[str, ReasonCode]:
    """All codes. ADR-0033 takes precedence over systems, and earlier systems over later ones."""
    everything = (
        *_inferred(),
        *(code for system in reversed(all_systems()) for code in system.words.reason_codes()),
        *codes_from_csv("stateanalytics.state"),
    )
    return {code.code: code for code in everything}


REGISTRY: Mapping[str, ReasonCode] = _registry()

OURS = ("adr0033", "stateanalytics")
"""Origins of codes that every system may write."""

# Either namespace's rule, registered or not: the recorders' ``domain.status.cause`` or ADR-0033's
# ``entity_type.dimension.cause``.
_SEGMENT = "[a-z][a-z0-9_]*"
FORM = rf"^(?:{'|'.join(DOMAINS)})\.{_SEGMENT}\.{_SEGMENT}$"


def reason_codes() -> pl.DataFrame:
    """The registry as a frame, sorted by code; lists are joined by ``|``.

    Examples
    --------
    >>> reason_codes().filter(pl.col("origin") == "adr0033").height
    14
    """
    rows = [
        {
            **vars(known),
            "entity_types": "|".join(known.entity_types),
            "nearest": "|".join(known.nearest),
            "domain": known.code.partition(".")[0],
        }
        for known in REGISTRY.values()
    ]
    return pl.DataFrame(rows).sort("code")


def with_meanings(rows: Rows) -> Rows:
    """Rows with the ``meaning`` of their ``code`` and ``what_to_do``; null: not in the registry."""
    texts = {
        name: {known.code: getattr(known, name) for known in REGISTRY.values()}
        for name in ("meaning", "what_to_do")
    }
    return rows.with_columns(
        pl.col("code").replace_strict(known, default=None, return_dtype=pl.String).alias(name)
        for name, known in texts.items()
    )


NEEDED_TOO = kinds_of(
    *("reason_message", "evidence", "is_end_approximate", "n_required_missing", "n_produced")
)
"""The columns of ``entities`` that reasons read beyond those of `evaluate.NEEDED`."""

UNEXPLAINED_OUTCOMES = ("failed", "timed_out", "aborted")
"""Outcomes that get a reason even if none was recorded."""

_CLAIMS = schema.CLAIM_STATUSES
_COLUMNS = schema.REASONS.dtypes.names()
_SHARED = (*schema.ENTITY_KEY, "order", "code")
_NUMBERS = f"{engines.TEMPORARY}numbers"
_ORDER = f"{engines.TEMPORARY}order"
_SILENCE = f"{engines.TEMPORARY}silence_s"
_PIECES = (f"{engines.TEMPORARY}large", f"{engines.TEMPORARY}rest")
_END = '"}]'
_FIRST = nw.lit(1, nw.Int64)
_NEEDS_HEALTH = nw.col(HEALTH).is_in(
    [HEALTH_OR_NONE.index(word) for word in display.REASON_HEALTHS]
)
_NEEDS_DELIVERY = nw.col(lifecycle.DELIVERY).is_in(
    [lifecycle.DELIVERY_OR_NONE.index(word) for word in display.REASON_DELIVERIES]
)

NO_DETAIL = "-"


@dataclass(frozen=True)
class Cause:
    """The words of a derived reason, by the rule that is its evidence.

    Attributes
    ----------
    rule : str
        Name of the rule.
    message : str
        In words.
    detail : str
        The end of the message, which is also the evidence. Empty: the numbers of the row are
        added instead. `NO_DETAIL`: the message is complete without it.
    confidence : float
        That this explains the state. It is lower if nobody looked at the process.
    claim : str
        How it is known: ADR-0033's claim status.
    """

    rule: str
    message: str
    detail: str
    confidence: float
    claim: Annotated[str, schema.CLAIM_STATUSES]

    @property
    def text(self) -> str:
        """The message, or its part before the numbers."""
        if self.detail == NO_DETAIL:
            return self.message
        return f"{self.message}: {self.detail}." if self.detail else f"{self.message}: "

    def evidence(self, rule: str) -> str:
        """The evidence, or its part before the numbers."""
        begin = f'[{{"kind":"rule","id":"{rule}","detail":"'
        detail = self.message if self.detail == NO_DETAIL else self.detail
        return f"{begin}{detail}{_END}" if detail else begin


CAUSES: Mapping[str, Cause] = {
    cause.rule: cause
    for cause in package_table("stateanalytics.state", "derived_reasons.csv", Cause)
}
"""Every rule with a derived reason, and the words of the reason."""

_HEALTH_CAUSES = [rule.evidence or "status_unknown" for rule in RULES.values()]
_DELIVERY_CAUSES = [
    rule if word in display.REASON_DELIVERIES else "session_delivery"
    for rule, word in DELIVERY_WORDS.items()
]


def reasons(facts: Any, *, policy: Policy | None = None, as_of: Moment | None = None) -> Any:
    """The reasons of every state, one row per reason.

    Parameters
    ----------
    facts, policy, as_of
        As for `states.states`; a bare frame needs the columns `NEEDED_TOO` as well.

    Returns
    -------
    frame, shape (n_reasons, 11)
        ``schema.REASONS``, of the same kind: first every stored reason, in the order of
        the input, then what ended badly without any, then what was derived about health,
        then about delivery, then what systems recorded themselves, then what their limits
        say. Only states that need explaining have derived reasons
        (`UNEXPLAINED_OUTCOMES`, `display.REASON_HEALTHS`, ``REASON_DELIVERIES``).
        ``order`` sorts the reasons of one entity: the stored one is 0 (or that there is
        none), recorded ones count from 0, and derived ones follow; where nothing was
        stored, what was derived still begins at 1.

    Raises
    ------
    MissingColumnsError, ColumnTypeError, ArgumentError
        As for `states.states`.

    Notes
    -----
    A stored reason is ``observed`` with confidence 1 (the policy's
    ``approximate_end_confidence`` where the end was estimated later); its evidence is
    passed through as stored. A derived one is ``inferred``; its evidence names the rule
    and the numbers of the row.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"entity_type": "play", "entity_id": "p1", "raw_status": "blocked",
    ...        "reason_code": "play.blocked.dep_failed"}
    >>> entities = schema.ENTITIES.conform(pl.DataFrame([row]))
    >>> reasons(entities, as_of="2026-05-27").select("order", "code", "claim_status").rows()
    [(0, 'play.blocked.dep_failed', 'observed'), (1, 'play.health.blocked', 'inferred')]
    """
    return reasons_of(evaluate(facts, "reasons", policy=policy, as_of=as_of, also=NEEDED_TOO))


def reasons_of(evaluation: Evaluation) -> Any:
    """The result of `reasons`, from an evaluation that kept `NEEDED_TOO`."""
    parts = [
        _stored(evaluation),
        *_unexplained(evaluation),
        *_of_health(evaluation),
        *_of_delivery(evaluation),
    ]
    if evaluation.table.has_recorded:
        parts += [_recorded(evaluation), *_of_open_work(evaluation)]
    return evaluation.adapter.give_back(nw.concat([_held(evaluation, part) for part in parts]))


def _held(evaluation: Evaluation, rows: engines.Frame) -> engines.Frame:
    """The rows themselves, where the caller's frame has its own.

    One plan over all parts would repeat for each of them what they share.
    """
    return rows.collect().lazy() if evaluation.adapter.is_eager else rows


def _has_stored(table: lifecycle.StatusTable) -> nw.Expr:
    """Whether the row has a stored reason; never null."""
    has_reason = ~nw.col("reason_code").is_null() | ~nw.col("reason_message").is_null()
    if not table.has_recorded:
        return has_reason
    # Recorded reasons include the stored one. The error text of a recorded state is no reason.
    is_text_only = table.where(lambda cell: cell.is_recorded) & nw.col("reason_code").is_null()
    return has_reason & nw.col("recorded_reasons").is_null() & ~is_text_only


def _stored(evaluation: Evaluation) -> engines.Frame:
    rows = evaluation.frame.filter(_has_stored(evaluation.table))
    is_guess = nw.col("is_end_approximate").fill_null(value=False)
    confidence = nw.when(is_guess).then(nw.lit(evaluation.policy.approximate_end_confidence))
    named = rows.with_columns(
        order=nw.lit(0, nw.Int64),
        code=nw.col("reason_code"),
        message=nw.col("reason_message"),
        confidence=confidence.otherwise(nw.lit(1.0)),
    )
    placed = engines.add_word(named, "dimension", "lifecycle", schema.DIMENSIONS)
    return engines.add_word(placed, "claim_status", "observed", _CLAIMS).select(*_COLUMNS)


def add_unexplained(frame: engines.Frame, table: lifecycle.StatusTable, into: str) -> engines.Frame:
    """Add the code for a bad end without any reason; null where there is a reason."""
    codes = [
        f"{display.domain(cell.entity_type)}.{cell.outcome}.unexplained"
        if cell.outcome in UNEXPLAINED_OUTCOMES
        else None
        for cell in table.all
    ]
    is_explained = _has_stored(table)
    if table.has_recorded:
        is_explained = is_explained | ~nw.col("recorded_reasons").is_null()
    coded = engines.lookup(frame, {into: (lifecycle.CELL, codes)})
    return coded.with_columns(nw.when(~is_explained).then(nw.col(into)).alias(into))


def _unexplained(evaluation: Evaluation) -> list[engines.Frame]:
    coded = add_unexplained(evaluation.frame, evaluation.table, "code")
    rows = coded.filter(~nw.col("code").is_null()).with_columns(order=nw.lit(0, nw.Int64))
    return _explained(rows, "lifecycle", ["no_reason_stored"] * len(RULES))


def _of_health(evaluation: Evaluation) -> list[engines.Frame]:
    rows = evaluation.frame.filter(_NEEDS_HEALTH & (nw.col(HEALTH_RULE) < OPEN_RULES[0]))
    rows = rows.with_columns(order=_first_derived(evaluation))
    coded = _coded(rows, evaluation, "health").select(
        *_SHARED, "kind", "silence_s", "updated_age_s", "age_s", HEALTH, HEALTH_RULE
    )
    add_silence = partial(_add_silence, policy=evaluation.policy)
    return _explained_if_any(evaluation, coded, "health", _HEALTH_CAUSES, add_silence)


def _coded(rows: engines.Frame, evaluation: Evaluation, axis: str) -> engines.Frame:
    """Rows with the ``code`` of an axis, without those whose system recorded that code."""
    coded = display.add_code(rows, evaluation.table, axis, "code")
    return coded.filter(~nw.col("code").is_null()) if evaluation.table.has_recorded else coded


def _n_recorded() -> nw.Expr:
    """The number of recorded reasons, from their joined codes."""
    codes = nw.col("recorded_reason_codes")
    between = codes.str.replace_all(schema.CODE_SEPARATOR, "", literal=True).str.len_chars()
    n_between = (codes.str.len_chars() - between) // len(schema.CODE_SEPARATOR)
    return (n_between + 1).fill_null(0).cast(nw.Int64)


def _first_derived(evaluation: Evaluation) -> nw.Expr:
    """The order of the first derived reason, after stored and recorded ones."""
    if not evaluation.table.has_recorded:
        return _FIRST
    return nw.max_horizontal(_n_recorded(), _FIRST)


def _of_delivery(evaluation: Evaluation) -> list[engines.Frame]:
    is_derived = ~nw.col(lifecycle.DELIVERY_RULE).is_null()
    rows = evaluation.frame.filter(_NEEDS_DELIVERY & is_derived).with_columns(
        order=_first_derived(evaluation) + _NEEDS_HEALTH.cast(nw.Int64)
    )
    coded = _coded(rows, evaluation, "delivery").select(
        *_SHARED, "n_required_missing", "n_expected", lifecycle.DELIVERY_RULE
    )
    return _explained_if_any(evaluation, coded, "delivery", _DELIVERY_CAUSES, _add_counts)


def runaway_code() -> nw.Expr:
    """The code of work that loops, unless its health says so already."""
    is_health = nw.col(HEALTH_RULE) == RUNS_AWAY
    code = nw.lit(f"run.health.{RULES['open_runaway'].code}")
    return nw.when(nw.col(RUNAWAY) & ~is_health).then(code)


def _recorded(evaluation: Evaluation) -> engines.Frame:
    """The reasons that the system itself recorded."""
    rows = evaluation.frame.filter(~nw.col("recorded_reasons").is_null())
    kept = rows.select(*schema.ENTITY_KEY, "recorded_reasons")
    fields = {name: float if name == "confidence" else str for name in schema.RECORDED_REASON}
    exploded = engines.explode_json(kept, "recorded_reasons", fields, "order")
    return engines.as_words(
        exploded.select(*_COLUMNS), {"dimension": schema.DIMENSIONS, "claim_status": _CLAIMS}
    )


def _of_open_work(evaluation: Evaluation) -> list[engines.Frame]:
    """The reasons of open work that is past limits of its system, after recorded reasons."""
    numbered = evaluation.frame.with_columns(_n_recorded().alias(_ORDER))
    rule, order = nw.col(HEALTH_RULE), nw.col(_ORDER)
    explained = [place for place in OPEN_RULES if list(RULES.values())[place].evidence]
    is_retry = (rule == RETRY_SCHEDULED) & ~nw.col("retry_code").is_null()
    n_before = rule.is_in(explained).cast(nw.Int64) + is_retry.cast(nw.Int64)
    own = _coded(numbered.filter(rule.is_in(explained)), evaluation, "health")
    retry = numbered.filter(is_retry).with_columns(order=order + 1, code=nw.col("retry_code"))
    counted = numbered.with_columns(order=order + n_before, code=runaway_code())
    return [
        *_explained(own.with_columns(order=order), "health", _HEALTH_CAUSES),
        *_explained(retry, "health", ["retry_cause"] * len(RULES)),
        *_explained(counted.filter(~nw.col("code").is_null()), "health", ["runaway"] * len(RULES)),
    ]


def _explained_if_any(
    evaluation: Evaluation,
    rows: engines.Frame,
    dimension: str,
    names: Sequence[str],
    add_numbers: Callable[[engines.Frame], engines.Frame],
) -> list[engines.Frame]:
    """`_explained`, or nothing if there is no row, because plans are slow for small stores."""
    if not evaluation.adapter.is_eager:
        return _explained(rows, dimension, names, add_numbers)
    held = rows.collect()
    return _explained(held.lazy(), dimension, names, add_numbers) if len(held) else []


def _explained(
    rows: engines.Frame,
    dimension: str,
    names: Sequence[str],
    add_numbers: Callable[[engines.Frame], engines.Frame] | None = None,
) -> list[engines.Frame]:
    """Message, confidence and evidence of each rule of the axis.

    Rows whose text has numbers of their own come last.
    """
    rule = lifecycle.DELIVERY_RULE if dimension == "delivery" else HEALTH_RULE
    causes = [CAUSES[name] for name in names]
    evidence = [cause.evidence(name) for name, cause in zip(names, causes, strict=True)]
    claims = pl.Series([cause.claim for cause in causes], dtype=pl.Enum(_CLAIMS))
    worded = engines.lookup(
        engines.add_word(rows, "dimension", dimension, schema.DIMENSIONS),
        {
            "message": (rule, [cause.text for cause in causes]),
            "evidence": (rule, evidence),
            "confidence": (rule, [cause.confidence for cause in causes]),
            "claim_status": (rule, claims),
        },
    )
    if add_numbers is None:
        return [worded.select(*_COLUMNS)]
    has_numbers = nw.col(rule).is_in([n for n, cause in enumerate(causes) if cause.detail == ""])
    counted = add_numbers(worded.filter(has_numbers)).with_columns(
        message=nw.concat_str(nw.col("message"), nw.col(_NUMBERS), nw.lit(".")),
        evidence=nw.concat_str(nw.col("evidence"), nw.col(_NUMBERS), nw.lit(_END)),
    )
    return [part.select(*_COLUMNS) for part in (worded.filter(~has_numbers), counted)]


def _add_silence(rows: engines.Frame, policy: Policy) -> engines.Frame:
    """Add the silence of each row, and the longest silence that is allowed."""
    is_fire = nw.col("entity_type") == "schedule_run"
    limits = {kind: _threshold(limit_s) for kind, limit_s in policy.stalled_after_s}
    limit = (
        nw.when(nw.col(HEALTH) == HEALTH_OR_NONE.index("idle"))
        .then(nw.lit(_threshold(policy.idle_after_s)))
        .when(nw.col("entity_type") == "play")
        .then(nw.lit(_threshold(policy.play_stalled_after_s)))
        .when(is_fire)
        .then(nw.lit(_threshold(policy.schedule_run_stalled_after_s)))
        .otherwise(
            by_kind("kind", {**limits, "default": _threshold(policy.stalled_after_default_s)})
        )
    )
    unwritten = nw.when(is_fire).then(nw.coalesce("updated_age_s", "age_s"))
    # Kept as columns, because several pieces of text use them.
    measured = rows.with_columns(nw.coalesce(unwritten, nw.col("silence_s")).alias(_SILENCE))
    worded = display.add_duration_text(measured, _SILENCE, _PIECES)
    ever = nw.when(nw.col(_SILENCE).is_null()).then(nw.lit("ever"))
    silent = nw.concat_str(nw.lit("silent for "), ever, *_PIECES, limit, ignore_nulls=True)
    return worded.with_columns(silent.alias(_NUMBERS))


def _threshold(seconds: float) -> str:
    return f", threshold {how_long(seconds)}"


def _add_counts(rows: engines.Frame) -> engines.Frame:
    """Add how many of the promised results are missing, if the verdict has counts."""
    missing = nw.col("n_required_missing").cast(nw.Int64).cast(nw.String)
    promised = nw.col("n_expected").cast(nw.Int64).cast(nw.String)
    counted = nw.concat_str(missing, nw.lit(" required missing of "), promised, nw.lit(" promised"))
    detail = nw.coalesce(counted, nw.lit("the stored verdict says so"))
    return rows.with_columns(detail.alias(_NUMBERS))
