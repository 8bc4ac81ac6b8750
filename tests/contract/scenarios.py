"""What the provider answers in each scenario, and what must be read of it: one table for all.

A scenario is known by its marker, ``[[name]]`` in the prompt. Tool calls are written in general
words (``shell``, ``read``, ``agent``); `tests.contract.clients` puts them into those of a client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer: the provider's bill."""

    fresh: int = 1000
    cache_read: int = 300
    cache_write: int = 200
    output: int = 50
    reasoning: int = 10


@dataclass(frozen=True)
class Answer:
    """One answer of the provider to one request."""

    text: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    stop: str = "end"
    """``end``, ``output_limit`` or ``refusal``."""
    status: int = 200
    error: str = ""
    """What went wrong, a key of `ERRORS`."""
    is_cut: bool = False
    """The connection ends in the middle of the text."""
    wait_s: float = 0.0
    usage: Usage = field(default_factory=Usage)


ERRORS = {
    "rate_limit": {
        "anthropic": ("rate_limit_error", "Number of requests has exceeded your rate limit"),
        "openai": ("rate_limit_exceeded", "Rate limit reached. Please try again in 1s."),
    },
    "overloaded": {
        "anthropic": ("overloaded_error", "Overloaded"),
        "openai": ("server_error", "Overloaded"),
    },
    "overflow": {
        "anthropic": (
            "invalid_request_error", "prompt is too long: 215000 tokens > 200000 maximum",
        ),
        "openai": (
            "context_length_exceeded", "Your input exceeds the context window of this model.",
        ),
    },
    "auth": {
        "anthropic": ("authentication_error", "invalid x-api-key"),
        "openai": ("invalid_api_key", "Incorrect API key provided"),
    },
}  # fmt: skip
"""Type and message of an error, by the family of the provider."""

DONE = Answer("All done, as asked.", usage=Usage(1009, 309, 209, 59, 19))
FIRST = Usage(1001, 301, 201, 51, 11)
SECOND = Usage(1002, 302, 202, 52, 12)
THIRD = Usage(1003, 303, 203, 53, 13)
FOURTH = Usage(1004, 304, 204, 54, 14)


@dataclass(frozen=True)
class Scenario:
    """A prompt, the answers that it gets (the last one again and again), and how it ends."""

    name: str
    answers: tuple[Answer, ...]
    expected: dict[str, str | int | float | None] = field(default_factory=dict)
    """What must be read a day later; ``client.fact`` is of one client only."""
    signal: str = ""
    """``KILL``, ``INT`` or ``TERM``, sent while the last answer is being waited for."""
    follow_up: tuple[str, ...] = ()
    """Further runs of the same session: ``resume``, ``fork``, ``compact``."""
    clients: tuple[str, ...] = ("claude", "codex", "opencode")
    beside: str = ""
    """The scenario that runs at the same time."""
    agent: str = ""
    """The client that an orchestrator starts."""
    time_limit_s: int | None = None
    """What an orchestrator is told to allow it."""
    directory: str = ""
    """Where it works, if not in a directory of its own."""
    is_by_hand: bool = False
    """Whether a person starts the agent, and no orchestrator."""


GOOD: dict[str, str | int | float | None] = {"lifecycle": "completed", "outcome": "completed"}
FAILED: dict[str, str | int | float | None] = {"lifecycle": "failed", "outcome": "failed"}
DIED: dict[str, str | int | float | None] = {"claude.health": "stalled", "codex.health": "stalled"}
LOOK = "[[child]] look around and answer"
STALLS = Answer("never", wait_s=60)
CLAUDE = ("claude",)


def _ran(text: str, *commands: str, usage: Usage = FIRST) -> Answer:
    """An answer that runs commands."""
    return Answer(text, tuple(("shell", command) for command in commands), usage=usage)


def _said(*texts: str) -> tuple[Answer, ...]:
    """Answers in words, each with a usage of its own."""
    usages = (FIRST, SECOND, THIRD)
    return tuple(Answer(text, usage=usage) for text, usage in zip(texts, usages, strict=False))


