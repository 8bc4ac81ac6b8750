"""Where lionagi contradicts itself, and what its own reapers would close.

lionagi rolls the sessions of a request up in three places that disagree: the scheduler's
resolver of an invocation, the grading of a schedule occurrence (`run_view`), and
``li lifecycle``. A group of *failed + cancelled* is failed, cancelled and cancelled to them.
``worst_status`` is ours, ordered by how much attention an end needs.

Two rules are ADR-0033's, the rest are lionagi 0.36.0's own reapers and sweeps, with their
exact boundaries: some close *at* their limit (``>=``), some only past it (``>``). Most count
an age that was never recorded as infinite.

lionagi closes an entity unless its process is *observed* to be alive. Stored data never show
that, so a row of the preview reads "would be closed, unless it is alive" where
``is_certain`` is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.audit import Cases, audit_rows, family, word
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import Rows, collected, deduplicated, left_join
from stateanalytics.core.package_tables import package_table
from stateanalytics.core.vocabulary import EXIT_CODES, words_of
from stateanalytics.systems.base import Auditing
from stateanalytics.systems.lionagi import frames, transitions
from stateanalytics.systems.situations import first_that_holds

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

MIRROR_AGENT = "claude-code"
_PHANTOM_CODES = {
    "process_dead": "session.phantom.process_dead",
    "missing_artifacts": "session.phantom.missing_artifacts",
    "stale_lock": "session.zombie.stale_locks",
}
_OPEN_PLAYS = [word.raw_status for word in words_of("play") if not word.is_terminal]
_HOUR_S = 3600.0


def with_phantom_reason(rows: Rows, *, stale_s: float | pl.Expr = _HOUR_S) -> Rows:
    """Running sessions with the reason why lionagi's classifier calls them a phantom.

    Parameters
    ----------
    rows : polars.DataFrame
        ``updated_age_s`` (null: never updated, so old), ``process_alive`` (null: not
        known), ``has_stale_locks``. Optional columns: ``is_foreign`` (it runs on another
        machine, where nothing can be observed from here); ``is_artifacts_gone`` (a
        directory was recorded and no longer exists).
    stale_s : float or polars.Expr, default 3600
        The age at which it counts as old.

    Returns
    -------
    polars.DataFrame
        The same rows with ``phantom_reason``: missing_artifacts, stale_lock, process_dead;
        null where it is no phantom.

    Notes
    -----
    Alive, foreign and fresh sessions are none. A session of unknown liveness is one: the
    classifier asks for proof of life.

    Examples
    --------
    >>> row = {"updated_age_s": 3600.0, "process_alive": None, "has_stale_locks": False}
    >>> with_phantom_reason(pl.DataFrame([row]))["phantom_reason"].to_list()
    ['process_dead']
    """
    is_alive = pl.col("process_alive").fill_null(value=False)
    is_fresh = (pl.col("updated_age_s") < stale_s).fill_null(value=False)
    has_locks, columns = pl.col("has_stale_locks"), rows.collect_schema()
    is_foreign, is_missing = (
        pl.col(name).fill_null(value=False) if name in columns else pl.lit(value=False)
        for name in ("is_foreign", "is_artifacts_gone")
    )
    return rows.with_columns(
        phantom_reason=pl.when(~(is_alive | is_foreign | is_fresh)).then(
            first_that_holds({"missing_artifacts": is_missing, "stale_lock": has_locks}).fill_null(
                "process_dead"
            )
        )
    )


def phantoms(facts: Facts, states: pl.DataFrame, *, policy: Policy | None = None) -> pl.DataFrame:
    """Entities that reapers would close at as-of, with the status and reason they would write.

    Parameters
    ----------
    facts : Facts
        Entities, as-of, and ``lionagi_shows_on_disk`` for shows.
    states : polars.DataFrame
        ``schema.STATES`` of the same facts.
    policy : Policy, optional
        Its ``phantom_after_s`` is the limit of ADR-0033's reconciliation; default an hour.

    Returns
    -------
    polars.DataFrame
        `schema.PHANTOMS`, one row per entity and rule, sorted by key, then in the order of
        `reapers`. Rules that would write different statuses set ``has_dispute``.

    Notes
    -----
    lionagi does not close what runs on another machine. Facts do not hold the host, so
    such a session is in the preview, with ``is_certain`` false.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> empty = [frame.empty() for frame in schema.FACTS]
    >>> nothing = Facts(*empty, as_of=datetime(2026, 1, 1, tzinfo=UTC))
    >>> phantoms(nothing, schema.STATES.empty()).height
    0
    """
    judged = states.select(
        *schema.ENTITY_KEY, pl.col("health").cast(pl.String), "is_terminal", "is_legacy", "age_s"
    )
    # A reaper closes rows of its own store, whatever else was read with it.
    aged = facts.entities.filter(system="lionagi").with_columns(
        (pl.lit(facts.as_of) - pl.col(f"{what}_at"))
        .dt.total_microseconds()
        .truediv(1e6)
        .alias(f"{what}_age_s")
        for what in ("started", "updated", "created")
    )
    rows = with_phantom_reason(
        with_relatives(left_join(aged, deduplicated(judged, keep="last")), facts)
    )
    rules = reapers(policy.phantom_after_s) if policy else reapers()
    n_targets = pl.col("target_status").n_unique().over(schema.ENTITY_KEY)
    would_close = pl.concat(
        [_closed_by(rows, reaper, order) for order, reaper in enumerate(rules)]
    ).with_columns(n_reapers=pl.len().over(schema.ENTITY_KEY), has_dispute=n_targets > 1)
    return schema.PHANTOMS.conform(would_close.sort(*schema.ENTITY_KEY, "order"))


def _closed_by(rows: pl.DataFrame, reaper: Reaper, order: int) -> pl.DataFrame:
    is_dead = pl.col("process_alive").not_().fill_null(False)
    status, code, message = reaper.written
    return rows.filter(reaper.closes.fill_null(False)).select(
        *schema.ENTITY_KEY,
        "raw_status",
        reaper=pl.lit(reaper.name),
        known_as=pl.lit(reaper.known_as),
        target_status=status.cast(pl.String),
        reason_code=code.cast(pl.String),
        message=message.cast(pl.String),
        actor=pl.lit(reaper.actor),
        age_s=pl.when(reaper.age_s.is_finite()).then(reaper.age_s.cast(pl.Float64)),
        limit_s=pl.lit(reaper.limit_s, dtype=pl.Float64),
        is_certain=is_dead | pl.lit(reaper.ignores_liveness),
        order=pl.lit(order),
    )


def with_relatives(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Entities with the facts of their session, plays and directory that reapers need."""
    own = deduplicated(rows.filter(pl.col("entity_type") == "session"), keep="last").lazy()
    sessions = own.select(
        "source",
        "system",
        session_id="entity_id",
        session_status="raw_status",
        session_alive="process_alive",
        has_session_row=pl.lit(True),
    )
    key = ["source", "system", "session_id"]
    joined = rows.lazy().join(sessions, on=key, how="left", maintain_order="left")
    return collected(
        joined.join(_play_counts(joined), on=schema.ENTITY_KEY, how="left", maintain_order="left")
        .join(_ends_on_disk(facts), on=["source", "name"], how="left", maintain_order="left")
        .with_columns(pl.col("has_session_row").fill_null(False))
    )


