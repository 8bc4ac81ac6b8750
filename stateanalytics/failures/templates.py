"""Message templates: what failure messages have in common, and what varies in them.

Masks first (things with a shape, words that hold a digit), then templates that differ in
one word are merged where that word evidently varies. Everything is decided on sets, so
the order of messages never matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import polars as pl

from stateanalytics.errors import ColumnTypeError, check_columns
from stateanalytics.failures.masking import (
    CLOSE,
    KEPT,
    NAME_WITH_NUMBER,
    NAMES,
    OPEN,
    OPPOSITES,
    PARTING,
    WILDCARD,
    as_placeholders,
    as_shown,
    mask,
)

#: A word that takes this many values between the same other words varies.
N_VALUES = 5
#: What remains of a template must still say something.
N_CONSTANT = 2
#: Pairs of placeholders are looked at in patterns with at most so many.
N_WORDS = 12


def merge(patterns: pl.DataFrame) -> pl.DataFrame:
    """Merge patterns over words that vary, round by round, until nothing changes.

    A round looks at every pattern with one of its words left out. Where that shortened
    pattern exists already, with a placeholder there, the pattern joins it; where at least
    `N_VALUES` patterns share it, the word varies and all of them become it. All decisions
    of a round are taken on the set as it was, so order never matters.

    Parameters
    ----------
    patterns : polars.DataFrame, shape (n_patterns, 1)
        Distinct ``pattern``, as `masking.mask` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_patterns, 2)
        ``pattern`` and ``merged``, the pattern it became.
    """
    live = _pieces(patterns)
    while (after := _next(live)) is not None:
        live = after
    return (
        live.group_by("number", maintain_order=True)
        .agg(merged=pl.col("piece").str.join(""))
        .join(patterns.with_row_index("number"), on="number")
        .select("pattern", "merged")
    )


def _next(live: pl.DataFrame) -> pl.DataFrame | None:
    after = _one_round(live)
    return _two_words(live) if after is None else after


def _pieces(patterns: pl.DataFrame) -> pl.DataFrame:
    """One row per word, and per what parts words; which words may vary."""
    pieces = (
        patterns.with_row_index("number")
        .select("number", piece=pl.col("pattern").str.extract_all(rf"[{PARTING}]+|[^{PARTING}]+"))
        .explode("piece", empty_as_null=True)
        .with_columns(pl.col("piece").fill_null(""), column=pl.int_range(pl.len()).over("number"))
    )
    piece = pl.col("piece")
    is_word = ~piece.str.contains(rf"^[{PARTING}]*$") & ~piece.str.contains(OPEN, literal=True)
    models = next(pattern for name, pattern in KEPT if name == "model")
    may_vary = (
        is_word
        & (~piece.str.contains("[0-9]") | piece.str.contains(f"^{NAME_WITH_NUMBER}$"))
        & ~piece.str.to_lowercase().is_in(sorted(OPPOSITES))
        & ~piece.str.contains(NAMES)
        & ~piece.str.contains(f"^{models}$")
    )
    words = (
        pieces.select("piece")
        .unique()
        .with_columns(is_constant=is_word & piece.str.contains("[A-Za-z]"), may_vary=may_vary)
    )
    return pieces.join(words, on="piece", how="left", maintain_order="left")


def _hashed(live: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pieces with their hashes, and the sum of them for each pattern.

    A pattern is the sum of its pieces' hashes, so leaving one out is a subtraction.
    """
    place, wildcard = pl.col("column").hash(7), pl.lit(OPEN + CLOSE).hash(11)
    is_wild = pl.col("piece").str.starts_with(OPEN) & pl.col("piece").str.ends_with(CLOSE)
    hashed = live.with_columns(
        part=pl.when(is_wild).then(wildcard).otherwise(pl.col("piece").hash(11)) ^ place,
        blank=wildcard ^ place,
        is_wild=is_wild,
    )
    whole = hashed.group_by("number").agg(
        whole=pl.col("part").sum(), n_constant=pl.col("is_constant").sum(), length=pl.len()
    )
    return hashed, whole


