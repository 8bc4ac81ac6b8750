"""One state engine: a bare frame tells every system's states, the same on every engine."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import pool
from tests.conftest import ROOT, SHIPPED
from tests.engines import (
    DUCKDB,
    SPARK,
    Engine,
    assert_same_rows,
    on_every_engine,
    on_every_engine_in_time,
    spark,
)
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, session, write_store

TWO = ("lionagi/0.36.0", "opencode/v2_20260717/opencode-local.db")
OTHERS = (
    *("agent-orchestrator/v0_kv_pre_lifecycle", "agent-orchestrator/v2_json_migrated_from_v0_v1"),
    *("agent-orchestrator/v3_json_final_ts", "agent-orchestrator-go/ao.db"),
    *("opencode/v1_1.18.34/opencode.db", "opencode/synthetic/v2_edge_cases.jsonl"),
)
SHARED = (TWO, *((sample,) for sample in (*TWO, *OTHERS)))


@pytest.fixture(scope="module")
def fleet() -> sa.Snapshot:
    """The samples of all systems, as one snapshot."""
    return sa.read(*SHIPPED.values(), progress=False)


def _in_utc(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("evaluated_at").dt.convert_time_zone("UTC"))


@pytest.mark.slow
@on_every_engine
def test_a_bare_frame_gives_the_states_of_the_snapshot(fleet: sa.Snapshot, engine: Engine) -> None:
    found = engine.back(sa.states(engine.of(fleet.entities), as_of=fleet.as_of))
    assert_same_rows(_in_utc(found), sa.states(fleet))


@on_every_engine_in_time
def test_a_bare_frame_gives_the_reasons_of_the_snapshot(fleet: sa.Snapshot, engine: Engine) -> None:
    found = engine.back(sa.reasons(engine.of(fleet.entities), as_of=fleet.as_of))
    assert_same_rows(found, sa.reasons(fleet))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples of all systems in an archive, and a store that was archived twice, compacted."""
    folder = tmp_path_factory.mktemp("archived")
    store = write_store(folder / "own.db", sessions=[session("a"), session("b")])
    sa.collect([*SHIPPED.values(), store], folder / "history")
    store.unlink()
    later = {"status": "failed", "updated_at": NOW_S}
    write_store(store, sessions=[session("a", **later), session("b")])
    sa.collect(store, folder / "history", compact=True)
    return folder


def _as_the_page_says(fence: str, number: int, folder: Path, **scope: object) -> dict[str, object]:
    """What a piece of the page on fleets leaves behind, run beside an archive."""
    blocks = re.findall(rf"```{fence}\n(.*?)```", (ROOT / "docs" / "fleet.md").read_text(), re.S)
    exec(blocks[number].replace("history/", f"{folder}/history/"), scope)
    return scope


def _assert_those_of_polars(found: object, name: str, engine: Engine, folder: Path) -> None:
    with sa.read(folder / "history", progress=False) as snap:
        entities = snap.entities
    assert set(entities["system"]) == set(SHIPPED)
    expected = getattr(sa, name)(entities, as_of="2026-05-25T06:00Z")
    rows = engine.back(found)
    assert_same_rows(_in_utc(rows) if name == "states" else rows, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["states", "reasons"])
def test_duckdb_on_an_archive_as_the_page_says(history: Path, name: str) -> None:
    scope = _as_the_page_says("python", 1, history)
    _assert_those_of_polars(scope[name], name, DUCKDB, history)


@pytest.fixture(scope="module")
def on_spark(history: Path) -> dict[str, object]:
    return _as_the_page_says("py", 0, history, spark=spark(), sa=sa)


@pytest.mark.spark
@pytest.mark.parametrize("name", ["states", "reasons"])
def test_spark_on_an_archive_as_the_page_says(history: Path, on_spark: dict, name: str) -> None:
    _assert_those_of_polars(on_spark[name], name, SPARK, history)


def test_no_system_of_the_samples_is_unknown_to_a_bare_frame(fleet: sa.Snapshot) -> None:
    states = sa.states(fleet.entities, as_of=fleet.as_of)
    known = states.group_by("system").agg((pl.col("lifecycle") != "unknown").mean())
    shares = dict(known.rows())
    assert set(shares) == set(SHIPPED)
    assert min(shares.values()) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("samples", a_few([pytest.param(each) for each in SHARED]))
def test_details_tell_the_rules_nothing(shared: Path, samples: tuple[str, ...]) -> None:
    snap = sa.read(*(shared / "samples" / sample for sample in samples), progress=False)
    for as_of in (snap.as_of, snap.as_of + timedelta(minutes=20), snap.as_of + timedelta(days=2)):
        moved = Facts(
            entities=snap.entities,
            **{name: pool([], schema.FRAMES[name]) for name in ("transitions", "events")},
            **{name: pool([], schema.FRAMES[name]) for name in ("findings", "sources")},
            as_of=as_of,
            details=snap.details,
        )
        assert_frame_equal(sa.states(snap.entities, as_of=as_of), sa.states(moved))
        assert_frame_equal(sa.reasons(snap.entities, as_of=as_of), sa.reasons(moved))


