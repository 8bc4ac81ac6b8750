"""States and reasons of a million sessions, and of ten million out of core."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.measure import Row, median_s, peak_mb, side_by_side
from stateanalytics.core import schema

AS_OF = datetime(2026, 5, 27, tzinfo=UTC)
NOW_US = int(AS_OF.timestamp()) * 1_000_000

# The mix of a long-lived store: most work is over, one in thirty still runs and half of
# that has been silent for too long, a third had a contract, some rows never got a status.
STATUSES = (
    *["completed"] * 20,
    *["failed"] * 4,
    *["running", "timed_out", "cancelled", "aborted", "completed_empty", None],
)
REASONS = {
    "completed": "run.completed.ok",
    "running": "run.started.ok",
    "failed": "run.failed.exception",
    "timed_out": "run.timed_out.deadline",
    "cancelled": "run.cancelled.system",
    "aborted": "run.aborted.user",
    "completed_empty": "run.completed_empty.no_evidence",
}
KINDS = ("agent", "play", "flow", "fanout", "show-play", None)
VERDICTS = ("passed", "passed", "passed", "warning", "failed")
SECOND = 1_000_000


def entities(n_rows: int, seed: int = 1) -> pl.DataFrame:
    """Canonical entities of ``n_rows`` sessions, all columns, the same for the same seed."""
    row = pl.col("row")

    def number(salt: int, below: int) -> pl.Expr:
        return (row.hash(seed * 100 + salt) % below).cast(pl.Int64)

    def one_of(salt: int, words: tuple[str | None, ...]) -> pl.Expr:
        return pl.lit(pl.Series(words)).gather(number(salt, len(words)).cast(pl.UInt32))

    def moment(microseconds: pl.Expr) -> pl.Expr:
        return microseconds.cast(pl.Datetime("us", "UTC"))

    is_running = (pl.col("raw_status") == "running").fill_null(value=False)
    started = NOW_US - number(3, 7 * 86_400) * SECOND
    ended = pl.col("started_us") + number(4, 7_200) * SECOND
    last = pl.when(is_running).then(NOW_US - number(5, 60_000) * SECOND).otherwise(ended)
    rows = (
        pl.select(row=pl.int_range(n_rows, dtype=pl.UInt32))
        .lazy()
        .with_columns(
            raw_status=one_of(1, STATUSES),
            kind=one_of(2, KINDS),
            started_us=started,
            has_contract=number(8, 3) == 0,
        )
        .with_columns(last_us=last)
        .with_columns(
            source=pl.lit("state.db"),
            system=pl.lit("lionagi"),
            entity_type=pl.lit("session"),
            entity_id=pl.format(f"c719e353-ed34-4947-{seed:04}-{{}}", row),
            started_at=moment(pl.col("started_us")),
            ended_at=moment(pl.when(~is_running).then("last_us")),
            updated_at=moment(pl.col("last_us")),
            last_message_at=moment(pl.col("last_us")),
            last_activity_at=moment(pl.col("last_us")),
            is_end_approximate=number(9, 50) == 0,
            n_messages=number(6, 12),
            has_artifacts=number(7, 4) > 0,
            reason_code=pl.col("raw_status").replace_strict(REASONS, default=None),
            reason_message=pl.lit("Run ended as its process said that it would."),
            evidence=pl.when(number(11, 4) == 0).then(pl.lit('[{"kind":"session","id":"x"}]')),
            is_contract_valid=pl.when("has_contract").then(pl.lit(value=True)),
            n_expected=pl.when("has_contract").then(2),
            verdict=pl.when(pl.col("has_contract") & ~is_running).then(one_of(10, VERDICTS)),
        )
        .with_columns(
            session_id=pl.col("entity_id"),
            is_verdict_valid=pl.when(pl.col("verdict").is_not_null()).then(pl.lit(value=True)),
            n_required_missing=pl.when(pl.col("verdict") == "failed").then(1),
            n_produced=pl.when(pl.col("verdict").is_not_null()).then(1),
        )
    )
    return schema.ENTITIES.conform(rows.collect())


def row_by_row(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The peer: the same two frames by a loop over rows."""
    return framed(*looped(as_lionagi_rows(frame)))


