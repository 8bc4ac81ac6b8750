"""Agent Orchestrator's files of every generation become canonical frames."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.systems.agent_orchestrator import frames as agent_orchestrator_frames
from stateanalytics.systems.agent_orchestrator.places import File, Kind, files_of, find, opens
from stateanalytics.systems.agent_orchestrator.reading import read
from tests.ao_expected import described, expected
from tests.ao_trees import (
    CREATED,
    Scenarios,
    facts_of,
    lifecycle,
    put,
    record,
    write_flat,
    write_json,
)
from tests.conftest import ROOT
from tests.examples import a_few

HASH, OTHER = "0123456789ab", "ba9876543210"

Tree = Callable[[str], Facts]


@pytest.fixture(scope="module")
def samples(shared: Path) -> Path:
    return shared / "samples" / "agent-orchestrator"


@pytest.fixture(scope="module")
def before(samples: Path) -> list[tuple[Path, int]]:
    """The files of the samples, as they were written before any of them was read here."""
    return written(samples)


@pytest.fixture(scope="module")
def real(samples: Path, before: list[tuple[Path, int]]) -> Facts:
    return facts_of(samples)


@pytest.fixture(scope="module")
def tree(samples: Path) -> Tree:
    """One generation of the samples, read alone: together they tell one fleet's work once."""
    return cache(lambda name: facts_of(samples / name))


@pytest.fixture(scope="module", params=a_few(["v2_json", "."]))
def records(samples: Path, request: pytest.FixtureRequest) -> list[dict]:
    return described(samples, request.param)


def written(root: Path) -> list[tuple[Path, int]]:
    return sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))


def records_of(facts: Facts) -> pl.DataFrame:
    return facts.detail("ao_sessions")


def codes(facts: Facts) -> dict[str, int]:
    counted = facts.findings.group_by("code").agg(pl.col("n_rows").sum()).sort("code")
    return dict(counted.rows())


# --- the samples, written by the real writers -------------------------------------------

SCENARIO = (
    # tree, record, its word, terminal, what the watcher says at 10:00
    ("v0_kv_pre_lifecycle", "bil-4", "pr_open", False, "no_acknowledge"),
    ("v0_kv_pre_lifecycle", "bil-10", "killed", True, None),
    ("v0_kv_pre_lifecycle", "bil-18", "merged", True, None),
    ("v0_kv_pre_lifecycle", "bil-20", "working", False, "no_acknowledge"),
    ("v0_kv_pre_lifecycle", "bil-orchestrator", "working", False, None),
    ("v1_kv_statepayload", "app-1", "merged", True, None),
    ("v1_kv_statepayload", "app-4", "stuck", True, "stale_report"),
    ("v1_kv_statepayload", "app-9", "working", False, "agent_needs_input"),
    ("v1_kv_statepayload", "lib-2", "killed", True, None),
    ("v2_json", "app-1", "cleanup", True, None),
    ("v2_json", "app-7", "working", False, "no_acknowledge"),
    ("v2_json", "app-12", "stuck", False, "stale_report"),
    ("v2_json", "app-40", "working", False, None),
    ("v2_json", "app-43", "pr_open", False, "no_acknowledge"),
    ("v2_json", "app-44", "killed", True, None),
    ("v2_json", "app-orchestrator", "stuck", False, None),
    ("v3_json_final_ts", "app-5", "killed", True, None),
    ("v3_json_final_ts", "app-15", "review_pending", False, "stale_report"),
)


def test_records_of_the_scenario_read_as_agent_orchestrator_reads_them(records: list) -> None:
    rows = {(row["path"].split("/")[0], row["session_id"]): row for row in records}
    names = ("derived_status", "is_terminal", "watcher_trigger")
    trees = {tree for tree, _ in rows}
    wanted = [one for one in SCENARIO if one[0] in trees]
    found = [(tree, name, *(rows[tree, name][one] for one in names)) for tree, name, *_ in wanted]
    assert found == wanted
    assert trees == {"v2_json"} or wanted == list(SCENARIO)


