"""One question, one number: page, Python, command line, SQL, agents and metrics agree.

Each face answers a question about a store in the windows that it knows; docs/numbers.md has the
words.
"""

import io
import json
import re
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from functools import cache

import pytest

import stateanalytics as sa
from stateanalytics import cli, snapshot
from stateanalytics.core.windows import TICK, iso_week, read_window
from stateanalytics.mcp_server import Tools
from stateanalytics.metrics import as_openmetrics
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.state.policy import Policy
from tests.conftest import ROOT, SHIPPED
from tests.lionagi_stores import NOW_S, session, write_store

STORES = {
    **{name: (path,) for name, path in SHIPPED.items()},
    "twelve_weeks": (ROOT / "data" / "samples" / "twelve_weeks" / "history",),
    # What is open in the first one ended weeks before the window.
    "two stores": (SHIPPED["agent_orchestrator"], SHIPPED["codex"]),
}
WINDOWS = {
    **dict.fromkeys(("page", "overview"), ("week",)),
    **dict.fromkeys(("CLI", "MCP"), ("week", "all")),
    **{"table": ("all",), "metrics": ("day",), "metrics now": ("all",)},
}
"""The windows that a face answers for, by its name; the others: every one."""
DAY = timedelta(days=1)
SECTIONS = ["costs", "attention", "inside", "failures", "durations", "appendix"]


class Asked:
    """One store and one window, an ISO week, the day up to as-of, or all time; asked once each."""

    def __init__(self, snap, name, week=None, tz=None):
        self.snap, self.name, self.tz = snap, name, tz
        for face in ("page", "compared", "cli", "mcp", "metrics"):
            setattr(self, face, cache(getattr(self, face)))
        self.week = week or iso_week((snap.as_of - DAY).date())
        asked = {"week": self.week, "day": (snap.as_of - DAY + TICK, None), "all": None}[name]
        self.window = asked and read_window(asked, as_of=snap.as_of, tz=tz)

    def answers(self, question):
        return {
            face: None if (answer := ask(self)) is None else round(float(answer), 6)
            for face, ask in QUESTIONS[question].items()
            if self.name in WINDOWS.get(face.split(":")[0], (self.name,))
            and not (self.tz and face in ("overview", "MCP"))
        }

    def page(self, section):
        given = {"sections": SECTIONS, "shown": False, "tz": self.tz}
        return sa.report(self.snap, window=self.week, **given).summary[section]

    def number(self, name, what="n"):
        return next(one for one in self.page("headline")["numbers"] if one["name"] == name)[what]

    def page_sql(self, title, column):
        [query] = [one for one in self.page("appendix")["queries"] if one["title"] == title]
        return self.snap.sql("\n".join(query["lines"]))[column].sum()

    def compared(self, measure, by=()):
        return self.snap.compare(measure, by=by, window=self.window)

    def python(self, measure, column="n"):
        return self.compared(measure).frame[column].item()

    def sql(self, measure, column="n_of"):
        return self.snap.sql(self.compared(measure).sql)[column].sum()

    def ended(self, measure, column):
        rows = self.snap.sql(self.compared(measure, "is_terminal").sql)
        return rows.filter("is_terminal")[column].sum()

    def cli(self, *command, has_window=True):
        window = ["--week", self.week]
        if self.tz and self.window:
            window = ["--since", f"{self.window.since}", "--until", f"{self.window.until}"]
        window *= has_window and self.window is not None
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in "oe")
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.run([command[0], "store", *command[1:], *window, "-f", "json"])
        printed, noted = (stream.buffer.getvalue().decode() for stream in (out, err))
        assert code == 0, noted
        return json.loads(printed or "[]")

    def mcp(self, tool, **given):
        """The data of a tool's answer; of rows that are cut off, their number."""
        week = {"week": self.week} if self.name == "week" and tool != "disagreements" else {}
        limit = {} if tool == "overview" else {"limit": 200}
        answer = json.loads(Tools(self.snap, Policy.v1()).by_name()[tool](**limit, **week, **given))
        cut = re.search(r"rows of ([\d,]+)", answer["cut_off"] or "")
        return [{}] * int(cut[1].replace(",", "")) if cut else answer["data"]

    def overview(self, place):
        return int(self.mcp("overview")["numbers"][place]["shown"].replace(",", ""))

    def metrics(self):
        lines = as_openmetrics(self.snap).splitlines()
        found = (re.fullmatch(r"stateanalytics_(\w+)\{(.*)\} (\S+)", line) for line in lines)
        return [(m[1], dict(re.findall(r'(\w+)="(.*?)"', m[2])), float(m[3])) for m in found if m]

    def metric(self, name, **labels):
        found = [(own, value) for known, own, value in self.metrics() if known == name]
        return sum(v for own, v in found if all(own.get(k) in words for k, words in labels.items()))

    def failed(self):
        rows = self.cli("failures", "--show", "members")
        return [row for row in rows if row["entity_type"] == "session"]

    def cost(self, name):
        return self.cli("costs", "--by", "none")[0][name]