def framed(judged: list[Any], explained: list[Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rows of a loop as frames."""
    return (
        pl.DataFrame(judged, orient="row", infer_schema_length=1000),
        pl.DataFrame(explained, orient="row", infer_schema_length=1000),
    )


def looped(rows: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """States and reasons of rows that are ready, one after the other, as tuples.

    Health is lionagi's own classifier, severity the ADR's function; the rest is what a
    careful person would write: a dict lookup per axis, the display chain, the reasons.
    """
    from lionagi.state.health import classify_session_health

    now = AS_OF.timestamp()
    judged, explained = [], []
    for row in rows:
        status = row["status"]
        word = classify_session_health(
            row,
            now=now,
            process_alive=row["process_alive"],
            has_artifacts=row["has_artifacts"],
            has_stale_locks=row["has_stale_locks"],
        ).value
        is_over = status != "running"
        health = ("ok" if is_over else "running") if word == "healthy" else _TRANSLATED[word]
        outcome = None if not is_over else _OUTCOMES.get(status, "unknown")
        delivery = _DELIVERIES.get(row["verdict"], "not_expected")
        severity, tone, rule = cascade(outcome, health, delivery)
        parts = [_label(outcome or "running")]
        if not (health == "ok" and is_over):
            parts.append(_label(health))
        if delivery in ("partial", "missing"):
            parts.append("Artifacts " + delivery)
        key = ("state.db", "lionagi", "session", row["entity_id"])
        codes = []
        if row["reason_code"]:
            codes.append(row["reason_code"])
            evidence, certain = row["evidence"], 0.8 if row["is_end_approximate"] else 1.0
            reason = (*key, 0, "lifecycle", row["reason_code"], row["reason_message"])
            explained.append((*reason, "observed", certain, evidence))
        if health in ("idle", "stalled", "orphaned"):
            codes.append("run.health." + health)
            detail = f"silent for {(now - row['last_message_at']) // 60:.0f} min"
            reason = (*key, 1, "health", codes[-1], f"No sign of life: {detail}.")
            explained.append((*reason, "inferred", 0.8, _EVIDENCE % detail))
        if delivery in ("partial", "missing"):
            codes.append("run.delivery." + delivery)
            reason = (*key, 2, "delivery", codes[-1], "Outputs are missing.")
            explained.append((*reason, "inferred", 1.0, _EVIDENCE % delivery))
        chain, joined = " · ".join(parts), ", ".join(codes)
        state = (*key, status, outcome, health, delivery, severity, tone, rule, chain, joined)
        judged.append((*state, now - row["started_at"], now - row["last_message_at"]))
    return judged, explained


_EVIDENCE = '[{"kind":"rule","id":"silence_over_threshold","detail":"%s"}]'
_TRANSLATED = {
    "idle": "idle",
    "unresponsive": "stalled",
    "stale": "stalled",
    "orphaned": "orphaned",
    "zombie": "degraded",
}
_OUTCOMES = {
    "completed_empty": "completed",
    **{word: word for word in ("completed", "failed", "timed_out", "cancelled", "aborted")},
}
_DELIVERIES = {"failed": "missing", "warning": "partial", "passed": "passed"}


def _label(word: str) -> str:
    return word.replace("_", " ").capitalize()


def only_classified(rows: list[dict[str, Any]]) -> list[object]:
    """The least a loop can do: the classifier and the cascade, rows ready, nothing kept."""
    from lionagi.state.health import classify_session_health

    now = AS_OF.timestamp()
    return [
        cascade(
            row["status"],
            classify_session_health(
                row,
                now=now,
                process_alive=row["process_alive"],
                has_artifacts=row["has_artifacts"],
                has_stale_locks=row["has_stale_locks"],
            ).value,
            row["verdict"],
        )
        for row in rows
    ]


def cascade(outcome: object, health: object, delivery: object) -> tuple[str, str, int]:
    """ADR-0033's ``derive_severity``, retyped."""
    if outcome in ("failed", "aborted"):
        return "critical", "danger", 1
    if health in ("process_dead", "orphaned"):
        return "critical", "danger", 2
    if delivery == "missing":
        return "critical", "danger", 3
    if health == "stalled":
        return "critical", "danger", 4
    if health == "misfired":
        return "critical", "danger", 5
    if outcome == "timed_out":
        return "warning", "warning", 6
    if health in ("idle", "degraded", "disconnected"):
        return "warning", "warning", 7
    if delivery in ("partial", "invalid"):
        return "warning", "warning", 8
    if health == "running":
        return "info", "info", 9
    if health == "due":
        return "info", "info", 10
    if outcome == "skipped":
        return "info", "neutral", 11
    if outcome in ("succeeded", "completed", "merged"):
        return "neutral", "success", 12
    if outcome == "cancelled":
        return "neutral", "neutral", 13
    return "neutral", "neutral", 14


def as_lionagi_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """What lionagi's functions take: dicts with epoch seconds."""
    at = pl.col("last_message_at", "updated_at", "started_at").dt.epoch("us") / 1e6
    kept = ("entity_id", "reason_code", "reason_message", "evidence", "is_end_approximate")
    return frame.select(
        at,
        "process_alive",
        "has_artifacts",
        "has_stale_locks",
        "verdict",
        *kept,
        status="raw_status",
        invocation_kind="kind",
        message_count="n_messages",
    ).to_dicts()


def write_parts(folder: Path, n_rows: int, part_rows: int = 500_000) -> None:
    """Parquet files of sessions, so that what is measured never held them all."""
    for part in range(-(-n_rows // part_rows)):
        size = min(part_rows, n_rows - part * part_rows)
        entities(size, part + 1).write_parquet(folder / f"part-{part:03}.parquet")


def out_of_core(folder: str) -> None:
    """Parquet in, states, Parquet out, in DuckDB under a memory limit."""
    import duckdb

    from stateanalytics.state.states import states

    connection = duckdb.connect()
    connection.execute("SET memory_limit = '300MB'")
    connection.execute("SET threads = 2")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"SET temp_directory = '{folder}/spill'")
    relation = connection.read_parquet(f"{folder}/part-*.parquet")
    states(relation, as_of=AS_OF).write_parquet(f"{folder}/states.parquet")


def run(n_sessions: int = 1_000_000) -> list[Row]:
    """Goals of the issue: 20 × the loop, below .3 s, and below 500 MB out of core."""
    from stateanalytics.state.states import states_and_reasons

    frame = entities(n_sessions)
    rows = as_lionagi_rows(frame)
    lists = looped(rows)
    dicts_s = median_s(partial(as_lionagi_rows, frame), 3)
    frames_s = median_s(partial(framed, *lists), 3)
    bare_s = median_s(partial(only_classified, rows), 3)
    del lists

    def ours() -> object:
        return states_and_reasons(frame, as_of=AS_OF)

    ours_s, loop_s = side_by_side(ours, partial(looped, rows))
    del rows
    again_s, whole_s = side_by_side(ours, partial(row_by_row, frame))
    limit_s = 0.3 * n_sessions / 1_000_000
    work = f"states and reasons of {n_sessions:,} sessions, frame to frames"
    return [
        Row(
            work,
            again_s,
            "a loop over rows with lionagi's classifier",
            whole_s,
            "20 ×, < .3 s",
            again_s < limit_s and whole_s / again_s >= 20,
            f"of the loop's, to_dicts {dicts_s:.2g} s and making the frames {frames_s:.2g} s",
            differs="fewer columns, and only the rules that sessions of one system need",
        ),
        Row(
            work,
            ours_s,
            "the loop alone",
            loop_s,
            "none: what of it is the loop's",
            is_met=True,
            note=f"the classifier and the cascade alone, nothing kept: {bare_s:.2g} s",
            differs="begins at dicts and ends at tuples; ours begins and ends at frames",
        ),
        _out_of_core_row(10 * n_sessions),
    ]


def _out_of_core_row(n_rows: int) -> Row:
    import time

    with tempfile.TemporaryDirectory() as folder:
        write_parts(Path(folder), n_rows)
        work: Callable[[], None] = partial(out_of_core, folder)
        begun = time.perf_counter()
        peak = peak_mb(work)
        spent_s = time.perf_counter() - begun
    return Row(
        f"states of {n_rows:,} sessions, DuckDB, Parquet to Parquet",
        spent_s,
        "peak memory",
        None,
        "< 500 MB",
        peak < 500,
        f"{peak:.0f} MB",
    )
