"""Which sessions Agent Orchestrator counts as terminal, and which it would restore."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns, choose
from stateanalytics.systems.agent_orchestrator.statuses import is_terminal_rule
from stateanalytics.systems.agent_orchestrator.words import TERMINAL_STATUSES, VERSIONS, Version


def classify_terminality(frame: FrameT, *, version: Version = "head") -> FrameT:
    """Add whether a session counts as terminal, and whether it may be restored.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        ``has_lifecycle`` (Boolean), ``session_state``, ``pr_state``, ``runtime_state``,
        ``status`` (legacy word), ``activity``.
    version : {"trinity", "head", "final"}, default "head"
        Trinity does not restore what is merged.

    Returns
    -------
    The same kind of frame
        With Booleans ``is_terminal`` and ``is_restorable``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Agent Orchestrator's ``isTerminalSession`` and ``isRestorable``. It is one of three
    notions of *terminal* there: it counts a stuck session whose process is gone, which the
    poll loop (``TERMINAL_STATUSES``) and the dashboard do not.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame(
    ...     {
    ...         "has_lifecycle": [True, False],
    ...         "session_state": ["stuck", None],
    ...         "pr_state": ["none", None],
    ...         "runtime_state": ["exited", None],
    ...         "status": ["stuck", "working"],
    ...         "activity": [None, "active"],
    ...     }
    ... )
    >>> classify_terminality(frame)["is_terminal"].to_list()
    [True, False]
    """
    choose(version, VERSIONS, "version")
    names = ["has_lifecycle", "session_state", "pr_state", "runtime_state", "status", "activity"]
    by_axes = is_terminal_rule(nw)
    by_word = _is_in(nw.col("status"), TERMINAL_STATUSES) | _is_in(nw.col("activity"), ("exited",))
    is_terminal = nw.when(nw.col("has_lifecycle")).then(by_axes).otherwise(by_word)
    is_restorable = is_terminal
    if version == "trinity":
        is_merged = _is_in(nw.col("status"), ("merged",)) | (
            nw.col("has_lifecycle") & _is_in(nw.col("pr_state"), ("merged",))
        )
        is_restorable = is_terminal & ~is_merged
    rules = {"is_terminal": is_terminal, "is_restorable": is_restorable}
    return add_columns(frame, names, "classify_terminality", rules)


def _is_in(column: Any, words: tuple[str, ...]) -> Any:
    return column.is_in(words).fill_null(False)
