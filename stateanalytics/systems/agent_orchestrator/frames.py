"""The frames that only Agent Orchestrator fills."""

from __future__ import annotations

from stateanalytics.core.schema import Calls, OfInput
from stateanalytics.core.shapes import Frame, Integer, Moment, Real, Text, YesNo, frame


class AoSessions(OfInput, key=("source", "path")):
    """One session record of Agent Orchestrator: a file, or a row of the Go database."""

    path = Text("the file below the input, with a # and the row in a database")
    entity_id = Text("the session that it is a record of; null: unreadable")
    session_id = Text("the session's own name, which several projects may share")
    is_current = YesNo("is this the current record of the entity; older records are kept here")
    layout = Text("json, kv, kv_archive, json_archive, database")
    generation = Text("G0 key=value, G1 with statePayload, G2 JSON, G3 Go")
    directory = Text("name of the project's directory")
    project = Text("the project by the record, else by its directory")
    is_migrated_original = YesNo("did the storage migration copy and leave it")
    archived_at = Moment("when it was archived, by the name of the file")
    modified_at = Moment("last change of the file; a copy has its own")
    size_bytes = Integer("size of the file", unit="bytes")
    is_readable = YesNo("could it be parsed")
    problem = Text("why not")
    stored_status = Text("the flat status: a cache that goes stale")
    legacy_status = Text("the status that its axes give, unknown words kept")
    payload_key = Text("lifecycle or statePayload; null: the record has no axes")
    is_synthesized = YesNo("were the axes inferred from the flat status")
    reject_reason = Text(
        "what is wrong with its payload, which its own reader would discard; null: nothing"
    )
    kind = Text("worker or orchestrator")
    session_state = Text("session axis: state, as stored")
    session_reason = Text("session axis: reason, as stored")
    pr_state = Text("pull request axis: state")
    pr_reason = Text("pull request axis: reason")
    runtime_state = Text("runtime axis: state")
    runtime_reason = Text("runtime axis: reason")
    is_ao_terminal = YesNo("Agent Orchestrator's isTerminal: counts a lost runtime")
    created_at = Moment("when it was spawned")
    started_at = Moment("when it first worked; null if inferred")
    completed_at = Moment("when it was done; null if inferred")
    terminated_at = Moment("when it ended; survives an overwritten reason")
    last_transition_at = Moment("last decision written, changed or not: no dwell")
    pr_observed_at = Moment("last look at the pull request")
    runtime_observed_at = Moment("last probe")
    activity_last_at = Moment("last sign of its agent, where the record keeps it: Go")
    first_signal_at = Moment("first sign of its agent by itself: Go")
    has_hooks = YesNo("does its agent signal by itself in a terminal: Go")
    restored_at = Moment("last restore or recovery")
    evidence_text = Text("what the last poll saw")
    detecting_attempts = Integer("consecutive polls in doubt; grows after escalation")
    detecting_started_at = Moment("the first detection")
    detecting_escalated_at = Moment("when the doubt was escalated")
    detecting_evidence_hash = Text("digest of the evidence in doubt")
    report_state = Text("what its agent last reported")
    report_at = Moment("when that was reported")
    report_note = Text("the words of that report (at most 500 characters)")
    stored_watcher_trigger = Text("trigger of the report watcher that is on")
    n_watcher_polls = Integer("polls since that trigger has been on")
    watcher_activated_at = Moment("since when it is on")
    merge_cleanup_since = Moment("since when it is merged and waits for its agent to become idle")
    n_recoveries = Integer("recoveries")
    escalated_at = Moment("when recovery gave up")
    escalation_reason = Text("why recovery gave up")
    termination_reason = Text("flat reason that recovery wrote")
    pr_number = Integer("number of the pull request")
    pr_url = Text("its address: of the axis, else the flat key")
    pr_urls = Text("all pull requests, comma-separated, where there are several")
    n_prs = Integer("pull requests it names")
    pr_title = Text("title, where it was looked up")
    pr_ci_status = Text("passing, failing, pending, none; not kept by the axis")
    pr_review_decision = Text("approved, changes_requested, pending, none")
    is_pr_mergeable = YesNo("can it be merged")
    is_pr_draft = YesNo("is it a draft")
    has_pr_conflicts = YesNo("does it conflict")
    is_pr_behind = YesNo("is it behind its base")
    n_pr_additions = Integer("lines added", unit="lines")
    n_pr_deletions = Integer("lines deleted", unit="lines")
    n_pr_unresolved_threads = Integer("review threads that wait for an answer")
    pr_enriched_at = Moment("when all this was looked up")
    event_priority = Text("priority of its status: urgent, action, warning, info")
    primary_reason = Text("the reason that its logs give for the three axes")
    issue = Text("the issue it works on")
    branch = Text("git branch")
    worktree = Text("path of its worktree, as stored")
    agent_session_id = Text("the agent's own session; of several each, with blanks between")
    runtime_name = Text("tmux, process, …")
    tmux_name = Text("name of its terminal")
    is_pr_auto_detected = YesNo("is its pull request looked for; null: by default")
    other_keys = Text("keys that no column holds, comma-separated")
    more_codes = Text("codes of its `ao_circumstances`, joined by ', ': Go")
    is_status_stale = YesNo("does the flat status differ from its axes")
    is_kill_doubtful = YesNo("lost runtime that may be a kill whose reason was overwritten")
    is_flickering = YesNo("do two writers disagree about it")
    looks_ended_after_restore = YesNo("restored, but still marked as terminated")
    has_stale_end = YesNo("alive again, but still has an end")
    is_zombie = YesNo("not over, and its process no longer exists")
    is_spawn_race = YesNo("lost within a minute of its creation")
    has_kill_event = YesNo("does a log record that a person killed it")
    reattribution = Text("what the mapping replaced: killed_by_event, flicker")
    reattribution_confidence = Real("how sure that is, 0 to 1")
    lifecycle = Text("mapped: ADR-0033 lifecycle")
    outcome = Text("mapped: terminal word; null while not over")
    health = Text("mapped: health")
    delivery = Text("mapped: delivery")
    reason_codes = Text("mapped: codes, joined by ', '")
    confidence = Real("that the mapped lifecycle is right, 0 to 1")