def _play_counts(joined: pl.LazyFrame) -> pl.LazyFrame:
    """Plays and open plays of each show, and whether the session of any is alive."""
    is_open = pl.col("raw_status").is_in(_OPEN_PLAYS)
    return (
        joined.filter(pl.col("entity_type") == "play", pl.col("parent_id").is_not_null())
        .group_by("source", "system", entity_id="parent_id")
        .agg(
            n_plays=pl.len(),
            n_open_plays=is_open.sum(),
            has_live_play=pl.col("session_alive").any(),
        )
        .with_columns(entity_type=pl.lit("show"))
    )


def _ends_on_disk(facts: Facts) -> pl.LazyFrame:
    """The end that the directory of each show proves, as the reason a reaper would write."""
    disk = facts.detail(frames.SHOWS_ON_DISK).lazy()
    is_show = pl.col("play").is_null()
    is_aborted = (pl.col("has_abort_sentinel") & is_show).any()
    is_passed = (pl.col("is_show_passed") & is_show).any()
    n_plays = is_show.not_().sum()
    n_merged = ((pl.col("disk_status") == "merged") & is_show.not_()).sum()
    ends = {
        "show.aborted.operator": is_aborted,
        "show.completed.final_gate": is_passed,
        "show.completed.all_plays_merged": (n_plays > 0) & (n_merged == n_plays),
    }
    return disk.group_by("source", name="topic").agg(disk_end=first_that_holds(ends))


