"""One report over several systems: each beside the others, and their total."""

import dataclasses
import json
import re
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import duckdb
import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import cli
from stateanalytics.core import words as phrases
from stateanalytics.reporting import Report, report
from stateanalytics.reporting.material import clean
from stateanalytics.reporting.render import _pages
from stateanalytics.reporting.sections.attention import summarize_attention
from stateanalytics.reporting.sections.headline import summarize_headline
from stateanalytics.reporting.sections.provenance import summarize_provenance
from stateanalytics.reporting.sections.systems import summarize_systems
from tests.conftest import ROOT, SHIPPED
from tests.examples import a_few
from tests.frames import facts
from tests.report_parts import EVER, material_of
from tests.test_report import WEEK
from tests.test_report_page import HOSTILE, Page, hostile_facts

AS_OF = datetime(2026, 11, 21, 1, tzinfo=UTC)
SAMPLES = ROOT / "data" / "samples"


@pytest.fixture(scope="module")
def snap() -> sa.Snapshot:
    return sa.read(*SHIPPED.values(), as_of=AS_OF, progress=False)


@pytest.fixture(scope="module")
def whole(snap: sa.Snapshot) -> Report:
    return report(snap, window=EVER, sections=["systems", "attention", "durations"])


@pytest.fixture(scope="module")
def systems(whole: Report) -> dict[str, dict]:
    return {one["system"]: one for one in whole.summary["systems"]["systems"]}


@pytest.mark.slow
def test_the_systems_are_told_in_one_order_with_their_denominators(whole, systems):
    assert list(systems) == list(SHIPPED)
    runs = whole.summary["systems"]["total"]
    finding = whole.summary["systems"]["finding"]
    assert f"{runs['ends']['completed']} of {runs['n_ended']} ended runs of all five" in finding
    assert "15 legacy, 8 mirrored and 6 imported" in finding
    for one in systems.values():
        assert f"{one['runs']['ends']['completed']} of {one['runs']['n_ended']}" in finding
        assert "A run is a session" in one["run_is"]


@pytest.mark.parametrize("system", a_few(SHIPPED, 0))
def test_a_system_says_the_same_alone_and_beside_the_others(systems, system):
    with sa.read(SHIPPED[system], as_of=AS_OF, progress=False) as snap:
        alone = material_of(snap)
    assert summarize_systems(alone)["systems"] == []
    own = systems[system]["runs"]
    numbers = {one["name"]: one for one in summarize_headline(alone)["numbers"]}
    assert own["n"] == numbers["runs"]["n"]
    assert own["ends"]["completed"] == numbers["completed"]["n"]
    assert own["n_ended"] == numbers["completed"]["of"]
    assert own["n_unresolved"] == numbers["unresolved"]["n"]
    assert own["n_open"] == numbers["unresolved"]["of"]
    things = summarize_attention(alone)["n_things"]
    assert systems[system]["attention"]["n"] == things
    problems = summarize_provenance(alone)["findings"]
    assert systems[system]["findings"]["n_codes"] == len(problems)


def test_the_total_is_the_sum_and_the_headline(whole, systems):
    total = whole.summary["systems"]["total"]
    for name in ("n", "n_ended", "n_open", "n_unresolved", "n_left_out"):
        assert total[name] == sum(one["runs"][name] for one in systems.values()), name
    for axis in ("ends", "severity", "delivery", "left_out"):
        for word, n in total[axis].items():
            assert n == sum(one["runs"][axis][word] for one in systems.values()), word
    assert sum(total["ends"].values()) == total["n_ended"]
    assert sum(total["delivery"].values()) == total["n_ended"]
    assert sum(total["severity"].values()) == total["n"]
    numbers = {one["name"]: one["n"] for one in whole.summary["headline"]["numbers"]}
    assert (numbers["runs"], numbers["completed"]) == (total["n"], total["ends"]["completed"])


def whole_lines(folder: Path) -> list[list[dict]]:
    """The records of each transcript, by nothing but json; packed ones are told by duckdb."""
    told = []
    for path in sorted(folder.rglob("*.jsonl*")):
        if path.suffix == ".zst":
            with duckdb.connect() as db:
                rows = db.execute(
                    "FROM read_csv(?, columns={'line': 'VARCHAR'}, delim='\x01', quote='', "
                    "escape='', header=false, auto_detect=false, compression='zstd')",
                    [str(path)],
                ).fetchall()
            lines = [line for (line,) in rows]
        else:
            lines = path.read_text("utf-8").splitlines()
        told.append([json.loads(line) for line in lines if line.endswith("}")])
    return told


