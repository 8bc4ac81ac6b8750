"""The Go rewrite's work beside its sessions: turns, reviews, switches and spawns.

What each of their words means stands in ``data/situations.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.databases import GoTables
from stateanalytics.systems.agent_orchestrator.places import SYSTEM
from stateanalytics.systems.provider_errors import cause_by_words
from stateanalytics.systems.situations import add_situations, situations_from_csv
from stateanalytics.systems.values_then import has_begun

_TABLE = situations_from_csv(__package__)
_CUT_OFF = "controller ended before the turn completed"
_FIRST = {
    "turn": "queued",
    "agent_switch": "preparing_handoff",
    "interface_transition": "requested",
}
VERDICTS = ("approved", "changes_requested")
_SAME_SPAWN = timedelta(seconds=2)
"""A spawn that failed is written this close to the end of the row that it leaves."""

WORK_TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "turn": (
        "conversation_turns",
        {
            "session_id": "handled_by_session_id",
            "raw_status": "state",
            "error_message": "error_message",
            "created_at": "requested_at",
            "started_at": "started_at",
            "ended_at": "completed_at",
        },
    ),
    "review_run": (
        "review_run",
        {
            "session_id": "session_id",
            "agent": "harness",
            "raw_status": "status",
            "verdict": "verdict",
            "error_message": "body",
            "created_at": "created_at",
            "started_at": "created_at",
            "ended_at": "delivered_at",
        },
    ),
    "agent_switch": (
        "agent_switches",
        {
            "session_id": "session_id",
            "agent": "target_harness",
            "raw_status": "state",
            "error_code": "error_code",
            "created_at": "requested_at",
            "started_at": "requested_at",
            "ended_at": "updated_at",
        },
    ),
    "interface_transition": (
        "session_interface_transitions",
        {
            "session_id": "session_id",
            "kind": "target_mode",
            "raw_status": "phase",
            "error_code": "error_code",
            "error_message": "error_detail",
            "created_at": "created_at",
            "started_at": "created_at",
            "ended_at": "completed_at",
        },
    ),
}
"""Each type of work: its table, and which of its columns are the canonical ones."""


def known_words(entity_type: str) -> list[str]:
    """The words that are understood of a type of work."""
    words = [name.partition(".") for name in _TABLE["situation"]]
    more = ["complete", "delivered"] if entity_type == "review_run" else []
    return [*(word for of, _, word in words if of == entity_type), *more]


def read_work(tables: GoTables) -> pl.DataFrame:
    """Every piece of work in the columns of `frames.WORK`, its session by its own name."""
    pieces = [
        tables[table].select(entity_type=pl.lit(entity_type), entity_id="id", **columns)
        for entity_type, (table, columns) in WORK_TABLES.items()
    ]
    work = pl.concat([*pieces, _spawns(tables)], how="diagonal")
    reviewed = _reviewed(tables)
    replaced = _replaced_turns(tables).implode()
    is_open = ~_is_over()
    return (
        work.join(reviewed, on=["entity_type", "entity_id"], how="left", maintain_order="left")
        .with_columns(
            # A review is over when its pass is, whenever that reaches the provider.
            ended_at=pl.when(~is_open).then(pl.coalesce("reviewed_at", "ended_at")),
            # What a review says is no error, but where the review failed.
            error_message=pl.when(
                (pl.col("entity_type") != "review_run") | (pl.col("raw_status") == "failed")
            ).then("error_message"),
            is_replaced=pl.when(pl.col("entity_type") == "turn").then(
                pl.col("entity_id").is_in(replaced)
            ),
        )
        .drop("reviewed_at")
    )


def _replaced_turns(tables: GoTables) -> pl.Series:
    """The turns that were taken back, or that do not lead to what is shown of their chat.

    Of a branch that another one was forked from, what was said before the fork leads there. A
    version that does not say which branch is shown tells of each edit which turn it replaced.
    """
    branches, chats = tables["conversation_branches"], tables["conversations"]
    shown = chats.select("active_branch_id", conversation_id="id")
    way = [
        shown.select(
            branch_id="active_branch_id",
            fork_after_sequence=pl.lit(None, pl.Int64),
            replaced_turn_id=pl.lit(None, pl.String),
        )
    ]
    left = branches
    while way[-1].height:
        found = left.join(way[-1], left_on="id", right_on="branch_id", how="inner")
        # Each once, whatever circle a damaged store has them in.
        left = left.join(found, on="id", how="anti")
        forks = pl.min_horizontal("fork_after_sequence", "fork_after_sequence_right")
        way.append(
            found.select(
                # What a fork leaves out, none of those that follow it brings back.
                fork_after_sequence=forks,
                replaced_turn_id="replaced_turn_id",
                branch_id="parent_branch_id",
            ).unique("branch_id", keep="first", maintain_order=True)
        )
    # Of a branch that is shown all leads there, whatever goes on from it.
    leads = (
        pl.concat(way, how="diagonal")
        .drop_nulls("branch_id")
        .unique("branch_id", keep="first", maintain_order=True)
    )
    begun = tables["conversation_messages"].group_by(id="turn_id").agg(pl.col("sequence").min())
    turns = (
        tables["conversation_turns"]
        .join(begun, on="id", how="left")
        .join(shown, on="conversation_id", how="left")
        .join(leads.with_columns(leads=pl.lit(value=True)), on="branch_id", how="left")
    )
    edited, on_way = (
        frame["replaced_turn_id"].drop_nulls().implode() for frame in (branches, leads)
    )
    is_past = (pl.col("sequence") > pl.col("fork_after_sequence")) | pl.col("id").is_in(on_way)
    is_away = pl.col("branch_id").is_not_null() & pl.col("leads").is_null()
    is_replaced = (
        pl.when(pl.col("active_branch_id").is_null())
        .then(pl.col("id").is_in(edited))
        .otherwise(is_away | is_past.fill_null(value=False))
    )
    return turns.filter(is_replaced | pl.col("rolled_back_at").is_not_null())["id"]


def _is_over() -> pl.Expr:
    """Is it over by the word that it has; an unknown word is none of an end."""
    over = _TABLE.filter(pl.col("outcome").is_not_null())["situation"].implode()
    return _situation().is_in(over)


def _reviewed(tables: GoTables) -> pl.DataFrame:
    """When the pass of each review was over, by the log of changes."""
    changes = tables["change_log"].filter(pl.col("event_type") == "review_run_updated")
    said = changes.select(
        entity_type=pl.lit("review_run"),
        entity_id=pl.col("payload").str.json_path_match("$.id"),
        status=pl.col("payload").str.json_path_match("$.status"),
        reviewed_at="created_at",
    )
    over = said.filter(pl.col("status") != "running")
    return over.group_by("entity_type", "entity_id").agg(pl.col("reviewed_at").min())


def _spawns(tables: GoTables) -> pl.DataFrame:
    """Every attempt to start a session that telemetry keeps, failed or not.

    One that failed and left a row of a session has no key of it: the row was last written
    at the same moment, by the same project, and never gave a signal.
    """
    payload = pl.col("payload_json").str

    def said(key: str) -> pl.Expr:
        return payload.json_path_match(f"$.{key}")

    words = {"ao.session.spawned": "spawned", "ao.session.spawn_failed": "failed"}
    took = pl.duration(milliseconds=said("duration_ms").cast(pl.Float64, strict=False))
    attempts = (
        tables["telemetry_event"]
        .filter(pl.col("name").is_in(list(words)))
        .select(
            entity_type=pl.lit("spawn"),
            entity_id="id",
            session_id="session_id",
            project="project_id",
            kind=said("kind"),
            agent=said("harness"),
            raw_status=pl.col("name").replace_strict(words),
            error_code=pl.coalesce(said("error_code"), said("error_kind")),
            created_at=pl.coalesce(pl.col("occurred_at") - took, "occurred_at"),
            started_at=pl.coalesce(pl.col("occurred_at") - took, "occurred_at"),
            ended_at="occurred_at",
        )
    )
    dead = tables["sessions"].filter(pl.col("is_terminated") & pl.col("first_signal_at").is_null())
    near = (
        attempts.filter(pl.col("session_id").is_null())
        .join(dead.select("updated_at", project="project_id", left="id"), on="project")
        .filter((pl.col("updated_at") - pl.col("ended_at")).abs() <= _SAME_SPAWN)
        .sort("left")
        .group_by("entity_id")
        .agg(pl.col("left").first())
    )
    linked = attempts.join(near, on="entity_id", how="left", maintain_order="left")
    return linked.with_columns(session_id=pl.coalesce("session_id", "left")).drop("left")


def work_then(work: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """`frames.WORK` as it was at an instant, by its own moments."""
    is_over = (pl.col("ended_at") <= at).fill_null(value=False)
    has_started = (pl.col("started_at") <= at).fill_null(value=False)
    first = pl.col("entity_type").replace_strict(_FIRST, default="running")
    is_same = is_over | pl.col("ended_at").is_null()
    before = pl.when(has_started & (pl.col("entity_type") == "turn")).then(pl.lit("running"))
    told = ("error_code", "error_message", "verdict")
    # When it was replaced nobody wrote.
    not_replaced = pl.when(~pl.col("is_replaced")).then(pl.lit(value=False))
    return work.filter(has_begun(at)).with_columns(
        raw_status=pl.when(is_same).then("raw_status").otherwise(pl.coalesce(before, first)),
        started_at=pl.when(has_started).then("started_at"),
        ended_at=pl.when(is_over).then("ended_at"),
        is_replaced=not_replaced,
        **{name: pl.when(is_over).then(name) for name in told},
    )


def _situation() -> pl.Expr:
    word = pl.format("{}.{}", "entity_type", "raw_status")
    is_review = (pl.col("entity_type") == "review_run") & pl.col("raw_status").is_in(
        ["complete", "delivered"]
    )
    is_known = pl.col("verdict").is_in(VERDICTS)
    verdict = pl.when(is_known).then("verdict").otherwise(pl.lit("no_verdict"))
    return (
        pl.when(is_review)
        .then(pl.format("review_run.{}", verdict))
        .when((pl.col("raw_status") == "failed") & (pl.col("error_message") == _CUT_OFF))
        .then(pl.lit("turn.controller_ended"))
        .otherwise(word)
    )


def with_turns(sessions: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """Entities of sessions with how many turns of chats each has; null: none is recorded."""
    turns = work.filter(pl.col("entity_type") == "turn")
    counts = turns.group_by("source", entity_id="session_id").agg(_n=pl.len().cast(pl.Int64))
    return (
        sessions.join(counts, on=["source", "entity_id"], how="left", maintain_order="left")
        .with_columns(n_turns="_n")
        .drop("_n")
    )


def work_entities(work: pl.DataFrame, sessions: pl.DataFrame) -> pl.DataFrame:
    """Pieces of work as entities; a spawn only where no session is left to tell of it.

    Parameters
    ----------
    work : polars.DataFrame
        `frames.WORK`, as now or at an instant.
    sessions : polars.DataFrame
        Entities of the sessions.
    """
    is_told = (pl.col("entity_type") == "spawn") & (
        pl.col("session_id").is_not_null() | (pl.col("raw_status") != "failed")
    )
    parents = sessions.select("source", session_id="entity_id", in_project="project")
    has_parent = pl.col("session_id").is_not_null()
    rows = (
        work.filter(~is_told)
        .join(parents, on=["source", "session_id"], how="left", maintain_order="left")
        .with_columns(
            system=pl.lit(SYSTEM),
            project=pl.coalesce("project", "in_project"),
            parent_type=pl.when(has_parent).then(pl.lit("session")),
            parent_id="session_id",
            reason_message="error_message",
            recorded_by=pl.lit("live"),
            last_activity_at=pl.coalesce("ended_at", "started_at", "created_at"),
            situation=_situation(),
            has_output=pl.lit(value=True),
            n_turns=pl.when(pl.col("entity_type") == "turn").then(pl.lit(1, pl.Int64)),
            # What the provider said of a turn is all that is recorded of why it failed.
            cause=pl.coalesce(
                pl.col("error_code").str.to_lowercase(),
                pl.when(pl.col("entity_type") == "turn").then(
                    pl.coalesce(cause_by_words(pl.lit(None, pl.Int64)), pl.lit("provider"))
                ),
            ),
            detail=pl.coalesce("error_code", "error_message"),
        )
    )
    key = [*schema.ENTITY_KEY, "situation", "has_output", "cause", "error_message", "detail"]
    nothing = pl.lit([], pl.List(pl.String))
    return add_situations(schema.ENTITIES.conform(rows), rows.select(key), _TABLE, nothing)


def work_transitions(work: pl.DataFrame) -> pl.DataFrame:
    """The beginning and the end of each piece of work, in the columns of `schema.TRANSITIONS`."""
    is_turn = pl.col("entity_type") == "turn"
    first = pl.col("entity_type").replace_strict(_FIRST, default="running")
    begins = work.filter(is_turn).select(
        *("source", "entity_type", "entity_id"),
        at="started_at",
        previous_status=first,
        status=pl.lit("running"),
    )
    previous = pl.when(is_turn & pl.col("started_at").is_not_null()).then(pl.lit("running"))
    over = work.filter(pl.col("entity_type") != "spawn").select(
        *("source", "entity_type", "entity_id"),
        at="ended_at",
        previous_status=pl.coalesce(previous, first),
        status="raw_status",
        reason_code="error_code",
        message="error_message",
    )
    both = pl.concat([begins, over], how="diagonal").filter(pl.col("at").is_not_null())
    return schema.TRANSITIONS.conform(
        both.sort("at", "entity_id").with_columns(
            system=pl.lit(SYSTEM), seq=pl.int_range(pl.len()), writer=pl.lit("daemon")
        )
    )


_NANO = 1e-9
_REPORTED = ("n_input_tokens", "n_output_tokens", "cost_usd")
SUMS = (*_REPORTED, "n_cache_read_tokens", "n_cache_write_tokens")


def _measured(tables: GoTables) -> pl.DataFrame:
    """What transcripts say of each answer of a model, null where that was not measured."""
    # A provider without such a counter has a number there all the same.
    known = {
        f"{name}_tokens": pl.when(
            pl.col(f"{name}_provenance").ne_missing("unsupported") & (pl.col(f"{name}_tokens") >= 0)
        ).then(f"{name}_tokens")
        for name in ("input", "cached_input", "output")
    }
    events = tables["model_usage_events"].filter(pl.col("model_id").ne_missing("<synthetic>"))
    return events.with_columns(**known)


def unknown_events(tables: GoTables) -> pl.DataFrame:
    """Answers of which a part should have been measured, and is not known."""
    is_lost = (
        pl.col(f"{name}_tokens").is_null() & pl.col(f"{name}_provenance").ne_missing("unsupported")
        for name in ("input", "output")
    )
    return _measured(tables).filter(pl.any_horizontal(is_lost))


def read_usage(tables: GoTables) -> pl.DataFrame:
    """What transcripts and chats say that was used, in the columns of `frames.USAGE`.

    Notes
    -----
    Both may tell of the same work: tokens of a chat count where its session has no events.
    What a chat used is its sum up to its last write; one of a project is of no single session.
    """
    of_binding = tables["usage_bindings"].select("session_id", "initial_model_id", binding_id="id")
    openai = tables["openai_usage_event_details"].rename({"event_id": "id"})
    anthropic = tables["anthropic_usage_event_details"].rename({"event_id": "id"})
    events = (
        _measured(tables)
        .join(of_binding, on="binding_id", how="left", maintain_order="left")
        .join(openai, on="id", how="left", maintain_order="left")
        .join(anthropic, on="id", how="left", maintain_order="left")
        .select(
            "session_id",
            at="created_at",
            measured=pl.lit("event"),
            provider="provider_id",
            model=pl.coalesce("model_id", "initial_model_id"),
            n_input_tokens="input_tokens",
            n_cache_read_tokens="cached_input_tokens",
            n_cache_write_tokens=pl.coalesce(
                "openai_cache_write_input_tokens", "anthropic_cache_creation_input_tokens"
            ),
            n_output_tokens="output_tokens",
            n_reasoning_tokens="openai_reasoning_output_tokens",
            estimated_cost=pl.col("estimated_cost_nanos") * _NANO,
        )
    )
    is_usd = pl.col("usage_currency").fill_null("") == "USD"
    chats = tables["conversations"].select(
        session_id=pl.when(pl.col("scope") == "session").then("session_id"),
        project="project_id",
        at="updated_at",
        measured=pl.lit("chat"),
        model="model",
        n_input_tokens="usage_input_tokens",
        n_cache_read_tokens="usage_cached_tokens",
        n_output_tokens="usage_output_tokens",
        cost_usd=pl.when(is_usd).then("usage_cost"),
    )
    is_measured = pl.col("session_id").is_in(events["session_id"].drop_nulls().unique().implode())
    # Tokens would count twice; what it cost is told by chats only.
    tokens = pl.col("^n_.*_tokens$")
    told = chats.with_columns(pl.when(~is_measured.fill_null(value=False)).then(tokens)).filter(
        pl.any_horizontal(pl.col(_REPORTED).is_not_null())
    )
    return pl.concat([events, told], how="diagonal")


def summed(usage: pl.DataFrame) -> pl.DataFrame:
    """What each session used: null where nothing was measured, a lower bound where not all was."""
    known = [
        pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
        for name in SUMS
    ]
    last = (
        pl.col(name).drop_nulls().last().alias(f"used_{name}") for name in ("model", "provider")
    )
    rows = usage.filter(pl.col("entity_id").is_not_null())
    return (
        rows.sort("at", "model", nulls_last=True)
        .group_by("entity_id")
        .agg(*known, *last, used_at=pl.col("at").filter(measured="event").max())
    )


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What sessions used: the rows of `frames.USAGE` that are of one."""
    return facts.detail(frames.USAGE).drop_nulls("entity_id")
