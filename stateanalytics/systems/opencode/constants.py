"""After how long an open execution of opencode counts as stalled or dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stateanalytics.systems.base import Constant

if TYPE_CHECKING:
    from stateanalytics.state.policy import Policy


def constants(policy: Policy) -> list[Constant]:
    """The limits of our mapping: opencode has no such constants of its own."""
    ours = "stateanalytics policy"
    return [
        Constant(
            "opencode.stalled", "opencode", ours, ("limits", "opencode", "stalled_after_s"),
            policy.limit("opencode", "stalled_after_s"), "no event for so long: stalled",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
        Constant(
            "opencode.dead", "opencode", ours, ("limits", "opencode", "dead_after_s"),
            policy.limit("opencode", "dead_after_s"),
            "no event for so long and no claim: process_dead",
            "silences", at_least=True, policy_field="limits", is_configurable=True,
        ),
    ]  # fmt: skip
