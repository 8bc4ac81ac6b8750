"""A band for the whole curve at once, which the pointwise interval is not."""

from __future__ import annotations

import polars as pl

from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.stats.distributions import kolmogorov_quantile
from stateanalytics.survival.curves import CURVE


def confidence_band(curve: pl.DataFrame, conf_level: float = 0.95) -> pl.DataFrame:
    """Add a band that holds the whole curve with the given confidence.

    Parameters
    ----------
    curve : polars.DataFrame
        What `kaplan_meier` returned, without late entries; other columns are strata.
    conf_level : float
        That the true curve lies within, everywhere at once.

    Returns
    -------
    polars.DataFrame
        ``curve`` with ``band_low`` and ``band_high``; null where it is 0 or 1.

    Raises
    ------
    MissingColumnsError, ArgumentError
        If it is no curve, or the level is not in (0, 1).

    Notes
    -----
    Hall and Wellner's band [1]_ on the log(-log) scale, with the quantile for the whole
    range of durations. Somewhere, a pointwise interval misses the curve much more often
    than it says: "the curves differ at some duration" needs this band, or `logrank`. It
    is wider in the middle, and says most there.

    References
    ----------
    .. [1] Hall, W. J. and Wellner, J. A. (1980). Confidence bands for a survival curve
       from censored data. Biometrika 67, 133-143.

    Examples
    --------
    >>> from stateanalytics.survival.curves import kaplan_meier
    >>> spells = pl.DataFrame({"duration_s": [float(i) for i in range(1, 41)], "ended": True})
    >>> half = confidence_band(kaplan_meier(spells)).filter(pl.col("duration_s") == 20)
    >>> half.select(pl.col("survival", "band_low", "band_high").round(2)).row(0)
    (0.5, 0.28, 0.69)
    """
    if missing := [name for name in CURVE if name not in curve.columns]:
        raise MissingColumnsError.of(missing, curve.columns, "confidence_band")
    if not 0 < conf_level < 1:
        raise ArgumentError(
            f"conf_level needs to be between 0 and 1; found {conf_level!r}.", "conf_level=0.95"
        )
    strata = [name for name in curve.columns if name not in CURVE]
    value, log = pl.col("survival"), pl.col("survival").log()
    n = pl.col("n_at_risk").max()
    n = n.over(strata) if strata else n
    spread = n * (pl.col("survival_se") / value).pow(2)
    width = kolmogorov_quantile(conf_level) * (1 + spread) / n.sqrt() / log.abs()
    inside = (value > 0) & (value < 1)
    return curve.with_columns(
        pl.when(inside).then((log * (sign * width).exp()).exp()).alias(name)
        for name, sign in (("band_low", 1), ("band_high", -1))
    )
