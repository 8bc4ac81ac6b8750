"""What each turn came to: the first situation that its records show."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.codex.folding import (
    NO_FAILURES,
    own,
    rolled_back,
    usage_of,
)
from stateanalytics.systems.codex.frames import TURNS, USAGE
from stateanalytics.systems.codex.tools import WAITS_FOR_CHILD
from stateanalytics.systems.provider_errors import cause_of_error
from stateanalytics.systems.situations import first_that_holds
from stateanalytics.systems.threads import THREAD, TURN

OPEN = ("open_tool", "awaiting_turn_end", "awaiting_model")
"""Situations of work that is not over."""
ABORTS = ("interrupted", "replaced", "review_ended", "budget_limited")
"""Reasons of aborts that are known; situations are called so too."""
_ASKS = ("untrusted", "on-failure")
"""Policies by which a person is asked though the call does not say so."""


def turns_of(rows: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """`frames.TURNS`, in their order.

    Parameters
    ----------
    rows : polars.DataFrame
        From `folding.with_threads`.
    tools : polars.DataFrame
        `frames.TOOLS`.
    """
    facts = _facts(rows)
    for part in (usage_of(rows), _of_tools(tools), rolled_back(rows)):
        facts = facts.join(part, on=TURN, how="left", maintain_order="left")
    facts = facts.join(_of_children(rows), on=THREAD, how="left", maintain_order="left")
    counts = (*USAGE, "n_tool_calls", "n_tool_errors", "n_open_tools", "n_tools_good")
    turn_no, is_rolled_back = pl.col("turn_no"), pl.col("is_rolled_back")
    known = facts.with_columns(
        pl.col(counts).fill_null(0), is_rolled_back.fill_null(value=False)
    ).with_columns(
        has_later=turn_no < turn_no.max().over(THREAD),
        is_last=turn_no == turn_no.filter(~is_rolled_back).max().over(THREAD),
        has_output=(pl.col("n_text_chars") > 0)
        | (pl.col("n_tools_good") > 0)
        | pl.col("has_review"),
    )
    named = known.with_columns(cause=cause_of_error()).with_columns(
        situation=first_that_holds(_rules())
    )
    situation = pl.col("situation")
    is_open, is_failed = situation.is_in(list(OPEN)), situation == "failed"
    policy = pl.col("approval_policy").fill_null("")
    may_ask = policy.is_in(list(_ASKS)) | ((policy != "never") & pl.col("asks"))
    waits = pl.col("open_tool").is_in(list(WAITS_FOR_CHILD))
    kept = {
        **dict.fromkeys(
            ("error_type", "error_status", "error_message", "cause"),
            is_failed | (situation == "truncated"),
        ),
        **dict.fromkeys(
            ("open_tool", "open_since", "open_timeout_s", "patience_s", "may_ask"),
            situation == "open_tool",
        ),
    }
    return TURNS.conform(
        named.with_columns(may_ask=may_ask.fill_null(value=False))
        .with_columns(
            *(pl.when(rule).then(name).alias(name) for name, rule in kept.items()),
            entity_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
            # Its own clock tells whole seconds; the record of it was written then.
            ended_at=pl.when(~is_open).then(pl.coalesce("end_at", "error_at", "last_activity_at")),
            last_sign_at=pl.max_horizontal("last_activity_at", pl.when(waits).then("child_at")),
            is_last=pl.col("is_last").fill_null(value=False),
        )
        .sort(TURN)
    )


def _facts(rows: pl.DataFrame) -> pl.DataFrame:
    """What the records of each turn show by themselves."""
    what, at = pl.col("what"), pl.col("at")
    is_end, is_error = pl.col("is_end"), (what == "error") & ~_is_harmless()
    is_sign = pl.col("is_prompt") | pl.col("is_answer") | what.is_in(["call", "result"])
    sign = (
        pl.when("is_answer").then(pl.lit("answer")).when("is_prompt").then(pl.lit("prompt"))
        .otherwise("what")
    )  # fmt: skip
    is_text = pl.col("is_answer") | (what == "turn_complete")
    error = ("error_type", "error_status", "error_message")
    has_words = pl.col("error_type").is_not_null() | pl.col("error_message").is_not_null()
    is_told = is_end & has_words & ~_is_harmless()
    last = (
        *("model", "approval_policy", "rate_limit_reached", "rate_limit_used_percent"),
        "rate_limit_resets_at",
    )
    # What a turn runs with may stand before its prompt.
    ours = own(rows.lazy())
    known = ours.with_columns(pl.col("model", "approval_policy").forward_fill().over(THREAD))
    return (
        known.filter(pl.col("turn_no") > 0)
        .group_by(TURN, maintain_order=True)
        .agg(
            pl.col("is_implicit").first(),
            pl.col(last).drop_nulls().last(),
            *(pl.col(name).filter(is_told | is_error).last() for name in error),
            turn_id=pl.col("start_id").first(),
            started_at=at.min(),
            last_activity_at=at.max(),
            end=what.filter(is_end).first(),
            end_at=at.filter(is_end).first(),
            error_at=at.filter(is_error).first(),
            has_error=(is_told | is_error).any(),
            stop_reason=pl.col("reason").filter(is_end).first(),
            stored_duration_s=pl.col("duration_s").filter(is_end).first(),
            first_token_s=pl.col("first_token_s").filter(is_end).first(),
            n_text_chars=pl.col("n_text_chars").filter(is_text).sum(),
            final_chars=pl.col("n_text_chars").filter(is_end).first(),
            last_sign=sign.filter(is_sign).last(),
            # The event of an answer need not say what its twin does.
            last_phase=pl.col("phase").filter(what.str.starts_with("answer_")).drop_nulls().last(),
            has_review=((what == "review") & (pl.col("n_text_chars") > 0)).any(),
            n_prompts=pl.col("is_prompt").sum(),
            n_answers=pl.col("is_answer").sum(),
        )
        .collect()
    )


def _is_harmless() -> pl.Expr:
    return pl.col("error_type").is_in(list(NO_FAILURES)).fill_null(value=False)


def _of_tools(tools: pl.DataFrame) -> pl.DataFrame:
    """How the calls of each turn went, and what of them it waits for."""
    is_open = pl.col("ended_at").is_null()
    is_stopped = pl.col("cause").is_in(["interrupted", "permission_rejected"])
    first = {"open_tool": "name", "open_since": "started_at", "open_timeout_s": "timeout_s"}
    return tools.group_by(TURN).agg(
        *(pl.col(of).filter(is_open).first().alias(name) for name, of in first.items()),
        patience_s=pl.col("patience_s").filter(is_open).max(),
        asks=pl.col("is_escalated").filter(is_open).any(),
        n_tool_calls=pl.len(),
        n_tool_errors=pl.col("is_error").sum(),
        n_tools_good=(~pl.col("is_error") & ~is_stopped.fill_null(value=False)).sum(),
        n_open_tools=is_open.sum(),
    )


def _of_children(rows: pl.DataFrame) -> pl.DataFrame:
    """When the subagents of each thread were last heard of."""
    children = own(rows.lazy()).filter(pl.col("spawned_by").is_not_null())
    by_parent = children.group_by("source", thread_id="spawned_by")
    return by_parent.agg(child_at=pl.col("at").max()).collect()


def _rules() -> dict[str, pl.Expr]:
    end, reason = pl.col("end"), pl.col("stop_reason")
    is_complete, is_aborted = end == "turn_complete", end == "turn_aborted"
    is_written = ~pl.col("is_implicit")
    is_closed = pl.col("n_open_tools") == 0
    is_answered = pl.col("last_sign") == "answer"
    is_old_answer = end.is_null() & ~is_written & is_closed & is_answered
    had_later = pl.col("has_later")
    has_words = (pl.col("n_text_chars") > 0) | pl.col("has_review")
    is_error = pl.col("has_error") & ~is_aborted.fill_null(value=False)
    return {
        # It is written as an error, and what there is of the answer is kept all the same.
        "truncated": is_error & (pl.col("cause") == "truncated_length"),
        "failed": is_error,
        **{word: is_aborted & (reason == word) for word in ABORTS},
        "unknown_abort": is_aborted,
        "good": is_complete & (pl.col("final_chars") > 0),
        "limited": is_complete & ~has_words & pl.col("rate_limit_reached").is_not_null(),
        "good_inferred": is_complete & pl.col("has_output"),
        "empty": is_complete,
        "good_message": is_old_answer,
        "superseded": had_later & ~is_written & is_closed,
        "aborted": had_later,
        "open_tool": ~is_closed,
        "awaiting_turn_end": is_answered & (pl.col("last_phase") == "final_answer"),
        "awaiting_model": pl.lit(value=True),
    }
