"""Ages at which Agent Orchestrator changes its mind, as it ships them."""

from __future__ import annotations

STUCK_THRESHOLD_S = 600.0
"""``reactions.agent-stuck.threshold`` by default: idle for longer means stuck."""
FRESH_S = 300.0
"""Up to this age a sign of activity counts, past it it is stale."""
READY_THRESHOLD_S = 300.0
"""Up to this age an entry of an agent's log means ready (``readyThresholdMs``), past it idle."""
STICKY_S = 300.0
"""How long a waiting or blocked entry counted before it became sticky (17 May 2026)."""
