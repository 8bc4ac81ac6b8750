"""NormalizedState one row at a time: the slow obvious version that bulk rules must equal."""

from stateanalytics.core.vocabulary import ADR_WORDS, STATUS_WORDS

WORDS = {(word.entity_type, word.raw_status): word for word in (*STATUS_WORDS, *ADR_WORDS)}
LIMITS = {"flow": 43200, "fanout": 43200, "show-play": 43200, "engine": 43200}
DEAD = ("stalled", "process_dead", "orphaned")
GOOD = ("succeeded", "completed", "merged")
NO_HEALTH = ("invocation", "branch")
NO_DELIVERY = ("invocation", "schedule", "team", "branch", "engine_run", "dispatch")
HEALTH_TEXT = {"ok": "Infra OK", "process_dead": "Process dead", "unknown": "Health unknown"}
DELIVERY_TEXT = {
    "passed": "Artifacts passed",
    "partial": "Artifacts partial",
    "missing": "Artifacts missing",
    "invalid": "Artifact contract invalid",
    "unknown": "Artifacts unknown",
}
EXPLAINED = ("due", "idle", "degraded", "blocked", "misfired", "unknown", *DEAD)


def slow_states(rows, as_of, schedules=()):
    """One dict an entity, in order; ``schedules`` maps ids to a health word."""
    sessions = {}
    for row in rows:
        if row["entity_type"] == "session":
            key = (row["source"], row["system"], row["entity_id"])
            found = (_session_health(row, as_of), _session_delivery(row))
            sessions.setdefault(key, []).append(found)
    return [_state(row, rows, sessions, dict(schedules), as_of) for row in rows]


def _age(row, column, as_of):
    return None if row[column] is None else (as_of - row[column]).total_seconds()


def _word(row):
    return WORDS.get((row["entity_type"], row["raw_status"]))


def _session_health(row, as_of):
    word = _word(row)
    if word is None:
        return "unknown"
    if word.is_terminal:
        return "degraded" if row["has_stale_locks"] else "ok"
    silence = _age(row, "last_activity_at", as_of)
    is_stale = silence is not None and silence > LIMITS.get(row["kind"], 21600)
    has_output = row["has_artifacts"] or row["n_messages"]
    if row["process_alive"] is None and (silence is None or not has_output):
        return "stalled" if is_stale else "unknown"
    if row["process_alive"] is False:
        return "process_dead" if has_output else "orphaned"
    if is_stale:
        return "stalled"
    return "idle" if silence is not None and silence > 3600 else "running"


def _session_delivery(row):
    word = _word(row)
    if word and word.raw_status == "completed_empty":
        return "missing"
    if row["is_contract_valid"] is False:
        return "invalid"
    if not row["has_contract"]:
        return "not_expected"
    if row["is_verdict_valid"] is False:
        return "invalid"
    if row["n_expected"] == 0:
        return "not_expected"
    if not (word and word.is_terminal):
        return "unknown"
    verdicts = {"passed": "passed", "warning": "partial", "failed": "missing"}
    return verdicts.get(row["verdict"], "unknown")


def _working_session(row, sessions):
    return sessions.get((row["source"], row["system"], row["session_id"]), [])


def _children(row, rows):
    return [
        child
        for child in rows
        if (child["source"], child["system"]) == (row["source"], row["system"])
        and (child["parent_type"], child["parent_id"]) == (row["entity_type"], row["entity_id"])
        and child["entity_type"] == {"show": "play", "schedule": "schedule_run"}[row["entity_type"]]
    ]


def _health(row, rows, sessions, schedules, as_of):
    kind, word = row["entity_type"], _word(row)
    if kind in NO_HEALTH:
        return None
    if kind == "session":
        return _session_health(row, as_of)
    if word is None or word.lifecycle == "unknown":
        return "unknown"
    if kind == "play" and word.raw_status == "blocked":
        return "blocked"
    if word.is_terminal or word.raw_status == "disabled":
        return "ok"
    theirs = [health for health, _ in _working_session(row, sessions)]
    silence = _age(row, "last_activity_at", as_of)
    if kind == "play" and word.raw_status in ("running", "redoing", "running_complete"):
        if theirs:
            return "stalled" if any(health in DEAD for health in theirs) else "running"
        if silence is None:
            return "unknown"
        return "stalled" if silence >= 21600 else "running"
    if kind == "engine_run":
        return "stalled" if any(health in DEAD for health in theirs) else "running"
    if kind == "show":
        statuses = {child["raw_status"] for child in _children(row, rows)}
        if statuses & {"running", "redoing", "running_complete"}:
            return "running"
        return "blocked" if statuses & {"blocked", "escalated", "gate_failed"} else "ok"
    if kind == "schedule":
        told = schedules.get(row["entity_id"])
        if told == "misfired":
            return "misfired"
        if any(child["raw_status"] == "running" for child in _children(row, rows)):
            return "running"
        return told or "unknown"
    if kind == "schedule_run" and word.raw_status == "running":
        written = _age(row, "updated_at", as_of)
        quiet = _age(row, "started_at", as_of) if written is None else written
        if quiet is None:
            return "unknown"
        return "stalled" if quiet >= 86400 else "running"
    return "due" if kind == "dispatch" else "ok"


