"""The share that never ends: told where it was watched long enough, and nowhere else."""

import polars as pl
import pytest

import stateanalytics as sa
from tests.generators import draws


def spells(ended, open_, **rest):
    is_over = [True] * len(ended) + [False] * len(open_)
    return pl.DataFrame({"duration_s": [*ended, *open_], "ended": is_over, **rest})


ENDED = [float(second) for second in range(10, 100)]


def told(frame, **options):
    return sa.survival.never_ending(frame, **options).row(0, named=True)


def test_a_plateau_is_told_with_its_interval():
    row = told(spells(ENDED, [200.0] * 10))
    assert row["is_identified"]
    assert row["share"] == pytest.approx(0.1)
    # Greenwood on the scale of log(-log): .048 to .175; ten may hide a quarter of them.
    assert row["share_low"] == pytest.approx(0.0493 * 0.05**0.1, abs=0.002)
    assert row["share_high"] == pytest.approx(0.17, abs=0.006)
    words = "10 % (4 to 17) never end: none of 10 did between 1 min 39 s and 3 min 20 s"
    assert row["in_words"] == words


@pytest.mark.parametrize("open_", [[190.0] * 10, [5000.0] * 9, [5000.0, *[100.0] * 30]])
def test_what_was_not_watched_for_long_cannot_be_told_but_bounded(open_):
    row = told(spells(ENDED, open_))
    assert not row["is_identified"]
    assert (row["share"], row["share_low"]) == (None, None)
    assert 0.1 < row["share_high"] < 0.5
    assert row["in_words"].startswith("cannot tell how many never end, at most ")


def test_where_everything_ended_the_share_is_zero_with_an_exact_end():
    row = told(spells(ENDED, []))
    assert (row["share"], row["share_low"]) == (0.0, 0.0)
    assert row["share_high"] == pytest.approx(1 - 0.025 ** (1 / 90))
    assert row["in_words"] == "0 % (0 to 4) never end"


def test_runs_of_one_fan_out_are_one_that_was_watched():
    together = spells(ENDED, [200.0] * 12, unit=[*range(90), *[90] * 12])
    assert not told(together)["is_identified"]


def test_late_entries_were_not_watched_before_they_came():
    late = spells(ENDED, [200.0] * 10, entry_s=[None] * 90 + [150.0] * 10)
    assert not told(late)["is_identified"]
    early = late.with_columns(entry_s=pl.col("entry_s") - 60)
    assert told(early)["is_identified"]


def test_few_spells_none_and_no_ends_are_said():
    too_few = "cannot tell how many never end: too few runs"
    assert told(spells([1.0], [2.0], unit=[1, 1]))["in_words"] == too_few
    assert told(spells([3.0, 4.0], [2.0]))["in_words"] == too_few
    none_ended = told(spells([], [5.0] * 20))
    assert (none_ended["share"], none_ended["share_high"]) == (None, None)
    assert none_ended["in_words"] == "cannot tell how many never end: no end was seen"
    nothing = sa.survival.never_ending(spells([], []), by=())
    assert not nothing["is_identified"].any()
    before_the_curve = told(spells([1.0], [10.0] * 10, entry_s=[None] + [2.0] * 10))
    assert (before_the_curve["share"], before_the_curve["in_words"]) == (None, too_few)


def test_strata_are_told_apart():
    flow = spells(ENDED, [200.0] * 10).with_columns(kind=pl.lit("flow"))
    nameless = spells(ENDED, []).with_columns(kind=pl.lit(None, pl.String))
    found = sa.survival.never_ending(pl.concat([flow, nameless]), by="kind")
    assert found["kind"].to_list() == [None, "flow"]
    assert found["share"].to_list() == pytest.approx([0.0, 0.1])


# --- by simulation --------------------------------------------------------------------------


def fleet(seed, *, share, n_units=120, shape="exponential", limit_s=6000.0):
    """Fan-outs of one to three; a part never ends, by fan-out; some are cut off at any time."""
    row = pl.int_range(n_units, dtype=pl.UInt64)
    units = pl.select(
        unit=row, never=draws.uniform(row, seed, "never"), n=draws.integer(row, seed, "n", 1, 3)
    )
    runs = units.select(pl.exclude("n").repeat_by("n")).explode(pl.all())
    each = pl.int_range(pl.len(), dtype=pl.UInt64)

    def uniform(column):
        return draws.uniform(each, seed, column)

    normal = (-2 * uniform("a").log()).sqrt() * (6.283185307179586 * uniform("b")).cos()
    taken = {
        "exponential": -400 * uniform("t").log(),
        "lognormal": 300 * (normal * 1.0).exp(),
        "stretched": 200 * (-uniform("t").log()) ** (1 / 0.6),
    }[shape]
    ends = pl.when(pl.col("never") < share).then(float("inf")).otherwise(taken)
    limit = pl.when(uniform("cut") < 0.3).then(uniform("when") * limit_s).otherwise(limit_s)
    runs = runs.with_columns(ends=ends, limit=limit)
    watched = {"duration_s": pl.min_horizontal("ends", "limit")}
    return runs.select(
        "unit", ended=pl.col("ends") <= pl.col("limit"), fleet=pl.lit(seed), **watched
    )


@pytest.mark.slow
def test_the_interval_holds_the_share_that_never_ends():
    fleets = pl.concat(fleet(seed, share=0.15) for seed in range(400))
    found = sa.survival.never_ending(fleets, by="fleet").filter("is_identified")
    assert found.height > 300
    held = ((found["share_low"] <= 0.15) & (found["share_high"] >= 0.15)).mean()
    assert 0.92 <= held <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["exponential", "lognormal", "stretched"])
@pytest.mark.parametrize("limit_s", [300.0, 900.0, 2400.0])
def test_what_only_takes_long_is_seldom_called_endless(shape, limit_s):
    fleets = pl.concat(fleet(seed, share=0.0, shape=shape, limit_s=limit_s) for seed in range(400))
    found = sa.survival.never_ending(fleets, by="fleet")
    is_wrong = found["is_identified"] & (found["share_low"] > 0)
    assert is_wrong.mean() <= 0.05
