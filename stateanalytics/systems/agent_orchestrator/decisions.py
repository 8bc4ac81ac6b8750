"""What logs say of a session's axes, line by line, and how they stood at an instant by that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import polars as pl

from stateanalytics.systems.agent_orchestrator import frames
from stateanalytics.systems.agent_orchestrator.columns import look_up
from stateanalytics.systems.agent_orchestrator.go_sessions import ENDS
from stateanalytics.systems.agent_orchestrator.mapping import AXES
from stateanalytics.systems.agent_orchestrator.statuses import legacy_status_rule

KILLED = "session.killed"
KILL_EVENTS = (KILLED, "session.kill_started")

# A report says of the pull request only what its status word says.
_PULL_REQUESTS: Mapping[str, tuple[str, str]] = {
    "pr_open": ("open", "in_progress"),
    "ci_failed": ("open", "ci_failing"),
    "changes_requested": ("open", "changes_requested"),
    "review_pending": ("open", "review_pending"),
    "approved": ("open", "approved"),
    "mergeable": ("open", "merge_ready"),
    "merged": ("merged", "merged"),
}
_AT_WORK = ("working", "idle")
_KEY = ("source", "entity_id")


def decisions(entries: pl.DataFrame, label: str) -> pl.DataFrame:
    """Every line of a log that says how a session stood from then on, as `frames.DECISIONS`.

    Parameters
    ----------
    entries : polars.DataFrame
        Linked entries of all logs (`events.link`).
    label : str
        The input.

    Notes
    -----
    A poll tells all three axes, a report the session's and by its status the pull
    request's, a kill how the session ended; an event or a notification a status only.
    """
    is_kill = pl.col("kind").is_in(KILL_EVENTS) & pl.col("code").is_not_null()
    is_end = is_kill & (pl.col("kind") == KILLED)
    told = entries.with_columns(
        previous_status=pl.coalesce("decided_previous", "previous"),
        status=pl.coalesce("decided_status", "status"),
        session_state=pl.when(is_end).then(pl.lit("terminated")).otherwise("session_state"),
        session_reason=pl.when(is_end).then("code").otherwise("session_reason"),
    ).filter(
        pl.col("entity_id").is_not_null()
        & pl.col("at").is_not_null()
        & (pl.col("is_accepted").fill_null("true") == "true")
        & (pl.any_horizontal(pl.col("status", "session_state").is_not_null()) | is_kill)
    )
    whole = told.with_columns(**_pull_request(""), **_pull_request("previous_"))
    ordered = whole.sort("at", "_order", maintain_order=True).with_columns(
        seq=pl.int_range(pl.len(), dtype=pl.Int64).over("entity_id", "at"),
        detecting_attempts=pl.col("detecting_attempts").cast(pl.Int64, strict=False),
        source=pl.lit(label),
    )
    return frames.DECISIONS.conform(ordered)


def _pull_request(prefix: str) -> dict[str, pl.Expr]:
    """The pull request's words where a line names only the status that they make."""
    is_told = pl.col(f"{prefix}session_state").is_in(_AT_WORK)
    return {
        f"{prefix}pr_{part}": pl.coalesce(
            f"{prefix}pr_{part}",
            pl.when(is_told).then(
                look_up(
                    pl.col(f"{prefix}status"),
                    {word: words[place] for word, words in _PULL_REQUESTS.items()},
                    library=pl,
                )
            ),
        )
        for place, part in enumerate(("state", "reason"))
    }


def standing(decided: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """How each session stood at an instant, by the lines up to then.

    Parameters
    ----------
    decided : polars.DataFrame
        `frames.DECISIONS`.
    at : datetime
        The instant.

    Returns
    -------
    polars.DataFrame
        ``source``, ``entity_id``, the six words (null: no line tells them, or a younger one
        tells another status only), ``stored_status``, ``legacy_status``, ``evidence_text``,
        ``detecting_attempts``, ``decided_at``, ``stood_since`` (the line that its session
        axis has been the same from), ``seen_since`` (that what was seen has been),
        ``over_since`` (that it has been over, or has not, by its status) and
        ``next_previous`` (what the next line says that the session's state was before it).

    Notes
    -----
    What a line does not tell stands as an older one told it. Before the first line a
    session stood as that line says that it stood before.
    """
    lines = decided.sort(*_KEY, "at", "seq", maintain_order=True)
    then, later = lines.filter(pl.col("at") <= at), lines.filter(pl.col("at") > at)
    has_words = pl.col("session_state").is_not_null()
    since = _since(then, "session_state", "stood_since")
    seen = _since(then, "evidence_text", "seen_since")
    is_over = then.with_columns(is_over=pl.col("status").is_in(ENDS))
    over = _since(is_over, "is_over", "over_since")
    told = ("status", *AXES, "evidence_text", "detecting_attempts")
    by_lines = then.group_by(_KEY, maintain_order=True).agg(
        *(pl.col(name).drop_nulls().last() for name in told),
        # A pull request of the Go rewrite is a row of its own: that of the session stays.
        decided_at=pl.col("at").filter(~pl.col("kind").str.starts_with("change.pr_")).last(),
        _words_at=pl.col("at").filter(has_words).last(),
        _status_at=pl.col("at").filter(pl.col("status").is_not_null()).last(),
    )
    before = (
        later.join(by_lines, on=_KEY, how="anti")
        .group_by(_KEY, maintain_order=True)
        .agg(pl.col(f"previous_{name}").drop_nulls().first().alias(name) for name in told[:7])
        .filter(pl.any_horizontal(pl.col(told[:7]).is_not_null()))
    )
    both = pl.concat([by_lines, before], how="diagonal_relaxed")
    after = later.group_by(_KEY, maintain_order=True).agg(
        next_previous=pl.col("previous_session_state").drop_nulls().first()
    )
    for frame in (since, seen, over, after):
        both = both.join(frame, on=_KEY, how="left", maintain_order="left")
    return _by_newest(both)


def _since(lines: pl.DataFrame, word: str, name: str) -> pl.DataFrame:
    """The first line of each session from which a word has been the same."""
    runs = lines.filter(pl.col(word).is_not_null()).with_columns(
        _run=pl.col(word).rle_id().over(_KEY)
    )
    last = runs.filter(pl.col("_run") == pl.col("_run").max().over(_KEY))
    return last.group_by(_KEY).agg(pl.col("at").first().alias(name))


def _by_newest(stood: pl.DataFrame) -> pl.DataFrame:
    """Words that a younger status contradicts are not the words of then any more."""
    derived = stood.with_columns(legacy_status=legacy_status_rule(pl))
    is_past = (pl.col("_status_at") > pl.col("_words_at")) & (
        pl.col("status") != pl.col("legacy_status")
    )
    holds = ~is_past.fill_null(value=False) & pl.col("session_state").is_not_null()
    words = [pl.when(holds).then(name).alias(name) for name in (*AXES, "stood_since")]
    return derived.with_columns(
        *words,
        legacy_status=pl.when(holds).then("legacy_status").otherwise("status"),
        stored_status="status",
    ).drop("status", "_words_at", "_status_at")
