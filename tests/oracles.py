"""The oracles' door: each file of real outputs, and the public rule that must equal it.

An adapter gets the rows of one oracle file as read (all columns text, empty = null),
reads its *input* columns only, calls the public rule, and returns the *output* columns
as text, in the file's order. ``<empty>`` in a file is the empty text.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core.session_health import (
    HEALTH_ORDER,
    classify_session_health,
    classify_session_health_by_age,
)
from stateanalytics.core.staleness import staleness_by_age
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.detectors.catalogue import named
from stateanalytics.detectors.judging import in_words, truths
from stateanalytics.state.reason_codes import parents, reason_codes
from stateanalytics.state.severity import derive_severity
from stateanalytics.systems.lionagi.detectors import IN_RANGE
from stateanalytics.systems.lionagi.features import (
    add_words,
    with_display_status,
    with_schedule_health,
)
from stateanalytics.systems.lionagi.phantoms import with_phantom_reason
from stateanalytics.systems.lionagi.rollups import roll_up
from stateanalytics.systems.lionagi.schedules import cadence_s
from stateanalytics.systems.lionagi.transitions import LIFECYCLES
from tests.conformance.lionagi.exit_codes import with_exit_codes
from tests.conformance.lionagi.health import with_stale_thresholds, worst_health
from tests.conformance.lionagi.run_view import EXIT_RUNNING, run_view_outcome
from tests.conformance.lionagi.transitions import with_edge_facts
from tests.conformance.lionagi.verification import verify_contracts, with_shown_verdict
from tests.oracles_agent_orchestrator import ADAPTERS as AGENT_ORCHESTRATOR

Adapter = Callable[[pl.DataFrame], pl.DataFrame]

NOW = datetime(2026, 5, 27, tzinfo=UTC)


# --- cells of an oracle file -----------------------------------------------------------


def words(*columns: str) -> list[pl.Expr]:
    """Text columns, with the file's sign for the empty text read as such."""
    return [
        pl.when(pl.col(name) == "<empty>").then(pl.lit("")).otherwise(pl.col(name)).alias(name)
        for name in columns
    ]


def number(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64)


def yes(column: str | pl.Expr) -> pl.Expr:
    value = pl.col(column) if isinstance(column, str) else column
    return (
        pl.when(value.is_in(("true", "1")))
        .then(pl.lit(value=True))
        .when(value.is_in(("false", "0")))
        .then(pl.lit(value=False))
    )


