"""What opencode shows of an instant equals what a copy that ends there says."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.opencode.record_frames import RECORDS
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT, SHARED
from tests.cut_off_opencode import cut_off, instants
from tests.examples import a_few
from tests.opencode_logs import T0, event, facts_of, read_once, step, write

SHIPPED = ROOT / "data" / "samples" / "opencode" / "events_july_2026.jsonl"
CAPTURES = SHARED / "samples" / "opencode"
DATABASES = ("v2_20260717/opencode-local.db", "v1_1.18.34/opencode.db")
OTHERS = (
    "synthetic/v2_edge_cases.jsonl", "synthetic/v2_edge_cases_shuffled_dups.jsonl",
    "v1_1.18.34/event_table.jsonl", "v1_1.18.34/export_v1_mock-tool.json",
    "v1_1.18.34/run_json_mock-filter.jsonl", "v1_1.18.34/run_json_mock-tool.jsonl",
    "v1_1.18.34/sse_event.jsonl", "v1_1.18.34/sse_global_event_head400.jsonl",
    "v2_2.0.16_wire/failure.jsonl", "v2_20260717/event_table.jsonl",
    "v2_20260717/run_v2_mock-401.jsonl", "v2_20260717/run_v2_mock-tool.jsonl",
    "v2_20260717/session_log/ses_e048f31f5ffeCAACEMIuIE3MbB.sse",
    "v2_20260717/sse_api_event.jsonl",
)  # fmt: skip
SAMPLES = (*DATABASES, *OTHERS)
CHUNKS = 8


def sample(name: str) -> Path:
    path = SHIPPED if name == "shipped" else CAPTURES / name
    if not path.exists():
        pytest.skip("the folder ../shared is not here")
    return path


def moments_of(facts: Facts, path: Path) -> list[datetime]:
    """What a sample names between its first row and its own instant."""
    born = pl.min_horizontal("created_at", "started_at")
    first = facts.entities.select(born.min()).item()
    return [at for at in instants(path) if first <= at < facts.as_of]


def told(facts: Facts) -> dict[str, pl.DataFrame]:
    """All that is said of an instant, but the records that it is folded from."""
    records = {frame.name for frame in RECORDS}
    frames = {
        "states": sa.states(facts),
        "reasons": sa.reasons(facts),
        **{name: getattr(facts, name) for name in ("entities", "transitions", "events")},
        **{name: frame for name, frame in facts.details.items() if name not in records},
    }
    # Which inputs wait is a table of the present; where a copy lies is not of the work.
    bare = {
        name: frame.drop("source", "is_stored_pending", strict=False)
        for name, frame in frames.items()
    }
    return {name: frame.sort(pl.all(), nulls_last=True) for name, frame in bare.items()}


def differences(facts: Facts, path: Path, at: datetime, folder: Path) -> list[str]:
    """Frames and columns in which the past differs from a copy that ends there."""
    copy = cut_off(path, at, folder / path.name)
    # A line may tell of work that began before the first line was written: no file was there.
    if copy.stat().st_size == 0:
        return []
    try:
        past, then = told(facts_at(facts, at).facts), told(read_facts(copy, as_of=at)[0])
    finally:
        copy.unlink()
    found = [name for name in then if past[name].height != then[name].height]
    return found + [
        f"{name}.{column}"
        for name in then
        if name not in found
        for column in then[name].columns
        if not past[name][column].equals(then[name][column])
    ]


def check(name: str, tmp_path: Path, chosen: slice | int) -> None:
    path = sample(name)
    facts = read_once(path)
    moments = moments_of(facts, path)
    if isinstance(chosen, int):
        moments = random.Random(12).sample(moments, min(chosen, len(moments)))
    else:
        moments = moments[chosen]
    for at in moments:
        assert differences(facts, path, at, tmp_path) == [], at.isoformat()


@pytest.mark.parametrize("name", a_few(["shipped", *OTHERS, *DATABASES], 2))
def test_an_instant_is_what_a_copy_that_ends_there_says(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 2)


@pytest.mark.instants
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", ["shipped", *DATABASES])
def test_every_instant_is_what_a_copy_that_ends_there_says(
    name: str, chunk: int, tmp_path: Path
) -> None:
    check(name, tmp_path, slice(chunk, None, CHUNKS))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shipped", *SAMPLES])
def test_many_instants_are_what_a_copy_that_ends_there_says(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 40)


RETRIED = (
    event(0, "created"),
    event(1, "inbox.enqueued", inboxID="msg_0"),
    event(2, "inbox.delivered", inboxID="msg_0"),
    event(3, "execution.started"),
    step(4, "step.started", model={"id": "m", "providerID": "p"}),
    step(5, "retry.scheduled", attempt=2, at=T0 + 60_000, error={"type": "provider.rate-limit"}),
    step(6, "step.started", model={"id": "m", "providerID": "p"}),
    step(7, "tool.input.started", callID="call_1", name="bash"),
    step(8, "tool.called", callID="call_1"),
    step(9, "tool.success", callID="call_1"),
    step(10, "step.ended", finish="stop", cost=1.0),
    event(11, "execution.succeeded"),
)  # fmt: skip


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    folder = tmp_path_factory.mktemp("retried")
    return facts_of(folder, *RETRIED, as_of_ms=T0 + 3_600_000)


def at_second(facts: Facts, second: float) -> Facts:
    return facts_at(facts, datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(seconds=second)).facts


@pytest.mark.parametrize(
    ("second", "lifecycle", "step_state", "is_retry_pending", "n_tools_running", "cost_usd"),
    [
        pytest.param(4, "running", "open", False, 0, None, id="a step runs"),
        pytest.param(5.5, "running", "open", True, 0, None, id="a retry is waited for"),
        pytest.param(6, "running", "open", False, 0, None, id="the retry has begun"),
        pytest.param(8, "running", "open", False, 1, None, id="a tool is at work"),
        pytest.param(9, "running", "open", False, 0, None, id="the tool is done"),
        pytest.param(10, "running", "ended", False, 0, 1.0, id="the step is done"),
        pytest.param(11, "completed", "ended", False, 0, 1.0, id="all is done"),
    ],
)
def test_each_stage_of_a_retried_step_is_seen(
    retried: Facts,
    second: float,
    lifecycle: str,
    step_state: str,
    is_retry_pending: bool,
    n_tools_running: int,
    cost_usd: float | None,
) -> None:
    past = at_second(retried, second)
    states = sa.states(past).filter(pl.col("entity_type") == "execution")
    run = past.details["opencode_executions"].row(0, named=True)
    own_step = past.details["opencode_steps"].row(0, named=True)
    assert states["lifecycle"].to_list() == [lifecycle]
    assert own_step["state"] == step_state
    assert run["is_retry_pending"] == is_retry_pending
    assert run["n_tools_running"] == n_tools_running
    assert (run["cost_usd"], own_step["cost_usd"]) == (cost_usd, cost_usd)


def test_what_is_waited_for_was_recorded_then_and_not_later(retried: Facts) -> None:
    past = at_second(retried, 5.5)
    reasons = sa.reasons(past).filter(pl.col("entity_type") == "execution")
    assert "run.health.provider_rate_limit" in reasons["code"].to_list()


def test_a_session_that_is_to_come_has_no_rows(tmp_path: Path) -> None:
    later = [event(0, "created", "ses_b", at_ms=T0 + 60_000)]
    facts = facts_of(tmp_path, *RETRIED, *later)
    past = facts_at(facts, datetime.fromtimestamp(T0 / 1000 + 30, UTC)).facts
    assert past.details["opencode_sessions"]["session_id"].to_list() == ["ses_a"]
    assert past.entities.filter(entity_type="session")["entity_id"].to_list() == ["ses_a"]


@pytest.mark.parametrize("place", a_few(range(3)))
def test_reading_as_of_an_instant_shows_what_stood_then(place: int) -> None:
    facts = read_once(SHIPPED)
    at = random.Random(12).sample(moments_of(facts, SHIPPED), 3)[place]
    read = told(read_facts(SHIPPED, as_of=at)[0])
    past = told(facts_at(facts, at).facts)
    assert [name for name in past if not past[name].equals(read[name])] == []


def test_only_what_rows_of_sessions_had_is_said_to_be_lost(shared: Path) -> None:
    database = shared / "samples" / "opencode" / DATABASES[0]
    facts = read_once(database)
    past = facts_at(facts, moments_of(facts, database)[300])
    lost = past.lost.select(pl.all().any()).row(0, named=True)
    assert {what for what, is_lost in lost.items() if is_lost} == {"updated", "record", "present"}
    read = read_facts(database, as_of=past.at)[0]
    gone = read.findings.filter(code="time.not_recorded")
    assert set(gone["column"]) == {"updated_at"}


@pytest.mark.slow
def test_an_archive_of_a_database_tells_any_moment_too(shared: Path, tmp_path: Path) -> None:
    database = shared / "samples" / "opencode" / DATABASES[1]
    facts = read_once(database)
    at = moments_of(facts, database)[600]
    with sa.read(database) as snap:
        snap.archive(tmp_path / "history")
    kept, past = (told(read_facts(path, as_of=at)[0]) for path in (tmp_path / "history", database))
    assert [name for name in past if not past[name].equals(kept[name])] == []


def test_inputs_stay_apart(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", RETRIED)
    both = read_facts([log, SHIPPED])[0]
    at = datetime.fromtimestamp(T0 / 1000 + 5.5, UTC)
    past = facts_at(both, at)
    assert past.lost.height == past.facts.entities.height
    assert past.facts.entities["source"].n_unique() == 2
