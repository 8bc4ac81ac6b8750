"""The directories of runs and shows next to a store, and where they and the store disagree.

Only ``runs/<run id>/run.json`` and ``checkpoint.json`` hold a flow's configured timeout
(``config.timeout`` of its checkpoint) and when and where each run of a session worked, and
they record independently of the store how a run ended. They are written while runs go on and
never repaired, so a file may lag behind, contradict the store, or be half written.

lionagi copies a show into its store once and never again (#1161), while the people and
agents who run the show go on writing its files. So the files win, and a store with
*active* next to files with *merged* is a finding.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.io import files
from stateanalytics.io.findings import all_findings
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.findings import counted, per_entity
from stateanalytics.systems.lionagi.frames import Raw
from stateanalytics.systems.omissions import kinds_of_files

# ADR-0017's import rule, with the words that lionagi's importer accepts.
_IMPORTED_STATUSES = {
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
_RUN_FILES = ("run.json", "checkpoint.json")
_EXIT_STATUSES = {0: "completed", 1: "failed", 124: "timed_out", 130: "aborted", 143: "cancelled"}
# The contents of the files of one directory; ``problem`` where one cannot be read.
_RUN_COLUMNS = pl.Schema(
    {
        **{name: dtype for name, dtype in frames.RUNS.dtypes.items() if name != "source"},
        "branch_id": schema.TEXT,
        "directory": schema.TEXT,
        "has_odd_timeout": schema.YES_NO,
        "problem": schema.TEXT,
        "problem_file": schema.TEXT,
    }
)

_ROOT_VARIABLE = "LIONAGI_SHOWS_ROOT"
_MAX_FEEDBACK = 500
_PLAY_BLOCK = re.compile(r"^\*\*(?P<name>[^*\n]{1,200})\*\*\s*$", re.MULTILINE)
_DEPENDENCIES = re.compile(r"^- deps:\s*\[(?P<names>[^\]\n]{0,2000})\]", re.MULTILINE)
# The contents of the files and their problems; the status of the store is joined later.
_SHOW_COLUMNS = pl.Schema(
    {
        **{
            name: dtype
            for name, dtype in frames.SHOWS_ON_DISK.dtypes.items()
            if name not in ("source", "store_status")
        },
        "problem": schema.TEXT,
    }
)


def derive_status(manifest: dict[str, Any]) -> str:
    """The status of an imported run: by its status, else its exit code, else completed.

    Parameters
    ----------
    manifest : dict
        The contents of ``run.json``.

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
        return _IMPORTED_STATUSES.get(str(manifest["status"]).lower(), "completed")
    code = manifest.get("exit_code")
    if code is None:
        return "completed"
    number = files.as_count(code)
    return "failed" if number is None else _EXIT_STATUSES.get(number, "failed")


def read_runs(store_path: Path, source: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The run directories next to a store, and the findings about their files.

    Parameters
    ----------
    store_path : pathlib.Path
        The store; its ``runs`` directory may be absent.
    source : str
        The input, for the findings.

    Returns
    -------
    runs : polars.DataFrame
        `frames.RUNS` without ``source``, plus ``branch_id``; one row per directory
        with a readable file, by name.
    findings : polars.DataFrame
        ``run.unreadable`` for each file that could not be read.
    """
    folders, problem = files.directories_in(runs_directory(store_path))
    rows = [run for folder in folders if (run := _read_run(folder)) is not None]
    runs = pl.DataFrame(rows, schema=_RUN_COLUMNS)
    named = runs.with_columns(entity_type=pl.lit("run"), entity_id="run_id")
    unreadable = per_entity(
        named.filter(pl.col("problem").is_not_null()),
        source,
        "run.unreadable",
        column=pl.col("problem_file"),
    )
    unreadable_folder = counted(
        source,
        "run.unreadable",
        pl.DataFrame({"problem": [problem]}).drop_nulls(),
        message=f"the runs directory next to the store {problem}",
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
    return kept, all_findings(unreadable, unreadable_folder, odd)


def link_runs(runs: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Run directories with their session, by the checkpoint, the store or a branch.

    Parameters
    ----------
    runs : polars.DataFrame
        As `read_runs` gives them.
    raw : mapping of str to polars.DataFrame
        The tables, as `frames.read_raw` gives them.

    Returns
    -------
    polars.DataFrame
        ``runs`` in their order; ``session_id`` is null where the store has none. Of several
        sessions with the same run id, the first that started is taken.
    """
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
        # The file itself comes first; a branch identifies the session only indirectly.
        .with_columns(session_id=pl.coalesce("session_id", "by_run", "by_branch"))
        .drop("by_run", "by_branch")
    )


