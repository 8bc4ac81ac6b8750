"""One row whose clock runs ahead makes nothing else old, in any system."""

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.core.schema import MOMENT
from stateanalytics.io.as_of import newest_in_company
from tests.conftest import SHIPPED
from tests.ratios import times_as_slow

YEAR_S = 365 * 24 * 3600
AXES = ("lifecycle", "outcome", "health", "delivery", "severity", "reason_codes")
KEY = ("entity_type", "entity_id")
GO_SESSION = {"project_id": "web", "harness": "claude-code", "session_mode": "tui"}
GO_SESSION |= {"activity_state": "idle", "is_terminated": 0, "first_signal_at": ""}
GO_MOMENTS = ("created_at", "activity_last_at", "updated_at")


def of_lionagi(store: Path, *, is_ahead: bool) -> str:
    """The sample, in which every moment of a session that is over is a year ahead."""
    shutil.copy(SHIPPED["lionagi"], store)
    with closing(sqlite3.connect(store)) as db:
        query = "SELECT id FROM sessions WHERE status = 'completed' ORDER BY id LIMIT 1"
        [own] = db.execute(query).fetchone()
        moments = ("created_at", "started_at", "last_message_at", "updated_at", "ended_at")
        later = ", ".join(f"{name} = {name} + {YEAR_S * is_ahead}" for name in moments)
        db.execute(f"UPDATE sessions SET {later} WHERE id = ?", (own,))
        db.commit()
    return str(own)


def of_agent_orchestrator(store: Path, *, is_ahead: bool) -> str:
    """The sample, in which a record that is over is a year ahead with all that it says."""
    shutil.copytree(SHIPPED["agent_orchestrator"], store)
    [record] = store.glob("projects/*/sessions/app-1.json")
    if is_ahead:
        record.write_text(record.read_text("utf-8").replace('"2026-', '"2027-'), "utf-8")
    return "app-1"


def of_the_rewrite(store: Path, *, is_ahead: bool) -> str:
    """Sessions of the Go rewrite that rest, of which one is a year ahead."""
    with closing(sqlite3.connect(store)) as db:
        columns = [*GO_SESSION, *GO_MOMENTS]
        db.execute(f"CREATE TABLE sessions (id, {', '.join(columns)})")
        db.execute("CREATE TABLE change_log (seq, project_id, session_id, event_type, payload)")
        db.execute("CREATE TABLE pr (url, session_id)")
        for number in range(5):
            year = 2027 if is_ahead and not number else 2026
            at = [f"{year}-05-20 10:00:{number + late:02} +0000 UTC" for late in range(3)]
            row = [f"web-{number}", *GO_SESSION.values(), *at]
            db.execute(f"INSERT INTO sessions VALUES ({', '.join('?' * len(row))})", row)
        db.commit()
    return "web-0"


def of_opencode(store: Path, *, is_ahead: bool) -> str:
    """The sample, in which one event in the middle of a session is a year ahead."""
    lines = (SHIPPED["opencode"] / "events_july_2026.jsonl").read_text("utf-8").splitlines()
    event = json.loads(lines[5])
    event["created"] += YEAR_S * 1000 * is_ahead
    store.write_text("\n".join([*lines[:5], json.dumps(event), *lines[6:]]) + "\n", "utf-8")
    return str(event["durable"]["aggregateID"])


def of_transcripts(store: Path, *, is_ahead: bool, system: str, session: str, line_no: int) -> str:
    """The sample, in which one line of a transcript is a year ahead."""
    shutil.copytree(SHIPPED[system], store)
    [transcript] = store.rglob(f"*{session}.jsonl")
    lines = transcript.read_text("utf-8").splitlines()
    lines[line_no] = re.sub(r"2026(?=-\d\d-\d\dT)", str(2026 + is_ahead), lines[line_no])
    transcript.write_text("\n".join(lines) + "\n", "utf-8")
    return session


