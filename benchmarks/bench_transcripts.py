"""A developer's own machine: thousands of transcripts, reported, and read again.

The samples again and again, every session, answer and call with an id of its own, results of
tools as long as real ones; 2 GB in 3,000 files unless asked for less (``-n`` is in MB).
"""

from __future__ import annotations

import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path

import orjson

from benchmarks.measure import Row, peak_mb

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
MB_A_FILE = 2000 / 3000
GOAL_S, GOAL_AGAIN_S, GOAL_MB = 60.0, 2.0, 1500.0  # seconds for two gigabytes
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = rf"{_UUID}|(?<!\w)(?:msg|req|toolu|call)_(?!id\b)\w+"
_CHANGED = re.compile(rf"(?P<id>{_ID})|(?P<at>20\d\d-\d\d-\d\dT[\d:.]+)Z|(?P<pad>\0)")
_WORDS = (
    r'"tool_use_id": "\w+", "content": "|"role": "user", "content": "|"input": {"\w+": "'
    r'|"(?:output|text|input)": "(?![{\[])'
)
_LONG = re.compile(rf'((?:{_WORDS})(?:[^"\\]|\\.)*)(?=")')
_CALL, _RESULT = (
    re.compile('"(?:tool_use|function_call)"'),
    re.compile('"(?:tool_result|function_call_output)"'),
)
_ANY_ID = re.compile(_ID)
_NEW_ID = re.compile(rf'(?:"uuid"|"id"|"requestId"|"tool_use_id"|"call_id"): "({_ANY_ID.pattern})"')
N_CALLS = 10
_LINE = 'def test_total(cart):\\n    assert cart.total() == \\"3\\"  # a line of output\\n'
_MOST_LINES = 75


class _Sample:
    """A transcript that can be written again under other ids, later and longer."""

    def __init__(self, path: Path, *, once: str = "\1") -> None:
        self.name, self.own_id = path.name, re.findall(_UUID, path.as_posix())[-1]
        text = _LONG.sub("\\1\0", path.read_text("utf-8"))
        whole = _with_calls([line for line in text.splitlines(True) if line.endswith("\n")])
        self.head = _CHANGED.split("".join(line for line in whole if once in line))
        self.rest = _CHANGED.split("".join(line for line in whole if once not in line))

    def again(self, own_id: str, n_chars: int, chance: random.Random) -> str:
        """So many characters, or some more."""
        later = timedelta(minutes=chance.randrange(60 * 24 * 25))
        parts = [_renamed(self.head, {self.own_id: own_id}, later, chance)]
        while n_chars > 0:
            parts.append(_renamed(self.rest, {self.own_id: own_id}, later, chance))
            n_chars -= len(parts[-1])
            later += timedelta(hours=2)
        return "".join(parts)


def _with_calls(lines: list[str]) -> list[str]:
    """Each call with its result as often as a turn has some."""
    longer = []
    for before, line in zip(["", *lines], lines, strict=False):
        longer.append(line)
        if _CALL.search(before) and _RESULT.search(line):
            own = set(_NEW_ID.findall(before + line))
            for number in range(1, N_CALLS):
                renamed = partial(_numbered, own=own, number=number)
                longer += [_ANY_ID.sub(renamed, each) for each in (before, line)]
    return longer


def _numbered(found: re.Match[str], own: set[str], number: int) -> str:
    if found[0] not in own:
        return found[0]
    return f"{found[0][:-2] if '-' in found[0] else found[0]}{number:02x}"


def _renamed(
    pieces: list[str], ids: dict[str, str], later: timedelta, chance: random.Random
) -> str:
    def changed(id_: str | None, at: str | None) -> str:
        if at:
            return f"{(datetime.fromisoformat(at) + later).isoformat(timespec='milliseconds')}Z"
        return (
            ids.setdefault(id_, new_id(id_, chance))
            if id_
            else _LINE * chance.randrange(_MOST_LINES)
        )

    each = zip(pieces[::4], pieces[1::4], pieces[2::4], strict=False)
    return (
        "".join(chain.from_iterable((text, changed(id_, at)) for text, id_, at in each))
        + pieces[-1]
    )


