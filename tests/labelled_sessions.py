"""Sessions of five systems with known signs of struggle, and controls without any.

``python -m tests.labelled_sessions`` prints how many of the signs are found, and how many of those
found are right. A story is a list of steps, written once; each client records it in its own way.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import polars as pl

import stateanalytics as sa
from tests.opencode_logs import v1_call
from tests.transcripts import Rollout, Transcript, file_of, transcript_maker

BEGIN = datetime(2026, 5, 18, 8, tzinfo=UTC)
CLIENTS = ("claude_code", "codex", "opencode", "lionagi", "agent_orchestrator")
FILES = (
    "cart.py",
    "src/api/users.ts",
    "pkg/store.go",
    "lib/parser.rs",
    "README.md",
    "app/モデル.py",
)
WORDS = ("retry", "cart", "token", "parser", "login", "cache", "größe", "schema", "日志")
RUNNERS = {
    "pytest -q": ("{n} passed in {t}s", "{m} failed, {n} passed in {t}s"),
    "npx jest": ("Tests:   {n} passed, {n} total", "Tests:   {m} failed, {n} passed, 9 total"),
    "go test ./...": ("ok  \tshop/cart\t{t}s", "--- FAIL: TestCart\nFAIL\nFAIL\tshop/cart\t{t}s"),
    "cargo test": (
        "test result: ok. {n} passed; 0 failed",
        "test result: FAILED. {n} passed; {m} failed",
    ),
}
"""Runners of tests: the last line where all pass, and where some fail."""


class ToolsOfClaude:
    """The tools of Claude Code, which lionagi has too."""

    def read(self, file: str, text: str) -> None:
        self.call("Read", {"file_path": file}, text, 0)

    def edit(self, file: str, old: str, new: str) -> None:
        given = {"file_path": file, "old_string": old, "new_string": new}
        self.call("Edit", given, f"The file {file} has been updated.", 0)

    def down(self, word: str) -> None:
        self.call("mcp__db__query", {"sql": word}, "MCP server db is not connected", 1)


class Claude(ToolsOfClaude):
    """A session of Claude Code."""

    refusal = "The user doesn't want to proceed with this tool use. The tool use was rejected"

    def __init__(self, name: str, at: datetime) -> None:
        self.log = Transcript(name, at.isoformat()[:19])
        self.id, self.n = self.log.session_id, 0

    def prompt(self, text: str, after_s: float = 5.0) -> None:
        self.log.user(text, after_s)

    def call(self, tool: str, given: dict[str, Any], output: str, code: int | None) -> None:
        self.n += 1
        block = transcript_maker.call(f"toolu_{self.n}", tool, **given)
        self.log.answer(block, stop="tool_use", usage=(90, 0, 0, 40))
        failed = code not in (0, None)
        words = f"Exit code {code}\n{output}" if failed and tool == "Bash" else output
        self.log.result(f"toolu_{self.n}", words, is_error=failed)

    def run(self, command: str, output: str, code: int = 0) -> None:
        self.call("Bash", {"command": command}, output, code)

    def deny(self, command: str) -> None:
        self.call("Bash", {"command": command}, self.refusal, 1)
        self.log.lines[-1]["message"]["content"][0]["content"] = self.refusal

    def retries(self, n: int) -> None:
        for attempt in range(1, n + 1):
            self.log.retry(attempt, 500.0 * 2**attempt)

    def interrupt(self) -> None:
        self.log.user([{"type": "text", "text": "[Request interrupted by user]"}], 2.0)

    def compact(self) -> None:
        self.log.add("system", 1.0, subtype="compact_boundary", content="Conversation compacted")
        summary = {"role": "user", "content": "This session is being continued"}
        self.log.add("user", 0.1, isCompactSummary=True, message=summary)

    def say(self, text: str, stop: str = "end_turn") -> None:
        self.log.answer(transcript_maker.say(text), stop=stop, usage=(90, 0, 0, 40))

    def talk(self, text: str) -> None:
        self.say(text)

    def empty(self) -> None:
        self.say("")

    def cut(self) -> None:
        self.say("The change does the following: it", stop="max_tokens")

    def write(self, home: Path) -> None:
        path = home / "projects" / "-repo-shop" / file_of(self.log)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.log.text(), "utf-8")


class Codex:
    """A thread of Codex; retries and compaction are recorded otherwise or not at all."""

    def __init__(self, name: str, at: datetime) -> None:
        self.log = Rollout(name, at.isoformat()[:19])
        self.id, self.n = self.log.thread_id, 0

    def prompt(self, text: str, after_s: float = 5.0) -> None:
        self.log.turn(text, after_s)

    def run(self, command: str, output: str, code: int = 0) -> None:
        self.n += 1
        self.log.call(f"call_{self.n}", cmd=command)
        self.log.ran(f"call_{self.n}", code, 0.1 + self.n % 7 / 10, output)

    def read(self, file: str, text: str) -> None:
        self.run(f"sed -n 1,200p {file}", text)

    def edit(self, file: str, old: str, new: str) -> None:
        self.n += 1
        patch = f"*** Begin Patch\n*** Update File: {file}\n@@\n-{old}\n+{new}\n*** End Patch"
        own = {"call_id": f"call_{self.n}"}
        self.log.item("custom_tool_call", 2.0, name="apply_patch", input=patch, **own)
        words = {"output": "Success", "metadata": {"exit_code": 0, "duration_seconds": 0.1}}
        self.log.item("custom_tool_call_output", 1.0, **own, output=json.dumps(words))

    def deny(self, command: str) -> None:
        self.n += 1
        self.log.call(f"call_{self.n}", cmd=command)
        self.log.result(f"call_{self.n}", "exec command rejected by user")

    def down(self, word: str) -> None:
        self.run(f"curl {word}", "sandbox error: command was denied by the sandbox", 1)

    def interrupt(self) -> None:
        self.log.event("turn_aborted", 2.0, turn_id=self.log.turn_id, reason="interrupted")

    def compact(self) -> None:
        self.log.add("compacted", 1.0, message="")

    def say(self, text: str) -> None:
        self.log.say(text)
        self.log.complete(text)

    def talk(self, text: str) -> None:
        self.log.say(text, phase="commentary")

    def empty(self) -> None:
        self.log.complete(None)

    def write(self, home: Path) -> None:
        path = home / self.log.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.log.text(), "utf-8")


class Opencode:
    """A session of opencode 1.x, as it is exported."""

    def __init__(self, name: str, at: datetime) -> None:
        self.id, self.n = f"ses_{name}", 0
        self.ms = self.begin_ms = int(at.timestamp() * 1000)
        self.messages: list[dict[str, Any]] = []

    def _message(self, role: str, *parts: dict[str, Any], **info: Any) -> None:
        self.n += 1
        own = f"msg_{self.id}_{self.n:04}"
        done = {} if role == "user" else {"completed": self.ms + 900}
        known = {"id": own, "sessionID": self.id, "role": role,
                 "time": {"created": self.ms} | done}  # fmt: skip
        if role == "assistant":
            known |= {"parentID": self.asked, "finish": "stop"}
        placed = [
            {"id": f"prt_{own}_{place}", "messageID": own, "sessionID": self.id, **part}
            for place, part in enumerate(parts)
        ]
        self.messages.append({"info": known | info, "parts": placed})
        self.ms += 4000

    def prompt(self, text: str, after_s: float = 5.0) -> None:
        self.ms += int(after_s * 1000)
        self.asked = f"msg_{self.id}_{self.n + 1:04}"
        self._message("user", {"type": "text", "text": text})

    def _call(self, tool: str, **state: Any) -> None:
        times = {"time": {"start": self.ms + 100, "end": self.ms + 800}}
        part = v1_call(tool, **(times | state)) | {"callID": f"call_{self.n}"}
        self._message("assistant", part, finish="tool-calls")

    def run(self, command: str, output: str, code: int = 0) -> None:
        self._call("bash", input={"command": command}, output=output, metadata={"exit": code})

    def read(self, file: str, text: str) -> None:
        self._call("read", input={"filePath": file}, output=text)

    def edit(self, file: str, old: str, new: str) -> None:
        given = {"filePath": file, "oldString": old, "newString": new}
        self._call("edit", input=given, output="Edit applied successfully.")

    def deny(self, command: str) -> None:
        error = "The user rejected permission to use this specific tool call with feedback: no"
        self._call("bash", status="error", input={"command": command}, error=error)

    def down(self, word: str) -> None:
        error = "MCP server db is not connected"
        self._call("db__query", status="error", input={"sql": word}, error=error)

    def compact(self) -> None:
        self.ms += 1000
        before, self.asked = self.asked, f"msg_{self.id}_{self.n + 1:04}"
        is_own = self.messages[-1]["info"].get("finish") == "stop"
        self._message("user", {"type": "compaction", "auto": not is_own})
        self._message("assistant", {"type": "text", "text": "## Goal"}, summary=True)
        self.asked = before

    def say(self, text: str) -> None:
        self._message("assistant", {"type": "text", "text": text})

    def talk(self, text: str) -> None:
        self.say(text)

    def empty(self) -> None:
        self._message("assistant")

    def cut(self) -> None:
        self._message("assistant", {"type": "text", "text": "It does"}, finish="length")

    def write(self, home: Path) -> None:
        times = {"created": self.begin_ms, "updated": self.ms}
        info = {"id": self.id, "version": "1.18.33", "time": times}
        path = home / f"{self.id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"info": info, "messages": self.messages}), "utf-8")


class Stored:
    """A session of an orchestrator, of which all are in one database."""

    file: str
    tables: ClassVar[dict[str, str]]

    def __init__(self, name: str, at: datetime) -> None:
        self.id, self.n, self.begin, self.at = name, 0, at, at
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in self.tables}

    def add(self, table: str, **row: Any) -> str:
        """Add a row two seconds after the last, and give its id."""
        self.n += 1
        self.at += timedelta(seconds=2)
        own = f"{self.id}-{self.n:04}"
        self.rows[table].append({"id": own, **row})
        return own

    def write(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(home / self.file)) as db, db:
            for table, columns in self.tables.items():
                names = columns.split()
                db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(names)})")
                marks = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
                db.executemany(marks, [[row.get(n) for n in names] for row in self.rows[table]])


class Lionagi(ToolsOfClaude, Stored):
    """A session of lionagi: instructions, answers, and messages of tools in a progression."""

    file = "state.db"
    tables: ClassVar = {
        "sessions": "id progression_id status created_at started_at ended_at updated_at "
        "last_message_at status_reason_code",
        "branches": "id session_id progression_id",
        "progressions": "id collection",
        "messages": "id created_at role lion_class content node_metadata",
    }

    def _message(self, role: str, kind: int, *, is_error: bool = False, **content: Any) -> str:
        told = {"content": json.dumps(content), "created_at": self.at.timestamp()}
        told["node_metadata"] = json.dumps({"is_error": True}) if is_error else None
        return self.add("messages", role=role, lion_class=kind, **told)

    def prompt(self, text: str, after_s: float = 5.0) -> None:
        self.at += timedelta(seconds=after_s)
        self._message("user", 2, instruction=text)

    def call(self, tool: str, given: dict[str, Any], output: str, code: int) -> None:
        asked = self._message("action", 4, function=tool, arguments=given)
        ended = {"function": tool, "action_request_id": asked, "output": output}
        self._message("action", 5, is_error=code != 0, **ended)

    def run(self, command: str, output: str, code: int = 0) -> None:
        words = f"Exit code: {code}\n{output}" if code else output
        self.call("Bash", {"command": command}, words, code)

    def deny(self, command: str) -> None:
        self.call("Bash", {"command": command}, Claude.refusal, 1)

    def say(self, text: str) -> None:
        self._message("assistant", 3, assistant_response=text)

    def write(self, home: Path) -> None:
        listed = json.dumps([row["id"] for row in self.rows["messages"]])
        branch, ended = f"{self.id}-p", self.at.timestamp()
        self.rows["progressions"].append({"id": branch, "collection": listed})
        self.rows["branches"].append(
            {"id": f"{self.id}-b", "session_id": self.id, "progression_id": branch}
        )
        times = dict.fromkeys(("ended_at", "updated_at", "last_message_at"), ended)
        began = dict.fromkeys(("created_at", "started_at"), self.begin.timestamp())
        done = {"status": "completed", "status_reason_code": "run.completed.ok"}
        own = {"id": self.id, "progression_id": branch}
        self.rows["sessions"].append(own | times | began | done)
        super().write(home)


class AgentOrchestrator(Stored):
    """A session of Agent Orchestrator's Go rewrite in chat mode."""

    file = "ao.db"
    tables: ClassVar = {
        "sessions": "id project_id kind harness activity_state is_terminated created_at updated_at",
        "pr": "url session_id",
        "change_log": "seq project_id session_id event_type payload created_at",
        "conversations": "id session_id current_session_id",
        "conversation_turns": "id conversation_id handled_by_session_id state error_message "
        "requested_at started_at completed_at rolled_back_at",
        "conversation_messages": "id conversation_id turn_id sequence role origin created_at text",
        "conversation_activities": "id conversation_id turn_id kind status summary detail_json "
        "provider_item_id created_at updated_at command_output",
    }

    def add(self, table: str, **row: Any) -> str:
        own = {"conversation_id": f"{self.id}-chat", "created_at": self._now()}
        return super().add(table, **own, **row)

    def _now(self) -> str:
        return self.at.strftime("%Y-%m-%d %H:%M:%S +0000 UTC")

    def _say(self, role: str, origin: str, text: str) -> None:
        row = {"turn_id": self.turn["id"], "sequence": self.n, "text": text}
        self.add("conversation_messages", role=role, origin=origin, **row)

    def prompt(self, text: str, after_s: float = 5.0) -> None:
        self.at += timedelta(seconds=after_s)
        now, name = self._now(), f"{self.id}-turn{self.n:04}"
        self.turn = {"id": name, "conversation_id": f"{self.id}-chat", "state": "running"}
        self.turn |= {"handled_by_session_id": self.id, "requested_at": now, "started_at": now}
        self.rows["conversation_turns"].append(self.turn)
        self._say("user", "human", text)

    def call(self, kind: str, status: str, output: str, **detail: Any) -> None:
        own = {"turn_id": self.turn["id"], "provider_item_id": "", "command_output": output}
        self.add("conversation_activities", kind=kind, status=status, summary="", **own,
                 updated_at=self._now(), detail_json=json.dumps(detail))  # fmt: skip

    def run(self, command: str, output: str, code: int = 0) -> None:
        self.call("command", "completed", output, command=command, exitCode=code)

    def read(self, file: str, text: str) -> None:
        self.run(f"sed -n 1,200p {file}", text)

    def edit(self, file: str, old: str, new: str) -> None:
        patch = {"path": file, "patch": f"@@ -1 +1 @@\n-{old}\n+{new}\n"}
        self.call("file_change", "completed", "", files=[patch])

    def deny(self, command: str) -> None:
        self.call("command", "completed", "", command=command)
        self.call("approval", "resolved", "", decision="decline")

    def down(self, word: str) -> None:
        given = {"server": "db", "toolName": "query", "arguments": {"sql": word}}
        self.call("mcp_tool", "failed", "", **given, error="MCP server db is not connected")

    def _end(self, state: str, **columns: Any) -> None:
        self.turn |= {"state": state, "completed_at": self._now(), **columns}

    def interrupt(self) -> None:
        self._end("interrupted")

    def say(self, text: str) -> None:
        self._say("assistant", "provider", text)
        self._end("completed")

    def write(self, home: Path) -> None:
        chat = {"id": f"{self.id}-chat", "session_id": self.id, "current_session_id": self.id}
        own = {"id": self.id, "project_id": "shop", "kind": "worker", "harness": "codex"}
        times = {"created_at": self.rows["conversation_turns"][0]["started_at"]}
        self.rows["conversations"].append(chat)
        self.rows["sessions"].append(
            own | times | {"activity_state": "idle", "updated_at": self._now()}
        )
        super().write(home)


