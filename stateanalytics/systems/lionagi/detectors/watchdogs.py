"""Family D: watchdogs inside lionagi's processes; a store holds only what they led to."""

from __future__ import annotations

from typing import Any

from stateanalytics.systems.detector import Detector, catalogued

_IN_PROCESS = "it watches from inside a process; a store holds only what it led to"
_CONSTRUCTS = {
    **dict.fromkeys(("D1", "D2", "D6", "D8", "D10", "D11"), "silence"),
    **dict.fromkeys(("D3", "D9"), "elapsed"),
    "D4": "liveness",
}
_RULES: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("worker_first_output", "D1", "dead", "no output for 120 s after a turn began", "failed", ""),
    ("worker_idle", "D2", "dead", "more than 600 s between two pieces of output", "failed", ""),
    ("flow_idle_stall", "D3", "stuck", "an operation takes more than 600 s", "IDLE STALL", ""),
    ("flow_no_descendants", "D4", "dead", "too long, and without children", "NO DESCENDANTS", ""),
    (
        *("agent_progress", "D5", "attention", "prints every 60 s what was done", ""),
        "it gives no verdict",
    ),
    ("canvas_node_stall", "D6", "stuck", "no activity of a node for 12 s", "stall", "an animation"),
    (
        *("data_freshness", "D7", "stale", "the page's data are older than 5 s", "stale"),
        "it is about the page's data; only the word is the same",
    ),
    ("scheduler_readiness", "D8", "dead", "no finished tick for more than 300 s", "stalled", ""),
    ("store_probe", "D9", "slow", "an answer took more than 1000 ms", "slow", ""),
    ("control_claim", "D10", "stuck", "a control was claimed and never applied", "wedged", ""),
    ("stream_done", "D11", "dead", "over and without change for more than 60 s", "done", ""),
)


def watchdogs() -> tuple[Detector, ...]:
    """The detectors of the family: listed, for none can be evaluated from data."""
    common: dict[str, Any] = {"family": "lionagi D", "system": "lionagi"}
    return tuple(
        catalogued(
            name,
            known_as=number,
            question=question,
            construct=_CONSTRUCTS.get(number, "verdict"),
            rule=rule,
            label=label,
            why_not=why_not or _IN_PROCESS,
            **common,
        )
        for name, number, question, rule, label, why_not in _RULES
    )
