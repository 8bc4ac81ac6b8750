"""Gemini CLI: the record of each chat, ``tmp/<project>/chats/session-*.jsonl``.

After ``packages/core/src/services/chatRecordingService.ts`` of google-gemini/gemini-cli (0.56),
and files that @google/gemini-cli 0.61.0 wrote. Each line is a message, which replaces an earlier
one with its id, or a change: ``$set`` of the session's data, ``$rewindTo`` a message that a
person took back. Before 2026 a chat was one JSON object in a ``.json`` file. A chat has no end.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stateanalytics import plugin
from stateanalytics.plugin import StatusWord, as_count, as_moment, as_text
from stateanalytics_agents import runs
from stateanalytics_agents.runs import Run, mapping, objects, text_in

NAME = "gemini"
DEPTH, SUFFIXES = 5, (".json", ".jsonl")
KINDS = ("user", "gemini", "info", "error", "warning")
ENDS = ("answered", "failed", "aborted")
COUNTS = {name: name for name in runs.COUNTS}
ERRORS = {"error": True, "success": False, "cancelled": True}
FRAMES = (runs.calls_frame(NAME), runs.used_frame(NAME))
ANSWERED = "run.completed.turn_ended"
CODES = (
    (ANSWERED, "The answer is complete; the session waits for a person", "Nothing."),
    ("run.cancelled.user_interrupt", "A person stopped it", "Nothing."),
    ("run.failed.provider_unknown", "A request to the model failed", "Read its message."),
)


def chats_of(path: Path) -> list[Path]:
    """The records at a path: one of them, a folder of chats or a project, or a home."""
    if path.is_file():
        return [path] if is_chat(path) else []
    top = path / "tmp" if (path / "tmp").is_dir() and (path / "projects.json").is_file() else path
    found = (Path(name) for name, _ in plugin.files_below(str(top), is_strict=False, depth=DEPTH))
    named = (file for file in found if "chats" in file.parts and file.suffix in SUFFIXES)
    return [file for file in named if is_chat(file)]


def is_chat(path: Path) -> bool:
    """Whether a file begins as the record of a chat does."""
    begin = plugin.beginning_of(path, 4096)
    return b'"projectHash"' in begin and b'"sessionId"' in begin


def find(path: Path) -> list[Path]:
    """The path, if there are records of chats."""
    return [path] if chats_of(path) else []


def opens(path: Path) -> list[Path]:
    """What is read: the records, and where the directory of a project is written down."""
    chats = chats_of(path)
    return [*chats, *{root for chat in chats if (root := root_of(chat)) is not None}]


def root_of(chat: Path) -> Path | None:
    """The file with the directory of the project that a chat belongs to."""
    for folder in chat.parents[:3]:
        if folder.name == "chats" and (folder.parent / ".project_root").is_file():
            return folder.parent / ".project_root"
    return None


def messages_in(records: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The session's data, and its messages as they are after all changes."""
    session: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    for record in records:
        change = mapping(record.get("$set"))
        if (back_to := as_text(record.get("$rewindTo"))) is not None:
            keys = list(messages)
            # Gemini CLI itself forgets every message where it does not know this one.
            begin = keys.index(back_to) if back_to in messages else 0
            messages = {key: messages[key] for key in keys[:begin]}
        elif (key := as_text(record.get("id"))) is not None:
            messages[key] = record
        else:
            session |= change or record
            if "messages" in (change or record):
                listed = objects((change or record)["messages"])
                messages = {str(message.get("id")): message for message in listed}
    return session, list(messages.values())


def words_of(content: object) -> str:
    """The text of a message: a text, a part, or a list of them."""
    parts = content if isinstance(content, list) else [content]
    texts = (part if isinstance(part, str) else mapping(part).get("text") for part in parts)
    return "".join(as_text(text) or "" for text in texts)


def is_result(content: object) -> bool:
    """Whether a message of the user only gives the model the results of its calls."""
    parts = objects(content)
    return bool(parts) and all("functionResponse" in part for part in parts)


class Chat(Run):
    """A chat, or that of a subagent, while its messages are applied."""

    def apply(self, message: Mapping[str, Any], at: Any) -> None:
        """Apply one message."""
        kind, content = message.get("type"), message.get("content")
        words = words_of(content)
        self.seen(at)
        if kind == "user" and not is_result(content):
            if words.startswith("<session_context>"):
                return
            self.n["n_turns"] += 1
            self.says(at)
            self.becomes("working", at)
        elif kind == "gemini":
            self.answers(message, words, at)
        elif kind == "error":
            cause = runs.cause_of(None, None, words)
            self.becomes("failed", at, f"run.failed.{cause}", text_in(words))
        elif kind == "info" and words.startswith("Request cancelled"):
            self.becomes("aborted", at, "run.cancelled.user_interrupt")

    def answers(self, message: Mapping[str, Any], words: str, at: Any) -> None:
        """An answer of the model, with the calls that it asked for."""
        self.n["n_model_turns"] += 1
        self.says(at)
        self.row["model"] = as_text(message.get("model")) or self.row.get("model")
        tokens = mapping(message.get("tokens"))
        if tokens:
            self.uses(counts_of(tokens), COUNTS, model=message.get("model"), at=at)
        calls = objects(message.get("toolCalls"))
        for number, call in enumerate(calls):
            key = as_text(call.get("id")) or f"{message.get('id')}/{number}"
            self.calls[key] = call_of(call, key, at, self.row["entity_id"])
        # An answer without words is one whose calls are not recorded yet: they still run.
        if words and not calls:
            self.becomes("answered", at, ANSWERED)
        else:
            self.becomes("working", at)


