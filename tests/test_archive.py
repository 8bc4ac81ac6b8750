"""An archive keeps what stores forget, and is read like a store."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting import Report
from stateanalytics.systems import archiving
from tests.conftest import ROOT
from tests.engines import spark
from tests.examples import a_few
from tests.lionagi_stores import NOW_S, listing, session, write_store, wrote
from tests.test_observations import SAMPLES, store_at

#: Of sources, what an archive alone tells.
COLLECTED = ["looked_at", "is_unchanged"]


def files(root: Path) -> dict[str, bytes]:
    """All but the notes of when somebody looked."""
    paths = (path for path in root.rglob("*.*") if path.parent.name != "looks")
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def codes(snap: sa.Snapshot) -> list[str]:
    return snap.findings.filter(pl.col("code").str.starts_with("archive."))["code"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize("sample", a_few(SAMPLES.values(), 2), ids=list(SAMPLES))
def test_rows_from_the_archive_are_those_of_the_store(shared, tmp_path, sample):
    history = tmp_path / "history"
    with sa.read(shared / "samples" / sample) as snap:
        assert snap.archive(history)["status"].to_list() == ["archived"]
        kept = sa.read(history)
        assert_frame_equal(kept.sources.drop(COLLECTED), snap.sources.drop(COLLECTED))
        for frame, rows in (("entities", snap.entities), ("events", snap.events)):
            order = rows.columns
            assert_frame_equal(getattr(kept, frame).sort(order), rows.sort(order))
        before = files(history)
        assert snap.archive(history)["status"].to_list() == ["unchanged"]
        assert files(history) == before


@pytest.mark.slow
def test_the_week_from_the_archive_is_that_from_the_store(demo, demo_week, tmp_path):
    demo.archive(tmp_path)
    kept = sa.read(tmp_path, as_of=demo.as_of)
    assert without_places(sa.report(kept, window="2026-W21")) == without_places(demo_week)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=list(SAMPLES))
def test_a_report_from_the_archive_is_that_from_the_store(shared, tmp_path, sample):
    with sa.read(shared / "samples" / sample) as snap:
        snap.archive(tmp_path)
        again = sa.report(sa.read(tmp_path))
        assert without_places(again) == without_places(sa.report(snap))


def without_places(report: Report) -> str:
    """The page without what differs: where commands read from, and texts of messages.

    An archive keeps no texts.
    """
    page = re.sub(r"</?span>", "", report.as_html())
    page = re.sub(r"(</time> message · \w+): [^<]*", r"\1", page)
    return re.sub(r"(stateanalytics \w+(?: --as-of \S+)?) \S+", r"\1 PLACE", page)


@pytest.mark.slow
def test_what_the_store_forgot_stays(of_day, tmp_path):
    history = tmp_path / "history"
    for day in range(4):
        snap = of_day(day)
        snap.archive(history)
    kept = sa.read(history)
    assert snap.entities.filter(entity_type="session").height == 2
    sessions = kept.entities.filter(entity_type="session").sort("entity_id")
    assert sessions.select("entity_id", "raw_status").rows() == [
        ("s0", "completed"), ("s1", "completed"), ("s2", "completed"), ("s3", "running"),
    ]  # fmt: skip
    assert kept.transitions.height == 7
    assert kept.as_of == snap.as_of
    assert codes(kept) == []


def test_an_archive_lies_in_no_input_and_in_no_folder_of_something_else(of_day, tmp_path):
    snap = of_day(1)
    with pytest.raises(ArgumentError, match="is not an archive, and it is not empty"):
        snap.archive(Path(snap.sources["source"].item()).parent)
    snap.archive(tmp_path / "history")
    with pytest.raises(ArgumentError, match="which was read"):
        sa.read(tmp_path / "history").archive(tmp_path / "history")


def test_what_was_read_as_of_an_earlier_instant_is_not_archived(tmp_path):
    with (
        sa.read(store_at(tmp_path / "state.db", 2), as_of="2026-05-28") as snap,
        pytest.raises(ArgumentError, match="all data of a source"),
    ):
        snap.archive(tmp_path / "history")
    assert not (tmp_path / "history").exists()


def test_some_weeks_of_an_archive_are_not_archived_as_all_of_it(of_day, tmp_path):
    of_day(2).archive(tmp_path / "history")
    some = sa.read(tmp_path / "history", weeks="2026-W22")
    with pytest.raises(ArgumentError, match="only some weeks of this one were read"):
        some.archive(tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_what_cannot_be_an_archive_is_told_apart(tmp_path, monkeypatch, capsys):
    store = str(store_at(tmp_path / "state.db", 2))
    (tmp_path / "plain").write_text("text")
    monkeypatch.chdir(tmp_path)
    assert run(["archive", store, "--to", "history"]) == 0
    for asked, said in {
        (store, ""): "An archive needs the name of a folder; found ''.",
        (store, "plain"): "'plain' is not an archive, and it is not empty.",
        (store, "plain/x"): f"Nothing can be archived to '{tmp_path}/plain/x': Not a directory.",
        ("history", "history"): f"'{tmp_path}/history' is the archive itself, which was read.",
    }.items():
        assert run(["archive", asked[0], "--to", asked[1]]) != 0
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("named", ["none.db", "README.md", "empty", "noise.db", ""])
def test_a_source_that_fails_has_the_hint_of_other_commands(tmp_path, capsys, monkeypatch, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    (tmp_path / "README.md").write_text("# no store")
    (tmp_path / "empty").mkdir()
    (tmp_path / "noise.db").write_bytes(bytes(range(256)) * 20)
    store_at(tmp_path / "state.db", 1)
    asked = [named] if named else []
    assert run(["attention", *asked]) == 2
    hint = capsys.readouterr().err.strip().partition("Hint: ")[2]
    assert hint
    assert run(["archive", "state.db", "--to", "history"]) == 0
    capsys.readouterr()
    assert run(["archive", *asked, "--to", "history"]) == 1
    said = capsys.readouterr().err.splitlines()[0]
    assert said.startswith(f"failed {named}".rstrip() + ": ")
    assert said.endswith(f" Hint: {hint}")
    assert "Hint" not in str(sa.read("history", progress=False).findings["message"].to_list())


def test_the_command_says_a_line_for_each_source(tmp_path, capsys):
    store = store_at(tmp_path / "state.db", 1)
    asked = ["archive", str(store), str(tmp_path / "none.db"), "--to", str(tmp_path / "history")]
    assert run(asked) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"archived {store}: ")
    assert said.err.startswith(f"failed {tmp_path / 'none.db'}: There is no file or directory")
    assert run([*asked[:2], *asked[3:]]) == 0
    assert capsys.readouterr().out == f"unchanged {store}\n"
    assert run(["attention", "--show", "states", str(tmp_path / "history")]) == 0


def test_other_programs_read_the_files_as_the_page_says(demo, tmp_path, monkeypatch):
    import duckdb

    monkeypatch.chdir(tmp_path)
    demo.archive("history/")
    assert run(["archive", "--compact", "--to", "history/"]) == 0
    page = (ROOT / "docs" / "history.md").read_text("utf-8")
    [query] = re.findall(r"```sql\n(.*?)```", page, re.S)
    with duckdb.connect() as connection:
        told = pl.from_arrow(connection.sql(query).to_arrow_table())
    failed = demo.entities.filter(entity_type="session", raw_status="failed")
    assert told["n"].sum() == failed.height > 0
    by_reason = failed.group_by(
        pl.col("ended_at").dt.truncate("1w").alias("week"), "reason_code"
    ).len()
    assert sorted(told["n"]) == sorted(by_reason["len"])
    assert [at.isocalendar().weekday for at in told["week"].drop_nulls()] == [1] * (
        told["week"].drop_nulls().len()
    )
    [code] = re.findall(r"```python\n(import polars.*?)```", page, re.S)
    assert dict(answer(code).iter_rows()) == by_status(demo)


@pytest.mark.spark
def test_spark_reads_the_files_as_the_page_says(demo, tmp_path):
    demo.archive(tmp_path / "history")
    assert run(["archive", "--compact", "--to", str(tmp_path / "history")]) == 0
    page = (ROOT / "docs" / "history.md").read_text("utf-8")
    [code] = re.findall(r"```py\n(tables = spark.*?)```", page, re.S)
    code = code.replace("history/", f"{tmp_path}/history/")
    assert dict(answer(code, spark=spark())) == by_status(demo)


def answer(code, **scope):
    """What the last line of a piece of a page gives."""
    *first, last = code.strip().splitlines()
    exec("\n".join(first), scope)
    return eval(last, scope)


def by_status(snap):
    return dict(snap.transitions.group_by("status").len().iter_rows())


SECRET = "sk-ant-api03-" + "a1B2" * 20


def test_secrets_are_masked_before_they_are_kept(tmp_path):
    told = session("s0", status="failed", status_reason_summary=f"no access with {SECRET}")
    with sa.read(write_store(tmp_path / "state.db", sessions=[told])) as snap:
        snap.archive(tmp_path / "plain")
        snap.archive(tmp_path / "masked", redact=True)
    [plain] = sa.read(tmp_path / "plain").entities["reason_message"].to_list()
    masked = sa.read(tmp_path / "masked").entities
    assert SECRET in plain
    assert masked["reason_message"].to_list() == ["no access with [API key]"]
    assert masked["entity_id"].to_list() == ["s0"]
    for content in files(tmp_path / "masked").values():
        assert SECRET.encode() not in content


def test_whose_home_a_store_lay_in_is_masked(tmp_path):
    home = tmp_path / "home" / "alice"
    home.mkdir(parents=True)
    with sa.read(store_at(home / "state.db", 1)) as snap:
        snap.archive(tmp_path / "masked", redact=True)
    for content in files(tmp_path / "masked").values():
        assert b"alice" not in content


@pytest.mark.slow
def test_bodies_are_kept_where_they_are_asked_for_and_stay(tmp_path):
    store = write_store(
        tmp_path / "state.db",
        sessions=[session("s0")],
        progressions=[listing("list-s0", ["m1"])],
        messages=[{"id": "m1", "created_at": NOW_S, "content": '{"instruction": "go"}',
                   "role": "user", "lion_class": 2}],
    )  # fmt: skip
    history = tmp_path / "history"
    with sa.read(store, bodies=True) as snap:
        snap.archive(history, bodies=True)
        snap.archive(history)
        said = snap.events["body"].drop_nulls()
    assert said.len() == 1
    assert sa.read(history).events["body"].null_count() == snap.events.height
    assert sa.read(history, bodies=True).events["body"].drop_nulls().equals(said)
    # A message that was written anew since, read without texts.
    wrote(store, 'UPDATE messages SET content = \'{"instruction": "go on, please"}\'')
    with sa.read(store) as snap:
        assert snap.archive(history)["n_rows"].item() > 0
    assert sa.read(history, bodies=True).events["body"].drop_nulls().equals(said)
    with sa.read(store) as snap, pytest.raises(ArgumentError, match="were not read"):
        snap.archive(history, bodies=True)


def test_an_archive_beside_its_store_counts_each_thing_once(tmp_path):
    store = store_at(tmp_path / "state.db", 2)
    with sa.read(store) as snap:
        snap.archive(tmp_path / "history")
        both = sa.read(tmp_path / "history", store)
        assert both.entities.height == snap.entities.height
        assert both.transitions.height == snap.transitions.height
        assert both.sources["source"].n_unique() == 2


@pytest.mark.slow
def test_archives_of_several_machines_are_one(tmp_path):
    """The same source from two archives of it; two sources of one name stay two."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    for folder, day, history in (("a", 1, "one"), ("a", 2, "two"), ("b", 3, "two")):
        store = tmp_path / folder / "state.db"
        store.unlink(missing_ok=True)
        with sa.read(store_at(store, day)) as snap:
            snap.archive(tmp_path / history)
    with sa.read(tmp_path / "one", tmp_path / "two") as both:
        assert both.entities.filter(entity_type="session").height == 4
        assert set(sa.read(tmp_path / "*").entities["entity_id"]) == set(both.entities["entity_id"])
        assert both.archive(tmp_path / "all")["status"].to_list().count("archived") == 1
    assert sa.read(tmp_path / "all").entities.filter(entity_type="session").height == 4


