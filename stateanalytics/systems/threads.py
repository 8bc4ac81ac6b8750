"""Threads of turns in transcripts: sessions and subagents, their turns and tool calls.

No transcript records that a session is over: a session has the state of its last turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, Past
from stateanalytics.core.joins import left_joined
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import Frame
from stateanalytics.systems.base import Features, features_from_csv
from stateanalytics.systems.situations import add_situations, first_that_holds

THREAD = ("source", "thread_id")
TURN = (*THREAD, "turn_no")
_CALLS = {True: "error", False: "done"}
_OF_THREAD = ("session_id", "kind", "agent", "project", "provider")


def entities_of(
    sessions: pl.DataFrame,
    turns: pl.DataFrame,
    tools: pl.DataFrame,
    *,
    states: pl.DataFrame,
    calls: pl.DataFrame,
    own: Mapping[str, pl.Expr],
    system: str,
    unbegun: str,
    open_: Sequence[str],
    guessed: Sequence[str],
    situations: pl.DataFrame,
    also: pl.Expr,
) -> pl.DataFrame:
    """Threads, turns and calls as entities, with their axes, reasons and facts of open work.

    Transcripts never record the end of a thread, so a thread has the state of its last turn. If
    that ended well, the thread waits for its user, which is not a stall.

    Parameters
    ----------
    sessions, turns, tools : polars.DataFrame
        The system's own frames; ``sessions`` has ``kind``, ``agent`` and ``provider``.
    states : polars.DataFrame
        Key, ``is_last`` and ``situation`` of turns, the columns that evidence quotes, and
        columns of entities. ``last_sign_at``, ``n_open_tools`` and ``patience_s`` are used
        while a turn is open.
    calls : polars.DataFrame
        From `call_situations`.
    own : mapping of str to polars.Expr
        Further columns of entities, over the columns of all three frames.
    system : str
    unbegun : str
        The situation of a thread without a turn.
    open_ : sequence of str
        Situations in which a turn is still open.
    guessed : sequence of str
        Situations of turns without a recorded end.
    situations : polars.DataFrame
        From `situations.situations_from_csv`.
    also : polars.Expr
        A list of further situations whose reasons apply as well.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.ENTITIES`.
    """
    is_over, is_guess = ~pl.col("situation").is_in(open_), pl.col("situation").is_in(guessed)
    threads = sessions.with_columns(project="directory", session_id="thread_id")
    places = threads.select(*THREAD, *_OF_THREAD)
    last = turns.filter("is_last").select(*THREAD, "situation", "ended_at", "error_message")
    # A turn that just began has no model yet, so the last known model counts.
    models = turns.group_by(THREAD).agg(pl.col("model").sort_by("turn_no").drop_nulls().last())
    children = sessions.group_by("source", thread_id="parent_thread_id").agg(n_children=pl.len())
    of_sessions = left_joined(threads, last, models, children, on=THREAD).with_columns(
        pl.col("situation").fill_null(unbegun),
        entity_type=pl.lit("session"),
        entity_id="thread_id",
        parent_type=pl.when(pl.col("parent_thread_id").is_not_null()).then(pl.lit("session")),
        parent_id="parent_thread_id",
        name="title",
        started_at="first_at",
        # The end of a thread is not recorded; this is the end of its last turn.
        is_end_approximate=is_over & pl.col("ended_at").is_not_null(),
    )
    writer = pl.when(is_guess).then(pl.lit("observer")).when(is_over).then(pl.lit("executor"))
    of_turns = turns.join(places, on=THREAD, how="left", maintain_order="left").with_columns(
        entity_type=pl.lit("turn"),
        parent_type=pl.lit("session"),
        parent_id="thread_id",
        end_written_by=writer,
        is_end_approximate=is_guess,
    )
    limited, ended = (pl.col(name).is_not_null() for name in ("timeout_s", "ended_at"))
    of_tools = tools.join(places, on=THREAD, how="left", maintain_order="left").with_columns(
        entity_type=pl.lit("tool_call"),
        parent_type=pl.lit("turn"),
        parent_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
        kind="name",
        last_activity_at=pl.coalesce("ended_at", "started_at"),
        situation=pl.col("is_error").replace_strict(_CALLS, default="open"),
        timeout_from=pl.when(limited).then(pl.lit("metadata")),
        end_written_by=pl.when(ended).then(pl.lit("executor")),
    )
    is_call = pl.col("entity_type") == "tool_call"
    stacked = pl.concat([of_sessions, of_turns, of_tools], how="diagonal_relaxed").with_columns(
        system=pl.lit(system),
        raw_status="situation",
        created_at="started_at",
        last_message_at=pl.when(~is_call).then("last_activity_at"),
        n_messages=pl.col("n_prompts") + pl.col("n_answers"),
        n_chat_messages=pl.col("n_prompts") + pl.col("n_answers"),
        n_turns=pl.when(pl.col("entity_type") == "turn").then(1).otherwise("n_turns"),
        reason_message="error_message",
        provider=pl.when(~is_call).then("provider"),
    )
    is_open = pl.when(pl.col("situation").is_in(open_))
    states = states.with_columns(
        last_sign_at=is_open.then("last_sign_at"),
        n_running=is_open.then("n_open_tools"),
        patience_s=is_open.then("patience_s"),
    )
    last = states.filter("is_last").drop("entity_id")
    threads = sessions.select(*THREAD, entity_id="thread_id").pipe(left_joined, last, on=THREAD)
    # After a complete answer the turn is over, but the thread waits for its user.
    waiting = pl.col("situation").fill_null(unbegun).replace({"good": "waiting"})
    works = pl.concat(
        [
            states.with_columns(entity_type=pl.lit("turn")),
            threads.with_columns(waiting, entity_type=pl.lit("session")),
            calls,
        ],
        how="diagonal",
    )
    detail = pl.coalesce("open_tool", "error_message", "stop_reason")
    named = works.with_columns(system=pl.lit(system), detail=detail)
    entities = schema.ENTITIES.conform(stacked.with_columns(**own))
    return add_situations(entities, named, situations, also)


def call_counts(is_open: pl.Expr) -> dict[str, pl.Expr]:
    """The tool calls of a group by how they ended, and the first open call."""
    return {
        "open_tool": pl.col("name").filter(is_open).first(),
        "open_since": pl.col("started_at").filter(is_open).first(),
        "open_timeout_s": pl.col("timeout_s").filter(is_open).first(),
        "patience_s": pl.col("patience_s").filter(is_open).max(),
        "n_tool_calls": pl.len(),
        "n_tool_errors": pl.col("is_error").sum(),
        "n_open_tools": is_open.sum(),
    }


def is_last_work(number: pl.Expr, is_work: pl.Expr, by: Sequence[str]) -> pl.Expr:
    """Whether a turn is the last of its thread; what a person did between tasks only if no other.

    ``number`` is null for turns that are never the last.
    """
    last = (numbers.max().over(by) for numbers in (number.filter(is_work), number))
    return (number == pl.coalesce(last)).fill_null(value=False)


def call_situations(
    tools: pl.DataFrame, turns: pl.DataFrame, rules: Mapping[str, pl.Expr], cut_off: pl.Expr
) -> pl.DataFrame:
    """The situation and the cause of each tool call, for `entities_of`.

    Parameters
    ----------
    tools, turns : polars.DataFrame
        The system's own frames.
    rules : mapping of str to polars.Expr
        The expression of each situation, in order of precedence, over the columns of
        ``tools`` and ``turn_situation``.
    cut_off : polars.Expr
        Over the same columns: whether the end of its turn cut off a call without a result.
    """
    of_turns = turns.select(*TURN, turn_situation="situation")
    otherwise = pl.when(cut_off).then(pl.lit("interrupted")).otherwise(pl.lit("no_result"))
    return tools.join(of_turns, on=TURN, how="left", maintain_order="left").select(
        *("source", "entity_id", "error_message"),
        entity_type=pl.lit("tool_call"),
        cause=pl.coalesce("cause", otherwise),
        situation=first_that_holds(rules),
    )


def transitions_of(turns: pl.DataFrame, system: str) -> pl.DataFrame:
    """The start and the end of each turn; a turn starts with its prompt."""
    begun = turns.with_columns(
        at="started_at", status=pl.lit("started"), seq=2 * pl.col("turn_no"), writer=None
    )
    ended = turns.with_columns(
        at="ended_at",
        status="situation",
        previous_status=pl.lit("started"),
        seq=2 * pl.col("turn_no") + 1,
        writer=pl.lit("executor"),
    )
    rows = pl.concat([begun, ended], how="diagonal_relaxed").drop_nulls("at")
    named = rows.with_columns(system=pl.lit(system), entity_type=pl.lit("turn"))
    return schema.TRANSITIONS.conform(named.sort("source", "entity_id", "seq"))


def features_from(package: str, turns: Frame) -> Features:
    """Features from columns of turns, by ``data/features.csv``; times become ages."""
    column_of = {row["name"]: row["column"] for row in table_rows(package, "features.csv")}

    def add(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
        own = past.facts.detail(turns).select(
            "source",
            "entity_id",
            *(
                (pl.lit(past.at) - pl.col(column)).dt.total_microseconds().alias(name) / 1e6
                if turns.dtypes[column].is_temporal()
                else pl.col(column).alias(name)
                for name, column in column_of.items()
            ),
        )
        return rows.join(own, on=["source", "entity_id"], how="left", maintain_order="left")

    return features_from_csv(package, add)


def tool_runs(
    facts: Facts, frames: tuple[Frame, Frame], system: str, which: pl.Expr, kind: str
) -> pl.DataFrame:
    """Elapsed times of tool calls that ended, in the shape of `thresholds.evidence.RUNS`.

    Parameters
    ----------
    facts : Facts
    frames : tuple of (Frame, Frame)
        The system's frames of sessions and of tools.
    system : str
    which : polars.Expr
        Which tools.
    kind : str
        The name of these tools as a kind of work.
    """
    sessions, tools = (facts.detail(frame) for frame in frames)
    elapsed = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    recorded = ["duration_s"] if "duration_s" in tools.columns else []
    return (
        tools.filter(which, pl.col("ended_at").is_not_null())
        .pipe(left_joined, sessions.select(*THREAD, project="directory"), on=THREAD)
        .select(
            pl.concat_str("source", pl.lit("/"), "thread_id").alias("unit"),
            "project",
            pl.lit(system).alias("system"),
            pl.lit(kind).alias("kind"),
            pl.coalesce(*recorded, elapsed).alias("duration_s"),
            pl.lit(value=True).alias("ended"),
            (~pl.col("is_error") & pl.col("cause").ne_missing("timeout")).alias("is_good"),
            "timeout_s",
        )
    )
