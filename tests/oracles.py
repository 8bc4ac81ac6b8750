"""The oracles' door: each file of real outputs, and the public rule that must equal it.

An adapter gets the rows of one oracle file as read (all columns text, empty = null; of
JSONL one column ``line``), reads its *input* columns only, calls the public rule, and
returns as text, in the file's order, those *output* columns that a rule of the product
gives. ``<empty>`` in a file is the empty text.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import polars as pl

from stateanalytics.core.session_health import (
    HEALTH_ORDER,
    STALLED_AFTER_S,
    classify_session_health,
    classify_session_health_by_age,
    limits_by_kind,
    staleness_by_age,
)
from stateanalytics.core.vocabulary import EXIT_CODES, STATUS_WORDS, words_of
from stateanalytics.detectors.catalogue import named
from stateanalytics.detectors.detections import in_words, truths
from stateanalytics.state.health import derive_severity
from stateanalytics.state.reasons import reason_codes
from stateanalytics.systems.agent_orchestrator import detectors, mapping, sessions
from stateanalytics.systems.agent_orchestrator.mapping import legacy_status
from stateanalytics.systems.lionagi.audits import roll_up, with_phantom_reason
from stateanalytics.systems.lionagi.detectors import IN_RANGE, add_words, with_display_status
from stateanalytics.systems.lionagi.schedules import cadence_s, with_schedule_health
from stateanalytics.systems.lionagi.transitions import EDGES, LIFECYCLES

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
    judged = judged.rename({"severity_rule": "rule_number"})
    return as_text(judged, "severity", "tone", "rule_number")


def _limit_s(kinds: pl.Series) -> pl.Series:
    limits = limits_by_kind(None, STALLED_AFTER_S)
    seconds = [int(limits.get(kind, limits["default"])) for kind in kinds]
    return pl.Series("stale_threshold_s", seconds, dtype=pl.Int64)


def threshold_for_kind(rows: pl.DataFrame) -> pl.DataFrame:
    kinds = rows["invocation_kind"]
    known = [kind for kind in STALLED_AFTER_S if kind != "default"]
    is_in_table = kinds.is_in(known).fill_null(value=False).alias("in_table")
    return as_text(pl.DataFrame([_limit_s(kinds), is_in_table]), "stale_threshold_s", "in_table")


_SIGNS = ("process_alive", "has_artifacts", "has_stale_locks")
_AGE_OF = {
    "last_message_age_s": "last_message_at",
    "updated_age_s": "updated_at",
    "started_age_s": "started_at",
}


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
    marked = staleness_by_age(judged).with_columns(_limit_s(judged["invocation_kind"]))
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
    rules = ("same_status_rule", "reason_prefixes", "has_reason_columns")
    return as_text(found, "table", "initial", "terminal", *rules)


def transitions(rows: pl.DataFrame) -> pl.DataFrame:
    key = ["entity_type", "from_status", "to_status"]
    demands = ("actor_types", "required_patch", "required_guard")
    declared = pl.DataFrame(
        [
            {
                **dict(zip(key, (edge.entity_type, edge.before, edge.after), strict=True)),
                **{name: "|".join(getattr(edge, name)) or None for name in demands},
                "allowed": True,
            }
            for edge in EDGES
        ],
        schema_overrides=dict.fromkeys(demands, pl.String),
        infer_schema_length=None,
    )
    ends = pl.DataFrame(
        [
            (cycle.entity_type, word.raw_status)
            for cycle in LIFECYCLES
            for word in words_of(cycle.entity_type)
            if word.is_terminal
        ],
        schema=key[:2],
        orient="row",
    ).with_columns(from_terminal=True)
    judged = (
        rows.select(key)
        .join(declared, on=key, how="left", maintain_order="left")
        .join(ends, on=key[:2], how="left", maintain_order="left")
        .with_columns(pl.col("allowed", "from_terminal").fill_null(value=False))
    )
    return as_text(judged, "allowed", *demands, "from_terminal")


def cli_status(rows: pl.DataFrame) -> pl.DataFrame:
    """The end of each status and its exit code; the classes are of commands that are not ours."""
    ends = {
        (word.entity_type, word.raw_status): word.process_exit_code
        for word in STATUS_WORDS
        if word.is_terminal
    }
    keys = rows.select("entity_type", *words("status")).rows()
    exits = pl.Series([ends.get(key) for key in keys], dtype=pl.Int64)
    found = pl.DataFrame(
        {"terminal": [key in ends for key in keys], "run_process_exit_code": exits}
    )
    return as_text(found, "terminal", "run_process_exit_code")


def display_status(rows: pl.DataFrame) -> pl.DataFrame:
    named = rows.select(
        *words("status"),
        reason_code="status_reason_code",
        reason_message="status_reason_summary",
        session_health="effective_health",
    )
    flags = ("is_orphaned_reason", "is_unsuccessful_terminal", "is_effectively_active")
    return as_text(with_display_status(named), "display_status", *flags)


def reason_code_registry(rows: pl.DataFrame) -> pl.DataFrame:
    registry = reason_codes().with_columns(
        segment2=pl.col("code").map_elements(_second_segment, return_dtype=pl.String),
        emitted_by_production_code="is_emitted",
    )
    found = rows.select("code").join(registry, on="code", how="left", maintain_order="left")
    columns = (
        "domain segment2 entity_types statuses since_release since_date since_commit constant "
        "emitted_by_production_code emitted_by meaning"
    )
    return as_text(found, *columns.split()).with_columns(pl.all().replace("", None))


def _second_segment(code: str) -> str:
    return code.split(".")[1]


# --- roll-ups and schedules ------------------------------------------------------------


def _children(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    return (
        rows.with_row_index("parent_id")
        .select("parent_id", status=pl.col(column).str.split("|"))
        .drop_nulls("status")
        .explode("status")
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
        runview_exit_code_if_row_running=pl.col("grading_status")
        .replace_strict(dict(EXIT_CODES), default=None, return_dtype=pl.Int64)
        .fill_null(3),
        lifecycle_terminal="lifecycle_is_terminal",
    )
    columns = (
        *("invocation_status", "invocation_reason_code", "runview_grading_status"),
        *("runview_exit_code_if_row_running", "lifecycle_terminal"),
        *("lifecycle_status", "lifecycle_outcome"),
    )
    return as_text(rolled, *columns)


def schedule_health(rows: pl.DataFrame) -> pl.DataFrame:
    told = rows.select("trigger_type", "interval_or_cron", number("since_last_execution_s"))
    inputs = rows.select(
        "trigger_type",
        "last_executed_status",
        is_enabled=yes("enabled"),
        cadence_s=pl.Series([_cadence_s(*row) for row in told.rows()], dtype=pl.Float64),
        silence_s=number("since_last_execution_s"),
        n_runs=yes("has_recorded_run").cast(pl.Int64),
        since_last_fire_s=pl.when(yes("has_last_fired_at")).then(0.0),
        n_running=pl.lit(0),
        next_fire_in_s=pl.lit(None, pl.Float64),
    )
    judged = with_schedule_health(inputs)
    return as_text(judged.rename({"schedule_health": "health_state"}), "health_state")


def _cadence_s(trigger: str, text: str | None, since_s: float | None) -> float | None:
    if trigger == "cron" and text is not None:
        return cadence_s(text, NOW - timedelta(seconds=since_s or 0))
    return float(text) if text is not None and trigger != "at" else None


# --- phantoms --------------------------------------------------------------------------


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
    judged = with_phantom_reason(inputs, stale_s=pl.col("stale_s"))
    judged = judged.select(reason="phantom_reason", error=pl.lit(None, pl.String))
    return as_text(judged, "reason", "error")


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
    matrix = pl.DataFrame({name: found[name].alias(name) for name in MATRIX_ORDER})
    return as_text(matrix, *MATRIX_ORDER)


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


# --- Agent Orchestrator ----------------------------------------------------------------

AO_NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def compact(value: object) -> str | None:
    """A value of a JSON line as text, an object in its own order of keys."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _records(rows: pl.DataFrame) -> pl.DataFrame:
    """Stored records, with what a caller of Agent Orchestrator passes in place of it."""
    records = []
    for line in map(json.loads, rows["line"]):
        record, given = line["meta"], line["options"]
        passed = {name: compact(given[name]) for name in given if name != "sessionKind"}
        if kind := given.get("sessionKind"):
            passed |= {"role": kind, "sessionId": None}
        record = record | {name: value for name, value in passed.items() if value is not None}
        record |= {"sessionId": passed.get("sessionId")}
        records.append(record | {"createdAt": _iso(record.get("createdAt"))})
    names = sorted({name for record in records for name in record})
    return pl.DataFrame(records, schema=dict.fromkeys(names, pl.String))


