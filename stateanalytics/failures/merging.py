"""What varies between patterns that are otherwise alike becomes a placeholder.

A pattern is cut into columns, and columns that evidently vary are merged: words and quoted
spans first, then what stands in brackets, then the rest of a line after a stable beginning;
at last a template takes in those that it matches. All decisions are taken on sets, so the
order of patterns never matters.
"""

from __future__ import annotations

import re

import polars as pl

from stateanalytics.failures.cut_off import TRACE_HERE
from stateanalytics.failures.masking import (
    KEPT,
    NAME_WITH_NUMBER,
    NAMES,
    OPPOSITES,
    PARTING,
)
from stateanalytics.failures.placeholders import CLOSE, OPEN

#: A column of this kind varies when it takes so many values between the same others.
N_VALUES = {"word": 5, "name": 3, "bracket": 3, "payload": 2, "quoted": 2, "said": 5}
#: Where several of them vary at once, each takes so many values.
N_TOGETHER = {"name": 6, "bracket": 3, "payload": 2, "quoted": 3}
#: What remains of a template must still say something: so many words.
N_CONSTANT = {"word": 2, "name": 2, "bracket": 2, "payload": 3, "quoted": 1, "said": 2}
#: Pairs of placeholders are looked at in patterns with at most so many.
N_WORDS = 12

_WILD = OPEN + CLOSE
_PLACEHOLDER = f"{OPEN}[A-Z]*{CLOSE}"
# An apostrophe inside a word opens nothing; a quote before a letter closes nothing.
_QUOTED = (
    rf"'(?:[^'\n]|'[A-Za-z0-9{OPEN}])*''?"
    r'|"[^"\n]*"|`[^`\n]*`|`[^`' + r"'\n]*'|‘[^’\n]*’|“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]"
)
# The end of a sentence is no part of its last word.
_MARKS = rf"{PARTING}`‘“«„"
_WORD = rf"(?:[^{_MARKS}]*[^{_MARKS}.?]|[^{_MARKS}]+)(?:'(?:s|t|d|m|re|ve|ll)(?-u:\b))?"
_NAME = (
    r"[A-Za-z][A-Za-z0-9]*(?:[_./@-]+[A-Za-z0-9]+)+|_+[A-Za-z]\w*"
    r"|[a-z][a-z0-9]*[A-Z][A-Za-z0-9]*|[A-Z][a-z0-9]+[A-Z][A-Za-z0-9]*"
)
_ITEM = rf"(?:{_PLACEHOLDER}|{_NAME})"
_LIST = rf"{_ITEM}(?:, {_ITEM})+|[A-Za-z][\w-]*(?:, [A-Za-z][\w-]*){{2,}}"
_KEY = r"""[{,]\s*(?:"[^"\n]*"|'[^'\n]*')\s*:"""
_BRACKETS = (
    r"\[(?:[^\[\]\n]|\[[^\[\]\n]*\])*\]|\((?:[^()\n]|\([^()\n]*\))*\)|\{(?:[^{}\n]|\{[^{}\n]*\})*\}"
)
# An object with such a key says what went wrong; any other is what something was given.
_ERROR_KEY = r"""["'](?:error|errors|message|msg|code|type|detail|status|reason)["']\s*:"""
_TRACE = f"(?s:{TRACE_HERE}.*)"
#: How a pattern is cut into columns, in words and then in brackets.
_REST = rf"{_KEY}|{_LIST}|{_QUOTED}|{_WORD}"
WORDS = rf"{_TRACE}|{_REST}|[\s;:=|()\[\]<>!#]+|[^A-Za-z0-9]"
BRACKETS = rf"{_TRACE}|{_BRACKETS}|{_REST}|[\s;:=|<>!#]+|[^A-Za-z0-9]"
_MODELS = next(pattern for name, pattern in KEPT if name == "model")

_IS_WILD = rf"^(?:{_PLACEHOLDER}|(?:(?:{OPEN}[A-Z]+{CLOSE}|'{_PLACEHOLDER}')(?:, )?)+)$"
_NEVER = rf"(?:^|[{PARTING}`])(?:{NAMES[1:-1]}|{_MODELS})(?:$|[{PARTING}`])"


def merge(texts: pl.Series) -> pl.Series:
    """The template of every text, by what all of them have in common.

    Parameters
    ----------
    texts : polars.Series, length n_texts
        Distinct masked messages; what follows `TRACE_HERE` is never merged.

    Returns
    -------
    polars.Series, length n_texts
        In the same order.
    """
    found = pl.DataFrame({"text": texts, "merged": texts})
    steps = (
        lambda distinct: _columns_merged(distinct, WORDS),
        lambda distinct: _columns_merged(distinct, BRACKETS),
        _tails_merged,
        _absorbed,
    )
    for step in steps:
        distinct = found.select(merged="merged").unique()["merged"]
        after = pl.DataFrame({"merged": distinct, "after": step(distinct)})
        found = found.join(after, on="merged", how="left", maintain_order="left").select(
            "text", merged="after"
        )
    return found["merged"]


