"""The rows of a scaled store, made column by column."""

from __future__ import annotations

import polars as pl

from tests.generators import draws
from tests.generators.distributions import log_normal
from tests.generators.failure_corpus import MODELS
from tests.generators.messages import add_messages
from tests.generators.plan import Plan
from tests.generators.spells import add_spells, kind_of
from tests.generators.talk import message_id
from tests.generators.templates import TEMPLATES

AGENTS = ("implementer", "reviewer", "critic", "researcher", "architect", "tester")
PROJECTS = ("checkout", "billing", "search", "mobile", "infra", "docs")
PLAYBOOKS = ("feature", "bugfix", "audit", "release", "refactor")
_FAN = 24
_SHARE_PHANTOM = 0.004
_SHARE_LEGACY = 0.005
_SHARE_EMPTY = 0.012

_REASONS = {
    "running": "run.started.ok",
    "completed": "run.completed.ok",
    "completed_empty": "run.completed_empty.no_evidence",
    "timed_out": "run.timed_out.deadline",
    "aborted": "run.cancelled.sigint",
    "cancelled": "run.cancelled.system",
}
_SUMMARIES = {
    "running": "",
    "completed": "Run completed successfully.",
    "completed_empty": "No commits ahead of main, no artifacts produced, and no assistant response"
    " recorded; working tree clean.",
    "timed_out": "Run exceeded the configured timeout.",
    "aborted": "Interrupted by the user (SIGINT).",
    "cancelled": "Task cancelled by the runtime (anyio CancelledError).",
}
_OPERATIONS = (
    '", "flow_control_poller": "stopped", "reactive": true, "max_spawn": 20, "operations": '
    '[{"id": "analyst", "agent_id": "analyst", "control": false, "spawned": false, "depends_on":'
    ' []}, {"id": "critic", "agent_id": "critic", "control": false, "spawned": false,'
    ' "depends_on": ["analyst"]}]}'
)


def sessions(plan: Plan, first: int, last: int) -> pl.DataFrame:
    """Rows of ``sessions`` from number ``first`` to before ``last``, and their truth.

    The columns of the table come with ``row``, ``kind``, ``template_id`` and those of
    `durations`.
    """
    rows = (
        pl.select(row=pl.int_range(first, last, dtype=pl.UInt64))
        .with_columns(kind=kind_of(pl.col("row"), plan.seed))
        .pipe(add_spells, seed=plan.seed)
    )
    for step in (_times, _ends, _reasons, _words, _papers):
        rows = step(plan, rows)
    return rows


def invocations(rows: pl.DataFrame) -> pl.DataFrame:
    """The invocations that the sessions of one piece belong to."""
    bad = pl.col("status").is_in(["failed", "timed_out", "aborted", "cancelled"]).any()
    running = (pl.col("status") == "running").any()
    status = (
        pl.when(running)
        .then(pl.lit("running"))
        .when(bad)
        .then(pl.lit("failed"))
        .otherwise(pl.lit("completed"))
    )
    return (
        rows.filter(pl.col("invocation_id").is_not_null())
        .group_by("invocation_id", maintain_order=True)
        .agg(
            skill=pl.col("playbook_name").drop_nulls().first().fill_null("fanout"),
            started_at=pl.col("started_at").min(),
            ended_at=pl.when(running).then(None).otherwise(pl.col("updated_at").max()),
            status=status,
            session_count=pl.len().cast(pl.Int64),
            created_at=pl.col("created_at").min(),
            updated_at=pl.col("updated_at").max(),
        )
        .with_columns(
            plugin=pl.lit("marketplace"),
            prompt=pl.lit("work through the list"),
            node_metadata=pl.lit("{}"),
            status_reason_code=pl.col("status").replace_strict(
                {**_REASONS, "failed": "run.failed.exception"}, return_dtype=pl.String
            ),
            status_reason_summary=pl.concat_str([pl.lit("Invocation "), "status", pl.lit(".")]),
            status_evidence_refs=pl.lit("[]"),
        )
        .rename({"invocation_id": "id"})
    )


