"""From lines to threads and turns: what is inherited is told apart, what is repeated counts once.

A fork and a subagent begin with a copy of their parent's records, all stamped with the
moment of the copy; totals of tokens go on from the parent's. Turns begin and end by the
rules of Codex itself.
"""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from stateanalytics.systems.codex.frames import SESSIONS, SUMS, TURNS, USAGE
from stateanalytics.systems.threads import THREAD, TURN

FILE = ("source", "file")
Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)
_OF_ORDER = (
    *(*FILE, "line_no", "ordinal", "at", "what", "own_id", "turn_id", "forked_from", "own_from"),
    *("base_id", "parent_thread_id", "type", "kind", "n_text_chars", "call_id"),
)
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
NAME_ID = rf"({_UUID})\.jsonl(?:\.zst)?$"
NAME = r"([^/]+?)(?:\.jsonl(?:\.zst)?)?$"
_UUID7 = r"^[0-9a-f]{8}-[0-9a-f]{4}-7"
_MOMENT_CHARS = 13
"""Of an id of version 7 so many characters are its moment."""
ENDS = ("turn_complete", "turn_aborted")
NO_FAILURES = ("active_turn_not_steerable", "thread_rollback_failed")
"""Errors that fail no turn."""
_IS_SUBAGENT = r'"subagent"\s*:|\bsubagent$'


_AT_ONCE = {
    **{"meta": 0, "turn_start": 1, "context": 2, "prompt_text": 3, "prompt_event": 3},
    **{"prompt_item": 3, "turn_complete": 9, "turn_aborted": 9},
}
"""In which order records of one moment were written."""
_MANY_FALLS = 3
"""No clock is set back as often."""


def with_threads(lines: pl.DataFrame) -> pl.DataFrame:
    """The records of each thread in the order of its rollout, with what is inherited marked.

    Parameters
    ----------
    lines : polars.DataFrame
        `frames.LINES`, of any inputs.

    Returns
    -------
    polars.DataFrame
        Of each thread one rollout, with ``thread_id``, ``n_files``, ``is_copied``,
        ``is_prompt``, ``is_answer`` and ``turn_no`` (0: before any turn).
    """
    # Few columns are sorted and joined; what else a record says is put beside them at the end.
    marks = lines.select(_OF_ORDER).with_row_index("row").filter(pl.col("what") != "name")
    rollouts = _in_order(marks.sort(*FILE, "line_no"))
    metas = rollouts.filter(pl.col("what") == "meta")
    heads = metas.group_by(FILE, maintain_order=True).agg(
        pl.col("own_id", "forked_from", "own_from", "base_id", "at", "line_no").first(),
        pl.col("parent_thread_id").first().alias("spawned_by"),
        n_metas=pl.col("own_id").n_unique(),
    )
    of_file = heads.select(
        *FILE,
        "spawned_by",
        "n_metas",
        head_id="own_id",
        head_forked="forked_from",
        head_own_from="own_from",
        head_base="base_id",
        head_at="at",
        head_line="line_no",
    )
    name = pl.col("file").str.extract(NAME)
    named = rollouts.join(of_file, on=FILE, how="left", maintain_order="left").with_columns(
        thread_id=pl.coalesce("head_id", pl.col("file").str.extract(NAME_ID), name)
    )
    kept = _one_file_each(named)
    marked = _with_turns(_with_families(kept.with_columns(is_copied=_is_copied())))
    told = lines.select(pl.exclude(_OF_ORDER))[marked["row"]]
    return marked.drop("row").hstack(told)


def _in_order(rollouts: pl.DataFrame) -> pl.DataFrame:
    """Rollouts in their order; where ends stand before their beginnings, that of their moments."""
    what, file, line_no = pl.col("what"), list(FILE), pl.col("line_no")
    falls = (pl.col("at") < pl.col("at").shift(1)).over(file)
    odd = rollouts.join(rollouts.filter(falls).select(file).unique(), on=file, how="semi")
    if odd.is_empty():
        return rollouts
    begin = line_no.filter(what.is_in(["turn_start", "call"])).min()
    of = pl.coalesce("call_id", "turn_id")
    shuffled = odd.filter(
        (pl.col("ordinal").diff().over(file) < 0)
        | (of.is_not_null() & (line_no < begin.over(*file, of)))
        | (line_no.filter(what == "meta").min().over(file) > line_no.min().over(file))
        | ((pl.col("at") < pl.col("at").shift(1)).sum().over(file) >= _MANY_FALLS)
    ).select(file)
    is_own = (what == "meta") & (pl.col("own_id") == pl.col("file").str.extract(NAME_ID))
    rank = what.replace_strict(_AT_ONCE, default=5, return_dtype=pl.Int64)
    written = odd.join(shuffled.unique(), on=file, how="semi").sort(
        *file, ~is_own.fill_null(value=False), "ordinal", "at", rank, "line_no"
    )
    placed = written.with_columns(line_no=line_no.sort().over(file))
    others = rollouts.join(shuffled, on=file, how="anti")
    return pl.concat([others, placed]).sort(*file, "line_no")


