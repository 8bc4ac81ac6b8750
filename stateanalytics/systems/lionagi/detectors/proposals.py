"""What ADR-0030 proposed."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.detector import Detector, catalogued


def proposals() -> tuple[Detector, ...]:
    """ADR-0030's two, which no release ever had."""
    running = pl.col("status") == "running"
    return (
        catalogued(
            "adr0030_stuck",
            known_as="B18",
            family="proposals",
            system="lionagi",
            measures="last_message_age_s",
            threshold_s=3600.0,
            scope=running,
            scope_words="running sessions",
            label="stuck",
            construct="silence",
            question="stuck",
            restarts_on="message",
            since="2026-05-23",
            origin="ADR-0030, proposed only",
            rule="no message for more than an hour",
        ),
        catalogued(
            "adr0030_slow",
            known_as="B19",
            family="proposals",
            system="lionagi",
            measures="started_age_s",
            threshold_s=3600.0,
            upper_s=10800.0,
            scope=running,
            scope_words="running sessions",
            label="slow",
            question="slow",
            restarts_on="start",
            since="2026-05-23",
            origin="ADR-0030, proposed only",
            rule="running for one to three hours; how recent a message is was left open",
        ),
    )