START = _ran("Working.", "echo start")
# Claude Code refuses a bare `sleep` at once, and the model would go on.
HANGS = _ran("Working.", "tail -f /dev/null")
PYTEST = "pytest() { printf '1 failed, 2 passed in 0.10s\\n'; }; pytest | tail -1"
TAKE_BACK = (
    "git init -q . && git -c user.name=a -c user.email=a@b.c commit -q "
    "--allow-empty -m a && git reset --hard"
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("success", _said("Hello, this is the answer."), GOOD),
        Scenario(
            "failing_tool",
            (
                _ran("I run it.", "exit 7"),
                _ran("It failed; again.", "echo fine", usage=SECOND),
                DONE,
            ),
            GOOD | {"n_tool_errors": 1},
        ),
        Scenario(
            "parallel_tools",
            (
                Answer(
                    "Three at once.",
                    (("shell", "echo a"), ("shell", "exit 3"), ("read", "/no/such/file")),
                    usage=FIRST,
                ),
                DONE,
            ),
            # A file outside the directory needs a permission, which opencode then rejects itself.
            GOOD
            | {"n_tool_errors": 2}
            | {"opencode.lifecycle": "cancelled", "opencode.outcome": "cancelled"}
            | {"opencode.cause": "permission_declined"},
        ),
        Scenario(
            "looped",
            (*[_ran("Again.", "exit 7")] * 4, DONE),
            GOOD | {"n_tool_errors": 4, "signs": "repeated_error"},
        ),
        Scenario(
            "waited",
            (*[_ran("Wait.", "echo pending")] * 4, DONE),
            GOOD | {"signs": "repeated_call"},
        ),
        Scenario(
            "tests_behind_a_pipe",
            (_ran("I run the tests.", PYTEST), Answer("All tests pass.", usage=SECOND)),
            GOOD | {"signs": "tests_failing"},
        ),
        Scenario(
            "gave_up", _said("I was unable to fix the failing build."), GOOD | {"signs": "gave_up"}
        ),
        Scenario(
            "taken_back", (_ran("I take it back.", TAKE_BACK), DONE), GOOD | {"signs": "taken_back"}
        ),
        Scenario(
            "retried",
            (
                Answer(status=429, error="rate_limit"),
                Answer(status=529, error="overloaded"),
                *_said("After two retries."),
            ),
            GOOD | {"claude.n_retries": 2},
        ),
        Scenario(
            "refusal",
            (Answer("I cannot", stop="refusal", usage=FIRST),),
            FAILED | {"cause": "content_filtered"},
        ),
        # What it means differs: two clients fail the turn, one keeps what there is of it.
        Scenario(
            "output_limit",
            (Answer("This is a long ans", stop="output_limit", usage=FIRST),),
            {"cause": "truncated_length"},
        ),
        Scenario(
            "cut_once",
            (
                Answer("This stream will be cut in the mid", is_cut=True, usage=FIRST),
                Answer("The second time it is whole.", usage=SECOND),
            ),
            GOOD,
        ),
        Scenario(
            "overflow",
            (Answer(status=400, error="overflow"),),
            # opencode compacts and goes on.
            FAILED
            | {"cause": "context_overflow"}
            | {"opencode.lifecycle": "completed", "opencode.outcome": "completed"}
            | {"opencode.cause": None, "opencode.n_turns": 1},
        ),
        Scenario(
            "unauthorized", (Answer(status=401, error="auth"),), FAILED | {"cause": "provider_auth"}
        ),
        Scenario("killed", (START, STALLS), DIED, signal="KILL"),
        Scenario("killed_in_tool", (HANGS, DONE), DIED, signal="KILL"),
        # What the process that was killed spent is in no recorded cost.
        Scenario(
            "killed_then_resumed",
            (START, STALLS, Answer("After it.", usage=THIRD)),
            GOOD | {"cost_usd": 0.00776025},
            signal="KILL",
            follow_up=("resume",),
            clients=CLAUDE,
        ),
        Scenario(
            "interrupted",
            (START, STALLS),
            {"claude.outcome": "cancelled", "codex.outcome": "cancelled"},
            signal="INT",
        ),
        Scenario("terminated", (HANGS,), {"outcome": "aborted"}, signal="TERM", clients=CLAUDE),
        Scenario(
            "resume",
            _said("First turn.", "Second turn.", "Turn of the fork."),
            GOOD,
            follow_up=("resume", "fork"),
        ),
        Scenario(
            "subagent",
            (Answer("I ask an agent.", (("agent", LOOK),), usage=FIRST), DONE),
            GOOD,
            clients=("claude", "opencode"),
        ),
        # Codex waits for an agent only in a call of its own, and ends one that nobody waits for.
        Scenario(
            "subagent_waited_for",
            (
                Answer("I ask an agent.", (("agent", LOOK),), usage=FIRST),
                Answer("I wait.", (("wait", ""),), usage=SECOND),
                DONE,
            ),
            GOOD,
            clients=("codex",),
        ),
        Scenario(
            "child",
            (
                _ran("Looking.", "echo child", "exit 5", usage=THIRD),
                Answer("The child's answer.", usage=FOURTH),
            ),
            GOOD | {"n_tool_errors": 1},
            clients=(),
        ),
        Scenario(
            "compaction",
            _said("First.", "A summary of it.", "After it."),
            GOOD,
            follow_up=("compact", "resume"),
            clients=("claude",),
        ),
        # These two compact by themselves, once an answer took more than their limit.
        Scenario(
            "compaction_by_size",
            (
                Answer("Big.", usage=Usage(250000, 0, 0, 50, 0)),
                Answer("A summary of it.", usage=SECOND),
                Answer("After it.", usage=THIRD),
            ),
            # With what compaction itself asked for, 7 and 3 tokens a request: Codex asks once,
            # opencode goes on by itself after it.
            GOOD
            | {"codex.n_input_tokens": 251506 + 7, "codex.n_output_tokens": 102 + 3}
            | {"opencode.n_input_tokens": 251506 + 14, "opencode.n_output_tokens": 102 + 6}
            | {"opencode.n_turns": 2},
            follow_up=("resume",),
            clients=("codex", "opencode"),
        ),
        Scenario("one_of_two", (_ran("One.", "sleep 1"), DONE), GOOD, beside="other_of_two"),
        Scenario("other_of_two", (_ran("Two.", "sleep 1", usage=SECOND), DONE), GOOD, clients=()),
    )
}


