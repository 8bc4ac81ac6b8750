"""A source that ends before the window is said first, and leaves the numbers alone."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.comparing import compare
from stateanalytics.core.windows import read_window
from stateanalytics.reporting.material import Material
from stateanalytics.weekly import weekly_numbers
from tests.failures import run
from tests.frames import AS_OF, ago, facts
from tests.samples import SAMPLES


def source(name, days, **more):
    return {"source": name, "system": "lionagi", "last_at": ago(days=days), **more}


def read(*sources):
    """A store that is in use, and one in which old runs are still open, one with an end time."""
    odd = run("odd", status="running", ended=ago(days=40), source="old.db")
    old = {**odd, "entity_id": "old", "ended_at": None, "end_written_by": None}
    new = [run("new", source="new.db"), run("well", status="completed", source="new.db")]
    return facts([old, odd, *new], sources=list(sources))


WEEK = read_window(None, as_of=AS_OF)


@pytest.mark.slow
def test_what_is_open_in_an_old_store_does_not_look_dead():
    made = sa.report(read(source("new.db", 1), source("old.db", 40)), shown=False)
    assert made.summary["coverage"]["in_words"] == (
        "1 of 2 sources has been silent since before this window, and its open work is excluded: "
        "old.db since Fri 17 Apr 2026; 2 sources read."
    )
    assert made.summary["headline"]["finding"].startswith("1 of 2 ended runs completed")
    assert not made.summary["attention"]["open"]["items"]
    page = made.as_html()
    assert page.index("been silent") < page.index('class="lead"')
    assert "been silent" in made.as_markdown()
    assert "been silent" in made.as_email()


@pytest.mark.parametrize(
    "sources",
    [
        [source("old.db", 40)],
        [source("old.db", 40), source("new.db", 30)],
        [source("old.db", 40) | {"last_at": None}, source("new.db", 1)],
        [],
    ],
    ids=["alone", "all of them", "without a moment", "none"],
)
def test_else_nothing_is_excluded(sources):
    given = read(*sources)
    material = Material.of(given, WEEK, sa.Policy.v1())
    assert material.facts is given
    assert material.whole is material
    assert material.outdated.is_empty()


def test_a_source_that_reaches_to_the_beginning_of_the_window_counts():
    for days, n in ((6.99, 0), (7, 1)):
        # An archive that looked at it since says the same.
        given = read(source("new.db", 1), source("old.db", days, looked_at=ago(days=1)))
        assert Material.of(given, WEEK, sa.Policy.v1()).outdated.height == n


def test_the_chapters_on_all_data_and_other_weeks_have_that_work():
    given = read(source("new.db", 1), source("old.db", 40))
    material = Material.of(given, WEEK, sa.Policy.v1())
    assert material.facts.entities.height == 2
    assert material.whole.facts.entities.height == material.whole.ever.height == 4
    then = read_window((ago(days=47), ago(days=39)), as_of=AS_OF)
    assert material.over(then).rows["entity_id"].to_list() == ["old", "odd"]
    made = sa.report(given, sections=["provenance", "audit"], shown=False).summary
    assert "4 entities" in made["provenance"]["finding"]
    assert made["audit"]["n"] == sa.audit(given).height


def test_weeks_leave_that_work_out_as_the_page_does():
    given = read(source("new.db", 1), source("old.db", 40))
    runs = weekly_numbers(given, 8).filter(pl.col("group_kind").is_null(), measure="runs")
    steps = compare(given, "runs", every="1w").frame
    assert runs["n"].to_list()[-1] == steps["value"].to_list()[-1] == 2


@pytest.mark.slow
def test_five_systems_of_which_one_is_current():
    names = ("state.db", "claude_code", "codex", "agent_orchestrator", "opencode")
    with sa.read(*(SAMPLES / name for name in names), progress=False) as snap:
        made = sa.report(snap, shown=False)
    assert len(made.summary["coverage"]["outdated"]) == 4
    assert not any("245 d" in action["why"] for action in made.summary["actions"])
