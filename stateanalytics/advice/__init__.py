"""What thresholds cost, and which values the data recommend."""

from stateanalytics.advice.constants import Constant, constants, constants_frame
from stateanalytics.advice.costs import Costs
from stateanalytics.advice.judge import VERDICTS
from stateanalytics.advice.recommend import Advice, recommend_thresholds

__all__ = [
    "VERDICTS",
    "Advice",
    "Constant",
    "Costs",
    "constants",
    "constants_frame",
    "recommend_thresholds",
]
