"""Sessions as canonical entities: what fits `schema.ENTITIES`; the rest is in ``ao_sessions``."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.agent_orchestrator.mapping_reasons import list_reasons
from stateanalytics.systems.agent_orchestrator.moments import stored_moment
from stateanalytics.systems.recorded import add_axes

_SEEN_AT = (
    r"activity_signal=valid\b.*\bactivity=(?:active|ready|idle|blocked|waiting_input) at=(\S+)"
)
_OBSERVED_ENDS = ("runtime_lost", "agent_process_exited", "probe_failure", "auto_cleanup")


def entities(sessions: pl.DataFrame, entries: pl.DataFrame) -> pl.DataFrame:
    """One row a session, told by its current record and by its signs of life.

    Parameters
    ----------
    sessions : polars.DataFrame
        Records with their meaning (`mapped_axes.add_meaning`).
    entries : polars.DataFrame
        Linked entries of all logs.

    Returns
    -------
    polars.DataFrame
        Columns of `schema.ENTITIES`, in the order of the records.

    Notes
    -----
    The end of a session that was put away without one is the moment it was put away, and
    counts as approximate. ``raw_status`` is the one word that Agent Orchestrator shows, and
    the stored one where there are no axes.
    """
    current = sessions.filter("is_current")
    is_over = pl.col("outcome").is_not_null() & (pl.col("outcome") != "unknown")
    declared = pl.when(
        (pl.col("session_reason") == "research_complete") & (pl.col("report_state") == "completed")
    ).then("report_at")
    stored_end = pl.coalesce("terminated_at", "completed_at", declared)
    has_words = pl.col("is_synthesized").fill_null(value=False)
    seen_at = stored_moment(pl.col("evidence_text").str.extract(_SEEN_AT))
    joined = current.join(_signs(entries), on="entity_id", how="left", maintain_order="left").join(
        _messages(current), on="entity_id", how="left", maintain_order="left"
    )
    axes = ("lifecycle", "outcome", "health", "delivery")
    return add_axes(_with_parents(joined), *axes).select(
        pl.col("^recorded_.*$"),
        entity_type=pl.lit("session"),
        entity_id="entity_id",
        parent_type=pl.when(pl.col("parent_id").is_not_null()).then(pl.lit("session")),
        parent_id="parent_id",
        session_id="entity_id",
        kind="kind",
        name="name",
        project="project",
        agent="agent",
        model="model",
        recorded_by=pl.lit("live"),
        raw_status=pl.when(has_words).then("stored_status").otherwise("legacy_status"),
        created_at="created_at",
        started_at=pl.coalesce("started_at", "created_at"),
        ended_at=pl.when(is_over).then(pl.coalesce(stored_end, "archived_at")),
        updated_at="last_transition_at",
        last_activity_at=pl.coalesce(
            pl.max_horizontal("signed_at", "report_at", "activity_last_at", seen_at),
            "started_at",
            "created_at",
        ),
        is_end_approximate=pl.when(
            is_over & pl.coalesce(stored_end, "archived_at").is_not_null()
        ).then(stored_end.is_null()),
        end_written_by=pl.when(is_over & stored_end.is_not_null()).then(
            pl.when(pl.col("session_reason").is_in(_OBSERVED_ENDS))
            .then(pl.lit("observer"))
            .otherwise(pl.lit("executor"))
        ),
        n_children="n_children",
        reason_code="reason_0",
        reason_message="message",
        evidence=_evidence(),
    )


def _signs(entries: pl.DataFrame) -> pl.DataFrame:
    return (
        entries.filter((pl.col("is_activity") == "true") & pl.col("entity_id").is_not_null())
        .group_by("entity_id")
        .agg(signed_at=pl.col("at").max())
    )


def _messages(current: pl.DataFrame) -> pl.DataFrame:
    listed = list_reasons(current, key=["entity_id"])
    return listed.filter(pl.col("order") == 0).select("entity_id", "message")


def _with_parents(current: pl.DataFrame) -> pl.DataFrame:
    """The orchestrator of a worker: none is stored, so that only a project's one counts."""
    is_boss = pl.col("kind") == "orchestrator"
    bosses = (
        current.filter(is_boss & pl.col("project").is_not_null())
        .unique("project", keep="none")
        .select("project", _boss="entity_id")
    )
    workers = current.filter(~is_boss).group_by("project").agg(_n=pl.len().cast(pl.Int64))
    linked = current.join(bosses, on="project", how="left", maintain_order="left").join(
        workers, on="project", how="left", maintain_order="left"
    )
    is_the_boss = is_boss & (pl.col("_boss") == pl.col("entity_id"))
    return linked.with_columns(
        parent_id=pl.when(~is_boss).then("_boss"),
        n_children=pl.when(is_the_boss).then(pl.col("_n").fill_null(0)),
    )


def _evidence() -> pl.Expr:
    """What the last poll saw, the pull request, the agent's words: JSON list with kinds."""
    references = {
        "evidence_text": "tool_result",
        "pr_url": "url",
        "report_note": "message",
    }
    pieces = [
        pl.when(pl.col(name).is_not_null()).then(
            pl.struct(kind=pl.lit(kind), detail=name).struct.json_encode()
        )
        for name, kind in references.items()
    ]
    joined = pl.concat_str(pieces, separator=",", ignore_nulls=True)
    return pl.when(joined != "").then(pl.format("[{}]", joined))
