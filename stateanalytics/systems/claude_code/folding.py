"""From lines to sessions, turns, answers and tool calls, each counted once.

Resumes and forks write old records again, one answer stands on several lines with its
usage on each, and one session may lie in two folders: what is shared has one owner.
"""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from stateanalytics.systems.claude_code.frames import (
    BLOCKS,
    LINES,
    MESSAGES,
    SESSIONS,
    TOOLS,
    TURNS,
    USAGE,
)
from stateanalytics.systems.threads import THREAD, TURN

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)
SIGNS = (
    *("prompt", "tool_result", "interrupt", "summary", "injected"),
    *("assistant", "api_error", "synthetic", "retry", "progress"),
)
"""Records that are signs of life; titles, snapshots and hooks are none."""
BASH_S, BASH_GRACE_S, PATIENCE_S, MCP_PATIENCE_S = 120.0, 60.0, 600.0, 3600.0
BASH_SETTING = "BASH_DEFAULT_TIMEOUT_MS"
QUESTIONS = ("AskUserQuestion", "ExitPlanMode")
_OF_ORDER = (
    *("source", "file", "line_no", "at", "what", "uuid", "parent_uuid", "message_id"),
    *("request_id", "session_id", "agent_id", "is_sidechain", "forked_from"),
)
_DENIED = (
    r"(?i)doesn't want to (?:proceed|take this)|user (?:rejected|denied|declined)"
    r"|permission.* has been denied|denied by your permission|requested permissions? to"
    r"|requires approval|was blocked(?: by|\. For security)"
    r"|blocked by hook|hook.{0,80} denied"
)
# What a command wrote below its exit code may be of anything: another program's time limit.
_EXIT = r"(?i)^(?:Error: )?exit code:? [1-9]"
_OWN_LIMIT = r"(?im)^command timed out after"
_CAUSES = {
    "interrupted": r"(?i)\[Request interrupted|interrupted by user|^Interrupted"
    r"|^(?:<tool_use_error>)?(?:Cancelled: parallel|Sibling) tool call",
    "permission_rejected": _DENIED,
    "timeout": r"(?i)timed out after|^.{0,40}timed? ?out",
    "exit_nonzero": r"(?i)exit code:? [1-9]",
    "not_found": r"(?i)no such (?:file|tool)|not found|does not exist",
}


