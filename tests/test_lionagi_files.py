"""Run and show directories next to a store, and all that may be wrong with them."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stateanalytics.io.sqlite import open_store
from stateanalytics.systems.lionagi import reading as lionagi
from stateanalytics.systems.lionagi.directories import derive_status
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, codes, read_part, session, write_store

_LIMIT = ("entity_id", "timeout_s", "timeout_from")


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def _home(tmp_path: Path, *sessions, **tables) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return write_store(home / "state.db", sessions=sessions, **tables)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param({"status": "failed", "exit_code": 0}, "failed", id="status comes first"),
        pytest.param({"status": "Canceled"}, "cancelled", id="spelling and case"),
        pytest.param({"status": "success"}, "completed", id="old word"),
        pytest.param({"status": "who knows"}, "completed", id="unknown word"),
        pytest.param({"exit_code": 0}, "completed", id="exit code 0"),
        pytest.param({"exit_code": 124}, "timed_out", id="exit code of a timeout"),
        pytest.param({"exit_code": 143}, "cancelled", id="exit code of a kill"),
        pytest.param({"exit_code": 9}, "failed", id="another exit code"),
        pytest.param({"exit_code": "no"}, "failed", id="exit code of a wrong type"),
        pytest.param({}, "completed", id="neither"),
    ],
)
def test_an_import_derives_its_status_in_three_steps(manifest, expected):
    assert derive_status(manifest) == expected


def test_import_rule_agrees_with_lionagi_itself():
    from lionagi.cli import state

    for status in (*state._STATUS_MAP, "odd", None):
        for code in (None, 0, 1, 2, 124, 130, 143):
            manifest = {"status": status, "exit_code": code}
            expected = state._derive_import_status(manifest)
            ours = derive_status(manifest)
            # Exit code 1 stands for two statuses; lionagi takes whichever was listed last.
            assert ours == expected or (status is None and code == 1), manifest


def test_a_timeout_is_read_from_the_checkpoint_else_from_the_metadata(tmp_path):
    path = _home(
        tmp_path,
        session("by-run", run_id="20260527T000000-aaaaaa"),
        session("by-checkpoint", run_id=None),
        session("by-metadata", node_metadata='{"timeout_seconds": 900}'),
        session("none"),
    )
    runs = path.parent / "runs"
    _write(runs / "20260527T000000-aaaaaa" / "run.json", {"status": "completed"})
    _write(runs / "20260527T000000-aaaaaa" / "checkpoint.json", {"config": {"timeout": 1800}})
    _write(
        runs / "20260527T000001-bbbbbb" / "checkpoint.json",
        {"session_id": "by-checkpoint", "config": {"timeout": 60.5}, "plan": [{}, {}]},
    )
    part = read_part(path)
    limits = part.entities.select(*_LIMIT).rows()
    assert limits == [
        ("by-run", 1800.0, "checkpoint"),
        ("by-checkpoint", 60.5, "checkpoint"),
        ("by-metadata", 900.0, "metadata"),
        ("none", None, None),
    ]
    assert part.details["lionagi_runs"]["n_planned_ops"].to_list() == [None, 2]


ODD = ['"900"', "-5", "0", "true", "[900]", "NaN", "Infinity", "1e999"]


@pytest.mark.parametrize("odd", a_few(ODD, 3), ids=str)
def test_a_timeout_that_is_no_positive_number_is_a_finding(tmp_path, odd):
    metadata = '{"timeout_seconds": ' + odd + "}"
    rows = {"a": {"run_id": "r"}, "b": {"run_id": "s"}, "c": {"node_metadata": metadata}}
    path = _home(tmp_path, *(session(name, **columns) for name, columns in rows.items()))
    _write(path.parent / "runs" / "r" / "checkpoint.json", '{"config": {"timeout": ' + odd + "}}")
    _write(path.parent / "runs" / "s" / "checkpoint.json", {"config": {"timeout": None}})
    part = read_part(path)
    assert part.entities["timeout_s"].to_list() == [None, None, None]
    found = part.findings.filter(pl.col("code") == "timeout.unreadable").sort("entity_id")
    is_json = odd not in ("NaN", "Infinity")
    assert found.select("entity_id", "column").rows() == [
        *([("c", "node_metadata.timeout_seconds")] if is_json else []),
        ("r", "config.timeout"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("began_s", "created_s", "text", "expected"),
    [
        pytest.param(-0.47, -0.46, None, 9.0, id="the only whole number that fits"),
        pytest.param(0.0, 0.0, None, 8.0, id="to the second"),
        pytest.param(-0.02, 0.01, None, None, id="two fit"),
        pytest.param(-60.0, -0.46, None, None, id="a branch that is older"),
        (-0.47, -0.46, "[DEADLINE]\nYou have no time (until later)", None),
        pytest.param(-0.47, -0.46, "Say [DEADLINE] (until {}) to complete", None, id="elsewhere"),
    ],
)
def test_a_limit_is_known_from_the_deadline_of_a_prompt(
    tmp_path, began_s, created_s, text, expected
):
    until = datetime.fromtimestamp(NOW_S + 8, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    shape = text or "[DEADLINE]\nYou have 1 minute (until {}) to complete this task.\n[/DEADLINE]"
    instruction = {"instruction": shape.format(until)}
    path = _home(
        tmp_path,
        session("limited", created_at=NOW_S + created_s, first_msg_id="m"),
        session("free", created_at=NOW_S + created_s, first_msg_id="other"),
        branches=[
            {"id": f"b-{name}", "session_id": name, "progression_id": "l",
             "created_at": NOW_S + began_s}
            for name in ("limited", "free")
        ],
        messages=[
            {"id": "m", "role": "user", "content": json.dumps(instruction), "created_at": NOW_S},
            {"id": "other", "role": "assistant", "content": json.dumps(instruction),
             "created_at": NOW_S},
            {"id": "blob", "role": "user", "content": b"[DEADLINE]", "created_at": NOW_S},
        ],
    )  # fmt: skip
    for read in (lionagi.read, lionagi.read_uncached):
        with open_store(path) as store:
            found = read(store).entities.filter(entity_type="session")
        limits = {row[0]: row[1:] for row in found.select(*_LIMIT).rows()}
        assert limits["free"] == (None, None)
        assert limits["limited"] == (expected, expected and "deadline")


def test_a_timeout_is_read_from_metadata_that_was_encoded_twice(tmp_path):
    metadata = json.dumps(json.dumps({"timeout_seconds": 30}))
    part = read_part(_home(tmp_path, session("a", node_metadata=metadata)))
    assert part.entities["timeout_s"].to_list() == [30.0]


def test_broken_files_are_findings_and_the_rest_isread_part(tmp_path):
    path = _home(tmp_path, session("good", run_id="good"))
    runs = path.parent / "runs"
    _write(runs / "good" / "run.json", {"status": "completed", "started_at": NOW_S})
    _write(runs / "half" / "run.json", '{"status": "comp')
    _write(runs / "list" / "run.json", [1, 2])
    _write(runs / "huge" / "run.json", '{"x": "' + "y" * 10_000_000 + '"}')
    _write(runs / "deep" / "run.json", "[" * 100_000)
    _write(runs / "types" / "run.json", {"status": 3, "started_at": [], "branch_id": {"a": 1}})
    _write(runs / "surrogate" / "run.json", '{"status": "\\ud800", "model": "\\udfff"}')
    (runs / "bytes").mkdir()
    (runs / "bytes" / "run.json").write_bytes(b'{"status": "\xff"}')
    (runs / "folder" / "run.json").mkdir(parents=True)
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "run.json")
    (runs / "empty").mkdir()
    (runs / "stray.txt").write_text("not a directory")
    (runs / "loop").symlink_to(runs / "loop")
    part = read_part(path)
    unreadable = part.findings.filter(pl.col("code") == "run.unreadable")
    names = ["bytes", "deep", "folder", "half", "huge", "list", "pipe"]
    assert unreadable["entity_id"].to_list() == names
    messages = dict(unreadable.select("entity_id", "message").rows())
    assert "10,000,009 bytes" in messages["huge"]
    assert "not a regular file" in messages["pipe"]
    assert part.details["lionagi_runs"]["run_id"].to_list() == ["good", "surrogate", "types"]


def test_run_directories_whose_names_are_not_utf8_stay_apart(tmp_path):
    path = _home(tmp_path, session("good"))
    for name in (b"a\xfe", b"a\xff"):
        folder = Path(os.fsdecode(os.fsencode(path.parent) + b"/runs/" + name))
        _write(folder / "run.json", {"status": "completed", "started_at": NOW_S})
    part = read_part(path)
    assert part.details["lionagi_runs"]["run_id"].to_list() == [r"a\xfe", r"a\xff"]


def test_a_directory_that_may_not_be_read_is_a_finding(tmp_path, monkeypatch):
    path = _home(tmp_path, session("a"))
    (path.parent / "runs").mkdir()
    listed = Path.iterdir

    def refuse(folder: Path):
        if folder.name == "runs":
            raise PermissionError(13, "Permission denied")
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    part = read_part(path)
    found = part.findings.filter(pl.col("code") == "run.unreadable")
    assert "cannot be read (PermissionError)" in found["message"][0]
    assert part.entities.height == 1


def test_a_run_that_contradicts_the_store_is_a_finding(tmp_path):
    path = _home(
        tmp_path,
        session("lags", run_id="lags", status="cancelled"),
        session("differs", run_id="differs", status="failed"),
        session("agrees", run_id="agrees"),
    )
    runs = path.parent / "runs"
    _write(runs / "lags" / "run.json", {"status": "running"})
    _write(runs / "differs" / "run.json", {"status": "completed"})
    _write(runs / "agrees" / "run.json", {"status": "completed"})
    _write(runs / "stranger" / "run.json", {"status": "completed"})
    part = read_part(path)
    found = part.findings.filter(code="run.contradicts_store").select("entity_id", "severity")
    assert sorted(found.rows()) == [("differs", "warning"), ("lags", "info")]
    assert codes(part)["run.not_in_store"] == 1


def test_a_run_without_a_session_has_that_of_its_branch(tmp_path):
    path = _home(tmp_path, session("a"), branches=[{"id": "b", "session_id": "a"}])
    _write(path.parent / "runs" / "r" / "run.json", {"branch_id": "b"})
    assert read_part(path).details["lionagi_runs"]["session_id"].to_list() == ["a"]


def test_a_session_has_the_directory_of_its_first_run_else_that_of_its_launch(tmp_path):
    told = {
        "ran": '{"mcp_launch": {"launch_dir": "/launched"}}',
        "launched": '{"mcp_launch": {"launch_dir": "/launched"}}',
        "number": '{"mcp_launch": {"launch_dir": 7}}',
        "text": '{"mcp_launch": "launch_dir"}',
        "broken": '{"launch_dir',
        "empty": '{"mcp_launch": {"launch_dir": ""}}',
    }
    launched = [
        {"id": f"b-{name}", "session_id": name, "progression_id": "l", "created_at": NOW_S,
         "node_metadata": metadata}
        for name, metadata in told.items()
    ]  # fmt: skip
    path = _home(tmp_path, *map(session, told), branches=launched)
    first = {"branch_id": "b-ran", "status": "completed", "started_at": NOW_S, "cwd": "/ran"}
    again = first | {"started_at": NOW_S + 9, "cwd": "/elsewhere"}
    for name, manifest in {"z": first, "a": again}.items():
        _write(path.parent / "runs" / name / "run.json", manifest)
    _write(path.parent / "runs" / "odd" / "run.json", {"branch_id": "b-empty", "cwd": ["/w"]})
    starts = "2026-05-27T00:00:00.000000Z - /ran\n2026-05-27T00:00:09.000000Z - /elsewhere"
    sessions = read_part(path).entities.filter(entity_type="session")
    assert dict(sessions.select("entity_id", pl.concat_list("directory", "starts")).rows()) == {
        "broken": [None, None], "empty": [None, None], "text": [None, None],
        "launched": ["/launched", None], "number": ["7", None], "ran": ["/ran", starts],
    }  # fmt: skip


def test_a_start_that_was_not_written_is_taken_from_the_file_and_marked(tmp_path):
    path = _home(tmp_path, session("a", run_id="r"))
    _write(path.parent / "runs" / "r" / "run.json", {})
    row = read_part(path).details["lionagi_runs"].row(0, named=True)
    assert row["is_time_from_files"] is True
    assert row["started_at"] is not None
    assert row["derived_status"] == "completed"


def test_runs_next_to_the_target_of_a_link_are_read(tmp_path):
    path = _home(tmp_path, session("a", run_id="r"))
    _write(path.parent / "runs" / "r" / "run.json", {"status": "completed"})
    link = tmp_path / "link.db"
    link.symlink_to(path)
    assert read_part(link).details["lionagi_runs"]["run_id"].to_list() == ["r"]


def _show(status: str = "active", **columns) -> dict:
    return {"id": "show", "topic": "topic", "status": status, "show_dir": "/nowhere"} | columns


def _play(name: str, status: str) -> dict:
    return {"id": f"play-{name}", "show_id": "show", "name": name, "status": status}


MERGED = {"status": "merged"}


def test_active_in_the_store_and_merged_on_disk_is_a_finding(tmp_path):
    """#1161: the store is filled once and never again."""
    path = _home(tmp_path, shows=[_show()], plays=[_play("a", "running"), _play("b", "merged")])
    for name in ("a", "b"):
        _write(path.parent / "shows" / "topic" / name / "_meta.json", MERGED)
    part = read_part(path)
    found = part.findings.filter(pl.col("code").str.ends_with("disk_differs"))
    assert found.select("code", "entity_id", "message").rows() == [
        ("show.disk_differs", "show", "the store has active, the files have completed"),
        ("play.disk_differs", "play-a", "the store has running, the files have merged"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a/_meta.json": MERGED}, "completed"),
        ({"a/_meta.json": {"status": "running"}}, "active"),
        pytest.param({"a/_meta.json": MERGED, "_ABORT": ""}, "aborted", id="abort wins"),
        pytest.param(
            {"_final_verdict.json": {"show_passed": True}, "a/_meta.json": {"status": "running"}},
            "completed",
            id="final verdict",
        ),
        pytest.param(
            {"_final_verdict.json": {"show_passed": False}, "a/_meta.json": MERGED},
            "completed",
            id="all merged in spite of the verdict",
        ),
        pytest.param({"_show.md": "**a**", "a/_intent.md": ""}, "active", id="not begun"),
        pytest.param({"_show.md": "# empty"}, "active", id="no plays"),
        pytest.param({"a/_meta.json": "{"}, "active", id="broken file"),
    ],
)
def test_the_status_on_disk_follows_the_importer(tmp_path, files, expected):
    path = _home(tmp_path, shows=[_show()])
    for name, content in files.items():
        _write(path.parent / "shows" / "topic" / name, content)
    if not {"_show.md", "_ABORT", "_final_verdict.json"} & files.keys():
        _write(path.parent / "shows" / "topic" / "_show.md", "# Show")
    disk = read_part(path).details["lionagi_shows_on_disk"]
    assert disk.filter(pl.col("play").is_null())["disk_status"].to_list() == [expected]


