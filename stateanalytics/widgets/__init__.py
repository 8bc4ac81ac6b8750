"""Explorers for notebooks over frames that are computed already: sliders only redraw."""

from stateanalytics.widgets.exploring import Explorer, explore
from stateanalytics.widgets.timeline import Session, session
from stateanalytics.widgets.worksheets import DetectorExplorer, ThresholdWorksheet

__all__ = ["DetectorExplorer", "Explorer", "Session", "ThresholdWorksheet", "explore", "session"]
