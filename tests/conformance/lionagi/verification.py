"""Did a run produce what it promised: contract and directory listing to verdict.

The promise is lionagi's artifact contract (its ADR-0029): outputs with an id, a path
below the artifacts directory, and whether each is required. An empty file is as good as
none, and a bare file name may also be found one directory down, where a run of several
agents writes it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.engines import TEXT, YES_NO, adapt, optional
from stateanalytics.core.vocabulary import EXIT_CODES
from stateanalytics.errors import MissingColumnsError
from stateanalytics.systems.lionagi.contracts import is_valid_contract, parse

NOT_RECORDED = "not_recorded"
TERMINAL_STATUSES = tuple(EXIT_CODES)
_GLOB = "*?[]{}~"

_EXPECTED = pl.Schema(
    {
        "contract": pl.String(),
        "position": pl.Int64(),
        "id": pl.String(),
        "path": pl.String(),
        "is_required": pl.Boolean(),
        "is_bare": pl.Boolean(),
    }
)
_JUDGED = pl.Schema({"contract": pl.String(), "is_contract_valid": pl.Boolean()})


def verify_contracts(
    contracts: pl.DataFrame, files: pl.DataFrame, *, by: str = "entity_id"
) -> pl.DataFrame:
    """The verdict on each contract, from a listing of the files that are there.

    Parameters
    ----------
    contracts : polars.DataFrame
        ``by`` (unique) and ``contract``: JSON text; null or ``null`` where nothing was
        promised.
    files : polars.DataFrame
        ``by``, ``path`` (of a regular file, relative to the artifacts directory, with
        ``/``) and ``size_bytes``. No rows: no directory, or an empty one.
    by : str, default "entity_id"
        The column that says whose contract and whose directory it is.

    Returns
    -------
    polars.DataFrame
        One row a contract, in their order: ``by``; ``is_contract_valid`` (null where
        nothing was promised); ``verdict`` (passed, warning, failed; null without a valid
        contract); the counts ``n_expected``, ``n_required_missing``,
        ``n_optional_missing``, ``n_produced``; ``missing_required`` and
        ``missing_optional`` (ids) and ``produced`` (``id:path:size``), joined by ``|`` in
        the order of the contract, null where empty.

    Examples
    --------
    >>> promised = '{"expected": [{"id": "a", "path": "review.md"}]}'
    >>> contracts = pl.DataFrame({"entity_id": ["s1"], "contract": [promised]})
    >>> files = pl.DataFrame({"entity_id": ["s1"], "path": ["critic/review.md"],
    ...                       "size_bytes": [2]})
    >>> verify_contracts(contracts, files).select("verdict", "produced").row(0)
    ('passed', 'a:critic/review.md:2')
    """
    _check(contracts, (by, "contract"))
    _check(files, (by, "path", "size_bytes"))
    texts = contracts["contract"].cast(pl.String)
    judged, expected = _read(texts)
    outputs = (
        contracts.select(by, contract=texts)
        .join(expected, on="contract", how="inner")
        .pipe(_find, files.with_columns(pl.col("path").cast(pl.String)), by)
    )
    return (
        contracts.select(by, contract=texts)
        .join(judged, on="contract", how="left", maintain_order="left")
        .join(_summed_up(outputs, by), on=by, how="left", maintain_order="left")
        .with_columns(_known_only(column) for column in _COUNTS)
        .with_columns(verdict=_verdict())
        .select(by, "is_contract_valid", "verdict", *_COUNTS, *_LISTS)
    )


_COUNTS = ("n_expected", "n_required_missing", "n_optional_missing", "n_produced")
_LISTS = ("missing_required", "missing_optional", "produced")


def _check(frame: pl.DataFrame, needed: tuple[str, ...]) -> None:
    if missing := [name for name in needed if name not in frame.columns]:
        raise MissingColumnsError.of(missing, frame.columns, "verify_contracts")


def _read(texts: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Judge each distinct contract, and take it apart into the outputs it promises."""
    judged, outputs = [], []
    for text in texts.drop_nulls().unique(maintain_order=True).to_list():
        try:
            contract = parse(text)
        except ValueError:
            judged.append((text, False))
            continue
        if contract is None:
            continue
        is_valid = is_valid_contract(contract)
        judged.append((text, is_valid))
        if is_valid:
            outputs += [
                (text, position, entry["id"], *_path(entry["path"]), entry.get("required", True))
                for position, entry in enumerate(contract["expected"])
            ]
    order = ["contract", "position", "id", "path", "is_bare", "is_required"]
    shape = {name: _EXPECTED[name] for name in order}
    return (
        pl.DataFrame(judged, schema=_JUDGED, orient="row"),
        pl.DataFrame(outputs, schema=shape, orient="row"),
    )


def _path(path: str) -> tuple[str, bool]:
    """The path as a listing would write it, and whether it is a bare name."""
    parts = PurePosixPath(path).parts
    return "/".join(parts), len(parts) == 1