ROW = {"source": "log", "system": "opencode", "entity_type": "execution", "entity_id": "e1"}
ROW |= {"recorded_lifecycle": "running"}
AS_OF = "2026-05-27T00:00Z"


def _state(**row: object) -> dict:
    plain = {**dict.fromkeys(schema.ENTITIES.dtypes), **ROW, **row}
    entities = pl.DataFrame([plain], schema=schema.ENTITIES.dtypes)
    return sa.states(entities, as_of=AS_OF).row(0, named=True)


def test_a_recorded_pair_that_makes_no_sense_is_unknown() -> None:
    state = _state(recorded_lifecycle="running", recorded_outcome="failed")
    assert (state["lifecycle"], state["outcome"]) == ("unknown", "unknown")


def test_a_recorded_lifecycle_without_a_health_is_judged_by_its_silence() -> None:
    own = {"system": "another", "entity_type": "session", "has_artifacts": True}
    state = _state(**own, last_activity_at=_seconds_ago(23 * 3600))
    assert (state["health"], state["reason_codes"]) == ("stalled", "run.health.stalled")


def test_none_is_an_axis_that_does_not_apply() -> None:
    state = _state(recorded_health="none", recorded_delivery="none")
    assert (state["health"], state["delivery"]) == (None, None)


def test_recorded_words_go_before_the_rules() -> None:
    recorded = {"recorded_health": "disconnected", "recorded_delivery": "partial"}
    state = _state(entity_type="session", **recorded)
    assert (state["health"], state["delivery"]) == ("disconnected", "partial")
    assert state["reason_codes"] is None


OPEN = {"last_sign_at": None, "n_running": 0, "n_questions": 0}


def _seconds_ago(seconds: float) -> datetime:
    return datetime(2026, 5, 27, tzinfo=UTC) - timedelta(seconds=seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("facts", "health", "code"),
    [
        ({"last_sign_at": 599}, "running", None),
        ({"last_sign_at": 600}, "stalled", "stalled"),
        ({"last_sign_at": 3600}, "process_dead", "process_dead"),
        ({"last_sign_at": 3600, "is_resume_claimed": True}, "stalled", "stalled"),
        ({"last_sign_at": 3599, "n_running": 1}, "running", None),
        ({"last_sign_at": 3600, "n_running": 1}, "stalled", "stalled"),
        ({"last_sign_at": 700, "patience_s": 701.0}, "running", None),
        ({"last_sign_at": 90, "patience_s": 90.0}, "stalled", "stalled"),
        ({"last_sign_at": 9999, "n_questions": 1}, "idle", "awaiting_permission"),
        ({"n_unknown_finishes": 9}, "running", None),
        ({"n_unknown_finishes": 10}, "degraded", "runaway_steps"),
        ({"due_at": 60, "retry_code": "run.health.x"}, "degraded", "retry_scheduled"),
        ({"due_at": 61, "retry_code": "run.health.x"}, "stalled", "retry_overdue"),
        ({"recorded_health": "ok", "last_sign_at": 9999}, "ok", None),
    ],
)
def test_open_work_is_judged_by_the_limits_of_its_system(
    facts: dict, health: str, code: str | None
) -> None:
    ages = ("last_sign_at", "due_at")
    moments = {name: _seconds_ago(facts[name]) for name in ages if name in facts}
    state = _state(**OPEN | facts | moments)
    codes = {"retry_scheduled": "run.health.retry_scheduled, run.health.x"}
    assert state["health"] == health
    assert state["reason_codes"] == codes.get(code or "", code and f"run.health.{code}")


def test_reasons_follow_what_was_recorded_and_say_how_they_are_known() -> None:
    recorded = '[{"dimension":"lifecycle","code":"run.x.y","message":"m","claim_status":"observed",'
    row = ROW | {
        "recorded_reason_codes": "run.x.y",
        "recorded_reasons": recorded + '"confidence":0.7,"evidence":null}]',
        "retry_code": "run.health.z",
        "n_unknown_finishes": 12,
    }
    plain = dict.fromkeys(schema.ENTITIES.dtypes) | row
    entities = pl.DataFrame([plain], schema=schema.ENTITIES.dtypes)
    found = sa.reasons(entities, as_of=AS_OF).sort("order")
    assert found.select("order", "code", "claim_status", "confidence").rows() == [
        (0, "run.x.y", "observed", 0.7),
        (1, "run.health.retry_scheduled", "observed", 1.0),
        (2, "run.health.z", "observed", 1.0),
        (3, "run.health.runaway_steps", "inferred", 0.8),
    ]
    states = sa.states(entities, as_of=AS_OF)
    assert states["reason_codes"].item() == ", ".join(found["code"])
