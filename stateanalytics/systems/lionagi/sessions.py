"""Sessions and their branches: the work itself."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from stateanalytics.io.files import as_number
from stateanalytics.systems.lionagi.contracts import judge_contracts, judge_verdicts, parse
from stateanalytics.systems.lionagi.raw import Raw
from stateanalytics.systems.situations import first_of_status, texts_of

# Where a model is not known, mirrored transcripts say so in angle brackets.
_PLACEHOLDER = r"^<.*>$"
_UNTIL = r"\(until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\) to complete"
MS_PER_S = 1000.0
_CACHE_APART = ("claude_code", "anthropic")
US_PER_S = 1e6


def sessions(raw: Raw) -> pl.DataFrame:
    """One row a session, with the columns of ``entities`` that its own row tells.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ...)
        Names as in `stateanalytics.core.schema.ENTITIES`.
    """
    limited = _with_deadlines(_with_timeouts(_with_contracts(raw["sessions"])), raw)
    rows = _with_caches(_with_messages(limited, raw), raw)
    return rows.select(
        pl.col("invocation_id", "project", "provider", "created_at", "started_at", "ended_at"),
        pl.col("updated_at", "last_message_at", "n_messages", "has_artifacts"),
        pl.col("is_contract_valid", "verdict", "is_verdict_valid", "n_expected"),
        pl.col("n_required_missing", "n_optional_missing", "n_produced"),
        pl.col("timeout_s", "timeout_from", "timeout_elapsed_s"),
        entity_type=pl.lit("session"),
        entity_id="id",
        parent_type=pl.when(pl.col("invocation_id").is_not_null()).then(pl.lit("invocation")),
        parent_id="invocation_id",
        session_id="id",
        run_id=_run_id(),
        native_session_id=_first_text("cc_session_id"),
        kind="invocation_kind",
        name=_first_text("user_label", "name", "playbook_name", "agent_name"),
        agent="agent_name",
        model=known_model("model"),
        playbook="playbook_name",
        recorded_by=_recorded_by(),
        raw_status="status",
        last_activity_at=pl.coalesce("last_message_at", "updated_at", "started_at"),
        # Before 0.35 nothing was estimated, so a column that is not there says: exact.
        is_end_approximate=pl.when(pl.col("ended_at").is_not_null()).then(
            pl.col("ended_at_is_approximate").fill_null(value=False)
        ),
        n_model_turns="num_turns",
        has_contract=pl.col("is_contract_valid").is_not_null(),
        **reason("reason_codes"),
        **(usage() | _usage_with_caches()),
        stored_health="health",
        stored_delivery="delivery",
        stored_reason_codes="reason_codes",
    )


def branches(raw: Raw) -> pl.DataFrame:
    """One row a branch (one agent's leg of a session); its status mirrors its session's.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_branches, ...)
        Names as in `stateanalytics.core.schema.ENTITIES`.
    """
    lengths = raw["progressions"].select(progression_id="id", n_messages="n_messages")
    named = raw["sessions"].join(raw["branches"], left_on="id", right_on="session_id", how="semi")
    whose = named.select(
        "invocation_id",
        "project",
        session_id="id",
        kind="invocation_kind",
        recorded_by=_recorded_by(),
        session_run_id=_run_id(),
    )
    rows = (
        raw["branches"]
        .join(lengths, on="progression_id", how="left", maintain_order="left")
        .join(whose, on="session_id", how="left", maintain_order="left")
    )
    return rows.select(
        pl.col("session_id", "invocation_id", "kind", "project", "provider", "recorded_by"),
        pl.col("created_at", "started_at", "ended_at", "n_messages"),
        entity_type=pl.lit("branch"),
        entity_id="id",
        parent_type=pl.when(pl.col("session_id").is_not_null()).then(pl.lit("session")),
        parent_id="session_id",
        run_id="session_run_id",
        name=_first_text("name", "agent_name"),
        agent="agent_name",
        model=known_model("model"),
        directory=pl.col("launch_dir").replace("", None),
        raw_status="status",
        last_activity_at=pl.col("started_at"),
        n_model_turns="num_turns",
        **usage(),
    )


def with_chats(of_sessions: pl.DataFrame, events: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Sessions with how many prompts, and prompts and answers, they had; null: some are lost.

    Parameters
    ----------
    of_sessions : polars.DataFrame
        With the columns ``key`` and ``n_messages``.
    events : polars.DataFrame
        What happened up to the instant.
    key : list of str
        The columns that name a session in both.
    """
    said = events.filter((pl.col("kind") == "message") & pl.col("entity_id").is_not_null())
    is_chat = pl.col("role").is_in(["user", "assistant"])
    counts = said.group_by(key).agg(
        n_found=pl.len().cast(pl.Int64),
        n_turns=(pl.col("role") == "user").sum().cast(pl.Int64),
        n_chat_messages=is_chat.sum().cast(pl.Int64),
    )
    filled = ("n_turns", "n_chat_messages")
    others = of_sessions.drop(filled, strict=False)
    is_whole = pl.col("n_messages") == pl.col("n_found").fill_null(0)
    return (
        others.join(counts, on=key, how="left", maintain_order="left")
        .with_columns(pl.when(is_whole).then(pl.col(filled).fill_null(0)))
        .drop("n_found")
    )


