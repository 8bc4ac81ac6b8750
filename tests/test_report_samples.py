"""The report of every real store is right by what its makers wrote beside it."""

import csv
import json
import sqlite3
from collections import Counter
from contextlib import closing

import polars as pl
import pytest

from stateanalytics.reporting import report
from stateanalytics.snapshot import read
from tests.conftest import ROOT
from tests.examples import a_few
from tests.test_report_page import Page

EVER = ("2000-01-01", None)
GENERATIONS = ("0.26.0", "0.26.12", "0.29.1", "0.36.0", "migrated-0.26.12-to-0.36.0")
# Each of work of its own; the others tell some of it again.
FLEETS = ("0.26.0", "0.29.1")
ENDS = {word: word for word in ("completed", "failed", "timed_out", "aborted", "cancelled")}
ENDS |= {"completed_empty": "completed"}


def counts_of(summary):
    return {one["outcome"]: one["n"] for one in summary["headline"]["outcomes"]}


def numbers(summary):
    return {one["name"]: one for one in summary["headline"]["numbers"]}


def statuses_of_makers(folder) -> dict[str, str]:
    """Status by session, as scenarios.csv names it; the empty text for none."""
    with (folder / "scenarios.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["entity_type"] == "session"]
    # A release that refused to write the row left no id.
    return {row["entity_id"]: row["status"] for row in rows if row["entity_id"]}


COUNTED = ("provenance", "headline", "attention", "failures")


@pytest.fixture(scope="module", params=a_few(GENERATIONS))
def made(request, lionagi_samples):
    folder = lionagi_samples / request.param
    snap = read(folder / "state.db", as_of="2026-05-27")
    return statuses_of_makers(folder), snap, report(snap, window=EVER, sections=COUNTED)


@pytest.mark.slow
def test_every_end_is_counted_as_the_makers_wrote_it(made):
    statuses, snap, whole = made
    sessions = snap.entities.filter(entity_type="session")
    assert set(statuses) == set(sessions["entity_id"])
    is_later = pl.coalesce("ended_at", "started_at") > snap.as_of
    is_apart = pl.col("recorded_by").is_in(["mirrored", "imported"]) | is_later
    kept = sessions.filter(~is_apart.fill_null(False))
    known = [statuses[one] for one in kept["entity_id"] if statuses[one] in ENDS]
    expected = Counter(ENDS[status] for status in known)
    assert counts_of(whole.summary) == expected
    assert numbers(whole.summary)["timed_out"]["n"] == expected["timed_out"]
    n_running = sum(statuses[one] == "running" for one in kept["entity_id"])
    assert numbers(whole.summary)["unresolved"]["of"] == n_running
    assert numbers(whole.summary)["runs"]["n"] == expected.total() + n_running


def test_legacy_and_odd_statuses_are_left_out_and_counted(made):
    statuses, _, whole = made
    left_out = {one["reason"]: one["n"] for one in whole.summary["provenance"]["left_out"]}
    odd = [status for status in statuses.values() if status not in {*ENDS, "running"}]
    assert left_out["legacy"] == len(odd)
    assert left_out["future"] == 1
    assert sum(left_out.values()) + numbers(whole.summary)["runs"]["n"] == len(statuses)


def test_failures_count_lionagis_own_causes(made):
    _, snap, whole = made
    assert whole.summary["headline"]["n_causes"] == causes_of_lionagi(snap)


def causes_of_lionagi(snap) -> int:
    """The query of lionagi's `failed_sessions`, over the raw table, without its window."""
    query = """
        SELECT count(*) FROM (SELECT DISTINCT
          CASE WHEN invocation_id IS NULL THEN 'session:' || id
               ELSE 'invocation:' || invocation_id END,
          CASE WHEN status_reason_code IS NULL THEN 'session:' || id
               ELSE 'reason:' || status_reason_code END
        FROM sessions WHERE status IN ('failed', 'timed_out') AND id NOT IN (%s))
    """
    apart = snap.entities.filter(snap.entities["recorded_by"].is_in(["mirrored", "imported"]))
    names = ", ".join(f"'{one}'" for one in apart["entity_id"]) or "''"
    with closing(sqlite3.connect(f"file:{snap.stores[0].copy}?mode=ro", uri=True)) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(sessions)")}
        for name in {"invocation_id", "status_reason_code"} - columns:
            query = query.replace(name, "NULL")
        return connection.execute(query % names).fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_page_of_every_store_is_whole(lionagi_samples, generation):
    whole = report(read(lionagi_samples / generation, as_of="2026-05-27"), window=EVER)
    page = Page(whole.as_html())
    assert len(page.all("h2")) >= 8
    assert not page.all("script")
    json.loads(whole.as_json())


def test_what_the_makers_call_silent_needs_attention(made):
    statuses, snap, whole = made
    listed = {one["entity_id"] for one in whole.summary["attention"]["open"]["items"]}
    assert listed <= set(snap.entities["entity_id"])
    running = {one for one in listed if statuses.get(one)}
    assert {statuses[one] for one in running} <= {"running"}


@pytest.mark.slow
def test_the_organic_home_is_reported_as_its_table_says(lionagi_samples):
    home = lionagi_samples / "organic-0.36.0" / "lionagi_home"
    snap = read(home)
    summary = report(snap, sections=["headline"]).summary
    with closing(sqlite3.connect(f"file:{snap.stores[0].copy}?mode=ro", uri=True)) as connection:
        stored = Counter(
            row[0] for row in connection.execute("SELECT status FROM sessions").fetchall()
        )
    expected = Counter()
    for status, n in stored.items():
        if status in ENDS:
            expected[ENDS[status]] += n
    assert counts_of(summary) == expected
    assert numbers(summary)["runs"]["n"] == sum(stored.values())


@pytest.mark.slow
def test_several_stores_at_once_are_one_report(lionagi_samples):
    paths = [lionagi_samples / name / "state.db" for name in FLEETS]

    def told(*paths):
        snap = read(*paths, as_of="2026-05-27")
        return report(snap, window=EVER, sections=["provenance"]).summary

    pooled, each = told(*paths), [told(path) for path in paths]
    assert len(pooled["provenance"]["sources"]) == len(paths)
    for name in ("runs", "completed", "timed_out", "incidents", "unresolved"):
        assert numbers(pooled)[name]["n"] == sum(numbers(one)[name]["n"] for one in each)


@pytest.mark.slow
def test_the_sample_is_reported_as_its_truth_says(demo):
    truth = pl.read_csv(ROOT / "data" / "samples" / "truth.csv", infer_schema=False)
    summary = report(demo, window=EVER, sections=["headline"]).summary
    sessions = demo.entities.filter(entity_type="session")
    sessions = sessions.join(truth, on=["entity_type", "entity_id"], how="left")
    kept = sessions.filter(
        ~pl.col("recorded_by").is_in(["mirrored", "imported"]).fill_null(False),
        pl.col("is_legacy") == "false",
        pl.coalesce("ended_at", "started_at", "created_at").is_not_null(),
    )
    ended = kept.filter(pl.col("outcome").is_not_null())
    still_open = kept.filter(pl.col("outcome").is_null())
    assert counts_of(summary) == dict(ended["outcome"].value_counts().iter_rows())
    assert numbers(summary)["unresolved"]["of"] == still_open.height
    in_trouble = still_open.filter(pl.col("severity").is_in(["critical", "warning"]))
    assert numbers(summary)["unresolved"]["n"] == in_trouble.height


def test_the_sample_week_names_the_one_wide_cause(demo_week):
    codes = {one["code"]: one for one in demo_week.summary["failures"]["codes"]}
    assert any(one["n_rows"] - one["n_incidents"] >= 20 for one in codes.values())


@pytest.mark.slow
def test_the_queries_of_the_appendix_run_and_give_the_same_numbers(demo, demo_week):
    snap, summary = demo, demo_week.summary
    asked = {one["title"]: "\n".join(one["lines"]) for one in summary["appendix"]["queries"]}
    ends = snap.sql(asked["How runs ended"])
    assert dict(ends.iter_rows()) == counts_of(summary)
    shares = snap.sql(asked["Completed and timed out, of the runs that ended"]).row(0, named=True)
    assert shares["n_completed"] == numbers(summary)["completed"]["n"]
    assert shares["n_timed_out"] == numbers(summary)["timed_out"]["n"]
    still_open = snap.sql(asked["Open runs, and those that need attention"]).row(0, named=True)
    assert still_open["n_unresolved"] == numbers(summary)["unresolved"]["n"]
    assert still_open["n_open"] == numbers(summary)["unresolved"]["of"]
    codes = snap.sql(asked["Failures by reason code"])
    assert codes["n_rows"].sum() == summary["failures"]["n_rows"]
    assert codes["cost_usd"].sum() > 0
    severity = snap.sql(asked["Severity by entity type"])
    shown = {
        (row["entity_type"], word): row[word]
        for row in summary["attention"]["by_type"]
        for word in ("critical", "warning", "info", "neutral")
        if row[word]
    }
    assert {row[:2]: row[2] for row in severity.iter_rows()} == shown
