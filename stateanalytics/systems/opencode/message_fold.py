"""Sessions that left messages and no events of work: V1, and what 2.0 took over from it.

A turn, the assistant messages that answer one prompt, stands for an execution. Its last
message tells how it ended, as far as messages can tell: V1 wrote the same error for a
person's interruption and for a server's stop, and nothing at all at a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.io.json_lines import dtypes_of
from stateanalytics.systems.opencode.log import SESSION_KEY
from stateanalytics.systems.opencode.payloads import MESSAGE, PART
from stateanalytics.systems.opencode.steps import is_content_filtered

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
"""One message of a session; ``n_content_…`` where a message holds its own parts.

Streams tell a message each time that it is written, which is then ``written_ms``.
"""

PARTS = pl.Schema(
    {
        "source": pl.String(),
        **dtypes_of(PART),
        **dict.fromkeys(("created_ms", "written_ms", "n_chars"), pl.Int64()),
        **dict.fromkeys(("is_timed_out", "is_aborted"), pl.Boolean()),
    }
)
"""One part of a V1 message: a table says when its row was made, a stream when it was written."""

PROJECTED = "C"
"""The era of a message that 2.0 made from its events."""

ABORTED = "MessageAbortedError"
_REJECTED = r"^The user (?:rejected permission[^:]*$|dismissed this question)"
"""What a tool says that a person, or a run without one, did not allow: V1 ends its turn so."""
_FORBIDDEN = (
    r"^The user (?:has (?:specified a rule which prevents|specifically restricted access)"
    r"|rejected permission.*feedback:)"
)
"""What a tool says that a rule forbids, or a person with other instructions: the model goes on."""

_MESSAGE = ["source", "message_id"]
_TURN = [*SESSION_KEY, "exec_no"]
_NEVER_OF_MESSAGES = (
    *("is_recovered", "is_continuation", "is_head_truncated", "is_claimed"),
    *("has_others_running", "is_resumed"),
)
"""What only events can tell of an execution."""


@dataclass(frozen=True)
class FoldedMessages:
    """What messages add up to, in the columns of `executions.Folded`."""

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

    Returns
    -------
    FoldedMessages
    """
    ordered = (
        distinct_messages(messages)
        .sort(*SESSION_KEY, "created_ms", "message_id")
        .with_columns(prompt=pl.when(pl.col("role") == "user").then("message_id"))
    )
    placed = ordered.with_columns(
        prompt=pl.coalesce("parent_id", pl.col("prompt").forward_fill().over(SESSION_KEY))
    )
    assistants = placed.filter(pl.col("role") == "assistant").with_columns(
        pl.col("prompt").fill_null("")
    )
    assistants = assistants.with_columns(
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(SESSION_KEY)
    ).with_columns(exec_no=_turn_number())
    own = distinct_parts(parts)
    tools = _tools(own, assistants)
    steps = _steps(assistants, own, tools)
    # An answer takes up every prompt before it, and names the last of them.
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


def distinct_messages(messages: pl.DataFrame) -> pl.DataFrame:
    """Each message once: as it was last written, which is when it has the most in it."""
    return messages.sort(
        *("session_id", "message_id", "completed_ms", "finish", "error_type", "written_ms"),
        nulls_last=False,
    ).unique(_MESSAGE, keep="last", maintain_order=True)


def distinct_parts(parts: pl.DataFrame) -> pl.DataFrame:
    """Each part once: as it was last written."""
    return parts.sort("part_id", "end_ms", "status", "written_ms", nulls_last=False).unique(
        ["source", "part_id"], keep="last", maintain_order=True
    )


def _turn_number() -> pl.Expr:
    """Turns of a session, numbered from 1 in the order in which they were first answered."""
    first = pl.col("place").min().over(*SESSION_KEY, "prompt")
    return first.rank("dense").over(SESSION_KEY).cast(pl.Int64)


