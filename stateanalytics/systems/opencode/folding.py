"""Executions, steps, tool calls, inputs and sessions, folded from events or from messages.

Sessions with messages and no events of work are those of V1, and those that 2.0 migrated.
For these, a turn (the assistant messages that answer one prompt) counts as an execution. Its
last message shows how it ended, with limits: V1 wrote the same error for an interruption by a
person and for a stop of the server, and nothing at all at a crash.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stateanalytics.core.joins import left_joined, total
from stateanalytics.core.schema import INPUTS, RESULTS
from stateanalytics.systems.opencode.gathered import (
    ERROR,
    MODEL,
    SESSION_KEY,
    SPENT_OUTSIDE_STEPS,
    TERMINALS,
    USAGE,
    Log,
    Ordered,
    rows_of,
    with_session_ids,
)
from stateanalytics.systems.opencode.states import is_content_filtered
from stateanalytics.systems.situations import first_that_holds, is_content_filter
from stateanalytics.systems.threads import is_last_work

_EXECUTION = ["sid", "exec_no"]
_STEP = ["sid", "message_id"]
_TOOL = [*_STEP, "call_id"]
_ACTIVITY = ("step.", "text.", "reasoning.", "tool.", "retry.", "compaction.", "shell.")
"""Prefixes of the kinds of events that only a working execution writes."""
_ENDS = ("ended_ms", "end_seq", "end_event_id", "error_type", "error_message")
SUMS = ("cost_usd", "n_input_tokens", "n_output_tokens")
_N_TOOLS = {
    "n_tools": pl.len().cast(pl.Int64),
    "n_tools_completed": (pl.col("state") == "completed").sum().cast(pl.Int64),
    "n_tools_running": (pl.col("state") == "running").sum().cast(pl.Int64),
}
_N_INPUTS = {
    "n_inputs": pl.len().cast(pl.Int64),
    "n_pending_inputs": pl.col("is_pending").sum().cast(pl.Int64),
}


@dataclass(frozen=True)
class Folded:
    """The executions, steps, tool calls, inputs and sessions of some events or messages."""

    executions: pl.DataFrame
    steps: pl.DataFrame
    tools: pl.DataFrame
    inputs: pl.DataFrame
    sessions: pl.DataFrame


def _firsts(*names: str, **columns: str) -> dict[str, pl.Expr]:
    """First values of columns in a group, by their own or by other names."""
    return {
        new: pl.col(old).first() for new, old in ({name: name for name in names} | columns).items()
    }


def _lasts(*names: str, **columns: str) -> dict[str, pl.Expr]:
    """Last values of columns in a group, by their own or by other names."""
    return {
        new: pl.col(old).last() for new, old in ({name: name for name in names} | columns).items()
    }


def fold_steps(events: pl.DataFrame, log: Log) -> pl.DataFrame:
    """One row per step, which is one call of a model with all its attempts.

    Parameters
    ----------
    events : polars.DataFrame
        `gathered.Ordered.events`.
    log : Log
        Their payloads.

    Returns
    -------
    polars.DataFrame
        ``state`` is ``open``, ``ended`` or ``failed``: by the last of started, ended and
        failed, so that a start after a failure reopens the step. A step belongs to the
        execution in which it first started.
    """
    rows = rows_of(events, log, "step").filter(pl.col("message_id").is_not_null())
    starts = rows.filter(pl.col("kind") == "step.started")
    ends = rows.filter(pl.col("kind").is_in(["step.ended", "step.failed"]))
    retries = rows.filter(pl.col("kind") == "retry.scheduled")
    seen = rows.group_by(_STEP, maintain_order=True).agg(
        **_firsts(exec_no="exec_no", start_seq="seq", started_ms="at_ms"),
        **_lasts(last_kind="kind", is_era_a="is_era_a"),
        last_ms=pl.col("at_ms").max(),
    )
    begun = starts.group_by(_STEP).agg(
        n_attempts=pl.len().cast(pl.Int64),
        **_firsts(begun_in="exec_no", dispatched_ms="dispatched_ms"),
        **_firsts(first_ms="at_ms", first_seq="seq"),
        **_lasts(*MODEL, last_start_seq="seq"),
    )
    ended = ends.unique(_STEP, keep="last", maintain_order=True).select(
        *_STEP,
        *USAGE,
        end_kind="kind",
        last_end_seq="seq",
        end_ms="at_ms",
        end_event_id="event_id",
        last_finish=pl.coalesce(
            "finish", pl.when(pl.col("kind") == "step.failed").then(pl.lit("error"))
        ),
        last_raw_finish="raw_finish",
        **{f"end_{name}": name for name in ERROR},
    )
    retried = retries.group_by(_STEP).agg(
        n_retries=pl.len().cast(pl.Int64),
        **_lasts("retry_at_ms", retry_attempt="attempt"),
        **_lasts(**{f"retry_{name}": name for name in ERROR}),
        retry_wait_ms=(pl.col("retry_at_ms") - pl.col("at_ms")).sum(),
    )
    texts = (
        rows_of(events, log, "text")
        .filter(pl.col("message_id").is_not_null())
        .group_by(_STEP)
        .agg(n_text_chars=pl.col("n_chars").sum(), says=pl.col("says").last())
    )
    joined = left_joined(with_session_ids(seen, events), begun, ended, retried, texts, on=_STEP)
    # A step that failed and was started again is open.
    is_over = pl.col("last_end_seq") > pl.col("last_start_seq").fill_null(-1)
    return (
        joined.with_columns(
            # If a log lacks its beginning, the first event of a step counts as its start.
            exec_no=pl.coalesce("begun_in", "exec_no"),
            started_ms=pl.coalesce("first_ms", "started_ms"),
            start_seq=pl.coalesce("first_seq", "start_seq"),
            is_over=is_over.fill_null(value=False),
        )
        .with_columns(
            state=first_that_holds(
                {"open": ~pl.col("is_over"), "ended": pl.col("end_kind") == "step.ended"}
            ).fill_null("failed"),
            is_retry_pending=pl.col("last_kind") == "retry.scheduled",
            **{
                new: pl.when("is_over").then(pl.col(old))
                for new, old in {
                    "finish": "last_finish",
                    "raw_finish": "last_raw_finish",
                    "end_seq": "last_end_seq",
                    "ended_ms": "end_ms",
                    **{name: f"end_{name}" for name in ERROR},
                }.items()
            },
        )
        .with_columns(
            pl.col("n_attempts", "n_retries", "n_text_chars").fill_null(0),
            is_recovered=(pl.col("n_retries").fill_null(0) > 0) & (pl.col("state") == "ended"),
            is_blocked=is_content_filtered(),
        )
        .sort("sid", "start_seq")
    )


def fold_tools(events: pl.DataFrame, log: Log, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per tool call, in the execution of its step, whichever execution wrote its end."""
    rows = rows_of(events, log, "tool").filter(
        pl.col("message_id").is_not_null(), pl.col("call_id").is_not_null()
    )
    seen = rows.group_by(_TOOL, maintain_order=True).agg(
        **_firsts(start_seq="seq", started_ms="at_ms", seen_in="exec_no"),
        last_ms=pl.col("at_ms").max(),
        name=pl.col("tool").drop_nulls().first(),
    )
    calls = rows.filter(pl.col("kind") == "tool.called").group_by(_TOOL)
    called = calls.agg(
        pl.col(*INPUTS.dtypes).drop_nulls().first(), called_ms=pl.col("at_ms").first()
    )
    ends = rows.filter(pl.col("kind").is_in(["tool.success", "tool.failed"]))
    # Of several ends a success counts before a failure, and the earliest of each kind.
    ended = (
        ends.sort(pl.col("kind") != "tool.success", maintain_order=True)
        .unique(_TOOL, keep="first", maintain_order=True)
        .select(
            *_TOOL,
            *("exit_code", "is_timed_out", "error_permission", "error_resource", *ERROR),
            *RESULTS.dtypes,
            end_kind="kind",
            end_seq="seq",
            ended_ms="at_ms",
            end_event_id="event_id",
            end_exec_no="exec_no",
        )
    )
    joined = left_joined(with_session_ids(seen, events), called, ended, on=_TOOL)
    return (
        left_joined(joined, steps.select(*_STEP, "exec_no"), on=_STEP)
        .with_columns(
            exec_no=pl.coalesce("exec_no", "seen_in"),
            state=first_that_holds(
                {
                    "completed": pl.col("end_kind") == "tool.success",
                    "error": pl.col("end_kind") == "tool.failed",
                    "running": pl.col("called_ms").is_not_null(),
                }
            ).fill_null("streaming"),
        )
        .with_columns(is_stale=(pl.col("end_exec_no") != pl.col("exec_no")).fill_null(value=False))
        .sort("sid", "start_seq")
    )


