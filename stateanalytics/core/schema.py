"""Every canonical frame: the meaning of a row, its key, and each column with its meaning.

Everything that the readers in `systems` return has the shape written here. The page `stateanalytics
sql --schema`, ``snap.schema()`` and the tables that SQL sees are all made from this module.

Conventions, everywhere: moments are ``Datetime("us", "UTC")`` and end in ``_at``;
durations are float seconds and end in ``_s``; counts start with ``n_``; Booleans
with ``is_`` or ``has_``; ids are strings; **null means not known**.
"""

from __future__ import annotations

from stateanalytics.core.shapes import INTEGER as INTEGER
from stateanalytics.core.shapes import MOMENT as MOMENT
from stateanalytics.core.shapes import REAL as REAL
from stateanalytics.core.shapes import TEXT as TEXT
from stateanalytics.core.shapes import YES_NO as YES_NO
from stateanalytics.core.shapes import (
    Anything,
    Columns,
    Integer,
    Moment,
    Real,
    Text,
    Texts,
    Words,
    YesNo,
    frame,
)
from stateanalytics.core.shapes import Column as Column
from stateanalytics.core.shapes import Frame as Frame

# --- vocabularies (ADR-0033's words; what is closed there is an Enum here) -------------

LIFECYCLES = tuple(
    (
        "draft planned pending queued enabled active running idle paused blocked run_complete "
        "completed succeeded merged failed timed_out cancelled aborted skipped archived closed "
        "disabled unknown"
    ).split()
)
OUTCOMES = tuple(
    "succeeded completed merged failed timed_out cancelled aborted skipped unknown".split()
)
HEALTHS = tuple(
    (
        "ok running due idle degraded disconnected blocked stalled misfired process_dead orphaned "
        "unknown"
    ).split()
)
DELIVERIES = ("passed", "partial", "missing", "invalid", "not_expected", "unknown")
SEVERITIES = ("critical", "warning", "info", "neutral")
EFFORTS = ("smooth", "struggled", "stuck", "given_up")
TONES = ("danger", "warning", "info", "success", "neutral")
CLAIM_STATUSES = ("observed", "inferred", "hypothesis", "verified", "disputed", "superseded")
DIMENSIONS = ("lifecycle", "health", "delivery")
FINDING_SEVERITIES = ("error", "warning", "info")

NO_WORD = "none"
"""In a ``recorded_`` column: the axis does not apply. Null means that the rules decide."""

CODE_SEPARATOR = ", "
"""The separator of reason codes in one text."""

RECORDED_REASON = ("dimension", "code", "message", "claim_status", "confidence", "evidence")
"""The keys of each object in ``recorded_reasons``: columns of `REASONS`."""

ENTITY_KEY = ("source", "system", "entity_type", "entity_id")


class OfInput(Columns):
    """A row of one input."""

    source = Text("the input")


class EntityKey(Columns, key=ENTITY_KEY):
    """One operational entity."""

    source = Text("the input this row came from, as it was named to `read`")
    system = Text("the system that wrote it")
    entity_type = Text("session, branch, show, play, invocation, schedule, …")
    entity_id = Text("the system's own id")


