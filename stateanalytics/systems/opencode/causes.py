"""What an error means: every type that opencode wrote or drafted, and what shipped instead.

The union of types is open: a type that is not here is ``unrecognized`` and keeps its
own name in ``error_type``. Where only the words of a message tell, the confidence is
below one.
"""

from __future__ import annotations

from types import MappingProxyType

import polars as pl

from stateanalytics.core.package_tables import table_rows

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

_OVERFLOW = (
    r"(?i)context[ _-]?(?:length|window|limit|size)|context_length_exceeded|maximum context"
    r"|prompt is too long|input is too long|too many tokens|exceeds? the (?:model'?s )?context"
)
_QUOTA = r"(?i)quota|billing|insufficient"
_CONNECTION = r"(?i)connect|socket|network|econn|refused|reset|fetch failed|tls"
_BY_WORDS, _BY_STATUS = 0.9, 0.8
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
    http_status = text.str.extract(r"HTTP (\d{3})", 1).cast(pl.Int64, strict=False)
    by_status = _of_status(pl.coalesce(stored, http_status), text)
    is_api = (kind == "APIError").fill_null(value=False)
    is_vague = ((kind == "unknown") & http_status.is_not_null()).fill_null(value=False)
    # Too long a prompt comes under many types, and none of their remedies helps.
    is_overflow = (
        kind.is_in(["provider.invalid-request", "APIError", "unknown"])
        & text.str.contains(_OVERFLOW)
    ).fill_null(value=False)
    aborted: pl.Expr = pl.lit(None, pl.String)
    for begin, meant in ABORTED_TEXTS.items():
        is_it = (kind == "aborted").fill_null(value=False) & text.str.starts_with(begin)
        aborted = pl.when(is_it).then(pl.lit(meant)).otherwise(aborted)
    named = kind.replace_strict(dict(CAUSES), default=UNRECOGNIZED, return_dtype=pl.String)
    cause = (
        pl.when(~there)
        .then(None)
        .when(is_overflow)
        .then(pl.lit("context_overflow"))
        .when(is_api | is_vague)
        .then(pl.coalesce(by_status, named))
        .otherwise(pl.coalesce(aborted, named))
    )
    confidence = (
        pl.when(~there)
        .then(None)
        .when(is_overflow | aborted.is_not_null())
        .then(_BY_WORDS)
        .when(is_vague)
        .then(_BY_STATUS)
        .when(kind == "MessageAbortedError")
        .then(ABORTED_CONFIDENCE)
        .otherwise(1.0)
    )
    return frame.with_columns(
        cause.fill_null(pl.when(there).then(pl.lit(UNRECOGNIZED))).alias(into),
        confidence.alias(f"{into}_confidence"),
    )


def _of_status(status: pl.Expr, text: pl.Expr) -> pl.Expr:
    """What an HTTP status means; null without one that tells."""
    is_quota = text.str.contains(_QUOTA)
    is_policy = text.str.contains(r"(?i)content.{0,3}(?:filter|policy)")
    return (
        pl.when(status.is_in([401, 403]))
        .then(pl.lit("provider_auth"))
        .when(status == 402)
        .then(pl.lit("provider_quota"))
        .when(status.is_in([408, 504]))
        .then(pl.lit("provider_timeout"))
        .when((status == 429) & is_quota)
        .then(pl.lit("provider_quota"))
        .when(status == 429)
        .then(pl.lit("provider_rate_limit"))
        .when(status >= 500)
        .then(pl.lit("provider_internal"))
        .when((status == 400) & is_policy)
        .then(pl.lit("content_filtered"))
        .when(status >= 400)
        .then(pl.lit("provider_invalid_request"))
        .when(status.is_null() & text.str.contains(_CONNECTION))
        .then(pl.lit("provider_transport"))
    )