def as_text(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The output columns as an oracle file writes them."""
    return frame.select(pl.col(name).cast(pl.String) for name in columns)


# --- severity and health ---------------------------------------------------------------


def severity(rows: pl.DataFrame) -> pl.DataFrame:
    judged = derive_severity(rows.select(words("outcome", "health", "delivery")))
    return as_text(
        judged.rename({"severity_rule": "rule_number"}), "severity", "tone", "rule_number"
    )


def threshold_for_kind(rows: pl.DataFrame) -> pl.DataFrame:
    judged = with_stale_thresholds(rows.select("invocation_kind"))
    return as_text(
        _whole(judged).rename({"is_in_table": "in_table"}), "stale_threshold_s", "in_table"
    )


_SIGNS = ("process_alive", "has_artifacts", "has_stale_locks")
_AGE_OF = {
    "last_message_age_s": "last_message_at",
    "updated_age_s": "updated_at",
    "started_age_s": "started_at",
}


def _whole(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("stale_threshold_s").cast(pl.Int64))


def health(rows: pl.DataFrame) -> pl.DataFrame:
    """Moments, judged at ``now`` (one instant a file, but any number of them works)."""
    inputs = rows.select(
        "now",
        *words("status", "invocation_kind"),
        number("message_count"),
        *(number(moment) for moment in _AGE_OF.values()),
        *(yes(name).alias(name) for name in _SIGNS),
    ).with_row_index("line")
    parts = [
        _health_at(group, float(now)) for (now,), group in inputs.group_by("now") if now is not None
    ]
    answers = ("activity_gap_s", "stale_threshold_s", "staleness_check", "health")
    empty = pl.DataFrame(schema={"line": pl.UInt32, **dict.fromkeys(answers, pl.String)})
    return as_text(pl.concat([empty, *parts]).sort("line"), *answers)


def _health_at(rows: pl.DataFrame, now: float) -> pl.DataFrame:
    # A moment of 0 was never written: SQLite's programs pass over it as over NULL.
    ages = {
        age: pl.when(pl.col(moment) != 0).then(now - pl.col(moment))
        for age, moment in _AGE_OF.items()
    }
    judged = classify_session_health(rows, now=now).with_columns(**ages)
    marked = _whole(with_stale_thresholds(staleness_by_age(judged)))
    return marked.select(
        "line",
        activity_gap_s=pl.coalesce(*ages, pl.lit(now)).cast(pl.String),
        stale_threshold_s=pl.col("stale_threshold_s").cast(pl.String),
        staleness_check="staleness",
        health="session_health",
    )


HEALTH_VERSIONS = {
    "health_v1_0.26.1": "0.26.1",
    "health_v2_2026-07-04a": "2026-07-04a",
    "health_v3_0.28": "0.28",
    "health_v4_0.29.1": "0.29.1",
    "health_0.36.0": "0.36",
}
STALENESS_VERSIONS = {"staleness_v1_0.26.1": "v1", "staleness_0.36.0": "v2"}
VERSIONS_NOW_S = 1779840000.0


def health_versions(rows: pl.DataFrame) -> pl.DataFrame:
    judged = rows.select(
        *words("status", "invocation_kind"),
        number("message_count"),
        # The whole number 0 in this file is a stored moment of 0; an age of 0 is 0.0.
        *(pl.when(pl.col(age) != "0").then(number(age)).alias(age) for age in _AGE_OF),
        *(yes(name).alias(name) for name in _SIGNS),
    ).with_columns(activity_gap_s=pl.coalesce(*_AGE_OF, pl.lit(VERSIONS_NOW_S)))
    for column, version in HEALTH_VERSIONS.items():
        judged = classify_session_health_by_age(judged, version=version).rename(
            {"session_health": column}
        )
    for column, version in STALENESS_VERSIONS.items():
        judged = staleness_by_age(judged, version=version).rename({"staleness": column})
    return as_text(judged, "activity_gap_s", *HEALTH_VERSIONS, *STALENESS_VERSIONS)


def health_severity(rows: pl.DataFrame) -> pl.DataFrame:
    order = {word: place for place, word in enumerate(HEALTH_ORDER)}
    return as_text(rows.select(severity=pl.col("health").replace_strict(order)), "severity")


def worst(rows: pl.DataFrame) -> pl.DataFrame:
    return as_text(worst_health(rows.select("a", "b"), ["a", "b"], into="worst"), "worst")


# --- statuses and transitions ----------------------------------------------------------


def statuses(rows: pl.DataFrame) -> pl.DataFrame:
    cycles = {cycle.entity_type: cycle for cycle in LIFECYCLES}
    known = pl.DataFrame(
        [
            {
                "entity_type": word.entity_type,
                "status": word.raw_status,
                "table": word.table,
                "initial": word.is_initial,
                "terminal": word.is_terminal,
                "same_status_rule": cycles[word.entity_type].same_status,
                "reason_prefixes": "|".join(cycles[word.entity_type].reason_prefixes),
                "has_reason_columns": cycles[word.entity_type].has_reason_columns,
            }
            for word in STATUS_WORDS
            if word.entity_type in cycles
        ]
    )
    keys = rows.select("entity_type", *words("status"))
    found = keys.join(known, on=["entity_type", "status"], how="left", maintain_order="left")
    return as_text(
        found,
        "table",
        "initial",
        "terminal",
        "same_status_rule",
        "reason_prefixes",
        "has_reason_columns",
    )


def transitions(rows: pl.DataFrame) -> pl.DataFrame:
    judged = with_edge_facts(
        rows.select("entity_type", previous_status="from_status", status="to_status")
    )
    return as_text(
        judged.rename({"is_allowed": "allowed", "is_from_terminal": "from_terminal"}),
        "allowed",
        "actor_types",
        "required_patch",
        "required_guard",
        "from_terminal",
    )


def cli_status(rows: pl.DataFrame) -> pl.DataFrame:
    judged = with_exit_codes(rows.select("entity_type", *words("status")))
    return as_text(
        judged.rename({"is_terminal": "terminal", "process_exit_code": "run_process_exit_code"}),
        "terminal",
        "exit_class",
        "status_command_exit_code",
        "run_process_exit_code",
    )


def display_status(rows: pl.DataFrame) -> pl.DataFrame:
    named = rows.select(
        *words("status"),
        reason_code="status_reason_code",
        reason_message="status_reason_summary",
        session_health="effective_health",
    )
    return as_text(
        with_display_status(named),
        "display_status",
        "is_orphaned_reason",
        "is_unsuccessful_terminal",
        "is_effectively_active",
    )


def reason_code_registry(rows: pl.DataFrame) -> pl.DataFrame:
    registry = reason_codes().with_columns(
        segment2=pl.col("code").map_elements(_second_segment, return_dtype=pl.String),
        emitted_by_production_code="is_emitted",
    )
    found = rows.select("code").join(registry, on="code", how="left", maintain_order="left")
    columns = (
        "domain",
        "segment2",
        "entity_types",
        "statuses",
        "since_release",
        "since_date",
        "since_commit",
        "constant",
        "emitted_by_production_code",
        "emitted_by",
        "meaning",
    )
    return as_text(found, *columns).with_columns(pl.all().replace("", None))


def _second_segment(code: str) -> str:
    return [*parents(code), code][1].split(".")[-1]


# --- roll-ups and schedules ------------------------------------------------------------


def _children(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    return (
        rows.with_row_index("parent_id")
        .select("parent_id", status=pl.col(column).str.split("|"))
        .drop_nulls("status")
        .explode("status")
        .with_columns(position=pl.int_range(pl.len()).over("parent_id"))
        .with_columns(words("status"))
    )


def _rolled(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    parents_of = rows.with_row_index("parent_id")
    return roll_up(parents_of, _children(rows, column)).sort("parent_id")


def rollup(rows: pl.DataFrame) -> pl.DataFrame:
    leader = pl.col("leader_fallback_status")
    inputs = rows.select(
        "child_statuses",
        leader_status=leader,
        # The leaders of the file that failed had returned a code, not raised.
        leader_exit_code=pl.when(leader == "failed").then(1).otherwise(0),
    )
    rolled = _rolled(inputs, "child_statuses").with_columns(
        runview_grading_status="grading_status",
        runview_exit_code_if_row_running=pl.col("grading_exit_code").fill_null(EXIT_RUNNING),
        lifecycle_terminal="lifecycle_is_terminal",
    )
    return as_text(
        rolled,
        "invocation_status",
        "invocation_reason_code",
        "runview_grading_status",
        "runview_exit_code_if_row_running",
        "lifecycle_terminal",
        "lifecycle_status",
        "lifecycle_outcome",
    )


def run_view(rows: pl.DataFrame) -> pl.DataFrame:
    graded = _rolled(rows.select("session_statuses"), "session_statuses")
    inputs = rows.select(
        *words("run_status", "run_error_detail", "invocation_status"),
        run_exit_code=pl.col("run_exit_code").cast(pl.Int64),
        session_status=graded["grading_status"],
    )
    judged = run_view_outcome(inputs).with_columns(summary_reported="is_summary_reported")
    return as_text(
        judged,
        "outcome_code",
        "outcome_summary",
        "outcome_source",
        "summary_reported",
        "exit_code",
    )


def schedule_health(rows: pl.DataFrame) -> pl.DataFrame:
    inputs = rows.select(
        "trigger_type",
        "last_executed_status",
        is_enabled=yes("enabled"),
        cadence_s=pl.Series(
            [
                _cadence_s(*row)
                for row in rows.select(
                    "trigger_type", "interval_or_cron", number("since_last_execution_s")
                ).iter_rows()
            ],
            dtype=pl.Float64,
        ),
        since_last_execution_s=number("since_last_execution_s"),
        n_runs=yes("has_recorded_run").cast(pl.Int64),
        since_last_fire_s=pl.when(yes("has_last_fired_at")).then(0.0),
    )
    judged = with_schedule_health(inputs)
    return as_text(judged.rename({"schedule_health": "health_state"}), "health_state")


def _cadence_s(trigger: str, text: str | None, since_s: float | None) -> float | None:
    if trigger == "cron" and text is not None:
        return cadence_s(text, NOW - timedelta(seconds=since_s or 0))
    return float(text) if text is not None and trigger != "at" else None


# --- phantoms and verification ---------------------------------------------------------


def phantom(rows: pl.DataFrame) -> pl.DataFrame:
    process, directory = pl.col("process"), pl.col("artifacts_dir")
    inputs = rows.select(
        updated_age_s=number("updated_age_s"),
        stale_s=number("stale_s"),
        process_alive=pl.when(process == "alive")
        .then(pl.lit(value=True))
        .when(process.is_in(("dead", "recycled")))
        .then(pl.lit(value=False)),
        is_foreign=process == "foreign_host",
        is_artifacts_gone=directory == "gone",
        # Dependency lock files (uv.lock) are no locks of a run.
        has_stale_locks=directory == "old_job_lock",
    )
    judged = with_phantom_reason(inputs, stale_s="stale_s")
    return as_text(
        judged.select(reason="phantom_reason", error=pl.lit(None, pl.String)), "reason", "error"
    )


# What the oracle's directory held.
LISTING = pl.DataFrame(
    {"path": ["present.md", "empty.md", "critic/review.md"], "size_bytes": [5, 0, 2]}
)


def _verified(contracts: pl.DataFrame) -> pl.DataFrame:
    """Verdicts on contracts whose ``artifacts_root`` is ``dir``, nothing, or not there."""
    keyed = contracts.with_row_index("entity_id")
    with_files = keyed.filter(pl.col("artifacts_root") == "dir").select("entity_id")
    return verify_contracts(keyed, with_files.join(LISTING, how="cross"))


def verification(rows: pl.DataFrame) -> pl.DataFrame:
    judged = _verified(rows.select("artifacts_root", contract="contract_json"))
    is_bad = pl.col("is_contract_valid").eq_missing(pl.lit(value=False))
    return as_text(
        judged.with_columns(
            status="verdict", error=pl.when(is_bad).then(pl.lit("ArtifactPathError"))
        ),
        "error",
        "status",
        "missing_required",
        "missing_optional",
        "produced",
    )


CONTRACTS = {
    "missing_required": '{"expected": [{"id": "c", "path": "nope.md"}]}',
    "present_required": '{"expected": [{"id": "a", "path": "present.md"}]}',
}


def verification_display(rows: pl.DataFrame) -> pl.DataFrame:
    stored = pl.col("stored_verdict")
    contract = pl.col("contract").replace_strict(CONTRACTS, default=None, return_dtype=pl.String)
    live = _verified(rows.select(artifacts_root="artifacts_path", contract=contract))["verdict"]
    inputs = rows.select(
        *words("session_status"),
        # A bare text where an object should be: it is shown as it is.
        verdict=pl.when(stored == "bare_string")
        .then(pl.lit("passed"))
        .when(stored != "none")
        .then(stored),
        is_verdict_object=stored != "bare_string",
        is_verdict_dated=stored.is_in(("passed", "failed", "warning")),
        has_contract=contract.is_not_null(),
        has_artifacts_path=(pl.col("artifacts_path") == "dir").fill_null(value=False),
        live_verdict=live,
    ).rename({"session_status": "raw_status"})
    judged = with_shown_verdict(inputs)
    return as_text(
        judged.rename(
            {
                "shown_verdict": "shown_status",
                "is_provisional": "provisional",
                "currency": "staleness_check",
            }
        ),
        "shown_status",
        "provisional",
        "staleness_check",
    )


# --- all detectors side by side --------------------------------------------------------

FLAGS = {
    "dash_stuck_gt_1800_port": "dashboard_stuck_30m",
    "dash_slow_gt_1800_port": "dashboard_slow_30m",
    "dash_stuck_gt_3600_port": "dashboard_stuck_60m",
    "dash_slow_gt_3600_port": "dashboard_slow_60m",
    "dash_stale_card_port": "dashboard_stale_card",
    "adr0017_slow_running_gt_1800_port": "adr0017_slow",
    "adr0030_stuck_critical_port": "adr0030_stuck",
    "adr0030_slow_info_port": "adr0030_slow",
    "phantom_gate_3600_0.36_port": "phantom_v2",
    "state_doctor_24h_0.36_port": "state_doctor",
    "kill_all_stale_3600_0.36_port": "kill_all_stale",
    "null_status_reaper_3600_port": "null_status",
    "ended_at_mismatch_port": "ended_at_mismatch",
}
WORDS = {
    "health_admin_0.26": "health_0_26",
    "health_runs_list_0.26": "runs_list_0_26",
    "health_0.28": "health_0_28",
    "health_admin_0.36": "health_0_36",
    "health_runs_list_0.36": "runs_list_0_35",
    "staleness_0.26": "staleness_v1",
    "staleness_0.36": "staleness_v2",
}
LABELS = {
    "mission_attention_2026-07-04": "mission_attention_v1",
    "mission_attention_2026-07-05": "mission_attention_v2",
    "mission_attention_0.35": "mission_attention_0_35",
}
COUNTS = {
    "fleet_attention_2026-07-04": "fleet_attention_v1",
    "fleet_attention_2026-07-05": "fleet_attention_v2",
    "fleet_attention_0.35": "fleet_attention_0_35",
}
MATRIX_ORDER = (
    *("health_admin_0.26", "health_runs_list_0.26", "health_0.28", "health_admin_0.36"),
    *("health_runs_list_0.36", "staleness_0.26", "staleness_0.36", "dash_in_24h_range_port"),
    *FLAGS,
    *("mission_attention_2026-07-04", "fleet_attention_2026-07-04"),
    *("mission_attention_2026-07-05", "fleet_attention_2026-07-05"),
    *("mission_attention_0.35", "fleet_attention_0.35"),
    *("display_status_0.35", "effectively_active_0.35"),
)
SIGNS = {
    "display_status_0.35": "display_status",
    "effectively_active_0.35": "is_effectively_active",
}


def detector_matrix(rows: pl.DataFrame) -> pl.DataFrame:
    signs = add_words(_matrix_signs(rows))
    names = [*FLAGS.values(), *LABELS.values(), *COUNTS.values()]
    judged = in_words(truths(signs, [named(name) for name in names]), at=NOW).sort("entity_id")
    of = {name: judged.filter(pl.col("detector") == name) for name in names}
    fires = {name: of[name]["fires"].fill_null(value=False) for name in names}
    found = {
        "dash_in_24h_range_port": signs.select(IN_RANGE).to_series(),
        **{column: fires[name] for column, name in FLAGS.items()},
        **{column: _word(signs, name) for column, name in WORDS.items()},
        **{column: of[name]["label"] for column, name in LABELS.items()},
        **{column: fires[name].cast(pl.Int8) for column, name in COUNTS.items()},
        **{column: signs[name] for column, name in SIGNS.items()},
    }
    return as_text(
        pl.DataFrame({name: found[name].alias(name) for name in MATRIX_ORDER}), *MATRIX_ORDER
    )


def _word(signs: pl.DataFrame, name: str) -> pl.Series:
    """The classifier's word for every row, fine ones too, where the page shows any."""
    detector = named(name)
    seen = pl.lit(value=True) if detector.scope is None else detector.scope
    word = detector.classify(signs, detector.threshold_s)
    return signs.select(pl.when(seen).then(word)).to_series()


def _matrix_signs(rows: pl.DataFrame) -> pl.DataFrame:
    age, duration = number("age_s"), number("duration_s")
    known = pl.col("scenario").fill_null("")
    return rows.with_row_index("line").select(
        source=pl.lit("oracle"),
        system=pl.lit("lionagi"),
        entity_type=pl.lit("session"),
        entity_id=pl.col("line").cast(pl.String).str.zfill(9),
        session_id="session_id",
        kind="invocation_kind",
        raw_status=words("status")[0],
        status=words("status")[0],
        n_messages=number("message_count"),
        started_age_s=age,
        ended_age_s=age - duration,
        elapsed_whole_s=pl.coalesce(duration, age).floor(),
        last_message_age_s=number("activity_gap_s"),
        silence_s=number("activity_gap_s"),
        # A moment of 0 was never written.
        updated_age_s=pl.when(number("updated_age_s") < NOW.timestamp() - 1).then(
            number("updated_age_s")
        ),
        # Not in the file: rows written by SQL were created ten minutes before.
        created_age_s=pl.lit(600.0),
        process_alive=yes("process_alive"),
        has_artifacts=yes("has_artifacts"),
        has_stale_locks=yes("has_stale_locks"),
        # Not in the file, but told by the scenario.
        is_foreign=known.str.contains("foreign_host"),
        reason_code=pl.lit(None, pl.String),
        reason_message=pl.when(known.str.starts_with("phantom_reaped")).then(
            pl.lit("phantom_reaped")
        ),
        agent=pl.lit(None, pl.String),
    )


LIONAGI: dict[str, Adapter] = {
    "lionagi/oracle_cli_status_0.36.csv": cli_status,
    "lionagi/oracle_detector_matrix_0.36.csv": detector_matrix,
    "lionagi/oracle_display_status_0.35.csv": display_status,
    "lionagi/oracle_health_0.36.csv": health,
    "lionagi/oracle_health_severity_0.36.csv": health_severity,
    "lionagi/oracle_health_versions.csv": health_versions,
    "lionagi/oracle_phantom_0.36.csv": phantom,
    "lionagi/oracle_reason_codes_0.36.csv": reason_code_registry,
    "lionagi/oracle_rollup_0.36.csv": rollup,
    "lionagi/oracle_run_view_outcome_0.36.csv": run_view,
    "lionagi/oracle_schedule_health_0.36.csv": schedule_health,
    "lionagi/oracle_severity_adr0033.csv": severity,
    "lionagi/oracle_statuses_0.36.csv": statuses,
    "lionagi/oracle_threshold_for_kind_0.36.csv": threshold_for_kind,
    "lionagi/oracle_transitions_0.36.csv": transitions,
    "lionagi/oracle_verification_0.36.csv": verification,
    "lionagi/oracle_verification_display_0.36.csv": verification_display,
    "lionagi/oracle_worst_health_0.36.csv": worst,
}

ADAPTERS: dict[str, Adapter] = {**LIONAGI, **AGENT_ORCHESTRATOR}