class Entities(EntityKey, key=ENTITY_KEY):
    """One operational entity, with the last values of its row and its files."""

    parent_type = Text("entity_type of the direct parent")
    parent_id = Text("id of the direct parent (a branch's session, a play's show)")
    session_id = Text("the session that does the work (a session's own id)")
    invocation_id = Text("the request that caused the work; groups causes")
    run_id = Text("the run directory or execution it belongs to")
    kind = Text("kind of work: agent, play, flow, fanout, show-play, engine, …")
    name = Text("name shown to people")
    project = Text("project the work was for")
    directory = Text("working directory, as stored")
    native_session_id = Text(
        "its agent's own session: the id of a transcript, or several ids separated by blanks"
    )
    agent = Text("agent profile")
    model = Text("model id; null also for placeholders such as <synthetic>")
    provider = Text("model provider")
    playbook = Text("playbook or skill that was run")
    recorded_by = Text("live, imported (files read later) or mirrored (transcript)")
    raw_status = Text("the status exactly as stored; null: none was stored")
    attempt = Integer("which attempt at the same work this is, from 1")
    created_at = Moment("when the row was created")
    started_at = Moment("when work started")
    ended_at = Moment("when work ended; see end_written_by for who wrote it")
    updated_at = Moment("last write of any kind, overwritten by the next; no sign of life")
    last_message_at = Moment("last message of the work")
    last_activity_at = Moment("last sign of life: message, else update, else start")
    is_end_approximate = YesNo("the end was repaired or estimated later")
    end_written_by = Text("who wrote the end: executor, observer, import")
    n_messages = Integer(
        "messages as its system lists them: prompts and answers of models, in some systems also "
        "calls and results of tools and system messages; see n_chat_messages"
    )
    n_chat_messages = Integer(
        "prompts and answers of models, the same in every system; null: not known"
    )
    n_turns = Integer("turns, each a prompt and all that was done for it")
    n_model_turns = Integer(
        "turns that the program of the agent reported, usually one per answer of its model; "
        "0 with a timeout: the worker never answered; null: not reported"
    )
    starts = Text(
        "one line for each start or resumption of its work: from when, until when (or -), and where"
    )
    n_children = Integer("sessions of an invocation, plays of a show, members of a team")
    process_alive = YesNo(
        "is its process alive; known only if its machine was checked, such as with probe=True"
    )
    has_artifacts = YesNo("is an artifacts directory recorded (not: does it exist)")
    has_stale_locks = YesNo("are there stale lock files; cannot be known from the data alone")
    has_contract = YesNo("were outputs promised")
    is_contract_valid = YesNo("is the promise well formed; null without one")
    verdict = Text("the stored verification verdict, verbatim")
    is_verdict_valid = YesNo("is the verdict well formed; null without one")
    n_expected = Integer("outputs promised")
    n_required_missing = Integer("required outputs that were not found")
    n_optional_missing = Integer("optional outputs that were not found")
    n_produced = Integer("outputs that were found")
    timeout_s = Real("the configured limit", unit="s")
    timeout_elapsed_s = Real(
        "seconds that had passed when the limit stopped it; null: not recorded", unit="s"
    )
    timeout_from = Text(
        "where the limit is recorded: checkpoint, metadata, deadline (of the prompt)"
    )
    exit_code = Integer("exit code of the process, if it was recorded")
    reason_code = Text("the stored reason code")
    reason_message = Text("the stored reason as text, or the error message")
    evidence = Text("stored evidence: JSON list of objects with `kind`")
    n_input_tokens = Integer(
        "input tokens, including those read from a cache and written to one, as far as "
        "n_cache_read_tokens and n_cache_write_tokens are known; null: not reported",
        unit="tokens",
    )
    n_output_tokens = Integer("tokens written; null: not reported", unit="tokens")
    n_cache_read_tokens = Integer(
        "part of the input tokens: read from a cache; null: unknown", unit="tokens"
    )
    n_cache_write_tokens = Integer(
        "part of the input tokens: written to a cache; null: unknown", unit="tokens"
    )
    cost_usd = Real("cost; null: not reported, never free", unit="USD")
    stored_duration_s = Real("the duration the system stored, for cross-checks", unit="s")
    stored_health = Text("health as stored (ADR-0033 appendix A), where it is")
    stored_delivery = Text("delivery as stored (ADR-0033 appendix A), where it is")
    stored_reason_codes = Text("reason codes as stored: JSON list, where it is")
    depends_on = Text(
        "names of entities of the same parent that it depends on: JSON list, as stored"
    )
    recorded_lifecycle = Text("lifecycle by its system's axes; null: by raw_status")
    recorded_outcome = Text("its outcome; null: not ended")
    recorded_health = Text("health by its system; none: does not apply; null: by rules")
    recorded_delivery = Text("delivery by its system; none: does not apply; null: by rules")
    recorded_display = Text("text that replaces the display of the axes")
    recorded_reason_codes = Text("codes of recorded_reasons, joined by ', '")
    recorded_reasons = Text("JSON list of reasons, with the columns of `reasons`")
    last_sign_at = Moment("start of the silence of open work, if not the last activity")
    patience_s = Real("silence that is allowed for open work; null: its system's limit", unit="s")
    cadence_s = Real("time between the runs of a schedule; null: not regular", unit="s")
    due_at = Moment("when its next scheduled run or retry is due")
    retry_code = Text("reason code of the failure to be retried; null: no retry is due")
    n_running = Integer("parts that are running: runs of a schedule, tool calls")
    n_questions = Integer("unanswered questions to a person")
    n_unknown_finishes = Integer("steps that finished for no known reason")
    is_resume_claimed = YesNo("its system has claimed to resume it")


