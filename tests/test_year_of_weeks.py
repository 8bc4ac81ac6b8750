"""A year is archived week by week while its store forgets: every week's report stays as it was."""

import re
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from random import Random
from typing import NamedTuple

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.reporting import Report, report
from stateanalytics.systems.history import facts_at
from tests import cut_off, cut_off_ao, cut_off_opencode
from tests.test_any_moment import KEY, differing
from tests.test_archive import codes
from tests.test_report_late import BRIEF, MONDAY, WEEK_H, moment_s, store_at, without_provenance

KEPT_H = 2 * WEEK_H
"""How long the store remembers a run after anybody wrote of it."""
OF_EARLIER_WEEKS = ("limits", "weeks", "bars", "drawn")
OF_ALL_HISTORY = (
    *("finding", "n_unknown", "clusters", "lives", "gone", "news", "n_weeks_of_history"),
)
"""What the section of failures says of their life."""


class Week(NamedTuple):
    """What was made of one week when it was over, from the store and from the archive."""

    name: str
    hours: int
    store: Report
    archive: Report


def script_of(n_weeks, rng):
    """What happens in so many weeks, in the words of `store_at`, and what is dated back.

    Of a run that is dated back: the hour of its end, as it is written a week later.
    """
    script, dated_back = {}, {}
    for week in range(n_weeks):
        monday = week * WEEK_H
        for place in range(5):
            began = monday + rng.uniform(0, WEEK_H - 10)
            how = rng.choices(("completed", "failed", "timed_out"), (6, 3, 1))[0]
            script[f"w{week}-{place}"] = (began, 0, [(began + rng.uniform(0.1, 8), how)])
        friday = monday + 4 * 24 + rng.uniform(0, 48)
        after = monday + WEEK_H + rng.uniform(1, 100)
        odd = {
            "over": (friday, 0, [(after, rng.choice(("completed", "failed")))]),
            "late": (friday, after - friday, [(after, "failed")]),
            "dead": (friday, 0, [(after, "failed")]),
            "resumed": (friday, 0, [(friday + 1, "failed"), (after, "running"),
                                    (after + 9, "completed")]),
            "long": (friday, 0, [(after + 2.5 * WEEK_H, "completed")]),
            "stuck": (friday, 0, []),
        }  # fmt: skip
        kinds = [*odd] if week == 0 else ["over", *rng.sample([*odd][1:-1], 2)]
        script |= {f"w{week}-{kind}": odd[kind] for kind in kinds}
        dated_back |= {f"w{week}-{kind}": friday + 1 for kind in kinds if kind in ("late", "dead")}
    return script, dated_back


def write_week(path, script, dated_back, hours):
    """The store at an hour, without the runs that nobody wrote of for long."""
    store_at(path, script, hours)
    with closing(sqlite3.connect(path)) as store:
        store.executemany(
            "UPDATE sessions SET ended_at = ? WHERE id = ? AND ended_at NOT NULL",
            [(moment_s(end), name) for name, end in dated_back.items()],
        )
        store.commit()
    forget_sessions(path, MONDAY + timedelta(hours=hours - KEPT_H))
    return path


def forget_sessions(path, before):
    """As lionagi prunes: the messages of a session stay, and are nobody's then."""
    with closing(sqlite3.connect(path)) as store:
        is_old = "ended_at < ? AND coalesce(updated_at, 0) < ?"
        gone = store.execute(f"SELECT id FROM sessions WHERE {is_old}", [before.timestamp()] * 2)
        for (name,) in gone.fetchall():
            store.execute("DELETE FROM status_transitions WHERE entity_id = ?", [name])
            store.execute("DELETE FROM branches WHERE session_id = ?", [name])
            store.execute("DELETE FROM sessions WHERE id = ?", [name])
        store.commit()


def archived_weeks(folder, script, dated_back, n_weeks, sections):
    """Each week the store forgets, is archived and reported on; then the next one begins."""
    store, history, weeks = folder / "state.db", folder / "history", []
    for hours in range(WEEK_H, (n_weeks + 1) * WEEK_H, WEEK_H):
        end = MONDAY + timedelta(hours=hours)
        name = f"{end - timedelta(hours=1):%G-W%V}"
        with sa.read(write_week(store, script, dated_back, hours), progress=False) as snap:
            assert snap.archive(history)["status"].to_list() == ["archived"]
        made = [
            report(sa.read(place, as_of=end, progress=False), window=name, sections=sections,
                   shown=False)
            for place in (store, history)
        ]  # fmt: skip
        weeks.append(Week(name, hours, *made))
    return weeks


def written_since(script, hours, last_hour):
    """The runs that began by an hour, and were written, or written to, between then and another."""
    return {
        name
        for name, (began, delay, changes) in script.items()
        if began < hours
        and any(hours < at <= last_hour for at, _ in [(began + delay, ""), *changes])
    }


def without_memory(summary):
    """Whether a cause was ever seen before, and since when, is asked of all that is remembered."""
    told = without_provenance(summary)
    # What explains a change compares with all weeks before it.
    told.pop("story")
    # Where the page's commands read from.
    told.pop("place", None)
    # Two windows alone are a judge only where there are no more.
    told["lost"] = told["lost"] and re.split(r", (?:not )?significant|\.$", told["lost"])[0]
    told["actions"] = [
        {**action, "examples": [{**one, "command": None} for one in action["examples"]]}
        for action in told["actions"]
    ]
    headline = told["headline"]
    numbers = [
        {name: part for name, part in number.items() if name not in OF_EARLIER_WEEKS}
        | {"change": {name: number["change"][name] for name in ("n", "of", "difference")}}
        for number in headline["numbers"]
        # It is a number of the page from eight weeks on.
        if number["name"] != "time_to_complete"
    ]
    if "durations" in told:
        kinds = told["durations"]["by_kind"]
        rows = [{**row, "limits": None} for row in kinds["rows"]]
        told["durations"] = {**told["durations"], "by_kind": {**kinds, "rows": rows}}
    told.pop("verdict")
    # What is normal, and what changed.
    first, others = told["lead"]
    told["lead"] = [re.split(r", lowest|, normal|\. ", first)[0], others]
    told["headline"] = {**headline, "numbers": numbers, "weeks": None}
    told.pop("news")
    if "failures" in told:
        told["failures"] = {
            name: part for name, part in told["failures"].items() if name not in OF_ALL_HISTORY
        }
    return told


