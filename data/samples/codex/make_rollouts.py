"""Make the sample of Codex: a directory of rollouts, by hand and for ever the same.

    python data/samples/codex/make_rollouts.py [--into FOLDER]

Nothing is captured. Field names and nesting are those of real rollouts; texts, ids and
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
VERSION = "0.144.6"
SPACE = uuid.UUID("6f2e7c1a-0000-4000-8000-000000000001")
PARTS = (
    *("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens"),
    "total_tokens",
)


def dated_id(name: str, at: datetime) -> str:
    """An id of version 7: its moment, and bits that are always the same for a name."""
    moment = f"{round(at.timestamp() * 1000):012x}"
    rest = uuid.uuid5(SPACE, name).hex
    return f"{moment[:8]}-{moment[8:]}-7{rest[:3]}-8{rest[3:6]}-{rest[6:18]}"


class Rollout:
    """Lines of one thread, each some seconds after the one before."""

    def __init__(self, name: str, begin: str, *, version: str = VERSION, **more: Any) -> None:
        self.name = name
        self.begin = self.now = datetime.fromisoformat(begin).replace(tzinfo=UTC)
        self.thread_id = dated_id(name, self.now)
        self.turn_id: str | None = None
        self.lines: list[dict[str, Any]] = []
        self.total = dict.fromkeys(PARTS, 0)
        self.meta = {
            "id": self.thread_id,
            "timestamp": self.stamp(),
            "cwd": "/repo/shop",
            "originator": "codex-tui",
            "cli_version": version,
            "source": "cli",
            "model_provider": "openai",
            "git": {"branch": "main"},
            **more,
        }
        self.add("session_meta", 0.0, **self.meta)

    @property
    def file(self) -> str:
        """Where it lies, below the root."""
        folder = f"sessions/{self.begin:%Y/%m/%d}"
        return f"{folder}/rollout-{self.begin:%Y-%m-%dT%H-%M-%S}-{self.thread_id}.jsonl"

    def stamp(self) -> str:
        """The moment as it is written."""
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def add(self, record: str, after_s: float = 0.0, /, **payload: Any) -> dict[str, Any]:
        """A record with its envelope, so long after the one before."""
        self.now += timedelta(seconds=after_s)
        line = {"timestamp": self.stamp(), "type": record, "payload": payload}
        self.lines.append(line)
        return line

    def event(self, kind: str, after_s: float = 0.0, /, **more: Any) -> None:
        """An event."""
        self.add("event_msg", after_s, type=kind, **more)

    def item(self, kind: str, after_s: float = 0.0, /, **more: Any) -> None:
        """An item of the conversation."""
        self.add("response_item", after_s, type=kind, **more)

    def message(self, role: str, text: str, after_s: float = 0.0, **more: Any) -> None:
        """A message, without the event that tells it too."""
        kind = "output_text" if role == "assistant" else "input_text"
        self.item("message", after_s, role=role, content=[{"type": kind, "text": text}], **more)

    def copy_of(self, parent: Rollout) -> None:
        """The parent's records, all stamped with this moment; totals go on from there."""
        self.lines += [{**line, "timestamp": self.stamp()} for line in parent.lines]
        self.total = dict(parent.total)

    def turn(self, prompt: str, after_s: float = 5.0, *, policy: str = "on-request") -> None:
        """A turn begins with its prompt."""
        self.now += timedelta(seconds=after_s)
        self.turn_id = dated_id(f"{self.name} turn {len(self.lines)}", self.now)
        self.event("task_started", turn_id=self.turn_id, model_context_window=272000)
        self.context(policy, turn_id=self.turn_id)
        self.prompt(prompt)

    def context(self, policy: str = "on-request", **more: Any) -> None:
        """What a turn runs with."""
        self.add(
            "turn_context", cwd="/repo/shop", approval_policy=policy, model="gpt-5.2-codex", **more
        )

    def prompt(self, text: str) -> None:
        """A prompt, as an item and as an event."""
        self.message("user", f"<environment_context>{self.name}</environment_context>")
        self.message("user", text)
        self.event("user_message", message=text)

    def say(self, text: str, after_s: float = 3.0, phase: str | None = "final_answer") -> None:
        """A message of the model, as an item and as an event."""
        more = {"phase": phase} if phase else {}
        self.message("assistant", text, after_s, **more)
        self.event("agent_message", message=text, **more)

    def call(
        self, call_id: str, name: str = "exec_command", after_s: float = 2.0, **given: Any
    ) -> None:
        """A call of a tool."""
        self.item("function_call", after_s, name=name, arguments=json.dumps(given), call_id=call_id)

    def result(self, call_id: str, output: str, after_s: float = 2.0) -> None:
        """The result of a call."""
        self.item("function_call_output", after_s, call_id=call_id, output=output)

    def ran(self, call_id: str, exit_code: int, took_s: float, text: str = "") -> None:
        """The result of a command."""
        head = f"Wall time: {took_s:.4f} seconds\nProcess exited with code {exit_code}\nOutput:\n"
        self.result(call_id, head + text, took_s)

    def tokens(self, read: int, cached: int, written: int, thought: int = 0, **limits: Any) -> None:
        """Usage of one answer, and of all so far."""
        last = dict(zip(PARTS, (read, cached, written, thought, read + written), strict=True))
        self.total = {name: self.total[name] + number for name, number in last.items()}
        info = {"total_token_usage": self.total, "last_token_usage": last}
        self.event("token_count", info=info, rate_limits=limits or None)

    def limits(self, used_percent: float, reached: str | None = None) -> None:
        """What is left of a usage limit, without any usage."""
        primary = {"used_percent": used_percent, "window_minutes": 300, "resets_at": 1779300000}
        rate_limits = {"primary": primary, "plan_type": "plus", "rate_limit_reached_type": reached}
        self.event("token_count", info=None, rate_limits=rate_limits)

    def complete(self, last: str | None, after_s: float = 0.1, **more: Any) -> None:
        """The turn ends."""
        self.event(
            "task_complete", after_s, turn_id=self.turn_id, last_agent_message=last,
            duration_ms=9000, **more,
        )  # fmt: skip

    def text(self) -> str:
        """The lines as they are stored."""
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)


