"""Message templates: what failure messages have in common, and what varies in them.

Masks first (things with a shape, words that hold a digit), then templates that differ in
one word are merged where that word evidently varies. Everything is decided on sets, so
the order of messages never matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence

import polars as pl

from stateanalytics.errors import (
    ArgumentError,
    ColumnTypeError,
    check_columns,
    did_you_mean,
    found,
    in_short,
)
from stateanalytics.failures.cut_off import CUT, TRACE_HERE, join_cut_texts, join_traces
from stateanalytics.failures.masking import (
    KEPT_KINDS,
    as_line,
    as_placeholders,
    as_shown,
    mask,
)
from stateanalytics.failures.merging import merge, unmerged
from stateanalytics.failures.placeholders import CLOSE, OPEN, WILDCARD
from stateanalytics.failures.traces import trace_as_shown

#: Named in every id. Rules that make other templates get another version, and the ones
#: before stand in `known_ids.FORMER` for a release, so that ids of both are known.
VERSION = "v1"

# Neighbours are one: nobody can tell where the first of them ends.
_ANYTHING = f"(?:{OPEN}[A-Z]*{CLOSE})+"
_NOTHING = pl.DataFrame(schema={"pattern": pl.String})
COLUMNS = ("template", "template_typed", "template_id", "pattern")


def mine_templates(
    messages: Sequence[str | None] | pl.Series,
    *,
    earlier: pl.DataFrame | None = None,
    keep: Collection[str] = KEPT_KINDS,
) -> pl.DataFrame:
    """The template of every message, and an id that is the same next week.

    Parameters
    ----------
    messages : sequence of str or polars.Series, length n_messages
        Text of any length; null stays null.
    earlier : polars.DataFrame, optional
        What was mined before, with ``pattern``: these patterns count as if their messages
        were there again, so that a week is mined in the light of all weeks before.
    keep : collection of str
        Numbers that tell failures apart and stand as they are: kinds of
        `stateanalytics.failures.masking.KEPT`, such as ``"exit code"``; by default all. Logs
        in which every number is a value need none: ``keep=()``.

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
    ArgumentError
        If ``keep`` names no such kind.

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
    kinds = _checked_kinds(keep)
    rows = pl.DataFrame({"message": _as_text(messages)}).with_row_index("row")
    distinct = rows.drop_nulls().group_by("message").agg("row").with_row_index("number")
    masked = mask(distinct.select("number", "message"), kinds)
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
    worked = _worked(shown)
    distinct = worked["text"].unique()
    merged = (
        worked.join(
            pl.DataFrame({"text": distinct, "merged": merge(distinct)}),
            on="text",
            maintain_order="left",
        )
        .pipe(join_traces)
        .pipe(join_cut_texts)
        .with_columns(_on_one_line(pl.col("merged")))
    )
    typed = as_shown(pl.col("merged"))
    texts = merged.select(
        pattern="shown", template=_without_kinds(pl.col("merged")), template_typed=typed
    )
    found = texts["template"].unique().to_list()
    ids = pl.Series([template_id(text) for text in found], dtype=pl.String)
    return texts.with_columns(
        template_id=pl.col("template").replace_strict(found, ids, return_dtype=pl.String)
    )


def mine_with_parts(messages: pl.Series) -> pl.DataFrame:
    """The ``template`` of every message, and the one it has ``alone``, without the others.

    The ids of both are ids of its cluster: see `aliases`.

    Examples
    --------
    >>> users = ["ada", "ben", "cyd", "dov", "eve"]
    >>> mine_with_parts(pl.Series([f"login of {user} broke" for user in users])).row(0)
    ('login of <*> broke', 'login of ada broke')
    """
    mined = mine_templates(messages)
    worked = _worked(mined.select("pattern").drop_nulls().unique())
    alone = worked.select(
        pattern="shown", alone=_without_kinds(_on_one_line(pl.lit(unmerged(worked["text"]))))
    )
    return mined.join(alone, on="pattern", how="left", maintain_order="left").select(
        "template", "alone"
    )


def template_id(template: str) -> str:
    """The id of a template: the version of the algorithm and a digest of the text.

    Examples
    --------
    >>> template_id("worker <*> died").startswith("v1:")
    True
    """
    return versioned_id(template)


def versioned_id(text: str, version: str | None = None) -> str:
    """A digest of a text, under the version of the miner that made it (None: this one)."""
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return f"{version or VERSION}:{digest}"


def _worked(shown: pl.DataFrame) -> pl.DataFrame:
    """Patterns as they are merged: their text, and what is said beside it."""
    halves = pl.col("pattern").str.splitn("\n\t", 2).struct
    trace = pl.lit("\n\t") + halves.field("field_1")
    return shown.select(
        shown="pattern",
        trace=trace,
        is_cut=trace.is_null() & halves.field("field_0").str.ends_with(f" {CUT}"),
        text=as_placeholders(halves.field("field_0").str.strip_suffix(f" {CUT}"))
        + (pl.lit(TRACE_HERE) + trace_as_shown(trace)).fill_null(""),
    )


def _on_one_line(merged: pl.Expr) -> pl.Expr:
    return as_line(merged.str.replace_all(TRACE_HERE, "", literal=True))


def _without_kinds(merged: pl.Expr) -> pl.Expr:
    link = f"{OPEN}LINK{CLOSE}"
    return merged.str.replace_all(link, f"://{link}", literal=True).str.replace_all(
        _ANYTHING, WILDCARD
    )


def _patterns_of(mined: pl.DataFrame, function: str) -> pl.DataFrame:
    check_columns(mined, ["pattern"], function)
    return mined.select(pl.col("pattern").cast(pl.String)).drop_nulls().unique()


def _checked_kinds(keep: object) -> list[str]:
    is_several = isinstance(keep, Iterable) and not isinstance(keep, str)
    kinds: list[str] = [*keep] if is_several else [keep]  # type: ignore[list-item, misc]
    if unknown := [kind for kind in kinds if kind not in KEPT_KINDS]:
        raise ArgumentError(
            f"keep needs kinds of {', '.join(KEPT_KINDS)}; found {in_short(unknown[0])}.",
            'keep=["exit code"], or keep=() for none' + did_you_mean(str(unknown[0]), KEPT_KINDS),
        )
    return kinds


def _as_text(messages: Sequence[str | None] | pl.Series) -> pl.Series:
    if not isinstance(messages, Iterable) or isinstance(messages, str | pl.DataFrame):
        raise ColumnTypeError(
            f"mine_templates needs several texts; found {found(messages)}.",
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
