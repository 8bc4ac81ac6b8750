"""The rules by which lionagi closes work that looks dead, and a preview of what they would close.

Two rules are ADR-0033's, the rest are lionagi 0.36.0's own reapers and sweeps, with their
exact boundaries: some close *at* their limit (``>=``), some only past it (``>``). Most count
an age that was never recorded as infinite.

lionagi closes an entity unless its process is *observed* to be alive. Stored data never show
that, so a row of the preview reads "would be closed, unless it is alive" where
``is_certain`` is false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import deduplicated, left_join
from stateanalytics.core.vocabulary import words_of
from stateanalytics.systems.lionagi import frames

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy

NO_TERMINAL = "system.health.process_dead_no_terminal"
REAPABLE_PLAYS = ("running", "running_complete", "prepared", "redoing")
REAPABLE_SHOWS = ("active", "imported")
MIRROR_AGENT = "claude-code"
_PHANTOM_CODES = {
    "process_dead": "session.phantom.process_dead",
    "missing_artifacts": "session.phantom.missing_artifacts",
    "stale_lock": "session.zombie.stale_locks",
}
_OPEN_PLAYS = [word.raw_status for word in words_of("play") if not word.is_terminal]
_HOUR_S, _DAY_S = 3600.0, 86_400.0


def with_phantom_reason(rows: pl.DataFrame, *, stale_s: float | pl.Expr = _HOUR_S) -> pl.DataFrame:
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
    is_foreign, is_missing = (
        pl.col(name).fill_null(value=False) if name in rows.columns else pl.lit(value=False)
        for name in ("is_foreign", "is_artifacts_gone")
    )
    return rows.with_columns(
        phantom_reason=pl.when(is_alive | is_foreign | is_fresh)
        .then(None)
        .when(is_missing)
        .then(pl.lit("missing_artifacts"))
        .when(pl.col("has_stale_locks").fill_null(value=False))
        .then(pl.lit("stale_lock"))
        .otherwise(pl.lit("process_dead"))
    )


def phantoms(
    facts: Facts,
    states: pl.DataFrame,
    *,
    policy: Policy | None = None,
) -> pl.DataFrame:
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
    aged = facts.entities.with_columns(
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
        limit_s=pl.lit(reaper.limit[1], dtype=pl.Float64),
        is_certain=is_dead | pl.lit(reaper.ignores_liveness),
        order=pl.lit(order),
    )


def with_relatives(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Entities with the facts of their session, plays and directory that reapers need."""
    sessions = deduplicated(rows.filter(pl.col("entity_type") == "session"), keep="last").select(
        "source",
        "system",
        session_id="entity_id",
        session_status="raw_status",
        session_alive="process_alive",
        has_session_row=pl.lit(True),
    )
    joined = rows.join(
        sessions, on=["source", "system", "session_id"], how="left", maintain_order="left"
    )
    return (
        joined.join(_play_counts(joined), on=schema.ENTITY_KEY, how="left", maintain_order="left")
        .join(_ends_on_disk(facts), on=["source", "name"], how="left", maintain_order="left")
        .with_columns(pl.col("has_session_row").fill_null(False))
    )


def _play_counts(joined: pl.DataFrame) -> pl.DataFrame:
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


def _ends_on_disk(facts: Facts) -> pl.DataFrame:
    """The end that the directory of each show proves, as the reason a reaper would write."""
    disk = facts.detail(frames.SHOWS_ON_DISK)
    is_show = pl.col("play").is_null()
    is_aborted = (pl.col("has_abort_sentinel") & is_show).any()
    is_passed = (pl.col("is_show_passed") & is_show).any()
    n_plays = is_show.not_().sum()
    n_merged = ((pl.col("disk_status") == "merged") & is_show.not_()).sum()
    return disk.group_by("source", name="topic").agg(
        disk_end=pl.when(is_aborted)
        .then(pl.lit("show.aborted.operator"))
        .when(is_passed)
        .then(pl.lit("show.completed.final_gate"))
        .when((n_plays > 0) & (n_merged == n_plays))
        .then(pl.lit("show.completed.all_plays_merged"))
    )


