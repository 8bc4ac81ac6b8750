"""Sessions, their branches and promises, and the work around them: requests, shows, teams.

A contract is ``{"expected": [{"id", "path", "required", ...}]}``, a verdict
``{"status", "missing_required", "missing_optional", "produced", ...}``. Both are
JSON that anybody may have written, so each distinct text is parsed once and judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.joins import collected, left_joined
from stateanalytics.io.files import as_number
from stateanalytics.systems.lionagi.frames import Raw
from stateanalytics.systems.situations import first_of_status, first_that_holds, texts_of

# Mirrored transcripts have a placeholder in angle brackets for an unknown model.
_PLACEHOLDER = r"^<.*>$"
_UNTIL = r"\(until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\) to complete"
MS_PER_S = 1000.0
_COUNTS_CACHES_APART = ("claude_code", "anthropic")

VERDICTS = ("passed", "warning", "failed")
_ID = re.compile(r"[A-Za-z0-9_-]+")
_GLOB = frozenset("*?[]{}~")
# The time of the check makes equal verdicts differ, and means nothing here.
_CHECKED_AT = r'"checked_at": ?[0-9.]+, ?'
_CONTRACT = pl.Schema(
    {"contract": schema.TEXT, "is_contract_valid": schema.YES_NO, "n_expected": schema.INTEGER}
)
_VERDICT = pl.Schema(
    {
        "verification": schema.TEXT,
        "verdict": schema.TEXT,
        "is_verdict_valid": schema.YES_NO,
        **dict.fromkeys(("n_required_missing", "n_optional_missing", "n_produced"), schema.INTEGER),
    }
)


_UNEXPLAINED = r"^(?:|Run failed\.|\d+ operation\(s\) failed: [^\n]*)$"
"""What lionagi says of a failure in a worker or an engine, whatever its error was."""


_SUMMARIES = {
    "sessions": ("status_reason_summary", "ended_at", "id"),
    "status_transitions": ("reason_summary", "created_at", "entity_id"),
}


def with_errors(raw: Raw) -> dict[str, pl.DataFrame]:
    """Tables in which a summary that names no error has that of the last run that failed."""
    failed = raw["session_signals"].filter(pl.col("kind") == "RunFailed")
    engines = raw["engine_runs"].select("error", session_id="signal_session_id", ts="ended_at")
    errors = pl.concat([failed.select(engines.columns), engines]).filter(pl.col("error") != "")
    tables = {}
    for table, key in _SUMMARIES.items():
        summary, at, identity = key
        rows = raw[table].with_columns(pl.col(summary).fill_null(""))
        is_bare = pl.col(summary).str.contains(_UNEXPLAINED)
        bare = rows.filter(pl.col("status") == "failed", is_bare).select(key)
        before = bare.join(errors, left_on=identity, right_on="session_id").filter(
            pl.col("ts") <= pl.col(at)
        )
        last = before.sort("ts").group_by(key).agg(pl.col("error").last())
        named = pl.concat_str(summary, "error", separator=" ").str.strip_chars()
        tables[table] = (
            left_joined(rows, last, on=list(key))
            .with_columns(pl.coalesce(named, summary).alias(summary))
            .drop("error")
        )
    return tables


def sessions(raw: Raw) -> pl.DataFrame:
    """Sessions, one row each, with the columns of ``entities`` that their own rows give.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `frames.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ...)
        Names as in `stateanalytics.core.schema.ENTITIES`.
    """
    limited = _with_deadlines(_with_timeouts(_with_contracts(raw["sessions"])), raw)
    rows = _with_caches(_with_messages(limited, raw), raw)
    # An imported session has the name of its run directory.
    imported = pl.when(pl.col("source_kind") == "imported_fs").then("id")
    return rows.select(
        pl.col("invocation_id", "project", "provider", "created_at", "started_at", "ended_at"),
        pl.col("updated_at", "last_message_at", "n_messages", "has_artifacts"),
        pl.col("is_contract_valid", "verdict", "is_verdict_valid", "n_expected"),
        pl.col("n_required_missing", "n_optional_missing", "n_produced"),
        pl.col("timeout_s", "timeout_from", "timeout_elapsed_s"),
        entity_type=pl.lit("session"),
        entity_id="id",
        **parent(invocation="invocation_id"),
        session_id="id",
        run_id=pl.coalesce("run_id", "metadata_run_id", imported),
        native_session_id=first_text("cc_session_id"),
        kind="invocation_kind",
        name=first_text("user_label", "name", "playbook_name", "agent_name"),
        agent="agent_name",
        model=known_model("model"),
        playbook="playbook_name",
        recorded_by=_recorded_by(),
        raw_status="status",
        last_activity_at=pl.coalesce("last_message_at", "updated_at", "started_at"),
        # Before 0.35 no end was estimated: without the column, each is exact.
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
    """Branches (one agent's part of a session), one row each, with the status of their session.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `frames.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_branches, ...)
        Names as in `stateanalytics.core.schema.ENTITIES`.
    """
    lengths = raw["progressions"].select(progression_id="id", n_messages="n_messages")
    rows = raw["branches"].join(lengths, on="progression_id", how="left", maintain_order="left")
    return rows.select(
        pl.col("session_id", "provider", "created_at", "started_at", "ended_at", "n_messages"),
        entity_type=pl.lit("branch"),
        entity_id="id",
        **parent(session="session_id"),
        name=first_text("name", "agent_name"),
        agent="agent_name",
        model=known_model("model"),
        directory=pl.col("launch_dir").replace("", None),
        raw_status="status",
        last_activity_at=pl.col("started_at"),
        n_model_turns="num_turns",
        **usage(),
    )


OF_SESSION = {
    "play": ("invocation_id", "run_id", "project", "agent"),
    "branch": ("invocation_id", "run_id", "project", "kind", "recorded_by"),
    "dispatch": ("invocation_id",),
}
"""The columns of some types of entities that they have from their session, if it is there."""


def with_owners(
    rows: pl.DataFrame, sessions: pl.DataFrame, names: tuple[str, ...], *key: str
) -> pl.DataFrame:
    """Entities with columns of their session, of those that ``key`` and their id identify."""
    on = [*key, "owner_id"]
    # Only keys are joined: a join copies every column.
    ids = rows.lazy().select(*key, owner_id="session_id")
    owners = sessions.lazy().select(*key, *names, owner_id="entity_id").join(ids, on=on, how="semi")
    owned = ids.join(owners, on=on, how="left", maintain_order="left").select(names)
    others = [name for name in rows.columns if name not in names]
    return rows[others].hstack(owned.collect())


def with_chats(sessions: pl.DataFrame, events: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Sessions with their counts of prompts (``n_turns``) and of prompts and answers.

    Null where not every message of the session is an event. Where no session has the time of
    its last message, for which 0.26.0 had no column, they get that of the event.

    Parameters
    ----------
    sessions : polars.DataFrame
        With the columns ``key``, ``n_messages`` and the last moments.
    events : polars.DataFrame
        Events up to the instant.
    key : list of str
        The columns that identify a session in both.
    """
    messages = events.lazy().filter(
        (pl.col("kind") == "message") & pl.col("entity_id").is_not_null()
    )
    is_chat = pl.col("role").is_in(["user", "assistant"])
    counts = messages.group_by(key).agg(
        n_events=pl.len().cast(pl.Int64),
        n_turns=(pl.col("role") == "user").sum().cast(pl.Int64),
        n_chat_messages=is_chat.sum().cast(pl.Int64),
        newest_at=pl.col("at").max(),
    )
    newest_at = pl.when(pl.col("last_message_at").is_null().all()).then("newest_at")
    filled = ("n_turns", "n_chat_messages")
    is_complete = pl.col("n_messages") == pl.col("n_events").fill_null(0)
    return (
        sessions.lazy()
        .drop(filled, strict=False)
        .join(counts, on=key, how="left", maintain_order="left")
        .with_columns(
            pl.when(is_complete).then(pl.col(filled).fill_null(0)),
            last_message_at=pl.coalesce("last_message_at", newest_at),
            last_activity_at=pl.coalesce(newest_at, "last_activity_at"),
        )
        .pipe(collected)
    )


