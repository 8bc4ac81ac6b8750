"""What a system itself records of the states of its work, and the causes of its errors.

A system may name the situation of each row; ``data/situations.csv`` of its package has the
four axes and the reason of each. ``{cause}`` in a reason's code stands for the cause of the
row, and a health of ``rules`` is left to the shared rules, as it depends on the instant.

All systems share these rules, so that a fault has the same cause in every client. The most
exact information decides: the tag of a provider or client, else the HTTP status, else the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import left_joined
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.vocabulary import STATUS_WORDS, StatusWord

OBSERVED, INFERRED = "observed", "inferred"
BY_RULES = "rules"
OTHER_AXES = r"\.(health|delivery)\."
"""In a reason code: it explains the health or the delivery, not the status."""
_KEY = list(schema.ENTITY_KEY)
_AXES = ("lifecycle", "outcome", "health", "delivery", "delivery_without_output")
_WHY = ("dimension", "code", "message", "claim", "confidence", "is_quoted")
_TEXTS = ("whys", "cause", "error_message", "detail")
_STATUS_COLUMNS = ("entity_type", "raw_status", "own_lifecycle", "own_outcome")

CONTENT_FILTER_FINISHES = (
    "content_filter", "content_filtered", "refusal", "safety", "image_safety", "recitation",
    "blocklist", "prohibited_content", "spii", "guardrail_intervened",
)  # fmt: skip
"""Finish reasons of answers that a provider's content filter stopped, as providers name them."""