def _iso(text: str | None) -> str | None:
    """JavaScript reads dates in words and no bare numbers; the product does it the other way."""
    if text is None or text.isdigit():
        return None
    try:
        return datetime.strptime(text, "%B %d, %Y").date().isoformat()
    except ValueError:
        return text


def iso(column: str) -> pl.Expr:
    return pl.col(column).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")


def lifecycles_of(frame: pl.DataFrame) -> list[dict]:
    """The axes of each row as Agent Orchestrator writes them."""
    moments = [iso(name).alias(name) for name in sessions.LIFECYCLE_COLUMNS if name.endswith("_at")]
    return [_nested(row) for row in frame.with_columns(moments).to_dicts()]


def _nested(row: dict) -> dict:
    handle = row["runtime_handle"]
    return {
        "version": 2,
        "session": {
            "kind": row["kind"], "state": row["session_state"], "reason": row["session_reason"],
            "startedAt": row["started_at"], "completedAt": row["completed_at"],
            "terminatedAt": row["terminated_at"], "lastTransitionAt": row["last_transition_at"],
        },
        "pr": {
            "state": row["pr_state"], "reason": row["pr_reason"], "number": row["pr_number"],
            "url": row["pr_url"], "lastObservedAt": row["pr_observed_at"],
        },
        "runtime": {
            "state": row["runtime_state"],
            "reason": row["runtime_reason"],
            "lastObservedAt": row["runtime_observed_at"],
            "handle": None if handle is None else json.loads(handle),
            "tmuxName": row["tmux_name"],
        },
    }  # fmt: skip


