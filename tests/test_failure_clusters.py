"""Clusters of failures: what is one, what it had cost, which comes first."""

import random

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.failure_rows import cluster_id
from stateanalytics.failures.frames import FAILURE_CLUSTERS, FAILURES
from tests.examples import a_few
from tests.failures import fan_out, run, store
from tests.frames import ago, facts
from tests.samples import SAMPLES

HOSTILE = {
    **{"empty": "", "binary": "\x00\x01", "long": "x" * 1_000_000, "placeholder": "<*>"},
    **{"script": "<script>alert(1)</script>", "escape": "\x1b]0;owned\x07", "pattern": "(?:["},
}
CODE = "run.failed.exception"


def clusters(*rows, **asked):
    return sa.failures.clusters(store(*rows), **asked)


def test_work_that_failed_twice_is_one_incident_and_a_completed_session_no_failed_run():
    """A session, the run of an engine that it was for, and a play whose session completed."""
    ended = {"raw_status": "failed", "started_at": ago(hours=3), "ended_at": ago(hours=2)}
    failed = facts(
        [
            ended | {"entity_id": "s", "reason_code": "run.failed.exception"},
            ended | {"entity_id": "e", "entity_type": "engine_run", "session_id": "s"},
            ended | {"entity_id": "w", "raw_status": "completed"},
            ended | {"entity_id": "p", "entity_type": "play", "session_id": "w",
                     "ended_at": ago(days=9), "started_at": ago(days=9)},
        ]
    )  # fmt: skip
    members = sa.failures.members(failed).sort("entity_id")
    assert members["entity_id"].to_list() == ["e", "p", "s"]
    assert members["incident_id"].null_count() == 1
    assert members.select(pl.coalesce("incident_id", "cause").n_unique()).item() == 2
    assert sa.failures.incidents(failed).is_empty()
    clusters = sa.failures.clusters(failed)
    assert clusters["n_sessions"].sum() == 1 and clusters["n_rows"].sum() == 3


def test_a_fan_out_of_one_rate_limit_is_one_cluster_and_one_cause():
    found = clusters(*fan_out(24))
    assert found.select("n_rows", "n_sessions", "n_causes", "rank").rows() == [(24, 24, 1, 1)]
    assert found["template"].item() == "API Error: 429 slow down, request <*>"
    assert found["meaning"].item() and found["what_to_do"].item()


def test_the_same_message_under_another_code_is_another_cluster():
    found = clusters(
        run("a", reason_code=CODE, reason_message="boom 1"),
        run("b", reason_code="run.failed.exit_nonzero", reason_message="boom 2"),
        run("c", reason_message="boom 3"),
    )
    assert found["template"].to_list() == ["boom <*>"] * 3
    assert found["template_id"].n_unique() == 1
    assert found["cluster_id"].n_unique() == 3
    assert found["code"].null_count() == 1


def test_rows_without_a_message_are_a_cluster_of_their_own_and_a_cause_each():
    found = clusters(run("a"), run("b"), run("c", reason_message="said"))
    silent = found.filter(pl.col("template").is_null())
    silent = silent.select("n_rows", "n_causes", "template_id", "example_newest")
    assert silent.rows() == [(2, 2, None, None)]


@pytest.mark.slow
def test_ids_are_those_of_code_and_template_whatever_the_window():
    rows = [
        run(str(i), reason_code=CODE, reason_message=f"login of {who} failed", ended=ago(days=i))
        for i, who in enumerate(("ada", "ben", "cyd", "dov", "eve"), 1)
    ]
    whole, week = clusters(*rows), clusters(*rows, window=(ago(days=2), None))
    assert whole["cluster_id"].to_list() == [cluster_id(CODE, "login of <*> failed")]
    assert week["cluster_id"].equals(whole["cluster_id"])
    assert week["n_rows"].to_list() == [2]


@pytest.mark.slow
def test_order_and_repetition_of_rows_never_matter():
    rows = [*fan_out(6), *(run(f"x{i}", reason_message=f"boom {i % 3}") for i in range(9))]
    shuffled = rows[:]
    random.Random(4).shuffle(shuffled)
    assert clusters(*shuffled).equals(clusters(*rows))


def test_every_piece_of_work_costs_once():
    session = run("s", reason_code=CODE, reason_message="x", n_input_tokens=5, cost_usd=2.0)
    play = run("p", status="escalated", entity_type="play", session_id="s", reason_code=CODE)
    play["reason_message"] = "x"
    invocation = run("i", entity_type="invocation", reason_code=CODE, reason_message="x")
    found = clusters(session, play, invocation).row(0, named=True)
    names = ("n_rows", "n_work", "run_s", "n_tokens", "cost_usd")
    assert [found[name] for name in names] == [3, 1, 600.0, 5, 2.0]


def test_what_was_not_reported_is_null_and_counted_never_zero():
    found = clusters(run("a", reason_message="x"), run("b", reason_message="x", cost_usd=3.0))
    assert found.select("cost_usd", "n_cost_unreported").rows() == [(3.0, 1)]
    found = clusters(run("a", reason_message="x"))
    assert found.select("cost_usd", "n_tokens", "n_cost_unreported").rows() == [(None, None, 1)]


