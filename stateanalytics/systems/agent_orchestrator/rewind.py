"""Sessions of Agent Orchestrator at an earlier instant.

A record holds its newest values only. One that was last written by the instant holds what it
held at the instant; for any other, the lines of logs up to the instant give the axes
(`events.decided_at_instant`), and a moment before the instant stands, with the values that
were written together with it. An archive that existed by the instant describes its session,
until a log has more. Everything else is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Past, changed_facts
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import look_up
from stateanalytics.systems.agent_orchestrator.events import decided_at_instant
from stateanalytics.systems.agent_orchestrator.go_sessions import add_silence, with_circumstances
from stateanalytics.systems.agent_orchestrator.go_work import with_turns, work_at, work_entities
from stateanalytics.systems.agent_orchestrator.mapping import AXES
from stateanalytics.systems.agent_orchestrator.meaning import (
    add_kill_events,
    add_meaning,
    split_codes,
)
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.agent_orchestrator.sessions import session_entities
from stateanalytics.systems.agent_orchestrator.statuses import (
    EVENT_PRIORITIES,
    GO_ENDS,
    is_terminal,
    primary_reason,
)

_KEY = ["source", "entity_id"]
_MOMENTS = [name for name, dtype in frames.SESSIONS.dtypes.items() if dtype == schema.MOMENT]
# The file's own moment is of whoever copied it, and these two are of the beginning.
_WRITES = [name for name in _MOMENTS if name not in ("modified_at", "created_at", "started_at")]
_WRITTEN_TOGETHER = {
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
_OVERWRITTEN = (
    *("n_watcher_polls", "n_recoveries", "detecting_evidence_hash"),
    *("payload_key", "reject_reason", "size_bytes", "other_keys"),
)
_MEANING = (
    *("lifecycle", "outcome", "health", "delivery", "reason_codes", "confidence"),
    *("reattribution", "reattribution_confidence", "has_kill_event"),
)
_IDENTITY = ("name", "agent", "model")


def rewind(past: Past, facts: Facts) -> Past:
    """Sessions and records at the instant, in place of those of the shared history.

    Parameters
    ----------
    past : Past
        All rows at the instant, as `history.facts_at` has them.
    facts : Facts
        Present facts.

    Returns
    -------
    Past
        Entities of this system, mapped from the axes at the instant by the same functions
        as the present ones; ``ao_sessions`` and ``ao_decisions`` cut likewise; and in
        ``lost`` what no record and no log holds.
    """
    at = past.at
    is_mine = (pl.col("system") == SYSTEM) & (pl.col("entity_type") == "session")
    known = past.facts.entities.filter(is_mine).select(*_KEY, *_IDENTITY)
    decisions = facts.detail(frames.DECISIONS)
    # An input that proves nothing later was looked at by the instant, and is unchanged since.
    is_unchanged = pl.col("source").is_in(
        facts.sources.filter(pl.col("last_at") <= at)["source"].implode()
    )
    records = facts.detail(frames.SESSIONS).with_columns(_is_unchanged=is_unchanged)
    chosen = _chosen(records.join(known, on=_KEY, how="inner"), decisions, at)
    rewound = _rewound(chosen.filter(~pl.col("_is_written")), _reports(past.facts.events), at)
    lines = decisions.filter(pl.col("at") <= at)
    cut = [pl.when(pl.col(name) <= at).then(name).alias(name) for name in _MOMENTS]
    details = {
        frames.WORK.name: work_at(facts.detail(frames.WORK), at),
        **{
            frame.name: facts.detail(frame).filter(pl.col("at") <= at)
            for frame in (frames.USAGE, frames.CIRCUMSTANCES)
        },
    }
    sessions = _by_source(
        with_circumstances,
        pl.concat([chosen.filter("_is_written"), rewound], how="diagonal_relaxed").with_columns(
            cut
        ),
        details[frames.CIRCUMSTANCES.name],
    )
    # The status of the Go rewrite depends on the clock, whoever wrote the row last.
    is_remapped = ~pl.col("_is_written") | _is_go()
    clocks = (past.facts.events, details[frames.WORK.name], details[frames.USAGE.name])
    silent = _by_source(_add_silence, sessions, *clocks)
    remapped = _by_source(_remapped, silent.filter(is_remapped).drop(_MEANING), lines)
    sessions = pl.concat(
        [split_codes(sessions.filter(~is_remapped)), remapped], how="diagonal_relaxed"
    )
    older = _older(records, sessions, at)
    shaped = frames.SESSIONS.conform(pl.concat([sessions, older], how="diagonal_relaxed"))
    details |= {frames.SESSIONS.name: shaped, frames.DECISIONS.name: lines}
    entities = _replaced(past.facts.entities, sessions, past.facts.events, details)
    return replace(
        past,
        facts=changed_facts(
            past.facts, entities=entities, details={**past.facts.details, **details}
        ),
        lost=_lost(past, sessions),
    )


def _by_source(
    function: Callable[..., pl.DataFrame], sessions: pl.DataFrame, *frames: pl.DataFrame
) -> pl.DataFrame:
    """Result of a function over the rows of each source, with the other frames' rows of it."""
    parts = [
        function(rows, *(frame.filter(pl.col("source") == source) for frame in frames))
        for (source,), rows in sessions.partition_by(
            "source", as_dict=True, maintain_order=True
        ).items()
    ]
    return pl.concat(parts, how="diagonal_relaxed") if parts else sessions


