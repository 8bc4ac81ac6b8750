"""What holds of Claude Code and Codex alike: samples, places, past instants, damage."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.state.states import states
from stateanalytics.systems.history import facts_at
from stateanalytics.systems.reading import read_facts
from tests.conftest import SHARED
from tests.examples import a_few, examples
from tests.transcripts import CLIENTS, NOON, Client, facts_of, file_of, findings_of

KEY = ["entity_type", "entity_id"]
NOT_DATED = shutil.ignore_patterns("*.py", "history.jsonl", "archived*")
"""Files of the samples of which a copy at an instant cannot be made line by line."""


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda client: client.name)
def client(request) -> Client:
    return request.param


@pytest.fixture(scope="module")
def sample(client: Client) -> Facts:
    return read_facts(client.sample, as_of=NOON)[0]


def entities_of(facts: Facts) -> pl.DataFrame:
    """Every entity, whatever the name of the input."""
    return facts.entities.drop("source").sort(KEY)


def test_the_sample_is_what_its_script_makes(client: Client) -> None:
    for name, octets in client.files.items():
        assert (client.sample / name).read_bytes() == octets


def test_no_text_of_anybody_is_loaded(sample: Facts) -> None:
    frames = [sample.entities, sample.events, *sample.details.values()]
    everything = "".join(str(frame.to_dicts()) for frame in frames)
    for text in ("discount", "coupon", "callers", "database", "class Cart", "Forty"):
        assert text not in everything


@pytest.mark.slow
@pytest.mark.parametrize("seed", a_few(range(6), 1))
def test_lines_in_any_order_give_the_same_entities(client, sample, tmp_path, seed) -> None:
    """Moments give the order where a record stands before the one that it follows."""
    chance, root = random.Random(seed), tmp_path / "root"
    shutil.copytree(client.sample, root, ignore=shutil.ignore_patterns("*.py"))
    for path in sorted(root.rglob("*.jsonl")):
        if path.name not in ("history.jsonl", "session_index.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith("\n")]
            chance.shuffle(whole)
            path.write_text("".join([*whole, *lines[len(whole) :]]))
    shuffled = read_facts(root, as_of=NOON)[0]
    assert entities_of(shuffled).equals(entities_of(sample))
    before = findings_of(sample).get("time.out_of_order", 0)
    assert findings_of(shuffled)["time.out_of_order"] > before


def test_a_file_that_vanishes_costs_only_itself(client, tmp_path, monkeypatch) -> None:
    first, second = client.begun("one"), client.begun("two")
    listed = getattr(client.places, client.lister)

    def listed_before_it_vanishes(path: Path) -> list[Path]:
        files = listed(path)
        (tmp_path / file_of(second)).unlink(missing_ok=True)
        return files

    reading = f"stateanalytics.systems.{client.name}.reading"
    monkeypatch.setattr(f"{reading}.{client.lister}", listed_before_it_vanishes)
    facts = facts_of(tmp_path, first, second)
    assert facts.entities.filter(entity_type="session").height == 1
    assert facts.findings["code"].to_list() == ["file.vanished"]


@pytest.mark.slow
def test_a_directory_with_a_hostile_name_gives_the_same_facts(client, tmp_path) -> None:
    named = tmp_path / os.fsdecode(b"a\n\x1b[31m<b>\xff")
    plain = facts_of(tmp_path / "plain", client.begun("one"), as_of=NOON)
    with sa.read(shutil.copytree(tmp_path / "plain", named), as_of=NOON, progress=False) as snap:
        assert "\x1b" not in repr(snap)
        columns = [*KEY, "raw_status", "started_at", "ended_at", "n_input_tokens"]
        assert snap.entities.select(columns).equals(plain.entities.select(columns))
        assert snap.findings["code"].sort().equals(plain.findings["code"].sort())


WRITER = """
import pathlib, sys
texts = {path: path.read_bytes() for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.jsonl"))}
for part in range(4):
    sys.stdin.readline()
    for path, text in texts.items():
        copy = pathlib.Path(sys.argv[2]) / path.relative_to(sys.argv[1])
        copy.parent.mkdir(parents=True, exist_ok=True)
        # Pieces end wherever they do, in the middle of lines and of letters.
        size = len(text) // 4 + 1
        with copy.open("ab", buffering=0) as file:
            for start in range(part * size, min(len(text), (part + 1) * size), 997):
                file.write(text[start : min(start + 997, (part + 1) * size)])
    print("written", flush=True)
"""


@pytest.mark.slow
def test_files_that_another_process_is_writing_are_read_as_far_as_they_go(client, tmp_path):
    copy = tmp_path / "copy"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    snap, heights = None, []
    with subprocess.Popen([sys.executable, "-c", WRITER, client.sample, copy], **pipes) as writer:
        for part in range(4):
            writer.stdin.write("go on\n")
            writer.stdin.flush()
            # The first part is there before anything is read, the others are written meanwhile.
            if part > 0:
                snap = (
                    sa.read(copy, as_of=NOON, progress=False)
                    if snap is None
                    else snap.refresh(progress=False)
                )
                heights.append(snap.entities.height)
            assert writer.stdout.readline() == "written\n"
    assert writer.returncode == 0
    refreshed = snap.refresh(progress=False)
    fresh = sa.read(copy, as_of=NOON, progress=False)
    assert 0 < heights[0] < refreshed.entities.height
    for name in ("entities", "transitions", "events", "findings"):
        assert_frame_equal(getattr(refreshed, name), getattr(fresh, name))


@pytest.mark.slow
@given(st.data())
@examples(48)
def test_any_beginning_of_a_transcript_is_read(data: st.DataObject) -> None:
    client = data.draw(st.sampled_from(CLIENTS))
    # Prompts of all projects and names of threads are no transcripts.
    others = {"history.jsonl", "session_index.jsonl"}
    names = {name for name in client.files if ".jsonl" in name} - others
    name = data.draw(st.sampled_from(sorted(names)))
    octets = client.files[name]
    n_bytes = data.draw(st.integers(0, len(octets)))
    with tempfile.TemporaryDirectory() as folder:
        whole = client.begun("one")
        (Path(folder) / file_of(whole).name).write_text(whole.text())
        (Path(folder) / Path(name).name).write_bytes(octets[:n_bytes])
        facts = read_facts(folder, as_of=NOON)[0]
    lines = facts.detail(client.frames.LINES)
    n_read = lines.filter(pl.col("file") == Path(name).name).height
    if name.endswith(".jsonl"):
        n_lines = octets[:n_bytes].count(b"\n")
        n_bad = facts.findings.filter(code="line.unfinished")["n_rows"].sum()
        assert n_lines <= n_read + n_bad <= n_lines + 1


def copy_at(instant: datetime, sample: Path, to: Path) -> Path:
    """The sample as a copy that was made at an instant."""
    shutil.copytree(sample, to, ignore=NOT_DATED)
    for path in to.rglob("*.jsonl"):
        kept = []
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                record = json.loads(line)
                at = (record.get("timestamp") or record["updated_at"]).replace("Z", "+00:00")
                kept += [line] if datetime.fromisoformat(at) <= instant else []
        path.write_text("".join(kept))
        if not kept:
            path.unlink()
            path.with_suffix(".meta.json").unlink(missing_ok=True)
    return to


@pytest.mark.slow
@pytest.mark.parametrize("share", a_few(range(8), 1))
def test_a_past_instant_is_what_a_copy_of_that_instant_shows(client, tmp_path, share) -> None:
    plain = shutil.copytree(client.sample, tmp_path / "plain", ignore=NOT_DATED)
    whole = read_facts(plain, as_of=NOON)[0]
    instants = sorted(set(whole.detail(client.frames.LINES)["at"].drop_nulls()))[:-1]
    random.Random(2026).shuffle(instants)
    for number, at in enumerate(instants[share::8][: 2 if share == 0 else None]):
        past = facts_at(whole, at)
        assert past.lost.height == past.facts.entities.height
        copy = read_facts(copy_at(at, client.sample, tmp_path / str(number)), as_of=at)[0]
        assert entities_of(past.facts).equals(entities_of(copy)), at
        shown = [states(facts).drop("source").sort(KEY) for facts in (past.facts, copy)]
        assert shown[0].equals(shown[1]), at


def test_places_are_known_by_what_their_files_begin_with(client, tmp_path: Path) -> None:
    [folder] = filter(Path.is_dir, (client.sample / name for name in ("projects", "sessions")))
    first = min(folder.rglob("*.jsonl"))
    packed = client.sample.glob("archived_sessions/*.zst")
    for place in (client.sample, folder, first.parent, first, *packed):
        assert client.places.find(place) == [place]
    own = client.begun("one")
    other = tmp_path / file_of(own).name
    other.write_text('{"type":"user","sessionID":"ses_1"}\n')
    assert client.places.find(tmp_path) == client.places.find(other) == []
    other.unlink()
    hostile = tmp_path / folder.name / "-a\n[x]*" / file_of(own).name
    hostile.parent.mkdir(parents=True)
    hostile.write_text(own.text())
    assert client.places.find(tmp_path) == [tmp_path]
    assert read_facts(tmp_path, as_of=NOON)[0].entities.height == 2


# --- every session of the shared samples is what a person wrote that it should be ----------


def same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


COUNTS = {
    "claude_code": {
        **{"n_assistant": "n_answers", "cache_creation_tokens": "n_cache_creation_tokens"},
        **{"cache_read_tokens": "n_cache_read_tokens"},
        **same("naive_output_tokens", "n_retries"),
    },
    "codex": {
        **{"n_agent": "n_answers", "cached_input_tokens": "n_cached_tokens"},
        **{"reasoning_output_tokens": "n_reasoning_tokens"},
        **same("naive_total_tokens", "n_turns"),
    },
}
SAME_COUNTS = {
    **{"input_tokens": "n_input_tokens", "output_tokens": "n_output_tokens"},
    **same("n_prompts", "n_tool_calls", "n_tool_errors", "n_open_tools"),
}
DERIVED = "run.health.stalled"
"""Derived reasons stand after recorded ones here; the samples name them first."""


@pytest.fixture(scope="module")
def shared_sample(client: Client) -> Path:
    path = SHARED / "samples" / client.name.replace("_", "-")
    if not path.is_dir():
        pytest.skip("the folder ../shared is not here")
    return path


@pytest.fixture(scope="module")
def expected(shared_sample: Path) -> list[dict]:
    table = pl.read_csv(shared_sample / "expected.csv")
    return table.with_columns(pl.col("as_of").str.to_datetime(time_zone="UTC")).to_dicts()


@pytest.fixture(scope="module")
def shared_facts(shared_sample: Path, expected: list[dict]) -> Facts:
    return read_facts(shared_sample, as_of=expected[0]["as_of"])[0]


def test_every_row_of_the_expected_file_holds(client, shared_facts, expected) -> None:
    axes = ("lifecycle", "outcome", "health", "delivery", "severity")
    of_states = states(shared_facts).select("entity_id", *axes, "reason_codes")
    entities = shared_facts.entities.filter(entity_type="session")
    columns = entities.select("entity_id", "kind", "parent_id", "n_messages", "started_at")
    sessions = shared_facts.detail(client.frames.SESSIONS).rename({"thread_id": "entity_id"})
    rows = sessions.join(of_states, on="entity_id").join(columns, on="entity_id").to_dicts()
    prefix = "projects/" if client.name == "claude_code" else ""
    by_file = {prefix + row["file"].removeprefix(prefix): row for row in rows}
    assert sorted(by_file) == sorted(row["file"] for row in expected)
    names = {by_file[row["file"]]["entity_id"]: row["session"] for row in expected}
    for row in expected:
        ours = by_file[row["file"]]
        assert {axis: ours[axis] for axis in axes} == {axis: row[axis] for axis in axes}, row
        codes = sorted(row["reason_codes"].split(";"), key=lambda code: code == DERIVED)
        assert ours["reason_codes"].split(", ") == codes, row["session"]
        counts = SAME_COUNTS | COUNTS[client.name]
        stated = {name: row[theirs] for theirs, name in counts.items()}
        assert {name: ours[name] for name in counts.values()} == stated, row["session"]
        if "total_tokens" in row:
            assert ours["n_input_tokens"] + ours["n_output_tokens"] == row["total_tokens"]
        assert (ours["n_messages"], ours["kind"]) == (row["n_messages"], row["subtype"])
        assert names.get(ours["parent_id"]) == row["parent"], row["session"]
        for name in ("started_at", "last_activity_at"):
            moment = ours[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
            assert moment == row[name], row["session"]


def test_oddities_of_the_shared_samples_are_counted(client, shared_facts, expected) -> None:
    n_rows = findings_of(shared_facts)
    n_unknown = sum(row["n_unknown_records"] for row in expected)
    if client.name == "claude_code":
        assert n_rows["line.unfinished"] == sum(row["n_bad_lines"] for row in expected)
        assert n_rows["record.unknown_type"] == n_unknown
        assert n_rows["record.unknown_block"] == n_rows["record.unknown_subtype"] == 1
    else:
        found = [n for code, n in n_rows.items() if code.startswith("record.unknown")]
        assert sum(found) == n_unknown
        assert "line.unfinished" not in n_rows


@pytest.mark.slow
def test_folders_and_order_of_files_change_nothing(
    client, shared_sample, shared_facts, tmp_path: Path
) -> None:
    """A session or thread is known by its id, in whatever folder its files are."""
    pattern = "projects/*/**/*.json*" if client.name == "claude_code" else "*s/**/rollout-*"
    files = sorted(shared_sample.glob(pattern), reverse=True)
    assert len(files) > 5
    top = {"claude_code": "projects", "codex": "sessions"}[client.name]
    for number, file in enumerate(files):
        inner = file.relative_to(shared_sample).parts[2:] if top == "projects" else [file.name]
        to = tmp_path / top / f"-p{len(files) - number}" / Path(*inner)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(file.read_bytes())
    for name in ("settings.json", "session_index.jsonl"):
        if (shared_sample / name).exists():
            shutil.copy(shared_sample / name, tmp_path)
    moved = read_facts(tmp_path, as_of=shared_facts.as_of)[0]
    assert entities_of(moved).equals(entities_of(shared_facts))


@pytest.mark.slow
def test_attention_lists_sessions_and_not_their_parts(client, shared_sample, expected) -> None:
    listed = sa.attention(sa.read(shared_sample, as_of=expected[0]["as_of"]))
    assert set(listed["entity_type"]) == {"session"}
    assert listed.height == {"claude_code": 4, "codex": 3}[client.name]


@pytest.mark.slow
def test_a_project_and_a_single_transcript_give_the_same_facts() -> None:
    root = SHARED / "samples" / "claude-code"
    if not root.is_dir():
        pytest.skip("the folder ../shared is not here")
    table = pl.read_csv(root / "expected.csv")
    [as_of] = table["as_of"].str.to_datetime(time_zone="UTC").unique()
    whole = read_facts(root, as_of=as_of)[0].entities.drop("source")
    [project] = (root / "projects").iterdir()
    assert read_facts(project, as_of=as_of)[0].entities.drop("source").equals(whole)
    [file] = table.filter(session="05_subagent_parent")["file"]
    alone = read_facts(root / file, as_of=as_of)[0]
    assert set(alone.entities["entity_id"]) < set(whole["entity_id"])
    assert alone.entities.filter(entity_type="session", kind="subagent").height == 1
