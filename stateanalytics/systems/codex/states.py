"""Situations of turns, threads and tool calls; ``data/situations.csv`` says what they mean.

No end of a thread is ever recorded: it shows the state of its last turn, and where that
ended well the thread waits for its person, which is no stall.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.codex.turns import OPEN
from stateanalytics.systems.situations import add_situations, first_that_holds, situations_from_csv

SYSTEM = "codex"
_TABLE = situations_from_csv(__package__)
_OF_TURN = (
    *("situation", "is_rolled_back", "may_ask", "has_output", "cause", "error_message"),
    *("stop_reason", "open_tool", "last_sign_at", "n_open_tools", "patience_s"),
)


def add_recorded(
    entities: pl.DataFrame, turns: pl.DataFrame, sessions: pl.DataFrame, tools: pl.DataFrame
) -> pl.DataFrame:
    """Add the recorded axes, reasons and facts of open work.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    turns, sessions, tools : polars.DataFrame
        `frames.TURNS`, `frames.SESSIONS` and `frames.TOOLS`.

    Returns
    -------
    polars.DataFrame
        The same rows.
    """
    thread = ["source", "thread_id"]
    facts = _with_open_facts(turns.select(*thread, "entity_id", "is_last", *_OF_TURN))
    last = facts.filter("is_last").drop("entity_id")
    of_sessions = sessions.select(*thread, entity_id="thread_id").join(
        last, on=thread, how="left", maintain_order="left"
    )
    # An answer that is whole ends its turn; that nothing more comes of the thread is a guess.
    shown = pl.col("situation").fill_null("no_turn").replace({"good": "waiting"})
    works = pl.concat(
        [
            facts.with_columns(entity_type=pl.lit("turn")),
            of_sessions.with_columns(shown, entity_type=pl.lit("session")),
            _calls(tools, turns),
        ],
        how="diagonal",
    )
    also = pl.concat_list(
        pl.when("may_ask").then(pl.lit("may_ask")),
        pl.when(pl.col("situation") == "empty").then(pl.lit("unrecorded_error")),
    )
    detail = pl.coalesce("open_tool", "error_message", "stop_reason")
    named = works.with_columns(system=pl.lit(SYSTEM), detail=detail)
    return add_situations(entities, named, _TABLE, also)


def _with_open_facts(works: pl.DataFrame) -> pl.DataFrame:
    is_open = pl.when(pl.col("situation").is_in(list(OPEN)))
    return works.with_columns(
        last_sign_at=is_open.then("last_sign_at"),
        n_running=is_open.then("n_open_tools"),
        patience_s=is_open.then("patience_s"),
    )


def _calls(tools: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    turn = ["source", "thread_id", "turn_no"]
    of_turns = turns.select(*turn, of_turn="situation")
    joined = tools.join(of_turns, on=turn, how="left", maintain_order="left")
    is_open, cause = pl.col("is_error").is_null(), pl.col("cause")
    is_cut = is_open & pl.col("of_turn").is_in(["interrupted", "replaced"])
    rules = {
        "call_cancelled": is_cut | cause.is_in(["permission_rejected", "interrupted"]),
        "call_timed_out": cause == "timeout",
        "call_failed": pl.col("is_error") | (is_open & ~pl.col("of_turn").is_in(list(OPEN))),
        "call_running": is_open,
        "call_succeeded": pl.lit(value=True),
    }
    none = pl.when(is_cut).then(pl.lit("interrupted")).otherwise(pl.lit("no_result"))
    return joined.select(
        *("source", "entity_id", "error_message"),
        entity_type=pl.lit("tool_call"),
        cause=pl.coalesce("cause", none),
        situation=first_that_holds(rules),
    )