@dataclass(frozen=True)
class Reaper:
    """One rule that closes entities: a row of ``data/reapers.csv``, and what is code.

    Attributes
    ----------
    name : str
        Its name here.
    known_as : str
        Its number in the catalogue of detectors, or the document that requires it.
    entity_types, statuses : tuple of str
        The entities that it closes; none: all.
    ages : tuple of str
        The age that is compared: the first of these columns that is known.
    comparison : str
        ``>`` closes past the limit, ``>=`` already at it; empty: at any age.
    limit_s : float
        The limit of that age.
    status, reason_code, message : str or polars.Expr
        What it would write.
    actor : str
        The actor that the history would name.
    ignores_liveness : bool
        Whether it closes an entity with a live process, too; then an age that was never
        recorded closes nothing.
    also : polars.Expr
        What else must hold of a row; null counts as no.
    """

    name: str
    known_as: str
    entity_types: tuple[str, ...]
    statuses: tuple[str, ...]
    ages: tuple[str, ...]
    comparison: str
    limit_s: float
    status: Any
    reason_code: Any
    message: Any
    actor: str
    ignores_liveness: bool
    also: pl.Expr | None = None

    @property
    def when(self) -> pl.Expr:
        """Which rows it closes, whatever their age; Boolean, null counts as no."""
        known = {"entity_type": self.entity_types, "raw_status": self.statuses}
        rules = [pl.col(name).is_in(words) for name, words in known.items() if words]
        return pl.all_horizontal(*rules, *([] if self.also is None else [self.also]))

    @property
    def age_s(self) -> pl.Expr:
        """The age that is compared; infinite where it was never recorded and that counts."""
        age = pl.coalesce(*self.ages)
        return age if self.ignores_liveness else age.fill_null(float("inf"))

    @property
    def closes(self) -> pl.Expr:
        """Which rows it closes; Boolean, null counts as no."""
        if not self.comparison:
            return self.when
        is_past = self.age_s > self.limit_s
        return self.when & (is_past if self.comparison == ">" else self.age_s >= self.limit_s)

    @property
    def written(self) -> tuple[pl.Expr, ...]:
        """The status, reason code and message that it would write to each row."""
        texts = (self.status, self.reason_code, self.message)
        return tuple(pl.lit(text) if isinstance(text, str) else text for text in texts)


def reapers(reconciliation_s: float = _HOUR_S) -> tuple[Reaper, ...]:
    """All reapers, ADR-0033's first.

    Parameters
    ----------
    reconciliation_s : float
        The age past which ADR-0033 closes dead work.

    Examples
    --------
    >>> [reaper.known_as for reaper in reapers()][:3]
    ['ADR-0033 terminal enforcement', 'ADR-0033 phantom reconciliation', 'C2, C3']
    """
    code = _reaper_code(reconciliation_s)
    rows = package_table(__package__, "reapers.csv", Reaper)
    return tuple(replace(row, **code.get(row.name, {})) for row in rows)


def _not_true(flag: pl.Expr) -> pl.Expr:
    return flag.ne_missing(pl.lit(value=True))


# Only an observed live process protects: unknown liveness counts as dead.
NOT_ALIVE = _not_true(pl.col("process_alive"))


