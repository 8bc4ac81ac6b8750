"""The ten questions of an analyst, each in at most three lines, against plain polars."""

import re
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.stats.intervals import wilson

PAGE = Path(__file__).parent.parent / "docs" / "questions.md"
ENDED = pl.col("ended_at").is_not_null() & (pl.col("entity_type") == "session")
MAY = pl.col("ended_at").dt.strftime("%Y-%m") == "2026-05"
WEEK = pl.col("ended_at").dt.strftime("%G-W%V")
TEAMS = pl.DataFrame({"project": ["billing", "infra", "mobile"], "team": ["blue", "blue", "red"]})


@pytest.fixture(scope="module")
def weeks():
    return sa.demo()


@pytest.fixture(scope="module")
def runs(weeks):
    return weeks.table("entity_states").filter(ENDED)


def test_1_timeouts_by_model_and_project_in_a_month(weeks, runs):
    found = weeks.compare("timed_out", by=["model", "project"], window="2026-05").frame
    plain = runs.filter(MAY).group_by("model", "project").agg(
        n=(pl.col("outcome") == "timed_out").sum().cast(pl.Int64), n_of=pl.len().cast(pl.Int64)
    )  # fmt: skip
    keys = ["model", "project"]
    assert found.select(plain.columns).sort(keys).equals(plain.sort(keys))
    row = found.filter(pl.col("n_units") == pl.col("n_of")).row(0, named=True)
    assert (row["low"], row["high"]) == pytest.approx(wilson(row["n"], row["n_of"]))


@pytest.mark.slow
def test_2_the_tool_before_a_failure(weeks):
    found = weeks.sql(
        "SELECT arg_max(name, at) AS tool, count(*) AS n FROM events "
        "WHERE entity_id IN (SELECT entity_id FROM failures) AND role = 'action' "
        "AND name IS NOT NULL GROUP BY entity_id"
    )
    failed = sa.failures.members(weeks)["entity_id"].implode()
    events = weeks.events.filter(pl.col("entity_id").is_in(failed), pl.col("role") == "action")
    last = events.drop_nulls("name").sort("at").group_by("entity_id").last()
    assert sorted(found["tool"]) == sorted(last["name"]) and "Bash" in set(last["name"])


def test_3_what_retries_cost_is_not_known_where_nobody_recorded_attempts(weeks, runs):
    found = weeks.compare("retry_usd", by="model").frame
    assert runs["attempt"].null_count() == runs.height
    assert found["value"].null_count() == found.height == 3


def test_4_two_weeks_by_team(weeks, runs):
    teams = weeks.with_table("teams", TEAMS)
    found = teams.compare("failed", by="teams.team", window="2026-W21", against="before").frame
    plain = runs.join(TEAMS, on="project", how="left").group_by("team", week=WEEK).agg(
        n=pl.col("outcome").is_in(["failed", "timed_out"]).sum().cast(pl.Int64),
        n_of=pl.len().cast(pl.Int64),
    )  # fmt: skip
    for team, *counts in found.select("teams.team", "n", "n_of", "n_before", "n_of_before").rows():
        own = plain.filter(pl.col("team").eq_missing(pl.lit(team)))
        by_week = {week: of for week, *of in own.select("week", "n", "n_of").rows()}
        assert tuple(counts) == (*by_week["2026-W21"], *by_week["2026-W20"])
    blue = found.filter(pl.col("teams.team") == "blue").row(0, named=True)
    assert blue["verdict"] == "worse" and blue["difference_low"] > 0


@pytest.mark.slow
def test_5_durations_by_kind_and_ending(weeks, runs):
    found = weeks.compare("duration", by=["kind", "outcome"], window="2026-05").frame
    plain = runs.filter(MAY, outcome="completed", kind="agent")["duration_s"].median()
    row = found.filter(kind="agent", outcome="completed").row(0, named=True)
    assert row["value"] == pytest.approx(plain, rel=0.1)  # started in May, and not ended
    assert row["low"] < row["value"] < row["high"]


def test_6_open_and_silent_beyond_what_99_of_100_need(weeks, runs):
    curve = sa.survival.kaplan_meier(sa.survival.spells(weeks), by="kind")
    usual = sa.survival.quantiles(curve, 0.99).select("kind", "duration_s")
    still = weeks.table("entity_states").filter(entity_type="session", is_terminal=False)
    assert still.height == weeks.compare("runs").frame["n"].item() - runs.height
    still = still.join(usual, on="kind", suffix="_usual")
    silent = still.filter(pl.col("silence_s") > pl.col("duration_s_usual"))
    hours = silent.select((pl.col("evaluated_at") - pl.col("last_activity_at")).dt.total_hours())
    assert 0 < silent.height < still.height and hours.to_series().min() >= 1


def test_7_for_excel(weeks, tmp_path):
    found = weeks.compare("cost_usd", by=["project", "month"])
    found.frame.write_csv(tmp_path / "costs.csv")
    assert pl.read_csv(tmp_path / "costs.csv").height == found.frame.height > 10


def test_8_whose_failures_by_an_own_table(weeks, runs):
    found = weeks.with_table("teams", TEAMS).compare("failures", by="teams.team").frame
    failed = runs.filter(pl.col("outcome").is_in(["failed", "timed_out"]))
    plain = failed.join(TEAMS, on="project", how="left")
    counts = dict(plain["team"].value_counts().rows())
    assert {team: int(n) for team, n in found.select("teams.team", "value").rows()} == counts


@pytest.mark.slow
def test_9_what_is_new_with_examples(weeks):
    new = sa.failures.change(weeks, window="2026-W21").filter(status="new")
    rows = sa.failures.members(weeks).join(new, on="cluster_id", how="semi")
    assert rows["message"].null_count() == 0 and rows.height >= new.height > 0


@pytest.mark.slow
def test_10_hour_by_weekday_in_berlin(weeks, runs):
    found = weeks.compare("failed", by=["weekday", "hour"], tz="Europe/Berlin").frame
    local = pl.col("ended_at").dt.convert_time_zone("Europe/Berlin")
    at = (local.dt.strftime("%a") == "Tue") & (local.dt.hour() == 10)
    plain = runs.filter(at)
    row = found.filter(weekday="Tue", hour="10:00").row(0, named=True)
    assert row["n_of"] == plain.height
    assert row["n"] == plain["outcome"].is_in(["failed", "timed_out"]).sum()
    assert row["until"] - row["since"] > timedelta(days=80)


def test_each_of_the_ten_takes_at_most_three_lines_on_the_page():
    text = PAGE.read_text("utf-8")
    asked = text[text.index("## Ten questions") :]
    blocks = re.findall(r"```python\n(.*?)```", asked, re.DOTALL)[:10]
    assert len(blocks) == 10
    assert max(len(block.strip().splitlines()) for block in blocks) <= 3
