"""Checks of every system: histories, times, contracts, parents and children, stored states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, family, moment, word
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import deduplicated, left_join
from stateanalytics.core.vocabulary import ADR_DELIVERIES, ADR_HEALTHS, ADR_LIFECYCLES, EXIT_CODES
from stateanalytics.core.windows import instant
from stateanalytics.core.words import how_long_each
from stateanalytics.errors import check_columns
from stateanalytics.state.definitions import FAILURES, SILENT_HEALTHS, STOPPED
from stateanalytics.state.display import delivery_code, domain, health_code
from stateanalytics.state.reasons import FORM, OURS, REGISTRY
from stateanalytics.systems import all_systems
from stateanalytics.systems.situations import OTHER_AXES, texts_of

_KEY = list(schema.ENTITY_KEY)
# The verdicts that make a row, and the rule that they violate.
_CODE_OF = {
    "illegal": ("audit.transition_illegal", "the lifecycle has no such edge"),
    "illegal_before_0_28": (
        "audit.transition_illegal_before_0_28",
        "nothing may follow a terminal status",
    ),
    "override": (
        "audit.transition_override",
        "nothing may follow a terminal status without an override",
    ),
    "unknown": ("audit.transition_unknown_status", "no status of that name is declared"),
}


def judged_transitions(facts: Facts) -> pl.DataFrame:
    """The changes that a system can judge (`Auditing.judge_transitions`), with ``verdict``."""
    present = set(facts.transitions["system"].unique())
    judged = [
        judge(facts)
        for known in all_systems()
        if known.name in present and (judge := known.auditing().judge_transitions) is not None
    ]
    empty = schema.TRANSITIONS.empty().hstack([pl.Series("verdict", [], pl.String)])
    return pl.concat([empty, *judged], how="diagonal_relaxed")


def changes_against_graphs(judged: pl.DataFrame) -> Iterator[pl.LazyFrame]:
    """Judged changes that the graph of their entity type does not allow."""
    for verdict, (code, expected) in _CODE_OF.items():
        yield audit_rows(
            judged.lazy().filter(pl.col("verdict") == verdict),
            code,
            at="at",
            says=pl.format("went from {} to {}", word("previous_status"), word("status")),
            against=pl.format(
                "{}, with reason {} by {}", pl.lit(expected), word("reason_code"), word("actor")
            ),
        )


def changes_against_history(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Changes that do not begin where the one before ended; rows that differ from the last one."""
    # Both need the changes of each entity in order, so they are sorted only here.
    changes = _by_entity(cases).lazy().with_columns(before=pl.col("status").shift())
    gaps = changes.filter(
        ~pl.col("is_first"),
        pl.col("before").is_not_null(),
        pl.col("previous_status") != pl.col("before"),
    )
    change = pl.format("a change from {} to {}", word("previous_status"), word("status"))
    before = pl.format("the change before it ended in {}", word("before"))
    last = changes.filter(pl.col("is_first").shift(-1, fill_value=True))
    rows = cases.plan.select(*_KEY, "raw_status", "updated_at")
    both = rows.join(last.select(*_KEY, "status", "at"), on=_KEY).filter(
        pl.col("raw_status").ne_missing(pl.col("status")),
        # An incomplete history ends before the row does: a record that was written later, for
        # example by a kill, rightly has another status.
        pl.col("system").is_in(_with_history("whole")) | (pl.col("at") > pl.col("updated_at")),
    )
    row = pl.format("its row says {}", word("raw_status"))
    history = pl.format("its history ended in {}", word("status"))
    yield audit_rows(gaps, "audit.history_gap", change, before, "at")
    yield audit_rows(both, "audit.status_differs_from_history", row, history, "at")


