"""How a frame is declared: a class of columns, each with its dtype, unit and meaning.

Examples
--------
>>> class Heartbeats(Columns, key=("session_id", "at")):
...     \"\"\"One sign of life of a session.\"\"\"
...
...     session_id = Text("the session")
...     at = Moment("when it was seen; null: not known")
>>> HEARTBEATS = frame(Heartbeats)
>>> HEARTBEATS.name, HEARTBEATS.row, Heartbeats.at.dtype
('heartbeats', 'one sign of life of a session', Datetime(time_unit='us', time_zone='UTC'))
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

MOMENT = pl.Datetime("us", "UTC")
TEXT, INTEGER, REAL, YES_NO = pl.String(), pl.Int64(), pl.Float64(), pl.Boolean()


@dataclass(frozen=True)
class Column:
    """One column of a frame."""

    name: str
    dtype: pl.DataType
    meaning: str
    unit: str = ""
    read_from: tuple[str, ...] = ()
    """The path in a record of a system that it is read from; empty: it is derived."""


@dataclass(frozen=True)
class Frame:
    """One frame: the meaning of a row, the key, and the columns."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def named(self, *names: str) -> tuple[Column, ...]:
        """Columns of this frame by name, for another frame in which they mean the same."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in names)

    @cached_property
    def dtypes(self) -> pl.Schema:
        """The frame's columns and dtypes, in order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @cached_property
    def _without_rows(self) -> pl.DataFrame:
        # Cached: a small store needs ninety of these, which took a quarter of its reading time.
        return pl.DataFrame(schema=self.dtypes)

    def empty(self) -> pl.DataFrame:
        """A frame of this shape without rows."""
        return self._without_rows.clone()

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give ``frame`` exactly these columns: in order, cast, absent ones null."""
        if list(frame.schema.items()) == list(self.dtypes.items()):
            return frame
        present = set(frame.columns)
        return frame.select(
            cast if name in present else null for name, (cast, null) in self._expressions.items()
        )

    @cached_property
    def _expressions(self) -> dict[str, tuple[pl.Expr, pl.Expr]]:
        """The expressions of `conform` for each column: a cast if it is present, else null."""
        return {
            name: (pl.col(name).cast(dtype), pl.lit(None, dtype=dtype).alias(name))
            for name, dtype in self.dtypes.items()
        }


class Columns:
    """Base of the classes that declare a frame; a subclass has the columns of its bases first.

    The docstring says what a row is. An attribute is a column of that name, or of the
    ``name`` that it is given, for placeholders such as ``<by>``. An attribute that is another
    such class stands for all of its columns.

    Parameters
    ----------
    key : tuple of str
        Names of the columns that identify a row; not inherited.
    name : str
        Name of the frame, where it is not that of the class in lower case.
    """

    _name = ""
    _key: tuple[str, ...] = ()

    def __init_subclass__(cls, *, key: tuple[str, ...] = (), name: str = "") -> None:
        cls._key = key
        cls._name = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()


def frame(columns: type[Columns]) -> Frame:
    """The frame that a class declares.

    Parameters
    ----------
    columns : subclass of Columns

    Returns
    -------
    Frame
        Its ``row`` is the first paragraph of the docstring.
    """
    declared: dict[str, Column] = {}
    for base in reversed(columns.__mro__):
        for attribute, column in vars(base).items():
            if isinstance(column, Column):
                name = column.name or attribute
                declared[name] = replace(column, name=name)
            elif isinstance(column, type) and issubclass(column, Columns):
                declared |= {part.name: part for part in frame(column).columns}
    # With -OO Python has no docstrings.
    row = " ".join((inspect.getdoc(columns) or columns._name).partition("\n\n")[0].split())
    return Frame(
        columns._name,
        row[0].lower() + row[1:].removesuffix("."),
        columns._key,
        tuple(declared.values()),
    )


@dataclass(frozen=True)
class ColumnOf:
    """Declares columns of one dtype."""

    dtype: pl.DataType

    def __call__(
        self, meaning: str, *, unit: str = "", name: str = "", read_from: str = ""
    ) -> Column:
        """Declare a column; ``read_from`` has ``|`` between the keys of a record."""
        keys = tuple(read_from.split("|")) if read_from else ()
        return Column(name, self.dtype, meaning, unit, keys)


Text, Integer, Real, YesNo = ColumnOf(TEXT), ColumnOf(INTEGER), ColumnOf(REAL), ColumnOf(YES_NO)
Moment, Day, Texts = ColumnOf(MOMENT), ColumnOf(pl.Date()), ColumnOf(pl.List(TEXT))
Anything = ColumnOf(pl.Unknown())
"""For a column whose dtype is that of a column of another frame."""


def Words(vocabulary: Iterable[str], meaning: str, **described: str) -> Column:  # noqa: N802
    """Declare a column with one of a few words, which sort in this order."""
    return ColumnOf(pl.Enum(list(vocabulary)))(meaning, **described)


def words_of_columns(schema: Mapping[str, pl.DataType]) -> dict[str, list[str]]:
    """The words of each column that has a vocabulary, in their order."""
    return {
        name: dtype.categories.to_list()
        for name, dtype in schema.items()
        if isinstance(dtype, pl.Enum)
    }


SHAPE = dict.fromkeys(("frame", "column", "dtype", "unit", "meaning"), TEXT)


def data_dictionary(
    frames: Iterable[Frame],
    *,
    raw: Mapping[str, Sequence[str]] | None = None,
    left_out: Mapping[str, Sequence[str]] | None = None,
    own: Mapping[str, pl.DataFrame] | None = None,
) -> pl.DataFrame:
    """One row for every column of every frame.

    Parameters
    ----------
    frames : iterable of Frame
        Documented frames, in the order to show them.
    raw : mapping of str to sequence of str, optional
        Raw tables with their columns; their types are known once they are read.
    left_out : mapping of str to sequence of str, optional
        Columns of raw tables that hold bodies and are not read.
    own : mapping of str to polars.DataFrame, optional
        Tables of the user.

    Returns
    -------
    polars.DataFrame, shape (n_columns, 5)
        ``frame``, ``column``, ``dtype``, ``unit``, ``meaning``.

    Examples
    --------
    >>> from stateanalytics.core.schema import REASONS
    >>> data_dictionary([REASONS]).row(0)
    ('reasons', 'source', 'text', '', 'the input this row came from, as it was named to `read`')
    """
    rows = [
        (frame.name, column.name, dtype_name(column.dtype), column.unit, column.meaning)
        for frame in frames
        for column in frame.columns
    ]
    for name, columns in (raw or {}).items():
        rows += [(name, column, "", "", _meaning(name, column)) for column in columns]
    for name, columns in (left_out or {}).items():
        rows += [
            (name, column, "", "", "not read: `read(…, bodies=True)`, or `--bodies`")
            for column in columns
        ]
    for name, frame in (own or {}).items():
        rows += [
            (name, column, dtype_name(dtype), "", "of a table of yours")
            for column, dtype in frame.schema.items()
        ]
    return pl.DataFrame(rows, schema=SHAPE, orient="row")


def dtype_name(dtype: pl.DataType) -> str:
    """A dtype in a word that says what it is for.

    Examples
    --------
    >>> dtype_name(pl.Enum(["low", "high"])), dtype_name(pl.Datetime("us", "UTC"))
    ('one of 2 words', 'moment')
    """
    if isinstance(dtype, pl.Enum):
        return f"one of {len(dtype.categories)} words"
    if isinstance(dtype, pl.Datetime):
        return "moment"
    names: dict[object, str] = {
        pl.String: "text",
        pl.Int64: "integer",
        pl.Float64: "float",
        pl.Boolean: "yes/no",
        pl.Date: "day",
        pl.List: "list",
        pl.Unknown: "any",
    }
    return names.get(dtype.base_type(), str(dtype))


_TITLE = """\
# Schema

