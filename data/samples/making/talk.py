"""What sessions say, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from making.world import AS_OF, Call, World

if TYPE_CHECKING:
    from making.lives import Life

_MESSAGES = {
    name: f"lionagi.protocols.messages.{module}.{name}"
    for name, module in {
        "Instruction": "instruction",
        "AssistantResponse": "assistant_response",
        "ActionRequest": "action_request",
        "ActionResponse": "action_response",
    }.items()
}
# The two ways in which lionagi stores that a tool failed.
_COMPLAINTS = (
    {"output": "Exit code: 127\n/bin/sh: 1: poetry: not found"},
    {"output": None, "error": "ToolError: Bash timed out after 120 s"},
)
_SAID = (
    "Read the module and wrote down what it does.",
    "The tests pass; the diff is small. Going on with the next file.",
    "Found two callers that rely on the old behaviour; changed both.",
    "Done: the change is complete and documented.",
)


def chatter(
    world: World, started: float, ended: float, *, n_first: int = 1, has_long: bool = True
) -> list[float]:
    """Moments of messages: the first at the start, then log-normal silences (see README)."""
    times = [round(started + 0.3 + place, 3) for place in range(n_first)]
    while True:
        is_long = has_long and world.chance.random() < 0.02
        gap = world.log_normal(3000.0, 0.35) if is_long else world.log_normal(270.0, 1.0)
        when = round(times[-1] + gap, 3)
        if when >= min(ended - 1.0, AS_OF):
            return times
        times.append(when)


def talk(world: World, life: Life, lists: list[str], branches: list[str]) -> int:
    """Messages: an instruction, then turns; gives how many tool calls went wrong."""
    n_errors = 0
    request = ""
    for place, when in enumerate(life.talk):
        leg = place % len(branches)
        if place < len(branches):
            role, kind, content = "user", "Instruction", {"instruction": life.first_words}
        elif request:
            is_error = world.chance.random() < 0.08
            n_errors += is_error
            role, kind = "action", "ActionResponse"
            answer = world.one_of(_COMPLAINTS) if is_error else {"output": "12 passed in 3.4s"}
            content = {"function": "Bash", **answer, "action_request_id": request}
        elif world.chance.random() < 0.3:
            role, kind = "action", "ActionRequest"
            content = {"function": "Bash", "arguments": {"command": "make test"}}
        else:
            role, kind = "assistant", "AssistantResponse"
            content = {"assistant_response": world.one_of(_SAID)}
        message = {
            "id": world.uuid(),
            "created_at": when,
            "node_metadata": {"lion_class": _MESSAGES[kind]},
            "content": content,
            "sender": life.session_id if role == "user" else branches[leg],
            "recipient": branches[leg] if role == "user" else life.session_id,
            "role": role,
        }
        request = message["id"] if kind == "ActionRequest" else ""
        world.at(when, _say(message, life.session_id, (lists[1 + leg], lists[0])))
    return n_errors


def _say(message: dict[str, Any], session_id: str, lists: tuple[str, str]) -> Call:
    async def say(store: Any) -> None:
        await store.insert_messages(
            [message],
            progression_ids=lists,
            session_id=session_id,
            activity_at=message["created_at"],
        )

    return say
