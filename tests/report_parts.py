"""Sections of a report by themselves: a whole report takes seconds, one section does not."""

from stateanalytics.report.material import Material
from stateanalytics.rules.policy import Policy
from stateanalytics.rules.states import states_and_reasons
from stateanalytics.windows import read_window

EVER = ("2000-01-01", None)


def material_of(snap, window=EVER) -> Material:
    """What the sections of a report over a window are made from."""
    policy = Policy.v1()
    states, reasons = states_and_reasons(snap, policy=policy)
    return Material.of(snap, states, reasons, read_window(window, as_of=snap.as_of), policy)
