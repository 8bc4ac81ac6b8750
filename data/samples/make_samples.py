"""Make the sample store through the real lionagi package: a week of believable work.

    python data/samples/make_samples.py [--into FOLDER]

Writes ``state.db``, ``runs/``, ``shows/`` and ``truth.csv``. The clock and the random
ids are given, so a second run makes the same content: compare ``sqlite3.iterdump``,
not bytes. Needs lionagi 0.36.0, which the development extra installs.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Beside its own parts, the templates of messages, which it shares with the tests.
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from making import (  # noqa: E402
    clock,
    deaths,
    invocations,
    oddities,
    others,
    outside,
    running,
    schedules,
    shows,
    truth,
    week,
)
from making.world import SEED, World  # noqa: E402

LIONAGI = "0.36.0"
PLANS = (
    week.work,
    invocations.fan_out,
    deaths.phantoms,
    deaths.killed,
    deaths.swept,
    deaths.resumed,
    running.still_running,
    oddities.promises,
    oddities.hostile_text,
    oddities.legacy,
    oddities.odd_rows,
    outside.mirrored,
    outside.imported,
    shows.perform,
    schedules.fire,
    others.complete,
)


def check_lionagi() -> None:
    """Is the lionagi that makes the samples the one that is installed."""
    found = importlib.metadata.version("lionagi")
    if found != LIONAGI:
        raise SystemExit(
            f"The sample is made by lionagi {LIONAGI}, and {found} is installed.\n"
            f"Hint: pip install lionagi=={LIONAGI}"
        )


def make(folder: Path) -> None:
    """Make everything in ``folder``, which may hold an older version of it."""
    check_lionagi()
    world = World()
    for plan in PLANS:
        plan(world)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        store = Path(home) / "state.db"
        asyncio.run(_write(world, store))
        _repair(world, store)
        publish(store, folder / "state.db")
    for name in ("runs", "shows"):
        shutil.rmtree(folder / name, ignore_errors=True)
    write_files(folder, world.files)
    truth.write_csv(folder / "truth.csv", world.truth)


async def _write(world: World, store: Path) -> None:
    from lionagi.state.db import StateDB

    with clock.given(week.FIRST_DAY - 86_400.0, SEED) as now:
        async with StateDB(store) as opened:
            await world.happen(opened, now)


def _repair(world: World, store: Path) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        for sql, values in world.repairs:
            connection.execute(sql, values)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Put what lies beside the store into ``folder``."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")


def publish(store: Path, to: Path) -> None:
    """One compact file without siblings, so that it opens where nothing may be written."""
    to.unlink(missing_ok=True)
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        # Sixty small tables and indexes: smaller pages than lionagi's save a tenth.
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("VACUUM INTO ?", (str(to),))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--into", type=Path, default=HERE)
    # lionagi looks for its home when it is imported; the user's own must stay untouched.
    os.environ["LIONAGI_HOME"] = tempfile.mkdtemp()
    make(arguments.parse_args().into)