def new_id(old: str, chance: random.Random) -> str:
    """Another id of the same kind; the moment that it may begin with stays."""
    n_kept = old.index("_") + 1 if "_" in old else old.rindex("-") + 1
    return f"{old[:n_kept]}{chance.getrandbits(48):012x}"


def _compact(text: str) -> bytes:
    """The lines as the clients write them, without blanks between their parts."""
    return b"".join(orjson.dumps(orjson.loads(line)) + b"\n" for line in text.splitlines())


def write_claude_code(root: Path, n_mb: int) -> None:
    """A directory of Claude Code; every tenth session has a subagent."""
    folder = SAMPLES / "claude_code" / "projects"
    mains = [_Sample(path) for path in sorted(folder.glob("*/*.jsonl"))]
    (agent,) = [_Sample(path) for path in folder.glob("*/*/subagents/*.jsonl")]
    for number, own_id, chance in _write(root / "projects" / "-repo-shop", n_mb, mains):
        if number % 10 == 0:
            subagents = root / "projects" / "-repo-shop" / own_id / "subagents"
            subagents.mkdir(parents=True)
            (subagents / agent.name).write_bytes(_compact(agent.again(own_id, 1, chance)))


def write_codex(root: Path, n_mb: int) -> None:
    """A directory of Codex."""
    folder = SAMPLES / "codex" / "sessions"
    samples = [_Sample(path, once='"session_meta"') for path in sorted(folder.rglob("*.jsonl"))]
    for _ in _write(root / "sessions" / "2026" / "05" / "18", n_mb, samples):
        pass


def _write(
    folder: Path, n_mb: int, samples: list[_Sample]
) -> Iterator[tuple[int, str, random.Random]]:
    """Transcripts of very different lengths; of each its number and its id."""
    chance = random.Random(n_mb)
    folder.mkdir(parents=True)
    n_files = max(1, round(n_mb / MB_A_FILE))
    for number in range(n_files):
        sample = samples[number % len(samples)]
        own_id = new_id(sample.own_id, chance)
        text = sample.again(own_id, int(chance.expovariate(1e-6 / MB_A_FILE)), chance)
        (folder / sample.name.replace(sample.own_id, own_id)).write_bytes(_compact(text))
        yield number, own_id, chance


WRITERS = {"Claude Code": write_claude_code, "Codex": write_codex}


def whole_report(root: str, told: Path) -> None:
    """What the first report of a machine does, and how many seconds reading again takes."""
    from stateanalytics.charts.report_charts import prepare
    from stateanalytics.reporting import report
    from stateanalytics.snapshot import read

    prepare()
    snapshot = read(root)
    report(snapshot, shown=False).as_html()
    begun = time.perf_counter()
    snapshot.refresh()
    told.write_text(str(time.perf_counter() - begun), "utf-8")


def run(n_mb: int = 500) -> list[Row]:
    """A row for each system; a first report has no peer, only its goal."""
    return [_row(title, write, n_mb) for title, write in WRITERS.items()]


def settle(root: Path) -> None:
    """Files of an hour ago: of one that was written to just now, nothing proves that it rests."""
    then = time.time() - 3600
    for path in root.rglob("*.jsonl"):
        os.utime(path, (then, then))
    time.sleep(2.5)  # their own times of change are of now, too


def _row(title: str, write: Callable[[Path, int], None], n_mb: int) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        root, told = Path(folder) / "root", Path(folder) / "again"
        write(root, n_mb)
        settle(root)
        begun, begun_cpu = time.perf_counter(), sum(os.times()[2:4])
        peak = peak_mb(partial(whole_report, str(root), told))
        seconds, cpu_s = time.perf_counter() - begun, sum(os.times()[2:4]) - begun_cpu
        again_s = float(told.read_text("utf-8"))
    most_s = GOAL_S * n_mb / 2000
    return Row(
        work=f"first report of {n_mb:,} MB of {title}, reading included",
        ours_s=seconds,
        peer="",
        peer_s=None,
        goal=f"≤ {most_s:.0f} s, ≤ {GOAL_MB:,.0f} MB; again ≤ {GOAL_AGAIN_S:g} s",
        is_met=seconds <= most_s and peak <= GOAL_MB and again_s <= GOAL_AGAIN_S,
        note=f"{cpu_s:.0f} CPU s, peak {peak:,.0f} MB; unchanged again {again_s:.1f} s",
    )
