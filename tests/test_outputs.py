"""Outputs: whole or not at all, never over an input, and never in a surprising place."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics import cli
from stateanalytics.core.progress import progress
from stateanalytics.errors import ArgumentError, NoRoomError
from stateanalytics.io.files import files_below
from stateanalytics.io.outputs import put_in_place, refuse_inputs, write_output
from tests.ao_trees import lifecycle, record, write_json
from tests.conftest import SHIPPED
from tests.examples import a_few, examples
from tests.lionagi_stores import session, write_store


@pytest.fixture
def fleet(tmp_path) -> Path:
    """A directory with a store and its run directories, a tree of records, a database."""
    run = tmp_path / "home" / "runs" / "r1"
    run.mkdir(parents=True)
    write_store(tmp_path / "home" / "state.db", sessions=[session("a")])
    (run / "checkpoint.json").write_text('{"config": {"timeout": 900}}')
    (run / "run.json").write_text('{"status": "completed"}')
    write_json(tmp_path / "tree", "app-1", record(lifecycle()))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


STORE, RECORD = "home/state.db", "tree/projects/web/sessions/app-1.json"


@pytest.mark.parametrize(
    ("command", "source", "target"),
    a_few(
        [
            ("report", "tree", RECORD),
            ("report", "tree", "tree/new.json"),
            ("report", STORE, "home/runs/r1/checkpoint.json"),
            ("attention", STORE, "home/runs/r1/checkpoint.json"),
            ("attention", "home", "home/runs/r2/states.json"),
            ("attention", "tree", RECORD),
            ("attention", STORE, "soft.json"),
            ("attention", STORE, "hard.json"),
            ("attention", "tree", "record.json"),
            ("attention", "tree/../tree", f"home/../{RECORD}"),
            ("attention", "linked", RECORD),
            ("attention", STORE, STORE + "-wal"),
        ],
        3,
    ),
)
def test_nothing_that_was_read_is_written_over(fleet, command, source, target, capsys, monkeypatch):
    monkeypatch.chdir(fleet)
    Path("soft.json").symlink_to(STORE)
    Path("hard.json").hardlink_to(STORE)
    Path("record.json").hardlink_to(RECORD)
    Path("linked").symlink_to("tree")
    Path(target).parent.mkdir(exist_ok=True)
    before = contents(fleet)
    form = ["-f", "json"] if target.endswith("-wal") else []
    assert cli.run([command, source, "-o", target, *form]) == 2
    assert "which was read" in capsys.readouterr().err or target == "soft.json"
    assert contents(fleet) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "root", a_few(["home/shows", "shows", "by-variable", "said-by-the-store", "behind-a-link"], 3)
)
def test_no_file_of_a_show_is_written_over(tmp_path, root, capsys, monkeypatch):
    monkeypatch.setenv("LIONAGI_SHOWS_ROOT", str(tmp_path / "by-variable"))
    folder = tmp_path / root / "split"
    folder.mkdir(parents=True)
    (folder / "_final_verdict.json").write_text('{"show_passed": true}')
    if root == "behind-a-link":
        (tmp_path / "shows").mkdir()
        (tmp_path / "shows" / "split").symlink_to(folder)
    (tmp_path / "home").mkdir(exist_ok=True)
    said = str(folder) if root == "said-by-the-store" else "/nowhere"
    shows = [{"id": "show", "topic": "split", "status": "active", "show_dir": said}]
    store = write_store(tmp_path / "home" / "state.db", sessions=[session("a")], shows=shows)
    before = contents(tmp_path)
    asked = [str(store), "-o", str(folder / "_final_verdict.json")]
    for command in ("attention", "report"):
        assert cli.run([command, *asked]) == 2
        assert "which was read" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_no_file_that_a_link_in_a_directory_leads_to_is_written_over(tmp_path):
    runs, store = tmp_path / "home" / "runs", tmp_path / "elsewhere.db"
    (runs / "a").mkdir(parents=True)
    outside = [tmp_path / "b" / "checkpoint.json", tmp_path / "run.json", tmp_path / "mine.json"]
    for path in (*outside, store):
        path.parent.mkdir(exist_ok=True)
        path.write_text("kept")
    (runs / "b").symlink_to(outside[0].parent)
    (runs / "a" / "run.json").symlink_to(outside[1])
    (runs / "a" / "again").symlink_to(runs)
    (runs / "a" / "circle").symlink_to("circle")
    (tmp_path / "state.db").symlink_to(store)
    inputs = [runs, tmp_path / "state.db"]
    for path in (*outside[:2], Path(f"{store}-wal")):
        with pytest.raises(ArgumentError, match="which was read"):
            refuse_inputs(path, inputs)
    refuse_inputs(outside[2], inputs)


def test_a_file_that_the_command_names_is_not_written_over(fleet, capsys, monkeypatch):
    monkeypatch.chdir(fleet)
    Path("strict.json").write_text('{"version": "strict", "overdue_grace_s": 1}')
    before = contents(fleet)
    assert cli.run(["attention", STORE, "--policy", "strict.json", "-o", "strict.json"]) == 2
    assert "which was read" in capsys.readouterr().err
    assert contents(fleet) == before


def test_the_work_has_not_begun_when_a_report_is_refused(fleet, monkeypatch):
    monkeypatch.setattr("stateanalytics.reporting.report", lambda *_, **__: pytest.fail("worked"))
    assert cli.run(["report", str(fleet / "tree"), "-o", str(fleet / "tree" / "week.html")]) == 2


@pytest.mark.parametrize("leads_to", ["precious", "/dev/null"])
def test_a_link_is_not_followed(tmp_path, leads_to):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "week.html").symlink_to(tmp_path / leads_to)
    with pytest.raises(ArgumentError, match="is a symbolic link, and links are not followed"):
        write_output(tmp_path / "week.html", b"x")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_hard_link_to_something_else_is_let_go(tmp_path):
    (tmp_path / "kept").write_bytes(b"old")
    (tmp_path / "week.html").hardlink_to(tmp_path / "kept")
    write_output(tmp_path / "week.html", b"new")
    assert (tmp_path / "kept").read_bytes() == b"old"
    assert (tmp_path / "week.html").read_bytes() == b"new"


def test_a_device_and_a_pipe_are_written_to(tmp_path):
    write_output("/dev/null", b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    write_output(pipe, b"said")
    assert reader.communicate()[0] == b"said"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_by_its_name_is_written_to_unless_it_is_a_file(tmp_path, name):
    script = (
        "import sys\n"
        "from stateanalytics.errors import ArgumentError\n"
        "from stateanalytics.io.outputs import write_output\n"
        "try: write_output(sys.argv[1], b'said')\n"
        "except ArgumentError as error: sys.exit(str(error))\n"
    )
    asked = [sys.executable, "-c", script, name]
    assert subprocess.run(asked, capture_output=True, check=True).stdout == b"said"
    ours, theirs = os.openpty()
    subprocess.run(asked, stdout=theirs, check=True)
    assert os.read(ours, 100) == b"said"
    os.close(ours)
    os.close(theirs)
    before = Path("/dev/stdout").readlink()
    with (tmp_path / "week.json").open("wb") as file:
        file.write(b"mine")
        file.flush()
        done = subprocess.run(asked, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    assert "without an output the result goes to standard output" in done.stderr
    assert (tmp_path / "week.json").read_bytes() == b"mine"
    assert Path("/dev/stdout").readlink() == before


def test_on_a_full_disk_the_old_file_stays(tmp_path):
    target = tmp_path / "week.html"
    target.write_bytes(b"last week")
    script = (
        "import resource, sys\n"
        "from stateanalytics.errors import ArgumentError\n"
        "from stateanalytics.io.outputs import write_output\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_output(sys.argv[1], b'x' * 100_000)\n"
        "except ArgumentError as error: print(error.problem)\n"
    )
    command = [sys.executable, "-c", script, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot be written: File too large" in done.stdout
    assert target.read_bytes() == b"last week"
    assert [path.name for path in tmp_path.iterdir()] == ["week.html"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has this device")
def test_a_full_disk_is_no_wrong_name_and_a_large_limit_is_all_rows(fleet, capsys):
    with pytest.raises(NoRoomError, match="No space left on device"):
        write_output("/dev/full", b"x")
    limit = ["--limit", "9" * 25]
    assert cli.run(["attention", str(fleet / STORE), *limit, "-o", "/dev/full", "-f", "csv"]) == 1
    assert "free some space" in capsys.readouterr().err


def test_a_full_disk_is_one_error_whatever_a_library_calls_it(tmp_path, monkeypatch):
    def write(path):
        raise pl.exceptions.ComputeError("parquet: transport error")

    with pytest.raises(pl.exceptions.ComputeError):
        put_in_place(tmp_path / "a.parquet", write)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(NoRoomError, match="No space left on device"):
        put_in_place(tmp_path / "a.parquet", write)
    assert list(tmp_path.iterdir()) == []


def test_the_mode_is_that_of_the_file_before_or_what_the_umask_leaves(tmp_path):
    old = tmp_path / "old.html"
    old.write_bytes(b"")
    old.chmod(0o604)
    write_output(old, b"x")
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "new.html", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.html").stat().st_mode) == 0o640


@pytest.mark.slow
def test_secrets_are_for_their_owner_only(fleet):
    page = fleet / "week.html"
    page.write_bytes(b"")
    page.chmod(0o644)
    assert cli.run(["report", str(fleet / STORE), "--no-redact", "-o", str(page)]) == 0
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "hint"), [(".", "a directory that exists"), ("no/such/place.html", "such').mkdir(")]
)
def test_a_place_that_cannot_be_written_says_so(tmp_path, name, hint):
    with pytest.raises(ArgumentError, match="cannot be written: ") as caught:
        write_output(tmp_path / name, b"x")
    assert hint in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@examples(100)
@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_a_file_is_what_was_last_written(tmp_path_factory, first, second):
    target = tmp_path_factory.mktemp("out") / "x"
    for content in (first, second):
        assert write_output(target, content).read_bytes() == content
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "is_disarmed"),
    a_few([(["-o", "x.csv"], True), (["-f", "csv"], False), (["-f", "csv", "-o", "x.txt2"], True),
     (["-f", "csv", "--safe-csv"], True), (["-o", "x.csv", "--raw-csv"], False)], 3),
)  # fmt: skip
def test_formulas_are_disarmed_in_files_for_people(fleet, options, is_disarmed, capfd, monkeypatch):
    monkeypatch.chdir(fleet)
    assert cli.run(["sql", STORE, "SELECT '=1+1' AS a", *options]) == 0
    text = Path(options[options.index("-o") + 1]).read_text() if "-o" in options else ""
    assert ((text or capfd.readouterr().out) == "a\n'=1+1\n") is is_disarmed


def test_no_control_sequence_of_a_path_reaches_the_terminal_with_the_progress(tmp_path):
    script = (
        "from stateanalytics.core.progress import progress\n"
        "with progress('reading', 1, shown=True) as begin: begin('a\\x1b]0;owned\\x07\\x9b2J.db')\n"
    )
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", script], stderr=theirs, check=True)
    os.close(theirs)
    drawn = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        drawn += piece
        if not piece:
            break
    os.close(ours)
    assert b".db" in drawn
    assert b"\x1b]" not in drawn
    assert b"\x07" not in drawn
    assert "\x9b".encode() not in drawn


def test_below_a_folder_all_is_found_and_behind_a_link_what_records_may_hold(tmp_path):
    asked, elsewhere = tmp_path / "asked", tmp_path / "elsewhere"
    for folder in (asked / "own", elsewhere):
        deep = folder.joinpath(*"12345678")
        deep.mkdir(parents=True)
        for place in (deep, deep.parents[4]):
            (place / "file").touch()
    (asked / "again").symlink_to(asked / "own")
    (asked / "link").symlink_to(elsewhere)
    (asked / "nowhere").symlink_to(tmp_path / "nothing")
    (asked / "circle").symlink_to(asked / "circle")
    found = {path for path, _ in files_below(str(asked), is_strict=False)}
    parts = {Path(path).relative_to(asked).parts for path in found}
    places = {(len(part), part[0]) for part in parts}
    assert places == {(10, "own"), (5, "own"), (5, "again"), (5, "link")}
    with pytest.raises(OSError, match="circle"):
        list(files_below(str(asked), is_strict=True))


@pytest.mark.parametrize(("in_notebook", "patience_s"), [(True, 60.0), (True, -1.0), (False, 60.0)])
def test_a_notebook_shows_no_bar_of_short_work(in_notebook, patience_s, monkeypatch):
    """It would keep the place where it was."""
    begun = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: in_notebook)
    monkeypatch.setattr("rich.progress.Progress.start", lambda bar: begun.append(bar.console))
    monkeypatch.setattr("stateanalytics.core.progress.PATIENCE_S", patience_s)
    with progress("reading", 2, shown=True) as begin:
        begin("one.db")
    assert bool(begun) is (not in_notebook or patience_s < 0)


PLACES = ("s3://bucket/history/", "gs://b/x.html", "https://host/x.duckdb", "abfss://c@a/x")
"""Only archives may lie at some of them; see `tests/test_delta_archive.py`."""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, which must stay so."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_scheme_is_refused_by_name_and_makes_no_folder(demo, here, place):
    scheme = place.partition(":")[0]
    of_archives = (demo.archive, sa.read, lambda to: sa.collect(str(SHIPPED["claude_code"]), to=to))
    for write in (
        demo.export,
        lambda to: sa.report(demo, sections=["headline"]).write_html(to),
        sa.summarize(demo).write,
        sa.Summary.read,
        *(of_archives if scheme == "https" else ()),
    ):
        with pytest.raises(ArgumentError, match=f"by the scheme '{scheme}'"):
            write(place)
    if scheme == "https":
        for words in (["archive", str(SHIPPED["lionagi"]), "--to", place], ["attention", place]):
            assert cli.run(words) == 2


@pytest.mark.slow
def test_report_writes_to_standard_output(here, capsysbinary):
    words = ["report", str(SHIPPED["claude_code"]), "-o", "-", "--sections", "headline"]
    assert cli.run(words) == 0
    out, err = capsysbinary.readouterr()
    assert out.startswith(b"<!doctype html>") or out.startswith(b"<!DOCTYPE html>")
    assert out.rstrip().endswith(b"</html>")
    assert b"wrote" not in out + err
    assert cli.run([*words, "-f", "json"]) == 0
    assert capsysbinary.readouterr().out.startswith(b"{")


def test_csv_and_parquet_hold_one_table_and_csv_runs_no_formula(demo, tmp_path):
    own = demo.with_table("t", pl.DataFrame({"a": ["=1+1", "fine"]}))
    own.export(tmp_path / "x.csv", tables=["t"])
    assert (tmp_path / "x.csv").read_text().splitlines()[1].startswith("'=")
    path = demo.export(tmp_path / "x.csv", tables=["states"])
    assert pl.read_csv(path, infer_schema_length=None).height == sa.states(demo).height
    assert demo.export(tmp_path / "x.parquet", tables=["states"]).is_file()
    with pytest.raises(ArgumentError, match=r"A \.csv file can have only one table; found 2"):
        demo.export(tmp_path / "y.csv", tables=["states", "entities"])
    assert not (tmp_path / "y.csv").exists()
