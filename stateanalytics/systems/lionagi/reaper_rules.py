"""The rules by which a system closes entities that look dead, as data.

Two are ADR-0033's, the rest are lionagi 0.36.0's own reapers and sweeps, with their
exact boundaries: some close *at* their limit (``>=``), some only past it (``>``). Each
reads ages in seconds; for most, what was never written is infinitely old.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from stateanalytics.core.vocabulary import words_of

NO_TERMINAL = "system.health.process_dead_no_terminal"
REAPABLE_PLAYS = ("running", "running_complete", "prepared", "redoing")
REAPABLE_SHOWS = ("active", "imported")
MIRROR_AGENT = "claude-code"
PHANTOM_CODES = {
    "process_dead": "session.phantom.process_dead",
    "missing_artifacts": "session.phantom.missing_artifacts",
    "stale_lock": "session.zombie.stale_locks",
}

OPEN_PLAYS = tuple(word.raw_status for word in words_of("play") if not word.is_terminal)


@dataclass(frozen=True)
class Limits:
    """How old an entity must be before each reaper closes it, in seconds."""

    reconciliation_s: float = 3600
    phantom_s: float = 3600
    invocation_deadline_s: float = 7200
    zero_session_grace_s: float = 300
    play_s: float = 21600
    schedule_run_s: float = 86400
    show_s: float = 21600
    doctor_s: float = 86400
    kill_s: float = 3600


Text = str | pl.Expr


@dataclass(frozen=True)
class Reaper:
    """One rule that closes entities.

    Attributes
    ----------
    name : str
        Its name here.
    known_as : str
        Its number in the catalogue of detectors, or the document that demands it.
    when : polars.Expr
        Which rows, whatever their age; Boolean, null counts as no.
    ages : tuple of str
        The age that it looks at: the first of these columns that is known.
    past : tuple of (str, float)
        ``>`` closes past the limit of that age in seconds, ``>=`` already at it; empty: at
        any age.
    writes : tuple of (str or polars.Expr)
        The status, reason code and message that it would write.
    actor : str
        Whom the history would name.
    ignores_liveness : bool
        Does it close an entity whose process is alive.
    counts_never : bool
        Is an entity old whose age nobody wrote down.
    """

    name: str
    known_as: str
    when: pl.Expr
    ages: tuple[str, ...]
    past: tuple[str, float]
    writes: tuple[Text, Text, Text]
    actor: str = "studio_lifecycle_reaper"
    ignores_liveness: bool = field(default=False)
    counts_never: bool = field(default=True)

    @property
    def age_s(self) -> pl.Expr:
        """The age that it looks at; infinite where it was never written and that counts."""
        age = pl.coalesce(*self.ages)
        return age.fill_null(float("inf")) if self.counts_never else age

    @property
    def closes(self) -> pl.Expr:
        """Which rows it closes; Boolean, null counts as no."""
        comparison, limit_s = self.past
        if not comparison:
            return self.when
        return self.when & (self.age_s > limit_s if comparison == ">" else self.age_s >= limit_s)

    @property
    def written(self) -> tuple[pl.Expr, ...]:
        """The status, reason code and message that it would write, of each row."""
        return tuple(pl.lit(text) if isinstance(text, str) else text for text in self.writes)


def reapers(limits: Limits | None = None) -> tuple[Reaper, ...]:
    """All reapers, ADR-0033's first.

    Examples
    --------
    >>> [reaper.known_as for reaper in reapers()][:3]
    ['ADR-0033 terminal enforcement', 'ADR-0033 phantom reconciliation', 'C2, C3']
    """
    limits = limits or Limits()
    return (*_adr0033(limits), *_sessions(limits), *_others(limits), *_sweeps(limits))


def _is(entity_type: str, *statuses: str) -> pl.Expr:
    return (pl.col("entity_type") == entity_type) & pl.col("raw_status").is_in(statuses)


def _not_true(flag: pl.Expr) -> pl.Expr:
    return flag.ne_missing(pl.lit(value=True))


# A process that nobody could see counts as dead: an unknown liveness closes, too.
NOT_ALIVE = _not_true(pl.col("process_alive"))
_TOUCHED = ("updated_age_s", "started_age_s")


def _adr0033(limits: Limits) -> tuple[Reaper, ...]:
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
            (">", limits.reconciliation_s),
            (
                *("aborted", NO_TERMINAL),
                pl.format("health is {}, and no end was written", "health"),
            ),
            "watchdog",
        ),
    )


def _sessions(limits: Limits) -> tuple[Reaper, ...]:
    is_mirror = (pl.col("agent") == MIRROR_AGENT).fill_null(False)
    phantom_code = pl.col("phantom_reason").replace_strict(PHANTOM_CODES, default=None)

    def either(of_mirror: str, of_others: pl.Expr) -> pl.Expr:
        return pl.when(is_mirror).then(pl.lit(of_mirror)).otherwise(of_others)

    return (
        Reaper(
            "phantom_session",
            "C2, C3",
            _is("session", "running") & NOT_ALIVE,
            ("updated_age_s",),
            (">=", limits.phantom_s),
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
            (">=", limits.phantom_s),
            ("failed", "run.failed.exception", "process_exited_without_status"),
        ),
    )


def _others(limits: Limits) -> tuple[Reaper, ...]:
    deadline = ("timed_out", "run.timed_out.deadline")
    is_running = _is("invocation", "running")
    is_late = pl.col("started_age_s") > limits.invocation_deadline_s
    is_aborted = pl.col("disk_end") == "show.aborted.operator"
    on_disk = pl.when(is_aborted).then(pl.lit("aborted")).otherwise(pl.lit("completed"))
    return (
        Reaper(
            "invocation_deadline",
            "C5",
            is_running,
            ("started_age_s",),
            (">", limits.invocation_deadline_s),
            (*deadline, "invocation_deadline_exceeded"),
            ignores_liveness=True,
            counts_never=False,
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
            (">", limits.zero_session_grace_s),
            (*deadline, "zero_session_invocation_timeout"),
            ignores_liveness=True,
            counts_never=False,
        ),
        Reaper(
            "stale_play",
            "C7",
            _is("play", *REAPABLE_PLAYS) & _not_true(pl.col("session_alive")),
            _TOUCHED,
            (">=", limits.play_s),
            ("blocked", "run.cancelled.stale_auto", "play_runner_dead_or_orphaned"),
        ),
        Reaper(
            "stale_schedule_run",
            "C8",
            _is("schedule_run", "running") & pl.col("parent_id").is_not_null(),
            _TOUCHED,
            (">", limits.schedule_run_s),
            (*deadline, "schedule_run_stale_running_reaped"),
            ignores_liveness=True,
            counts_never=False,
        ),
        Reaper(
            "stale_show",
            "C9",
            _is("show", *REAPABLE_SHOWS)
            & _not_true(pl.col("has_live_play"))
            & pl.col("disk_end").is_not_null(),
            ("updated_age_s",),
            (">=", limits.show_s),
            (on_disk, pl.col("disk_end"), "the show's directory says so"),
        ),
    )


def _sweeps(limits: Limits) -> tuple[Reaper, ...]:
    """What an operator's own commands would close: `li state doctor`, `li kill --all-stale`."""
    kill_age = ("started_age_s", "updated_age_s", "created_age_s")
    is_work = _is("session", "running") | _is("invocation", "running")
    child_ended = pl.col("session_status").ne_missing("running") & pl.col("has_session_row")
    all_ended = (pl.col("n_plays") > 0) & (pl.col("n_open_plays") == 0)
    swept = f"doctor sweep: running longer than {limits.doctor_s / 3600:g}h"

    def killed(status: str, why: str) -> tuple[str, str, str]:
        return (status, "run.cancelled.stale_auto", f"Stale auto-cancel: {why}.")

    return (
        Reaper(
            "doctor",
            "C10",
            _is("session", "running") & NOT_ALIVE,
            ("started_age_s",),
            (">", limits.doctor_s),
            ("aborted", "session.stale.no_heartbeat", swept),
            "doctor",
        ),
        Reaper(
            "kill_stale",
            "C11",
            is_work & NOT_ALIVE,
            kill_age,
            (">=", limits.kill_s),
            killed("cancelled", "process dead or no PID"),
            "user",
        ),
        Reaper(
            "kill_stale_play",
            "C11",
            _is("play", "running") & child_ended,
            ("started_age_s", "created_age_s"),
            (">=", limits.kill_s),
            killed("blocked", "child session terminated"),
            "user",
        ),
        Reaper(
            "kill_stale_show",
            "C11",
            _is("show", "active") & all_ended,
            kill_age,
            (">=", limits.kill_s),
            killed("aborted", "all child plays terminated"),
            "user",
        ),
    )