MAKERS: dict[str, Callable[[str, datetime], Any]] = dict(
    zip(CLIENTS, (Claude, Codex, Opencode, Lionagi, AgentOrchestrator), strict=True)
)


def tests_end(session: Any, chance: Random, *, is_red: bool, pipe: str = "") -> None:
    """Run tests by some runner."""
    command = chance.choice(list(RUNNERS))
    words = RUNNERS[command][is_red]
    text = words.format(
        n=chance.randint(2, 90), m=chance.randint(1, 9), t=chance.randint(1, 99) / 10
    )
    session.run(command + pipe, text, 0 if pipe else int(is_red))


def work(session: Any, chance: Random, n: int) -> None:
    """Ordinary work: reads, edits, searches with and without a hit, tests that get green."""
    for _ in range(n):
        file, word = chance.choice(FILES), f"{chance.choice(WORDS)}_{chance.randint(0, 9999)}"
        step = chance.randrange(7)
        if step == 0:
            session.read(file, f"{word} = {chance.random()}\n")
        elif step == 1:
            session.edit(file, f"{word} = 1", f"{word} = {chance.randint(2, 999)}")
        elif step == 2:
            session.run(f"grep -rn {word} src", "", 1)
        elif step == 3:
            session.run(f"rg {word}", f"src/{file}:3:{word}")
        elif step == 4:
            session.run(f"diff a/{word} b/{word}", f"< {word}\n> other", 1)
        elif step == 5:
            tests_end(session, chance, is_red=True)
            session.edit(file, f"{word} = a", f"{word} = b{chance.randint(0, 9999)}")
            tests_end(session, chance, is_red=False)
        else:
            session.run(f"git show {word}", f"commit {word}\n{chance.random()}")


