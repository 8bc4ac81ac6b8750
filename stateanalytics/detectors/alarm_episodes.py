"""Episodes in which a detector of silence or age was on, over the whole history."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import deduplicated
from stateanalytics.core.words import first_word
from stateanalytics.detectors.catalogue import Chosen, chosen_detectors
from stateanalytics.detectors.frames import ALARMS
from stateanalytics.errors import ArgumentError
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states
from stateanalytics.systems import all_systems
from stateanalytics.systems.detector import Detector

KEY = list(schema.ENTITY_KEY)
_RUNNING = "running"
# The order of several moments of one instant.
_END, _SIGN, _STORED = 0, 1, 2


def alarms(
    snap: Facts, *, detectors: Chosen | None = None, policy: Policy | None = None
) -> pl.DataFrame:
    """Every period in which a detector of silence or age fired.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    detectors : str, Detector or sequence of them, optional
        As for `detect`; ``"all"``, ``"system@version"`` and the default include only those whose
        clock is restarted by something that is recorded as it happens (``has_alarms`` in `known`).
    policy : Policy, optional
        Decides which entities are over; ADR-0033's by default.

    Returns
    -------
    polars.DataFrame
        `frames.ALARMS`, by entity, detector and time. An alarm begins a threshold after the
        last sign of life (or after the start, for rules that count from it), and ends with
        the next one, with the end, where the rule stops looking, or is censored at as-of.

    Raises
    ------
    ArgumentError
        If a detector is unknown, or its alarms cannot be reconstructed.

    Notes
    -----
    Episodes are exact: each comes from the gap between two recorded moments, not from sampling.
    A gap of exactly the threshold gives none, because it ends with a new sign; only where
    nothing followed up to as-of, a rule that fires *at* its threshold (``>=``) has an alarm of
    zero length.

    Between an end and the restart of the same work no alarm is on. Rules over columns that are
    overwritten (``updated_at``) have no history. Other conditions of a rule (is the process alive,
    was there output) are not known for the past either: a classifier's alarm is that of its
    silence. Messages of which only the time of the last one is stored make no gap.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> episodes = alarms(demo(), detectors=["dashboard_stuck_60m"])
    >>> episodes["ended_by"].unique().sort().to_list()
    ['as-of', 'end']
    """
    checked = checked_snapshot(snap, "detectors.alarms")
    chosen = chosen_detectors(detectors, "alarms", has_alarms=True)
    for detector in chosen:
        if detector.restarts_on is None:
            raise ArgumentError(
                f"The alarms of {detector.name!r} cannot be reconstructed: what restarts its "
                "clock is not recorded as it happens.",
                "choose one with has_alarms in sa.detectors.known(), or give yours restarts_on",
            )
    entities = _entities(checked, policy)
    points = {
        restart: _points(checked, entities, restart)
        for restart in {detector.restarts_on for detector in chosen}
    }
    parts = [
        _episodes(detector, points[detector.restarts_on], entities, checked) for detector in chosen
    ]
    return pl.concat([ALARMS.empty(), *parts]).sort(*KEY, maintain_order=True)


def _entities(facts: Facts, policy: Policy | None) -> pl.DataFrame:
    """Distinct entities, with the columns that their moments are looked up by."""
    over = states(facts, policy=policy)["is_terminal"]
    named = facts.entities.with_columns(
        session_id=pl.coalesce("session_id", "entity_id"), is_over=over
    )
    return deduplicated(named, keep="last").select(
        *(*KEY, "session_id", "kind", "recorded_by", "agent", "is_over"),
        *("created_at", "started_at", "ended_at", "last_message_at"),
    )


def _points(facts: Facts, entities: pl.DataFrame, restarts_on: str | None) -> pl.DataFrame:
    """Every moment that starts or restarts the clock of a kind of rule, and the next one.

    An end comes before a sign of the same instant: that is resumed work.
    """
    start = "created_at" if restarts_on == "creation" else "started_at"
    changes = _changes(facts)
    parts = [
        entities.select(*KEY, at=pl.coalesce(start, "created_at"), what=_SIGN),
        entities.select(*KEY, at="ended_at", what=_END),
        changes,
    ]
    if restarts_on == "report":
        # A start is no report: nothing counts before the first one.
        parts = [parts[1], changes.filter(pl.col("what") == _END)]
    if restarts_on in _SIGNS_OF_LIFE:
        parts.append(_signs_of_life(facts, entities, _SIGNS_OF_LIFE[restarts_on]))
    if restarts_on == "message":
        parts.append(entities.select(*KEY, at="last_message_at", what=_STORED))
    points = (
        pl.concat([_NO_POINTS, *parts], how="diagonal_relaxed")
        .with_columns(pl.col("n_tools").fill_null(0))
        .drop_nulls("at")
        .filter(pl.col("at") <= facts.as_of)
        .sort(*KEY, "at", "what")
        .with_columns(
            next_at=pl.col("at").shift(-1).over(KEY),
            next_what=pl.col("what").shift(-1).over(KEY),
            n_tools_running=pl.col("n_tools").cum_sum().over(KEY),
        )
    )
    # Before a last message of which only the time is stored, others may have come.
    is_unseen = (pl.col("next_what") == _STORED) & (pl.col("next_at") > pl.col("at"))
    return points.filter(pl.col("what") != _END, ~is_unseen.fill_null(value=False))


_NO_POINTS = pl.DataFrame(
    schema={
        **dict.fromkeys(KEY, pl.String),
        **{"at": schema.MOMENT, "what": pl.Int8, "n_tools": pl.Int64, "report_state": pl.String},
    }
)


def _changes(facts: Facts) -> pl.DataFrame:
    """Starts and ends among the transitions, so that the clock of resumed work restarts."""

    def is_at_work(status: str) -> pl.Expr:
        at_work = pl.col(status) == _RUNNING
        for known in all_systems():
            if known.ends.statuses:
                is_over = pl.col(status).is_in(list(known.ends.statuses))
                at_work = pl.when(system=known.name).then(~is_over).otherwise(at_work)
        return at_work

    starts = is_at_work("status")
    changed = facts.transitions.filter(
        (starts != is_at_work("previous_status")).fill_null(value=True)
    )
    return changed.select(*KEY, "at", what=pl.when(starts).then(_SIGN).otherwise(_END))


_SIGNS_OF_LIFE: Mapping[str | None, pl.Expr] = {
    "message": pl.col("kind") == "message",
    "activity": pl.col("is_activity"),
    "report": pl.col("kind").str.starts_with("report.") & pl.col("is_activity"),
}


def _signs_of_life(facts: Facts, entities: pl.DataFrame, which: pl.Expr) -> pl.DataFrame:
    """Signs of life in the log of the session that does the work, while it runs."""
    kind = pl.col("kind")
    is_called = kind.str.ends_with("tool.called")
    is_answered = kind.str.ends_with("tool.success") | kind.str.ends_with("tool.failed")
    signs = facts.events.filter(which.fill_null(value=False), pl.col("at").is_not_null()).select(
        *("source", "system", "at"),
        session_id="entity_id",
        report_state="name",
        n_tools=is_called.cast(pl.Int8) - is_answered.cast(pl.Int8),
    )
    joined = entities.join(signs, on=["source", "system", "session_id"], how="inner")
    # Of work inside a session only the signs while it was running.
    is_session = pl.col("entity_type") == "session"
    during = pl.col("at").is_between("started_at", pl.coalesce("ended_at", pl.lit(facts.as_of)))
    return joined.filter(is_session | during).select(
        *KEY, "at", "n_tools", "report_state", what=_SIGN
    )


def _episodes(
    detector: Detector, points: pl.DataFrame, entities: pl.DataFrame, facts: Facts
) -> pl.DataFrame:
    """The alarms of one detector: the part of each gap past its threshold."""
    stops, leaves = pl.coalesce("next_at", pl.lit(facts.as_of)), pl.col("leaves")
    gaps = (
        points.filter(pl.col("entity_type").is_in(detector.entity_types))
        .filter(detector.system is None or pl.col("system") == detector.system)
        .join(entities, on=KEY, how="inner", maintain_order="left")
        # An entity that is over at an unknown time may have been over all along.
        .filter(pl.col("next_at").is_not_null() | ~pl.col("is_over").fill_null(value=True))
        .filter(*_population(detector))
        .with_columns(limit=detector.threshold())
        .with_columns(begins=pl.col("at") + _span(pl.col("limit")), leaves=_leaves(detector))
        # Below an upper limit excludes the limit itself, within a day includes it.
        .with_columns(
            is_left=(leaves < stops if detector.upper_s is None else leaves <= stops).fill_null(
                value=False
            )
        )
        .with_columns(
            ends=pl.when("is_left").then("leaves").otherwise(stops),
            is_on=pl.col("next_at").is_null() & ~pl.col("is_left"),
        )
    )
    is_alarm = pl.col("begins") < pl.col("ends")
    if detector.comparison == ">=":
        is_alarm = is_alarm | ((pl.col("begins") == pl.col("ends")) & pl.col("is_on"))
    episodes = gaps.filter(is_alarm).select(
        *(*KEY, "session_id", "kind"),
        detector=pl.lit(detector.name),
        label=pl.lit(detector.one_label or detector.question),
        sign_at="at",
        started_at="begins",
        ended_at="ends",
        duration_s=(pl.col("ends") - pl.col("begins")).dt.total_microseconds() / 1e6,
        is_censored="is_on",
        ended_by=first_word(
            "sign of life",
            range="is_left",
            **{"as-of": pl.col("next_at").is_null(), "end": pl.col("next_what") == _END},
        ),
        threshold_s="limit",
    )
    return ALARMS.conform(episodes).sort(*KEY, "started_at")


def _population(detector: Detector) -> list[pl.Expr]:
    """Filters for the entities and the reports that a detector looks at."""
    kept = [] if detector.population is None else [detector.population]
    when = detector.when
    if when is not None and when.meta.root_names() == ["report_state"]:
        kept.append(when)
    return kept


def _leaves(detector: Detector) -> pl.Expr:
    """The moment at which a detector stops looking, whatever happens."""
    moments = [pl.lit(None, schema.MOMENT)]
    if detector.upper_s is not None:
        moments.append(pl.col("at") + _span(pl.lit(detector.upper_s)))
    if detector.listed_s is not None:
        moments.append(pl.col("started_at") + _span(pl.lit(detector.listed_s)))
    return pl.min_horizontal(moments)


def _span(seconds: pl.Expr) -> pl.Expr:
    return pl.duration(microseconds=(seconds * 1e6).round().cast(pl.Int64))