def packed(text: str) -> bytes:
    """Zstandard's frame of one raw block, which any release of it writes alike."""
    octets = text.encode()
    size = len(octets)
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b10100000]) + size.to_bytes(4, "little")
    return frame + ((size << 3) | 1).to_bytes(3, "little") + octets


def lives() -> dict[str, Rollout]:  # noqa: PLR0915 - a list of lives, one after the other
    """Every thread of the sample, by its name."""
    told: dict[str, Rollout] = {}

    def keep(rollout: Rollout) -> None:
        told[rollout.name] = rollout

    good = Rollout("good", "2026-05-18T09:00:00")
    good.turn("Add a discount to the cart")
    good.call("call_g1", cmd="cat cart.py")
    good.ran("call_g1", 0, 1.5, "class Cart: ...")
    good.tokens(2400, 1024, 180, 64)
    good.call("call_g2", cmd="pytest")
    good.ran("call_g2", 1, 31.0, "1 failed")
    good.item("custom_tool_call", 2.0, name="apply_patch", call_id="call_g3", input="*** Begin")
    good.item("custom_tool_call_output", 0.5, call_id="call_g3", output="Success.")
    good.event("patch_apply_end", call_id="call_g3", success=True, status="completed")
    good.say("Done: the discount is there.")
    good.tokens(2700, 2304, 60)
    good.complete("Done: the discount is there.")
    half = len(good.lines)
    good.turn("Thanks, now document it", 60.0)
    good.say("Documented.")
    good.tokens(3100, 2700, 40)
    good.limits(12.5)
    good.complete("Documented.")
    keep(good)

    fork = Rollout("fork", "2026-05-18T14:00:00", forked_from_id=good.thread_id)
    parent_then = Rollout("good", "2026-05-18T09:00:00")
    parent_then.lines, parent_then.total = good.lines[:half], dict(good.total)
    fork.copy_of(parent_then)
    fork.turn("Use a coupon instead")
    fork.say("Switched to coupons.")
    fork.tokens(3000, 2700, 66)
    fork.complete("Switched to coupons.")
    keep(fork)

    parent = Rollout("parent", "2026-05-18T15:00:00")
    parent.turn("Find every caller of load()")
    parent.call("call_p1", "spawn_agent", task="find callers")
    parent.tokens(2000, 0, 50)
    child = Rollout(
        "child", "2026-05-18T15:00:08", agent_nickname="Ada", agent_role="explorer",
        source={"subagent": {"thread_spawn": {"parent_thread_id": parent.thread_id, "depth": 1}}},
    )  # fmt: skip
    child.copy_of(parent)
    parent.event(
        "sub_agent_activity", 1.1, event_id="call_p1", agent_thread_id=child.thread_id,
        kind="started",
    )  # fmt: skip
    child.turn("List callers of load()", 0.5)
    child.call("call_c1", cmd="rg load")
    child.ran("call_c1", 0, 0.5, "app.py:12")
    child.say("One caller: app.py.")
    child.tokens(2300, 2000, 70)
    child.complete("One caller: app.py.")
    keep(child)
    parent.result("call_p1", json.dumps({"agent_id": child.thread_id}), 8.0)
    parent.say("Only app.py calls it.")
    parent.tokens(2500, 2000, 45)
    parent.complete("Only app.py calls it.")
    keep(parent)

    stopped = Rollout("stopped", "2026-05-19T10:00:00")
    stopped.turn("Run the whole test suite")
    stopped.call("call_s1", cmd="pytest")
    stopped.tokens(1500, 0, 40)
    stopped.result("call_s1", "aborted by user after 95.0s", 95.0)
    stopped.event("turn_aborted", 0.1, turn_id=stopped.turn_id, reason="interrupted")
    keep(stopped)

    limit = Rollout("limit", "2026-05-19T11:00:00", version="0.169.0")
    limit.turn("Refactor the checkout")
    limit.limits(100.0, "rate_limit_reached")
    error = {"message": "Usage limit reached.", "codex_error_info": "usage_limit_exceeded"}
    limit.complete(None, error=error)
    keep(limit)

    cut = Rollout("cut", "2026-05-19T11:30:00", version="0.125.0")
    cut.turn("Explain the cache")
    broken = {"response_too_many_failed_attempts": {"http_status_code": 503}}
    words = "stream disconnected before completion"
    cut.event("error", 40.0, message=words, codex_error_info=broken)
    cut.complete(None)
    keep(cut)

    died = Rollout("died", "2026-05-19T12:00:00")
    died.turn("Build the image")
    died.call("call_d1", "shell", command=["make", "image"], timeout_ms=600000)
    died.turn("Are you there?", 7200.0)
    died.say("Yes; the build was lost.")
    died.tokens(1900, 700, 20)
    died.complete("Yes; the build was lost.")
    keep(died)

    silent = Rollout("silent", "2026-05-19T13:00:00")
    silent.turn("Summarise the log")
    silent.complete(None, 4.0)
    keep(silent)

    undone = Rollout("undone", "2026-05-19T15:00:00")
    undone.turn("Rename the table")
    undone.say("Renamed.")
    undone.complete("Renamed.")
    undone.turn("Rename it again", 20.0)
    undone.event("turn_aborted", 9.0, turn_id=undone.turn_id, reason="interrupted")
    undone.event("thread_rolled_back", 5.0, num_turns=1)
    keep(undone)

    compact = Rollout("compact", "2026-05-20T09:00:00")
    compact.turn("Migrate all models")
    compact.say("Half of them are done.", phase="commentary")
    compact.tokens(250000, 200000, 500)
    compact.add("compacted", 20.0, message="Half are migrated.", replacement_history=[])
    compact.event("context_compacted")
    compact.context(turn_id=compact.turn_id)
    compact.say("All models are migrated.")
    compact.tokens(9000, 0, 220)
    compact.complete("All models are migrated.")
    keep(compact)

    paged = Rollout("paged", "2026-05-20T10:00:00", source="exec", history_mode="paginated")
    paged.turn("Count the tests", policy="never")
    paged.lines.pop()
    item = {"type": "UserMessage", "id": "item_1", "content": []}
    paged.event("item_completed", turn_id=paged.turn_id, item=item)
    paged.call("call_n1", "shell", command=["pytest", "--co"])
    ran = {"type": "CommandExecution", "id": "call_n1", "status": "failed", "exit_code": 2}
    ran["duration"] = {"secs": 3, "nanos": 500000000}
    paged.event("item_completed", 3.5, turn_id=paged.turn_id, item=ran)
    paged.result("call_n1", "collected nothing", 0.0)
    paged.message("assistant", "Forty-two.", 3.0, phase="final_answer")
    said = {"type": "AgentMessage", "id": "i2", "content": [{"type": "Text", "text": "Forty-two."}]}
    paged.event("item_completed", turn_id=paged.turn_id, item=said)
    usage = dict(zip(PARTS, (900, 0, 12, 0, 912), strict=True))
    paged.add("token_usage_record", turn_id=paged.turn_id, response_id="resp_1", usage=usage)
    paged.tokens(900, 0, 12)
    paged.complete("Forty-two.")
    for place, line in enumerate(paged.lines):
        line["ordinal"] = place
    keep(paged)

    asking = Rollout("asking", "2026-05-20T16:00:00")
    asking.turn("Publish the package")
    asking.call("call_q1", cmd="twine upload", sandbox_permissions="require_escalated")
    keep(asking)

    working = Rollout("working", "2026-05-20T17:00:00")
    working.turn("Deploy it", policy="never")
    working.call("call_w1", "shell", command=["make", "deploy"], timeout_ms=600000)
    keep(working)

    old = Rollout("old", "2026-04-01T09:00:00", version="0.46.0")
    old.context()
    old.prompt("Review the diff")
    old.say("No remarks.", 8.0, None)
    old.tokens(700, 0, 11)
    keep(old)
    return told


def rollouts() -> dict[str, bytes]:
    """Every file of the sample below its root."""
    told = lives()
    files = {rollout.file: rollout.text().encode() for rollout in told.values()}
    files[told["working"].file] += b'{"timestamp":"2026-05-20T17:04:00.000Z","type":"event_msg","pa'
    old = Path(told["old"].file)
    files[f"archived_sessions/{old.name}.zst"] = packed(files.pop(old.as_posix()).decode())
    named = {"good": "Discount", "fork": "Coupons"}
    files["session_index.jsonl"] = "".join(
        json.dumps(
            {"id": told[name].thread_id, "thread_name": title, "updated_at": told[name].stamp()}
        )
        + "\n"
        for name, title in named.items()
    ).encode()
    typed = {told["good"]: "Add a discount", Rollout("gone", "2026-04-20"): "?"}
    files["history.jsonl"] = "".join(
        json.dumps({"session_id": rollout.thread_id, "ts": 0, "text": text}) + "\n"
        for rollout, text in typed.items()
    ).encode()
    return files


def write(root: Path) -> None:
    """Write the sample into a folder."""
    for name, octets in rollouts().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(octets)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=HERE)
    write(parser.parse_args().into)
