"""What stood at an instant equals what a copy of the store that ends there says."""

import random
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.core.facts import changed_facts
from stateanalytics.systems.history import facts_at, rewound
from stateanalytics.systems.reading import read_facts
from tests import cut_off_ao
from tests.conftest import ROOT, SHARED
from tests.cut_off import cut_off, instants
from tests.examples import a_few
from tests.lionagi_stores import wrote

DEMO = ROOT / "data" / "samples" / "state.db"
STORES = [
    DEMO,
    *(
        SHARED / "samples" / "lionagi" / folder / "state.db"
        for folder in (
            *("0.26.0", "0.26.12", "0.29.1", "0.36.0", "migrated-0.26.12-to-0.36.0"),
            "organic-0.36.0/lionagi_home",
        )
    ),
]
KEY = ["entity_type", "entity_id"]
BESIDE = ("timeout_s", "timeout_from", "directory", "starts")
"""Told by run directories, which a copy of the file alone does not have."""
DETAILS = {"lionagi_schedules", "lionagi_dispositions", "lionagi_decisions"}
SLICES = 20

EACH = [pytest.param(store, id=store.parent.name) for store in STORES]
each_store = pytest.mark.parametrize("store", EACH)
some_stores = pytest.mark.parametrize("store", a_few(EACH))
AT = datetime(2026, 5, 21, 5, 59, tzinfo=UTC)
"""An instant of the shipped sample at which seven sessions ran."""


@pytest.fixture(scope="module")
def said_then():
    """The shipped sample as it was told to stand at that instant."""
    with sa.read(DEMO, as_of=AT) as said:
        yield said


def proven(store, whole):
    """The instants up to the newest that is proven: a later one is a clock that ran ahead."""
    return [at for at in instants(store) if at < whole.as_of]


def at_hand(store):
    if not store.exists():
        pytest.skip("the folder ../shared is not here")
    return store


def differing(truth, said, but=()):
    """The columns in which two frames differ, and how many rows do."""
    both = truth.join(said, on=KEY, how="full", suffix="_said", coalesce=True)
    names = [name for name in truth.columns if name not in ("source", *KEY, *but)]
    counts = both.select(
        pl.col(name).ne_missing(pl.col(f"{name}_said")).sum().alias(name) for name in names
    )
    there = {"rows": abs(truth.height - said.height)}
    return {name: n for name, n in {**there, **counts.row(0, named=True)}.items() if n}


def listed(frame, but=("source",)):
    return frame.drop(but).sort(pl.all(), nulls_last=True)


def read_by_rules(facts):
    """The columns that rules may read, of which equal ones give equal states and reasons."""
    of_branches = pl.when(pl.col("entity_type") != "branch").then("n_messages")
    return facts.entities.drop("source", *BESIDE).with_columns(n_messages=of_branches)


def check(copy, said, *, is_judged=True):
    """All that may be asked of an instant: states, reasons, attention, rows and history.

    Rules are tables over a row and its neighbours: where all rows are equal they need not be
    asked twice (``is_judged``), which makes every instant a matter of half an hour.
    """
    if is_judged or not read_by_rules(copy).equals(read_by_rules(said)):
        states, states_said = sa.states(copy), sa.states(said)
        assert differing(states, states_said) == {}
        reasons, reasons_said = sa.reasons(copy), sa.reasons(said)
        assert listed(reasons).equals(listed(reasons_said))
    # What nobody called approximate is exact, whether that is written as no or not at all.
    is_guess = pl.col("is_end_approximate").fill_null(value=False)
    entities, entities_copied = (f.entities.with_columns(is_guess) for f in (said, copy))
    unknown = pl.col("n_messages").is_null()
    # Events do not say which of several branches a message was of.
    uncounted = entities.filter((pl.col("entity_type") == "branch") & unknown)
    told = entities_copied.join(uncounted, on=KEY, how="anti")
    others = entities.join(uncounted, on=KEY, how="anti")
    assert differing(told, others, BESIDE) == {}
    assert differing(entities_copied, entities, (*BESIDE, "n_messages")) == {}
    for name in ("transitions", "events"):
        of_copy, of_said = (getattr(facts, name).drop("source") for facts in (copy, said))
        assert of_copy.equals(of_said), name
    for name in DETAILS & set(copy.details):
        assert listed(copy.details[name]).equals(listed(said.details[name])), name