def fold_inputs(events: pl.DataFrame, log: Log) -> pl.DataFrame:
    """One row per input, with when it was admitted and when the model saw it."""
    key = ["sid", "input_id"]
    rows = rows_of(events, log, "input").filter(pl.col("input_id").is_not_null())
    folded = rows.group_by(key, maintain_order=True).agg(
        input_kind=pl.col("input_kind").drop_nulls().first(),
        delivery=pl.col("delivery").drop_nulls().last(),
        first_seq=pl.col("seq").first(),
    )
    for word in ("admitted", "promoted", "cancelled"):
        part = rows.filter(pl.col("kind") == f"input.{word}").unique(
            key, keep="first", maintain_order=True
        )
        moments = part.select(*key, **{f"{word}_seq": "seq", f"{word}_ms": "at_ms"})
        folded = left_joined(folded, moments, on=key)
    return (
        with_session_ids(folded, events)
        .with_columns(
            input_kind=pl.col("input_kind").fill_null("user"),
            is_pending=pl.col("promoted_seq").is_null() & pl.col("cancelled_seq").is_null(),
        )
        .sort("sid", "first_seq")
    )


def fold_executions(
    events: pl.DataFrame, log: Log, steps: pl.DataFrame, tools: pl.DataFrame
) -> pl.DataFrame:
    """One row per execution, which is one time that a session worked through its inputs.

    Parameters
    ----------
    events : polars.DataFrame
        `gathered.Ordered.events`.
    log : Log
    steps, tools : polars.DataFrame
        From `fold_steps` and `fold_tools`.

    Returns
    -------
    polars.DataFrame
        ``outcome`` is succeeded, failed, interrupted, ``crashed`` (no end, and the session
        was restarted) or ``open``. The last end counts; a second one is a *late terminal*.
        ``turn_no`` joins executions over crashes and shutdowns.
    """
    starts = events.filter("is_start").select(
        *_EXECUTION, start_seq="seq", started_ms="at_ms", is_era_a="is_era_a"
    )
    ends = rows_of(events, log, "execution").filter(pl.col("kind").is_in(list(TERMINALS)))
    outcome = pl.col("kind").str.strip_prefix("execution.")
    first = ends.unique(_EXECUTION, keep="first", maintain_order=True).select(
        *_EXECUTION, first_outcome=outcome, first_end_ms="at_ms"
    )
    last = ends.unique(_EXECUTION, keep="last", maintain_order=True).select(
        *_EXECUTION,
        *ERROR,
        "reason",
        end_seq="seq",
        ended_ms="at_ms",
        end_event_id="event_id",
        outcome=outcome,
    )
    n_ends = ends.group_by(_EXECUTION).agg(n_terminals=pl.len().cast(pl.Int64))
    active = (
        events.filter(
            pl.any_horizontal(pl.col("kind").str.starts_with(prefix) for prefix in _ACTIVITY)
        )
        .group_by(_EXECUTION)
        .agg(last_active_ms=pl.col("at_ms").max(), first_active_ms=pl.col("at_ms").min())
    )
    known = pl.concat(
        [starts.select(_EXECUTION), ends.select(_EXECUTION), steps.select(_EXECUTION)]
    )
    frame = with_session_ids(known.unique().sort("sid", "exec_no"), events)
    declined = pl.col("error_message").str.starts_with("The user declined")
    of_tools = tools.group_by(_EXECUTION).agg(
        **_N_TOOLS, has_declined_tool=declined.fill_null(value=False).any()
    )
    of_steps = _step_totals(_with_calls(steps, tools, _STEP))
    frame = left_joined(
        frame, starts, last, first, n_ends, active, of_steps, of_tools, on=_EXECUTION
    )
    # Era A has no start events, so before the first prompt only steps show the era.
    counts = ("n_terminals", "n_steps", "n_retries", "n_tools", "n_text_chars", "n_tools_completed")
    filled = frame.with_columns(
        pl.col(*counts, "n_tools_running", "n_unknown_finishes").fill_null(0),
        pl.col("is_era_a").fill_null(pl.col("is_step_era_a")).fill_null(value=False),
        is_head_truncated=pl.col("start_seq").is_null(),
        is_last=(pl.col("sid") != pl.col("sid").shift(-1)).fill_null(value=True),
        has_output=(pl.col("n_text_chars").fill_null(0) > 0)
        | (pl.col("n_tools_completed").fill_null(0) > 0),
    )
    return _with_turns(_with_outcomes(filled))


