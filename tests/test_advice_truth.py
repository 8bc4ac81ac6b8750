"""What advice concludes about work whose cheapest threshold is known.

Every set-up was once advised wrongly: a tail that was not seen was taken for none, what a
limit or a reaper had closed was taken for an end, and runs of one fan-out for witnesses.
"""

import math
from collections import Counter
from functools import cache
from statistics import median

import pytest

from stateanalytics.core.words import CANDIDATES_S
from stateanalytics.thresholds.choice import choose
from stateanalytics.thresholds.counts import (
    elapsed_counts,
    silence_counts,
    silence_support,
    support,
)
from tests.examples import a_few
from tests.generators.known_costs import runs, runs_loss, silences, silences_loss

RUN_COSTS, SILENCE_COSTS = {"price": 60.0, "hour": 3.0}, {"price": 5.0, "hour": 10.0}
UNDECIDED = {"cannot_tell", "not_identified"}


def limited(share, limit_s):
    return {"limit_s": lambda draw: limit_s if draw.random() < share else math.inf}


FAN_OUTS = {"size": 8, "unit_sd": 0.8}
PROJECTS = {"n_projects": 12, "project_sd": 0.8}
RUNS = {
    "few runs, today's is the best": (150, 10_800.0, {}),
    "few runs, today's is nearly the best": (150, 14_400.0, {}),
    "more runs, today's is short": (400, 1200.0, {}),
    "many runs, today's is short": (1000, 7200.0, {}),
    "many runs, today's is long": (1000, 86_400.0, {}),
    "a limit that hardly any run outlasts": (150, 900.0, limited(0.97, 900.0)),
    "the same, longer": (150, 1800.0, limited(0.97, 1800.0)),
    "fan-outs that are alike": (640, 10_800.0, FAN_OUTS),
    "few fan-outs": (240, 10_800.0, {"size": 24, "unit_sd": 0.8}),
    "fan-outs, today's is short": (640, 1200.0, FAN_OUTS),
    "projects that are alike": (600, 10_800.0, PROJECTS),
    "a few projects": (150, 10_800.0, {"n_projects": 6, "project_sd": 0.8}),
}
REAPED = {"reaper_s": 900.0}
SILENCES = {
    "silences, today's is the best": (200, 1800.0, {}),
    "silences, today's is beyond all that was seen": (200, 21_600.0, {}),
    "silences, today's is short": (400, 600.0, {}),
    "a reaper closes at today's value": (200, 900.0, REAPED),
    "a reaper closes long before today's value": (200, 21_600.0, REAPED),
}
MUST_NOT_DECIDE = {
    "a limit that hardly any run outlasts",
    "the same, longer",
    "few fan-outs",
    "a reaper closes at today's value",
    "a reaper closes long before today's value",
}
DECIDES = {
    "many runs, today's is long",
    "silences, today's is the best",
    "silences, today's is beyond all that was seen",
    "silences, today's is short",
}


@cache
def losses(loss):
    return {limit: loss(limit) for limit in CANDIDATES_S}


def advised(name, seed):
    """A choice, what every candidate costs in truth, and exposure in hundreds of units."""
    if name in RUNS:
        n, today, traits = RUNS[name]
        frame = runs(n, seed, **traits)
        reach = support(frame, CANDIDATES_S)
        counts = elapsed_counts(frame, reach.candidates_s, mistake="lost_run")
        return choose(counts, reach, today_s=today, **RUN_COSTS), losses(runs_loss), 1.0
    n, today, traits = SILENCES[name]
    frame = silences(n, seed, **traits)
    reach = silence_support(frame, CANDIDATES_S, today)
    counts = silence_counts(frame, reach.candidates_s)
    hours = counts["exposure"].sum() / n
    return choose(counts, reach, today_s=today, **SILENCE_COSTS), losses(silences_loss), 100 / hours


def judged(name, n, first_seed):
    """Shares of wrong changes, of ranges that hold the best, of gains covered; and regrets."""
    today = (RUNS | SILENCES)[name][1]
    wrong, covered, gains, regrets, verdicts = 0, 0, [], [], Counter()
    for seed in range(first_seed, first_seed + n):
        choice, truth, per = advised(name, seed)
        best = min(truth, key=truth.get)
        verdicts[choice.verdict] += 1
        covered += choice.best_low_s <= best <= (choice.best_high_s or math.inf)
        if choice.recommended_s is None:
            continue
        regrets.append(truth[choice.recommended_s] / truth[best])
        gain = (truth[today] - truth[choice.recommended_s]) * per
        gains.append(choice.gain_low - 1e-9 <= gain <= choice.gain_high + 1e-9)
        wrong += choice.verdict == "change" and gain <= 0
    return verdicts, wrong / n, covered / n, gains, sorted(regrets)


@pytest.mark.parametrize(
    "name", a_few([*sorted(MUST_NOT_DECIDE, reverse=True), *sorted(DECIDES)], 3)
)
def test_advice_is_given_where_it_can_be_and_only_there(name):
    verdicts = judged(name, 3, 50)[0]
    assert (set(verdicts) <= UNDECIDED) == (name in MUST_NOT_DECIDE)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RUNS, *SILENCES])
def test_conclusions_hold_on_known_truth(name):
    n = 100
    _, wrong, covered, gains, regrets = judged(name, n, 31_000)
    assert wrong <= 0.05
    assert covered >= 0.93
    assert sum(gains) >= 0.9 * len(gains)
    if name in MUST_NOT_DECIDE:
        assert len(regrets) <= 0.05 * n
    elif regrets:
        assert median(regrets) <= 1.15
        assert regrets[int(0.95 * len(regrets))] <= 2
    if name in DECIDES:
        assert len(regrets) >= 0.9 * n