def reason(codes: str | None = None) -> dict[str, pl.Expr]:
    """The stored reason: code, words, and evidence where it is a list.

    Without a code of its own, a row has the first of its list of ``codes`` (ADR-0033,
    appendix A) that says why it is in its status, else the first at all.
    """
    listed = pl.lit(None, pl.String) if codes is None else first_of_status(texts_of(codes))
    return {
        "reason_code": pl.coalesce(pl.col("status_reason_code").replace("", None), listed),
        "reason_message": pl.col("status_reason_summary").replace("", None),
        "evidence": json_list("status_evidence_refs"),
    }


def usage() -> dict[str, pl.Expr]:
    """Tokens, cost and duration as stored; null stays null, it never means free."""
    return {
        "n_input_tokens": pl.col("input_tokens"),
        "n_output_tokens": pl.col("output_tokens"),
        "cost_usd": pl.col("total_cost_usd"),
        "stored_duration_s": pl.col("duration_ms") / MS_PER_S,
    }


def _with_caches(rows: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Sessions with ``cached`` and ``cache_written``, which only signals of ends of runs report.

    A branch that is resumed reports all that it used so far, branches next to each other each
    their own: that is taken which has the same input tokens as the session, else nothing.
    """
    counts = {"input": "input_tokens", "cached": "cached_tokens", "written": "cache_write_tokens"}
    ends = raw["session_signals"].filter(pl.col("input_tokens").is_not_null()).sort("seq")
    reported = ends.group_by(id="session_id").agg(
        *(pl.col(column).last().alias(f"last_{name}") for name, column in counts.items()),
        *(
            pl.when(pl.col(column).is_not_null().all())
            .then(pl.col(column).sum())
            .alias(f"all_{name}")
            for name, column in counts.items()
        ),
    )

    def that_fits(name: str) -> pl.Expr:
        return pl.coalesce(
            pl.when(pl.col(f"{of}_input") == pl.col("input_tokens")).then(f"{of}_{name}")
            for of in ("last", "all")
        )

    return (
        rows.join(reported, on="id", how="left", maintain_order="left")
        .with_columns(cached=that_fits("cached"), cache_written=that_fits("written"))
        .select(*rows.columns, "cached", "cache_written")
    )


def _usage_with_caches() -> dict[str, pl.Expr]:
    """Tokens read in whatever way; Claude counts those of a cache apart, others within."""
    of_caches = pl.col("cached") + pl.col("cache_written")
    is_apart = pl.col("provider").is_in(_CACHE_APART).fill_null(value=False) | (
        of_caches > pl.col("input_tokens")
    )
    # Of a provider whose caches lionagi does not ask for, it writes 0.
    is_known = is_apart | (of_caches > 0)
    return {
        "n_input_tokens": pl.col("input_tokens") + pl.when(is_apart).then(of_caches).fill_null(0),
        "n_cache_read_tokens": pl.when(is_known).then("cached"),
        "n_cache_write_tokens": pl.when(is_known).then("cache_written"),
    }


def json_list(column: str) -> pl.Expr:
    """A JSON text that is a list; any other JSON becomes null."""
    return pl.when(pl.col(column).str.strip_chars_start().str.starts_with("[")).then(column)


def known_model(column: str) -> pl.Expr:
    """A model id; placeholders such as ``<synthetic>`` become null."""
    return pl.when(~pl.col(column).str.contains(_PLACEHOLDER)).then(column)


def _first_text(*columns: str) -> pl.Expr:
    return pl.coalesce(pl.col(column).replace("", None) for column in columns)


def _run_id() -> pl.Expr:
    # An import names the session after its run directory.
    imported = pl.when(pl.col("source_kind") == "imported_fs").then("id")
    return pl.coalesce("run_id", "metadata_run_id", imported)


def _recorded_by() -> pl.Expr:
    """Live, imported or mirrored; mirrors of Claude Code are stored as live (SCHEMA_HISTORY 4)."""
    identity = pl.col("node_metadata").str.json_path_match("$.process_identity_mode")
    is_external = (identity == "external").fill_null(value=False)
    is_mirror = (pl.col("source_kind") == "imported_codex") | (
        (pl.col("agent_name") == "claude-code")
        & (
            (pl.col("provider") == "anthropic")
            | (pl.col("cc_session_id").fill_null("") != "")
            | is_external
        )
    )
    return (
        pl.when(is_mirror)
        .then(pl.lit("mirrored"))
        .when(pl.col("source_kind").str.starts_with("imported"))
        .then(pl.lit("imported"))
        .otherwise(pl.lit("live"))
    )


def stored_timeouts(rows: pl.DataFrame) -> pl.DataFrame:
    """Limits, and the time that had passed at them, from metadata (keys of ADR-0025).

    Parameters
    ----------
    rows : polars.DataFrame
        Sessions with ``id`` and ``node_metadata``.

    Returns
    -------
    polars.DataFrame, shape (n_values, 4)
        ``id``, ``key`` (in `TIMEOUTS`), ``seconds`` (null where it is no positive number)
        and ``stored`` (the value as JSON).
    """
    has_any = pl.any_horizontal(
        pl.col("node_metadata").str.contains(f'"{key}"', literal=True) for key in TIMEOUTS
    )
    limited = rows.filter(has_any)
    values = [
        (identity, key, number if number and number > 0 else None, json.dumps(value))
        for identity, text in limited.select("id", "node_metadata").iter_rows()
        for key, value in _metadata(text).items()
        if key in TIMEOUTS and value is not None
        for number in (as_number(value),)
    ]
    columns = {"id": pl.String, "key": pl.String, "seconds": pl.Float64, "stored": pl.String}
    return pl.DataFrame(values, schema=columns, orient="row")


TIMEOUTS = {"timeout_seconds": "timeout_s", "timeout_elapsed": "timeout_elapsed_s"}
"""Keys of the metadata of a session, and the columns of ``entities`` that they fill."""


def _metadata(text: str) -> dict[str, Any]:
    """What the metadata say; a limit of no use where SQLite reads them and Python does not."""
    try:
        value = parse(text)
    except ValueError:  # a number of thousands of digits, for one
        return {"timeout_seconds": "unreadable"}
    return value if isinstance(value, dict) else {}


def _with_timeouts(rows: pl.DataFrame) -> pl.DataFrame:
    stored = stored_timeouts(rows)
    for key, column in TIMEOUTS.items():
        of_key = stored.filter(key=key).select("id", pl.col("seconds").alias(column))
        rows = rows.join(of_key, on="id", how="left", maintain_order="left")
    return rows


def _with_deadlines(rows: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """The limit of a command line, from the second that its prompt says it ends in.

    The prompt was made between the branch and the session, for a whole number of seconds: where
    only one fits, it is the limit.
    """
    until = pl.col("deadline").str.extract(_UNTIL).str.to_datetime(time_zone="UTC", strict=False)
    ends = raw["messages"].select(first_msg_id="id", until=until).drop_nulls()
    began = raw["branches"].group_by(id="session_id").agg(began_at=pl.col("created_at").min())
    since_s = [
        (pl.col("until") - pl.col(name)).dt.total_microseconds() / US_PER_S
        for name in ("created_at", "began_at")
    ]
    least_s = since_s[0].ceil()
    is_only = (least_s > 0) & (least_s + 1 >= since_s[1] + 1)
    limit_s = pl.when(is_only).then(least_s)
    source = pl.when(pl.col("timeout_s").is_not_null()).then(pl.lit("metadata"))
    from_prompt = pl.when(limit_s.is_not_null()).then(pl.lit("deadline"))
    return (
        rows.join(ends, on="first_msg_id", how="left", maintain_order="left")
        .join(began, on="id", how="left", maintain_order="left")
        .with_columns(
            timeout_s=pl.coalesce("timeout_s", limit_s),
            timeout_from=pl.coalesce(source, from_prompt),
        )
        .drop("until", "began_at")
    )


def _with_contracts(rows: pl.DataFrame) -> pl.DataFrame:
    contracts = judge_contracts(rows["artifact_contract_json"])
    verdicts = judge_verdicts(rows["artifact_verification_json"])
    return _looked_up(
        _looked_up(rows, "artifact_contract_json", contracts),
        "artifact_verification_json",
        verdicts,
    )


def _looked_up(rows: pl.DataFrame, column: str, judged: pl.DataFrame) -> pl.DataFrame:
    text, *answers = judged.columns
    if judged.is_empty():
        return rows.with_columns(
            pl.lit(None, judged.schema[answer]).alias(answer) for answer in answers
        )
    return rows.join(judged, left_on=column, right_on=text, how="left", maintain_order="left")


def _with_messages(rows: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Messages over all branches; the session's own progression lists them once more.

    Null where a branch's list is not there or cannot be read: nobody knows how many.
    """
    lengths = raw["progressions"].select(progression_id="id", n_messages="n_messages")
    counts = (
        raw["branches"]
        .select("session_id", "progression_id")
        .join(lengths, on="progression_id", how="left")
        .group_by("session_id")
        .agg(n=pl.col("n_messages").sum(), is_known=pl.col("n_messages").is_not_null().all())
    )
    n_messages = pl.when(pl.col("is_known").fill_null(value=True)).then(pl.col("n").fill_null(0))
    return (
        rows.join(counts, left_on="id", right_on="session_id", how="left", maintain_order="left")
        .with_columns(n_messages=n_messages)
        .drop("n", "is_known")
    )
