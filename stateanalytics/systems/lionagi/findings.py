"""Findings of lionagi's readers; their texts are rows of ``data/findings.csv``, by code.

Cells that could not be read are found while reading; the problems here are cells that could,
and contradict the vocabulary, each other or the rows that they name. Nothing is changed.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.core.vocabulary import ADR_LIFECYCLES, TABLES
from stateanalytics.io.findings import all_findings, noted, noted_entities
from stateanalytics.systems.lionagi.frames import SYSTEM, Raw
from stateanalytics.systems.lionagi.sessions import stored_timeouts
from stateanalytics.systems.lionagi.transitions import ENDS_WITH_A_TIME, KNOWN, RUNNING
from stateanalytics.systems.situations import texts_of


def per_entity(rows: pl.DataFrame, source: str, code: str, **texts: Any) -> pl.DataFrame:
    """One finding per entity, with the texts of its code or with others.

    ``rows`` have ``entity_type``, ``entity_id``, and the columns that the texts name.
    """
    return noted_entities(rows, source, SYSTEM, code, package=__package__, **texts)


def counted(
    source: str, code: str, rows: pl.DataFrame, example: str | None = None, **texts: Any
) -> pl.DataFrame:
    """One finding about several rows; none without rows.

    ``example`` is a column: its smallest value, the same whatever the order of the rows.
    """
    value = rows[example].min() if example is not None and rows.height else None
    more = {"n_rows": rows.height, "example": value, **texts}
    return noted(source, SYSTEM, code, package=__package__, **more)


_TOLERANCE_S = 1.0
# References between entities: (entity type, column of entities, type of the target).
_LINKS = (
    ("branch", "session_id", "session"),
    ("play", "session_id", "session"),
    ("play", "parent_id", "show"),
    ("session", "invocation_id", "invocation"),
    ("schedule_run", "invocation_id", "invocation"),
    ("engine_run", "session_id", "session"),
    ("dispatch", "session_id", "session"),
)
# Columns of JSON: the first character of a valid value, and the entity types that have them.
_SHAPES = {
    "metadata.not_an_object": ("node_metadata", "{", ("session", "invocation")),
    "evidence.not_a_list": (
        *("status_evidence_refs", "["),
        ("session", "play", "show", "invocation", "schedule_run", "team"),
    ),
}
_LISTS_OF_TEXTS = {"reason_codes": ("session", "play"), "depends_on": ("play",)}


def entity_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Problems of single entities, and references to entities that are not in the store.

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
    findings = [
        *_statuses(entities, source),
        *_times_and_verdicts(entities, source),
        *_links(entities, source),
        counted(source, "cost.unreliable", costs, "entity_id", entity_type="session"),
    ]
    return all_findings(*findings)


def _statuses(entities: pl.DataFrame, source: str) -> list[pl.DataFrame]:
    """Statuses that are missing, counted, or unknown."""
    findings = []
    for entity_type, words in KNOWN.items():
        rows = entities.filter(pl.col("entity_type") == entity_type)
        known = [*words, *ADR_LIFECYCLES.get(entity_type, ())]
        unknown = rows.filter(~pl.col("raw_status").is_in(known))
        findings.append(per_entity(unknown, source, "status.unknown"))
        # Branches mirror their session and mostly have no status of their own.
        if entity_type != "branch":
            findings.append(
                counted(
                    source,
                    "status.legacy",
                    rows.filter(pl.col("raw_status").is_null()),
                    "entity_id",
                    entity_type=entity_type,
                    message=f"{entity_type} rows without a status: written before there was one, "
                    "or by a writer that never finished",
                )
            )
    return findings


def _times_and_verdicts(entities: pl.DataFrame, source: str) -> list[pl.DataFrame]:
    """Missing or impossible ends, differing durations, contracts that cannot be read."""
    started, ended = pl.col("started_at"), pl.col("ended_at")
    took_s = (ended - started).dt.total_microseconds() / 1e6
    has_promise = pl.col("has_contract").fill_null(value=False) | (
        pl.col("is_verdict_valid").is_not_null()
    )
    is_blamed_on_artifact = pl.col("reason_code") == "run.failed.missing_artifact"
    problems = {
        "end.missing": _has_status(ENDS_WITH_A_TIME) & ended.is_null(),
        "end.before_start": ended < started,
        "end.while_running": _has_status(RUNNING) & ended.is_not_null(),
        "duration.differs": ((pl.col("stored_duration_s") - took_s).abs() > _TOLERANCE_S)
        & (ended >= started),
        "contract.invalid": has_promise & ~pl.col("is_contract_valid"),
        "verdict.invalid": has_promise & ~pl.col("is_verdict_valid"),
        "verdict.contradicts_reason": has_promise
        & is_blamed_on_artifact
        & (pl.col("n_required_missing") == 0),
    }
    return [
        per_entity(entities.filter(is_wrong), source, code) for code, is_wrong in problems.items()
    ]


def _links(entities: pl.DataFrame, source: str) -> list[pl.DataFrame]:
    """Entities with a reference to an entity that is not in the store."""
    findings = []
    for entity_type, column, target in _LINKS:
        targets = entities.filter(pl.col("entity_type") == target).select(link="entity_id")
        dangling = (
            entities.filter(pl.col("entity_type") == entity_type, pl.col(column).is_not_null())
            .with_columns(link=column)
            .join(targets, on="link", how="anti")
        )
        findings.append(
            per_entity(
                dangling,
                source,
                "link.missing",
                message=f"names a {target} that is not in the store",
                column=column if column != "parent_id" else f"{target}_id",
            )
        )
    return findings


def list_findings(raw: Raw, source: str) -> pl.DataFrame:
    """Lists of messages that no session or branch refers to, and branches without a list.

    Pruning deletes sessions and leaves their lists and messages behind (ADR-0017): these are
    traces of runs that no longer count.
    """
    lists, branches = raw["progressions"], raw["branches"]
    owned = pl.concat([rows.select("progression_id") for rows in (raw["sessions"], branches)])
    orphans = lists.join(owned, left_on="id", right_on="progression_id", how="anti")
    listless = branches.join(
        lists.select("id"), left_on="progression_id", right_on="id", how="anti"
    )
    odd = lists.filter(~pl.col("collection").str.starts_with("["))
    findings = [
        counted(source, code, rows, column)
        for code, rows, column in (
            ("progression.orphaned", orphans, "id"),
            ("progression.missing", listless, "id"),
            ("progression.not_a_list", odd, "collection"),
        )
    ]
    return all_findings(*findings)


def message_findings(events: pl.DataFrame, source: str) -> pl.DataFrame:
    """Messages that are in no list, which pruning leaves behind, too."""
    unlisted = events.filter(pl.col("entity_id").is_null() & (pl.col("kind") == "message"))
    return counted(source, "message.orphaned", unlisted)


def history_findings(
    transitions: pl.DataFrame, entities: pl.DataFrame, source: str
) -> pl.DataFrame:
    """Status changes of entities that are no longer in the store, counted by type.

    Early releases deleted dead runs, so early failure rates are too low; these changes are
    all that remains of those runs.
    """
    key = ["entity_type", "entity_id"]
    orphans = transitions.join(entities.select(key), on=key, how="anti").sort("entity_type")
    findings = [
        counted(
            source,
            "transition.orphaned",
            rows,
            "entity_id",
            entity_type=entity_type,
            message=f"status changes of {entity_type or 'unnamed'} entities that are no longer "
            "in the store",
        )
        for (entity_type,), rows in orphans.group_by("entity_type", maintain_order=True)
    ]
    return all_findings(*findings)


def json_findings(raw: Raw, source: str) -> pl.DataFrame:
    """JSON of another shape than its column needs: metadata that is no object, evidence no list."""

    def found(code: str, entity_type: str, is_wrong: pl.Expr) -> pl.DataFrame:
        table = TABLES[entity_type]
        rows = _entities_of_type(raw[table], entity_type).filter(is_wrong)
        return per_entity(rows, source, code, table=table)

    findings = [
        found(code, entity_type, ~pl.col(column).str.strip_chars_start().str.starts_with(beginning))
        for code, (column, beginning, entity_types) in _SHAPES.items()
        for entity_type in entity_types
    ]
    timeouts = stored_timeouts(raw["sessions"]).filter(pl.col("seconds").is_null())
    odd = per_entity(_entities_of_type(timeouts, "session"), source, "timeout.unreadable")
    lists = [
        found(
            f"{column}.not_texts",
            entity_type,
            pl.col(column).is_not_null() & texts_of(column).is_null(),
        )
        for column, entity_types in _LISTS_OF_TEXTS.items()
        for entity_type in entity_types
    ]
    return all_findings(*findings, odd, *lists)


def schedule_findings(details: pl.DataFrame, source: str) -> pl.DataFrame:
    """Cron schedules without a cadence: the expression cannot be read (``schedule.odd_cron``)."""
    odd = details.filter((pl.col("trigger_type") == "cron") & pl.col("cadence_s").is_null())
    return per_entity(
        _entities_of_type(odd.rename({"schedule_id": "id"}), "schedule"),
        source,
        "schedule.odd_cron",
    )


def _entities_of_type(rows: pl.DataFrame, entity_type: str) -> pl.DataFrame:
    return rows.with_columns(entity_type=pl.lit(entity_type), entity_id="id")


def _has_status(words: dict[str, tuple[str, ...]]) -> pl.Expr:
    return pl.any_horizontal(
        (pl.col("entity_type") == entity_type) & pl.col("raw_status").is_in(known)
        for entity_type, known in words.items()
    )
