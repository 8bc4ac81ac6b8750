"""What a reader of states should know besides: silences of the policy, odd words, old columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.engines import TEXT, adapt
from stateanalytics.core.vocabulary import ADR_DELIVERIES, ADR_HEALTHS, ADR_LIFECYCLES, TABLES
from stateanalytics.errors import MissingColumnsError

_CLOSED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "lifecycle": ADR_LIFECYCLES,
    "health": ADR_HEALTHS,
    "delivery": ADR_DELIVERIES,
}


def neutral_but_blocked(states: Any) -> Any:
    """The entities that are blocked and that the policy nevertheless calls neutral.

    ADR-0033's cascade has no rule for blocked work, so under v1 this is all of it that
    is not bad for another reason. A report lists them, so that they are not overlooked.

    Parameters
    ----------
    states : polars, DuckDB or PySpark frame
        ``schema.STATES``, or any frame with ``lifecycle``, ``health`` and ``severity``.

    Returns
    -------
    frame
        The rows of that kind.

    Examples
    --------
    >>> frame = pl.DataFrame({"lifecycle": ["blocked", "running"], "health": ["blocked", "ok"],
    ...                       "severity": ["neutral", "neutral"]})
    >>> neutral_but_blocked(frame).height
    1
    """
    needed = dict.fromkeys(("lifecycle", "health", "severity"), TEXT)
    adapter = adapt(states, needed, "neutral_but_blocked")
    word = {name: nw.col(name).cast(nw.String) for name in needed}
    is_blocked = (word["lifecycle"] == "blocked") | (word["health"] == "blocked")
    return adapter.give_back(adapter.frame.filter(is_blocked & (word["severity"] == "neutral")))


def outside_vocabulary(states: pl.DataFrame) -> pl.DataFrame:
    """The words that ADR-0033 does not list for the entity that has them.

    Parameters
    ----------
    states : polars.DataFrame
        ``schema.STATES``.

    Returns
    -------
    polars.DataFrame
        ``schema.FINDINGS``, one row per source, entity type and word:
        ``state.lifecycle_outside_adr``, ``state.health_outside_adr`` or
        ``state.delivery_outside_adr``. The words themselves are kept.

    Notes
    -----
    Types and axes whose list the ADR leaves open have no finding.

    Examples
    --------
    >>> row = {"entity_type": "session", "entity_id": "s1", "health": "degraded"}
    >>> found = outside_vocabulary(schema.STATES.conform(pl.DataFrame([row])))
    >>> found.select("code", "n_rows", "example").row(0)
    ('state.health_outside_adr', 1, 'degraded')
    """
    _check(states, (*schema.ENTITY_KEY, *_CLOSED), "outside_vocabulary")
    found = [_outside(states, axis, lists) for axis, lists in _CLOSED.items()]
    order = ("source", "system", "entity_type", "column", "example")
    return schema.FINDINGS.conform(pl.concat(found).sort(order))


def _outside(states: pl.DataFrame, axis: str, lists: Mapping[str, tuple[str, ...]]) -> pl.DataFrame:
    listed = pl.DataFrame(
        [(whose, word) for whose, words in lists.items() for word in words],
        schema={"entity_type": pl.String, "example": pl.String},
        orient="row",
    )
    return (
        states.select(*schema.ENTITY_KEY, example=pl.col(axis).cast(pl.String))
        .filter(pl.col("entity_type").is_in(list(lists)), pl.col("example").is_not_null())
        .join(listed, on=["entity_type", "example"], how="anti")
        .group_by("source", "system", "entity_type", "example")
        .agg(n_rows=pl.len(), entity_id=pl.col("entity_id").first())
        .with_columns(
            code=pl.lit(f"state.{axis}_outside_adr"),
            severity=pl.lit("warning"),
            column=pl.lit(axis),
            entity_id=pl.when(pl.col("n_rows") == 1).then("entity_id"),
            message=pl.format(
                "ADR-0033 does not list {} {} for a {}",
                pl.lit(axis),
                pl.col("example"),
                pl.col("entity_type"),
            ),
            action=pl.lit("kept"),
        )
    )


def stored_differs(facts: Any, states: pl.DataFrame) -> pl.DataFrame:
    """Where a store keeps its own health, delivery or reason codes, and they are others.

    Parameters
    ----------
    facts : Facts or Snapshot
        With the columns ``stored_health``, ``stored_delivery``, ``stored_reason_codes``
        (ADR-0033, appendix A) of ``schema.ENTITIES``.
    states : polars.DataFrame
        What `states.states` gave for them.

    Returns
    -------
    polars.DataFrame
        ``schema.FINDINGS``, one row an entity and column: ``health.stored_differs``,
        ``delivery.stored_differs``, ``reason_codes.stored_differs``. Nothing stored is no
        difference; an empty list of codes is one where codes are derived.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> from stateanalytics.core.facts import Facts
    >>> from stateanalytics.state.states import states
    >>> row = {"entity_type": "session", "entity_id": "s1", "raw_status": "failed",
    ...        "stored_health": "stalled"}
    >>> entities = schema.ENTITIES.conform(pl.DataFrame([row]))
    >>> stored_differs(entities, states(entities, as_of="2026-05-27"))["message"].item()
    'stored health stalled, recomputed ok'
    """
    entities = facts.entities if hasattr(facts, "entities") else facts
    stored = ("stored_health", "stored_delivery", "stored_reason_codes")
    _check(entities, (*schema.ENTITY_KEY, *stored), "stored_differs")
    _check(states, (*schema.ENTITY_KEY, "health", "delivery", "reason_codes"), "stored_differs")
    kept = entities.select(*schema.ENTITY_KEY, *stored).filter(
        pl.any_horizontal(pl.col(name).is_not_null() for name in stored)
    )
    both = kept.join(
        states.select(*schema.ENTITY_KEY, "health", "delivery", "reason_codes").unique(
            list(schema.ENTITY_KEY), keep="first", maintain_order=True
        ),
        on=list(schema.ENTITY_KEY),
        how="inner",
        nulls_equal=True,
        maintain_order="left",
    )
    columns = {
        "health": pl.col("stored_health"),
        "delivery": pl.col("stored_delivery"),
        "reason_codes": _codes(pl.col("stored_reason_codes")),
    }
    found = [_differing(both, column, was) for column, was in columns.items()]
    return schema.FINDINGS.conform(pl.concat(found))


def _codes(listed: pl.Expr) -> pl.Expr:
    """The codes of a JSON list as `states` writes them; an empty list is the empty text."""
    dotted = listed.str.extract_all(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)+")
    return pl.when(listed.is_not_null()).then(dotted.list.join(", "))


def _differing(both: pl.DataFrame, column: str, was: pl.Expr) -> pl.DataFrame:
    compared = both.select(
        *schema.ENTITY_KEY, was=was, now=pl.col(column).cast(pl.String).fill_null("")
    )
    none = pl.lit("none")
    shown = {
        name: pl.when(pl.col(name) == "").then(none).otherwise(name) for name in ("was", "now")
    }
    return compared.filter(pl.col("was") != pl.col("now")).select(
        *schema.ENTITY_KEY,
        code=pl.lit(f"{column}.stored_differs"),
        severity=pl.lit("warning"),
        table=pl.col("entity_type").replace_strict(dict(TABLES), default=None),
        column=pl.lit(column),
        n_rows=pl.lit(1),
        message=pl.format(
            "stored {} {}, recomputed {}",
            pl.lit(column.replace("_", " ")),
            shown["was"],
            shown["now"],
        ),
        example=pl.col("was"),
        action=pl.lit("the recomputed value is used"),
    )


def _check(frame: pl.DataFrame, needed: tuple[str, ...], function: str) -> None:
    if missing := [name for name in needed if name not in frame.columns]:
        raise MissingColumnsError.of(missing, frame.columns, function)