def reason(codes: str | None = None, *, second_message: str | None = None) -> dict[str, pl.Expr]:
    """The stored reason: code, message, and evidence where it is a list.

    Without a code of its own, a row has the first of its list of ``codes`` (ADR-0033,
    appendix A) that explains its status, else the first of the list. ``second_message`` is
    the column that has the message where there is no other.
    """
    listed = pl.lit(None, pl.String) if codes is None else first_of_status(texts_of(codes))
    return {
        "reason_code": pl.coalesce(pl.col("status_reason_code").replace("", None), listed),
        "reason_message": first_text(
            "status_reason_summary", *([second_message] if second_message else [])
        ),
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
    """Sessions with ``cached`` and ``cache_written``, which only signals of ended runs report.

    A resumed branch reports its total so far, parallel branches report one part each: the
    last report or the sum is used, whichever has the input tokens of the session.
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

    own = [rows.select("id", "provider"), raw["branches"].select("provider", id="session_id")]
    known = pl.concat(own, how="diagonal")
    apart = known.filter(pl.col("provider").is_in(_COUNTS_CACHES_APART))["id"].drop_nulls()

    def matching(name: str) -> pl.Expr:
        return pl.coalesce(
            pl.when(pl.col(f"{part}_input") == pl.col("input_tokens")).then(f"{part}_{name}")
            for part in ("last", "all")
        )

    return rows.join(reported, on="id", how="left", maintain_order="left").with_columns(
        cached=matching("cached"),
        cache_written=matching("written"),
        # Of a fan-out, the workers may have another provider than the one that plans.
        is_cache_apart=pl.col("id").is_in(apart.implode()),
    )


def _usage_with_caches() -> dict[str, pl.Expr]:
    """All input tokens, with and without caches; Claude counts cached ones separately."""
    from_caches = pl.col("cached") + pl.col("cache_written")
    is_separate = pl.col("is_cache_apart") | (from_caches > pl.col("input_tokens"))
    # lionagi writes 0 for a provider of which it does not read the caches.
    is_known = is_separate | (from_caches > 0)
    return {
        "n_input_tokens": pl.col("input_tokens")
        + pl.when(is_separate).then(from_caches).fill_null(0),
        "n_cache_read_tokens": pl.when(is_known).then("cached"),
        "n_cache_write_tokens": pl.when(is_known).then("cache_written"),
    }


def parent(**ids: str | pl.Expr) -> dict[str, pl.Expr]:
    """The parent of an entity: its type and id, of several types the first with an id."""
    known = {kind: pl.coalesce(of).is_not_null() for kind, of in ids.items()}
    return {"parent_type": first_that_holds(known), "parent_id": pl.coalesce(*ids.values())}


def json_list(column: str) -> pl.Expr:
    """A JSON text where it is a list, else null."""
    return pl.when(pl.col(column).str.strip_chars_start().str.starts_with("[")).then(column)


def known_model(column: str) -> pl.Expr:
    """A model id; placeholders such as ``<synthetic>`` become null."""
    return pl.when(~pl.col(column).str.contains(_PLACEHOLDER)).then(column)


def first_text(*columns: str) -> pl.Expr:
    """The first of some columns that is neither null nor empty."""
    return pl.coalesce(pl.col(column).replace("", None) for column in columns)


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
    is_import = pl.col("source_kind").str.starts_with("imported")
    return first_that_holds({"mirrored": is_mirror, "imported": is_import}).fill_null("live")


def stored_timeouts(rows: pl.DataFrame) -> pl.DataFrame:
    """Time limits, and the time that had passed at them, from metadata (keys of ADR-0025).

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
    """The metadata; an unreadable limit where SQLite can parse them and Python cannot."""
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
    """Sessions with the time limit of their command line, from the deadline in the prompt.

    The prompt was written after the branch and before the session, for a whole number of
    seconds: where only one number fits, it is the limit.
    """
    until = pl.col("deadline").str.extract(_UNTIL).str.to_datetime(time_zone="UTC", strict=False)
    ends = raw["messages"].select(first_msg_id="id", until=until).drop_nulls()
    began = raw["branches"].group_by(id="session_id").agg(began_at=pl.col("created_at").min())
    since_s = [
        (pl.col("until") - pl.col(name)).dt.total_microseconds() / 1e6
        for name in ("created_at", "began_at")
    ]
    shortest_s = since_s[0].ceil()
    is_only = (shortest_s > 0) & (shortest_s + 1 >= since_s[1] + 1)
    limit_s = pl.when(is_only).then(shortest_s)
    sources = {"metadata": pl.col("timeout_s"), "deadline": limit_s}
    return (
        rows.join(ends, on="first_msg_id", how="left", maintain_order="left")
        .join(began, on="id", how="left", maintain_order="left")
        .with_columns(
            timeout_s=pl.coalesce("timeout_s", limit_s),
            timeout_from=first_that_holds(
                {name: value.is_not_null() for name, value in sources.items()}
            ),
        )
    )


def _with_contracts(rows: pl.DataFrame) -> pl.DataFrame:
    judged = {
        "artifact_contract_json": judge_contracts(rows["artifact_contract_json"]),
        "artifact_verification_json": judge_verdicts(rows["artifact_verification_json"]),
    }
    for column, texts in judged.items():
        rows = rows.join(
            texts, left_on=column, right_on=texts.columns[0], how="left", maintain_order="left"
        )
    return rows


def _with_messages(rows: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Sessions with the messages of all branches; the session's own progression repeats them.

    Null where the list of a branch is missing or cannot be read.
    """
    lengths = raw["progressions"].select(progression_id="id", n_messages="n_messages")
    counts = (
        raw["branches"]
        .select("session_id", "progression_id")
        .join(lengths, on="progression_id", how="left")
        .group_by(id="session_id")
        .agg(n=pl.col("n_messages").sum(), is_known=pl.col("n_messages").is_not_null().all())
    )
    n_messages = pl.when(pl.col("is_known").fill_null(value=True)).then(pl.col("n").fill_null(0))
    return (
        left_joined(rows, counts, on="id").with_columns(n_messages=n_messages).drop("n", "is_known")
    )


def parse(text: str) -> Any:
    r"""The value of a JSON text, decoded twice where it was encoded twice.

    Raises
    ------
    ValueError
        If the text is no JSON, or too deeply nested.

    Examples
    --------
    >>> parse('"{\\"a\\": 1}"')
    {'a': 1}
    """
    try:
        value = json.loads(text)
        return json.loads(value) if isinstance(value, str) else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


def is_valid_contract(contract: Any) -> bool:
    """Whether lionagi would accept this contract.

    Ids must be unique words; paths must stay inside the artifacts directory and name one
    file; flags and texts must have their types.

    Examples
    --------
    >>> is_valid_contract({"expected": [{"id": "review", "path": "critic/review.md"}]})
    True
    >>> is_valid_contract({"expected": [{"id": "review", "path": "../review.md"}]})
    False
    """
    if not isinstance(contract, dict) or not isinstance(contract.get("expected"), list):
        return False
    expected = contract["expected"]
    if not all(isinstance(entry, dict) and _is_valid_entry(entry) for entry in expected):
        return False
    ids = [entry["id"] for entry in expected]
    return len(ids) == len(set(ids))


def _is_valid_entry(entry: dict[str, Any]) -> bool:
    texts = [
        entry.get("id"),
        entry.get("path"),
        entry.get("description", ""),
        entry.get("source", ""),
    ]
    if not all(isinstance(text, str) for text in texts):
        return False
    has_flag = isinstance(entry.get("required", True), bool)
    return has_flag and _ID.fullmatch(entry["id"]) is not None and _stays_inside(entry["path"])


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return (
        bool(parts)
        and not path.startswith("/")
        and "\x00" not in path
        and not _GLOB & set(path)
        and ".." not in parts
    )


def judge_contracts(texts: pl.Series) -> pl.DataFrame:
    """Distinct contracts: whether each is well formed, and how many outputs it promises.

    Parameters
    ----------
    texts : polars.Series of str
        Contracts as stored; null where there is none.

    Returns
    -------
    polars.DataFrame, shape (n_distinct, 3)
        ``contract`` (the text), ``is_contract_valid`` (null for ``{}``, which is no contract
        and which lionagi's own verifier would refuse), ``n_expected`` (null
        unless well formed).

    Examples
    --------
    >>> judge_contracts(pl.Series(['{"expected": []}', "{", "{}", None])).rows()
    [('{"expected": []}', True, 0), ('{', False, None), ('{}', None, None)]
    """
    return _judge(texts, _read_contract, _CONTRACT)


def judge_verdicts(texts: pl.Series) -> pl.DataFrame:
    """Distinct verifications: the verdict of each, verbatim, and its counts.

    Returns
    -------
    polars.DataFrame, shape (n_distinct, 6)
        ``verification`` (the text), ``verdict``, ``is_verdict_valid`` and the counts of
        missing and produced outputs; null where they cannot be read.

    Examples
    --------
    >>> judge_verdicts(pl.Series(['{"status": "skipped"}', "[]"])).rows()[0]
    ('{"status": "skipped"}', 'skipped', False, None, None, None)
    """
    return _judge(texts, _read_verdict, _VERDICT)


def _judge(
    texts: pl.Series, read: Callable[[str], tuple[Any, ...]], shape: pl.Schema
) -> pl.DataFrame:
    # Most sessions have no contract and many have the same: few texts are parsed.
    name = shape.names()[0]
    distinct = texts.alias(name).drop_nulls().unique(maintain_order=True).to_frame()
    unstamped = distinct.with_columns(unstamped=pl.col(name).str.replace(_CHECKED_AT, ""))
    judged = pl.DataFrame(
        [(text, *read(text)) for text in unstamped["unstamped"].unique().to_list()],
        schema={"unstamped": schema.TEXT, **{key: shape[key] for key in shape.names()[1:]}},
        orient="row",
    )
    return left_joined(unstamped, judged, on="unstamped").drop("unstamped")


def _read_contract(text: str) -> tuple[bool | None, int | None]:
    try:
        contract = parse(text)
    except ValueError:
        return False, None
    if contract in (None, {}):
        return None, None
    is_valid = is_valid_contract(contract)
    return is_valid, len(contract["expected"]) if is_valid else None


def _read_verdict(text: str) -> tuple[str | bool | int | None, ...]:
    try:
        verdict = parse(text)
    except ValueError:
        verdict = None
    if not isinstance(verdict, dict):
        return None, False, None, None, None
    word = verdict.get("status")
    lists = [verdict.get(key) for key in ("missing_required", "missing_optional", "produced")]
    counts = [len(paths) if isinstance(paths, list) else None for paths in lists]
    return word if isinstance(word, str) else None, word in VERDICTS and None not in counts, *counts


def add_plays_as_parents(sessions: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Sessions with the play (or show) for which they worked as their parent.

    It is the play with their ``session_id``; else the play, or at least the show, of the
    names in their own row.
    """
    plays = raw["plays"].select("show_id", "session_id", play_id="id", show_play_name="name")
    linked = plays.filter(pl.col("session_id").is_not_null()).select(
        entity_id="session_id", parent_type=pl.lit("play"), parent_id="play_id"
    )
    named = (
        raw["sessions"]
        .filter(pl.col("show_topic").is_not_null())
        .select("show_topic", "show_play_name", entity_id="id")
        .join(
            raw["shows"].select(show_id="id", show_topic="topic"),
            on="show_topic",
            how="inner",
            maintain_order="left",
        )
        .pipe(left_joined, plays.drop("session_id"), on=["show_id", "show_play_name"])
        .select(
            "entity_id",
            parent_type=first_that_holds({"show": pl.col("play_id").is_null()}).fill_null("play"),
            parent_id=pl.coalesce("play_id", "show_id"),
        )
    )
    parents = pl.concat([linked, named]).unique("entity_id", keep="first", maintain_order=True)
    return sessions.update(parents, on="entity_id")


def invocations(raw: Raw) -> pl.DataFrame:
    """Invocations, one row each: requests that started sessions, or should have.

    ``n_children`` is the larger of lionagi's own count and the number of sessions in the
    store, so that pruning does not turn a request with work into one without.
    """
    counted = raw["sessions"].group_by(id="invocation_id")
    stored = counted.agg(n_stored=pl.len().cast(schema.INTEGER))
    fires = (
        raw["schedule_runs"]
        .filter(pl.col("invocation_id").is_not_null())
        .unique("invocation_id", keep="first", maintain_order=True)
        .select(id="invocation_id", schedule_run_id="id")
    )
    return left_joined(raw["invocations"], stored, fires, on="id").select(
        pl.col("created_at", "started_at", "ended_at", "updated_at"),
        entity_type=pl.lit("invocation"),
        entity_id="id",
        **parent(schedule_run="schedule_run_id"),
        invocation_id="id",
        kind=pl.col("node_metadata").str.json_path_match("$.action_kind"),
        name="skill",
        playbook="skill",
        recorded_by=pl.lit("live"),
        raw_status="status",
        last_activity_at=pl.coalesce("updated_at", "started_at"),
        n_children=pl.max_horizontal(pl.col("session_count"), pl.col("n_stored").fill_null(0)),
        **reason(),
    )


def shows(raw: Raw) -> pl.DataFrame:
    """Shows, one row each: orchestrations of plays, as they were when they were imported."""
    counted = raw["plays"].group_by(id="show_id").agg(n_children=pl.len().cast(schema.INTEGER))
    return left_joined(raw["shows"], counted, on="id").select(
        pl.col("created_at", "updated_at"),
        entity_type=pl.lit("show"),
        entity_id="id",
        name="topic",
        raw_status="status",
        started_at="created_at",
        last_activity_at=pl.coalesce("updated_at", "created_at"),
        n_children=pl.col("n_children").fill_null(0),
        **reason(),
    )


def plays(raw: Raw) -> pl.DataFrame:
    """Plays of shows, one row each, without what they have from their session."""
    return raw["plays"].select(
        pl.col("session_id", "name", "playbook"),
        pl.col("attempt", "created_at", "started_at", "ended_at", "updated_at", "exit_code"),
        pl.col("depends_on"),
        entity_type=pl.lit("play"),
        entity_id="id",
        **parent(show="show_id"),
        raw_status="status",
        last_activity_at=pl.coalesce("updated_at", "started_at"),
        **reason("reason_codes", second_message="gate_feedback"),
        stored_health="health",
        stored_delivery="delivery",
        stored_reason_codes="reason_codes",
    )


def teams(raw: Raw) -> pl.DataFrame:
    """Teams, one row each, with the time of the last message between members."""
    messages = (
        raw["team_messages"]
        .group_by(id="team_id")
        .agg(last_message_at=pl.col("created_at").max(), n_messages=pl.len().cast(schema.INTEGER))
    )
    play_id, show_id = (pl.coalesce(name, f"metadata_{name}") for name in ("play_id", "show_id"))
    return left_joined(raw["teams"], messages, on="id").select(
        pl.col("name", "created_at", "updated_at", "last_message_at"),
        entity_type=pl.lit("team"),
        entity_id="id",
        **parent(play=play_id, show=show_id),
        # A team has a row only where its file was imported.
        recorded_by=pl.lit("imported"),
        raw_status="status",
        started_at="created_at",
        last_activity_at=pl.coalesce("last_message_at", "updated_at", "created_at"),
        n_messages=pl.col("n_messages").fill_null(0),
        n_children="member_count",
        **reason(),
    )


def engine_runs(raw: Raw) -> pl.DataFrame:
    """Runs of `li engine`, one row each; they have no stored reasons and no history."""
    return raw["engine_runs"].select(
        pl.col("invocation_id", "kind", "started_at", "ended_at"),
        entity_type=pl.lit("engine_run"),
        entity_id="id",
        **parent(session="parent_session_id", invocation="invocation_id"),
        session_id=pl.coalesce("session_id", "signal_session_id"),
        recorded_by=pl.lit("live"),
        raw_status="status",
        last_activity_at="started_at",
        reason_message=pl.col("error").replace("", None),
    )


def dispatches(raw: Raw, transitions: pl.DataFrame) -> pl.DataFrame:
    """Notices to be delivered, one row each; their reasons are in their history."""
    rows = raw["dispatch_outbox"].with_columns(raw_status="status")
    rows = left_joined(rows, last_reasons(transitions, "dispatch"), on=["id", "raw_status"])
    return rows.select(
        pl.col("session_id", "kind", "raw_status", "created_at", "updated_at", "reason_code"),
        entity_type=pl.lit("dispatch"),
        entity_id="id",
        **parent(session="session_id", schedule_run="schedule_run_id"),
        name="deliver_to",
        recorded_by=pl.lit("live"),
        attempt=pl.when(pl.col("attempt") > 0).then("attempt"),
        started_at="created_at",
        last_activity_at=pl.coalesce("updated_at", "created_at"),
        reason_message=pl.coalesce(pl.col("last_error").replace("", None), "message"),
        evidence=json_list("evidence"),
    )


def last_reasons(transitions: pl.DataFrame, entity_type: str) -> pl.DataFrame:
    """Reason of each entity of a type for its status, from the last transition into it."""
    return (
        transitions.filter(pl.col("entity_type") == entity_type)
        .group_by(id="entity_id", raw_status="status")
        .agg(pl.col("reason_code", "message", "evidence").last())
    )
