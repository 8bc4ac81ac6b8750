"""GitHub Copilot CLI: the event log of each session, ``session-state/<id>/events.jsonl``.

After ``schemas/session-events.schema.json`` of @github/copilot 1.0.102, and logs that this
release wrote. A session ends by ``session.shutdown``; subagents write into the log of their
session, with an ``agentId``. What a release does not write is null.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stateanalytics import plugin
from stateanalytics.plugin import StatusWord, as_count, as_moment, as_text
from stateanalytics_agents import runs
from stateanalytics_agents.runs import Run, mapping, text_in

NAME = "copilot"
LOG = "events.jsonl"
DEPTH = 3
FAMILIES = (
    *("session", "user", "assistant", "tool", "tool_search", "skill", "sandbox", "subagent"),
    *("hook", "system", "permission", "elicitation", "sampling", "mcp", "external_tool"),
    *("command", "user_input", "workflow", "human_response", "model", "agent", "mcp_app"),
    *("abort", "auto_mode_switch", "exit_plan_mode", "session_limits_exhausted", "commands"),
    *("capabilities", "pending_messages", "prompt_cache_break", "ui"),
)
"""First segments of the kinds of events in the schema; any other is counted in a finding."""
WORKING = ("user.message", "assistant.turn_start", "permission.completed", "subagent.started")
ENDS = ("answered", "failed", "aborted", "ended")
COUNTS = {
    "n_input_tokens": "inputTokens",
    "n_output_tokens": "outputTokens",
    "n_cache_read_tokens": "cacheReadTokens",
    "n_cache_write_tokens": "cacheWriteTokens",
}
FRAMES = (runs.calls_frame(NAME), runs.used_frame(NAME))
ANSWERED = "run.completed.turn_ended"
CODES = (
    (ANSWERED, "The answer is complete", "Nothing."),
    ("run.aborted.user_abort", "A person or a client stopped it", "Nothing."),
    ("run.aborted.shutdown_while_working", "Its program ended before it had answered",
     "Look for what ended its program."),
    ("run.failed.subagent_failed", "A subagent failed", "Read its message."),
    ("run.failed.provider_unknown", "A request to the model failed", "Read its message."),
)  # fmt: skip


def logs_of(path: Path) -> list[Path]:
    """The event logs at a path: a log, the folder of a session, ``session-state`` or a home."""
    if path.is_file():
        return [path] if path.suffix == ".jsonl" and is_log(path) else []
    top = path / "session-state" if (path / "session-state").is_dir() else path
    found = (Path(name) for name, _ in plugin.files_below(str(top), is_strict=False, depth=DEPTH))
    return [log for log in found if log.name == LOG and is_log(log)]


def is_log(path: Path) -> bool:
    """Whether a file begins as a log does."""
    begin = plugin.beginning_of(path, 4096)
    return b'"session.start"' in begin and b'"copilotVersion"' in begin


def find(path: Path) -> list[Path]:
    """The path, if there are event logs."""
    return [path] if logs_of(path) else []


class Thread(Run):
    """A session or subagent while its events are applied, in the order of the log."""

    asks_for_calls = has_usage = False
    questions: frozenset[str] = frozenset()

    def apply(self, kind: str, data: Mapping[str, Any], at: Any) -> None:
        """Apply one event."""
        self.seen(at)
        if kind in ("session.start", "session.resume", "session.model_change"):
            self.begins(kind, data, at)
        elif kind in WORKING or kind == "permission.requested":
            self.works(kind, data, at)
        elif kind == "assistant.message":
            self.says(at)
            self.n["n_model_turns"] += 1
            self.asks_for_calls = bool(data.get("toolRequests"))
            self.row["model"] = as_text(data.get("model")) or self.row.get("model")
            self.becomes("working", at)
        elif kind == "assistant.turn_end" and self.status == "working":
            # A turn of Copilot is one answer: where it asked for calls, another one follows.
            if not self.asks_for_calls:
                self.becomes("answered", at, ANSWERED)
        elif kind in ("abort", "session.error", "session.shutdown") or kind.startswith("subagent."):
            self.stops(kind, data, at)
        elif kind == "session.usage_record":
            usage, self.has_usage = mapping(data.get("usage")), True
            self.uses(usage, COUNTS, model=usage.get("model"), at=at)
        elif kind == "tool.execution_start":
            self.calls[str(data.get("toolCallId"))] = call_of(data, at, self.row["entity_id"])
        elif kind == "tool.execution_complete":
            self.calls.get(str(data.get("toolCallId")), {}).update(result_of(data, at))

    def begins(self, kind: str, data: Mapping[str, Any], at: Any) -> None:
        """A program has opened the session, or a person chose another model."""
        place = as_text(mapping(data.get("context")).get("cwd"))
        model = as_text(data.get("newModel")) or as_text(data.get("selectedModel"))
        self.row["directory"] = place or self.row.get("directory")
        self.row["model"] = model or self.row.get("model")
        if kind == "session.start":
            self.becomes("new", at)
        if kind == "session.resume" and data.get("continuePendingWork") is not True:
            self.questions = frozenset()

    def works(self, kind: str, data: Mapping[str, Any], at: Any) -> None:
        """It has been asked something, or asks for a permission."""
        request = {as_text(data.get("requestId")) or ""}
        is_asked = kind == "permission.requested" and data.get("resolvedByHook") is not True
        self.questions = self.questions | request if is_asked else self.questions - request
        self.row["agent"] = as_text(data.get("agentName")) or self.row.get("agent")
        if kind == "user.message":
            self.n["n_turns"] += 1
            self.says(at)
        self.becomes("asking" if self.questions else "working", at)

    def stops(self, kind: str, data: Mapping[str, Any], at: Any) -> None:
        """It failed, was stopped or has ended; an end does not hide a failure before it."""
        error = text_in(data.get("message") or data.get("error") or data.get("errorReason"))
        is_working = self.status in ("working", "asking")
        if kind in ("session.error", "subagent.failed") or data.get("shutdownType") == "error":
            tag = data.get("errorCode") or data.get("errorType")
            cause = runs.cause_of(tag, data.get("statusCode"), error)
            if kind == "subagent.failed" and cause == "provider_unknown":
                cause = "subagent_failed"
            if self.status not in ("failed", "aborted"):
                self.becomes("failed", at, f"run.failed.{cause}", error)
        elif kind == "abort" or data.get("cancelled") is True:
            self.becomes("aborted", at, "run.aborted.user_abort", text_in(data.get("reason")))
        elif kind == "session.shutdown" and is_working:
            self.becomes("aborted", at, "run.aborted.shutdown_while_working")
        elif kind in ("session.shutdown", "subagent.completed") and (
            is_working or self.status == "answered"
        ):
            self.becomes("ended", at, ANSWERED)
        metrics = mapping(data.get("modelMetrics"))
        if kind == "session.shutdown" and not self.has_usage and metrics:
            # Releases before session.usage_record: sums of the session and its subagents.
            self.used = []
            for model, each in metrics.items():
                self.uses(mapping(mapping(each).get("usage")), COUNTS, model=model, at=at)

    def entity(self) -> dict[str, Any]:
        """Its row of ``entities``."""
        n_questions = len(self.questions) if self.status == "asking" else 0
        return super().entity() | {"n_questions": n_questions}


def call_of(data: Mapping[str, Any], at: Any, thread: str) -> dict[str, Any]:
    """A call of a tool that began."""
    server = as_text(data.get("mcpServerName"))
    name = as_text(data.get("mcpToolName")) or as_text(data.get("toolName"))
    return {
        "session_id": thread,
        "thread_id": thread,
        "call_id": as_text(data.get("toolCallId")),
        "tool": f"{server}.{name}" if server else name,
        "started_at": at,
        "input": json.dumps(data.get("arguments"), separators=(",", ":")),
    }


def result_of(data: Mapping[str, Any], at: Any) -> dict[str, Any]:
    """What a call gave: Copilot calls a command a success whatever its exit code; we do not."""
    error, output = mapping(data.get("error")), mapping(data.get("result")).get("content")
    exit_code = as_count(mapping(data.get("shellExecution")).get("exitCode"))
    is_error = data.get("success") is not True or exit_code not in (None, 0)
    is_denied = as_text(error.get("code")) in ("denied", "rejected")
    return {
        "ended_at": at,
        "exit_code": exit_code,
        "is_error": is_error,
        "output": text_in(output, 10_000),
        "message": text_in(error.get("message")) or (text_in(output) if is_error else None),
        "cause": "permission_rejected" if is_denied else None,
    }


def threads_in(records: list[dict[str, Any]]) -> tuple[list[Thread], list[dict[str, Any]]]:
    """The session and subagents of one log, and a row for each event."""
    data = [mapping(record.get("data")) for record in records]
    named = (as_text(each.get("sessionId")) for each in data)
    own = next(filter(None, named), None) or "unknown"
    threads, events = {own: Thread(own, None, ENDS)}, []
    for seq, (record, each) in enumerate(zip(records, data, strict=True)):
        key, kind = as_text(record.get("agentId")) or own, as_text(record.get("type")) or ""
        at = as_moment(record.get("timestamp"))
        if kind == "session.shutdown":
            # Subagents end with the program that they run in.
            for thread in [*threads.values()][1:]:
                if thread.status in ("working", "asking"):
                    thread.apply(kind, {}, at)
        threads.setdefault(key, Thread(key, own, ENDS)).apply(kind, each, at)
        name = as_text(each.get("toolName")) or as_text(each.get("model"))
        events.append({"entity_id": key, "at": at, "seq": seq, "kind": kind, "name": name})
    return list(threads.values()), events


def read(path: Path, *, label: str, **_options: object) -> plugin.Parts:
    """Every session at a path, in canonical frames."""
    logs, findings, kinds = logs_of(path), [], Counter[str]()
    threads: list[Run] = []
    events: list[dict[str, Any]] = []
    for log in logs:
        name = str(log.relative_to(path)) if path.is_dir() else log.name
        records, bad = plugin.json_records(log, label, NAME, name=name)
        findings.append(bad)
        if records:
            some, rows = threads_in(records)
            threads += some
            events += rows
            known = {row["kind"] for row in rows if row["kind"].partition(".")[0] in FAMILIES}
            kinds.update(row["kind"] for row in rows if row["kind"] not in known)
    findings += runs.unknown_kinds(kinds, label, NAME, "an event")
    return runs.parts_of(
        threads, events, findings,
        frames=FRAMES, label=label, system=NAME, files=logs, format="events 1",
    )  # fmt: skip


def usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    """``COPILOT_HOME``, or ``.copilot`` in the home directory."""
    yield Path(environment.get("COPILOT_HOME") or home / ".copilot")


SYSTEM = plugin.System(
    name=NAME,
    title="Copilot CLI",
    home=plugin.Home(usual_places=usual_places, variable="COPILOT_HOME"),
    files=plugin.Files(
        find=find, read=read, opens=logs_of, version_key="copilotVersion",
        ignored=("logs", "pkg", "checkpoints", "rewind-file-snapshots", "files", "ide"),
    ),
    frames=lambda: FRAMES,
    words=plugin.Words(
        vocabulary=(
            StatusWord("session", "", "new", "pending", is_initial=True),
            StatusWord("session", "", "working", "running", is_initial=True),
            StatusWord("session", "", "asking", "running"),
            StatusWord("session", "", "answered", "completed", "completed"),
            StatusWord("session", "", "failed", "failed", "failed"),
            StatusWord("session", "", "aborted", "aborted", "aborted"),
            StatusWord("session", "", "ended", "completed", "completed"),
        ),
        reason_codes=lambda: runs.codes(NAME, CODES),
        working_states={"new": "waiting", "asking": "waiting", "answered": "waiting"},
    ),
    runs=plugin.Runs(
        meaning="A run is a session or a subagent, in the state of its last turn; calls are parts.",
        calls=lambda facts: plugin.calls_from(facts.detail(FRAMES[0]), NAME),
        stop="Esc in its terminal",
    ),
    past=plugin.Rewinding(history="whole"),
    used_tokens=lambda facts: facts.detail(FRAMES[1]),
)  # fmt: skip