def _reaper_code(reconciliation_s: float) -> dict[str, dict[str, Any]]:
    """The conditions of reapers, and what they write where that depends on the row."""
    is_open = pl.col("is_terminal").not_() & pl.col("is_legacy").not_()
    is_mirror = (pl.col("agent") == MIRROR_AGENT).fill_null(False)
    phantom_code = pl.col("phantom_reason").replace_strict(_PHANTOM_CODES, default=None)
    is_late = pl.col("started_age_s") > 7200.0
    is_aborted = pl.col("disk_end") == "show.aborted.operator"
    child_ended = pl.col("session_status").ne_missing("running") & pl.col("has_session_row")

    def either(of_mirror: str, of_others: pl.Expr) -> pl.Expr:
        return pl.when(is_mirror).then(pl.lit(of_mirror)).otherwise(of_others)

    return {
        # At any age, but only where the process is known to be dead: unknown stays open.
        "terminal_enforcement": {"also": is_open & pl.col("process_alive").not_()},
        "phantom_reconciliation": {
            "also": is_open & pl.col("health").is_in(("process_dead", "orphaned")),
            "limit_s": reconciliation_s,
            "message": pl.format("health is {}, and no end was written", "health"),
        },
        "phantom_session": {
            "also": NOT_ALIVE,
            "status": either("completed", pl.lit("failed")),
            "reason_code": either("run.completed.ok", phantom_code),
            "message": either("mirror_idle_reaped", pl.lit("phantom_reaped")),
        },
        "null_status": {"also": pl.col("raw_status").is_null() & NOT_ALIVE},
        "zero_session_invocation": {
            "also": _not_true(is_late)
            & (pl.col("n_children").fill_null(0) == 0)
            # A plain command opens no session, however well it runs.
            & pl.col("kind").ne_missing("command")
        },
        "stale_play": {"also": _not_true(pl.col("session_alive"))},
        "stale_schedule_run": {"also": pl.col("parent_id").is_not_null()},
        "stale_show": {
            "also": _not_true(pl.col("has_live_play")) & pl.col("disk_end").is_not_null(),
            "status": pl.when(is_aborted).then(pl.lit("aborted")).otherwise(pl.lit("completed")),
            "reason_code": pl.col("disk_end"),
        },
        "doctor": {"also": NOT_ALIVE},
        "kill_stale": {"also": NOT_ALIVE},
        "kill_stale_play": {"also": child_ended},
        "kill_stale_show": {"also": (pl.col("n_plays") > 0) & (pl.col("n_open_plays") == 0)},
    }


_KEY = list(schema.ENTITY_KEY)
_ADMIN_TARGETS = ("failed", "aborted", "cancelled")

SEVERITY_ORDER = (
    *("failed", "aborted", "timed_out", "completed_empty"),
    *("cancelled", "unknown", "running", "completed"),
)
"""Ours, worst first. A group is completed only when every child is."""

_SCHEDULER_ORDER = ("timed_out", "failed", "aborted", "cancelled")
_SCHEDULER_CODES = {
    "timed_out": "run.timed_out.deadline",
    "failed": "run.failed.exception",
    "aborted": "run.aborted.user",
    "cancelled": "run.cancelled.system",
    "completed_empty": "run.completed_empty.no_evidence",
    "completed": "run.completed.ok",
}
_OUTCOMES = {"completed": "succeeded", "cancelled": "cancelled", "aborted": "cancelled"}


@cache
def auditing() -> Auditing:
    """The checks that only lionagi's data allow, and its own commands."""
    return Auditing(
        checks=(reasons, roll_ups, shows_on_disk, run_directories, admin_targets),
        advice={
            "audit.transition_illegal_before_0_28": "nothing to repair: lionagi has refused this "
            "since 0.28; count the entity by its last status",
            "audit.open_without_sign_of_life": "check whether its process is alive; if not, let "
            "the reaper close it, or `li kill ID`",
            "audit.parent_ended_before_children": "check whether the child still works; if not, "
            "`li kill ID` closes it",
        },
        judge_transitions=judge_transitions,
        phantoms=phantoms,
        dispositions=frames.DISPOSITIONS,
    )


