"""From rows that were read to canonical facts: what the mapping adds to the reading."""

import tempfile
from pathlib import Path

from benchmarks.measure import Row, median_s
from stateanalytics.io.sqlite import open_store
from stateanalytics.systems.lionagi import events
from stateanalytics.systems.lionagi import reading as lionagi
from stateanalytics.systems.lionagi.frames import read_raw
from stateanalytics.systems.lionagi.sessions import sessions
from stateanalytics.systems.lionagi.transitions import add_end_writers, transitions
from tests.generators import write_store

N_MESSAGES_EACH = 10
_SHARE = "comes before it: a share, no contest"


def run(n_sessions: int = 300_000) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        silent = write_store(Path(folder) / "silent.db", n_sessions)
        spoken = write_store(
            Path(folder) / "spoken.db",
            n_sessions // N_MESSAGES_EACH,
            n_messages_per_session=N_MESSAGES_EACH,
        )
        with open_store(silent) as store:
            raw, *_ = read_raw(store)
            reading_s = median_s(lambda: read_raw(store), 3)
            mapping_s = median_s(lambda: add_end_writers(sessions(raw), transitions(raw)), 3)
            whole_s = median_s(lambda: lionagi.read(store), 3)
        with open_store(spoken) as store:
            told, *_ = read_raw(store)
            spoken_reading_s = median_s(lambda: read_raw(store), 3)
            events_s = median_s(lambda: events.all_events(told), 3)
    millions = n_sessions / 1e6
    reading = "reading the rows"
    return [
        Row(
            f"{millions:g} M sessions, from rows to entities",
            mapping_s,
            reading,
            reading_s,
            "at most .25 x",
            mapping_s <= 0.25 * reading_s,
            "contracts, messages, who wrote the end",
            differs=_SHARE,
        ),
        Row(
            f"{millions:g} M sessions with their history, whole",
            whole_s,
            reading,
            reading_s,
            "at most 2 x",
            whole_s <= 2 * reading_s,
            "all frames and findings",
            differs=_SHARE,
        ),
        Row(
            f"{millions:g} M messages, from rows to events",
            events_s,
            reading,
            spoken_reading_s,
            "at most 1 x",
            events_s <= spoken_reading_s,
            "each with its session, in order",
            differs=_SHARE,
        ),
    ]
