"""What must be read of a store, what we read of it, and where the two differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import stateanalytics as sa
from stateanalytics.systems.linking import with_usage
from tests.contract.scenarios import SCENARIOS

SYSTEMS = {"claude": "claude_code"}
TRUTH = {
    "scenario": pl.String,
    "part": pl.String,
    "session_id": pl.String,
    "fact": pl.String,
    "truth": pl.String,
}
"""``part``: empty for the session itself, else ``fork`` or ``child``; every value is text."""
NOT_ON_DISK = {("codex", "refusal"), ("opencode", "killed_in_tool"), ("lionagi", "codex_refusal")}
"""Answers whose tokens the client throws away or had not yet written: nobody can read them."""


USD_PER_TOKEN = {"fresh": 5e-6, "cache_write": 6.25e-6, "cache_read": 0.5e-6, "output": 25e-6}
"""List prices of the model that Claude Code is started with."""


def truth_of(
    client: str,
    name: str,
    part: str,
    session_id: str | None,
    log: list[dict[str, Any]],
    children: Sequence[dict[str, Any]] = (),
) -> Iterator[dict[str, str | None]]:
    """The facts of one session, from what the provider answered and what the table expects.

    ``children`` are the answers to its subagents: what it cost includes them.
    """
    scenario = SCENARIOS["child" if part == "child" else name]
    facts: dict[str, Any] = {}
    whole = [row for row in log if row["is_whole"] and row["status"] < 400]
    if whole and (client, name) not in NOT_ON_DISK:
        usage = [row["usage"] for row in whole]
        has_cache_writes = "claude" in (client, scenario.agent)
        facts["n_input_tokens"] = sum(
            each["fresh"] + each["cache_read"] + each["cache_write"] for each in usage
        )
        facts["n_output_tokens"] = sum(each["output"] for each in usage)
        facts["n_cache_read_tokens"] = sum(each["cache_read"] for each in usage)
        if has_cache_writes:
            facts["n_cache_write_tokens"] = sum(each["cache_write"] for each in usage)
        if client != "lionagi":
            facts["n_tool_calls"] = sum(row["n_calls"] for row in whole)
        # A process that is killed records no cost, and a subagent's is its parent's.
        if client == "claude" and scenario.signal != "KILL" and part != "child":
            paid = [*usage, *(row["usage"] for row in children)]
            usd = sum(each[kind] * price for each in paid for kind, price in USD_PER_TOKEN.items())
            facts["cost_usd"] = round(usd, 9)
    if client == "lionagi":
        asked = {row["session_id"] for row in log if row["session_id"]}
        facts["transcripts"] = " ".join(sorted(asked)) or None
        facts["timeout_s"] = scenario.time_limit_s and float(scenario.time_limit_s)
    for fact, value in scenario.expected.items():
        of, _, rest = fact.rpartition(".")
        if of in ("", client):
            facts[rest] = value
    facts = {fact: value for fact, value in facts.items() if value is not None}
    common = {"scenario": name, "part": part, "session_id": session_id}
    for fact, value in facts.items():
        yield common | {"fact": fact, "truth": str(value)}


def read_store(stores: list[Path], as_of: datetime) -> sa.Snapshot:
    """Stores as they are read a day after their last record, when silence means something."""
    return sa.read(*stores, as_of=as_of + timedelta(days=1), progress=False)


def compare(snap: sa.Snapshot, client: str, truth: pl.DataFrame) -> pl.DataFrame:
    """Each fact with what was read of it: ``ours`` is null where the session is not there."""
    system = SYSTEMS.get(client, client)
    sessions = {
        row["entity_id"]: row
        for row in with_usage(snap.table("entities"))
        .filter(entity_type="session", system=system)
        .join(
            snap.table("states").select(
                "source", "entity_type", "entity_id",
                "lifecycle", "outcome", "health", "reason_codes",
            ),
            on=("source", "entity_type", "entity_id"),
        )
        .to_dicts()
    }  # fmt: skip
    counts = _counts(snap, client)
    signs = sa.failures.signs(snap).group_by("thread_id").agg(pl.col("sign").sort().str.join(", "))
    for of, found in signs.iter_rows():
        counts.setdefault(of, {})["signs"] = found
    # A session without calls has no row among opencode's.
    no_count = 0 if client == "opencode" else None

    def ours(row: dict[str, Any]) -> str | None:
        of = row["session_id"]
        if row["part"] == "child":
            children = [key for key, value in sessions.items() if value["parent_id"] == of]
            of = children[0] if len(children) == 1 else None
        session = sessions.get(of)
        if session is None:
            return None
        fact = row["fact"]
        if fact == "cause":
            codes = (session["reason_codes"] or "").split(", ")
            causes = [code.rpartition(".")[2] for code in codes]
            return row["truth"] if row["truth"] in causes else ", ".join(causes)
        value = session[fact] if fact in session else counts.get(of, {}).get(fact, no_count)
        value = round(value, 9) if isinstance(value, float) else value
        return None if value is None else str(value)

    rows = [row | {"ours": ours(row)} for row in truth.to_dicts()]
    return pl.DataFrame(rows, schema=TRUTH | {"ours": pl.String})


def _counts(snap: sa.Snapshot, client: str) -> dict[str, dict[str, Any]]:
    """Counts that stand in the system's own frame of sessions, not in ``entities``."""
    if client in ("claude", "codex"):
        frame = snap.table("claude_sessions" if client == "claude" else "codex_sessions")
        return {row["thread_id"]: row for row in frame.to_dicts()}
    if client == "lionagi":
        direct = snap.table("links").filter(pl.col("linked_by") != "parent").sort("told_id")
        found = direct.group_by("entity_id").agg(transcripts=pl.col("told_id").str.join(" "))
        return {row["entity_id"]: row for row in found.to_dicts()}
    if client != "opencode":
        return {}
    is_error = pl.col("state").is_in(["error", "failed"]) | (pl.col("exit_code") != 0)
    frame = (
        snap.table("opencode_tools")
        .group_by("session_id")
        .agg(n_tool_calls=pl.len(), n_tool_errors=is_error.fill_null(False).sum())
    )
    return {row["session_id"]: row for row in frame.to_dicts()}


def unknown_kinds(snap: sa.Snapshot) -> list[str]:
    """Records, events, tables and files that our reading does not know, as findings say it."""
    wanted = pl.col("code").str.contains("unknown|table_not_read")
    found = snap.table("findings").filter(wanted)
    return [
        f"{row['code']}: {row['n_rows']} × {row['example'] or row['message']}"
        for row in found.to_dicts()
    ]


def wrong(facts: pl.DataFrame) -> pl.DataFrame:
    """The facts that we read otherwise than they are."""
    return facts.filter(~pl.col("truth").eq_missing(pl.col("ours")))
