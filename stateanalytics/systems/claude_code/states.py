"""Situations of turns and tool calls in ADR-0033's terms, with their reasons.

No end of a session is ever recorded: it shows the state of its last turn, and where that
ended well the session waits for its person, which is no stall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType

import polars as pl

from stateanalytics.core import schema
from stateanalytics.systems.claude_code.turns import OPEN
from stateanalytics.systems.recorded import (
    INFERRED,
    OBSERVED,
    Because,
    Meaning,
    add_axes,
    add_reasons,
    evidence,
    first_that_holds,
    numbered,
    with_axes,
)

SYSTEM = "claude_code"


def _end(word: str, delivery: str, empty: str | None = None) -> Meaning:
    return Meaning(word, word, "ok", delivery, empty)


MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {
        "interrupted": _end("cancelled", "not_expected"),
        "failed": _end("failed", "partial", "missing"),
        "max_turns": _end("timed_out", "partial"),
        "refused": _end("failed", "missing"),
        "truncated": _end("completed", "partial"),
        "good": _end("completed", "passed"),
        "good_inferred": _end("completed", "passed"),
        "empty": _end("completed", "missing"),
        "unknown_finish": _end("completed", "unknown"),
        "aborted": _end("aborted", "partial"),
        "superseded": _end("cancelled", "not_expected"),
        **dict.fromkeys(OPEN, Meaning("running", None, None, "unknown")),
        "question": Meaning("running", None, "idle", "unknown"),
        "no_prompt": Meaning("pending", None, "unknown", "not_expected"),
    }
)
"""Every situation of a turn; the health of open work depends on the instant."""
CALLS: Mapping[str, Meaning] = MappingProxyType(
    {
        "succeeded": Meaning("succeeded", "succeeded", None, None),
        "cancelled": Meaning("cancelled", "cancelled", None, None),
        "failed": Meaning("failed", "failed", None, None),
        "running": Meaning("running", None, None, None),
    }
)


def _ended(
    code: str, message: str, claim: str = OBSERVED, confidence: float = 1.0, *, quoted: bool = False
) -> Because:
    return Because("lifecycle", f"run.{code}", message, claim, confidence, is_quoted=quoted)


def _waits(code: str, message: str, claim: str = OBSERVED, confidence: float = 1.0) -> Because:
    return Because("health", f"run.health.{code}", message, claim, confidence)


_TURN_ENDED = "The answer is whole; the session waits for its person"
_AWAITING_MODEL = _waits("awaiting_model", "It waits for the model's answer")
REASONS: Mapping[str, tuple[Because, ...]] = MappingProxyType(
    {
        "interrupted": (_ended("cancelled.user_interrupt", "A person stopped it"),),
        "failed": (_ended("failed.{cause}", "The request failed", quoted=True),),
        "max_turns": (
            _ended("timed_out.max_turns", "It reached its limit of turns", INFERRED, 0.8),
        ),
        "refused": (_ended("failed.content_filtered", "The model refused the answer"),),
        "truncated": (
            Because("delivery", "run.delivery.truncated_length", "The answer was cut off"),
        ),
        "good": (_ended("completed.turn_ended", _TURN_ENDED),),
        "good_inferred": (_ended("completed.turn_ended", _TURN_ENDED, INFERRED, 0.8),),
        "empty": (
            Because(
                "delivery", "run.delivery.empty_output", "No text and no tool result", INFERRED, 0.7
            ),
        ),
        "unknown_finish": (
            Because(
                "delivery", "run.delivery.unknown_finish", "The answer ended for no known reason"
            ),
        ),
        "aborted": (
            _ended(
                "aborted.process_dead_no_terminal",
                "A tool call was open when the next prompt came",
                INFERRED,
                0.9,
            ),
        ),
        "superseded": (
            _ended("cancelled.superseded", "The next prompt came before an answer", INFERRED, 0.7),
        ),
        "question": (_waits("awaiting_user", "It waits for a person's answer"),),
        "open_tool": (_waits("open_tool", "A tool call has no result yet"),),
        "retrying": (),
        "awaiting_model": (_AWAITING_MODEL,),
        "no_prompt": (_ended("pending.no_prompt", "No prompt was written yet"),),
        "may_ask": (
            _waits("awaiting_permission", "A person may have to allow it", "hypothesis", 0.4),
        ),
        "recovered": (_waits("recovered_after_retry", "A retry helped"),),
    }
)
"""Reasons of every situation, most direct first; the last two add to another one."""
_TABLE = pl.DataFrame(
    {"why": why, "place": place + 8 * (why in ("may_ask", "recovered")), **asdict(because)}
    for why, all_of_it in REASONS.items()
    for place, because in enumerate(all_of_it)
)
_ASKS_NOBODY = ("bypassPermissions", "dontAsk")
_KEY = ["source", "entity_type", "entity_id"]
_OPEN_FACTS = (*("last_sign_at", "due_at", "retry_code", "n_running", "n_questions", "patience_s"),)


def add_recorded(
    entities: pl.DataFrame, turns: pl.DataFrame, sessions: pl.DataFrame, tools: pl.DataFrame
) -> pl.DataFrame:
    """Add the recorded axes, reasons and facts of open work.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.
    turns, sessions, tools : polars.DataFrame
        `frames.TURNS`, `frames.SESSIONS` and `frames.TOOLS`.

    Returns
    -------
    polars.DataFrame
        The same rows.
    """
    of_turns = turns.with_columns(entity_type=pl.lit("turn"))
    thread = ["source", "thread_id"]
    last = turns.filter("is_last").drop("entity_id")
    of_sessions = (
        sessions.select(*thread)
        .join(last, on=thread, how="left", maintain_order="left")
        .with_columns(
            pl.col("situation").fill_null("no_prompt"),
            entity_type=pl.lit("session"),
            entity_id="thread_id",
        )
    )
    works = pl.concat([of_turns, of_sessions], how="diagonal")
    calls = _calls(tools, turns)
    axes = pl.concat(
        [_axes(_with_open_facts(works), MEANINGS), _axes(calls, CALLS)], how="diagonal"
    )
    reasons = pl.concat([_reasons(works), _call_reasons(calls)])
    told = ["recorded_lifecycle", "recorded_outcome", "recorded_health", "recorded_delivery"]
    bare = entities.drop(*told, *_OPEN_FACTS)
    known = bare.join(
        axes.select(*_KEY, *told, *_OPEN_FACTS), on=_KEY, how="left", maintain_order="left"
    )
    ends = reasons.filter((pl.col("dimension") == "lifecycle") & (pl.col("order") == 0)).select(
        *_KEY, code="code", why="evidence"
    )
    is_over = pl.when(pl.col("recorded_outcome").is_not_null())
    return schema.ENTITIES.conform(
        add_reasons(known, reasons)
        .join(ends, on=_KEY, how="left", maintain_order="left")
        .with_columns(reason_code=is_over.then("code"), evidence=is_over.then("why"))
    )


def _axes(works: pl.DataFrame, meanings: Mapping[str, Meaning]) -> pl.DataFrame:
    meant = with_axes(works, meanings)
    is_judged = (pl.col("lifecycle") == "running") & (pl.col("situation") != "question")
    is_call = pl.col("entity_type") == "tool_call"
    return add_axes(meant, "lifecycle", "outcome_word", "health", "delivery").with_columns(
        # The shared rules judge the health of what is open; its calls have none.
        recorded_health=pl.when(~is_judged | is_call).then("recorded_health")
    )


def _with_open_facts(works: pl.DataFrame) -> pl.DataFrame:
    is_open = pl.when(pl.col("situation").is_in(list(OPEN)))
    waits = pl.when(pl.col("situation") == "retrying")
    return works.with_columns(
        last_sign_at=is_open.then("last_sign_at"),
        due_at=waits.then(pl.coalesce("retry_at", "last_activity_at")),
        retry_code=waits.then(pl.format("run.health.{}", pl.col("cause").fill_null("unknown"))),
        n_running=is_open.then("n_open_tools"),
        n_questions=is_open.then((pl.col("situation") == "question").cast(pl.Int64)),
        patience_s=is_open.then("patience_s"),
    )


def _calls(tools: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    turn = ["source", "thread_id", "turn_no"]
    joined = tools.drop("patience_s").join(
        turns.select(*turn, of_turn="situation"), on=turn, how="left", maintain_order="left"
    )
    stopped = pl.col("cause").is_in(["denied", "interrupted"])
    rules = {
        "succeeded": ~pl.col("is_error"),
        "cancelled": (pl.col("is_error") & stopped)
        | (pl.col("is_error").is_null() & (pl.col("of_turn") == "interrupted")),
        "failed": pl.col("is_error") | ~pl.col("of_turn").is_in(list(OPEN)),
        "running": pl.lit(value=True),
    }
    return joined.with_columns(entity_type=pl.lit("tool_call"), situation=first_that_holds(rules))


def _reasons(works: pl.DataFrame) -> pl.DataFrame:
    situation = pl.col("situation")
    asks = ~pl.col("permission_mode").fill_null("").is_in(list(_ASKS_NOBODY))
    whys = pl.concat_list(
        "situation",
        pl.when((situation == "open_tool") & asks).then(pl.lit("may_ask")),
        pl.when(situation.is_in(["good", "good_inferred"]) & pl.col("is_recovered")).then(
            pl.lit("recovered")
        ),
    )
    rows = (
        works.with_columns(why=whys)
        .explode("why")
        .join(_TABLE, on="why", how="inner", maintain_order="left")
    )
    # An answer that is whole ends its turn; that nothing more comes of the session is a guess.
    is_guess = (pl.col("entity_type") == "session") & (pl.col("why") == "good")
    said = pl.when("is_quoted").then(pl.coalesce("error_message", "message")).otherwise("message")
    cause = pl.col("cause").fill_null("provider_unknown")
    detail = pl.coalesce(pl.col("open_tool"), "error_message", "stop_reason", "message")
    return numbered(
        rows.select(
            *_KEY,
            "place",
            "dimension",
            code=pl.col("code").str.replace("{cause}", cause, literal=True),
            message=said,
            claim_status=pl.when(is_guess).then(pl.lit(INFERRED)).otherwise("claim"),
            confidence=pl.when(is_guess).then(0.9).otherwise("confidence"),
            evidence=evidence(pl.lit("rule"), pl.col("why"), detail),
            system=pl.lit(SYSTEM),
        ),
        tuple(_KEY),
    )


def _call_reasons(calls: pl.DataFrame) -> pl.DataFrame:
    """Why calls failed or were stopped: the result says so in words, or is not there."""
    ended = calls.filter(pl.col("situation").is_in(["failed", "cancelled"]))
    words = pl.col("error_message")
    has_none = pl.col("is_error").is_null()
    why = (
        pl.when(has_none & (pl.col("situation") == "cancelled"))
        .then(pl.lit("interrupted"))
        .otherwise(pl.coalesce("cause", pl.lit("no_result")))
    )
    code = pl.concat_str(pl.lit("invocation."), "situation", pl.lit("."), why)
    return ended.select(
        *_KEY,
        dimension=pl.lit("lifecycle"),
        code=code,
        message=pl.coalesce(words, pl.lit("The call has no result")),
        claim_status=pl.lit(INFERRED),
        confidence=pl.lit(0.8),
        evidence=evidence(pl.lit("rule"), why, pl.coalesce(words, pl.lit("no result"))),
        system=pl.lit(SYSTEM),
        order=pl.lit(0, pl.Int64),
    )
