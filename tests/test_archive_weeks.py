"""Some weeks of an archive are opened without the others."""

import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.io.archive import reading
from tests.lionagi_stores import NOW_S, change, session, write_store
from tests.test_archive import codes

WEEK_S = 7 * 86_400
# Wednesday of 2026-W22, and of the weeks before.
WEDNESDAY = [NOW_S + i * WEEK_S for i in range(-3, 1)]


def work(identity, begun, ended=None):
    """A session and its history: what is open has no end."""
    statuses = {"running": begun} | ({} if ended is None else {"completed": ended})
    last = begun if ended is None else ended
    row = session(identity, status=list(statuses)[-1], created_at=begun, started_at=begun,
                  ended_at=ended, updated_at=last, last_message_at=last)  # fmt: skip
    return row, [change(identity, status, at) for status, at in statuses.items()]


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Four weeks: a session in each, one over the second and third, one open since the first."""
    folder = tmp_path_factory.mktemp("weeks")
    told = [
        *(work(f"in-{i}", at, at + 600) for i, at in enumerate(WEDNESDAY)),
        work("over-1-2", WEDNESDAY[1] + 900, WEDNESDAY[2] + 900),
        work("open", WEDNESDAY[0] + 900),
    ]
    rows = [row for row, _ in told]
    changes = [one for _, many in told for one in many]
    with sa.read(write_store(folder / "state.db", sessions=rows, status_transitions=changes)) as s:
        s.archive(folder / "history")
    return folder / "history"


def sessions(snap):
    return sorted(snap.entities.filter(entity_type="session")["entity_id"])


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        pytest.param("2026-W19", ["in-0", "open"], id="the first"),
        pytest.param("2026-W20", ["in-1", "open", "over-1-2"], id="work that ends later"),
        pytest.param("2026-W21", ["in-2", "open", "over-1-2"], id="work that began before"),
        pytest.param("2026-W20..W21", ["in-1", "in-2", "open", "over-1-2"], id="two"),
        pytest.param("2026-W22", ["in-3", "open", "over-1-2"], id="the last"),
    ],
)
def test_weeks_hold_their_own_work_and_what_spans_them(history, asked, there):
    snap = sa.read(history, weeks=asked)
    assert sessions(snap) == there
    [found] = snap.findings.filter(code="archive.some_weeks")["message"]
    n_read, n_all = (int(n.replace(",", "")) for n in found.split(" bytes")[0].split(" of "))
    assert 0 < n_read < n_all
    assert n_all == sum(path.stat().st_size for path in history.rglob("*.parquet"))


@pytest.mark.slow
def test_a_week_stands_as_it_did_at_its_end(history):
    for asked in ("2026-W19", "2026-W20", "2026-W21"):
        some = same_states(history, asked)
        assert some["evaluated_at"].dt.strftime("%G-W%V").unique().to_list() == [asked]
        assert some.filter(entity_id="open")["lifecycle"].to_list() == ["running"]


def same_states(root, asked):
    """The states of some weeks, which are those of the whole archive at the same instant."""
    snap = sa.read(root, weeks=asked)
    key = ["source", "entity_type", "entity_id"]
    some = sa.states(snap).sort(key)
    whole = sa.states(sa.read(root, as_of=snap.as_of))
    assert_frame_equal(some, whole.join(some, on=key, how="semi").sort(key))
    return some


# At the desk, the weeks by hand below.
@pytest.mark.slow
def test_any_weeks_of_the_sample_tell_what_all_of_it_tells(demo, tmp_path):
    demo.archive(tmp_path)
    there = sorted({path.parent.name for path in tmp_path.rglob("*.parquet")} - {"across"})
    for i, first in enumerate(there):
        for last in there[i:]:
            assert same_states(tmp_path, f"{first}..{last}").height


@pytest.mark.slow
def test_work_that_goes_on_after_it_was_archived_is_known_in_every_week(tmp_path):
    """It had ended in its first week, and was filed under that."""
    store, (first, second, _, last) = tmp_path / "state.db", WEDNESDAY
    statuses = [
        ("running", first),
        ("completed", first + 60),
        ("running", second),
        ("failed", last),
    ]
    other, others = work("other", last)
    for n_told in (2, 4):
        store.unlink(missing_ok=True)
        status, at = statuses[n_told - 1]
        row, _ = work("again", first, at)
        told = [change("again", *one) for one in statuses[:n_told]]
        with sa.read(
            write_store(store, sessions=[{**row, "status": status}, other],
                        status_transitions=[*told, *others])
        ) as snap:  # fmt: skip
            snap.archive(tmp_path / "history")
    seen = {}
    for asked in ("2026-W19", "2026-W20", "2026-W21", "2026-W22"):
        states = same_states(tmp_path / "history", asked).filter(entity_id="again")
        seen[asked[-2:]] = states["lifecycle"].to_list()
    assert seen == {"19": ["completed"], "20": ["running"], "21": ["running"], "22": ["failed"]}


def test_only_files_of_those_weeks_are_opened(history):
    for path in history.rglob("2026-W2[01]/*.parquet"):
        path.write_bytes(b"")
    assert codes(sa.read(history, weeks="2026-W22")) == ["archive.some_weeks"]
    assert "archive.shard_damaged" in codes(sa.read(history))


def test_the_end_of_the_last_week_is_not_chosen_where_the_archive_ends_before(history):
    assert sa.read(history, weeks="2026-W20..W40").as_of_from == "data"


def test_a_refreshed_snapshot_has_the_same_weeks(history):
    snap = sa.read(history, weeks="2026-W22")
    assert snap.refresh().entities.equals(snap.entities)


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("W20", "needs ISO weeks"),
        ("2026-05-20", "needs ISO weeks"),
        ("", "needs ISO weeks"),
        ("2026-W20..", "needs ISO weeks"),
        ("2026-W01..W02..W03", "needs ISO weeks"),
        ("2026-W21..W20", "ends before it begins"),
        ("2026-W54", "no week 54 in 2026"),
        (20, "needs ISO weeks"),
    ],
)
def test_what_is_no_weeks_says_so(history, asked, problem):
    with pytest.raises(ArgumentError, match=problem):
        sa.read(history, weeks=asked)


def test_weeks_of_two_years():
    chosen = reading.ChosenWeeks.of("2025-W50..2026-W03")
    assert [chosen.has(week) for week in ("2025-W49", "2025-W52", "2026-W03", "2026-W04")] == [
        False, True, True, False,
    ]  # fmt: skip


def test_a_week_is_filed_by_its_own_year(tmp_path):
    """1 January 2027 is a Friday of 2026-W53."""
    at = 1_798_761_600.0
    row, changes = work("new-year", at, at + 60)
    store = write_store(tmp_path / "state.db", sessions=[row], status_transitions=changes)
    with sa.read(store) as snap:
        snap.archive(tmp_path / "history")
    folders = {path.parent.name for path in (tmp_path / "history").rglob("*.parquet")}
    assert "2026-W53" in folders
    assert sa.read(tmp_path / "history", weeks="2026-W53").entities.height == 1
