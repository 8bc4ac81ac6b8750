"""Detections: what detectors read of each entity, what they answer, and why.

`feature_columns` names the columns that a detector may use. Which of them a system has is
seen in the frame: a column that no input fills is absent, and detectors that read it cover
nothing there.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Past, checked_snapshot
from stateanalytics.core.joins import deduplicated, left_join
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.tables import as_html
from stateanalytics.core.text import as_written
from stateanalytics.core.windows import instant
from stateanalytics.core.words import how_long_each
from stateanalytics.detectors.catalogue import Chosen, chosen_detectors
from stateanalytics.detectors.frames import DETECTIONS
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.systems import all_systems, system_named
from stateanalytics.systems.base import Features
from stateanalytics.systems.detector import Detector
from stateanalytics.systems.history import LOST, facts_at

UNIT = [*schema.ENTITY_KEY, "at"]
_UNITS = [*UNIT, "session_id", "kind"]
# Above so many entities, the rows behind the answers are not kept in memory.
_FEW = 20_000

_OF_ENTITIES = schema.ENTITIES.named(
    *("kind", "n_messages", "n_turns", "n_model_turns", "n_children", "agent", "project"),
    *("recorded_by", "reason_code", "reason_message"),
    *("process_alive", "has_artifacts", "has_stale_locks"),
)


class _Feature(NamedTuple):
    """A column that detectors read: what it means, and of a measure what it counts.

    ``lost`` is what its past value depends on, in words of `history.LOST`. Where nothing is
    its meaning, it is explained elsewhere: in `schema.ENTITIES`, or by its system.
    """

    name: str
    meaning: str | None
    lost: tuple[str, ...]
    since: str | None


_FEATURES = package_table("stateanalytics.detectors", "features.csv", _Feature)


@cache
def _features() -> tuple[Features, ...]:
    features = (known.detecting().features for known in all_systems())
    return tuple(own for own in features if own is not None)


@cache
def feature_columns() -> Mapping[str, str]:
    """Every column that a detector may read, and its meaning; ages in seconds."""
    own = (column for features in _features() for column in features.columns.items())
    meanings = {known.name: known.meaning for known in _FEATURES if known.meaning}
    return {**meanings, **{column.name: column.meaning for column in _OF_ENTITIES}, **dict(own)}


@cache
def _lost_of() -> Mapping[str, tuple[str, ...]]:
    own = (column for features in _features() for column in features.lost_of.items())
    return {**{known.name: known.lost for known in _FEATURES}, **dict(own)}


def features_of(past: Past, system: str, states: pl.DataFrame) -> pl.DataFrame:
    """The columns that detectors read, for the entities of one system at an instant.

    Parameters
    ----------
    past : Past
        From `history.facts_at`.
    system : str
        The name of a system.
    states : polars.DataFrame
        The states at that instant, for ``policy_health``.

    Returns
    -------
    polars.DataFrame
        A row per entity: ``schema.ENTITIES``, those columns of `feature_columns` that the system
        has, and a Boolean ``lost_<what>`` for each of `history.LOST`.
    """
    columns = ("is_terminal", "is_legacy", "age_s")
    judged = states.select(*schema.ENTITY_KEY, *columns, health=pl.col("health").cast(pl.String))
    known = left_join(
        past.facts.entities[list(schema.ENTITY_KEY)], deduplicated(judged, keep="last")
    )
    own = (
        past.facts.entities.lazy()
        .with_columns(
            policy_health=known["health"],
            health=known["health"],
            **{name: known[name] for name in columns},
            **{f"lost_{name}": past.lost[name] for name in LOST},
        )
        .filter(pl.col("system") == system)
    )
    rows = with_ages(own, past).collect()
    features = system_named(system).detecting().features
    return rows if features is None else features.add(rows, past)


def with_ages(rows: pl.LazyFrame, past: Past) -> pl.LazyFrame:
    """Entities with the ages of all systems."""
    now = instant(past.at)

    def age(moment: str) -> pl.Expr:
        return (now - pl.col(moment)).dt.total_microseconds() / 1e6

    started, ended = age("started_at"), age("ended_at")
    return rows.with_columns(
        status="raw_status",
        is_foreign=pl.lit(None, pl.Boolean),
        session_id=pl.coalesce("session_id", "entity_id"),
        created_age_s=age("created_at"),
        started_age_s=started,
        ended_age_s=ended,
        elapsed_s=started - ended.fill_null(0.0),
        elapsed_whole_s=(started - ended.fill_null(0.0)).floor(),
        updated_age_s=age("updated_at"),
        touched_age_s=age("updated_at").fill_null(started),
        last_message_age_s=age("last_message_at"),
        silence_s=age("last_activity_at"),
    )


def lost(detector: Detector, columns: Iterable[str]) -> pl.Expr:
    """Whether a column that a detector reads is lost at the instant; never null."""
    available, lost_of = set(columns), _lost_of()

    def is_lost(name: str) -> pl.Expr:
        flags = [f"lost_{what}" for what in lost_of.get(name, ()) if f"lost_{what}" in available]
        known = (pl.col(flag).fill_null(value=False) for flag in flags)
        return pl.any_horizontal(known) if flags else pl.lit(value=False)

    # A later measure counts only where the ones before it are unknown.
    measures = pl.lit(value=False)
    for name in reversed(detector.compares):
        measures = is_lost(name) | (pl.col(name).is_null() & measures)
    others = (is_lost(name) for name in detector.reads if name not in detector.compares)
    return pl.any_horizontal(measures, *others)


# Where no row of a source has one of these, the source does not record it.
_RECORDED = ("last_message_age_s", "updated_age_s", "started_age_s", "created_age_s")
ANSWERS = ("fires", "covered", "is_knowable")
Truths: TypeAlias = tuple[Detector, pl.DataFrame]
"""A detector, and the rows of its entity types with its answers as columns."""


def truths(rows: pl.DataFrame, detectors: Sequence[Detector]) -> list[Truths]:
    """The answers of each detector for the rows of its entity types.

    Parameters
    ----------
    rows : polars.DataFrame, shape (n_rows, ...)
        The columns that `detectors` read, of those that `feature_columns` names,
        and the key of an entity.
    detectors : sequence of Detector
        Each answers for the rows of its entity types.
    """
    prepared = _prepared(rows)
    # One after another and eager: planning all of them together takes five times as long as
    # answering, and no less for a hundred thousand rows.
    return [(detector, _with_truths(prepared, detector)) for detector in detectors]


def answers(judged: Sequence[Truths]) -> dict[str, pl.DataFrame]:
    """For each of `ANSWERS` a frame with a Boolean column a detector, in the order of the rows."""
    return {
        kind: pl.DataFrame(rows[f"_{kind}"].alias(detector.name) for detector, rows in judged)
        for kind in ANSWERS
    }


def in_words(
    judged: Sequence[Truths], *, at: datetime, chosen: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Answers with reasons, as rows of `frames.DETECTIONS`, detector by detector.

    Parameters
    ----------
    judged : sequence of Truths
        Result of `truths`.
    at : datetime
        The instant that the ages of the rows were measured at.
    chosen : polars.DataFrame, optional
        The entities to include, by `schema.ENTITY_KEY`; all by default.
    """
    parts = []
    for detector, rows in judged:
        own = rows.lazy()
        if chosen is not None:
            own = own.join(chosen.lazy(), on=schema.ENTITY_KEY, how="semi", maintain_order="left")
        parts.append(_in_words(own, rows.columns, detector, at))
    return pl.concat([DETECTIONS.empty().lazy(), *parts]).collect()