def _delivery(row, sessions):
    kind, word = row["entity_type"], _word(row)
    if word and word.raw_status == "completed_empty":
        return "missing"
    if kind == "session":
        return _session_delivery(row)
    if kind in NO_DELIVERY or kind not in {whose for whose, _ in WORDS}:
        return None
    theirs = [delivery for _, delivery in _working_session(row, sessions)]
    if kind == "play" and theirs:
        order = ("passed", "partial", "missing", "invalid", "not_expected", "unknown")
        return max(theirs, key=order.index)
    return "not_expected"


def _text(word):
    return word.replace("_", " ").capitalize()


def cascade(outcome, health, delivery):
    """ADR-0033's function, retyped: the slow obvious version."""
    if outcome in ("failed", "aborted"):
        return "critical", "danger", 1
    if health in ("process_dead", "orphaned"):
        return "critical", "danger", 2
    if delivery == "missing":
        return "critical", "danger", 3
    if health == "stalled":
        return "critical", "danger", 4
    if health == "misfired":
        return "critical", "danger", 5
    if outcome == "timed_out":
        return "warning", "warning", 6
    if health in ("idle", "degraded", "disconnected"):
        return "warning", "warning", 7
    if delivery in ("partial", "invalid"):
        return "warning", "warning", 8
    if health == "running":
        return "info", "info", 9
    if health == "due":
        return "info", "info", 10
    if outcome == "skipped":
        return "info", "neutral", 11
    if outcome in ("succeeded", "completed", "merged"):
        return "neutral", "success", 12
    if outcome == "cancelled":
        return "neutral", "neutral", 13
    return "neutral", "neutral", 14


def _state(row, rows, sessions, schedules, as_of):
    word = _word(row)
    is_mirror = row["entity_type"] == "branch" and row["raw_status"] is None
    outcome = word.outcome if word else "unknown"
    lifecycle = word.lifecycle if word else "unknown"
    is_legacy = lifecycle == "unknown" and not is_mirror
    health = _health(row, rows, sessions, schedules, as_of)
    delivery = _delivery(row, sessions)
    severity, tone, rule = cascade(outcome, health, delivery)
    is_over = bool(word and word.is_terminal)
    if word is None:
        first = "Legacy" if is_legacy and not row["raw_status"] else "Unknown"
    elif lifecycle == "unknown":
        first = _text(word.raw_status)
    else:
        first = _text(lifecycle if outcome in (None, "unknown") else outcome)
    parts = [first]
    if health and not (health == "ok" and is_over):
        parts.append(HEALTH_TEXT.get(health, _text(health)))
    if delivery in DELIVERY_TEXT and not (delivery == "passed" and outcome in GOOD):
        parts.append(DELIVERY_TEXT[delivery])
    effective = lifecycle.replace("_", " ")
    if lifecycle == "running" and health in DEAD:
        effective = "stale running"
    if is_legacy:
        has_own = word is None and row["raw_status"]
        effective = row["raw_status"] if has_own else "legacy"
    domain = "run" if row["entity_type"] in ("session", None, "ghost") else row["entity_type"]
    codes = [row["reason_code"]]
    is_explained = row["reason_code"] or row.get("reason_message")
    if outcome in ("failed", "timed_out", "aborted") and not is_explained:
        codes = [f"{domain}.{outcome}.unexplained"]
    codes += [f"{domain}.health.{health}"] if health in EXPLAINED else []
    is_told = delivery in ("partial", "missing", "invalid")
    codes += [f"{domain}.delivery.{delivery}"] if is_told else []
    begun, ended = row["started_at"], row["ended_at"]
    has_span = is_over and begun is not None and ended is not None
    axes = {"lifecycle": lifecycle, "outcome": outcome, "health": health, "delivery": delivery}
    return axes | {
        "severity": severity,
        "tone": tone,
        "severity_rule": rule,
        "is_terminal": word.is_terminal if word and lifecycle != "unknown" else _terminal(word),
        "is_legacy": is_legacy,
        "display": " · ".join(dict.fromkeys(parts)),
        "effective_state": effective,
        "reason_codes": ", ".join(filter(None, codes)) or None,
        "age_s": _age(row, "started_at", as_of),
        "silence_s": _age(row, "last_activity_at", as_of),
        "duration_s": (ended - begun).total_seconds() if has_span else None,
    }


def _terminal(word):
    return word.is_terminal if word else None