# Half of a pair of surrogates is no text, and no parser reads it.
_UNICODE = (
    r"\\u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_TEXT = rf'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|{_UNICODE})*"'
_GAP = r"[ \t\r\n]*"
_LIST_OF_TEXTS = rf"^{_GAP}\[{_GAP}(?:{_TEXT}{_GAP}(?:,{_GAP}{_TEXT}{_GAP})*)?\]{_GAP}$"


class Situation(NamedTuple):
    """A row of ``data/situations.csv``; see `situations_from_csv`."""

    situation: str
    lifecycle: Annotated[str, schema.LIFECYCLES] | None
    outcome: Annotated[str, schema.OUTCOMES] | None
    health: Annotated[str, (*schema.HEALTHS, schema.NO_WORD, BY_RULES)] | None
    delivery: Annotated[str, (*schema.DELIVERIES, schema.NO_WORD)] | None
    delivery_without_output: Annotated[str, schema.DELIVERIES] | None
    dimension: Annotated[str, schema.DIMENSIONS] | None
    code: str | None
    message: str | None
    claim: Annotated[str, schema.CLAIM_STATUSES] | None
    confidence: float | None
    is_quoted: bool


def is_content_filter(finish: str) -> pl.Expr:
    """Whether a content filter stopped an answer, in any spelling of its finish; never null.

    Examples
    --------
    >>> finishes = pl.DataFrame({"finish": ["content-filter", "SAFETY", "contentFilter", "stop"]})
    >>> finishes.select(is_content_filter("finish"))["finish"].to_list()
    [True, True, True, False]
    """
    words = [word.replace("_", "") for word in CONTENT_FILTER_FINISHES]
    letters = pl.col(finish).str.to_lowercase().str.replace_all("[^a-z]", "")
    return letters.is_in(words).fill_null(value=False)


def texts_of(column: str) -> pl.Expr:
    """The distinct texts of a JSON list in their order; null where it is no list of texts.

    Examples
    --------
    >>> rows = pl.DataFrame({"codes": ['["b", "a", "b", ""]', "[]", '["a", 1]', None]})
    >>> rows.select(texts_of("codes"))["codes"].to_list()
    [['b', 'a'], [], None, None]
    """
    sound = pl.when(pl.col(column).str.contains(_LIST_OF_TEXTS)).then(column)
    texts = sound.str.json_decode(pl.List(pl.String))
    return texts.list.eval(pl.element().filter(pl.element() != "")).list.unique(maintain_order=True)


def first_of_status(codes: pl.Expr) -> pl.Expr:
    """The first code of a list that is not about health or delivery, else the first at all."""
    of_status = codes.list.eval(pl.element().filter(~pl.element().str.contains(OTHER_AXES)))
    return pl.coalesce(of_status.list.first(), codes.list.first())


def first_that_holds(rules: Mapping[str, pl.Expr]) -> pl.Expr:
    """The name of the first rule that is true; null where none is."""
    return pl.coalesce(
        pl.when(holds.fill_null(value=False)).then(pl.lit(name)) for name, holds in rules.items()
    )


def add_axes(entities: pl.DataFrame, outcome: str = "outcome") -> pl.DataFrame:
    """Add the ``recorded_`` axes from columns in ADR-0033's words.

    Parameters
    ----------
    entities : polars.DataFrame
        One row per entity, with ``lifecycle``, ``health`` and ``delivery``; null: it does not
        apply. Without a lifecycle nothing is known: *unknown*.
    outcome : str
        The column of the outcome.

    Examples
    --------
    >>> rows = pl.DataFrame({"lifecycle": ["failed", None], "health": ["ok", None]})
    >>> add_axes(rows.with_columns(outcome="lifecycle", delivery=None)).select(
    ...     "recorded_lifecycle", "recorded_outcome", "recorded_health").rows()
    [('failed', 'failed', 'ok'), ('unknown', 'unknown', 'none')]
    """
    unknown, none = pl.lit("unknown"), pl.lit(schema.NO_WORD)
    return entities.with_columns(
        recorded_lifecycle=pl.coalesce("lifecycle", unknown),
        recorded_outcome=pl.when(pl.col("lifecycle").is_null()).then(unknown).otherwise(outcome),
        recorded_health=pl.coalesce("health", none),
        recorded_delivery=pl.coalesce("delivery", none),
    )


def has_own_statuses(vocabulary: Sequence[StatusWord]) -> bool:
    """Whether a system has statuses other than those of ADR-0033, which rules know already.

    Examples
    --------
    >>> has_own_statuses(STATUS_WORDS)
    False
    """
    return any(word not in STATUS_WORDS for word in vocabulary)


def add_axes_of_statuses(entities: pl.DataFrame, vocabulary: Sequence[StatusWord]) -> pl.DataFrame:
    """Fill the recorded lifecycle and outcome from a system's own statuses.

    Parameters
    ----------
    entities : polars.DataFrame
        Entities of that system, in the shape of `schema.ENTITIES`.
    vocabulary : sequence of StatusWord
        The statuses of that system.

    Returns
    -------
    polars.DataFrame
        The same rows. Where a reader recorded a lifecycle, or no status matches, a row stays
        as it is: the two axes are one decision, so neither is filled without the other.

    Examples
    --------
    >>> done = StatusWord("session", "", "done", "completed", "completed", is_terminal=True)
    >>> rows = schema.ENTITIES.conform(
    ...     pl.DataFrame({"entity_type": "session", "raw_status": ["done", "odd"]})
    ... )
    >>> add_axes_of_statuses(rows, [done]).select("recorded_lifecycle", "recorded_outcome").rows()
    [('completed', 'completed'), (None, None)]
    """
    table = pl.DataFrame(
        [(word.entity_type, word.raw_status, word.lifecycle, word.outcome) for word in vocabulary],
        schema=dict.fromkeys(_STATUS_COLUMNS, pl.String),
        orient="row",
    )
    is_missing = pl.col("recorded_lifecycle").is_null()
    joined = entities.join(table, on=_STATUS_COLUMNS[:2], how="left", maintain_order="left")
    return schema.ENTITIES.conform(
        joined.with_columns(
            recorded_lifecycle=pl.coalesce("recorded_lifecycle", "own_lifecycle"),
            recorded_outcome=pl.when(is_missing).then("own_outcome").otherwise("recorded_outcome"),
        )
    )


def add_reasons(entities: pl.DataFrame, reasons: pl.DataFrame) -> pl.DataFrame:
    """Add ``recorded_reasons`` and their codes from rows in the shape of `schema.REASONS`.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    reasons : polars.DataFrame
        In the shape of `schema.REASONS`, most direct first within an entity.
    """
    return _replaced(entities, _by_entity(reasons).drop("reason_code", "evidence"))


def _by_entity(reasons: pl.DataFrame) -> pl.DataFrame:
    """All reasons of each entity and their codes; the code of its end, and the evidence."""
    texts = reasons.with_columns(pl.col("dimension", "claim_status").cast(pl.String))
    is_of_end = pl.col("dimension") == "lifecycle"
    return (
        texts.sort("order", maintain_order=True)
        .with_columns(reason=pl.struct(schema.RECORDED_REASON).struct.json_encode())
        .group_by(_KEY)
        # Lists are joined later, which takes a third of the time of joining texts in groups.
        .agg(
            recorded_reason_codes="code",
            recorded_reasons="reason",
            reason_code=pl.col("code").filter(is_of_end).first(),
            evidence=pl.col("evidence").filter(is_of_end).first(),
        )
        .with_columns(
            pl.col("recorded_reason_codes").list.join(schema.CODE_SEPARATOR),
            pl.format("[{}]", pl.col("recorded_reasons").list.join(",")).alias("recorded_reasons"),
        )
    )


def with_axes(frame: pl.DataFrame, meanings: pl.DataFrame) -> pl.DataFrame:
    """Add the four axes of each row's ``situation``.

    Work counts as having output where the frame has no ``has_output``.

    Parameters
    ----------
    frame : polars.DataFrame
    meanings : polars.DataFrame
        ``situation``, ``lifecycle``, ``outcome_word``, ``health``, ``delivery`` and
        ``delivery_without_output``, where that differs.
    """
    names = meanings.columns[1:]
    joined = frame.drop(names, strict=False).pipe(left_joined, meanings, on="situation")
    if "has_output" in frame.columns:
        empty = pl.when(~pl.col("has_output").fill_null(value=False))
        without_output = empty.then("delivery_without_output")
        joined = joined.with_columns(delivery=pl.coalesce(without_output, "delivery"))
    return joined.drop("delivery_without_output")


def evidence(kind: pl.Expr, identity: pl.Expr, detail: pl.Expr) -> pl.Expr:
    """One piece of evidence as a JSON list; text of a store is escaped."""
    piece = pl.struct(
        kind.alias("kind"), identity.alias("id"), detail.str.slice(0, 200).alias("detail")
    )
    return pl.concat_str(pl.lit("["), piece.struct.json_encode(), pl.lit("]"))


def numbered(reasons: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
    """Reasons sorted by their key and ``place``, which ``order`` replaces: from 0 in each key."""
    return (
        reasons.sort(*key, "place", maintain_order=True)
        .with_columns(order=pl.int_range(pl.len()).over(key).cast(pl.Int64))
        .drop("place")
    )


def situations_from_csv(package: str) -> pl.DataFrame:
    """The table of situations of a package.

    Parameters
    ----------
    package : str
        The package with ``data/situations.csv``.

    Returns
    -------
    polars.DataFrame
        ``situation``, four axes, ``delivery_without_output`` where that differs, and of its
        reason the ``dimension``, ``code``, ``message``, ``claim`` and ``confidence``;
        ``is_quoted``: the message is the text of the error, where there is one.
    """
    dtypes = {name: pl.String() for name in Situation._fields}
    typed = {**dtypes, "confidence": pl.Float64(), "is_quoted": pl.Boolean()}
    return pl.DataFrame(package_table(package, "situations.csv", Situation), typed, orient="row")


def add_situations(
    entities: pl.DataFrame, works: pl.DataFrame, table: pl.DataFrame, also: pl.Expr
) -> pl.DataFrame:
    """Add to entities the axes and reasons of their situations.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    works : polars.DataFrame
        One row per entity: its key, ``situation``, ``has_output``, ``cause``,
        ``error_message``, ``detail`` (of the evidence), and further columns of ``entities``.
    table : polars.DataFrame
        From `situations_from_csv`.
    also : polars.Expr
        A list of further situations whose reasons apply as well.
    """
    joined = left_joined(works, table.select("situation", *_AXES), on="situation")
    empty = pl.when(~pl.col("has_output").fill_null(value=True)).then("delivery_without_output")
    is_judged = pl.col("health").fill_null("") == BY_RULES
    axes = add_axes(joined.with_columns(delivery=pl.coalesce(empty, "delivery")))
    axes = axes.with_columns(recorded_health=pl.when(~is_judged).then("recorded_health"))
    whys = pl.concat_list("situation", also).list.drop_nulls().list.join(" ")
    with_whys = axes.with_columns(whys=whys)
    # Thousands of calls end in the same way, so each distinct reason is worded only once.
    distinct = (
        with_whys.select(_TEXTS)
        .unique(maintain_order=True)
        .with_row_index("entity_id")
        .with_columns(pl.lit("").alias(name) for name in _KEY if name != "entity_id")
    )
    reasons = left_joined(distinct, _by_entity(_reasons(distinct, table)), on=_KEY).drop(_KEY)
    rows = with_whys.join(reasons, on=_TEXTS, how="left", nulls_equal=True, maintain_order="left")
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    ended = rows.with_columns(
        is_over.then(name).alias(name) for name in ("reason_code", "evidence")
    )
    known = ended.select(name for name in ended.columns if name in entities.columns)
    return schema.ENTITIES.conform(_replaced(entities, known))


def _reasons(works: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """The reasons of each situation, its own first, in the shape of `schema.REASONS`."""
    whys = table.filter(pl.col("code").is_not_null()).select(*_WHY, why="situation")
    rows = (
        works.with_columns(why=pl.col("whys").str.split(" "))
        .explode("why")
        .join(whys, on="why", how="inner", maintain_order="left")
    )
    quoted = pl.when("is_quoted").then(pl.coalesce("error_message", "message"))
    cause = pl.col("cause").fill_null("unknown")
    return numbered(
        rows.select(
            *_KEY,
            "dimension",
            "confidence",
            place=pl.lit(0),
            code=pl.col("code").str.replace("{cause}", cause, literal=True),
            message=quoted.otherwise("message"),
            claim_status="claim",
            evidence=evidence(pl.lit("rule"), pl.col("why"), pl.coalesce("detail", "message")),
        ),
        schema.ENTITY_KEY,
    )


def with_recorded(
    entities: pl.DataFrame, axes: pl.DataFrame, reasons: pl.DataFrame
) -> pl.DataFrame:
    """Entities with the axes and reasons that their system records, and the code of their end.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    axes : polars.DataFrame
        The key of entities, and columns that replace theirs.
    reasons : polars.DataFrame
        In the shape of `schema.REASONS`.
    """
    rows = left_joined(entities.select(_KEY), axes, _by_entity(reasons), on=_KEY)
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    recorded = rows.with_columns(is_over.then(pl.col("reason_code", "evidence")).name.keep())
    return schema.ENTITIES.conform(_replaced(entities, recorded))


def _replaced(entities: pl.DataFrame, columns: pl.DataFrame) -> pl.DataFrame:
    """Entities with some columns replaced; only keys are joined, to avoid copying all columns."""
    first = columns.unique(_KEY, keep="first", maintain_order=True)
    joined = entities.select(_KEY).join(first, on=_KEY, how="left", maintain_order="left")
    return entities.with_columns(joined.drop(_KEY))


def silence_ends_of(turns: pl.DataFrame, system: str, open_: Sequence[str]) -> pl.DataFrame:
    """One row for each turn that is over; a dead turn is noticed when the next one begins."""
    is_dead = pl.col("situation") == "aborted"
    return (
        turns.with_columns(
            next_at=pl.col("started_at").shift(-1).over("source", "thread_id", order_by="turn_no")
        )
        .filter(~pl.col("situation").is_in(open_))
        .select(
            "source",
            system=pl.lit(system),
            entity_id="thread_id",
            at=pl.when(is_dead).then("next_at").otherwise("ended_at"),
            boundary=pl.when(is_dead).then(pl.lit("crash")).otherwise(pl.lit("own_end")),
        )
    )


class _Pattern(NamedTuple):
    """A row of ``data/error_causes.csv``: a pattern of a cause; the first match counts."""

    of: Annotated[str, ("tag", "transport tag", "words", "call")]
    cause: str
    pattern: str


_PATTERNS = package_table("stateanalytics.systems", "error_causes.csv", _Pattern)
_BY_TAG, _OF_TRANSPORT, _BY_WORDS, _BY_CALL = (
    {row.cause: row.pattern for row in _PATTERNS if row.of == of}
    for of in ("tag", "transport tag", "words", "call")
)
"""Patterns of tags, of tags of the connection, of texts of errors, and of texts of calls.

A tag of the connection only shows where an error happened, so a status or text takes precedence.
Messages about throttling also mention too many tokens, so the rate limit is looked for first.
"""
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
    # If a gateway cut a stream it adds its own status, but the cause is the connection.
    is_transport = pl.col(tag).str.to_lowercase().str.contains(
        _OF_TRANSPORT["provider_transport"]
    ) | pl.col(tag).str.contains(_BY_WORDS["provider_transport"])
    is_cut = is_transport & (pl.col(status) >= 500) & pl.col(message).str.contains(_CUT)
    return pl.coalesce(
        pl.when(is_cut).then(transport),
        cause_by_tag(tag, message),
        cause_by_words(status, message),
        pl.when(is_transport).then(transport),
        pl.lit("provider_unknown"),
    )


def with_cause(errors: pl.DataFrame, *exact: str) -> pl.DataFrame:
    """Rows with the ``cause`` of their error, by the columns that `cause_of_error` reads.

    Columns in ``exact`` have a more exact tag, which takes precedence.

    Examples
    --------
    >>> errors = {"error_type": ["", ""], "error_status": 529, "error_message": ""}
    >>> with_cause(pl.DataFrame(errors))["cause"].to_list()
    ['provider_internal', 'provider_internal']
    """
    # Errors repeat, so each distinct one is matched once: twenty patterns are slow.
    key = ["error_type", "error_status", "error_message", *exact]
    cause = pl.coalesce(*map(cause_by_tag, exact), cause_of_error())
    found = errors.lazy().select(key).unique().with_columns(cause=cause).collect()
    return errors.join(found, on=key, how="left", maintain_order="left", nulls_equal=True)


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
    return refined(pl.coalesce(by_tag, _by_status(number), _first_match(words, _BY_WORDS)), words)


def _first_match(text: pl.Expr, patterns: Mapping[str, str]) -> pl.Expr:
    """The cause of the first pattern that matches a text; null if none does."""
    return first_that_holds({cause: text.str.contains(of) for cause, of in patterns.items()})


def _by_tag(tag: pl.Expr) -> pl.Expr:
    return _first_match(tag.str.to_lowercase(), _BY_TAG)


def _by_status(status: pl.Expr) -> pl.Expr:
    return first_that_holds(
        {
            "provider_auth": status.is_in([401, 403]),
            "provider_quota": status == 402,
            "provider_rate_limit": status == 429,
            # 408 means that the request took too long, 413 that it was too large.
            "provider_transport": status == 408,
            "context_overflow": status == 413,
            "provider_internal": status >= 500,
            "provider_invalid_request": status >= 400,
        }
    )


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
        "context_overflow": is_refused & words.str.contains(_BY_WORDS["context_overflow"]),
        "content_filtered": is_refused & words.str.contains(_BY_WORDS["content_filtered"]),
        "provider_auth": is_refused & words.str.contains(_BY_WORDS["provider_auth"]),
        "provider_quota": (is_refused | (cause == "provider_rate_limit"))
        & words.str.contains(_BY_WORDS["provider_quota"]),
    }
    return pl.coalesce(first_that_holds(exact), cause)


# The output of the command follows the exit code. It may mention anything, such as the time
# limit of another program.
_EXIT = r"(?i)^(?:Error: )?exit code:? [1-9]"
_OWN_LIMIT = r"(?im)^command timed out after"


def cause_in(message: pl.Expr, *, is_denied: pl.Expr | None = None) -> pl.Expr:
    """Why a call failed, by the words of its error, as in reason codes.

    Parameters
    ----------
    message : polars.Expr
        The text of the error; null or empty: nothing is known.
    is_denied : polars.Expr, optional
        Whether it is known that a person or a rule refused the call.

    Examples
    --------
    >>> said = pl.DataFrame({"said": ["Exit code 2", "Command timed out after 2m", "Oh no"]})
    >>> said.select(cause_in(pl.col("said"))).to_series().to_list()
    ['exit_nonzero', 'timeout', 'tool_error']
    """
    words = message.fill_null("")
    rules = {name: words.str.contains(pattern) for name, pattern in _BY_CALL.items()}
    has_exit = words.str.contains(_EXIT)
    for name in ("permission_rejected", "timeout"):
        rules[name] &= ~has_exit
    if is_denied is not None:
        rules["permission_rejected"] |= is_denied
    rules["timeout"] |= words.str.contains(_OWN_LIMIT)
    return pl.coalesce(
        *(pl.when(rule).then(pl.lit(name)) for name, rule in rules.items()), pl.lit("tool_error")
    )