@dataclass(frozen=True)
class Reaper:
    """One rule that closes entities.

    Attributes
    ----------
    name : str
        Its name here.
    known_as : str
        Its number in the catalogue of detectors, or the document that requires it.
    when : polars.Expr
        Which rows, whatever their age; Boolean, null counts as no.
    ages : tuple of str
        The age that is compared: the first of these columns that is known.
    limit : tuple of (str, float)
        ``>`` closes past the limit of that age in seconds, ``>=`` already at it; empty: at
        any age.
    writes : tuple of (str or polars.Expr)
        The status, reason code and message that it would write.
    actor : str
        The actor that the history would name.
    ignores_liveness : bool
        Whether it closes an entity with a live process, too; then an age that was never
        recorded closes nothing.
    """

    name: str
    known_as: str
    when: pl.Expr
    ages: tuple[str, ...]
    limit: tuple[str, float]
    writes: tuple[str | pl.Expr, str | pl.Expr, str | pl.Expr]
    actor: str = "studio_lifecycle_reaper"
    ignores_liveness: bool = False

    @property
    def age_s(self) -> pl.Expr:
        """The age that is compared; infinite where it was never recorded and that counts."""
        age = pl.coalesce(*self.ages)
        return age if self.ignores_liveness else age.fill_null(float("inf"))

    @property
    def closes(self) -> pl.Expr:
        """Which rows it closes; Boolean, null counts as no."""
        comparison, limit_s = self.limit
        if not comparison:
            return self.when
        return self.when & (self.age_s > limit_s if comparison == ">" else self.age_s >= limit_s)

    @property
    def written(self) -> tuple[pl.Expr, ...]:
        """The status, reason code and message that it would write to each row."""
        return tuple(pl.lit(text) if isinstance(text, str) else text for text in self.writes)


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
    return (*_adr0033(reconciliation_s), *_session_reapers(), *_other_reapers(), *_sweeps())


def _is(entity_type: str, *statuses: str) -> pl.Expr:
    return (pl.col("entity_type") == entity_type) & pl.col("raw_status").is_in(statuses)


def _not_true(flag: pl.Expr) -> pl.Expr:
    return flag.ne_missing(pl.lit(value=True))


# Only an observed live process protects: unknown liveness counts as dead.
NOT_ALIVE = _not_true(pl.col("process_alive"))
_TOUCHED = ("updated_age_s", "started_age_s")


def _adr0033(reconciliation_s: float) -> tuple[Reaper, ...]:
    is_open = pl.col("is_terminal").not_() & pl.col("is_legacy").not_()
    age = ("age_s", "created_age_s")
    return (
        Reaper(
            "terminal_enforcement",
            "ADR-0033 terminal enforcement",
            # At any age, but only where the process is known to be dead: unknown stays open.
            is_open & pl.col("process_alive").not_(),
            age,
            ("", 0),
            ("aborted", NO_TERMINAL, "its process ended without writing an end"),
            "watchdog",
        ),
        Reaper(
            "phantom_reconciliation",
            "ADR-0033 phantom reconciliation",
            is_open & pl.col("health").is_in(("process_dead", "orphaned")),
            age,
            (">", reconciliation_s),
            (
                *("aborted", NO_TERMINAL),
                pl.format("health is {}, and no end was written", "health"),
            ),
            "watchdog",
        ),
    )


def _session_reapers() -> tuple[Reaper, ...]:
    is_mirror = (pl.col("agent") == MIRROR_AGENT).fill_null(False)
    phantom_code = pl.col("phantom_reason").replace_strict(_PHANTOM_CODES, default=None)

    def either(of_mirror: str, of_others: pl.Expr) -> pl.Expr:
        return pl.when(is_mirror).then(pl.lit(of_mirror)).otherwise(of_others)

    return (
        Reaper(
            "phantom_session",
            "C2, C3",
            _is("session", "running") & NOT_ALIVE,
            ("updated_age_s",),
            (">=", _HOUR_S),
            (
                either("completed", pl.lit("failed")),
                either("run.completed.ok", phantom_code),
                either("mirror_idle_reaped", pl.lit("phantom_reaped")),
            ),
        ),
        Reaper(
            "null_status",
            "C4",
            (pl.col("entity_type") == "session") & pl.col("raw_status").is_null() & NOT_ALIVE,
            _TOUCHED,
            (">=", _HOUR_S),
            ("failed", "run.failed.exception", "process_exited_without_status"),
        ),
    )


