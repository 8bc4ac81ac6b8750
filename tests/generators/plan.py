"""What a scaled store is to hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What a scaled store holds: how much, from when to when (epoch seconds), by which seed."""

    n_sessions: int
    seed: int
    as_of: float
    span_s: float
    n_messages: int

    @property
    def first_at(self) -> float:
        """The first instant of the store."""
        return self.as_of - self.span_s
