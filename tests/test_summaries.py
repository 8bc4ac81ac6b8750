"""A fleet, counted store by store: merged equals read at once."""

import functools
import itertools
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.core.windows import read_moment
from stateanalytics.demo_data import demo_path
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.summaries import Summary, merge, summarize

AS_OF = "2026-11-22"
FRAMES = ("sources", "states", "spells", "silences", "detections", "templates")


@pytest.fixture(scope="module")
def paths(shared_samples):
    return [
        demo_path() / "state.db",
        shared_samples / "lionagi/0.36.0",
        shared_samples / "opencode/v2_20260717",
        shared_samples / "agent-orchestrator/v2_json",
    ]


@pytest.fixture(scope="module")
def shared_samples(request):
    return request.getfixturevalue("shared") / "samples"


@pytest.fixture(scope="module")
def parts(paths):
    return [summarize(path, as_of=AS_OF) for path in paths]


@pytest.fixture(scope="module")
def pooled(paths):
    return sa.read(*paths, as_of=AS_OF, progress=False)


def assert_same(one: Summary, other: Summary) -> None:
    for name in FRAMES:
        assert getattr(one, name).equals(getattr(other, name)), name
    assert (one.as_of, one.policy) == (other.as_of, other.policy)


def test_merged_equals_read_at_once(parts, pooled):
    assert_same(merge(parts), summarize(pooled))


def test_the_order_and_grouping_of_parts_do_not_matter(parts):
    everything = merge(parts)
    for some in itertools.islice(itertools.permutations(parts), 0, 24, 7):
        assert_same(merge(some), everything)
    assert_same(merge([merge(parts[2:]), merge(parts[:2])]), everything)


@pytest.mark.slow
def test_processes_count_and_send_their_counts_back(paths, parts):
    count = functools.partial(sa.summarize, as_of=AS_OF, policy=sa.Policy.v1())
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        [found] = executor.map(count, paths[2:3])
    assert_same(found, parts[2])


def test_a_summary_is_small_and_holds_no_message(parts):
    sent = pickle.dumps(parts[0])
    assert len(sent) < 500_000
    assert "example" not in parts[0].templates.columns


def test_states_are_counted(parts, pooled):
    counted = merge(parts).states
    assert counted["n"].sum() == pooled.entities.height
    failed = sa.states(pooled).filter(severity="critical").height
    assert counted.filter(severity="critical")["n"].sum() == failed


def test_curves_of_a_fleet_are_those_of_its_runs(parts, pooled):
    runs = sa.survival.spells(pooled).with_columns(pl.col("duration_s").ceil())
    expected = sa.survival.kaplan_meier(runs, by=["system", "kind"])
    assert sa.survival.kaplan_meier(merge(parts).runs(), by=["system", "kind"]).equals(expected)


def test_quality_of_service_of_a_fleet_is_that_of_its_silences(parts, pooled):
    expected = sa.detectors.quality_of_service(pooled, by=["system", "kind"])
    assert sa.detectors.quality_of_service(merge(parts).silences).equals(expected)


@pytest.mark.slow
def test_agreement_of_a_fleet_is_that_of_its_detections(parts, pooled):
    expected = sa.detectors.agreement(sa.detectors.detect(pooled), n_resamples=0).pairs.filter(
        pl.col("n") > 0
    )
    found = merge(parts).agreement()
    cells = ["n", "n_both", "n_only_a", "n_only_b", "n_neither", "kappa", "ac1", "pabak"]

    def by_pair(pairs):
        return {
            frozenset((row["a"], row["b"])): {
                row["a"]: row["n_only_a"], row["b"]: row["n_only_b"],
                **{name: row[name] for name in cells if "only" not in name},
            }
            for row in pairs.iter_rows(named=True)
        }  # fmt: skip

    assert by_pair(found) == by_pair(expected)


def test_failures_of_a_fleet_have_the_templates_of_all_stores(parts, pooled):
    members = sa.failures.members(pooled)
    expected = members.group_by("code", "template").agg(n_rows=pl.len().cast(pl.Int64))
    found = merge(parts).failures()
    keys = ["code", "template"]
    assert found.select(*keys, "n_rows").sort(keys).equals(expected.sort(keys))
    assert found["n_rows"].is_sorted(descending=True)


def test_a_store_without_anything_adds_nothing(parts):
    empty = {shape.name: shape.empty() for shape in schema.FACTS}
    nothing = summarize(sa.Snapshot(**empty, as_of=read_moment(AS_OF)))
    assert nothing.runs().is_empty()
    assert nothing.agreement().is_empty()
    assert nothing.failures().is_empty()
    merged = merge([parts[0], nothing])
    for name in FRAMES[1:]:
        assert getattr(merged, name).equals(getattr(merge(parts[:1]), name)), name


def test_it_says_what_it_holds_and_what_to_do_next(parts):
    assert repr(merge(parts)).startswith("Summary as of 2026-11-22 00:00 UTC, policy v1: ")
    assert "4 inputs" in repr(merge(parts))
    assert "1 input\n" in repr(parts[0])
    hostile = replace(parts[0], policy="<b>\n\x1b[31m")
    assert "&lt;b&gt;" in hostile._repr_html_()
    assert "\x1b" not in repr(hostile)


def test_summaries_that_do_not_fit_together_are_refused(parts):
    with pytest.raises(ArgumentError, match="at least one summary; found none"):
        merge([])
    earlier = replace(parts[1], as_of=read_moment("2026-11-21T12:00"))
    with pytest.raises(ArgumentError, match="summaries of one as_of; found 2026-11-21"):
        merge([parts[0], earlier])
    with pytest.raises(ArgumentError, match="summaries of one policy; found adr0025, v1"):
        merge([parts[0], replace(parts[1], policy="adr0025")])
    with pytest.raises(ArgumentError, match="by the same columns"):
        merge([parts[0], replace(parts[1], spells=parts[1].spells.drop("kind"))])
    with pytest.raises(ArgumentError, match=r"same data is in more than one summary: .*state\.db"):
        merge([parts[0], parts[0]])


def test_arguments_that_make_no_sense_are_refused(pooled):
    with pytest.raises(ArgumentError, match="A snapshot has its own as-of"):
        summarize(pooled, as_of=AS_OF)
    with pytest.raises(MissingColumnsError, match="summarize needs columns"):
        summarize(pooled, by=["colour"])