def test_every_expected_row_of_the_samples_holds(samples: Path, records: list[dict]) -> None:
    rows = {row["path"]: row for row in records}
    wanted = expected(samples)
    trees = {path.split("/")[0] for path in rows}
    of_trees = [row for row in wanted if row["path"].split("/")[0] in trees]
    here = [row for row in of_trees if (samples / row["path"]).exists()]
    assert rows
    assert here or not wanted, "no expected row is about a file that is here"
    for row in here:
        found = rows[row["path"]]
        # How the release of April 2026 read a record is no longer told.
        wanted_row = {key: value for key, value in row.items() if "trinity" not in key}
        assert {key: found.get(key) for key in wanted_row} == wanted_row


@pytest.mark.slow
def test_every_generation_is_recognised_by_its_records(real: Facts) -> None:
    seen = real.sources.select(pl.col("source").str.extract(r"([^/]+)$"), "format").rows()
    assert dict(seen) == {
        "v0_kv_pre_lifecycle": "G0",
        "v1_kv_statepayload": "G1",
        "v2_json": "G2",
        "v2_json_migrated_from_v0_v1": "G0, G1, G2",
        "v3_json_final_ts": "G2, activity events",
    }
    assert set(real.entities["system"]) == {"agent_orchestrator"}


def test_every_frame_has_the_shape_of_the_schema(real: Facts) -> None:
    for shape in (schema.ENTITIES, schema.TRANSITIONS, schema.EVENTS, schema.FINDINGS):
        assert getattr(real, shape.name).schema == shape.dtypes
    assert records_of(real).schema == agent_orchestrator_frames.SESSIONS.dtypes
    assert real.entities.select(schema.ENTITY_KEY).is_duplicated().sum() == 0
    keys = records_of(real).select(agent_orchestrator_frames.SESSIONS.key)
    assert keys.is_duplicated().sum() == 0


def test_a_session_is_one_entity_however_many_records_it_has(tree: Tree) -> None:
    migrated = records_of(tree("v2_json_migrated_from_v0_v1"))
    of_one = migrated.filter(session_id="bil-30").sort("path")
    assert of_one["entity_id"].to_list() == ["bil-30"] * 3
    (path,) = of_one.filter("is_current")["path"]
    assert path == "projects/billing/sessions/bil-30.json"
    assert migrated.filter("is_current").height == migrated["entity_id"].n_unique()


def test_the_newest_archive_tells_a_session_that_has_nothing_else(tree: Tree) -> None:
    told = records_of(tree("v0_kv_pre_lifecycle")).filter(session_id="bil-30")
    assert told.filter("is_current")["stored_status"].to_list() == ["done"]


def test_a_damaged_record_is_read_and_says_why(tree: Tree) -> None:
    row = records_of(tree("v2_json")).filter(session_id="app-44").row(0, named=True)
    assert row["reject_reason"] == "session.reason has the unknown word 'migrated_from_archive'"
    assert row["session_reason"] == "migrated_from_archive"
    assert row["legacy_status"] == "terminated"


def test_a_reserved_name_is_no_session_and_is_said(tree: Tree) -> None:
    row = records_of(tree("v2_json")).filter(session_id="app-41").row(0, named=True)
    assert (row["is_readable"], row["entity_id"]) == (False, None)
    assert codes(tree("v2_json"))["record.reserved"] == 1


def test_what_the_mapping_loses_stays_a_column(tree: Tree) -> None:
    row = records_of(tree("v2_json")).filter(session_id="app-15").row(0, named=True)
    kept = [row[name] for name in ("pr_number", "pr_ci_status", "event_priority")]
    assert kept == [515, "passing", "info"]
    assert row["pr_enriched_at"] is not None
    merged = records_of(tree("v3_json_final_ts")).filter(session_id="app-1").row(0, named=True)
    assert (merged["pr_title"], merged["n_pr_additions"]) == ("PR 501", 120)
    assert merged["other_keys"] == "ciPassingStableCount"


def test_a_flat_pull_request_counts_before_the_axis_knows_it(tree: Tree) -> None:
    row = records_of(tree("v2_json")).filter(session_id="app-40").row(0, named=True)
    assert (row["pr_state"], row["pr_number"]) == ("none", 540)