def with_threads(lines: pl.DataFrame) -> pl.DataFrame:
    """The lines in the order of each thread, each once, with what is a copy marked.

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
    stem = pl.col("file").str.extract(rf"(?:^|/)({_UUID})\.jsonl$")
    of_agent = pl.col("file").str.extract(r"(?:^|/)agent-([^/]+)\.jsonl$")
    told = pl.col("session_id").drop_nulls().first().over(file)
    folder = pl.col("file").str.extract(r"([^/]+)/subagents/[^/]+$")
    name = pl.col("file").str.extract(r"([^/]+?)(?:\.jsonl)?$")
    is_side = pl.col("is_sidechain").fill_null(value=False)
    # Few columns are sorted and joined; what else a record says is put beside them at the end.
    marks = lines.select(_OF_ORDER).with_row_index("row")
    named = (
        marks.join(_shuffled(marks), on=file, how="left", maintain_order="left")
        .with_columns(
            owner_id=pl.when(of_agent.is_not_null())
            .then(pl.coalesce(folder.str.extract(f"^({_UUID})$"), told, name))
            .otherwise(pl.coalesce(stem, "session_id", told, name)),
            agent=pl.coalesce(
                of_agent, pl.when(is_side).then(pl.coalesce("agent_id", pl.lit("sidechain")))
            ),
        )
        .with_columns(
            thread_id=pl.when(pl.col("agent").is_null())
            .then("owner_id")
            .otherwise(pl.concat_str("owner_id", pl.lit("/"), "agent")),
            # Files keep their order of writing, whatever their clocks did.
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
    marked = _with_replays(_with_copies(keyed))
    kept = marked.drop(
        "request_id", "session_id", "agent_id", "is_sidechain", "is_replay", "is_shuffled"
    )
    return kept.hstack(lines.select(pl.exclude(_OF_ORDER))[kept["row"]]).drop("row")


def _shuffled(rows: pl.DataFrame) -> pl.DataFrame:
    """The files in which a record stands before the one that it follows, and moments fall, too."""
    file = ["source", "file"]
    falls = pl.col("at") < pl.col("at").cum_max().over(file, order_by="line_no")
    odd = rows.join(rows.filter(falls).select(file).unique(), on=file, how="semi")
    first = odd.group_by(*file, parent_uuid="uuid").agg(follows=pl.col("line_no").min())
    behind = odd.join(first.drop_nulls(), on=[*file, "parent_uuid"]).filter(
        pl.col("follows") > pl.col("line_no")
    )
    return behind.select(*file, is_shuffled=pl.lit(value=True)).unique()


def _with_copies(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_copied``, and ``copied_from``: the other thread that the record belongs to."""
    key = ("source", "key")
    # A fork has the moments of its origin, but for what it wrote itself and nobody copies.
    begins = pl.coalesce(pl.col("at").filter(pl.col("uuid").is_null()).min(), pl.col("at").min())
    keyed = rows.with_columns(key=pl.coalesce("answer_id", "uuid"), begins=begins.over(THREAD))
    several = keyed.filter(pl.col("thread_id").n_unique().over(key) > 1)
    copies = (pl.col("agent").is_not_null(), pl.col("forked_from").is_not_null())
    owners = (
        several.drop_nulls("key")
        .sort(*key, *copies, "begins", "thread_id", nulls_last=True)
        .unique(key, keep="first", maintain_order=True)
        .select(*key, keeper="thread_id")
    )
    # Side questions replay the answers of who asked, with request ids of their own.
    spoken = rows.filter(pl.col("agent").is_null(), pl.col("what") == "assistant")
    mine = spoken.select("source", "message_id", is_spoken=pl.lit(value=True)).unique()
    joined = keyed.join(owners, on=key, how="left", maintain_order="left").join(
        mine, on=["source", "message_id"], how="left", maintain_order="left"
    )
    is_replay = pl.col("agent").is_not_null() & pl.col("is_spoken").fill_null(value=False)
    is_other = (pl.col("keeper") != pl.col("thread_id")).fill_null(value=False)
    copied = joined.with_columns(
        is_copied=is_other | is_replay, copied_from=pl.when(is_other).then("keeper")
    )
    return copied.drop("key", "begins", "keeper", "is_spoken")


