"""Nothing needs a network: no address is looked up and no socket leaves this machine."""

import subprocess
import sys

import pytest

from stateanalytics.demo_data import demo_path
from tests.conftest import ROOT

# Events of the interpreter itself, which no library can go around within it. Sockets of the
# machine's own, such as pairs of an event loop, are none of a network.
GUARD = """
import sys

LOCAL = ("127.0.0.1", "::1", "localhost")

def refuse(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        assert arguments[0] in LOCAL, (event, arguments[0])
    if event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
        assert arguments[1][0] in LOCAL, (event, arguments[1])
    assert event != "urllib.Request", arguments

sys.addaudithook(refuse)
"""
STEPS = {
    "guarded": """
import socket
for call in (
    lambda: socket.getaddrinfo("pypi.org", 443),
    lambda: socket.create_connection(("192.0.2.1", 80), timeout=1),
    lambda: __import__("urllib.request").request.urlopen("https://pypi.org"),
):
    try:
        call()
    except AssertionError:
        continue
    raise SystemExit("the guard lets it through")
""",
    "library": """
import stateanalytics as sa
snap = sa.demo()
assert sa.states(snap).height
assert snap.sql("SELECT count(*) AS n FROM entities")["n"][0]
assert sa.failures.clusters(snap, window="2026-W21").height
assert sa.failures.costs(snap).height
""",
    "notebook": """
import stateanalytics as sa
snap = sa.demo()
assert "application/vnd.jupyter.widget-view+json" in sa.explore(snap)._repr_mimebundle_()
from stateanalytics.charts import chart_severity
import polars as pl
counts = pl.DataFrame({"entity_type": ["session"], "critical": [1], "warning": [1], "info": [1]})
assert "image/svg+xml" in chart_severity(counts)._repr_mimebundle_()
chart_severity(counts).live()
""",
    "report": """
from stateanalytics.cli import run
from stateanalytics.demo_data import demo_path
store = str(demo_path() / "state.db")
assert run(["report", store, "-o", "week.html", "--week", "2026-W21"]) == 0
""",
    "what people and agents ask": """
from stateanalytics.cli import run
from stateanalytics.demo_data import demo_path
store = str(demo_path() / "state.db")
for line in (
    ["attention", store],
    ["failures", store],
    ["thresholds", store],
    ["export", store, "--metrics", "-"],
    ["watch", store, "--metrics", "x.prom", "--every", ".01", "--looks", "1"],
    ["archive", store, "--to", "history"],
    ["export", store, "-o", "week.sqlite", "--otlp", "spans.jsonl"],
    ["sql", "--views"],
):
    assert run(line) == 0, line
""",
    "mcp": """
import asyncio, os, sys
import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client
from stateanalytics.demo_data import demo_path
command = ["-m", "stateanalytics", "mcp", str(demo_path() / "state.db")]
server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
async def ask():
    async with mcp.Client(stdio_client(server)) as client:
        assert not (await client.call_tool("overview", {})).is_error
asyncio.run(ask())
""",
    "doctor": """
from stateanalytics.cli import run
assert run(["doctor"]) == 0
""",
}


@pytest.mark.parametrize(
    "step",
    [
        "guarded",
        *(pytest.param(name, marks=pytest.mark.slow) for name in STEPS if name != "guarded"),
    ],
)
def test_nothing_needs_a_network(step, tmp_path):
    """Isolated processes of ours load no guard: they answer files, and SQL behind closed doors."""
    assert demo_path().is_dir()
    (tmp_path / "sitecustomize.py").write_text(GUARD, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", STEPS[step]],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
