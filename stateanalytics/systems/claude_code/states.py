"""Situations of turns, sessions and tool calls; ``data/situations.csv`` says what they mean.

No end of a session is ever recorded: it shows the state of its last turn, and where that
ended well the session waits for its person, which is no stall.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.claude_code.turns import OPEN
from stateanalytics.systems.situations import add_situations, first_that_holds, situations_from_csv

SYSTEM = "claude_code"
_TABLE = situations_from_csv(__package__)
_OF_TURN = (
    *("source", "thread_id", "situation", "cause", "error_message", "stop_reason", "open_tool"),
    *("last_sign_at", "last_activity_at", "retry_at", "n_open_tools", "patience_s"),
    *("permission_mode", "is_recovered", "has_output"),
)
"""What states ask of a turn; anything more would go in place of what its session adds up to."""
_ASKS_NOBODY = ("bypassPermissions", "dontAsk")


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
    last = turns.filter("is_last").select(_OF_TURN)
    of_sessions = sessions.select(*thread, entity_id="thread_id").join(
        last, on=thread, how="left", maintain_order="left"
    )
    # An answer that is whole ends its turn; that nothing more comes of the session is a guess.
    shown = pl.col("situation").fill_null("no_prompt").replace({"good": "waiting"})
    works = pl.concat(
        [
            _with_open_facts(turns.select("entity_id", *_OF_TURN)).with_columns(
                entity_type=pl.lit("turn")
            ),
            _with_open_facts(of_sessions).with_columns(shown, entity_type=pl.lit("session")),
            _calls(tools, turns),
        ],
        how="diagonal",
    )
    situation = pl.col("situation")
    asks = ~pl.col("permission_mode").fill_null("").is_in(list(_ASKS_NOBODY))
    is_good = situation.is_in(["good", "good_inferred", "waiting"])
    also = pl.concat_list(
        pl.when((situation == "open_tool") & asks).then(pl.lit("may_ask")),
        pl.when(is_good & pl.col("is_recovered")).then(pl.lit("recovered")),
    )
    detail = pl.coalesce("open_tool", "error_message", "stop_reason")
    named = works.with_columns(system=pl.lit(SYSTEM), detail=detail).drop("last_activity_at")
    return add_situations(entities, named, _TABLE, also)


def _with_open_facts(works: pl.DataFrame) -> pl.DataFrame:
    is_open = pl.when(pl.col("situation").is_in(list(OPEN)))
    waits = pl.when(pl.col("situation") == "retrying")
    return works.with_columns(
        last_sign_at=is_open.then("last_sign_at"),
        due_at=waits.then(pl.coalesce("retry_at", "last_activity_at")),
        retry_code=waits.then(pl.format("run.health.{}", pl.col("cause").fill_null("unknown"))),
        n_running=is_open.then("n_open_tools"),
        n_questions=is_open.then((pl.col("situation") == "question").cast(pl.Int64)),
        patience_s=is_open.then("patience_s"),
    )


def _calls(tools: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    turn = ["source", "thread_id", "turn_no"]
    of_turns = turns.select(*turn, of_turn="situation")
    joined = tools.join(of_turns, on=turn, how="left", maintain_order="left")
    is_cut = pl.col("is_error").is_null() & (pl.col("of_turn") == "interrupted")
    rules = {
        "call_succeeded": ~pl.col("is_error"),
        "call_cancelled": is_cut | pl.col("cause").is_in(["permission_rejected", "interrupted"]),
        "call_timed_out": pl.col("cause") == "timeout",
        "call_failed": pl.any_horizontal(
            "is_error", "is_replaced", ~pl.col("of_turn").is_in(list(OPEN))
        ),
        "call_running": pl.lit(value=True),
    }
    none = pl.when(is_cut).then(pl.lit("interrupted")).otherwise(pl.lit("no_result"))
    return joined.select(
        *("source", "entity_id", "error_message"),
        entity_type=pl.lit("tool_call"),
        cause=pl.coalesce("cause", none),
        situation=first_that_holds(rules),
    )
