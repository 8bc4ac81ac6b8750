"""A template takes in those that it matches."""

from __future__ import annotations

import re

import polars as pl

from stateanalytics.failures.masking import OPPOSITES, PARTING
from stateanalytics.failures.pieces import NEVER, PLACEHOLDER
from stateanalytics.failures.placeholders import OPEN

#: A template that takes others in says so many words; one placeholder stands for at most
#: so many.
N_SAID, N_SWALLOWED = 3, 8


def absorbed(texts: pl.Series) -> pl.Series:
    """Let a template take in those that it matches, the one that says most first.

    Only texts with the same first word, or the same last one, are compared.
    """
    said = texts.str.replace_all(PLACEHOLDER, " ")
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