def unmerged(texts: pl.Series) -> pl.Series:
    """What `merge` makes of each text where there is no other."""
    for columns in (WORDS, BRACKETS):
        texts = _as_text(_pieces(texts, columns))
    return texts


def _columns_merged(texts: pl.Series, columns: str) -> pl.Series:
    """Merge over single columns, and pairs of them, round by round, until nothing changes.

    A round looks at every pattern with one of its columns left out. Where that shortened
    pattern exists already, with a placeholder there, the pattern joins it; where enough
    patterns share it, the column varies and all of them become it. All decisions of a
    round are taken on the set as it was.
    """
    live = _together(_pieces(texts, columns))
    while (after := _next(live)) is not None:
        live = after
    return _as_text(live)


def _as_text(live: pl.DataFrame) -> pl.Series:
    return (
        live.group_by("number", maintain_order=True)
        .agg(text=pl.col("piece").str.join(""))
        .sort("number")["text"]
    )


def _next(live: pl.DataFrame) -> pl.DataFrame | None:
    after = _one_round(live)
    return _two_words(live) if after is None else after


def _pieces(texts: pl.Series, columns: str) -> pl.DataFrame:
    """One row for each column of each pattern: what it is, and whether it may vary."""
    pieces = (
        pl.DataFrame({"text": texts})
        .with_row_index("number")
        .select("number", piece=pl.col("text").str.extract_all(columns))
        .explode("piece", empty_as_null=True)
        .with_columns(pl.col("piece").fill_null(""), column=pl.int_range(pl.len()).over("number"))
    )
    known = pieces.join(
        _kinds(pieces["piece"].unique()), on="piece", how="left", maintain_order="left"
    )
    # What an error says of itself is one sentence of few, though it stands in quotes.
    key = pl.col("piece").str.contains(rf"^{_KEY}$") & pl.col("piece").str.contains(_ERROR_KEY)
    is_said = (pl.col("kind") == "quoted") & (
        key.shift(1).over("number")
        | (key.shift(2) & (pl.col("piece").shift(1) == " ")).over("number")
    )
    known = known.with_columns(kind=pl.when(is_said).then(pl.lit("said")).otherwise("kind"))
    # A list of placeholders is one: nobody knows how many there will be.
    is_list = pl.col("is_wild") & ~pl.col("piece").str.contains(f"^.?{_PLACEHOLDER}.?$")
    return known.with_columns(piece=pl.when(is_list).then("blank").otherwise("piece"))


def _kinds(distinct: pl.Series) -> pl.DataFrame:
    """What each distinct piece is."""
    piece = pl.col("piece")
    in_marks = pl.col("kind").is_in(["quoted", "bracket", "payload"])
    first, n = piece.str.head(1), piece.str.len_chars()
    inside = pl.when(in_marks).then(piece.str.slice(1, n - 2)).otherwise(piece)
    has_letter = piece.str.contains(r"\p{L}")
    return (
        pl.DataFrame({"piece": distinct})
        .with_columns(
            kind=pl.when((n > 2) & first.is_in(list("'\"`‘“«„")) & ~piece.str.contains("', '"))
            .then(pl.lit("quoted"))
            .when(
                piece.str.contains(rf"^(?:{_KEY}.*\}}|\[['\"].*\])$")
                & ~piece.str.contains(_ERROR_KEY)
            )
            .then(pl.lit("payload"))
            .when((n > 1) & first.is_in(list("([{")) & piece.str.contains(r"[)\]}]$"))
            .then(pl.lit("bracket"))
            .when(piece.str.contains(f"^(?:{_NAME}|{_LIST})$"))
            .then(pl.lit("name"))
            .when(has_letter | piece.str.contains(OPEN, literal=True))
            .then(pl.lit("word"))
        )
        .with_columns(inside=inside)
        .with_columns(is_wild=pl.col("inside").str.contains(_IS_WILD))
        .with_columns(
            is_constant=has_letter & ~pl.col("is_wild") & (pl.col("kind").is_not_null()),
            may_vary=pl.col("kind").is_not_null()
            & ~pl.col("is_wild")
            & (
                ~piece.str.contains(f"[0-9]|^{TRACE_HERE}|^{_KEY}$")
                | piece.str.contains(f"^{NAME_WITH_NUMBER}$")
            )
            & ~pl.col("inside").str.to_lowercase().is_in(sorted(OPPOSITES))
            & ~piece.str.contains(_NEVER)
            & ~((pl.col("kind") == "word") & piece.str.contains(OPEN, literal=True)),
            blank=pl.when(in_marks & (pl.col("kind") != "payload"))
            .then(pl.concat_str(first, pl.lit(_WILD), piece.str.tail(1)))
            .otherwise(pl.lit(_WILD)),
        )
        .drop("inside")
    )


