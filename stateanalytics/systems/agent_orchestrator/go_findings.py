"""What is odd in the tables of the Go rewrite: unknown words, what was not measured or not kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import pool
from stateanalytics.io.as_of import newest_in_company
from stateanalytics.io.findings import counted, per_entity
from stateanalytics.systems.agent_orchestrator.go_sessions import ACTIVITIES, HOOKED, UNHOOKED
from stateanalytics.systems.agent_orchestrator.go_tables import GoTables, canonical_url
from stateanalytics.systems.agent_orchestrator.go_usage import unknown_events
from stateanalytics.systems.agent_orchestrator.go_work import KINDS, VERDICTS, known_words
from stateanalytics.systems.agent_orchestrator.places import SYSTEM

_FINE = ("source_discovery_pending", "artifact_missing", "source_read_failed")
_TELEMETRY_KEPT = timedelta(days=30)
_PROVENANCES = "reported derived unsupported unknown"
_WORDS: Mapping[tuple[str, str], str] = {
    ("sessions", "activity_state"): " ".join(ACTIVITIES),
    ("sessions", "session_mode"): "tui chat",
    ("sessions", "kind"): "worker orchestrator",
    ("sessions", "harness"): " ".join((*HOOKED, *UNHOOKED)),
    **dict.fromkeys(
        (
            *(("review_run", "harness"), ("agent_native_sessions", "harness")),
            *(("agent_switches", "from_harness"), ("agent_switches", "target_harness")),
        ),
        " ".join((*HOOKED, *UNHOOKED)),
    ),
    ("session_interface_transitions", "source_mode"): "tui chat",
    ("session_interface_transitions", "target_mode"): "tui chat",
    ("conversations", "scope"): "session project",
    ("conversation_messages", "role"): "user assistant",
    ("conversation_messages", "origin"): "human automation daemon provider",
    ("telemetry_event", "level"): "debug info warn error",
    ("usage_bindings", "state"): "discovering active finalizing complete partial",
    ("model_usage_events", "provider_id"): "openai anthropic",
    ("model_usage_events", "input_provenance"): _PROVENANCES,
    ("model_usage_events", "cached_input_provenance"): _PROVENANCES,
    ("model_usage_events", "output_provenance"): _PROVENANCES,
    ("pr_checks", "status"): "unknown queued in_progress passed failed skipped cancelled",
    ("notifications", "type"): "needs_input ready_to_merge pr_merged pr_closed_unmerged",
    ("pr", "pr_state"): "draft open merged closed",
    ("pr", "review_decision"): "none approved changes_requested review_required",
    ("pr", "ci_state"): "unknown pending passing failing",
    ("pr", "mergeability"): "unknown mergeable conflicting blocked unstable",
    ("review_run", "verdict"): " ".join(VERDICTS),
    ("conversation_activities", "kind"): "command file_change plan reasoning approval usage error "
    "system mcp_tool auto_review user_input",
    ("conversation_activities", "status"): "running completed failed cancelled pending resolved",
    ("session_cleanup_facts", "workspace_disposition"): "pending removed preserved_dirty failed "
    "not_applicable",
    ("session_worktrees", "state"): "active removed retry_remove unavailable stray_moved",
    ("change_log", "event_type"): "session_created session_updated pr_created pr_updated "
    "pr_check_recorded pr_session_changed pr_review_thread_added pr_review_thread_resolved "
    "review_run_created review_run_updated",
}
"""The words of each column that are understood, but for those of `go_work.KINDS`."""
_STATES = {
    ("sessions", "activity_state"),
    *((table, columns["raw_status"]) for table, columns in KINDS.values()),
}
_OF_PULLS = ("comment", "checks", "reviews", "review_threads")
_LINKS = {
    **{(table, columns["session_id"]): ("sessions", "id") for table, columns in KINDS.values()},
    ("pr", "session_id"): ("sessions", "id"),
    ("usage_bindings", "session_id"): ("sessions", "id"),
    ("model_usage_events", "binding_id"): ("usage_bindings", "id"),
    **dict.fromkeys(
        (
            ("pr_url_alias", "canonical_url"),
            *((f"pr_{name}", "pr_url") for name in _OF_PULLS),
        ),
        ("pr", "url"),
    ),
}
"""Which column names a row of which other table."""


def go_findings(tables: GoTables, label: str) -> pl.DataFrame:
    """What else is odd, in the shape of `schema.FINDINGS`."""
    of_work = {
        (table, columns["raw_status"]): known_words(entity_type)
        for entity_type, (table, columns) in KINDS.items()
    }
    words = {place: some.split() for place, some in _WORDS.items()} | of_work
    return pool(
        [
            *(_unknown(tables, *place, some, label) for place, some in words.items()),
            *(_unusable(tables, table, label) for table in _IDENTIFIED),
            *(_unlinked(tables, place, known, label) for place, known in _LINKS.items()),
            _unmeasured(tables, label),
            _usage_incomplete(tables, label),
            _telemetry_edge(tables, label),
        ],
        schema.FINDINGS,
    )


def _unknown(
    tables: GoTables, table: str, column: str, known: list[str], label: str
) -> pl.DataFrame:
    """Words that no known version writes: kept, and understood by nobody."""
    told = tables[table][column]
    # An empty word is one of the words where nothing was said, but no state.
    told = told.fill_null("") if (table, column) in _STATES else told.drop_nulls()
    odd = told.filter(~told.is_in(known))
    return counted(
        label,
        SYSTEM,
        "status.unknown",
        "warning",
        "a word that is not known",
        n_rows=odd.len(),
        table=table,
        column=column,
        example=", ".join(odd.unique().sort().head(5)),
        action="kept under its own name",
    )


def _unlinked(
    tables: GoTables, place: tuple[str, str], known: tuple[str, str], label: str
) -> pl.DataFrame:
    """Rows that belong to something that is not there: they are kept, and counted for nobody."""
    table, column = place
    today = canonical_url(column, tables) if column == "pr_url" else pl.col(column)
    named = tables[table].select(today).to_series().drop_nulls()
    lost = named.filter(~named.is_in(tables[known[0]][known[1]].implode()))
    return counted(
        label,
        SYSTEM,
        "link.missing",
        "warning",
        f"rows of something that is not among the {known[0]}",
        n_rows=lost.len(),
        table=table,
        column=column,
        example=", ".join(lost.cast(pl.String).unique().sort().head(5)),
        action="counted for nobody",
    )


def _unmeasured(tables: GoTables, label: str) -> pl.DataFrame:
    """What was used, but not when, and what it cost, but not in dollars."""
    chats = tables["conversations"].filter(pl.col("usage_cost").is_not_null())
    foreign = chats.filter(pl.col("usage_currency").ne_missing("USD"))["usage_currency"]
    return pool(
        [
            counted(
                label,
                SYSTEM,
                "usage.no_time",
                "info",
                "what was used has no moment: it counts in sums, and in no period",
                n_rows=tables["model_usage_events"]["created_at"].null_count(),
                table="model_usage_events",
                column="created_at",
            ),
            counted(
                label,
                SYSTEM,
                "cost.other_currency",
                "warning",
                "costs that are not in dollars",
                n_rows=foreign.len(),
                table="conversations",
                column="usage_currency",
                example=", ".join(foreign.unique().drop_nulls().sort().head(5)),
                action="not added",
            ),
        ],
        schema.FINDINGS,
    )


_IDENTIFIED = (*(table for table, _ in KINDS.values()), "telemetry_event")


def _unusable(tables: GoTables, table: str, label: str) -> pl.DataFrame:
    """Rows that have no id, or that of another one."""
    ids = tables[table]["id"]
    return counted(
        label,
        SYSTEM,
        "id.unusable",
        "error",
        "rows without an id of their own",
        n_rows=ids.len() - ids.drop_nulls().n_unique(),
        table=table,
        column="id",
        action="left out",
    )


def _telemetry_edge(tables: GoTables, label: str) -> pl.DataFrame:
    """Rates of failed starts begin where telemetry does."""
    at = tables["telemetry_event"]["occurred_at"]
    first, last = at.min(), newest_in_company([[at]], [at])
    is_edge = first is not None and last - first >= _TELEMETRY_KEPT - timedelta(days=1)  # type: ignore[operator]
    return counted(
        label,
        SYSTEM,
        "time.retention_edge",
        "info",
        f"telemetry is kept for {_TELEMETRY_KEPT.days} days: rates of failed starts begin there",
        n_rows=int(is_edge),
        table="telemetry_event",
        example=str(first),
    )


def _usage_incomplete(tables: GoTables, label: str) -> pl.DataFrame:
    """Sessions of which not all that was used could be measured, one finding each."""
    odd = pl.col("last_error_code").is_not_null() & ~pl.col("last_error_code").is_in(_FINE)
    of_sources = tables["usage_sources"].filter(
        pl.col("last_error_code").ne_missing(pl.lit("artifact_replaced"))
        & (odd | (pl.col("anomaly_count") > 0)).fill_null(value=False)
    )
    bad = pl.concat(
        [
            of_sources.select(id="binding_id", code="last_error_code"),
            unknown_events(tables).select(id="binding_id", code=pl.lit("unknown")),
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
        entity_type=pl.lit("session"),
        entity_id="session_id",
        code=pl.coalesce("last_error_code", "code", "state"),
    ).unique("entity_id", keep="first", maintain_order=True)
    return per_entity(
        rows,
        label,
        SYSTEM,
        "usage.incomplete",
        "warning",
        message="not all that it used could be measured: its tokens are a lower bound",
        table="usage_sources",
        example=pl.col("code"),
        action="summed as far as known",
    )
