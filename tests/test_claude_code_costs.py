"""What Claude Code records of costs: through resumes, forks, kills, compaction and damage."""

import json
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.systems.claude_code import frames
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from tests.examples import examples

BEGAN = datetime(2026, 9, 1, 9, tzinfo=UTC)
OPUS, HAIKU = "claude-opus-4-5", "claude-haiku-4-5"
USD = 5e-6
"""What a token costs that is read anew: only such are used here."""


def id_of(number: int) -> str:
    return str(UUID(int=number + 1))


class Session:
    """A transcript, with what its processes count."""

    def __init__(self, number: int, origin: "Session | None" = None) -> None:
        self.id, self.number = id_of(number), number
        self.now = BEGAN if origin is None else origin.now
        self.start = BEGAN if origin is None else origin.start
        self.lines: list[dict] = []
        self.used: dict[str, int] = {}
        if origin is not None:
            self.used = dict(origin.recorded())
            self.add(type="queue-operation", operation="enqueue")
            copied = [line for line in origin.lines if "uuid" in line]
            self.lines += [{**line, "sessionId": self.id} for line in copied]

    def recorded(self) -> dict[str, int]:
        usage = [line["modelUsage"] for line in self.lines if line["type"] == "cost-state"]
        last = usage[-1] if usage else {}
        return {model: said["inputTokens"] for model, said in last.items()}

    def add(self, **fields: object) -> None:
        self.now += timedelta(seconds=1)
        stamp = self.now.isoformat().replace("+00:00", "Z")
        line = {"sessionId": self.id, "timestamp": stamp, "version": "2.1.332"}
        self.lines.append(line | fields)

    def prompt(self) -> "Session":
        message = {"role": "user", "content": "Do it"}
        self.add(type="user", uuid=f"u{self.number}-{len(self.lines)}", message=message)
        return self

    def answer(self, n_tokens: int, model: str = OPUS, **fields: object) -> "Session":
        name = f"m{self.number}-{len(self.lines)}"
        none = ("output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        message = {
            **{"id": name, "role": "assistant", "model": model, "stop_reason": "end_turn"},
            "content": [{"type": "text", "text": "Done"}],
            "usage": {"input_tokens": n_tokens, **dict.fromkeys(none, 0)},
        }
        self.add(type="assistant", uuid=name, requestId=name, message=message, **fields)
        self.aside(n_tokens, model)
        return self

    def aside(self, n_tokens: int, model: str = OPUS) -> "Session":
        self.used[model] = self.used.get(model, 0) + n_tokens
        return self

    def killed(self) -> "Session":
        """What the process counted is lost; the next one goes on from the last record."""
        self.used = dict(self.recorded())
        return self

    def ended(self, **fields: object) -> "Session":
        total = sum(self.used.values())
        state = {
            **{"type": "cost-state", "sessionId": self.id, "totalCostUSD": total * USD},
            **{"totalAPIDuration": 10 * total, "totalToolDuration": total},
            **{"totalLinesAdded": total // 10, "totalLinesRemoved": total // 20},
            "startTime": int(self.start.timestamp() * 1000),
            "modelUsage": {
                model: {"inputTokens": n, "outputTokens": 0, "costUSD": n * USD}
                for model, n in self.used.items()
            },
            "hasUnknownModelCost": False,
        }
        self.lines.append(state | fields)
        return self


def facts_of(root: Path, *sessions: Session) -> Facts:
    folder = root / "projects" / "-repo"
    folder.mkdir(parents=True, exist_ok=True)
    for session in sessions:
        text = "".join(json.dumps(line) + "\n" for line in session.lines)
        (folder / f"{session.id}.jsonl").write_text(text)
    return read_facts(root, as_of=BEGAN + timedelta(days=1))[0]


def session_of(facts: Facts, number: int = 0) -> dict:
    [row] = facts.detail(frames.SESSIONS).filter(thread_id=id_of(number)).to_dicts()
    [entity] = facts.entities.filter(entity_type="session", entity_id=id_of(number)).to_dicts()
    assert row["cost_usd"] == entity["cost_usd"]
    return row


def n_of(facts: Facts, code: str) -> int:
    return int(facts.findings.filter(code=code)["n_rows"].sum())


def usd(n_tokens: float) -> object:
    return pytest.approx(n_tokens * USD)


def test_an_answer_in_fast_mode_has_the_price_of_that_mode(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(1_000, "claude-opus-5-5")
    session.answer(1_000, "claude-opus-5-5").killed()
    session.lines[-1]["message"]["usage"]["speed"] = "fast"
    facts = facts_of(tmp_path, session)
    found = sa.failures.costs(facts, by=("model",)).select("model", "estimated_usd").rows()
    assert sorted(found) == [("claude-opus-5-5", 0.004), ("claude-opus-5-5-fast", 0.008)]
    assert session_of(facts)["cost_usd"] is None


def test_a_resumed_session_costs_what_its_last_record_says(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended().prompt().answer(50).ended()
    facts = facts_of(tmp_path, session)
    row = session_of(facts)
    assert (row["cost_usd"], row["api_s"], row["tool_s"]) == (usd(150), 1.5, 0.15)
    assert (row["n_lines_added"], row["n_lines_removed"]) == (15, 7)
    assert (row["n_input_tokens"], row["inherited_cost_usd"]) == (150, None)
    [model] = facts.detail(frames.COSTS).to_dicts()
    assert (model["model"], model["n_input_tokens"], model["cost_usd"]) == (OPUS, 150, usd(150))


def test_without_a_record_the_cost_is_not_known(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, Session(0).prompt().answer(100))
    assert session_of(facts)["cost_usd"] is None
    assert facts.detail(frames.COSTS).is_empty()
    assert not facts.findings["code"].str.starts_with("cost.").any()


def test_requests_that_no_answer_shows_count_for_their_session_alone(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended().aside(70).aside(7, HAIKU).ended()
    facts = facts_of(tmp_path, session.prompt().answer(50).ended())
    row = session_of(facts)
    assert (row["n_input_tokens"], row["n_answers"], row["n_turns"]) == (227, 2, 2)
    assert facts.detail(frames.TURNS)["n_input_tokens"].to_list() == [100, 50]
    side = facts.detail(frames.MESSAGES).filter("is_side_request").sort("model")
    assert side.select("model", "n_input_tokens").rows() == [(HAIKU, 7), (OPUS, 70)]
    assert n_of(facts, "cost.side_requests") == 77
    [total] = sa.failures.costs(facts, by=()).to_dicts()
    assert total["reported_usd"] == total["total_usd"] == round(227 * USD, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "written", ["claude-opus-4-5-20251101", "CLAUDE-opus-4-5", "us.anthropic.claude-opus-4-5-v1:0"]
)
def test_a_model_is_the_same_by_all_its_names(tmp_path: Path, written: str) -> None:
    session = Session(0).prompt().answer(100).ended()
    [answer] = [line["message"] for line in session.lines if line["type"] == "assistant"]
    answer["model"] = written
    [record] = [line for line in session.lines if line["type"] == "cost-state"]
    record["modelUsage"] = {f"{OPUS}[1m]": record["modelUsage"][OPUS]}
    assert session_of(facts_of(tmp_path, session))["n_input_tokens"] == 100


def test_names_that_cannot_be_compared_count_nothing_twice(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended()
    session.lines[-1]["modelUsage"] = {"arn:profile": session.lines[-1]["modelUsage"][OPUS]}
    row = session_of(facts_of(tmp_path, session))
    assert (row["n_input_tokens"], row["cost_usd"]) == (100, usd(100))


def test_what_a_killed_process_spent_is_estimated_next_to_the_record(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended()
    session.prompt().answer(40).killed().prompt().answer(50).ended().prompt().answer(8)
    facts = facts_of(tmp_path, session)
    assert session_of(facts)["cost_usd"] == usd(150)
    missing = facts.detail(frames.MESSAGES).filter(~pl.col("is_cost_recorded"))
    assert missing["n_input_tokens"].to_list() == [40, 8]
    assert n_of(facts, "cost.not_recorded") == 2
    [total] = sa.failures.costs(facts).to_dicts()
    assert total["reported_usd"] == round(150 * USD, 6)
    assert total["total_usd"] == total["estimated_usd"] == round(198 * USD, 6)


def test_a_fork_costs_what_it_adds_to_its_origin(tmp_path: Path) -> None:
    origin = Session(0).prompt().answer(100).ended()
    fork = Session(1, origin).prompt().answer(20).ended()
    again = Session(2, fork).prompt().answer(3).ended()
    origin.now = again.now
    origin.prompt().answer(1000).ended()
    facts = facts_of(tmp_path, origin, fork, again)
    assert [session_of(facts, n)["cost_usd"] for n in range(3)] == [usd(1100), usd(20), usd(3)]
    inherited = [session_of(facts, n)["inherited_cost_usd"] for n in range(3)]
    assert inherited == [None, usd(100), usd(120)]
    assert [session_of(facts, n)["n_input_tokens"] for n in range(3)] == [1100, 20, 3]
    assert n_of(facts, "cost.inherited") == 2


def test_a_fork_without_its_origin_has_all_that_it_copied(tmp_path: Path) -> None:
    fork = Session(1, Session(0).prompt().answer(100).ended()).prompt().answer(20).ended()
    row = session_of(facts_of(tmp_path, fork), 1)
    assert (row["cost_usd"], row["n_input_tokens"]) == (usd(120), 120)


@pytest.mark.slow
@pytest.mark.parametrize("is_parallel", [True, False])
def test_two_forks_of_a_deleted_origin_count_its_cost_once(tmp_path: Path, is_parallel) -> None:
    origin = Session(0).prompt().answer(100).ended()
    first = Session(1, origin).prompt().answer(20).ended()
    second = Session(2, origin)
    if not is_parallel:
        second.now = first.now + timedelta(minutes=1)
        second.lines[0]["timestamp"] = second.now.isoformat().replace("+00:00", "Z")
    facts = facts_of(tmp_path, first, second.prompt().answer(30).ended())
    assert [session_of(facts, n)["cost_usd"] for n in (1, 2)] == [usd(120), None]
    assert [session_of(facts, n)["n_input_tokens"] for n in (1, 2)] == [120, 30]
    [total] = sa.failures.costs(facts).to_dicts()
    assert total["total_usd"] == round(150 * USD, 6)
    assert n_of(facts, "cost.not_recorded") == 1
    facts = facts_of(tmp_path, first, second.prompt().answer(7).ended())
    assert session_of(facts, 2)["cost_usd"] == usd(7)


def test_a_count_that_began_anew_is_added(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended().killed()
    session.used, session.start = {}, session.now
    facts = facts_of(tmp_path, session.prompt().answer(30).ended())
    assert session_of(facts)["cost_usd"] == usd(130)


def test_a_count_that_restarts_without_a_start_time_is_added(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended(startTime=None).killed()
    session.used = {}
    session.prompt().answer(30).ended(startTime=None).prompt().answer(9).ended(startTime=None)
    row = session_of(facts_of(tmp_path, session))
    assert (row["cost_usd"], row["n_input_tokens"]) == (usd(139), 139)


def test_a_subagent_is_part_of_what_its_session_cost(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100)
    child = Session(0)
    child.now, child.id = session.now, session.id
    child.prompt().answer(60)
    folder = tmp_path / "projects" / "-repo" / session.id / "subagents"
    folder.mkdir(parents=True)
    for line in child.lines:
        line |= {"agentId": "a1", "isSidechain": True}
        line["uuid"] = f"child-{line['uuid']}"
        if line["type"] == "assistant":
            line["requestId"] = line["message"]["id"] = line["uuid"]
    text = "".join(json.dumps(line) + "\n" for line in child.lines)
    (folder / "agent-a1.jsonl").write_text(text)
    facts = facts_of(tmp_path, session.aside(60).ended())
    assert session_of(facts)["cost_usd"] == usd(160)
    assert not facts.detail(frames.MESSAGES)["is_side_request"].any()
    costs = {row["kind"]: row for row in sa.failures.costs(facts, by="kind").to_dicts()}
    assert costs["session"]["total_usd"] == round(160 * USD, 6)
    assert costs["subagent"]["total_usd"] == 0
    assert costs["subagent"]["estimated_usd"] == round(60 * USD, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("totalCostUSD", cost) for cost in (-1, 1e300, "much")),
        *(("modelUsage", usage) for usage in ([1, 2], None)),
    ],
)
def test_a_record_that_cannot_be_read_is_counted(tmp_path: Path, field: str, value) -> None:
    session = Session(0).prompt().answer(100).ended().prompt().answer(50).ended(**{field: value})
    facts = facts_of(tmp_path, session)
    assert n_of(facts, "cost.unreadable") == 1
    row = session_of(facts)
    assert row["cost_usd"] == usd(100 if field == "totalCostUSD" else 150)
    assert row["n_input_tokens"] == 150


def test_names_and_numbers_of_any_shape_are_read_around(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended()
    usage = session.lines[-1]["modelUsage"]
    usage |= {"'; DROP": {"inputTokens": -5}, '"\\u0000{}': 7, "": None, "x": {"costUSD": "?"}}
    session.ended(hasUnknownModelCost=True, startTime="never", totalAPIDuration=-1)
    facts = facts_of(tmp_path, session)
    assert session_of(facts)["cost_usd"] == usd(100)
    assert session_of(facts)["n_input_tokens"] == 100
    assert n_of(facts, "cost.approximate") == 1


@pytest.mark.slow
def test_at_an_earlier_instant_only_records_of_then_count(tmp_path: Path) -> None:
    session = Session(0).prompt().answer(100).ended()
    then = session.now
    facts = facts_of(tmp_path, session.prompt().answer(50).ended())
    assert session_of(facts)["cost_usd"] == usd(150)
    past = facts_at(facts, then + timedelta(seconds=1.5)).facts
    row = past.entities.filter(entity_type="session").to_dicts()[0]
    assert (row["cost_usd"], row["n_input_tokens"]) == (usd(100), 100)


PROCESS = st.tuples(st.integers(1, 500), st.integers(0, 500), st.booleans())


@pytest.mark.slow
@given(st.lists(PROCESS, min_size=1, max_size=5), st.integers(0, 2**32), st.booleans())
@examples(25)
def test_recorded_and_estimated_differ_by_kills_alone(tmp_path_factory, told, seed, is_forked):
    root = tmp_path_factory.mktemp("costs")
    session, recorded, killed, hidden, last = Session(0), 0, 0, 0, 0
    sessions = [session]
    for n_answer, n_side, is_killed in told:
        session.prompt().answer(n_answer).aside(n_side)
        if is_killed:
            session.killed()
            killed, last = killed + n_answer, last + n_answer
        else:
            session.ended()
            recorded += n_answer + n_side
            hidden += min(last, n_side)
            last = 0
    if is_forked:
        sessions.append(Session(1, session).prompt().answer(9).ended())
    facts = facts_of(root, *sessions)
    row = session_of(facts)
    is_known = any(not is_killed for *_, is_killed in told)
    assert row["cost_usd"] == (usd(recorded) if is_known else None)
    # Side requests of a process after one that was killed may be hidden by what that lost.
    assert row["n_input_tokens"] == recorded + killed - hidden
    [total] = sa.failures.costs(facts, by=()).to_dicts()
    n_fork = 9 * is_forked
    assert total["estimated_usd"] == pytest.approx((recorded + killed - hidden + n_fork) * USD)
    shuffled = list(sessions)
    random.Random(seed).shuffle(shuffled)
    other = tmp_path_factory.mktemp("again")
    facts_of(other, *shuffled)
    # The same transcript in a second folder is no second session.
    shutil.copytree(other / "projects" / "-repo", other / "projects" / "-repo-copy")
    again = read_facts(other, as_of=BEGAN + timedelta(days=1))[0]
    for frame in (frames.COSTS, frames.MESSAGES):
        kept = [name for name in frame.dtypes if name not in ("source", "n_lines", "message_id")]
        ours, theirs = (each.detail(frame).select(kept).sort(kept) for each in (facts, again))
        assert ours.equals(theirs)
