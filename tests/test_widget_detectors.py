"""The explorer of detectors: what a choice shows, and that it can be had without a kernel."""

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError, MissingColumnsError
from stateanalytics.widgets.worksheets import YOURS
from tests.ratios import times_as_slow
from tests.test_charts_detectors import AT, HOSTILE


@pytest.fixture(scope="module")
def look(demo):
    return sa.DetectorExplorer(sa.detectors.detect(demo, detectors=["B1", "B2", "B4", "A6"]))


def only(frame, flags, silent):
    found = frame.filter(flags=flags, silent=silent)["n_only"].to_list()
    return found[0] if found else 0


def test_counts_equal_those_of_the_disagreements(look):
    rows = sa.detectors.disagreements(look.detections).rows.filter(says_b="fine")
    counted = look.counts(look.names)
    for (a, b), part in rows.group_by("a", "b"):
        assert only(counted, a, b) == part.height
    assert counted["n_only"].sum() == rows.height


def test_a_kind_narrows_the_counts(look):
    whole = look.counts(look.names)["n_only"].sum()
    parts = [look.counts(look.names, kind=kind)["n_only"].sum() for kind in look.kinds]
    assert 0 < max(parts) < whole


def test_a_threshold_adds_a_rule_of_yours_that_flags_less_the_higher_it_is(look):
    def flagged(limit_s):
        found = look.counts(look.names, silent_after_s=limit_s)
        return sum(only(found, YOURS, other) for other in look.names)

    assert flagged(60.0) >= flagged(3_600.0) >= flagged(604_800.0) == 0


def test_your_rule_is_exact_and_does_not_judge_what_nobody_measured():
    rows = pl.DataFrame(
        {
            "source": "s", "system": "lionagi", "entity_type": "session",
            "entity_id": ["at", "past", "unseen"], "kind": "flow", "at": AT, "covered": True,
            "detector": "dashboard_stale_card", "fires": [True, True, True],
            "measured_s": [3_600.0, 3_601.0, None],
        }
    )  # fmt: skip
    found = sa.DetectorExplorer(rows).counts(silent_after_s=3_600.0)
    assert only(found, "dashboard_stale_card", YOURS) == 1


def test_the_view_has_the_matrix_the_causes_and_the_rows(look):
    shown = look.view(["dashboard_stuck_60m", "dashboard_stale_card"])
    for part in ("Flagged by the row", "Causes", "Rows", "construct", "since start"):
        assert part in shown


def test_the_box_follows_its_controls(look):
    choices, shown = look.widget.children
    before = shown.value
    choices.children[0].value = ("dashboard_stuck_60m", "dashboard_stale_card")
    assert shown.value != before
    before = shown.value
    choices.children[1].children[1].value = 3_600.0
    assert YOURS in shown.value
    assert shown.value != before


@pytest.mark.slow
def test_a_move_is_cheaper_than_detecting_again(look, demo):
    look.view()
    work = {
        "detect": lambda: sa.detectors.detect(demo, detectors=["B1", "B2", "B4", "A6"]).rows,
        "move": lambda: look.view(kind="flow", silent_after_s=3_600.0),
    }
    assert times_as_slow(lambda name: work[name](), "detect", "move") > 3


def test_it_shows_itself_with_and_without_a_kernel(look):
    bundle = look._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert " stuck and " in bundle["text/html"]
    assert "DetectorExplorer of 4 detectors" in bundle["text/plain"]


def test_nothing_flagged_is_said(demo):
    rows = sa.detectors.detect(demo, detectors=["B2"]).rows
    empty = sa.DetectorExplorer(rows.filter(~pl.col("covered")))
    assert "No detector flags anything" in empty.widget.children[0].value
    assert empty.counts().is_empty()


def test_hostile_names_are_text(look):
    named = dict.fromkeys(("entity_id", "kind"), pl.lit(HOSTILE))
    rows = look.detections.with_columns(source=pl.col("entity_id"), **named)
    shown = sa.DetectorExplorer(rows).as_html()
    assert "<img" not in shown and "&lt;img" in shown


def test_what_is_wrong_with_the_input_is_said(look):
    with pytest.raises(ArgumentError, match="needs detections; found int"):
        sa.DetectorExplorer(3)
    with pytest.raises(MissingColumnsError, match="DetectorExplorer"):
        sa.DetectorExplorer(pl.DataFrame({"a": [1]}))
    with pytest.raises(ArgumentError, match=r"flags nothing here.*\n.*did you mean"):
        look.view(["dashboard_stuck_60"])
