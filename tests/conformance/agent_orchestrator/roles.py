"""Which sessions are orchestrators, by their role and by their name."""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import need


def find_orchestrators(
    frame: pl.DataFrame, *, prefix: str | None = None, all_prefixes: Iterable[str] = ()
) -> pl.DataFrame:
    """Add whether a session is an orchestrator of its project.

    Parameters
    ----------
    frame : polars.DataFrame
        ``session_id`` and ``role`` (null: none).
    prefix : str, optional
        What the names of the project's sessions begin with.
    all_prefixes : iterable of str
        The prefixes of all projects: a numbered worker of another one is none.

    Returns
    -------
    polars.DataFrame
        With the Boolean ``is_orchestrator``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``isOrchestratorSession``: the role, or the prefix with
    ``-orchestrator`` and nothing or a number after it.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"session_id": ["app-orchestrator-1", "app-1"], "role": [None, None]})
    >>> find_orchestrators(frame, prefix="app")["is_orchestrator"].to_list()
    [True, False]
    """
    need(frame, ["session_id", "role"], "find_orchestrators")
    by_role = (pl.col("role").cast(pl.String) == "orchestrator").fill_null(False)
    return frame.with_columns(is_orchestrator=by_role | _by_name(prefix, all_prefixes))


def _by_name(prefix: str | None, all_prefixes: Iterable[str]) -> pl.Expr:
    if not prefix:
        return pl.lit(False)
    name = pl.col("session_id")
    is_numbered = name.str.contains(f"^{re.escape(prefix)}-orchestrator-[0-9]+$")
    others = [f"^{re.escape(other)}-[0-9]+$" for other in all_prefixes if other != prefix]
    is_worker = pl.any_horizontal(pl.lit(False), *(name.str.contains(one) for one in others))
    return ((name == f"{prefix}-orchestrator") | (is_numbered & ~is_worker)).fill_null(False)
