"""What became of each call of a tool."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.codex.folding import own
from stateanalytics.systems.codex.frames import TOOLS
from stateanalytics.systems.codex.lines import SEARCH
from stateanalytics.systems.situations import first_that_holds
from stateanalytics.systems.threads import THREAD, TURN

SHELL = ("shell", "shell_command", "local_shell_call", "container.exec")
SHELL_S, GRACE_S, PATIENCE_S, MCP_S = 10.0, 60.0, 600.0, 300.0
WAITS_FOR_CHILD = ("spawn_agent", "wait", "wait_agent", "send_input")
_RESULTS = ("result", "tool_end")


def tools_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`frames.TOOLS`: calls with their results, wherever in the thread those stand.

    Parameters
    ----------
    rows : polars.DataFrame
        From `folding.with_threads`.
    """
    call = (*THREAD, "call_id")
    known = own(rows.drop_nulls("call_id"))
    is_event, is_call = pl.col("what") == "tool_end", pl.col("what") == "call"
    # Where no call of a turn is written, what it finished tells of them.
    is_search = is_event & (pl.col("kind") == SEARCH)
    is_written = (is_call | is_search.fill_null(value=False)).any().over(TURN)
    is_told = is_search | (is_event & (pl.col("kind") == "item_completed") & ~is_written)
    calls = known.filter(is_call | is_told).unique(call, keep="first", maintain_order=True)
    results = known.filter(pl.col("what").is_in(list(_RESULTS)))
    told = ("exit_code", "duration_s")
    flags = ("is_error", "is_cancelled", "is_declined", "is_timed_out", "is_background")
    # An event says exactly what a text only shows.
    each = [
        pl.coalesce(
            pl.col(name).filter(is_event).drop_nulls().first(), pl.col(name).drop_nulls().first()
        )
        for name in told
    ]
    ends = results.group_by(call, maintain_order=True).agg(
        *each,
        *(pl.col(name).any() for name in flags),
        pl.col("error_message").drop_nulls().first(),
        ended_at=pl.col("at").min(),
        has_result=pl.lit(value=True),
    )
    joined = calls.drop(*told, *flags, "error_message").join(
        ends, on=call, how="left", maintain_order="left"
    )
    has_result = pl.col("has_result").fill_null(value=False)
    is_over = pl.col("is_cancelled") | pl.col("is_declined")
    causes = {
        "permission_rejected": pl.col("is_declined"),
        "interrupted": pl.col("is_cancelled"),
        "timeout": pl.col("is_timed_out"),
        "exit_nonzero": pl.col("is_error") & (pl.col("exit_code") != 0),
        "tool_error": pl.col("is_error"),
    }
    kind = pl.coalesce("name", "item", "kind")
    server = pl.when(pl.col("namespace").fill_null("") != "").then("namespace")
    named = joined.with_columns(
        entity_id=pl.concat_str("thread_id", pl.lit(":"), "call_id"),
        name=pl.concat_str(server, kind, separator="__", ignore_nulls=True),
        started_at=pl.when(is_event)
        .then(pl.col("at") - pl.duration(microseconds=pl.col("duration_s").fill_null(0) * 1e6))
        .otherwise("at"),
        ended_at=pl.when(has_result).then(pl.coalesce("ended_at", "at")),
        is_error=pl.when(has_result).then(pl.col("is_error") & ~is_over),
        cause=first_that_holds(causes),
    )
    return TOOLS.conform(named.with_columns(patience_s=patience_s()))


def is_shell() -> pl.Expr:
    """Does a tool end its command by itself at a time limit."""
    return pl.col("name").is_in(list(SHELL))


def is_of_server() -> pl.Expr:
    """Is it a tool of an MCP server."""
    return pl.col("name").str.starts_with("mcp__")


def patience_s() -> pl.Expr:
    """How long a call may be silent, by its own time limit."""
    return (
        pl.when(is_shell())
        .then(pl.col("timeout_s").fill_null(SHELL_S) + GRACE_S)
        .when(is_of_server())
        .then(pl.lit(MCP_S + GRACE_S))
        .otherwise(pl.lit(PATIENCE_S))
    )
