"""How the sessions of Agent Orchestrator stood at an earlier instant.

A record holds its newest values only. One that was last written by then still says what it
said; of any other, the lines of logs up to then tell the axes (`decisions.standing`), and a
moment that lies before then tells itself and what was written with it. An archive that was
put away by then tells its session, until a log says more. What remains is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, changed_facts
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import look_up
from stateanalytics.systems.agent_orchestrator.events import standing
from stateanalytics.systems.agent_orchestrator.go_sessions import (
    ENDS,
    add_silence,
    with_circumstances,
)
from stateanalytics.systems.agent_orchestrator.go_work import with_turns, work_entities, work_then
from stateanalytics.systems.agent_orchestrator.mapping import AXES
from stateanalytics.systems.agent_orchestrator.meaning import (
    add_kill_events,
    add_meaning,
    split_codes,
)
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.agent_orchestrator.sessions import tell
from stateanalytics.systems.agent_orchestrator.statuses import (
    EVENT_PRIORITIES,
    is_terminal_rule,
    name_primary_reason,
)
from stateanalytics.systems.history import Past

_KEY = ["source", "entity_id"]
_MOMENTS = [name for name, dtype in frames.SESSIONS.dtypes.items() if dtype == schema.MOMENT]
# The file's own moment is of whoever copied it, and these two are of the beginning.
_WRITES = [name for name in _MOMENTS if name not in ("modified_at", "created_at", "started_at")]
_WRITTEN_WITH = {
    "report_at": ("report_state", "report_note"),
    "watcher_activated_at": ("stored_watcher_trigger",),
    "escalated_at": ("escalation_reason",),
    "terminated_at": ("termination_reason",),
    "pr_observed_at": ("pr_number", "pr_url", "pr_urls", "n_prs"),
    "pr_enriched_at": (
        *("pr_title", "pr_ci_status", "pr_review_decision", "is_pr_mergeable", "is_pr_draft"),
        *("has_pr_conflicts", "is_pr_behind", "n_pr_additions", "n_pr_deletions"),
        "n_pr_unresolved_threads",
    ),
}
_WRITTEN_OVER = (
    *("n_watcher_polls", "n_recoveries", "detecting_evidence_hash"),
    *("payload_key", "reject_reason", "size_bytes", "other_keys"),
)
_MEANT = (
    *("lifecycle", "outcome", "health", "delivery", "reason_codes", "confidence"),
    *("reattribution", "reattribution_confidence", "has_kill_event"),
)
_IDENTITY = ("name", "agent", "model")


def rewind(past: Past, facts: Facts) -> Past:
    """Sessions and records as they stood, in place of those that the shared history tells.

    Parameters
    ----------
    past : Past
        All rows at the instant, as `history.facts_at` has them.
    facts : Facts
        Those of now.

    Returns
    -------
    Past
        Entities of this system mapped from the axes of then by the same functions as those
        of now; ``ao_sessions`` and ``ao_decisions`` cut likewise; and in ``lost`` what no
        record and no log tells.
    """
    at = past.at
    is_mine = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "session")
    there = past.facts.entities.filter(is_mine).select(*_KEY, *_IDENTITY)
    records = facts.detail(frames.SESSIONS)
    decided = facts.detail(frames.DECISIONS)
    # An input that proves nothing later was looked at then, and says what stood.
    seen_then = facts.sources.filter(pl.col("last_at") <= at)["source"].implode()
    known = records.with_columns(_is_of_then=pl.col("source").is_in(seen_then))
    chosen = _chosen(known.join(there, on=_KEY, how="inner"), decided, at)
    as_written = chosen.filter("_is_written")
    touched = chosen.filter(~pl.col("_is_written"))
    lines = decided.filter(pl.col("at") <= at)
    told = _as_told(touched, _reports(past.facts.events), at)
    cut = [pl.when(pl.col(name) <= at).then(name).alias(name) for name in _MOMENTS]
    beside = _beside(facts, at)
    both = _with_codes(
        pl.concat([as_written, told], how="diagonal_relaxed").with_columns(cut),
        beside[frames.CIRCUMSTANCES.name],
    )
    # The status of the Go rewrite depends on the clock, whoever wrote the row last.
    is_new = ~pl.col("_is_written") | _is_go()
    told_of = (past.facts.events, beside[frames.WORK.name], beside[frames.USAGE.name])
    meant = _meant(_silent(both, told_of).filter(is_new).drop(_MEANT), lines)
    stood = pl.concat([split_codes(both.filter(~is_new)), meant], how="diagonal_relaxed")
    older = _older(known, stood, at)
    sessions = frames.SESSIONS.conform(pl.concat([stood, older], how="diagonal_relaxed"))
    entities = _replaced(past.facts.entities, stood, past.facts.events, beside)
    of_then = {frames.SESSIONS.name: sessions, frames.DECISIONS.name: lines, **beside}
    details = {**past.facts.details, **of_then}
    return replace(
        past,
        facts=changed_facts(past.facts, entities=entities, details=details),
        lost=_lost(past, stood),
    )


def _written_at() -> pl.Expr:
    """When a record was last written, where it says so: one without axes keeps no moment."""
    last = pl.max_horizontal(_WRITES)
    says_so = pl.any_horizontal(pl.col("last_transition_at", "archived_at").is_not_null())
    return pl.when(says_so).then(last)


def _is_written_by(at: datetime) -> pl.Expr:
    """Was a record last written by then, by its own moments or by those of its file."""
    last = pl.max_horizontal(_WRITES)
    by_file = (pl.col("modified_at") <= at) & (last.is_null() | (last <= at))
    return ((_written_at() <= at) | by_file).fill_null(value=False)


def _chosen(records: pl.DataFrame, decided: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The record that tells each session at the instant, and how logs say that it stood.

    That is the current one where it was not written since, else an earlier one (an archive,
    an original of the migration) that no log and no moment outdates, else the current one,
    rewound.
    """
    stood = standing(decided, at)
    told = stood.rename({name: f"then_{name}" for name in stood.columns if name not in _KEY})
    past_moments = pl.max_horizontal(pl.when(pl.col(name) <= at).then(name) for name in _WRITES)
    last_line = decided.group_by(_KEY).agg(_last_line_at=pl.col("at").max())
    # A row of the Go rewrite is told by those of its pull requests too.
    is_changed_since = _is_go() & (pl.col("_last_line_at") > at).fill_null(value=False)
    of_current = past_moments.filter("is_current").first().over(_KEY)
    known_at = pl.max_horizontal(of_current, "then_decided_at")
    ranked = (
        records.filter("is_readable")
        .join(last_line, on=_KEY, how="left", maintain_order="left")
        .join(told, on=_KEY, how="left", maintain_order="left")
        .with_columns(
            _is_written=pl.col("_is_of_then") | (_is_written_by(at) & ~is_changed_since),
            _written_at=_written_at(),
        )
        .with_columns(
            _rank=pl.when(pl.col("is_current") & pl.col("_is_written"))
            .then(0)
            .when(pl.col("_is_written") & (pl.col("_written_at") >= known_at).fill_null(value=True))
            .then(1)
            .when("is_current")
            .then(2)
            .otherwise(3)
        )
        .sort(
            "_rank", "_written_at", descending=[False, True], nulls_last=True, maintain_order=True
        )
    )
    first = ranked.unique(_KEY, keep="first", maintain_order=True)
    return first.with_columns(is_current=pl.lit(value=True))


