"""The code stays within the figures of `tests/size.csv`, which a review sees grow."""

import pytest

from tests import size


def too_much(measured):
    most = size.allowed()
    assert set(measured) <= set(most), "make size WRITE=1 adds what is new"
    return {
        name: f"{found:,} of {most[name]:,}"
        for name, found in measured.items()
        if found > most[name]
    }


def test_lines_and_modules_stay_within_their_budgets():
    assert not too_much(size.lines_and_modules()), "make size shows each figure"


@pytest.mark.slow
def test_walks_stay_within_their_budgets():
    assert not too_much(size.walks())


@pytest.mark.slow
def test_a_report_of_the_sample_stays_within_its_engine_calls():
    assert not too_much(size.engine_calls())