def judge_transitions(facts: Facts) -> pl.DataFrame:
    """Status changes of the entity types with a declared lifecycle, each with its verdict."""
    changes = facts.transitions.filter(
        pl.col("system") == "lionagi",
        pl.col("entity_type").is_in([cycle.entity_type for cycle in transitions.LIFECYCLES]),
    )
    # Most stores have no override: then no change has to be compared with one.
    overrides = facts.events.filter(pl.col("kind") == transitions.OVERRIDE_EVENT)
    return transitions.classify_transitions(
        changes, events=None if overrides.is_empty() else overrides
    )


def shows_on_disk(cases: Cases) -> pl.LazyFrame:
    """Shows and plays of which the directory and the row have different statuses (#1161)."""
    rows = cases.plan.filter(system="lionagi")
    shows = rows.filter(pl.col("entity_type") == "show")
    topics = shows.select("source", parent_id="entity_id", topic="name")
    plays = rows.filter(pl.col("entity_type") == "play").join(topics, on=["source", "parent_id"])
    key = (*_KEY, "topic", "play")
    named = pl.concat(
        [
            shows.with_columns(topic="name", play=pl.lit(None, pl.String)).select(key),
            plays.with_columns(play="name").select(key),
        ]
    )
    disk = cases.facts.detail(frames.SHOWS_ON_DISK).lazy()
    is_different = pl.col("disk_status") != pl.col("store_status")
    differing = disk.filter(pl.col("store_status").is_not_null(), is_different)
    both = differing.join(named, on=["source", "topic", "play"], how="inner", nulls_equal=True)
    return audit_rows(
        both,
        "audit.disk_differs",
        says=pl.format("the store says {}", word("store_status")),
        against=pl.format("its directory says {}", word("disk_status")),
    )


def run_directories(cases: Cases) -> pl.LazyFrame:
    """Sessions of which run.json has another status."""
    sessions = cases.plan.filter(system="lionagi", entity_type="session")
    runs = cases.facts.detail(frames.RUNS).lazy()
    runs = runs.select("source", "session_id", "run_id", file_status="status")
    both = sessions.drop("run_id").join(runs, on=["source", "session_id"], how="inner")
    return audit_rows(
        both.filter(pl.col("file_status") != pl.col("raw_status")),
        "audit.run_file_differs",
        at="ended_at",
        says=pl.format("the store says {}", word("raw_status")),
        against=pl.format("run.json of {} says {}", word("run_id"), word("file_status")),
    )


def roll_ups(cases: Cases) -> pl.LazyFrame:
    """Requests whose sessions have all ended, where the three rules or the request disagree."""
    own = cases.plan.filter(system="lionagi")
    requests = own.select(
        *(*_KEY, "invocation_id", "raw_status", "ended_at", "last_activity_at"),
        *("is_open", "is_over", "n_children"),
    )
    ended = (
        family(requests, "invocation", "session", "invocation_id")
        .filter("is_over", pl.col("n_open") == 0, pl.col("n_legacy") == 0)
        .with_columns(invocation_id="entity_id")
        .pipe(collected)
    )
    key = ["source", "system", "invocation_id"]
    children = (
        own.filter(pl.col("entity_type") == "session")
        .sort("created_at", nulls_last=False, maintain_order=True)
        .select(*key, "reason_code", status="raw_status")
        .join(ended.lazy().select(key), on=key, how="semi", maintain_order="left")
        .collect()
    )
    answers = ("invocation_status", "grading_status", "lifecycle_status", "worst_status")
    rolled_up = roll_up(ended[key], children, by=key)[[*key, *answers]].lazy()
    both = (
        ended.lazy()
        .join(rolled_up, on=key, how="inner")
        .with_columns(
            is_agreed=pl.all_horizontal(
                pl.col(answers[0]) == pl.col(name) for name in answers[1:3]
            ),
            is_backed=pl.any_horizontal(pl.col("raw_status") == pl.col(name) for name in answers),
        )
    )
    problems = {
        "audit.parent_contradicts_children": ~pl.col("is_backed"),
        "audit.rollups_disagree": pl.col("is_backed") & ~pl.col("is_agreed"),
    }
    return pl.concat(
        audit_rows(
            both.filter(is_wrong),
            code,
            at="ended_at",
            says=pl.format("invocation {} of {} sessions", word("raw_status"), "n_children"),
            against=pl.format(
                "scheduler {}, run view {}, li lifecycle {}, worst {}", *map(word, answers)
            ),
        )
        for code, is_wrong in problems.items()
    )


