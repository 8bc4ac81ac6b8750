"""Which failures are one failure: lionagi's key of a distinct cause.

A fan-out that hits one provider limit leaves twenty failed sessions and one cause.
lionagi counts pairs of (the request that started the work) and (the reason code).
Where one of the two was not recorded it takes the session itself: null is not a
shared value, and grouping on it would fold most of a real store into one row.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.errors import MissingColumnsError

NEEDED = ("source", "entity_type", "entity_id", "session_id", "invocation_id", "reason_code")


def cause_key() -> pl.Expr:
    """The distinct cause that a failed entity belongs to, as text.

    Returns
    -------
    polars.Expr
        ``source|group|class``. The group is the invocation, else the session, else the
        entity itself; the class is the reason code, else the same row again. Each side
        says what it is (``invocation:``, ``session:``, ``reason:``), so that an id can
        never equal a code. Never null.

    Notes
    -----
    lionagi's ``failed_sessions`` metric counts these over sessions. For entities
    without a session (a play that never started) the key falls back to the entity.
    Two stores never share a cause.

    Examples
    --------
    >>> failed = pl.DataFrame(
    ...     {
    ...         "source": "state.db",
    ...         "entity_type": "session",
    ...         "entity_id": ["a", "b", "c", "d"],
    ...         "session_id": ["a", "b", "c", "d"],
    ...         "invocation_id": ["i", "i", None, None],
    ...         "reason_code": "run.failed.exception",
    ...     }
    ... )
    >>> failed.select(cause_key()).n_unique()
    3
    """
    own_row = pl.coalesce(
        pl.lit("session:") + pl.col("session_id"),
        pl.col("entity_type") + ":" + pl.col("entity_id"),
        pl.lit("row:?"),
    )
    group = pl.coalesce(pl.lit("invocation:") + pl.col("invocation_id"), own_row)
    reason = pl.coalesce(pl.lit("reason:") + pl.col("reason_code"), own_row)
    return pl.concat_str(pl.col("source").fill_null(""), group, reason, separator="|").alias(
        "cause"
    )


def count_causes(failed: pl.DataFrame) -> int:
    """Distinct causes among failed entities.

    Parameters
    ----------
    failed : polars.DataFrame
        Rows of ``entities``, already narrowed to the failures that count.

    Returns
    -------
    int
        0 for no rows.

    Raises
    ------
    MissingColumnsError
        If a column of the key is absent.
    """
    if missing := [name for name in NEEDED if name not in failed.columns]:
        raise MissingColumnsError.of(missing, failed.columns, "count_causes")
    return failed.select(cause_key()).n_unique() if failed.height else 0
