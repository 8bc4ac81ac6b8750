"""Stores, spells and messages with known truth: for tests, benchmarks and trying things out.

Everything is made by a counter-based generator, so the same arguments give the same
rows on every machine, and the truth is known because it was meant, not measured.
"""

from stateanalytics.testing.dirt import dirty_cells
from stateanalytics.testing.failure_corpus import failure_corpus
from stateanalytics.testing.messages import failure_messages
from stateanalytics.testing.parsing_metrics import ParsingScores, parsing_scores
from stateanalytics.testing.silences import silences
from stateanalytics.testing.spells import durations, message_gaps
from stateanalytics.testing.store import AS_OF, write_store

__all__ = [
    "AS_OF",
    "ParsingScores",
    "dirty_cells",
    "durations",
    "failure_corpus",
    "failure_messages",
    "message_gaps",
    "parsing_scores",
    "silences",
    "write_store",
]