def roll_up(
    parents: pl.DataFrame, children: pl.DataFrame, *, by: str | Sequence[str] = "parent_id"
) -> pl.DataFrame:
    """The status of each group of child sessions, by four named rules.

    Parameters
    ----------
    parents : polars.DataFrame
        One row per parent, ``by`` unique and not null. Optional columns: ``leader_status``
        (how the parent's own process ended; default completed) and ``leader_exit_code``.
    children : polars.DataFrame
        One row per child, oldest first: ``by`` and ``status`` (as stored; null is no end).
        Optional column: ``reason_code``.
    by : str or sequence of str, default "parent_id"
        The columns that identify the parent.

    Returns
    -------
    polars.DataFrame
        The parents in their order, with

        - ``n_children`` and ``n_<status>``, ``n_open`` (no end known): counts;
        - ``worst_status``: ours, by `SEVERITY_ORDER`; null without children;
        - ``invocation_status``, ``invocation_reason_code``: the scheduler's, which
          falls back to the leader where the children do not decide;
        - ``grading_status``: `run_view`'s, null until every child has ended: the highest
          exit code, the newest of several;
        - ``lifecycle_is_terminal``, ``lifecycle_status``, ``lifecycle_outcome``: those
          of ``li lifecycle``. Words outside the vocabulary read ``unknown`` here.

    Examples
    --------
    >>> parents = pl.DataFrame({"parent_id": ["a"]})
    >>> children = pl.DataFrame({"parent_id": ["a", "a"], "status": ["failed", "cancelled"]})
    >>> roll_up(parents, children).select(
    ...     "worst_status", "invocation_status", "grading_status", "lifecycle_outcome").row(0)
    ('failed', 'failed', 'cancelled', 'cancelled')
    """
    known = (*EXIT_CODES, "running")
    status = pl.when(pl.col("status").is_in(known)).then("status").otherwise(pl.lit("unknown"))
    is_ended = pl.col("status").is_in(tuple(EXIT_CODES)).fill_null(value=False)
    exit_code = status.replace_strict(dict(EXIT_CODES), default=None, return_dtype=pl.Int64)
    code = pl.col("reason_code") if "reason_code" in children.columns else pl.lit(None, pl.String)
    counts = (
        children.lazy()
        .group_by(by)
        .agg(
            *((pl.col("status") == word).sum().alias(f"n_{word}") for word in known),
            n_children=pl.len(),
            n_open=(~is_ended).sum(),
            n_interrupted=(
                (pl.col("status") == "aborted") & (code == "run.cancelled.sigint")
            ).sum(),
            grading_status=status.filter(exit_code == exit_code.max()).last(),
            # A child without an end comes first, then a cancelled one, then any but completed.
            lifecycle_status=pl.coalesce(
                status.filter(~is_ended).first(),
                status.filter(status.is_in(("cancelled", "aborted"))).first(),
                status.filter(status != "completed").first(),
                status.last(),
            ),
        )
    )
    is_terminal = (pl.col("n_children") > 0) & (pl.col("n_open") == 0)
    named = {"leader_status": pl.lit("completed"), "leader_exit_code": pl.lit(None, pl.Int64)}
    missing = {name: value for name, value in named.items() if name not in parents.columns}
    rows = parents.lazy().with_columns(**missing)
    return collected(
        rows.join(counts, on=by, how="left", maintain_order="left")
        .with_columns(
            pl.col("^n_.*$").fill_null(0).cast(pl.Int64),
            leader_status=pl.col("leader_status").fill_null("completed"),
        )
        .with_columns(
            worst_status=_worst_status(),
            invocation_status=_scheduler_status(),
            grading_status=pl.when(is_terminal).then("grading_status"),
            lifecycle_is_terminal=is_terminal,
        )
        .with_columns(
            invocation_reason_code=_scheduler_code(),
            lifecycle_outcome=pl.when("lifecycle_is_terminal").then(
                pl.col("lifecycle_status").replace_strict(_OUTCOMES, default="failed")
            ),
        )
        .drop(*missing, "n_interrupted")
    )