ENTITIES = frame(Entities)


class Transitions(EntityKey, key=(*ENTITY_KEY, "at", "seq")):
    """One accepted change of status."""

    at = Moment("when it was accepted")
    seq = Integer("order within the store; breaks ties of `at`")
    previous_status = Text("status before; null: the first that was recorded")
    status = Text("status after")
    reason_code = Text("why, as a code")
    message = Text("why, in words")
    writer = Text("which part of the system wrote it (executor, admin, …)")
    actor = Text("who caused it")
    evidence = Text("JSON list of objects with `kind`")
    metadata = Text("JSON object with further facts")


TRANSITIONS = frame(Transitions)


class Events(EntityKey, key=(*ENTITY_KEY, "at", "seq")):
    """One thing that happened."""

    at = Moment("when it happened")
    seq = Integer("order within its log, for equal timestamps")
    kind = Text("message, signal.<Kind>, admin.<action>, attention.<state>, …")
    is_activity = YesNo("counts as a sign of life of the entity")
    role = Text("role of a message, or who acted")
    name = Text("operation, tool or item")
    size_bytes = Integer("size of the body, which is not loaded", unit="bytes")
    duration_s = Real("how long it took, if it was recorded", unit="s")
    detail = Text("a short text (at most 500 characters)")
    body = Text("the body; null unless `read(bodies=True)`, or `--bodies`")


EVENTS = frame(Events)


class Inputs(Columns, key=("input_digest",)):
    """What a call of a tool was about."""

    input_digest = Text("digest of what it was called with: equal digests are equal inputs")
    target = Text("the file, the host of a URL, or the first word of a command")
    last_command = Text("of a command line: program of its last command, whose exit code it has")
    is_test = YesNo("it runs tests, by a known runner, or reads the summary of one that ran on")
    is_undo = YesNo("of a command line: it takes back changes in git")
    is_look = YesNo("of a command line: it reads something and changes nothing")
    replaced_digest = Text("of an edit: digest of the text that it replaces")
    written_digest = Text("of an edit: digest of the text that it writes")


INPUTS = frame(Inputs)


class Results(Columns, key=("result_digest",)):
    """What a call of a tool returned."""

    result_digest = Text("digest of its result: equal digests are equal results")
    test_result = Text("passed or failed, by the last summary of a known runner of tests in it")


RESULTS = frame(Results)


