"""Family C: the rules of lionagi that close what looks dead, as detectors that only tell."""

from __future__ import annotations

from typing import Any

import polars as pl

from stateanalytics.systems.detector import Detector, catalogued
from stateanalytics.systems.lionagi.reaper_rules import (
    MIRROR_AGENT,
    REAPABLE_PLAYS,
    REAPABLE_SHOWS,
    Limits,
    Reaper,
    reapers,
)

_WORDS: dict[str, dict[str, Any]] = {
    "phantom_session": {
        "name": "phantom_v2",
        "number": "C2",
        "version_of": "phantom",
        "since": "2026-07-05",
        "origin": "admin._classify_phantom; its reaper, C3, does the same every 300 s",
        "rule": "row not written for an hour and not seen alive; without any write: at once",
    },
    "null_status": {
        "number": "C4",
        "since": "0.27.0",
        "origin": "lifecycle.py",
        "rule": "no status, not seen alive, and not written for an hour",
    },
    "invocation_deadline": {
        "number": "C5",
        "since": "0.27.0",
        "origin": "lifecycle.py",
        "rule": "running for more than two hours, whatever its sessions do",
        "restarts_on": "start",
    },
    "zero_session_invocation": {
        "number": "C6",
        "since": "0.27.0",
        "origin": "lifecycle.py",
        "rule": "running without any session, and not written for five minutes",
    },
    "stale_play": {
        "number": "C7",
        "since": "2026-07",
        "origin": "lifecycle.py",
        "rule": "its session is not seen alive, and its row not written for six hours",
    },
    "stale_schedule_run": {
        "number": "C8",
        "since": "2026-07-12",
        "origin": "lifecycle.py",
        "rule": "running, and not written for a day",
    },
    "stale_show": {
        "number": "C9",
        "since": "2026-07-13",
        "origin": "lifecycle.py",
        "rule": "not written for six hours, and its directory says how it ended",
    },
    "doctor": {
        "name": "state_doctor",
        "number": "C10",
        "since": "0.26.0",
        "origin": "cli/state.py, li state doctor",
        "page": "li state doctor",
        "rule": "running for more than a day, or never started; later: and not seen alive",
        "restarts_on": "start",
    },
    "kill_stale": {
        "name": "kill_all_stale",
        "number": "C11",
        "since": "0.26.7",
        "origin": "cli/kill.py, li kill --all-stale",
        "page": "li kill",
        "rule": "started an hour ago and not seen alive, however recently it spoke",
        "restarts_on": "start",
    },
    "kill_stale_play": {
        "name": "kill_all_stale_plays",
        "number": "C11/plays",
        "since": "2026-05-30",
        "origin": "cli/kill.py, li kill --all-stale",
        "page": "li kill",
        "rule": "started an hour ago, and its session does not run",
    },
    "kill_stale_show": {
        "name": "kill_all_stale_shows",
        "number": "C11/shows",
        "since": "2026-05-30",
        "origin": "cli/kill.py, li kill --all-stale",
        "page": "li kill",
        "rule": "started an hour ago, and all its plays are over",
    },
}
_TYPES = {
    "invocation_deadline": ("invocation",),
    "zero_session_invocation": ("invocation",),
    "stale_play": ("play",),
    "stale_schedule_run": ("schedule_run",),
    "stale_show": ("show",),
    "kill_stale": ("session", "invocation"),
    "kill_stale_play": ("play",),
    "kill_stale_show": ("show",),
}
_status = pl.col("status")
_SCOPES: dict[str, tuple[pl.Expr, str]] = {
    "null_status": (_status.is_null(), "sessions without a status"),
    "stale_play": (_status.is_in(REAPABLE_PLAYS), "plays that go on"),
    "stale_show": (_status.is_in(REAPABLE_SHOWS), "shows that are active or imported"),
    "kill_stale_show": (_status == "active", "active shows"),
}
_NOT_FOREIGN = pl.col("is_foreign").ne_missing(pl.lit(value=True))
_is_mirror = (pl.col("recorded_by") == "mirrored") | (pl.col("agent") == MIRROR_AGENT)
_FAMILY: dict[str, Any] = {"family": "lionagi C", "system": "lionagi", "question": "dead"}