def test_an_end_that_a_reaper_wrote_costs_only_up_to_the_last_message():
    late = {"end_written_by": "observer", "reason_message": "x"}
    spoke = run("a", **late) | {"last_message_at": ago(days=1, minutes=7)}
    silent = run("b", **late) | {"last_message_at": None}
    found = clusters(spoke, silent).row(0, named=True)
    assert (found["run_s"], found["n_run_unreported"]) == (180.0, 1)


@pytest.mark.slow
def test_clusters_and_lives_have_the_one_order_by_cost():
    said = {"reason_code": CODE}
    rows = [
        run("dear", reason_message="dear", cost_usd=100.0, ended=ago(days=5), **said),
        *(run(f"b{i}", reason_message="often", cost_usd=0.1, **said) for i in range(9)),
        run("long", reason_message="long", ended=ago(days=1), **said) | {"started_at": ago(days=3)},
        *(run(f"c{i}", reason_message="two", **said) for i in range(2)),
        run("d", reason_message="one", **said),
    ]
    snap = store(*rows)
    found = sa.failures.clusters(snap)
    assert found["rank"].to_list() == [1, 2, 3, 4, 5]
    assert found["template"].to_list() == ["dear", "often", "long", "two", "one"]
    assert sa.failures.life(snap)["cluster_id"].equals(found["cluster_id"])


def test_examples_are_the_shortest_the_median_and_the_newest():
    texts = ("boom 1", "boom 22", "boom 333", "boom 4444", "boom 55555")
    rows = [run(t, reason_message=t, ended=ago(days=9 - i)) for i, t in enumerate(texts)]
    found = clusters(*rows).row(0, named=True)
    shown = [found[f"example_{which}"] for which in ("shortest", "median", "newest")]
    assert shown == ["boom 1", "boom 333", "boom 55555"]


def test_a_trend_counts_every_row_once_in_equal_steps():
    rows = [run(str(i), reason_message="x", ended=ago(days=i / 2)) for i in range(1, 13)]
    found = clusters(*rows, window=(ago(days=7), None), nested=True).row(0, named=True)
    assert found["trend_step_s"] == 6 * 3600
    assert (len(found["trend"]), sum(found["trend"])) == (28, 12)


@pytest.mark.slow
def test_members_are_the_rows_behind_the_clusters():
    rows = [*fan_out(3), run("a", reason_message="x"), run("ok", status="completed")]
    members, found = sa.failures.members(store(*rows)), clusters(*rows)
    counts = members.group_by("cluster_id").len("n").join(found, on="cluster_id")
    assert counts["n"].sum() == 4
    assert (counts["n"] == counts["n_rows"]).all()
    assert members["failed_at"].is_sorted(descending=True)


def test_parameters_are_what_stood_in_the_holes():
    rows = [run(str(i), reason_message=f"job {i % 2} of /a/{i} died") for i in range(4)]
    found = sa.failures.parameters(store(*rows), n_values=1)
    found = found.select("position", "value", "n_rows", "share", "n_distinct").rows()
    assert found == [(1, "0", 2, 0.5, 2), (2, "/a/0", 1, 0.25, 4)]
    assert sa.failures.parameters(store(run("a", reason_message="plain -> plain"))).is_empty()
    with pytest.raises(ArgumentError, match="n_values needs a whole number from 1; found 0"):
        sa.failures.parameters(store(), n_values=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", a_few(HOSTILE, 2))
def test_no_message_breaks_anything(name):
    snap = store(*(run(one, reason_message=HOSTILE[name]) for one in "ab"))
    assert sa.failures.clusters(snap)["n_rows"].to_list() == [2]
    sa.failures.parameters(snap)
    sa.failures.incidents(snap)


def test_the_fan_out_of_the_sample_reads_as_one_cause(demo):
    truth = pl.read_csv(SAMPLES / "truth.csv", infer_schema=False)
    whose = truth.select("entity_type", "entity_id", "scenario", made_from="template_id")
    members = sa.failures.members(demo).join(whose, on=["entity_type", "entity_id"])
    sessions = members.filter(pl.col("entity_type") == "session")
    fan = sessions.filter(pl.col("scenario") == "fan_out_one_cause")
    assert fan.height == 24
    assert fan.select(pl.col("cluster_id", "cause", "incident_id").n_unique()).row(0) == (1, 1, 1)
    # One cluster never holds messages that were made from two templates.
    by_cluster = sessions.drop_nulls("made_from").group_by("cluster_id")
    made = by_cluster.agg(pl.col("made_from").n_unique())
    assert made.height > 15
    assert made["made_from"].to_list() == [1] * made.height


@pytest.mark.slow
def test_sql_gives_the_rows_behind_a_cluster(demo):
    top = sa.failures.clusters(demo).row(0, named=True)
    query = "SELECT entity_id FROM failures WHERE cluster_id = $id"
    members = sa.failures.members(demo).filter(cluster_id=top["cluster_id"])
    found = demo.sql(query, {"id": top["cluster_id"]})
    assert sorted(found["entity_id"]) == sorted(members["entity_id"])
    counts = demo.sql("FROM failure_clusters ORDER BY rank").row(0, named=True)
    assert (counts["cluster_id"], counts["n_rows"]) == (top["cluster_id"], top["n_rows"])


def test_frames_that_sql_can_name_have_the_columns_of_the_functions():
    snap = store(run("a"))
    assert set(FAILURES.dtypes) <= set(sa.failures.members(snap).columns)
    assert set(FAILURE_CLUSTERS.dtypes) <= set(sa.failures.clusters(snap).columns)
