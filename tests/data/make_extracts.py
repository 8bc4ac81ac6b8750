"""Write the extracts of the oracles that the tests use where the whole files are not here.

    python -m tests.data.make_extracts

Reads ``../shared/oracles`` and writes ``tests/data/oracles``: small files whole, of each
large one some rows, chosen so that every value of every column of few values is there, and
then at random with a fixed seed.
"""

import json
import random
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import EXTRACTS, SHARED
from tests.oracles import ADAPTERS

SEED = 20260527
MOST_BYTES = 3_000
"""Of one file; a file of less than twice of it is kept whole."""
REFERENCE = ("opencode/error_types.csv", "opencode/reason_codes.csv")
OF_DETECTORS = (
    "agent-orchestrator/oracle_activity_log.csv",
    "agent-orchestrator/oracle_activity_signal.csv",
)
FEW = 40


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


def extract(name: str) -> bytes:
    """The extract of one oracle file."""
    path = SHARED / "oracles" / name
    content = path.read_bytes()
    if len(content) <= 2 * MOST_BYTES:
        return content
    is_json = path.suffix == ".jsonl"
    lines = content.decode().splitlines()
    head = [] if is_json else [lines.pop(0)]
    kept = chosen(lines, is_json=is_json, most_bytes=MOST_BYTES * (2 if is_json else 1))
    return "".join(f"{line}\n" for line in [*head, *kept]).encode()


def write(path: Path, content: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return len(content)


def main() -> None:
    names = (*ADAPTERS, *OF_DETECTORS)
    here = [name for name in names if (SHARED / "oracles" / name).exists()]
    size = sum(write(EXTRACTS / "oracles" / name, extract(name)) for name in here)
    for name in REFERENCE:
        size += write(EXTRACTS / "reference" / name, (SHARED / "reference" / name).read_bytes())
    print(f"{len(here)} files of oracles and {len(REFERENCE)} of reference, {size:,} bytes")


if __name__ == "__main__":
    main()