def test_the_command_refuses_an_archive_inside_a_source(tmp_path, capsys):
    folder = tmp_path / "fleet"
    folder.mkdir()
    store_at(folder / "state.db", 1)
    assert run(["archive", str(folder), "--to", str(folder / "history")]) == 1
    assert "which was read" in capsys.readouterr().err
    assert not (folder / "history").exists()


@pytest.mark.parametrize(
    "root", a_few(["fleet/shows", "shows", "by-variable", "said-by-the-store"], 0)
)
def test_a_show_that_changed_beside_its_store_is_archived(tmp_path, root, monkeypatch, capsys):
    monkeypatch.setenv("LIONAGI_SHOWS_ROOT", str(tmp_path / "by-variable"))
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", -10_000_000_000)
    folder = tmp_path / root / "split"
    folder.mkdir(parents=True)
    (tmp_path / "fleet").mkdir(exist_ok=True)
    (folder / "_show.md").write_text("# Show")
    said = str(folder) if root == "said-by-the-store" else "/nowhere"
    shows = [{"id": "show", "topic": "split", "status": "active", "show_dir": said}]
    store = write_store(tmp_path / "fleet" / "state.db", sessions=[session("a")], shows=shows)
    asked = ["archive", str(store), "--to", str(tmp_path / "history")]
    for _ in range(2):
        assert run(asked) == 0
    (folder / "_ABORT").touch()
    assert run(asked) == 0
    outcomes = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert outcomes == ["archived", "unchanged", "archived"]
    disk = sa.read(tmp_path / "history").details["lionagi_shows_on_disk"]
    assert disk["disk_status"].to_list() == ["aborted"]
    inside = ["archive", str(store), "--to", str(folder / "history")]
    assert run(inside) == 1
    assert "which was read" in capsys.readouterr().err


