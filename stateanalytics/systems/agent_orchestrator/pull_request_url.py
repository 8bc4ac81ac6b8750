"""Which pull request a stored URL names."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need

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
