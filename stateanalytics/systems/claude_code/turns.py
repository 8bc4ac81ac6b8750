"""What each turn came to: the first situation that its records show."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.claude_code.folding import (
    QUESTIONS,
    SIGNS,
    own,
    reported_ends,
)
from stateanalytics.systems.claude_code.frames import TURNS, USAGE
from stateanalytics.systems.provider_errors import cause_of_error
from stateanalytics.systems.situations import first_that_holds, is_content_filter
from stateanalytics.systems.threads import THREAD, TURN

OPEN = ("question", "open_tool", "retrying", "awaiting_model")
"""Situations of work that is not over."""
_GOOD_STOPS = ("end_turn", "stop_sequence")
_GOES_ON = ("tool_use", "pause_turn")


def turns_of(rows: pl.DataFrame, messages: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """`frames.TURNS`, in their order.

    Parameters
    ----------
    rows : polars.DataFrame
        From `folding.with_threads`.
    messages, tools : polars.DataFrame
        `frames.MESSAGES` and `frames.TOOLS`.
    """
    facts = _facts(rows)
    for part in (_of_messages(messages), _of_tools(tools, rows)):
        facts = facts.join(part, on=TURN, how="left", maintain_order="left")
    facts = facts.join(reported_ends(rows), on=THREAD, how="left", maintain_order="left")
    counts = ("n_answers", *USAGE, "n_tool_calls", "n_tool_errors", "n_open_tools", "n_tools_good")
    known = facts.with_columns(
        pl.col(counts).fill_null(0),
        is_last=pl.col("turn_no") == pl.col("turn_no").max().over(THREAD),
    ).with_columns(
        has_output=(pl.col("n_text_chars") > 0) | (pl.col("n_tools_good") > 0),
    )
    named = known.with_columns(cause=cause_of_error()).with_columns(
        situation=first_that_holds(_rules()).replace(
            {"stopped": "interrupted", "reported_failed": "failed"}
        )
    )
    is_open = pl.col("situation").is_in(list(OPEN))
    ends = {
        "interrupted": "interrupt_at",
        "max_turns": "max_turns_at",
        "aborted": "last_activity_at",
        "superseded": "last_activity_at",
    }
    ended_at = pl.coalesce(
        *(pl.when(pl.col("situation") == name).then(column) for name, column in ends.items()),
        pl.when(~is_open).then(pl.coalesce("answer_at", "last_activity_at")),
    )
    is_waiting = pl.col("situation") == "retrying"
    kept = {
        **dict.fromkeys(
            ("error_type", "error_status", "error_message", "cause"),
            is_waiting | (pl.col("situation") == "failed"),
        ),
        **dict.fromkeys(
            ("open_tool", "open_since", "open_timeout_s", "patience_s"),
            pl.col("situation").is_in(["open_tool", "question"]),
        ),
        "retry_at": is_waiting,
    }
    return TURNS.conform(
        named.with_columns(
            *(pl.when(rule).then(name).alias(name) for name, rule in kept.items()),
            entity_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
            ended_at=ended_at,
            last_sign_at=pl.max_horizontal("last_activity_at", "child_at"),
            is_recovered=(pl.col("n_retries") > 0) & (pl.col("last_answer") == "assistant"),
        ).sort(TURN)
    )


def _facts(rows: pl.DataFrame) -> pl.DataFrame:
    """What the records of each turn show by themselves; work before any prompt is turn 0."""
    what, seq, at = pl.col("what"), pl.col("seq"), pl.col("at")
    is_answer = what.is_in(["assistant", "api_error"])
    sign = what.is_in(list(SIGNS))
    places = {
        "answer": is_answer,
        "input": what.is_in(["prompt", "tool_result"]),
        **{
            name: what == name
            for name in ("interrupt", "max_turns", "turn_end", "retry", "refusal")
        },
    }
    # Of the lines of an answer any one may say why it stopped.
    name = pl.coalesce("answer_id", "uuid", what)
    is_last_answer = is_answer & (name == name.filter(is_answer).last())
    told = pl.col("error_type", "error_status", "error_message")
    moved = rows.lazy().with_columns(pl.col("permission_mode").forward_fill().over(THREAD))
    turns = (
        own(moved)
        .group_by(TURN, maintain_order=True)
        .agg(
            told.filter(what.is_in(["api_error", "retry"])).last(),
            pl.col("stop_reason").filter(is_last_answer).drop_nulls().last(),
            pl.col("n_text_chars").filter(what == "assistant").sum(),
            pl.col("retry_at").filter(what == "retry").last(),
            pl.col("permission_mode").last(),
            started_at=at.filter(sign).min(),
            last_activity_at=at.filter(sign).max(),
            last_answer=what.filter(is_answer).last(),
            n_prompts=(what == "prompt").sum(),
            n_retries=(what == "retry").sum(),
            **{
                f"{name}_at": at.filter(rule).last()
                for name, rule in places.items()
                if name not in ("retry", "refusal")
            },
            **{
                f"{name}_seq": seq.filter(rule).max().fill_null(-1) for name, rule in places.items()
            },
        )
    )
    # What stands before the first prompt is mostly names and settings.
    return turns.filter((pl.col("turn_no") > 0) | (pl.col("answer_seq") >= 0)).collect()


def _of_messages(messages: pl.DataFrame) -> pl.DataFrame:
    return messages.group_by(TURN).agg(
        pl.col(USAGE).sum(),
        n_answers=pl.len(),
        model=pl.col("model").drop_nulls().last(),
    )


def _of_tools(tools: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """How the calls of each turn went, and what of them it waits for."""
    signs = rows.lazy().filter(pl.col("what").is_in(list(SIGNS)))
    by_child = signs.group_by("source", child_thread_id="thread_id")
    heard = by_child.agg(child_at=pl.col("at").max()).collect()
    is_open = pl.col("ended_at").is_null() & ~pl.col("is_replaced")
    known = tools.join(heard, on=["source", "child_thread_id"], how="left", maintain_order="left")
    return known.group_by(TURN).agg(
        *(pl.col(name).filter(is_open).max() for name in ("patience_s", "child_at")),
        n_tool_calls=pl.len(),
        n_tool_errors=pl.col("is_error").sum(),
        n_tools_good=(~pl.col("is_error")).sum(),
        n_open_tools=is_open.sum(),
        n_questions=(is_open & pl.col("name").is_in(list(QUESTIONS))).sum(),
        open_tool=pl.col("name").filter(is_open).first(),
        open_since=pl.col("started_at").filter(is_open).first(),
        open_timeout_s=pl.col("timeout_s").filter(is_open).first(),
    )


def _is_reported(end: str) -> pl.Expr:
    """Does the parent's record report that the subagent ended so, with nothing after it."""
    is_last_word = pl.col("reported_at") >= pl.col("last_activity_at")
    return pl.col("is_last") & (is_last_word & (pl.col("reported") == end)).fill_null(value=False)


