"""Statistics that know nothing of stores: intervals, distributions, reproducible draws."""
