"""Failures inside of runs: calls of tools, how they ended, and which tools fail most."""

from __future__ import annotations

from collections import Counter

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import pool
from stateanalytics.core.schema import CALLS, MOMENT, Frame
from stateanalytics.failures.frames import TOOLS
from stateanalytics.state.definitions import FAILURES, RUN
from stateanalytics.stats.shares import ClusteredShare, clustered_share
from stateanalytics.systems import all_systems
from stateanalytics.systems.linking import TRANSCRIPT, links

_THREAD = ("source", "thread_id")
_AT_ONCE_S = 60
"""A result that is written at most so long after a run failed was before it."""


def calls(snap: Facts) -> pl.DataFrame:
    """Every call of a tool, of all systems that record them, and how it ended.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.

    Returns
    -------
    polars.DataFrame
        `schema.CALLS`, in order of time within each part of a thread. Systems that record no
        calls have no rows.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.

    Notes
    -----
    ``expected_nonzero`` is an exit code that is an answer: of commands such as ``grep`` and
    ``diff``, and of a run of tests that is repeated with success later in its thread. Of a
    session that drove an agent whose transcript has calls too, only the transcript's are rows.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.failures.calls(sa.demo()).is_empty()
    True
    """
    rows = recorded_once(recorded(checked_snapshot(snap, "failures.calls"), CALLS), snap.entities)
    if rows.is_empty():
        return rows
    # Of one input that a thread calls again and again, each call is a retry of the one before.
    before = pl.col("entity_id").shift(1).over(*_THREAD, "part_id", "tool", "input_digest")
    is_green = pl.coalesce(pl.col("test_result") == "passed", pl.col("outcome") == "ok")
    is_passed = (pl.col("is_test") & is_green).fill_null(value=False)
    last_pass = pl.when(is_passed).then("place").max().over(*_THREAD, "target")
    is_red = pl.col("is_test") & (pl.col("outcome") == "failed") & (last_pass > pl.col("place"))
    return CALLS.conform(
        rows.with_columns(place=place_in_time()).with_columns(
            is_retry_of=pl.when(pl.col("input_digest").is_not_null()).then(before),
            outcome=pl.when(is_red).then(pl.lit("expected_nonzero")).otherwise("outcome"),
        )
    )


def place_in_time() -> pl.Expr:
    """The place of a call in its thread: branches work at once, and their rows stand together.

    Of equal times the order of rows decides; a call without a time belongs to the one before it.
    """
    began = pl.coalesce("started_at", "ended_at").fill_null(strategy="forward")
    return began.fill_null(pl.lit(0).cast(MOMENT)).rank("ordinal").over(*_THREAD)


def recorded_once(rows: pl.DataFrame, entities: pl.DataFrame) -> pl.DataFrame:
    """Calls or turns without those of a session whose transcript has its own."""
    if rows["system"].n_unique() < 2:
        return rows
    session, driver = ["source", "system", "session_id"], ["source", "system", "entity_id"]
    twice = links(entities).join(rows, left_on=TRANSCRIPT, right_on=session, how="semi")
    return rows.join(twice, left_on=session, right_on=driver, how="anti", maintain_order="left")


def recorded(facts: Facts, shape: Frame) -> pl.DataFrame:
    """What the systems of some facts record inside of runs: their calls, or their turns.

    Parameters
    ----------
    facts : Facts
    shape : Frame
        `schema.CALLS` or `schema.TURNS`, which `Runs` has functions for under these names.
    """
    present = set(facts.entities["system"].unique())
    readers = [getattr(known.runs, shape.name) for known in all_systems() if known.name in present]
    return pool([read(facts) for read in readers if read is not None], shape)


RUNS = "runs"
OF = (RUNS, "calls")
"""What can fail: runs and what belongs to them, or the calls of tools inside of runs."""
CALL = "tool_call"
"""The type that rows of calls have among failures."""
OF_SESSION = ("invocation_id", "agent", "model", "provider", "project", "playbook", "directory")
"""Columns of the session that `call_rows` adds to each call."""
_CODES = {
    **{name: f"invocation.{name}" for name in ("failed", "timed_out")},
    **dict.fromkeys(("denied", "interrupted"), "invocation.cancelled"),
}
"""The first words of the reason codes that registries of systems have for calls."""
_ENDS = {**{name: name for name in FAILURES}, "unknown": None}