Every table that `snap.sql` and `stateanalytics sql` can name, then every frame that only a
function returns, such as `failures.clusters`. Each table of the stores comes on top as
`raw_…`, as it was stored. A name in angle brackets stands for columns that the call chooses:
`<by>` for those that its `by` names. Written from the code by `make docs`.

Moments are in UTC and end in `_at`; durations are float seconds and end in `_s`; counts
start with `n_`; yes/no columns with `is_` or `has_`; ids are text; **null means not
known**. Words of a vocabulary sort by their rank: `severity <= 'warning'::severity`."""


def as_markdown(frames: Iterable[Frame], *, is_whole: bool = True) -> str:
    """The schema as a page: what a row is, its key, a table of columns, each vocabulary."""
    frames = list(frames)
    # Markdown removes dots from the anchors of headings.
    links = [
        f"- [`{frame.name}`](#{frame.name.replace('.', '')}): {_cell(frame.row)}"
        for frame in frames
    ]
    head = [_TITLE, "\n".join(links)] if is_whole else []
    return "\n\n".join([*head, *map(_section, frames)]) + "\n"


def _section(frame: Frame) -> str:
    key = f" Key: {', '.join(f'`{name}`' for name in frame.key)}." if frame.key else ""
    lines = [
        f"## {frame.name}",
        "",
        f"A row is {_cell(frame.row)}.{key}",
        "",
        "| column | type | unit | meaning |",
        "|---|---|---|---|",
        *(
            f"| `{column.name}` | {dtype_name(column.dtype)} | {column.unit} | "
            f"{_cell(column.meaning)} |"
            for column in frame.columns
        ),
    ]
    words = [
        f"- `{column.name}`: " + ", ".join(f"`{word}`" for word in column.dtype.categories)
        for column in frame.columns
        if isinstance(column.dtype, pl.Enum)
    ]
    return "\n".join(
        [*lines, *(["", "Words, in the order they sort in:", ""] if words else []), *words]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _meaning(table: str, column: str) -> str:
    if column == "store":
        return "the input this row came from, as it was named to `read`"
    return "as stored" + (", epoch seconds" if column.endswith("_at") or column == "ts" else "")
