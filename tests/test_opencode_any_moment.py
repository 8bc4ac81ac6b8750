"""What opencode shows of an instant equals what a copy that ends there says."""

import functools
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.opencode.frames import RECORDS
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT, SHARED
from tests.cut_off_opencode import cut_off, instants
from tests.examples import a_few, some_of
from tests.opencode_logs import T0, ending_at, event, facts_of, in_sessions, read_once, step, write

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


def told(facts: Facts, *, is_judged: bool) -> dict[str, pl.DataFrame]:
    """All that is said of an instant, but the records that it is folded from.

    Rules are functions of a row and its neighbours: where all rows are equal, they need not
    be asked at each of thousands of instants (``is_judged``).
    """
    records = {frame.name for frame in RECORDS}
    rules = {"states": sa.states, "reasons": sa.reasons}
    frames = {
        **({name: rule(facts) for name, rule in rules.items()} if is_judged else {}),
        **{name: getattr(facts, name) for name in ("entities", "transitions", "events")},
        **{name: frame for name, frame in facts.details.items() if name not in records},
    }
    # Which inputs wait is a table of the present; where a copy lies is not of the work.
    others = ("source", "is_stored_pending")
    bare = {name: frame.drop(others, strict=False) for name, frame in frames.items()}
    return {name: frame.sort(pl.all(), nulls_last=True) for name, frame in bare.items()}


@functools.lru_cache(maxsize=4)
def told_of(path: Path, at: datetime, *, is_judged: bool) -> dict[str, pl.DataFrame]:
    """All that is said of a past instant of a sample, for what it is compared with."""
    return told(facts_at(read_once(path), at).facts, is_judged=is_judged)


def differences(path: Path, at: datetime, folder: Path, *, is_judged: bool = True) -> list[str]:
    """Frames and columns in which the past differs from a copy that ends there."""
    copy = cut_off(path, at, folder / path.name)
    # A line may tell of work that began before the first line was written: no file was there.
    if copy.stat().st_size == 0:
        return []
    try:
        past = told_of(path, at, is_judged=is_judged)
        then = told(read_facts(copy, as_of=at)[0], is_judged=is_judged)
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
    moments = moments_of(read_once(path), path)
    is_judged = isinstance(chosen, int)
    if isinstance(chosen, int):
        moments = random.Random(12).sample(moments, min(chosen, len(moments)))
    else:
        moments = moments[chosen]
    for at in moments:
        assert differences(path, at, tmp_path, is_judged=is_judged) == [], at.isoformat()


@pytest.mark.slow
@pytest.mark.parametrize("name", a_few(["shipped", *OTHERS, *DATABASES]))
def test_an_instant_is_what_a_copy_that_ends_there_says(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 1)


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
    check(name, tmp_path, some_of(16, 2))


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


class Stage(NamedTuple):
    """What an execution and its step are at a second of their life."""

    second: float
    lifecycle: str
    step_state: str
    is_retry_pending: bool
    n_tools_running: int
    cost_usd: float | None


STAGES = {
    "a step runs": Stage(4, "running", "open", False, 0, None),
    "a retry is waited for": Stage(5.5, "running", "open", True, 0, None),
    "the retry has begun": Stage(6, "running", "open", False, 0, None),
    "a tool is at work": Stage(8, "running", "open", False, 1, None),
    "the tool is done": Stage(9, "running", "open", False, 0, None),
    "the step is done": Stage(10, "running", "ended", False, 0, 1.0),
    "all is done": Stage(11, "completed", "ended", False, 0, 1.0),
}
LATER_MS = 3_600_000


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """An instant at which each of seven sessions has come to another stage, and one to none."""
    left_ms = {name: 1000 * (11 - stage.second) for name, stage in STAGES.items()}
    lives = {name: ending_at(T0 + int(ms), *RETRIED) for name, ms in left_ms.items()}
    lives["to come"] = [event(0, "created", at_ms=T0 + 60_000)]
    folder = tmp_path_factory.mktemp("retried")
    facts = facts_of(folder, *in_sessions(lives), as_of_ms=T0 + LATER_MS)
    return facts_at(facts, datetime.fromtimestamp(T0 / 1000, UTC)).facts


@pytest.fixture(scope="module")
def states(past: Facts) -> pl.DataFrame:
    return sa.states(past)


@pytest.mark.parametrize("session", STAGES)
def test_each_stage_of_a_retried_step_is_seen(past: Facts, states, session: str) -> None:
    stage = STAGES[session]
    [run] = past.details["opencode_executions"].filter(session_id=session).to_dicts()
    [own_step] = past.details["opencode_steps"].filter(session_id=session).to_dicts()
    state = states.filter(entity_type="execution", entity_id=run["entity_id"])
    assert state["lifecycle"].to_list() == [stage.lifecycle]
    found = own_step["state"], run["is_retry_pending"], run["n_tools_running"], run["cost_usd"]
    assert found == stage[2:]
    assert own_step["cost_usd"] == stage.cost_usd


def test_what_is_waited_for_was_recorded_then_and_not_later(past: Facts) -> None:
    waiting = pl.col("entity_id").str.starts_with("a retry is waited for")
    reasons = sa.reasons(past).filter(waiting, entity_type="execution")
    assert "run.health.provider_rate_limit" in reasons["code"].to_list()


def test_a_session_that_is_to_come_has_no_rows(past: Facts) -> None:
    assert set(past.details["opencode_sessions"]["session_id"]) == set(STAGES)
    assert set(past.entities.filter(entity_type="session")["entity_id"]) == set(STAGES)


@pytest.mark.parametrize("place", a_few(range(3), 0))
def test_reading_as_of_an_instant_shows_what_stood_then(place: int) -> None:
    at = random.Random(12).sample(moments_of(read_once(SHIPPED), SHIPPED), 3)[place]
    read = told(read_facts(SHIPPED, as_of=at)[0], is_judged=True)
    past = told_of(SHIPPED, at, is_judged=True)
    assert [name for name in past if not past[name].equals(read[name])] == []


@pytest.mark.slow
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
    read = [read_facts(path, as_of=at)[0] for path in (tmp_path / "history", database)]
    kept, past = (told(facts, is_judged=True) for facts in read)
    assert [name for name in past if not past[name].equals(kept[name])] == []


@pytest.mark.slow
def test_a_session_that_a_stream_told_again_since_is_one_row_less_known(tmp_path: Path) -> None:
    info = {"id": "ses_a", "time": {"created": T0, "updated": T0 + 5000}}
    told_again = [{"info": info | {"title": title}} for title in ("first", "then")]
    updates = [{"type": "session.updated", "properties": one} for one in told_again]
    facts = facts_of(tmp_path, event(0, "execution.started"), *updates, as_of_ms=T0 + 1000)
    sessions = facts.entities.filter(entity_type="session")
    assert sessions["entity_id"].to_list() == ["ses_a"]


@pytest.mark.slow
def test_inputs_stay_apart(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", RETRIED)
    earlier = in_sessions({"ses_b": ending_at(T0 - LATER_MS, *RETRIED)})
    both = read_facts([log, write(tmp_path / "earlier.jsonl", earlier)])[0]
    at = datetime.fromtimestamp(T0 / 1000 + 5.5, UTC)
    past = facts_at(both, at)
    assert past.lost.height == past.facts.entities.height
    assert past.facts.entities["source"].n_unique() == 2
