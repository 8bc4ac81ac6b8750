"""From records to threads, answers, tool calls and turns, each counted once.

Resumes and forks write old records again, one answer stands on several lines with its
usage on each, and one session may lie in two folders: shared records have one owner.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core.joins import Rows, left_joined
from stateanalytics.core.schema import RESULTS
from stateanalytics.systems import situations
from stateanalytics.systems.base import today_s_of
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.claude_code.frames import LINES, SESSIONS, TURNS, USAGE
from stateanalytics.systems.claude_code.lines import COST_RECORD
from stateanalytics.systems.threads import THREAD, TURN, call_counts
from stateanalytics.systems.transcripts import newer_than

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
SIGNS = (
    *("prompt", "tool_result", "interrupt", "shutdown", "summary", "injected"),
    *("assistant", "api_error", "synthetic", "retry", "progress"),
)
"""Records that show activity. Titles, snapshots and hooks do not."""
BASH_S = today_s_of(__package__)["claude_code.bash"]
BASH_GRACE_S, PATIENCE_S, MCP_PATIENCE_S = 60.0, 600.0, 3600.0
_STOPPED = ("interrupted", "cancelled")
"""Kinds of denials that mean that a call was stopped or skipped, not that it was refused."""
_REFUSED = "The user doesn't want to"
"""The beginning of the result of a call that a person refused or stopped."""
_LOST = r"^\[(?:Tool|Agent) call interrupted: the (?:session|process)\b"
"""The result that a resume writes for a call whose process ended before it had one."""
_QUESTION_TOOLS = ("AskUserQuestion", "ExitPlanMode")
_LAST_WITHOUT_STOP_REASONS = (2, 1, 58)
"""The last version in which streamed answers have no stop reason, even complete ones."""
_ORDER_COLUMNS = (
    *("source", "file", "line_no", "at", "what", "uuid", "parent_uuid", "message_id"),
    *("request_id", "session_id", "agent_id", "is_sidechain", "forked_from", "continued_in"),
)


def with_threads(lines: pl.DataFrame) -> pl.DataFrame:
    """The records in the order of each thread, copies and repetitions marked.

    Parameters
    ----------
    lines : polars.DataFrame
        `frames.LINES`, of any inputs.

    Returns
    -------
    polars.DataFrame
        With ``owner_id`` (the session), ``agent``, ``thread_id``, ``seq``, ``is_copied``,
        ``is_repeated``, and ``answer_id`` of answers.
    """
    file = ("source", "file")
    first_session = pl.col("session_id").drop_nulls().first().over(file)
    is_side = pl.col("is_sidechain").fill_null(value=False)
    # Only these columns are sorted and joined; the others are added at the end, to save time.
    marks = lines.select(_ORDER_COLUMNS).with_row_index("row")
    # A continued session begins with copies of the old one, and only the old one names it.
    continued = (
        marks.drop_nulls("continued_in")
        .select("source", owner_id="continued_in", continues="session_id")
        .unique(["source", "owner_id"], keep="first", maintain_order=True)
    )
    named = (
        marks.join(_of_names(marks), on="file", how="left", maintain_order="left")
        .join(_shuffled(marks), on=file, how="left", maintain_order="left")
        .with_columns(
            owner_id=pl.coalesce(
                "named_id",
                pl.when(pl.col("file_agent").is_null()).then("session_id"),
                first_session,
                "stem",
            ),
            agent=pl.coalesce(
                "file_agent", pl.when(is_side).then(pl.coalesce("agent_id", pl.lit("sidechain")))
            ),
        )
        .join(continued, on=["source", "owner_id"], how="left", maintain_order="left")
        .with_columns(
            forked_from=pl.coalesce("forked_from", "continues"),
            thread_id=pl.when(pl.col("agent").is_null())
            .then("owner_id")
            .otherwise(pl.concat_str("owner_id", pl.lit("/"), "agent")),
            # Within a file the order of writing counts, even if the clock went back.
            by=pl.when(pl.col("is_shuffled").is_null())
            .then(pl.col("at").cum_max().forward_fill().over(file, order_by="line_no"))
            .otherwise("at"),
            request=pl.col("request_id").fill_null(
                pl.col("request_id").max().over("source", "message_id")
            ),
        )
    )
    keyed = named.sort(*THREAD, "by", "file", "line_no", nulls_last=False).with_columns(
        answer_id=pl.when(pl.col("what") == "assistant").then(
            pl.coalesce(
                pl.concat_str("message_id", pl.lit(" "), pl.col("request").fill_null("")),
                "uuid",
                pl.concat_str("file", pl.lit(":"), "line_no"),
            )
        ),
        is_repeated=pl.col("uuid").is_not_null() & ~pl.struct(*THREAD, "uuid").is_first_distinct(),
        seq=pl.int_range(pl.len()).over(THREAD),
    )
    marked = _with_replays(_with_copies(_with_commands(keyed)))
    kept = marked.drop(
        *("request_id", "session_id", "agent_id", "is_sidechain"),
        *("is_replay", "is_shuffled", "continues", "file_agent", "named_id", "stem"),
    )
    return kept.hstack(lines.select(pl.exclude(_ORDER_COLUMNS))[kept["row"]]).drop("row")


def _of_names(rows: pl.DataFrame) -> pl.DataFrame:
    """The ``file_agent`` of each file, ``named_id`` (the session in its path) and ``stem``."""
    name = pl.col("file")
    agent = name.str.extract(r"(?:^|/)agent-([^/]+)\.jsonl$")
    folder = name.str.extract(rf"(?:^|/)({_UUID})/subagents/[^/]+$")
    own = name.str.extract(rf"(?:^|/)({_UUID})\.jsonl$")
    return rows.select(name.unique()).with_columns(
        file_agent=agent,
        named_id=pl.when(agent.is_null()).then(own).otherwise(folder),
        stem=name.str.extract(r"([^/]+?)(?:\.jsonl)?$"),
    )


def _shuffled(rows: pl.DataFrame) -> pl.DataFrame:
    """The files where time falls and a record stands before its parent, as ``is_shuffled``."""
    file = ["source", "file"]
    falls = pl.col("at") < pl.col("at").cum_max().over(file, order_by="line_no")
    odd = rows.join(rows.filter(falls).select(file).unique(), on=file, how="semi")
    first = odd.group_by(*file, parent_uuid="uuid").agg(follows=pl.col("line_no").min())
    behind = odd.join(first.drop_nulls(), on=[*file, "parent_uuid"]).filter(
        pl.col("follows") > pl.col("line_no")
    )
    return behind.select(*file, is_shuffled=pl.lit(value=True)).unique()


def _with_commands(rows: pl.DataFrame) -> pl.DataFrame:
    """Turn a person's commands into prompts if the model answers them, else into hidden text.

    A message of another session is a prompt if it comes between two turns.

    Claude Code writes a caveat before a command that is not meant for the model. A skill that an
    answer called also begins with a command, after the result of that call. An interrupt right
    after a command stopped only the command, unless it is one of a tool.
    """
    what = pl.col("what")
    hidden = ("caveat", "command", "output", "hidden")
    around = (*hidden, "peer", "stop", "turn_end", "hook_stop", *SIGNS)
    is_sign = what.is_in(list(around)) & ~what.is_in(["progress", "summary"])
    sign = pl.when(is_sign & ~pl.col("is_repeated")).then(what)
    shown = pl.when(~sign.is_in(["output", "hidden"])).then(sign)
    before, shown_before = (signs.shift(1).forward_fill().over(THREAD) for signs in (sign, shown))
    last = sign.replace([*hidden, "injected"], None).shift(1).forward_fill().over(THREAD)
    after, shown_after = (signs.shift(-1).backward_fill().over(THREAD) for signs in (sign, shown))
    answers = ("assistant", "api_error", "retry", "interrupt", "stop", "shutdown")
    is_answered = shown_after.is_in(list(answers))
    begins = (
        (what == "command")
        & before.ne_missing("caveat")
        & ~shown_before.is_in(["prompt", "tool_result"]).fill_null(value=False)
        # Old versions wrote no caveat before the output of a local command.
        & (
            after.is_in(["output", "hidden"]) & is_answered
            | (after == "hidden") & shown_after.is_null()
        )
    )
    is_of_command = what.is_in(["stop", "shutdown"]) & (before == "command")
    is_injected = what.is_in([*hidden, "peer"]) | is_of_command
    is_asked = (what == "peer") & (last.fill_null("turn_end") == "turn_end")
    is_prompt = begins | (what == "blocked") | is_asked
    means = {"prompt": is_prompt, "injected": is_injected, "interrupt": what == "stop"}
    return rows.with_columns(what=pl.coalesce(situations.first_that_holds(means), what))


def _with_copies(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_copied``, and the id and begin of the thread that the record was copied from."""
    key = ("source", "key")
    # Copies in a fork keep their old times; only records without an id are the fork's own.
    is_own = pl.col("uuid").is_null() & pl.col("continued_in").is_null()
    begins = pl.coalesce(pl.col("at").filter(is_own).min(), pl.col("at").min())
    keyed = rows.with_columns(key=pl.coalesce("answer_id", "uuid"), begins=begins.over(THREAD))
    several = keyed.filter(pl.col("thread_id").n_unique().over(key) > 1)
    copies = (pl.col("agent").is_not_null(), pl.col("forked_from").is_not_null())
    owners = (
        several.drop_nulls("key")
        .sort(*key, *copies, "begins", "thread_id", nulls_last=True)
        .unique(key, keep="first", maintain_order=True)
        .select(*key, keeper="thread_id", since="begins")
    )
    # A side question repeats the answers of its session under other request ids.
    answers = rows.filter(pl.col("agent").is_null(), pl.col("what") == "assistant")
    in_sessions = answers.select("source", "message_id", in_session=pl.lit(value=True)).unique()
    joined = keyed.join(owners, on=key, how="left", maintain_order="left").join(
        in_sessions, on=["source", "message_id"], how="left", maintain_order="left"
    )
    is_replay = pl.col("agent").is_not_null() & pl.col("in_session").fill_null(value=False)
    is_other = (pl.col("keeper") != pl.col("thread_id")).fill_null(value=False)
    copied = joined.with_columns(
        is_copied=is_other | is_replay,
        copied_from=pl.when(is_other).then("keeper"),
        copied_since=pl.when(is_other).then("since"),
    )
    return copied.drop("key", "begins", "keeper", "since", "in_session")


