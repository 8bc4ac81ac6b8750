"""The word that lionagi's own pages show, quirks included."""

import polars as pl
import pytest

from stateanalytics.errors import MissingColumnsError
from stateanalytics.systems.lionagi.features import with_display_status
from tests.engines import assert_same_rows, on_every_engine

COLUMNS = ("status", "reason_code", "reason_message", "session_health")


def shown(status, code=None, message=None, health=None):
    rows = pl.DataFrame(
        [(status, code, message, health)], schema=dict.fromkeys(COLUMNS, pl.String), orient="row"
    )
    return with_display_status(rows).row(0, named=True)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("done", "completed"),
        ("timed_out", "cancelled"),
        ("error", "failed"),
        ("scheduled", "queued"),
        (" Failed ", "failed"),
        ("completed_empty", "running"),
        ("merged", "running"),
        ("", "running"),
        (None, "running"),
    ],
)
def test_each_status_has_its_word(status, word):
    assert shown(status)["display_status"] == word


def test_a_reaped_run_is_shown_as_orphaned_unless_it_left_locks():
    assert shown("failed", message="phantom_reaped")["display_status"] == "orphaned"
    locked = shown("failed", "session.zombie.stale_locks", "phantom_reaped")
    assert (locked["display_status"], locked["is_orphaned_reason"]) == ("failed", False)


def test_running_with_a_dead_health_is_not_active():
    assert shown("running", health="unresponsive")["is_effectively_active"] is True
    assert shown("running", health="stale")["is_effectively_active"] is False
    assert shown("queued", health="stale")["is_effectively_active"] is True


def test_empty_frames_and_missing_columns():
    nothing = pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))
    assert with_display_status(nothing).height == 0
    with pytest.raises(MissingColumnsError, match="with_display_status needs columns"):
        with_display_status(nothing.drop("status"))


@on_every_engine
def test_every_engine_shows_the_same(engine):
    rows = pl.DataFrame(
        {
            "status": ["running", " Done", None],
            "reason_code": [None, "a", None],
            "reason_message": ["phantom_reaped", None, None],
            "session_health": ["zombie", None, "stale"],
        }
    )
    assert_same_rows(engine.back(with_display_status(engine.of(rows))), with_display_status(rows))