class Calls(OfInput, key=("source", "entity_id")):
    """One call of a tool by an agent."""

    system = Text("the system that recorded it")
    session_id = Text("the session")
    thread_id = Text("the session or subagent that called it, an id in `entities`")
    part_id = Text("the part of it that called, an id in `entities`; null: it has no parts")
    turn_no = Integer("number of the turn in it; null: not recorded")
    entity_id = Text("its id, in `entities` too where calls are rows there")
    call_id = Text("the provider's id of the call")
    tool = Text("tool, with its server")
    inputs = Inputs
    results = Results
    started_at = Moment("when it was called; null: only its result was recorded")
    ended_at = Moment("when its result came; null: none did")
    duration_s = Real("how long it took", unit="s")
    outcome = Text(
        "ok, failed, expected_nonzero, denied, timed_out, interrupted; unknown: without a result"
    )
    cause = Text("why it is not ok, as in reason codes")
    message = Text("its error in words (at most 500 characters)")
    exit_code = Integer("exit code of a command; null: not recorded")
    n_answer_tokens = Integer("tokens of the answer that asked for it", unit="tokens")
    is_retry_of = Text("the call before it in its thread, where tool and input are equal")


CALLS = frame(Calls)


class Said(Columns, key=("n_idle_answers",)):
    """What the texts of a turn show."""

    n_idle_answers = Integer("answers after which nothing was called")
    gives_up = YesNo("its last answer says that it was not done: a hypothesis")
    is_question = YesNo("its last answer asks something: a hypothesis")
    is_correction = YesNo("its prompt corrects the answer before: a hypothesis")


class Turns(OfInput, key=("source", "thread_id", "turn_no")):
    """One turn of an agent, a prompt and all that was done for it, in any system."""

    system = Text("the system that recorded it")
    session_id = Text("the session")
    thread_id = Text("the session or subagent, an id in `entities`")
    turn_no = Integer("number of the turn in it")
    entity_type = Text("turn, or execution where a turn may have several")
    entity_id = Text("its id in `entities`")
    started_at = Moment("when it began")
    ended_at = Moment("when it ended; null: it is open")
    n_retries = Integer("requests to the provider that were tried again")
    retry_s = Real("waited for retries", unit="s")
    n_compactions = Integer("times that its conversation was compacted")
    is_empty = YesNo("it ended without an answer")
    is_cut = YesNo("its answer was cut, at a limit of tokens or of the context")
    is_interrupted = YesNo("a person stopped it")
    is_taken_back = YesNo("a person took it back")
    said = Said


TURNS = frame(Turns)


class Signs(OfInput, key=("source", "thread_id", "sign", "first_call")):
    """One sign of struggle inside a session or subagent."""

    system = Text("the system that recorded it")
    session_id = Text("the session")
    thread_id = Text("the session or subagent, an id in `entities`")
    turn_no = Integer("number of the turn of the first; null: not recorded")
    sign = Text(
        "repeated_call, repeated_error, alternating, unchanged_retry, denied, tool_down, "
        "interrupted, corrected, taken_back, tests_failing, mostly_failing, provider_retries, "
        "only_answers, compacted, gave_up, empty_answer, cut_answer"
    )
    n_calls = Integer("calls that show it; of the provider, retries; of people and answers, turns")
    first_call = Text("the first of them, an id in `entities`")
    last_call = Text("the last of them")
    first_at = Moment("when the first was called")
    last_at = Moment("when the last ended, or was called")
    tool = Text("tool of the first")
    target = Text("what the first was about: file, host or command")
    message = Text("words of the last of them that failed")
    lost_s = Real("from the end of the first to that of the last, in each turn", unit="s")
    n_tokens = Integer("tokens of the answers that asked for all but the first", unit="tokens")


SIGNS = frame(Signs)


class Findings(Columns, key=("source", "code", "entity_type", "entity_id")):
    """One problem in the data, and what was done about it."""

    source = Text("the input it was found in")
    system = Text("the system that wrote the input")
    code = Text("stable code: cell.wrong_type, status.unknown, show.disk_differs, …")
    severity = Text("error, warning, info")
    entity_type = Text("type of the entity it is about; null: a table or a file")
    entity_id = Text("the entity it is about; null: several, see n_rows")
    table = Text("table or file")
    column = Text("column or key")
    n_rows = Integer("how many rows or records it concerns", unit="rows")
    message = Text("the problem in words")
    example = Text("one example, shortened")
    action = Text("what was done: set to null, excluded, kept under its own name")


