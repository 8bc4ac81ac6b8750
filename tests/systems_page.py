"""The table of ``docs/systems.md`` on what of each system is read, made from what reads it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib import resources

from stateanalytics.systems import BUILT_IN, all_systems
from stateanalytics.systems.base import System, Tables

BEGIN, END = "<!-- made by `make docs` -->\n", "<!-- end -->\n"


def as_markdown() -> str:
    """For each built-in system its tables, by version, and the words of its records."""
    own = [known for known in all_systems() if known.name in BUILT_IN]
    return "\n".join(line for known in own for line in _of_system(known))


def with_coverage(page: str) -> str:
    r"""The page with the part between the marks made from the code.

    Examples
    --------
    >>> with_coverage(f"before\n{BEGIN}old\n{END}after\n").startswith(f"before\n{BEGIN}")
    True
    """
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{as_markdown()}{END}{after}"


def _of_system(known: System) -> Iterator[str]:
    yield f"**{known.title}**\n"
    if known.tables is not None:
        yield "| table | in | read of it |\n|---|---|---|"
        tables = known.tables()
        yield from (_row(name, versions, tables) for name, versions in stored(known))
        yield ""
    words = _known_words(known)
    for of, some in words.items():
        yield f"- {of} of records: {', '.join(f'`{word}`' for word in some)}"
    if words:
        yield ""
    elif known.tables is None:
        yield "No databases.\n"


def _table(known: System, name: str) -> list[dict[str, str]]:
    file = resources.files(f"stateanalytics.systems.{known.name}").joinpath("data", name)
    return list(csv.DictReader(file.read_text("utf-8").splitlines())) if file.is_file() else []


def stored(known: System) -> Iterator[tuple[str, str]]:
    """Each table that some version was seen to have, and those versions."""
    for row in _table(known, "stored.csv"):
        yield row["table"], row["versions"].replace("|", ", ")


def _known_words(known: System) -> dict[str, list[str]]:
    """The words of records that are understood, by what they are of."""
    rows = _table(known, "known_words.csv")
    return {row["of"]: [each["word"] for each in rows if each["of"] == row["of"]] for row in rows}


def _row(name: str, versions: str, tables: Tables) -> str:
    if name in tables.ignored:
        reading = "nothing, on purpose"
    elif name not in tables.read:
        reading = "nothing; its rows are counted in a finding"
    else:
        reading = f"{len(tables.read[name])} columns"
    return f"| `{name}` | {versions} | {reading} |"
