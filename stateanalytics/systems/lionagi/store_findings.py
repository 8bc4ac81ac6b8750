"""Problems in the rows of a lionagi store, each as a finding; nothing is changed here.

Cells that could not be read are found while reading; these are about cells that could,
and contradict the vocabulary, each other or the rows that they name.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.core.vocabulary import TABLES
from stateanalytics.systems.lionagi.findings import counted, least, per_entity
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.lionagi.sessions import stored_timeouts
from stateanalytics.systems.lionagi.transitions import ENDS_WITH_A_TIME, KNOWN, RUNNING
from stateanalytics.systems.situations import texts_of

TOLERANCE_S = 1.0
# What each entity says it belongs to: (entity_type, column of entities, table).
_LINKS = (
    ("branch", "session_id", "session"),
    ("play", "session_id", "session"),
    ("play", "parent_id", "show"),
    ("session", "invocation_id", "invocation"),
    ("schedule_run", "invocation_id", "invocation"),
    ("engine_run", "session_id", "session"),
    ("dispatch", "session_id", "session"),
)
# Columns of JSON: what a value must begin with, and which entities have them.
_SHAPES = {
    "metadata.not_an_object": ("node_metadata", "{", ("session", "invocation")),
    "evidence.not_a_list": (
        *("status_evidence_refs", "["),
        ("session", "play", "show", "invocation", "schedule_run", "team"),
    ),
}


_LISTS_OF_TEXTS = {"reason_codes": ("session", "play"), "depends_on": ("play",)}


def entity_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """What is wrong with entities by themselves, and with the entities that they name.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `stateanalytics.core.schema.ENTITIES`.
    source : str
        The input.
    """
    costs = entities.filter(
        (pl.col("entity_type") == "session")
        & (pl.col("provider") == "codex")
        & (pl.col("cost_usd") > 0)
    )
    unreliable = counted(
        source,
        "cost.unreliable",
        costs.height,
        least(costs, "entity_id"),
        entity_type="session",
    )
    return pool(
        [
            *_statuses(entities, source),
            *_times_and_verdicts(entities, source),
            *_links(entities, source),
            unreliable,
        ],
        schema.FINDINGS,
    )


def _statuses(entities: pl.DataFrame, source: str) -> list[pl.DataFrame]:
    """Statuses that are missing, counted, or unknown."""
    findings = []
    for entity_type, words in KNOWN.items():
        rows = entities.filter(pl.col("entity_type") == entity_type)
        unknown = rows.filter(~pl.col("raw_status").is_in(words))
        findings.append(per_entity(unknown, source, "status.unknown"))
        # Branches mirror their session and mostly have no status of their own.
        if entity_type != "branch":
            without = rows.filter(pl.col("raw_status").is_null())
            message = (
                f"{entity_type} rows without a status: written before there was one, or by a "
                "writer that never finished"
            )
            findings.append(
                counted(
                    source,
                    "status.legacy",
                    without.height,
                    least(without, "entity_id"),
                    entity_type=entity_type,
                    message=message,
                )
            )
    return findings


def _times_and_verdicts(entities: pl.DataFrame, source: str) -> list[pl.DataFrame]:
    """Ends that are missing or impossible, durations that differ, contracts nobody can read."""
    started, ended = pl.col("started_at"), pl.col("ended_at")
    took_s = (ended - started).dt.total_microseconds() / 1e6
    promised = pl.col("has_contract").fill_null(value=False) | (
        pl.col("is_verdict_valid").is_not_null()
    )
    is_blamed = pl.col("reason_code") == "run.failed.missing_artifact"
    problems = {
        "end.missing": _has_status_of(ENDS_WITH_A_TIME) & ended.is_null(),
        "end.before_start": ended < started,
        "end.while_running": _has_status_of(RUNNING) & ended.is_not_null(),
        "duration.differs": ((pl.col("stored_duration_s") - took_s).abs() > TOLERANCE_S)
        & (ended >= started),
        "contract.invalid": promised & ~pl.col("is_contract_valid"),
        "verdict.invalid": promised & ~pl.col("is_verdict_valid"),
        "verdict.contradicts_reason": promised & is_blamed & (pl.col("n_required_missing") == 0),
    }
    return [
        per_entity(entities.filter(is_wrong), source, code) for code, is_wrong in problems.items()
    ]


def _links(entities: pl.DataFrame, source: str) -> list[pl.DataFrame]:
    """Entities that name another one which is not in the store."""
    findings = []
    for entity_type, column, target in _LINKS:
        there = entities.filter(pl.col("entity_type") == target).select(link="entity_id")
        lost = (
            entities.filter(pl.col("entity_type") == entity_type, pl.col(column).is_not_null())
            .with_columns(link=column)
            .join(there, on="link", how="anti")
        )
        findings.append(
            per_entity(
                lost,
                source,
                "link.missing",
                message=f"names a {target} that is not in the store",
                column=column if column != "parent_id" else f"{target}_id",
            )
        )
    return findings


def list_findings(raw: Raw, source: str) -> pl.DataFrame:
    """Lists of messages that nobody refers to, and branches without a list.

    Pruning deletes sessions and leaves their lists and messages behind (ADR-0017), so
    these are traces of runs that no longer count.
    """
    lists, branches = raw["progressions"], raw["branches"]
    owned = pl.concat([rows.select("progression_id") for rows in (raw["sessions"], branches)])
    orphans = lists.join(owned, left_on="id", right_on="progression_id", how="anti")
    listless = branches.join(
        lists.select("id"), left_on="progression_id", right_on="id", how="anti"
    )
    odd = lists.filter(~pl.col("collection").str.starts_with("["))
    findings = [
        counted(source, code, rows.height, least(rows, column))
        for code, rows, column in (
            ("progression.orphaned", orphans, "id"),
            ("progression.missing", listless, "id"),
            ("progression.not_a_list", odd, "collection"),
        )
    ]
    return pool(findings, schema.FINDINGS)


def message_findings(events: pl.DataFrame, source: str) -> pl.DataFrame:
    """Messages that no list names, which pruning leaves behind, too."""
    is_unlisted = pl.col("entity_id").is_null() & (pl.col("kind") == "message")
    n_unlisted = events.select(is_unlisted.sum()).item()
    return counted(source, "message.orphaned", n_unlisted)


def history_findings(
    transitions: pl.DataFrame, entities: pl.DataFrame, source: str
) -> pl.DataFrame:
    """Histories of entities that are gone (``transition.orphaned``), counted by type.

    Early releases deleted dead runs, so early failure rates are too low; what is left of
    those runs is here.
    """
    key = ["entity_type", "entity_id"]
    gone = transitions.join(entities.select(key), on=key, how="anti")
    by_type = (
        gone.group_by("entity_type").agg(pl.len(), pl.col("entity_id").min()).sort("entity_type")
    )
    gone_from = "entities that are no longer in the store"
    return pool(
        [
            counted(
                source,
                "transition.orphaned",
                n_rows,
                example,
                entity_type=entity_type,
                message=f"status changes of {entity_type or 'unnamed'} {gone_from}",
            )
            for entity_type, n_rows, example in by_type.rows()
        ],
        schema.FINDINGS,
    )


def json_findings(raw: Raw, source: str) -> pl.DataFrame:
    """JSON of another shape than its column has: metadata that is no object, evidence no list."""
    findings = [
        per_entity(
            _of_type(raw[TABLES[entity_type]], entity_type).filter(
                ~pl.col(column).str.strip_chars_start().str.starts_with(beginning)
            ),
            source,
            code,
            table=TABLES[entity_type],
        )
        for code, (column, beginning, entity_types) in _SHAPES.items()
        for entity_type in entity_types
    ]
    timeouts = stored_timeouts(raw["sessions"]).filter(pl.col("seconds").is_null())
    odd = per_entity(_of_type(timeouts, "session"), source, "timeout.unreadable")
    lists = [
        per_entity(
            _of_type(raw[TABLES[entity_type]], entity_type).filter(
                pl.col(column).is_not_null(), texts_of(column).is_null()
            ),
            source,
            f"{column}.not_texts",
            table=TABLES[entity_type],
        )
        for column, entity_types in _LISTS_OF_TEXTS.items()
        for entity_type in entity_types
    ]
    return pool([*findings, odd, *lists], schema.FINDINGS)


def schedule_findings(details: pl.DataFrame, source: str) -> pl.DataFrame:
    """Cron schedules without a cadence: the expression cannot be read (``schedule.odd_cron``)."""
    odd = details.filter((pl.col("trigger_type") == "cron") & pl.col("cadence_s").is_null())
    return per_entity(
        _of_type(odd.rename({"schedule_id": "id"}), "schedule"), source, "schedule.odd_cron"
    )


def _of_type(rows: pl.DataFrame, entity_type: str) -> pl.DataFrame:
    return rows.with_columns(entity_type=pl.lit(entity_type), entity_id="id")


def _has_status_of(words: dict[str, tuple[str, ...]]) -> pl.Expr:
    return pl.any_horizontal(
        (pl.col("entity_type") == entity_type) & pl.col("raw_status").is_in(known)
        for entity_type, known in words.items()
    )
