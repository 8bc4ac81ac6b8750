"""Sums of a session in `entities` are those of its own frame, column by column."""

import functools
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from tests.conftest import SHARED, SHIPPED
from tests.contract.reading import TRUTH
from tests.contract.recording import restore
from tests.lionagi_stores import NOW_S, listing, session, write_store

RECORDED = Path(__file__).parent / "recorded"

# Entities count what was read in whatever way; the system's own frame has the parts.
OWN_MEANING = {"n_input_tokens", "n_turns"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "frame"), [("claude_code", "claude_sessions"), ("codex", "codex_sessions")]
)
@pytest.mark.parametrize("of", ["shipped", "shared"])
def test_sums_of_sessions_are_those_of_their_own_frame(system, frame, of):
    place = SHIPPED[system] if of == "shipped" else SHARED / "samples" / system.replace("_", "-")
    if not place.exists():
        pytest.skip("the folder ../shared is not here")
    with sa.read(place) as snap:
        own = snap.table(frame).rename({"thread_id": "entity_id"})
        entities = snap.entities.filter(entity_type="session")
    shared = {name for name in entities.columns if name.startswith("n_")} & {*own.columns}
    names = sorted(shared - OWN_MEANING)
    assert "n_output_tokens" in names
    both = entities.select("entity_id", *names).join(
        own.select("entity_id", *names), on="entity_id", suffix="_own"
    )
    assert both.height == entities.height
    for name in names:
        different = both.filter(pl.col(name).ne_missing(pl.col(f"{name}_own")))
        assert different.is_empty(), name


