"""Many tests at once: how many of the differences found would be found by chance."""

from __future__ import annotations

import polars as pl


def benjamini_hochberg(
    p_value: str = "p_value",
    *,
    over: str | list[str] | None = None,
    n_tests: int | None = None,
) -> pl.Expr:
    """The smallest false discovery rate at which each test would be called a finding.

    Parameters
    ----------
    p_value : str
        Column of p-values, in [0, 1]; null: not tested.
    over : str or list of str, optional
        Columns that name separate families of tests; None: all rows are one family.

    n_tests : int, optional
        How many tests were made, where those that found nothing have no row; by default
        the p-values that are there.

    Returns
    -------
    polars.Expr
        Adjusted p-values (q-values), in the order of the rows, named ``q_value``; null
        where there was no test, which then does not count either.

    Notes
    -----
    Benjamini and Hochberg's step-up procedure [1]_: taking every row with a q-value of at
    most 0.1 leaves on average at most one false finding in ten. It holds for tests that
    are independent or rise together; name the family before looking.

    References
    ----------
    .. [1] Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate.
       J. R. Statist. Soc. B 57, 289-300.

    Examples
    --------
    >>> tests = pl.DataFrame({"p_value": [0.04, 0.001, None, 0.03]})
    >>> tests.with_columns(benjamini_hochberg().round(3))["q_value"].to_list()
    [0.04, 0.003, None, 0.04]
    """
    p = pl.col(p_value)
    raised = p * (p.count() if n_tests is None else n_tests) / p.rank("max")
    # From the largest p-value down, the least so far: adjusted values keep the order of p.
    order = p.arg_sort(nulls_last=True)
    adjusted = raised.gather(order).cum_min(reverse=True).gather(order.arg_sort())
    kept = pl.when(p.is_not_null()).then(adjusted.clip(upper_bound=1.0))
    return (kept if over is None else kept.over(over)).alias("q_value")
