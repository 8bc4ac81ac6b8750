"""The cause group of a cluster: what kind of thing went wrong, whatever tool or system says it.

``cause_groups.csv`` is the table. A cluster belongs to the first row that its template
fits, else to the first row that its code fits; which group it is depends on the two alone,
so that it is the same next week. A group is a reading aid: ids and counts never rest on it.
"""

from __future__ import annotations

import csv
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from stateanalytics.errors import check_columns
from stateanalytics.failures.last_steps import NO_MESSAGE

_TABLE = resources.files("stateanalytics.failures").joinpath("cause_groups.csv")


class CauseRule(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    cause_group, title : str
        The group, and what people call it.
    code, message : str
        Regular expressions that find something in a reason code or a template, whatever
        the case; empty: it looks at no code, or at no message.
    """

    cause_group: str
    title: str
    code: str
    message: str


RULES = tuple(CauseRule(**row) for row in csv.DictReader(_TABLE.read_text("utf-8").splitlines()))
"""The table, in the order in which rows claim clusters."""

TITLES = MappingProxyType({rule.cause_group: rule.title for rule in RULES})
"""What people call each group."""

#: So many answers are kept: to compile sixty patterns takes longer than to look through the
#: templates of a week, and most of them were there the last time.
N_KEPT = 10_000
_CLAIMED: dict[str, dict[str, str | None]] = {"message": {}, "code": {}}


def add_cause_groups(clusters: pl.DataFrame) -> pl.DataFrame:
    """Add the kind of cause that code and template tell of.

    Parameters
    ----------
    clusters : polars.DataFrame
        With ``code`` and ``template``; either may be null.

    Returns
    -------
    polars.DataFrame
        ``clusters`` in its order with ``cause_group``, a key of `TITLES`; null: neither
        tells.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> limits = {"code": [None, "run.failed.provider_quota"], "template": ["HTTP 429", None]}
    >>> add_cause_groups(pl.DataFrame(limits))["cause_group"].to_list()
    ['provider_limit', 'provider_limit']
    """
    check_columns(clusters, ["code", "template"], "add_cause_groups")
    code, template = (clusters[name].cast(pl.String) for name in ("code", "template"))
    said = clusters.select(pl.when(~template.str.starts_with(NO_MESSAGE)).then(template))
    by_message, by_code = _claimed(said.to_series(), "message"), _claimed(code, "code")
    return clusters.with_columns(cause_group=pl.coalesce(by_message, by_code))


def _claimed(texts: pl.Series, by: str) -> pl.Series:
    """The group of the first rule that claims each text; null: none, or no text."""
    known = _CLAIMED[by]
    if len(known) > N_KEPT:
        # Another one, because another thread may be looking things up in this.
        known = _CLAIMED[by] = {}
    distinct = texts.unique().drop_nulls().to_list()
    if new := [text for text in distinct if text not in known]:
        patterns = [(rule.cause_group, getattr(rule, by)) for rule in RULES if getattr(rule, by)]
        text = pl.col("text")
        claims = (
            pl.when(text.str.contains(f"(?i){pattern}")).then(pl.lit(group))
            for group, pattern in patterns
        )
        asked = pl.DataFrame({"text": new}).with_columns(group=pl.coalesce(*claims))
        known.update(asked.iter_rows())
    groups = [known[text] for text in distinct]
    return texts.replace_strict(distinct, groups, default=None, return_dtype=pl.String)
