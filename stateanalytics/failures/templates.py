"""Message templates: what failure messages have in common, and what varies in them.

Masking comes first (values with a shape, words that hold a digit); then patterns are merged
where they differ in what evidently varies; at last truncated messages join the template of
the one whole message that they are the beginning of. Everything is decided on sets, so
the order of messages never matters.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.errors import (
    ArgumentError,
    ColumnTypeError,
    check_columns,
    did_you_mean,
    found,
    in_short,
)
from stateanalytics.failures import masking
from stateanalytics.failures.merging import merge, unmerged
from stateanalytics.failures.traces import CUT, NO_CAUSE, trace_as_shown

#: Part of every id. Rules that make other templates get another version, and the former
#: ones stay in `cluster_life.FORMER` for a release, so that ids of both are known.
VERSION = "v1"

#: Words of a truncated text that are enough to recognise the rest by.
N_SAID = 4
#: Longer templates are not tried as the rest of a truncated text.
N_WORDS = 150
#: So many words of one are compared behind a value: expressions nest only so deep.
N_NESTED = 80

# Adjacent placeholders become one: nobody can tell where the first of them ends.
_ANYTHING = f"(?:{masking.OPEN}[A-Z]*{masking.CLOSE})+"
_NOTHING = pl.DataFrame(schema={"pattern": pl.String})
COLUMNS = ("template", "template_typed", "template_id", "pattern")


def mine_templates(
    messages: Sequence[str | None] | pl.Series,
    *,
    earlier: pl.DataFrame | None = None,
    keep: Collection[str] = masking.KEPT_KINDS,
) -> pl.DataFrame:
    """The template of every message, and an id that stays the same from week to week.

    Parameters
    ----------
    messages : sequence of str or polars.Series, length n_messages
        Text of any length; null stays null.
    earlier : polars.DataFrame, optional
        What was mined before, with ``pattern``: these patterns count as if their messages
        were here, too, so that a week is mined together with all weeks before.
    keep : collection of str
        Numbers that distinguish failures and are not replaced: kinds of
        `stateanalytics.failures.masking.KEPT`, such as ``"exit code"``; by default all. Logs in
        which every number is a value need none: ``keep=()``.

    Returns
    -------
    polars.DataFrame, shape (n_messages, 4)
        In the order of ``messages``: ``template``, with ``<*>`` for what varies;
        ``template_typed``, with the kind of value where it is known (``<UUID>``,
        ``<PATH>``, …); ``template_id``: ``v1:`` and a digest of the template; ``pattern``:
        the masked message, before it was compared with others. All null where the message
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
    of_texts = rows.lazy().drop_nulls().group_by("message").agg("row")
    distinct = of_texts.pipe(collected).with_row_index("number")
    masked = masking.mask(distinct[["number", "message"]], kinds)
    rows, distinct = rows[["row"]], distinct[["number", "row"]]
    known = [masked] if earlier is None else [masked, _patterns(earlier, "mine_templates")]
    templates = merge_templates(*known).lazy()
    named = masked.lazy().join(templates, on="pattern").with_row_index("which").collect()
    # Row numbers are joined, not texts: only the few patterns are compared as text.
    which = (
        named.lazy()
        .select("which", number="numbers")
        .explode("number")
        .join(distinct.lazy().select("number", "row"), on="number")
        .explode("row")
    )
    placed = rows.lazy().join(which, on="row", how="left", maintain_order="left")
    return named.select(pl.col(COLUMNS).gather(placed.pipe(collected)["which"]))