ENDED = "Completed and timed out, of the runs that ended"
CLUSTERS = ("failures", "--show", "clusters")
# fmt: off
QUESTIONS = {
    "runs": {"page": lambda q: q.number("runs"),
        "Python": lambda q: q.python("runs", "value"), "SQL": lambda q: q.sql("runs"),
        "CLI": lambda q: q.cost("n_runs"), "overview": lambda q: q.overview(0)},
    "ended": {"page": lambda q: q.number("completed", "of"),
        "page: SQL": lambda q: q.page_sql(ENDED, "n_ended"),
        "Python": lambda q: q.python("completed", "n_of"), "SQL": lambda q: q.sql("completed"),
        "metrics": lambda q: q.metric("day_ended_runs")},
    "completed": {"page": lambda q: q.number("completed"),
        "page: SQL": lambda q: q.page_sql(ENDED, "n_completed"),
        "Python": lambda q: q.python("completed"),
        "SQL": lambda q: q.sql("completed", "value") * q.sql("completed"),
        "CLI": lambda q: q.cost("n_completed"),
        "metrics": lambda q: q.metric("day_ended_runs", outcome=GOOD_ENDS)},
    "failed": {"page": lambda q: q.page("failures")["n_runs"],
        "Python": lambda q: q.python("failures", "value"),
        "SQL": lambda q: q.sql("failures", "value"),
        "SQL: failures": lambda q: q.sql("incidents"), "CLI": lambda q: len(q.failed()),
        "metrics": lambda q: q.metric("day_ended_runs") - q.metric(
            "day_ended_runs", error_type=[None])},
    "timed out": {"page": lambda q: q.number("timed_out"),
        "page: SQL": lambda q: q.page_sql(ENDED, "n_timed_out"),
        "Python": lambda q: q.python("timed_out"),
        "CLI": lambda q: sum(row["outcome"] == "timed_out" for row in q.failed()),
        "metrics": lambda q: q.metric("day_ended_runs", outcome=["timed_out"])},
    "incidents": {"page": lambda q: q.number("incidents"),
        "Python": lambda q: q.python("incidents"),
        "CLI": lambda q: len({row["incident_id"] or row["cause"] for row in q.failed()}),
        "overview": lambda q: q.overview(4),
        "table": lambda q: q.sql("incidents", "value_of_all_time")},
    "open": {"page": lambda q: q.number("unresolved", "of"),
        "page: SQL": lambda q: q.page_sql("Open runs, and those that need attention", "n_open"),
        "Python": lambda q: q.python("runs") - q.python("completed", "n_of"),
        "SQL": lambda q: q.sql("runs") - q.sql("completed"),
        "metrics now": lambda q: q.metric("open_runs")},
    "attention": {"page": lambda q: q.page("attention")["n_items"],
        "Python": lambda q: sa.attention(q.snap, window=q.window).height,
        "CLI": lambda q: len(q.cli("attention")), "MCP": lambda q: len(q.mcp("attention")),
        "table": lambda q: q.snap.sql("FROM attention").height,
        "metrics now": lambda q: q.metric("attention_items")},
    "findings": {"table": lambda q: q.snap.sql("FROM findings").height,
        "table: CLI": lambda q: len(q.cli("attention", "--show", "findings")),
        "metrics now": lambda q: q.metric("findings")},
    "failed rows": {"page": lambda q: q.page("failures")["n_rows"],
        "page: SQL": lambda q: q.page_sql("Failures by reason code", "n_rows"),
        "Python": lambda q: sa.failures.members(q.snap, window=q.window).height,
        "CLI": lambda q: sum(row["n_rows"] for row in q.cli(*CLUSTERS)),
        "table": lambda q: q.snap.sql("FROM failures").height},
    "clusters": {"page": lambda q: q.page("failures")["n_clusters"],
        "Python": lambda q: sa.failures.clusters(q.snap, window=q.window).height,
        "CLI": lambda q: len(q.cli(*CLUSTERS)), "MCP": lambda q: len(q.mcp("failures")),
        "table": lambda q: q.snap.sql("FROM failure_clusters").height},
    "failed calls": {"page": lambda q: q.page("inside")["n_failed"],
        "Python": lambda q: q.python("failed_calls"),
        "SQL": lambda q: q.sql("failed_calls", "value") * q.sql("calls"),
        "CLI": lambda q: sum(row["n_rows"] for row in q.cli(*CLUSTERS, "--of", "calls")),
        "MCP": lambda q: sum(row["n_rows"] for row in q.mcp("failures", of="calls"))},
    "cost": {"page": lambda q: q.page("costs")["total"]["total_usd"],
        "Python": lambda q: q.python("cost_usd", "value"), "CLI": lambda q: q.cost("total_usd")},
    "cost of retries": {
        "Python": lambda q: q.python("retry_usd", "value"),
        "CLI": lambda q: q.cost("retries_usd")},
    "reported cost of ended runs": {
        "SQL": lambda q: q.ended("cost_usd", "reported_usd"),
        "metrics": lambda q: q.metric("day_cost_usd")},
    "tokens of ended runs": {"SQL": lambda q: q.ended("tokens", "value"),
        "metrics": lambda q: q.metric("day_tokens")},
    "durations": {"page": lambda q: q.page("durations")["n"],
        "Python": lambda q: q.python("duration", "n_of"), "SQL": lambda q: q.sql("duration")},
    "median duration": {"Python": lambda q: q.python("duration", "value") or 0,
        "CLI": lambda q: sum(
            row["duration_s"] or 0 for row in q.cli("durations", "--by", "none", "--prob", "0.5"))},
    "disagreements of detectors": {
        "Python": lambda q: sa.detectors.disagreements(sa.detectors.detect(q.snap)).causes.height,
        "CLI": lambda q: len(q.cli("detectors", has_window=False)),
        "MCP": lambda q: len(q.mcp("disagreements"))},
}
# fmt: on


