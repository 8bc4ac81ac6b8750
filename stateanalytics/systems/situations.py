"""What a system records of its states, in ADR-0033 terms, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.vocabulary import STATUS_WORDS, StatusWord

OBSERVED, INFERRED = "observed", "inferred"


@dataclass(frozen=True)
class Meaning:
    """What a situation means.

    Attributes
    ----------
    lifecycle, outcome, health, delivery : str or None
        ADR-0033's words.
    delivery_without_output : str, optional
        The delivery where nothing was put out, if that differs.
    """

    lifecycle: str
    outcome: str | None
    health: str | None
    delivery: str | None
    delivery_without_output: str | None = None

    @property
    def empty_delivery(self) -> str | None:
        """The delivery where nothing was put out."""
        return self.delivery_without_output or self.delivery


CONTENT_FILTER_FINISHES = (
    "content_filter", "content_filtered", "refusal", "safety", "image_safety", "recitation",
    "blocklist", "prohibited_content", "spii", "guardrail_intervened",
)  # fmt: skip
"""Why an answer finished, where a provider's content filter stopped it, in their own words."""


def is_content_filter(finish: str) -> pl.Expr:
    """Does a column say that a content filter stopped an answer, however it is spelt; never null.

    Examples
    --------
    >>> finishes = pl.DataFrame({"finish": ["content-filter", "SAFETY", "contentFilter", "stop"]})
    >>> finishes.select(is_content_filter("finish"))["finish"].to_list()
    [True, True, True, False]
    """
    words = [word.replace("_", "") for word in CONTENT_FILTER_FINISHES]
    letters = pl.col(finish).str.to_lowercase().str.replace_all("[^a-z]", "")
    return letters.is_in(words).fill_null(value=False)


# Half of a pair of surrogates is no text, and no parser reads it.
_UNICODE = (
    r"\\u(?:[0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}"
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)
_TEXT = rf'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|{_UNICODE})*"'
_GAP = r"[ \t\r\n]*"
_LIST_OF_TEXTS = rf"^{_GAP}\[{_GAP}(?:{_TEXT}{_GAP}(?:,{_GAP}{_TEXT}{_GAP})*)?\]{_GAP}$"
OTHER_AXES = r"\.(health|delivery)\."
"""In a reason code: it explains the health or the delivery, not the status."""


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


_KEY = list(schema.ENTITY_KEY)
_WORD_COLUMNS = ("entity_type", "raw_status", "own_lifecycle", "own_outcome")


def add_axes(
    entities: pl.DataFrame, lifecycle: str, outcome: str, health: str, delivery: str
) -> pl.DataFrame:
    """Add the ``recorded_`` axes from columns in ADR-0033's words.

    Parameters
    ----------
    entities : polars.DataFrame
        One row an entity.
    lifecycle, outcome, health, delivery : str
        Columns; null: it does not apply. Without a lifecycle nothing is known: *unknown*.

    Examples
    --------
    >>> rows = pl.DataFrame({"a": ["failed", None], "b": ["failed", None], "c": ["ok", None]})
    >>> add_axes(rows.with_columns(d=None), "a", "b", "c", "d").select(
    ...     "recorded_lifecycle", "recorded_outcome", "recorded_health").rows()
    [('failed', 'failed', 'ok'), ('unknown', 'unknown', 'none')]
    """
    unknown, none = pl.lit("unknown"), pl.lit(schema.NO_WORD)
    return entities.with_columns(
        recorded_lifecycle=pl.coalesce(lifecycle, unknown),
        recorded_outcome=pl.when(pl.col(lifecycle).is_null()).then(unknown).otherwise(outcome),
        recorded_health=pl.coalesce(health, none),
        recorded_delivery=pl.coalesce(delivery, none),
    )


def has_own_words(vocabulary: Sequence[StatusWord]) -> bool:
    """Do statuses mean something of their own; rules read ADR-0033's from ``raw_status``.

    Examples
    --------
    >>> has_own_words(STATUS_WORDS)
    False
    """
    return any(word not in STATUS_WORDS for word in vocabulary)