def _by_entity(cases: Cases) -> pl.DataFrame:
    """Changes of status by entity, as they were accepted; ``is_first`` of each entity."""
    # Only the columns of the checks: the others of a million changes are a gigabyte.
    columns = (*_KEY, "at", "seq", "previous_status", "status")
    # Changes that are derived from events cannot contradict anything.
    is_own = ~pl.col("system").is_in(_with_history("derived"))
    changes = cases.facts.transitions.lazy().select(columns).filter(is_own)
    accepted = changes.sort("at", "seq", nulls_last=False, maintain_order=True)
    # Equal numbers for equal ids are ten times as fast to sort as the ids.
    number = pl.col("entity_id").cast(pl.Categorical).to_physical()
    rows = accepted.with_columns(_number=number).sort("_number", maintain_order=True).collect()
    others = [name for name in _KEY if name != "entity_id"]
    is_new, is_another = (
        pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in names)
        for names in (["_number"], others)
    )
    if rows.select((~is_new & is_another).any()).item():
        rows = rows.sort("_number", *others, maintain_order=True)
    return rows.with_columns(is_first=is_new | is_another)


def _with_history(kind: str) -> list[str]:
    return [known.name for known in all_systems() if known.past.history == kind]


GRACE_S = 300.0
"""Younger work has had no time to write anything."""

TOLERANCE_S = 1.0
"""Start, end and duration are not taken at one instant."""

_IN_WORDS = {
    "stalled": "silent for longer than its kind of work may be",
    "process_dead": "silent for so long that its process counts as dead",
    "orphaned": "it left no output, and its process no longer exists",
}
# Outcomes with a moment of end: a skipped fire or a play that never began has none.
_HAS_END = {
    "session": ("completed", "failed", "timed_out", "aborted", "cancelled"),
    "invocation": ("succeeded", "completed", "failed", "timed_out", "aborted", "cancelled"),
    "schedule_run": ("completed", "failed", "timed_out"),
    "engine_run": ("completed", "failed", "cancelled"),
}
_AT_WORK = ("running", "queued", "pending")


