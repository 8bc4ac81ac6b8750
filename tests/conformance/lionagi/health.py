"""Limits of silence by kind, and the worst of several healths, as lionagi's functions give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import TEMPORARY, TEXT, adapt, encode, lookup
from stateanalytics.core.session_health import HEALTH_ORDER
from stateanalytics.core.staleness import STALLED_AFTER_S, limit_s, limits_by_kind
from stateanalytics.errors import ArgumentError

_KIND = f"{TEMPORARY}kind"
_RANK = f"{TEMPORARY}rank"


def with_stale_thresholds(frame: Any, *, thresholds: Mapping[str, float] | None = None) -> Any:
    """The limit of silence of each row's ``invocation_kind``, as ``stale_threshold_s``.

    Also adds ``is_in_table``: does the kind have a limit of its own.

    Examples
    --------
    >>> import polars as pl
    >>> frame = with_stale_thresholds(pl.DataFrame({"invocation_kind": ["flow", "bogus", None]}))
    >>> frame.rows()
    [('flow', 43200.0, True), ('bogus', 21600.0, False), (None, 21600.0, False)]
    """
    adapter = adapt(frame, {"invocation_kind": TEXT}, "with_stale_thresholds")
    table = limits_by_kind(thresholds, STALLED_AFTER_S)
    kinds = tuple(kind for kind in table if kind != "default")
    known = encode(adapter.frame, {_KIND: ("invocation_kind", kinds)})
    answered = known.with_columns(
        stale_threshold_s=limit_s("invocation_kind", thresholds, STALLED_AFTER_S),
        is_in_table=~nw.col(_KIND).is_null(),
    )
    return adapter.give_back(answered.drop(_KIND))


def threshold_for_kind(kind: str | None, thresholds: Mapping[str, float] | None = None) -> float:
    """Seconds of silence after which running work of this kind is stale.

    Examples
    --------
    >>> threshold_for_kind("flow"), threshold_for_kind(None), threshold_for_kind("bogus")
    (43200.0, 21600.0, 21600.0)
    """
    table = limits_by_kind(thresholds, STALLED_AFTER_S)
    return table.get(kind or "", table["default"])


def worst_health(frame: Any, columns: Sequence[str], *, into: str = "worst_health") -> Any:
    """The worst of several columns of ADR-0024 words, by `HEALTH_ORDER`.

    Null is passed over; without any word at all the answer is ``healthy``, as in lionagi.

    Examples
    --------
    >>> import polars as pl
    >>> children = pl.DataFrame({"a": ["idle", None], "b": ["stale", None]})
    >>> worst_health(children, ["a", "b"])["worst_health"].to_list()
    ['stale', 'healthy']
    """
    if not columns:
        raise ArgumentError("worst_health needs at least one column.", 'columns=["a", "b"]')
    adapter = adapt(frame, dict.fromkeys(columns, TEXT), "worst_health")
    codes = {f"{TEMPORARY}{n}": (column, HEALTH_ORDER) for n, column in enumerate(columns)}
    ranked = encode(adapter.frame, codes).with_columns(
        nw.max_horizontal(*(nw.col(code).cast(nw.Int16).fill_null(0) for code in codes)).alias(
            _RANK
        )
    )
    return adapter.give_back(lookup(ranked, {into: (_RANK, HEALTH_ORDER)}).drop([*codes, _RANK]))
