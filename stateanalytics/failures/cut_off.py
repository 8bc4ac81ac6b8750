"""Messages that were cut off join the one whole template that goes on from there."""

from __future__ import annotations

import re

import polars as pl

from stateanalytics.failures.placeholders import CLOSE, OPEN

#: Texts of these lengths were probably cut off by who stored them.
LIMITS = (200, 250, 255, 256, 300, 400, 500, 512, 1000, 1024, 2000, 2048, 4096)
#: What stands at the end of a pattern that was probably cut off.
CUT = "…"
#: What is said of a trace that was cut off before it said what was raised.
NO_CAUSE = "Traceback (most recent call last):"
#: What parts the cause of a trace from the rest while templates are worked on.
TRACE_HERE = "\ue004"
#: So many words say enough to know the rest by.
N_SAID = 4
#: Templates of more words are not looked at.
N_WORDS = 150


def join_traces(found: pl.DataFrame) -> pl.DataFrame:
    """Give a trace that was cut off the template of the one trace that goes on from there.

    Parameters
    ----------
    found : polars.DataFrame
        ``merged``, the template, and ``trace``, what `traces.reduce_traces` said beside the cause
        (null: no trace).

    Returns
    -------
    polars.DataFrame
        In the same order; a trace of which two whole ones could be the rest stays.
    """
    if not found["trace"].count():
        return found
    has_cause = ~pl.col("merged").str.starts_with(NO_CAUSE)
    is_cut = pl.col("via").str.ends_with(CUT)
    found = found.with_columns(via=pl.col("trace").str.extract(r"\tvia ([^\n]*)$"))
    # A whole trace may have such a length by chance, so one that says its cause counts as
    # whole for those that do not.
    return (
        found.pipe(_joined, is_cut & has_cause, ~is_cut)
        .pipe(_joined, ~has_cause, has_cause)
        .drop("via")
    )


def _joined(found: pl.DataFrame, is_cut: pl.Expr, is_whole: pl.Expr) -> pl.DataFrame:
    """Give those that are cut the template of the only whole ones they could be."""
    told = found.select("merged", "via").drop_nulls().unique()
    events = pl.col("via").str.strip_suffix(CUT).str.strip_suffix("; ").str.split("; ")
    cut = told.filter(is_cut).select("merged", "via", key=events.list.join("; "))
    beginnings = (
        told.filter(is_whole)
        .select(whole="merged", events=events)
        .with_columns(n=pl.int_ranges(1, pl.col("events").list.len() + 1))
        .explode("n", empty_as_null=True)
        .select("whole", key=pl.col("events").list.head("n").list.join("; "))
        .unique()
    )
    cause, other = _cause_of(pl.col("merged")), _cause_of(pl.col("whole"))
    name = r"^([^:\s]+)"
    may_be = (
        cause.str.starts_with(NO_CAUSE)
        | other.str.starts_with(cause.str.replace(r"\S*$", ""))
        | (cause.str.extract(name) != other.str.extract(name))
    )
    only = (
        cut.filter(pl.col("key") != "")
        .join(beginnings, on="key")
        .filter(may_be)
        .group_by("merged", "via")
        .agg(pl.col("whole").unique())
        .filter(pl.col("whole").list.len() == 1)
        .select("merged", "via", whole=pl.col("whole").list.first())
    )
    return (
        found.join(only, on=["merged", "via"], how="left", maintain_order="left")
        .with_columns(merged=pl.coalesce("whole", "merged"))
        .drop("whole")
    )


def _cause_of(merged: pl.Expr) -> pl.Expr:
    return merged.str.replace(f"(?s){TRACE_HERE}.*", "")


def join_cut_texts(found: pl.DataFrame) -> pl.DataFrame:
    """Give a text that was cut off the template that begins with it, where there is one.

    Parameters
    ----------
    found : polars.DataFrame
        ``merged``, the template, and ``is_cut``.

    Returns
    -------
    polars.DataFrame
        In the same order. A template that a whole text has, too, stays as it is.
    """
    if not found["is_cut"].any():
        return found
    told = found.group_by("merged").agg(is_cut=pl.col("is_cut").all())
    words = pl.col("merged").str.replace(r"\s*\S*$", "")
    texts = told.filter("is_cut").select("merged", words=words, first=_first_word(words))
    texts = texts.filter(pl.col("words").str.count_matches(r"\p{L}{2,}") >= N_SAID)
    whole = told.filter(~pl.col("is_cut")).select(
        "merged", first=_first_word(pl.col("merged")), n=pl.col("merged").str.count_matches(" ")
    )
    pairs: list[tuple[str, str]] = []
    beside = texts.group_by("first").agg("merged", "words").join(whole, on="first")
    for names, beginnings, template in (
        beside.filter(pl.col("n") < N_WORDS).select("merged", "words", "merged_right").iter_rows()
    ):
        fits = pl.Series(beginnings).str.contains(_beginning(template))
        pairs += [(name, template) for name in pl.Series(names).filter(fits)]
    joined = (
        pl.DataFrame(pairs, schema={"merged": pl.String, "whole": pl.String}, orient="row")
        .group_by("merged")
        .agg(pl.col("whole").unique())
        .filter(pl.col("whole").list.len() == 1)
        .select("merged", whole=pl.col("whole").list.first())
    )
    return (
        found.join(joined, on="merged", how="left", maintain_order="left")
        .with_columns(merged=pl.coalesce("whole", "merged"))
        .drop("whole")
    )


def _first_word(text: pl.Expr) -> pl.Expr:
    return text.str.extract(r"^(\S+)")


def _beginning(template: str) -> str:
    """What finds texts that the template could go on from, at the end of a word."""
    words = [
        ".+?".join(map(re.escape, re.split(f"(?:{OPEN}[A-Z]*{CLOSE})+", word)))
        for word in template.split()
    ]
    opened = "".join(f"(?:\\s{word}" for word in words[1:])
    return f"(?s)^{words[0]}{opened}{')?' * (len(words) - 1)}$"
