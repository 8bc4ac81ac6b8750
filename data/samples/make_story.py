"""Make twelve weeks of a team's work through the real lionagi package, and their archive.

    python data/samples/make_story.py [--into FOLDER]

Every sixth Monday at six the store is collected, and what is older than `KEEP_DAYS` is pruned
by lionagi itself, so the archive knows twelve weeks and the store the last of them. Clock and
ids are given. Needs lionagi 0.36.0, which the development extra installs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from make_samples import HERE, check_lionagi, publish, write_files  # first: it sets the path
from making import clock, story
from making.world import SEED, World

OWNED = (
    ("poetry: not found", "--owner", "grace", "--ticket", "OPS-41",
     "--resolved-in", "build-112", "--resolved-on", "2026-03-23"),
    ("API Error: 529", "--owner", "ada", "--ticket", "OPS-57",
     "--resolved-in", "provider", "--resolved-on", "2026-04-15"),
    ("Run exceeded the configured timeout", "--owner", "ada", "--ticket", "OPS-60"),
    ("pytest", "--owner", "linus"),
)  # fmt: skip
"""What the ledger says of a failure with these words."""
KEEP_DAYS = 2
WEEKS_A_COLLECTION = 6
HOST, STORE = "build-7", "/home/op/.lionagi/state.db"
"""Where the story says that the store lay."""


def make(folder: Path) -> None:
    """Make everything in ``folder``, which may hold an older version of it."""
    check_lionagi()
    world = World()
    story.weeks(world)
    home = Path(os.environ["LIONAGI_HOME"])
    since = story.FIRST_MONDAY - 2 * story.DAY
    for week in range(WEEKS_A_COLLECTION, story.N_WEEKS + 1, WEEKS_A_COLLECTION):
        until = story.FIRST_MONDAY + 7 * story.DAY * week + 6 * story.HOUR
        asyncio.run(_happen(world, home / "state.db", since, until))
        write_files(home, _runs(world, since, until))
        _collect(home, until)
        asyncio.run(_prune(until))
        since = until
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    publish(home / "state.db", folder / "state.db")
    shutil.copytree(home / "history", folder / "history")
    write_files(folder, _runs(world, until - KEEP_DAYS * story.DAY, until))
    _own(folder)


async def _happen(world: World, store: Path, since: float, until: float) -> None:
    from lionagi.state.db import StateDB

    # Ids are drawn from what the week is called, so that no two weeks have the same.
    with clock.given(since, SEED + int(since)) as now:
        async with StateDB(store) as opened:
            await world.happen(opened, now, since, until)


async def _prune(until: float) -> None:
    """What lionagi's studio does every night, to the store in lionagi's home."""
    from lionagi.studio.services.db_maintenance import prune_old_data

    with clock.given(until, SEED - int(until)):
        await prune_old_data(keep_days=KEEP_DAYS)


def _runs(world: World, since: float, until: float) -> dict[str, str]:
    """Files of the runs that ended in some time, or that never will."""
    ended = {
        path.rsplit("/", 1)[0]: json.loads(text)["ended_at"]
        for path, text in world.files.items()
        if path.endswith("run.json")
    }
    wanted = {run for run, at in ended.items() if since <= (until if at is None else at) <= until}
    return {path: text for path, text in world.files.items() if path.rsplit("/", 1)[0] in wanted}


def _collect(home: Path, until: float) -> None:
    """``stateanalytics archive state.db --to history``, at the clock of the story."""
    from stateanalytics.io.archive.manifests import last_runs, source_key
    from stateanalytics.systems.archiving import Archiving

    with chdir(home):
        at, key = datetime.fromtimestamp(until, UTC), source_key(HOST, STORE)
        archiving = replace(Archiving.at("history"), clock=lambda: at)
        for place in archiving.places_of(["state.db"]):
            archiving.add_place(place, "raise", (key, STORE), last_runs(Path("history")).get(key))


def _own(folder: Path) -> None:
    """The team writes down whose each old failure is; one of them was resolved."""
    import stateanalytics as sa
    from stateanalytics.cli import run

    with chdir(folder):
        known = sa.failures.life(sa.read("history", progress=False))
        for words, *said in OWNED:
            ids = known.filter(known["template"].str.contains(words, literal=True))["cluster_id"]
            run(["failures", "own", ids[0], "history", "--ledger", "owners.csv", *said])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--into", type=Path, default=HERE / "fleet")
    with tempfile.TemporaryDirectory() as home:
        os.environ["LIONAGI_HOME"] = home
        make(arguments.parse_args().into)
