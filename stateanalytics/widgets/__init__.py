"""Explorers for notebooks over frames that are computed before: moving a slider draws only."""

from stateanalytics.widgets.detectors import DetectorExplorer
from stateanalytics.widgets.exploring import Explorer, explore
from stateanalytics.widgets.thresholds import ThresholdWorksheet
from stateanalytics.widgets.timeline import Session, session

__all__ = ["DetectorExplorer", "Explorer", "Session", "ThresholdWorksheet", "explore", "session"]
