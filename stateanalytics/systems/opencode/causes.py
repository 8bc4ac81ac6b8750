"""What an error means: every type that opencode wrote or drafted, and what shipped instead.

The union of types is open: a type that is not here is ``unrecognized`` and keeps its
own name in ``error_type``. Where only the words of a message tell, the confidence is
below one.
"""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.systems.provider_errors import cause_by_words, refined

UNRECOGNIZED = "unrecognized"
CAUSES = MappingProxyType(
    {row["type"]: row["cause"] for row in table_rows(__package__, "causes.csv")}
)
"""Type of an error, or V1's name of it, to the last segment of its reason code."""

DEGRADING = (
    "provider_rate_limit", "provider_transport", "provider_internal", "provider_timeout",
)  # fmt: skip
"""Causes that lie in the runtime around the work: they leave its health degraded."""

ABORTED_TEXTS = MappingProxyType(
    {
        "Execution was interrupted repeatedly": "resume_exhausted",
        "Tool execution interrupted: ": "stale_after_crash",
        "The user declined": "permission_declined",
    }
)
"""How the message of an ``aborted`` begins, and what that means."""

_VAGUE = ("APIError", "UnknownError", "unknown", "provider.unknown", "provider.error")
"""Types that say nothing of the cause: status and words do."""
_BY_WORDS = 0.9
ABORTED_CONFIDENCE = 0.6
"""V1 writes the same for a person's interruption and a server's stop."""


def with_cause(
    frame: pl.DataFrame,
    *,
    error_type: str = "error_type",
    message: str = "error_message",
    status: str = "error_status",
    has_error: pl.Expr | None = None,
    into: str = "cause",
) -> pl.DataFrame:
    """Add what the error of each row means, and how sure that is.

    Parameters
    ----------
    frame : polars.DataFrame
    error_type, message, status : str
        Columns of the error; ``status`` may be absent.
    has_error : polars.Expr, optional
        Is there an error at all; by default where its type is stored. One without a type
        is ``unrecognized``.
    into : str
        The column to add; ``<into>_confidence`` comes with it.

    Examples
    --------
    >>> errors = pl.DataFrame({
    ...     "error_type": ["provider.quota", "aborted", "made.up", "unknown"],
    ...     "error_message": ["", "The user declined this tool call", "?", "HTTP 503: busy"]})
    >>> with_cause(errors)["cause"].to_list()
    ['provider_quota', 'permission_declined', 'unrecognized', 'provider_internal']
    """
    kind, text = pl.col(error_type), pl.col(message).fill_null("")
    stored = pl.col(status) if status in frame.columns else pl.lit(None, pl.Int64)
    there = kind.is_not_null() if has_error is None else has_error
    is_api = (kind == "APIError").fill_null(value=False)
    is_vague = kind.is_in(_VAGUE).fill_null(value=False)
    aborted: pl.Expr = pl.lit(None, pl.String)
    for begin, meant in ABORTED_TEXTS.items():
        is_it = (kind == "aborted").fill_null(value=False) & text.str.starts_with(begin)
        aborted = pl.when(is_it).then(pl.lit(meant)).otherwise(aborted)
    named = kind.replace_strict(dict(CAUSES), default=UNRECOGNIZED, return_dtype=pl.String)
    # opencode has a cause of its own for what did not answer in time.
    late = pl.when(is_vague & stored.is_in([408, 504])).then(pl.lit("provider_timeout"))
    said = pl.when(is_vague).then(cause_by_words(stored, text))
    exact = refined(named, text)
    is_by_words = said.is_not_null() | (exact != named)
    cause = pl.when(there).then(pl.coalesce(aborted, late, said, exact))
    is_stated = is_api & stored.is_not_null() & (said != "context_overflow")
    confidence = (
        pl.when(there & is_stated.fill_null(value=False))
        .then(1.0)
        .when(there & (is_by_words | aborted.is_not_null()))
        .then(_BY_WORDS)
        .when(there & (kind == "MessageAbortedError"))
        .then(ABORTED_CONFIDENCE)
        .when(there)
        .then(1.0)
    )
    return frame.with_columns(
        cause.fill_null(pl.when(there).then(pl.lit(UNRECOGNIZED))).alias(into),
        confidence.alias(f"{into}_confidence"),
    )
