"""The directories of shows: what the files say about a show and its plays.

lionagi copies a show into its store once and never again (#1161), while the people and
agents who run the show go on writing its files. So the files win, and a store that says
*active* beside files that say *merged* is a finding.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.files import as_text, directories_in, legible, read_json_object, read_text
from stateanalytics.systems.lionagi import frames
from stateanalytics.systems.lionagi.findings import counted, per_entity
from stateanalytics.systems.lionagi.raw import Raw

ROOT_VARIABLE = "LIONAGI_SHOWS_ROOT"
MAX_FEEDBACK = 500
_PLAY_BLOCK = re.compile(r"^\*\*(?P<name>[^*\n]{1,200})\*\*\s*$", re.MULTILINE)
_DEPENDENCIES = re.compile(r"^- deps:\s*\[(?P<names>[^\]\n]{0,2000})\]", re.MULTILINE)


# What the files say, and what is wrong with them; what the store says is joined to it.
_SHAPE = pl.Schema(
    {
        **{
            name: dtype
            for name, dtype in frames.SHOWS_ON_DISK.dtypes.items()
            if name not in ("source", "store_status")
        },
        "problem": schema.TEXT,
    }
)


def find_shows(
    raw: Raw, store_path: Path, environment: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """The directory of each show: where the store says, else beside it, else the usual root.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.
    store_path : pathlib.Path
        The store; ``shows`` is looked for beside it and beside its directory.
    environment : mapping of str to str
        Where ``LIONAGI_SHOWS_ROOT`` may be set.

    Returns
    -------
    dict of str to pathlib.Path
        Topic to directory, by topic; shows that were never imported among them.
    """
    shows: dict[str, Path] = {}
    for folder in stored_folders(raw):
        if _looks_like_a_show(folder):
            shows.setdefault(folder.name, folder)
    for root in show_roots(store_path, environment):
        for folder in directories_in(root)[0]:
            if _looks_like_a_show(folder):
                shows.setdefault(legible(folder.name), folder)
    return dict(sorted(shows.items()))


def stored_folders(raw: Raw) -> list[Path]:
    """The directories that the store says shows lie in, whether they are there or not."""
    named = raw["shows"].select("topic", "show_dir").drop_nulls().rows()
    # lionagi names the directory after the show. Anything else in this column was not
    # written by it, and a path out of a store is not followed on its word alone.
    return [
        folder
        for topic, place in named
        if (folder := Path(place)).is_absolute() and folder.name == topic
    ]


def show_roots(store_path: Path, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where shows may lie: beside the store, beside its directory, where the variable says."""
    home = store_path.resolve().parent
    named = environment.get(ROOT_VARIABLE)
    elsewhere = [Path(named).expanduser()] if named else []
    return [home / "shows", home.parent / "shows", *elsewhere]


def read_shows(shows: Mapping[str, Path], raw: Raw) -> pl.DataFrame:
    """What the files of the shows say, beside what the store says.

    Parameters
    ----------
    shows : mapping of str to pathlib.Path
        As `find_shows` gives them.
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame
        `frames.SHOWS_ON_DISK` without ``source``, plus ``problem``,
        ``entity_type`` and ``entity_id`` (null: not in the store); a show before its plays.
    """
    rows = [row for topic, folder in shows.items() for row in _read_show(topic, folder)]
    disk = pl.DataFrame(rows, schema=_SHAPE)
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
            "topic",
            play="name",
            entity_type=pl.lit("play"),
            entity_id="id",
            store_status="status",
        )
    )
    stored = pl.concat([stored_shows, stored_plays]).unique(
        ["topic", "play"], keep="first", maintain_order=True
    )
    return disk.join(
        stored, on=["topic", "play"], how="left", nulls_equal=True, maintain_order="left"
    )


def show_findings(disk: pl.DataFrame, source: str) -> pl.DataFrame:
    """Where the files and the store disagree about a show or a play.

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
    # What the store does not know has the type that its directory says.
    typed = disk.with_columns(
        entity_type=pl.when(is_show).then(pl.lit("show")).otherwise(pl.lit("play")),
        named=pl.format("{}/{}", "topic", pl.col("play").fill_null("")),
    )
    is_known = pl.col("entity_id").is_not_null()
    differs = typed.filter(is_known, pl.col("disk_status") != pl.col("store_status"))
    strangers = typed.filter(~is_known)
    example = None if strangers.is_empty() else strangers["named"][0]
    return pool(
        [
            per_entity(differs.filter(is_show), source, "show.disk_differs"),
            per_entity(differs.filter(~is_show), source, "play.disk_differs"),
            per_entity(typed.filter(pl.col("problem").is_not_null()), source, "show.unreadable"),
            counted(source, "show.not_in_store", strangers.height, example),
        ],
        schema.FINDINGS,
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
    marks = ("_show.md", "_final_verdict.json", "_ABORT")
    try:
        return any((folder / mark).exists() for mark in marks) or any(
            (play / "_meta.json").exists() for play in directories_in(folder)[0]
        )
    except OSError:
        return False


def _read_show(topic: str, folder: Path) -> list[dict[str, Any]]:
    text, text_problem = read_text(folder / "_show.md")
    waits_for = dependencies(text or "")
    plays = [
        _read_play(topic, play, waits_for.get(play.name)) for play in directories_in(folder)[0]
    ]
    verdict = read_json_object(folder / "_final_verdict.json")
    passed = (verdict.value or {}).get("show_passed")
    is_aborted = _exists(folder / "_ABORT")
    statuses = [play["disk_status"] for play in plays]
    problems = {"_show.md": text_problem, "_final_verdict.json": verdict.problem}
    show = {
        "topic": topic,
        "play": None,
        "disk_status": _show_status(is_aborted, bool(passed), statuses),
        "is_show_passed": passed if isinstance(passed, bool) else None,
        "has_abort_sentinel": is_aborted,
        "feedback": _shortened((verdict.value or {}).get("summary")),
        "problem": _joined(problems),
    }
    return [show, *plays]


def _show_status(is_aborted: bool, is_passed: bool, plays: list[str | None]) -> str:
    """The status that lionagi's importer would give the show now, in its order."""
    if is_aborted:
        return "aborted"
    if is_passed:
        return "completed"
    if plays and all(status == "merged" for status in plays):
        return "completed"
    return "active"


def _read_play(topic: str, folder: Path, waits_for: list[str] | None) -> dict[str, Any]:
    meta = read_json_object(folder / "_meta.json")
    verdict = read_json_object(folder / "_verdict.json")
    passed = (verdict.value or {}).get("gate_passed")
    # A play that nobody began has no file yet; one whose file is broken is not known.
    status = None if meta.problem else as_text((meta.value or {}).get("status", "pending"))
    return {
        "topic": topic,
        "play": legible(folder.name),
        "disk_status": status,
        "is_gate_passed": passed if isinstance(passed, bool) else None,
        "depends_on": None if waits_for is None else json.dumps(waits_for),
        "feedback": _shortened((verdict.value or {}).get("feedback")),
        "problem": _joined({"_meta.json": meta.problem, "_verdict.json": verdict.problem}),
    }


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _shortened(value: object) -> str | None:
    text = as_text(value)
    return None if text is None else text[:MAX_FEEDBACK]


def _joined(problems: Mapping[str, str | None]) -> str | None:
    sentences = [f"{name} is {problem}" for name, problem in problems.items() if problem]
    return "; ".join(sentences) or None