SYSTEMS = ("claude", "codex", "opencode", "lionagi", "agent_orchestrator")
COUNTED = (
    *("entity_id", "n_turns", "n_model_turns", "n_messages", "n_chat_messages"),
    *("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens"),
)


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Sessions and turns of what each real client wrote, and of the sample of the rewrite."""

    @functools.cache
    def read_system(system):
        place = SHARED / "samples" / "agent-orchestrator-go" / "ao.db"
        if system == "agent_orchestrator" and not place.exists():
            pytest.skip("the folder ../shared is not here")
        if system != "agent_orchestrator":
            place = restore(RECORDED / system, tmp_path_factory.mktemp(system) / "store")
            place = place / "lionagi" / "state.db" if system == "lionagi" else place
        with sa.read(place) as snap:
            kept = snap.entities.select(*COUNTED, "entity_type", "session_id"), snap.events
        return *kept, place

    return read_system


def truth_of(system):
    truth = pl.read_csv(RECORDED / system / "truth.csv", schema=TRUTH)
    return truth.filter(pl.col("part").fill_null("") == "")


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_turn_is_a_prompt_and_all_that_was_done_for_it_in_every_system(system, read):
    entities, _, _ = read(system)
    sessions = entities.filter(entity_type="session")
    turns = entities.filter(entity_type="turn")
    if system == "lionagi":  # its turns are no entities
        scenarios = dict(truth_of(system).select("session_id", "scenario").iter_rows())
        counted = dict(sessions.select("entity_id", "n_turns").iter_rows())
        n_turns = {scenarios.get(key): n for key, n in counted.items()}
        once = ("claude_success", "codex_success", "claude_parallel_tools", "codex_timed_out")
        assert {n_turns[name] for name in once} == {1}
        assert (n_turns["claude_resume"], n_turns["codex_resume"]) == (2, 2)
        return
    assert turns["n_turns"].unique().to_list() == [1]
    known = sessions.drop_nulls("n_turns").filter(pl.col("n_turns") > 0)
    counted = turns.group_by(entity_id="session_id").agg(n=pl.len())
    both = counted.drop_nulls("entity_id").join(known, on="entity_id", how="full", coalesce=True)
    assert both.height >= 3
    assert both.filter(pl.col("n").ne_missing(pl.col("n_turns"))).is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_chat_messages_are_prompts_and_answers_in_every_system(system, read):
    entities, events, _ = read(system)
    sessions = entities.filter(entity_type="session")
    assert sessions["n_chat_messages"].drop_nulls().len() >= 3
    assert sessions.filter(pl.col("n_chat_messages") > pl.col("n_messages")).is_empty()
    more = sessions.filter(pl.col("n_chat_messages") < pl.col("n_messages"))
    assert (system == "lionagi") is bool(more.height)
    if system == "claude":  # its events of messages are records, those of tools and commands too
        return
    said = events.filter(pl.col("kind") == "message", pl.col("role").is_in(["user", "assistant"]))
    counted = said.group_by("entity_id").agg(n=pl.len())
    both = sessions.join(counted, on="entity_id")
    assert both.filter(pl.col("n_chat_messages") != pl.col("n")).is_empty()


@pytest.mark.parametrize("system", SYSTEMS)
def test_tokens_read_are_those_of_a_cache_too_in_every_system(system, read):
    entities, _, _ = read(system)
    sessions = entities.filter(entity_type="session")
    cached = pl.sum_horizontal("n_cache_read_tokens", "n_cache_write_tokens")
    assert sessions["n_input_tokens"].drop_nulls().len() >= 3
    assert sessions.filter(cached > pl.col("n_input_tokens")).is_empty()
    if system == "agent_orchestrator":
        return
    truth = truth_of(system).pivot("fact", index="session_id", values="truth")
    both = sessions.join(truth, left_on="entity_id", right_on="session_id", suffix="_truth")
    if system == "lionagi":
        # It writes no usage of what failed or was stopped, and no cache of Codex.
        both = both.filter(pl.col("n_input_tokens") > 0)
    checked = both.drop_nulls("n_input_tokens_truth")
    assert checked.height >= 8
    for name in ("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens"):
        if f"{name}_truth" not in checked.columns:
            continue
        meant = pl.col(f"{name}_truth").cast(pl.Int64)
        rows = checked if name == "n_input_tokens" else checked.drop_nulls(name)
        wrong = rows.filter(meant.is_not_null() & (pl.col(name) != meant))
        assert wrong.select("entity_id", name, f"{name}_truth").rows() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "provider", "expected"),
    [
        ([(100, 30, 20)], "claude_code", (150, 30, 20)),
        ([(40, 10, 0), (100, 30, 20)], "claude_code", (150, 30, 20)),  # resumed
        ([(60, 10, 5), (40, 20, 15)], "claude_code", (150, 30, 20)),  # branches
        ([(60, 10, 5)], "claude_code", (100, None, None)),  # one is lost
        ([], "claude_code", (100, None, None)),
        ([(100, None, None)], "claude_code", (100, None, None)),  # before 0.34
        ([(100, 30, 0)], "openai", (100, 30, 0)),  # within
        ([(100, 0, 0)], "codex", (100, None, None)),  # not asked for
        ([(100, 500, 0)], None, (600, 500, 0)),  # more than were read
        ([(60, 0, 0), (40, 20, 15)], "codex claude_code", (135, 20, 15)),  # of a worker
    ],
)
def test_tokens_of_a_cache_of_lionagi_by_hand(tmp_path, ends, provider, expected):
    names = ("input_tokens", "cached_tokens", "cache_write_tokens")
    signals = [
        {
            **{"id": f"s{seq}", "session_id": "a", "seq": seq, "kind": "RunEnd", "ts": NOW_S},
            "payload": json.dumps(dict(zip(names, counts, strict=True))),
        }
        for seq, counts in enumerate(ends)
    ]
    provider, *others = (provider or "").split() or [None]
    row = session("a", provider=provider, input_tokens=100, output_tokens=5)
    workers = [{"id": name, "session_id": "a", "provider": name} for name in others]
    # The order of rows says nothing.
    rows = {"sessions": [row], "branches": workers, "session_signals": signals[::-1]}
    write_store(tmp_path / "state.db", **rows)
    with sa.read(tmp_path / "state.db", as_of=datetime(2026, 5, 28, tzinfo=UTC)) as snap:
        [found] = snap.entities.filter(entity_type="session").to_dicts()
    known = ("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens")
    assert tuple(found[name] for name in known) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listed", "roles", "expected"),
    [
        (["m1", "m2", "m3", "m4"], "user action action assistant", (4, 2, 1)),
        (["m1", "m2", "m3"], "system user assistant", (3, 2, 1)),
        (["m1", "m2", "lost"], "user assistant", (3, None, None)),
        ([], "", (0, 0, 0)),
    ],
)
def test_messages_and_turns_of_lionagi_by_hand(tmp_path, listed, roles, expected):
    messages = [
        {"id": f"m{n}", "created_at": NOW_S, "role": role, "content": "{}"}
        for n, role in enumerate(roles.split(), 1)
    ]
    write_store(
        tmp_path / "state.db",
        sessions=[session("a", num_turns=7)],
        branches=[{"id": "b", "session_id": "a", "progression_id": "p"}],
        progressions=[listing("p", listed)],
        messages=messages,
    )
    with sa.read(tmp_path / "state.db", as_of=datetime(2026, 5, 28, tzinfo=UTC)) as snap:
        [found] = snap.entities.filter(entity_type="session").to_dicts()
    assert found["n_model_turns"] == 7
    assert (found["n_messages"], found["n_chat_messages"], found["n_turns"]) == expected