def of_claude_code(root: Path) -> tuple[int, int, int]:
    """Transcripts, and the tokens of each answer once: its line that tells most."""
    transcripts = whole_lines(root / "projects")
    answers: dict[str, tuple[int, int]] = {}
    for record in (record for records in transcripts for record in records):
        message = record.get("message", {})
        if record["type"] != "assistant" or record.get("isApiErrorMessage"):
            continue
        used = message["usage"]
        read = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        tokens = sum(used[name] for name in read), used["output_tokens"]
        answers[message["id"]] = max(answers.get(message["id"], (0, 0)), tokens, key=sum)
    read, written = (sum(tokens) for tokens in zip(*answers.values(), strict=True))
    return len(transcripts), read, written


def of_codex(root: Path) -> tuple[int, int, int]:
    """Threads, and the tokens of each answer once, wherever the total moved.

    What a fork inherits has the very totals of its parent.
    """
    threads, answers = set(), {}
    for folder in ("sessions", "archived_sessions"):
        for records in whole_lines(root / folder):
            threads.add(records[0]["payload"]["id"])
            metas = [each["payload"] for each in records if each["type"] == "session_meta"]
            root_id = metas[-1]["id"]
            total = None
            for record in records:
                info = record["payload"].get("info") or {}
                if info and info["total_token_usage"] != total:
                    total, last = info["total_token_usage"], info["last_token_usage"]
                    tokens = last["input_tokens"], last["output_tokens"]
                    answers[root_id, tuple(total.values())] = tokens
    read, written = (sum(tokens) for tokens in zip(*answers.values(), strict=True))
    return len(threads), read, written


def test_totals_are_those_that_sqlite_and_json_count_by_themselves(snap, systems):
    with closing(sqlite3.connect(SHIPPED["lionagi"])) as db:
        n_lionagi, read, written = db.execute(
            "SELECT count(*), sum(input_tokens), sum(output_tokens) FROM sessions"
        ).fetchone()
    folders = SHIPPED["agent_orchestrator"].rglob("sessions")
    records = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    records = [path for path in records if path.parent.name != ".agent-report-audit"]
    of_agents = {path.stem.partition("_")[0] for path in records}
    events = (SHIPPED["opencode"] / "events_july_2026.jsonl").read_text("utf-8").splitlines()
    of_opencode = {json.loads(event)["durable"]["aggregateID"] for event in events}
    claude, codex = of_claude_code(SHIPPED["claude_code"]), of_codex(SHIPPED["codex"])
    counted = {
        "lionagi": n_lionagi,
        "agent_orchestrator": len(of_agents),
        "opencode": len(of_opencode),
        "claude_code": claude[0],
        "codex": codex[0],
    }
    told = {name: one["runs"]["n"] + one["runs"]["n_left_out"] for name, one in systems.items()}
    assert told == counted
    sessions = snap.entities.filter(entity_type="session")
    sums = sessions.group_by("system").agg(pl.col("n_input_tokens", "n_output_tokens").sum())
    used = {name: (n_read, n_written) for name, n_read, n_written in sums.rows()}
    assert used["lionagi"] == (read, written)
    assert used["claude_code"] == claude[1:]
    assert used["codex"] == codex[1:]
    parts = ("n_input_tokens", "n_cache_read_tokens", "n_cache_write_tokens")
    steps = snap.table("opencode_steps").select(pl.col(*parts, "n_output_tokens").sum())
    assert steps["n_cache_read_tokens"].item() > 0
    read, written = sum(steps.row(0)[:3]), steps["n_output_tokens"].item()
    # Titles and summaries are asked for outside of steps.
    for event in map(json.loads, events):
        if event["type"] == "session.usage.recorded":
            tokens = event["data"]["tokens"]
            read += tokens["input"] + sum(tokens["cache"].values())
            written += tokens["output"]
    assert used["opencode"] == (read, written)


def test_ends_in_the_store_of_lionagi_are_those_of_the_report(systems):
    query = (
        "SELECT CASE status WHEN 'completed_empty' THEN 'completed' ELSE status END, count(*) "
        "FROM sessions WHERE source_kind <> 'imported_fs' AND cc_session_id IS NULL GROUP BY 1"
    )
    with closing(sqlite3.connect(SHIPPED["lionagi"])) as store:
        counts = dict(store.execute(query).fetchall())
    ends = systems["lionagi"]["runs"]["ends"]
    for name in ("completed", "failed", "timed_out", "aborted", "cancelled"):
        assert ends[name] == counts[name] > 0, name


