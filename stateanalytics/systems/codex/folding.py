"""From records to threads, turns and tool calls: inherited records are marked, repeats count once.

A fork and a subagent begin with a copy of their parent's records. All have the time of the
copy, and the totals of tokens continue those of the parent. Turns begin and end by the rules
of Codex itself.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core.joins import Rows, left_joined, total
from stateanalytics.core.schema import RESULTS
from stateanalytics.systems.base import today_s_of
from stateanalytics.systems.codex.frames import (
    LONG_PROMPT_TOKENS,
    SESSIONS,
    SUMS,
    TOOLS,
    TURNS,
    USAGE,
)
from stateanalytics.systems.codex.lines import SEARCH
from stateanalytics.systems.situations import first_that_holds, with_cause
from stateanalytics.systems.threads import THREAD, TURN, call_counts, is_last_work

FILE = ("source", "file")
_ORDER_COLUMNS = (
    *(*FILE, "line_no", "ordinal", "at", "what", "own_id", "turn_id", "forked_from", "own_from"),
    *("base_id", "parent_thread_id", "type", "kind", "n_text_chars", "call_id"),
)
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_ROLLOUT_ID = rf"_({_UUID})\.jsonl"
"""A second id in the name of a file. A thread that goes on from an earlier turn has one."""
FILE_ID = rf"({_UUID})(?:_{_UUID})?\.jsonl(?:\.zst)?$"
FILE_STEM = r"([^/]+?)(?:\.jsonl(?:\.zst)?)?$"
_UUID7 = r"^[0-9a-f]{8}-[0-9a-f]{4}-7"
_MOMENT_CHARS = 13
"""The first characters of a version 7 id, which encode its time."""
ENDS = ("turn_complete", "turn_aborted")
_HARMLESS_ERRORS = ("active_turn_not_steerable", "thread_rollback_failed")
"""Errors that do not make a turn fail."""
_IS_SUBAGENT = r'"subagent"\s*:|\bsubagent$'
_RANK_IN_MOMENT = {
    **{"meta": 0, "turn_start": 1, "context": 2, "prompt_text": 3, "prompt_event": 3},
    **{"prompt_item": 3, "turn_complete": 9, "turn_aborted": 9},
}
"""The order in which records with the same time were written."""
_MANY_FALLS = 3
"""If time goes back so often, the lines were shuffled: no clock is set back so often."""


def with_threads(lines: pl.DataFrame) -> pl.DataFrame:
    """The records of each thread in the order of its rollout, inherited ones marked.

    Parameters
    ----------
    lines : polars.DataFrame
        `frames.LINES`, of any inputs.

    Returns
    -------
    polars.DataFrame
        Each rollout of a thread once, with ``thread_id``, ``n_files``, ``is_copied``,
        ``is_prompt``, ``is_answer`` and ``turn_no`` (0: before any turn).
    """
    # Only these columns are sorted and joined; the others are added at the end, to save time.
    marks = lines.select(_ORDER_COLUMNS).with_row_index("row").filter(pl.col("what") != "name")
    rollouts = _in_order(marks.sort(*FILE, "line_no"))
    metas = rollouts.filter(pl.col("what") == "meta")
    heads = metas.group_by(FILE, maintain_order=True).agg(
        spawned_by=pl.first("parent_thread_id"),
        n_metas=pl.col("own_id").n_unique(),
        head_id=pl.first("own_id"),
        head_forked=pl.first("forked_from"),
        head_own_from=pl.first("own_from"),
        head_base=pl.first("base_id"),
        head_at=pl.first("at"),
        head_line=pl.first("line_no"),
    )
    file = pl.col("file")
    named = rollouts.join(heads, on=FILE, how="left", maintain_order="left").with_columns(
        thread_id=pl.coalesce("head_id", file.str.extract(FILE_ID), file.str.extract(FILE_STEM)),
        is_head=pl.col("line_no") == pl.col("head_line"),
    )
    kept = _one_file_per_rollout(named)
    marked = _with_turns(_with_messages(kept.with_columns(is_copied=_is_copied())))
    other_columns = lines.select(pl.exclude(_ORDER_COLUMNS))[marked["row"]]
    return marked.drop("row").hstack(other_columns)


def _in_order(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Rollouts in the order of their lines, or of their times if a file was shuffled."""
    what, file, line_no = pl.col("what"), list(FILE), pl.col("line_no")
    falls = (pl.col("at") < pl.col("at").shift(1)).over(file)
    odd = rollouts.join(rollouts.filter(falls).select(file).unique(), on=file, how="semi")
    if odd.is_empty():
        return rollouts
    begin = line_no.filter(what.is_in(["turn_start", "call"])).min()
    # If an end comes before its beginning, the lines are not in the order of writing.
    span_id = pl.coalesce("call_id", "turn_id")
    shuffled = odd.filter(
        (pl.col("ordinal").diff().over(file) < 0)
        | (span_id.is_not_null() & (line_no < begin.over(*file, span_id)))
        | (line_no.filter(what == "meta").min().over(file) > line_no.min().over(file))
        | ((pl.col("at") < pl.col("at").shift(1)).sum().over(file) >= _MANY_FALLS)
    ).select(file)
    is_own = (what == "meta") & (pl.col("own_id") == pl.col("file").str.extract(FILE_ID))
    rank = what.replace_strict(_RANK_IN_MOMENT, default=5, return_dtype=pl.Int64)
    written = odd.join(shuffled.unique(), on=file, how="semi").sort(
        *file, ~is_own.fill_null(value=False), "ordinal", "at", rank, "line_no"
    )
    placed = written.with_columns(line_no=line_no.sort().over(file))
    others = rollouts.join(shuffled, on=file, how="anti")
    return pl.concat([others, placed]).sort(*file, "line_no")