def _prepared(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with what their source records at all, without flags of losses that no row has."""
    available = pl.col([name for name in _RECORDED if name in rows.columns])
    unused = [name for name in rows.columns if name.startswith("lost_") and not rows[name].any()]
    kept = [name for name in rows.columns if name not in unused]
    return rows[kept].with_columns(
        available.is_not_null().any().over("source", "entity_type").name.prefix("has_")
    )


def _with_truths(rows: pl.DataFrame, detector: Detector) -> pl.DataFrame:
    """The rows of a detector's entity types, with its answers."""
    plan = rows.lazy().filter(pl.col("entity_type").is_in(detector.entity_types))
    if _missing(rows.columns, detector):
        no = dict.fromkeys(("_covered", "_in_scope", "_is_recorded"), pl.lit(value=False))
        return plan.with_columns(**no, _fires=pl.lit(None, pl.Boolean), _is_knowable=True).collect()
    if detector.classify is not None:
        limits, own = detector.threshold_s, plan.collect()
        seconds = None if isinstance(limits, pl.Expr) else limits
        plan = own.lazy().with_columns(detector.classify(own, seconds).alias(detector.word))
    is_lost = lost(detector, rows.columns)
    in_scope = pl.lit(value=True) if detector.scope is None else detector.scope.fill_null(False)
    is_recorded = pl.lit(value=True)
    if detector.compares and set(detector.compares) <= set(_RECORDED):
        # Does the source record what is compared, for any entity of this type.
        any_known = pl.any_horizontal(pl.col(f"has_{name}") for name in detector.compares)
        is_recorded = any_known | is_lost.any().over("source", "entity_type")
    covered = in_scope & is_recorded
    return plan.with_columns(
        _covered=covered,
        _fires=pl.when(covered & ~is_lost).then(detector.verdict()),
        _is_knowable=~is_lost,
        _in_scope=in_scope,
        _is_recorded=is_recorded,
    ).collect()


def _missing(columns: Sequence[str], detector: Detector) -> list[str]:
    return [name for name in detector.reads if name not in columns]


def _in_words(
    own: pl.LazyFrame, columns: Sequence[str], detector: Detector, at: datetime
) -> pl.LazyFrame:
    """The answers of a detector with what it compared, and why."""
    measured, limit, label = detector.measured(), detector.threshold(), _label(detector)
    if missing := _missing(columns, detector):
        measured = limit = pl.lit(None, pl.Float64)
        label = pl.lit(None, pl.String)
        why: pl.Expr = pl.lit(f"it needs {', '.join(missing)}, which does not exist")
    else:
        why = (
            pl.when(~pl.col("_is_knowable"))
            .then(pl.lit("what it reads was overwritten since"))
            .when(~pl.col("_is_recorded"))
            .then(pl.lit(f"this source does not record {', '.join(detector.compares)}"))
            .when(~pl.col("_in_scope"))
            .then(pl.lit(f"it only covers {detector.entry.scope_words or 'other rows'}"))
            .otherwise(_compared(detector, measured, limit))
        )
    is_answer = pl.col("_covered") & pl.col("_is_knowable")
    return own.select(
        *(pl.col(name) for name in (*schema.ENTITY_KEY, "session_id", "kind")),
        pl.lit(detector.name).alias("detector"),
        instant(at).alias("at"),
        covered="_covered",
        fires="_fires",
        is_knowable="_is_knowable",
        label=pl.when("_fires").then(label),
        measured_s=pl.when(is_answer).then(measured),
        threshold_s=pl.when(is_answer).then(limit),
        input=pl.lit(", else ".join(detector.compares) or None, pl.String),
        why=why,
    )


def _label(detector: Detector) -> pl.Expr:
    if isinstance(detector.label, pl.Expr):
        return detector.label.cast(pl.String)
    if detector.classify is not None and not detector.label:
        return pl.col(detector.word)
    return pl.lit(detector.label or detector.name)


_SINCE = {known.name: known.since for known in _FEATURES if known.since}


def since(measures: tuple[str, ...]) -> str:
    """What the first measure of a detector counts, in words."""
    if not measures:
        return ""
    if len(measures) > 1 and measures[0] == "last_message_age_s":
        return "of silence"
    return _SINCE.get(measures[0], f"of {measures[0].removesuffix('_s').replace('_', ' ')}")


def _compared(detector: Detector, measured: pl.Expr, limit: pl.Expr) -> pl.Expr:
    """``9 h since start, limit 1 h``; the rule in words where nothing is compared."""
    if not detector.compares:
        return pl.lit(detector.entry.rule or detector.construct)
    counted = (
        pl.when(measured.is_not_null())
        .then(
            pl.concat_str(how_long_each(measured, "never"), pl.lit(f" {since(detector.compares)}"))
        )
        .otherwise(pl.lit("no such time is recorded"))
    )
    allowed = pl.concat_str(pl.lit(", limit "), how_long_each(limit, "never"))
    return pl.concat_str(counted, pl.when(limit.is_not_null()).then(allowed).otherwise(pl.lit("")))


@dataclass(frozen=True, repr=False, eq=False)
class Detections:
    """Answers of detectors for every entity, a column per detector.

    Attributes
    ----------
    units : polars.DataFrame, shape (n_units, 7)
        The entities at their instant: `schema.ENTITY_KEY`, ``at``, ``session_id``, ``kind``.
    fires : polars.DataFrame, shape (n_units, n_detectors)
        Boolean, in the order of ``units``; null where a detector does not cover the entity or
        cannot know: null never means fine.
    covered : polars.DataFrame, shape (n_units, n_detectors)
        Whether the detector covers the entity; null: another entity type.
    is_knowable : polars.DataFrame, shape (n_units, n_detectors)
        Whether the data of that instant still exist; null likewise.
    """

    units: pl.DataFrame
    fires: pl.DataFrame
    covered: pl.DataFrame
    is_knowable: pl.DataFrame
    _explained: Callable[[pl.DataFrame | None], pl.DataFrame] = field(repr=False)

    @classmethod
    def of(
        cls, detections: Detections | pl.DataFrame, function: str, needed: Iterable[str] = ()
    ) -> Detections:
        """Detections, or their ``rows`` (of several instants, too) turned into columns.

        Parameters
        ----------
        detections : Detections or polars.DataFrame
            The argument of a function.
        function : str
            The name of the function, for errors.
        needed : iterable of str
            Columns that it needs besides the unit, the detector and ``fires``.

        Raises
        ------
        MissingColumnsError
            If a frame does not hold detections.
        """
        if isinstance(detections, Detections):
            return detections
        if not isinstance(detections, pl.DataFrame):
            raise ArgumentError(
                f"{function} needs detections; found {type(detections).__name__}.",
                f"sa.detectors.{function}(sa.detectors.detect(snap))",
            )
        check_columns(detections, (*UNIT, *needed, "detector", "fires"), function)
        # Without the column, a row is covered where it has an answer.
        rows = DETECTIONS.conform(detections).with_columns(
            pl.col("covered").fill_null(pl.col("fires").is_not_null())
        )
        wide = {
            kind: rows.pivot(
                "detector", index=_UNITS, values=kind, aggregate_function="first",
                maintain_order=True,
            )
            for kind in ANSWERS
        }  # fmt: skip
        answers = {kind: answer.drop(_UNITS) for kind, answer in wide.items()}

        def explained(chosen: pl.DataFrame | None) -> pl.DataFrame:
            if chosen is None:
                return detections
            return detections.join(
                chosen, on=UNIT, how="semi", nulls_equal=True, maintain_order="left"
            )

        return cls(wide["fires"].select(_UNITS), **answers, _explained=explained)

    @property
    def names(self) -> list[str]:
        """The names of the detectors, in the order of the call."""
        return self.fires.columns

    @cached_property
    def rows(self) -> pl.DataFrame:
        """`frames.DETECTIONS` by entity: a row per entity and detector of its type and system.

        Computed on first use.
        """
        return self._explained(None)

    def rows_of(self, is_chosen: pl.Series) -> pl.DataFrame:
        """The ``rows`` of some of the units."""
        chosen = self.units.filter(is_chosen)
        if "rows" not in self.__dict__:
            return self._explained(chosen)
        return self.rows.join(chosen, on=UNIT, how="semi", nulls_equal=True, maintain_order="left")

    def __repr__(self) -> str:
        return (
            f"Detections of {self.units.height:,} entities by {len(self.names)} detectors. "
            "Next: .fires, .rows, sa.detectors.agreement(…), sa.detectors.disagreements(…)"
        )

    def _repr_html_(self) -> str:
        counts = self.fires.sum().unpivot(variable_name="detector", value_name="n_flagged")
        return as_written(f"<p>{html.escape(repr(self))}</p>{as_html(counts)}")

    def filter(self, is_chosen: pl.Series) -> Detections:
        """The detections of some of the units."""
        kept = {name: getattr(self, name).filter(is_chosen) for name in ("units", *ANSWERS)}
        explained = self._explained

        def explained_here(chosen: pl.DataFrame | None) -> pl.DataFrame:
            return explained(kept["units"] if chosen is None else chosen)

        return Detections(**kept, _explained=explained_here)


def detect(
    snap: Facts,
    *,
    at: object = None,
    detectors: Chosen | None = None,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
) -> Detections:
    """The answer of each detector for every entity at one instant.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    at : datetime, date, ISO text or epoch seconds, optional
        The instant; by default the snapshot's as-of. Only rows up to it are read.
    detectors : str, Detector or sequence of them, optional
        Names, numbers of the catalogue (``"B2"``), or rules of your own. ``"all"``: all that can
        be evaluated from data, including those of past releases. ``"system@version"``: those
        of one release. By default about a dozen a system: those of its current
        release, only one of several that answer one question on one page (``is_default`` in
        `known`), and the policy.
    policy : Policy, optional
        For the detector ``policy``; ADR-0033's by default.
    states : polars.DataFrame, optional
        The states under that policy at as-of, where the caller has them already. At another
        instant they are derived.

    Returns
    -------
    Detections
        ``fires`` has one column per detector; ``rows`` has one row per entity and detector of its
        type and system, with reasons. An entity that a detector does not cover, or whose source
        lacks its inputs, is not covered and its ``fires`` is null, which never means fine. Where
        the inputs of a rule were overwritten since the instant, ``is_knowable`` is false and
        ``fires`` null.

    Raises
    ------
    ArgumentError
        If a detector or a version is unknown, a detector cannot be evaluated, the selection
        is empty, or the instant lies outside the data.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> detections = detect(demo(), detectors=["B2", "B4"])
    >>> detections.fires.sum().row(0, named=True)
    {'dashboard_stuck_60m': 4, 'dashboard_stale_card': 3}
    """
    checked = checked_snapshot(snap, "detectors.detect")
    chosen = chosen_detectors(detectors)
    past = facts_at(checked, at)
    given = states if past.at == snap.as_of else None
    at_instant = states_at_hand(past.facts, given, policy=policy)

    def judged() -> Iterator[tuple[pl.DataFrame, list[Truths]]]:
        now = instant(past.at).alias("at")
        for features, relevant in _features_by_system(past, chosen, at_instant):
            for own in features.with_columns(now).partition_by("entity_type", maintain_order=True):
                if rules := [r for r in relevant if own["entity_type"][0] in r.entity_types]:
                    yield own[list(_UNITS)], truths(own, rules)

    # The inputs of few rows are kept for the reasons and not derived a second time; those of
    # many would take more memory than all answers.
    kept = list(judged()) if past.facts.entities.height <= _FEW else None
    parts = [(units, answers(pairs)) for units, pairs in kept or judged()]

    def explained(units: pl.DataFrame | None) -> pl.DataFrame:
        worded = [in_words(pairs, at=past.at, chosen=units) for _, pairs in kept or judged()]
        rows = pl.concat([DETECTIONS.empty(), *worded])
        return rows.sort(*schema.ENTITY_KEY, maintain_order=True)

    answering = {name for _, by_kind in parts for name in by_kind["fires"].columns}
    names = [rule.name for rule in chosen if rule.name in answering]
    wide = {
        kind: pl.concat([pl.DataFrame(), *(own[kind] for _, own in parts)], how="diagonal")[names]
        for kind in ANSWERS
    }  # fmt: skip
    units = [DETECTIONS.empty()[list(_UNITS)], *(own for own, _ in parts)]
    return Detections(pl.concat(units), **wide, _explained=explained)


def _features_by_system(
    past: Past, chosen: Sequence[Detector], states: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, list[Detector]]]:
    """The features of each system, and the detectors that apply to it."""
    here = set(past.facts.entities["system"].unique())
    for known in all_systems():
        relevant = [rule for rule in chosen if rule.system in (None, known.name)]
        if known.name in here and relevant:
            yield features_of(past, known.name, states), relevant