def _with_replays(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``turn_no``; a turn whose every answer was given before, or elsewhere, is a replay."""
    is_prompt = (pl.col("what") == "prompt") & ~pl.col("is_copied") & ~pl.col("is_repeated")
    prompt = pl.struct(*THREAD, "at", is_prompt.alias("is_prompt"))
    is_again = is_prompt & pl.col("at").is_not_null() & ~prompt.is_first_distinct()
    number = is_prompt.cum_sum().over(THREAD).cast(pl.Int64)
    once = rows.with_columns(pl.col("is_repeated") | is_again).with_columns(turn_no=number)
    first = pl.col("turn_no").min().over(*THREAD, "answer_id")
    replays = (
        once.filter(~pl.col("is_repeated"))
        .drop_nulls("answer_id")
        .with_columns(is_replay=pl.col("is_copied") | (pl.col("turn_no") > first))
        .group_by(TURN)
        .agg(pl.col("is_replay").all())
    )
    is_replay = pl.col("is_replay").fill_null(value=False) & ~pl.col("is_copied")
    return (
        once.join(replays, on=TURN, how="left", maintain_order="left")
        .with_columns(pl.col("is_repeated") | is_replay)
        .with_columns(turn_no=number)
    )


def own(rows: Rows) -> Rows:
    """The records that count: neither copied from another session nor there twice."""
    return rows.filter(~pl.col("is_copied"), ~pl.col("is_repeated"))


REPORTED = {
    "completed": "completed",
    **dict.fromkeys(("killed", "stopped", "cancelled"), "stopped"),
    "failed": "failed",
}
"""How a subagent ended, by the word of its parent's record; every other word is no end."""


def reported_ends(rows: pl.DataFrame) -> pl.DataFrame:
    """The subagents that ended, as the last of their parents' records says.

    Returns
    -------
    polars.DataFrame
        The key of the subagent's thread, ``reported_at``, ``reported`` (a value of `REPORTED`),
        and ``n_reported_tokens``: what its last answer wrote.
    """
    ends = own(rows.lazy()).filter(
        pl.col("result_agent_id").is_not_null(), pl.col("result_status").is_in(list(REPORTED))
    )
    return (
        ends.sort("at", "seq", nulls_last=False)
        .group_by(
            "source",
            thread_id=pl.concat_str("owner_id", pl.lit("/"), "result_agent_id"),
        )
        .agg(
            reported_at=pl.col("at").last(),
            reported=pl.col("result_status").last().replace(REPORTED),
            n_reported_tokens=pl.col("n_result_output_tokens").drop_nulls().last(),
        )
        .collect()
    )


def messages_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`frames.MESSAGES`: every answer with the usage of the line that tells most.

    The first line has the moment; until 2.1.96 it had a placeholder for the tokens written.
    That of a subagent's last answer, if no line says why it stopped, is in its parent's record.
    """
    every = rows.lazy().drop_nulls("answer_id").with_columns(total=pl.sum_horizontal(USAGE))
    answers = (
        own(every)
        .group_by(*THREAD, "answer_id", maintain_order=True)
        .agg(
            pl.col("turn_no", "message_id", "request", "at", "uuid").first(),
            pl.col("model", "stop_reason").drop_nulls().last(),
            n_lines=pl.len(),
        )
    )
    # A copy may tell more than the line that it was made of, if that was still being written.
    told = ("is_spoken", "total")
    most = (
        every.with_columns(is_spoken=pl.col("agent").is_null())
        .group_by("source", "answer_id")
        .agg(pl.col(*USAGE, "n_cache_1h_tokens").sort_by(told, maintain_order=True).last().clip(0))
    )
    named = pl.coalesce("message_id", "uuid", "answer_id")
    is_cut = pl.col("stop_reason").is_null() & (
        pl.int_range(pl.len()).over(THREAD) == pl.len().over(THREAD) - 1
    )
    kept = (
        answers.join(most, on=["source", "answer_id"], how="left", maintain_order="left")
        .join(reported_ends(rows).lazy(), on=THREAD, how="left", maintain_order="left")
        .with_columns(
            message_id=named,
            request_id="request",
            n_output_tokens=pl.when(is_cut)
            .then(pl.max_horizontal("n_output_tokens", "n_reported_tokens"))
            .otherwise("n_output_tokens"),
        )
    )
    return MESSAGES.conform(kept.collect())


def tools_of(rows: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """`frames.TOOLS`: calls with their results, wherever in the thread those stand."""
    place = ("thread_id", "owner_id", "turn_no", "seq", "at", "is_copied", "is_repeated")
    told = ("answer_id", "result_agent_id", "denial")
    of_lines = own(rows.select(*LINES.key, *place, *told))
    placed = (
        BLOCKS.conform(blocks)
        .drop_nulls("tool_id")
        .join(of_lines, on=LINES.key, how="inner", maintain_order="left")
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
    told = ("is_error", "error_message", "denial")
    kept = results.select(*call, *told, ended_at="at", has_result=pl.lit(value=True))
    joined = (
        calls.drop(told)
        .join(kept, on=call, how="left", maintain_order="left")
        .join(_children(rows, results), on=["source", "tool_id"], how="left", maintain_order="left")
        .join(_replaced(rows), on=(*THREAD, "answer_id"), how="left", maintain_order="left")
    )
    words = pl.col("error_message").fill_null("")
    rules = {name: words.str.contains(pattern) for name, pattern in _CAUSES.items()}
    has_exit = words.str.contains(_EXIT)
    for name in ("permission_rejected", "timeout"):
        rules[name] &= ~has_exit
    rules["permission_rejected"] |= pl.col("denial").is_not_null()
    rules["timeout"] |= words.str.contains(_OWN_LIMIT)
    cause = pl.coalesce(
        *(pl.when(rule).then(pl.lit(name)) for name, rule in rules.items()), pl.lit("tool_error")
    )
    is_bash = pl.col("name") == "Bash"
    timeout_s = pl.when(is_bash).then(pl.col("timeout_s").clip(0, 1e7))
    has_result = pl.col("has_result").fill_null(value=False)
    is_error = pl.when(has_result).then(pl.col("is_error").fill_null(value=False))
    return TOOLS.conform(
        joined.with_columns(
            entity_id=pl.concat_str("thread_id", pl.lit(":"), "tool_id"),
            started_at="at",
            ended_at=pl.when(has_result).then(pl.coalesce("ended_at", "at")),
            timeout_s=timeout_s,
            is_error=is_error,
            is_replaced=pl.col("is_replaced").fill_null(value=False),
            cause=pl.when(is_error).then(cause),
            patience_s=pl.when(is_bash)
            .then(timeout_s.fill_null(BASH_S) + BASH_GRACE_S)
            .when(pl.col("name").str.starts_with("mcp__"))
            .then(pl.lit(MCP_PATIENCE_S))
            .otherwise(pl.lit(PATIENCE_S)),
        )
    )


def _replaced(rows: pl.DataFrame) -> pl.DataFrame:
    """Answers in whose place another one was given later: a retry, or what a person took back.

    Parallel calls and their results branch too, which says nothing; that two answers follow
    the same record does.
    """
    answers = own(rows.lazy()).drop_nulls("answer_id").group_by(*THREAD, "answer_id")
    begun = answers.agg(pl.col("parent_uuid", "seq").sort_by("seq").first())
    last = pl.col("seq").max().over(*THREAD, "parent_uuid")
    return (
        begun.drop_nulls("parent_uuid")
        .filter(pl.col("seq") < last)
        .select(*THREAD, "answer_id", is_replaced=pl.lit(value=True))
        .collect()
    )


def _children(rows: pl.DataFrame, results: pl.DataFrame) -> pl.DataFrame:
    """Which subagent a call started, as its result, its progress or the subagent says."""
    columns = ("source", "tool_id", "owner_id", "result_agent_id")
    named = rows.lazy().with_columns(tool_id="result_tool_id")
    told = [frame.select(columns).drop_nulls() for frame in (results.lazy(), named)]
    return (
        pl.concat(told)
        .collect()
        .unique(["source", "tool_id"], keep="first", maintain_order=True)
        .select(
            "source",
            "tool_id",
            child_thread_id=pl.concat_str("owner_id", pl.lit("/"), "result_agent_id"),
        )
    )


def sessions_of(
    rows: pl.DataFrame,
    turns: pl.DataFrame,
    tools: pl.DataFrame,
    messages: pl.DataFrame,
    recorded: pl.DataFrame,
) -> pl.DataFrame:
    """`frames.SESSIONS`: threads with what all of their turns add up to.

    Tokens are those of ``messages``, which have side requests too; ``recorded`` are costs.
    """
    is_own = ~pl.col("is_copied") & ~pl.col("is_repeated")
    at = pl.col("at").filter(is_own & pl.col("what").is_in(list(SIGNS)))
    is_answer = pl.col("what") == "assistant"
    every = rows.group_by(THREAD, maintain_order=True).agg(
        pl.col("file").first(),
        pl.col("title", "directory", "program_version").drop_nulls().last(),
        pl.col("forked_from").drop_nulls().first(),
        session_id=pl.col("owner_id").first(),
        agent_id=pl.col("agent").first(),
        first_at=at.min(),
        last_activity_at=at.max(),
        n_files=pl.col("file").n_unique(),
        n_copied=pl.col("is_copied").sum(),
        n_repeated=pl.col("is_repeated").sum(),
        n_compactions=(pl.col("what") == "compaction").sum(),
        naive_output_tokens=pl.col("n_output_tokens").filter(is_answer).sum(),
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
    joined = every
    for part in (of_turns, of_messages, recorded, parents):
        joined = joined.join(part, on=THREAD, how="left", maintain_order="left")
    is_agent = pl.when(pl.col("agent_id").is_not_null())
    parent = is_agent.then(pl.coalesce("caller", "session_id")).otherwise("forked_from")
    known = pl.col("n_turns", *counts).fill_null(0)
    return SESSIONS.conform(joined.with_columns(known, parent_thread_id=parent))
