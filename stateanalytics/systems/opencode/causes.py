"""The causes of errors, by every type that opencode wrote, drafted or shipped.

The union of types is open: any other type is ``unrecognized`` and keeps its own name in
``error_type``. A cause that follows only from the words of a message has a confidence below
one.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from stateanalytics.core.package_tables import package_table
from stateanalytics.systems.provider_errors import cause_by_words, refined
from stateanalytics.systems.situations import is_content_filter

UNRECOGNIZED = "unrecognized"


class _Cause(NamedTuple):
    type: str
    cause: str


CAUSES = MappingProxyType(dict(package_table(__package__, "causes.csv", _Cause)))
"""The last segment of the reason code, by the type of an error or its name in V1."""

DEGRADING = (
    "provider_rate_limit", "provider_transport", "provider_internal", "provider_timeout",
)  # fmt: skip
"""Causes in the runtime around the work: they leave its health degraded."""

_ABORTED_TEXTS = MappingProxyType(
    {
        "Execution was interrupted repeatedly": "resume_exhausted",
        "Tool execution interrupted: ": "stale_after_crash",
        "The user declined": "permission_declined",
    }
)
"""The cause of an ``aborted`` error by the beginning of its message."""

_VAGUE = ("APIError", "UnknownError", "unknown", "provider.unknown", "provider.error")
"""Types without a cause: the status or the words have it."""
_WORDS_CONFIDENCE = 0.9
_ABORTED_CONFIDENCE = 0.6
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
    """Add the cause of each row's error, with its confidence.

    Parameters
    ----------
    frame : polars.DataFrame
    error_type, message, status : str
        Columns of the error; ``status`` may be absent.
    has_error : polars.Expr, optional
        Whether there is an error; by default, whether its type is stored. An error without a
        type is ``unrecognized``.
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
    is_error = kind.is_not_null() if has_error is None else has_error
    is_api = (kind == "APIError").fill_null(value=False)
    is_vague = kind.is_in(_VAGUE).fill_null(value=False)
    is_aborted = (kind == "aborted").fill_null(value=False)
    aborted = pl.coalesce(
        pl.when(is_aborted & text.str.starts_with(begin)).then(pl.lit(cause))
        for begin, cause in _ABORTED_TEXTS.items()
    )
    by_type = kind.replace_strict(dict(CAUSES), default=UNRECOGNIZED, return_dtype=pl.String)
    # opencode has its own cause for a timeout of the provider.
    late = pl.when(is_vague & stored.is_in([408, 504])).then(pl.lit("provider_timeout"))
    by_words = pl.when(is_vague).then(cause_by_words(stored, text))
    exact = refined(by_type, text)
    is_from_words = by_words.is_not_null() | (exact != by_type) | aborted.is_not_null()
    is_stated = is_api & stored.is_not_null() & (by_words != "context_overflow")
    confidence = (
        pl.when(is_stated.fill_null(value=False))
        .then(1.0)
        .when(is_from_words)
        .then(_WORDS_CONFIDENCE)
        .when(kind == "MessageAbortedError")
        .then(_ABORTED_CONFIDENCE)
        .otherwise(1.0)
    )
    cause = pl.coalesce(aborted, late, by_words, exact, pl.lit(UNRECOGNIZED))
    return frame.with_columns(
        pl.when(is_error).then(cause).alias(into),
        pl.when(is_error).then(confidence).alias(f"{into}_confidence"),
    )


def is_content_filtered() -> pl.Expr:
    """Whether the provider's content filter stopped a step, whatever else was recorded."""
    is_error = pl.col("error_type").is_in(["provider.content-filter", "ContentFilterError"])
    return (
        is_error.fill_null(value=False)
        | is_content_filter("finish")
        | is_content_filter("raw_finish")
    )