def counts_of(tokens: Mapping[str, Any]) -> dict[str, int | None]:
    """Tokens as all systems count them: thoughts are written, and results of tools are read."""
    n = {name: as_count(value) for name, value in tokens.items()}
    read, written = n.get("input"), n.get("output")
    return {
        "n_input_tokens": None if read is None else read + (n.get("tool") or 0),
        "n_output_tokens": None if written is None else written + (n.get("thoughts") or 0),
        "n_cache_read_tokens": n.get("cached"),
    }


def call_of(call: Mapping[str, Any], key: str, at: Any, thread: str) -> dict[str, Any]:
    """A call: that of its answer is when it was asked for, its own time when it was over."""
    responses = [
        mapping(mapping(part.get("functionResponse")).get("response"))
        for part in objects(call.get("result"))
    ]
    output = "\n".join(as_text(each.get("output") or each.get("error")) or "" for each in responses)
    exits = re.search(r"^Exit Code: (\d+)$", output, re.MULTILINE)
    exit_code = as_count(int(exits[1][:9])) if exits else None
    is_error = ERRORS.get(str(call.get("status")))
    return {
        "session_id": thread,
        "thread_id": thread,
        "call_id": key,
        "tool": as_text(call.get("name")),
        "started_at": at,
        "ended_at": None if is_error is None else as_moment(call.get("timestamp")),
        "exit_code": exit_code,
        "is_error": is_error if exit_code is None else is_error or exit_code != 0,
        "cause": "interrupted" if call.get("status") == "cancelled" else None,
        "message": text_in(output) if is_error or exit_code else None,
        "input": json.dumps(call.get("args"), separators=(",", ":")),
        "output": text_in(output, 10_000),
    }


def chat_in(file: Path, records: list[dict[str, Any]]) -> tuple[Chat, list[dict[str, Any]]]:
    """The chat of one file, and a row for each of its messages."""
    session, messages = messages_in(records)
    key = as_text(session.get("sessionId")) or file.stem
    parent = file.parent.name if session.get("kind") == "subagent" else None
    chat, events = Chat(key, parent, ENDS), []
    root, listed = root_of(file), session.get("directories")
    named = listed[0] if isinstance(listed, list) and listed else None
    place = plugin.read_octets(root, 4096)[0].decode("utf-8", "replace") if root else None
    chat.row |= {"directory": as_text(named) or place, "project": place}
    started = as_moment(session.get("startTime"))
    chat.seen(started)
    chat.becomes("new", started)
    for seq, message in enumerate(messages):
        at, kind = as_moment(message.get("timestamp")), as_text(message.get("type")) or ""
        chat.apply(message, at)
        events.append({"entity_id": key, "at": at, "seq": seq, "kind": kind, "role": kind})
    return chat, events


def read(path: Path, *, label: str, **_options: object) -> plugin.Parts:
    """Every chat at a path, in canonical frames."""
    files, findings, kinds = chats_of(path), [], Counter[str]()
    chats: dict[str, Run] = {}
    events: dict[str, list[dict[str, Any]]] = {}
    # A chat that was resumed is copied from its .json into a .jsonl file, which then counts.
    for file in sorted(files, key=lambda file: (file.suffix != ".json", file)):
        name = str(file.relative_to(path)) if path.is_dir() else file.name
        records, bad = plugin.json_records(file, label, NAME, name=name)
        findings.append(bad)
        if records:
            chat, rows = chat_in(file, records)
            chats[chat.row["entity_id"]], events[chat.row["entity_id"]] = chat, rows
            kinds.update(row["kind"] for row in rows if row["kind"] not in KINDS)
    findings += runs.unknown_kinds(kinds, label, NAME, "a message")
    rows = [row for some in events.values() for row in some]
    return runs.parts_of(
        list(chats.values()), rows, findings,
        frames=FRAMES, label=label, system=NAME, files=files, format="chats",
    )  # fmt: skip


def usual_places(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    """``.gemini`` in the home directory, or in that of ``GEMINI_CLI_HOME``."""
    yield Path(environment.get("GEMINI_CLI_HOME") or home) / ".gemini"


SYSTEM = plugin.System(
    name=NAME,
    title="Gemini CLI",
    home=plugin.Home(usual_places=usual_places, variable="GEMINI_CLI_HOME"),
    files=plugin.Files(
        find=find, read=read, opens=opens,
        ignored=("history", "bin", "skills", "extensions", "checkpoints", "tool-outputs", "logs"),
    ),
    frames=lambda: FRAMES,
    words=plugin.Words(
        vocabulary=(
            StatusWord("session", "", "new", "pending", is_initial=True),
            StatusWord("session", "", "working", "running", is_initial=True),
            StatusWord("session", "", "answered", "completed", "completed"),
            StatusWord("session", "", "failed", "failed", "failed"),
            StatusWord("session", "", "aborted", "cancelled", "cancelled"),
        ),
        reason_codes=lambda: runs.codes(NAME, CODES),
        working_states={"new": "waiting", "answered": "waiting"},
    ),
    runs=plugin.Runs(
        meaning="A run is a chat or a subagent, in the state of its last message: the end of a "
        "chat is not recorded, so one that was answered waits for a person.",
        calls=lambda facts: plugin.calls_from(facts.detail(FRAMES[0]), NAME),
        stop="Esc in its terminal",
    ),
    past=plugin.Rewinding(history="whole"),
    used_tokens=lambda facts: facts.detail(FRAMES[1]),
)  # fmt: skip
