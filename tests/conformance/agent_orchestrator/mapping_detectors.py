"""What Agent Orchestrator's own detectors add to the reasons of a mapped session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from stateanalytics.systems.agent_orchestrator.columns import FrameT, add_columns

DETECTOR_CODES = ("reason_7", "reason_8", "reason_9")
"""The columns that `add_detector_reasons` adds: watcher, activity signal, cleanup."""

NEEDED = (
    "reason_0",
    "reason_codes",
    "health",
    "outcome",
    "evidence",
    "is_detecting_escalated",
    "is_recovery_escalated",
    "watcher_trigger",
    "signal_state",
    "is_cleanup_deferred",
)
_WATCHER = {
    "no_acknowledge": "run.health.no_acknowledge",
    "agent_needs_input": "run.health.agent_needs_input",
    "stale_report": "run.health.stale_report",
}
_SIGNALS = {
    "stale": "run.health.activity_stale",
    "null": "run.health.activity_unknown",
    "unavailable": "run.health.activity_unavailable",
    "probe_failure": "run.health.activity_probe_failure",
}
_BELOW_IDLE = ("running", "ok", "unknown")
_DOUBTS = ("signal_disagreement", "runtime_dead", "probe_failed", "activity_signal=probe_failure")


def add_detector_reasons(frame: FrameT) -> FrameT:
    """Add what the detectors know to the reasons, and to the health where they ask for help.

    Parameters
    ----------
    frame : DataFrame or LazyFrame of any engine
        What `map_axes` gives, and ``evidence`` (stored text), ``is_detecting_escalated``,
        ``is_recovery_escalated`` and ``is_cleanup_deferred`` (Booleans),
        ``watcher_trigger``, ``signal_state`` (null: nothing known).

    Returns
    -------
    The same kind of frame
        With ``reason_0`` naming which of three causes made a session stuck, further codes in
        `DETECTOR_CODES` and in ``reason_codes``, and ``health`` at least *idle* where the
        report watcher waits for a word, or a person.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Notes
    -----
    Off by default: without it the state says what Agent Orchestrator's axes say, and no
    more. *Stuck by a failed probe* has three writers that only the evidence tells apart:
    silence, probes that never agreed, and a recovery that gave up.

    Examples
    --------
    >>> import polars as pl
    >>> from stateanalytics.systems.agent_orchestrator.mapping import AXES, map_axes
    >>> words = ["stuck", "probe_failure", "none", "not_created", "alive", "process_running"]
    >>> mapped = map_axes(pl.DataFrame([words], schema=list(AXES), orient="row"))
    >>> known = mapped.with_columns(
    ...     evidence=pl.lit("idle_beyond_threshold activity_signal=valid"),
    ...     is_detecting_escalated=False,
    ...     is_recovery_escalated=False,
    ...     watcher_trigger=pl.lit("stale_report"),
    ...     signal_state=pl.lit("valid"),
    ...     is_cleanup_deferred=False,
    ... )
    >>> add_detector_reasons(known)["reason_codes"].item()
    'run.health.stalled_idle, run.health.stale_report'
    """
    trigger = nw.col("watcher_trigger")
    is_over = ~nw.col("outcome").is_null()
    asks = trigger.is_in(("no_acknowledge", "agent_needs_input")) & nw.col("health").is_in(
        _BELOW_IDLE
    )
    deferred: Any = nw.when(nw.col("is_cleanup_deferred") & (nw.col("outcome") == "merged"))
    signals = _by_word(nw.col("signal_state"), _SIGNALS)
    first = {
        "reason_0": _cause(),
        "health": nw.when(asks).then(nw.lit("idle")).otherwise(nw.col("health")),
        "reason_7": _by_word(trigger, _WATCHER),
        "reason_8": nw.when(~is_over).then(signals),
        "reason_9": deferred.then(nw.lit("run.completed.cleanup_deferred")),
    }
    rest = (f"reason_{place}" for place in range(1, 7))
    codes = nw.concat_str(
        nw.col("reason_0"),
        *(nw.col(name) for name in (*rest, *DETECTOR_CODES)),
        separator=", ",
        ignore_nulls=True,
    )
    names = [*NEEDED, *(f"reason_{place}" for place in range(1, 7))]
    return add_columns(frame, names, "add_detector_reasons", first, {"reason_codes": codes})


def _cause() -> Any:
    """Which of its three writers made a session stuck."""
    code, evidence = nw.col("reason_0"), nw.col("evidence")
    is_stalled = code == "run.health.stalled"
    pattern = "^(" + "|".join(_DOUBTS) + ")"
    is_doubt = nw.col("is_detecting_escalated") | evidence.str.contains(pattern)
    rule: Any = code
    for condition, value in (
        (evidence.str.starts_with("idle_beyond_threshold"), "run.health.stalled_idle"),
        (is_doubt, "run.health.stalled_detecting_exhausted"),
        (nw.col("is_recovery_escalated"), "run.health.stalled_recovery_exhausted"),
    ):
        rule = nw.when(is_stalled & condition).then(nw.lit(value)).otherwise(rule)
    return rule


def _by_word(column: Any, table: Mapping[str, str]) -> Any:
    rule: Any = nw.lit(None, nw.String())
    for word, value in table.items():
        rule = nw.when(column == word).then(nw.lit(value)).otherwise(rule)
    return rule
