"""What a session promised to produce, and what was found of it (lionagi's ADR-0029).

A contract is ``{"expected": [{"id", "path", "required", ...}]}``, a verdict
``{"status", "missing_required", "missing_optional", "produced", ...}``. Both are
JSON that anybody may have written, so each distinct text is parsed once and judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from stateanalytics.core import schema

VERDICTS = ("passed", "warning", "failed")
_ID = re.compile(r"[A-Za-z0-9_-]+")
_GLOB = frozenset("*?[]{}~")
# When it was checked makes equal verdicts differ, and says nothing about them.
_CHECKED_AT = r'"checked_at": ?[0-9.]+, ?'
_CONTRACT = pl.Schema(
    {"contract": schema.TEXT, "is_contract_valid": schema.YES_NO, "n_expected": schema.INTEGER}
)
_VERDICT = pl.Schema(
    {
        "verification": schema.TEXT,
        "verdict": schema.TEXT,
        "is_verdict_valid": schema.YES_NO,
        "n_required_missing": schema.INTEGER,
        "n_optional_missing": schema.INTEGER,
        "n_produced": schema.INTEGER,
    }
)


def parse(text: str) -> Any:
    r"""The value of a JSON text, decoded twice where it was encoded twice.

    Raises
    ------
    ValueError
        If the text is no JSON, or is nested too deeply to be read.

    Examples
    --------
    >>> parse('"{\\"a\\": 1}"')
    {'a': 1}
    """
    try:
        value = json.loads(text)
        return json.loads(value) if isinstance(value, str) else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_valid_contract(contract: Any) -> bool:
    """Would lionagi accept this contract.

    Ids must be words and occur once; paths must stay inside the artifacts directory and
    name one file; flags and texts must have their types.

    Examples
    --------
    >>> is_valid_contract({"expected": [{"id": "review", "path": "critic/review.md"}]})
    True
    >>> is_valid_contract({"expected": [{"id": "review", "path": "../review.md"}]})
    False
    """
    if not isinstance(contract, dict) or not isinstance(contract.get("expected"), list):
        return False
    expected = contract["expected"]
    if not all(isinstance(entry, dict) and _is_valid_entry(entry) for entry in expected):
        return False
    ids = [entry["id"] for entry in expected]
    return len(ids) == len(set(ids))


def _is_valid_entry(entry: dict[str, Any]) -> bool:
    identity, path = entry.get("id"), entry.get("path")
    return (
        isinstance(identity, str)
        and _ID.fullmatch(identity) is not None
        and isinstance(path, str)
        and _stays_inside(path)
        and isinstance(entry.get("required", True), bool)
        and isinstance(entry.get("description", ""), str)
        and isinstance(entry.get("source", ""), str)
    )


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and not path.startswith("/")
        and "\x00" not in path
        and not _GLOB & set(path)
        and ".." not in parts
    )


def judge_contracts(texts: pl.Series) -> pl.DataFrame:
    """Each distinct contract: is it well formed, and how many outputs does it promise.

    Parameters
    ----------
    texts : polars.Series of str
        Contracts as stored; null where none was made.

    Returns
    -------
    polars.DataFrame, shape (n_distinct, 3)
        ``contract`` (the text), ``is_contract_valid`` (null where the text is no contract
        at all: ``{}``, which lionagi's own verifier would refuse), ``n_expected`` (null
        unless well formed).

    Examples
    --------
    >>> judge_contracts(pl.Series(['{"expected": []}', "{", "{}", None])).rows()
    [('{"expected": []}', True, 0), ('{', False, None), ('{}', None, None)]
    """
    return _judge(texts, _read_contract, _CONTRACT)


def judge_verdicts(texts: pl.Series) -> pl.DataFrame:
    """Each distinct verification: its verdict, verbatim, and its counts.

    Returns
    -------
    polars.DataFrame, shape (n_distinct, 6)
        ``verification`` (the text), ``verdict``, ``is_verdict_valid`` and the counts of
        outputs that are missing or there; null where they cannot be read.

    Examples
    --------
    >>> judge_verdicts(pl.Series(['{"status": "skipped"}', "[]"])).rows()[0]
    ('{"status": "skipped"}', 'skipped', False, None, None, None)
    """
    return _judge(texts, _read_verdict, _VERDICT)


def _judge(
    texts: pl.Series, read: Callable[[str], tuple[Any, ...]], shape: pl.Schema
) -> pl.DataFrame:
    # Most sessions promise nothing and many promise the same, so few texts are parsed.
    name = shape.names()[0]
    distinct = texts.alias(name).drop_nulls().unique(maintain_order=True).to_frame()
    cores = distinct.with_columns(core=pl.col(name).str.replace(_CHECKED_AT, ""))
    judged = pl.DataFrame(
        [(core, *read(core)) for core in cores["core"].unique().to_list()],
        schema={"core": schema.TEXT, **{key: shape[key] for key in shape.names()[1:]}},
        orient="row",
    )
    return cores.join(judged, on="core", how="left", maintain_order="left").drop("core")


def _read_contract(text: str) -> tuple[bool | None, int | None]:
    try:
        contract = parse(text)
    except ValueError:
        return False, None
    if contract in (None, {}):
        return None, None
    is_valid = is_valid_contract(contract)
    return is_valid, len(contract["expected"]) if is_valid else None


def _read_verdict(text: str) -> tuple[str | None, bool, int | None, int | None, int | None]:
    try:
        verdict = parse(text)
    except ValueError:
        return None, False, None, None, None
    if not isinstance(verdict, dict):
        return None, False, None, None, None
    word = verdict.get("status")
    lists = [verdict.get(key) for key in ("missing_required", "missing_optional", "produced")]
    counts = [len(paths) if isinstance(paths, list) else None for paths in lists]
    is_valid = word in VERDICTS and None not in counts
    return word if isinstance(word, str) else None, is_valid, counts[0], counts[1], counts[2]
