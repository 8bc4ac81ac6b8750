"""Merging patterns into templates: what varies between otherwise equal patterns is a placeholder.

A pattern is cut into pieces, one for each column. Columns that evidently vary are merged: first
words, commands and quoted spans, then brackets, then free ends, which have a different text
each time. Finally a template absorbs the patterns that it matches. All decisions are taken on
sets, so the order of patterns never matters.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial

import polars as pl

from stateanalytics.core.joins import collected, collected_all
from stateanalytics.core.words import first_word
from stateanalytics.failures import masking

#: A column of this kind varies if it has so many values between otherwise equal columns. The
#: sentence in an envelope (``"message": "…"``) never varies: other sentences, other failures.
N_VALUES = {"word": 5, "name": 3, "bracket": 3, "payload": 2, "quoted": 2, "command": 2, "flag": 2}
#: The same, if several columns vary at once.
N_TOGETHER = {"name": 6, "bracket": 3, "payload": 2, "quoted": 3, "command": 2, "flag": 2}
#: Between so many constant words, fewer values are enough: for a word, and for names together.
N_FRAME, N_WORD_IN_FRAME, N_NAMES_IN_FRAME = 5, 4, 3
#: A template keeps at least so many constant words, so that it still has a meaning.
N_CONSTANT = dict.fromkeys(("word", "name", "bracket", "command", "flag"), 2)
N_CONSTANT |= {"payload": 3, "quoted": 1}
#: Pairs of placeholders are only looked at in patterns with at most so many placeholders.
N_PAIRED = 12

#: The constant words that a beginning needs, and those that make it specific.
N_BEGINNING, N_EXACT = 3, 8
#: The different ends that a free end needs; how many are enough after a specific beginning or
#: for long ends; and the words of a long end.
N_ENDS, N_FEW_ENDS, N_LONG = 5, 3, 4
#: The values with which each kind of piece varies in the beginning of a free end.
N_IN_BEGINNING = {"name": 3, "bracket": 3, "payload": 2, "quoted": 3, "command": 2}

#: The fewest words of a template that absorbs others, and the most words of a placeholder.
N_SAID, N_SWALLOWED = 3, 8
#: The number of consecutive words that are looked up together.
N_RUN = 3
#: Limits of memory: pairs of templates and texts, characters of patterns that are cut into
#: pieces, and runs of words, each handled at a time.
N_PAIRS, N_CHARS, N_RUNS = 200_000, 2_000_000, 2_000_000

WILD = masking.OPEN + masking.CLOSE
PLACEHOLDER = f"{masking.OPEN}[A-Z]*{masking.CLOSE}"
# An apostrophe inside a word opens no quotation; a quote before a letter closes none.
_QUOTED = (
    rf"'(?:[^'\n]|'[A-Za-z0-9{masking.OPEN}])*''?"
    r'|"[^"\n]*"|`[^`\n]*`|`[^`' + r"'\n]*'|‘[^’\n]*’|“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]"
)
# The full stop of a sentence does not belong to its last word.
_MARKS = rf"{masking.PARTING}`‘“«„{masking.TRACE_HERE}"
_WORD = rf"(?:[^{_MARKS}]*[^{_MARKS}.?]|[^{_MARKS}]+)(?:'(?:s|t|d|m|re|ve|ll)(?-u:\b))?"
_NAME = (
    r"[A-Za-z][A-Za-z0-9]*(?:[_./@-]+[A-Za-z0-9]+)+|_+[A-Za-z]\w*"
    r"|[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*|[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*"
)
_ITEM = rf"(?:{PLACEHOLDER}|{_NAME})"
_LIST = rf"{_ITEM}(?:, {_ITEM})+|[A-Za-z][\w-]*(?:, [A-Za-z][\w-]*){{2,}}"
# Consecutive values, whose number may vary.
_ROW = rf"{PLACEHOLDER}(?:(?:,{PLACEHOLDER})+|(?: {PLACEHOLDER}){{2,}})"
_KEY = r"""[{,]\s*(?:"[^"\n]*"|'[^'\n]*')\s*:"""
_BRACKETS = (
    r"\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]|\((?:[^()\n]|\([^()\n]*\))*\)|\{(?:[^{}\n]|\{[^{}\n]*\})*\}"
)
# An object with such a key describes an error; other objects are mostly inputs.
_ERROR_KEY = r"""["'](?:error|errors|message|msg|code|type|detail|status|reason)["']\s*:"""
_TELLING = "err|errors?|message|msg|details?|reason|cause"
_SAID_KEY = rf"(?:{_ERROR_KEY}\s*|(?-u:\b)(?:{_TELLING})=)"
_SAID = rf"""{_SAID_KEY}(?:"[^"\n ]+ [^"\n ]+ [^"\n]+"|'[^'\n ]+ [^'\n ]+ [^'\n]+')"""
# The text before the message of another program or layer. Its ends are never free.
_WRAPPER = (
    r"^((?:(?:Error: )?Exit code \d{1,3}\s+|(?:Error: )?stream disconnected before completion: "
    r"|litellm\.\w+: (?:\w+(?:Exception|Error) - )?)+)"
)
_TRACE = f"(?s:{masking.TRACE_HERE}.*)"
#: Programs that agents call. A line with one before an option, a pipe or `&&` is a command.
PROGRAMS = (
    "ansible|awk|bash|bun|cargo|cat|cd|chmod|cmake|cp|curl|deno|docker|dotnet|eslint|find|gh|git|go"
    "|gradle|grep|helm|java|jest|kubectl|ls|make|mkdir|mv|mvn|mypy|node|npm|npx|pip3?|pnpm|poetry"
    "|psql|pytest|python3?|rg|rm|rsync|ruff|scp|sed|sh|ssh|sudo|tar|terraform|tsc|uv|wget|yarn|zsh"
)
_COMMAND = (
    rf"(?:{PROGRAMS})(?: [^\s:;,()\[\]{{}}]+){{0,4}}? (?:--?[A-Za-z]|&& |\| )[^\n\[\]{{}}]*"
    r"|(?:make|(?:npm|pnpm|yarn|bun|uv|poetry) run) [\w:-]+$"
)
#: How a pattern is cut into pieces: by words, or with brackets as one piece.
_REST = rf"{_KEY}|{_COMMAND}|{_LIST}|{_QUOTED}|{_WORD}"
WORDS = rf"{_TRACE}|{_REST}|[\s;:=|()\[\]<>!#]+|[^A-Za-z0-9]"
BRACKETS = rf"{_TRACE}|{_BRACKETS}|{_REST}|[\s;:=|<>!#]+|[^A-Za-z0-9]"
_MODELS = next(pattern for name, pattern in masking.KEPT if name == "model")

_IS_WILD = (
    rf"^(?:{PLACEHOLDER}|(?:(?:{masking.OPEN}[A-Z]+{masking.CLOSE}|'{PLACEHOLDER}')(?:, )?)+)$"
)
_OPPOSITE = rf"(?-u:\b)(?:{'|'.join(sorted(masking.OPPOSITES))})(?-u:\b)"
_REQUEST = rf"^.(?:{masking.METHODS}) {PLACEHOLDER} "
_OPPOSITE_KEY = rf"(?i)(?:^|is|has|_)(?:{'|'.join(sorted(masking.OPPOSITES))})$"
_ROLES = pl.Enum(["key", "telling", "opposite", "flag", "other"])
#: Names of exceptions and models always distinguish failures.
NEVER = rf"(?:^|[{masking.PARTING}`])(?:{masking.NAMES[1:-1]}|{_MODELS})(?:$|[{masking.PARTING}`])"


def merge(texts: pl.Series) -> pl.Series:
    """The template of every pattern, mined from all of them together.

    Parameters
    ----------
    texts : polars.Series, length n_texts
        Distinct masked messages; text after `TRACE_HERE` is never merged.

    Returns
    -------
    polars.Series, length n_texts
        In the same order.
    """
    wrapped = texts.str.extract(_WRAPPER).fill_null("")
    if (wrapped != "").any():
        return wrapped + _of_distinct(texts.str.replace(_WRAPPER, ""), merge)
    merged = _merge_rows(_merge_what_is_said(texts))
    for columns in (WORDS, BRACKETS):
        merged = _of_distinct(merged, partial(_merge_columns, columns=columns))
    return _of_distinct(_of_distinct(merged, _merge_ends), _absorb)


def _of_distinct(texts: pl.Series, work: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Apply work to the distinct texts and give each text its result; null stays null."""
    distinct = texts.drop_nulls().unique().sort()
    return texts.replace_strict(distinct, work(distinct), return_dtype=pl.String)


def _merge_what_is_said(texts: pl.Series) -> pl.Series:
    """Patterns whose envelopes contain templates, mined from the sentences of all envelopes."""
    said = texts.str.extract_all(_SAID).explode().drop_nulls()
    if said.is_empty():
        return texts
    quoted = said.str.replace(f"^{_SAID_KEY}", "").unique().sort()
    quote, own = quoted.str.head(1), quoted.str.slice(1, quoted.str.len_chars() - 2)
    mined = quote + _of_distinct(own, merge) + quote
    changed = quoted != mined
    if not changed.any():
        return texts
    whole, template = (part.filter(changed).to_list() for part in (quoted, mined))
    return texts.str.replace_many(whole, template, leftmost=True)


def _merge_rows(texts: pl.Series) -> pl.Series:
    """Patterns that differ only in the number of consecutive values have one placeholder."""
    short = texts.str.replace_all(_ROW, WILD)
    if (short == texts).all():
        return texts
    varies = pl.col("text").n_unique().over("short") > 1
    rows = pl.DataFrame({"text": texts, "short": short})
    return rows.select(pl.when(varies).then("short").otherwise("text")).to_series()


def unmerged(texts: pl.Series) -> pl.Series:
    """The template that each pattern would have if there were no other."""
    for columns in (WORDS, BRACKETS):
        texts = _as_text(_cut_into_pieces(texts, columns))
    return texts


# --- pieces of patterns -------------------------------------------------------------------


def _cut_into_pieces(texts: pl.Series, columns: str, first: int = 0) -> pl.LazyFrame:
    """One row for each piece of each pattern: its kind, and whether it may vary.

    ``first`` is the number of the first pattern.
    """
    pieces = (
        pl.LazyFrame({"text": texts})
        .with_row_index("number", first)
        .select("number", piece=pl.col("text").str.extract_all(columns))
        .explode("piece", empty_as_null=True)
        .with_columns(pl.col("piece").fill_null(""), column=pl.int_range(pl.len()).over("number"))
    )
    described = pieces.join(
        _described(pieces.select("piece").unique()), on="piece", how="left", maintain_order="left"
    )
    # The quoted text after an error key is a sentence and not a value. If JSON was cut off, the
    # closing quote is missing, and all words up to the end are kept.
    piece, role = pl.col("piece"), pl.col("role")
    # The first pieces of a pattern must not see the last pieces of the pattern before.
    before = pl.when(pl.col("column") > 0).then(piece.shift(1))
    role_before = pl.when(pl.col("column") > 0).then(role.shift(1))
    named = pl.when(pl.col("column") > 1).then(role.shift(2)).fill_null("other")
    is_behind_key = (
        (role_before == "key").fill_null(value=False)
        | ((named == "key") & (before == " "))
        | ((named == "telling") & (before == "="))
    )
    # Of `key=true` the key says what is meant, except where it is a word like `success`.
    is_flag = (role == "flag") & before.is_in(["=", ":"]) & (named == "other")
    is_opened = is_behind_key & piece.is_in(['"', "'"])
    known = described.with_columns(
        may_vary=is_flag | (pl.col("may_vary") & ~(is_behind_key & (pl.col("kind") == "quoted"))),
        kind=pl.when(is_flag).then(pl.lit("flag")).otherwise("kind"),
        is_kept=pl.col("is_kept") | is_opened.cum_max().over("number"),
        piece=pl.when("is_list").then("blank").otherwise("piece"),
    )
    return known.drop("role", "is_list")


def _described(distinct: pl.LazyFrame) -> pl.LazyFrame:
    """The kind of each distinct piece, and whether it may become a placeholder."""
    piece = pl.col("piece")
    in_marks = pl.col("kind").is_in(["quoted", "bracket", "payload"])
    first, n = piece.str.head(1), piece.str.len_chars()
    inside = pl.when(in_marks).then(piece.str.slice(1, n - 2)).otherwise(piece)
    has_letter = piece.str.contains(r"\p{L}")
    return (
        distinct.with_columns(
            kind=first_word(
                quoted=(n > 2) & first.is_in(list("'\"`‘“«„")) & ~piece.str.contains("', '"),
                payload=piece.str.contains(rf"^(?:{_KEY}.*\}}|\[['\"].*\])$")
                & ~piece.str.contains(_ERROR_KEY),
                bracket=(n > 1) & first.is_in(list("([{")) & piece.str.contains(r"[)\]}]$"),
                command=piece.str.contains(f"^(?:{_COMMAND})$"),
                name=piece.str.contains(f"^(?:{_NAME}|{_LIST})$"),
                word=has_letter | piece.str.contains(masking.OPEN, literal=True),
            )
        )
        .with_columns(inside=inside)
        .with_columns(is_wild=pl.col("inside").str.contains(_IS_WILD))
        .with_columns(
            is_constant=has_letter & ~pl.col("is_wild") & (pl.col("kind").is_not_null()),
            may_vary=pl.col("kind").is_not_null()
            & ~pl.col("is_wild")
            & (
                ~piece.str.contains(f"[0-9]|^{masking.TRACE_HERE}|^{_KEY}$")
                | piece.str.contains(f"^{masking.NAME_WITH_NUMBER}$")
            )
            & ~pl.col("inside").str.to_lowercase().is_in(sorted(masking.OPPOSITES))
            & ~piece.str.contains(f"{NEVER}|{_REQUEST}")
            & ~((pl.col("kind") == "bracket") & piece.str.contains(_SAID))
            & ~((pl.col("kind") == "command") & piece.str.contains(_OPPOSITE))
            & ~((pl.col("kind") == "word") & piece.str.contains(masking.OPEN, literal=True)),
            # A list of placeholders becomes one placeholder, because its length varies as well.
            is_list=pl.col("is_wild") & ~piece.str.contains(f"^.?{PLACEHOLDER}.?$"),
            role=first_word(
                "other",
                key=piece.str.contains(rf"^{_KEY}$") & piece.str.contains(_ERROR_KEY),
                telling=piece.str.contains(f"^(?:{_TELLING})$"),
                flag=piece.str.contains("^(?i:true|false|null|none|nil)$"),
                opposite=piece.str.contains(_OPPOSITE_KEY),
            ).cast(_ROLES),
            is_kept=piece.str.contains("[0-9]")
            | (piece.str.contains(NEVER) & ~piece.str.starts_with(masking.TRACE_HERE)),
            blank=pl.when(in_marks & (pl.col("kind") != "payload"))
            .then(pl.concat_str(first, pl.lit(WILD), piece.str.tail(1)))
            .otherwise(pl.lit(WILD)),
        )
        .drop("inside")
    )


def _hashed(pieces: pl.LazyFrame) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """The pieces with their hashes, and the sum of the hashes of each pattern.

    The hash of a pattern is the sum over its pieces, so a piece is removed by a subtraction.
    """
    place, blank = pl.col("column").hash(7), pl.col("blank").hash(11)
    hashed = pieces.with_columns(
        part=pl.when("is_wild").then(blank).otherwise(pl.col("piece").hash(11)) ^ place,
        open=blank ^ place,
    )
    whole = hashed.group_by("number").agg(
        whole=pl.col("part").sum(), n_constant=pl.col("is_constant").sum(), length=pl.len()
    )
    return hashed, whole


def _as_text(pieces: pl.LazyFrame) -> pl.Series:
    """The patterns that consist of these pieces, in the order of their numbers."""
    texts = pieces.group_by("number", maintain_order=True).agg(text=pl.col("piece").str.join(""))
    return texts.sort("number").pipe(collected)["text"]


def _in_parts(texts: pl.Series, work: Callable[[pl.Series, int], pl.LazyFrame]) -> pl.DataFrame:
    """Apply work that handles each text by itself to parts of the texts, to save memory.

    ``work`` takes texts and the number of the first of them.
    """
    part = texts.str.len_bytes().cum_sum() // N_CHARS
    starts = [0, *part.rle_id().arg_unique()[1:], texts.len()]
    return pl.concat(
        work(texts[start:end], start).pipe(collected) for start, end in itertools.pairwise(starts)
    )


def _shares(rows: pl.DataFrame, key: str) -> Iterator[pl.LazyFrame]:
    """The rows in several shares; all rows of a key are in the same share."""
    n = 1 + rows.height // N_RUNS
    return (rows.lazy().filter(pl.col(key) % n == share) for share in range(n))


# --- columns that vary --------------------------------------------------------------------


def _merge_columns(texts: pl.Series, columns: str) -> pl.Series:
    """Merge patterns of each number of pieces by itself, because others never merge."""
    if texts.str.len_bytes().sum() <= N_CHARS:
        return _merge_in_rounds(texts, columns)
    sized = pl.DataFrame({"text": texts, "n": texts.str.count_matches(columns)})
    by_length = (
        sized.with_row_index("place")
        .sort("n", "place")
        .with_columns(so_far=pl.col("text").str.len_bytes().cum_sum())
        .with_columns(part=pl.col("so_far").max().over("n") // N_CHARS)
    )
    merged = [
        part.select("place", merged=_merge_in_rounds(part["text"], columns))
        for part in by_length.partition_by("part")
    ]
    return pl.concat(merged).sort("place")["merged"]


def _merge_in_rounds(texts: pl.Series, columns: str) -> pl.Series:
    """Merge over single columns, and pairs of them, round by round, until nothing changes.

    A round looks at every pattern without one of its columns. Where that shortened
    pattern exists already, with a placeholder there, the pattern joins it; where enough
    patterns share it, the column varies and all of them become it. All decisions of a
    round are taken on the set as it was, and equal patterns are looked at as one.
    """
    after: pl.DataFrame | None = _merge_together(_cut_into_pieces(texts, columns))
    same = pl.Series(range(texts.len()), dtype=pl.UInt32)
    while after is not None:
        pieces, first = collected_all(*_deduplicated(after.lazy()))
        same = same.replace(first["number"], first["first"])
        after = _merge_single(pieces.lazy())
        if after is None:
            after = _merge_pairs(pieces.lazy())
    return _as_text(pieces.lazy()).gather(same.rank("dense") - 1)


def _deduplicated(pieces: pl.LazyFrame) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """The pieces of the first of equal patterns, and the number of the first for each pattern."""
    first = (
        pieces.group_by("number", maintain_order=True)
        .agg(whole=pl.col("piece").str.join("\0"))
        .select("number", first=pl.col("number").first().over("whole"))
    )
    kept = first.select(number="first")
    return pieces.join(kept, on="number", how="semi", maintain_order="left"), first


def _n_by_kind(numbers: dict[str, int]) -> pl.Expr:
    return pl.col("kind").replace_strict(numbers, return_dtype=pl.UInt32)


def _n_by_kind_in_frame(numbers: dict[str, int], kind: str, n: int, n_words: pl.Expr) -> pl.Expr:
    """The number of values that each kind needs; ``n`` for one kind between many words."""
    in_frame = (pl.col("kind") == kind) & (n_words >= N_FRAME)
    return pl.when(in_frame).then(pl.lit(n, pl.UInt32)).otherwise(_n_by_kind(numbers))


def _merge_together(pieces: pl.LazyFrame) -> pl.DataFrame:
    """The pieces after merging names and spans that vary together in one frame of words."""
    hashed, _ = _hashed(pieces)
    may_vary = pl.col("may_vary") & pl.col("kind").is_in(list(N_TOGETHER))
    chosen = (
        hashed.with_columns(is_free=may_vary | pl.col("is_wild"))
        .with_columns(
            frame=pl.when("is_free").then("open").otherwise("part").sum().over("number"),
            n_fixed=(pl.col("is_constant") & ~pl.col("is_free")).sum().over("number"),
        )
        .filter(may_vary)
        .filter(pl.col("n_fixed") >= _n_by_kind(N_CONSTANT))
        .filter(
            pl.col("piece").n_unique().over("frame", "column")
            >= _n_by_kind_in_frame(N_TOGETHER, "name", N_NAMES_IN_FRAME, pl.col("n_fixed"))
        )
    )
    return _with_placeholders(pieces, chosen.select("number", "column"))


def _merge_single(pieces: pl.LazyFrame) -> pl.DataFrame | None:
    """The pieces after one round of merging over single columns; None where nothing merges."""
    hashed, whole = _hashed(pieces)
    n_others = pl.col("n_constant") - pl.col("is_constant")
    n_needed = _n_by_kind_in_frame(N_VALUES, "word", N_WORD_IN_FRAME, n_others)
    existing = whole.select("whole", exists=True).unique()
    candidates = collected(
        hashed.filter("may_vary")
        .join(whole, on="number")
        .filter(n_others >= _n_by_kind(N_CONSTANT))
        .with_columns(without=pl.col("whole") - pl.col("part") + pl.col("open"))
        .join(existing, left_on="without", right_on="whole", how="left")
        .with_columns(
            pl.col("exists").fill_null(value=False),
            n_values=pl.col("piece").n_unique().over("without", "kind"),
        )
        .filter(pl.col("exists") | (pl.col("n_values") >= n_needed))
    )
    if candidates.is_empty():
        return None
    chosen = (
        candidates.lazy()
        .sort("number", "exists", "n_values", "column", descending=[False, True, True, False])
        .group_by("number", maintain_order=True)
        .agg(pl.col("column").first())
    )
    return _with_placeholders(pieces, chosen)


def _merge_pairs(pieces: pl.LazyFrame) -> pl.DataFrame | None:
    """The pieces after patterns joined one that has a placeholder for two of their words.

    Where two words vary at once, some patterns are left over, because too few others share
    either of their words although everything else is equal. None if nothing joins.
    """
    hashed, whole = _hashed(pieces)
    words = (
        hashed.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT["word"] + 2), on="number")
        .select("number", "column", "whole", "length", change=pl.col("open") - pl.col("part"))
    )
    others = words.select("number", other="column", other_change="change")
    pairs = collected(
        words.join(_paired_placeholders(hashed, whole), on=["length", "column"])
        .join(others, on=["number", "other"])
        .with_columns(without=pl.col("whole") + pl.col("change") + pl.col("other_change"))
        .join(whole, left_on="without", right_on="whole", how="semi")
    )
    if pairs.is_empty():
        return None
    in_order = pairs.lazy().sort("number", "column", "other")
    first = in_order.unique("number", keep="first", maintain_order=True)
    both = first.select("number", column=pl.concat_list("column", "other")).explode("column")
    return _with_placeholders(pieces, both)


def _paired_placeholders(hashed: pl.LazyFrame, whole: pl.LazyFrame) -> pl.LazyFrame:
    """The pairs of columns that are both placeholders in some pattern, by length of pattern."""
    wild = (
        hashed.filter("is_wild")
        .filter(pl.len().over("number") <= N_PAIRED)
        .join(whole.select("number", "length"), on="number")
        .select("number", "length", "column")
    )
    # One pattern for each set of placeholders is enough.
    same = wild.group_by("number", "length").agg(pl.col("column").sort())
    first = same.sort("number").unique(["length", "column"], keep="first", maintain_order=True)
    representatives = first.explode("column")
    return (
        representatives.join(representatives.select("number", other="column"), on="number")
        .filter(pl.col("column") < pl.col("other"))
        .select("length", "column", "other")
        .unique()
    )


def _with_placeholders(pieces: pl.LazyFrame, chosen: pl.LazyFrame) -> pl.DataFrame:
    """The pieces with a placeholder in each chosen column."""
    is_chosen = pl.col("is_chosen").fill_null(value=False)
    key, marked = ["number", "column"], chosen.with_columns(is_chosen=True)
    replaced = pieces.join(marked, on=key, how="left", maintain_order="left").select(
        *(*key, "kind", "blank"),
        piece=pl.when(is_chosen).then("blank").otherwise("piece"),
        is_constant=pl.col("is_constant") & ~is_chosen,
        may_vary=pl.col("may_vary") & ~is_chosen,
        is_wild=pl.col("is_wild") | is_chosen,
    )
    return collected(replaced)


# --- free ends ----------------------------------------------------------------------------


def _merge_ends(texts: pl.Series) -> pl.Series:
    """Merge the text after a colon, a sentence or a line if it is different each time.

    Text that distinguishes failures, such as an exception or an exit code, is never merged.
    """
    if texts.len() < N_FEW_ENDS or (ends := _free_ends(texts).sort("number")).is_empty():
        return texts
    place = (pl.col("column") - pl.col("cut")).cast(pl.Int64)
    is_trace = pl.col("piece").str.starts_with(masking.TRACE_HERE)
    # After the beginning of a free end only a trace is kept.
    begun = texts.gather(ends["number"])
    pieces = _in_parts(
        begun,
        lambda part, first: (
            _cut_into_pieces(part, BRACKETS, first)
            .join(ends.lazy().drop("number").with_row_index("number"), on="number")
            .filter((place <= 1) | is_trace)
        ),
    ).sort("number", "column")
    n_values = pl.col("piece").n_unique().over("group", "column")
    n_needed = pl.col("kind").replace_strict(N_IN_BEGINNING, default=None, return_dtype=pl.UInt32)
    varies = _may_vary_in_beginning() & (place < 0) & (n_values >= n_needed)
    merged = pieces.lazy().with_columns(
        piece=pl.when(place == 1)
        .then(pl.lit(WILD))
        .when(varies.fill_null(value=False))
        .then("blank")
        .otherwise("piece")
    )
    return texts.replace(begun, _as_text(merged))


def _may_vary_in_beginning() -> pl.Expr:
    return pl.col("may_vary") & pl.col("kind").is_in(list(N_IN_BEGINNING))


def _n_so_far(condition: pl.Expr) -> pl.Expr:
    """The number of pieces of the pattern up to and including this one with a condition."""
    return condition.cast(pl.UInt32).cum_sum().over("number")


def _n_after(condition: pl.Expr) -> pl.Expr:
    """The number of pieces of the pattern after this one with a condition."""
    return condition.cast(pl.UInt32).sum().over("number") - _n_so_far(condition)


def _free_ends(texts: pl.Series) -> pl.DataFrame:
    """The last piece of each pattern before a free end: ``number`` and its column, ``cut``.

    Patterns with the same ``group`` have the same beginning.
    """
    # Of many texts, first only two columns are computed, to save memory.
    is_one_part = texts.str.len_bytes().sum() <= N_CHARS
    columns = pl.all() if is_one_part else pl.col("number", "prefix")
    rows = _in_parts(texts, lambda part, first: _may_end(part, first).select(columns))
    is_several = pl.len().over("prefix") >= N_FEW_ENDS
    candidates = pl.concat(
        share.filter(is_several).pipe(collected) for share in _shares(rows, "prefix")
    )
    del rows
    if not is_one_part:
        numbers = candidates["number"].unique().sort()
        prefixes = candidates.lazy().select("prefix").unique()
        candidates = _in_parts(
            texts.gather(numbers),
            lambda part, first: _may_end(part, first).join(prefixes, on="prefix", how="semi"),
        ).with_columns(number=pl.lit(numbers).gather("number"))
    n_texts, n_next, n_fixed = pl.col("n_texts"), pl.col("n_next"), pl.col("n_fixed")
    n_needed = pl.when(n_fixed < N_EXACT).then(N_ENDS).otherwise(N_FEW_ENDS)
    is_free_after = (
        ((n_texts >= n_needed) | (pl.col("n_long") >= N_FEW_ENDS))
        & (n_next > pl.when(n_fixed + pl.col("n_free") < 2 * N_BEGINNING).then(2).otherwise(1))
        & (pl.col("n_lengths") > 1)
    )
    is_free_anywhere = (n_texts >= N_ENDS) & (n_next > 3) & (pl.col("n_lengths") > 2)
    return collected(
        candidates.lazy()
        .with_columns(
            n_texts=pl.col("number").n_unique().over("prefix"),
            n_long=pl.col("number").filter(pl.col("n_words") >= N_LONG).n_unique().over("prefix"),
            n_next=pl.col("next").n_unique().over("prefix"),
            n_lengths=pl.col("n_rest").n_unique().over("prefix"),
        )
        .filter(pl.when("is_open").then(is_free_after).otherwise(is_free_anywhere))
        .sort("column", descending=True)
        .unique("number", keep="first", maintain_order=True)
        .select("number", cut="column", group="prefix")
    )


def _may_end(texts: pl.Series, first: int) -> pl.LazyFrame:
    """The pieces before possible free ends, with counts of the pieces before and after."""
    pieces, _ = _hashed(_cut_into_pieces(texts, BRACKETS, first))
    piece, is_free = pl.col("piece"), pl.col("is_free")
    n_fixed, n_free = pl.col("n_fixed"), pl.col("n_free")
    ends_sentence = (piece == " ") & (piece.shift(1).over("number") == ".")
    is_beginning = (n_fixed >= N_BEGINNING) | ((n_fixed == N_BEGINNING - 1) & (n_free > 1))
    # After a colon that always follows the same words, one of many errors follows.
    may_end = pl.col("ends_part") & ((n_free > 0) | (n_fixed >= 2 * N_BEGINNING))
    is_open = is_beginning & (piece.str.contains("\n", literal=True) | may_end)
    counts = ("number", "column", "prefix", "n_words", "n_rest", "n_fixed", "n_free", "next")
    return (
        pieces.with_columns(is_free=_may_vary_in_beginning() | pl.col("is_wild"))
        .with_columns(
            prefix=pl.when(is_free).then("open").otherwise("part").cum_sum().over("number"),
            n_fixed=_n_so_far(pl.col("is_constant") & ~is_free),
            n_free=_n_so_far(is_free),
            next=piece.shift(-1).hash(),
            n_rest=pl.len().over("number") - pl.col("column") - 1,
            n_words=_n_after(pl.col("is_constant")),
            n_kept=_n_after(pl.col("is_kept")),
            ends_part=piece.str.contains(r":\s+$") | ends_sentence,
        )
        .filter((is_open | (n_fixed > N_BEGINNING)) & (pl.col("n_rest") > 0))
        .filter(pl.col("n_kept") == 0)
        .select(*counts, is_open=is_open)
    )


# --- templates that absorb others ---------------------------------------------------------


def _absorb(texts: pl.Series) -> pl.Series:
    """Let templates absorb the patterns that they match, the longest template first.

    Only texts with the same first word, or the same last one, are compared.
    """
    if not texts.str.contains(masking.OPEN, literal=True).any():
        return texts
    constant = pl.col("text").str.replace_all(PLACEHOLDER, " ")
    distinct = pl.DataFrame({"text": texts}).select(
        "text", n_words=constant.str.count_matches(r"\p{L}{2,}"), n_chars=constant.str.len_chars()
    )
    matches = []
    for template, candidates in _candidates(distinct):
        pattern = _matching(template)
        texts_here = pl.Series("text", candidates)
        matches += [
            (text, template, list(match.groups()))
            for text in texts_here.filter(texts_here.str.contains(pattern))
            if (match := re.match(pattern, text))
        ]
    texts_of, values = dict.fromkeys(("text", "template"), pl.String()), pl.List(pl.String)
    schema = pl.Schema({**texts_of, "swallowed": values})
    n_chars = dict(distinct[["text", "n_chars"]].iter_rows())
    value = pl.element()
    is_kept = value.str.contains(NEVER) | value.str.to_lowercase().is_in(sorted(masking.OPPOSITES))
    into = dict(
        pl.LazyFrame(matches, schema=schema, orient="row")
        .unique(["text", "template"])
        .filter(~pl.col("swallowed").list.eval(is_kept).list.any())
        .with_columns(n=pl.col("template").replace_strict(n_chars, return_dtype=pl.UInt32))
        .with_columns(own=pl.col("text").replace_strict(n_chars, return_dtype=pl.UInt32))
        .filter(
            (pl.col("n") < pl.col("own"))
            | ((pl.col("n") == pl.col("own")) & (pl.col("template") < pl.col("text")))
        )
        .sort("n", "template")
        .select("text", "template")
        .pipe(collected)
        .iter_rows()
    )
    return pl.Series([_follow(text, into) for text in texts], dtype=pl.String)


def _candidates(distinct: pl.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """For each template, the texts with all of its words and its first or its last one.

    Looked up by the rarest word or run of words of each: comparing every pair would take
    quadratic time, and so would words alone where many sentences are made of the same few.
    """
    text, number = pl.col("text"), pl.col("number")
    numbered = distinct.with_row_index("number")
    places = _in_parts(distinct["text"], _runs)
    is_template = text.str.contains(masking.OPEN, literal=True) & (pl.col("n_words") >= N_SAID)
    templates = numbered.lazy().filter(is_template).select("number")
    of_shares = [
        collected(
            share.join(templates, on="number")
            .join(share.group_by("run").len(), on="run")
            .pipe(_first_of_each)
        )
        for share in _shares(places, "run")
    ]
    first = pl.concat(of_shares).lazy().pipe(_first_of_each)
    rarest = collected(first.with_columns(batch=pl.col("len").cum_sum() // N_PAIRS))
    places = collected(places.lazy().join(rarest.lazy(), on="run", how="semi"))
    ends = {
        "first": text.str.extract(rf"^([^{masking.PARTING}]+)"),
        "last": text.str.extract(rf"([^{masking.PARTING}]+)[{masking.PARTING}]*$"),
    }
    has_same_end = [
        (pl.col(end) == pl.col(f"{end}_wanted"))
        & ~pl.col(end).str.contains(masking.OPEN, literal=True)
        for end in ends
    ]
    words = text.str.extract_all(rf"[^{masking.PARTING}]+").list.unique()
    is_other = pl.element().str.contains(masking.OPEN, literal=True)
    wanted = pl.col("text_wanted").str.extract_all(rf"[^{masking.PARTING}]+").list.filter(~is_other)
    texts = numbered.lazy().select("number", "text", **ends).pipe(collected).lazy()
    wanted_texts = texts.select("number", pl.exclude("number").name.suffix("_wanted"))
    for batch in rarest.partition_by("batch"):
        yield from (
            batch.lazy()
            .select("run", "number")
            .join(places.lazy(), on="run", suffix="_other")
            .filter(number != pl.col("number_other"))
            .join(wanted_texts, on="number")
            .join(texts, left_on="number_other", right_on="number")
            .filter(pl.any_horizontal(has_same_end))
            .filter(wanted.list.set_difference(words).list.len() == 0)
            .group_by("text_wanted")
            .agg("text")
            .pipe(collected)
            .iter_rows()
        )


def _first_of_each(runs: pl.LazyFrame) -> pl.LazyFrame:
    """The rarest run of each text."""
    return runs.sort("len", "run", "number").unique("number", keep="first", maintain_order=True)


def _runs(texts: pl.Series, first: int) -> pl.LazyFrame:
    """The hashes of the words that each text has as they are, and of `N_RUN` words in a row.

    A text that a template matches has the runs between its placeholders, too.
    """
    word, number, run = pl.col("word"), pl.col("number"), pl.col("run")
    hashed = (
        pl.LazyFrame({"word": texts.str.extract_all(rf"[^{masking.PARTING}]+")})
        .with_row_index("number", first)
        .explode("word", empty_as_null=True)
        .drop_nulls()
        .select(
            "number", run=pl.when(~word.str.contains(masking.OPEN, literal=True)).then(word.hash(7))
        )
    )
    in_a_row = hashed.select(
        "number",
        run=pl.sum_horizontal(
            (run.shift(-n) * (2 * n + 1) for n in range(N_RUN)), ignore_nulls=False
        ),
        is_whole=number.shift(1 - N_RUN) == number,
    )
    return pl.concat([hashed, in_a_row.filter("is_whole").drop("is_whole")]).drop_nulls().unique()


def _follow(text: str, into: dict[str, str]) -> str:
    """The template at the end of a chain of absorptions."""
    while text in into:
        text = into[text]
    return text


def _matching(template: str) -> str:
    """A regular expression for the texts that a template absorbs."""
    parts = re.split(f"(?:{PLACEHOLDER})+", template)
    # Numbers that masking kept distinguish failures, so a placeholder never matches one.
    word = r"[^\s=0-9]+(?: bytes)?"
    pattern = f"({word})".join(map(re.escape, parts))
    # A value of several words is only possible at the end, where it is clear where it ends.
    n_words = len(re.findall(r"[^\W\d_]{2,}", " ".join(parts)))
    more = rf"((?: {word}){{0,{N_SWALLOWED - 1}}})" if not parts[-1] and n_words > N_SAID else ""
    return f"^{pattern}{more}$"
