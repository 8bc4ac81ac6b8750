"""What a run did last: all there is to tell failures apart that left no message."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.failures.cut_off import CUT
from stateanalytics.failures.masking import as_line, is_blank, mask, reduced

NO_MESSAGE = "(no message; "
"""How a template begins that was made from steps."""

N_STEPS = 3


def add_last_steps(failed: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add in words what failures without a message did last.

    Parameters
    ----------
    failed : polars.DataFrame
        Failed rows with ``message`` and ``failed_at``.
    events : polars.DataFrame
        The events of all entities.

    Returns
    -------
    polars.DataFrame
        ``failed`` in its order with ``last_steps``: the last tool or item that an activity
        up to the failure named, masked as a message is, and the kinds of the last `N_STEPS`
        activities, with the role of a message; neighbours that are alike count once. Null
        where there is a message, or no activity.
    """
    key = list(ENTITY_KEY)
    is_silent = is_blank(pl.col("message").fill_null(""))
    silent = failed.filter(is_silent).select(*key, "failed_at").unique(key)
    kind = pl.concat_str("kind", "role", separator=" of ", ignore_nulls=True)
    before = (
        events.filter("is_activity")
        .join(silent, on=key)
        .filter(pl.col("at") <= pl.col("failed_at"))
        .sort("at", "seq", nulls_last=True)
        .group_by(key, maintain_order=True)
        .agg(
            name=pl.col("name").filter(~is_blank(pl.col("name"))).last(),
            kinds=kind.filter(kind.ne_missing(kind.shift())).tail(N_STEPS).str.join(", "),
        )
    )
    tools = _as_tools(before["name"].drop_nulls().unique())
    told = pl.concat_str(
        pl.lit(f"{NO_MESSAGE}last "),
        pl.coalesce(pl.col("tool") + ": ", pl.lit("")),
        pl.col("kinds"),
        pl.lit(")"),
    )
    steps = before.join(tools, on="name", how="left").select(*key, last_steps=told)
    return failed.join(steps, on=key, how="left", maintain_order="left").with_columns(
        last_steps=pl.when(is_silent).then("last_steps")
    )


def _as_tools(names: pl.Series) -> pl.DataFrame:
    """Names as one line each, without what varies in them: some events are named by an id."""
    numbered = pl.DataFrame({"message": names}).with_row_index("number")
    lines = reduced(numbered).rename({"text": "message"})
    tool = as_line(pl.col("pattern").str.strip_suffix(f" {CUT}"))
    return (
        mask(lines)
        .select(tool=tool, number="numbers")
        .explode("number")
        .join(numbered, on="number")
        .select("tool", name="message")
    )
