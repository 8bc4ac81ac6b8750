"""Frames are classes of columns: nothing is declared twice or left without a meaning."""

import ast
from pathlib import Path

import polars as pl
import pytest

import stateanalytics
from stateanalytics.core.shapes import Columns, Moment, Text, Words, frame
from stateanalytics.sql.returned import FRAMES_RETURNED
from stateanalytics.sql.tables import FRAMES

PACKAGE = Path(stateanalytics.__file__).parent
MODULES = (PACKAGE / "core" / "schema.py", *sorted(PACKAGE.rglob("frames.py")))


class Visits(Columns, key=("page", "at")):
    """One visit of a page.

    More words do not belong to what a row is.
    """

    page = Text("the page")
    at = Moment("when it began; null: not known")


class LongVisits(Visits, name="visits_long"):
    """Visits of one group."""

    by = Text("the group", name="<by>")
    tone = Words(("calm", "loud"), "how it was")


def test_a_class_gives_its_frame():
    visits = frame(Visits)
    assert (visits.name, visits.row, visits.key) == (
        "visits",
        "one visit of a page",
        ("page", "at"),
    )
    assert visits.dtypes == {"page": pl.String, "at": pl.Datetime("us", "UTC")}
    assert visits.columns[0].meaning == "the page"


def test_a_subclass_has_the_columns_of_its_base_first_and_not_its_key():
    longer = frame(LongVisits)
    assert longer.dtypes.names() == ["page", "at", "<by>", "tone"]
    assert (longer.name, longer.key) == ("visits_long", ())
    assert longer.dtypes["tone"] == pl.Enum(["calm", "loud"])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_no_column_of_a_frame_is_declared_twice(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef):
            names = [
                target.id
                for line in node.body
                if isinstance(line, ast.Assign)
                for target in line.targets
                if isinstance(target, ast.Name)
            ]
            assert len(names) == len(set(names)), (path, node.name)


def test_every_column_has_a_meaning_and_every_key_is_a_column():
    frames = (*FRAMES, *FRAMES_RETURNED)
    assert len(frames) > 60
    for declared in frames:
        assert all(column.meaning for column in declared.columns), declared.name
        assert set(declared.key) <= set(declared.dtypes), declared.name
        assert declared.row[0] not in ("", " "), declared.name
