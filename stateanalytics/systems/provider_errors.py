"""What an error of a model's provider means: the last segment of its reason code."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.recorded import first_that_holds

_QUOTA = r"(?i)limit\b.*\bresets|usage limit reached|credit balance|billing"
_OVERFLOW = r"(?i)too long|context (?:window|length|limit)"
_CONNECTION = r"(?i)timed? ?out|ECONN|ENOTFOUND|EAI_AGAIN|socket|connection error|fetch failed"


def cause_of_error() -> pl.Expr:
    """The last segment of the reason code of an error: by its tag, its status, then its words.

    Examples
    --------
    >>> errors = pl.DataFrame({
    ...     "error_type": ["rate_limit", None, "invalid_request"],
    ...     "error_status": [429, 529, None],
    ...     "error_message": ["You've hit your limit · resets 9pm", None, "prompt is too long"]})
    >>> errors.select(cause_of_error()).to_series().to_list()
    ['provider_quota', 'provider_internal', 'context_overflow']
    """
    tag = pl.col("error_type").fill_null("").str.to_lowercase()
    status = pl.col("error_status").fill_null(0)
    words = pl.col("error_message").fill_null("")

    def tagged(*names: str) -> pl.Expr:
        return pl.any_horizontal(tag.str.contains(name, literal=True) for name in names)

    is_limit = tagged("rate_limit") | (status == 429)
    return first_that_holds(
        {
            "provider_quota": (is_limit & words.str.contains(_QUOTA))
            | tagged("billing_error")
            | (status == 402),
            "provider_rate_limit": is_limit,
            "provider_auth": tagged("authentication", "permission_error")
            | status.is_in([401, 403]),
            "provider_internal": tagged("server_error", "overloaded") | (status >= 500),
            "context_overflow": words.str.contains(_OVERFLOW),
            "provider_invalid_request": tagged("invalid_request") | (status >= 400),
            "provider_transport": words.str.contains(_CONNECTION) | tag.str.contains(_CONNECTION),
            "provider_unknown": pl.lit(value=True),
        }
    )