def _older(records: pl.DataFrame, stood: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Records that were there besides, and were not written since."""
    there = records.filter(pl.col("_is_of_then") | _is_written_by(at))
    others = there.join(stood, on=["source", "path"], how="anti")
    return others.with_columns(is_current=pl.lit(value=False))


def _reports(events: pl.DataFrame) -> pl.DataFrame:
    """The last report that each session's agent was granted, by the log."""
    accepted = events.filter(
        (pl.col("system") == SYSTEM)
        & pl.col("kind").str.starts_with("report.")
        & pl.col("is_activity")
    )
    return (
        accepted.sort("at", "seq", nulls_last=True)
        .group_by(_KEY, maintain_order=True)
        .agg(
            then_report_at=pl.col("at").last(),
            then_report_state=pl.col("name").last(),
            then_report_note=pl.col("detail").last(),
        )
    )


def _as_told(touched: pl.DataFrame, reports: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Records that were written since, with what logs and their own older moments tell."""
    has_words = pl.col("then_session_state").is_not_null()
    # A moment that was still to come was not stored, nor was what is written with it; what each
    # write replaces is lost.
    moments = {name: pl.when(pl.col(name) <= at).then(name) for name in _MOMENTS}
    companions = {
        name: pl.when(pl.col(moment) <= at).then(name)
        for moment, names in _WRITTEN_WITH.items()
        for name in names
    }
    over = {name: pl.lit(None).cast(frames.SESSIONS.dtypes[name]) for name in _WRITTEN_OVER}
    words = {name: pl.col(f"then_{name}") for name in (*AXES, "stored_status", "legacy_status")}
    joined = touched.join(reports, on=_KEY, how="left", maintain_order="left")
    cut = joined.with_columns(
        **moments,
        **companions,
        **over,
        **words,
        _is_report_lost=(pl.col("report_at") > at) & pl.col("then_report_at").is_null(),
        _is_contradicted=(
            pl.col("then_session_state") != pl.coalesce("then_next_previous", "session_state")
        ).fill_null(value=False),
    )
    report = ("report_at", "report_state", "report_note")
    whole = cut.with_columns(
        *(
            pl.when(pl.col("report_at").is_null()).then(f"then_{name}").otherwise(name).alias(name)
            for name in report
        ),
        is_synthesized=~_is_go() & ~has_words,
        evidence_text="then_evidence_text",
        detecting_attempts="then_detecting_attempts",
        last_transition_at="then_decided_at",
        **{
            name: pl.coalesce(
                name, pl.when(pl.col("session_state") == state).then("then_stood_since")
            )
            for name, state in (("terminated_at", "terminated"), ("completed_at", "done"))
        },
        activity_last_at=pl.coalesce("activity_last_at", pl.when(_is_go()).then("then_seen_since")),
    ).with_columns(
        terminated_at=pl.when(~_is_go())
        .then("terminated_at")
        .when(pl.col("legacy_status").is_in(ENDS))
        .then("then_over_since"),
        is_ao_terminal=pl.when(_is_go())
        .then(pl.col("legacy_status").is_in(ENDS))
        .otherwise(is_terminal_rule(pl)),
        event_priority=pl.when(~_is_go()).then(
            look_up(pl.col("legacy_status"), EVENT_PRIORITIES, library=pl)
        ),
    )
    return name_primary_reason(whole)


def _is_go() -> pl.Expr:
    return pl.col("generation") == "G3"


def _silent(stood: pl.DataFrame, beside: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sessions of the Go rewrite as their one clock rule says, source by source."""
    sources = stood.partition_by("source", as_dict=True, maintain_order=True)
    parts = [
        add_silence(rows, [frame.filter(pl.col("source") == source) for frame in beside])
        if (rows["generation"] == "G3").any()
        else rows
        for (source,), rows in sources.items()
    ]
    return pl.concat(parts) if parts else stood


def _meant(told: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """What the axes of then mean, by the functions that say it of those of now."""
    parts = [
        add_meaning(add_kill_events(rows, lines.filter(pl.col("source") == source)))
        for (source,), rows in told.partition_by("source", as_dict=True, include_key=True).items()
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else told


def _beside(facts: Facts, at: datetime) -> dict[str, pl.DataFrame]:
    """The frames that tell of more than records, up to the instant."""
    cut = {
        shape.name: facts.detail(shape).filter(pl.col("at") <= at)
        for shape in (frames.USAGE, frames.CIRCUMSTANCES)
    }
    return {**cut, frames.WORK.name: work_then(facts.detail(frames.WORK), at)}


def _with_codes(stood: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Records with what was known of their sessions beside them, source by source."""
    sources = stood.partition_by("source", as_dict=True, maintain_order=True)
    parts = [
        with_circumstances(rows, known.filter(pl.col("source") == source))
        for (source,), rows in sources.items()
    ]
    return pl.concat(parts) if parts else stood


def _replaced(
    entities: pl.DataFrame,
    stood: pl.DataFrame,
    events: pl.DataFrame,
    beside: Mapping[str, pl.DataFrame],
) -> pl.DataFrame:
    """The entities with those of this system told by their records of then, in their order."""
    mine = events.filter(pl.col("system") == SYSTEM)
    usage = beside[frames.USAGE.name]
    told = [
        tell(
            rows,
            mine.filter(pl.col("source") == source),
            str(source),
            usage.filter(pl.col("source") == source),
        )
        for (source,), rows in stood.partition_by("source", as_dict=True, include_key=True).items()
    ]
    sessions = pl.concat([entities.clear(), *told])
    work = beside[frames.WORK.name]
    key = list(schema.ENTITY_KEY)
    known = pl.concat([with_turns(sessions, work), work_entities(work, sessions)])
    others = entities.join(known, on=key, how="anti")
    places = entities.select(key).with_row_index("_place")
    both = pl.concat([others, known]).join(places, on=key, how="left", nulls_equal=True)
    return both.sort("_place").drop("_place")


def _lost(past: Past, stood: pl.DataFrame) -> pl.DataFrame:
    """What is lost of this system's rows: all of a record that nobody tells, or nothing.

    Where the next line says that something else stood before it, or the record holds what no
    line told, somebody wrote in between and did not log it: before or after, nobody knows.
    """
    is_named = pl.any_horizontal(pl.col("then_session_state", "then_stored_status").is_not_null())
    is_told = pl.col("_is_written") | (is_named & ~pl.col("_is_contradicted"))
    known = stood.select(
        *_KEY,
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
        _untold=~is_told,
        _unseen=~is_told & pl.col("report_at").is_null(),
        _unreported=pl.col("_is_report_lost").fill_null(value=False),
    )
    key = list(schema.ENTITY_KEY)
    joined = past.facts.entities.select(key).hstack(past.lost)
    mixed = joined.join(known, on=key, how="left", maintain_order="left")
    rules = {
        **dict.fromkeys(("status", "updated", "reason", "record"), "_untold"),
        "silence": "_unseen",
        "report": "_unreported",
    }
    return mixed.select(
        (pl.coalesce(rules[name], name) if name in rules else pl.col(name)).alias(name)
        for name in past.lost.columns
    )