def _worst_status() -> pl.Expr:
    counts = {word: pl.col(f"n_{word}") for word in SEVERITY_ORDER if word != "unknown"}
    counts["unknown"] = pl.col("n_open") - pl.col("n_running")
    return pl.coalesce(pl.when(counts[word] > 0).then(pl.lit(word)) for word in SEVERITY_ORDER)


def _scheduler_status() -> pl.Expr:
    """Any bad end wins; a leader that returned does not prove that its children ended well."""
    n_good = pl.col("n_completed") + pl.col("n_completed_empty")
    has_children = pl.col("n_children") > 0
    is_all_good = has_children & (n_good == pl.col("n_children"))
    leader = pl.col("leader_status")
    is_empty = (is_all_good & (pl.col("n_completed_empty") > 0)) | (
        has_children & ~is_all_good & (leader == "completed")
    )
    return pl.coalesce(
        *(pl.when(pl.col(f"n_{word}") > 0).then(pl.lit(word)) for word in _SCHEDULER_ORDER),
        pl.when(is_empty).then(pl.lit("completed_empty")),
        pl.when(is_all_good).then(pl.lit("completed")),
        pl.when(leader.is_in(("completed", "timed_out", "aborted", "cancelled"))).then(leader),
        pl.lit("failed"),
    )


def _scheduler_code() -> pl.Expr:
    status = pl.col("invocation_status")
    is_interrupted = (status == "aborted") & (pl.col("n_interrupted") > 0)
    # Without a failed child, the failure is the leader's.
    is_nonzero = (pl.col("n_failed") == 0) & (pl.col("leader_exit_code") != 0)
    own = {
        "run.cancelled.sigint": is_interrupted,
        "run.failed.exit_nonzero": (status == "failed") & is_nonzero,
    }
    return pl.coalesce(first_that_holds(own), status.replace_strict(_SCHEDULER_CODES, default=None))


def reasons(cases: Cases) -> pl.LazyFrame:
    """Reason codes of a domain that the entity type does not declare as its own."""
    own = {
        cycle.entity_type: [f"{prefix}." for prefix in cycle.reason_prefixes]
        for cycle in transitions.LIFECYCLES
        if cycle.has_reason_columns
    }
    code = pl.col("reason_code")
    foreign = pl.any_horizontal(
        (pl.col("entity_type") == entity_type)
        & ~pl.any_horizontal(code.str.starts_with(prefix) for prefix in prefixes)
        for entity_type, prefixes in own.items()
    )
    # Every entity type may have `legacy.imported`.
    is_foreign = (foreign, ~code.str.starts_with("legacy."))
    return audit_rows(
        cases.plan.filter(*is_foreign, system="lionagi"),
        "audit.reason_of_other_entity",
        at=pl.coalesce("ended_at", "updated_at"),
        says=pl.format("a {} with status {}", "entity_type", word("raw_status")),
        against=pl.format("reason {}", word("reason_code")),
    )


def admin_targets(cases: Cases) -> pl.LazyFrame:
    """Sessions to which an admin gave a status that only the system may give (ADR-0025)."""
    by_admin = cases.facts.transitions.lazy().filter(
        pl.any_horizontal(pl.col(name) == "admin" for name in ("writer", "actor")),
        ~pl.col("status").is_in(_ADMIN_TARGETS),
        system="lionagi",
        entity_type="session",
    )
    return audit_rows(
        by_admin,
        "audit.admin_target",
        at="at",
        says=pl.format("an admin set it to {}", word("status")),
        against=pl.lit(f"an admin may only set {', '.join(_ADMIN_TARGETS)}"),
    )
