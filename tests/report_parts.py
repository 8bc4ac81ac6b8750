"""Sections of a report by themselves: a whole report takes seconds, one section does not."""

from stateanalytics.core.windows import read_window
from stateanalytics.failures.by_code import count_by_reason_code
from stateanalytics.failures.failure_rows import select_failures
from stateanalytics.reporting.material import Material
from stateanalytics.state.definitions import FAILURES
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import population

EVER = ("2000-01-01", None)


def material_of(snap, window=EVER) -> Material:
    """What the sections of a report over a window are made from."""
    return Material.of(snap, read_window(window, as_of=snap.as_of), Policy.v1())


def failures_by_code(facts, states, window=None, outcomes=FAILURES):
    """What failed by its stored code, of the rows that rates may count."""
    chosen = None if window is None else read_window(window, as_of=facts.as_of)
    rows = population(facts.entities, states, as_of=facts.as_of, window=chosen)
    return count_by_reason_code(select_failures(rows, outcomes))
