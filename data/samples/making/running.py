"""What runs at as-of: well, idle, silent for too long, and never begun."""

from __future__ import annotations

from making.lives import Life, live
from making.talk import chatter
from making.week import CONTRACT, OPERATIONS
from making.world import AS_OF, World

HOUR = 3_600.0


def still_running(world: World) -> None:
    """What runs at as-of: well, idle, silent for too long, and never begun."""
    cases: tuple[tuple[str, str | None, float, float, str], ...] = (
        ("running_fresh", "agent", 0.2, 60, "running"),
        ("running_fresh", "agent", 0.4, 240, "running"),
        ("running_fresh", "play", 0.9, 400, "running"),
        ("running_fresh", "flow", 1.1, 90, "running"),
        ("running_fresh", None, 0.3, 120, "running"),
        ("running_long_and_alive", "flow", 9.0, 120, "running"),
        ("running_idle", "agent", 3.0, 2 * HOUR, "idle"),
        ("running_idle", "flow", 13.0, 11 * HOUR, "idle"),
        ("running_silent", "agent", 8.0, 7 * HOUR, "stalled"),
        ("running_silent", "play", 10.0, 8 * HOUR, "stalled"),
        ("running_silent", "flow", 15.0, 13 * HOUR, "stalled"),
        ("running_silent", None, 9.0, 7.5 * HOUR, "stalled"),
    )
    for scenario, kind, hours, silence, health in cases:
        started = AS_OF - hours * HOUR
        operations = OPERATIONS[1] if kind == "flow" else ()
        last = AS_OF - silence
        talk = chatter(world, started, last, n_first=max(1, len(operations)), has_long=False)
        live(
            world,
            Life(
                scenario, kind, started, None, [*talk, last],
                agent="architect", project="checkout", operations=operations, health=health,
                has_run_files=kind == "flow",
                timeout_s=43_200.0 if kind == "flow" else None,
            ),
        )  # fmt: skip
    # Nobody looked for their processes: nothing is known until the silence says it.
    for hours, health in ((2.0, "unknown"), (20.0, "stalled")):
        live(
            world,
            Life(
                "running_unseen", "agent", AS_OF - hours * HOUR, None, [],
                agent="tester", project="infra", has_artifacts=False, health=health,
            ),
        )  # fmt: skip
    live(
        world,
        Life(
            "running_with_contract", "agent", AS_OF - 900, None,
            [AS_OF - 899, AS_OF - 200], expected=CONTRACT, health="running",
        ),
    )  # fmt: skip
