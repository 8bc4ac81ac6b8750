"""Why work fails: causes counted once, failures by reason code."""

from stateanalytics.failures.by_code import by_reason_code
from stateanalytics.failures.causes import cause_key, count_causes

__all__ = ["by_reason_code", "cause_key", "count_causes"]
