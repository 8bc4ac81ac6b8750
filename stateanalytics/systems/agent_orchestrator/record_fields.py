"""Single fields of a session record: its agent's last report, its pull request's address."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need, with_defaults
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


# Path of a URL that JavaScript's URL class accepts, cut out of the trimmed text.
_WEB_PATH = r"^(?i:https?|wss?|ftp):[/\\]*[^/\\?#\s]+([^?#]*)"
_OTHER_PATH = r"^[A-Za-z][A-Za-z0-9+.-]*:([^?#]*)"
_PULL = r"^(?:/+[^/]+)*?/+([^/]+)/+([^/]+)/+pull/+([0-9]+)(?:/|$)"
_MERGE = r"^(?:/+[^/]+)*?/+([^/]+)/+([^/]+)/+-/+merge_requests/+([0-9]+)(?:/|$)"
_TRAILING = r"/([0-9]+)$"


def parse_pull_request_urls(frame: pl.DataFrame, *, column: str = "pr_url") -> pl.DataFrame:
    """Add the owner, repository and number that a pull request's URL names.

    Parameters
    ----------
    frame : polars.DataFrame
        With the text column ``column``.
    column : str, default "pr_url"
        The column of URLs.

    Returns
    -------
    polars.DataFrame
        With ``pr_owner``, ``pr_repository`` (text; null where only a number is known)
        and ``pr_number`` (Int64; null where the text names no pull request).

    Raises
    ------
    MissingColumnsError
        If the column is absent.

    Notes
    -----
    Agent Orchestrator's ``parsePrFromUrl``: GitHub's ``/pull/N`` on any host, GitLab's
    ``/-/merge_requests/N``, else the digits after the last slash of the raw text.

    Examples
    --------
    >>> import polars as pl
    >>> urls = pl.DataFrame({"pr_url": ["https://github.com/acme/app/pull/42/files", "a/7", "7"]})
    >>> parse_pull_request_urls(urls)["pr_number"].to_list()
    [42, 7, None]
    """
    need(frame, [column], "parse_pull_request_urls")
    owner, repository, number = pull_request_of(pl.col(column))
    return frame.with_columns(pr_owner=owner, pr_repository=repository, pr_number=number)


def pull_request_of(url: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Owner, repository and number of a URL, as three expressions."""
    trimmed = url.str.replace_all(r"^[\x00-\x20]+|[\x00-\x20]+$|[\t\r\n]", "")
    path = pl.coalesce(trimmed.str.extract(_WEB_PATH), trimmed.str.extract(_OTHER_PATH))
    parts = [
        pl.coalesce(path.str.extract(_PULL, group), path.str.extract(_MERGE, group))
        for group in (1, 2, 3)
    ]
    number = pl.coalesce(parts[2], url.str.extract(_TRAILING)).cast(pl.Int64, strict=False)
    return parts[0], parts[1], number
