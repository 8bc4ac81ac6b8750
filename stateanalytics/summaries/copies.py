"""Work that is counted in several summaries: copies of one store, told by what they hold."""

from __future__ import annotations

from hashlib import sha256

import polars as pl

from stateanalytics.core.text import visible

CODE = "summary.counted_twice"
N_SAMPLED = 32
"""Of the work of one input so much is remembered; of copies it is mostly the same."""

_DIGITS = 12
_OLDEST = 2**31


def work_samples(entities: pl.DataFrame) -> pl.DataFrame:
    """Digests of some of the dated work that each input tells.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.

    Returns
    -------
    polars.DataFrame, shape (n_sources, 2)
        ``source`` and ``work_sample``, at most `N_SAMPLED` digests with blanks between them.

    Notes
    -----
    Which work is remembered depends on the work alone, so that inputs that share much of it
    remember some of the same (a bottom-k sketch).
    """
    born_ms = pl.col("created_at").dt.epoch("ms")
    dated = entities.filter(pl.col("created_at").is_not_null()).select(
        "source",
        # Knuth's multiplicative hash, in what 64 bits hold: times that follow each other lie apart.
        place=born_ms % _OLDEST * 2_654_435_761 % 2**32,
        work=pl.concat_str("system", "entity_type", "entity_id", born_ms, separator="\n"),
    )
    farthest = pl.col("place").bottom_k(N_SAMPLED).max().over("source")
    sampled = dated.filter(pl.col("place") <= farthest).sort("source", "place", "work")
    first = sampled.group_by("source", maintain_order=True).head(N_SAMPLED).drop_nulls("work")
    digests = [sha256(work.encode()).hexdigest()[:_DIGITS] for work in first["work"]]
    return (
        first.with_columns(digest=pl.Series(digests, dtype=pl.String))
        .group_by("source", maintain_order=True)
        .agg(work_sample=pl.col("digest").str.join(" "))
    )


def counted_twice(sources: pl.DataFrame) -> pl.DataFrame:
    """A loss for each input that tells work of another, which merging can only add up.

    Parameters
    ----------
    sources : polars.DataFrame
        In the shape that a summary has of them.

    Returns
    -------
    polars.DataFrame
        ``source``, ``system``, ``code``, ``message`` and ``action``, sorted by source.
    """
    inputs = sources.sort("source", "fingerprint").with_row_index("number")
    told = inputs.select("number", pl.col("work_sample").str.split(" ")).explode(
        "work_sample", empty_as_null=True
    )
    first = pl.col("number").min().over("work_sample")
    again = (
        told.drop_nulls()
        .select("number", first=first)
        .filter(pl.col("first") < pl.col("number"))
        .group_by("number")
        .agg(pl.col("first").min())
    )
    names = inputs.select(first="number", other="source")
    found = inputs.join(again, on="number").join(names, on="first").sort("number")
    others = [None if other is None else visible(other) for other in found["other"]]
    return found.select(
        "source",
        "system",
        code=pl.lit(CODE),
        message=pl.format("work of it is told by {} too", pl.Series(others, dtype=pl.String)),
        action=pl.lit("counted twice: leave one of them out, or collect both into one archive"),
    )