def _one_file_per_rollout(rows: pl.DataFrame) -> pl.DataFrame:
    """Rollouts in their order, each from one file: if possible not archived, then the longest."""
    is_archived = pl.col("file").str.contains("archived_sessions/", literal=True)
    rollout = [*THREAD, "rollout_id"]
    files = (
        rows.group_by(*THREAD, "file", maintain_order=True)
        .agg(n_lines=pl.len())
        .with_columns(rollout_id=pl.col("file").str.extract(_ROLLOUT_ID))
        .sort(*rollout, is_archived, -pl.col("n_lines").cast(pl.Int64), "file")
        .with_columns(n_files=pl.len().over(rollout))
        .unique(rollout, keep="first", maintain_order=True)
    )
    return rows.join(files, on=[*THREAD, "file"]).sort(*THREAD, "head_at", "file", "line_no")


def _is_copied() -> pl.Expr:
    """Whether a record was copied from the parent: by ordinals, by ids of turns, else by time."""
    over = list(FILE)
    turn_id, thread_id = pl.col("turn_id"), pl.col("thread_id")
    is_start = pl.col("what").is_in(["turn_start", "context"])
    is_dated = is_start & turn_id.str.contains(_UUID7) & thread_id.str.contains(_UUID7)
    moments = (turn_id.str.head(_MOMENT_CHARS), thread_id.str.head(_MOMENT_CHARS))
    is_own_start = is_dated & (moments[0] >= moments[1])
    first_own = pl.col("line_no").filter(is_own_start).min().over(over)
    has_dated = is_dated.fill_null(value=False).any().over(over)
    by_ordinal = pl.col("ordinal") < pl.col("head_own_from")
    by_turn = pl.when(has_dated).then((pl.col("line_no") < first_own).fill_null(value=True))
    is_same_moment = pl.col("at") - pl.col("head_at") < pl.duration(seconds=1)
    # The first record with a later time ends the copy, even if the clock goes back after it.
    by_moment = pl.when(pl.col("n_metas") > 1).then(
        is_same_moment.fill_null(value=True).cast(pl.Int8).cum_min().over(over) == 1
    )
    # A rollout that only refers to the history of another thread has no copy of it.
    is_branch = (pl.col("n_metas") > 1) | (
        pl.col("head_base").is_null()
        & (pl.col("head_forked").is_not_null() | pl.col("spawned_by").is_not_null())
    )
    is_after_head = pl.col("line_no") > pl.col("head_line")
    is_inherited = is_branch & is_after_head & pl.coalesce(by_ordinal, by_turn, by_moment)
    return is_inherited.fill_null(value=False)


def own(rows: Rows) -> Rows:
    """The records that count: those that were not copied from a parent."""
    return rows.filter(~pl.col("is_copied"))


def is_repeated() -> pl.Expr:
    """Whether an earlier line has the same message: the same time, ids and length."""
    same = pl.struct(*FILE, "at", "ordinal", "type", "kind", "what", "turn_id", "n_text_chars")
    return pl.col("at").is_not_null() & ~same.is_first_distinct()