def test_shows_are_read_from_the_stored_directory_and_the_variable(tmp_path, monkeypatch):
    stored, elsewhere = tmp_path / "stored" / "topic", tmp_path / "elsewhere"
    _write(stored / "_show.md", "# Show")
    _write(elsewhere / "other" / "_show.md", "# Show")
    monkeypatch.setenv("LIONAGI_SHOWS_ROOT", str(elsewhere))
    path = _home(tmp_path, shows=[_show(show_dir=str(stored))])
    part = read_part(path)
    assert part.details["lionagi_shows_on_disk"]["topic"].to_list() == ["other", "topic"]
    assert codes(part)["show.not_in_store"] == 1


@pytest.mark.parametrize(
    "place", a_few(["/", "/etc", "topic", "\x00", "../topic", "/proc/self/topic"], 2)
)
def test_a_hostile_show_directory_is_not_followed(tmp_path, place):
    path = _home(tmp_path, shows=[_show(show_dir=place)])
    assert read_part(path).details["lionagi_shows_on_disk"].is_empty()


def test_broken_show_files_are_findings(tmp_path):
    path = _home(tmp_path, shows=[_show()], plays=[_play("a", "running")])
    folder = path.parent / "shows" / "topic"
    _write(folder / "_final_verdict.json", "[]")
    _write(folder / "a" / "_meta.json", "{")
    _write(folder / "a" / "_verdict.json", {"gate_passed": "yes", "feedback": 3})
    part = read_part(path)
    found = part.findings.filter(pl.col("code") == "show.unreadable")
    assert found["entity_id"].to_list() == ["play-a", "show"]
    play = part.details["lionagi_shows_on_disk"].row(1, named=True)
    assert (play["disk_status"], play["is_gate_passed"], play["feedback"]) == (None, None, None)
