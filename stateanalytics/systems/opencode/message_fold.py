"""Sessions with messages and no events of work: those of V1, and those that 2.0 migrated.

A turn, the assistant messages that answer one prompt, stands for an execution. Its last
message shows how it ended, as far as messages can: V1 wrote the same error for a person's
interruption and for a server's stop, and nothing at all at a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.core.schema import INPUTS, RESULTS
from stateanalytics.io.json_lines import dtypes_of
from stateanalytics.systems.opencode.causes import is_content_filtered
from stateanalytics.systems.opencode.log import ERROR, MESSAGE, MODEL, PART, SESSION_KEY

MESSAGES = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(MESSAGE),
        "n_content_chars": pl.Int64(),
        "n_content_tools": pl.Int64(),
        "written_ms": pl.Int64(),
        "era": pl.String(),
    }
)
"""One message of a session; ``n_content_…`` where a message contains its parts.

A stream has a message each time that it was written, at ``written_ms``.
"""

PARTS = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(PART),
        **dict.fromkeys(("created_ms", "written_ms", "n_chars"), pl.Int64()),
        **dict.fromkeys(("is_timed_out", "is_aborted"), pl.Boolean()),
        "says": pl.String(),
        **INPUTS.dtypes,
        **RESULTS.dtypes,
    }
)
"""One part of a V1 message: a table has the creation of its row, a stream has ``written_ms``."""

PROJECTED = "C"
"""The era of a message that 2.0 made from its events."""

_REJECTED = r"^The user (?:rejected permission[^:]*$|dismissed this question)"
"""The error of a tool that a person, or a run without one, did not allow: V1 ends its turn."""
_FORBIDDEN = (
    r"^The user (?:has (?:specified a rule which prevents|specifically restricted access)"
    r"|rejected permission.*feedback:)"
)
"""The error of a tool that a rule or a person with feedback did not allow: the turn continues."""

_MESSAGE = ["source", "message_id"]
_TURN = [*SESSION_KEY, "exec_no"]
_NEEDS_EVENTS = (
    *("is_recovered", "is_continuation", "is_head_truncated", "is_claimed"),
    *("has_others_running", "is_resumed"),
)
"""Facts of an execution that are never known from messages."""


@dataclass(frozen=True)
class FoldedMessages:
    """The executions, steps, tool calls, inputs and sessions of some messages."""

    executions: pl.DataFrame
    steps: pl.DataFrame
    tools: pl.DataFrame
    inputs: pl.DataFrame
    sessions: pl.DataFrame


def fold_messages(messages: pl.DataFrame, parts: pl.DataFrame) -> FoldedMessages:
    """Fold messages into turns, steps, tool calls and inputs.

    Parameters
    ----------
    messages, parts : polars.DataFrame
        `MESSAGES` and `PARTS`, in any order.
    """
    ordered = (
        _distinct_messages(messages)
        .sort(*SESSION_KEY, "created_ms", "message_id")
        .with_columns(prompt=pl.when(pl.col("role") == "user").then("message_id"))
    )
    placed = ordered.with_columns(
        prompt=pl.coalesce("parent_id", pl.col("prompt").forward_fill().over(SESSION_KEY))
    )
    assistants = placed.filter(pl.col("role") == "assistant").with_columns(
        pl.col("prompt").fill_null("")
    )
    # Turns are numbered from 1 in the order in which they were first answered.
    first_place = pl.col("place").min().over(*SESSION_KEY, "prompt")
    assistants = assistants.with_columns(
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(SESSION_KEY)
    ).with_columns(exec_no=first_place.rank("dense").over(SESSION_KEY).cast(pl.Int64))
    # A part counts as it was last written.
    own = parts.sort("part_id", "end_ms", "status", "written_ms", nulls_last=False).unique(
        ["source", "part_id"], keep="last", maintain_order=True
    )
    said = own.filter(pl.col("part_type") == "text").group_by(_MESSAGE)
    prompts = said.agg(prompt_says=pl.col("says").first()).rename({"message_id": "prompt"})
    assistants = assistants.join(
        prompts, on=["source", "prompt"], how="left", maintain_order="left"
    )
    tools = _tools(own, assistants)
    steps = _steps(assistants, own, tools)
    # An answer is to every prompt before it, and names the last of them.
    is_answer = pl.col("role") == "assistant"
    answered_ms = pl.col("created_ms").filter(is_answer).max().over(SESSION_KEY)
    parents = assistants.select(*SESSION_KEY, message_id="prompt", has_answer=pl.lit(value=True))
    users = (
        placed.with_columns(is_late=pl.col("created_ms") > answered_ms.fill_null(-1))
        .filter(pl.col("role") == "user")
        .join(parents.unique(), on=[*SESSION_KEY, "message_id"], how="left", maintain_order="left")
        .with_columns(is_pending=pl.col("is_late") & pl.col("has_answer").is_null())
    )
    executions = _with_unanswered(_executions(steps, tools), users.filter("is_pending"))
    inputs = users.select(
        *SESSION_KEY,
        input_id="message_id",
        input_kind=pl.lit("user"),
        delivery=pl.lit(None, pl.String),
        admitted_ms="created_ms",
        promoted_ms=pl.lit(None, pl.Int64),
        is_pending="is_pending",
    )
    return FoldedMessages(executions, steps, tools, inputs, _sessions(placed, executions, inputs))


def _distinct_messages(messages: pl.DataFrame) -> pl.DataFrame:
    """Every message as it was last written, when it is most complete."""
    return messages.sort(
        *("session_id", "message_id", "completed_ms", "finish", "error_type", "written_ms"),
        nulls_last=False,
    ).unique(_MESSAGE, keep="last", maintain_order=True)


def _steps(assistants: pl.DataFrame, parts: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """One step per assistant message, with the columns of `executions.fold_steps`."""
    of_texts = (
        parts.filter(pl.col("part_type") == "text")
        .group_by(_MESSAGE)
        .agg(n_part_chars=pl.col("n_chars").sum(), says=pl.col("says").last())
    )
    of_tools = tools.group_by(_MESSAGE).agg(
        tool_ms=pl.max_horizontal("ended_ms", "called_ms").max(),
        is_rejected=pl.col("error_message").str.contains(_REJECTED).any(),
    )
    has_error = pl.col("error_type").is_not_null()
    return (
        assistants.join(of_texts, on=_MESSAGE, how="left", maintain_order="left")
        .join(of_tools, on=_MESSAGE, how="left", maintain_order="left")
        .with_columns(
            state=pl.when(has_error)
            .then(pl.lit("failed"))
            .when(pl.col("completed_ms").is_not_null() & pl.col("finish").is_not_null())
            .then(pl.lit("ended"))
            .otherwise(pl.lit("open")),
            started_ms="created_ms",
            ended_ms="completed_ms",
            end_event_id="message_id",
            start_seq=pl.int_range(pl.len(), dtype=pl.Int64).over(SESSION_KEY),
            n_attempts=pl.lit(1, pl.Int64),
            n_text_chars=pl.coalesce("n_part_chars", "n_content_chars", pl.lit(0)),
            is_retry_pending=pl.col("retry_at_ms").is_not_null(),
            is_recovered=pl.lit(value=False),
            last_ms=pl.max_horizontal("created_ms", "completed_ms", "tool_ms"),
        )
        .with_columns(is_blocked=is_content_filtered())
    )


def _tools(parts: pl.DataFrame, assistants: pl.DataFrame) -> pl.DataFrame:
    """One row per tool call, with the columns of `executions.fold_tools`."""
    return (
        parts.filter(pl.col("part_type") == "tool")
        .drop("session_id")
        .join(
            assistants.select(*_MESSAGE, "session_id", "exec_no", "era"),
            on=_MESSAGE,
            how="inner",
        )
        .with_columns(
            call_id=pl.coalesce("call_id", "part_id"),
            name="tool",
            state=pl.col("status").replace({"pending": "streaming"}).fill_null("streaming"),
            started_ms="start_ms",
            called_ms="start_ms",
            ended_ms="end_ms",
            end_event_id="part_id",
            end_exec_no=pl.when(pl.col("end_ms").is_not_null()).then("exec_no"),
            is_stale=pl.lit(value=False),
            # A part has no type of its error: the text shows who stopped the tool.
            error_type=pl.when(pl.col("status") == "error").then(
                pl.when(pl.col("error_message").str.contains(f"{_REJECTED}|{_FORBIDDEN}"))
                .then(pl.lit("permission.rejected"))
                .when(pl.col("error_message").str.contains("(?i)abort|interrupt"))
                .then(pl.lit("aborted"))
                .otherwise(pl.lit("tool.execution"))
            ),
            error_status=pl.lit(None, pl.Int64),
            start_seq=pl.lit(None, pl.Int64),
        )
        .unique([*SESSION_KEY, "message_id", "call_id"], keep="last", maintain_order=True)
        .sort(*SESSION_KEY, "message_id", "call_id")
    )


def _executions(steps: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """One execution per turn, with the columns of `executions.fold_executions`."""
    last = (
        *(*ERROR, *MODEL, "era", "retry_at_ms", "retry_attempt", "retry_error_type"),
        *("is_retry_pending", "is_rejected"),
    )
    unknown = pl.col("finish").is_in(["unknown", "error"])
    of_steps = steps.group_by(_TURN, maintain_order=True).agg(
        pl.col(last).last(),
        end_event_id=pl.col("message_id").last(),
        n_idle_answers=(pl.col("finish") == "stop").sum().cast(pl.Int64),
        n_final_chars=pl.col("n_text_chars").last(),
        gives_up=pl.col("says").last().eq_missing("gives_up"),
        is_correction=pl.col("prompt_says").first().eq_missing("corrects"),
        last_state=pl.col("state").last(),
        last_finish=pl.col("finish").last(),
        last_completed_ms=pl.col("completed_ms").last(),
        started_ms=pl.col("started_ms").min(),
        last_active_ms=pl.col("last_ms").max(),
        n_steps=pl.len().cast(pl.Int64),
        n_text_chars=pl.col("n_text_chars").sum(),
        n_content_tools=pl.col("n_content_tools").sum(),
        is_blocked=pl.col("is_blocked").any(),
        n_unknown_finishes=unknown.sum().cast(pl.Int64),
        **{
            name: pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum())
            for name in ("cost_usd", "n_input_tokens", "n_output_tokens")
        },
    )
    of_tools = tools.group_by(_TURN).agg(
        n_tools=pl.len().cast(pl.Int64),
        n_tools_completed=(pl.col("state") == "completed").sum().cast(pl.Int64),
        n_tools_running=(pl.col("state") == "running").sum().cast(pl.Int64),
    )
    joined = of_steps.join(of_tools, on=_TURN, how="left", maintain_order="left").sort(_TURN)
    done = pl.col("last_completed_ms").is_not_null()
    called_tools = done & (pl.col("last_finish") == "tool-calls")
    is_rejected = (called_tools & pl.col("is_rejected")).fill_null(value=False)
    is_aborted = pl.col("error_type") == "MessageAbortedError"
    outcome = (
        pl.when(is_aborted)
        .then(pl.lit("interrupted"))
        .when(pl.col("error_type").is_not_null())
        .then(pl.lit("failed"))
        .when(is_rejected)
        .then(pl.lit("interrupted"))
        # It stopped to call tools, and no message has their results: that is no end.
        .when(called_tools)
        .then(None)
        .when(done & pl.col("last_finish").is_not_null())
        .then(pl.lit("succeeded"))
        .when(done)
        .then(pl.lit("unknown"))
    )
    return joined.with_columns(
        pl.col("n_tools", "n_tools_completed", "n_tools_running").fill_null(0),
        is_last=pl.struct(SESSION_KEY).is_last_distinct(),
        turn_no="exec_no",
    ).with_columns(
        # Only the last turn of a session can still end; one before it was left behind.
        outcome=pl.coalesce(
            outcome, pl.when("is_last").then(pl.lit("open")).otherwise(pl.lit("crashed"))
        ),
        ended_ms=pl.when(outcome.is_not_null()).then("last_completed_ms"),
        reason=pl.when(is_aborted | is_rejected).then(pl.lit("user")),
        is_declined=is_rejected,
        has_output=(pl.col("n_text_chars") > 0)
        | (pl.col("n_tools_completed") > 0)
        | (pl.col("n_content_tools").fill_null(0) > 0),
        **dict.fromkeys(("n_terminals", "n_pending_asks"), pl.lit(0, pl.Int64)),
        **dict.fromkeys(_NEEDS_EVENTS, pl.lit(value=False)),
        **dict.fromkeys(("is_end_from_step", "is_last_of_turn"), pl.lit(value=True)),
        retry_error_message=pl.lit(None, pl.String),
    )


def _with_unanswered(executions: pl.DataFrame, prompts: pl.DataFrame) -> pl.DataFrame:
    """Executions, and one more for each session of which the last prompts have no answer at all.

    The message of an answer is written before the model is asked: the process that worked on a
    prompt without one has died, or is just starting. A prompt behind open work waits for it.
    """
    unanswered = prompts.group_by(SESSION_KEY, maintain_order=True).agg(
        pl.col(*MODEL, "era").last(),
        started_ms=pl.col("created_ms").min(),
        last_active_ms=pl.col("created_ms").max(),
    )
    before = executions.group_by(SESSION_KEY).agg(
        n_before=pl.col("exec_no").max(), is_busy=(pl.col("outcome") == "open").any()
    )
    empty = {
        name: pl.lit(False if dtype == pl.Boolean else 0, dtype)
        for name, dtype in executions.schema.items()
        if (name.startswith("n_") and not name.endswith("_tokens")) or dtype == pl.Boolean
    }
    added = (
        unanswered.join(before, on=SESSION_KEY, how="left", maintain_order="left")
        .filter(~pl.col("is_busy").fill_null(value=False))
        .with_columns(
            **empty | {"is_last_of_turn": pl.lit(value=True), "outcome": pl.lit("open")},
            exec_no=pl.col("n_before").fill_null(0) + 1,
        )
        .with_columns(turn_no="exec_no")
        .drop("n_before", "is_busy")
    )
    both = pl.concat([executions, added], how="diagonal_relaxed").sort(_TURN)
    return both.with_columns(is_last=pl.struct(SESSION_KEY).is_last_distinct())


def _sessions(
    messages: pl.DataFrame, executions: pl.DataFrame, inputs: pl.DataFrame
) -> pl.DataFrame:
    """One row per session, with the columns of `executions.fold_sessions`."""
    newest = pl.max_horizontal("created_ms", "completed_ms").max()
    frame = messages.group_by(SESSION_KEY, maintain_order=True).agg(
        created_ms=pl.col("created_ms").min(),
        last_ms=newest,
        newest_ms=newest,
        n_messages=pl.len().cast(pl.Int64),
        era=pl.col("era").last(),
    )
    of_executions = executions.group_by(SESSION_KEY, maintain_order=True).agg(
        pl.col("n_steps", "cost_usd", "n_input_tokens", "n_output_tokens").sum(),
        pl.col(MODEL).last(),
        n_executions=pl.len().cast(pl.Int64),
        n_turns=pl.len().cast(pl.Int64),
        busy_ms=pl.col("last_active_ms").max(),
    )
    waiting = inputs.group_by(SESSION_KEY).agg(
        n_inputs=pl.len().cast(pl.Int64),
        n_pending_inputs=pl.col("is_pending").sum().cast(pl.Int64),
    )
    return (
        frame.join(of_executions, on=SESSION_KEY, how="left", maintain_order="left")
        .join(waiting, on=SESSION_KEY, how="left", maintain_order="left")
        .with_columns(pl.max_horizontal(name, "busy_ms") for name in ("last_ms", "newest_ms"))
    )
