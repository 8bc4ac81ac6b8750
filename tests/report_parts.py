"""Sections of a report by themselves: a whole report takes seconds, one section does not."""

from stateanalytics.core.windows import read_window
from stateanalytics.reporting.material import Material
from stateanalytics.state.policy import Policy

EVER = ("2000-01-01", None)


def material_of(snap, window=EVER) -> Material:
    """What the sections of a report over a window are made from."""
    return Material.of(snap, read_window(window, as_of=snap.as_of), Policy.v1())
