"""The cause group of a cluster: the kind of problem, whatever tool or system reported it.

``cause_groups.csv`` is the table. A cluster belongs to the first row that fits its template,
else to the first row that fits its code; the group depends on the two alone,
so that it is the same next week. A group is a reading aid: no id or count depends on it.
"""

from __future__ import annotations

import csv
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from stateanalytics.errors import check_columns

NO_MESSAGE = "(no message; "
"""The beginning of a template that was made from last steps: it shows no cause."""

_TABLE = resources.files("stateanalytics.failures").joinpath("cause_groups.csv")


class CauseRule(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    cause_group, title : str
        The group, and its name for people.
    code, message : str
        Regular expressions for reason codes and for templates, regardless of case; empty:
        the row fits no code, or no template.
    """

    cause_group: str
    title: str
    code: str
    message: str


RULES = tuple(CauseRule(**row) for row in csv.DictReader(_TABLE.read_text("utf-8").splitlines()))
"""The table, in the order in which rows claim clusters."""

TITLES = MappingProxyType({rule.cause_group: rule.title for rule in RULES})
"""The name of each group for people."""


def add_cause_groups(clusters: pl.DataFrame) -> pl.DataFrame:
    """Add the kind of cause that code and template show.

    Parameters
    ----------
    clusters : polars.DataFrame
        With ``code`` and ``template``; either may be null.

    Returns
    -------
    polars.DataFrame
        ``clusters`` in its order with ``cause_group``, a key of `TITLES`; null: not known.

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
    texts = clusters.select(
        code=code, message=pl.when(~template.str.starts_with(NO_MESSAGE)).then(template)
    )
    groups = (_group_of(texts[column]) for column in ("message", "code"))
    return clusters.with_columns(cause_group=pl.coalesce(*groups))


def _group_of(texts: pl.Series) -> pl.Series:
    """The group of the first row of the table that fits each text; null: none, or no text."""
    distinct = texts.unique().drop_nulls()
    text = pl.col(texts.name)
    fits = (
        pl.when(text.str.contains(f"(?i){pattern}")).then(pl.lit(rule.cause_group))
        for rule in RULES
        if (pattern := getattr(rule, texts.name))
    )
    groups = distinct.to_frame().select(group=pl.coalesce(*fits)).to_series()
    return texts.replace_strict(distinct, groups, default=None, return_dtype=pl.String)