def _with_messages(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_prompt`` and ``is_answer``: by events, else finished items, else messages."""
    what = pl.col("what")
    is_own = ~pl.col("is_copied") & ~is_repeated()

    def is_message(kind: str) -> pl.Expr:
        # A message may be written in up to three forms; the first form in the thread counts.
        chosen = pl.coalesce(
            pl.when(((what == form) & is_own).any().over(THREAD)).then(pl.lit(form))
            for form in (f"{kind}_event", f"{kind}_item", f"{kind}_text")
        )
        return (what == chosen).fill_null(value=False) & is_own

    # A plan is an answer without any of the other records of an answer.
    is_answer = is_message("answer") | ((what == "plan") & is_own)
    return rows.with_columns(is_prompt=is_message("prompt"), is_answer=is_answer)


def _with_turns(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``turn_no``, ``is_start`` and ``is_end``: which records begin and end a turn."""
    is_own, what = ~pl.col("is_copied"), pl.col("what")
    first_id = pl.struct(
        *THREAD, "turn_id", what == "turn_start", is_own.alias("_")
    ).is_first_distinct()
    is_written = (what == "turn_start") & is_own & (pl.col("turn_id").is_null() | first_id)
    is_before = (is_written.cum_sum() == 0).over(THREAD)
    # Old versions wrote no turns, so each prompt begins one. Newer ones write it inside a turn.
    has_work = ((pl.col("is_answer") | (what == "call")) & is_own & is_before).any().over(THREAD)
    is_old = ~is_written.any().over(THREAD) | has_work
    is_implicit = pl.col("is_prompt") & is_before & is_old
    marked = rows.with_columns(is_start=is_written | is_implicit, is_implicit=is_implicit)
    numbered = marked.with_columns(
        turn_no=pl.col("is_start").cum_sum().over(THREAD).cast(pl.Int64)
    ).with_columns(start_id=pl.col("turn_id").filter("is_start").first().over(TURN))
    starts = numbered.filter("is_start").select(*THREAD, "turn_id", is_known=pl.lit(value=True))
    known_ids = starts.drop_nulls("turn_id").unique()
    joined = left_joined(numbered, known_ids, on=[*THREAD, "turn_id"])
    # An end of an earlier turn is ignored, because the start of this turn has closed that one.
    is_mine = pl.col("is_known").is_null() | pl.col("turn_id").eq_missing(pl.col("start_id"))
    is_end = what.is_in(list(ENDS)) & is_own & is_mine & (pl.col("turn_no") > 0)
    return joined.with_columns(is_end=is_end)


def _rolled_back(rows: pl.DataFrame) -> pl.DataFrame:
    """The keys of turns that were rolled back: later records pop them from a stack."""
    step = (
        pl.when("is_start")
        .then(1)
        .when(pl.col("what") == "rollback")
        .then(-pl.col("n_rolled_back").fill_null(1).clip(0, 10**6))
    )
    # Another rollout of the thread begins with the number of the first record that it replaces.
    begins = pl.when("is_head").then("ordinal").reverse().cum_min().reverse().backward_fill()
    is_replaced = pl.col("ordinal") >= begins.over(THREAD)
    steps = own(rows.lazy()).with_columns(step=step, is_replaced=is_replaced).drop_nulls("step")
    depth = pl.col("step").cum_sum().over(THREAD)
    lowest_later = pl.col("depth").reverse().cum_min().reverse().over(THREAD)
    return (
        steps.with_columns(depth=depth)
        .filter(pl.col("is_start") & (pl.col("is_replaced") | (lowest_later < pl.col("depth"))))
        .select(*TURN, is_rolled_back=pl.lit(value=True))
        .collect()
    )


def _usage_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Tokens of each turn: those of its answers if recorded, else the growth of the totals."""
    totals = (*SUMS, "sum_total_tokens")
    rows = rows.select(*TURN, "what", "response_id", "is_copied", pl.col(USAGE).clip(0), *totals)
    counted = rows.filter(pl.col("what") == "tokens").drop_nulls("sum_total_tokens")
    before = [pl.col(name).shift(1).over(THREAD) for name in totals]
    is_same = pl.all_horizontal(
        pl.col(name).eq_missing(earlier) for name, earlier in zip(totals, before, strict=True)
    )
    # If the usage of an answer is not recorded, the growth of the total is taken.
    growth = [
        pl.coalesce(usage, (pl.col(so_far) - earlier.fill_null(0)).clip(0).alias(usage)).fill_null(
            0
        )
        for usage, so_far, earlier in zip(USAGE[:-1], SUMS, before[:-1], strict=True)
    ]
    by_totals = own(counted.with_columns(*growth, is_same=is_same).filter(~pl.col("is_same")))
    answers = own(rows.filter(pl.col("what") == "usage"))
    response = pl.struct(*THREAD, "response_id")
    exact = answers.filter(pl.col("response_id").is_null() | response.is_first_distinct())
    of_long = pl.col(USAGE).filter(pl.col("n_input_tokens") > LONG_PROMPT_TOKENS).sum()
    sums = (total(*USAGE), of_long.name.replace("^n_", "n_long_"))
    recorded = exact.group_by(TURN, maintain_order=True).agg(*sums)
    others = by_totals.join(recorded, on=TURN, how="anti")
    return pl.concat([recorded, others.group_by(TURN, maintain_order=True).agg(*sums)])


def sessions_of(rows: pl.DataFrame, turns: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """`frames.SESSIONS`: threads with the sums over their turns.

    Parameters
    ----------
    rows : polars.DataFrame
        From `with_threads`.
    turns : polars.DataFrame
        `frames.TURNS`.
    names : polars.DataFrame
        Records of the index: ``source``, ``own_id``, ``title``, the last one last.
    """
    at, is_own = pl.col("at"), ~pl.col("is_copied")
    first = ("root_id", "agent_name", "agent_role", "provider", "originator", "program_version")
    began = pl.concat_str("origin", "thread_source", separator=" ", ignore_nulls=True)
    sessions = rows.group_by(THREAD, maintain_order=True).agg(
        pl.col("file", "n_files").last(),
        pl.col(*first, "branch").filter("is_head").first(),
        pl.col("directory").filter(is_own).drop_nulls().last(),
        is_subagent=began.filter("is_head").first().str.contains(_IS_SUBAGENT),
        parent_thread_id=pl.coalesce("spawned_by", "head_forked").first(),
        first_at=at.filter(is_own).min(),
        last_activity_at=at.filter(is_own).max(),
        n_copied=pl.col("is_copied").sum(),
        n_compactions=((pl.col("what") == "compaction") & is_own).sum(),
        naive_total_tokens=pl.col("sum_total_tokens").drop_nulls().last().fill_null(0).clip(0),
    )
    sums = [name for name in SESSIONS.dtypes if name in TURNS.dtypes and name.startswith("n_")]
    of_turns = turns.group_by(THREAD).agg(total(*sums), n_turns=pl.len())
    titles = (
        names.drop_nulls("own_id")
        .unique(["source", "own_id"], keep="last", maintain_order=True)
        .select("source", "title", thread_id="own_id")
    )
    callers = (
        own(rows.filter(pl.col("what") == "child"))
        .drop_nulls("child_thread_id")
        .unique(["source", "child_thread_id"], keep="first", maintain_order=True)
        .select("source", thread_id="child_thread_id", parent_call_id="call_id")
    )
    sessions = left_joined(sessions, of_turns, titles, callers, on=THREAD)
    return SESSIONS.conform(
        sessions.with_columns(
            pl.col("n_turns", *sums).exclude(USAGE[-1]).fill_null(0),
            pl.col("is_subagent").fill_null(value=False),
            session_id=pl.coalesce("root_id", "thread_id"),
        )
    )


SHELL = ("shell", "shell_command", "local_shell_call", "container.exec")
_TODAY_S = today_s_of(__package__)
SHELL_S, MCP_S = _TODAY_S["codex.shell"], _TODAY_S["codex.mcp"]
GRACE_S, PATIENCE_S = 60.0, 600.0
_QUESTION_TOOLS = ("request_user_input", "request_permissions")
_WAITS_FOR_CHILD = ("spawn_agent", "wait", "wait_agent", "send_input")


def tools_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`frames.TOOLS`: calls with their results, found anywhere in the thread.

    Parameters
    ----------
    rows : polars.DataFrame
        From `with_threads`.
    """
    call = (*THREAD, "call_id")
    known = own(rows.drop_nulls("call_id"))
    is_event, is_call, at = pl.col("what") == "tool_end", pl.col("what") == "call", pl.col("at")
    # If a turn has no records of calls, its finished items are taken as calls.
    is_search = is_event & (pl.col("kind") == SEARCH)
    is_written = (is_call | is_search.fill_null(value=False)).any().over(TURN)
    is_implied = is_search | (is_event & (pl.col("kind") == "item_completed") & ~is_written)
    calls = known.filter(is_call | is_implied).unique(call, keep="first", maintain_order=True)
    results = known.filter(pl.col("what").is_in(["result", "tool_end"]))
    exact = ("exit_code", "duration_s", "is_declined")
    flags = ("is_error", "is_cancelled", "is_timed_out", "is_background")
    # The message of a command that ended in the background is what it printed.
    is_command = pl.col("item").eq_missing("CommandExecution")
    ends = results.group_by(call, maintain_order=True).agg(
        # An event has exact values, which a text may only round.
        *(
            pl.coalesce(
                pl.col(name).filter(is_event).drop_nulls().first(),
                pl.col(name).drop_nulls().first(),
            )
            for name in exact
        ),
        *(pl.col(name).any() for name in flags),
        pl.col(*RESULTS.dtypes).drop_nulls().first(),
        error_message=pl.coalesce(
            pl.col("error_message").filter(~is_command).drop_nulls().first(),
            pl.col("error_message").drop_nulls().first(),
        ),
        # A background command has a first result when it starts, and an event when it ends.
        ended_at=pl.when(pl.col("is_background").any()).then(at.max()).otherwise(at.min()),
        has_result=pl.lit(value=True),
    )
    calls = calls.with_columns(stops="is_cancelled")
    joined = calls.drop(*exact, *flags, "error_message", *RESULTS.dtypes).join(
        ends, on=call, how="left", maintain_order="left"
    )
    has_result = pl.col("has_result").fill_null(value=False)
    # A command that fails in the background counts once: as the command itself if an event says
    # so, else as the call that polled it.
    is_poll, has_exited = pl.col("name") == "write_stdin", pl.col("exit_code").is_not_null()
    has_ended = (~is_poll & pl.col("is_background")).any().over(*THREAD, "exit_code")
    is_other = is_poll & has_exited & has_ended
    is_own = pl.when(~is_other.fill_null(value=False))
    # A command that the agent stops with Ctrl+C did not fail: neither the call that stops it nor
    # the later event of the command, which has the same exit code, counts as a failure.
    stops, is_bad = pl.col("stops"), pl.col("exit_code") != 0
    stopped_at = at.filter(stops).min().over(*THREAD, "exit_code")
    is_later = ~is_poll & pl.col("is_background") & (pl.col("ended_at") >= stopped_at)
    joined = joined.with_columns(
        is_own.then(pl.col("exit_code", "error_message")).name.keep(),
        is_error=is_own.then("is_error").otherwise(pl.lit(value=False)),
        is_stopped=(is_bad & (is_later | is_own.then(stops))).fill_null(value=False),
    )
    # When a turn ends, Codex ends the commands that still run in the background.
    is_ended = (pl.col("is_background") & (pl.col("exit_code") == -1)).fill_null(value=False)
    is_cancelled = pl.col("is_cancelled") | is_ended | pl.col("is_stopped")
    is_over = is_cancelled | pl.col("is_declined").fill_null(value=False)
    causes = {
        "permission_rejected": pl.col("is_declined"),
        "interrupted": is_cancelled,
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
    patience_s = (
        pl.when(is_shell())
        .then(pl.col("timeout_s").fill_null(SHELL_S) + GRACE_S)
        .when(is_mcp_tool())
        .then(pl.lit(MCP_S + GRACE_S))
        .otherwise(pl.lit(PATIENCE_S))
    )
    return TOOLS.conform(named.with_columns(patience_s=patience_s))


def is_shell() -> pl.Expr:
    """Whether a tool ends its command by itself at a time limit."""
    return pl.col("name").is_in(list(SHELL))


def is_mcp_tool() -> pl.Expr:
    """Whether a tool belongs to an MCP server."""
    return pl.col("name").str.starts_with("mcp__")


OPEN = ("question", "open_tool", "awaiting_turn_end", "awaiting_model")
"""Situations in which a turn is still open."""
_ABORT_REASONS = ("interrupted", "replaced", "review_ended", "budget_limited")
"""Known reasons of aborts. Each is also the name of a situation."""
_ASKING_POLICIES = ("untrusted", "on-failure")
"""Policies under which a person may be asked although the call does not show it."""


def turns_of(rows: pl.DataFrame, tools: pl.DataFrame) -> pl.DataFrame:
    """`frames.TURNS`, each with its situation: the first rule that its records match.

    Parameters
    ----------
    rows : polars.DataFrame
        From `with_threads`.
    tools : polars.DataFrame
        `frames.TOOLS`.
    """
    parts = (_usage_of(rows), _call_counts(tools), _rolled_back(rows))
    turns = left_joined(_record_facts(rows), *parts, on=TURN)
    children = own(rows.lazy()).filter(pl.col("spawned_by").is_not_null())
    last_of_children = children.group_by("source", thread_id="spawned_by").agg(
        child_at=pl.col("at").max()
    )
    turns = turns.join(last_of_children.collect(), on=THREAD, how="left", maintain_order="left")
    counts = (*USAGE[:-1], "n_tool_calls", "n_tool_errors", "n_open_tools", "n_tools_good")
    turn_no, is_kept = pl.col("turn_no"), ~pl.col("is_rolled_back")
    known = turns.with_columns(
        pl.col(*counts, "n_questions").fill_null(0), pl.col("is_rolled_back").fill_null(value=False)
    ).with_columns(
        has_later=turn_no < turn_no.max().over(THREAD),
        has_output=(pl.col("n_text_chars") > 0)
        | (pl.col("n_tools_good") > 0)
        | pl.col("has_review"),
    )
    named = with_cause(known).with_columns(situation=first_that_holds(_situation_rules()))
    situation = pl.col("situation")
    is_open, is_failed = situation.is_in(list(OPEN)), situation == "failed"
    kept_no, is_work = pl.when(is_kept).then(turn_no), situation != "no_request"
    policy = pl.col("approval_policy").fill_null("")
    may_ask = policy.is_in(list(_ASKING_POLICIES)) | ((policy != "never") & pl.col("asks"))
    waits = pl.col("open_tool").is_in(list(_WAITS_FOR_CHILD))
    only_if = {
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
            *(pl.when(rule).then(name).alias(name) for name, rule in only_if.items()),
            entity_id=pl.concat_str("thread_id", pl.lit(":turn:"), "turn_no"),
            # The time inside an end has whole seconds; the time of its record is exact.
            ended_at=pl.when(~is_open).then(pl.coalesce("end_at", "error_at", "last_activity_at")),
            last_sign_at=pl.max_horizontal("last_activity_at", pl.when(waits).then("child_at")),
            is_last=is_last_work(kept_no, is_work, THREAD),
        )
        .sort(TURN)
    )


def _record_facts(rows: pl.DataFrame) -> pl.DataFrame:
    """Facts of each turn from its own records, one row per turn."""
    what, at = pl.col("what"), pl.col("at")
    is_end, is_error = pl.col("is_end"), (what == "error") & ~_is_harmless()
    is_sign = pl.col("is_prompt") | pl.col("is_answer") | what.is_in(["call", "result"])
    sign = (
        pl.when("is_answer").then(pl.lit("answer")).when("is_prompt").then(pl.lit("prompt"))
        .otherwise("what")
    )  # fmt: skip
    in_a_row = sign.filter(is_sign).rle()
    is_text = pl.col("is_answer") | (what == "turn_complete")
    is_said = what.str.starts_with("answer_")
    error = ("error_type", "error_status", "error_message")
    has_words = pl.col("error_type").is_not_null() | pl.col("error_message").is_not_null()
    is_error_at_end = is_end & has_words & ~_is_harmless()
    last = (
        *("model", "approval_policy", "rate_limit_reached", "rate_limit_used_percent"),
        "rate_limit_resets_at",
    )
    # The model and policy of a turn may be recorded before its prompt.
    known = own(rows.lazy()).with_columns(
        pl.col("model", "approval_policy").forward_fill().over(THREAD)
    )
    return (
        known.filter(pl.col("turn_no") > 0)
        .group_by(TURN, maintain_order=True)
        .agg(
            pl.col("is_implicit").first(),
            pl.col(last).drop_nulls().last(),
            *(pl.col(name).filter(is_error_at_end | is_error).last() for name in error),
            turn_id=pl.col("start_id").first(),
            started_at=at.min(),
            last_activity_at=at.max(),
            end=what.filter(is_end).first(),
            end_at=at.filter(is_end).first(),
            error_at=at.filter(is_error).first(),
            has_error=(is_error_at_end | is_error).any(),
            stop_reason=pl.col("reason").filter(is_end).first(),
            stored_duration_s=pl.col("duration_s").filter(is_end).first(),
            first_token_s=pl.col("first_token_s").filter(is_end).first(),
            n_text_chars=pl.col("n_text_chars").filter(is_text).sum(),
            final_chars=pl.col("n_text_chars").filter(is_end).first(),
            last_sign=sign.filter(is_sign).last(),
            # An answer is both an event and a message; perhaps only one of them has the phase.
            last_phase=pl.col("phase").filter(is_said).drop_nulls().last(),
            has_review=((what == "review") & (pl.col("n_text_chars") > 0)).any(),
            is_by_person=what.is_in(["compaction", "user_shell"]).any(),
            n_prompts=pl.col("is_prompt").sum(),
            n_answers=pl.col("is_answer").sum(),
            # A compaction that no answer or call follows happened between two tasks.
            n_compactions=((what == "compaction") & is_sign.reverse().cum_max().reverse()).sum(),
            n_idle_answers=in_a_row.struct.field("len")
            .filter(in_a_row.struct.field("value") == "answer")
            .max(),
            is_unanswered=(sign.filter(is_sign).last() != "answer")
            | (pl.col("n_text_chars").filter("is_answer").last() == 0),
            gives_up=pl.col("says").eq_missing("gives_up").filter(is_said).last(),
            is_question=pl.col("says").eq_missing("asks").filter(is_said).last(),
            is_correction=pl.col("says").eq_missing("corrects").filter("is_prompt").first(),
        )
        .collect()
    )


def _is_harmless() -> pl.Expr:
    return pl.col("error_type").is_in(list(_HARMLESS_ERRORS)).fill_null(value=False)


def _call_counts(tools: pl.DataFrame) -> pl.DataFrame:
    """The tool calls of each turn by how they ended, and the first open call."""
    is_open = pl.col("ended_at").is_null()
    is_stopped = pl.col("cause").is_in(["interrupted", "permission_rejected"])
    return tools.group_by(TURN).agg(
        **call_counts(is_open),
        asks=pl.col("is_escalated").filter(is_open).any(),
        n_questions=(is_open & pl.col("name").is_in(list(_QUESTION_TOOLS))).sum(),
        n_tools_good=(~pl.col("is_error") & ~is_stopped.fill_null(value=False)).sum(),
    )


def _situation_rules() -> dict[str, pl.Expr]:
    """The situations of a turn and the expressions that mean them, in order of precedence."""
    end, reason = pl.col("end"), pl.col("stop_reason")
    is_complete, is_aborted = end == "turn_complete", end == "turn_aborted"
    is_written = ~pl.col("is_implicit")
    is_closed = pl.col("n_open_tools") == 0
    is_answered = pl.col("last_sign") == "answer"
    is_old_answer = end.is_null() & ~is_written & is_closed & is_answered
    had_later = pl.col("has_later")
    has_words = (pl.col("n_text_chars") > 0) | pl.col("has_review")
    is_error = pl.col("has_error") & ~is_aborted.fill_null(value=False)
    is_unasked = pl.col("is_by_person") & pl.col("last_sign").is_null() & ~pl.col("has_review")
    return {
        # An output limit is recorded as an error, but the beginning of the answer is kept.
        "truncated": is_error & (pl.col("cause") == "truncated_length"),
        "failed": is_error,
        **{word: is_aborted & (reason == word) for word in _ABORT_REASONS},
        "unknown_abort": is_aborted,
        "good": is_complete & (pl.col("final_chars") > 0),
        # No prompt and no answer: a person ran a command or compacted the conversation.
        "no_request": is_complete & is_unasked,
        "limited": is_complete & ~has_words & pl.col("rate_limit_reached").is_not_null(),
        "good_inferred": is_complete & pl.col("has_output"),
        "empty": is_complete,
        "good_message": is_old_answer,
        "superseded": had_later & ~is_written & is_closed,
        "aborted": had_later,
        "question": pl.col("n_questions") > 0,
        "open_tool": ~is_closed,
        "awaiting_turn_end": is_answered & (pl.col("last_phase") == "final_answer"),
        "awaiting_model": pl.lit(value=True),
    }
