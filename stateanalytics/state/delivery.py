"""Did an entity produce what it promised: ADR-0033's delivery, per entity type, in bulk."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType

import narwhals as nw

from stateanalytics.core import schema
from stateanalytics.core.engines import TEMPORARY
from stateanalytics.state.lifecycle import StatusTable

DELIVERY_OR_NONE = (*schema.DELIVERIES, None)
NO_DELIVERY = len(schema.DELIVERIES)
"""Position in `DELIVERY_OR_NONE` of what has no delivery at all."""

RECORDED_DELIVERIES = (*schema.DELIVERIES, schema.NO_WORD)
"""What a system may record, by position as in `DELIVERY_OR_NONE`."""

DELIVERY_RULE = f"{TEMPORARY}delivery_rule"
DELIVERY = f"{TEMPORARY}delivery"

WORDS = MappingProxyType(
    {
        "ended_without_evidence": "missing",
        "does_not_apply": None,
        "nothing_is_promised": "not_expected",
        "promise_invalid": "invalid",
        "no_contract": "not_expected",
        "verdict_invalid": "invalid",
        "contract_is_empty": "not_expected",
        "not_over_yet": "unknown",
        "verified": "passed",
        "optional_missing": "partial",
        "required_missing": "missing",
        "not_verified": "unknown",
    }
)
"""Every rule in order of precedence, and the delivery it means."""

_NONE = ("invocation", "schedule", "team", "branch", "engine_run", "dispatch", None)
_NOT_EXPECTED = ("show", "schedule_run", "play")


@lru_cache(maxsize=8)
def delivery_rules(table: StatusTable) -> dict[str, nw.Expr]:
    """The rules as expressions that are never null, by name.

    They read ``has_contract``, ``is_contract_valid``, ``is_verdict_valid``, ``verdict``
    and ``n_expected``. A play delivers what its session delivers: `states` lays that over.

    Notes
    -----
    A verdict of work that is not over is provisional, so it is ``unknown`` and never
    missing. A failed verdict is ``missing`` however much else was produced;
    ``n_required_missing`` and ``n_produced`` say how much.
    """

    def yes(expression: nw.Expr) -> nw.Expr:
        return expression.fill_null(value=False)

    verdict = nw.col("verdict")
    return {
        "ended_without_evidence": table.where(lambda cell: cell.is_without_evidence),
        "does_not_apply": table.of(*_NONE),
        "nothing_is_promised": table.of(*_NOT_EXPECTED),
        "promise_invalid": yes(~nw.col("is_contract_valid")),
        "no_contract": ~yes(nw.col("has_contract")),
        "verdict_invalid": yes(~nw.col("is_verdict_valid")),
        "contract_is_empty": yes(nw.col("n_expected") == 0),
        "not_over_yet": ~table.where(lambda cell: cell.is_terminal),
        "verified": yes(verdict == "passed"),
        "optional_missing": yes(verdict == "warning"),
        "required_missing": yes(verdict == "failed"),
        "not_verified": nw.lit(value=True),
    }


def delivery_values() -> tuple[int, ...]:
    """Position in `DELIVERY_OR_NONE` of what each rule of `WORDS` means."""
    return tuple(DELIVERY_OR_NONE.index(word) for word in WORDS.values())