def transitions(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """The history of the sessions of one piece: a start each, and an end where there is one."""
    row = pl.col("row")
    known = rows.filter(pl.col("status").is_not_null())
    shared = {"entity_type": pl.lit("session"), "entity_id": pl.col("id")}
    starts = known.select(
        draws.hex_id(row, plan.seed, "transition/start").alias("id"),
        **shared,
        previous_status=pl.lit(None, dtype=pl.String),
        status=pl.lit("running"),
        reason_code=pl.lit("run.started.ok"),
        reason_summary=pl.lit(""),
        evidence_refs=pl.lit("[]"),
        source=pl.lit("system"),
        actor=pl.lit("create_session"),
        created_at=pl.col("started_at") + 0.004,
        metadata=pl.lit("{}"),
    )
    is_kill = pl.col("status_evidence_refs") != "[]"
    ends = known.filter(pl.col("status") != "running").select(
        draws.hex_id(row, plan.seed, "transition/end").alias("id"),
        **shared,
        previous_status=pl.lit("running"),
        status=pl.col("status"),
        reason_code=pl.col("status_reason_code"),
        reason_summary=pl.col("status_reason_summary"),
        evidence_refs=pl.col("status_evidence_refs"),
        source=pl.when(is_kill).then(pl.lit("admin")).otherwise(pl.lit("executor")),
        actor=pl.when(is_kill).then(pl.lit("user")).otherwise("id"),
        created_at=pl.col("updated_at"),
        metadata=pl.lit("{}"),
    )
    return pl.concat([starts, ends]).sort("created_at", maintain_order=True)


def _times(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """When each starts (in order), and when it would end."""
    row = pl.col("row")
    place = (row + draws.uniform(row, plan.seed, "start")) / max(plan.n_sessions, 1)
    return rows.with_columns(started_at=plan.first_at + plan.span_s * place).with_columns(
        created_at=pl.col("started_at") - 0.02,
        would_end_at=pl.col("started_at") + pl.col("duration_s"),
        is_phantom=draws.uniform(row, plan.seed, "phantom") < _SHARE_PHANTOM,
        is_legacy=draws.uniform(row, plan.seed, "legacy") < _SHARE_LEGACY,
    )


def _ends(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """Status, end and last message: a phantom runs for ever, silent from some point on."""
    row = pl.col("row")
    is_open = pl.col("is_phantom") | (pl.col("would_end_at") > plan.as_of)
    is_empty = draws.uniform(row, plan.seed, "empty") < _SHARE_EMPTY
    gap = log_normal(row, plan.seed, "last gap", median=20.0, sigma=1.5)
    until = pl.min_horizontal("would_end_at", pl.lit(plan.as_of))
    status = (
        pl.when("is_legacy")
        .then(None)
        .when(is_open)
        .then(pl.lit("running"))
        .when(is_empty & (pl.col("end") == "completed"))
        .then(pl.lit("completed_empty"))
        .otherwise("end")
    )
    ended = pl.when(pl.col("status").is_not_null() & (pl.col("status") != "running"))
    return (
        rows.with_columns(
            status=status, last_message_at=pl.max_horizontal("started_at", until - gap)
        )
        .with_columns(ended_at=ended.then("would_end_at"))
        .with_columns(updated_at=pl.coalesce("ended_at", "last_message_at") + 0.01)
    )


def _reasons(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """Reason code, message and evidence; a failure's message comes from a known template."""
    row = pl.col("row")
    shares = {template.template_id: 1.0 / rank for rank, template in enumerate(TEMPLATES, 1)}
    codes = {template.template_id: template.reason_code for template in TEMPLATES}
    failed = (
        rows.select("row", "status")
        .filter(pl.col("status") == "failed")
        .select("row", template_id=draws.weighted(row, plan.seed, "template", shares))
        .pipe(add_messages, seed=plan.seed)
    )
    is_kill = (pl.col("status") == "cancelled") & (draws.uniform(row, plan.seed, "kill") < 0.5)
    kill = pl.concat_str(
        [
            pl.lit('[{"kind": "kill_event", "signal": "sigterm", "pid": '),
            draws.integer(row, plan.seed, "pid", 1_000, 60_000),
            pl.lit(', "killed_at": '),
            pl.col("ended_at"),
            pl.lit(', "user_reason": ""}]'),
        ]
    )
    return rows.join(failed, on="row", how="left", maintain_order="left").with_columns(
        status_reason_code=pl.when(is_kill)
        .then(pl.lit("run.cancelled.manual_kill"))
        .otherwise(
            pl.coalesce(
                pl.col("template_id").replace_strict(codes, default=None, return_dtype=pl.String),
                pl.col("status").replace_strict(_REASONS, default=None, return_dtype=pl.String),
            )
        ),
        status_reason_summary=pl.when(is_kill)
        .then(pl.lit("Manually cancelled via `li kill`."))
        .otherwise(
            pl.coalesce(
                "message",
                pl.col("status").replace_strict(_SUMMARIES, default=None, return_dtype=pl.String),
            )
        ),
        status_evidence_refs=pl.when(is_kill)
        .then(kill)
        .when(pl.col("status").is_not_null())
        .then(pl.lit("[]")),
    )


def _words(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """Names: ids, agent, model, project, playbook, paths."""
    row, seed = pl.col("row"), plan.seed
    providers = dict(
        zip(MODELS, ("anthropic", "anthropic", "openai", "openai", "google"), strict=True)
    )
    run_id = pl.concat_str(
        [
            pl.from_epoch(pl.col("started_at").cast(pl.Int64), time_unit="s").dt.strftime(
                "%Y%m%dT%H%M%S-"
            ),
            draws.hex_id(row, seed, "run", 6),
        ]
    )
    in_fan = (pl.col("kind") == "fanout") | (draws.uniform(row, seed, "invoked") < 0.1)
    fan = draws.hex_id(row // _FAN, seed, "invocation", 12)
    has_playbook = pl.col("kind").is_in(["play", "flow", "show-play"])
    return rows.with_columns(
        id=draws.uuid(row, seed, "session"),
        progression_id=draws.uuid(row, seed, "progression"),
        run_id=run_id,
        invocation_kind="kind",
        invocation_id=pl.when(in_fan).then(fan),
        agent_name=draws.one_of(row, seed, "agent", AGENTS),
        model=draws.one_of(row, seed, "model", MODELS),
        project=draws.one_of(row, seed, "project", PROJECTS),
        project_source=pl.lit("explicit"),
        source_kind=pl.lit("live"),
        playbook_name=pl.when(has_playbook).then(draws.one_of(row, seed, "playbook", PLAYBOOKS)),
        effort=draws.weighted(row, seed, "effort", {"high": 0.3, "medium": 0.3, None: 0.4}),
    ).with_columns(
        name=pl.concat_str([pl.col("agent_name"), pl.lit(" on "), pl.col("project")]),
        provider=pl.col("model").replace_strict(providers, return_dtype=pl.String),
        artifacts_path=pl.concat_str(
            [pl.lit("/home/op/.lionagi/runs/"), pl.col("run_id"), pl.lit("/artifacts")]
        ),
    )


def _papers(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """JSON columns and usage; empty ones hold the four letters ``null``, as lionagi's do."""
    row, seed = pl.col("row"), plan.seed
    is_over = pl.col("status").is_not_null() & (pl.col("status") != "running")
    has_contract = draws.uniform(row, seed, "contract") < 0.25
    is_graph = pl.col("kind").is_in(["play", "flow", "show-play", "fanout"])
    is_silent = (pl.col("end") == "timed_out") & (draws.uniform(row, seed, "silent") < 0.3)
    turns = pl.when(is_silent).then(0).otherwise(draws.integer(row, seed, "turns", 1, 60))
    cost = pl.when(draws.uniform(row, seed, "cost") < 0.8).then(turns * 0.021)
    return rows.with_columns(
        node_metadata=pl.concat_str(
            [
                pl.lit('{"lion_class": "lionagi.session.session.Session", "pid": '),
                draws.integer(row, seed, "pid", 1_000, 60_000),
                pl.lit(', "pid_create_time": '),
                pl.col("created_at"),
                pl.lit(
                    ', "pid_host": "build-7", "pid_boot_time": 1777500000.0,'
                    ' "process_identity_mode": "local", "drains_controls": true, "run_id": "'
                ),
                pl.col("run_id"),
                pl.when(is_graph).then(pl.lit(_OPERATIONS)).otherwise(pl.lit('"}')),
            ]
        ),
        artifact_contract_json=pl.when(has_contract)
        .then(
            pl.lit(
                '{"expected": [{"id": "report", "path": "report.md", "required": true,'
                ' "description": "what was found", "source": "playbook"}]}'
            )
        )
        .otherwise(pl.lit("null")),
        artifact_verification_json=pl.when(has_contract & (pl.col("status") == "completed"))
        .then(
            pl.concat_str(
                [
                    pl.lit('{"status": "passed", "checked_at": '),
                    pl.col("updated_at"),
                    pl.lit(
                        ', "missing_required": [], "missing_optional": [], "produced": '
                        '[{"id": "report", "path": "report.md", "size": 5120, "present": true}]}'
                    ),
                ]
            )
        )
        .otherwise(pl.lit("null")),
        ended_at_is_approximate=pl.lit(0, dtype=pl.Int64),
        duration_ms=pl.when(is_over).then(pl.col("duration_s") * 1_000.0),
        num_turns=pl.when(is_over).then(turns),
        input_tokens=pl.when(is_over).then(turns * 4_200),
        output_tokens=pl.when(is_over).then(turns * 610),
        total_cost_usd=pl.when(is_over).then(cost),
        cc_session_id=pl.lit(None, dtype=pl.String),
        user_label=pl.lit(None, dtype=pl.String),
        user=pl.lit(None, dtype=pl.String),
        first_msg_id=pl.when(plan.n_messages > 0).then(message_id(plan, row, pl.lit(0))),
        last_msg_id=pl.lit(None, dtype=pl.String),
        show_topic=pl.lit(None, dtype=pl.String),
        show_play_name=pl.lit(None, dtype=pl.String),
        current_phase=pl.lit(None, dtype=pl.String),
        agent_hash=draws.hex_id(row, seed, "agent hash", 16),
    )
