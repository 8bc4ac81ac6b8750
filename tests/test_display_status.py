"""The word that lionagi's own pages show, quirks included."""

import polars as pl

from stateanalytics.systems.lionagi.detectors import with_display_status

COLUMNS = ("status", "reason_code", "reason_message", "session_health")


def shown(status, code=None, message=None, health=None):
    rows = pl.DataFrame(
        [(status, code, message, health)], schema=dict.fromkeys(COLUMNS, pl.String), orient="row"
    )
    return with_display_status(rows).row(0, named=True)


def test_a_reaped_run_is_shown_as_orphaned_unless_it_left_locks():
    assert shown("failed", message="phantom_reaped")["display_status"] == "orphaned"
    locked = shown("failed", "session.zombie.stale_locks", "phantom_reaped")
    assert (locked["display_status"], locked["is_orphaned_reason"]) == ("failed", False)


def test_running_with_a_dead_health_is_not_active():
    assert shown("running", health="unresponsive")["is_effectively_active"] is True
    assert shown("running", health="stale")["is_effectively_active"] is False
    assert shown("queued", health="stale")["is_effectively_active"] is True


def test_no_rows_have_no_words():
    assert with_display_status(pl.DataFrame(schema=dict.fromkeys(COLUMNS, pl.String))).height == 0
