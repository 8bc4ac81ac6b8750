"""Kinds of evidence: those that ADR-0033 closes, and those that stores really hold."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ADR_EVIDENCE_KINDS = (
    "message",
    "user_statement",
    "tool_result",
    "artifact",
    "url",
    "file",
    "model_inference",
    "human_assertion",
)
"""Kinds that ADR-0033's EvidenceRef allows."""

STORED_EVIDENCE_KINDS: Mapping[str, str | None] = MappingProxyType(
    {
        "expected_artifact": "artifact",
        "file": "file",
        "artifact_write_error": "artifact",
        "finalize_error": "tool_result",
        "git_evidence": "tool_result",
        "failed_operation": "tool_result",
        "lost_operation": "tool_result",
        "escalated_operation": "model_inference",
        "gate_rejected_operation": "model_inference",
        "refused_spawn": "tool_result",
        "unroutable_spawn": "tool_result",
        "kill_event": "human_assertion",
        "manual_kill": "human_assertion",
        "stale_kill": "tool_result",
        "child_stale_kill": "tool_result",
        "phantom_classification": "tool_result",
        "session_health": "tool_result",
        "session_status": "tool_result",
        "branch_status": "tool_result",
        "session": None,
        "invocation": None,
        "play": None,
        "show": None,
        "schedule": None,
        "schedule_run": None,
        "rule": "model_inference",
    }
)
"""Kinds that stores hold (and ``rule``, ours), and ADR-0033's nearest; None: a mere pointer."""


def adr_evidence_kind(kind: str) -> str:
    """ADR-0033's kind for a stored one, for those who need the closed list.

    Nothing here applies it by itself: a kind without a counterpart, and an unknown
    one, stay what they are.

    Examples
    --------
    >>> adr_evidence_kind("expected_artifact"), adr_evidence_kind("session")
    ('artifact', 'session')
    """
    return STORED_EVIDENCE_KINDS.get(kind) or kind