def add_words(entities: pl.DataFrame, vocabulary: Sequence[StatusWord]) -> pl.DataFrame:
    """Fill the recorded lifecycle and outcome from a system's own statuses.

    Parameters
    ----------
    entities : polars.DataFrame
        Of that system, in the shape of `schema.ENTITIES`.
    vocabulary : sequence of StatusWord
        The statuses that it gives.

    Returns
    -------
    polars.DataFrame
        The same rows. Where a reader recorded a lifecycle, or no word fits, a row stays
        as it is: the two axes are one decision, so neither is filled without the other.

    Examples
    --------
    >>> done = StatusWord("session", "", "done", "completed", "completed", is_terminal=True)
    >>> rows = schema.ENTITIES.conform(
    ...     pl.DataFrame({"entity_type": "session", "raw_status": ["done", "odd"]})
    ... )
    >>> add_words(rows, [done]).select("recorded_lifecycle", "recorded_outcome").rows()
    [('completed', 'completed'), (None, None)]
    """
    table = pl.DataFrame(
        [(word.entity_type, word.raw_status, word.lifecycle, word.outcome) for word in vocabulary],
        schema=dict.fromkeys(_WORD_COLUMNS, pl.String),
        orient="row",
    )
    is_open = pl.col("recorded_lifecycle").is_null()
    worded = entities.join(
        table, on=_WORD_COLUMNS[:2], how="left", maintain_order="left"
    ).with_columns(
        recorded_lifecycle=pl.coalesce("recorded_lifecycle", "own_lifecycle"),
        recorded_outcome=pl.when(is_open).then("own_outcome").otherwise("recorded_outcome"),
    )
    return schema.ENTITIES.conform(worded)


def add_reasons(entities: pl.DataFrame, reasons: pl.DataFrame) -> pl.DataFrame:
    """Add ``recorded_reasons`` and their codes from rows in the shape of `schema.REASONS`.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    reasons : polars.DataFrame
        In the shape of `schema.REASONS`, most direct first within an entity.
    """
    texts = reasons.with_columns(pl.col("dimension", "claim_status").cast(pl.String))
    by_entity = (
        texts.sort("order", maintain_order=True)
        .with_columns(reason=pl.struct(schema.RECORDED_REASON).struct.json_encode())
        .group_by(_KEY)
        # Of lists they are joined in a third of the time that groups take.
        .agg(codes="code", listed="reason")
        .with_columns(
            codes=pl.col("codes").list.join(schema.CODE_SEPARATOR),
            listed=pl.format("[{}]", pl.col("listed").list.join(",")),
        )
    )
    joined = entities.join(by_entity, on=_KEY, how="left", maintain_order="left")
    return joined.with_columns(recorded_reason_codes="codes", recorded_reasons="listed").drop(
        "codes", "listed"
    )


def first_that_holds(rules: Mapping[str, pl.Expr]) -> pl.Expr:
    """The name of the first rule that is true; null where none is."""
    return pl.coalesce(
        pl.when(holds.fill_null(value=False)).then(pl.lit(name)) for name, holds in rules.items()
    )


def with_axes(frame: pl.DataFrame, meanings: Mapping[str, Meaning]) -> pl.DataFrame:
    """Add the four axes of each row's ``situation``."""

    def read(values: Mapping[str, str | None]) -> pl.Expr:
        return pl.col("situation").replace_strict(values, default=None, return_dtype=pl.String)

    has_output = (
        pl.col("has_output").fill_null(value=False)
        if "has_output" in frame.columns
        else pl.lit(value=True)
    )
    full = read({name: meaning.delivery for name, meaning in meanings.items()})
    empty = read({name: meaning.empty_delivery for name, meaning in meanings.items()})
    return frame.with_columns(
        lifecycle=read({name: meaning.lifecycle for name, meaning in meanings.items()}),
        outcome_word=read({name: meaning.outcome for name, meaning in meanings.items()}),
        health=read({name: meaning.health for name, meaning in meanings.items()}),
        delivery=pl.when(has_output).then(full).otherwise(empty),
    )


def evidence(kind: pl.Expr, identity: pl.Expr, detail: pl.Expr) -> pl.Expr:
    """One piece of evidence as a JSON list; what a store says is escaped."""
    piece = pl.struct(
        kind.alias("kind"), identity.alias("id"), detail.str.slice(0, 200).alias("detail")
    )
    return pl.concat_str(pl.lit("["), piece.struct.json_encode(), pl.lit("]"))


def numbered(reasons: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
    """Sort reasons and number them from 0 within their key; ``place`` goes."""
    return (
        reasons.sort(*key, "place", maintain_order=True)
        .with_columns(order=pl.int_range(pl.len()).over(key).cast(pl.Int64))
        .drop("place")
    )


BY_RULES = "rules"
_AXES = ("lifecycle", "outcome", "health", "delivery", "delivery_without_output")
_WHY = ("dimension", "code", "message", "claim", "confidence", "is_quoted")
_ALIKE = ("whys", "cause", "error_message", "detail")


def situations_from_csv(package: str) -> pl.DataFrame:
    """The table of a package, one row a situation.

    Parameters
    ----------
    package : str
        The package with ``data/situations.csv``.

    Returns
    -------
    polars.DataFrame
        ``situation``, four axes, ``delivery_without_output`` where that differs, and of its
        reason the ``dimension``, ``code``, ``message``, ``claim`` and ``confidence``;
        ``is_quoted``: the words of the error are the message, where there are any.
    """
    rows = [
        {column: word or None for column, word in row.items()}
        for row in table_rows(package, "situations.csv")
    ]
    names = ("situation", *_AXES, *_WHY)
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String)).with_columns(
        pl.col("confidence").cast(pl.Float64), is_quoted=pl.col("is_quoted").is_not_null()
    )