def _loop(session: Any, chance: Random) -> None:
    word = chance.choice(WORDS)
    for _ in range(chance.randint(4, 40)):
        session.run(f"npm run {word}", "> waiting for the server")


def _failing_loop(session: Any, chance: Random) -> None:
    word = chance.choice(WORDS)
    for _ in range(chance.randint(3, 40)):
        session.run(f"make {word}", f"make: *** No rule to make target '{word}'.  Stop.", 2)


def _alternating(session: Any, chance: Random) -> None:
    file, word = chance.choice(FILES), chance.choice(WORDS)
    for _ in range(chance.randint(3, 12)):
        session.read(file, f"{word} = 1\n")
        session.run(f"ls {word}", f"{word}.py")


def _retry(session: Any, chance: Random) -> None:
    is_read = chance.random() < 0.5
    for _ in range(2):
        session.run("poetry install", "poetry: command not found", 127)
        if is_read:
            session.read("pyproject.toml", f"version = {chance.random()}")


def _denied(session: Any, chance: Random) -> None:
    for n in range(chance.randint(3, 7)):
        session.deny(f"rm -rf build/{n}{chance.choice(WORDS)}")


def _taken_back(session: Any, chance: Random) -> None:
    file, word = chance.choice(FILES), chance.choice(WORDS)
    commands = ("restore", "checkout --", "checkout HEAD~1", "-C app restore", "checkout",
                "reset --hard HEAD~1 && cat", "restore --source=HEAD~2")  # fmt: skip
    if chance.random() < 0.3:
        session.edit(file, f"{word} = old", f"{word} = new")
        session.edit(file, f"{word} = new", f"{word} = old")
    else:
        session.run(f"git {chance.choice(commands)} {file}", "")


