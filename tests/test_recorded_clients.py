"""Stores that the real clients wrote against a mock provider, read as the mock knows them to be."""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from tests.contract.reading import TRUTH, compare, read_store, unknown_kinds, wrong

RECORDED = Path(__file__).parent / "recorded"
CLIENTS = ("claude", "codex", "opencode")


@pytest.mark.parametrize("client", CLIENTS)
def test_what_real_clients_wrote_is_read_as_it_was(client, tmp_path):
    store = RECORDED / client
    as_of = datetime.fromisoformat((store / "as_of.txt").read_text().strip())
    truth = pl.read_csv(store / "truth.csv", schema=TRUTH).with_columns(
        pl.col("part").fill_null("")
    )
    with read_store(_with_database(store, tmp_path), as_of) as snap:
        compared = compare(snap, client, truth)
        assert not unknown_kinds(snap)
    assert compared.height >= 100
    assert wrong(compared).rows() == []


def _with_database(store: Path, tmp_path: Path) -> Path:
    """The store itself, or the database that its SQL makes."""
    if not (statements := store / "opencode.sql").exists():
        return store
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as database:
        database.executescript(statements.read_text("utf-8"))
    return tmp_path


@pytest.mark.parametrize("client", sorted(KNOWN_WRONG))
def test_a_turn_is_a_prompt_in_every_client_however_often_the_model_was_asked(client, tmp_path):
    store = RECORDED / client
    as_of = datetime.fromisoformat((store / "as_of.txt").read_text().strip())
    truth = pl.read_csv(store / "truth.csv", schema=TRUTH).filter(
        pl.col("part").fill_null("") == ""
    )
    scenario_of = dict(truth.select("session_id", "scenario").iter_rows())
    with read_store(_with_database(store, tmp_path), as_of) as snap:
        sessions = snap.entities.filter(entity_type="session")
        turns = snap.entities.filter(entity_type="turn")["session_id"].value_counts()
    n_turns = dict(sessions.select("entity_id", "n_turns").iter_rows())
    by_scenario = {scenario_of[key]: n for key, n in n_turns.items() if key in scenario_of}
    once = ("success", "failing_tool", "retried", "refusal", "unauthorized", "parallel_tools")
    assert {by_scenario[name] for name in once} == {1}
    assert by_scenario["resume"] == 2
    assert {key: n_turns[key] for key in turns["session_id"]} == dict(turns.iter_rows())
