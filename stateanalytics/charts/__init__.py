"""Frames drawn with Altair. No statistics: every number is in the frame already."""

from stateanalytics.charts.durations import chart_durations
from stateanalytics.charts.over_time import chart_over_time
from stateanalytics.charts.palette import DARK, LIGHT, ORDER, VARIABLES
from stateanalytics.charts.severity import chart_severity
from stateanalytics.charts.svg import to_svg

__all__ = [
    "DARK",
    "LIGHT",
    "ORDER",
    "VARIABLES",
    "chart_durations",
    "chart_over_time",
    "chart_severity",
    "to_svg",
]