def merge_templates(*mined: pl.DataFrame) -> pl.DataFrame:
    """Templates of patterns that were mined separately, as if they had been mined together.

    Parameters
    ----------
    *mined : polars.DataFrame
        Results of `mine_templates` or of this function, with ``pattern``.

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
    parts = [_patterns(part, "merge_templates") for part in mined]
    patterns = _unmerged(pl.concat([*parts, _NOTHING]).lazy().unique().sort("pattern")).collect()
    distinct = patterns["text"].unique()
    templates = pl.LazyFrame({"text": distinct, "merged": merge(distinct)})
    joined = patterns.lazy().join(templates, on="text", maintain_order="left").collect()
    whole = joined.pipe(_join_truncated_traces).pipe(_join_truncated_texts)
    texts = collected(
        whole.lazy()
        .with_columns(_on_one_line(pl.col("merged")))
        .select(
            pattern="shown",
            template=_without_kinds(pl.col("merged")),
            template_typed=masking.as_shown(pl.col("merged")),
        )
    )
    return texts.hstack([template_ids(texts["template"]).alias("template_id")])


def mine_with_parts(messages: pl.Series) -> pl.DataFrame:
    """The ``template`` of every message, and the one that it would have ``alone``.

    The ids of both are ids of its cluster: see `aliases`.

    Examples
    --------
    >>> users = ["ada", "ben", "cyd", "dov", "eve"]
    >>> mine_with_parts(pl.Series([f"login of {user} broke" for user in users])).row(0)
    ('login of <*> broke', 'login of ada broke')
    """
    mined = mine_templates(messages)
    patterns = _unmerged(mined.lazy().select("pattern").drop_nulls().unique()).pipe(collected)
    alone = patterns.select(
        pattern="shown", alone=_without_kinds(_on_one_line(pl.lit(unmerged(patterns["text"]))))
    )
    return mined.join(alone, on="pattern", how="left", maintain_order="left").select(
        "template", "alone"
    )


def versioned_id(text: str, version: str | None = None) -> str:
    """A digest of a text, with the version of the miner that made it (None: this one).

    Examples
    --------
    >>> versioned_id("worker <*> died").startswith("v1:")
    True
    """
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return f"{version or VERSION}:{digest}"


def template_ids(templates: pl.Series) -> pl.Series:
    """The id of each template; null of null."""
    ids = {text: versioned_id(text) for text in {*templates} - {None}}
    return pl.Series([ids.get(text) for text in templates], dtype=pl.String)


def _unmerged(patterns: pl.LazyFrame) -> pl.LazyFrame:
    """Distinct patterns before merging: ``text``, the rest of a ``trace``, ``is_cut``."""
    halves = pl.col("pattern").str.splitn("\n\t", 2).struct
    trace = pl.lit("\n\t") + halves.field("field_1")
    return patterns.select(
        shown="pattern",
        trace=trace,
        is_cut=trace.is_null() & halves.field("field_0").str.ends_with(f" {CUT}"),
        text=masking.as_placeholders(halves.field("field_0").str.strip_suffix(f" {CUT}"))
        + (pl.lit(masking.TRACE_HERE) + trace_as_shown(trace)).fill_null(""),
    )


def _join_truncated_traces(patterns: pl.DataFrame) -> pl.DataFrame:
    """Give a truncated trace the template of the one whole trace that continues it.

    ``merged`` is the template and ``trace`` the rest of `traces.reduce_traces` (null: no
    trace). A trace that several whole ones continue stays as it is.
    """
    if not patterns["trace"].count():
        return patterns
    has_cause = ~pl.col("merged").str.starts_with(NO_CAUSE)
    is_cut = pl.col("via").str.ends_with(CUT)
    # A whole trace may have a suspicious length by chance, so one that names its cause counts
    # as whole for those that do not.
    return (
        patterns.with_columns(via=pl.col("trace").str.extract(r"\tvia ([^\n]*)$"))
        .pipe(_join_traces, is_cut & has_cause, ~is_cut)
        .pipe(_join_traces, ~has_cause, has_cause)
        .drop("via")
    )


def _join_traces(patterns: pl.DataFrame, is_cut: pl.Expr, is_whole: pl.Expr) -> pl.DataFrame:
    """Give truncated traces the template of the only whole one that begins with their events."""
    distinct = patterns.select("merged", "via").drop_nulls().unique()
    events = pl.col("via").str.strip_suffix(CUT).str.strip_suffix("; ").str.split("; ")
    truncated = distinct.filter(is_cut).select("merged", "via", key=events.list.join("; "))
    beginnings = (
        distinct.filter(is_whole)
        .select(whole="merged", events=events)
        .with_columns(n=pl.int_ranges(1, pl.col("events").list.len() + 1))
        .explode("n", empty_as_null=True)
        .select("whole", key=pl.col("events").list.head("n").list.join("; "))
        .unique()
    )
    cause, other = (
        pl.col(name).str.replace(f"(?s){masking.TRACE_HERE}.*", "") for name in ("merged", "whole")
    )
    name = r"^([^:\s]+)"
    may_be = (
        cause.str.starts_with(NO_CAUSE)
        | other.str.starts_with(cause.str.replace(r"\S*$", ""))
        | (cause.str.extract(name) != other.str.extract(name))
    )
    pairs = truncated.filter(pl.col("key") != "").join(beginnings, on="key").filter(may_be)
    return _with_only_whole(patterns, pairs, ["merged", "via"])


def _join_truncated_texts(patterns: pl.DataFrame) -> pl.DataFrame:
    """Give a truncated text the template of the one whole text that continues it.

    A template that a whole text has, too, stays as it is.
    """
    if not patterns["is_cut"].any():
        return patterns
    distinct = patterns.group_by("merged").agg(is_cut=pl.col("is_cut").all())
    words = pl.col("merged").str.replace(r"\s*\S*$", "")
    truncated = distinct.filter("is_cut").select("merged", words=words)
    truncated = truncated.filter(pl.col("words").str.count_matches(r"\p{L}{2,}") >= N_SAID)
    whole = distinct.filter(~pl.col("is_cut") & (pl.col("merged").str.count_matches(" ") < N_WORDS))
    beginnings = _Beginnings(truncated.rows())
    pairs = [(name, text) for text in whole["merged"] for name in beginnings.continued_by(text)]
    schema = {"merged": pl.String, "whole": pl.String}
    return _with_only_whole(patterns, pl.DataFrame(pairs, schema=schema, orient="row"), ["merged"])


def _with_only_whole(patterns: pl.DataFrame, pairs: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Patterns with the ``whole`` template of their key, where exactly one is a candidate."""
    only = (
        pairs.group_by(key)
        .agg(pl.col("whole").unique())
        .filter(pl.col("whole").list.len() == 1)
        .select(*key, whole=pl.col("whole").list.first())
    )
    return (
        patterns.join(only, on=key, how="left", maintain_order="left")
        .with_columns(merged=pl.coalesce("whole", "merged"))
        .drop("whole")
    )