FINDINGS = frame(Findings)


class States(EntityKey, key=ENTITY_KEY):
    """The normalized state of one entity at as-of (ADR-0033)."""

    lifecycle = Words(LIFECYCLES, "phase of the work, or its end")
    outcome = Words(OUTCOMES, "how it ended; null: not ended")
    health = Words(HEALTHS, "condition while it runs; null: does not apply")
    delivery = Words(DELIVERIES, "were the promised outputs produced; null: does not apply")
    severity = Words(SEVERITIES, "derived: how much attention it needs")
    tone = Words(TONES, "derived: the colour it is shown in")
    severity_rule = Integer("number of the rule of the cascade that fired")
    is_terminal = YesNo("no further change is expected")
    is_legacy = YesNo("no status, or one outside the vocabulary: excluded from rates")
    display = Text("the state in words, parts joined by ' · '")
    effective_state = Text("ADR-0025's word for lists, such as `stale running`")
    reason_codes = Text("codes of `reasons`, in order, joined by ', '")
    age_s = Real("as-of minus start", unit="s")
    silence_s = Real("as-of minus the last sign of life", unit="s")
    duration_s = Real("end minus start; null while running", unit="s")
    evaluated_at = Moment("as-of of this evaluation")
    policy_version = Text("version of the policy that was applied")
    origin = Text("what derived it (ADR-0033 `source`): always stateanalytics")


STATES = frame(States)


class Reasons(EntityKey, key=(*ENTITY_KEY, "order")):
    """One reason of one state, most direct first."""

    order = Integer("0 is the stored reason, derived ones follow")
    dimension = Words(DIMENSIONS, "which axis the reason explains")
    code = Text("reason code, dotted")
    message = Text("the reason in words")
    claim_status = Words(CLAIM_STATUSES, "observed (stored) or inferred (derived)")
    confidence = Real("that this reason explains the state, 0 to 1")
    evidence = Text("JSON list of evidence references")


REASONS = frame(Reasons)


class Audit(EntityKey, key=(*ENTITY_KEY, "code", "at", "says", "against")):
    """One contradiction between two statements of the data about one entity."""

    code = Text("stable code: audit.transition_illegal, audit.end_missing, …")
    severity = Text("warning: both cannot be true; info: explained by the data")
    at = Moment("when it happened; null: not known")
    says = Text("one side of the evidence")
    against = Text("the other side")
    message = Text("the contradiction as a sentence")
    what_to_do = Text("the operator's next step")


AUDIT = frame(Audit)


class Sources(Columns, key=("source",)):
    """One input that was read, or that could not be."""

    source = Text("the input, as it was named to `read`")
    system = Text("the system that wrote it")
    format = Text("storage generation that was recognised")
    size_bytes = Integer("size of the input", unit="bytes")
    n_entities = Integer("entities read")
    n_transitions = Integer("transitions read")
    n_events = Integer("events read")
    n_findings = Integer("findings counted")
    is_live = YesNo("a writer had it open")
    first_at = Moment("oldest timestamp in it")
    last_at = Moment("newest timestamp of its events")
    fingerprint = Text("digest of its rows: equal rows have equal digests")
    same_as = Text("another input with newer records of the same work; null: none")
    looked_at = Moment("when an archive last collected it; null: not from an archive")
    is_unchanged = YesNo("nothing was new in it then; null: not from an archive")


SOURCES = frame(Sources)


