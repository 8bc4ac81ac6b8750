"""Make the sample of Claude Code: a directory of transcripts, by hand and for ever the same.

    python data/samples/claude_code/make_transcripts.py [--into FOLDER]

Nothing is captured. Field names and nesting are those of real transcripts; texts, ids and
numbers are invented.
"""

from __future__ import annotations

import argparse
import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROJECT = "projects/-repo-shop"
VERSION = "2.1.144"
SPACE = uuid.UUID("6f2e7c1a-0000-4000-8000-000000000000")
LIMIT = "You've hit your session limit · resets 9:50pm (UTC)"


def session_id(name: str) -> str:
    """The id of a session, always the same for a name."""
    return str(uuid.uuid5(SPACE, name))


class Transcript:
    """Lines of one session or subagent, each some seconds after the one before."""

    def __init__(self, name: str, begin: str, *, agent: str | None = None) -> None:
        self.session_id = session_id(name)
        self.agent = agent
        self.now = datetime.fromisoformat(begin).replace(tzinfo=UTC)
        self.lines: list[dict[str, Any]] = []
        self.parent: str | None = None

    def add(self, kind: str, after_s: float = 0.0, **more: Any) -> dict[str, Any]:
        """A record with its envelope, so long after the one before."""
        self.now += timedelta(seconds=after_s)
        own = str(uuid.uuid5(SPACE, f"{self.session_id}{self.agent}{len(self.lines)}"))
        line = {
            "parentUuid": self.parent,
            "isSidechain": self.agent is not None,
            "userType": "external",
            "cwd": "/repo/shop",
            "sessionId": self.session_id,
            "version": VERSION,
            **({"agentId": self.agent} if self.agent else {}),
            "type": kind,
            "uuid": own,
            "timestamp": self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **more,
        }
        self.parent = own
        self.lines.append(line)
        return line

    def user(self, content: Any, after_s: float = 5.0, **more: Any) -> dict[str, Any]:
        """A prompt, or what a person or the program put in."""
        return self.add("user", after_s, message={"role": "user", "content": content}, **more)

    def result(
        self, tool_id: str, text: str, after_s: float = 2.0, *, is_error: bool = False, **more: Any
    ) -> dict[str, Any]:
        """The result of a tool call."""
        block = {"type": "tool_result", "tool_use_id": tool_id, "content": text}
        failed = {"is_error": True} if is_error else {}
        return self.user([{**block, **failed}], after_s, **more)

    def answer(
        self,
        *blocks: dict[str, Any],
        stop: str | None,
        usage: tuple[int, int, int, int],
        after_s: float = 4.0,
        **more: Any,
    ) -> None:
        """One answer of the model: a line for each of its blocks, each with the whole usage."""
        number = uuid.uuid5(SPACE, f"{self.session_id}{self.agent}m{len(self.lines)}").hex[:20]
        for place, block in enumerate(blocks):
            is_last = place == len(blocks) - 1
            self.add(
                "assistant",
                after_s if not place else 1.0,
                requestId=f"req_{number}",
                message={
                    "model": "claude-sonnet-4-6",
                    "id": f"msg_{number}",
                    "type": "message",
                    "role": "assistant",
                    "content": [block],
                    "stop_reason": stop if is_last else None,
                    "stop_sequence": None,
                    "usage": {
                        "input_tokens": usage[0],
                        "cache_creation_input_tokens": usage[1],
                        "cache_read_input_tokens": usage[2],
                        # Until 2.1.96 the first lines had a placeholder.
                        "output_tokens": usage[3] if is_last else 3,
                    },
                },
                **more,
            )

    def retry(self, attempt: int, wait_ms: float, after_s: float = 1.0) -> None:
        """A request that failed and will be sent again."""
        error = {"status": 429, "type": "rate_limit_error"}
        self.add(
            "system",
            after_s,
            subtype="api_error",
            level="error",
            error=error,
            retryAttempt=attempt,
            maxRetries=10,
            retryInMs=wait_ms,
        )

    def api_error(self, text: str, tag: str, status: int, after_s: float = 1.0) -> None:
        """The last word on a request that failed for good."""
        message = {
            "model": "<synthetic>",
            "id": self.parent,
            "role": "assistant",
            "content": [say(text)],
            "stop_reason": "stop_sequence",
            "usage": dict.fromkeys(("input_tokens", "output_tokens"), 0),
        }
        self.add(
            "assistant",
            after_s,
            message=message,
            isApiErrorMessage=True,
            error=tag,
            apiErrorStatus=status,
        )

    def text(self) -> str:
        """The lines as they are stored."""
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)


def say(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


def call(tool_id: str, name: str, **given: Any) -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "tool_use", "id": tool_id, "name": name, "input": given}


