"""What a store keeps of a state itself, and words and codes that no list has."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, word
from stateanalytics.core.facts import beside, once
from stateanalytics.core.vocabulary import ADR_DELIVERIES, ADR_HEALTHS, ADR_LIFECYCLES
from stateanalytics.errors import check_columns
from stateanalytics.state.reason_codes import FORM, OURS, REGISTRY
from stateanalytics.state.signatures import delivery_code, domain, health_code
from stateanalytics.systems import all_systems
from stateanalytics.systems.situations import OTHER_AXES, texts_of

_AXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "lifecycle": ADR_LIFECYCLES,
    "health": ADR_HEALTHS,
    "delivery": ADR_DELIVERIES,
}


def stored_axes(cases: Cases) -> pl.DataFrame:
    """Health, delivery and reason codes that are stored, and are others than the facts give.

    They are the columns of ADR-0033's appendix A. Nothing stored is no difference, and
    neither is an empty list of codes: it is the column's default, not a claim. Codes may
    be fewer than the facts give, but none that they do not give.
    """
    judged = cases.states.select(*schema.ENTITY_KEY, now_health="health", now_delivery="delivery")
    is_stored = pl.any_horizontal(pl.col("^stored_(health|delivery|reason_codes)$").is_not_null())
    rows = cases.rows.filter(is_stored)
    rows = beside(rows, once(judged.join(rows, on=schema.ENTITY_KEY, how="semi")))
    own, separator = pl.col("reason_code"), schema.CODE_SEPARATOR
    rows = (
        _with_derived_codes(rows)
        .with_columns(listed=texts_of("stored_reason_codes"))
        .with_columns(
            given=pl.when(pl.col("listed").list.contains(own))
            .then(pl.col("listed").list.eval(_of_status(pl.element())))
            .otherwise(pl.concat_list(own))
            .list.set_union("derived")
            .list.drop_nulls()
        )
    )
    is_not_given = pl.col("listed").list.set_difference("given").list.len() > 0
    codes = pl.when(is_not_given).then(pl.col("listed").list.join(separator))
    axes = {
        "health": (pl.col("stored_health"), pl.col("now_health").cast(pl.String)),
        "delivery": (pl.col("stored_delivery"), pl.col("now_delivery").cast(pl.String)),
        "reasons": (codes, pl.col("given").list.join(separator)),
    }
    parts = []
    for axis, (stored, recomputed) in axes.items():
        compared = rows.with_columns(was=stored, now=recomputed.fill_null("")).filter(
            pl.col("was") != pl.col("now")
        )
        none = {name: pl.col(name).replace("", "none") for name in ("was", "now")}
        parts.append(
            audit_rows(
                compared,
                "audit.stored_differs",
                at="updated_at",
                says=pl.format("stored {} {}", pl.lit(axis), none["was"]),
                against=pl.format("recomputed {}", none["now"]),
            )
        )
    return pl.concat(parts)


def _with_derived_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the codes that explain their recomputed health and delivery, as a list."""
    axes = ["entity_type", "now_health", "now_delivery"]
    distinct = rows.select(axes).unique()
    derived = [
        [
            health_code(domain(entity_type), health),
            delivery_code(domain(entity_type), delivery),
        ]
        for entity_type, health, delivery in distinct.rows()
    ]
    codes = distinct.with_columns(derived=pl.Series(derived, dtype=pl.List(pl.String)))
    return rows.join(codes, on=axes, how="left", nulls_equal=True, maintain_order="left")


def _of_status(code: pl.Expr) -> pl.Expr:
    return code.filter(~code.str.contains(OTHER_AXES))


def unknown_reasons(cases: Cases) -> pl.DataFrame:
    """Reason codes that their system does not have, where it closes its list of codes.

    Each entity and code once, of its row before those of its history; what is no dotted
    code at all is a warning. The rows keep their codes.
    """
    shared = {known.code for known in REGISTRY.values() if known.origin in OURS}
    of_system = {
        system.name: sorted(shared.union(known.code for known in system.reason_codes()))
        for system in all_systems()
        if system.are_codes_closed
    }
    code = pl.col("reason_code")
    is_unknown = pl.any_horizontal(
        (pl.col("system") == name) & ~code.is_in(codes) for name, codes in of_system.items()
    )
    listed = cases.rows.filter(pl.col("stored_reason_codes").is_not_null())
    in_lists = listed.with_columns(reason_code=texts_of("stored_reason_codes")).explode(
        "reason_code"
    )
    sources = (cases.rows, "ended_at"), (in_lists, "ended_at"), (cases.facts.transitions, "at")
    coded = [rows.select(*schema.ENTITY_KEY, code.cast(pl.String), at=at) for rows, at in sources]
    unknown = pl.concat(coded).filter(is_unknown, code != "")
    return audit_rows(
        unknown.unique((*schema.ENTITY_KEY, "reason_code"), keep="first", maintain_order=True),
        "audit.reason_unknown",
        at="at",
        severity=pl.when(code.str.contains(FORM)).then(pl.lit("info")).otherwise(pl.lit("warning")),
        says=pl.format("its reason is {}", word("reason_code")),
        against=pl.format("{} has no such code", "system"),
    )


def outside_vocabulary(states: pl.DataFrame) -> pl.DataFrame:
    """The words of states that ADR-0033 does not list for the entity that has them.

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
    Types and axes whose list the ADR leaves open have no finding, and neither has
    ``unknown``, which is counted as legacy.

    Examples
    --------
    >>> row = {"entity_type": "session", "entity_id": "s1", "health": "degraded"}
    >>> found = outside_vocabulary(schema.STATES.conform(pl.DataFrame([row])))
    >>> found.select("code", "n_rows", "example").row(0)
    ('state.health_outside_adr', 1, 'degraded')
    """
    check_columns(states, (*schema.ENTITY_KEY, *_AXES), "outside_vocabulary")
    findings = [_outside(states, axis, lists) for axis, lists in _AXES.items()]
    order = ("source", "system", "entity_type", "column", "example")
    return schema.FINDINGS.conform(pl.concat(findings).sort(order))


def _outside(states: pl.DataFrame, axis: str, lists: Mapping[str, tuple[str, ...]]) -> pl.DataFrame:
    listed = pl.DataFrame(
        [
            (entity_type, word)
            for entity_type, words in lists.items()
            for word in (*words, "unknown")
        ],
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
            severity=pl.lit("info"),
            column=pl.lit(axis),
            entity_id=pl.when(pl.col("n_rows") == 1).then("entity_id"),
            message=pl.format(
                "ADR-0033 does not list {} {} for a {}", pl.lit(axis), "example", "entity_type"
            ),
            action=pl.lit("kept"),
        )
    )