def _two_words(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after patterns joined one that has a placeholder for two of their words.

    What takes many values in two places at once leaves stragglers: too few share either of
    their words, though everything else says what they are. None where nothing joins.
    """
    hashed, whole = _hashed(live)
    change = pl.col("blank") - pl.col("part")
    words = (
        hashed.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT + 2), on="number")
        .select("number", "column", "whole", "length", change=change)
    )
    others = words.select("number", other="column", more="change")
    pairs = (
        words.join(_open_pairs(hashed, whole), on=["length", "column"])
        .join(others, on=["number", "other"])
        .with_columns(without=pl.col("whole") + pl.col("change") + pl.col("more"))
        .filter(pl.col("without").is_in(whole["whole"].unique().implode()))
    )
    if pairs.is_empty():
        return None
    first = pairs.sort("number", "column", "other").unique(
        "number", keep="first", maintain_order=True
    )
    both = first.select("number", column=pl.concat_list("column", "other")).explode("column")
    return _with_placeholders(live, both)


def _open_pairs(hashed: pl.DataFrame, whole: pl.DataFrame) -> pl.DataFrame:
    """Which two columns are placeholders in some pattern of each length."""
    wild = (
        hashed.filter("is_wild")
        .filter(pl.len().over("number") <= N_WORDS)
        .join(whole.select("number", "length"), on="number")
        .select("number", "length", "column")
    )
    # Patterns with the same placeholders say the same: one of each is enough.
    alike = wild.group_by("number", "length").agg(pl.col("column").sort())
    representatives = alike.unique(["length", "column"], keep="any").explode("column")
    return (
        representatives.join(representatives.select("number", other="column"), on="number")
        .filter(pl.col("column") < pl.col("other"))
        .select("length", "column", "other")
        .unique()
    )


def _one_round(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after one round of merging; None where nothing merges."""
    hashed, whole = _hashed(live)
    candidates = (
        hashed.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT), on="number")
        .with_columns(without=pl.col("whole") - pl.col("part") + pl.col("blank"))
        .with_columns(
            n_values=pl.col("piece").n_unique().over("without"),
            exists=pl.col("without").is_in(whole["whole"].unique().implode()),
        )
        .filter(pl.col("exists") | (pl.col("n_values") >= N_VALUES))
    )
    if candidates.is_empty():
        return None
    chosen = (
        candidates.sort(
            "number", "exists", "n_values", "column", descending=[False, True, True, False]
        )
        .group_by("number", maintain_order=True)
        .agg(pl.col("column").first())
    )
    return _with_placeholders(live, chosen)


def _with_placeholders(live: pl.DataFrame, chosen: pl.DataFrame) -> pl.DataFrame:
    """The pieces with a placeholder in each chosen column."""
    is_chosen = pl.col("is_chosen").fill_null(value=False)
    return live.join(
        chosen.with_columns(is_chosen=True),
        on=["number", "column"],
        how="left",
        maintain_order="left",
    ).select(
        "number",
        "column",
        piece=pl.when(is_chosen).then(pl.lit(OPEN + CLOSE)).otherwise("piece"),
        is_constant=pl.col("is_constant") & ~is_chosen,
        may_vary=pl.col("may_vary") & ~is_chosen,
    )


#: Named in every id: a better algorithm gets another version and leaves old ids alone.
VERSION = "v1"

# Neighbours are one: nobody can tell where the first of them ends.
_ANYTHING = f"(?:{OPEN}[A-Z]*{CLOSE})+"
_NOTHING = pl.DataFrame(schema={"pattern": pl.String})
COLUMNS = ("template", "template_typed", "template_id", "pattern")


