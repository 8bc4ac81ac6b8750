"""One thing that several inputs tell is counted once, as it was last seen."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from tests.ao_trees import lifecycle, record, write_json
from tests.conftest import SHIPPED
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, change, listing, session, write_store

SAMPLE = SHIPPED["lionagi"]

DAY_S = 86_400


def told(snap: sa.Snapshot) -> dict[str, str | None]:
    """By the name of each input, the name of the one that tells its work."""
    return {
        Path(source).name: None if same_as is None else Path(same_as).name
        for source, same_as in snap.sources.select("source", "same_as").iter_rows()
    }


def codes(snap: sa.Snapshot) -> list[str]:
    found = snap.findings.filter(pl.col("code").str.starts_with("source."))["code"].to_list()
    return [code for code in found if not code.endswith("_not_read")]


def counts(snap: sa.Snapshot) -> tuple[int, int, int]:
    return snap.entities.height, snap.transitions.height, snap.events.height


SAMPLES = {
    "lionagi": "lionagi/0.36.0/state.db",
    "agent_orchestrator": "agent-orchestrator/v3_json_final_ts",
    "agent_orchestrator_database": "agent-orchestrator-go/ao.db",
    "opencode": "opencode/v2_20260717/opencode-local.db",
    "opencode_log": "opencode/synthetic/v2_edge_cases.jsonl",
}


@pytest.mark.slow
@pytest.mark.parametrize("sample", a_few(SAMPLES.values()), ids=list(SAMPLES))
def test_a_copy_under_another_name_is_counted_once(shared, tmp_path, sample):
    original = shared / "samples" / sample
    copy = tmp_path / original.name
    (shutil.copytree if original.is_dir() else shutil.copy)(original, copy)
    with sa.read(original) as alone, sa.read(original, copy) as both:
        assert counts(both) == counts(alone)
        assert codes(both) == ["source.same_content"]
        assert both.sources["same_as"].to_list() == [None, str(original)]
        assert both.sources["n_entities"].to_list() == [alone.entities.height, 0]
        assert [store.label for store in both.stores] == [store.label for store in alone.stores]
        severities = [sa.states(snap)["severity"].sort() for snap in (both, alone)]
        assert severities[0].equals(severities[1])


def sessions_at(day: int) -> list[dict]:
    """The sessions of a store after so many days: of each day one, the older ones pruned."""
    rows = []
    for i in range(max(0, day - 1), day + 1):
        at = NOW_S + i * DAY_S
        ended = {"status": "completed", "ended_at": at + 60} if i < day else {"ended_at": None}
        running = {"status": "running", "created_at": at, "started_at": at}
        rows.append(session(f"s{i}", **running | ended))
    return rows


def history_at(day: int) -> list[dict]:
    rows = []
    for i in range(day + 1):
        rows.append(change(f"s{i}", "running", NOW_S + i * DAY_S))
        if i < day:
            rows.append(change(f"s{i}", "completed", NOW_S + i * DAY_S + 60))
    return [row for row in rows if row["entity_id"] in {s["id"] for s in sessions_at(day)}]


def store_at(path: Path, day: int) -> Path:
    return write_store(path, sessions=sessions_at(day), status_transitions=history_at(day))


ORDERS = [pytest.param(order) for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0))]


@pytest.mark.slow
@pytest.mark.parametrize("order", a_few(ORDERS))
def test_of_backups_the_latest_row_holds_and_the_history_of_all(tmp_path, order):
    paths = [store_at(tmp_path / f"day{day}.db", day) for day in range(3)]
    with sa.read([paths[i] for i in order]) as snap:
        assert told(snap) == {"day0.db": "day2.db", "day1.db": "day2.db", "day2.db": None}
        entities = snap.entities.filter(entity_type="session").sort("entity_id")
        # The first was pruned since, so its last observation is the second backup's.
        statuses = dict(entities.select("entity_id", "raw_status").rows())
        assert statuses == {"s0": "completed", "s1": "completed", "s2": "running"}
        assert entities["source"].unique().to_list() == [str(paths[2])]
        changes = snap.transitions.sort("at").select("entity_id", "status").rows()
        both = [(name, status) for name in ("s0", "s1") for status in ("running", "completed")]
        assert changes == [*both, ("s2", "running")]
        assert codes(snap) == ["source.same_work", "source.same_work"]
        raw = snap.sql("SELECT id FROM raw_sessions ORDER BY id")
        assert raw["id"].to_list() == ["s1", "s2"]  # those of the latest


@pytest.mark.slow
def test_calls_of_a_store_and_its_backup_are_those_of_both(tmp_path):
    """They are read late, when the store of the earlier observation is closed."""
    paths = [tmp_path / name / "state.db" for name in ("backup", "now")]
    for path in paths:
        path.parent.mkdir()
        shutil.copy(SAMPLE, path)
    with closing(sqlite3.connect(paths[0])) as backup:
        last = "(SELECT id FROM sessions ORDER BY created_at DESC LIMIT 1)"
        backup.execute(f"DELETE FROM sessions WHERE id = {last}")
        backup.commit()
    with sa.read(SAMPLE) as alone, sa.read(paths) as both:
        assert both.sources["same_as"].null_count() == 1
        assert both.details["lionagi_calls"].height == alone.details["lionagi_calls"].height > 0
        assert sa.report(both).as_html()


def test_a_store_beside_its_migrated_self_is_counted_once(lionagi_samples):
    old = lionagi_samples / "0.26.12" / "state.db"
    new = lionagi_samples / "migrated-0.26.12-to-0.36.0" / "state.db"
    with sa.read(new) as alone, sa.read(old, new) as both:
        assert counts(both)[0] == counts(alone)[0]
        assert codes(both) == ["source.same_work"]
        severities = [sa.states(snap)["severity"].sort() for snap in (both, alone)]
        assert severities[0].equals(severities[1])


@pytest.mark.slow
def test_an_opencode_database_beside_its_export_is_counted_once(shared):
    folder = shared / "samples" / "opencode" / "v1_1.18.34"
    database, export = folder / "opencode.db", folder / "export_v1_mock-tool.json"
    with sa.read(database) as alone, sa.read(database, export) as both:
        assert counts(both)[0] == counts(alone)[0]
        assert codes(both) == ["source.same_work"]


def test_two_snapshots_of_one_directory_are_one_fleet(tmp_path):
    for name, state in (("monday", "working"), ("tuesday", "done")):
        later = {"lastTransitionAt": f"2026-05-0{4 + (state == 'done')}T10:00:00.000Z"}
        life = lifecycle(state, "research_complete" if state == "done" else "task_in_progress",
                         **later)  # fmt: skip
        write_json(tmp_path / name, "app-1", record(life))
    write_json(tmp_path / "monday", "app-2", record(lifecycle()))
    with sa.read(tmp_path / "monday", tmp_path / "tuesday") as snap:
        rows = snap.entities.sort("entity_id")
        assert rows.height == 2
        assert codes(snap) == ["source.same_work"]


def test_fleets_whose_ids_collide_are_told_apart_by_their_content(tmp_path):
    first = write_store(tmp_path / "a.db", sessions=[session("app-1"), session("app-2")])
    others = {"app-1": NOW_S - 999, "app-2": NOW_S - 998}
    rows = [session(name, created_at=at) for name, at in others.items()]
    second = write_store(tmp_path / "b.db", sessions=rows)
    with sa.read(first, second) as snap:
        assert snap.entities.filter(entity_type="session").height == 4
        assert codes(snap) == ["source.ids_collide", "source.ids_collide"]
        assert snap.sources["same_as"].to_list() == [None, None]


def test_two_equal_events_of_one_input_stay_two(tmp_path):
    changes = [change("a", "running", NOW_S), change("a", "running", NOW_S)]
    rows = {"sessions": [session("a")], "status_transitions": changes}
    first = write_store(tmp_path / "a.db", **rows)
    second = write_store(tmp_path / "b.db", **rows, shows=[{"id": "x", "created_at": NOW_S + 9}])
    with sa.read(first, second) as snap:
        assert snap.transitions.height == 2
        assert codes(snap) == ["source.same_work"]


def test_stores_without_rows_in_common_are_left_alone(tmp_path):
    first = write_store(tmp_path / "a.db", sessions=[session("a")])
    second = write_store(tmp_path / "b.db", sessions=[session("b")])
    empty = write_store(tmp_path / "c.db")
    with sa.read(first, second, empty) as snap:
        assert codes(snap) == []
        assert snap.sources["same_as"].null_count() == 3


def with_talk(path: Path, gone: tuple[str, ...] = ()) -> Path:
    """Two sessions of two messages each; what is pruned leaves its messages and its list."""
    names, text = ("s0", "s1"), {"content": "{}", "role": "assistant"}
    said = {f"{name}-{n}": NOW_S + n for name in names for n in range(2)} | {"of nobody": NOW_S}
    return write_store(
        path,
        sessions=[session(name) for name in names if name not in gone],
        progressions=[listing(f"list-{name}", [f"{name}-0", f"{name}-1"]) for name in names],
        messages=[{"id": name, "created_at": at, **text} for name, at in said.items()],
    )


@pytest.mark.slow
def test_messages_that_pruning_leaves_behind_are_told_by_their_session_alone(tmp_path):
    """A message that was nobody's all the time stays one, though it is like another."""
    before = with_talk(tmp_path / "before.db")
    after = with_talk(tmp_path / "state.db", gone=("s0",))
    with sa.read(before) as alone, sa.read(after) as left, sa.read(before, after) as both:
        assert alone.events["entity_id"].null_count() == 1
        assert left.events["entity_id"].null_count() == 3
        key = ["entity_id", "at"]
        assert both.events.select(key).sort(key).equals(alone.events.select(key).sort(key))


@pytest.mark.slow
def test_messages_that_pruning_leaves_behind_are_archived_once(tmp_path):
    store, n_new = tmp_path / "state.db", []
    for gone in ((), ("s0",), ("s0", "s1"), ("s0",)):
        store.unlink(missing_ok=True)
        with sa.read(with_talk(store, gone)) as snap:
            n_new += snap.archive(tmp_path / "history")["n_rows"].to_list()
    assert n_new[1:] == [0, 0, 0]
    kept = sa.read(tmp_path / "history")
    assert kept.entities.filter(entity_type="session").height == 2
    assert kept.events["entity_id"].sort().to_list() == [None, "s0", "s0", "s1", "s1"]