def transcripts() -> dict[str, str]:  # noqa: PLR0915 - a list of lives, one after the other
    """Every file of the sample below its root."""
    files: dict[str, str] = {}

    def keep(told: Transcript, tail: str = "") -> Transcript:
        folder = f"{PROJECT}/{told.session_id}"
        name = f"{folder}/subagents/agent-{told.agent}.jsonl" if told.agent else f"{folder}.jsonl"
        files[name] = told.text() + tail
        return told

    good = Transcript("good", "2026-05-18T09:00:00")
    good.user("Add a discount to the cart")
    good.answer(
        say("I read the cart first."),
        call("toolu_g1", "Read", file_path="cart.py"),
        stop="tool_use",
        usage=(10, 2000, 0, 85),
    )
    good.result("toolu_g1", "class Cart: ...")
    good.answer(
        call("toolu_g2", "Bash", command="pytest", timeout=300000),
        stop="tool_use",
        usage=(6, 90, 2000, 40),
    )
    good.result("toolu_g2", "Exit code 1\n1 failed", 31.0, is_error=True)
    good.retry(1, 550.0)
    good.answer(say("Done: the discount is there."), stop="end_turn", usage=(5, 120, 2090, 60))
    good.add("system", subtype="turn_duration", durationMs=45000)
    good.user("Thanks, now document it", 60.0)
    good.answer(say("Documented."), stop="end_turn", usage=(8, 100, 2210, 40))
    keep(good)

    fork = Transcript("fork", "2026-05-18T14:00:00")
    for line in good.lines[:8]:
        copied = {"sessionId": good.session_id, "messageUuid": line["uuid"]}
        fork.lines.append({**line, "sessionId": fork.session_id, "forkedFrom": copied})
    fork.user("Use a coupon instead")
    fork.answer(say("Switched to coupons."), stop="end_turn", usage=(7, 140, 2120, 66))
    keep(fork)

    parent = Transcript("parent", "2026-05-18T15:00:00")
    parent.user("Find every caller of load()")
    parent.answer(
        call("toolu_p1", "Agent", description="find callers"),
        stop="tool_use",
        usage=(11, 800, 0, 70),
    )
    child = Transcript("parent", "2026-05-18T15:00:10", agent="a7f3c01")
    child.user("List callers of load()", 0.0)
    child.answer(call("toolu_c1", "Grep", pattern="load"), stop="tool_use", usage=(6, 400, 0, 30))
    child.result("toolu_c1", "app.py:12")
    child.answer(say("One caller: app.py."), stop="end_turn", usage=(4, 50, 400, 25))
    parent.result(
        "toolu_p1",
        "One caller: app.py.",
        13.0,
        toolUseResult={"status": "completed", "agentId": "a7f3c01"},
    )
    parent.answer(say("Only app.py calls it."), stop="end_turn", usage=(5, 90, 800, 33))
    keep(parent)
    keep(child)

    stopped = Transcript("stopped", "2026-05-19T10:00:00")
    stopped.user("Run the whole test suite")
    stopped.answer(
        call("toolu_s1", "Bash", command="pytest"), stop="tool_use", usage=(12, 900, 0, 40)
    )
    stopped.result("toolu_s1", "Exit code 137", 95.0, is_error=True)
    stopped.user(
        [say("[Request interrupted by user for tool use]")], 0.0, interruptedMessageId="msg_x"
    )
    keep(stopped)

    limit = Transcript("limit", "2026-05-19T11:00:00")
    limit.user("Refactor the checkout")
    limit.retry(1, 550.0, 2.0)
    limit.retry(2, 1100.0)
    limit.api_error(LIMIT, "rate_limit", 429)
    keep(limit)

    died = Transcript("died", "2026-05-19T12:00:00")
    died.user("Build the image")
    died.answer(
        call("toolu_d1", "Bash", command="make image"), stop="tool_use", usage=(9, 700, 0, 55)
    )
    died.user("Are you there?", 7200.0)
    died.answer(say("Yes; the build was lost."), stop="end_turn", usage=(9, 30, 700, 20))
    keep(died)

    compact = Transcript("compact", "2026-05-20T09:00:00")
    compact.user("Migrate all models")
    compact.answer(say("Half of them are done."), stop="end_turn", usage=(9, 150000, 0, 500))
    boundary = compact.add(
        "system",
        5.0,
        subtype="compact_boundary",
        compactMetadata={"trigger": "auto", "preTokens": 150509},
    )
    boundary["logicalParentUuid"], boundary["parentUuid"] = boundary["parentUuid"], None
    compact.user("Summary of the earlier work.", 40.0, isCompactSummary=True)
    compact.user("Go on")
    compact.answer(say("All are migrated, at length"), stop="max_tokens", usage=(9, 3200, 0, 8000))
    keep(compact)

    asking = Transcript("asking", "2026-05-20T16:00:00")
    asking.user("Choose a database")
    asking.answer(
        call("toolu_q1", "AskUserQuestion", questions=[]), stop="tool_use", usage=(9, 700, 0, 55)
    )
    keep(asking)

    working = Transcript("working", "2026-05-20T17:00:00")
    working.user("Deploy it", permissionMode="bypassPermissions")
    working.answer(
        call("toolu_w1", "Bash", command="make deploy", timeout=600000),
        stop="tool_use",
        usage=(9, 700, 0, 55),
    )
    working.add("progress", 30.0, data={"type": "bash_progress"}, parentToolUseID="toolu_w1")
    torn = '{"parentUuid":null,"type":"user","message":{"role":"us'
    keep(working, torn)

    child_name = f"{PROJECT}/{child.session_id}/subagents/agent-a7f3c01.meta.json"
    files[child_name] = json.dumps({"agentType": "Explore", "toolUseId": "toolu_p1"})
    typed = [(good, "Add a discount"), (limit, "Refactor"), (Transcript("gone", "2026-04-20"), "?")]
    files["history.jsonl"] = "".join(
        json.dumps({"display": words, "timestamp": 0, "sessionId": told.session_id}) + "\n"
        for told, words in typed
    )
    files["settings.json"] = json.dumps({"cleanupPeriodDays": 30}) + "\n"
    return files


def write(root: Path) -> None:
    """Write the sample into a folder."""
    for name, text in transcripts().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE)
    write(parser.parse_args().into)
