"""The stores that tests and benchmarks read: a week of every kind of trouble, and other systems."""

from datetime import UTC, datetime
from pathlib import Path

import stateanalytics as sa

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "samples"
"""Its ``state.db`` is that week; ``truth.csv`` says what was meant by each row."""
AS_OF = datetime(2026, 5, 25, 6, tzinfo=UTC)


def the_week() -> sa.Snapshot:
    """The week of every kind of trouble, read anew."""
    return sa.read(SAMPLES / "state.db", as_of=AS_OF, progress=False)