SESSIONS = frame(AoSessions)


class AoDecisions(OfInput, key=("source", "entity_id", "at", "seq")):
    """The axes of a session after one line of a log."""

    entity_id = Text("the session")
    at = Moment("when")
    seq = Integer("place among those of its session at that moment, from 0")
    log = Text("which log: audit, observability, trace, event, notification, change")
    kind = Text("what happened, as in events")
    previous_status = Text("status before, where the line has it")
    status = Text("status after, where the line has it")
    previous_session_state = Text("session axis: state before")
    previous_session_reason = Text("session axis: reason before")
    previous_pr_state = Text("pull request axis: state before")
    previous_pr_reason = Text("pull request axis: reason before")
    previous_runtime_state = Text("runtime axis: state before")
    previous_runtime_reason = Text("runtime axis: reason before")
    session_state = Text("session axis: state after")
    session_reason = Text("session axis: reason after")
    pr_state = Text("pull request axis: state after")
    pr_reason = Text("pull request axis: reason after")
    runtime_state = Text("runtime axis: state after")
    runtime_reason = Text("runtime axis: reason after")
    evidence_text = Text("what the poll saw")
    detecting_attempts = Integer("consecutive polls in doubt")
    code = Text("the reason that the line gives")


DECISIONS = frame(AoDecisions)


class AoWork(OfInput, key=("source", "entity_type", "entity_id")):
    """One turn, review, switch of agent or interface, or start of a session: Go."""

    entity_type = Text("turn, review_run, agent_switch, interface_transition, spawn")
    entity_id = Text("its own id")
    session_id = Text("the session that it belongs to; null: none was left")
    project = Text("the project, where no session has it")
    kind = Text("of a spawn worker or orchestrator, of a move the interface")
    agent = Text("the agent that reviews, takes over or was to start")
    raw_status = Text("its state or phase, as stored")
    verdict = Text("of a review: approved, changes_requested")
    error_code = Text("why it failed, as a code")
    error_message = Text("why it failed, in words")
    created_at = Moment("when it was asked for")
    started_at = Moment("when it began")
    ended_at = Moment("when it was over")
    is_replaced = YesNo(
        "was the turn taken back, or does its chat go on without it: in another branch, or "
        "from before it"
    )
    gives_up = YesNo("the last answer of a turn says that it was not done: a hypothesis")
    is_question = YesNo("the last answer of a turn asks something: a hypothesis")
    is_correction = YesNo("a person's prompt corrects the answer before: a hypothesis")


WORK = frame(AoWork)


class AoUsage(OfInput, key=("source", "entity_id", "at", "measured", "model")):
    """What one answer used, or one chat up to its last write: Go."""

    entity_id = Text("the session; null: the chat is of a project")
    project = Text("the project of a chat")
    at = Moment("when; null: the transcript gave no time")
    measured = Text("event: an increment; chat: a sum")
    provider = Text("model provider")
    model = Text("model id")
    n_input_tokens = Integer("tokens read in whatever way; null: unknown", unit="tokens")
    n_cache_read_tokens = Integer("of the input tokens, read from the cache", unit="tokens")
    n_cache_write_tokens = Integer("tokens put into the cache", unit="tokens")
    n_output_tokens = Integer("tokens written; null: unknown", unit="tokens")
    n_reasoning_tokens = Integer("of the output tokens, for reasoning", unit="tokens")
    cost_usd = Real("reported cost; null: not reported, or no USD", unit="USD")
    estimated_cost = Real("its own estimate, in a currency that it does not name")


USAGE = frame(AoUsage)


class AoCircumstances(OfInput, key=("source", "entity_id", "code", "at", "detail")):
    """What else is known of a session: Go."""

    entity_id = Text("the session")
    code = Text("reason code")
    at = Moment("since when; null: not recorded")
    detail = Text("the word of the row that it was read from")


CIRCUMSTANCES = frame(AoCircumstances)


class AoCalls(Calls, key=("source", "entity_id")):
    """One call of a tool in a chat of the Go rewrite."""

    turn_id = Text("the turn, an id in `entities`")


CALLS = frame(AoCalls)


FRAMES = (SESSIONS, DECISIONS, WORK, USAGE, CIRCUMSTANCES, CALLS)


def frames() -> tuple[Frame, ...]:
    """Every frame of Agent Orchestrator, in the order of the schema."""
    return FRAMES