class Spells(EntityKey, key=(*ENTITY_KEY, "n_resumed")):
    """One attempt at a run, with its duration and how it ended."""

    n_resumed = Integer("how often its work had been resumed before; 0: never")
    session_id = Text("the session it belongs to (a session's own id)")
    show_id = Text("the show that its session's play belongs to")
    invocation_id = Entities.invocation_id
    kind = Entities.kind
    agent = Entities.agent
    model = Entities.model
    playbook = Entities.playbook
    project = Entities.project
    raw_status = Entities.raw_status
    started_at = Entities.started_at
    ended_at = Moment("its end, or when it was censored")
    timeout_s = Entities.timeout_s
    timeout_from = Entities.timeout_from
    n_model_turns = Entities.n_model_turns
    entry_s = Real("when it came under observation; null: from its start", unit="s")
    duration_s = Real("how long it took, or at least took if censored; null: excluded", unit="s")
    ending = Text("completed, failed, timed_out, …, running; null: not understood")
    ended = YesNo("was its end observed; false: it took at least this long")
    cause = Text("its ending, if that was observed: the cause in cumulative incidence")
    is_censored = YesNo("the opposite of `ended`")
    cut_off_by = Text("as_of, last_activity, time_limit, window_end; null: it ended")
    end_from = Text("recorded, or last_activity if an observer found it dead")
    end_width_s = Real("its true end is at most this much later", unit="s")
    left_out = Text("why it is excluded; null: it is not")


SPELLS = frame(Spells)


class Timeouts(EntityKey, key=(*ENTITY_KEY, "n_resumed")):
    """One attempt at a run that has a time limit, or ended at one."""

    n_resumed = Integer("how often its work had been resumed before; 0: never")
    session_id = Text("the session it belongs to")
    kind = Entities.kind
    agent = Entities.agent
    model = Entities.model
    playbook = Entities.playbook
    project = Entities.project
    started_at = Entities.started_at
    ending = Text("how it ended: timed_out, completed, …, running")
    elapsed_s = Real("how long it took, or has taken", unit="s")
    limit_s = Real("its limit; null: not known", unit="s")
    limit_from = Text("checkpoint, metadata, or inferred from many ends at that duration")
    over_s = Real("elapsed minus limit", unit="s")
    fits = Text("at_limit, before, after (another deadline); null: no limit")
    n_model_turns = Entities.n_model_turns
    has_no_turns = YesNo("it never answered; null: not known")


TIMEOUTS = frame(Timeouts)


class Phantoms(EntityKey, key=(*ENTITY_KEY, "reaper")):
    """One entity that one reaper would close at as-of."""

    reaper = Text("which rule would close it")
    known_as = Text("the rule's number among the detectors, or its document")
    raw_status = Text("the status it has now")
    target_status = Text("the status it would get")
    reason_code = Text("the reason that would be written")
    message = Text("the message that would be written")
    actor = Text("the actor that the history would name")
    age_s = Real("the age that the rule compares; null: never written", unit="s")
    limit_s = Real("the limit of that age", unit="s")
    is_certain = YesNo("false: only if its process is not alive")
    n_reapers = Integer("how many rules would close this entity")
    has_dispute = YesNo("would these rules write different statuses")


PHANTOMS = frame(Phantoms)


class SeverityChanges(EntityKey, key=(*ENTITY_KEY, "at")):
    """One entity whose severity has changed: a frame of `watch`."""

    at = Moment("as-of of the later refresh")
    name = Entities.name
    severity_before = Words(SEVERITIES, "severity before; null: it did not exist")
    severity = Words(SEVERITIES, "severity now; null: no longer seen")
    display = Text("its state now, in words")
    reason_codes = Text("codes of its reasons now")


CHANGES = frame(SeverityChanges)


