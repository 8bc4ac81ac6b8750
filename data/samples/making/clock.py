"""A clock and random ids that are given, so that a second run makes the same store."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass
class Clock:
    """What `time.time` answers while the store is made."""

    now: float


def moment(text: str) -> float:
    """Epoch seconds of a UTC moment such as ``2026-05-20 14:07``."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@contextmanager
def given(now: float, seed: int) -> Iterator[Clock]:
    """Replace the clock and the source of random bytes; put both back afterwards.

    lionagi takes times from ``time.time`` and ids from ``uuid.uuid4``, which reads
    ``os.urandom``; only elements of its protocol take ``now_utc``.
    """
    from lionagi.protocols.generic import element

    clock = Clock(now)
    bytes_of = random.Random(seed).randbytes
    kept = time.time, os.urandom, element.now_utc
    time.time = lambda: clock.now
    os.urandom = bytes_of
    element.now_utc = lambda: datetime.fromtimestamp(clock.now, UTC)
    try:
        yield clock
    finally:
        time.time, os.urandom, element.now_utc = kept