def _driven(agent: str) -> Iterator[Scenario]:
    """The same for an orchestrator, which starts an agent, and what only it can do."""
    expected: dict[str, dict[str, str | int | None]] = {
        **dict.fromkeys(("success", "failing_tool", "parallel_tools", "retried"), GOOD),
        "refusal": FAILED,
        "output_limit": {},
        "cut_once": GOOD,
        **dict.fromkeys(("overflow", "unauthorized"), FAILED),
        **{name: {} for name in ("killed", "killed_in_tool", "interrupted")},
        "resume": GOOD,
        # Codex ends an agent that nobody waits for, and may do so before its tokens are written.
        "subagent_waited_for" if agent == "codex" else "subagent": GOOD,
    }
    common: Any = {"clients": ("lionagi",), "agent": agent}
    for name, facts in expected.items():
        same = SCENARIOS[name]
        again = same.follow_up[:1]
        changed = {"name": f"{agent}_{name}", "expected": facts, "follow_up": again}
        yield replace(same, **changed, **common)
    waiting, one, other = (
        SCENARIOS[name].answers for name in ("killed", "one_of_two", "other_of_two")
    )
    timed_out = {"lifecycle": "timed_out"}
    yield Scenario(f"{agent}_timed_out", waiting, timed_out, time_limit_s=9, **common)
    # Both of a pair work in one directory.
    for name, beside in (("one_of_two", "other_of_two"), ("not_alone", "by_hand")):
        where = f"{agent}_{name}"
        first, second = where, f"{agent}_{beside}"
        yield Scenario(first, one, GOOD, beside=second, directory=where, **common)
        yield Scenario(
            second, other, GOOD, clients=(), agent=agent, directory=where,
            is_by_hand=beside == "by_hand",
        )  # fmt: skip


SCENARIOS |= {each.name: each for agent in ("claude", "codex") for each in _driven(agent)}
