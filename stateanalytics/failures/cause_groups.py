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
    code, template = pl.col("code").cast(pl.String), pl.col("template").cast(pl.String)
    said = pl.when(~template.str.starts_with(NO_MESSAGE)).then(template)
    return clusters.with_columns(
        cause_group=pl.coalesce(
            *(_claims(rule.cause_group, said, rule.message) for rule in RULES if rule.message),
            *(_claims(rule.cause_group, code, rule.code) for rule in RULES if rule.code),
        )
    )


def _claims(group: str, text: pl.Expr, pattern: str) -> pl.Expr:
    return pl.when(text.str.contains(f"(?i){pattern}")).then(pl.lit(group))
