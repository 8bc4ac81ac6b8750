"""Failure messages with known templates, and the scores of a miner of templates over them.

Everything is made by a counter-based generator, so the same arguments give the same
messages on every machine, and the truth is known because it was meant, not measured.
"""

from stateanalytics.testing.cause_scores import CauseScores, cause_scores
from stateanalytics.testing.failure_corpus import failure_corpus
from stateanalytics.testing.parsing_metrics import ParsingScores, parsing_scores

__all__ = ["CauseScores", "ParsingScores", "cause_scores", "failure_corpus", "parsing_scores"]
