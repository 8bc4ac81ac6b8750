"""A fleet of all systems on every executor: killed in the middle, resumed, equal to one read."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.io.archive.manifests import runs_by_source
from tests.conftest import ROOT, component
from tests.fleets import EXECUTORS, write_fleet

pytestmark = pytest.mark.fleet

WINDOW = ("2026-04-27", "2026-07-27")
SECTIONS = ["headline", "systems", "fleet", "failures", "attention"]
MODULES = {"dask": "distributed", "ray": "ray"}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    n_hundreds = int(os.environ.get("N_HUNDREDS", "10"))
    return write_fleet(tmp_path_factory.mktemp("fleet") / "hosts", n_hundreds)


def told(path):
    """The states of all that was read, the numbers of its report, and the page."""
    with sa.read(path, progress=False) as snap:
        made = sa.report(snap, window=WINDOW, sections=SECTIONS, title="A fleet", shown=False)
        summary = json.loads(made.as_json())
        return sa.states(snap), {name: summary[name] for name in SECTIONS}, made.as_html()


@pytest.fixture(scope="module")
def pooled(fleet):
    return told(fleet.whole)


def collecting(kind, fleet, history):
    command = [sys.executable, "-m", "tests.fleets", kind, str(fleet.hosts), str(history)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def assert_nobody_is_left(group):
    """Workers of our own end with who asked them, else they would wait for work for ever."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.2)
    pytest.fail("somebody still waits for work from what was killed")


def killed_in_the_middle(kind, collector, history, n):
    """How many sources were in the archive when it was killed, which had to be at least some."""
    with collector:
        while not (history.exists() and len(runs_by_source(history)) >= n):
            assert collector.poll() is None, "it ended before it was killed"
            time.sleep(0.2)
        os.kill(collector.pid, signal.SIGKILL)
    if kind == "processes":
        assert_nobody_is_left(collector.pid)
    with suppress(ProcessLookupError):
        os.killpg(collector.pid, signal.SIGKILL)
    return len(runs_by_source(history))


@pytest.mark.parametrize("kind", EXECUTORS)
def test_what_was_killed_goes_on_and_is_told_as_one_read_tells_it(fleet, pooled, kind, tmp_path):
    if kind in MODULES:
        component(MODULES[kind])
    history, n = tmp_path / "history", len(fleet.whole)
    n_before = killed_in_the_middle(kind, collecting(kind, fleet, history), history, n // 3)
    assert n // 3 <= n_before < n
    resumed = collecting(kind, fleet, history)
    counts = json.loads(resumed.communicate()[0].splitlines()[-1])
    assert resumed.returncode == 0
    assert counts.pop("failed") == len(fleet.damaged)
    assert counts["unchanged"] >= n_before
    assert counts["archived"] > 0
    assert sum(counts.values()) == n
    states, numbers, page = told(history)
    assert_frame_equal(states, pooled[0], check_row_order=False)
    assert numbers == pooled[1]
    assert [path for path in fleet.damaged if str(path) not in page] == []