def _with_replays(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``turn_no``; a turn is a replay if all its answers are of earlier turns or threads."""
    is_prompt = (pl.col("what") == "prompt") & ~pl.col("is_copied") & ~pl.col("is_repeated")
    prompt = pl.struct(*THREAD, "at", is_prompt.alias("is_prompt"))
    is_repeat = is_prompt & pl.col("at").is_not_null() & ~prompt.is_first_distinct()
    number = is_prompt.cum_sum().over(THREAD).cast(pl.Int64)
    numbered = rows.with_columns(pl.col("is_repeated") | is_repeat).with_columns(turn_no=number)
    first = pl.col("turn_no").min().over(*THREAD, "answer_id")
    replays = (
        numbered.filter(~pl.col("is_repeated"))
        .drop_nulls("answer_id")
        .with_columns(is_replay=pl.col("is_copied") | (pl.col("turn_no") > first))
        .group_by(TURN)
        .agg(pl.col("is_replay").all())
    )
    is_replay = pl.col("is_replay").fill_null(value=False) & ~pl.col("is_copied")
    # A prompt that waited while a turn was stopped is written before the interrupt of that turn.
    is_named = (pl.col("what") == "interrupt") & pl.col("message_id").is_not_null()
    of_answer = pl.col("turn_no").min().over(*THREAD, "message_id")
    return (
        numbered.join(replays, on=TURN, how="left", maintain_order="left")
        .with_columns(pl.col("is_repeated") | is_replay)
        .with_columns(turn_no=number)
        .with_columns(turn_no=pl.when(is_named).then(of_answer).otherwise("turn_no"))
    )


def own(rows: Rows) -> Rows:
    """The records that count: neither copied from another session nor repeated."""
    return rows.filter(~pl.col("is_copied"), ~pl.col("is_repeated"))


_SUBAGENT = pl.concat_str("owner_id", pl.lit("/"), "result_agent_id")
"""The thread of the subagent that a record refers to."""
_REPORTED_ENDS = {
    "completed": "completed",
    **dict.fromkeys(("killed", "stopped", "cancelled"), "stopped"),
    "failed": "failed",
}
"""How a subagent ended, by the status in its parent's record. Other statuses mean no end."""


def _reported_ends(rows: pl.DataFrame) -> pl.DataFrame:
    """The subagents that ended, by the last record of their parents about them.

    Returns
    -------
    polars.DataFrame
        The key of the subagent's thread, ``reported_at``, ``reported`` (a value of
        `_REPORTED_ENDS`), and ``n_reported_tokens``: the output tokens of its last answer.
    """
    has_ended = pl.col("result_status").is_in(list(_REPORTED_ENDS))
    ends = own(rows.lazy()).filter(pl.col("result_agent_id").is_not_null(), has_ended)
    return (
        ends.sort("at", "seq", nulls_last=False)
        .group_by("source", thread_id=_SUBAGENT)
        .agg(
            reported_at=pl.col("at").last(),
            reported=pl.col("result_status").last().replace(_REPORTED_ENDS),
            n_reported_tokens=pl.col("n_result_output_tokens").drop_nulls().last(),
        )
        .collect()
    )


def messages_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`frames.MESSAGES`: every answer, with the largest usage of its lines.

    The time is that of the first line, which until 2.1.96 had a placeholder for output tokens.
    If a subagent's last answer has no stop reason, its usage is taken from its parent's record.
    """
    lines = rows.lazy().drop_nulls("answer_id").with_columns(total=pl.sum_horizontal(USAGE))
    answers = (
        own(lines)
        .group_by(*THREAD, "answer_id", maintain_order=True)
        .agg(
            pl.col("turn_no", "message_id", "request", "at", "uuid").first(),
            pl.col("model", "stop_reason", "speed").drop_nulls().last(),
            n_lines=pl.len(),
        )
    )
    # An original that was still being written when it was copied has fewer tokens than the copy.
    order = ("in_session", "total")
    usage = (
        lines.with_columns(in_session=pl.col("agent").is_null())
        .group_by("source", "answer_id")
        .agg(pl.col(*USAGE, "n_cache_1h_tokens").sort_by(order, maintain_order=True).last().clip(0))
    )
    named = pl.coalesce("message_id", "uuid", "answer_id")
    is_cut = pl.col("stop_reason").is_null() & (
        pl.int_range(pl.len()).over(THREAD) == pl.len().over(THREAD) - 1
    )
    kept = (
        answers.join(usage, on=["source", "answer_id"], how="left", maintain_order="left")
        .join(_reported_ends(rows).lazy(), on=THREAD, how="left", maintain_order="left")
        .with_columns(
            message_id=named,
            request_id="request",
            n_output_tokens=pl.when(is_cut)
            .then(pl.max_horizontal("n_output_tokens", "n_reported_tokens"))
            .otherwise("n_output_tokens"),
        )
    )
    return frames.MESSAGES.conform(kept.collect())


def tools_of(rows: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """`frames.TOOLS`: calls with their results, found anywhere in the thread."""
    columns = (
        *("thread_id", "owner_id", "turn_no", "seq", "at", "is_copied", "is_repeated"),
        *("answer_id", "message_id", "result_agent_id", "task_id", "denial", "n_output_tokens"),
    )
    # A process that a signal ends records its costs first and the ends of its calls later.
    place = [pl.max_horizontal("by", "exited_at"), "seq"]
    n_exits = (pl.col("type") == COST_RECORD).cum_sum().over("source", "owner_id", order_by=place)
    facts = own(rows.select(*LINES.key, *columns, n_exits=n_exits))
    answer = (*THREAD, "message_id")
    stopped = rows.filter(what="interrupt").select(answer, is_halted=True).drop_nulls().unique()
    answers = own(rows.filter(what="assistant").sort("seq")).group_by(TURN)
    last_answers = answers.agg(last_id=pl.col("answer_id").last())
    placed = (
        frames.BLOCKS.conform(blocks)
        .drop_nulls("tool_id")
        .join(facts, on=LINES.key, maintain_order="left")
        .sort("source", "thread_id", "seq", "place")
    )
    call = (*THREAD, "tool_id")
    calls, results = (
        placed.filter(rule).unique(call, keep="first", maintain_order=True)
        for rule in (
            pl.col("type").is_in(["tool_use", "server_tool_use"]),
            pl.col("type").str.ends_with("tool_result"),
        )
    )
    outcome = ("is_error", "is_background", "error_message", "denial", *RESULTS.dtypes)
    ends = _with_notes(results, rows).select(
        *(*call, *outcome), last_exit="n_exits", ended_at="at", has_result=pl.lit(value=True)
    )
    joined = (
        calls.drop(outcome)
        .join(ends, on=call, how="left", maintain_order="left")
        .join(_children(rows, results), on=["source", "tool_id"], how="left", maintain_order="left")
        .join(_replaced(rows), on=(*THREAD, "answer_id"), how="left", maintain_order="left")
        .join(stopped, on=answer, how="left", maintain_order="left")
        .join(last_answers, on=TURN, how="left", maintain_order="left")
    )
    # Esc during a call is recorded as a refusal, and as an interrupt that names the answer.
    is_halted = pl.col("is_halted") & pl.col("error_message").str.starts_with(_REFUSED)
    is_cut = (is_halted | (pl.col("last_exit") > pl.col("n_exits"))).fill_null(value=False)
    is_stopped = pl.col("denial").is_in(list(_STOPPED)) | is_cut
    by_words = situations.cause_in(pl.col("error_message"), is_denied=~is_stopped)
    cause = pl.when(is_stopped).then(pl.lit("interrupted")).otherwise(by_words)
    is_bash = pl.col("name") == "Bash"
    timeout_s = pl.when(is_bash).then(pl.col("timeout_s").clip(0, 1e7))
    has_result = pl.col("has_result").fill_null(value=False)
    is_lost = pl.col("error_message").str.contains(_LOST).fill_null(value=False)
    is_error = pl.when(has_result).then(pl.col("is_error").fill_null(value=False))
    return frames.TOOLS.conform(
        joined.with_columns(
            entity_id=pl.concat_str("thread_id", pl.lit(":"), "tool_id"),
            n_answer_tokens="n_output_tokens",
            started_at="at",
            ended_at=pl.when(has_result, ~is_lost).then(pl.coalesce("ended_at", "at")),
            timeout_s=timeout_s,
            is_error=is_error,
            # A compaction may have removed the result of a call.
            is_replaced=(
                pl.col("is_replaced") | (~has_result & (pl.col("answer_id") != pl.col("last_id")))
            ).fill_null(value=False),
            cause=pl.when(pl.col("denial") == "timeout").then("denial").when(is_error).then(cause),
            patience_s=pl.when(is_bash)
            .then(timeout_s.fill_null(BASH_S) + BASH_GRACE_S)
            .when(pl.col("name").str.starts_with("mcp__"))
            .then(pl.lit(MCP_PATIENCE_S))
            .otherwise(pl.lit(PATIENCE_S)),
        )
    )


def _with_notes(results: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Results, with the ends of background commands from the notes about them."""
    # The status "stopped" is ignored: a resume writes it for every command without an end.
    status, ends = pl.col("result_status"), ("completed", "failed", "killed")
    is_limit = pl.col("error_message").str.ends_with("time limit")
    stopped = pl.when(is_limit).then(pl.lit("timeout")).when(status == "killed")
    failed = status != "completed"
    # A call that kills a background command has no note, so it is added as one.
    begun = results.filter("is_background")
    calls = begun.select("source", "task_id", result_tool_id="tool_id")
    stops = results.filter(~pl.col("is_background")).join(calls, on=["source", "task_id"])
    stops = stops.with_columns(result_status=pl.lit("killed"))
    notes = pl.concat([own(rows.filter(status.is_in(ends))), stops], how="diagonal").select(
        "source", "at", tool_id="result_tool_id", is_error=failed,
        error_message=pl.when(failed).then("error_message"),
        is_background=pl.lit(value=False), denial=stopped.then(pl.lit("cancelled")),
    )  # fmt: skip
    call = ["source", "tool_id"]
    ended = notes.join(begun, on=call, how="semi").sort("at")
    return results.update(ended.unique(call, keep="first"), on=call, include_nulls=True)


def _replaced(rows: pl.DataFrame) -> pl.DataFrame:
    """Answers that a later one replaced: after a retry, or because a person went back.

    Parallel calls and their results branch, too: only two answers to the same record count.
    """
    answers = own(rows.lazy()).drop_nulls("answer_id").group_by(*THREAD, "answer_id")
    first_lines = answers.agg(pl.col("parent_uuid", "seq").sort_by("seq").first())
    last = pl.col("seq").max().over(*THREAD, "parent_uuid")
    older = first_lines.drop_nulls("parent_uuid").filter(pl.col("seq") < last)
    return older.select(*THREAD, "answer_id", is_replaced=pl.lit(value=True)).collect()


def _children(rows: pl.DataFrame, results: pl.DataFrame) -> pl.DataFrame:
    """The subagent that a call started, by its result, its progress or the subagent's note."""
    columns = ("source", "tool_id", "owner_id", "result_agent_id")
    named = rows.lazy().with_columns(tool_id="result_tool_id")
    both = pl.concat(frame.select(columns).drop_nulls() for frame in (results.lazy(), named))
    first = both.collect().unique(["source", "tool_id"], keep="first", maintain_order=True)
    return first.select("source", "tool_id", child_thread_id=_SUBAGENT)


def sessions_of(
    rows: pl.DataFrame,
    turns: pl.DataFrame,
    tools: pl.DataFrame,
    messages: pl.DataFrame,
    recorded: pl.DataFrame,
) -> pl.DataFrame:
    """`frames.SESSIONS`: threads with the sums over their turns.

    Tokens are from ``messages``, side requests included; ``recorded`` has the costs.
    """
    is_own = ~pl.col("is_copied") & ~pl.col("is_repeated")
    at = pl.col("at").filter(is_own & pl.col("what").is_in(list(SIGNS)))
    # Records that two forks share are older than both if they come from a deleted session.
    origin = pl.col("copied_from").filter(pl.col("at") >= pl.col("copied_since"))
    sessions = rows.group_by(THREAD, maintain_order=True).agg(
        pl.col("file").first(),
        pl.col("title", "directory", "program_version").drop_nulls().last(),
        pl.coalesce(pl.col("forked_from").drop_nulls().first(), origin.last()),
        session_id=pl.col("owner_id").first(),
        agent_id=pl.col("agent").first(),
        first_at=at.min(),
        last_activity_at=at.max(),
        n_files=pl.col("file").n_unique(),
        n_copied=pl.col("is_copied").sum(),
        n_repeated=pl.col("is_repeated").sum(),
        n_compactions=(pl.col("what") == "compaction").sum(),
        naive_output_tokens=pl.col("n_output_tokens").filter(pl.col("what") == "assistant").sum(),
    )
    counts = [name for name in SESSIONS.dtypes if name in TURNS.dtypes and name.startswith("n_")]
    sums = [name for name in counts if name not in USAGE]
    of_turns = turns.group_by(THREAD).agg(pl.col(sums).sum(), n_turns=pl.len())
    of_messages = messages.group_by(THREAD).agg(pl.col(USAGE).sum())
    parents = (
        tools.drop_nulls("child_thread_id")
        .select("source", parent_tool_id="tool_id", caller="thread_id", thread_id="child_thread_id")
        .unique(THREAD, keep="first", maintain_order=True)
    )
    sessions = left_joined(sessions, of_turns, of_messages, recorded, parents, on=THREAD)
    is_agent = pl.when(pl.col("agent_id").is_not_null())
    parent = is_agent.then(pl.coalesce("caller", "session_id")).otherwise("forked_from")
    known = pl.col("n_turns", *counts).fill_null(0)
    return SESSIONS.conform(sessions.with_columns(known, parent_thread_id=parent))


OPEN = ("question", "open_tool", "retrying", "awaiting_model")
"""Situations in which a turn is still open."""
_GOOD_STOPS = ("end_turn", "stop_sequence")
_CONTINUING_STOPS = ("tool_use", "pause_turn")


def turns_of(rows: pl.DataFrame, messages: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """`frames.TURNS`, each with its situation: the first rule that its records match.

    Parameters
    ----------
    rows : polars.DataFrame
        From `with_threads`.
    messages, tools : polars.DataFrame
        `frames.MESSAGES` and `frames.TOOLS`.
    """
    of_messages = messages.group_by(TURN).agg(
        pl.col(USAGE).sum(), n_answers=pl.len(), model=pl.col("model").drop_nulls().last()
    )
    turns = left_joined(_record_facts(rows), of_messages, _call_counts(tools, rows), on=TURN)
    # The records of a subagent do not say how its own subagents ended: these have a result.
    nested = tools.filter(~pl.col("is_error"), pl.col("thread_id").str.contains("/"))
    by_child = nested.group_by("source", thread_id="child_thread_id")
    returned = by_child.agg(returned_at=pl.col("ended_at").max())
    turns = _with_exits(left_joined(turns, _reported_ends(rows), returned, on=THREAD), rows)
    counts = ("n_answers", *USAGE, "n_tool_calls", "n_tool_errors", "n_open_tools", "n_tools_good")
    known = turns.with_columns(
        pl.col(counts).fill_null(0),
        is_last=pl.col("turn_no") == pl.col("turn_no").max().over(THREAD),
    )
    has_kept = (pl.col("n_text_chars") > 0) | (pl.col("n_tools_good") > 0)
    known = known.with_columns(has_output=has_kept | pl.col("n_final_chars").is_null())
    named = situations.with_cause(known, "error_kind").with_columns(
        situation=situations.first_that_holds(_situation_rules())
        .replace(["stopped", "left"], "interrupted")
        .replace({"reported_failed": "failed", "exited": "shut_down"})
    )
    is_open = pl.col("situation").is_in(list(OPEN))
    is_left = pl.col("interrupt_seq") <= pl.col("answer_seq")
    ends: dict[str, str | pl.Expr] = {
        "ended_by_model": "model_end_at",
        "interrupted": pl.when(is_left).then("exit_at").otherwise("interrupt_at"),
        "shut_down": pl.coalesce("shutdown_at", "gone_at"),
        "max_turns": "max_turns_at",
        "stopped_by_rule": "rule_end_at",
        "ended": "turn_end_at",
        "continued": "continued_at",
        "aborted": "last_activity_at",
        "superseded": "last_activity_at",
    }
    ended_at = pl.coalesce(
        *(pl.when(pl.col("situation") == name).then(column) for name, column in ends.items()),
        pl.when(~is_open).then(
            pl.coalesce(pl.max_horizontal("answer_at", "tool_end_at"), "last_activity_at")
        ),
    )
    is_waiting = pl.col("situation") == "retrying"
    has_error = is_waiting | (pl.col("situation") == "failed")
    # A refusal or output limit recorded as an error has the right text but a misleading tag.
    is_worded = pl.col("situation").is_in(["refused", "truncated"])
    has_words = has_error | (is_worded & (pl.col("last_answer") == "api_error"))
    only_if = {
        **dict.fromkeys(("error_type", "error_status", "cause"), has_error),
        "error_message": has_words,
        **dict.fromkeys(
            ("open_tool", "open_since", "open_timeout_s", "patience_s"),
            pl.col("situation").is_in(["open_tool", "question"]),
        ),
        "retry_at": is_waiting,
    }
    return TURNS.conform(
        named.with_columns(
            *(pl.when(rule).then(name).alias(name) for name, rule in only_if.items()),
            entity_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
            ended_at=ended_at,
            last_sign_at=pl.max_horizontal("last_activity_at", "child_at"),
            is_recovered=(pl.col("n_retries") > 0) & (pl.col("last_answer") == "assistant"),
        ).sort(TURN)
    )


def _record_facts(rows: pl.DataFrame) -> pl.DataFrame:
    """Facts of each turn from its own records; work before the first prompt is turn 0."""
    what, seq, at = pl.col("what"), pl.col("seq"), pl.col("at")
    is_answer = what.is_in(["assistant", "api_error"])
    # Records that a resume adds to a turn that was cut off are no activity of that turn.
    sign = what.is_in(list({*SIGNS} - {"synthetic"})) & pl.col("denial").ne_missing("interrupted")
    places = {
        "answer": is_answer,
        "input": what.is_in(["prompt", "tool_result"]),
        "tool_end": pl.col("ends_turn").eq_missing("tool"),
        "exit": what == "exit",
        "model_end": what == "model_end",
        "continued": pl.col("continued_in").is_not_null(),
        "rule_end": pl.col("ends_turn").eq_missing("denial") | (what == "hook_stop"),
        **{
            name: what == name
            for name in ("interrupt", "shutdown", "max_turns", "turn_end", "retry", "refusal")
        },
    }
    # Any line of an answer may have its stop reason.
    name = pl.coalesce("answer_id", "uuid", what)
    is_last_answer = is_answer & (name == name.filter(is_answer).last())
    error = pl.col("error_type", "error_status", "error_message", "error_kind")
    is_idle = (what == "assistant") & pl.col("stop_reason").is_in(list(_GOOD_STOPS))
    # When a background task ends, its note wakes the session for one more answer.
    is_note = (pl.col("subtype") == "enqueue") & pl.col("result_agent_id").is_not_null()
    waited_s = (pl.col("retry_at") - at).dt.total_microseconds() / 1e6
    newer = newer_than(rows["program_version"], _LAST_WITHOUT_STOP_REASONS)
    is_old = pl.col("program_version").str.contains(r"\d") & ~pl.col("program_version").is_in(newer)
    known = rows.lazy().with_columns(pl.col("permission_mode").forward_fill().over(THREAD))
    turns = (
        own(known)
        .group_by(TURN, maintain_order=True)
        .agg(
            error.filter(what.is_in(["api_error", "retry"])).last(),
            pl.col("stop_reason").filter(is_last_answer).drop_nulls().last(),
            pl.col("n_text_chars").filter(what == "assistant").sum(),
            pl.col("retry_at").filter(what == "retry").last(),
            pl.col("permission_mode").last(),
            pl.col("owner_id").first(),
            started_at=at.filter(sign).min(),
            last_activity_at=at.filter(sign).max(),
            injected_at=at.filter(what == "injected").max(),
            # The kinds that are excluded are also written by a resume, or after the process ended.
            work_at=at.filter(sign & ~what.is_in(["tool_result", "injected", "summary"])).max(),
            last_answer=what.filter(is_answer).last(),
            n_prompts=(what == "prompt").sum(),
            n_retries=(what == "retry").sum(),
            retry_s=waited_s.filter(what == "retry").sum(),
            # A compaction that no answer follows happened between two tasks.
            n_compactions=((what == "compaction") & is_answer.reverse().cum_max().reverse()).sum(),
            n_idle_answers=(name.filter(is_idle).n_unique().cast(pl.Int64) - is_note.sum()).clip(0),
            n_final_chars=pl.col("n_text_chars").filter(is_last_answer).sum(),
            is_over_by_tool=pl.col("ends_turn").eq_missing("tool").any(),
            gives_up=pl.col("says").eq_missing("gives_up").filter(is_last_answer).any(),
            is_question=pl.col("says").eq_missing("asks").filter(is_last_answer).any(),
            is_correction=pl.col("says").eq_missing("corrects").filter(what == "prompt").first(),
            is_old=is_old.filter(is_last_answer).any(),
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
    # There is no last answer after a tool that ends the turn, or if an old version lost it.
    is_unstopped = pl.col("is_old") & pl.col("stop_reason").is_null()
    has_none = pl.col("is_over_by_tool") | (is_unstopped & (pl.col("n_final_chars") == 0))
    n_final_chars = pl.when(~has_none).then("n_final_chars")
    # Records before the first prompt are mostly names and settings, no turn.
    is_turn = (pl.col("turn_no") > 0) | (pl.col("answer_seq") >= 0)
    return turns.filter(is_turn).with_columns(n_final_chars, is_unstopped=is_unstopped).collect()


def _with_exits(turns: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Turns with ``gone_at``, when their process ended: it then wrote a record of its costs."""
    session = ["source", "owner_id"]
    # Each process may have its own cost limit, recorded after the prompt.
    limit = pl.col("budget_usd").forward_fill().over(TURN)
    is_cost = pl.col("type") == COST_RECORD
    ends = (
        own(rows.lazy())
        .filter(pl.col("agent").is_null(), is_cost | pl.col("budget_usd").is_not_null())
        .with_columns(has_spent=pl.col("cost_usd") >= limit)
        .filter(is_cost)
        .select(*session, "has_spent", gone_at=pl.max_horizontal("exited_at", "by"))
        .drop_nulls("gone_at")
    )
    # Only the last turn can be continued by an injected message instead of a prompt.
    next_at = pl.col("started_at").shift(-1).over(THREAD, order_by="turn_no")
    asked_at = pl.when(next_at.is_null()).then("injected_at")
    by_time = turns.lazy().with_columns(pl.max_horizontal("work_at", asked_at), next_at=next_at)
    ended = by_time.sort("work_at").join_asof(
        ends.sort("gone_at"), left_on="work_at", right_on="gone_at", by=session,
        strategy="forward", check_sortedness=False, coalesce=False,
    )  # fmt: skip
    is_of_next = pl.col("gone_at") > pl.col("next_at")
    return ended.with_columns(gone_at=pl.when(is_of_next).then(None).otherwise("gone_at")).collect()


def _call_counts(tools: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """The tool calls of each turn by how they ended, and the first open call."""
    signs = rows.lazy().filter(pl.col("what").is_in(list(SIGNS)))
    by_child = signs.group_by("source", child_thread_id="thread_id")
    last_signs = by_child.agg(child_at=pl.col("at").max()).collect()
    is_open = pl.col("is_error").is_null() & ~pl.col("is_replaced")
    calls = left_joined(tools, last_signs, on=["source", "child_thread_id"])
    return calls.group_by(TURN).agg(
        **call_counts(is_open),
        child_at=pl.col("child_at").filter(is_open).max(),
        n_tools_good=(~pl.col("is_error")).sum(),
        n_lost_tools=(pl.col("is_error") & pl.col("ended_at").is_null()).sum(),
        n_questions=(is_open & pl.col("name").is_in(list(_QUESTION_TOOLS))).sum(),
    )


def _is_reported(end: str) -> pl.Expr:
    """Whether the parent's record reports this end of the subagent, and no activity follows."""
    is_after = pl.col("reported_at") >= pl.col("last_activity_at")
    return pl.col("is_last") & (is_after & (pl.col("reported") == end)).fill_null(value=False)


def _situation_rules() -> dict[str, pl.Expr]:
    """The situations of a turn and the expressions that mean them, in order of precedence."""
    answer, stop, input_ = pl.col("answer_seq"), pl.col("stop_reason"), pl.col("input_seq")
    is_error = pl.col("last_answer") == "api_error"
    is_closed = pl.col("n_open_tools") == 0
    is_after = answer > pl.max_horizontal("input_seq", "retry_seq")
    is_end = is_after & is_closed
    is_confirmed = stop.is_in(list(_GOOD_STOPS)) | (pl.col("turn_end_seq") > answer)
    # The agent that summarises a conversation for a compaction writes one answer and no end.
    is_compaction = pl.col("thread_id").str.contains(r"/acompact-[^/]+$")
    is_ended_by_tool = is_closed & (pl.col("tool_end_seq") > answer)
    has_returned = pl.col("returned_at") >= pl.col("last_activity_at")
    is_over = pl.col("is_last") & is_end & (is_compaction | has_returned)
    is_known_over = _is_reported("completed") | is_over | is_ended_by_tool
    is_unanswered = is_closed & (input_ > answer)
    had_later, has_exited = ~pl.col("is_last"), pl.col("gone_at").is_not_null()
    has_words, is_unstopped = is_end & (pl.col("n_final_chars") > 0), pl.col("is_unstopped")
    return {
        "ended_by_model": pl.col("model_end_seq") > answer,
        "interrupted": pl.col("interrupt_seq") > answer,
        "shut_down": pl.col("shutdown_seq") > answer,
        # A refusal and an output limit may be recorded as errors, with a misleading tag.
        "refused": situations.is_content_filter("stop_reason")
        | (pl.col("refusal_seq") > input_)
        | (is_error & (pl.col("cause") == "content_filtered")),
        "truncated": (is_end & (stop == "max_tokens"))
        | (is_error & (pl.col("cause") == "truncated_length")),
        "overflowed": is_end & (stop == "model_context_window_exceeded"),
        "failed": is_error,
        "max_turns": pl.col("max_turns_seq") > answer,
        "good": ((is_end & is_confirmed) | is_known_over) & pl.col("has_output"),
        "empty": (is_end & is_confirmed) | is_known_over,
        "stopped_by_rule": is_unanswered & (pl.col("rule_end_seq") > answer),
        "ended": is_unanswered & (answer >= 0) & (pl.col("turn_end_seq") > input_),
        "stopped": _is_reported("stopped"),
        "reported_failed": _is_reported("failed"),
        "unknown_finish": is_end & stop.is_not_null() & ~stop.is_in(list(_CONTINUING_STOPS)),
        "continued": pl.col("continued_seq") > answer,
        "left": (pl.col("exit_seq") > answer) & ~(has_words & is_unstopped).fill_null(value=False),
        "max_budget": has_exited & pl.col("has_spent"),
        "exited": has_exited,
        "good_inferred": (had_later | is_unstopped) & has_words,
        "aborted": had_later & (~is_closed | (is_unanswered & (pl.col("n_lost_tools") > 0))),
        "superseded": had_later,
        "question": pl.col("n_questions") > 0,
        "open_tool": ~is_closed,
        "retrying": pl.col("retry_seq") > pl.max_horizontal("answer_seq", "input_seq"),
        "awaiting_model": pl.lit(value=True),
    }
