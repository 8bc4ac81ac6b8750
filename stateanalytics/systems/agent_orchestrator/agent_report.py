"""The last report of an agent about itself, as its session record holds it."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import with_defaults
from stateanalytics.systems.agent_orchestrator.javascript import is_filled
from stateanalytics.systems.agent_orchestrator.moments import DateReader, iso_ms, moment
from stateanalytics.systems.agent_orchestrator.words import REPORT_STATES


def read_reports(records: pl.DataFrame, *, dates: DateReader = iso_ms) -> pl.DataFrame:
    """Add the last report that a flat session record holds.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records: text columns ``agentReportedState``, ``agentReportedAt`` and
        ``agentReported`` + ``Note``, ``PrNumber``, ``PrUrl``, ``PrIsDraft``. An absent
        column counts as an absent key.
    dates : callable, default `iso_ms`
        How stored times are read.

    Returns
    -------
    polars.DataFrame
        With ``report_state``, ``report_at`` (moment in UTC), ``report_note``,
        ``report_pr_number`` (Int64), ``report_pr_url``, ``report_is_draft`` (Boolean);
        all null where there is no readable report.

    Notes
    -----
    Agent Orchestrator's ``readAgentReport``: the state must be one of the ten words as
    written (aliases are for typing), the time one that can be read.

    Examples
    --------
    >>> import polars as pl
    >>> records = pl.DataFrame(
    ...     {"agentReportedState": ["started"], "agentReportedAt": ["2026-05-01T11:58:00Z"]}
    ... )
    >>> read_reports(records)["report_state"].item()
    'started'
    """
    keys = ("State", "At", "Note", "PrNumber", "PrUrl", "PrIsDraft")
    filled = with_defaults(records, {f"agentReported{key}": pl.String() for key in keys})
    state, note, number, url, draft = (pl.col(f"agentReported{key}") for key in keys if key != "At")
    at_ms = dates(pl.col("agentReportedAt"))
    is_readable = state.is_in(REPORT_STATES).fill_null(False) & at_ms.is_not_null()
    digits = number.str.extract("^([0-9]+)$").cast(pl.Int64, strict=False)
    return filled.with_columns(
        report_state=pl.when(is_readable).then(state),
        report_at=moment(pl.when(is_readable).then(at_ms)),
        report_note=pl.when(is_readable & is_filled(note)).then(note),
        report_pr_number=pl.when(is_readable).then(digits),
        report_pr_url=pl.when(is_readable & is_filled(url)).then(url),
        report_is_draft=pl.when(is_readable & draft.is_in(("true", "false"))).then(draft == "true"),
    )