def mine_templates(
    messages: Sequence[str | None] | pl.Series, *, earlier: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The template of every message, and an id that is the same next week.

    Parameters
    ----------
    messages : sequence of str or polars.Series, length n_messages
        Text of any length; null stays null.
    earlier : polars.DataFrame, optional
        What was mined before, with ``pattern``: these patterns count as if their messages
        were there again, so that a week is mined in the light of all weeks before.

    Returns
    -------
    polars.DataFrame, shape (n_messages, 4)
        In the order of ``messages``: ``template``, with ``<*>`` for what varies;
        ``template_typed``, with the kind of thing where it is known (``<UUID>``,
        ``<PATH>``, …); ``template_id``: ``v1:`` and a digest of the template; ``pattern``:
        the message alone, before it was compared with others. All null where the message
        is null.

    Raises
    ------
    ColumnTypeError
        If the messages are not text.
    MissingColumnsError
        If ``earlier`` has no ``pattern``.

    Notes
    -----
    The templates depend on the set of messages, never on their order or repetition.
    Exit codes, HTTP statuses, signals, exception classes and model names are kept apart
    (`stateanalytics.failures.masking.KEPT`); tracebacks are reduced to the exception and
    the functions of the user's own code; messages above 4 000 characters keep their
    beginning and end.

    Examples
    --------
    >>> mined = mine_templates(["worker 17 died: exit code 137", "worker 4 died: exit code 1"])
    >>> mined["template"].to_list()
    ['worker <*> died: exit code 137', 'worker <*> died: exit code 1']
    """
    rows = pl.DataFrame({"message": _as_text(messages)}).with_row_index("row")
    distinct = rows.drop_nulls().group_by("message").agg("row").with_row_index("number")
    masked = mask(distinct.select("number", "message"))
    known = [masked] if earlier is None else [masked, _patterns_of(earlier, "mine_templates")]
    named = masked.join(merge_templates(*known), on="pattern").with_row_index("which")
    # Numbers all the way down: only the few patterns are compared as text.
    which = (
        named.select("which", number="numbers")
        .explode("number")
        .join(distinct.select("number", "row"), on="number")
        .explode("row")
    )
    placed = rows.select("row").join(which, on="row", how="left", maintain_order="left")
    return named.select(pl.col(COLUMNS).gather(placed["which"]))


def merge_templates(*mined: pl.DataFrame) -> pl.DataFrame:
    """The templates of patterns that were mined apart, as if they had been mined together.

    Parameters
    ----------
    *mined : polars.DataFrame
        What `mine_templates` or this function gave, with ``pattern``.

    Returns
    -------
    polars.DataFrame, shape (n_patterns, 4)
        Distinct ``pattern``, sorted, with its ``template``, ``template_typed`` and
        ``template_id``.

    Raises
    ------
    MissingColumnsError
        If a frame has no ``pattern``.

    Notes
    -----
    Merging is exact: in whatever order and grouping parts are merged, the result is that
    of mining all messages at once. Only the patterns have to be kept.

    Examples
    --------
    >>> monday, tuesday = mine_templates(["job x is late"]), mine_templates(["job 7 is late"])
    >>> merge_templates(monday, tuesday)["template"].to_list()
    ['job <*> is late', 'job <*> is late']
    """
    parts = [_patterns_of(part, "merge_templates") for part in mined]
    shown = pl.concat([*parts, _NOTHING]).unique().sort("pattern")
    worked = shown.with_columns(pattern=as_placeholders(pl.col("pattern")), shown="pattern")
    merged = worked.join(merge(worked.select("pattern")), on="pattern", maintain_order="left")
    link = f"{OPEN}LINK{CLOSE}"
    typed = as_shown(pl.col("merged"))
    template = (
        pl.col("merged")
        .str.replace_all(link, f"://{link}", literal=True)
        .str.replace_all(_ANYTHING, WILDCARD)
    )
    texts = merged.select(pattern="shown", template=template, template_typed=typed)
    distinct = texts["template"].unique().to_list()
    ids = pl.Series([template_id(text) for text in distinct], dtype=pl.String)
    return texts.with_columns(
        template_id=pl.col("template").replace_strict(distinct, ids, return_dtype=pl.String)
    )


def template_id(template: str) -> str:
    """The id of a template: the version of the algorithm and a digest of the text.

    Examples
    --------
    >>> template_id("worker <*> died").startswith("v1:")
    True
    """
    return f"{VERSION}:{hashlib.blake2b(template.encode(), digest_size=6).hexdigest()}"


def _patterns_of(mined: pl.DataFrame, function: str) -> pl.DataFrame:
    check_columns(mined, ["pattern"], function)
    return mined.select(pl.col("pattern").cast(pl.String)).drop_nulls().unique()


def _as_text(messages: Sequence[str | None] | pl.Series) -> pl.Series:
    if not isinstance(messages, Iterable) or isinstance(messages, str):
        raise ColumnTypeError(
            f"mine_templates needs several texts; found {type(messages).__name__} "
            f"{messages!r:.60}.",
            '["worker 17 died", "worker 4 died"]',
        )
    if not isinstance(messages, pl.Series):
        strange = next((m for m in messages if not (m is None or isinstance(m, str))), None)
        if strange is not None:
            raise ColumnTypeError(
                f"mine_templates needs text; found {type(strange).__name__}.",
                "[str(message) for message in messages]",
            )
        return pl.Series(messages, dtype=pl.String)
    if messages.dtype not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
        raise ColumnTypeError(
            f"mine_templates needs text; found {messages.dtype}.", "messages.cast(pl.String)"
        )
    return messages.cast(pl.String)