def _find(outputs: pl.DataFrame, files: pl.DataFrame, by: str) -> pl.DataFrame:
    """Where each output was found: at its path, else in the first subdirectory that has it."""
    here = files.select(by, "path", size="size_bytes", found="path").unique([by, "path"])
    parts = pl.col("path").str.split("/")
    below = (
        files.filter(parts.list.len() == 2)
        .with_columns(directory=parts.list.first(), name=parts.list.last())
        # A directory that no contract could name is none that a run has written to.
        .filter(~pl.col("directory").str.contains_any(list(_GLOB)))
        .sort(by, "name", "directory")
        .unique([by, "name"], keep="first", maintain_order=True)
        .select(by, path="name", is_bare=pl.lit(True), size_below="size_bytes", found_below="path")
    )
    return (
        outputs.join(here, on=[by, "path"], how="left", maintain_order="left")
        .join(below, on=[by, "path", "is_bare"], how="left", maintain_order="left")
        .with_columns(
            found=pl.coalesce("found", "found_below"),
            size=pl.when(pl.col("found").is_null())
            .then(pl.col("size_below"))
            .otherwise(pl.col("size")),
        )
        .with_columns(is_there=(pl.col("size") > 0).fill_null(False))
    )


def _summed_up(outputs: pl.DataFrame, by: str) -> pl.DataFrame:
    is_there, is_required = pl.col("is_there"), pl.col("is_required")
    produced = pl.format("{}:{}:{}", "id", "found", "size")
    groups = {
        "required_missing": ("missing_required", pl.col("id"), ~is_there & is_required),
        "optional_missing": ("missing_optional", pl.col("id"), ~is_there & ~is_required),
        "produced": ("produced", produced, is_there),
    }
    return (
        outputs.sort(by, "position")
        .group_by(by)
        .agg(
            n_expected=pl.len().cast(schema.INTEGER),
            **{
                f"n_{count}": test.sum().cast(schema.INTEGER)
                for count, (_, _, test) in groups.items()
            },
            **{name: text.filter(test).str.join("|") for name, text, test in groups.values()},
        )
        .with_columns(pl.col(*_LISTS).replace("", None))
    )


def _known_only(column: str) -> pl.Expr:
    """A contract without entries counts nothing; one that cannot be read is not counted."""
    return pl.when(pl.col("is_contract_valid")).then(pl.col(column).fill_null(0)).alias(column)


def _verdict() -> pl.Expr:
    return (
        pl.when(pl.col("n_required_missing") > 0)
        .then(pl.lit("failed"))
        .when(pl.col("n_optional_missing") > 0)
        .then(pl.lit("warning"))
        .when(pl.col("is_contract_valid"))
        .then(pl.lit("passed"))
    )


def with_shown_verdict(frame: Any) -> Any:
    """The verdict a page shows: the stored one, a provisional one, or that none was recorded.

    Parameters
    ----------
    frame : frame
        ``verdict`` (stored word; null where none is stored), ``raw_status``,
        ``has_contract``, ``has_artifacts_path``. Used if there: ``is_verdict_object``
        (was the word stored inside an object; default true), ``is_verdict_dated`` (does it
        say when it was made and what was there; default true) and ``live_verdict``
        (`verify_contracts` on the directory as it is now).

    Returns
    -------
    frame
        The same rows and kind with ``shown_verdict`` (null: nothing to show),
        ``is_provisional`` (the run goes on) and ``currency``: ``checked`` where the files
        behind a stored verdict can be looked at again, ``unknown`` where they cannot,
        null where that does not apply.

    Examples
    --------
    >>> row = {"verdict": None, "raw_status": "failed", "has_contract": True,
    ...        "has_artifacts_path": True}
    >>> with_shown_verdict(pl.DataFrame([row]))["shown_verdict"].to_list()
    ['not_recorded']
    """
    needed = {
        "verdict": TEXT,
        "raw_status": TEXT,
        "has_contract": YES_NO,
        "has_artifacts_path": YES_NO,
    }
    adapter = adapt(frame, needed, "with_shown_verdict")
    verdict = nw.col("verdict")
    is_object = optional(adapter.frame, "is_verdict_object", nw.Boolean).fill_null(True)
    is_dated = optional(adapter.frame, "is_verdict_dated", nw.Boolean).fill_null(True)
    live = optional(adapter.frame, "live_verdict", nw.String)
    has_path = nw.col("has_artifacts_path").fill_null(False)
    is_pending = verdict.is_null() & nw.col("has_contract").fill_null(False)
    is_running = (nw.col("raw_status") == "running").fill_null(False)
    is_over = nw.col("raw_status").is_in(TERMINAL_STATUSES).fill_null(False)
    is_live = is_pending & is_running & has_path & ~live.is_null()
    is_judged = is_object & (verdict != NOT_RECORDED)
    return adapter.give_back(
        adapter.frame.with_columns(
            shown_verdict=nw.when(~verdict.is_null())
            .then(verdict)
            .when(is_live)
            .then(live)
            .when(is_pending & is_over)
            .then(nw.lit(NOT_RECORDED)),
            is_provisional=is_live,
            currency=nw.when(is_judged & has_path & is_dated)
            .then(nw.lit("checked"))
            .when(is_judged)
            .then(nw.lit("unknown")),
        )
    )
