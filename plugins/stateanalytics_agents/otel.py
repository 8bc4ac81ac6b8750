"""OpenTelemetry: spans of agents in files of OTLP, as JSON (lines) or protobuf.

After the semantic conventions of generative AI, ``docs/gen-ai/`` of semantic-conventions 1.40
(and names that were deprecated since 1.27), opentelemetry-proto 1, and the file exporter of the
collector. A span is written when it ends: what still runs, or was killed, is in no file.

``invoke_agent`` and ``invoke_workflow`` are runs, ``execute_tool`` is a call, and requests to
models are tokens of the run above them; without one, the conversation (or trace) is a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stateanalytics import plugin
from stateanalytics.plugin import StatusWord, as_number, as_text
from stateanalytics_agents import runs
from stateanalytics_agents.runs import Run
from stateanalytics_agents.spans import files_of, find, records_in, spans_in

NAME = "otel"
AGENTS = ("invoke_agent", "invoke_workflow")
REQUESTS = ("chat", "generate_content", "text_completion", "embeddings")
STATUSES = (
    ("running", "running", None),
    ("ok", "completed", "completed"),
    ("error", "failed", "failed"),
    ("timed_out", "timed_out", "timed_out"),
    ("stopped", "cancelled", "cancelled"),
    ("aborted", "aborted", "aborted"),
)
ENDS = tuple(status for status, *_ in STATUSES[1:])
COUNTS = {
    "n_input_tokens": "gen_ai.usage.input_tokens",
    "n_output_tokens": "gen_ai.usage.output_tokens",
    "n_cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "n_cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
}
PARTS = (
    *("turn", "branch", "play", "show", "invocation", "schedule", "schedule_run", "execution"),
    *("step", "tool_call", "team", "engine_run", "dispatch", "review", "switch", "start"),
)
"""Types of our own export that are no runs here: their session has what they did."""
OWN = "stateanalytics."
"""Prefix of what `stateanalytics.otlp` adds, so that its own export is read again as it was."""
OUTCOMES = {"timed_out": "timed_out", "cancelled": "stopped", "aborted": "aborted"}
FRAMES = (runs.calls_frame(NAME), runs.used_frame(NAME))
CODES = (
    ("run.completed.span_ended", "Its span ended without an error", "Nothing."),
    ("run.failed.provider_unknown", "Its span ended with an error", "Read its message."),
    ("run.timed_out.span_error", "Its span ended with a timeout", "Look for what it waited for."),
)


def operation_of(span: Mapping[str, Any]) -> str:
    """What a span is of; an entity of our own export counts as a run."""
    own = "invoke_agent" if span.get(f"{OWN}entity.id") else None
    return as_text(span.get("gen_ai.operation.name")) or own or ""


def run_of(span: Mapping[str, Any]) -> Run:
    """The run of an agent's span; of our own export, the entity that it was made from."""
    own = as_text(span.get(f"{OWN}entity.id"))
    run = Run(own or "-".join(span["id"]), None, ENDS)
    conversation = as_text(span.get("gen_ai.conversation.id"))
    run.row |= {
        "entity_type": as_text(span.get(f"{OWN}entity.type")) or "session",
        "session_id": (own and conversation) or run.row["entity_id"],
        "kind": as_text(span.get(f"{OWN}kind")) or "session",
        "name": span["name"],
        "project": span["service"],
        "agent": as_text(span.get("gen_ai.agent.name")),
        "model": model_of(span),
        "provider": as_text(span.get("gen_ai.provider.name")),
        "native_session_id": conversation,
        "cost_usd": as_number(span.get(f"{OWN}cost_usd")),
    }
    return run


def model_of(span: Mapping[str, Any]) -> str | None:
    """The model that answered, else the one that was asked."""
    return as_text(span.get("gen_ai.response.model")) or as_text(span.get("gen_ai.request.model"))


def ends(run: Run, span: Mapping[str, Any]) -> None:
    """The span of a run, or the last one of a conversation, ended."""
    tag = as_text(span.get("error.type"))
    outcome = OUTCOMES.get(str(span.get(f"{OWN}outcome")))
    if outcome is None and span["is_error"]:
        outcome = "timed_out" if "timeout" in (tag or "").lower() else "error"
    code = {"timed_out": "run.timed_out.span_error", None: "run.completed.span_ended"}.get(outcome)
    if outcome == "error":
        status = span.get("http.response.status_code")
        code = f"run.failed.{runs.cause_of(tag, status, span['message'])}"
    if tag is not None and tag.startswith(("run.", "invocation.")):
        code = tag
    run.becomes(outcome or "ok", span["ended"], code, span["message"])


def call_of(span: Mapping[str, Any], thread: str) -> dict[str, Any]:
    """A call of a tool."""
    tag = str(span.get("error.type")).lower()
    denied = "permission_rejected" if tag in ("denied", "rejected") else None
    return {
        "session_id": thread,
        "thread_id": thread,
        "call_id": as_text(span.get("gen_ai.tool.call.id")) or span["id"][1],
        "tool": as_text(span.get("gen_ai.tool.name")) or span["name"],
        "started_at": span["began"],
        "ended_at": span["ended"],
        "is_error": span["is_error"],
        "cause": "timeout" if "timeout" in tag else denied,
        "message": span["message"] or as_text(span.get("error.type")),
        "input": as_text(span.get("gen_ai.tool.call.arguments")),
        "output": as_text(span.get("gen_ai.tool.call.result")),
    }


