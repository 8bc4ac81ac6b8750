"""The directories of runs beside a store: ``runs/<run id>/run.json`` and ``checkpoint.json``.

Only they tell a flow's configured timeout (``config.timeout`` of its checkpoint) and when and
where each run of a session worked, and they say independently of the store how a run ended.
They are written while runs go on and never repaired, so a file may lag behind, contradict
the store, or be half there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.files import (
    as_count,
    as_moment,
    as_number,
    as_text,
    directories_in,
    legible,
    read_json_object,
)
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.findings import counted, least, per_entity
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.omissions import kinds_of_files

# ADR-0017's import rule, with the words that lionagi's importer accepts.
_STATUS = {
    "running": "running",
    "completed": "completed",
    "success": "completed",
    "completed_empty": "completed_empty",
    "failed": "failed",
    "error": "failed",
    "aborted": "aborted",
    "timed_out": "timed_out",
    "timeout": "timed_out",
    "cancelled": "cancelled",
    "canceled": "cancelled",
}
_READ = ("run.json", "checkpoint.json")
_EXIT_STATUS = {0: "completed", 1: "failed", 124: "timed_out", 130: "aborted", 143: "cancelled"}


# What the files of a directory say; ``problem`` where one cannot be read.
_SHAPE = pl.Schema(
    {
        **{name: dtype for name, dtype in frames.RUNS.dtypes.items() if name != "source"},
        "branch_id": schema.TEXT,
        "directory": schema.TEXT,
        "has_odd_timeout": schema.YES_NO,
        "problem": schema.TEXT,
        "problem_file": schema.TEXT,
    }
)


def derive_status(manifest: dict[str, Any]) -> str:
    """The status of an imported run: its status, else its exit code, else completed.

    Parameters
    ----------
    manifest : dict
        What ``run.json`` holds.

    Returns
    -------
    str
        A session status. An unknown word counts as completed, as in lionagi's importer.

    References
    ----------
    ADR-0017, "Import status derivation".

    Examples
    --------
    >>> derive_status({"status": "Timeout"}), derive_status({"exit_code": 130})
    ('timed_out', 'aborted')
    >>> derive_status({}), derive_status({"exit_code": 2})
    ('completed', 'failed')
    """
    if manifest.get("status") is not None:
        return _STATUS.get(str(manifest["status"]).lower(), "completed")
    code = manifest.get("exit_code")
    if code is None:
        return "completed"
    number = as_count(code)
    return "failed" if number is None else _EXIT_STATUS.get(number, "failed")


def read_runs(store_path: Path, source: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The run directories beside a store.

    Parameters
    ----------
    store_path : pathlib.Path
        The store; its ``runs`` directory may be absent.
    source : str
        The input, for the findings.

    Returns
    -------
    runs : polars.DataFrame
        `frames.RUNS` without ``source``, plus ``branch_id``; one
        row a directory that holds a readable file, by name.
    findings : polars.DataFrame
        ``run.unreadable`` for each file that could not be read.
    """
    folders, problem = directories_in(runs_directory(store_path))
    rows = [run for run in (_read_run(folder) for folder in folders) if run is not None]
    runs = pl.DataFrame(rows, schema=_SHAPE)
    named = runs.with_columns(entity_type=pl.lit("run"), entity_id="run_id")
    unreadable = per_entity(
        named.filter(pl.col("problem").is_not_null()),
        source,
        "run.unreadable",
        column=pl.col("problem_file"),
    )
    folder_problem = counted(
        source,
        "run.unreadable",
        int(problem is not None),
        message=f"the runs directory beside the store {problem}",
        action="no run directory was read",
    )
    odd = per_entity(
        named.filter("has_odd_timeout"),
        source,
        "timeout.unreadable",
        message="config.timeout of the checkpoint is no positive number of seconds",
        table="runs/",
        column="config.timeout",
        example=None,
    )
    kept = runs.filter(pl.col("derived_status").is_not_null() | pl.col("session_id").is_not_null())
    return kept, pool([unreadable, folder_problem, odd], schema.FINDINGS)


