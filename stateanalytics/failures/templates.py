"""Message templates: what failure messages have in common, and what varies in them.

Masks first (things with a shape, words that hold a digit), then templates that differ in
one word are merged where that word evidently varies. Everything is decided on sets, so
the order of messages never matters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import polars as pl

from stateanalytics.errors import ColumnTypeError
from stateanalytics.failures.masking import mask
from stateanalytics.failures.masks import CLOSE, OPEN
from stateanalytics.failures.merging import merge

#: Named in every id: a better algorithm gets another version and leaves old ids alone.
VERSION = "v1"
WILDCARD = "<*>"


def mine_templates(messages: Sequence[str | None] | pl.Series) -> pl.DataFrame:
    """The template of every message, and an id that is the same next week.

    Parameters
    ----------
    messages : sequence of str or polars.Series, length n_messages
        Text of any length; null stays null.

    Returns
    -------
    polars.DataFrame, shape (n_messages, 3)
        In the order of ``messages``: ``template``, with ``<*>`` for what varies;
        ``template_typed``, with the kind of thing where it is known (``<UUID>``,
        ``<PATH>``, …); ``template_id``: ``v1:`` and a digest of the template. All null
        where the message is null.

    Raises
    ------
    ColumnTypeError
        If the messages are not text.

    Notes
    -----
    The templates depend on the set of messages, never on their order or repetition.
    Exit codes, HTTP statuses, signals, exception classes and model names are kept apart
    (`stateanalytics.failures.masks.KEPT`); tracebacks are reduced to the exception and
    the functions of the user's own code; messages above 4 000 characters keep their
    beginning and end.

    Examples
    --------
    >>> mined = mine_templates(["worker 17 died: exit code 137", "worker 4 died: exit code 1"])
    >>> mined["template"].to_list()
    ['worker <*> died: exit code 137', 'worker <*> died: exit code 1']
    """
    rows = pl.DataFrame({"message": _as_text(messages)})
    masked = mask(rows.unique().drop_nulls())
    merged = merge(masked.select("pattern").unique()).with_columns(
        template=_links(pl.col("merged")).str.replace_all(f"(?:{OPEN}[A-Z]*{CLOSE})+", WILDCARD),
        template_typed=_links(pl.col("merged"))
        .str.replace_all(f"{OPEN}([A-Z]*){CLOSE}", "<$1>")
        .str.replace_all("<>", WILDCARD, literal=True),
    )
    texts = merged["template"].unique().to_list()
    ids = pl.DataFrame(
        {"template": texts, "template_id": [template_id(text) for text in texts]},
        schema={"template": pl.String, "template_id": pl.String},
    )
    named = masked.join(merged.join(ids, on="template"), on="pattern")
    return rows.join(named, on="message", how="left", maintain_order="left").select(
        "template", "template_typed", "template_id"
    )


def template_id(template: str) -> str:
    """The id of a template: the version of the algorithm and a digest of the text.

    Examples
    --------
    >>> template_id("worker <*> died").startswith("v1:")
    True
    """
    return f"{VERSION}:{hashlib.blake2b(template.encode(), digest_size=6).hexdigest()}"


def _links(text: pl.Expr) -> pl.Expr:
    """Write the slashes of a link again, which would have looked like a path."""
    link = f"{OPEN}LINK{CLOSE}"
    return text.str.replace_all(link, f"://{link}", literal=True)


def _as_text(messages: Sequence[str | None] | pl.Series) -> pl.Series:
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