def _steps(assistants: pl.DataFrame, parts: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    spoken = (
        parts.filter(pl.col("part_type") == "text")
        .group_by(_MESSAGE)
        .agg(n_part_chars=pl.col("n_chars").sum())
    )
    stirred = tools.group_by(_MESSAGE).agg(
        tool_ms=pl.max_horizontal("ended_ms", "called_ms").max(),
        is_rejected=pl.col("error_message").str.contains(_REJECTED).any(),
    )
    has_error = pl.col("error_type").is_not_null()
    return (
        assistants.join(spoken, on=_MESSAGE, how="left", maintain_order="left")
        .join(stirred, on=_MESSAGE, how="left", maintain_order="left")
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
    words = {
        "pending": "streaming",
        "running": "running",
        "completed": "completed",
        "error": "error",
    }
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
            state=pl.col("status").replace(words).fill_null("streaming"),
            started_ms="start_ms",
            called_ms="start_ms",
            ended_ms="end_ms",
            end_event_id="part_id",
            end_exec_no=pl.when(pl.col("end_ms").is_not_null()).then("exec_no"),
            is_stale=pl.lit(value=False),
            # A part holds no type of its error, so the text has to tell who stopped the tool.
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
    last = {
        "last_state": "state",
        "last_finish": "finish",
        "last_completed_ms": "completed_ms",
        **{name: name for name in ("error_type", "error_message", "error_status")},
        **{name: name for name in ("agent", "model", "provider", "era")},
        **{name: name for name in ("retry_at_ms", "retry_attempt", "retry_error_type")},
        "end_event_id": "message_id",
        "is_retry_pending": "is_retry_pending",
        "is_rejected": "is_rejected",
    }
    unknown = pl.col("finish").is_in(["unknown", "error"])
    ran = steps.group_by(_TURN, maintain_order=True).agg(
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
        **{new: pl.col(old).last() for new, old in last.items()},
    )
    used = tools.group_by(_TURN).agg(
        n_tools=pl.len().cast(pl.Int64),
        n_tools_completed=(pl.col("state") == "completed").sum().cast(pl.Int64),
        n_tools_running=(pl.col("state") == "running").sum().cast(pl.Int64),
    )
    joined = ran.join(used, on=_TURN, how="left", maintain_order="left").sort(_TURN)
    done = pl.col("last_completed_ms").is_not_null()
    is_rejected = (
        done & (pl.col("last_finish") == "tool-calls") & pl.col("is_rejected")
    ).fill_null(value=False)
    outcome = (
        pl.when(pl.col("error_type") == ABORTED)
        .then(pl.lit("interrupted"))
        .when(pl.col("error_type").is_not_null())
        .then(pl.lit("failed"))
        .when(is_rejected)
        .then(pl.lit("interrupted"))
        # It stopped to call tools, and no message took up their results: that is no end.
        .when(done & (pl.col("last_finish") == "tool-calls"))
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
        reason=pl.when((pl.col("error_type") == ABORTED) | is_rejected).then(pl.lit("user")),
        is_declined=is_rejected,
        has_output=(pl.col("n_text_chars") > 0)
        | (pl.col("n_tools_completed") > 0)
        | (pl.col("n_content_tools").fill_null(0) > 0),
        **dict.fromkeys(("n_terminals", "n_pending_asks"), pl.lit(0, pl.Int64)),
        **dict.fromkeys(_NEVER_OF_MESSAGES, pl.lit(value=False)),
        **dict.fromkeys(("is_end_from_step", "is_last_of_turn"), pl.lit(value=True)),
        retry_error_message=pl.lit(None, pl.String),
    )


def _with_unanswered(executions: pl.DataFrame, prompts: pl.DataFrame) -> pl.DataFrame:
    """Executions, and one more of each session whose last prompts have no answer at all.

    A message that answers is written before the model is asked, so that a prompt without one
    was being worked on by a process that died, or that still starts. A prompt behind open work
    waits for it.
    """
    unanswered = prompts.group_by(SESSION_KEY, maintain_order=True).agg(
        pl.col("agent", "model", "provider", "era").last(),
        started_ms=pl.col("created_ms").min(),
        last_active_ms=pl.col("created_ms").max(),
    )
    before = executions.group_by(SESSION_KEY).agg(
        n_before=pl.col("exec_no").max(), is_busy=(pl.col("outcome") == "open").any()
    )
    nothing = {
        name: pl.lit(False if dtype == pl.Boolean else 0, dtype)
        for name, dtype in executions.schema.items()
        if (name.startswith("n_") and not name.endswith("_tokens")) or dtype == pl.Boolean
    }
    added = (
        unanswered.join(before, on=SESSION_KEY, how="left", maintain_order="left")
        .filter(~pl.col("is_busy").fill_null(value=False))
        .with_columns(
            **nothing | {"is_last_of_turn": pl.lit(value=True), "outcome": pl.lit("open")},
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
    newest = pl.max_horizontal("created_ms", "completed_ms").max()
    frame = messages.group_by(SESSION_KEY, maintain_order=True).agg(
        created_ms=pl.col("created_ms").min(),
        last_ms=newest,
        newest_ms=newest,
        n_messages=pl.len().cast(pl.Int64),
        era=pl.col("era").last(),
    )
    ran = executions.group_by(SESSION_KEY, maintain_order=True).agg(
        n_executions=pl.len().cast(pl.Int64),
        n_turns=pl.len().cast(pl.Int64),
        n_steps=pl.col("n_steps").sum(),
        agent=pl.col("agent").last(),
        model=pl.col("model").last(),
        provider=pl.col("provider").last(),
        cost_usd=pl.col("cost_usd").sum(),
        n_input_tokens=pl.col("n_input_tokens").sum(),
        n_output_tokens=pl.col("n_output_tokens").sum(),
        busy_ms=pl.col("last_active_ms").max(),
    )
    waiting = inputs.group_by(SESSION_KEY).agg(
        n_inputs=pl.len().cast(pl.Int64),
        n_pending_inputs=pl.col("is_pending").sum().cast(pl.Int64),
    )
    return (
        frame.join(ran, on=SESSION_KEY, how="left", maintain_order="left")
        .join(waiting, on=SESSION_KEY, how="left", maintain_order="left")
        .with_columns(
            pl.max_horizontal("last_ms", "busy_ms").alias("last_ms"),
            pl.max_horizontal("newest_ms", "busy_ms").alias("newest_ms"),
        )
    )
