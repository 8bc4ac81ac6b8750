"""The cause of an error of a provider or a tool: the last segment of its reason code.

All systems share these rules, so that a fault has the same cause in every client. The most
exact information decides: the tag of a provider or client, else the HTTP status, else the text.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.situations import first_that_holds

_TAGS = {
    "provider_quota": (
        *("billing_error", "usage_limit_exceeded", "session_budget_exceeded"),
        *("insufficient_quota", "payment_required"),
    ),
    "provider_rate_limit": ("rate_limit",),
    "provider_auth": (
        *("authentication", "permission_error", "unauthorized", "invalid_api_key"),
        "oauth_org_not_allowed",
    ),
    "provider_internal": (
        *("server_error", "overloaded", "flex_unavailable", "api_error", "service_unavailable"),
    ),
    "context_overflow": (
        *("context_window_exceeded", "context_length_exceeded", "request_too_large"),
    ),
    "content_filtered": (
        *("cyber_policy", "bio_policy", "misalignment_policy_violation", "content_filter"),
        "refusal",
    ),
    "truncated_length": ("max_output_tokens", "max_tokens"),
    "sandbox": ("sandbox_error",),
    "permission_rejected": ("too_many_denials",),
    "provider_invalid_request": (
        *("invalid_request", "bad_request", "invalid_prompt", "not_found_error"),
    ),
}
"""Parts of tags that decide alone, by cause."""
_TRANSPORT_TAGS = (
    *("http_connection_failed", "response_stream_connection_failed", "timeout_error"),
    *("response_stream_disconnected", "response_too_many_failed_attempts"),
)
"""Tags of the connection: they show where an error happened; a status or text shows why."""
_QUOTA = (
    r"(?i)limit\b.*\bresets|usage limit|(?:session|weekly|hour|spending) limit|limit reached\|\d"
    r"|credit balance|\bbilling[ _](?:account|cap|details|error|hard|issue|limit)|\bquota"
    r"|insufficient.{0,9}(?:balance|credit|fund)|purchase.{0,9}credit"
)
_OVERFLOW = (
    r"(?i)(?:is|conversation) too long|context[ _-]?(?:window|length|limit|size)|maximum context"
    r"|too many tokens|request too large|token count.{0,30}exceeds"
)
_FILTER = (
    r"(?i)content.{0,3}(?:filter|polic)|content management polic|usage polic"
    r"|moderation.{0,20}(?:block|flag)"
    r"|(?:response|answer|request|prompt) was (?:refused|blocked|flagged|filtered)"
)
_OUTPUT = r"(?i)output (?:token )?(?:maximum|limit)\b|reason\W+(?:max_(?:output_)?tokens|length)\b"
_AUTH = (
    r"(?i)(?:invalid|incorrect|expired|missing|revoked).{0,12}(?:api.?key|credential|token)"
    r"|(?:api.?key|token).{0,9}(?:not valid|is invalid|expired|revoked)|(?:log|sign) ?in again"
    r"|unauthori[sz]ed|not logged in|please run /login|authentication"
)
_RATE = r"(?i)rate.?limit|too many requests|throttl|tokens per min"
_INTERNAL = (
    r"(?i)overloaded|internal server error|service unavailable|bad gateway|at capacity"
    r"|server had an error|high demand"
)
_CONNECTION = (
    r"(?i)timed? ?out|ECONN|ENOTFOUND|EAI_AGAIN|socket|fetch failed|certificate|\btls\b|\bssl\b"
    r"|error sending request|transport error|network"
    r"|stream (?:disconnected|closed|ended|error)|terminated$"
    r"|connection.{0,20}(?:error|refused|reset|closed|failed|lost)"
    r"|(?:unable to|failed to|could not|cannot) connect"
)
_CUT = r"(?i)stream (?:disconnected|closed|ended)"
_STATUS = (
    r"(?i)(?:\bHTTP|status(?: code)?|API Error:?|\bcode:?)\W{0,3}([45]\d\d)\b|^\W?([45]\d\d)\b"
)
_TAG_IN_JSON = r'"(?:type|code)"\s*:\s*"([a-z_]+(?:_error|_exceeded|_quota|_api_key))"'


def cause_of_error(
    tag: str = "error_type", status: str = "error_status", message: str = "error_message"
) -> pl.Expr:
    """The last segment of the reason code of an error: by its tag, its status or its text.

    Parameters
    ----------
    tag, status, message : str
        Columns of the error; each may be null.

    Returns
    -------
    polars.Expr
        ``provider_unknown`` where no rule matches.

    Examples
    --------
    >>> errors = pl.DataFrame({
    ...     "error_type": ["rate_limit", None, "invalid_request", "http_connection_failed"],
    ...     "error_status": [429, 529, None, 401],
    ...     "error_message": ["Your limit resets at 9pm", None, "prompt is too long", ""]})
    >>> errors.select(cause_of_error()).to_series().to_list()
    ['provider_quota', 'provider_internal', 'context_overflow', 'provider_auth']
    """
    transport = pl.lit("provider_transport")
    # A gateway adds a status of its own to a stream that it cut: still, the connection failed.
    is_transport = _tagged(pl.col(tag), _TRANSPORT_TAGS) | pl.col(tag).str.contains(_CONNECTION)
    is_cut = is_transport & (pl.col(status) >= 500) & pl.col(message).str.contains(_CUT)
    return pl.coalesce(
        pl.when(is_cut).then(transport),
        cause_by_tag(tag, message),
        cause_by_words(status, message),
        pl.when(is_transport).then(transport),
        pl.lit("provider_unknown"),
    )


def cause_by_tag(tag: str = "error_type", message: str = "error_message") -> pl.Expr:
    """The cause of an error by its tag, refined by its text; null: the tag decides nothing."""
    return refined(_by_tag(pl.col(tag)), pl.col(message))


def cause_by_words(
    status: str | pl.Expr = "error_status", message: str | pl.Expr = "error_message"
) -> pl.Expr:
    """The cause of an error by its status, else by its text; null where no rule matches.

    A tag or a status in the text counts as one.
    """
    words = pl.col(message) if isinstance(message, str) else message
    number = pl.col(status) if isinstance(status, str) else status
    numbers = words.str.extract_groups(_STATUS)
    in_words = pl.coalesce(numbers.struct.field("1"), numbers.struct.field("2"))
    number = pl.coalesce(number, in_words.cast(pl.Int64))
    by_tag = _by_tag(words.str.extract(_TAG_IN_JSON))
    return refined(pl.coalesce(by_tag, _by_status(number), _by_text(words)), words)


def _tagged(tag: pl.Expr, names: tuple[str, ...]) -> pl.Expr:
    lower = tag.str.to_lowercase()
    return pl.any_horizontal(lower.str.contains(name, literal=True) for name in names)


def _by_tag(tag: pl.Expr) -> pl.Expr:
    return first_that_holds({cause: _tagged(tag, names) for cause, names in _TAGS.items()})


def _by_status(status: pl.Expr) -> pl.Expr:
    return first_that_holds(
        {
            "provider_auth": status.is_in([401, 403]),
            "provider_quota": status == 402,
            "provider_rate_limit": status == 429,
            # 408: the request took too long; 413: it is too large.
            "provider_transport": status == 408,
            "context_overflow": status == 413,
            "provider_internal": status >= 500,
            "provider_invalid_request": status >= 400,
        }
    )


def _by_text(words: pl.Expr) -> pl.Expr:
    patterns = {
        **{"content_filtered": _FILTER, "truncated_length": _OUTPUT},
        # A message about throttling mentions too many tokens, too.
        **{"provider_rate_limit": _RATE, "context_overflow": _OVERFLOW},
        **{"provider_quota": _QUOTA, "provider_auth": _AUTH},
        **{"provider_internal": _INTERNAL, "provider_transport": _CONNECTION},
    }
    return first_that_holds({cause: words.str.contains(of) for cause, of in patterns.items()})


def refined(cause: pl.Expr, words: pl.Expr) -> pl.Expr:
    """The cause, or a more exact one that the text names for a limit or a refused request.

    Examples
    --------
    >>> refused = pl.DataFrame({
    ...     "cause": "provider_invalid_request",
    ...     "words": ["prompt is too long", "Your credit balance is too low", "no such field"]})
    >>> refused.select(refined(pl.col("cause"), pl.col("words"))).to_series().to_list()
    ['context_overflow', 'provider_quota', 'provider_invalid_request']
    """
    is_refused = cause == "provider_invalid_request"
    exact = {
        "context_overflow": is_refused & words.str.contains(_OVERFLOW),
        "content_filtered": is_refused & words.str.contains(_FILTER),
        "provider_auth": is_refused & words.str.contains(_AUTH),
        "provider_quota": (is_refused | (cause == "provider_rate_limit"))
        & words.str.contains(_QUOTA),
    }
    return pl.coalesce(first_that_holds(exact), cause)


_DENIED = (
    r"(?i)doesn't want to (?:proceed|take this)|user (?:rejected|denied|declined)"
    r"|permission.* has been denied|denied by your permission|requested permissions? to"
    r"|requires approval|was blocked(?: by|\. For security)"
    r"|blocked by hook|hook.{0,80} denied|^(?:Error: )?(?:Pre|Post)ToolUse:\S* hook (?:error|block)"
)
# Below the exit code is the output of the command, which may be about anything, such as the
# time limit of another program.
_EXIT = r"(?i)^(?:Error: )?exit code:? [1-9]"
_OWN_LIMIT = r"(?im)^command timed out after"
_CAUSES = {
    "interrupted": r"(?i)\[Request interrupted|interrupted by user|^Interrupted"
    r"|^(?:<tool_use_error>)?(?:Cancelled: parallel|Sibling) tool call",
    "permission_rejected": _DENIED,
    "timeout": r"(?i)timed out after|^.{0,40}timed? ?out",
    "exit_nonzero": r"(?i)exit code:? [1-9]",
    "not_found": r"(?i)no such (?:file|tool)|not found|does not exist",
}


def cause_in(message: pl.Expr, *, is_denied: pl.Expr | None = None) -> pl.Expr:
    """Why a call failed, by the words of its error, as in reason codes.

    Parameters
    ----------
    message : polars.Expr
        Words of the error; null or empty: nothing is known.
    is_denied : polars.Expr, optional
        Where it is known that a person or a rule refused it.

    Examples
    --------
    >>> said = pl.DataFrame({"said": ["Exit code 2", "Command timed out after 2m", "Oh no"]})
    >>> said.select(cause_in(pl.col("said"))).to_series().to_list()
    ['exit_nonzero', 'timeout', 'tool_error']
    """
    words = message.fill_null("")
    rules = {name: words.str.contains(pattern) for name, pattern in _CAUSES.items()}
    has_exit = words.str.contains(_EXIT)
    for name in ("permission_rejected", "timeout"):
        rules[name] &= ~has_exit
    if is_denied is not None:
        rules["permission_rejected"] |= is_denied
    rules["timeout"] |= words.str.contains(_OWN_LIMIT)
    return pl.coalesce(
        *(pl.when(rule).then(pl.lit(name)) for name, rule in rules.items()), pl.lit("tool_error")
    )