@pytest.mark.slow
def test_calls_and_tokens_are_those_of_the_files(snap):
    calls, answers = set(), {}
    for record in chain.from_iterable(whole_lines(SHIPPED["claude_code"] / "projects")):
        message = record.get("message") or {}
        content = message.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                calls.add(block["id"])
        if record.get("type") == "assistant" and message.get("model") != "<synthetic>":
            key = (message["id"], record.get("requestId"))
            used = message["usage"]["output_tokens"]
            answers[key] = max(used, answers.get(key, 0))
    entities = snap.entities.filter(pl.col("system") == "claude_code")
    assert entities.filter(entity_type="tool_call").height == len(calls)
    for kind in ("session", "turn"):
        of_kind = entities.filter(entity_type=kind)
        assert of_kind["n_output_tokens"].sum() == sum(answers.values())
    logs = whole_lines(SHIPPED["opencode"])
    started = Counter(record["type"] for record in chain.from_iterable(logs))
    of_opencode = snap.entities.filter(pl.col("system") == "opencode")
    by_type = dict(of_opencode["entity_type"].value_counts().iter_rows())
    assert by_type["tool_call"] == started["session.tool.input.started"]
    assert by_type["execution"] == started["session.execution.started"]


def test_sql_gives_the_same_numbers_by_system(snap, systems):
    rows = snap.sql(
        """
        SELECT system, count(*) FILTER (is_terminal) AS n_ended,
               count(*) FILTER (is_terminal AND outcome IN ('completed', 'succeeded', 'merged'))
        FROM entities JOIN states USING (source, system, entity_type, entity_id)
        WHERE entity_type = 'session' AND NOT is_legacy
          AND coalesce(recorded_by, '') NOT IN ('mirrored', 'imported')
        GROUP BY ALL ORDER BY ALL
        """
    ).rows()
    runs = {name: one["runs"] for name, one in systems.items()}
    told = [(name, own["n_ended"], own["ends"]["completed"]) for name, own in runs.items()]
    assert rows == sorted(told)


def test_opencodes_parts_of_runs_are_shown_and_never_counted(systems):
    parts = {one["entity_type"]: one for one in systems["opencode"]["others"]}
    assert set(parts) == {"turn", "execution", "step", "tool_call"}
    assert all(one["is_part"] for one in parts.values())
    assert systems["opencode"]["runs"]["n"] == 37
    # Fourteen sessions failed, three were aborted; one turn failed that its session outlived.
    assert systems["opencode"]["bad_ends"]["n_rows"] == 14 + 3 + 1


def test_durations_say_whose_turns_they_count(whole, snap):
    denominator = whole.summary["durations"]["denominator"]
    is_seen = pl.col("end_written_by").ne_missing("observer")
    turns = snap.entities.filter(is_seen, entity_type="turn")["system"].to_list()
    titles = {"opencode": "opencode", "claude_code": "Claude Code", "codex": "Codex"}
    told = "".join(
        f"; {turns.count(system)} of them are turns of {title}" for system, title in titles.items()
    )
    assert denominator.endswith(told)
    assert denominator.startswith("runs and turns that started in the window")


@pytest.mark.parametrize(("system", "nouns"), [("claude_code", "turns"), ("lionagi", "runs")])
def test_durations_are_called_what_is_counted(system, nouns, capsys):
    """Those of Claude Code are of turns; the page called them runs."""
    with sa.read(SHIPPED[system], progress=False) as read:
        page = sa.report(read, sections=["durations"])
        text = re.sub(r"<[^>]+>|\s+", " ", page.as_html())
    for said in ("How long {} took", "{} by duration and", "{} by kind of work", "half of the {}"):
        assert said.format(nouns.capitalize() if said[0] == "{" else nouns) in text
    assert cli.run(["durations", str(SHIPPED[system])]) == 0
    said = "turns are counted: sessions also wait for people" in capsys.readouterr().err
    assert said == (nouns == "turns")


def test_what_died_in_agent_orchestrator_is_named(systems):
    codes = [one["code"] for one in systems["agent_orchestrator"]["bad_ends"]["codes"]]
    assert "run.aborted.runtime_lost" in codes


