"""What stood at an instant equals what a copy of the store that ends there says."""

from datetime import UTC, datetime

import stateanalytics as sa
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
