"""Frames drawn with Altair. No statistics: every number is in the frame already."""

from stateanalytics.charts.detectors import chart_alarms, chart_disagreement, chart_intersections
from stateanalytics.charts.durations import chart_durations, chart_limits
from stateanalytics.charts.failures import (
    chart_failure_codes,
    chart_failure_trend,
    chart_incidents,
    chart_severity,
)
from stateanalytics.charts.over_time import chart_over_time, chart_rate, chart_weeks
from stateanalytics.charts.style import DARK, LIGHT, ORDER, VARIABLES
from stateanalytics.charts.survival import chart_cumulative_incidence, chart_survival
from stateanalytics.charts.svg import to_svg
from stateanalytics.charts.thresholds import chart_false_alarms, chart_worksheet

__all__ = [
    "DARK",
    "LIGHT",
    "ORDER",
    "VARIABLES",
    "chart_alarms",
    "chart_cumulative_incidence",
    "chart_disagreement",
    "chart_durations",
    "chart_failure_codes",
    "chart_failure_trend",
    "chart_false_alarms",
    "chart_incidents",
    "chart_intersections",
    "chart_limits",
    "chart_over_time",
    "chart_rate",
    "chart_severity",
    "chart_survival",
    "chart_weeks",
    "chart_worksheet",
    "to_svg",
]