def add_situations(
    entities: pl.DataFrame, works: pl.DataFrame, table: pl.DataFrame, also: pl.Expr
) -> pl.DataFrame:
    """Add to entities what their situations mean, and why they hold.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    works : polars.DataFrame
        One row an entity: its key, ``situation``, ``has_output``, ``cause``,
        ``error_message``, ``detail`` (of the evidence), and further columns of ``entities``.
    table : polars.DataFrame
        From `situations_from_csv`.
    also : polars.Expr
        A list of further situations, whose reasons hold as well.
    """
    meant = works.join(
        table.select("situation", *_AXES), on="situation", how="left", maintain_order="left"
    )
    empty = pl.when(~pl.col("has_output").fill_null(value=True)).then("delivery_without_output")
    is_judged = pl.col("health").fill_null("") == BY_RULES
    axes = add_axes(
        meant.with_columns(delivery=pl.coalesce(empty, "delivery")), *_AXES[:4]
    ).with_columns(recorded_health=pl.when(~is_judged).then("recorded_health"))
    # Thousands of calls went alike: why is put in words once for all of them.
    whys = pl.concat_list("situation", also).list.drop_nulls().list.join(" ")
    known = axes.with_columns(whys=whys)
    alike = known.select(_ALIKE).unique(maintain_order=True).with_row_index("entity_id")
    said = _said(alike.with_columns(pl.col("entity_id").cast(pl.String)), table)
    joined = known.join(said, on=_ALIKE, how="left", nulls_equal=True, maintain_order="left")
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    told = joined.with_columns(
        is_over.then(name).alias(name) for name in ("reason_code", "evidence")
    )
    return _beside(entities, told.select(name for name in told.columns if name in entities.columns))


def _said(alike: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Works that are alike, with their reasons as columns of entities."""
    rows = alike.with_columns(pl.lit("").alias(name) for name in _KEY if name != "entity_id")
    over = rows.select(*_KEY, recorded_outcome=pl.lit("any"))
    told = with_recorded(schema.ENTITIES.conform(over), over, _reasons(rows, table))
    columns = ("recorded_reasons", "recorded_reason_codes", "reason_code", "evidence")
    return rows.select(_ALIKE).hstack(told.select(columns))


def _reasons(works: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Why each situation holds, its own reason first, in the shape of `schema.REASONS`."""
    whys = table.filter(pl.col("code").is_not_null()).select(*_WHY, why="situation")
    rows = (
        works.with_columns(why=pl.col("whys").str.split(" "))
        .explode("why")
        .join(whys, on="why", how="inner", maintain_order="left")
    )
    said = pl.when("is_quoted").then(pl.coalesce("error_message", "message")).otherwise("message")
    cause = pl.col("cause").fill_null("unknown")
    return numbered(
        rows.select(
            *_KEY,
            "dimension",
            "confidence",
            place=pl.lit(0),
            code=pl.col("code").str.replace("{cause}", cause, literal=True),
            message=said,
            claim_status="claim",
            evidence=evidence(pl.lit("rule"), pl.col("why"), pl.coalesce("detail", "message")),
        ),
        schema.ENTITY_KEY,
    )


def with_recorded(
    entities: pl.DataFrame, axes: pl.DataFrame, reasons: pl.DataFrame
) -> pl.DataFrame:
    """Entities with what their system knows of their states, and the code of what ended them.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    axes : polars.DataFrame
        The key of entities, and columns that go in place of theirs.
    reasons : polars.DataFrame
        In the shape of `schema.REASONS`.
    """
    ends = (
        reasons.filter(pl.col("dimension") == "lifecycle")
        .sort("order")
        .unique(_KEY, keep="first", maintain_order=True)
        .select(*_KEY, code="code", why="evidence")
    )
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    known = {"recorded_outcome"} - set(axes.columns)
    beside = entities.select(*_KEY, *known)
    for told in (axes, ends):
        beside = beside.join(told, on=_KEY, how="left", maintain_order="left")
    told = add_reasons(beside, reasons).with_columns(
        reason_code=is_over.then("code"), evidence=is_over.then("why")
    )
    return _beside(entities, told.drop("code", "why"))


def _beside(entities: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Entities with columns in place of theirs; joined to their keys alone, as there are many."""
    first = told.unique(_KEY, keep="first", maintain_order=True)
    columns = entities.select(_KEY).join(first, on=_KEY, how="left", maintain_order="left")
    return schema.ENTITIES.conform(entities.with_columns(columns.drop(_KEY)))
