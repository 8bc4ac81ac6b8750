"""Files that grow when they are read: packed, in UTF-16, with holes, with blank lines only."""

import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.cli import cli, run
from stateanalytics.errors import ArgumentError
from stateanalytics.io import budget, json_lines, parsing_process
from stateanalytics.io.budget import LEAST_ROWS, Budget, Spending, spend
from stateanalytics.io.json_lines import chunks_of
from stateanalytics.sql import tables
from stateanalytics.systems import transcripts
from tests.examples import examples
from tests.fuzz.seeds import SAMPLES
from tests.lionagi_stores import session, write_store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

OWN_ID = {"id": "019e2f2e-0000-7000-8000-000000000001", "cwd": "/w"}
BEGIN = {"timestamp": "2026-05-01T10:00:00.000Z", "type": "session_meta", "payload": OWN_ID}
META = json.dumps(BEGIN).encode()
NAME = "rollout-2026-05-01T10-00-00-019e2f2e-0000-7000-8000-000000000001.jsonl"


def lines_in(path: Path) -> list[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its number."""
    found = []
    for chunk in chunks_of(path, "s", "o"):
        numbers = range(chunk.n_before + 1, chunk.n_before + len(chunk.lines) + 1)
        found += [pair for pair in zip(numbers, chunk.lines, strict=True) if pair[1].strip()]
    return found


@given(st.lists(st.sampled_from([b"{}", b"", b"\n" * 1023, b"\n" * 1500, b" "]), max_size=12))
@examples(100)
def test_lines_keep_their_numbers_however_many_are_blank(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    path.write_bytes(b"\n".join(parts))
    numbered = enumerate(path.read_bytes().split(b"\n"), start=1)
    assert lines_in(path) == [(number, line) for number, line in numbered if line.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("bomb", [b'{"a":1}\n', b"\n", META + b"\n"], ids=["tiny", "blank", "real"])
def test_a_packed_rollout_is_read_up_to_a_bound(tmp_path, bomb):
    path = tmp_path / "sessions" / f"{NAME}.zst"
    path.parent.mkdir()
    path.write_bytes(zstd.compress(META + b"\n" + bomb * (20_000_000 // len(bomb))))
    with sa.read(tmp_path, budget=sa.Budget(growth_ratio=5)) as snap:
        assert snap.entities.height >= 1
        lost = snap.findings.filter(code="file.over_bound")
        assert lost["severity"].to_list() == ["warning"]
    [problem] = lost["message"].to_list()
    most = "50,000 records" if bomb == b'{"a":1}\n' else "1,048,576 bytes"
    n_bytes = path.stat().st_size
    assert f"takes {n_bytes:,} bytes on disk and holds more than {most}" in problem


def test_an_honest_rollout_is_read_whole_however_well_it_packs(tmp_path):
    said = {"timestamp": "2026-05-01T10:00:01.000Z", "type": "response_item"}
    lines = [META]
    for n in range(2000):
        payload = {"type": "message", "role": "user", "content": [{"text": f"{n}" * 50}]}
        lines.append(json.dumps({**said, "payload": payload}).encode())
    path = tmp_path / f"{NAME}.zst"
    path.write_bytes(zstd.compress(b"\n".join(lines) + b"\n"))
    with sa.read(path) as snap:
        assert not snap.findings["severity"].eq("error").any()
        assert snap.table("codex_lines").height == len(lines)


def test_text_in_utf_16_is_converted_in_pieces_and_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 1000)
    path = tmp_path / "x.jsonl"
    texts = [json.dumps({"n": n, "ü": "€😀"}, ensure_ascii=False) for n in range(500)]
    path.write_bytes("\n".join(texts).encode("utf-16"))
    assert [line.decode() for _, line in lines_in(path)] == texts
    with spend(Budget(file_bytes=5000)), pytest.raises(OSError, match="more than 5,000 bytes"):
        lines_in(path)


PEAK = """
import sys
from pathlib import Path
import stateanalytics as sa
try:
    sa.read(sys.argv[1]).entities
except sa.errors.StateAnalyticsError:
    pass
# Of this process alone: what getrusage says counts what its parent had when it forked.
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""


def test_records_on_a_line_that_is_too_long_are_not_put_together(tmp_path, monkeypatch):
    """The line is cut while it is read: no two halves may seem to be one record."""
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 64)
    monkeypatch.setattr(budget, "MAX_LINE_BYTES", 100)
    sizes = {1: 60, 2: 200, 3: 60}
    line = "".join(json.dumps({"n": n, "text": "x" * size}) for n, size in sizes.items())
    path = tmp_path / "a.jsonl"
    path.write_text(f'{line}\n{{"n": 4}}\n')
    found = json_lines.records_of([*chunks_of(path, "s", "o")])
    assert found.select("text", "is_too_long").rows() == [(None, True), ('{"n": 4}', False)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blank lines, packed", "UTF-16 with a hole"])
def test_a_small_file_takes_little_memory(tmp_path, kind):
    if kind == "blank lines, packed":
        path = tmp_path / f"{NAME}.zst"
        path.write_bytes(zstd.compress(META + b"\n" * 60_000_000))
    else:
        path = tmp_path / NAME
        path.write_bytes((META.decode() + "\n").encode("utf-16"))
        with path.open("r+b") as file:
            file.truncate(2**32)
    command = [sys.executable, "-c", PEAK, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(run.stdout) < 400, "MB"


def test_a_table_of_ones_own_has_a_bound(tmp_path):
    path = tmp_path / "huge.csv"
    path.write_text("a,b\n1,2\n")
    with path.open("r+b") as file:
        file.truncate(3 * 2**30)
    with pytest.raises(ArgumentError, match=r"has 3,221,225,472 bytes, .* read up to 2,"):
        tables.own_table("t", path, ())
    wide = pl.DataFrame({f"c{n}": [1] for n in range(2001)})
    with pytest.raises(ArgumentError, match="has 2,001 columns"):
        tables.own_table("t", wide, ())


def test_a_file_that_cannot_be_read_is_not_offered_again(tmp_path):
    (tmp_path / "zero.csv").write_bytes(b"")
    with pytest.raises(ArgumentError, match="name a file that can be read") as caught:
        tables.own_table("t", tmp_path / "zero.csv", ())
    assert "did you mean" not in str(caught.value)


def transcript(path: Path, n: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    prompt = {"timestamp": "2026-05-01T10:00:01.000Z", "type": "response_item"}
    lines = [META, *(json.dumps({**prompt, "n": k}).encode() for k in range(n))]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


LIMITS = {
    "n_rows": (1000, "1,000 rows"),
    "processor_s": (1e-6, "seconds of processor time"),
    "memory_bytes": (1, "1 bytes of memory"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_what_is_beyond_a_limit_is_one_finding_with_its_size(tmp_path, limit, monkeypatch):
    most, words = LIMITS[limit]
    sizes = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(budget, "_memory_bytes", lambda: next(sizes))
    for k in range(4):
        name = NAME.replace("000000000001", f"{k:012}")
        transcript(tmp_path / "sessions" / name, 700)
    whole = sum(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))
    with sa.read(tmp_path, budget=sa.Budget(**{limit: most})) as snap:
        [found] = snap.findings.filter(code="read.over_budget").to_dicts()
        assert words in found["message"]
        assert f"({limit})" in found["message"]
        assert found["severity"] == "warning"
        if limit == "n_rows":
            assert 0 < found["n_rows"] < 4
            assert 0 < snap.table("codex_lines").height < 4 * 701
        else:
            assert found["n_rows"] == 4
            assert f"of which {whole:,} bytes were not read" in found["message"]


@pytest.mark.parametrize("order", [(3, 1, 2, 0), (0, 1, 2, 3)])
def test_what_is_beyond_a_limit_is_the_oldest_whatever_its_name(tmp_path, order):
    for age_h, k in enumerate(order):
        path = tmp_path / "sessions" / NAME.replace("000000000001", f"{k:012}")
        transcript(path, 700)
        os.utime(path, (1.7e9 - 3600 * age_h,) * 2)
    with sa.read(tmp_path, budget=sa.Budget(n_rows=1000)) as snap:
        lines = snap.table("codex_lines")
        n_skipped = snap.findings.filter(code="read.over_budget")["n_rows"].item()
    read = lines["file"].unique(maintain_order=True).to_list()
    newest = order[: 4 - n_skipped]
    assert {int(name[-18:-6]) for name in read} >= set(newest)
    assert read == sorted(read)


def test_packed_files_share_a_limit_of_what_they_become(tmp_path):
    for k in range(3):
        path = tmp_path / "sessions" / f"{NAME.replace('000000000001', f'{k:012}')}.zst"
        whole = transcript(path, 1000).read_bytes()
        path.write_bytes(zstd.compress(whole))
    with sa.read(tmp_path, budget=sa.Budget(grown_bytes=len(whole) + 1)) as snap:
        [found] = snap.findings.filter(code="read.over_budget").to_dicts()
        assert "bytes that packed or converted files became" in found["message"]
        assert found["n_rows"] == 2
    with sa.read(tmp_path, budget="off") as snap:
        assert snap.findings.filter(code="read.over_budget").is_empty()
        assert snap.table("codex_lines").height == 3 * 1001


@pytest.mark.slow
def test_without_a_budget_a_packed_file_is_read_whole(tmp_path):
    path = tmp_path / f"{NAME}.zst"
    path.write_bytes(zstd.compress(META + b"\n" + b'{"a":1}\n' * (LEAST_ROWS + 5)))
    with sa.read(path, budget="off") as snap:
        assert snap.table("codex_lines").height > LEAST_ROWS
        assert snap.findings.filter(code="file.over_bound").is_empty()


def test_a_table_beyond_the_budget_is_left_out_and_its_rows_are_counted():
    with sa.read(SAMPLES / "state.db", budget="n_rows=100") as snap:
        found = snap.findings.filter(code="read.over_budget")
        assert not found.is_empty()
        assert (found["n_rows"] > 0).all()
        assert found["action"].unique().to_list() == ["raise the budget, or name fewer sources"]
    with sa.read(SAMPLES / "state.db") as snap:
        assert snap.findings.filter(code="read.over_budget").is_empty()


def test_a_store_that_is_nearly_all_holes_is_refused(tmp_path):
    path = tmp_path / "state.db"
    write_store(path, sessions=[session("a")])
    with path.open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(sa.errors.SourceError, match="of them on disk; the budget lets"):
        sa.read(path)


@pytest.mark.slow
def test_a_hole_in_a_transcript_is_not_read_to_its_end(tmp_path):
    path = transcript(tmp_path / NAME, 3)
    with path.open("r+b") as file:
        file.truncate(3 * 2**30)
    with sa.read(path) as snap:
        assert snap.entities.height == 1
        assert "file.over_bound" in snap.findings["code"]


def test_few_bytes_of_parquet_with_many_rows_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"n": pl.repeat(0, 3_000_000, eager=True)}).write_parquet(path)
    with pytest.raises(ArgumentError, match=r"holds more than .* rows"):
        tables.own_table("t", path, ())


@given(st.integers(1, 40), st.lists(st.integers(0, 30), max_size=6))
@examples(100)
def test_no_more_is_read_than_the_limit_and_one_piece(most, sizes):
    spent, n_read = Spending(Budget(n_rows=most)), 0
    for size in sizes:
        try:
            spent.draw(n_rows=size)
        except OSError:
            assert n_read + size > most
            break
        n_read += size
        assert n_read <= most


@pytest.mark.parametrize(
    "wrong", ["", "fast", "n_rows", "n_rows=x", "n_rows=0", "seconds=3", "n_rows=nan", 3]
)
def test_a_budget_that_is_none_is_an_error_that_says_what_to_type(wrong):
    with pytest.raises(ArgumentError, match=r"budget"):
        Budget.of(wrong)


def test_commands_that_read_take_a_budget(tmp_path):
    transcript(tmp_path / NAME, 700)
    runner, asked = CliRunner(), ["attention", str(tmp_path / NAME)]
    result = runner.invoke(cli, [*asked, "--show", "findings", "--budget", "processor_s=1e-6"])
    assert result.exit_code == 0
    assert "read.over_budget" in result.output
    result = runner.invoke(cli, [*asked, "--budget", "all"])
    assert result.exit_code == 1
    assert isinstance(result.exception, ArgumentError)
    assert "--budget processor_s=60" in result.exception.shell


@pytest.mark.slow
def test_each_source_of_a_fleet_has_a_budget_of_its_own(tmp_path):
    paths = [tmp_path / f"m{k}" for k in range(2)]
    for path in paths:
        transcript(path / "sessions" / NAME, 700)
        transcript(path / "sessions" / NAME.replace("000000000001", "000000000002"), 700)
    done = sa.collect(paths, tmp_path / "history", budget="n_rows=2000")
    assert done["status"].to_list() == ["archived", "archived"]
    with sa.read(tmp_path / "history") as snap:
        assert "read.over_budget" not in snap.findings["code"]
    sa.collect(paths, tmp_path / "history", budget="n_rows=100")
    with sa.read(tmp_path / "history") as snap:
        assert "read.over_budget" in snap.findings["code"]


def packed(folder: Path, content: bytes) -> Path:
    path = folder / "sessions" / f"{NAME}.zst"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstd.compress(content))
    return path


@pytest.mark.slow
def test_a_file_that_grows_gives_the_same_rows_from_a_process_of_its_own(tmp_path, monkeypatch):
    """In UTF-16, and between two that are read here."""
    names = [NAME.replace("000000000001", f"{k:012}") for k in range(3)]
    for name in names:
        transcript(tmp_path / "a" / name, 30)
        transcript(tmp_path / "b" / name, 30)
    middle = tmp_path / "b" / names[1]
    middle.write_bytes(middle.read_text().encode("utf-16"))
    asked, apart = [], transcripts.parsed_apart
    monkeypatch.setattr(transcripts, "parsed_apart", lambda *a: asked.append(a[1]) or apart(*a))
    with sa.read(tmp_path / "a") as plain, sa.read(tmp_path / "b") as grown:
        assert asked == [names[1]]
        rows = [snap.table("codex_lines").drop("source") for snap in (plain, grown)]
        assert rows[0].height == 3 * 31
        assert rows[0].equals(rows[1])


@pytest.mark.slow
def test_a_parser_that_overruns_is_killed_and_the_rest_is_read(tmp_path, monkeypatch):
    """Planted: a library that never comes back, and one that takes all memory."""
    packed(tmp_path, META + b"\n" * 2**21)
    transcript(tmp_path / "sessions" / NAME.replace("000000000001", "000000000002"), 3)
    monkeypatch.setattr(parsing_process, "LEAST_S", 2.0)
    monkeypatch.setattr(parsing_process, "LEAST_MEMORY_BYTES", 2**29)
    apart = transcripts.parsed_apart
    for planted in (never_ends, takes_all):
        monkeypatch.setattr(
            transcripts,
            "parsed_apart",
            lambda path, name, fields, _, planted=planted: apart(path, name, fields, planted),
        )
        with sa.read(tmp_path) as snap:
            assert snap.entities.height == 1
            [found] = snap.findings.filter(code="file.over_bound")["message"]
            assert "seconds of processor time or" in found
            assert "on disk are not read" in found


@pytest.mark.slow
def test_what_a_process_of_its_own_leaves_out_is_the_same_finding(tmp_path):
    """Its part of the budget is spent there; the finding has the bytes that are left."""
    lines = [b'{"a":"%s"}' % (secrets.token_hex(8).encode() + b"x" * 1500) for _ in range(15_000)]
    path = packed(tmp_path, b"\n".join([META, *lines]) + b"\n")
    assert json_lines.grows(path)
    with sa.read(tmp_path, budget="n_rows=1000") as snap:
        [found] = snap.findings.filter(code="read.over_budget").to_dicts()
        assert "(n_rows) is spent" in found["message"]
        assert "of which 0 bytes" not in found["message"]
        assert "file.over_bound" not in snap.findings["code"]
    whole = f"of which {path.stat().st_size:,} bytes were not read"
    with sa.read(tmp_path, budget="processor_s=0.001") as snap:
        [found] = snap.findings.filter(code="read.over_budget").to_dicts()
        assert whole in found["message"] and "budget of 0.001 seconds" in found["message"]


@pytest.mark.slow
def test_a_damaged_file_is_damaged_in_a_process_of_its_own_too(tmp_path):
    path = packed(tmp_path, META + b"\n" + secrets.token_bytes(2**16) + b"\n" * 2**24)
    octets = bytearray(path.read_bytes())
    octets[-40:] = b"\xff" * 40
    path.write_bytes(octets)
    assert json_lines.grows(path)
    with sa.read(tmp_path) as snap:
        [found] = snap.findings.filter(code="file.unreadable")["message"]
        assert "Zstandard reports" in found
        assert "file.over_bound" not in snap.findings["code"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [["attention"], ["attention", "--show", "states"]], ids=str)
def test_what_a_budget_leaves_out_is_a_warning_of_every_command(tmp_path, command, capsys):
    path = transcript(tmp_path / "a" / "sessions" / NAME, 700)
    source = [*command, str(tmp_path / "a"), "--budget", "n_rows=100"]
    assert run(source) == 0
    assert "warning: " not in capsys.readouterr().err  # it fits into one piece, and is read whole
    transcript(path.with_name(NAME.replace("000000000001", "000000000002")), 700)
    assert run(source) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("warning: ") and "budget of 100 rows" in first
    packed(tmp_path, META + b"\n" + b'{"a":1}\n' * (LEAST_ROWS + 5))
    assert run([*command, str(tmp_path / "sessions")]) == 0
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("warning: ") and "larger than its bound" in first
    assert first.endswith(".jsonl.zst)")


def never_ends(*_):
    re.match(r"(a+)+$", "a" * 60 + "b")


def takes_all(*_):
    return [bytearray(2**20) for _ in range(2**14)]


PACKED = {META * 100: False, META + b"\n" * 2**21: True, (META + b"\n") * 20_000: True, b"": False}


@pytest.mark.parametrize(("content", "is_so"), PACKED.items(), ids=["few", "blank", "many", "none"])
def test_sound_packed_files_are_read_here(tmp_path, content, is_so):
    path = packed(tmp_path, content)
    assert json_lines.grows(path) is is_so
    path.write_bytes(path.read_bytes()[:20])
    assert json_lines.grows(path) is False
