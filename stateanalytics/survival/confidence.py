"""Pointwise intervals of a curve that lies between 0 and 1."""

from __future__ import annotations

from statistics import NormalDist
from typing import Literal, TypeAlias

import polars as pl

from stateanalytics.errors import ArgumentError

ConfType: TypeAlias = Literal["log-log", "log", "plain"]
CONF_TYPES: tuple[ConfType, ...] = ("log-log", "log", "plain")


def interval(name: str, conf_level: float, conf_type: ConfType = "log-log") -> list[pl.Expr]:
    """Both ends of the interval of a curve, from its column and that of its standard error.

    Parameters
    ----------
    name : str
        Column of the curve; its standard error is in ``<name>_se``.
    conf_level : float
        Between 0 and 1.
    conf_type : {"log-log", "log", "plain"}
        Scale on which the estimate is taken as normal. The first stays within 0 and 1 by
        itself; the others are cut off there.

    Returns
    -------
    list of polars.Expr
        ``<name>_low`` and ``<name>_high``. Null where the curve is 0, for ``log-log`` also
        where it is 1: no scale is defined there, and R says NA, too.

    Raises
    ------
    ArgumentError
        If the level or the type is none.
    """
    if not 0 < conf_level < 1:
        raise ArgumentError(
            f"conf_level needs to be between 0 and 1; found {conf_level!r}.", "conf_level=0.95"
        )
    if conf_type not in CONF_TYPES:
        raise ArgumentError(
            f"conf_type is one of {', '.join(CONF_TYPES)}; found {conf_type!r}.",
            'conf_type="log-log"',
        )
    z = NormalDist().inv_cdf(0.5 + conf_level / 2)
    value, se = pl.col(name), pl.col(f"{name}_se")
    if conf_type == "log-log":
        log = value.log()
        spread = z * se / (value * log).abs()
        low, high = ((log * (sign * spread).exp()).exp() for sign in (1, -1))
        is_defined = (value > 0) & (value < 1)
    elif conf_type == "log":
        low, high = (value * (sign * z * se / value).exp() for sign in (-1, 1))
        is_defined = value > 0
    else:
        low, high = (value + sign * z * se for sign in (-1, 1))
        is_defined = value > 0
    return [
        pl.when(is_defined).then(low.clip(lower_bound=0.0)).alias(f"{name}_low"),
        pl.when(is_defined).then(high.clip(upper_bound=1.0)).alias(f"{name}_high"),
    ]
