"""What stood at an instant equals what a copy of the store that ends there says."""

import random
import shutil
from datetime import UTC, datetime

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from tests import cut_off_ao
from tests.conftest import ROOT
from tests.cut_off import cut_off, instants

DEMO = ROOT / "data" / "samples" / "state.db"


def test_a_copy_of_the_last_instant_is_the_store(demo, tmp_path):
    last_at = instants(DEMO)[-1]
    with sa.read(cut_off(DEMO, last_at, tmp_path / "state.db"), as_of=demo.as_of) as copy:
        for frame in ("transitions", "events"):
            whole = getattr(demo, frame).drop("source")
            assert getattr(copy, frame).drop("source").equals(whole)
        columns = ["entity_id", "raw_status", "started_at", "ended_at", "updated_at", "n_messages"]
        assert copy.entities.select(columns).equals(demo.entities.select(columns))


def test_a_copy_of_an_instant_holds_nothing_later(tmp_path):
    at = datetime(2026, 5, 21, 5, 59, tzinfo=UTC)
    store = cut_off(DEMO, at, tmp_path / "state.db")
    assert instants(store)[-1] <= at
    with sa.read(store, as_of=at) as copy:
        running = sa.states(copy).filter(entity_type="session", lifecycle="running")
        assert running.height == 7


# --- Agent Orchestrator ------------------------------------------------------------------

TREES = (
    *("v0_kv_pre_lifecycle", "v1_kv_statepayload", "v2_json", "v2_json_migrated_from_v0_v1"),
    "v3_json_final_ts",
)
STOOD = (
    *("kind", "parent_id", "n_children", "raw_status", "created_at", "started_at", "ended_at"),
    *("updated_at", "last_activity_at", "is_end_approximate", "end_written_by", "reason_code"),
    *("reason_message", "recorded_reasons", "evidence"),
)
OF_ITS_START = ("started_at", "last_activity_at", "age_s", "silence_s")
"""Without axes a record has no place for its start, which what is left of it still tells."""


def stood(facts):
    states = sa.states(facts).drop("source").rename({"reason_codes": "codes"})
    mine = facts.entities.select("entity_id", *STOOD)
    rows = states.join(mine, on="entity_id", validate="1:1").to_dicts()
    return {row["entity_id"]: row for row in rows}


def differences(then, cut):
    """Session and column to what the rewound facts and the copy say of it, where they differ."""
    known = {name: row for name, row in cut.items() if name in then}
    return {
        **{(name, "is there"): (name in then, name in cut) for name in then.keys() ^ cut.keys()},
        **{
            (name, column): (then[name][column], value)
            for name, row in known.items()
            for column, value in row.items()
            if then[name][column] != value
            and not (row["raw_status"] is None and column in OF_ITS_START)
        },
    }


def compare_at(facts, tree, moments, tmp_path):
    for number, at in enumerate(moments):
        copy = cut_off_ao.cut_off(tree, at, tmp_path / str(number))
        cut, stores = read_facts([copy], as_of=at, shown=False)
        assert not stores
        assert differences(stood(facts_at(facts, at).facts), stood(cut)) == {}, at
        shutil.rmtree(copy)


def whole_and_moments(samples, name):
    """The facts of a tree, and each instant at which something changed before its as-of."""
    tree = samples / name
    facts, _ = read_facts([tree], shown=False)
    return facts, tree, [at for at in cut_off_ao.instants(tree) if at < facts.as_of]


@pytest.fixture(scope="module")
def ao_samples(shared):
    return shared / "samples" / "agent-orchestrator"


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_at_a_moment_what_a_copy_cut_off_there_is(ao_samples, tmp_path, name):
    facts, tree, moments = whole_and_moments(ao_samples, name)
    compare_at(facts, tree, random.Random(name).sample(moments, 2), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_at_any_moment_what_a_copy_cut_off_there_is(ao_samples, tmp_path, name):
    facts, tree, moments = whole_and_moments(ao_samples, name)
    assert len(moments) >= 20
    compare_at(facts, tree, moments, tmp_path)


@pytest.mark.parametrize("name", TREES[1:])
def test_a_status_is_that_of_the_newest_transition_or_of_a_later_record(ao_samples, name):
    facts, _ = read_facts([ao_samples / name], shown=False)
    n_compared = 0
    for at in facts.transitions["at"].unique().sort().gather_every(9):
        past = facts_at(facts, at)
        before = facts.transitions.filter(pl.col("at") <= at).sort("at", "seq")
        newest = dict(before.group_by("entity_id", maintain_order=True).last().select(
            "entity_id", "status").rows())  # fmt: skip
        written = past.facts.entities.select("entity_id", "raw_status", "updated_at")
        for session, status, updated_at in written.iter_rows():
            changed_at = before.filter(entity_id=session)["at"].max()
            if session in newest and updated_at == changed_at:
                # A merged session is put away by a kill, which is no transition.
                assert status in (newest[session], "cleanup"), (at, session)
                n_compared += 1
    assert n_compared >= 10


def compare_go_at(facts, store, moments, tmp_path):
    for number, at in enumerate(moments):
        copy = cut_off_ao.cut_off_go(store, at, tmp_path / f"{number}.db")
        cut, stores = read_facts([copy], as_of=at, shown=False)
        for opened in stores:
            opened.close()
        then = stood(facts_at(facts, at).facts)
        # The log names every pull request, but not which of several the row showed.
        wrong = {key for key in differences(then, stood(cut)) if key[1] != "evidence"}
        assert wrong == set(), at


@pytest.fixture(scope="module")
def go_facts(shared):
    store = shared / "samples" / "agent-orchestrator-go" / "ao.db"
    facts, stores = read_facts([store], shown=False)
    for opened in stores:
        opened.close()
    return facts, store, [at for at in cut_off_ao.instants_of_go(store) if at < facts.as_of]


def test_the_go_rewrite_is_at_a_moment_what_a_copy_cut_off_there_is(go_facts, tmp_path):
    facts, store, moments = go_facts
    compare_go_at(facts, store, random.Random(12).sample(moments, 3), tmp_path)


@pytest.mark.slow
def test_the_go_rewrite_is_at_any_moment_what_a_copy_cut_off_there_is(go_facts, tmp_path):
    facts, store, moments = go_facts
    assert len(moments) >= 30
    compare_go_at(facts, store, moments, tmp_path)
