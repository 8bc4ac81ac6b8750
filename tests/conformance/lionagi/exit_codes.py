"""What ``li … status`` would say about an entity, as words and as exit codes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import TEXT, adapt
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.state.definitions import GOOD_ENDS

EXIT_CLASSES = MappingProxyType({"success": 0, "failure": 1, "running": 3})
"""What query commands return; 2 is "no such run"."""

NOT_A_RUN_STATUS = MappingProxyType(
    {
        75: "refused: the machine-wide number of agents is reached",
        78: "environment error before a run existed",
    }
)

_ENTITIES = ("session", "invocation", "play")


def with_exit_codes(frame: Any) -> Any:
    """How query commands class a status, and what the process itself had returned.

    Parameters
    ----------
    frame : frame
        ``entity_type`` (session, invocation, play; others read like sessions) and
        ``status`` as stored.

    Returns
    -------
    frame
        The same rows and kind with ``is_terminal``, ``exit_class`` (success, failure,
        running), ``status_command_exit_code`` and ``process_exit_code`` (null while
        running, and for plays, which are no process).

    Notes
    -----
    A word outside the vocabulary counts as still running: that is what the commands
    answer, and why waiting for such a run never ends.

    Examples
    --------
    >>> import polars as pl
    >>> ends = pl.DataFrame({"entity_type": ["session"] * 2, "status": ["timed_out", "done"]})
    >>> with_exit_codes(ends).select("exit_class", "process_exit_code").rows()
    [('failure', 124), ('running', None)]
    """
    family = (
        nw.when(nw.col("entity_type").is_in(_ENTITIES))
        .then(nw.col("entity_type"))
        .otherwise(nw.lit("session"))
    )
    key = nw.concat_str(family, nw.lit("|"), nw.col("status"))
    exit_class = key.replace_strict(_CLASS_OF, default="running", return_dtype=nw.String)
    adapter = adapt(frame, {"entity_type": TEXT, "status": TEXT}, "with_exit_codes")
    return adapter.give_back(
        adapter.frame.with_columns(
            exit_class=exit_class.fill_null("running"),
            process_exit_code=key.replace_strict(
                _PROCESS_EXIT_CODE_OF, default=None, return_dtype=nw.Int64
            ),
        ).with_columns(
            is_terminal=nw.col("exit_class") != "running",
            status_command_exit_code=nw.col("exit_class").replace_strict(
                dict(EXIT_CLASSES), default=None, return_dtype=nw.Int64
            ),
        )
    )


_ENDS = tuple(word for word in STATUS_WORDS if word.entity_type in _ENTITIES and word.is_terminal)
_CLASS_OF = {
    f"{word.entity_type}|{word.raw_status}": (
        # An empty completion has a good outcome but no evidence: commands call it a failure.
        "success"
        if word.outcome in GOOD_ENDS and word.raw_status != "completed_empty"
        else "failure"
    )
    for word in _ENDS
}
_PROCESS_EXIT_CODE_OF = {
    f"{word.entity_type}|{word.raw_status}": word.process_exit_code
    for word in _ENDS
    if word.process_exit_code is not None
}
