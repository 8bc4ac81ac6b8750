"""Files that grow when they are read: packed, in UTF-16, with holes, with blank lines only."""

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.io import json_lines
from stateanalytics.io.json_lines import chunks_of
from stateanalytics.sql import own_tables

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

META = json.dumps(
    {
        **{"timestamp": "2026-05-01T10:00:00.000Z", "type": "session_meta"},
        "payload": {"id": "019e2f2e-0000-7000-8000-000000000001", "cwd": "/w"},
    }
).encode()
NAME = "rollout-2026-05-01T10-00-00-019e2f2e-0000-7000-8000-000000000001.jsonl"


def lines_in(path: Path) -> list[tuple[int, bytes]]:
    """The lines of a file that are not blank, each with its number."""
    found = []
    for chunk in chunks_of(path, "s", "o"):
        numbers = range(chunk.n_before + 1, chunk.n_before + len(chunk.lines) + 1)
        found += [pair for pair in zip(numbers, chunk.lines, strict=True) if pair[1].strip()]
    return found


@given(st.lists(st.sampled_from([b"{}", b"", b"\n" * 1023, b"\n" * 1500, b" "]), max_size=12))
def test_lines_keep_their_numbers_however_many_are_blank(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    path.write_bytes(b"\n".join(parts))
    slow = [
        (number, line)
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        if line.strip()
    ]
    assert lines_in(path) == slow


@pytest.mark.parametrize("bomb", [b'{"a":1}\n', b"\n", META + b"\n"], ids=["tiny", "blank", "real"])
def test_a_packed_rollout_is_read_up_to_a_bound(tmp_path, monkeypatch, bomb):
    monkeypatch.setattr(json_lines, "MOST_UNPACKED_RATIO", 5)
    path = tmp_path / "sessions" / f"{NAME}.zst"
    path.parent.mkdir()
    path.write_bytes(zstd.compress(META + b"\n" + bomb * (20_000_000 // len(bomb))))
    most = max(json_lines.LEAST_UNPACKED_BYTES, 5 * path.stat().st_size)
    with sa.read(tmp_path) as snap:
        assert snap.entities.height >= 1
        lost = snap.findings.filter(code="file.over_bound")
        assert lost["severity"].to_list() == ["warning"]
    [problem] = lost["message"].to_list()
    assert f"hold more than {most:,}" in problem


def test_an_honest_rollout_is_read_whole_however_well_it_packs(tmp_path):
    lines = [META] + [
        json.dumps(
            {
                **{"timestamp": "2026-05-01T10:00:01.000Z", "type": "response_item"},
                "payload": {"type": "message", "role": "user", "content": [{"text": f"{n}" * 50}]},
            }
        ).encode()
        for n in range(2000)
    ]
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
    monkeypatch.setattr(json_lines, "MOST_UTF16_BYTES", 5000)
    with pytest.raises(OSError, match="UTF-16 is read up to 5,000 bytes"):
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
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < 400, "MB"


def test_a_table_of_ones_own_has_a_bound(tmp_path):
    path = tmp_path / "huge.csv"
    path.write_text("a,b\n1,2\n")
    with path.open("r+b") as file:
        file.truncate(3 * 2**30)
    with pytest.raises(ArgumentError, match=r"has 3,221,225,472 bytes; .* read up to 536,870,912"):
        own_tables.own_table("t", path, ())
    wide = pl.DataFrame({f"c{n}": [1] for n in range(2001)})
    with pytest.raises(ArgumentError, match="has 2,001 columns"):
        own_tables.own_table("t", wide, ())


def test_a_file_that_cannot_be_read_is_not_offered_again(tmp_path):
    (tmp_path / "zero.csv").write_bytes(b"")
    with pytest.raises(ArgumentError, match="name a file that can be read") as caught:
        own_tables.own_table("t", tmp_path / "zero.csv", ())
    assert "did you mean" not in str(caught.value)