def _is_compaction() -> pl.Expr:
    """Is it an agent that summarises its parent's conversation: it writes one answer and no end."""
    return pl.col("thread_id").str.contains(r"/acompact-[^/]+$")


def _rules() -> dict[str, pl.Expr]:
    answer, stop, input_ = pl.col("answer_seq"), pl.col("stop_reason"), pl.col("input_seq")
    is_error = pl.col("last_answer") == "api_error"
    is_closed = pl.col("n_open_tools") == 0
    is_after = answer > pl.max_horizontal("input_seq", "retry_seq")
    is_end = is_after & is_closed
    is_confirmed = stop.is_in(list(_GOOD_STOPS)) | (pl.col("turn_end_seq") > answer)
    is_known_over = _is_reported("completed") | (pl.col("is_last") & is_end & _is_compaction())
    is_odd = stop.is_not_null() & ~stop.is_in(list(_GOES_ON))
    had_later = ~pl.col("is_last")
    return {
        "interrupted": pl.col("interrupt_seq") > answer,
        # A refusal and an output limit are written as errors, too, with a tag that misleads.
        "refused": is_content_filter("stop_reason")
        | (pl.col("refusal_seq") > input_)
        | (is_error & (pl.col("cause") == "content_filtered")),
        "truncated": (is_end & (stop == "max_tokens"))
        | (is_error & (pl.col("cause") == "truncated_length")),
        "overflowed": is_end & (stop == "model_context_window_exceeded"),
        "failed": is_error,
        "max_turns": pl.col("max_turns_seq") > answer,
        "good": ((is_end & is_confirmed) | is_known_over) & pl.col("has_output"),
        "empty": (is_end & is_confirmed) | is_known_over,
        "stopped": _is_reported("stopped"),
        "reported_failed": _is_reported("failed"),
        "unknown_finish": is_end & is_odd,
        "aborted": had_later & ~is_closed,
        "good_inferred": had_later & is_end & (pl.col("n_text_chars") > 0),
        "superseded": had_later,
        "question": pl.col("n_questions") > 0,
        "open_tool": ~is_closed,
        "retrying": pl.col("retry_seq") > pl.max_horizontal("answer_seq", "input_seq"),
        "awaiting_model": pl.lit(value=True),
    }