def _interrupted(session: Any, chance: Random) -> None:
    session.interrupt()
    session.prompt(f"Now look at {chance.choice(FILES)}", 400.0)


def _corrected(session: Any, chance: Random) -> None:
    session.say("It is done.")
    wrong = (
        *("No, use the other file", "That's wrong, it must stay", "nein, das ist falsch"),
        *("不对，用另一个", "non, c'est l'autre fichier", "Still failing with the same error"),
        *("wait, I meant the other table", "Actually, don't touch the tests", "Undo that please"),
        *("it still fails with the same error", "The tests are still failing", "Stop. Revert it"),
    )
    session.prompt(chance.choice(wrong), 20.0)


def _gave_up(session: Any, chance: Random) -> None:
    words = ("I was unable to fix the failing build.", "I couldn't complete the migration.",
             "Leider konnte ich den Fehler nicht beheben.", "我无法完成这个任务。",
             "Unfortunately I was not able to get the service to start.",
             "I've tried everything, but the build stays red.",
             "I couldn't get the failing tests to pass.", "This is as far as I get.",
             "I have not managed to fix it.",
             "Leider ist es mir nicht gelungen, das zu beheben.")  # fmt: skip
    session.say(chance.choice(words))


STORIES: dict[str, tuple[Callable[[Any, Random], None], bool]] = {
    "repeated_call": (_loop, False),
    "repeated_error": (_failing_loop, False),
    "alternating": (_alternating, False),
    "unchanged_retry": (_retry, False),
    "denied": (_denied, False),
    "tool_down": (
        lambda s, c: [s.down(c.choice(WORDS) + str(n)) for n in range(c.randint(2, 6))],
        False,
    ),
    "interrupted": (_interrupted, False),
    "corrected": (_corrected, False),
    "taken_back": (_taken_back, False),
    "tests_failing": (
        lambda s, c: tests_end(
            s, c, is_red=True, pipe=c.choice(("", " | tail -20", " 2>&1 | head"))
        ),
        False,
    ),
    "only_answers": (
        lambda s, c: [s.talk(f"Step {n} is next.") for n in range(c.randint(3, 6))],
        False,
    ),
    "provider_retries": (lambda s, c: s.retries(c.randint(3, 9)), False),
    "compacted": (lambda s, _: s.compact(), False),
    "gave_up": (_gave_up, True),
    "empty_answer": (lambda s, _: s.empty(), True),
    "cut_answer": (lambda s, _: s.cut(), True),
}
"""By sign: the steps that show it, and whether they are the end of the session."""
_OF_CLIENTS = ("provider_retries", "only_answers", "compacted", "empty_answer", "cut_answer")
UNRECORDED = {
    "codex": ("provider_retries", "cut_answer"),
    "opencode": ("provider_retries", "interrupted"),
    "lionagi": (*_OF_CLIENTS, "interrupted", "corrected"),
    "agent_orchestrator": _OF_CLIENTS,
}
"""Signs that a client does not record in this form."""
GOOD_ENDS = (
    "All tests pass.", "Done: the cart keeps its order now.", "Fertig, die Tests sind grün.",
    "I was unable to reproduce the bug, so I added logging and found it in the parser.",
    "已完成。", "The change is in place; nothing else was needed.",
    "The message 'unable to complete the order' came from a typo, which is mended.",
    "The job that was unable to complete within 9 s now takes 2 s.",
)  # fmt: skip
FOLLOW_UPS = (
    "Stop words should be left out of the index", "Wrong passwords must give a 401",
    "Undo and redo need shortcuts", "Actually, one more thing: add an example to the README",
    "Make sure that the old tests still pass", "Wait for the server before the tests begin",
)  # fmt: skip