def test_workers_belong_to_the_only_orchestrator_of_their_project(tree: Tree) -> None:
    here = tree("v2_json").entities
    told = dict(here.select("entity_id", "parent_id").rows())
    assert (told["app-1"], told["lib-1"]) == ("app-orchestrator", None)
    boss = here.filter(entity_id="app-orchestrator").row(0, named=True)
    assert (boss["kind"], boss["parent_id"]) == ("orchestrator", None)
    assert boss["n_children"] == 19


def test_the_traps_of_the_samples_are_findings(real: Facts) -> None:
    found = codes(real)
    assert found["status.ended_after_restore"] == 2  # app-11, before and after the migration
    assert found["runtime.gone"] == 4  # app-4, in every generation with axes
    assert found["record.would_reject"] == 1
    assert found["record.corrupt_copy"] == 2
    stale = real.findings.filter(code="status.stale_cache")
    assert set(stale["entity_id"]) == {"app-1", "app-11", "app-44"}


def test_nothing_is_written_into_a_tree(samples: Path, before: list, real: Facts) -> None:
    assert real.entities.height > 0
    assert written(samples) == before


# --- by hand ------------------------------------------------------------------------------

scenario = Scenarios()


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """One tree with all sessions of this page that others do not disturb."""
    return facts_of(scenario.written(tmp_path_factory.mktemp("by_hand")))


def test_what_a_read_opened_need_not_be_looked_for_again(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(lifecycle()))
    assert read(tmp_path, label="tree").opened == tuple(opens(tmp_path)) != ()


@pytest.mark.parametrize(
    ("named", "names"),
    a_few(
        [
            pytest.param("projects/web", ["web-1", "web-2"], id="a project"),
            pytest.param("projects/web/sessions", ["web-1", "web-2"], id="its sessions"),
            pytest.param("projects/..", ["web-1", "web-2"], id="a tree in a roundabout way"),
            pytest.param("", ["web-1", "web-2"], id="a tree"),
            pytest.param("projects/web/sessions/web-1.json", ["web-1"], id="one record"),
        ],
        2,
    ),
)
def test_a_tree_a_project_its_sessions_and_one_record_can_be_named(tmp_path, named, names) -> None:
    for name in ("web-1", "web-2"):
        write_json(tmp_path, name, record(lifecycle()))
    assert facts_of(tmp_path / named).entities["entity_id"].to_list() == names


@pytest.mark.parametrize("suffix", ["", ".migrated"])
def test_a_file_named_by_itself_is_the_same_as_in_its_project(tmp_path: Path, suffix: str) -> None:
    """A worktree may have the name of any other folder, and a tree a recovery log of its own."""
    project, text = f"{HASH}-web{suffix}", "branch=b\nstatus=killed\n"
    archived = "sessions/archive/web-1_2026-05-04T09-10-00-050Z"
    logs = ("sessions/.agent-report-audit/web-1.ndjson", "worktrees/sessions/.ao/activity.jsonl")
    others = ("sessions/web-1", "sessions/web-1.json", "feedback-reports/report_1.kv")
    names = (archived, f"{archived}.json", *logs, *others, "recovery.log")
    paths = [str(put(tmp_path / project / name, text)) for name in names]
    alone = [file for path in paths for file in files_of(Path(path))]
    found = [(file.path, file.directory, file.is_migrated) for file in alone]
    assert found == [(path, project, bool(suffix)) for path in paths]
    of_tree = File(str(put(tmp_path / "recovery.log", "")), Kind.RECOVERY, "")
    assert list(files_of(Path(of_tree.path))) == [of_tree]
    assert sorted(files_of(tmp_path)) == sorted([*alone, of_tree])
    assert facts_of(Path(paths[0])).entities["project"].to_list() == ["web"]


def test_every_file_of_the_samples_is_the_same_named_by_itself(samples: Path) -> None:
    roots = (ROOT / "data/samples/agent_orchestrator", *samples.parent.glob(f"{samples.name}*"))
    walked = [file for root in roots for tree in find(root) for file in files_of(tree)]
    alone = [file for one in walked for file in files_of(Path(one.path))]
    assert alone == [file for file in walked if find(Path(file.path))]
    assert len(alone) > 0.9 * len(walked)


