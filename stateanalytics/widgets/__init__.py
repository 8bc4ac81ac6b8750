"""Explorers for notebooks over frames that are computed before: moving a slider draws only."""

from stateanalytics.widgets.detectors import DetectorExplorer
from stateanalytics.widgets.exploring import Explorer, explore
from stateanalytics.widgets.thresholds import ThresholdWorksheet

__all__ = ["DetectorExplorer", "Explorer", "ThresholdWorksheet", "explore"]