def test_the_page_has_the_section_once_and_links_to_it(whole):
    page = Page(whole.as_html())
    assert [one.get("id") for one in page.all("div")].count("systems") == 1
    assert {"href": "#systems"} in page.all("a")
    for title in ("lionagi", "Agent Orchestrator", "opencode", "All systems"):
        assert title in page.text
    # Seed 004's case is among what needs a look.
    assert "Failed · Blocked by provider content filter" in page.text
    assert "run.failed.content_filtered" in page.text
    json.loads(whole.as_json())


@pytest.mark.slow
@pytest.mark.parametrize("text", a_few(HOSTILE, 2))
def test_hostile_text_is_inert_in_every_system(text):
    """The section by itself, as `test_report_page` judges the page."""
    given = hostile_facts(text)
    both = pl.int_range(pl.len()).mod(2).replace_strict([0, 1], ["lionagi", "opencode"])
    frames = ("entities", "findings", "sources")
    of_both = {name: getattr(given, name).with_columns(system=both) for name in frames}
    mixed = dataclasses.replace(given, **of_both)
    cleaned, _ = clean(summarize_systems(material_of(mixed)), secrets=True)
    assert len(cleaned["systems"]) == 2
    page = _pages().from_string(
        '{% import "macros.html.j2" as part with context %}{% include "systems.html.j2" %}'
    )
    read = Page(page.render(report={"systems": cleaned}, phrases=phrases))
    assert read.all("script") == read.all("img") == []
    assert not [name for _, found in read.tags for name in found if name.startswith("on")]


@pytest.mark.slow
def test_one_system_alone_has_no_section():
    alone = report(facts(WEEK), window="2026-W21", sections=["systems"])
    assert alone.summary["systems"]["systems"] == []
    assert '<div id="systems"' not in alone.as_html()


@pytest.mark.slow
def test_a_system_without_anything_in_the_window_is_still_told(snap):
    summary = summarize_systems(material_of(snap, "2026-W21"))
    opencode = next(one for one in summary["systems"] if one["system"] == "opencode")
    assert opencode["finding"].startswith("No run ended") or not opencode["runs"]["n_ended"]
    assert "opencode none ended" in summary["finding"]


def test_nothing_that_ended_has_no_share(snap):
    summary = summarize_systems(material_of(snap, ("2001-01-01", "2001-01-02")))
    assert summary["total"]["completed_share"] is None
    assert summary["finding"].startswith("No run of all five systems ended in this window")


@pytest.mark.slow
def test_without_a_name_all_are_looked_up_in_the_home(home, tmp_path):
    for system, place in {
        "lionagi": ".lionagi/state.db",
        "agent_orchestrator": ".agent-orchestrator",
        "opencode": ".local/share/opencode",
        "claude_code": ".claude",
        "codex": ".codex",
    }.items():
        target = tmp_path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if SHIPPED[system].is_dir() else shutil.copy
        copy(SHIPPED[system], target)
    with sa.read(progress=False) as found:
        assert found.sources["system"].to_list() == list(SHIPPED)
        assert found.entities.height == sum(found.sources["n_entities"])


@pytest.fixture(scope="module")
def many(shared: Path) -> sa.Snapshot:
    return sa.read(
        shared / "samples" / "lionagi" / "0.36.0",
        shared / "samples" / "agent-orchestrator",
        shared / "samples" / "opencode" / "v2_20260717",
        shared / "samples" / "opencode" / "v1_1.18.34" / "opencode.db",
        as_of=AS_OF,
        progress=False,
    )


@pytest.mark.slow
def test_the_section_over_all_real_sets_is_right(many):
    told = summarize_systems(material_of(many))
    sessions = many.entities.filter(entity_type="session")
    for one in told["systems"]:
        runs = one["runs"]
        n_sessions = sessions.filter(system=one["system"]).height
        assert runs["n"] + runs["n_left_out"] == n_sessions, one["system"]
        assert runs["n"] == runs["n_ended"] + runs["n_open"]
        assert sum(runs["ends"].values()) == runs["n_ended"]
    states = sa.states(many).filter(pl.col("entity_type") == "session")
    ended = states.filter("is_terminal", ~pl.col("is_legacy"), pl.col("system") == "opencode")
    assert (
        told["systems"][-1]["runs"]["ends"]["failed"]
        == ended.filter(pl.col("outcome") == "failed").height
    )