def _near_misses(session: Any, chance: Random) -> None:
    """What looks like a sign and is none."""
    file = chance.choice(FILES)
    for n in range(3):
        session.read(file, f"version {n}")
    for n in range(6):
        session.run("gh run view 7", f"step {n} of 6 done")
    session.run("git checkout feature/cart", "Switched to branch 'feature/cart'")
    for n in range(4):
        session.run("npm run lint", "0 problems")
        session.edit(file, f"line {n} = 1", f"line {n} = {chance.randint(2, 999)}")
    session.run(f"git restore --staged {file}", "")
    session.run(f'git commit -m "Undo what git restore {file} did"', f"[main {chance.random()}]")
    for port in (chance.randint(1000, 4999), chance.randint(5000, 9999)):
        session.run(f"node ping.js {port}", "Error: the MCP server of the shop is not connected", 1)
    session.say(chance.choice(("What should the limit be?", "Shall I remove the old one too?")))
    session.prompt(chance.choice(("No, keep it.", "No more than ten, and note it")), 30.0)
    session.read(file, f"version {chance.random()}")
    session.say("Done.")
    if hasattr(session, "compact"):
        session.compact()
    session.prompt(chance.choice(FOLLOW_UPS), 30.0)


def labelled(home: Path, client: str, seed: int, n_each: int, n_controls: int) -> pl.DataFrame:
    """Write sessions of a client below a folder.

    Returns
    -------
    polars.DataFrame
        ``session_id`` and ``sign``; null: a control.
    """
    chance = Random(f"{client} {seed}")
    labels = []
    kinds: Iterator[str | None] = iter(
        [sign for sign in STORIES if sign not in UNRECORDED.get(client, ()) for _ in range(n_each)]
        + [None] * n_controls  # type: ignore[list-item]
    )
    for number, sign in enumerate(kinds):
        at = BEGIN + timedelta(seconds=1800 * number + chance.randint(0, 900))
        session = MAKERS[client](f"{client}{seed}n{number}", at)
        session.prompt(f"Fix the {chance.choice(WORDS)} in {chance.choice(FILES)}")
        work(session, chance, chance.randint(4, 14))
        steps, is_end = STORIES[sign] if sign else (_near_misses, False)
        steps(session, chance)
        if not is_end:
            if sign != "tests_failing":
                work(session, chance, chance.randint(2, 6))
            session.say(chance.choice(GOOD_ENDS))
        session.write(home)
        labels.append((session.id, sign))
    return pl.DataFrame(labels, schema=["session_id", "sign"], orient="row")