@some_stores
def test_states_of_an_instant_are_those_of_a_copy_cut_off_there(store, tmp_path):
    with sa.read(at_hand(store)) as whole:
        every = proven(store, whole)
    for i, at in enumerate(random.Random(12).sample(every, 1)):
        with (
            sa.read(cut_off(store, at, tmp_path / f"{i}.db"), as_of=at) as copy,
            sa.read(store, as_of=at) as said,
        ):
            check(copy, said)
            assert sa.attention(copy).drop("source").equals(sa.attention(said).drop("source"))


def check_all(store, whole, moments, folder, *, is_judged=True):
    for at in moments:
        path = folder / "state.db"
        path.unlink(missing_ok=True)
        with sa.read(cut_off(store, at, path), as_of=at) as copy:
            check(copy, rewound(whole, at).facts, is_judged=is_judged)


@pytest.mark.slow
@each_store
def test_many_instants_of_every_store(store, tmp_path):
    with sa.read(at_hand(store)) as whole:
        every = proven(store, whole)
        check_all(store, whole, random.Random(7).sample(every, min(16, len(every))), tmp_path)


@pytest.mark.instants
@pytest.mark.parametrize("part", range(SLICES))
@each_store
def test_every_instant_of_every_store(store, part, tmp_path):
    with sa.read(at_hand(store)) as whole:
        check_all(store, whole, proven(store, whole)[part::SLICES], tmp_path, is_judged=False)


@pytest.mark.slow
def test_what_a_reaper_wrote_later_was_running(said_then, tmp_path):
    """Seven sessions ran at 05:59; the reaper of 07:05 wrote earlier ends for six of them."""
    store = cut_off(DEMO, AT, tmp_path / "state.db")
    assert instants(store)[-1] <= AT
    with sa.read(store, as_of=AT) as copy:
        running = sa.states(copy).filter(entity_type="session", lifecycle="running")
        assert running.height == 7
        check(copy, said_then)


@pytest.mark.slow
def test_an_end_before_work_went_on_is_exact_though_its_last_one_was_estimated(tmp_path):
    """A session timed out at 08:30, was resumed at 09:10 and ended at 09:56."""
    at, store = datetime(2026, 5, 20, 9, tzinfo=UTC), tmp_path / "whole.db"
    shutil.copy(DEMO, store)
    resumed = "d9e5d22c-3861-4c7a-8adc-3edda7d52f6e"
    wrote(store, f"UPDATE sessions SET ended_at_is_approximate = 1 WHERE id = '{resumed}'")
    copied = cut_off(store, at, tmp_path / "copy.db")
    with sa.read(copied, as_of=at) as copy, sa.read(store, as_of=at) as said:
        (ended,) = said.entities.filter(entity_type="session", entity_id=resumed).to_dicts()
        assert ended["ended_at"] < at
        assert not ended["is_end_approximate"]
        check(copy, said)


def test_a_branch_that_is_older_than_its_session_knew_nothing_of_it(tmp_path):
    """A writer makes the branch's row first; its session's follows some microseconds later."""
    at, store = datetime(2026, 5, 20, 9, tzinfo=UTC), tmp_path / "whole.db"
    shutil.copy(DEMO, store)
    with closing(sqlite3.connect(store)) as db, db:
        branch, session = db.execute(
            "SELECT b.id, s.id FROM branches b JOIN sessions s ON s.id = b.session_id"
            " WHERE b.created_at < ? AND s.invocation_kind IS NOT NULL LIMIT 1", (at.timestamp(),)
        ).fetchone()  # fmt: skip
        db.execute(
            "UPDATE sessions SET created_at = ?, started_at = ? WHERE id = ?",
            (at.timestamp() + 60, at.timestamp() + 60, session),
        )
    with sa.read(store, as_of=at) as said:
        assert said.entities.filter(entity_id=session).is_empty()
        row = said.entities.row(by_predicate=pl.col("entity_id") == branch, named=True)
        told = ("kind", "project", "run_id", "invocation_id", "recorded_by")
        assert {row[name] for name in told} == {None}
        assert row["session_id"] == session


