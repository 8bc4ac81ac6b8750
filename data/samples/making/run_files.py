"""The run directories that lionagi leaves beside the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from making.world import World

if TYPE_CHECKING:
    from making.lives import Life


def run_files(world: World, life: Life, run_id: str, branches: list[str]) -> None:
    """Put run.json, and a flow's checkpoint.json, into the world; killed runs look running."""
    end = life.end
    is_told = end is not None and end.write is None
    world.file(
        f"runs/{run_id}/run.json",
        {
            "run_id": run_id,
            "state_root": f"/home/op/.lionagi/runs/{run_id}",
            "artifact_root": f"/home/op/.lionagi/runs/{run_id}/artifacts",
            "branch_id": branches[0],
            "agent_name": life.agent,
            "provider": life.provider,
            "model": life.model,
            "invocation_kind": life.kind,
            "status": end.status if end and is_told else "running",
            "started_at": round(life.started - 0.35, 3),
            "ended_at": round(end.at + 0.02, 3) if end and is_told else None,
            "signal_persist_dropped": 0,
            "cwd": f"/home/op/{life.project}",
        },
    )
    if life.kind != "flow":
        return
    world.file(
        f"runs/{run_id}/checkpoint.json",
        {
            "version": 2,
            "session_id": life.session_id,
            "prompt": life.first_words,
            "plan": [
                {
                    "task": f"{name} the change",
                    "assignee": name,
                    "agent_id": name,
                    "depends_on": [f"{life.operations[place - 1]} the change"] if place else [],
                    "dep_indices": [place - 1] if place else [],
                }
                for place, name in enumerate(life.operations)
            ],
            "ops": {
                name: {"agent_id": name, "status": "completed" if is_told else "running"}
                for name in life.operations
            },
            "spawned": [],
            "config": {
                "model_spec": life.model,
                "timeout": life.timeout_s,
                "playbook_name": life.playbook,
                "project": life.project,
                "invocation_id": life.invocation_id,
            },
            "max_spawn": 20,
        },
    )
