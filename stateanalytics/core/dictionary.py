"""The documented schema: every table, column, type, unit and meaning, from the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from stateanalytics.core.schema import Frame

SHAPE = {
    "frame": pl.String(),
    "column": pl.String(),
    "dtype": pl.String(),
    "unit": pl.String(),
    "meaning": pl.String(),
}


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
    links = [f"- [`{frame.name}`](#{frame.name}): {_cell(frame.row)}" for frame in frames]
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
