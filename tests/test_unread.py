"""Nothing of a recognised store is dropped in silence: what is not read is a finding, counted."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stateanalytics.core.facts import Facts
from stateanalytics.io.sqlite import open_store
from stateanalytics.systems import all_systems, system_named
from stateanalytics.systems.base import Files, System
from stateanalytics.systems.omissions import findings_of_files
from stateanalytics.systems.opencode.canonical import used_tokens
from tests.ao_trees import facts_of
from tests.systems_page import stored
from tests.test_opencode_sources import write_claimed

SAMPLES = Path(__file__).parents[1] / "data" / "samples"

STORES = {
    "lionagi/0.36.0/state.db": "lionagi",
    "agent-orchestrator-go/ao.db": "agent_orchestrator",
    "opencode/v2_20260717/opencode-local.db": "opencode",
}


def passed_over(facts: Facts, code: str = "source.table_not_read") -> dict[str, int]:
    found = facts.findings.filter(code=code)
    return dict(found.select("table", "n_rows").rows())


def copied(store: Path, to: Path, script: str) -> Path:
    shutil.copy(store, to)
    to.chmod(0o600)
    with closing(sqlite3.connect(to)) as db:
        db.executescript(script)
    return to


@pytest.mark.slow
@pytest.mark.parametrize(("name", "system"), STORES.items())
def test_every_table_with_rows_is_read_or_left_aside_or_a_finding(
    shared: Path, name: str, system: str
) -> None:
    path = shared / "samples" / name
    tables = system_named(system).tables()
    with open_store(path) as store:
        stored = set(store.tables)
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        others = stored - {*tables.read, *tables.ignored, "sqlite_sequence"}
        counts = {table: db.execute(f"SELECT count(*) FROM {table}") for table in others}
        n_rows = {table: count.fetchone()[0] for table, count in counts.items()}
    facts = facts_of(path)
    assert passed_over(facts) == {table: n for table, n in n_rows.items() if n}
    assert "version.unknown" not in facts.findings["code"]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_table_of_an_unknown_version_is_counted(shared: Path, tmp_path: Path, name: str) -> None:
    script = """
        CREATE TABLE "odd ""name" (a); INSERT INTO "odd ""name" VALUES (1), (2);
        CREATE TABLE token_usage (a); INSERT INTO token_usage VALUES (1);
        CREATE TABLE no_rows (a);
    """
    facts = facts_of(copied(shared / "samples" / name, tmp_path / Path(name).name, script))
    found = passed_over(facts)
    assert found['odd "name'] == 2
    assert "no_rows" not in found
    of_work = facts.findings.filter(table="token_usage")
    assert of_work.select("severity", "n_rows").rows() == [("warning", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("lionagi/0.36.0/state.db", "UPDATE schema_meta SET value = '5' WHERE key = 'version'"),
        (
            "agent-orchestrator-go/empty.db",
            "INSERT INTO goose_db_version (version_id, is_applied) VALUES (104, 1)",
        ),
        ("opencode/v2_20260717/opencode-local.db", "UPDATE migration SET id = '2027'||id"),
    ],
)
def test_a_newer_schema_says_so(shared: Path, tmp_path: Path, name: str, script: str) -> None:
    store = shared / "samples" / name
    copy = copied(store, tmp_path / store.name, script)
    found = facts_of(copy).findings.filter(code="version.unknown")
    assert found["action"].to_list() == ["read as far as its columns go"]


def test_files_of_other_kinds_are_counted_by_kind(tmp_path: Path) -> None:
    root = tmp_path / "transcripts"
    shutil.copytree(SAMPLES / "claude_code", root)
    for name in ("todos/a/1.json", "todos/a/2.json", "projects/x/tool-results/1.txt", "odd"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    found = passed_over(facts_of(root), "source.files_not_read")
    assert found == {"*": 1, "*.md": 1, "*.py": 1, "projects/*.txt": 1, "todos/*.json": 2}


def test_notes_of_subagents_and_files_that_are_read_are_no_findings(shared: Path) -> None:
    found = passed_over(facts_of(shared / "samples" / "claude-code"), "source.files_not_read")
    assert not any(kind.startswith("projects/") for kind in found)


def test_a_repository_that_an_agent_works_in_is_not_looked_through(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(SAMPLES / "agent_orchestrator", root)
    before = passed_over(facts_of(root), "source.files_not_read")
    [project] = [path for path in (root / "projects").iterdir() if path.is_dir()][:1]
    (project / "worktrees" / "app-1" / "src").mkdir(parents=True)
    (project / "worktrees" / "app-1" / "src" / "main.py").write_text("")
    (project / "notes.txt").write_text("")
    after = passed_over(facts_of(root), "source.files_not_read")
    assert after == {**before, "projects/*.txt": 1}


@pytest.mark.slow
def test_other_files_beside_a_database_are_counted_once(
    claimed: tuple[Path, Facts], tmp_path: Path
) -> None:
    home = tmp_path / "opencode"
    names = ("auth.json", "log/1.log", "log/2.log", "snapshot/a/x.py", "storage/session/s.json")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("{}")
    for name in ("opencode.db", "opencode-next.db"):
        shutil.copy(claimed[0], home / name)
    found = facts_of(home).findings.filter(code="source.files_not_read")
    assert found.select("table", "n_rows").rows() == [("*.json", 1), ("log/*.log", 2)]
    assert passed_over(facts_of(claimed[0]), "source.files_not_read") == {}


def test_other_files_of_run_directories_are_counted(shared: Path, tmp_path: Path) -> None:
    store = shutil.copy(shared / "samples" / "lionagi" / "0.36.0" / "state.db", tmp_path)
    names = ("run.json", "checkpoint.json", "legs/a.json", "branches/b.json", "artifacts/c.md")
    for run, name in [(run, name) for run in "12" for name in names]:
        path = tmp_path / "runs" / run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "runs" / "1" / "flow.log").write_text("")
    found = passed_over(facts_of(Path(store)), "source.files_not_read")
    assert found == {"runs/*.json": 4, "runs/*.log": 1}


@pytest.mark.slow
def test_events_of_an_unknown_type_are_counted_by_type(tmp_path: Path) -> None:
    sample = SAMPLES / "opencode" / "events_july_2026.jsonl"
    known = sample.read_text()
    copy = tmp_path / sample.name
    lines = [line for line in known.splitlines() if '"session.text.started' in line][:3]
    assert len(lines) == 3
    made_up = [line.replace("session.text.started", "session.dream.begun") for line in lines]
    copy.write_text(known + "".join(f"{line}\n" for line in (*made_up, made_up[0])))
    found = facts_of(copy).findings.filter(code="event.unknown_type")
    assert "event.unknown_type" not in facts_of(sample).findings["code"]
    assert found["n_rows"].sum() >= 3
    assert found["example"].str.contains("dream.begun").all()


def test_the_known_tables_are_those_of_the_samples(shared: Path) -> None:
    for name, system in STORES.items():
        known = {table for table, _ in stored(system_named(system))}
        with open_store(shared / "samples" / name) as store:
            assert {table for table in store.tables if table != "sqlite_sequence"} <= known


def test_no_table_is_both_read_and_left_aside() -> None:
    for known in all_systems():
        if known.tables is not None:
            tables = known.tables()
            assert not {*tables.read} & {*tables.ignored}


@pytest.fixture(scope="module")
def claimed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Facts]:
    path = tmp_path_factory.mktemp("claimed") / "opencode.db"
    write_claimed(path)
    return path, facts_of(path)


def test_words_of_a_newer_opencode_are_kept_and_counted(
    claimed: tuple[Path, Facts], tmp_path: Path
) -> None:
    ended = (
        "INSERT INTO event VALUES ('evt_{0}0', 'ses_own', {0}, 1795220000600, "
        """'session.compaction.ended.9', '{{"cost": 1, "tokens": {{"input": 7}}, """
        """"model": {{"id": "{1}", "providerID": "p"}}}}');"""
    )
    script = "UPDATE session_v2 SET idle_outcome = 'paused' WHERE id = 'ses_own';" + "".join(
        ended.format(seq, model) for seq, model in ((2, "unknown"), (3, "m"))
    )
    new = facts_of(copied(claimed[0], tmp_path / claimed[0].name, script))
    found = new.findings.filter(code="outcome.unrecognized")
    assert found.select("column", "example", "n_rows").rows() == [("idle_outcome", "paused", 1)]
    assert new.detail("opencode_sessions").filter(session_id="ses_own")["idle_outcome"].item()
    found = new.findings.filter(code="event.unknown_version")
    assert found.select("example", "n_rows").rows() == [("session.compaction.ended.9", 2)]
    used = used_tokens(new).select("model", "cost_usd").drop_nulls("cost_usd")
    assert used.sort("model", nulls_last=True).rows() == [("m", 1.0), (None, 1.0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("ALTER TABLE session_v2 RENAME COLUMN time_suspended TO execution_claimed_at", None),
        ("ALTER TABLE session_v2 ADD COLUMN execution_claimed_at integer;"
         "UPDATE session_v2 SET execution_claimed_at = time_suspended, time_suspended = 1",
         "source.column_twice"),
        ("ALTER TABLE session_v2 DROP COLUMN time_suspended", "source.column_missing"),
        ("CREATE TABLE other AS SELECT idle_outcome, time_suspended, title, version, cost, id, "
         "parent_id, resume_attempts, time_created, time_updated FROM session_v2;"
         "DROP TABLE session_v2; ALTER TABLE other RENAME TO session_v2", None),
    ],
    ids=["the new name", "both: the new one counts", "neither", "another order of columns"],
)  # fmt: skip
def test_a_claim_is_read_by_its_old_name_and_its_new_one(
    claimed: tuple[Path, Facts], tmp_path: Path, script: str, code: str | None
) -> None:
    store, old = claimed
    new = facts_of(copied(store, tmp_path / store.name, script))
    codes = [word for word in new.findings["code"] if word.startswith("source.column")]
    assert codes == ([] if code is None else [code])
    assert not old.findings["code"].str.contains("^source.column|unknown_version").any()
    if code == "source.column_missing":
        assert new.entities["is_resume_claimed"].null_count() == new.entities.height
    same = old.entities.drop("source").equals(new.entities.drop("source"))
    assert same == (code != "source.column_missing")


def test_a_file_that_was_read_is_never_called_unread(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("one.log", "two.log", "cache/x.bin", "notes.txt"):
        (tmp_path / name).write_text("{}")
    of = Files(find=lambda path: [path], read=None, skips=("cache",))
    system = System(name="own", title="Own", files=of)
    # Nobody says what was opened, so nothing is called unread.
    assert findings_of_files(tmp_path, "in", system).is_empty()
    logs = [str(tmp_path / name) for name in ("one.log", "two.log")]
    found = findings_of_files(tmp_path, "in", system, logs).filter(code="source.files_not_read")
    assert found.select("table", "n_rows").rows() == [("*.txt", 1)]
    assert findings_of_files(tmp_path, "in", system, [])["n_rows"].sum() == 3
