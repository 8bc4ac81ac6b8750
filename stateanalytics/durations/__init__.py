"""How long work takes, and how honestly that can be said."""

from stateanalytics.durations.spells import count_spells, spells

__all__ = ["count_spells", "spells"]
