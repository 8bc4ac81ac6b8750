"""Reasons beyond the one that a row stores: further listed codes, and those inferred from others.

Only rows that have any get ``recorded_reasons``; the others keep their one stored reason.
Everything follows from rows of ``entities``, so that a past instant is explained by
its own rows.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import left_joined
from stateanalytics.core.vocabulary import ADR_WORDS, STATUS_WORDS
from stateanalytics.systems import situations
from stateanalytics.systems.lionagi.raw import SYSTEM

_KEY = list(schema.ENTITY_KEY)
_PLACE = "_place"
_BAD_ENDS = ("failed", "timed_out", "cancelled", "aborted")
# The store records that the other entity blocks this one, not that it is the cause.
_CONFIDENCE = 0.8
_EXPLAINED_TYPES = ("play", "show", "team", "schedule")
_MAX_NAMED = 5
_MAX_CHARS = 100
_WORDS = pl.DataFrame(
    [
        (word.entity_type, word.raw_status, word.lifecycle, word.outcome, word.is_terminal)
        for word in (*STATUS_WORDS, *ADR_WORDS)
    ],
    schema={
        **dict.fromkeys(("entity_type", "raw_status", "lifecycle", "outcome"), pl.String),
        "is_terminal": pl.Boolean,
    },
    orient="row",
)


def add_all_reasons(entities: pl.DataFrame) -> pl.DataFrame:
    """Entities with all their recorded reasons, and the health of teams with an ended parent.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`; rows of other systems stay as they are.

    Returns
    -------
    polars.DataFrame
        The same rows in their order.
    """
    is_mine = (pl.col("system") == SYSTEM).fill_null(value=False)
    # Most sessions have no list of codes: only rows that may have more reasons are examined.
    has_codes = pl.col("stored_reason_codes").ne_missing(pl.lit("[]"))
    may_have_reasons = (pl.col("stored_reason_codes").is_not_null() & has_codes) | pl.col(
        "entity_type"
    ).is_in(_EXPLAINED_TYPES)
    rows = entities.filter(is_mine & may_have_reasons).with_columns(
        codes=situations.texts_of("stored_reason_codes")
    )
    inferred = _inferred_reasons(rows)
    reasons = pl.concat([_stored_reasons(rows, inferred), inferred])
    has_any = (is_mine & pl.col("recorded_reasons").is_not_null()).any()
    if reasons.is_empty() and not entities.select(has_any).item():
        return entities
    placed = entities.with_row_index(_PLACE)
    in_order = situations.numbered(
        reasons.with_columns(place=pl.int_range(pl.len())), schema.ENTITY_KEY
    )
    orphans = inferred.filter(dimension="health").select(*_KEY, health=pl.lit("orphaned"))
    explained = (
        situations.add_reasons(placed.filter(is_mine), in_order)
        .join(orphans, on=_KEY, how="left", maintain_order="left")
        .with_columns(recorded_health="health")
        .drop("health")
    )
    both = pl.concat([explained, placed.filter(~is_mine)])
    return both.sort(_PLACE).drop(_PLACE)


def _stored_reasons(rows: pl.DataFrame, inferred: pl.DataFrame) -> pl.DataFrame:
    """The stored reason and the rest of the list, where there is more than the stored one."""
    code = pl.col("reason_code")
    has_more = (
        (pl.col("codes").list.len() > 1)
        | (pl.col("codes").list.first() != code)
        | (code.str.contains(situations.OTHER_AXES) & pl.col("codes").is_not_null())
    ).fill_null(value=False)
    explained = inferred.select(_KEY).unique().with_columns(has_inferred=pl.lit(value=True))
    kept = rows.join(explained, on=_KEY, how="left", maintain_order="left").filter(
        has_more | pl.col("has_inferred").is_not_null()
    )
    first = kept.filter(pl.any_horizontal(pl.col("reason_code", "reason_message").is_not_null()))
    rest = (
        kept.select(*_KEY, "codes", own="reason_code")
        .explode("codes")
        .filter(pl.col("codes") != pl.col("own"))
        .select(*_KEY, reason_code="codes")
    )
    both = pl.concat([first, rest], how="diagonal")
    return _as_reasons(
        both.with_columns(
            dimension=pl.coalesce(code.str.extract(situations.OTHER_AXES), pl.lit("lifecycle")),
            code="reason_code",
            message="reason_message",
            claim_status=pl.lit(situations.OBSERVED),
            confidence=pl.lit(1.0),
        )
    )


def _inferred_reasons(rows: pl.DataFrame) -> pl.DataFrame:
    """Codes of ADR-0033 that follow from other rows, where a row has no code of its own."""
    worded = rows.join(_WORDS, on=["entity_type", "raw_status"], how="left", maintain_order="left")
    has_no_code = pl.col("reason_code").is_null()
    is_blocked = pl.col("lifecycle") == "blocked"
    plays = worded.filter(entity_type="play", parent_type="show").with_columns(
        waits_for=situations.texts_of("depends_on"),
        is_failed=pl.col("outcome").is_in(_BAD_ENDS).fill_null(value=False),
        is_bad=(pl.col("outcome").is_in(_BAD_ENDS) | is_blocked).fill_null(value=False),
    )
    show_key = ["source", "system", "parent_id"]
    waiting = (
        plays.select(*_KEY, "parent_id", "name", "reason_code", "lifecycle", "waits_for")
        .explode("waits_for")
        .filter(pl.col("waits_for").is_not_null() & pl.col("waits_for").ne_missing(pl.col("name")))
    )
    others = _named(plays, "play").select(
        *show_key, "other_type", "other_id", "label", "is_bad", waits_for="name"
    )
    upstream = waiting.filter(is_blocked, has_no_code).pipe(
        left_joined,
        others.unique([*show_key, "waits_for"], keep="first", maintain_order=True),
        on=[*show_key, "waits_for"],
    )
    missing = upstream.filter(pl.col("other_id").is_null()).with_columns(label="waits_for")
    needed = waiting.select(*show_key, name="waits_for", is_needed=pl.lit(value=True)).unique()
    # A play that only waits for a failed one did not fail the show.
    n_failed = pl.col("is_failed").sum().over(show_key)
    in_show = (
        _named(plays.filter("is_bad", (n_failed == 0) | pl.col("is_failed")), "play")
        .join(needed, on=[*show_key, "name"], how="left", maintain_order="left")
        # A play that others wait for is certainly on the critical path.
        .sort(pl.col("is_needed").is_null(), maintain_order=True)
        .select("source", "system", "other_type", "other_id", "label", entity_id="parent_id")
    )
    failed_shows = worded.filter(has_no_code, entity_type="show", lifecycle="failed").select(_KEY)
    paths = failed_shows.join(
        in_show, on=["source", "system", "entity_id"], how="inner", maintain_order="left_right"
    )
    parents = _named(worded.filter("is_terminal"), pl.col("entity_type")).select(
        "source", "system", "label", "other_type", "other_id"
    )
    teams = worded.filter(~pl.col("is_terminal"), entity_type="team").join(
        parents.unique(["source", "system", "other_type", "other_id"], maintain_order=True),
        left_on=["source", "system", "parent_type", "parent_id"],
        right_on=["source", "system", "other_type", "other_id"],
        how="inner",
        coalesce=False,
        maintain_order="left",
    )
    schedules = worded.filter(entity_type="schedule").with_columns(
        other_type=pl.lit("schedule_run"),
        other_id=pl.lit(None, pl.String),
        label=pl.format("last_run_outcome is {}", "recorded_delivery"),
    )
    return pl.concat(
        [
            _because(
                upstream.filter("is_bad"),
                "lifecycle",
                "play.blocked.dependency_failed",
                "A play that it depends on did not succeed: {}",
            ),
            _because(
                missing,
                "lifecycle",
                "play.blocked.dependency_invalid",
                "It depends on a play that its show does not have: {}",
            ),
            _because(
                paths,
                "lifecycle",
                "show.failed.critical_path_blocked",
                "A play of the show did not succeed: {}",
            ),
            _because(
                teams,
                "health",
                "team.health.orphaned",
                "Its parent has ended, the team has not: {}",
            ),
            *(
                _because(
                    schedules.filter(recorded_delivery=word),
                    "delivery",
                    f"schedule.delivery.{word}",
                    "Its last run did not deliver all of it: {}",
                )
                for word in ("missing", "partial", "invalid")
            ),
        ]
    )


def _named(rows: pl.DataFrame, entity_type: str | pl.Expr) -> pl.DataFrame:
    """Rows with ``other_type``, ``other_id`` and ``label`` (name and status), as a reason needs."""
    named = pl.coalesce("name", "entity_id").str.slice(0, _MAX_CHARS)
    return rows.with_columns(
        other_type=pl.lit(entity_type) if isinstance(entity_type, str) else entity_type,
        other_id="entity_id",
        label=pl.format("{} ({})", named, "raw_status"),
    )


def _because(rows: pl.DataFrame, dimension: str, code: str, message: str) -> pl.DataFrame:
    """One reason per entity; its evidence is each entity that it is inferred from."""
    piece = pl.struct(
        kind=pl.lit("rule"),
        id=pl.lit(code.rpartition(".")[2]),
        entity_type="other_type",
        entity_id="other_id",
        detail=pl.col("label").str.slice(0, 2 * _MAX_CHARS),
    )
    labels = pl.col("label").str.slice(0, 2 * _MAX_CHARS).head(_MAX_NAMED).str.join(", ")
    n_more = pl.len().cast(pl.Int64) - _MAX_NAMED
    more = pl.when(n_more > 0).then(pl.format(" and {} more", n_more)).otherwise(pl.lit(""))
    grouped = rows.group_by(_KEY, maintain_order=True).agg(
        message=pl.format(message, labels) + more,
        evidence=pl.format("[{}]", piece.struct.json_encode().str.join(",")),
    )
    return _as_reasons(
        grouped.with_columns(
            dimension=pl.lit(dimension),
            code=pl.lit(code),
            claim_status=pl.lit(situations.INFERRED),
            confidence=pl.lit(_CONFIDENCE),
        )
    )


def _as_reasons(reasons: pl.DataFrame) -> pl.DataFrame:
    names = (*_KEY, *schema.RECORDED_REASON)
    return reasons.select(
        pl.col(name).cast(pl.Float64 if name == "confidence" else pl.String) for name in names
    )
