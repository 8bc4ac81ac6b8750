"""Write the extracts of the oracles that the tests use where the whole files are not here.

    python -m tests.data.make_extracts

Reads ``../shared/oracles`` and writes ``tests/data/oracles``: small files whole, of each
large one some rows, chosen so that every value of every column of few values is there, and
then at random with a fixed seed. Of sequences of polls the beginning is kept.
"""

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import EXTRACTS, SHARED
from tests.oracles import ADAPTERS

SEED = 20260527
MOST_BYTES = 3_000
"""Of one file; a file of less than twice of it is kept whole."""
SEQUENCES = {
    "agent-orchestrator/oracle_poll_trajectories.csv": ("project", "session"),
    "agent-orchestrator/oracle_detecting_sequences.csv": ("sequence",),
}
"""Files whose rows mean something together only, and what names a sequence."""
WHOLE = {"agent-orchestrator/activity_event_kinds_final_ts.csv"}
REFERENCE = ("opencode/error_types.csv", "opencode/reason_codes.csv")
FEW = 40
MOST_POLLS = 12


def cells(line: str, is_json: bool) -> list[str]:
    """The cells of a line, as far as they tell lines apart."""
    if not is_json:
        return line.split(",")
    return sorted(_leaves(json.loads(line)))


def _leaves(value: object, path: str = "") -> Iterable[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
    else:
        yield f"{path}={str(value)[:30]}"


def chosen(lines: list[str], *, is_json: bool, most_bytes: int) -> list[str]:
    """Some lines, in their order: first those that show a new value, then any."""
    by_column: dict[int, set[str]] = {}
    rows = [cells(line, is_json) for line in lines]
    if is_json:
        facts = [set(row) for row in rows]
    else:
        for row in rows:
            for place, value in enumerate(row):
                by_column.setdefault(place, set()).add(value)
        few = {place for place, values in by_column.items() if len(values) <= FEW}
        facts = [{f"{i}={value}" for i, value in enumerate(row) if i in few} for row in rows]
    order = list(range(1, len(lines)))
    random.Random(SEED).shuffle(order)
    # The first line of a JSONL file has every key, also those that the others leave out.
    order.insert(0, 0)
    seen: set[str] = set()
    kept: list[int] = []
    size = 0
    for is_first_pass in (True, False):
        for index in order:
            n_bytes = len(lines[index].encode()) + 1
            if index in kept or size + n_bytes > most_bytes:
                continue
            if not is_first_pass or facts[index] - seen:
                kept.append(index)
                seen |= facts[index]
                size += n_bytes
    return [lines[index] for index in sorted(kept)]


def beginnings(header: str, lines: list[str], names: tuple[str, ...]) -> list[str]:
    """The first rows of some sequences, in their order: what comes later needs what came before."""
    places = [header.split(",").index(name) for name in names]
    sequences: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        sequence = sequences.setdefault(tuple(line.split(",")[place] for place in places), [])
        if len(sequence) < MOST_POLLS:
            sequence.append(line)
    order = sorted(sequences)
    random.Random(SEED).shuffle(order)
    kept: set[str] = set()
    for key in order:
        if sum(map(len, kept)) + sum(map(len, sequences[key])) <= 3 * MOST_BYTES:
            kept.update(sequences[key])
    return [line for line in lines if line in kept]


def extract(name: str) -> bytes:
    """The extract of one oracle file, packed as the file is."""
    path = SHARED / "oracles" / name
    is_packed = path.suffix == ".gz"
    content = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
    if name in WHOLE or len(content) <= 2 * MOST_BYTES:
        return path.read_bytes()
    is_json = ".jsonl" in path.suffixes
    lines = content.decode().splitlines()
    head = [] if is_json else [lines.pop(0)]
    if name in SEQUENCES:
        kept = beginnings(head[0], lines, SEQUENCES[name])
    else:
        kept = chosen(lines, is_json=is_json, most_bytes=MOST_BYTES * (2 if is_json else 1))
    text = "".join(f"{line}\n" for line in [*head, *kept]).encode()
    # No time stamp in the header: the same rows give the same bytes.
    return gzip.compress(text, mtime=0) if is_packed else text


def write(path: Path, content: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return len(content)


def main() -> None:
    here = [name for name in ADAPTERS if (SHARED / "oracles" / name).exists()]
    size = sum(write(EXTRACTS / "oracles" / name, extract(name)) for name in here)
    for name in REFERENCE:
        size += write(EXTRACTS / "reference" / name, (SHARED / "reference" / name).read_bytes())
    print(f"{len(here)} files of oracles and {len(REFERENCE)} of reference, {size:,} bytes")


if __name__ == "__main__":
    main()