def _one_file_each(rows: pl.DataFrame) -> pl.DataFrame:
    """Of several rollouts of a thread the active one, then the longest one, counts."""
    is_archived = pl.col("file").str.contains("archived_sessions/", literal=True)
    files = (
        rows.group_by(*THREAD, "file", maintain_order=True)
        .agg(n_lines=pl.len())
        .sort(*THREAD, is_archived, -pl.col("n_lines").cast(pl.Int64), "file")
        .with_columns(n_files=pl.len().over(THREAD))
        .unique(THREAD, keep="first", maintain_order=True)
    )
    kept = rows.join(files.select(*THREAD, "file", "n_files"), on=[*THREAD, "file"], how="inner")
    return kept.sort(*THREAD, "line_no")


def _is_copied() -> pl.Expr:
    """Does a record belong to the parent: by ordinals, by ids of turns, else by the moment."""
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
    # The first record of a later moment ends the copy, whatever the clock says after it.
    by_moment = pl.when(pl.col("n_metas") > 1).then(
        is_same_moment.fill_null(value=True).cast(pl.Int8).cum_min().over(over) == 1
    )
    # Where the history of another thread is pointed at, nothing of it is written again.
    is_branch = (pl.col("n_metas") > 1) | (
        pl.col("head_base").is_null()
        & (pl.col("head_forked").is_not_null() | pl.col("spawned_by").is_not_null())
    )
    is_after_head = pl.col("line_no") > pl.col("head_line")
    is_inherited = is_branch & is_after_head & pl.coalesce(by_ordinal, by_turn, by_moment)
    return is_inherited.fill_null(value=False)


def own(rows: Rows) -> Rows:
    """The records that count."""
    return rows.filter(~pl.col("is_copied"))


def is_repeated() -> pl.Expr:
    """Is a message the very one that an earlier line has: of one moment and length."""
    same = pl.struct(*FILE, "at", "ordinal", "type", "kind", "what", "turn_id", "n_text_chars")
    return pl.col("at").is_not_null() & ~same.is_first_distinct()