def _step_totals(steps: pl.DataFrame) -> pl.DataFrame:
    """Totals over the steps of each execution, and values of the step that began last."""
    last = (
        *("is_retry_pending", "retry_at_ms", "retry_attempt", *MODEL),
        *(f"retry_{name}" for name in ERROR),
    )
    return steps.group_by(_EXECUTION, maintain_order=True).agg(
        pl.col(last).last(),
        n_retries=pl.col("n_retries").sum(),
        is_recovered=pl.col("is_recovered").any(),
        **_of_steps(pl.col("state") == "ended"),
        **_lasts(**{f"last_step_{name}": name for name in _ENDS}, is_step_era_a="is_era_a"),
    )


def _with_calls(steps: pl.DataFrame, tools: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Steps with ``calls``, true where a step has tool calls and null elsewhere."""
    return left_joined(steps, tools.select(*key, calls=pl.lit(value=True)).unique(), on=key)


def _of_steps(is_counted: pl.Expr) -> dict[str, pl.Expr]:
    """Totals and last values that steps of events and of messages have in common.

    ``is_counted`` steps may have an unknown finish.
    """
    unknown = pl.col("finish").is_in(["unknown", "error"]) & is_counted
    return {
        "n_steps": pl.len().cast(pl.Int64),
        "n_text_chars": pl.col("n_text_chars").sum(),
        # Some providers finish an answer with "stop" although it asks for a call.
        "n_idle_answers": ((pl.col("finish") == "stop") & pl.col("calls").is_null())
        .sum()
        .cast(pl.Int64),
        "n_final_chars": pl.col("n_text_chars").last(),
        "gives_up": pl.col("says").last().eq_missing("gives_up"),
        "is_question": pl.col("says").last().eq_missing("asks"),
        "is_blocked": pl.col("is_blocked").any(),
        "n_unknown_finishes": unknown.sum().cast(pl.Int64),
        **_lasts(last_state="state", last_finish="finish"),
        **{name: total(name) for name in SUMS},
    }


def _with_outcomes(frame: pl.DataFrame) -> pl.DataFrame:
    """Add an outcome where no end is recorded: by the last step in era A, else by later work."""
    is_end = pl.col("last_finish").is_in(["stop", "length", "unknown", "error"])
    is_over = (pl.col("last_state") == "ended") & (is_end | is_content_filter("last_finish"))
    of_last_step = {"failed": pl.col("last_state") == "failed", "succeeded": is_over}
    by_last_step = pl.when("is_era_a").then(first_that_holds(of_last_step))
    is_from_step = pl.col("outcome").is_null() & by_last_step.is_not_null()
    outcome = pl.coalesce(
        "outcome",
        by_last_step,
        # Only the last execution of a session can still end; an earlier one has crashed.
        pl.when("is_last").then(pl.lit("open")).otherwise(pl.lit("crashed")),
    )
    return frame.with_columns(
        outcome=outcome,
        is_end_from_step=is_from_step,
        **{
            name: pl.coalesce(name, pl.when(is_from_step).then(pl.col(f"last_step_{name}")))
            for name in _ENDS
        },
    )


def _with_turns(frame: pl.DataFrame) -> pl.DataFrame:
    """Add ``turn_no``: an execution after a crash or shutdown continues the turn."""
    unclosed = (pl.col("outcome") == "crashed") | (
        (pl.col("outcome") == "interrupted")
        & (pl.col("reason") == "shutdown").fill_null(value=False)
    )
    same = pl.col("sid") == pl.col("sid").shift(1)
    continues = (unclosed.shift(1) & same).fill_null(value=False)
    return (
        frame.with_columns(is_continuation=continues)
        .with_columns(turn_no=(~pl.col("is_continuation")).cast(pl.Int64).cum_sum().over("sid"))
        .with_columns(is_last_of_turn=pl.struct("sid", "turn_no").is_last_distinct())
    )


def fold_sessions(
    events: pl.DataFrame, log: Log, executions: pl.DataFrame, inputs: pl.DataFrame
) -> pl.DataFrame:
    """One row per session: its first and last event, its description and waiting inputs."""
    key = ["sid"]
    frame = events.group_by(key, maintain_order=True).agg(
        **_firsts(*SESSION_KEY, first_seq="seq", created_ms="at_ms"),
        **_lasts(last_seq="seq", last_type="type", last_ms="at_ms"),
        n_events=pl.len().cast(pl.Int64),
        newest_ms=pl.col("at_ms").max(),
        is_era_a=pl.col("is_era_a").any(),
    )
    rows = rows_of(events, log, "session")
    words = rows.group_by(key, maintain_order=True).agg(
        pl.col(name).drop_nulls().last()
        for name in ("title", "directory", "project_id", "parent_id", "program_version", "agent")
    )
    spent = rows.filter(pl.col("kind").is_in(list(SPENT_OUTSIDE_STEPS)))
    usage = spent.group_by(key).agg(extra_cost_usd=total("cost_usd"))
    ran = executions.group_by(key, maintain_order=True).agg(
        n_executions=pl.len().cast(pl.Int64),
        n_turns=pl.col("turn_no").max(),
        last_exec_no=pl.col("exec_no").last(),
        n_steps=pl.col("n_steps").sum(),
        n_retries=pl.col("n_retries").sum(),
        step_cost_usd=total("cost_usd"),
        model=pl.col("model").drop_nulls().last(),
        provider=pl.col("provider").drop_nulls().last(),
        last_agent=pl.col("agent").drop_nulls().last(),
    )
    waiting = inputs.group_by(key).agg(**_N_INPUTS)
    counts = ("n_executions", "n_turns", "n_steps", "n_retries", "n_inputs", "n_pending_inputs")
    return left_joined(frame, words, usage, ran, waiting, on=key).with_columns(
        pl.col(counts).fill_null(0),
        cost_usd=pl.when(
            pl.col("step_cost_usd").is_not_null() | pl.col("extra_cost_usd").is_not_null()
        ).then(pl.col("step_cost_usd").fill_null(0) + pl.col("extra_cost_usd").fill_null(0)),
        agent=pl.coalesce("last_agent", "agent"),
    )


def fold(log: Log, order: Ordered) -> Folded:
    """Fold a log and its `ordered` events; order and repetition do not change the result."""
    events = order.events
    steps = fold_steps(events, log)
    tools = fold_tools(events, log, steps)
    inputs = fold_inputs(events, log)
    executions = fold_executions(events, log, steps, tools)
    sessions = fold_sessions(events, log, executions, inputs)
    return Folded(executions, steps, tools, inputs, sessions)


_REJECTED = r"^The user (?:rejected permission[^:]*$|dismissed this question)"
"""The error of a tool that was not allowed, by a person or for lack of one. V1 ends the turn."""
_FORBIDDEN = (
    r"^The user (?:has (?:specified a rule which prevents|specifically restricted access)"
    r"|rejected permission.*feedback:)"
)
"""The error of a tool that a rule, or a person with feedback, refused. The turn goes on."""
_QUESTION_TOOLS = ("question", "plan_exit", "plan_enter")
"""Tools of V1 that return when a person has answered."""
_ABORTED = "MessageAbortedError"
_MESSAGE = ["source", "message_id"]
_TURN = [*SESSION_KEY, "exec_no"]
_NEEDS_EVENTS = (
    *("is_recovered", "is_continuation", "is_head_truncated", "is_claimed"),
    *("has_others_running", "is_resumed"),
)
"""Columns of an execution that need events; messages never show them."""


def fold_messages(messages: pl.DataFrame, parts: pl.DataFrame) -> Folded:
    """Fold messages into turns, steps, tool calls and inputs.

    Parameters
    ----------
    messages, parts : polars.DataFrame
        `MESSAGES` and `PARTS`, in any order.
    """
    # The last version of a message counts, because it is the most complete.
    written = ("completed_ms", "finish", "error_type", "written_ms")
    ordered = (
        messages.sort("session_id", "message_id", *written, nulls_last=False)
        .unique(_MESSAGE, keep="last", maintain_order=True)
        .sort(*SESSION_KEY, "created_ms", "message_id")
        .with_columns(prompt=pl.when(pl.col("role") == "user").then("message_id"))
    )
    placed = ordered.with_columns(
        prompt=pl.coalesce("parent_id", pl.col("prompt").forward_fill().over(SESSION_KEY))
    )
    # The last version of a part counts.
    own = parts.sort("part_id", "end_ms", "status", "written_ms", nulls_last=False).unique(
        ["source", "part_id"], keep="last", maintain_order=True
    )
    said = own.filter(pl.col("part_type") == "text").group_by(_MESSAGE)
    prompts = said.agg(prompt_says=pl.col("says").first()).rename({"message_id": "prompt"})
    # A person may also compact, between two tasks. Old releases do not record who did.
    compacted = own.filter(pl.col("part_type") == "compaction", pl.col("is_auto").ne_missing(False))
    compactions = compacted.group_by("source", prompt="message_id").agg(
        is_compaction=pl.lit(value=True), is_automatic=pl.col("is_auto").any()
    )
    placed = left_joined(placed, prompts, compactions, on=["source", "prompt"])
    is_by_itself = pl.any_horizontal(
        pl.col("is_automatic").eq_missing(True), pl.col("prompt_says").eq_missing("goes_on")
    )
    # A full context may be compacted before a prompt is answered; both belong to its turn.
    asked = ((pl.col("role") == "user") & ~is_by_itself).cum_sum().over(SESSION_KEY)
    placed = placed.with_columns(is_by_itself=is_by_itself, asked=asked).with_columns(
        pl.col("asked").min().over(*SESSION_KEY, "prompt"),
        prompted_ms=pl.col("created_ms").min().over(*SESSION_KEY, "prompt"),
    )
    assistants = placed.filter(pl.col("role") == "assistant").with_columns(
        pl.col("prompt").fill_null("")
    )
    # Executions are numbered from 1 in the order in which they were first answered.
    first_place = pl.col("place").min().over(*SESSION_KEY, "prompt")
    assistants = assistants.with_columns(
        place=pl.int_range(pl.len(), dtype=pl.Int64).over(SESSION_KEY)
    ).with_columns(exec_no=first_place.rank("dense").over(SESSION_KEY).cast(pl.Int64))
    tools = _tools(own, assistants)
    steps = _steps(assistants, own, tools)
    # An answer replies to all prompts before it and names the last of them. An aborted answer
    # drops the prompts that were waiting for its end.
    is_answer, is_aborted = pl.col("role") == "assistant", pl.col("error_type") == _ABORTED
    heard_ms = pl.max_horizontal("created_ms", pl.when(is_aborted).then("completed_ms"))
    answered_ms = heard_ms.filter(is_answer).max().over(SESSION_KEY)
    parents = assistants.select(*SESSION_KEY, message_id="prompt", has_answer=pl.lit(value=True))
    users = (
        placed.with_columns(is_late=pl.col("created_ms") > answered_ms.fill_null(-1))
        .filter(pl.col("role") == "user")
        .join(parents.unique(), on=[*SESSION_KEY, "message_id"], how="left", maintain_order="left")
        .with_columns(is_pending=pl.col("is_late") & pl.col("has_answer").is_null())
    )
    executions = _with_unanswered(_executions(steps, tools), users.filter("is_pending"))
    inputs = users.select(
        *(*SESSION_KEY, "is_pending"),
        input_id="message_id",
        input_kind=pl.lit("user"),
        delivery=pl.lit(None, pl.String),
        admitted_ms="created_ms",
        promoted_ms=pl.lit(None, pl.Int64),
    )
    return Folded(executions, steps, tools, inputs, _sessions(placed, executions, inputs))


def _steps(assistants: pl.DataFrame, parts: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """One step per assistant message, with the columns of `fold_steps`."""
    of_texts = (
        parts.filter(pl.col("part_type") == "text")
        .group_by(_MESSAGE)
        .agg(n_part_chars=pl.col("n_chars").sum(), says=pl.col("says").last())
    )
    of_tools = tools.group_by(_MESSAGE).agg(
        tool_ms=pl.max_horizontal("ended_ms", "called_ms").max(),
        is_rejected=pl.col("error_message").str.contains(_REJECTED).any(),
        # A structured answer is a call that ends its turn.
        is_shaped=((pl.col("name") == "StructuredOutput") & (pl.col("state") == "completed")).any(),
    )
    has_error = pl.col("error_type").is_not_null()
    is_by_model = pl.col("prompt_says").ne_missing("ran")
    has_end = pl.col("completed_ms").is_not_null() & (pl.col("finish").is_not_null() | ~is_by_model)
    return (
        left_joined(assistants, of_texts, of_tools, on=_MESSAGE)
        .with_columns(
            state=first_that_holds({"failed": has_error, "ended": has_end}).fill_null("open"),
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
    """One row per tool call, with the columns of `fold_tools`."""
    message = pl.col("error_message")
    stopped_by = {
        "permission.rejected": message.str.contains(f"{_REJECTED}|{_FORBIDDEN}"),
        "tool.input.invalid": message.str.contains(r"^The \S+ tool was called with invalid arg"),
        "tool.timeout": message.str.contains("(?:^|: )Request timed out$"),
        "aborted": message.str.contains("(?i)abort|interrupt|^task cancelled$"),
    }
    return (
        parts.filter(pl.col("part_type") == "tool")
        .drop("session_id")
        .join(
            assistants.select(*_MESSAGE, "session_id", "exec_no", "era"), on=_MESSAGE, how="inner"
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
            # A part has no type of error; its text shows who stopped the tool.
            error_type=pl.when(pl.col("status") == "error").then(
                first_that_holds(stopped_by).fill_null("tool.execution")
            ),
            error_status=pl.lit(None, pl.Int64),
            start_seq=pl.lit(None, pl.Int64),
        )
        .unique([*SESSION_KEY, "message_id", "call_id"], keep="last", maintain_order=True)
        .sort(*SESSION_KEY, "message_id", "call_id")
    )


def _executions(steps: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """One execution per prompt, with the columns of `fold_executions` except ``turn_no``."""
    last = (
        *(*ERROR, *MODEL, "era", "retry_at_ms", "retry_attempt", "retry_error_type"),
        *("is_retry_pending", "is_rejected"),
    )
    by_turn = _with_calls(steps, tools, _MESSAGE).group_by(_TURN, maintain_order=True)
    of_steps = by_turn.agg(
        pl.col(last).last(),
        pl.col("asked", "prompted_ms").first(),
        is_shaped=pl.col("is_shaped").last().fill_null(value=False),
        end_event_id=pl.col("message_id").last(),
        is_correction=pl.col("prompt_says").first().eq_missing("corrects"),
        is_by_person=pl.col("prompt_says").first().eq_missing("ran"),
        is_by_itself=pl.col("is_by_itself").any(),
        n_compactions=pl.col("is_compaction").any().cast(pl.Int64),
        last_completed_ms=pl.col("completed_ms").last(),
        started_ms=pl.col("started_ms").min(),
        last_active_ms=pl.col("last_ms").max(),
        n_content_tools=pl.col("n_content_tools").sum(),
        **_of_steps(pl.lit(value=True)),
    )
    is_asking = (pl.col("state") == "running") & pl.col("name").is_in(list(_QUESTION_TOOLS))
    of_tools = tools.group_by(_TURN).agg(
        **_N_TOOLS,
        n_pending_asks=is_asking.sum().cast(pl.Int64),
        is_stopped=pl.col("is_aborted").any(),
    )
    joined = left_joined(of_steps, of_tools, on=_TURN).sort(_TURN)
    done = pl.col("last_completed_ms").is_not_null()
    called_tools = done & (pl.col("last_finish") == "tool-calls") & ~pl.col("is_shaped")
    # The permission to continue a loop of calls is asked outside of any call.
    is_refused = pl.col("error_message").str.contains(_REJECTED)
    is_rejected = ((called_tools & pl.col("is_rejected")) | is_refused).fill_null(value=False)
    # A command that a person ran and stopped has no error.
    is_stopped = is_rejected | (pl.col("is_by_person") & pl.col("is_stopped"))
    is_stopped |= pl.col("error_type") == _ABORTED
    # A last message that calls tools is no end: nothing answers their results.
    ended = done & ~called_tools.fill_null(value=False)
    outcomes = {
        "interrupted": is_stopped,
        "failed": pl.col("error_type").is_not_null(),
        "succeeded": ended & (pl.col("last_finish").is_not_null() | pl.col("is_by_person")),
        "unknown": ended,
    }
    # It has an end, though, if opencode itself asked the model to go on, or if a prompt arrived
    # while it worked: the next answer replies to both.
    is_joined = pl.col("prompted_ms").shift(-1) < pl.col("last_completed_ms")
    goes_on = pl.col("is_by_itself").shift(-1).over(SESSION_KEY) | is_joined.over(SESSION_KEY)
    outcome = pl.coalesce(first_that_holds(outcomes), pl.when(goes_on).then(pl.lit("succeeded")))
    return joined.with_columns(
        pl.col("n_tools", "n_tools_completed", "n_tools_running", "n_pending_asks").fill_null(0),
        n_steps=pl.when("is_by_person").then(0).otherwise("n_steps"),
        is_last=pl.struct(SESSION_KEY).is_last_distinct(),
    ).with_columns(
        # Only the last execution of a session can still end; an earlier one has crashed.
        outcome=pl.coalesce(
            outcome, pl.when("is_last").then(pl.lit("open")).otherwise(pl.lit("crashed"))
        ),
        ended_ms=pl.when(outcome.is_not_null()).then("last_completed_ms"),
        reason=pl.when(is_stopped).then(pl.lit("user")),
        is_declined=is_rejected,
        has_output=(pl.col("n_text_chars") > 0)
        | (pl.col("n_tools_completed") > 0)
        | (pl.col("n_content_tools").fill_null(0) > 0),
        n_terminals=pl.lit(0, pl.Int64),
        **dict.fromkeys(_NEEDS_EVENTS, pl.lit(value=False)),
        is_end_from_step=pl.lit(value=True),
    )


def _with_unanswered(executions: pl.DataFrame, prompts: pl.DataFrame) -> pl.DataFrame:
    """Executions by turn, and one more for each session whose last prompts have no answer.

    opencode writes the message of an answer before it asks the model. So if a prompt has none,
    its process has died or is just starting. A prompt after open work waits for that work.
    Prompts of opencode itself, to compact or to go on, belong to the turn before them.
    """
    unanswered = prompts.group_by(SESSION_KEY, maintain_order=True).agg(
        pl.col(*MODEL, "era").last(),
        started_ms=pl.col("created_ms").min(),
        last_active_ms=pl.col("created_ms").max(),
        is_by_itself=pl.col("is_by_itself").all(),
        asked=pl.col("asked").last(),
    )
    before = executions.group_by(SESSION_KEY).agg(
        n_before=pl.col("exec_no").max(), is_busy=(pl.col("outcome") == "open").any()
    )
    empty = {
        name: pl.lit(False if dtype == pl.Boolean else 0, dtype)
        for name, dtype in executions.schema.items()
        if (name.startswith("n_") and not name.endswith("_tokens"))
        or (dtype == pl.Boolean and name != "is_by_itself")
    }
    added = (
        left_joined(unanswered, before, on=SESSION_KEY)
        .filter(~pl.col("is_busy").fill_null(value=False))
        .with_columns(
            **empty | {"outcome": pl.lit("open")}, exec_no=pl.col("n_before").fill_null(0) + 1
        )
        .drop("n_before", "is_busy")
    )
    both = pl.concat([executions, added], how="diagonal_relaxed").sort(_TURN)
    is_last = is_last_work(pl.col("exec_no"), ~pl.col("is_by_person"), SESSION_KEY)
    is_asked = (pl.col("asked") > pl.col("asked").shift(1).over(SESSION_KEY)).fill_null(value=True)
    turn_no = (~pl.col("is_by_itself") | is_asked).cum_sum().over(SESSION_KEY).cast(pl.Int64)
    return both.with_columns(is_last=is_last, turn_no=turn_no).with_columns(
        is_last_of_turn=pl.struct(*SESSION_KEY, "turn_no").is_last_distinct()
    )


def _sessions(
    messages: pl.DataFrame, executions: pl.DataFrame, inputs: pl.DataFrame
) -> pl.DataFrame:
    """One row per session, with the columns of `fold_sessions`."""
    newest = pl.max_horizontal("created_ms", "completed_ms").max()
    frame = messages.group_by(SESSION_KEY, maintain_order=True).agg(
        created_ms=pl.col("created_ms").min(),
        last_ms=newest,
        newest_ms=newest,
        n_messages=pl.len().cast(pl.Int64),
        era=pl.col("era").last(),
    )
    of_executions = executions.group_by(SESSION_KEY, maintain_order=True).agg(
        pl.col("n_steps", "cost_usd").sum(),
        pl.col(MODEL).last(),
        n_executions=pl.len().cast(pl.Int64),
        n_turns=pl.col("turn_no").max(),
        busy_ms=pl.col("last_active_ms").max(),
    )
    waiting = inputs.group_by(SESSION_KEY).agg(**_N_INPUTS)
    return left_joined(frame, of_executions, waiting, on=SESSION_KEY).with_columns(
        pl.max_horizontal(name, "busy_ms") for name in ("last_ms", "newest_ms")
    )