def _lifecycle_texts(frame: pl.DataFrame) -> pl.DataFrame:
    texts = pl.Series("lifecycle", map(compact, lifecycles_of(frame)), dtype=pl.String)
    return frame.select(texts, legacy_status=legacy_status())


def synthesize(rows: pl.DataFrame) -> pl.DataFrame:
    return _lifecycle_texts(sessions.synthesize_lifecycle(_records(rows), now=AO_NOW))


def parse(rows: pl.DataFrame) -> pl.DataFrame:
    """Where its reader rejects a payload, Agent Orchestrator makes up all of the lifecycle."""
    records = _records(rows)
    read = sessions.parse_lifecycle(sessions.read_payloads(records), now=AO_NOW)
    made_up = _lifecycle_texts(sessions.synthesize_lifecycle(records, now=AO_NOW))
    is_accepted = read["reject_reason"].is_null()
    texts = pl.DataFrame(
        _lifecycle_texts(read)[name].zip_with(is_accepted, made_up[name])
        for name in made_up.columns
    )
    differs = texts["lifecycle"].ne_missing(made_up["lifecycle"])
    texts = texts.with_columns(differs_from_synthesized=differs)
    return as_text(texts, "lifecycle", "differs_from_synthesized", "legacy_status")


def derive_legacy(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(legacy_status=legacy_status(), legacy_status_final_ts=legacy_status())


def primary_reason(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select(primary_reason=mapping.primary_reason())


def terminal(rows: pl.DataFrame) -> pl.DataFrame:
    is_over = pl.col("status").is_in(mapping.TERMINAL_STATUSES) | (pl.col("activity") == "exited")
    by_word = is_over.fill_null(value=False)
    rule = pl.when(yes("has_lifecycle")).then(mapping.is_terminal()).otherwise(by_word)
    return as_text(rows.select(is_terminal=rule), "is_terminal")


def pr_url(rows: pl.DataFrame) -> pl.DataFrame:
    number = sessions.pull_request_number(pl.col("url"))
    return as_text(rows.select(parsed=number.is_not_null(), number=number), "parsed", "number")


_REPORT = {
    "state": "report_state",
    "timestamp": "report_at",
    "note": "report_note",
    "prNumber": "report_pr_number",
    "prUrl": "report_pr_url",
    "prIsDraft": "report_is_draft",
}


def report_read(rows: pl.DataFrame) -> pl.DataFrame:
    keys = [f"agentReported{key}" for key in ("State", "At", "Note", "PrNumber", "PrUrl")]
    schema = dict.fromkeys([*keys, "agentReportedPrIsDraft"], pl.String)
    records = pl.DataFrame([json.loads(line)["meta"] or {} for line in rows["line"]], schema=schema)
    read = sessions.read_reports(records).with_columns(report_at=iso("report_at")).to_dicts()
    reports = [
        {key: row[name] for key, name in _REPORT.items() if row[name] is not None} or None
        for row in read
    ]
    texts = [compact(report) for report in reports]
    return pl.DataFrame({"report": texts}, schema={"report": pl.String})


def report_watcher(rows: pl.DataFrame) -> pl.DataFrame:
    aged = rows.select(
        "status",
        "kind",
        "report_state",
        created_age_s=number("created_age_ms") / 1000,
        report_age_s=number("report_age_ms") / 1000,
    )
    judged = aged.select(audited=detectors.is_watched(), trigger=detectors.watcher_trigger())
    return as_text(judged, "audited", "trigger")


def ao_mapping(rows: pl.DataFrame) -> pl.DataFrame:
    judged = derive_severity(mapping.map_axes(rows.select(mapping.AXES)))
    codes = pl.col("reason_codes").str.replace_all(", ", "|", literal=True)
    names = ("lifecycle", "outcome", "health", "delivery", "severity", "tone", "reason_codes")
    return as_text(judged.with_columns(codes), *names)


def web_attention(rows: pl.DataFrame) -> pl.DataFrame:
    attention = detectors.web_attention()
    judged = rows.select(attention_detailed=attention, done=attention == "done")
    return as_text(judged, "attention_detailed", "done")


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
    "lionagi/oracle_schedule_health_0.36.csv": schedule_health,
    "lionagi/oracle_severity_adr0033.csv": severity,
    "lionagi/oracle_statuses_0.36.csv": statuses,
    "lionagi/oracle_threshold_for_kind_0.36.csv": threshold_for_kind,
    "lionagi/oracle_transitions_0.36.csv": transitions,
}

AGENT_ORCHESTRATOR: dict[str, Adapter] = {
    "agent-orchestrator/mapping_ao_to_normalized.csv": ao_mapping,
    "agent-orchestrator/oracle_agent_report_read.jsonl": report_read,
    "agent-orchestrator/oracle_derive_legacy.csv": derive_legacy,
    "agent-orchestrator/oracle_parse.jsonl": parse,
    "agent-orchestrator/oracle_pr_url.csv": pr_url,
    "agent-orchestrator/oracle_primary_reason.csv": primary_reason,
    "agent-orchestrator/oracle_report_watcher.csv": report_watcher,
    "agent-orchestrator/oracle_synthesize.jsonl": synthesize,
    "agent-orchestrator/oracle_terminal_restorable.csv": terminal,
    "agent-orchestrator/oracle_web_attention.csv": web_attention,
}

ADAPTERS: dict[str, Adapter] = {**LIONAGI, **AGENT_ORCHESTRATOR}