def without_sign_of_life(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Open entities without a sign of life, by the health of their state.

    An invocation has no health of its own. One without sessions shows no life
    either; commands are excluded, since they never open one.
    """
    is_young = (pl.col("age_s") <= GRACE_S).fill_null(value=False)
    # Without any moment the health is unknown; an open status is suspicious all the same.
    is_timeless = (
        (pl.col("entity_type") == "session")
        & (pl.col("health") == "unknown")
        & pl.all_horizontal(pl.col(name).is_null() for name in ("last_activity_at", "age_s"))
    )
    is_silent = pl.col("health").is_in(SILENT_HEALTHS) | is_timeless
    # A team is orphaned by its parent, whatever its members do.
    silent = cases.plan.filter("is_open", is_silent, ~is_young, pl.col("entity_type") != "team")
    empty = cases.plan.filter(
        "is_open",
        pl.col("entity_type") == "invocation",
        pl.col("n_children") == 0,
        pl.col("kind").ne_missing("command"),
        (pl.col("silence_s") > GRACE_S) | pl.col("silence_s").is_null(),
    )
    silence = pl.col("health").replace_strict(_IN_WORDS, default="no sign of life")
    checked = pl.lit("its process was checked and no longer exists")
    since = pl.format(
        "{}; last sign of life {}",
        pl.when(pl.col("process_alive").ne_missing(False)).then(silence).otherwise(checked),
        moment("last_activity_at"),
    )
    childless = pl.format("no session in {}", how_long_each("age_s", "an unknown time"))
    code, status = "audit.open_without_sign_of_life", _status()
    yield audit_rows(silent, code, status, since, "last_activity_at")
    yield audit_rows(empty, code, status, childless, "last_activity_at")


def end_times(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Ends that are missing, too early, or recorded for an open status."""
    rows = cases.plan
    has_moment = pl.any_horizontal(
        (pl.col("entity_type") == entity_type) & pl.col("outcome").is_in(outcomes)
        for entity_type, outcomes in _HAS_END.items()
    )
    unended = rows.filter("is_over", has_moment, pl.col("ended_at").is_null())
    for known in all_systems():
        if known.ends.never_there is not None:
            never_had = known.ends.never_there(cases.facts)
            unended = unended.join(never_had.lazy(), on=list(schema.ENTITY_KEY), how="anti")
    early = rows.filter(pl.col("ended_at") < pl.col("started_at"))
    open_ended = rows.filter(
        "is_open", pl.col("lifecycle").is_in(_AT_WORK), pl.col("ended_at").is_not_null()
    )
    status, missing = _status(), pl.lit("no usable end time was recorded")
    started = pl.format("started {}", moment("started_at"))
    ended = pl.format("ended {}", moment("ended_at"))
    yield audit_rows(unended, "audit.end_missing", status, missing, "last_activity_at")
    yield audit_rows(early, "audit.end_before_start", started, ended, "ended_at")
    yield audit_rows(open_ended, "audit.end_while_open", status, ended, "ended_at")


def stored_durations(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Stored durations that differ from the time between start and end."""
    took = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    differing = cases.plan.with_columns(took_s=took).filter(
        pl.col("took_s") >= 0, (pl.col("stored_duration_s") - pl.col("took_s")).abs() > TOLERANCE_S
    )
    stored = pl.format("stored: {} s", pl.col("stored_duration_s").round(3))
    counted = pl.format("from start to end: {} s", pl.col("took_s").round(3))
    yield audit_rows(differing, "audit.duration_differs", stored, counted, "ended_at")


def _status() -> pl.Expr:
    return pl.format("its status is {}", word("raw_status"))


_MISSING = "run.failed.missing_artifact"


def contract_verdicts(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Verdicts that contradict the reason, the status or the verdict's own counts."""
    rows = cases.plan.filter(pl.col("verdict").is_not_null())
    n_missing = pl.col("n_required_missing")
    for_nothing = (pl.col("reason_code") == _MISSING) & (
        (n_missing == 0) | pl.col("verdict").is_in(["passed", "warning"])
    )
    despite = (pl.col("raw_status") == "completed") & (pl.col("verdict") == "failed")
    counts = ((pl.col("verdict") == "passed") & (n_missing > 0)) | (
        (pl.col("verdict") == "failed") & (n_missing == 0) & (pl.col("n_produced") > 0)
    )
    verdict = pl.format(
        "verdict {}, {} required outputs missing",
        word("verdict"),
        n_missing.cast(pl.String).fill_null("an unknown number of"),
    )
    ended = pl.format("status {} with reason {}", word("raw_status"), word("reason_code"))
    alone = pl.format("verdict {}", word("verdict"))
    is_valid = pl.col("is_verdict_valid").fill_null(value=True)
    differing, miscounted = rows.filter(for_nothing | despite), rows.filter(counts & is_valid)
    yield audit_rows(differing, "audit.verdict_contradicts_reason", ended, verdict, "ended_at")
    yield audit_rows(miscounted, "audit.verdict_contradicts_counts", alone, verdict, "ended_at")


_WORK = ["source", "system"]
_ENDED_BEFORE = "audit.parent_ended_before_children"
_OPEN_AFTER = "audit.parent_open_after_children"
_CONTRADICTS = "audit.parent_contradicts_children"
# (parent, child, the child's column that names the parent). A play does not contain its
# session but follows it, through a gate that may refuse: only whether both are over is compared.
_FAMILIES = (("invocation", "session", "invocation_id"), ("show", "play", "parent_id"))
# Different words of parent and child for the same end.
_OUTCOMES = {"succeeded": "completed"}


def over_or_open(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Parents that ended before a child, or stay open after the last one ended."""
    for parent, child, column in _FAMILIES:
        grouped = family(cases.plan, parent, child, column)
        late = grouped.filter("is_over", pl.col("n_open") > 0)
        # A request may continue by itself for a while, and a show waits for its gate.
        quiet_s = cases.policy.idle_after_s
        since_s = (instant(cases.facts.as_of) - pl.col("last_end_at")).dt.total_microseconds() / 1e6
        forgotten = grouped.filter(
            "is_open", pl.col("n_open") == 0, pl.col("n_legacy") == 0, since_s > quiet_s
        )
        status = pl.format("{} {}", pl.lit(parent), word("raw_status"))
        still = pl.format("{} of {} {}s not over", "n_open", "n_children", pl.lit(child))
        over = pl.format(
            "{} of {} {}s over, the last since {}",
            *("n_children", "n_children", pl.lit(child), moment("last_end_at")),
        )
        yield audit_rows(late, _ENDED_BEFORE, status, still, "ended_at")
        yield audit_rows(forgotten, _OPEN_AFTER, status, over, "last_end_at")


def plays_and_sessions(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Plays that are over while their session is not, or at work long after it ended."""
    rows = cases.plan
    plays = rows.filter(pl.col("entity_type") == "play")
    sessions = rows.filter(pl.col("entity_type") == "session").select(
        *_WORK,
        "session_id",
        child_status="raw_status",
        child_is_open="is_open",
        child_is_over="is_over",
        child_ended_at="ended_at",
    )
    both = plays.join(sessions, on=[*_WORK, "session_id"], how="inner")
    # A play is updated a while after its session ends: that alone contradicts nothing.
    since_s = (instant(cases.facts.as_of) - pl.col("child_ended_at")).dt.total_microseconds() / 1e6
    status = pl.format("play {}", word("raw_status"))
    is_late = since_s > cases.policy.idle_after_s
    ended_badly = pl.col("child_status").is_in([*FAILURES, *STOPPED])
    over = both.filter("is_over", "child_is_open")
    forgotten = both.filter(pl.col("lifecycle") == "running", "child_is_over", is_late)
    merged = both.filter(pl.col("outcome") == "merged", "child_is_over", ended_badly)
    child, ended_at = word("child_status"), moment("child_ended_at")
    is_open, ended = pl.format("its session is {}", child), pl.format("its session {}", child)
    since = pl.format("its session {} since {}", child, ended_at)
    yield audit_rows(over, _ENDED_BEFORE, status, is_open, "ended_at")
    yield audit_rows(forgotten, _OPEN_AFTER, status, since, "child_ended_at")
    yield audit_rows(merged, _CONTRADICTS, status, ended, "ended_at")


def fires_and_requests(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Fires of a schedule that completed though their request did not, or the reverse."""
    rows, of_type = cases.plan, pl.col("entity_type")
    outcome = pl.col("outcome").replace(_OUTCOMES)
    requests = rows.filter(of_type == "invocation", "is_over").select(
        *_WORK, invocation_id="entity_id", child_status="raw_status", child_outcome=outcome
    )
    both = (
        rows.filter(of_type == "schedule_run", "is_over")
        .join(requests, on=[*_WORK, "invocation_id"], how="inner")
        .filter((outcome == "completed") != (pl.col("child_outcome") == "completed"))
    )
    fire = pl.format("schedule run {}", word("raw_status"))
    request = pl.format("its invocation {}", word("child_status"))
    yield audit_rows(both, _CONTRADICTS, fire, request, "ended_at")


def exit_codes(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Ends whose process returned an exit code that means another end (ADR-0017, ADR-0025).

    The outcome of a play is decided after its process has ended, and a tool completes although
    its command failed, so both are exempt. A failure may return any code but 0.
    """
    expected = pl.col("raw_status").replace_strict(
        dict(EXIT_CODES), default=None, return_dtype=pl.Int64
    )
    of_signals = [code for code in EXIT_CODES.values() if code > 1]
    code = pl.col("exit_code")
    is_other_signal = code.is_in(of_signals) & expected.is_in(of_signals) & (code != expected)
    is_other = ((code == 0) != (expected == 0)) | is_other_signal
    is_exempt = pl.col("entity_type").is_in(["play", "tool_call"])
    differing = cases.plan.filter(~is_exempt, is_other)
    returned = pl.format("its process returned {}", "exit_code")
    yield audit_rows(differing, "audit.exit_code_differs", _status(), returned, "ended_at")


_AXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "lifecycle": ADR_LIFECYCLES,
    "health": ADR_HEALTHS,
    "delivery": ADR_DELIVERIES,
}


def stored_axes(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Stored health, delivery and reason codes that differ from the recomputed ones.

    They are the columns of ADR-0033's appendix A. Nothing stored is no difference, and
    neither is an empty list of codes: it is the column's default, not a claim. Fewer codes
    than recomputed are no difference either, only other ones.
    """
    key, names = schema.ENTITY_KEY, {"now_health": "health", "now_delivery": "delivery"}
    is_stored = pl.any_horizontal(pl.col("^stored_(health|delivery|reason_codes)$").is_not_null())
    rows = cases.rows.filter(is_stored)
    judged = cases.states.lazy().select(*key, **names).join(rows.lazy(), on=key, how="semi")
    rows = left_join(rows, deduplicated(judged.collect()))
    own, element, separator = pl.col("reason_code"), pl.element(), schema.CODE_SEPARATOR
    rows = (
        _with_derived_codes(rows)
        .with_columns(listed=texts_of("stored_reason_codes"))
        .with_columns(
            derived_codes=pl.when(pl.col("listed").list.contains(own))
            .then(pl.col("listed").list.eval(element.filter(~element.str.contains(OTHER_AXES))))
            .otherwise(pl.concat_list(own))
            .list.set_union("derived")
            .list.drop_nulls()
        )
        .collect()
    )
    has_other = pl.col("listed").list.set_difference("derived_codes").list.len() > 0
    codes = pl.when(has_other).then(pl.col("listed").list.join(separator))
    axes = {
        "health": (pl.col("stored_health"), pl.col("now_health").cast(pl.String)),
        "delivery": (pl.col("stored_delivery"), pl.col("now_delivery").cast(pl.String)),
        "reasons": (codes, pl.col("derived_codes").list.join(separator)),
    }
    was, now = pl.col("was"), pl.col("now")
    for axis, (stored, recomputed) in axes.items():
        yield audit_rows(
            rows.lazy().with_columns(was=stored, now=recomputed.fill_null("")).filter(was != now),
            "audit.stored_differs",
            at="updated_at",
            says=pl.format("stored {} {}", pl.lit(axis), was.replace("", "none")),
            against=pl.format("recomputed {}", now.replace("", "none")),
        )


def _with_derived_codes(rows: pl.DataFrame) -> pl.LazyFrame:
    """Rows with the codes that explain their recomputed health and delivery, as a list."""
    axes = ["entity_type", "now_health", "now_delivery"]
    distinct = rows[axes].unique()
    derived = [
        [health_code(domain(entity_type), health), delivery_code(domain(entity_type), delivery)]
        for entity_type, health, delivery in distinct.rows()
    ]
    codes = distinct.hstack([pl.Series("derived", derived, pl.List(pl.String))]).lazy()
    return rows.lazy().join(codes, on=axes, how="left", nulls_equal=True, maintain_order="left")


def unknown_reasons(cases: Cases) -> Iterator[pl.LazyFrame]:
    """Reason codes that are not in the list of their system, where that list is complete.

    One row for each entity and code, from its row or else its history; a text that is no
    dotted code is a warning. The rows keep their codes.
    """
    shared = {known.code for known in REGISTRY.values() if known.origin in OURS}
    of_system = {
        system.name: sorted(shared.union(known.code for known in system.words.reason_codes()))
        for system in all_systems()
        if system.words.are_codes_closed
    }
    code = pl.col("reason_code")
    is_unknown = pl.any_horizontal(
        (pl.col("system") == name) & ~code.is_in(codes) for name, codes in of_system.items()
    )
    listed = cases.plan.filter(pl.col("stored_reason_codes").is_not_null())
    in_lists = listed.with_columns(reason_code=texts_of("stored_reason_codes")).explode(
        "reason_code"
    )
    sources = (
        (cases.plan, "ended_at"),
        (in_lists, "ended_at"),
        (cases.facts.transitions.lazy(), "at"),
    )
    coded = [rows.select(*schema.ENTITY_KEY, code.cast(pl.String), at=at) for rows, at in sources]
    unknown = pl.concat(coded).filter(is_unknown, code != "")
    yield audit_rows(
        unknown.unique((*schema.ENTITY_KEY, "reason_code"), keep="first", maintain_order=True),
        "audit.reason_unknown",
        at="at",
        severity=pl.when(code.str.contains(FORM)).then(pl.lit("info")).otherwise(pl.lit("warning")),
        says=pl.format("its reason is {}", word("reason_code")),
        against=pl.format("{} has no such code", "system"),
    )


def outside_vocabulary(states: pl.DataFrame) -> pl.DataFrame:
    """Words of states that ADR-0033 does not list for the entity type.

    Parameters
    ----------
    states : polars.DataFrame
        ``schema.STATES``.

    Returns
    -------
    polars.DataFrame
        ``schema.FINDINGS``, one row per source, entity type and word:
        ``state.lifecycle_outside_adr``, ``state.health_outside_adr`` or
        ``state.delivery_outside_adr``. The words themselves are kept.

    Notes
    -----
    Types and axes without a closed list in the ADR have no finding, and neither has
    ``unknown``, which is counted as legacy.

    Examples
    --------
    >>> row = {"entity_type": "session", "entity_id": "s1", "health": "degraded"}
    >>> findings = outside_vocabulary(schema.STATES.conform(pl.DataFrame([row])))
    >>> findings.select("code", "n_rows", "example").row(0)
    ('state.health_outside_adr', 1, 'degraded')
    """
    check_columns(states, (*schema.ENTITY_KEY, *_AXES), "outside_vocabulary")
    findings = [_outside(states, axis, lists) for axis, lists in _AXES.items()]
    order = ("source", "system", "entity_type", "column", "example")
    return schema.FINDINGS.conform(pl.concat(findings).sort(order))


def _outside(states: pl.DataFrame, axis: str, lists: Mapping[str, tuple[str, ...]]) -> pl.DataFrame:
    listed = pl.DataFrame(
        [
            (entity_type, word)
            for entity_type, words in lists.items()
            for word in (*words, "unknown")
        ],
        schema={"entity_type": pl.String, "example": pl.String},
        orient="row",
    )
    return (
        states.select(*schema.ENTITY_KEY, example=pl.col(axis).cast(pl.String))
        .filter(pl.col("entity_type").is_in(list(lists)), pl.col("example").is_not_null())
        .join(listed, on=["entity_type", "example"], how="anti")
        .group_by("source", "system", "entity_type", "example")
        .agg(n_rows=pl.len(), entity_id=pl.col("entity_id").first())
        .with_columns(
            code=pl.lit(f"state.{axis}_outside_adr"),
            severity=pl.lit("info"),
            column=pl.lit(axis),
            entity_id=pl.when(pl.col("n_rows") == 1).then("entity_id"),
            message=pl.format(
                "ADR-0033 does not list {} {} for a {}", pl.lit(axis), "example", "entity_type"
            ),
            action=pl.lit("kept"),
        )
    )


CHECKS: tuple[Callable[[Cases], Iterator[pl.LazyFrame]], ...] = (
    changes_against_history,
    without_sign_of_life,
    end_times,
    stored_durations,
    contract_verdicts,
    over_or_open,
    plays_and_sessions,
    fires_and_requests,
    exit_codes,
    stored_axes,
    unknown_reasons,
)
"""Each takes the `Cases` and gives rows of ``schema.AUDIT``, a frame a code; systems add theirs."""