def above(span: Mapping[str, Any], by_id: Mapping[Any, Mapping[str, Any]]) -> Any:
    """The id of the nearest agent above a span; a loop of parents is left after one round."""
    seen, up = {span["id"]}, span["up"]
    while up in by_id and up not in seen:
        if operation_of(by_id[up]) in AGENTS:
            return up
        seen.add(up)
        up = by_id[up]["up"]
    return None


def runs_in(spans: list[dict[str, Any]]) -> tuple[list[Run], list[dict[str, Any]], Counter[str]]:
    """The runs of some spans, their events, and spans of other kinds, counted."""
    by_id = {span["id"]: span for span in sorted(spans, key=lambda span: str(span["began"]))}
    made: dict[Any, Run] = {}
    events: list[dict[str, Any]] = []
    others = Counter[str]()
    without_agent: dict[str, list[dict[str, Any]]] = {}
    agents = [span for span in by_id.values() if operation_of(span) in AGENTS]
    for span in agents:
        made[span["id"]] = run_of(span)
        made[span["id"]].becomes("running", span["began"])
    for span in agents:
        if (up := made.get(above(span, by_id))) is not None:
            row = made[span["id"]].row
            row |= {f"parent_{name}": up.row[f"entity_{name}"] for name in ("type", "id")}
            row["kind"] = as_text(span.get(f"{OWN}kind")) or "subagent"
    for seq, span in enumerate(by_id.values()):
        operation, agent = operation_of(span), above(span, by_id)
        if operation not in (*AGENTS, *REQUESTS, "execute_tool"):
            others[operation or "no gen_ai.operation.name"] += 1
            continue
        conversation = as_text(span.get("gen_ai.conversation.id")) or span["trace"]
        key = span["id"] if operation in AGENTS else agent or conversation
        run = made.get(key) or made.setdefault(key, Run(conversation, None, ENDS))
        run.seen(span["began"])
        event = {name: run.row.get(name) for name in ("entity_type", "entity_id")}
        event |= {"at": span["began"], "seq": seq, "kind": operation, "name": span["name"]}
        events.append(event)
        if operation in REQUESTS:
            run.n["n_model_turns"] += 1
            run.uses(span, COUNTS, model=model_of(span), at=span["ended"])
            run.row["model"] = run.row.get("model") or model_of(span)
        elif operation == "execute_tool":
            run.calls["-".join(span["id"])] = call_of(span, run.row["entity_id"])
        if key == conversation:
            without_agent.setdefault(key, []).append(span)
    for key, parts in without_agent.items():
        # Its parts overlap: it ends with the last, and as its last request did.
        over = max((part["ended"] for part in parts if part["ended"]), default=None)
        requests = [part for part in parts if operation_of(part) in REQUESTS]
        last = requests[-1] if requests else {**parts[-1], "is_error": False}
        made[key].becomes("running", parts[0]["began"])
        made[key].seen(over)
        ends(made[key], {**last, "ended": over})
    for span in agents:
        run = made[span["id"]]
        run.seen(span["ended"])
        # Its own sums repeat those of its requests, and are all that there is without them.
        if not run.used and any(span.get(name) is not None for name in COUNTS.values()):
            run.uses(span, COUNTS, model=run.row["model"], at=span["ended"])
        ends(run, span)
    return list(made.values()), events, others


def read(path: Path, *, label: str, **_options: object) -> plugin.Parts:
    """Every run in the spans at a path, in canonical frames."""
    files = files_of(path)
    findings: list[Any] = []
    spans: list[dict[str, Any]] = []
    for file in files:
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        records, bad = records_in(file, label, NAME, name=name)
        spans += spans_in(records)
        findings += bad
    found, events, others = runs_in(spans)
    findings += runs.unknown_kinds(others, label, NAME, "a span")
    return runs.parts_of(
        found, events, findings,
        frames=FRAMES, label=label, system=NAME, files=files, format="OTLP 1",
    )  # fmt: skip


SYSTEM = plugin.System(
    name=NAME,
    title="OpenTelemetry",
    files=plugin.Files(find=find, read=read, opens=files_of),
    frames=lambda: FRAMES,
    words=plugin.Words(
        vocabulary=tuple(
            StatusWord(kind, "", status, lifecycle, outcome)
            for kind in ("session", *PARTS)
            for status, lifecycle, outcome in STATUSES
        ),
        reason_codes=lambda: runs.codes(NAME, CODES),
    ),
    runs=plugin.Runs(
        meaning="A run is a span of an agent or a workflow; requests and calls are its parts.",
        part_types=PARTS,
        calls=lambda facts: plugin.calls_from(facts.detail(FRAMES[0]), NAME),
    ),
    past=plugin.Rewinding(history="whole"),
    used_tokens=lambda facts: facts.detail(FRAMES[1]).filter(entity_type="session"),
)
