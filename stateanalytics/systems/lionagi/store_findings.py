"""Problems in the rows of a lionagi store, each as a finding; nothing is changed here.

Cells that could not be read are found while reading; these are about cells that could,
and contradict the vocabulary, each other or the rows that they name.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.systems.lionagi.raw import SYSTEM, Raw
from stateanalytics.systems.lionagi.sessions import stored_timeouts
from stateanalytics.systems.lionagi.transitions import ENDS_WITH_A_TIME, KNOWN, RUNNING

TOLERANCE_S = 1.0
_KEPT = "kept as stored"
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


def status_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Statuses that are missing (``status.legacy``, counted) or unknown (``status.unknown``).

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `stateanalytics.core.schema.ENTITIES`.
    source : str
        The input.
    """
    findings = []
    for entity_type, words in KNOWN.items():
        rows = entities.filter(pl.col("entity_type") == entity_type)
        unknown = rows.filter(~pl.col("raw_status").is_in(words))
        findings.append(
            per_entity(
                unknown,
                source,
                SYSTEM,
                "status.unknown",
                "warning",
                message=pl.format(
                    "'{}' is no status that lionagi gives a {}", "raw_status", "entity_type"
                ),
                column="status",
                example=pl.col("raw_status"),
                action="kept under its own name, counted apart, in no rate",
            )
        )
        # Branches mirror their session and mostly have no status of their own.
        if entity_type != "branch":
            findings.append(
                counted(
                    source,
                    SYSTEM,
                    "status.legacy",
                    "info",
                    f"{entity_type} rows without a status: written before there was one, or by a "
                    "writer that never finished",
                    entity_type=entity_type,
                    n_rows=rows["raw_status"].null_count(),
                    column="status",
                    example=_first(rows.filter(pl.col("raw_status").is_null()), "entity_id"),
                    action="counted apart, in no rate",
                )
            )
    return pool(findings, schema.FINDINGS)


def time_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Ends that are missing, too early, too soon, or disagree with the stored duration."""
    started, ended = pl.col("started_at"), pl.col("ended_at")
    took_s = (ended - started).dt.total_microseconds() / 1e6
    is_end = _has_status_of(ENDS_WITH_A_TIME)
    is_running = _has_status_of(RUNNING)
    problems = {
        "end.missing": (
            is_end & ended.is_null(),
            "warning",
            "ended, but no end that can be used was recorded",
        ),
        "end.before_start": (ended < started, "warning", "the end lies before the start"),
        "end.while_running": (
            is_running & ended.is_not_null(),
            "warning",
            "still running by its status, yet it has an end (#3018)",
        ),
        "duration.differs": (
            ((pl.col("stored_duration_s") - took_s).abs() > TOLERANCE_S) & (ended >= started),
            "info",
            "the stored duration is not the distance of start and end",
        ),
    }
    marked = entities.select(
        "entity_type",
        "entity_id",
        "raw_status",
        "ended_at",
        "started_at",
        "stored_duration_s",
        **{code: is_wrong.fill_null(value=False) for code, (is_wrong, _, _) in problems.items()},
    )
    columns = dict.fromkeys(problems, "ended_at") | {"duration.differs": "duration_ms"}
    examples = {
        "end.missing": pl.col("raw_status"),
        "end.before_start": pl.format("started {}, ended {}", "started_at", "ended_at"),
        "end.while_running": pl.col("ended_at"),
        "duration.differs": pl.format("{} s", "stored_duration_s"),
    }
    return pool(
        [
            per_entity(
                marked.filter(code),
                source,
                SYSTEM,
                code,
                severity,
                message=message,
                column=columns[code],
                example=examples[code],
                action=_KEPT,
            )
            for code, (_, severity, message) in problems.items()
        ],
        schema.FINDINGS,
    )


def contract_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Promises and verdicts that cannot be read, or that the reason code contradicts."""
    promised = entities.filter(
        pl.col("has_contract").fill_null(value=False) | pl.col("is_verdict_valid").is_not_null()
    )
    contradicts = (pl.col("reason_code") == "run.failed.missing_artifact") & (
        pl.col("n_required_missing") == 0
    )
    problems = (
        (
            "contract.invalid",
            ~pl.col("is_contract_valid"),
            "the artifact contract is malformed",
            "artifact_contract_json",
        ),
        (
            "verdict.invalid",
            ~pl.col("is_verdict_valid"),
            "the verification verdict is malformed or outside its vocabulary",
            "artifact_verification_json",
        ),
        (
            "verdict.contradicts_reason",
            contradicts,
            "failed for a missing artifact, but the verdict misses none that was required",
            "artifact_verification_json",
        ),
    )
    return pool(
        [
            per_entity(
                promised.filter(is_wrong),
                source,
                SYSTEM,
                code,
                "warning",
                message=message,
                table="sessions",
                column=column,
                example=pl.col("verdict"),
                action=_KEPT,
            )
            for code, is_wrong, message, column in problems
        ],
        schema.FINDINGS,
    )