def _other_reapers() -> tuple[Reaper, ...]:
    deadline = ("timed_out", "run.timed_out.deadline")
    is_running = _is("invocation", "running")
    is_late = pl.col("started_age_s") > 2 * _HOUR_S
    is_aborted = pl.col("disk_end") == "show.aborted.operator"
    on_disk = pl.when(is_aborted).then(pl.lit("aborted")).otherwise(pl.lit("completed"))
    return (
        Reaper(
            "invocation_deadline",
            "C5",
            is_running,
            ("started_age_s",),
            (">", 2 * _HOUR_S),
            (*deadline, "invocation_deadline_exceeded"),
            ignores_liveness=True,
        ),
        Reaper(
            "zero_session_invocation",
            "C6",
            is_running
            & _not_true(is_late)
            & (pl.col("n_children").fill_null(0) == 0)
            # A plain command opens no session, however well it runs.
            & pl.col("kind").ne_missing("command"),
            _TOUCHED,
            (">", 300.0),
            (*deadline, "zero_session_invocation_timeout"),
            ignores_liveness=True,
        ),
        Reaper(
            "stale_play",
            "C7",
            _is("play", *REAPABLE_PLAYS) & _not_true(pl.col("session_alive")),
            _TOUCHED,
            (">=", 6 * _HOUR_S),
            ("blocked", "run.cancelled.stale_auto", "play_runner_dead_or_orphaned"),
        ),
        Reaper(
            "stale_schedule_run",
            "C8",
            _is("schedule_run", "running") & pl.col("parent_id").is_not_null(),
            _TOUCHED,
            (">", _DAY_S),
            (*deadline, "schedule_run_stale_running_reaped"),
            ignores_liveness=True,
        ),
        Reaper(
            "stale_show",
            "C9",
            _is("show", *REAPABLE_SHOWS)
            & _not_true(pl.col("has_live_play"))
            & pl.col("disk_end").is_not_null(),
            ("updated_age_s",),
            (">=", 6 * _HOUR_S),
            (on_disk, pl.col("disk_end"), "the show's directory says so"),
        ),
    )


def _sweeps() -> tuple[Reaper, ...]:
    """Rules of an operator's commands: `li state doctor`, `li kill --all-stale`."""
    kill_age = ("started_age_s", "updated_age_s", "created_age_s")
    is_work = _is("session", "running") | _is("invocation", "running")
    child_ended = pl.col("session_status").ne_missing("running") & pl.col("has_session_row")
    all_ended = (pl.col("n_plays") > 0) & (pl.col("n_open_plays") == 0)

    def killed(status: str, why: str) -> tuple[str, str, str]:
        return (status, "run.cancelled.stale_auto", f"Stale auto-cancel: {why}.")

    return (
        Reaper(
            "doctor",
            "C10",
            _is("session", "running") & NOT_ALIVE,
            ("started_age_s",),
            (">", _DAY_S),
            ("aborted", "session.stale.no_heartbeat", "doctor sweep: running longer than 24h"),
            "doctor",
        ),
        Reaper(
            "kill_stale",
            "C11",
            is_work & NOT_ALIVE,
            kill_age,
            (">=", _HOUR_S),
            killed("cancelled", "process dead or no PID"),
            "user",
        ),
        Reaper(
            "kill_stale_play",
            "C11",
            _is("play", "running") & child_ended,
            ("started_age_s", "created_age_s"),
            (">=", _HOUR_S),
            killed("blocked", "child session terminated"),
            "user",
        ),
        Reaper(
            "kill_stale_show",
            "C11",
            _is("show", "active") & all_ended,
            kill_age,
            (">=", _HOUR_S),
            killed("aborted", "all child plays terminated"),
            "user",
        ),
    )
