"""One report does its common work once, however many sections ask for it."""

import sys
from collections import Counter
from datetime import timedelta

import pytest

import stateanalytics as sa
from stateanalytics.state.evaluate import evaluate
from stateanalytics.state.population import population
from tests.examples import a_few
from tests.samples import SAMPLES

INPUTS = [
    pytest.param(["agent_orchestrator"], id="agent_orchestrator"),
    pytest.param(["state.db"], id="lionagi"),
    pytest.param(["opencode"], id="opencode"),
    pytest.param(["state.db", "agent_orchestrator", "opencode"], id="all"),
]


@pytest.fixture
def calls(monkeypatch):
    """How often the rules were applied, and the population counted, wherever from."""
    counts = Counter()

    def counting(function):
        def counted(*args, **options):
            counts[function.__name__] += 1
            return function(*args, **options)

        return counted

    for function in (evaluate, population):
        counted = counting(function)
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("stateanalytics"):
                for name, value in list(vars(module).items()):
                    if value is function:
                        monkeypatch.setattr(module, name, counted)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("names", a_few(INPUTS))
def test_a_report_applies_the_rules_once_and_counts_the_population_once(small_week, calls, names):
    # Sections import what they need when they are first asked for: the small week did that.
    assert small_week.summary
    snap = sa.read(*(SAMPLES / name for name in names), progress=False)
    window = (snap.as_of - timedelta(days=7), snap.as_of)
    sa.report(snap, window=window, compare="none")
    assert calls == {"evaluate": 1, "population": 1}
    calls.clear()
    sa.report(snap, window=window, compare="previous")
    # The week before stands as it stood at its end, where it had open runs then.
    assert calls["evaluate"] == calls["population"] <= 2


@pytest.mark.slow
def test_an_earlier_instant_has_rules_of_its_own(calls, demo):
    snap = demo
    states = sa.states(snap)
    calls.clear()
    sa.detectors.detect(snap, states=states)
    assert calls["evaluate"] == 0
    sa.detectors.detect(snap, at=snap.as_of - timedelta(days=1), states=states)
    assert calls["evaluate"] == 1


@pytest.mark.slow
def test_states_at_hand_change_no_answer(demo):
    snap = demo
    given, derived = sa.detectors.detect(snap, states=sa.states(snap)), sa.detectors.detect(snap)
    assert given.rows.equals(derived.rows)