class _Beginnings:
    """Beginnings of texts as a tree of their words, so that few pairs of texts are compared.

    A branch is made when a template gets there, as most are never needed.
    """

    def __init__(self, texts: list[tuple[str, str]]) -> None:
        self.texts = texts

    @cached_property
    def by_word(self) -> dict[str, _Beginnings]:
        """The rests of the beginnings by their next word, which is empty where there is none."""
        texts: dict[str, list[tuple[str, str]]] = {}
        for name, beginning in self.texts:
            word, rest = [*beginning.split(None, 1), "", ""][:2]
            texts.setdefault(word, []).append((name, rest))
        return {word: _Beginnings(rests) for word, rests in texts.items()}

    def continued_by(self, template: str) -> Iterator[str]:
        """The names of the cut texts that begin as a template does, and end where it goes on.

        A placeholder of both is one value; one that only the template has may be many words.
        """
        here: _Beginnings | None = self
        words = template.split()
        for place, word in enumerate(words):
            if here is None:
                return
            yield from here._ended()
            if place and masking.OPEN in word and here.by_word.keys() - {word, ""}:
                rest = words[place : place + N_NESTED]
                yield from here._matched(word, rest, N_SAID - _n_said(words[:place]))
            here = here.by_word.get(word)
        if here is not None:
            yield from here._ended()

    def _ended(self) -> list[str]:
        ended = self.by_word.get("")
        return [name for name, _ in ended.texts] if ended else []

    def _matched(self, aligned: str, words: list[str], n_said: int) -> pl.Series:
        """Names of texts with another next word, which a placeholder of the template stands for.

        So many constant words of the template have to follow in them.
        """
        others = [
            (name, f"{word} {rest}".rstrip())
            for word, branch in self.by_word.items()
            if word not in (aligned, "")
            for name, rest in branch.texts
        ]
        names, rests = (pl.Series(column, dtype=pl.String) for column in zip(*others, strict=True))
        n_least = bisect_left(range(len(words)), n_said, key=lambda n: _n_said(words[:n]))
        return names.filter(rests.str.contains(_beginning(words, max(1, n_least))))


def _n_said(words: list[str]) -> int:
    """How many of the words of a template are the same in all of its texts."""
    return sum(masking.OPEN not in word and bool(re.search(r"[^\W\d_]{2}", word)) for word in words)


def _beginning(words: list[str], n_least: int = 1) -> str:
    """A regular expression for the texts that such words could continue, at the end of a word.

    The first ``n_least`` of the words are in all of them.
    """
    parts = [".+?".join(map(re.escape, re.split(_ANYTHING, word))) for word in words]
    opened = "".join(f"(?:\\s{part}" for part in parts[n_least:])
    begun = r"\s".join(parts[:n_least])
    return f"(?s)^{begun}{opened}{')?' * (len(parts) - n_least)}$"


def _on_one_line(merged: pl.Expr) -> pl.Expr:
    return masking.as_line(merged.str.replace_all(masking.TRACE_HERE, "", literal=True))


def _without_kinds(merged: pl.Expr) -> pl.Expr:
    link = f"{masking.OPEN}LINK{masking.CLOSE}"
    with_slashes = merged.str.replace_all(link, f"://{link}", literal=True)
    return with_slashes.str.replace_all(_ANYTHING, masking.WILDCARD)


def _patterns(mined: pl.DataFrame, function: str) -> pl.DataFrame:
    check_columns(mined, ["pattern"], function)
    texts = mined.lazy().select(pl.col("pattern").cast(pl.String))
    return texts.drop_nulls().unique().pipe(collected)


def _checked_kinds(keep: object) -> list[str]:
    is_several = isinstance(keep, Iterable) and not isinstance(keep, str)
    kinds: list[str] = [*keep] if is_several else [keep]  # type: ignore[list-item, misc]
    if unknown := [kind for kind in kinds if kind not in masking.KEPT_KINDS]:
        raise ArgumentError(
            f"keep needs kinds of {', '.join(masking.KEPT_KINDS)}; found {in_short(unknown[0])}.",
            'keep=["exit code"], or keep=() for none'
            + did_you_mean(str(unknown[0]), masking.KEPT_KINDS),
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
