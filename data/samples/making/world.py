"""The week as a list of calls on lionagi's store, made in the order of time."""

from __future__ import annotations

import json
import math
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from making.clock import Clock, moment
from making.truth import Truth

AS_OF = moment("2026-05-25 06:00")
SEED = 20260525
Call = Callable[[Any], Awaitable[object]]


class World:
    """Everything that will happen, the truth about it, and the files beside the store."""

    def __init__(self, seed: int = SEED) -> None:
        self.chance = random.Random(seed)
        self.truth: list[Truth] = []
        self.files: dict[str, str] = {}
        self.repairs: list[tuple[str, tuple[object, ...]]] = []
        self.n_failures = 0
        self._steps: list[tuple[float, int, Call]] = []

    def at(self, when: float, call: Call) -> None:
        """Do this call on the store when the clock says ``when``."""
        self._steps.append((round(when, 3), len(self._steps), call))

    def by_sql(self, sql: str, *values: object) -> None:
        """Do this afterwards by SQL: history that lionagi's API cannot write any more."""
        self.repairs.append((sql, values))

    def is_true(self, row: Truth) -> None:
        """Remember what was meant."""
        self.truth.append(row)

    def truth_of(self, entity_id: str) -> Truth:
        """What was meant by one entity, to be corrected where its row was changed."""
        return next(row for row in self.truth if row.entity_id == entity_id)

    def file(self, path: str, content: object) -> None:
        """Put a file beside the store; anything but text as JSON."""
        self.files[path] = content if isinstance(content, str) else json.dumps(content, indent=2)

    async def happen(
        self, store: Any, clock: Clock, since: float = -math.inf, until: float = math.inf
    ) -> None:
        """Make every call of some time, each when it is due."""
        for when, _, call in sorted(self._steps, key=lambda step: step[:2]):
            if since <= when < until:
                clock.now = when
                await call(store)

    def uuid(self) -> str:
        """A session's, branch's, show's or message's id."""
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def hex(self, n_digits: int) -> str:
        """Any other id."""
        return f"{self.chance.getrandbits(4 * n_digits):0{n_digits}x}"

    def log_normal(self, median: float, sigma: float) -> float:
        """A log-normal number (Box and Muller, so that every Python gives the same)."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.chance.random()))
        normal = radius * math.cos(2.0 * math.pi * self.chance.random())
        return round(median * math.exp(sigma * normal), 3)

    def pick(self, shares: dict[Any, float]) -> Any:
        """One of the keys, as likely as its share."""
        drawn = self.chance.random() * sum(shares.values())
        for value, share in shares.items():
            drawn -= share
            if drawn < 0:
                return value
        return next(reversed(shares))

    def one_of(self, values: tuple[Any, ...]) -> Any:
        """One of the values, each as likely."""
        return values[int(self.chance.random() * len(values))]