@pytest.mark.slow
def test_decisions_of_an_archive_without_their_frame_are_told_by_events():
    """An earlier version archived the events of decisions alone."""
    acknowledged_at = datetime.fromtimestamp(1_779_835_150, UTC)  # and snoozed a minute later
    store = at_hand(SHARED / "samples" / "lionagi" / "0.36.0" / "state.db")
    with sa.read(store) as snap:
        old = {name: frame for name, frame in snap.details.items() if name != "lionagi_decisions"}
        for facts, status in ((snap, "failed"), (changed_facts(snap, details=old), None)):
            then = facts_at(facts, acknowledged_at).facts.detail("lionagi_dispositions")
            (told,) = then.select("state", "source_status").rows()
            assert told == ("acknowledged", status)


def test_a_copy_of_the_last_instant_is_the_store(demo, tmp_path):
    last_at = instants(DEMO)[-1]
    with sa.read(cut_off(DEMO, last_at, tmp_path / "state.db"), as_of=demo.as_of) as copy:
        for frame in ("transitions", "events"):
            whole = getattr(demo, frame).drop("source")
            assert getattr(copy, frame).drop("source").equals(whole)
        columns = ["entity_id", "raw_status", "started_at", "ended_at", "updated_at", "n_messages"]
        assert copy.entities.select(columns).equals(demo.entities.select(columns))


@some_stores
def test_an_instant_after_everything_changes_nothing(store):
    with sa.read(at_hand(store)) as whole:
        last_at = whole.as_of
        for at in (last_at, last_at + timedelta(days=400)):
            same = rewound(whole, at)
            assert same.facts.entities.equals(whole.entities)
            assert same.facts.events.equals(whole.events)
            assert not same.lost.select(pl.any_horizontal(pl.all())).to_series().any()


def test_what_nobody_recorded_is_null_and_said_per_column(demo, said_then):
    found = said_then.findings.filter(code="time.not_recorded")
    assert found["entity_id"].null_count() == found.height
    n_by_column = dict(found.select("column", "n_rows").rows())
    now = demo.entities.filter(pl.coalesce("created_at", "started_at") <= AT)
    n_written_later = now.filter(pl.col("updated_at") > AT).height
    assert n_by_column["updated_at"] == n_written_later
    assert said_then.entities["updated_at"].max() <= AT
    assert set(n_by_column) <= set(schema.ENTITIES.dtypes)


def test_nothing_of_an_instant_lies_after_it(demo):
    plans = ("due_at", "expires_at", "next_fire_at")
    past = rewound(demo, AT).facts
    frames = {"entities": past.entities, "transitions": past.transitions, "events": past.events}
    for name, frame in {**frames, **past.details}.items():
        for column, dtype in frame.schema.items():
            if dtype == schema.MOMENT and column not in plans:
                assert (frame[column].max() or AT) <= AT, (name, column)


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


@pytest.mark.parametrize("name", a_few(TREES[1:], 0))
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


MANY_OR_ALL = [
    pytest.param(10, marks=pytest.mark.slow),
    pytest.param(None, marks=pytest.mark.instants),
]


@pytest.mark.parametrize("n", MANY_OR_ALL)
@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_at_any_moment_what_a_copy_cut_off_there_is(ao_samples, tmp_path, name, n):
    facts, tree, moments = whole_and_moments(ao_samples, name)
    assert len(moments) >= 20
    compare_at(facts, tree, random.Random(7).sample(moments, n) if n else moments, tmp_path)


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


@pytest.mark.parametrize("n", MANY_OR_ALL)
def test_the_go_rewrite_is_at_any_moment_what_a_copy_cut_off_there_is(go_facts, tmp_path, n):
    facts, store, moments = go_facts
    assert len(moments) >= 30
    compare_go_at(facts, store, random.Random(12).sample(moments, n) if n else moments, tmp_path)
