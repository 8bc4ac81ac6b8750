"""Tokens and cost of the Go rewrite, event by event and model by model."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.go_tables import GoTables

_NANO = 1e-9
_REPORTED = ("n_input_tokens", "n_output_tokens", "cost_usd")
SUMS = (*_REPORTED, "n_cache_read_tokens", "n_cache_write_tokens")


def _measured(tables: GoTables) -> pl.DataFrame:
    """What transcripts say of each answer of a model, null where that was not measured."""
    # A provider without such a counter has a number there all the same.
    known = {
        f"{name}_tokens": pl.when(
            pl.col(f"{name}_provenance").ne_missing("unsupported") & (pl.col(f"{name}_tokens") >= 0)
        ).then(f"{name}_tokens")
        for name in ("input", "cached_input", "output")
    }
    events = tables["model_usage_events"].filter(pl.col("model_id").ne_missing("<synthetic>"))
    return events.with_columns(**known)


def unknown_events(tables: GoTables) -> pl.DataFrame:
    """Answers of which a part should have been measured, and is not known."""
    is_lost = (
        pl.col(f"{name}_tokens").is_null() & pl.col(f"{name}_provenance").ne_missing("unsupported")
        for name in ("input", "output")
    )
    return _measured(tables).filter(pl.any_horizontal(is_lost))


def read_usage(tables: GoTables) -> pl.DataFrame:
    """What transcripts and chats say that was used, in the columns of `frames.USAGE`.

    Notes
    -----
    Both may tell of the same work: tokens of a chat count where its session has no events.
    What a chat used is its sum up to its last write; one of a project is of no single session.
    """
    of_binding = tables["usage_bindings"].select("session_id", "initial_model_id", binding_id="id")
    openai = tables["openai_usage_event_details"].rename({"event_id": "id"})
    anthropic = tables["anthropic_usage_event_details"].rename({"event_id": "id"})
    events = (
        _measured(tables)
        .join(of_binding, on="binding_id", how="left", maintain_order="left")
        .join(openai, on="id", how="left", maintain_order="left")
        .join(anthropic, on="id", how="left", maintain_order="left")
        .select(
            "session_id",
            at="created_at",
            measured=pl.lit("event"),
            provider="provider_id",
            model=pl.coalesce("model_id", "initial_model_id"),
            n_input_tokens="input_tokens",
            n_cache_read_tokens="cached_input_tokens",
            n_cache_write_tokens=pl.coalesce(
                "openai_cache_write_input_tokens", "anthropic_cache_creation_input_tokens"
            ),
            n_output_tokens="output_tokens",
            n_reasoning_tokens="openai_reasoning_output_tokens",
            estimated_cost=pl.col("estimated_cost_nanos") * _NANO,
        )
    )
    is_usd = pl.col("usage_currency").fill_null("") == "USD"
    chats = tables["conversations"].select(
        session_id=pl.when(pl.col("scope") == "session").then("session_id"),
        project="project_id",
        at="updated_at",
        measured=pl.lit("chat"),
        model="model",
        n_input_tokens="usage_input_tokens",
        n_cache_read_tokens="usage_cached_tokens",
        n_output_tokens="usage_output_tokens",
        cost_usd=pl.when(is_usd).then("usage_cost"),
    )
    is_measured = pl.col("session_id").is_in(events["session_id"].drop_nulls().unique().implode())
    # Tokens would count twice; what it cost is told by chats only.
    tokens = pl.col("^n_.*_tokens$")
    told = chats.with_columns(pl.when(~is_measured.fill_null(value=False)).then(tokens)).filter(
        pl.any_horizontal(pl.col(_REPORTED).is_not_null())
    )
    return pl.concat([events, told], how="diagonal")


def summed(usage: pl.DataFrame) -> pl.DataFrame:
    """What each session used: null where nothing was measured, a lower bound where not all was."""
    known = [
        pl.when(pl.col(name).is_not_null().any()).then(pl.col(name).sum()).alias(name)
        for name in SUMS
    ]
    last = (
        pl.col(name).drop_nulls().last().alias(f"used_{name}") for name in ("model", "provider")
    )
    rows = usage.filter(pl.col("entity_id").is_not_null())
    return (
        rows.sort("at", "model", nulls_last=True)
        .group_by("entity_id")
        .agg(*known, *last, used_at=pl.col("at").filter(measured="event").max())
    )


def used_tokens(facts: Facts) -> pl.DataFrame:
    """What sessions used: the rows of `frames.USAGE` that are of one."""
    return facts.detail(frames.USAGE).drop_nulls("entity_id")
