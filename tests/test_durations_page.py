"""The demonstration in docs/durations.md is what the functions say."""

import re

import polars as pl

import stateanalytics as sa
from tests.conftest import ROOT
from tests.survival_data import TYPE_I

PAGE = (ROOT / "docs" / "durations.md").read_text("utf-8")
PROBS = [0.25, 0.5, 0.75, 0.9]


def row_of_page(begins):
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {begins}")]
    return [cell.strip().replace("*", "") for cell in line.strip("|").split("|")[1:]]


def whole(seconds):
    return "?" if seconds is None else f"{seconds:g}"


def quantiles_of(frame):
    return sa.survival.quantiles(sa.survival.kaplan_meier(frame), PROBS)["duration_s"].to_list()


def test_the_right_row_of_the_demonstration():
    told = sa.survival.quantiles(sa.survival.kaplan_meier(TYPE_I), PROBS).rows(named=True)
    expected = []
    for row in told:
        ends = (row["duration_low_s"], row["duration_high_s"])
        shown = f" ({whole(ends[0])} to {whole(ends[1])})" if any(ends) else ""
        expected.append(whole(row["duration_s"]) + shown)
    assert row_of_page("Kaplan-Meier") == expected
    assert (
        "32 % outlast"
        in sa.survival.quantiles(sa.survival.kaplan_meier(TYPE_I), [0.9])["in_words"].item()
    )
    assert "32 % of runs last longer than the data show" in PAGE


def test_the_two_wrong_rows_of_the_demonstration():
    completed = TYPE_I.filter("ended")
    assert row_of_page("completed runs only") == [whole(one) for one in quantiles_of(completed)]
    as_ends = TYPE_I.filter(pl.col("ended") | (pl.col("duration_s") == 900)).with_columns(
        ended=pl.lit(value=True)
    )
    assert row_of_page("timeouts taken as ends") == [whole(one) for one in quantiles_of(as_ends)]


def test_the_runs_of_the_text_are_those_of_the_table():
    [said] = re.findall(r"Ten runs completed, after (.*?) seconds", PAGE)
    durations = [float(one) for one in re.findall(r"\d+", said)]
    assert durations == TYPE_I.filter("ended")["duration_s"].to_list()
