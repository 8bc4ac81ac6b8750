"""Tables of numbers and words stand as somebody reviewed them, line by line.

``python -m tests.test_reviewed`` writes the files again; read the difference before you keep it.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import stateanalytics as sa
from stateanalytics.detectors.catalogue import all_systems, registry

FOLDER = Path(__file__).parent / "reviewed"
# What a detector compares and how; its rules, which are expressions, have tests of their own.
OF_A_DETECTOR = (
    *("measures", "comparison", "threshold_s", "upper_s", "counts_never", "bad", "entity_types"),
    *("system", "construct", "question", "liveness", "restarts_on", "listed_s"),
)
OF_A_SYSTEM = {
    "vocabulary": "words.vocabulary",
    "run_type": "runs.entity_type",
    "part_types": "runs.part_types",
    "repeated_type": "runs.repeated_type",
    "limits": "limits",
    "ends.of_silences": "ends.of_silences",
    "ends.statuses": "ends.statuses",
    "ends.death_codes": "ends.death_codes",
    "ends.death_messages": "ends.death_messages",
    "ends.are_unsigned_own": "ends.are_unsigned_own",
}


def plain(value: Any) -> Any:
    """Plain data of a value; what is code is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {part.name: getattr(value, part.name) for part in dataclasses.fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items() if not is_code(part)}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple | list):
        return [plain(part) for part in value if not is_code(part)]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def is_code(value: Any) -> bool:
    return callable(value) or type(value).__module__.startswith(("polars", "narwhals"))


def detectors() -> Iterator[Any]:
    for name, detector in registry().items():
        kept = {field: getattr(detector, field) for field in OF_A_DETECTOR}
        yield {"name": name, **plain(kept)}


def policies() -> Iterator[Any]:
    for make in ("v1", "adr0025", "operator", "parity"):
        policy = getattr(sa.Policy, make)().to_dict()
        for field, value in policy.items():
            rows = value if isinstance(value, list) else [value]
            yield from ({"policy": make, field: row} for row in rows)


def systems() -> Iterator[Any]:
    for system in all_systems():
        for field, path in OF_A_SYSTEM.items():
            value = attrgetter(path)(system)
            if is_code(value):
                continue
            listed = plain(value)
            rows = listed if isinstance(listed, list) else [listed]
            yield from ({"system": system.name, field: row} for row in rows)


TABLES = {"detectors": detectors, "policies": policies, "systems": systems}


def lines(table: str) -> list[str]:
    return [json.dumps(row, ensure_ascii=False) for row in TABLES[table]()]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_stands_as_it_was_reviewed(table: str) -> None:
    assert lines(table) == (FOLDER / f"{table}.jsonl").read_text("utf-8").splitlines()


if __name__ == "__main__":
    for name in TABLES:
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines(name)) + "\n", "utf-8")
