"""Failure messages with known templates, and scores of mined templates and related causes.

Everything is made by a counter-based generator, so the same arguments give the same
messages on every machine, and the true templates are known by construction.
"""

from stateanalytics.testing.failure_corpus import failure_corpus
from stateanalytics.testing.scores import CauseScores, ParsingScores, cause_scores, parsing_scores

__all__ = ["CauseScores", "ParsingScores", "cause_scores", "failure_corpus", "parsing_scores"]
