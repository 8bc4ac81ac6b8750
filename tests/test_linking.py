"""Work that an orchestrator drove and a transcript tells too: linked, and counted once."""

import json
import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.schema import ENTITIES, ENTITY_KEY, MOMENT
from stateanalytics.sql.conditions import NOT_DRIVEN
from stateanalytics.state.population import counted, is_mirror, rows_of
from stateanalytics.systems.linking import ambiguous_links, is_driven, links, with_usage
from tests.conftest import ROOT
from tests.examples import examples
from tests.lionagi_stores import session, write_store

AT = datetime(2026, 5, 18, 9, tzinfo=UTC)
maker = SimpleNamespace(
    **runpy.run_path(str(ROOT / "data" / "samples" / "codex" / "make_rollouts.py"))
)


TEXTS = (
    "parent_id",
    "recorded_by",
    "directory",
    "native_session_id",
    "agent",
    "provider",
    "starts",
)
NULLABLE = {
    **dict.fromkeys(TEXTS, pl.String),
    **dict.fromkeys(("created_at", "ended_at", "last_activity_at"), MOMENT),
    "n_output_tokens": pl.Int64,
}


def row(system: str, entity_id: str, after_s: float = 0, **others: object) -> dict:
    whose = {"source": system, "system": system, "entity_id": entity_id, "session_id": entity_id}
    started = {"kind": "session", "started_at": AT + timedelta(seconds=after_s)}
    return {"entity_type": "session", **whose, **started, **dict.fromkeys(NULLABLE), **others}


def frame(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema_overrides=NULLABLE)


def found(*rows: dict) -> list[tuple]:
    told = links(frame(*rows))
    return told.select("entity_id", "told_id", "linked_by", "is_counted_by_driver").rows()


ENDED = {"ended_at": AT + timedelta(hours=1)}
BEFORE = AT - timedelta(hours=1)


@pytest.mark.parametrize(
    ("driver", "told", "linked_by"),
    [
        pytest.param({"native_session_id": "t"}, {}, "session_id", id="id"),
        pytest.param({"directory": "/w/", **ENDED}, {"directory": "/w"}, "directory", id="time"),
        pytest.param({"directory": "/w"}, {"directory": "/v"}, None, id="another directory"),
        pytest.param({"directory": "/w"}, {"directory": "/W"}, None, id="a directory in capitals"),
        pytest.param(
            {"directory": "c:/Src/web", **ENDED},
            {"directory": "C:\\src\\web\\"},
            "directory",
            id="a directory of Windows, as two programs write it",
        ),
        pytest.param({}, {"directory": "/w"}, None, id="no directory"),
        pytest.param(
            {"directory": "/w", "ended_at": BEFORE}, {"directory": "/w"}, None, id="another day"
        ),
        pytest.param(
            {"directory": "/w", "last_activity_at": BEFORE},
            {"directory": "/w"},
            None,
            id="silent since before",
        ),
        pytest.param(
            {"directory": "/w", "agent": "claude-code", **ENDED},
            {"directory": "/w"},
            None,
            id="the agent of another system",
        ),
        pytest.param(
            {"directory": "/w", "agent": "codex", **ENDED},
            {"directory": "/w"},
            "directory",
            id="its own agent",
        ),
    ],
)
def test_two_sessions_are_one_by_id_or_by_directory_and_time(driver, told, linked_by) -> None:
    rows = row("lionagi", "d", -10, **driver), row("codex", "t", **told)
    assert found(*rows) == ([("d", "t", linked_by, True)] if linked_by else [])


def test_a_mirror_is_linked_and_counts_nothing() -> None:
    mirror = row("lionagi", "d", native_session_id="t", recorded_by="mirrored")
    assert found(mirror, row("codex", "t")) == [("d", "t", "session_id", False)]


def test_a_directory_that_two_drivers_work_in_links_nothing() -> None:
    drivers = [row("agent_orchestrator", name, -5, directory="/w") for name in ("a", "b")]
    assert found(*drivers, row("codex", "t", directory="/w")) == []
    named = drivers[0] | {"native_session_id": "t"}
    assert found(named, drivers[1], row("codex", "t", directory="/w"))[0][2] == "session_id"


