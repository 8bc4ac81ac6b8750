"""An earlier window needs only work that was not settled, and has the rows of the whole."""

from datetime import timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.windows import Window
from stateanalytics.reporting import material as making
from stateanalytics.reporting.material import Material
from stateanalytics.state.policy import Policy
from stateanalytics.systems.history import without_settled_work
from tests.conftest import SHIPPED
from tests.frames import AS_OF, facts

WEEK = timedelta(days=7)
BLURRED = ("raw_status", "ended_at", "updated_at", "session_id", "parent_id", "invocation_id")


@pytest.fixture(scope="module")
def lionagi():
    with sa.read(SHIPPED["lionagi"], progress=False) as snap:
        return snap


def blurred(snap, seed):
    """The same with rows of history and cells of entities that nobody kept."""
    n, share = snap.entities.height, 0.1

    def is_kept(n_rows, salt):
        return pl.int_range(n_rows, eager=True).hash(seed + salt) % 100 >= 100 * share

    # Of which schedule a run is stands in two tables, made from one cell.
    is_run = pl.col("entity_type") == "schedule_run"
    cells = (
        pl.when(is_kept(n, salt) | is_run).then(name).alias(name)
        for salt, name in enumerate(BLURRED, start=1)
    )
    history = {
        name: frame.filter(is_kept(frame.height, salt))
        for salt, name in enumerate(("transitions", "events"), start=100)
        for frame in [getattr(snap, name)]
    }
    return changed_facts(snap, entities=snap.entities.with_columns(cells), **history)


def of_earlier(material, until, monkeypatch, ask):
    with monkeypatch.context() as patched:
        patched.setattr(making, "without_settled_work", ask)
        return material.over(Window(until - WEEK, until, "earlier"))


def assert_same(snap, days, monkeypatch):
    as_of = snap.as_of
    material = Material.of(snap, Window(as_of - WEEK, as_of, "now"), Policy.v1())
    n_asked = n_unknown = 0
    for day in days:
        until = as_of - timedelta(days=day)
        whole = of_earlier(material, until, monkeypatch, lambda whole, *_: whole)
        part = of_earlier(material, until, monkeypatch, without_settled_work)
        assert_frame_equal(part.rows, whole.rows)
        assert part.n_unknown == whole.n_unknown
        n_asked += without_settled_work(snap, until, material.ever["is_open"]).entities.height
        n_unknown += whole.n_unknown
    return n_asked, n_unknown


def test_an_earlier_window_rewinds_a_part_and_gives_the_same_rows(lionagi, monkeypatch):
    n_asked, _ = assert_same(lionagi, [7.3], monkeypatch)
    assert n_asked < lionagi.entities.height / 2


def test_runs_without_recorded_changes_are_rewound(lionagi, monkeypatch):
    untold = changed_facts(lionagi, transitions=lionagi.transitions.clear())
    assert assert_same(untold, [2], monkeypatch)[1] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_part_gives_the_rows_of_the_whole_whatever_is_missing(lionagi, monkeypatch, seed):
    assert_same(blurred(lionagi, seed), [0.4 + seed / 8, 3 + seed / 5, 8, 13], monkeypatch)


@pytest.mark.parametrize(
    ("system", "days"),
    [
        ("claude_code", [1.1]),
        pytest.param("claude_code", [0.01, 0.3, 1.3, 1.6, 1.9, 2.1], marks=pytest.mark.slow),
        pytest.param("codex", [0.01, 0.3, 1.1, 1.3, 1.6, 1.9, 2.1], marks=pytest.mark.slow),
    ],
)
def test_a_part_of_transcripts_is_rewound_and_gives_the_same_rows(system, days, monkeypatch):
    with sa.read(SHIPPED["lionagi"].parent / system, progress=False) as snap:
        n_asked, _ = assert_same(snap, days, monkeypatch)
        assert 0 < n_asked < len(days) * snap.entities.height


@pytest.mark.parametrize("systems", [("opencode",), ("lionagi", "codex"), ("nobody",)])
def test_several_systems_and_systems_without_links_are_rewound_as_a_whole(systems):
    begun = AS_OF - 2 * WEEK
    moments = {"created_at": begun, "ended_at": begun}
    names = [(system, name) for system in systems for name in "abcd"]
    told = facts([{"system": system, "entity_id": name, **moments} for system, name in names])
    is_open = pl.repeat(value=False, n=told.entities.height, eager=True)
    assert without_settled_work(told, AS_OF - WEEK, is_open) is told
