"""Sums of a session in `entities` are those of its own frame, column by column."""

import polars as pl
import pytest

import stateanalytics as sa
from tests.conftest import SHARED, SHIPPED

# Entities count what was read in whatever way; the system's own frame has the parts.
OWN_MEANING = {"n_input_tokens", "n_turns"}


@pytest.mark.parametrize(
    ("system", "frame"),
    [("claude_code", "claude_sessions"), ("codex", "codex_sessions")],
)
@pytest.mark.parametrize("of", ["shipped", "shared"])
def test_sums_of_sessions_are_those_of_their_own_frame(system, frame, of):
    place = SHIPPED[system] if of == "shipped" else SHARED / "samples" / system.replace("_", "-")
    if not place.exists():
        pytest.skip("the folder ../shared is not here")
    with sa.read(place) as snap:
        own = snap.table(frame).rename({"thread_id": "entity_id"})
        entities = snap.entities.filter(entity_type="session")
    shared = {name for name in entities.columns if name.startswith("n_")} & {*own.columns}
    names = sorted(shared - OWN_MEANING)
    assert "n_output_tokens" in names
    both = entities.select("entity_id", *names).join(
        own.select("entity_id", *names), on="entity_id", suffix="_own"
    )
    assert both.height == entities.height
    for name in names:
        different = both.filter(pl.col(name).ne_missing(pl.col(f"{name}_own")))
        assert different.is_empty(), name