def _hashed(live: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The pieces with their hashes, and the sum of them for each pattern.

    A pattern is the sum of its pieces' hashes, so leaving one out is a subtraction.
    """
    place, blank = pl.col("column").hash(7), pl.col("blank").hash(11)
    hashed = live.with_columns(
        part=pl.when("is_wild").then(blank).otherwise(pl.col("piece").hash(11)) ^ place,
        open=blank ^ place,
    )
    whole = hashed.group_by("number").agg(
        whole=pl.col("part").sum(), n_constant=pl.col("is_constant").sum(), length=pl.len()
    )
    return hashed, whole


def _least(numbers: dict[str, int]) -> pl.Expr:
    return pl.col("kind").replace_strict(numbers, return_dtype=pl.UInt32)


def _together(live: pl.DataFrame) -> pl.DataFrame:
    """The pieces after merging names and spans that vary together in one frame of words."""
    hashed, _ = _hashed(live)
    may_vary = pl.col("may_vary") & pl.col("kind").is_in(list(N_TOGETHER))
    chosen = (
        hashed.with_columns(is_free=may_vary | pl.col("is_wild"))
        .with_columns(
            frame=pl.when("is_free").then("open").otherwise("part").sum().over("number"),
            n_fixed=(pl.col("is_constant") & ~pl.col("is_free")).sum().over("number"),
        )
        .filter(may_vary)
        .filter(pl.col("n_fixed") >= _least(N_CONSTANT))
        .filter(pl.col("piece").n_unique().over("frame", "column") >= _least(N_TOGETHER))
    )
    return _with_placeholders(live, chosen.select("number", "column"))


def _one_round(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after one round of merging; None where nothing merges."""
    hashed, whole = _hashed(live)
    candidates = (
        hashed.filter("may_vary")
        .join(whole, on="number")
        .filter(pl.col("n_constant") - pl.col("is_constant") >= _least(N_CONSTANT))
        .with_columns(without=pl.col("whole") - pl.col("part") + pl.col("open"))
        .with_columns(
            n_values=pl.col("piece").n_unique().over("without", "kind"),
            exists=pl.col("without").is_in(whole["whole"].unique().implode()),
        )
        .filter(pl.col("exists") | (pl.col("n_values") >= _least(N_VALUES)))
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


def _two_words(live: pl.DataFrame) -> pl.DataFrame | None:
    """The pieces after patterns joined one that has a placeholder for two of their words.

    What takes many values in two places at once leaves stragglers: too few share either of
    their words, though everything else says what they are. None where nothing joins.
    """
    hashed, whole = _hashed(live)
    change = pl.col("open") - pl.col("part")
    words = (
        hashed.filter("may_vary")
        .join(whole.filter(pl.col("n_constant") > N_CONSTANT["word"] + 2), on="number")
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
        "kind",
        "blank",
        piece=pl.when(is_chosen).then("blank").otherwise("piece"),
        is_constant=pl.col("is_constant") & ~is_chosen,
        may_vary=pl.col("may_vary") & ~is_chosen,
        is_wild=pl.col("is_wild") | is_chosen,
    )


#: A beginning with so many words, and so many different ends after it, has a free end.
N_BEGINNING, N_ENDS = 3, 5


def _tails_merged(texts: pl.Series) -> pl.Series:
    """Merge what follows a colon or a line break where it is another text every time."""
    hashed, _ = _hashed(_pieces(texts, BRACKETS))
    may_vary = pl.col("may_vary") & pl.col("kind").is_in(list(N_TOGETHER))
    ends_line = pl.col("piece").str.contains(r":\s+$|\n")
    framed = hashed.with_columns(is_free=may_vary | pl.col("is_wild")).with_columns(
        prefix=pl.when("is_free").then("open").otherwise("part").cum_sum().over("number"),
        n_fixed=(pl.col("is_constant") & ~pl.col("is_free"))
        .cast(pl.UInt32)
        .cum_sum()
        .over("number"),
        next=pl.col("piece").shift(-1).over("number"),
        n_rest=pl.len().over("number") - pl.col("column") - 1,
        n_free=pl.col("is_free").cast(pl.UInt32).cum_sum().over("number"),
    )
    # Where a colon follows the same words every time, what follows is one of many errors.
    is_open = pl.col("piece").str.contains("\n", literal=True) | (
        ends_line & ((pl.col("n_free") > 0) | (pl.col("n_fixed") >= 2 * N_BEGINNING))
    )
    is_said = (pl.col("n_fixed") >= N_BEGINNING) | (
        (pl.col("n_fixed") == N_BEGINNING - 1) & (pl.col("n_free") > 1)
    )
    is_anywhere = pl.col("n_fixed") > N_BEGINNING
    cuts = (
        framed.filter(((is_open & is_said) | is_anywhere) & (pl.col("n_rest") > 0))
        .with_columns(
            n_texts=pl.col("number").n_unique().over("prefix"),
            n_next=pl.col("next").n_unique().over("prefix"),
            n_lengths=pl.col("n_rest").n_unique().over("prefix"),
        )
        .filter(
            (pl.col("n_texts") >= N_ENDS)
            & pl.when(is_open)
            .then(
                (pl.col("n_next") > 1 + (pl.col("n_fixed") < 2 * N_BEGINNING).cast(pl.UInt32))
                & (pl.col("n_lengths") > 1)
            )
            .otherwise((pl.col("n_next") > 3) & (pl.col("n_lengths") > 2))
        )
        .sort("column", descending=True)
        .unique("number", keep="first", maintain_order=True)
        .select("number", cut="column", group="prefix")
    )
    pieces = framed.join(cuts, on="number", how="left", maintain_order="left")
    place = (pl.col("column") - pl.col("cut")).fill_null(0)
    varies = (
        may_vary
        & (place < 0)
        & (
            pl.col("piece").n_unique().over("group", "column")
            >= pl.col("kind").replace_strict(N_TOGETHER, default=9)
        )
    )
    is_trace = pl.col("piece").str.starts_with(TRACE_HERE)
    return _as_text(
        pieces.with_columns(
            piece=pl.when(place == 1)
            .then(pl.lit(_WILD))
            .when((place > 0) & ~is_trace)
            .then(pl.lit(""))
            .when(varies)
            .then("blank")
            .otherwise("piece")
        )
    )


#: A template that takes others in says so many words; one placeholder stands for at most
#: so many.
N_SAID, N_SWALLOWED = 3, 8


def _absorbed(texts: pl.Series) -> pl.Series:
    """Let a template take in those that it matches, the one that says most first.

    Only texts with the same first word, or the same last one, are compared.
    """
    said = texts.str.replace_all(_PLACEHOLDER, " ")
    distinct = pl.DataFrame({"text": texts, "said": said}).with_columns(
        first=pl.col("text").str.extract(rf"^([^{PARTING}]+)"),
        last=pl.col("text").str.extract(rf"([^{PARTING}]+)[{PARTING}]*$"),
        n_said=pl.col("said").str.count_matches(r"\p{L}{2,}"),
        n_chars=pl.col("said").str.len_chars(),
    )
    wild = distinct.filter(
        pl.col("text").str.contains(OPEN, literal=True) & (pl.col("n_said") >= N_SAID)
    )
    parts = [
        wild.filter(~pl.col(end).str.contains(OPEN, literal=True))
        .group_by(end)
        .agg(templates=pl.col("text"))
        .join(distinct.group_by(end).agg(pl.col("text")), on=end)
        .select("templates", "text")
        for end in ("first", "last")
    ]
    found = []
    for templates, inside in pl.concat(parts).iter_rows():
        candidates = pl.Series("text", inside)
        for template in templates:
            pattern = _pattern(template)
            matched = candidates.filter(candidates.str.contains(pattern))
            found += [
                (text, template, list(match.groups()))
                for text in matched
                if text != template and (match := re.match(pattern, text))
            ]
    schema = pl.Schema(
        {"text": pl.String(), "template": pl.String(), "swallowed": pl.List(pl.String)}
    )
    n_chars = dict(distinct.select("text", "n_chars").iter_rows())
    value = pl.element()
    is_kept = value.str.contains(_NEVER) | value.str.to_lowercase().is_in(sorted(OPPOSITES))
    into = dict(
        pl.DataFrame(found, schema=schema, orient="row")
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
        .iter_rows()
    )
    return pl.Series("merged", [_last(text, into) for text in texts], dtype=pl.String)


def _last(text: str, into: dict[str, str]) -> str:
    while text in into:
        text = into[text]
    return text


def _pattern(template: str) -> str:
    parts = re.split(f"(?:{_PLACEHOLDER})+", template)
    # Numbers that are still there were kept because they tell failures apart.
    word = r"[^\s=0-9]+(?: bytes)?"
    pattern = f"({word})".join(map(re.escape, parts))
    # Only at the end it is clear what a value of several words is.
    n_said = len(re.findall(r"[^\W\d_]{2,}", " ".join(parts)))
    more = rf"((?: {word}){{0,{N_SWALLOWED - 1}}})" if not parts[-1] and n_said > N_SAID else ""
    return f"^{pattern}{more}$"