def link_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Entities that name another one which is not in the store (``link.missing``)."""
    findings = []
    for entity_type, column, target in _LINKS:
        rows = entities.filter(
            (pl.col("entity_type") == entity_type) & pl.col(column).is_not_null()
        )
        if rows.is_empty():
            continue
        there = entities.filter(pl.col("entity_type") == target).select(
            pl.col("entity_id").alias("target_id")
        )
        lost = rows.join(there, left_on=column, right_on="target_id", how="anti")
        findings.append(
            per_entity(
                lost,
                source,
                SYSTEM,
                "link.missing",
                "info",
                message=f"names a {target} that is not in the store",
                column=column if column != "parent_id" else f"{target}_id",
                example=pl.col(column),
                action="the link was kept",
            )
        )
    return pool(findings, schema.FINDINGS)


def list_findings(raw: Raw, events: pl.DataFrame, source: str) -> pl.DataFrame:
    """Lists of messages that nobody refers to, and messages and branches without a list.

    Pruning deletes sessions and leaves their lists and messages behind (ADR-0017), so
    these are traces of runs that no longer count.
    """
    owned = pl.concat(
        [raw["sessions"].select("progression_id"), raw["branches"].select("progression_id")]
    )
    orphans = raw["progressions"].join(owned, left_on="id", right_on="progression_id", how="anti")
    listless = raw["branches"].join(
        raw["progressions"].select("id"), left_on="progression_id", right_on="id", how="anti"
    )
    odd = raw["progressions"].filter(~pl.col("collection").str.starts_with("["))
    unlisted = events.filter((pl.col("kind") == "message") & pl.col("entity_id").is_null())
    return pool(
        [
            counted(
                source,
                SYSTEM,
                "progression.orphaned",
                "info",
                "lists of messages that no session and no branch refers to (left by pruning)",
                n_rows=orphans.height,
                table="progressions",
                example=_first(orphans, "id"),
                action="their messages count for nobody",
            ),
            counted(
                source,
                SYSTEM,
                "progression.missing",
                "warning",
                "branches whose list of messages is not in the store",
                n_rows=listless.height,
                table="branches",
                column="progression_id",
                example=_first(listless, "id"),
                action="how many messages is not known",
            ),
            counted(
                source,
                SYSTEM,
                "progression.not_a_list",
                "warning",
                "collections of messages that are JSON, but no list",
                n_rows=odd.height,
                table="progressions",
                column="collection",
                example=_first(odd, "collection"),
                action="how many messages is not known",
            ),
            counted(
                source,
                SYSTEM,
                "message.orphaned",
                "info",
                "messages that no list names",
                n_rows=unlisted.height,
                table="messages",
                action="kept as events without an entity",
            ),
        ],
        schema.FINDINGS,
    )


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
    return pool(
        [
            counted(
                source,
                SYSTEM,
                "transition.orphaned",
                "info",
                f"status changes of {entity_type or 'unnamed'} entities that are no longer in "
                "the store",
                entity_type=entity_type,
                n_rows=n_rows,
                table="status_transitions",
                example=example,
                action="kept in transitions",
            )
            for entity_type, n_rows, example in by_type.rows()
        ],
        schema.FINDINGS,
    )


def json_findings(raw: Raw, source: str) -> pl.DataFrame:
    """JSON of another shape than its column has: metadata that is no object, evidence no list."""
    findings = []
    for table, key in (("sessions", "session"), ("invocations", "invocation")):
        odd = raw[table].filter(
            ~pl.col("node_metadata").str.strip_chars_start().str.starts_with("{")
        )
        findings.append(_shape_finding(odd, source, key, table=table, column="node_metadata"))
    for table, key in (
        ("sessions", "session"),
        ("plays", "play"),
        ("shows", "show"),
        ("invocations", "invocation"),
        ("schedule_runs", "schedule_run"),
        ("teams", "team"),
    ):
        odd = raw[table].filter(
            ~pl.col("status_evidence_refs").str.strip_chars_start().str.starts_with("[")
        )
        findings.append(
            _shape_finding(odd, source, key, table=table, column="status_evidence_refs")
        )
    timeouts = stored_timeouts(raw["sessions"]).filter(pl.col("timeout_s").is_null())
    findings.append(
        per_entity(
            timeouts.select("stored", entity_type=pl.lit("session"), entity_id="id"),
            source,
            SYSTEM,
            "timeout.unreadable",
            "warning",
            message="timeout_seconds is no positive number of seconds",
            table="sessions",
            column="node_metadata.timeout_seconds",
            example=pl.col("stored"),
            action="set to null",
        )
    )
    return pool(findings, schema.FINDINGS)


def cost_findings(entities: pl.DataFrame, source: str) -> pl.DataFrame:
    """Costs of a provider whose costs lionagi itself no longer shows (``cost.unreliable``)."""
    doubtful = entities.filter(
        (pl.col("entity_type") == "session")
        & (pl.col("provider") == "codex")
        & (pl.col("cost_usd") > 0)
    )
    return counted(
        source,
        SYSTEM,
        "cost.unreliable",
        "info",
        "costs of the provider codex, which are known to be wrong since lionagi hides them",
        entity_type="session",
        n_rows=doubtful.height,
        table="sessions",
        column="total_cost_usd",
        example=_first(doubtful, "entity_id"),
        action=_KEPT,
    )


def schedule_findings(details: pl.DataFrame, source: str) -> pl.DataFrame:
    """Cron schedules without a cadence: the expression cannot be read (``schedule.odd_cron``)."""
    odd = details.filter((pl.col("trigger_type") == "cron") & pl.col("cadence_s").is_null())
    return per_entity(
        odd.select("cron_expr", entity_type=pl.lit("schedule"), entity_id="schedule_id"),
        source,
        SYSTEM,
        "schedule.odd_cron",
        "warning",
        message="the cron expression is not evaluated: five plain fields are, and no L, W, # or H",
        table="schedules",
        column="cron_expr",
        example=pl.col("cron_expr"),
        action="no cadence, so never overdue",
    )


def _has_status_of(words: dict[str, tuple[str, ...]]) -> pl.Expr:
    return pl.any_horizontal(
        (pl.col("entity_type") == entity_type) & pl.col("raw_status").is_in(known)
        for entity_type, known in words.items()
    )


def _shape_finding(
    odd: pl.DataFrame, source: str, entity_type: str, *, table: str, column: str
) -> pl.DataFrame:
    codes = {
        "node_metadata": "metadata.not_an_object",
        "status_evidence_refs": "evidence.not_a_list",
    }
    return per_entity(
        odd.select(column, entity_type=pl.lit(entity_type), entity_id="id"),
        source,
        SYSTEM,
        codes[column],
        "warning",
        message=f"{column} is JSON of another shape",
        table=table,
        column=column,
        example=pl.col(column),
        action="set to null",
    )


def _first(rows: pl.DataFrame, column: str) -> str | None:
    """The least value, so that the same rows give the same example in any order."""
    return None if rows.is_empty() else rows[column].min()  # type: ignore[return-value]