def test_trees_below_a_directory_are_inputs_of_their_own(tmp_path: Path) -> None:
    for host, at in (("a", CREATED), ("b", "2026-05-05T09:00:00.000Z")):
        life = lifecycle(startedAt=at)
        write_json(tmp_path / host / ".agent-orchestrator", "web-1", record(life, createdAt=at))
    facts = facts_of(tmp_path / "a", tmp_path / "b")
    assert facts.entities["entity_id"].to_list() == ["web-1", "web-1"]
    assert facts.entities["source"].n_unique() == 2
    assert [len(find(tmp_path / host)) for host in ("a", "b")] == [1, 1]


def test_a_directory_of_something_else_is_none(tmp_path: Path) -> None:
    put(tmp_path / "sessions" / "readme.json", "{}")
    put(tmp_path / "projects" / "notes.txt", "-")
    assert find(tmp_path) == []
    assert find(tmp_path / "nothing") == []


def test_what_lies_beside_records_is_left_alone(tmp_path: Path) -> None:
    path = write_json(tmp_path, "web-1", record(lifecycle()))
    for name in ("web-2.json.tmp.12.1777885200000", ".DS_Store", "notes.txt", "web 3.json"):
        put(path.parent / name, "{}")
    put(path.with_name("web-1.json.lock"), "")
    facts = facts_of(tmp_path, clock=lambda: datetime(2026, 6, 1, tzinfo=UTC))
    assert facts.entities["entity_id"].to_list() == ["web-1"]
    assert facts.as_of_from == "clock"


def test_what_no_writer_has_open_stands_at_its_newest_moment(by_hand: Facts) -> None:
    assert by_hand.as_of_from == "data"
    assert not by_hand.sources["is_live"].any()


@scenario
def _(root: Path) -> None:
    write_json(root, "known-1", "status=stuck\nproject=web\n")
    put(root / f"{HASH}-web" / "sessions" / "known-2", json.dumps(record(lifecycle("idle"))))


def test_records_are_known_by_what_they_hold_not_by_their_name(by_hand: Facts) -> None:
    told = records_of(by_hand).filter(pl.col("session_id").str.starts_with("known-"))
    assert told.sort("session_id")["legacy_status"].to_list() == ["stuck", "idle"]


@scenario
def _(root: Path) -> None:
    text = "# by hand\r\nstatus=working\nstatus = stuck \n\nno sign\n"
    text += "pr=https://x.y/pull/7?a=b\n=z\n"
    put(root / f"{HASH}-web" / "sessions" / "lines-1", text)


def test_the_last_of_a_key_counts_with_all_after_the_first_sign(by_hand: Facts) -> None:
    row = records_of(by_hand).filter(session_id="lines-1").row(0, named=True)
    assert (row["stored_status"], row["pr_url"]) == ("stuck", "https://x.y/pull/7?a=b")


@scenario
def _(root: Path) -> None:
    for state_version in ("1", "2"):
        write_flat(
            root, f"payload-{state_version}", directory=f"{HASH}-web", status="working",
            stateVersion=state_version,
            statePayload=json.dumps(lifecycle("stuck", "probe_failure")),
        )  # fmt: skip


def test_a_payload_counts_only_with_its_version(by_hand: Facts) -> None:
    told = records_of(by_hand).filter(pl.col("session_id").str.starts_with("payload-"))
    assert sorted(told.select("session_id", "generation", "legacy_status").rows()) == [
        ("payload-1", "G1", "working"),
        ("payload-2", "G1", "stuck"),
    ]


@scenario
def _(root: Path) -> None:
    for directory, created in ((f"{HASH}-web", CREATED), (f"{OTHER}-shop", "2026-05-05T09:00:00Z")):
        write_flat(root, "s-1", directory=directory, status="idle", createdAt=created)


def test_two_directories_with_one_session_id_are_two_sessions(by_hand: Facts) -> None:
    of_one_id = by_hand.entities.filter(pl.col("entity_id").str.starts_with("s-1"))
    assert sorted(of_one_id["entity_id"]) == ["s-1", f"s-1__from-{HASH}"]
    shared_ids = by_hand.findings.filter(code="id.shared")
    assert shared_ids["entity_id"].to_list() == [f"s-1__from-{HASH}"]


