"""Where opencode contradicts itself: executions with several ends, or a success that was none."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from stateanalytics.core.audit import Cases, audit_rows, word
from stateanalytics.systems.opencode import frames


def audits() -> tuple[Callable[[Cases], pl.DataFrame], ...]:
    """The checks that only this system's data allow."""
    return (executions,)


def executions(cases: Cases) -> pl.DataFrame:
    """Executions of opencode with several ends, or a success that was none."""
    rows = cases.facts.detail(frames.EXECUTIONS).with_columns(
        system=pl.lit("opencode"), entity_type=pl.lit("execution")
    )
    blocked = pl.col("is_blocked") & (pl.col("outcome") == "succeeded")
    return pl.concat(
        [
            audit_rows(
                rows.filter(pl.col("n_terminals") > 1),
                "audit.ended_twice",
                at="ended_at",
                says=pl.format("its last end says {}", word("outcome")),
                against=pl.format(
                    "{} ends were written, the first says {}", "n_terminals", word("first_outcome")
                ),
            ),
            audit_rows(
                rows.filter(blocked.fill_null(value=False)),
                "audit.success_was_blocked",
                at="ended_at",
                says=pl.format("outcome {}", word("outcome")),
                against=pl.lit("the provider's content filter stopped it"),
            ),
        ]
    )
