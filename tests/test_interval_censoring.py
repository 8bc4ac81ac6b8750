"""Ends that lie between two moments: the curve that shares them as it would itself."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from tests.examples import examples
from tests.survival_data import TYPE_I

# (0, 7] and so on; open ones were still well at the last visit.
RADIOTHERAPY = [
    (0, 7), (0, 8), (0, 5), (4, 11), (5, 12), (5, 11), (6, 10), (7, 16), (7, 14), (11, 15),
    (11, 18), (17, 25), (17, 25), (19, 35), (18, 26), (25, 37), (26, 40), (27, 34), (36, 44),
    (36, 48), (37, 44),
]  # fmt: skip
STILL_WELL = [
    15, 17, 18, 22, 24, 24, 32, 33, 34, 36, 36, 37, 37, 37, 38, 40, 45,
    46, 46, 46, 46, 46, 46, 46, 46,
]  # fmt: skip


def spells(between, open_=()):
    rows = [(float(low), True, float(high - low)) for low, high in between]
    rows += [(float(low), False, None) for low in open_]
    return pl.DataFrame(
        rows,
        schema={"duration_s": pl.Float64, "ended": pl.Boolean, "end_width_s": pl.Float64},
        orient="row",
    )


def test_the_published_example_of_turnbulls_estimate_is_met():
    """Klein and Moeschberger (2003), Survival analysis, example 5.2: radiotherapy alone."""
    curve = sa.survival.turnbull(spells(RADIOTHERAPY, STILL_WELL))
    at = {row["duration_s"]: row["survival"] for row in curve.iter_rows(named=True)}
    expected = {5: 0.954, 7: 0.920, 8: 0.832, 12: 0.761, 25: 0.668, 34: 0.586, 40: 0.467}
    assert {second: round(at[second], 3) for second in expected} == pytest.approx(
        expected, abs=2e-3
    )


def test_without_widths_it_is_kaplan_and_meiers_curve():
    curve = sa.survival.turnbull(TYPE_I.with_columns(end_width_s=None))
    known = sa.survival.kaplan_meier(TYPE_I)
    assert curve["duration_s"].equals(known["duration_s"])
    assert curve["survival"].to_list() == pytest.approx(known["survival"].to_list())


INTERVALS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 4), st.booleans()), min_size=1, max_size=12
)


@pytest.mark.slow
@given(INTERVALS)
@examples(60)
def test_it_is_as_likely_as_the_best_that_a_slow_search_finds(rows):
    frame = spells(
        [(low, low + width) for low, width, ended in rows if ended],
        [low for low, _, ended in rows if not ended],
    )
    curve = sa.survival.turnbull(frame)
    found = dict(curve.select("duration_s", "survival").iter_rows())
    assert _likelihood(rows, found) >= _slow_best(rows) - 1e-4


def _likelihood(rows, survival):
    """The logarithm of it; ``survival`` by moment, 1 before the first."""

    def left(moment):
        return next((survival[at] for at in sorted(survival, reverse=True) if at <= moment), 1.0)

    total = 0.0
    for low, width, ended in rows:
        # An end just at a moment is the step there.
        before = left(low) if width else left(low - 0.5)
        share = before - left(low + width) if ended else left(low)
        total += math.log(max(share, 1e-300))
    return total


def _slow_best(rows):
    """By the plain EM over every whole moment and one that is never reached."""
    moments = [*range(14), math.inf]
    of_rows = [
        [m for m in moments if (low < m <= low + width or (m == low and not width) if ended
                                else m > low)]
        for low, width, ended in rows
    ]  # fmt: skip
    mass = dict.fromkeys(moments, 1 / len(moments))
    for _ in range(200):
        after = dict.fromkeys(moments, 0.0)
        for mine in of_rows:
            whole = sum(mass[m] for m in mine)
            for m in mine:
                after[m] += mass[m] / whole / len(rows)
        mass = after
    return sum(math.log(sum(mass[m] for m in mine)) for mine in of_rows)


def test_strata_empty_frames_and_what_makes_no_sense():
    both = pl.concat([spells([(1, 3)]).with_columns(k=1), spells([(2, 9)], [5]).with_columns(k=2)])
    found = sa.survival.turnbull(both, by="k")
    assert found["k"].unique().to_list() == [1, 2]
    assert found.filter(k=1)["survival"].to_list() == [1.0, 0.0]
    assert sa.survival.turnbull(both.clear()).height == 0
    with pytest.raises(ArgumentError, match="widths from 0 on; found 1 others"):
        sa.survival.turnbull(spells([(3, 1)]))
    with pytest.raises(ArgumentError, match="from their start; found some that came late"):
        sa.survival.turnbull(spells([(3, 5)]).with_columns(entry_s=1.0))