@scenario
def _(root: Path) -> None:
    directory = f"{HASH}-web"
    write_flat(root, "again-1", directory=directory, status="working", createdAt=CREATED)
    archive = root / directory / "sessions" / "archive"
    put(archive / "again-1_2026-05-04T09-10-00-050Z", "status=killed\n")


def test_an_archive_is_an_earlier_record_of_the_session_that_was_restored(by_hand: Facts) -> None:
    assert by_hand.entities.filter(entity_id="again-1")["raw_status"].to_list() == ["working"]
    earlier = records_of(by_hand).filter(~pl.col("is_current"))
    archived_at = datetime(2026, 5, 4, 9, 10, 0, 50_000, tzinfo=UTC)
    assert earlier.select("session_id", "archived_at").rows() == [("again-1", archived_at)]
    assert codes(by_hand)["record.superseded"] == 1


def test_made_up_times_are_left_out(tmp_path: Path) -> None:
    write_json(tmp_path, "web-1", record(status="killed"))
    facts = facts_of(tmp_path)
    row = facts.entities.row(0, named=True)
    assert (row["ended_at"], row["updated_at"]) == (None, None)
    assert row["created_at"] == datetime(2026, 5, 4, 9, tzinfo=UTC)
    assert codes(facts)["record.synthesized"] == 1


def test_the_order_of_files_changes_nothing(tmp_path: Path) -> None:
    names = ["web-3", "web-1", "web-2"]
    for root, order in (("a", names), ("b", names[::-1])):
        for name in order:
            write_json(tmp_path / root, name, record(lifecycle()))
    one, two = (facts_of(tmp_path / root).entities.drop("source") for root in ("a", "b"))
    assert one.sort("entity_id").equals(two.sort("entity_id"))


def test_an_empty_tree_gives_empty_frames(tmp_path: Path) -> None:
    (tmp_path / "projects" / "web" / "sessions").mkdir(parents=True)
    facts = facts_of(tmp_path)
    assert facts.entities.height == facts.events.height == facts.findings.height == 0
    assert facts.sources["format"].to_list() == ["logs"]


@pytest.fixture(scope="module")
def shipped() -> Facts:
    """The sample that is shipped, with its bodies."""
    tree = Path(__file__).parents[1] / "data" / "samples" / "agent_orchestrator"
    return facts_of(tree, bodies=True)


def test_bodies_are_read_only_when_asked_for(tree: Tree, shipped: Facts) -> None:
    events = tree("v2_json").events
    assert events["body"].null_count() == events.height
    bodies = shipped.events["body"]
    assert bodies.null_count() < bodies.len()


def test_the_shipped_tree_holds_every_generation_of_files(shipped: Facts) -> None:
    assert shipped.sources["format"].item() == "G0, G1, G2, activity events"
    assert shipped.entities.filter(entity_id="app-11")["raw_status"].item() == "killed"
    assert shipped.findings.filter(severity="error").is_empty()


def test_without_a_name_the_home_directory_is_looked_through(home: Path) -> None:
    write_json(home / ".agent-orchestrator", "web-1", record(lifecycle()))
    assert facts_of().entities["entity_id"].to_list() == ["web-1"]


@pytest.mark.slow
def test_a_store_among_records_is_never_opened_by_this_process(tmp_path):
    """Closing a store, or its index, would drop the locks that the same process holds on it."""
    sessions = tmp_path / "projects" / "web" / "sessions"
    sessions.mkdir(parents=True)
    record = "worktree=/w\nbranch=b\nstatus=working\n"
    (sessions / "web-1").write_text(record)
    for name in ("kept", "kept-wal", "kept-shm"):
        (sessions / name).write_text(record)
    code = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) "
        "if event == 'open' else None)\n"
        "from stateanalytics.systems.reading import read_facts\n"
        "for path in sys.argv[1:]:\n"
        "    facts, _ = read_facts([path])\n"
        "    assert facts.details['ao_sessions']['session_id'].to_list() == ['web-1']\n"
        "assert not [name for name in opened if 'kept' in name], opened\n"
    )
    paths = [str(path) for path in (tmp_path, sessions, sessions / "web-1")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    assert find(sessions / "kept") == []
    assert find(sessions / "kept-shm") == []
