"""What thresholds cost, and which values the data recommend."""

from stateanalytics.thresholds.advice import Advice, recommend_thresholds
from stateanalytics.thresholds.costs import Costs
from stateanalytics.thresholds.judge import VERDICTS
from stateanalytics.thresholds.settings import Constant, constants, constants_frame

__all__ = [
    "VERDICTS",
    "Advice",
    "Constant",
    "Costs",
    "constants",
    "constants_frame",
    "recommend_thresholds",
]