def link_runs(runs: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Fill in the session of each run directory, by the checkpoint, the store or a branch.

    Parameters
    ----------
    runs : polars.DataFrame
        As `read_runs` gives them.
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame
        ``runs`` in their order; ``session_id`` null where no session of the store is it.
        Where several sessions share a run id, the first that started is taken.
    """
    if runs.is_empty():
        return runs
    sessions = raw["sessions"]
    by_id = sessions.select(
        "started_at", known="id", run_id=pl.coalesce("run_id", "metadata_run_id")
    )
    imported = sessions.select("started_at", known="id", run_id="id")
    by_run = (
        pl.concat([by_id, imported])
        .join(runs.select("run_id"), on="run_id", how="semi")
        .sort("started_at", "known", nulls_last=True)
        .unique("run_id", keep="first", maintain_order=True)
        .select("run_id", by_run="known")
    )
    by_branch = (
        raw["branches"]
        .select(branch_id="id", by_branch="session_id")
        .join(runs.select("branch_id"), on="branch_id", how="semi")
        .unique("branch_id", keep="first", maintain_order=True)
    )
    return (
        runs.join(by_run, on="run_id", how="left", maintain_order="left")
        .join(by_branch, on="branch_id", how="left", maintain_order="left")
        # What the file says itself comes first; a branch names its session only indirectly.
        .with_columns(session_id=pl.coalesce("session_id", "by_run", "by_branch"))
        .drop("by_run", "by_branch")
    )


def add_timeouts(entities: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Take the configured limit of a session from its checkpoint; metadata comes second."""
    limits = (
        runs.filter(pl.col("timeout_s").is_not_null() & pl.col("session_id").is_not_null())
        .select(entity_id="session_id", checkpoint_s="timeout_s", entity_type=pl.lit("session"))
        .unique("entity_id", keep="last", maintain_order=True)
    )
    if limits.is_empty():
        return entities
    return (
        entities.join(limits, on=["entity_type", "entity_id"], how="left", maintain_order="left")
        .with_columns(
            timeout_s=pl.coalesce("checkpoint_s", "timeout_s"),
            timeout_from=pl.when(pl.col("checkpoint_s").is_not_null())
            .then(pl.lit("checkpoint"))
            .otherwise("timeout_from"),
        )
        .drop("checkpoint_s")
    )


def add_starts(entities: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Tell when and where a session was started: by its run directories, else its branches.

    Parameters
    ----------
    entities : polars.DataFrame
        All of them; of branches ``directory``.
    runs : polars.DataFrame
        As `link_runs` gives them.

    Returns
    -------
    polars.DataFrame
        ``entities``, with ``starts``; ``directory`` of a session is that of its first start.
    """
    launched = (
        entities.filter(pl.col("entity_type") == "branch")
        .drop_nulls(["directory", "session_id"])
        .sort("created_at", "entity_id", nulls_last=True)
        .group_by(entity_id="session_id")
        .agg(launched=pl.col("directory").first())
    )
    began, ended = (
        pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").fill_null("-")
        for name in ("started_at", "ended_at")
    )
    of_runs = (
        runs.drop_nulls(["session_id", "directory"])
        .filter(pl.col("is_time_from_files").not_() & ~pl.col("directory").str.contains("\n"))
        .sort("started_at", "run_id")
        .group_by(entity_id="session_id", maintain_order=True)
        .agg(
            starts=pl.format("{} {} {}", began, ended, "directory").str.join("\n"),
            ran=pl.col("directory").first(),
        )
    )
    of_sessions = of_runs.join(launched, on="entity_id", how="full", coalesce=True).with_columns(
        entity_type=pl.lit("session")
    )
    return (
        entities.drop("starts")
        .join(of_sessions, on=["entity_type", "entity_id"], how="left", maintain_order="left")
        .with_columns(directory=pl.coalesce("ran", "launched", "directory"))
        .drop("ran", "launched")
    )


def run_findings(runs: pl.DataFrame, sessions: pl.DataFrame, source: str) -> pl.DataFrame:
    """Where a run directory and the store disagree.

    Parameters
    ----------
    runs : polars.DataFrame
        As `link_runs` gives them.
    sessions : polars.DataFrame
        The sessions among the entities.
    source : str
        The input.

    Returns
    -------
    polars.DataFrame
        ``run.contradicts_store`` (another status; a *running* that lags behind an end is
        only ``info``) and ``run.not_in_store``, in the shape of findings.
    """
    if runs.is_empty():
        return schema.FINDINGS.empty()
    both = runs.join(
        sessions.select("entity_id", "raw_status"), left_on="session_id", right_on="entity_id"
    ).filter(pl.col("status").is_not_null() & (pl.col("derived_status") != pl.col("raw_status")))
    strangers = runs.join(
        sessions.select("entity_id"), left_on="session_id", right_on="entity_id", how="anti"
    )
    named = both.with_columns(entity_type=pl.lit("session"), entity_id="session_id")
    lags = pl.col("derived_status") == "running"
    return pool(
        [
            per_entity(named.filter(lags), source, "run.contradicts_store", severity="info"),
            per_entity(named.filter(~lags), source, "run.contradicts_store"),
            counted(source, "run.not_in_store", strangers.height, least(strangers, "run_id")),
        ],
        schema.FINDINGS,
    )


def runs_directory(store_path: Path) -> Path:
    """``runs`` beside the name of the store, else beside the file that a link leads to."""
    runs = store_path.parent / "runs"
    return runs if runs.is_dir() else store_path.resolve().parent / "runs"


def unread(store_path: Path) -> Mapping[str, int]:
    """The kinds of files of run directories that are not read; ``artifacts`` are work, not ours."""
    runs = runs_directory(store_path)
    opened = [folder / name for folder in directories_in(runs)[0] for name in _READ]
    kinds: Counter[str] = Counter()
    for kind, number in kinds_of_files(runs, opened, ("artifacts",)).items():
        kinds[f"runs/{kind.rpartition('/')[2]}"] += number
    return kinds


def _read_run(folder: Path) -> dict[str, Any] | None:
    manifest, checkpoint = (read_json_object(folder / name) for name in _READ)
    if manifest.value is None and checkpoint.value is None:
        problem = manifest.problem or checkpoint.problem
        if problem is None:
            return None
    run, saved = manifest.value or {}, checkpoint.value or {}
    config = saved.get("config")
    timeout = config.get("timeout") if isinstance(config, dict) else None
    limit = as_number(timeout)
    plan = saved.get("plan")
    has_manifest = manifest.value is not None
    started_at = as_moment(run.get("started_at"))
    from_file = None if started_at or not has_manifest else _file_moment(folder / "run.json")
    return {
        "run_id": legible(folder.name),
        "session_id": as_text(saved.get("session_id")),
        "branch_id": as_text(run.get("branch_id")),
        "directory": as_text(run.get("cwd")) or None,
        "status": as_text(run.get("status")),
        "derived_status": derive_status(run) if has_manifest else None,
        "kind": as_text(run.get("invocation_kind")) or as_text(run.get("kind")),
        "agent": as_text(run.get("agent_name")) or as_text(run.get("agent")),
        "model": as_text(run.get("model")),
        "started_at": started_at or from_file,
        "ended_at": as_moment(run.get("ended_at")),
        "is_time_from_files": from_file is not None if has_manifest else None,
        "timeout_s": limit if limit is not None and limit > 0 else None,
        "has_odd_timeout": timeout is not None and (limit is None or limit <= 0),
        "n_signals_dropped": as_count(run.get("signal_persist_dropped")),
        "n_planned_ops": len(plan) if isinstance(plan, list) else None,
        "problem": manifest.problem or checkpoint.problem,
        "problem_file": "run.json" if manifest.problem else "checkpoint.json",
    }


def _file_moment(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_ctime, UTC)
    except OSError:
        return None
