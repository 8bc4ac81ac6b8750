"""Branches, lists of messages and messages of a scaled store."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tests.generators import draws
from tests.generators.distributions import log_normal
from tests.generators.plan import Plan


def talk(plan: Plan, rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Progressions, branches and messages of the sessions of one piece, none for a mean of 0."""
    if not plan.n_messages:
        return
    said = _messages(plan, rows)
    lists = (
        said.group_by("row", maintain_order=True)
        .agg(pl.col("id").str.join('", "'))
        .select("row", collection=pl.format('["{}"]', "id"))
    )
    listed = rows.join(lists, on="row", how="left", maintain_order="left").with_columns(
        pl.col("collection").fill_null("[]")
    )
    branch, theirs = _branch_id(plan), draws.uuid(pl.col("row"), plan.seed, "branch/list")
    for name in (pl.col("progression_id"), theirs):
        yield "progressions", listed.select(name.alias("id"), "created_at", "collection")
    yield "messages", said.drop("row")
    yield (
        "branches",
        rows.select(
            branch.alias("id"),
            "created_at",
            node_metadata=pl.lit('{"lion_class": "lionagi.session.branch.Branch"}'),
            user=pl.col("id"),
            session_id=pl.col("id"),
            progression_id=theirs,
            model="model",
            provider="provider",
            agent_name="agent_name",
            status=pl.when(pl.col("status") != "running").then("status"),
            ended_at="ended_at",
        ),
    )


def _messages(plan: Plan, rows: pl.DataFrame) -> pl.DataFrame:
    """Messages of the sessions of one piece: uneven gaps, the last one at last_message_at."""
    row, seed, nth = pl.col("row"), plan.seed, pl.col("nth")
    mean = plan.n_messages
    number = row * (2 * mean) + nth
    weight = log_normal(number, seed, "gap", median=1.0, sigma=1.2)
    passed = pl.col("weight").cum_sum().over("row") / pl.col("weight").sum().over("row")
    span = pl.col("last_message_at") - pl.col("started_at")
    role = (
        pl.when(nth == 0)
        .then(pl.lit("user"))
        .otherwise(pl.when(nth % 2 == 1).then(pl.lit("assistant")).otherwise(pl.lit("action")))
    )
    lion_class = {"user": 2, "assistant": 3, "action": 5}
    size = draws.integer(number, seed, "size", 1, 6)
    return (
        rows.select("row", "id", "started_at", "last_message_at")
        .with_columns(n=draws.integer(row, seed, "n messages", 1, 2 * mean - 1))
        .with_columns(nth=pl.int_ranges(0, "n", dtype=pl.UInt64))
        .explode("nth")
        .with_columns(weight=weight)
        .with_columns(created_at=pl.col("started_at") + span * passed, role=role)
        .select(
            "row",
            message_id(plan, row, nth).alias("id"),
            "created_at",
            node_metadata=pl.lit("{}"),
            content=pl.concat_str(
                [
                    pl.lit('{"assistant_response": "'),
                    pl.lit("looked at the repository and went on. ").repeat_by(size).list.join(""),
                    pl.lit('"}'),
                ]
            ),
            sender="id",
            recipient=_branch_id(plan),
            role="role",
            lion_class=pl.col("role").replace_strict(lion_class, return_dtype=pl.Int64),
        )
    )


def message_id(plan: Plan, row: pl.Expr, nth: pl.Expr) -> pl.Expr:
    """The id of the nth message of each session."""
    return draws.uuid(row * (2 * max(plan.n_messages, 1)) + nth, plan.seed, "message")


def _branch_id(plan: Plan) -> pl.Expr:
    return draws.uuid(pl.col("row"), plan.seed, "branch")
