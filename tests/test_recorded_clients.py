"""Stores that the real clients wrote against a mock provider, read as the mock knows them to be."""

from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from stateanalytics.state.population import counted, rows_of
from tests.conftest import ROOT
from tests.contract.clients import PACKAGES
from tests.contract.reading import TRUTH, compare, read_store, unknown_kinds, wrong
from tests.contract.recording import restore

RECORDED = Path(__file__).parent / "recorded"
CLIENTS = ("claude", "codex", "lionagi", "opencode")


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_what_real_clients_wrote_is_read_as_it_was(client, tmp_path):
    store = RECORDED / client
    as_of = datetime.fromisoformat((store / "as_of.txt").read_text().strip())
    truth = pl.read_csv(store / "truth.csv", schema=TRUTH).with_columns(
        pl.col("part").fill_null("")
    )
    stores = _stores(client, tmp_path)
    with read_store(stores, as_of) as snap:
        compared = compare(snap, client, truth)
        assert not unknown_kinds(snap)
    assert compared.height >= 100
    assert wrong(compared).rows() == []


def _stores(client: str, tmp_path: Path) -> list[Path]:
    """What a client left, and what those that it started did."""
    whole = restore(RECORDED / client, tmp_path / "store")
    if client != "lionagi":
        return [whole]
    return [whole / "lionagi" / "state.db", whole / "claude", whole / "codex"]


@pytest.mark.slow
def test_work_that_lionagi_drove_counts_once_and_that_of_people_too(tmp_path):
    as_of = datetime.fromisoformat((RECORDED / "lionagi" / "as_of.txt").read_text().strip())
    stores = _stores("lionagi", tmp_path)
    with read_store(stores, as_of) as snap:
        runs = counted(rows_of(snap), "session")
        own = snap.table("entities").filter(system="lionagi", entity_type="session")
        assert own.height >= 20
        assert own["directory"].null_count() == 0
        assert "link.ambiguous" not in snap.table("findings")["code"]
    by_hand = runs.filter(pl.col("system") != "lionagi")
    assert runs.height == own.height + by_hand.height
    assert sorted(Path(place).name for place in by_hand["directory"]) == [
        "claude_not_alone",
        "codex_not_alone",
    ]


def test_every_client_is_run_each_night_as_pinned_and_as_the_newest():
    matrix = (ROOT / ".github" / "workflows" / "contract.yml").read_text("utf-8")
    assert f"client: [{', '.join(PACKAGES)}]" in matrix
    assert "version: [pinned, newest]" in matrix
    assert "cron:" in matrix


@pytest.mark.slow
@pytest.mark.parametrize("client", ("claude", "codex", "opencode"))
def test_a_turn_is_a_prompt_in_every_client_however_often_the_model_was_asked(client, tmp_path):
    store = RECORDED / client
    as_of = datetime.fromisoformat((store / "as_of.txt").read_text().strip())
    truth = pl.read_csv(store / "truth.csv", schema=TRUTH).filter(
        pl.col("part").fill_null("") == ""
    )
    scenario_of = dict(truth.select("session_id", "scenario").iter_rows())
    with read_store(_stores(client, tmp_path), as_of) as snap:
        sessions = snap.entities.filter(entity_type="session")
        turns = snap.entities.filter(entity_type="turn")["session_id"].value_counts()
    n_turns = dict(sessions.select("entity_id", "n_turns").iter_rows())
    by_scenario = {scenario_of[key]: n for key, n in n_turns.items() if key in scenario_of}
    once = ("success", "failing_tool", "retried", "refusal", "unauthorized", "parallel_tools")
    assert {by_scenario[name] for name in once} == {1}
    assert by_scenario["resume"] == 2
    assert {key: n_turns[key] for key in turns["session_id"]} == dict(turns.iter_rows())