@pytest.mark.slow
def test_an_archive_may_lie_behind_a_link(tmp_path, capsys):
    (tmp_path / "fleet").mkdir()
    store = store_at(tmp_path / "fleet" / "state.db", 1)
    history, disk = tmp_path / "history", tmp_path / "disk"
    history.symlink_to(disk)
    for day in (1, 2):
        store.unlink()
        store_at(store, day)
        assert run(["archive", str(store), "--to", str(history)]) == 0
    with sa.read(store) as snap:
        assert snap.archive(history)["status"].to_list() == ["archived"]  # now unmasked
    assert history.is_symlink()
    assert files(disk)
    assert sa.read(history).entities.filter(entity_type="session").height == 3
    (tmp_path / "inside").symlink_to(tmp_path / "fleet" / "history")
    capsys.readouterr()
    assert run(["archive", str(tmp_path / "fleet"), "--to", str(tmp_path / "inside")]) == 1
    assert "which was read" in capsys.readouterr().err


def test_an_unchanged_source_is_not_opened(tmp_path, monkeypatch, capsys):
    store = store_at(tmp_path / "state.db", 1)
    os.utime(store, (NOW_S, NOW_S))
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", -10_000_000_000)
    asked = ["archive", str(store), "--to", str(tmp_path / "history")]
    assert run(asked) == 0
    monkeypatch.setattr(archiving, "read_place", None)
    assert run(asked) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"unchanged {store}"
    monkeypatch.undo()
    store.unlink()
    store_at(store, 2)
    assert run(asked) == 0
    assert capsys.readouterr().out.startswith(f"archived {store}")


def test_what_is_only_in_the_log_behind_a_link_is_archived_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("stateanalytics.io.cache._TICK_NS", -10_000_000_000)
    link = tmp_path / "state.db"
    asked = ["archive", str(link), "--to", str(tmp_path / "history")]
    (tmp_path / "disk").mkdir()
    link.symlink_to(store_at(tmp_path / "disk" / "of-the-host", 1))
    with closing(sqlite3.connect(link, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        assert run(asked) == 0
        writer.execute("UPDATE sessions SET status = 'failed'")
        assert run(asked) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["archived"] * 2