def _with_families(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``is_prompt`` and ``is_answer``: events, else finished items, else messages tell them."""
    what = pl.col("what")
    # What is written twice was said once.
    is_own = ~pl.col("is_copied") & ~is_repeated()

    def told(family: str) -> pl.Expr:
        names = [f"{family}_{of}" for of in ("event", "item", "text")]
        there = [((what == name) & is_own).any().over(THREAD) for name in names]
        chosen = pl.coalesce(
            pl.when(is_there).then(pl.lit(name))
            for is_there, name in zip(there, names, strict=True)
        )
        return (what == chosen).fill_null(value=False) & is_own

    return rows.with_columns(is_prompt=told("prompt"), is_answer=told("answer"))


def _with_turns(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``turn_no``, and of what begins and ends turns ``is_start`` and ``is_end``."""
    is_own, what = ~pl.col("is_copied"), pl.col("what")
    first_id = pl.struct(
        *THREAD, "turn_id", what == "turn_start", is_own.alias("_")
    ).is_first_distinct()
    is_written = (what == "turn_start") & is_own & (pl.col("turn_id").is_null() | first_id)
    is_before = (is_written.cum_sum() == 0).over(THREAD)
    # Versions that wrote no turns have one a prompt; later ones put the prompt into its turn.
    has_work = ((pl.col("is_answer") | (what == "call")) & is_own & is_before).any().over(THREAD)
    is_old = ~is_written.any().over(THREAD) | has_work
    is_implicit = pl.col("is_prompt") & is_before & is_old
    marked = rows.with_columns(is_start=is_written | is_implicit, is_implicit=is_implicit)
    numbered = marked.with_columns(
        turn_no=pl.col("is_start").cum_sum().over(THREAD).cast(pl.Int64)
    ).with_columns(start_id=pl.col("turn_id").filter("is_start").first().over(TURN))
    starts = numbered.filter("is_start").select(*THREAD, "turn_id", is_known=pl.lit(value=True))
    joined = numbered.join(
        starts.drop_nulls("turn_id").unique(), on=[*THREAD, "turn_id"], how="left",
        maintain_order="left",
    )  # fmt: skip
    # An end of another turn that began before this one comes too late: the start closed it.
    is_mine = ~pl.col("is_known").fill_null(value=False) | (
        pl.col("turn_id") == pl.col("start_id")
    ).fill_null(value=False)
    is_end = what.is_in(list(ENDS)) & is_own & is_mine & (pl.col("turn_no") > 0)
    return joined.with_columns(is_end=is_end)


def rolled_back(rows: pl.DataFrame) -> pl.DataFrame:
    """The turns that were taken back, as keys: a stack that later records make shorter."""
    step = (
        pl.when("is_start")
        .then(1)
        .when(pl.col("what") == "rollback")
        .then(-pl.col("n_rolled_back").fill_null(1).clip(0, 10**6))
    )
    moves = own(rows.lazy()).with_columns(step=step).drop_nulls("step")
    depth = pl.col("step").cum_sum().over(THREAD)
    least_later = pl.col("depth").reverse().cum_min().reverse().over(THREAD)
    return (
        moves.with_columns(depth=depth)
        .filter(pl.col("is_start") & (least_later < pl.col("depth")))
        .select(*TURN, is_rolled_back=pl.lit(value=True))
        .collect()
    )


def usage_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Tokens of each turn: of its answers where each is told, else by the totals that moved."""
    totals = (*SUMS, "sum_total_tokens")
    rows = rows.select(*TURN, "what", "response_id", "is_copied", *USAGE, *totals)
    counted = rows.filter(pl.col("what") == "tokens").drop_nulls("sum_total_tokens")
    before = [pl.col(name).shift(1).over(THREAD) for name in totals]
    same = pl.all_horizontal(
        pl.col(name).eq_missing(earlier) for name, earlier in zip(totals, before, strict=True)
    )
    # Without the usage of the last answer, the total tells by how much it grew.
    grown = [
        pl.coalesce(usage, (pl.col(total) - earlier.fill_null(0)).clip(0).alias(usage)).fill_null(0)
        for usage, total, earlier in zip(USAGE, SUMS, before, strict=False)
    ]
    by_totals = own(counted.with_columns(*grown, is_same=same).filter(~pl.col("is_same")))
    answers = own(rows.filter(pl.col("what") == "usage"))
    response = pl.struct(*THREAD, "response_id")
    exact = answers.filter(pl.col("response_id").is_null() | response.is_first_distinct())
    sums = [pl.col(USAGE).clip(0).sum()]
    told = exact.group_by(TURN, maintain_order=True).agg(sums)
    others = by_totals.join(told, on=TURN, how="anti").group_by(TURN, maintain_order=True).agg(sums)
    return pl.concat([told, others])


def sessions_of(rows: pl.DataFrame, turns: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """`frames.SESSIONS`: threads with what all of their turns add up to.

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
    is_head = pl.col("line_no") == pl.col("head_line")
    began = pl.concat_str("origin", "thread_source", separator=" ", ignore_nulls=True)
    every = rows.group_by(THREAD, maintain_order=True).agg(
        pl.col("file", "n_files").first(),
        pl.col(*first, "branch").filter(is_head).first(),
        pl.col("directory").filter(is_own).drop_nulls().last(),
        is_subagent=began.filter(is_head).first().str.contains(_IS_SUBAGENT),
        parent_thread_id=pl.coalesce("spawned_by", "head_forked").first(),
        first_at=at.filter(is_own).min(),
        last_activity_at=at.filter(is_own).max(),
        n_copied=pl.col("is_copied").sum(),
        n_compactions=((pl.col("what") == "compaction") & is_own).sum(),
        naive_total_tokens=pl.col("sum_total_tokens").drop_nulls().last().fill_null(0).clip(0),
    )
    sums = [name for name in SESSIONS.dtypes if name in TURNS.dtypes and name.startswith("n_")]
    of_turns = turns.group_by(THREAD).agg(pl.col(sums).sum(), n_turns=pl.len())
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
    joined = every
    for part in (of_turns, titles, callers):
        joined = joined.join(part, on=THREAD, how="left", maintain_order="left")
    return SESSIONS.conform(
        joined.with_columns(
            pl.col("n_turns", *sums).fill_null(0),
            pl.col("is_subagent").fill_null(value=False),
            session_id=pl.coalesce("root_id", "thread_id"),
        )
    )
