"""Frames drawn with Altair. No statistics: every number is in the frame already."""

from stateanalytics.charts.alarm_timeline import chart_alarms
from stateanalytics.charts.cumulative_incidence import chart_cumulative_incidence
from stateanalytics.charts.disagreement import chart_disagreement
from stateanalytics.charts.durations import chart_durations
from stateanalytics.charts.failure_codes import chart_failure_codes
from stateanalytics.charts.failure_trend import chart_failure_trend
from stateanalytics.charts.false_alarms import chart_false_alarms
from stateanalytics.charts.incidents import chart_incidents
from stateanalytics.charts.intersections import chart_intersections
from stateanalytics.charts.limits import chart_limits
from stateanalytics.charts.over_time import chart_over_time
from stateanalytics.charts.palette import DARK, LIGHT, ORDER, VARIABLES
from stateanalytics.charts.severity import chart_severity
from stateanalytics.charts.survival import chart_survival
from stateanalytics.charts.svg import to_svg
from stateanalytics.charts.worksheet import chart_worksheet

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
    "chart_severity",
    "chart_survival",
    "chart_worksheet",
    "to_svg",
]