def test_subagents_of_subagents_are_of_the_session_that_drove_the_first() -> None:
    rows = [
        row("lionagi", "d", native_session_id="t"),
        row("codex", "t", directory="/w"),
        row("codex", "a", kind="subagent", parent_id="t", directory="/w"),
        row("codex", "b", kind="subagent", parent_id="a", directory="/w"),
        row("codex", "fork", parent_id="t"),
    ]
    told = links(frame(*rows)).select("told_id", "linked_by", "confidence")
    assert told.rows() == [("a", "parent", 1.0), ("b", "parent", 1.0), ("t", "session_id", 1.0)]
    driven = is_driven(frame(*rows)).to_list()
    assert driven == [False, True, True, True, False]
    # What two subagents say of each other ends nowhere.
    circle = [row("codex", one, kind="subagent", parent_id=of) for one, of in ("xy", "yx")]
    assert is_driven(frame(*rows, *circle)).to_list()[-2:] == [False, False]


def test_a_session_that_changed_its_agent_drove_each_transcript() -> None:
    """Agents were switched: the first wrote one transcript, the second another."""
    rows = frame(
        row("agent_orchestrator", "d", native_session_id="t u"),
        row("codex", "t"),
        row("claude_code", "u"),
        row("claude_code", "v"),
    )
    told = links(rows).select("entity_id", "told_id", "linked_by").rows()
    assert told == [("d", "u", "session_id"), ("d", "t", "session_id")]
    assert is_driven(rows.with_columns(session_id="entity_id")).to_list() == [
        False, True, True, False,
    ]  # fmt: skip


def test_where_the_driver_does_not_count_what_it_drove_does() -> None:
    rows = frame(row("lionagi", "d", native_session_id="t"), row("codex", "t"))
    uncounted = rows.head(1).select(ENTITY_KEY)
    assert not is_driven(rows, uncounted).any()
    assert not is_mirror(rows, is_driven(rows, uncounted)).any()


def test_one_system_alone_has_no_links() -> None:
    assert found(row("codex", "a"), row("claude_code", "b")) == []
    assert not is_driven(pl.DataFrame({"system": ["codex"]})).any()