class Diff(Columns, key=("number", "cause")):
    """One cause of the change of one number between two reports."""

    number = Text("runs, completed, timed_out, unresolved, incidents")
    title = Text("its name in the report")
    cause = Text("what changed it, in the order of the steps")
    n_runs = Integer("runs that the cause concerns; null: not known")
    runs = Texts("ids of the runs that a report lists, digests of the others")
    n_before = Integer("the count before this step", unit="runs")
    n_after = Integer("the count after it", unit="runs")
    of_before = Integer("denominator before; null: not a share", unit="runs")
    of_after = Integer("denominator after; null: not a share", unit="runs")
    before = Real("the number before: a count or a share; null: no denominator")
    after = Real("the number after")
    change = Real("after minus before; null if one of the two is not defined")


DIFF = frame(Diff)


class ComparePolicies(EntityKey, key=ENTITY_KEY):
    """One entity with different states under two policies."""

    lifecycle = States.lifecycle
    outcome = States.outcome
    health_a = Words(HEALTHS, "health under the first policy")
    delivery_a = Words(DELIVERIES, "delivery under the first policy")
    severity_a = Words(SEVERITIES, "severity under the first policy")
    tone_a = Words(TONES, "tone under the first policy")
    severity_rule_a = Integer("number of the rule of the first policy that decided the severity")
    display_a = Text("state under the first policy, in words")
    health_b = Words(HEALTHS, "health under the second policy")
    delivery_b = Words(DELIVERIES, "delivery under the second policy")
    severity_b = Words(SEVERITIES, "severity under the second policy")
    tone_b = Words(TONES, "tone under the second policy")
    severity_rule_b = Integer("number of the rule of the second policy that decided the severity")
    display_b = Text("state under the second policy, in words")
    policy_a = Text("version of the first policy")
    policy_b = Text("version of the second policy")


COMPARE_POLICIES = frame(ComparePolicies)


class DeriveSeverity(Columns):
    """One row of the frame given, with its severity."""

    given = Anything("every column of the frame given", name="<given>")
    rule = YesNo("with `with_evidence=True` a column per rule: does it hold", name="<rule>")
    severity = Text("critical, warning, info, neutral")
    tone = Text("danger, warning, info, success, neutral")
    severity_rule = Integer("number of the rule that decided the severity")


DERIVE_SEVERITY = frame(DeriveSeverity)


class ClassifySessionHealth(Columns):
    """One row of the frame given, with ADR-0024's health of a session."""

    given = DeriveSeverity.given
    session_health = Text("healthy, idle, unresponsive, stale, orphaned, zombie; never null")


CLASSIFY_SESSION_HEALTH = frame(ClassifySessionHealth)


LIFE = (
    *("created_at", "started_at", "ended_at", "updated_at", "last_message_at"),
    *("last_activity_at", "last_sign_at"),
)
"""The columns of `ENTITIES` with times at which something happened."""

KEY_COLUMNS = ENTITIES.named(*ENTITY_KEY)

FACTS = (ENTITIES, TRANSITIONS, EVENTS, FINDINGS, SOURCES)
DERIVED = (STATES, REASONS, AUDIT, SPELLS, TIMEOUTS)
FRAMES = {frame.name: frame for frame in (*FACTS, *DERIVED)}
"""Every canonical frame; systems add theirs (`systems.detail_frames`)."""


class Changes(Columns, key=("changed_at", "what", "where", "to")):
    """Something that changed in how agents run, read from the stores or declared."""

    changed_at = Moment("the first run with it began; or the moment declared")
    what = Text("version, model, provider or playbook; or as declared")
    before = Text("what was before; null: not known", name="from")
    after = Text("what is new; null: not known", name="to")
    where = Text("the system, agent or what was declared; null: everywhere")
    n_runs_before = Integer("runs there that began before")
    n_runs_after = Integer("runs there that began since, with the new value where it is known")
    read_from = Text("store, or the file that declares it", name="source")


CHANGED = frame(Changes)

RETURNED = (CHANGED, CHANGES, DIFF, COMPARE_POLICIES, DERIVE_SEVERITY, CLASSIFY_SESSION_HEALTH)
"""Frames that functions of `stateanalytics` itself return and SQL cannot name."""