@contextmanager
def asked_of(*stores, **given):
    """The faces of one read of these stores, which no face closes."""
    snap = sa.read(*stores, progress=False)
    object.__setattr__(snap, "close", lambda: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(snapshot, "read_for_once", lambda *_, **__: snap)
        yield {window: Asked(snap, window, **given) for window in ("week", "day", "all")}
    type(snap).close(snap)


def agree(asked, question):
    for one in asked.values():
        assert len(set((answers := one.answers(question)).values())) <= 1, (one.name, answers)


@pytest.fixture(scope="module", params=STORES)
def asked(request):
    with asked_of(*STORES[request.param]) as faces:
        yield faces


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_face_says_the_same_number(question, asked):
    agree(asked, question)


RUN = session("a", status="running", ended_at=None, status_reason_code=None)
TIMES = ("created_at", "started_at", "ended_at", "updated_at", "last_message_at")
OLD = session("c", status="running", **dict.fromkeys(TIMES, NOW_S - 20 * 86400))
ODD = {
    "an empty store": ({}, {"sessions": []}),
    "a single open run": ({}, {"sessions": [RUN]}),
    "a week without runs": ({"week": "2026-W10"}, {"sessions": [RUN, session("b")]}),
    "a silent store": ({}, {"sessions": [session("b")]}, {"sessions": [OLD]}),
    "a time zone": ({"tz": "Pacific/Auckland"}, {"sessions": [RUN, session("b", status="failed")]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("odd", ODD)
def test_no_face_disagrees_about_an_odd_store(odd, tmp_path):
    given, *stores = ODD[odd]
    paths = [write_store(tmp_path / f"{n}.db", **rows) for n, rows in enumerate(stores)]
    with asked_of(*paths, **given) as asked:
        for question in QUESTIONS:
            agree(asked, question)