def scores(homes: Path, seed: int, n_each: int = 12, n_controls: int = 200) -> pl.DataFrame:
    """How well the signs of freshly written sessions are found, by client and sign.

    Returns
    -------
    polars.DataFrame
        ``client``, ``sign`` (null: any sign of a control), ``n_labelled``, ``n_found``,
        ``n_right``.
    """
    rows = []
    for client in CLIENTS:
        home = homes / client
        labels = labelled(home, client, seed, n_each, n_controls)
        with sa.read(home, progress=False) as snap:
            found = sa.failures.signs(snap).select("session_id", "sign").unique()
        controls = labels.filter(pl.col("sign").is_null())
        wrong = found.join(controls, on="session_id", how="semi")
        rows.append((client, None, controls.height, wrong["session_id"].n_unique(), 0))
        for sign in labels["sign"].drop_nulls().unique(maintain_order=True):
            meant, these = labels.filter(sign=sign), found.filter(sign=sign)
            right = these.join(meant, on=["session_id", "sign"], how="semi")
            # Ordinary work has no sign, so that one in a session of another label is wrong,
            # but for what several signs share.
            others = these.join(meant, on="session_id", how="anti")
            rows.append((client, sign, meant.height, right.height + others.height, right.height))
    columns = ["client", "sign", "n_labelled", "n_found", "n_right"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def table_of(found: pl.DataFrame) -> str:
    """The scores as the table of docs/effort.md."""
    lines = ["| client | sign | labelled | found | of these right | precision | recall |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for client, sign, n, n_found, n_right in found.rows():
        if sign is None:
            lines.append(f"| {client} | controls: any sign | {n} | {n_found} | · | · | · |")
        else:
            precision = f"{n_right / n_found:.2f}" if n_found else "·"
            row = (client, f"`{sign}`", n, n_found, n_right, precision, f"{n_right / n:.2f}")
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Print the table for a seed."""
    with tempfile.TemporaryDirectory() as folder:
        print(table_of(scores(Path(folder), int(arguments[0]) if arguments else 1)))


if __name__ == "__main__":
    main(sys.argv[1:])
