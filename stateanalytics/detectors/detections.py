"""Detectors over every entity, at any instant."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.detectors.catalogue import Chosen, chosen_detectors
from stateanalytics.detectors.features import features_of
from stateanalytics.detectors.frames import DETECTIONS
from stateanalytics.detectors.judging import ANSWERS, Truths, answers, in_words, truths
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.systems import all_systems
from stateanalytics.systems.detector import Detector
from stateanalytics.systems.history import Past, facts_at

UNIT = [*schema.ENTITY_KEY, "at"]
_UNITS = [*UNIT, "session_id", "kind"]
_FEW = 20_000


@dataclass(frozen=True, repr=False, eq=False)
class Detections:
    """What detectors say of every entity, a column a detector.

    Attributes
    ----------
    units : polars.DataFrame, shape (n_units, 7)
        The entities at their instant: `schema.ENTITY_KEY`, ``at``, ``session_id``, ``kind``.
    fires : polars.DataFrame, shape (n_units, n_detectors)
        Boolean, in the order of ``units``; null where a detector does not look, or cannot
        know: it never means fine.
    covered : polars.DataFrame, shape (n_units, n_detectors)
        Does it look at the entity at all; null: it is not about its type.
    is_knowable : polars.DataFrame, shape (n_units, n_detectors)
        Do the data of that instant still exist; null likewise.
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
        """The same; of ``rows``, or several of them put below each other, in columns.

        Parameters
        ----------
        detections : Detections or polars.DataFrame
            What somebody handed to a function.
        function : str
            Its name.
        needed : iterable of str
            Columns that it needs besides the unit, the detector and ``fires``.

        Raises
        ------
        MissingColumnsError
            If a frame is none of detections.
        """
        if isinstance(detections, Detections):
            return detections
        if not isinstance(detections, pl.DataFrame):
            raise ArgumentError(
                f"{function} needs detections; found {type(detections).__name__}.",
                f"sa.detectors.{function}(sa.detectors.detect(snap))",
            )
        check_columns(detections, (*UNIT, *needed, "detector", "fires"), function)
        # A row that does not say whether it is covered is where it has an answer.
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
        """The detectors, in the order in which they were asked for."""
        return self.fires.columns

    @cached_property
    def rows(self) -> pl.DataFrame:
        """A row an entity and detector that is about its type and system, with the words.

        `frames.DETECTIONS`, sorted by entity; made when it is first asked for.
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
        return f"<p>{html.escape(repr(self))}</p>{counts._repr_html_()}"

    def filter(self, is_chosen: pl.Series) -> Detections:
        """Some of the units."""
        kept = {name: getattr(self, name).filter(is_chosen) for name in ("units", *ANSWERS)}
        explained = self._explained

        def of(chosen: pl.DataFrame | None) -> pl.DataFrame:
            return explained(kept["units"] if chosen is None else chosen)

        return Detections(**kept, _explained=of)


def detect(
    snap: Facts,
    *,
    at: object = None,
    detectors: Chosen | None = None,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
) -> Detections:
    """What each detector says of every entity at one instant.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    at : datetime, date, ISO text or epoch seconds, optional
        The instant; by default the snapshot's as-of. Only rows up to it are read.
    detectors : str, Detector or sequence of them, optional
        Names, numbers of the catalogue (``"B2"``), or rules of your own. ``"all"``: all that can
        be evaluated from data, those of past releases too. ``"system@version"``: those that
        people had in one release. By default about a dozen a system: those of its current
        release, of several that answer one question on one page one (``is_default`` in
        `known`), and the policy.
    policy : Policy, optional
        For the detector ``policy``; ADR-0033's by default.
    states : polars.DataFrame, optional
        The states under that policy at as-of, where they are at hand. At another instant
        they were others, and are derived.

    Returns
    -------
    Detections
        ``fires`` has a column a detector; ``rows`` has a row an entity and detector that is
        about its type and system, with the words. What a detector does not look at, or whose
        inputs its source lacks, is not covered and ``fires`` null: it never means fine. Where
        what a rule reads was written over since the instant, ``is_knowable`` is false and
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
    states_then = states_at_hand(past.facts, given, policy=policy)

    def judged() -> Iterator[tuple[pl.DataFrame, list[Truths]]]:
        instant = pl.lit(past.at).dt.cast_time_unit("us").alias("at")
        for features, about in _asked(past, chosen, states_then):
            for own in features.with_columns(instant).partition_by(
                "entity_type", maintain_order=True
            ):
                if rules := [r for r in about if own["entity_type"][0] in r.entity_types]:
                    yield own.select(_UNITS), truths(own, rules)

    # What few rows are judged by is kept, and not derived again for the words; that of many
    # would take more memory than all answers.
    of_few = list(judged()) if past.facts.entities.height <= _FEW else None
    parts = [(units, answers(said)) for units, said in of_few or judged()]

    def explained(units: pl.DataFrame | None) -> pl.DataFrame:
        told = [in_words(said, at=past.at, chosen=units) for _, said in of_few or judged()]
        rows = pl.concat([DETECTIONS.empty(), *told])
        return rows.sort(*schema.ENTITY_KEY, maintain_order=True)

    there = {name for _, said in parts for name in said["fires"].columns}
    names = [rule.name for rule in chosen if rule.name in there]
    wide = {
        kind: pl.concat([pl.DataFrame(), *(said[kind] for _, said in parts)], how="diagonal")
        .select(names)
        for kind in ANSWERS
    }  # fmt: skip
    units = [DETECTIONS.empty().select(_UNITS), *(own for own, _ in parts)]
    return Detections(pl.concat(units), **wide, _explained=explained)


def _asked(
    past: Past, chosen: Sequence[Detector], states: pl.DataFrame
) -> Iterator[tuple[pl.DataFrame, list[Detector]]]:
    """What detectors read of each system, and those that are about it."""
    here = past.facts.entities["system"].unique()
    for known in all_systems():
        about = [rule for rule in chosen if rule.system in (None, known.name)]
        if known.name in here and about:
            yield features_of(past, known.name, states), about
