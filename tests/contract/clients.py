"""The programs: where they come from, what home they get, and how each is started.

Each runs with nothing of the surrounding environment but a path, in a home of its own, with a key
that is none, and with every switch that keeps it from asking anybody but the mock provider.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contract.scenarios import SCENARIOS, Scenario

PACKAGES = {
    "claude": ("@anthropic-ai/claude-code", "2.1.332"),
    "codex": ("@openai/codex", "0.171.0"),
    "opencode": ("opencode-ai", "1.18.33"),
    "lionagi": ("lionagi", "0.36.0"),
}
"""The package of each client in its registry, and the version that is pinned."""
BINARIES = {
    "claude": "@anthropic-ai/claude-code-linux-*/claude",
    "codex": "@openai/codex-linux-*/vendor/*/bin/codex",
    "opencode": "opencode-linux-*/bin/opencode",
}
"""The programs stand in packages of the platform: what npm links to is only their starter."""
MODEL = {"claude": "claude-opus-4-5", "codex": "mock-1", "opencode": "mock/mock-1"}
PLACES = {
    "claude": (".claude",),
    "codex": (".codex",),
    "opencode": (".local/share/opencode",),
    "lionagi": (".lionagi/state.db", ".claude", ".codex"),
}
"""What each writes in its home, and for an orchestrator what the clients write that it starts."""
TIME_LIMIT_S = 120


def install(client: str, version: str, into: Path) -> Path:
    """The program of a client from its registry; what is there already is taken."""
    package, pinned = PACKAGES[client]
    wanted = pinned if version == "pinned" else version
    place = into / client
    if client == "lionagi":
        if not (place / "bin" / "li").exists():
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            which = package if wanted == "newest" else f"{package}=={wanted}"
            subprocess.run([place / "bin" / "pip", "install", "--quiet", which], check=True)
        return place / "bin" / "li"
    if not list(place.glob(f"node_modules/{BINARIES[client]}")):
        place.mkdir(parents=True, exist_ok=True)
        if wanted == "newest":
            # A plain install takes the newest for the Node at hand, which may be years old.
            asked = subprocess.run(
                ["npm", "view", package, "version"], check=True, capture_output=True, text=True
            )
            wanted = asked.stdout.strip()
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", place]
        subprocess.run([*command, f"{package}@{wanted}"], check=True)
    # Of builds for old processors, too, the first is the usual one.
    return sorted(place.glob(f"node_modules/{BINARIES[client]}"))[0]


def command(
    client: str, scenario: Scenario, how: str, session_id: str | None
) -> tuple[list[str], str | None]:
    """How a session is begun, resumed, forked or compacted, and its id where we choose it."""
    prompt = f"[[{scenario.name}]] please do it ({how})"
    again = [session_id] if session_id else []
    if client == "claude":
        chosen = session_id if how in ("resume", "compact") else str(uuid.uuid4())
        ways = {
            "begin": ["--session-id", chosen or ""],
            "resume": ["--resume", *again],
            "compact": ["--resume", *again],
            "fork": ["--resume", *again, "--fork-session", "--session-id", chosen or ""],
        }
        said = "/compact" if how == "compact" else prompt
        words = ["-p", said, "--output-format", "json", "--model", MODEL["claude"]]
        return [*words, *ways[how], "--allowedTools", "Bash", "Read"], chosen
    if client == "codex":
        words = ["exec", "--json", "--skip-git-repo-check"]
        if "compaction" in prompt:
            words += ["-c", "model_auto_compact_token_limit=200000"]
        ways = {"begin": [], "resume": ["resume", *again], "fork": ["fork", *again]}
        return [*words, *ways[how], prompt], session_id if how == "resume" else None
    if client == "opencode":
        ways = {
            "begin": [],
            "resume": ["--session", *again],
            "fork": ["--session", *again, "--fork"],
        }
        return ["run", "--format", "json", *ways[how], prompt], None
    limit = [] if scenario.time_limit_s is None else ["--timeout", str(scenario.time_limit_s)]
    whom = ["-c"] if how == "resume" else [scenario.agent]
    return ["agent", *whom, prompt, "--bypass", *limit], None


@dataclass
class Run:
    """One start of a program, and what is known of it."""

    session_id: str | None
    exit_code: int
    output: str


class Client:
    """One program in one home, against one provider."""

    def __init__(self, name: str, program: Path, base: Path, url: str) -> None:
        self.name, self.program, self.base = name, program, base
        self.home = base / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "MOCK_KEY": "none",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "4",
            "IS_SANDBOX": "1",
            "CODEX_HOME": str(self.home / ".codex"),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        _configure_codex(self.home / ".codex", url)
        if name == "opencode":
            _configure_opencode(self.home / ".config" / "opencode", url)
        if name == "lionagi":
            self.environment["PATH"] = f"{base / 'bin'}:{program.parent}:/usr/bin:/bin"

    @property
    def store(self) -> Path:
        """Where it writes: the client's own directory in its home, or all of it."""
        return self.home / PLACES[self.name][0] if self.name != "lionagi" else self.home

    @property
    def stores(self) -> list[Path]:
        """What is read: of what it starts, only those that some scenario started."""
        own, *others = (self.home / place for place in PLACES[self.name])
        return [own, *(place for place in others if place.exists())]

    def start(
        self, name: str, how: str = "begin", session_id: str | None = None
    ) -> tuple[subprocess.Popen[bytes], Path, str | None]:
        """Start one run in the working directory of a scenario."""
        scenario = SCENARIOS[name]
        directory = self.base / "jobs" / (scenario.directory or name)
        directory.mkdir(parents=True, exist_ok=True)
        outputs = self.base / "outputs"
        outputs.mkdir(exist_ok=True)
        output = outputs / f"{name}.{how}.{time.monotonic_ns()}.txt"
        client, program = self.name, self.program
        if scenario.is_by_hand:
            client, program = scenario.agent, self.base / "bin" / scenario.agent
        words, chosen = command(client, scenario, how, session_id)
        with output.open("wb") as out:
            process = subprocess.Popen(
                [str(program), *words],
                cwd=directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process, output, chosen

    def finish(self, started: tuple[subprocess.Popen[bytes], Path, str | None]) -> Run:
        """Wait for a run that ends by itself; one that does not is killed, and its code says so."""
        process, output, chosen = started
        try:
            code = process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        said = output.read_text("utf-8", "replace")
        return Run(chosen or self.session_of(said), code, said)

    def stop(
        self,
        started: tuple[subprocess.Popen[bytes], Path, str | None],
        name: str,
        is_waiting: Callable[[], bool],
    ) -> Run:
        """Send a signal once the provider was asked for what never comes."""
        process = started[0]
        until = time.monotonic() + 60
        while not is_waiting() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        time.sleep(3)  # so that what it was doing is written
        if name == "KILL":
            for each in list(_with_children(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        else:
            process.send_signal(getattr(signal, f"SIG{name}"))
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        return self.finish(started)

    def session_of(self, output: str) -> str | None:
        """The id that the program says its session has."""
        names = {
            "codex": r'"thread_id":\s*"([^"]+)"',
            "opencode": r'"sessionID":\s*"([^"]+)"',
            "lionagi": r"li agent status ([0-9a-f-]{36})",
        }
        if self.name in names and (found := re.search(names[self.name], output)):
            return found[1]
        if self.name != "lionagi":
            return None
        return _newest_session(self.home / ".lionagi" / "state.db")


def _with_children(process: int) -> Iterator[int]:
    """A process and all that it started: an agent of an orchestrator has a group of its own."""
    yield process
    for listed in Path(f"/proc/{process}/task").glob("*/children"):
        for child in listed.read_text("utf-8").split():
            yield from _with_children(int(child))


def _newest_session(database: Path) -> str | None:
    if not database.exists():
        return None
    with closing(sqlite3.connect(database)) as connection, connection:
        row = connection.execute("SELECT id FROM sessions ORDER BY created_at DESC LIMIT 1")
        return next((session_id for (session_id,) in row), None)


def _configure_codex(place: Path, url: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(
        f"""model = "{MODEL["codex"]}"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "MOCK_KEY"
wire_api = "responses"
request_max_retries = 3
stream_max_retries = 2
[features]
multi_agent = true
""",
        "utf-8",
    )


def _configure_opencode(place: Path, url: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    model = {
        "name": "mock-1",
        "limit": {"context": 200000, "output": 8000},
        "tool_call": True,
        "cost": {"input": 1, "output": 5, "cache_read": 0.1},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"mock-1": model},
    }
    settings = {
        "model": MODEL["opencode"],
        "small_model": MODEL["opencode"],
        "autoupdate": False,
        "share": "disabled",
        "provider": {"mock": provider},
        "permission": {"edit": "allow", "bash": "allow", "webfetch": "ask"},
    }
    (place / "opencode.json").write_text(json.dumps(settings), "utf-8")


def translate(client: str) -> Callable[[str, str, dict[str, Any]], tuple[str, dict[str, Any]]]:
    """How a client calls its tools."""

    def of_claude(kind: str, words: str, _: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if kind == "shell":
            return "Bash", {"command": words, "description": "run"}
        if kind == "read":
            return "Read", {"file_path": words}
        asked = {"description": "look", "prompt": words, "subagent_type": "general-purpose"}
        return "Agent", asked

    def of_codex(kind: str, words: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if kind == "agent":
            return "multi_agent_v1.spawn_agent", {"message": words}
        if kind == "wait":
            known = re.findall(r'agent_id\\*":\s*\\*"([0-9a-f-]{36})', json.dumps(body))
            return "multi_agent_v1.wait_agent", {"targets": known[:1], "timeout_ms": 20000}
        command = f"cat {words}" if kind == "read" else words
        return "exec_command", {"cmd": command, "yield_time_ms": 30000}

    def of_opencode(kind: str, words: str, _: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if kind == "shell":
            return "bash", {"command": words, "description": "run"}
        if kind == "read":
            return "read", {"filePath": words}
        return "task", {"description": "look", "prompt": words, "subagent_type": "general"}

    def of_either(kind: str, words: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return (of_codex if "input" in body else of_claude)(kind, words, body)

    known = {"codex": of_codex, "opencode": of_opencode, "lionagi": of_either}
    return known.get(client, of_claude)


def link_programs(into: Path, programs: dict[str, Path]) -> None:
    """Programs that another one starts, under the names that it looks for."""
    into.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        if shutil.which(name, path=str(into)) is None:
            (into / name).symlink_to(program)