@pytest.mark.parametrize(
    ("n_weeks", "sections"),
    [
        pytest.param(4, ("late", "provenance", "appendix"), id="a month", marks=pytest.mark.slow),
        pytest.param(52, BRIEF, id="a year", marks=pytest.mark.slow),
    ],
)
def test_every_week_is_reported_from_the_archive_as_it_was_then(tmp_path, n_weeks, sections):
    script, dated_back = script_of(n_weeks, Random(12))
    weeks = archived_weeks(tmp_path, script, dated_back, n_weeks, sections)
    last_hour = n_weeks * WEEK_H
    as_of = MONDAY + timedelta(hours=last_hour)
    kept = sa.read(tmp_path / "history", as_of=as_of, progress=False)
    assert codes(kept) == []
    assert kept.events["entity_id"].null_count() == 0
    assert set(kept.entities.filter(entity_type="session")["entity_id"]) == {
        name for name, (began, delay, _) in script.items() if began + delay <= last_hour
    }
    left = sa.read(tmp_path / "state.db", progress=False).entities.filter(entity_type="session")
    assert left.height < len(script) - 5 * (n_weeks - 3)

    for week in weeks:
        end = MONDAY + timedelta(hours=week.hours)
        again, made = (
            report(kept, window=week.name, as_known_at=known_at, sections=sections, shown=False)
            for known_at in (end, None)
        )
        assert without_provenance(again.summary) == without_provenance(week.archive.summary)
        assert without_memory(again.summary) == without_memory(week.store.summary)
        late = {row["entity_id"] for row in made.summary["late"]["rows"]}
        assert late == written_since(script, week.hours, last_hour)
        changes = sa.diff(week.store, made)
        assert {name for runs in changes["runs"].drop_nulls() for name in runs} <= late
        unexplained = changes.filter(cause="unexplained")
        assert unexplained["n_before"].equals(unexplained["n_after"].alias("n_before"))


def forget_events(path, before):
    """As Agent Orchestrator drops the events of its database."""
    with closing(sqlite3.connect(path / "activity-events.db")) as store:
        limit = before.timestamp() * 1000
        store.execute("DELETE FROM activity_events WHERE ts_epoch < ?", [limit])
        store.commit()


def forget_executions(path, before):
    """A database without the sessions that nobody wrote to."""
    limit = before.timestamp() * 1000
    with closing(sqlite3.connect(path)) as store:
        names = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        columns = {
            table: {row[1] for row in store.execute(f"PRAGMA table_info({table})")}
            for (table,) in names
        }
        gone = store.execute("SELECT id FROM session WHERE time_updated < ?", [limit]).fetchall()
        for table, there in columns.items():
            for column in {"session_id", "aggregate_id"} & there:
                store.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
        store.executemany("DELETE FROM session WHERE id = ?", gone)
        store.commit()


SAMPLES = {
    "lionagi": ("lionagi/0.36.0/state.db", cut_off.instants, cut_off.cut_off, forget_sessions),
    "agent_orchestrator": (
        "agent-orchestrator/v3_json_final_ts",
        cut_off_ao.instants,
        cut_off_ao.cut_off,
        forget_events,
    ),
    "opencode": (
        "opencode/v2_20260717/opencode-local.db",
        cut_off_opencode.instants,
        cut_off_opencode.cut_off,
        forget_executions,
    ),
}
N_TIMES = 6
KNOWN_BETTER = ("silence_s",)
"""What a store that forgot its events knows of a session is older than what is archived."""


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_states_of_every_archived_moment_are_those_that_the_store_told(shared, tmp_path, sample):
    name, instants, cut, forget = SAMPLES[sample]
    original = shared / "samples" / name
    with sa.read(original, progress=False) as whole:
        every = [at for at in instants(original) if at <= whole.as_of]
    moments = [every[len(every) * (place + 1) // N_TIMES - 1] for place in range(N_TIMES)]
    told = {}
    for before, at in zip([None, *moments], moments, strict=False):
        (tmp_path / "now").mkdir()
        copy = cut(original, at, tmp_path / "now" / original.name)
        if before is not None:
            forget(copy, before)
        with sa.read(copy, as_of=at, progress=False) as snap:
            told[at] = sa.states(snap)
        with sa.read(copy, progress=False) as snap:
            assert snap.archive(tmp_path / "history")["status"].to_list() == ["archived"]
        shutil.rmtree(tmp_path / "now")
    kept = sa.read(tmp_path / "history", progress=False)
    assert kept.entities.height > told[moments[-1]].height or sample == "agent_orchestrator"
    for at, states in told.items():
        said = sa.states(facts_at(kept, at).facts).join(states, on=KEY, how="semi")
        assert differing(states, said, KNOWN_BETTER) == {}
        both = states.join(said, on=KEY, suffix="_said")
        assert both.filter(pl.col("silence_s_said") > pl.col("silence_s")).is_empty()