def _add_silence(sessions: pl.DataFrame, *others: pl.DataFrame) -> pl.DataFrame:
    """Status by silence, which needs a clock only where there are sessions of the Go rewrite."""
    return add_silence(sessions, others) if (sessions["generation"] == "G3").any() else sessions


def _remapped(sessions: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """Meaning of the axes at the instant, by the functions that map the present ones."""
    return add_meaning(add_kill_events(sessions, lines))


def _written_at() -> pl.Expr:
    """When a record was last written; null for one without axes, which keeps no such moment."""
    last = pl.max_horizontal(_WRITES)
    has_moment = pl.any_horizontal(pl.col("last_transition_at", "archived_at").is_not_null())
    return pl.when(has_moment).then(last)


def _is_written_by(at: datetime) -> pl.Expr:
    """Was a record last written by the instant, by its own moments or that of its file."""
    last = pl.max_horizontal(_WRITES)
    by_file = (pl.col("modified_at") <= at) & (last.is_null() | (last <= at))
    return ((_written_at() <= at) | by_file).fill_null(value=False)


def _chosen(records: pl.DataFrame, decisions: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The record that describes each session at the instant, with the axes of its logs.

    That is the current one where it was not written since, else an earlier one (an archive,
    an original of the migration) that no log and no moment outdates, else the current one,
    to be rewound.
    """
    decided = decided_at_instant(decisions, at)
    logged = decided.rename({name: f"log_{name}" for name in decided.columns if name not in _KEY})
    past_moments = pl.max_horizontal(pl.when(pl.col(name) <= at).then(name) for name in _WRITES)
    last_line = decisions.group_by(_KEY).agg(_last_line_at=pl.col("at").max())
    # The status of a row of the Go rewrite depends on its pull requests too.
    is_changed_since = _is_go() & (pl.col("_last_line_at") > at).fill_null(value=False)
    current_at = past_moments.filter("is_current").first().over(_KEY)
    known_at = pl.max_horizontal(current_at, "log_decided_at")
    ranked = (
        records.filter("is_readable")
        .join(last_line, on=_KEY, how="left", maintain_order="left")
        .join(logged, on=_KEY, how="left", maintain_order="left")
        .with_columns(
            _is_written=pl.col("_is_unchanged") | (_is_written_by(at) & ~is_changed_since),
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


def _older(records: pl.DataFrame, sessions: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Further records that existed at the instant, and were not written since."""
    existing = records.filter(pl.col("_is_unchanged") | _is_written_by(at))
    others = existing.join(sessions, on=["source", "path"], how="anti")
    return others.with_columns(is_current=pl.lit(value=False))


def _reports(events: pl.DataFrame) -> pl.DataFrame:
    """Last accepted report of each session, by the log."""
    accepted = events.filter(
        (pl.col("system") == SYSTEM)
        & pl.col("kind").str.starts_with("report.")
        & pl.col("is_activity")
    )
    return (
        accepted.sort("at", "seq", nulls_last=True)
        .group_by(_KEY, maintain_order=True)
        .agg(
            log_report_at=pl.col("at").last(),
            log_report_state=pl.col("name").last(),
            log_report_note=pl.col("detail").last(),
        )
    )


def _rewound(records: pl.DataFrame, reports: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """Records that were written since, with the values of logs and of their own older moments."""
    has_words = pl.col("log_session_state").is_not_null()
    # A moment after the instant was not stored yet, nor were the values written with it; what
    # each write replaces is lost.
    moments = {name: pl.when(pl.col(name) <= at).then(name) for name in _MOMENTS}
    companions = {
        name: pl.when(pl.col(moment) <= at).then(name)
        for moment, names in _WRITTEN_TOGETHER.items()
        for name in names
    }
    overwritten = {name: pl.lit(None).cast(frames.SESSIONS.dtypes[name]) for name in _OVERWRITTEN}
    words = {name: pl.col(f"log_{name}") for name in (*AXES, "stored_status", "legacy_status")}
    joined = records.join(reports, on=_KEY, how="left", maintain_order="left")
    cut = joined.with_columns(
        **moments,
        **companions,
        **overwritten,
        **words,
        _is_report_lost=(pl.col("report_at") > at) & pl.col("log_report_at").is_null(),
        _is_contradicted=(
            pl.col("log_session_state") != pl.coalesce("log_next_previous", "session_state")
        ).fill_null(value=False),
    )
    report = ("report_at", "report_state", "report_note")
    whole = cut.with_columns(
        *(
            pl.when(pl.col("report_at").is_null()).then(f"log_{name}").otherwise(name).alias(name)
            for name in report
        ),
        is_synthesized=~_is_go() & ~has_words,
        evidence_text="log_evidence_text",
        detecting_attempts="log_detecting_attempts",
        last_transition_at="log_decided_at",
        **{
            name: pl.coalesce(
                name, pl.when(pl.col("session_state") == state).then("log_state_since")
            )
            for name, state in (("terminated_at", "terminated"), ("completed_at", "done"))
        },
        activity_last_at=pl.coalesce("activity_last_at", pl.when(_is_go()).then("log_seen_since")),
    ).with_columns(
        terminated_at=pl.when(~_is_go())
        .then("terminated_at")
        .when(pl.col("legacy_status").is_in(GO_ENDS))
        .then("log_over_since"),
        is_ao_terminal=pl.when(_is_go())
        .then(pl.col("legacy_status").is_in(GO_ENDS))
        .otherwise(is_terminal()),
        event_priority=pl.when(~_is_go()).then(look_up(pl.col("legacy_status"), EVENT_PRIORITIES)),
    )
    return whole.with_columns(primary_reason=primary_reason())


def _is_go() -> pl.Expr:
    return pl.col("generation") == "G3"


def _replaced(
    entities: pl.DataFrame,
    sessions: pl.DataFrame,
    events: pl.DataFrame,
    details: Mapping[str, pl.DataFrame],
) -> pl.DataFrame:
    """Entities with those of this system replaced by their records at the instant."""
    work, usage = details[frames.WORK.name], details[frames.USAGE.name]
    own_events = events.filter(pl.col("system") == SYSTEM)
    parts = [
        session_entities(
            rows,
            own_events.filter(pl.col("source") == source),
            str(source),
            usage.filter(pl.col("source") == source),
        )
        for (source,), rows in sessions.partition_by("source", as_dict=True).items()
    ]
    own = pl.concat([entities.clear(), *parts])
    replacing = pl.concat([with_turns(own, work), work_entities(work, own)])
    key = list(schema.ENTITY_KEY)
    places = entities.select(key).with_row_index("_place")
    both = pl.concat([entities.join(replacing, on=key, how="anti"), replacing])
    return both.join(places, on=key, how="left", nulls_equal=True).sort("_place").drop("_place")


def _lost(past: Past, sessions: pl.DataFrame) -> pl.DataFrame:
    """What is lost of this system's rows: all of a record that nothing describes, or nothing.

    Where the next line records another previous state, or the record holds what no line
    recorded, somebody wrote in between and did not log it: before or after is not known.
    """
    is_named = pl.any_horizontal(pl.col("log_session_state", "log_stored_status").is_not_null())
    is_known = pl.col("_is_written") | (is_named & ~pl.col("_is_contradicted"))
    known = sessions.select(
        *_KEY,
        system=pl.lit(SYSTEM),
        entity_type=pl.lit("session"),
        _unknown=~is_known,
        _unseen=~is_known & pl.col("report_at").is_null(),
        _unreported=pl.col("_is_report_lost").fill_null(value=False),
    )
    key = list(schema.ENTITY_KEY)
    joined = past.facts.entities.select(key).hstack(past.lost)
    mixed = joined.join(known, on=key, how="left", maintain_order="left")
    rules = {
        **dict.fromkeys(("status", "updated", "reason", "record"), "_unknown"),
        "silence": "_unseen",
        "report": "_unreported",
    }
    return mixed.select(
        (pl.coalesce(rules[name], name) if name in rules else pl.col(name)).alias(name)
        for name in past.lost.columns
    )
