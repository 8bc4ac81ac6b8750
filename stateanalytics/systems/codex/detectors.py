"""The features and detectors of Codex: its own timeouts, and what lies beyond them."""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

from stateanalytics.systems.base import Features
from stateanalytics.systems.codex import LIMITS, frames
from stateanalytics.systems.codex.constants import STREAM_RETRIES, STREAM_S
from stateanalytics.systems.codex.tools import GRACE_S, MCP_S, SHELL, SHELL_S
from stateanalytics.systems.detector import Detector, catalogue
from stateanalytics.systems.history import Past

COLUMNS = MappingProxyType(
    {
        "rollout_age_s": "since the last record of it, or of the subagents it waits for",
        "call_patience_s": "how long it may be silent, by what it waits for; null: as usual",
        "open_call_name": "tool that it waits for",
        "open_call_age_s": "since that was called",
        "open_call_timeout_s": "time limit of that call, where it asked for one",
    }
)


def features() -> Features:
    """The columns that this system's detectors read."""
    return Features(columns=COLUMNS, add=add_features)


def add_features(rows: pl.DataFrame, past: Past) -> pl.DataFrame:
    """Turns with the columns of `COLUMNS`; other entities have null there.

    Parameters
    ----------
    rows : polars.DataFrame
        Entities with ages, from `detectors.features.with_ages`.
    past : Past
        The facts at the instant.
    """

    def age(moment: str) -> pl.Expr:
        return (pl.lit(past.at) - pl.col(moment)).dt.total_microseconds() / 1e6

    own = past.facts.detail(frames.TURNS).select(
        "source",
        "entity_id",
        rollout_age_s=age("last_sign_at"),
        call_patience_s="patience_s",
        open_call_name="open_tool",
        open_call_age_s=age("open_since"),
        open_call_timeout_s="open_timeout_s",
    )
    return rows.join(own, on=["source", "entity_id"], how="left", maintain_order="left")


def detectors() -> tuple[Detector, ...]:
    """The detectors of Codex; their words are ``data/detectors.csv``."""
    situation, tool = pl.col("raw_status"), pl.col("open_call_name")
    silent = {"measures": "rollout_age_s", "comparison": ">="}
    waits = silent | {"scope": situation == "awaiting_model"}
    called = {"measures": "open_call_age_s", "scope": situation == "open_tool"}
    usual = pl.col("call_patience_s").fill_null(LIMITS["stalled_after_s"])
    is_open = situation.is_in(["awaiting_model", "awaiting_turn_end", "open_tool"])
    limit = pl.col("open_call_timeout_s").fill_null(SHELL_S) + GRACE_S
    return catalogue(
        __package__,
        {
            "codex_stalled": silent | {"threshold_s": usual, "scope": is_open},
            "codex_stream": waits | {"threshold_s": STREAM_S},
            "codex_retries": waits | {"threshold_s": STREAM_S * STREAM_RETRIES},
            "codex_command": called | {"threshold_s": limit, "when": tool.is_in(list(SHELL))},
            "codex_mcp": called
            | {"threshold_s": MCP_S + GRACE_S, "when": tool.str.starts_with("mcp__")},
        },
    )
