"""Findings about a whole store: what could not be salvaged, read or checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.cells import shown
from stateanalytics.io.findings import counted
from stateanalytics.io.sqlite import Store

PREFIX = "salvage."
"""Every finding about a loss has a code that begins so."""


def loss_findings(losses: Mapping[str, Any], label: str, *, system: str) -> pl.DataFrame:
    """What was lost of a store, one finding a table and kind of loss.

    Parameters
    ----------
    losses : mapping
        What `salvage` reported; empty for a store that is whole.
    label, system : str
        The input, and who wrote it.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`: ``salvage.truncated``, ``salvage.log_lost``,
        ``salvage.definitions_lost``, ``salvage.rows_lost`` and ``salvage.rows_unclaimed``
        are errors; ``salvage.unverified`` says what nobody can check. ``n_rows`` is null
        where nobody can tell how many.
    """
    return pool(
        [counted(label, system, **loss) for loss in _losses(losses)] if losses else [],
        schema.FINDINGS,
    )


def _losses(losses: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if missing := losses["n_bytes_missing"]:
        yield _loss(
            "truncated",
            f"the file ends early: its last {missing:,} bytes "
            f"({-(-missing // losses['page_size']):,} pages) are missing",
        )
    for note in losses["notes"]:
        yield _loss("log_lost", note)
    if n_pages := losses["n_definition_pages"]:
        yield _loss(
            "definitions_lost",
            f"{n_pages} page{'s' if n_pages > 1 else ''} that define tables cannot be read, so "
            "tables may be missing altogether",
        )
    if names := losses["definitions_refused"]:
        yield _loss(
            "definitions_lost",
            f"{len(names)} definition{'s' if len(names) > 1 else ''} of tables cannot be read or "
            "would run something, so these tables are missing",
            example=", ".join(names),
        )
    for table in losses["tables"]:
        if table["n_ranges"] or table["n_lost"]:
            yield _of_table(table)
        if n_rows := table["n_unclaimed"]:
            yield _loss(
                "rows_unclaimed",
                f"pages of {table['table']} lead to {n_rows:,} more rows than can be its own: "
                "its definition or its indexes contradict them, or another table claims them, too",
                n_rows=n_rows,
                table=table["table"],
            )
    if n_rows := losses["n_unclaimed"]:
        yield _loss(
            "rows_unclaimed",
            "rows on pages that no table leads to, and that could be of none or of several",
            n_rows=n_rows,
        )
    yield {
        "code": f"{PREFIX}unverified",
        "severity": "info",
        "message": "rows were read without their indexes; a text that lies on several pages may "
        "hold bytes of a damaged one, which nothing in the file gives away",
        "n_rows": sum(table["n_read"] for table in losses["tables"]),
        "action": "kept",
    }


def _of_table(table: Mapping[str, Any]) -> dict[str, Any]:
    n_lost, n_read = table["n_lost"], table["n_read"]
    how_many = "an unknown number of rows" if n_lost is None else f"about {n_lost:,}"
    n_more = table["n_ranges"] - 1
    more = f" and {n_more:,} more range{'s' if n_more > 1 else ''}" if n_more else ""
    return _loss(
        "rows_lost",
        f"of {table['table']} {how_many} cannot be read; {n_read:,} were",
        n_rows=n_lost,
        table=table["table"],
        example=_shown(table["ranges"][0]) + more if table["ranges"] else None,
    )


def _shown(lost: Mapping[str, Any]) -> str:
    rows = (
        f"row number {lost['first']}"
        if lost["first"] == lost["last"]
        else f"row numbers {_bound(lost['first'])} to {_bound(lost['last'])}"
    )
    return rows if lost["page"] is None else f"{rows} (page {lost['page']})"


def _bound(rowid: int) -> str:
    return "?" if abs(rowid) >= 2**62 else str(rowid)


def _loss(code: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "code": PREFIX + code,
        "severity": "error",
        "message": message,
        "action": "left out of everything below",
        **more,
    }


def findings_of_store(store: Store, *, system: str) -> pl.DataFrame:
    """What was lost, names that cannot be read, and tables whose pages were not checked.

    Parameters
    ----------
    store : Store
        An open store; its check is waited for.
    system : str
        Who wrote it.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.FINDINGS`.
    """
    names = [
        counted(
            store.label,
            system,
            "table.illegible_name",
            "warning",
            "the name of a table or column is not UTF-8",
            example=shown(name),
            action="not read",
        )
        for name in store.illegible
    ]
    unchecked = [
        counted(
            store.label,
            system,
            "table.not_checked",
            "info",
            "looking for damaged pages took too long"
            if table == "*"
            else "what the store computes was not run to look for damaged pages",
            table=None if table == "*" else table,
            action="read as it is",
        )
        for table in store.unchecked()
    ]
    lost = loss_findings(store.losses, store.label, system=system)
    return pool([lost, *names, *unchecked], schema.FINDINGS)
