"""Why work fails: causes counted once, reason codes, message templates, clusters of both."""

from stateanalytics.failures.by_code import by_reason_code
from stateanalytics.failures.counting import cause_key, count_causes

__all__ = ["by_reason_code", "cause_key", "count_causes"]
