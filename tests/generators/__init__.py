"""Scaled stores, spells and silences with known truth, for tests and benchmarks.

Everything is made by a counter-based generator, so the same arguments give the same
rows on every machine, and the truth is known because it was meant, not measured.
"""

from tests.generators.dirt import dirty_cells
from tests.generators.silences import silences
from tests.generators.spells import durations, message_gaps
from tests.generators.store import AS_OF, write_store

__all__ = ["AS_OF", "dirty_cells", "durations", "message_gaps", "silences", "write_store"]
