"""A template takes in those that it matches."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from stateanalytics.failures.masking import OPPOSITES, PARTING
from stateanalytics.failures.pieces import NEVER, PLACEHOLDER
from stateanalytics.failures.placeholders import OPEN

#: A template that takes others in says so many words; one placeholder stands for at most
#: so many.
N_SAID, N_SWALLOWED = 3, 8
#: So many pairs of templates and texts are held at once.
N_PAIRS = 200_000


def absorbed(texts: pl.Series) -> pl.Series:
    """Let a template take in those that it matches, the one that says most first.

    Only texts with the same first word, or the same last one, are compared.
    """
    if not texts.str.contains(OPEN, literal=True).any():
        return texts.rename("merged")
    said = texts.str.replace_all(PLACEHOLDER, " ")
    distinct = pl.DataFrame({"text": texts, "said": said}).with_columns(
        n_said=pl.col("said").str.count_matches(r"\p{L}{2,}"),
        n_chars=pl.col("said").str.len_chars(),
    )
    found = []
    for template, inside in _candidates(distinct):
        pattern = _pattern(template)
        candidates = pl.Series("text", inside)
        found += [
            (text, template, list(match.groups()))
            for text in candidates.filter(candidates.str.contains(pattern))
            if (match := re.match(pattern, text))
        ]
    schema = pl.Schema(
        {"text": pl.String(), "template": pl.String(), "swallowed": pl.List(pl.String)}
    )
    n_chars = dict(distinct.select("text", "n_chars").iter_rows())
    value = pl.element()
    is_kept = value.str.contains(NEVER) | value.str.to_lowercase().is_in(sorted(OPPOSITES))
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


def _candidates(distinct: pl.DataFrame) -> Iterator[tuple[str, list[str]]]:
    """For each template, the texts that have all its words, and its first or its last one.

    Looked up by the rarest word of each: comparing every two of them would take the square
    of the time.
    """
    text = pl.col("text")
    words = distinct.select(
        "text",
        "n_said",
        first=text.str.extract(rf"^([^{PARTING}]+)"),
        last=text.str.extract(rf"([^{PARTING}]+)[{PARTING}]*$"),
        words=text.str.extract_all(rf"[^{PARTING}]+").list.unique(),
    ).with_columns(
        words=pl.col("words").list.filter(~pl.element().str.contains(OPEN, literal=True))
    )
    places = words.select("text", word="words").explode("word").drop_nulls()
    rarest = (
        words.filter(text.str.contains(OPEN, literal=True) & (pl.col("n_said") >= N_SAID))
        .select("first", "last", "words", template="text", word="words")
        .explode("word")
        .join(places.group_by("word").len(), on="word")
        .sort("len", "word")
        .unique("template", keep="first", maintain_order=True)
    )
    has_end = [
        (pl.col(end) == pl.col(f"{end}_of_it")) & ~pl.col(end).str.contains(OPEN, literal=True)
        for end in ("first", "last")
    ]
    of_it = words.select(pl.all().name.suffix("_of_it"))
    batches = rarest.with_columns(batch=pl.col("len").cum_sum() // N_PAIRS)
    for batch in batches.partition_by("batch"):
        yield from (
            batch.join(places, on="word")
            .filter(text != pl.col("template"))
            .join(of_it, left_on="text", right_on="text_of_it")
            .filter(pl.any_horizontal(has_end))
            .filter(pl.col("words").list.set_difference("words_of_it").list.len() == 0)
            .group_by("template")
            .agg("text")
            .iter_rows()
        )


def _last(text: str, into: dict[str, str]) -> str:
    while text in into:
        text = into[text]
    return text


def _pattern(template: str) -> str:
    parts = re.split(f"(?:{PLACEHOLDER})+", template)
    # Numbers that are still there were kept because they tell failures apart.
    word = r"[^\s=0-9]+(?: bytes)?"
    pattern = f"({word})".join(map(re.escape, parts))
    # Only at the end it is clear what a value of several words is.
    n_said = len(re.findall(r"[^\W\d_]{2,}", " ".join(parts)))
    more = rf"((?: {word}){{0,{N_SWALLOWED - 1}}})" if not parts[-1] and n_said > N_SAID else ""
    return f"^{pattern}{more}$"