@given(st.randoms())
@examples(16)
def test_the_order_of_rows_changes_nothing(random) -> None:
    rows = [
        row("lionagi", "d", native_session_id="t"),
        row("agent_orchestrator", "e", native_session_id="t"),
        row("agent_orchestrator", "f", directory="/w"),
        row("codex", "t", 5),
        row("codex", "u", 7, directory="/w"),
        row("claude_code", "t", 5),
    ]
    told = links(frame(*rows))
    random.shuffle(rows)
    assert links(frame(*rows)).equals(told)
    assert told["told_id"].to_list() == ["u", "t", "t"] or told.height == 3


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A store whose session drove a thread, with a subagent, and a thread of somebody else."""
    folder = tmp_path_factory.mktemp("both")
    driven, other = (
        maker.Rollout("driven", "2026-05-18T09:00:00"),
        maker.Rollout("own", "2026-05-18"),
    )
    child = maker.Rollout("sub", "2026-05-18T09:01:00", parent_thread_id=driven.thread_id,
                          source={"subagent": "review"})  # fmt: skip
    for told in (driven, other, child):
        told.turn("Do it")
        told.tokens(1000, 0, 10)
        told.complete("Done.")
        path = folder / "codex" / told.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told.text())
    own = session("driver", cc_session_id=driven.thread_id, input_tokens=1000, status="completed")
    return write_store(folder / "state.db", sessions=[own]), folder / "codex", driven.thread_id


@pytest.mark.slow
def test_totals_count_it_once_and_both_keep_their_detail(both: tuple[Path, Path, str]) -> None:
    store, rollouts, thread_id = both
    snap = sa.read(store, rollouts, as_of="2026-05-28T00:00Z", progress=False)
    told = snap.table("links").select("entity_id", "told_id", "linked_by").sort("linked_by").rows()
    assert told[1] == ("driver", thread_id, "session_id")
    assert told[0][::2] == ("driver", "parent")
    runs = counted(rows_of(snap), "session")
    assert sorted(runs["system"]) == ["codex", "lionagi"]
    left_out = rows_of(snap).filter(entity_type="session")["left_out"].drop_nulls()
    assert left_out.to_list() == ["driven"] * 2
    states = sa.states(snap)
    assert states.filter(entity_type="session").height == 4
    alone = sa.read(rollouts, as_of="2026-05-28T00:00Z", progress=False)
    assert counted(rows_of(alone), "session").height == 3
    detail = snap.sql("FROM links JOIN codex_turns ON told_id = thread_id").rows()
    assert len(detail) == 2
    same = snap.sql(f"FROM entity_states WHERE entity_type = 'session' AND {NOT_DRIVEN}")
    assert sorted(same["entity_id"]) == sorted(runs["entity_id"])


@pytest.mark.slow
def test_sql_counts_what_a_driver_of_a_legacy_status_drove(both: tuple[Path, Path, str]) -> None:
    _, rollouts, thread_id = both
    store = write_store(
        rollouts.parent / "legacy.db",
        sessions=[session("driver", cc_session_id=thread_id, status="no such status")],
    )
    snap = sa.read(store, rollouts, as_of="2026-05-28T00:00Z", progress=False)
    assert snap.table("links")["is_counted_by_driver"].to_list() == [True, True]
    same = snap.sql(
        f"FROM entity_states WHERE entity_type = 'session' AND NOT is_legacy AND {NOT_DRIVEN}"
    )
    assert sorted(same["entity_id"]) == sorted(counted(rows_of(snap), "session")["entity_id"])
    assert same.height == 3


@pytest.mark.slow
def test_tokens_of_a_driver_that_tells_none_are_those_of_its_transcripts(
    both: tuple[Path, Path, str],
) -> None:
    _, rollouts, thread_id = both
    store = write_store(
        rollouts.parent / "untold.db",
        sessions=[session("driver", cc_session_id=thread_id, status="completed")],
    )
    snap = sa.read(store, rollouts, as_of="2026-05-28T00:00Z", progress=False)
    runs = counted(rows_of(snap), "session").sort("entity_id", descending=True)
    used = ("system", "n_input_tokens", "n_output_tokens")
    assert runs.select(used).rows() == [("lionagi", 2000, 20), ("codex", 1000, 10)]
    assert runs["model"].unique().to_list() == [snap.table("codex_turns")["model"][0]]


def ran(entity_id: str, begin_s: float, end_s: float, **others: object) -> dict:
    """A session of lionagi that ran Codex in a directory that people use too."""
    return row("lionagi", entity_id, begin_s) | {
        "ended_at": AT + timedelta(seconds=end_s), "directory": "/w", "provider": "codex", **others,
    }  # fmt: skip


def starts(*spans: tuple[float, float], places: tuple[str, ...] = ("/w", "/w")) -> str:
    """What ``entities.starts`` says of them."""
    lines = [
        " ".join(
            [*((AT + timedelta(seconds=s)).strftime("%Y-%m-%dT%H:%M:%SZ") for s in span), place]
        )
        for span, place in zip(spans, places, strict=True)
    ]
    return "\n".join(lines)


def wrote(entity_id: str, begin_s: float, end_s: float, n_output: int | None = 50) -> dict:
    """A transcript of Codex in that directory."""
    return row("codex", entity_id, begin_s) | {
        "last_activity_at": AT + timedelta(seconds=end_s),
        "directory": "/w", "n_output_tokens": n_output,
    }  # fmt: skip


def branch(of: str, name: str) -> dict:
    return row("lionagi", name) | {"entity_type": "branch", "session_id": of}


def pairs(*rows: dict) -> tuple[list[tuple[str, str]], int]:
    """What is linked, and how many sessions cannot be."""
    entities = frame(*rows)
    told = links(entities).select("entity_id", "told_id").rows()
    return told, ambiguous_links(entities).height


D, E = ran("d", 0, 60), ran("e", 0, 60)
T, OWN, BY_T = wrote("t", 1, 59), wrote("own", 20, 40), [("d", "t")]
D_HAS_50, E_HAS_70 = D | {"n_output_tokens": 50}, E | {"n_output_tokens": 70}
BY_T_AND_U = [("d", "t"), ("d", "u")]
WITHIN_ONE_SESSION = {
    "within its time": ([D, T], BY_T, 0),
    "began before": ([D, wrote("t", -9, 30)], [], 0),
    "went on after the end": ([D, wrote("t", 30, 90)], [], 0),
    "began after the end": ([D, wrote("t", 61, 62)], [], 0),
    "people's own only overlap": ([D, T, wrote("own", 20, 90), wrote("old", -60, 2)], BY_T, 0),
    "one too many": ([D, T, OWN], [], 1),
    "one too many, one has its tokens": ([D_HAS_50, T, wrote("own", 20, 40, 70)], BY_T, 0),
    "one too many, both have its tokens": ([D_HAS_50, T, OWN], [], 1),
    "two that together have its tokens": (
        [D | {"n_output_tokens": 120}, T, wrote("u", 20, 40, 70)], BY_T_AND_U, 0,
    ),
    "resumed": (
        [D | {"starts": starts((0, 19), (20, 60))}, wrote("t", 1, 19), wrote("u", 20, 40)],
        BY_T_AND_U, 0,
    ),
    "two branches": (
        [D, branch("d", "b"), branch("d", "c"), wrote("t", 1, 9), wrote("u", 1, 9)], BY_T_AND_U, 0,
    ),
    "two at once, of which one began first": (
        [D, ran("e", 10, 60), T, wrote("u", 11, 59)], [("d", "t"), ("e", "u")], 0,
    ),
    "two at once that nothing tells apart": ([D, E, T, wrote("u", 1, 59)], [], 2),
    "two at once, told apart by their tokens": (
        [D_HAS_50, E_HAS_70, T, wrote("u", 1, 59, 70)], [("d", "t"), ("e", "u")], 0,
    ),
    "no agent at all": ([D | {"provider": "openai"}, T], [], 0),
    "a profile": ([D | {"agent": "reviewer"}, T], BY_T, 0),
    "another agent": ([D | {"provider": "claude_code"}, T], [], 0),
    "killed, and its agent went on": (
        [D | {"ended_at": None, "last_activity_at": AT + timedelta(seconds=9)}, wrote("t", 1, 500)],
        BY_T, 0,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", WITHIN_ONE_SESSION)
def test_where_people_work_too_a_transcript_must_lie_within_one_session(case) -> None:
    rows, expected, n_ambiguous = WITHIN_ONE_SESSION[case]
    assert pairs(*rows) == (expected, n_ambiguous)
    assert pairs(*reversed(rows), *rows) == (expected, n_ambiguous)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=8), st.randoms())
@examples(30)
def test_runs_one_after_another_have_each_its_transcript(spans, random) -> None:
    rows, at_s, expected = [], 0, []
    for number, (pause_s, length_s) in enumerate(spans):
        at_s += pause_s + 1
        rows += [ran(f"d{number}", at_s, at_s + length_s)]
        rows += [wrote(f"t{number}", at_s + 0.5, at_s + length_s - 0.4)]
        expected.append((f"d{number}", f"t{number}"))
        at_s += length_s
    random.shuffle(rows)
    assert not rows or pairs(*rows) == (expected, 0)


def test_usage_is_that_of_the_transcripts_where_the_driver_recorded_less() -> None:
    usage = ("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens", "cost_usd", "model")
    none = dict.fromkeys(usage)
    entities = ENTITIES.conform(
        frame(
            ran("d", 0, 60, **none) | {"n_input_tokens": 10, "n_output_tokens": 9, "cost_usd": 0.5},
            wrote("t", 1, 59, 9) | none | {"n_input_tokens": 40, "cost_usd": 0.4},
            ran("e", 100, 160, **none) | {"n_input_tokens": 0, "cost_usd": 0.1},
            wrote("u", 101, 159, 7) | none | {"n_input_tokens": 30, "cost_usd": 0.4},
        )
    )
    told = with_usage(entities).filter(system="lionagi")
    used = told.select("n_input_tokens", "n_output_tokens", "cost_usd").rows()
    assert used == [(40, 9, 0.5), (30, 7, 0.4)]


@pytest.mark.slow
def test_what_cannot_be_told_apart_is_a_finding_and_counts_as_it_did(tmp_path: Path) -> None:
    folder, started_s = tmp_path / "codex", (AT - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    for name in ("one", "other"):
        told = maker.Rollout(name, "2026-05-18T09:00:01")
        told.turn("Do it")
        told.tokens(1000, 0, 10)
        told.complete("Done.")
        path = folder / told.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told.text())
    [directory] = (
        sa.read(folder, progress=False).table("entities")["directory"].drop_nulls().unique()
    )
    own = session("driver", started_at=started_s, ended_at=started_s + 900, provider="codex")
    launched = {"id": "b", "session_id": "driver", "progression_id": "list-b"}
    launched["node_metadata"] = json.dumps({"mcp_launch": {"launch_dir": directory}})
    store = write_store(tmp_path / "state.db", sessions=[own], branches=[launched])
    snap = sa.read(store, folder, as_of="2026-05-28T00:00Z", progress=False)
    assert snap.table("entities").filter(entity_type="session", system="lionagi")[
        "directory"
    ].to_list() == [directory]
    assert snap.table("links").is_empty()
    assert counted(rows_of(snap), "session").height == 3
    [finding] = snap.table("findings").filter(code="link.ambiguous").to_dicts()
    assert (finding["entity_id"], finding["severity"]) == ("driver", "info")
    assert finding["message"].startswith("2 transcripts")