def add_timeouts(entities: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Entities with the time limit of the checkpoint; that of the metadata comes second."""
    limits = (
        runs.filter(pl.col("timeout_s").is_not_null() & pl.col("session_id").is_not_null())
        .select(
            "timeout_s",
            entity_id="session_id",
            entity_type=pl.lit("session"),
            timeout_from=pl.lit("checkpoint"),
        )
        .unique("entity_id", keep="last", maintain_order=True)
    )
    return entities.update(limits, on=["entity_type", "entity_id"])


def add_starts(entities: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Entities with when and where each session was started, by run directories, else branches.

    Parameters
    ----------
    entities : polars.DataFrame
        With ``directory`` of branches.
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
        .agg(pl.col("directory").first(), starts=pl.lit(None, pl.String))
    )
    began, ended = (
        pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").fill_null("-")
        for name in ("started_at", "ended_at")
    )
    from_runs = (
        runs.drop_nulls(["session_id", "directory"])
        .filter(pl.col("is_time_from_files").not_() & ~pl.col("directory").str.contains("\n"))
        .sort("started_at", "run_id")
        .group_by(entity_id="session_id", maintain_order=True)
        .agg(
            starts=pl.format("{} {} {}", began, ended, "directory").str.join("\n"),
            directory=pl.col("directory").first(),
        )
    )
    started = launched.update(from_runs, on="entity_id", how="full")
    started = started.with_columns(entity_type=pl.lit("session"))
    return entities.update(started, on=["entity_type", "entity_id"])


def run_findings(runs: pl.DataFrame, entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Disagreements between run directories and the store.

    Parameters
    ----------
    runs : polars.DataFrame
        As `link_runs` gives them.
    entities : polars.DataFrame
        Those of the store.
    source : str
        The input.

    Returns
    -------
    polars.DataFrame
        ``run.contradicts_store`` (another status; only ``info`` for a *running* that lags
        behind an end) and ``run.not_in_store``, in the shape of findings.
    """
    sessions = entities.filter(pl.col("entity_type") == "session")
    both = runs.join(
        sessions.select("entity_id", "raw_status"), left_on="session_id", right_on="entity_id"
    ).filter(pl.col("status").is_not_null() & (pl.col("derived_status") != pl.col("raw_status")))
    unknown = runs.join(
        sessions.select("entity_id"), left_on="session_id", right_on="entity_id", how="anti"
    )
    named = both.with_columns(entity_type=pl.lit("session"), entity_id="session_id")
    is_lagging = pl.col("derived_status") == "running"
    return all_findings(
        per_entity(named.filter(is_lagging), source, "run.contradicts_store", severity="info"),
        per_entity(named.filter(~is_lagging), source, "run.contradicts_store"),
        counted(source, "run.not_in_store", unknown, "run_id"),
    )


def runs_directory(store_path: Path) -> Path:
    """``runs`` next to the path of the store, else next to the file that a link points to."""
    runs = store_path.parent / "runs"
    return runs if runs.is_dir() else store_path.resolve().parent / "runs"


def unread_kinds(store_path: Path) -> Mapping[str, int]:
    """Kinds of unread files in run directories; ``artifacts`` are results of work, no records."""
    runs = runs_directory(store_path)
    opened = [folder / name for folder in files.directories_in(runs)[0] for name in _RUN_FILES]
    kinds: Counter[str] = Counter()
    for kind, number in kinds_of_files(runs, opened, ("artifacts",)).items():
        kinds[f"runs/{kind.rpartition('/')[2]}"] += number
    return kinds


def _read_run(folder: Path) -> dict[str, Any] | None:
    manifest, checkpoint = (files.read_json_object(folder / name) for name in _RUN_FILES)
    problem = manifest.problem or checkpoint.problem
    if manifest.value is None and checkpoint.value is None and problem is None:
        return None
    run, saved = manifest.value or {}, checkpoint.value or {}
    config = saved.get("config")
    timeout = config.get("timeout") if isinstance(config, dict) else None
    limit = files.as_number(timeout)
    plan = saved.get("plan")
    has_manifest = manifest.value is not None
    started_at = files.as_moment(run.get("started_at"))
    from_file = None if started_at or not has_manifest else _file_moment(folder / "run.json")
    return {
        "run_id": files.legible(folder.name),
        "session_id": files.as_text(saved.get("session_id")),
        "branch_id": files.as_text(run.get("branch_id")),
        "directory": files.as_text(run.get("cwd")) or None,
        "status": files.as_text(run.get("status")),
        "derived_status": derive_status(run) if has_manifest else None,
        "kind": files.as_text(run.get("invocation_kind")) or files.as_text(run.get("kind")),
        "agent": files.as_text(run.get("agent_name")) or files.as_text(run.get("agent")),
        "model": files.as_text(run.get("model")),
        "started_at": started_at or from_file,
        "ended_at": files.as_moment(run.get("ended_at")),
        "is_time_from_files": from_file is not None if has_manifest else None,
        "timeout_s": limit if limit is not None and limit > 0 else None,
        "has_odd_timeout": timeout is not None and (limit is None or limit <= 0),
        "n_signals_dropped": files.as_count(run.get("signal_persist_dropped")),
        "n_planned_ops": len(plan) if isinstance(plan, list) else None,
        "problem": problem,
        "problem_file": "run.json" if manifest.problem else "checkpoint.json",
    }


def _file_moment(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(path.stat().st_ctime, UTC)
    except OSError:
        return None


def find_shows(
    raw: Raw, store_path: Path, environment: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """The directory of each show: the stored one, else next to the store, else the usual root.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `frames.read_raw` gives them.
    store_path : pathlib.Path
        The store; ``shows`` is looked for next to it and next to its directory.
    environment : mapping of str to str
        Where ``LIONAGI_SHOWS_ROOT`` may be set.

    Returns
    -------
    dict of str to pathlib.Path
        Topic to directory, by topic, with shows that were never imported.
    """
    shows: dict[str, Path] = {}
    for folder in stored_folders(raw):
        if _looks_like_a_show(folder):
            shows.setdefault(folder.name, folder)
    for root in show_roots(store_path, environment):
        for folder in files.directories_in(root)[0]:
            if _looks_like_a_show(folder):
                shows.setdefault(files.legible(folder.name), folder)
    return dict(sorted(shows.items()))


def stored_folders(raw: Raw) -> list[Path]:
    """The directories of shows that the store names, whether they exist or not."""
    named = raw["shows"].select("topic", "show_dir").drop_nulls().rows()
    # lionagi names the directory after the show. Anything else in this column was not
    # written by lionagi, and an arbitrary path from a store must not be followed.
    return [
        folder
        for topic, place in named
        if (folder := Path(place)).is_absolute() and folder.name == topic
    ]


def show_roots(store_path: Path, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Possible roots of shows: next to the store, next to its directory, in the variable."""
    home = store_path.resolve().parent
    named = environment.get(_ROOT_VARIABLE)
    elsewhere = [Path(named).expanduser()] if named else []
    return [home / "shows", home.parent / "shows", *elsewhere]


def read_shows(shows: Mapping[str, Path], raw: Raw) -> pl.DataFrame:
    """Status and problems of the files of shows and plays, with the status of the store.

    Parameters
    ----------
    shows : mapping of str to pathlib.Path
        As `find_shows` gives them.
    raw : mapping of str to polars.DataFrame
        The tables, as `frames.read_raw` gives them.

    Returns
    -------
    polars.DataFrame
        `frames.SHOWS_ON_DISK` without ``source``, plus ``problem``,
        ``entity_type`` and ``entity_id`` (null: not in the store); a show before its plays.
    """
    rows = [row for topic, folder in shows.items() for row in _read_show(topic, folder)]
    disk = pl.DataFrame(rows, schema=_SHOW_COLUMNS)
    stored_shows = raw["shows"].select(
        "topic",
        play=pl.lit(None, pl.String),
        entity_type=pl.lit("show"),
        entity_id="id",
        store_status="status",
    )
    topics = raw["shows"].select("topic", show_id="id")
    stored_plays = (
        raw["plays"]
        .join(topics, on="show_id", how="inner")
        .select(
            "topic", play="name", entity_type=pl.lit("play"), entity_id="id", store_status="status"
        )
    )
    stored = pl.concat([stored_shows, stored_plays]).unique(
        ["topic", "play"], keep="first", maintain_order=True
    )
    return disk.join(
        stored, on=["topic", "play"], how="left", nulls_equal=True, maintain_order="left"
    )


def show_findings(disk: pl.DataFrame, source: str) -> pl.DataFrame:
    """Disagreements between the files of shows and plays and the store.

    Parameters
    ----------
    disk : polars.DataFrame
        As `read_shows` gives it.
    source : str
        The input.

    Returns
    -------
    polars.DataFrame
        ``show.disk_differs``, ``play.disk_differs``, ``show.unreadable`` and, counted,
        ``show.not_in_store``, in the shape of findings.
    """
    is_show = pl.col("play").is_null()
    # The store has no type for unknown ones: the directory gives it.
    typed = disk.with_columns(
        entity_type=pl.when(is_show).then(pl.lit("show")).otherwise(pl.lit("play")),
        named=pl.format("{}/{}", "topic", pl.col("play").fill_null("")),
    )
    is_known = pl.col("entity_id").is_not_null()
    differs = typed.filter(is_known, pl.col("disk_status") != pl.col("store_status"))
    return all_findings(
        per_entity(differs.filter(is_show), source, "show.disk_differs"),
        per_entity(differs.filter(~is_show), source, "play.disk_differs"),
        per_entity(typed.filter(pl.col("problem").is_not_null()), source, "show.unreadable"),
        counted(source, "show.not_in_store", typed.filter(~is_known), "named"),
    )


def dependencies(show_text: str) -> dict[str, list[str]]:
    r"""The plays that each play of ``_show.md`` waits for.

    Parameters
    ----------
    show_text : str
        The file: a block ``**name**`` for each play, with a line ``- deps: [a, b]``.

    Returns
    -------
    dict of str to list of str
        Only plays with such a line; the store itself never records dependencies.

    Examples
    --------
    >>> dependencies("**api**\n- deps: [schema]\n\n**ui**\n- deps: [api, docs]\n")
    {'api': ['schema'], 'ui': ['api', 'docs']}
    """
    by_play: dict[str, list[str]] = {}
    heads = list(_PLAY_BLOCK.finditer(show_text))
    ends = [*(head.start() for head in heads[1:]), len(show_text)]
    for head, end in zip(heads, ends, strict=False):
        line = _DEPENDENCIES.search(show_text, head.end(), end)
        if line is not None:
            names = [name.strip() for name in line["names"].split(",")]
            by_play.setdefault(head["name"].strip(), [name for name in names if name])
    return by_play


def _looks_like_a_show(folder: Path) -> bool:
    return _has_any(folder, ("_show.md", "_final_verdict.json", "_ABORT")) or any(
        _has_any(play, ("_meta.json",)) for play in files.directories_in(folder)[0]
    )


def _has_any(folder: Path, names: tuple[str, ...]) -> bool:
    try:
        return any((folder / name).exists() for name in names)
    except OSError:
        return False


def _read_show(topic: str, folder: Path) -> list[dict[str, Any]]:
    text, text_problem = files.read_text(folder / "_show.md")
    waits_for = dependencies(text or "")
    plays = [
        _read_play(topic, play, waits_for.get(play.name))
        for play in files.directories_in(folder)[0]
    ]
    verdict = files.read_json_object(folder / "_final_verdict.json")
    passed = (verdict.value or {}).get("show_passed")
    is_aborted = _has_any(folder, ("_ABORT",))
    statuses = [play["disk_status"] for play in plays]
    show = {
        "topic": topic,
        "play": None,
        "disk_status": _show_status(is_aborted, bool(passed), statuses),
        "is_show_passed": passed if isinstance(passed, bool) else None,
        "has_abort_sentinel": is_aborted,
        "feedback": _shortened((verdict.value or {}).get("summary")),
        "problem": _problem({"_show.md": text_problem, "_final_verdict.json": verdict.problem}),
    }
    return [show, *plays]


def _show_status(is_aborted: bool, is_passed: bool, plays: list[str | None]) -> str:
    """The status that lionagi's importer would give the show now; the first rule that holds."""
    if is_aborted:
        return "aborted"
    are_merged = bool(plays) and all(status == "merged" for status in plays)
    return "completed" if is_passed or are_merged else "active"


def _read_play(topic: str, folder: Path, waits_for: list[str] | None) -> dict[str, Any]:
    meta = files.read_json_object(folder / "_meta.json")
    verdict = files.read_json_object(folder / "_verdict.json")
    passed = (verdict.value or {}).get("gate_passed")
    # A play that has not begun has no file yet; with a broken file its status is unknown.
    status = None if meta.problem else files.as_text((meta.value or {}).get("status", "pending"))
    return {
        "topic": topic,
        "play": files.legible(folder.name),
        "disk_status": status,
        "is_gate_passed": passed if isinstance(passed, bool) else None,
        "depends_on": None if waits_for is None else json.dumps(waits_for),
        "feedback": _shortened((verdict.value or {}).get("feedback")),
        "problem": _problem({"_meta.json": meta.problem, "_verdict.json": verdict.problem}),
    }


def _shortened(value: object) -> str | None:
    text = files.as_text(value)
    return None if text is None else text[:_MAX_FEEDBACK]


def _problem(problems: Mapping[str, str | None]) -> str | None:
    sentences = [f"{name} is {problem}" for name, problem in problems.items() if problem]
    return "; ".join(sentences) or None
