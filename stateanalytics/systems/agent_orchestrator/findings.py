"""Where Agent Orchestrator contradicts itself: findings of the store, and checks of the audit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import polars as pl

from stateanalytics.core.audit import Cases, audit_rows, moment, word
from stateanalytics.core.facts import Facts
from stateanalytics.core.package_tables import table_rows
from stateanalytics.io.as_of import newest_in_company
from stateanalytics.io.findings import all_findings, noted_entities
from stateanalytics.systems.agent_orchestrator import frames, go_sessions, go_work
from stateanalytics.systems.agent_orchestrator.columns import counted
from stateanalytics.systems.agent_orchestrator.logs import KILL_EVENTS
from stateanalytics.systems.agent_orchestrator.mapping import ACTIVITIES
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

_TRAPS: Mapping[str, str] = {
    "is_status_stale": "status.stale_cache",
    "is_kill_doubtful": "end.kill_doubtful",
    "is_flickering": "status.flickering",
    "looks_ended_after_restore": "status.ended_after_restore",
    "has_stale_end": "end.stale",
    "is_zombie": "runtime.gone",
    "is_spawn_race": "end.spawn_race",
}
"""Column of `meaning.find_traps` to the code of its finding."""


def _per_session(
    rows: pl.DataFrame, label: str, code: str, example: str, **more: Any
) -> pl.DataFrame:
    """One finding per session; columns in braces of its message are filled from its row."""
    more = {"package": __package__, "example": pl.col(example), **more}
    return noted_entities(rows, label, SYSTEM, code, **more)


def _some(words: pl.Series) -> str:
    """A few of some words: rows have no order."""
    return ", ".join(words.cast(pl.String).unique().drop_nulls().sort().head(5))


def _in_total(
    rows: pl.DataFrame, label: str, code: str, example: str | None = None
) -> pl.DataFrame:
    """One finding on all rows, with the smallest of the examples: files have no order."""
    examples = rows[example].drop_nulls() if example else pl.Series([], dtype=pl.String)
    smallest = str(examples.min()) if examples.len() else None
    return counted(label, code, rows.height, examples.n_unique(), example=smallest)


def record_findings(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """Findings on single records: traps, unknown words, synthesized axes, orders of time."""
    readable = sessions.filter("is_readable")
    current = readable.filter("is_current").with_columns(
        _skewed=_before_creation(),
        _disagreement=pl.format("status={}, axes say {}", "stored_status", "legacy_status"),
    )
    findings = [
        _per_session(
            current.filter(flag),
            label,
            code,
            "_disagreement" if flag == "is_status_stale" else "session_reason",
        )
        for flag, code in _TRAPS.items()
    ]
    rejected = current.filter(pl.col("reject_reason").is_not_null())
    synthesized = current.filter(pl.col("is_synthesized").fill_null(value=False))
    # The Go rewrite keeps each change in a log.
    is_json = pl.col("generation") != "G3"
    with_transition = current.filter(is_json & pl.col("last_transition_at").is_not_null())
    renamed = current.filter(pl.col("entity_id") != pl.col("session_id"))
    skewed = current.filter(pl.col("_skewed") != "")
    findings += [
        _per_session(rejected, label, "record.would_reject", "legacy_status"),
        _in_total(synthesized, label, "record.synthesized"),
        _in_total(with_transition, label, "time.no_dwell"),
        _per_session(skewed, label, "time.before_creation", "created_at", column=pl.col("_skewed")),
        _per_session(renamed, label, "id.shared", "path"),
        _in_total(readable.filter(~pl.col("is_current")), label, "record.superseded", "path"),
    ]
    return all_findings(*findings)


def _before_creation() -> pl.Expr:
    """Names of moments before the creation: another clock wrote one of them."""
    names = ("started_at", "terminated_at", "completed_at", "last_transition_at", "report_at")
    columns = [
        pl.when(pl.col(name) < pl.col("created_at") - pl.duration(seconds=1)).then(pl.lit(name))
        for name in names
    ]
    return pl.concat_str(columns, separator=", ", ignore_nulls=True)


def log_findings(entries: pl.DataFrame, sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """Findings on logs: sessions without a record, unreadable times, overwritten kills."""
    killed = entries.filter(
        pl.col("kind").is_in(KILL_EVENTS) & pl.col("code").is_not_null()
    ).select("entity_id", killed_for="code")
    rewritten = sessions.filter(
        pl.col("is_current") & (pl.col("session_reason") == "runtime_lost")
    ).join(killed.unique("entity_id", keep="last", maintain_order=True), on="entity_id")
    orphans = entries.filter("is_orphaned")
    undated = entries.filter(pl.col("at").is_null())
    findings = [
        _per_session(rewritten, label, "end.reason_overwritten", "killed_for"),
        _in_total(orphans, label, "event.no_record", "session_id"),
        _in_total(undated, label, "event.no_time", "kind"),
    ]
    return all_findings(*findings)


def records(cases: Cases) -> pl.LazyFrame:
    """Records of Agent Orchestrator that contradict themselves or their log."""
    current = (
        cases.facts.detail(frames.SESSIONS)
        .lazy()
        .filter(pl.col("is_current"), pl.col("entity_id").is_not_null())
        .with_columns(system=pl.lit(SYSTEM), entity_type=pl.lit("session"))
    )
    axes = pl.format(
        "the axes say {} for {}, its runtime {}",
        word("session_state"),
        word("session_reason"),
        word("runtime_state"),
    )
    contradictions = {
        "is_status_stale": (
            pl.format("flat status {}", word("stored_status")),
            pl.format("the axes say {}", word("legacy_status")),
        ),
        "looks_ended_after_restore": (pl.format("restored {}", moment("restored_at")), axes),
        "has_stale_end": (pl.format("status {}", word("legacy_status")), pl.lit("it has an end")),
        "is_flickering": (
            pl.format("flat status {}", word("stored_status")),
            pl.lit("two writers disagree from poll to poll"),
        ),
    }
    lost = current.filter(
        pl.col("session_reason") == "runtime_lost", pl.col("has_kill_event").fill_null(value=False)
    )
    return pl.concat(
        [
            *(
                audit_rows(
                    current.filter(pl.col(flag).fill_null(value=False)),
                    "audit.record_contradicts_itself",
                    at="last_transition_at",
                    says=says,
                    against=against,
                )
                for flag, (says, against) in contradictions.items()
            ),
            audit_rows(
                lost,
                "audit.record_contradicts_log",
                at="terminated_at",
                says=pl.lit("its record says that its runtime was lost"),
                against=pl.lit("its log says that a person killed it"),
            ),
        ]
    )


def without_ends(facts: Facts) -> pl.DataFrame:
    """Sessions of Agent Orchestrator that never had a place for an end.

    Records without axes have no moments at all, and a session of which the pull request was
    merged ends only when it is terminated.
    """
    records = facts.detail(frames.SESSIONS).lazy().filter("is_current")
    ends_in_time = pl.col("session_state").is_in(["terminated", "done"])
    endless = records.filter(pl.col("is_synthesized") | ~ends_in_time)
    key = {"system": pl.lit(SYSTEM), "entity_type": pl.lit("session")}
    return endless.select("source", "entity_id", **key).collect()


_HARMLESS = ("source_discovery_pending", "artifact_missing", "source_read_failed")
_TELEMETRY_KEPT = timedelta(days=30)
_HARNESSES = (*go_sessions.HOOKED, *go_sessions.UNHOOKED)
_OWN_WORDS = {
    **dict.fromkeys(("harness", "from_harness", "target_harness"), _HARNESSES),
    **{"activity_state": ACTIVITIES, "verdict": go_work.VERDICTS},
}
_WORDS = {
    (row["table"], row["column"]): row["words"].split("|")
    if row["words"]
    else [*_OWN_WORDS[row["column"]]]
    for row in table_rows(__package__, "column_words.csv")
}
"""The words of each column that have a meaning; statuses of work are in `go_work`."""
_STATES = {
    ("sessions", "activity_state"),
    *((table, columns["raw_status"]) for table, columns in go_work.WORK_TABLES.values()),
}
_LINKS = {
    (row["table"], row["column"]): (row["of_table"], row["of_column"])
    for row in table_rows(__package__, "links.csv")
}
"""Column that names a row of another table, to the key of that table."""


def go_findings(tables: go_sessions.GoTables, label: str) -> pl.DataFrame:
    """Findings on the tables of the Go rewrite, in the shape of `schema.FINDINGS`."""
    work_statuses = {
        (table, columns["raw_status"]): go_work.known_words(entity_type)
        for entity_type, (table, columns) in go_work.WORK_TABLES.items()
    }
    words = _WORDS | work_statuses
    return all_findings(
        *(_unknown(tables, *place, known, label) for place, known in words.items()),
        *(_unusable(tables, table, label) for table in _IDENTIFIED),
        *(_unlinked(tables, place, known, label) for place, known in _LINKS.items()),
        _unmeasured(tables, label),
        _usage_incomplete(tables, label),
        _telemetry_edge(tables, label),
    )


def _unknown(
    tables: go_sessions.GoTables, table: str, column: str, known: list[str], label: str
) -> pl.DataFrame:
    """Finding on words that no known version writes: they are kept."""
    words = tables[table][column]
    # An empty word is a word that was not set, but it is no state.
    words = words.fill_null("") if (table, column) in _STATES else words.drop_nulls()
    odd = words.filter(~words.is_in(known))
    return counted(
        label, "status.unknown", odd.len(), table=table, column=column, example=_some(odd)
    )


def _unlinked(
    tables: go_sessions.GoTables, place: tuple[str, str], known: tuple[str, str], label: str
) -> pl.DataFrame:
    """Finding on rows that name a row that is absent: they are kept, and count for nothing."""
    table, column = place
    today = go_sessions.canonical_url(column, tables) if column == "pr_url" else pl.col(column)
    named = tables[table].select(today).to_series().drop_nulls()
    lost = named.filter(~named.is_in(tables[known[0]][known[1]].implode()))
    return counted(
        label, "link.missing", lost.len(), known[0], table=table, column=column, example=_some(lost)
    )


def _unmeasured(tables: go_sessions.GoTables, label: str) -> pl.DataFrame:
    """Findings on usage without a time, and on costs that are not in dollars."""
    chats = tables["conversations"].filter(pl.col("usage_cost").is_not_null())
    foreign = chats.filter(pl.col("usage_currency").ne_missing("USD"))["usage_currency"]
    undated = tables["model_usage_events"]["created_at"].null_count()
    return all_findings(
        counted(label, "usage.no_time", undated, table="model_usage_events"),
        counted(
            label,
            "cost.other_currency",
            foreign.len(),
            table="conversations",
            example=_some(foreign),
        ),
    )


_IDENTIFIED = (*(table for table, _ in go_work.WORK_TABLES.values()), "telemetry_event")


def _unusable(tables: go_sessions.GoTables, table: str, label: str) -> pl.DataFrame:
    """Finding on rows that have no id, or that of another row."""
    ids = tables[table]["id"]
    n_lost = ids.len() - ids.drop_nulls().n_unique()
    return counted(label, "id.unusable", n_lost, table=table)


def _telemetry_edge(tables: go_sessions.GoTables, label: str) -> pl.DataFrame:
    """Finding where telemetry was pruned: rates of failed starts begin there."""
    at = tables["telemetry_event"]["occurred_at"]
    first, last = at.min(), newest_in_company([[at]], [at])
    is_edge = first is not None and last - first >= _TELEMETRY_KEPT - timedelta(days=1)  # type: ignore[operator]
    return counted(
        label,
        "time.retention_edge",
        int(is_edge),
        _TELEMETRY_KEPT.days,
        table="telemetry_event",
        example=str(first),
    )


def _usage_incomplete(tables: go_sessions.GoTables, label: str) -> pl.DataFrame:
    """One finding per session of which the usage could not be measured in full."""
    odd = pl.col("last_error_code").is_not_null() & ~pl.col("last_error_code").is_in(_HARMLESS)
    of_sources = tables["usage_sources"].filter(
        pl.col("last_error_code").ne_missing(pl.lit("artifact_replaced"))
        & (odd | (pl.col("anomaly_count") > 0)).fill_null(value=False)
    )
    bad = pl.concat(
        [
            of_sources.select(id="binding_id", code="last_error_code"),
            go_work.unknown_events(tables).select(id="binding_id", code=pl.lit("unknown")),
        ]
    )
    bindings = tables["usage_bindings"].join(
        bad.with_columns(is_bad=pl.lit(value=True)).unique("id", keep="first", maintain_order=True),
        on="id",
        how="left",
    )
    partial = bindings.filter(
        (pl.col("state") == "partial") | odd | pl.col("is_bad").fill_null(value=False)
    )
    rows = partial.select(
        entity_id="session_id", code=pl.coalesce("last_error_code", "code", "state")
    ).unique("entity_id", keep="first", maintain_order=True)
    return _per_session(rows, label, "usage.incomplete", "code", table="usage_sources")
