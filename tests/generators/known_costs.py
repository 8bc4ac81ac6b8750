"""Work whose cheapest threshold is known: lognormal tails, limits, reapers, fan-outs, projects.

Made with Python's own generator and not with that of the samples, so that nothing the
project believes about its own data can hide in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import NormalDist

import polars as pl

NORMAL = NormalDist()
GOOD, BAD = 0.85, 0.13
"""Shares of runs that end well and badly; the rest hang."""
MEDIAN_S, SIGMA = 600.0, 1.0
BAD_WITHIN_S, OBSERVED_S = 3600.0, 100_000.0


def after(at_s: float, median_s: float = MEDIAN_S, sigma: float = SIGMA) -> float:
    """The share of a lognormal that is longer."""
    return 1 - NORMAL.cdf(math.log(at_s / median_s) / sigma)


def runs_loss(limit_s: float, *, price: float = 60.0, hour: float = 3.0) -> float:
    """What 100 runs cost under a limit, in truth: good ones lost, and hours of all."""
    steps = 400
    going = sum(
        GOOD * after((step + 0.5) * limit_s / steps)
        + BAD * max(0.0, 1 - (step + 0.5) * limit_s / steps / BAD_WITHIN_S)
        + (1 - GOOD - BAD)
        for step in range(steps)
    )
    return 100 * (price * GOOD * after(limit_s) + hour * going * limit_s / steps / 3600)


def runs(
    n: int,
    seed: int,
    *,
    limit_s: Callable[[Random], float] = lambda _: math.inf,
    size: int = 1,
    unit_sd: float = 0.0,
    n_projects: int = 0,
    project_sd: float = 0.0,
) -> pl.DataFrame:
    """Runs of which most end well, some badly and some never; fan-outs and projects are alike.

    ``unit_sd`` and ``project_sd``: by how much the logarithm of the time differs between fan-outs
    and between projects; the spread of all is `SIGMA`, whatever they are.
    """
    draw = Random(seed)
    own_sd = math.sqrt(SIGMA**2 - unit_sd**2 - project_sd**2)
    of_project = [draw.gauss(0, project_sd) for _ in range(max(1, n_projects))]
    rows = []
    shift = 0.0
    for run in range(n):
        project = run // size % len(of_project)
        if run % size == 0:
            shift = draw.gauss(0, unit_sd) + of_project[project]
        fate = draw.random()
        length = MEDIAN_S * math.exp(shift + draw.gauss(0, own_sd))
        if fate >= GOOD:
            length = draw.uniform(0, BAD_WITHIN_S) if fate < GOOD + BAD else math.inf
        seen = min(limit_s(draw), OBSERVED_S)
        rows.append((run // size, project, min(length, seen), length <= seen, fate < GOOD))
    frame = pl.DataFrame(
        rows, schema=["unit", "project", "duration_s", "ended", "is_good"], orient="row"
    )
    return frame if n_projects else frame.drop("project")


LONG_SHARE, LONG_MEDIAN_S, LONG_SIGMA = 0.006, 1200.0, 0.6
N_GAPS, GAP_S, DEATHS = 40, 60.0, 0.1


def silences_loss(at_s: float, *, price: float = 5.0, hour: float = 10.0) -> float:
    """What a session costs under a threshold of silence, in truth."""
    long = LONG_SHARE * after(at_s, LONG_MEDIAN_S, LONG_SIGMA)
    spoke = N_GAPS * (long + (1 - LONG_SHARE) * math.exp(-at_s / GAP_S))
    return price * spoke + hour * DEATHS * at_s / 3600


def silences(n: int, seed: int, *, reaper_s: float = math.inf) -> pl.DataFrame:
    """Silences of sessions, exponential with now and then a long one; some sessions die.

    A reaper calls every session dead that is silent for ``reaper_s``; without one, the dead
    are found after four hours.
    """
    draw = Random(seed)
    rows = []
    for unit in range(n):
        for place in range(N_GAPS + 1):
            is_long = draw.random() < LONG_SHARE
            gap = draw.lognormvariate(math.log(LONG_MEDIAN_S), LONG_SIGMA)
            gap = gap if is_long else draw.expovariate(1 / GAP_S)
            is_last = place == N_GAPS
            if is_last and draw.random() < DEATHS:
                rows.append((unit, min(reaper_s, 14_400.0), "death"))
            elif gap > reaper_s:
                rows.append((unit, reaper_s, "death"))
                break
            else:
                rows.append((unit, gap, "own_end" if is_last else "sign_of_life"))
    return pl.DataFrame(rows, schema=["unit", "gap_s", "closed_by"], orient="row").with_columns(
        is_dead=pl.col("closed_by") == "death"
    )
