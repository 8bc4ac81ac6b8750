"""The life of one session: how it starts, talks and ends, through lionagi's own calls."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from making.clock import moment
from making.meant import branch_status, mean
from making.run_files import run_files
from making.talk import talk
from making.world import Call, World

MODELS = {
    "claude_code/sonnet": "claude_code",
    "claude_code/opus": "claude_code",
    "codex/gpt-5.1-codex": "codex",
    "gemini/gemini-3-pro": "gemini_code",
}
_SUMMARIES = {
    "completed": ("run.completed.ok", "Run completed successfully."),
    "completed_empty": (
        "run.completed_empty.no_evidence",
        "No commits ahead of main, no artifacts produced, and no assistant response recorded;"
        " working tree clean.",
    ),
    "timed_out": ("run.timed_out.deadline", "Run exceeded the configured timeout."),
    "aborted": ("run.cancelled.sigint", "User pressed Ctrl-C (SIGINT)."),
    "cancelled": ("run.cancelled.system", "Task cancelled by the runtime (anyio CancelledError)."),
}
_SIGNALS_SINCE = moment("2026-05-18 00:00")
_EXCEPTIONS = {"timed_out": "TimeoutError", "aborted": "KeyboardInterrupt"}
_GOOD = ("completed", "completed_empty")


@dataclass
class End:
    """How a session ended: as its own teardown wrote it, or as an observer did.

    ``true_at`` is when the work really stopped, if another moment than was written.
    """

    status: str
    at: float
    code: str = ""
    summary: str = ""
    cause: str = ""
    template_id: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    by: str = "executor"
    write: Call | None = None
    true_at: float | None = None

    def __post_init__(self) -> None:
        """Fill in what lionagi itself would say."""
        code, summary = _SUMMARIES.get(self.status, ("run.failed.exception", "Run failed."))
        self.code, self.summary = self.code or code, self.summary or summary
        if not self.metadata and self.status in _EXCEPTIONS:
            self.metadata = {"exception_class": _EXCEPTIONS[self.status]}


@dataclass
class Life:
    """One session as it was meant."""

    scenario: str
    kind: str | None
    started: float
    end: End | None
    talk: list[float]
    agent: str | None = "implementer"
    model: str = "claude_code/sonnet"
    project: str = "checkout"
    playbook: str | None = None
    name: str | None = None
    timeout_s: float | None = None
    expected: list[dict[str, Any]] | None = None
    produced: tuple[str, ...] = ()
    has_verdict: bool = True
    invocation_id: str | None = None
    show: tuple[str, str] | None = None
    operations: tuple[str, ...] = ()
    health: str = ""
    delivery: str = ""
    has_artifacts: bool = True
    has_run_files: bool = False
    cost_usd: float | None = None
    n_turns: int | None = None
    first_words: str = "Check the repository and report."
    session_id: str = ""

    @property
    def provider(self) -> str:
        """Who runs the model."""
        return MODELS[self.model]


def live(world: World, life: Life) -> str:
    """Plan the calls of one session, write down its truth, and give its id."""
    life.session_id = world.uuid()
    run_id = f"{_stamp(life.started)}-{world.hex(6)}"
    lists = [world.uuid() for _ in range(1 + max(1, len(life.operations)))]
    branches = [world.uuid() for _ in lists[1:]]
    _start(world, life, run_id, lists, branches)
    n_errors = talk(world, life, lists, branches)
    if life.end:
        _end(world, life, branches)
    if life.has_run_files:
        run_files(world, life, run_id, branches)
    mean(world, life, branches, n_errors)
    return life.session_id


def _start(world: World, life: Life, run_id: str, lists: list[str], branches: list[str]) -> None:
    names = life.operations or (None,)
    pid = 1000 + int(world.chance.random() * 30000)
    metadata: dict[str, Any] = {
        "lion_class": "lionagi.session.session.Session",
        "pid": pid,
        "pid_create_time": round(life.started - 2.4, 2),
        "pid_host": "build-7",
        "process_identity_mode": "local",
    }
    if life.operations:
        metadata |= {
            "run_id": run_id,
            "operations": [
                {"id": name, "agent_id": name, "depends_on": list(life.operations[:place])[-1:]}
                for place, name in enumerate(life.operations)
            ],
        }
    session = {
        "id": life.session_id,
        "run_id": run_id,
        "created_at": round(life.started - 0.3, 3),
        "updated_at": life.started,
        "started_at": life.started,
        "node_metadata": metadata,
        "name": life.name or life.kind or "agent",
        "progression_id": lists[0],
        "status": "running",
        "invocation_kind": life.kind,
        "agent_name": life.agent,
        "playbook_name": life.playbook,
        "model": life.model,
        "provider": life.provider,
        "project": life.project,
        "project_source": "explicit",
        "invocation_id": life.invocation_id,
        "show_topic": life.show[0] if life.show else None,
        "show_play_name": life.show[1] if life.show else None,
        "artifacts_path": f"/home/op/.lionagi/runs/{run_id}/artifacts"
        if life.has_artifacts
        else None,
        "artifact_contract_json": {"expected": life.expected} if life.expected else None,
    }

    # Mirrors have no executor that could tell, and older signals were pruned.
    has_signals = life.agent != "claude-code" and life.started >= _SIGNALS_SINCE

    async def begin(store: Any) -> None:
        for name in lists:
            await store.create_progression(name)
        await store.create_session(session)
        for branch, list_id, name in zip(branches, lists[1:], names, strict=True):
            await store.create_branch(
                {
                    "id": branch,
                    "created_at": round(life.started - 0.3, 3),
                    "node_metadata": {"lion_class": "lionagi.session.branch.Branch"},
                    "user": life.session_id,
                    "name": name,
                    "session_id": life.session_id,
                    "progression_id": list_id,
                    "model": life.model,
                    "provider": life.provider,
                    "agent_name": name or life.agent,
                }
            )
        if has_signals:
            await _signal(store, life, "RunStart", life.started, {})

    world.at(life.started + 0.003, begin)
    for place, name in enumerate(life.operations):
        world.at(life.started + 5 + place, _node("NodeStarted", life, name, branches[place], 0.0))


def _end(world: World, life: Life, branches: list[str]) -> None:
    end = life.end
    if end is None:
        return
    if end.write:
        world.at(end.at, end.write)
        return

    async def teardown(store: Any) -> None:
        usage = _usage(life)
        if life.started >= _SIGNALS_SINCE:
            kind = "RunEnd" if end.status in _GOOD else "RunFailed"
            await _signal(store, life, kind, end.at - 0.02, {**usage, "data": ""})
        await store.update_session(life.session_id, **usage)
        await store.update_artifact_verification(life.session_id, _verdict(life))
        for branch in branches:
            await store.finalize_branch(branch, status=branch_status(end), ended_at=end.at)
        await store.update_status(
            "session",
            life.session_id,
            new_status=end.status,
            reason_code=end.code,
            reason_summary=end.summary,
            evidence_refs=end.evidence,
            source="executor",
            actor=life.session_id,
            metadata=end.metadata,
            expected_statuses={"running"},
            extra_fields={
                "ended_at": end.at,
                "duration_ms": round((end.at - life.started) * 1000, 3),
                "current_phase": None,
            },
        )

    for place, name in enumerate(life.operations):
        if end.status in _GOOD:
            spent = round(end.at - life.started - 6 - place, 3)
            world.at(end.at - 1, _node("NodeCompleted", life, name, branches[place], spent))
    world.at(end.at + 0.008, teardown)


def _usage(life: Life) -> dict[str, Any]:
    turns = life.n_turns or 0
    return {
        "input_tokens": turns * 3900,
        "output_tokens": turns * 540,
        "total_cost_usd": life.cost_usd if turns else None,
        "num_turns": turns,
    }


def _verdict(life: Life) -> dict[str, Any] | None:
    """What lionagi's own verifier says of a directory with the files that were produced."""
    from lionagi.state.artifact_verifier import verify_artifact_contract

    if not life.expected or not life.has_verdict:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for entry in life.expected:
            if entry["id"] in life.produced:
                file = Path(folder) / entry["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("# what was found\n" * 40, encoding="utf-8")
        found = verify_artifact_contract({"expected": life.expected}, artifacts_root=folder)
    return dict(found) if found else None


async def _signal(store: Any, life: Life, kind: str, when: float, more: dict[str, Any]) -> None:
    payload = {"created_at": round(when, 3), "metadata": {}, "schema_version": 1, **more}
    await store.insert_session_signal(
        session_id=life.session_id, kind=kind, ts=round(when, 3), payload=payload
    )


def _node(kind: str, life: Life, name: str, branch: str, spent: float) -> Call:
    async def tell(store: Any) -> None:
        import time

        now = time.time()
        await store.insert_session_signal(
            session_id=life.session_id,
            kind=kind,
            op_id=branch,
            ts=now,
            payload={
                "created_at": now,
                "metadata": {},
                "schema_version": 1,
                "op_id": branch,
                "name": name,
                "elapsed": spent,
                "depends_on": [],
            },
        )

    return tell


def _stamp(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).strftime("%Y%m%dT%H%M%S")
