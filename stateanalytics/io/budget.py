"""The budget of one read, and what the read has spent of it so far.

A file of some kilobytes may become gigabytes when it is read: compressed data, text in UTF-16,
holes. So the bytes read of a file are limited by the room that it takes on disk, and all files
of a read together have limits of their own.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path

from stateanalytics.errors import ArgumentError, in_short

LEAST_BYTES = 2**20
LEAST_ROWS = 50_000
"""Bytes and rows of a file that are always read, however small its room on disk."""
SUSPICIOUS_RATIO = 50
"""A file that grows more is parsed by a process of its own; sound files seldom do."""
MAX_LINE_BYTES = 16 * 2**20
"""Longer lines are skipped and counted: parsing JSON takes fifty times its size in memory."""
MAX_OWN_COLUMNS = 2000
"""Most columns of a table of the user's own."""
OVER_BUDGET = "read.over_budget"
"""The code of the finding about data skipped because the budget was spent."""
_OFF = "off"
_WORDS = {
    "grown_bytes": "bytes that packed or converted files became",
    "n_rows": "rows",
    "processor_s": "seconds of processor time",
    "memory_bytes": "bytes of memory",
}


def _most_memory() -> int | None:
    """Three quarters of the machine's memory; None where that is not known."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
    except (AttributeError, OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of one read; data beyond them is skipped, and counted in ``findings``.

    The defaults are far beyond the needs of a sound store of gigabytes. None means no limit.

    Attributes
    ----------
    growth_ratio : float, optional
        Bytes of a file when it is read, per byte on disk; 1 MiB is always allowed. It limits
        compressed and sparse files. The number of records is limited to one per byte on disk, with
        50,000 always allowed.
    file_bytes : int, optional
        Bytes of one file.
    document_bytes : int, optional
        Bytes of one file that must be read as a whole: an export, a log, a table of your own.
    grown_bytes : int, optional
        Total bytes of all compressed and converted files when they are read.
    n_rows : int, optional
        Rows of tables and records of files together. A table is read whole or not at all.
    processor_s : float, optional
        Seconds of processor time. Several usual places share them.
    memory_bytes : int, optional
        Growth of the memory of the process; checked on Linux only. By default three quarters
        of the machine's memory.

    Examples
    --------
    >>> Budget(processor_s=60).n_rows
    200000000
    >>> Budget.of("n_rows=1000,processor_s=60").processor_s
    60.0
    >>> Budget.of("off") == Budget.unlimited()
    True
    """

    growth_ratio: float | None = 500
    file_bytes: int | None = 64 * 2**30
    document_bytes: int | None = 512 * 2**20
    grown_bytes: int | None = 64 * 2**30
    n_rows: int | None = 200_000_000
    processor_s: float | None = 3600
    memory_bytes: int | None = field(default_factory=_most_memory)

    def __post_init__(self) -> None:
        for name, most in vars(self).items():
            is_number = isinstance(most, int | float) and not isinstance(most, bool)
            if most is not None and not (is_number and 0 < most < float("inf")):
                raise ArgumentError(
                    f"A budget's {name} must be a number above 0; found {in_short(most)}.",
                    "sa.Budget(processor_s=60); None: no limit",
                    shell="--budget processor_s=60",
                )

    @classmethod
    def unlimited(cls) -> Budget:
        """A budget without limits, for files that you trust."""
        return cls(**dict.fromkeys(limit.name for limit in fields(cls)))

    @classmethod
    def of(cls, given: Budget | str) -> Budget:
        """A budget from a text such as ``off`` or ``n_rows=1000,processor_s=60``.

        Raises
        ------
        ArgumentError
            If it is neither.
        """
        if isinstance(given, Budget):
            return given
        if given == _OFF:
            return cls.unlimited()
        limits: dict[str, float | None] = {}
        try:
            for pair in given.split(","):
                name, _, number = pair.strip().partition("=")
                limits[name] = None if number == _OFF else float(number)
            return cls(**limits)  # type: ignore[arg-type]
        except (AttributeError, TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            names = ", ".join(limit.name for limit in fields(cls))
            raise ArgumentError(
                f"A budget is 'off', or limits such as 'n_rows=1000,processor_s=60' of {names}; "
                f"found {in_short(given)}.",
                "sa.Budget(processor_s=60)",
                shell="--budget processor_s=60",
            ) from None

    def most_bytes(self, status: os.stat_result, most: float | None = None) -> float:
        """Maximum number of bytes to read of a file, given its size on disk."""
        bounds = (self.file_bytes, most, self._by_room(LEAST_BYTES, self.growth_ratio, status))
        return min(bound for bound in bounds if bound is not None)

    def most_rows(self, status: os.stat_result) -> float:
        """Maximum number of records to read of a file."""
        return self._by_room(LEAST_ROWS, 1, status)

    def _by_room(self, least: int, ratio: float | None, status: os.stat_result) -> float:
        # A file that wrongly reports a size of 0 reports no room on disk either.
        if self.growth_ratio is None or ratio is None or not status.st_size:
            return float("inf")
        return max(least, ratio * on_disk(status))


def on_disk(status: os.stat_result) -> int:
    """Bytes of a file that take room on disk, without its holes.

    File systems that do not count the blocks of a file report none.
    """
    n_bytes = 512 * getattr(status, "st_blocks", 0)
    return min(status.st_size, n_bytes) if n_bytes else status.st_size


class OverBoundError(OSError):
    """A file is larger than its bound; the part before the bound was read."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EFBIG, reason)

    def __str__(self) -> str:
        return str(self.strerror)


class BudgetSpentError(OverBoundError):
    """A limit of the whole read is reached; ``n_bytes`` of a file were skipped."""

    def __init__(self, reason: str, n_bytes: int = 0) -> None:
        super().__init__(reason)
        self.n_bytes = n_bytes


def over_growth(status: os.stat_result, most: float, what: str = "bytes") -> OverBoundError:
    """The error for a file that grows too much when it is read."""
    return OverBoundError(
        f"it takes {on_disk(status):,} bytes on disk and holds more than {most:,.0f} {what}: "
        "the rest is not read"
    )


_LOOK_S = 0.01
"""Processor time between two looks at memory: one takes as long as reading a small file."""


class Spending:
    """What a read has spent so far.

    Parameters
    ----------
    budget : Budget
        Its limits.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._grown_bytes = self._n_rows = 0
        self._began_s, self._began_bytes = time.process_time(), _memory_bytes()
        self._most_s, self._later_s = budget.processor_s, 0.0
        self._look_s, self._more_bytes = 0.0, 0

    def begin_part(self, n_left: int) -> None:
        """Give the first of the ``n_left`` inputs to read its share of the processor time.

        What an input does not need goes to those after it. They have their shares even where
        the work that follows reading took longer: it cannot be stopped.
        """
        if self._most_s is not None:
            now_s = time.process_time()
            left_s = self._later_s + max(0.0, self._most_s - (now_s - self._began_s))
            self._began_s, self._most_s = now_s, left_s / n_left
            self._later_s = left_s - self._most_s

    def draw(self, *, grown_bytes: int = 0, n_rows: int = 0, processor_s: float = 0.0) -> None:
        """Add to what was spent, and check processor time and memory.

        Parameters
        ----------
        grown_bytes, n_rows : int
            Newly read bytes and rows.
        processor_s : float
            Processor time of another process.

        Raises
        ------
        BudgetSpentError
            If any limit of the read is exceeded.
        """
        self._grown_bytes += grown_bytes
        self._n_rows += n_rows
        self._began_s -= processor_s
        now_s = time.process_time()
        if now_s >= self._look_s:
            self._look_s, self._more_bytes = now_s + _LOOK_S, _memory_bytes() - self._began_bytes
        spent = {
            "grown_bytes": self._grown_bytes,
            "n_rows": self._n_rows,
            "processor_s": now_s - self._began_s,
            "memory_bytes": self._more_bytes,
        }
        for name, value in spent.items():
            budget = getattr(self.budget, name)
            most = self._most_s if name == "processor_s" else budget
            if most is not None and value > most:
                raise BudgetSpentError(
                    f"the read's budget of {budget:,.12g} {_WORDS[name]} ({name}) is spent"
                )


def _memory_bytes() -> int:
    """Resident memory of this process; 0 where it is not known."""
    if sys.platform != "linux":
        return 0
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


_CURRENT: ContextVar[Spending | None] = ContextVar("spending", default=None)


def spending() -> Spending:
    """The spending of the current read; outside of any, a new one with the default budget."""
    return _CURRENT.get() or Spending(Budget())


def share(current: Spending) -> None:
    """Let this thread spend from the budget of the thread that started it."""
    _CURRENT.set(current)


@contextmanager
def spend(budget: Budget) -> Iterator[Spending]:
    """Let all reads in a block spend from one budget."""
    token = _CURRENT.set(Spending(budget))
    try:
        yield spending()
    finally:
        _CURRENT.reset(token)
