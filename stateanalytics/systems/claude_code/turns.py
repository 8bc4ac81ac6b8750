"""What each turn came to: the first situation that its records show."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.claude_code.folding import (
    QUESTIONS,
    SIGNS,
    THREAD,
    TURN,
    own,
)
from stateanalytics.systems.claude_code.frames import TURNS, USAGE
from stateanalytics.systems.recorded import first_that_holds, is_content_filter

OPEN = ("question", "open_tool", "retrying", "awaiting_model")
"""Situations of work that is not over."""
_GOOD_STOPS = ("end_turn", "stop_sequence")
_GOES_ON = ("tool_use", "pause_turn")
_QUOTA = r"(?i)limit\b.*\bresets|usage limit reached|credit balance|billing"
_OVERFLOW = r"(?i)too long|context (?:window|length|limit)"
_CONNECTION = r"(?i)timed? ?out|ECONN|ENOTFOUND|EAI_AGAIN|socket|connection error|fetch failed"


def cause_of() -> pl.Expr:
    """The last segment of the reason code of an error: by its tag, its status, then its words.

    Examples
    --------
    >>> errors = pl.DataFrame({
    ...     "error_type": ["rate_limit", None, "invalid_request"],
    ...     "error_status": [429, 529, None],
    ...     "error_message": ["You've hit your limit · resets 9pm", None, "prompt is too long"]})
    >>> errors.select(cause_of()).to_series().to_list()
    ['provider_quota', 'provider_internal', 'context_overflow']
    """
    tag = pl.col("error_type").fill_null("").str.to_lowercase()
    status = pl.col("error_status").fill_null(0)
    words = pl.col("error_message").fill_null("")

    def tagged(*names: str) -> pl.Expr:
        return pl.any_horizontal(tag.str.contains(name, literal=True) for name in names)

    is_limit = tagged("rate_limit") | (status == 429)
    return first_that_holds(
        {
            "provider_quota": (is_limit & words.str.contains(_QUOTA))
            | tagged("billing_error")
            | (status == 402),
            "provider_rate_limit": is_limit,
            "provider_auth": tagged("authentication", "permission_error")
            | status.is_in([401, 403]),
            "provider_internal": tagged("server_error", "overloaded") | (status >= 500),
            "context_overflow": words.str.contains(_OVERFLOW),
            "provider_invalid_request": tagged("invalid_request") | (status >= 400),
            "provider_transport": words.str.contains(_CONNECTION) | tag.str.contains(_CONNECTION),
            "provider_unknown": pl.lit(value=True),
        }
    )


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
    counts = ("n_answers", *USAGE, "n_tool_calls", "n_tool_errors", "n_open_tools", "n_tools_good")
    known = facts.with_columns(
        pl.col(counts).fill_null(0),
        is_last=pl.col("turn_no") == pl.col("turn_no").max().over(THREAD),
    ).with_columns(
        has_output=(pl.col("n_text_chars") > 0) | (pl.col("n_tools_good") > 0),
    )
    named = known.with_columns(situation=first_that_holds(_rules()), cause=cause_of())
    is_open = pl.col("situation").is_in(list(OPEN))
    ends = {
        "interrupted": "interrupted_at",
        "max_turns": "max_turns_at",
        "aborted": "last_activity_at",
        "superseded": "last_activity_at",
    }
    ended_at = pl.coalesce(
        *(pl.when(pl.col("situation") == name).then(column) for name, column in ends.items()),
        pl.when(~is_open).then(pl.coalesce("answered_at", "last_activity_at")),
    )
    is_failed, is_waiting = pl.col("situation") == "failed", pl.col("situation") == "retrying"
    has_error = is_failed | is_waiting
    return TURNS.conform(
        named.with_columns(
            entity_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
            ended_at=ended_at,
            last_sign_at=pl.max_horizontal("last_activity_at", "child_at"),
            retry_at=pl.when(is_waiting).then("retry_at"),
            is_recovered=(pl.col("n_retries") > 0) & (pl.col("last_answer") == "assistant"),
            **{
                name: pl.when(has_error).then(name)
                for name in ("error_type", "error_status", "error_message", "cause")
            },
            **{
                name: pl.when(pl.col("situation").is_in(["open_tool", "question"])).then(name)
                for name in ("open_tool", "open_since", "open_timeout_s", "patience_s")
            },
        ).sort(TURN)
    )


def _facts(rows: pl.DataFrame) -> pl.DataFrame:
    """What the records of each turn show by themselves; work before any prompt is turn 0."""
    what, seq, at = pl.col("what"), pl.col("seq"), pl.col("at")
    is_answer = what.is_in(["assistant", "api_error"])
    sign = what.is_in(list(SIGNS))
    spoken = what == "assistant"
    told = what.is_in(["api_error", "retry"])

    def last(rule: pl.Expr) -> pl.Expr:
        return seq.filter(rule).max().fill_null(-1)

    moved = rows.with_columns(mode=pl.col("permission_mode").forward_fill().over(THREAD))
    turns = (
        own(moved)
        .group_by(TURN, maintain_order=True)
        .agg(
            started_at=at.filter(sign).min(),
            last_activity_at=at.filter(sign).max(),
            last_answer=what.filter(is_answer).last(),
            answered_at=at.filter(is_answer).last(),
            interrupted_at=at.filter(what == "interrupt").last(),
            max_turns_at=at.filter(what == "max_turns").last(),
            stop_reason=pl.col("stop_reason").filter(is_answer).last(),
            permission_mode=pl.col("mode").last(),
            n_prompts=(what == "prompt").sum().cast(pl.Int64),
            n_retries=(what == "retry").sum().cast(pl.Int64),
            n_text_chars=pl.col("n_text_chars").filter(spoken).sum(),
            retry_at=pl.col("retry_at").filter(what == "retry").last(),
            **{
                name: pl.col(name).filter(told).last()
                for name in ("error_type", "error_status", "error_message")
            },
            answer_seq=last(is_answer),
            interrupt_seq=last(what == "interrupt"),
            max_turns_seq=last(what == "max_turns"),
            turn_end_seq=last(what == "turn_end"),
            retry_seq=last(what == "retry"),
            input_seq=last(what.is_in(["prompt", "tool_result"])),
        )
    )
    # What stands before the first prompt is mostly names and settings.
    return turns.filter((pl.col("turn_no") > 0) | (pl.col("answer_seq") >= 0))


def _of_messages(messages: pl.DataFrame) -> pl.DataFrame:
    return messages.group_by(TURN).agg(
        pl.col(USAGE).sum(),
        n_answers=pl.len().cast(pl.Int64),
        model=pl.col("model").drop_nulls().last(),
    )


def _of_tools(tools: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """How the calls of each turn went, and what of them it waits for."""
    signs = rows.filter(pl.col("what").is_in(list(SIGNS)))
    heard = signs.group_by("source", child_thread_id="thread_id").agg(child_at=pl.col("at").max())
    is_open = pl.col("ended_at").is_null()
    known = tools.join(heard, on=["source", "child_thread_id"], how="left", maintain_order="left")
    return known.group_by(TURN).agg(
        n_tool_calls=pl.len().cast(pl.Int64),
        n_tool_errors=pl.col("is_error").sum().cast(pl.Int64),
        n_tools_good=(~pl.col("is_error")).sum().cast(pl.Int64),
        n_open_tools=is_open.sum().cast(pl.Int64),
        n_questions=(is_open & pl.col("name").is_in(list(QUESTIONS))).sum().cast(pl.Int64),
        open_tool=pl.col("name").filter(is_open).first(),
        open_since=pl.col("started_at").filter(is_open).first(),
        open_timeout_s=pl.col("timeout_s").filter(is_open).first(),
        patience_s=pl.col("patience_s").filter(is_open).max(),
        child_at=pl.col("child_at").filter(is_open).max(),
    )


def _rules() -> dict[str, pl.Expr]:
    answer, stop = pl.col("answer_seq"), pl.col("stop_reason")
    is_closed = pl.col("n_open_tools") == 0
    is_after = answer > pl.max_horizontal("input_seq", "retry_seq")
    is_end = is_after & is_closed
    is_confirmed = stop.is_in(list(_GOOD_STOPS)) | (pl.col("turn_end_seq") > answer)
    is_odd = stop.is_not_null() & ~stop.is_in(list(_GOES_ON))
    had_later = ~pl.col("is_last")
    return {
        "interrupted": pl.col("interrupt_seq") > answer,
        "failed": pl.col("last_answer") == "api_error",
        "max_turns": pl.col("max_turns_seq") > answer,
        "refused": is_content_filter("stop_reason"),
        "truncated": is_end & (stop == "max_tokens"),
        "good": is_end & is_confirmed & pl.col("has_output"),
        "empty": is_end & is_confirmed,
        "unknown_finish": is_end & is_odd,
        "aborted": had_later & ~is_closed,
        "good_inferred": had_later & is_end & (pl.col("n_text_chars") > 0),
        "superseded": had_later,
        "question": pl.col("n_questions") > 0,
        "open_tool": ~is_closed,
        "retrying": pl.col("retry_seq") > pl.max_horizontal("answer_seq", "input_seq"),
        "awaiting_model": pl.lit(value=True),
    }