CLAUDE_CODE, CODEX = "cad4af6c-2cb8-5115-8f2f-ef1d2afb41ef", "019e449c-fe80-7432-8967-337bb851c2ac"


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(of_lionagi, marks=pytest.mark.slow),
        of_agent_orchestrator,
        of_the_rewrite,
        pytest.param(of_opencode, marks=pytest.mark.slow),
        partial(of_transcripts, system="claude_code", session=CLAUDE_CODE, line_no=8),
        partial(of_transcripts, system="codex", session=CODEX, line_no=1),
    ],
)
def test_one_clock_that_runs_ahead_changes_the_state_of_nothing_else(
    write: Callable[..., str], tmp_path: Path
) -> None:
    stores = {is_ahead: tmp_path / f"{is_ahead}.jsonl" for is_ahead in (False, True)}
    [own] = {write(store, is_ahead=is_ahead) for is_ahead, store in stores.items()}
    right, ahead = (sa.read(store, progress=False) for store in stores.values())
    assert ahead.as_of == right.as_of
    ids = pl.col("entity_id", "session_id", "parent_id").fill_null("")
    is_own = pl.any_horizontal(ids.str.contains(own, literal=True))
    others = right.entities.filter(~is_own)
    before, after = (
        others.select(KEY).join(sa.states(snap).select(*KEY, *AXES), on=KEY, how="left")
        for snap in (right, ahead)
    )
    assert after.equals(before)
    assert before.height > 1
    found = [set(snap.findings["code"]) for snap in (right, ahead)]
    assert found[1] - found[0] <= {"time.future", "time.out_of_order", "time.backwards"}
    assert "time.future" in found[1] - found[0]


def test_a_silence_is_not_judged_by_a_clock_that_runs_ahead(tmp_path: Path) -> None:
    of_the_rewrite(tmp_path / "ao.db", is_ahead=True)
    ahead = sa.read(tmp_path / "ao.db", progress=False)
    assert set(ahead.entities["raw_status"]) == {"idle"}


NOW = datetime(2026, 5, 20, tzinfo=UTC)


def moments(days: list[int]) -> pl.Series:
    return pl.Series([NOW + timedelta(days=day) for day in days], dtype=MOMENT)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        *(([[[60]] * 2], 0), ([[[60], [61], [62]]], 0)),  # moments of one row
        ([[[60]], [[60]], [[60]]], 0),  # what one line tells in three rows
        *(([[[60, 61]], [[62]]], 62), ([[[60, 69, 78]]], 0)),
        ([[[20], [20], [20]]], 20),  # a session after a holiday
        *(([[[20], [20]]], 0), ([[[6]]], 6)),
    ],
)
def test_a_moment_counts_that_is_in_company(later: list[list[list[int]]], expected: int) -> None:
    kinds = [[moments([-2, -1, 0])], *([moments(days) for days in kind] for kind in later)]
    columns = [column for kind in kinds for column in kind]
    assert newest_in_company(kinds, columns) == NOW + timedelta(days=expected)


def test_without_a_moment_nothing_is_the_newest() -> None:
    assert newest_in_company([[pl.Series(dtype=MOMENT)]], [pl.Series(dtype=MOMENT)]) is None


def newest_by_hand(kinds: list[list[list[int]]]) -> int:
    """The same, row by row, of days."""
    days = sorted({day for columns in kinds for column in columns for day in column})
    clusters = [days[:1]]
    for before, day in pairwise(days):
        clusters[-1:] = [[*clusters[-1], day]] if day - before <= 7 else [clusters[-1], [day]]
    if len(clusters) == 1:
        return days[-1]
    crowds = []
    for before, few in pairwise([clusters[0], *clusters]):
        is_far = few[0] - before[-1] > 30
        counts = [[sum(day in few for day in column) for column in columns] for columns in kinds]
        n = sum((max if is_far else sum)(of_kind) for of_kind in counts)
        crowds += [(n, few[-1], not is_far or len(few) > 1)] * (n >= 3)
    in_company = [last for _, last, is_company in crowds if is_company]
    return in_company[-1] if in_company else max(crowds)[1] if crowds else days[-1]


@pytest.mark.parametrize("seed", range(12))
def test_the_newest_in_company_is_that_of_a_slow_loop(seed: int) -> None:
    rng = random.Random(seed)
    starts = [rng.randrange(0, 250) for _ in range(4)]

    def column() -> list[int]:
        return [rng.choice(starts) + rng.choice((0, 0, 1, 3, 7)) for _ in range(rng.randint(1, 6))]

    days = [[column() for _ in range(rng.randint(1, 3))] for _ in range(2)]
    kinds = [[moments(each) for each in columns] for columns in days]
    columns = [column for kind in kinds for column in kind]
    assert newest_in_company(kinds, columns) == NOW + timedelta(days=newest_by_hand(days))


def test_many_clocks_that_are_wrong_are_hardly_dearer_than_one() -> None:
    one, many = (
        moments([*[0] * 2000, *range(40, 40 * n, 40), *[0] * (2000 - n)]) for n in (2, 2000)
    )

    def newest(days: pl.Series) -> object:
        return newest_in_company([[days]] * 3, [days])

    assert newest(many) == newest(one) == NOW
    assert times_as_slow(newest, many, one, most=20) < 20