def call_rows(snap: Facts, called: pl.DataFrame | None = None) -> pl.DataFrame:
    """Calls in the columns of a `population`, so that failures of calls are counted like runs.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    called : polars.DataFrame, optional
        Its `calls`, where the caller has them already.

    Returns
    -------
    polars.DataFrame
        A row for each call. ``reason_code`` is that of a call in the system's registry; null
        where it did not fail. ``run_s`` is the
        time from it until the next call of its turn, or its end, so that the failed calls of a
        row together have the time until the next progress; ``n_tokens`` are those of the answer
        that asked for it; each call is a ``unit`` of its own.
    """
    rows = calls(snap) if called is None else called
    end = pl.coalesce("ended_at", "started_at")
    # Of several failed calls in a row each has its own part of the time until the next progress.
    until = pl.coalesce(pl.col("started_at").shift(-1).over(*_THREAD, "part_id", "turn_no"), end)
    spent_s = (until - pl.col("started_at")).dt.total_microseconds() / 1e6
    word = pl.col("outcome").replace_strict(_CODES, default=None, return_dtype=pl.String)
    cause = pl.col("cause").replace({"timeout": "own_limit"})
    sessions = (
        snap.entities.filter(entity_type="session")
        .select("source", *OF_SESSION, thread_id="entity_id")
        .unique(["source", "thread_id"], keep="first")
    )
    joined = rows.join(sessions, on=["source", "thread_id"], how="left", maintain_order="left")
    ended = pl.col("outcome").replace_strict(_ENDS, default="completed", return_dtype=pl.String)
    code = pl.concat_str(word, cause, separator=".", ignore_nulls=True)
    return joined.with_columns(
        entity_type=pl.lit(CALL),
        kind="tool",
        name="target",
        outcome=ended,
        reason_code=pl.when(word.is_not_null()).then(code),
        reason_message="message",
        left_out=pl.lit(None, pl.String),
        is_mirror=pl.lit(value=False),
        is_mass=pl.lit(value=False),
        is_open=pl.col("ended_at").is_null(),
        created_at="started_at",
        placed_at=end,
        unit=pl.concat_str("source", "entity_id", separator="|"),
        run_s=spent_s.clip(0),
        n_tokens="n_answer_tokens",
        cost_usd=pl.lit(None, pl.Float64),
    ).drop("message", "cause")


NONE_ENDED = pl.DataFrame(
    schema={"cluster_id": pl.String, "run_cluster_id": pl.String, "n_runs_ended": pl.Int64}
)


def runs_ended(runs: pl.DataFrame, failed: pl.DataFrame, called: pl.DataFrame) -> pl.DataFrame:
    """The runs that ended with failed calls: one fault, seen in the calls and in the end.

    Parameters
    ----------
    runs, failed : polars.DataFrame
        `members` of runs, and of calls.
    called : polars.DataFrame
        All `calls`.

    Returns
    -------
    polars.DataFrame, shape (n_clusters, 3)
        ``cluster_id`` of calls, ``run_cluster_id`` (of several the one with most runs) and
        ``n_runs_ended``. A run ended with a call if that is its last one with a result, and
        both have one cause group; most runs of a cluster whose calls are known must have.
    """
    thread = ["source", "session_id"]
    sessions = runs.filter(entity_type=RUN).select(
        "source", "failed_at", "cause_group", run_cluster_id="cluster_id", session_id="entity_id"
    )
    ended = called.filter(pl.col("outcome") != "unknown").drop_nulls("ended_at")
    last = (
        sessions.join(ended.select(*thread, "ended_at", "entity_id"), on=thread)
        .filter(pl.col("ended_at") <= pl.col("failed_at") + pl.duration(seconds=_AT_ONCE_S))
        .sort("ended_at", maintain_order=True)
        .unique([*thread, "run_cluster_id"], keep="last", maintain_order=True)
        .with_columns(n_known=pl.len().over("run_cluster_id"))
    )
    same = last.join(
        failed.select("source", "entity_id", "cluster_id", "cause_group"),
        on=["source", "entity_id", "cause_group"],
    )
    counted = same.group_by("cluster_id", "run_cluster_id", maintain_order=True).agg(
        pl.col("n_known").first(), n_runs_ended=pl.len().cast(pl.Int64)
    )
    return (
        counted.filter(2 * pl.col("n_runs_ended") > pl.col("n_known"))
        .sort("n_runs_ended", "run_cluster_id", descending=[True, False])
        .unique("cluster_id", keep="first", maintain_order=True)
        .select(NONE_ENDED.columns)
    )


def tools(snap: Facts) -> pl.DataFrame:
    """Which tools fail most: calls by tool and outcome, with the share that failed.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.

    Returns
    -------
    polars.DataFrame
        `failures.frames.TOOLS`, most failures first; ``share`` is of calls with a result, with
        its 95 % interval by session, as calls of one session are not independent.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> sa.failures.tools(sa.demo()).is_empty()
    True
    """
    return count_tools(calls(snap))


def failed_share(called: pl.DataFrame) -> ClusteredShare:
    """The share of calls with a result that failed; calls of one session are not independent."""
    return share_by_session(called.filter(pl.col("outcome") != "unknown"))


def share_by_session(ended: pl.DataFrame) -> ClusteredShare:
    """The share of rows with an outcome that is a failure; the unit is the session."""
    units = ended.select(pl.concat_str("source", "session_id", ignore_nulls=True)).to_series()
    return clustered_share(ended["outcome"].is_in(FAILURES), units)


def count_tools(called: pl.DataFrame) -> pl.DataFrame:
    """The `tools` of some calls."""
    counts = []
    for (system, tool), some in called.group_by("system", "tool", maintain_order=True):
        share = failed_share(some)
        low, high = share.interval() or (None, None)
        n_of = Counter(some["outcome"])
        counts.append(
            {
                "system": system,
                "tool": tool,
                "n_calls": some.height,
                "n_with_result": share.n,
                "n_failed": share.n_hits,
                "n_denied": n_of["denied"],
                "n_interrupted": n_of["interrupted"],
                "n_expected": n_of["expected_nonzero"],
                "n_sessions": share.n_units,
                "share": share.n_hits / share.n if share.n else None,
                "low": low,
                "high": high,
                "failed_s": some.filter(pl.col("outcome").is_in(FAILURES))["duration_s"].sum(),
            }
        )
    shaped = TOOLS.conform(pl.DataFrame(counts, schema=TOOLS.dtypes))
    key = ("n_failed", "n_calls", "system", "tool")
    return shaped.sort(key, descending=[True, True, False, False])
