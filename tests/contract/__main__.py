"""Run the real clients through every scenario, and compare our reading with the truth."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from tests.contract.clients import PACKAGES, Client, install, link_programs, translate
from tests.contract.mock_provider import MockProvider
from tests.contract.reading import (
    SYSTEMS,
    TRUTH,
    compare,
    read_store,
    truth_of,
    unknown_kinds,
    wrong,
)
from tests.contract.recording import record
from tests.contract.scenarios import SCENARIOS, Scenario


def main() -> int:
    """1 where our reading disagrees with the truth, or a client could not be run."""
    parser = argparse.ArgumentParser(prog="python -m tests.contract", description=__doc__)
    parser.add_argument("--client", choices=[*PACKAGES, "all"], default="all")
    parser.add_argument("--version", default="pinned", help="pinned, newest, or a number")
    parser.add_argument("--programs", type=Path, help="where clients are (to be) installed")
    parser.add_argument("--record", type=Path, help="keep the stores and their truth below here")
    parser.add_argument("--scenario", action="append", help="only this one (repeat for more)")
    arguments = parser.parse_args()
    n_wrong = 0
    with tempfile.TemporaryDirectory(prefix="contract-") as temporary:
        for client in PACKAGES if arguments.client == "all" else [arguments.client]:
            programs = arguments.programs or Path(temporary) / "programs"
            base = Path(temporary) / client
            n_wrong += run(client, base, programs, arguments)
    return int(n_wrong > 0)


def run(client: str, base: Path, programs: Path, arguments: argparse.Namespace) -> int:
    """All scenarios of one client; how many facts are wrong."""
    program = install(client, arguments.version, programs)
    if client == "lionagi":
        agents = ("claude", "codex")
        version = "newest" if arguments.version == "newest" else "pinned"
        others = {name: install(name, version, programs) for name in agents}
        link_programs(base / "bin", others)
    with MockProvider(translate(client)) as provider:
        runner = Client(client, program, base, provider.url)
        rows: list[dict[str, str | None]] = []
        for scenario in SCENARIOS.values():
            if client in scenario.clients and scenario.name in (arguments.scenario or SCENARIOS):
                began = time.monotonic()
                rows += play(runner, provider, scenario)
                took_s = time.monotonic() - began
                print(f"{client} {scenario.name}: {took_s:.0f} s", flush=True)
    truth = pl.DataFrame(rows, schema=TRUTH)
    ended_at = datetime.now(UTC)
    if arguments.record:
        target = arguments.record / client
        record(client, runner.store, target, base)
        truth.write_csv(target / "truth.csv")
        (target / "as_of.txt").write_text(f"{ended_at:%Y-%m-%dT%H:%M:%S+00:00}\n", "utf-8")
    return show(client, runner.stores, truth, ended_at)


def show(client: str, stores: list[Path], truth: pl.DataFrame, ended_at: datetime) -> int:
    """Print what is wrong and what is unknown; how many facts are wrong."""
    snap = read_store(stores, ended_at)
    if client != "lionagi":
        systems = snap.table("entities")["system"].unique().to_list()
        if systems != [SYSTEMS.get(client, client)]:
            print(f"{client}: its directory is read as {systems}")
            return 1
    facts = compare(snap, client, truth)
    bad = wrong(facts)
    for row in bad.iter_rows(named=True):
        name = f"{row['scenario']}{' ' + row['part'] if row['part'] else ''}"
        print(f"{client} {name}: {row['fact']} is {row['truth']}, read as {row['ours']}")
    for kind in unknown_kinds(snap):
        print(f"{client} unknown: {kind}")
    n_lost = facts["session_id"].null_count()
    print(
        f"{client}: {len(facts) - len(bad)} of {len(facts)} facts agree, {n_lost} without a session"
    )
    return len(bad)


def play(client: Client, provider: MockProvider, scenario: Scenario) -> list[dict[str, str | None]]:
    """Run a scenario, with its follow-ups; the truth of each session that came of it."""
    before = len(provider.log)

    def is_waiting() -> bool:
        """Whether the answer that is never heard, or the one with the long command, is out."""
        asked = [row for row in provider.log[before:] if row["scenario"] == scenario.name]
        waits = [number for number, answer in enumerate(scenario.answers, 1) if answer.wait_s]
        return len(asked) >= (waits[0] if waits else 1)

    beside = client.start(scenario.beside) if scenario.beside else None
    started = client.start(scenario.name)
    if scenario.signal:
        first = client.stop(started, scenario.signal, is_waiting)
    else:
        first = client.finish(started)
    other = client.finish(beside) if beside else None
    forked = None
    fork_from = fork_to = before
    for how in scenario.follow_up:
        since = len(provider.log)
        again = client.finish(client.start(scenario.name, how, first.session_id))
        if how == "fork":
            forked, fork_from, fork_to = again, since, len(provider.log)
    log = provider.log
    own = [
        row
        for place, row in enumerate(log)
        if place >= before and not fork_from <= place < fork_to
        and row["scenario"] == scenario.name
    ]  # fmt: skip
    name, of = scenario.name, client.name
    children = [row for row in log[before:] if row["scenario"] == "child"]
    if of == "lionagi":  # a session counts what the agents of its agent did, too
        own, children = [*own, *children], []
    rows = list(truth_of(of, name, "", first.session_id, own, children))
    if forked is not None:
        inside = [row for row in log[fork_from:fork_to] if row["scenario"] == name]
        rows += truth_of(of, name, "fork", forked.session_id, inside)
    if children:
        rows += truth_of(of, name, "child", first.session_id, children)
    if other is not None:
        beside_it = [row for row in log[before:] if row["scenario"] == scenario.beside]
        if not SCENARIOS[scenario.beside].is_by_hand:
            rows += truth_of(of, scenario.beside, "", other.session_id, beside_it)
    return rows


if __name__ == "__main__":
    sys.exit(main())
