"""The cause group of a cluster: the kind of problem, whatever tool or system reported it.

``cause_groups.csv`` is the table. A cluster belongs to the first row that fits its template,
else to the first row that fits its code; the group depends on the two alone,
so that it is the same next week. Of ids only that of a fault depends on it, and no count.
Where no row fits, `proposed_cause` names the group whose texts in this package are most similar.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache
from math import hypot, log
from typing import NamedTuple

import polars as pl

from stateanalytics.core.package_tables import package_table, table_rows
from stateanalytics.errors import check_columns
from stateanalytics.state.reasons import REGISTRY

NO_MESSAGE = "(no message; "
"""The beginning of a template that was made from last steps: it shows no cause."""


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


RULES = package_table("stateanalytics.core", "cause_groups.csv", CauseRule)
"""The table, in the order in which rows claim clusters."""

TITLES: Mapping[str, str] = {rule.cause_group: rule.title for rule in RULES}
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
    code, template = pl.col("code").cast(pl.String), pl.col("template").cast(pl.String)
    texts = clusters.select(
        code=code, message=pl.when(~template.str.starts_with(NO_MESSAGE)).then(template)
    )
    groups = (_group_of(texts[column]) for column in ("message", "code"))
    return clusters.with_columns(cause_group=pl.coalesce(*groups))


# Boundaries, digits and letters of ASCII take half the time; 错误429 has a boundary, too.
_ASCII = {r"\b": r"(?-u:\b)", r"\d": "[0-9]", r"\w": "[0-9A-Z_a-z]"}


def _as_ascii(pattern: str) -> str:
    return re.sub(r"\\[bdw]", lambda shorthand: _ASCII[shorthand[0]], pattern)


def _group_of(texts: pl.Series) -> pl.Series:
    """The group of the first row of the table that fits each text; null: none, or no text."""
    distinct = texts.to_frame().lazy().unique().drop_nulls()
    text = pl.col(texts.name)
    fits = (
        pl.when(text.str.contains(f"(?i){_as_ascii(pattern)}")).then(pl.lit(rule.cause_group))
        for rule in RULES
        if (pattern := getattr(rule, texts.name))
    )
    known, groups = distinct.select(text, group=pl.coalesce(*fits)).collect().get_columns()
    return texts.replace_strict(known, groups, default=None, return_dtype=pl.String)


_GRAM = 3
_LONGEST = 300
LEAST_LIKE = 0.24
"""A cause is proposed where the cosine of n-grams is at least this; see docs/failures.md."""

_NO_WORD = re.compile(r"\\[bBdDsSwW]|\(\?[-imsu]*[:=!<]+|\[[^]]*\]|\{[^}]*\}|<[a-zA-Z*]*>|[\W\d_]+")


@lru_cache(maxsize=10_000)
def proposed_cause(text: str) -> str | None:
    """The group whose own texts are most like a template that no row of the table fits.

    Its n-grams of characters are compared with those of each group's titles, patterns, faults
    and the meanings of its codes, rare ones with more weight. A proposal for a person: no group,
    id or count depends on it. None: nothing is similar enough.

    Examples
    --------
    >>> proposed_cause("credentials were refused")
    'auth'
    >>> proposed_cause("something went wrong") is None
    True
    """
    weights, rarity, rarest = _own_grams()
    found = dict.fromkeys(_grams(text[:_LONGEST]))
    likeness: dict[str, float] = defaultdict(float)
    for gram in found:
        for name, weight in weights.get(gram, ()):
            likeness[name] += weight * rarity[gram]
    length = hypot(*(rarity.get(gram, rarest) for gram in found))
    # Of equal ones the first by name, whatever the order of the table.
    group = max(sorted(likeness), key=likeness.__getitem__, default=None)
    return group if group and likeness[group] >= LEAST_LIKE * length else None


@cache
def _own_grams() -> tuple[dict[str, list[tuple[str, float]]], dict[str, float], float]:
    """The groups of each n-gram with its weight there, its rarity, and that of one in no group."""
    texts = [(rule.cause_group, text) for rule in RULES for text in rule[1:]]
    faults = table_rows("stateanalytics.core", "faults.csv")
    texts += [(row["cause_group"], row["label"]) for row in faults]
    codes = {"code": list(REGISTRY), "template": [None] * len(REGISTRY)}
    groups = add_cause_groups(pl.DataFrame(codes, schema_overrides={"template": pl.String}))
    named = zip(groups["cause_group"], REGISTRY.values(), strict=True)
    texts += [(group, known.meaning) for group, known in named if group]
    grams: dict[str, Counter[str]] = defaultdict(Counter)
    for group, text in texts:
        grams[group].update(_grams(text))
    n_with = Counter(gram for counts in grams.values() for gram in counts)
    rarest = log(1 + len(grams)) + 0.1
    rarity = {gram: rarest - log(1 + n) for gram, n in n_with.items()}
    weights: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for group, counts in grams.items():
        of = {gram: (1 + log(n)) * rarity[gram] for gram, n in counts.items()}
        for gram, weight in of.items():
            weights[gram].append((group, weight / hypot(*of.values())))
    return weights, rarity, rarest


def _grams(text: str) -> list[str]:
    words = f" {_NO_WORD.sub(' ', text.lower()).strip()} "
    return [words[at : at + _GRAM] for at in range(len(words) - _GRAM + 1)]
