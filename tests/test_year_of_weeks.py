"""A year is archived week by week while its store forgets: every week's report stays as it was."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from random import Random
from typing import NamedTuple

import pytest

import stateanalytics as sa
from stateanalytics.reporting import Report, report
from tests.test_archive import codes
from tests.test_report_late import BRIEF, MONDAY, WEEK_H, moment_s, store_at, without_provenance

KEPT_H = 2 * WEEK_H
"""How long the store remembers a run after anybody wrote of it."""


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
    remembered = {
        name: run
        for name, run in script.items()
        if not run[2] or max(at for at, _ in run[2]) > hours - KEPT_H
    }
    store_at(path, remembered, hours)
    with closing(sqlite3.connect(path)) as store:
        store.executemany(
            "UPDATE sessions SET ended_at = ? WHERE id = ? AND ended_at NOT NULL",
            [(moment_s(end), name) for name, end in dated_back.items()],
        )
        store.commit()
    return path


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
    """Whether a cause was ever seen before is asked of all that is remembered."""
    return {name: part for name, part in without_provenance(summary).items() if name != "clusters"}


@pytest.mark.parametrize(
    ("n_weeks", "sections"),
    [
        pytest.param(4, ("late", "provenance", "appendix"), id="a month"),
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