def closers(limits: Limits | None = None) -> tuple[Detector, ...]:
    """The detectors of the family, in the order of the catalogue.

    Parameters
    ----------
    limits : Limits, optional
        Other limits to try; lionagi's own by default.
    """
    made = {rule.name: _of(rule) for rule in reapers(limits) if rule.name in _WORDS}
    return (_phantom_v1(), *made.values(), _mirror_idle(), *_not_offline())


def _of(rule: Reaper) -> Detector:
    words = dict(_WORDS[rule.name])
    number, name = words.pop("number"), words.pop("name", rule.name)
    word = rule.target_status
    asks = not rule.ignores_liveness
    scope, scope_words = _SCOPES.get(rule.name, (_status == "running", "running ones"))
    return catalogued(
        name,
        known_as=number,
        entity_types=_TYPES.get(rule.name, ("session",)),
        measures=rule.ages,
        comparison=rule.comparison,
        threshold_s=float(rule.limit_s),
        counts_never=rule.counts_never,
        when=rule.when & _NOT_FOREIGN,
        scope=scope,
        scope_words=scope_words,
        label=word,
        liveness="unknown is dead" if asks else "not asked",
        **{"page": "studio", **_FAMILY, **words},
    )


def _phantom_v1() -> Detector:
    return catalogued(
        "phantom_v1",
        known_as="C1",
        measures="updated_age_s",
        comparison=">=",
        threshold_s=3600.0,
        counts_never=True,
        when=pl.col("process_alive").ne_missing(pl.lit(value=True)),
        scope=pl.col("status") == "running",
        scope_words="running sessions; a lost directory or an old lock counted at any age",
        label="phantom",
        liveness="unknown is dead",
        since="0.26.0",
        until="2026-07-05",
        page="studio",
        version_of="phantom",
        origin="admin._classify_phantom",
        rule="not seen alive, and its row not written for an hour; early versions deleted it",
        **_FAMILY,
    )


def _mirror_idle() -> Detector:
    return catalogued(
        "mirror_idle",
        known_as="C12",
        measures="last_message_age_s",
        threshold_s=300.0,
        scope=(pl.col("status") == "running") & _is_mirror,
        population=_is_mirror,
        scope_words="running sessions that mirror another tool's transcript",
        label="completed",
        restarts_on="message",
        since="0.29.0",
        page="studio",
        origin="cli/mirror.py",
        rule="no message for five minutes: over",
        **_FAMILY,
    )


def _not_offline() -> tuple[Detector, ...]:
    def listed(name: str, number: str, what: str, rule: str, why_not: str) -> Detector:
        return catalogued(
            name,
            known_as=number,
            entity_types=(what,),
            rule=rule,
            why_not=why_not,
            origin="scheduler, worker, dispatch and MCP services",
            **{**_FAMILY, "question": "dead"},
        )

    return (
        listed(
            "undispatched_orphan",
            "C13",
            "schedule_run",
            "running and never dispatched, when the scheduler starts",
            "when the scheduler started is not written down",
        ),
        listed(
            "dispatched_orphan",
            "C14",
            "schedule_run",
            "running and dispatched, and its owner is gone",
            "whether the owner is there is seen on its machine only",
        ),
        listed(
            "lease_expiry",
            "C15",
            "schedule_run",
            "its lease of 300 s ran out; after three it fails",
            "leases are taken back within seconds; ask the raw table with snap.sql",
        ),
        listed(
            "worker_heartbeat",
            "C16",
            "worker",
            "no heartbeat for 90 s",
            "workers are no entities, and each heartbeat is written over by the next",
        ),
        listed(
            "dispatch_claim",
            "C17",
            "dispatch",
            "the claim of 15 s on a delivery ran out",
            "claims are taken back within seconds and written over",
        ),
        listed(
            "job_orphan",
            "C18",
            "job",
            "its process is gone, or another has its number",
            "it looks at the processes of the machine, at that moment",
        ),
    )
