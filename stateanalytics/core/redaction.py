"""Mask text that looks like a secret, in texts and frames.

Keys of services are recognised by their beginning, which services publish for scanners. All other
secrets are recognised by the text before them: a name, a flag, a header or a link. Random-looking
text alone is not masked, because that would mask hashes and ids.

One regular expression first searches for the beginnings of all shapes. Only texts with a match
are searched shape by shape. The regex engine never backtracks, so hostile text takes no longer.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import polars as pl

from stateanalytics.core.package_tables import package_text, table_rows
from stateanalytics.core.text import ANSI, UNSEEN, visible

#: Service -> the shape of its keys. Directly before a key there may be a word that ends in ``_``.
SERVICE_KEYS = {
    row["service"]: row["shape"] for row in table_rows("stateanalytics.core", "service_keys.csv")
}

_TABLE = tomllib.loads(package_text("stateanalytics.core", "secrets.toml"))
#: Kind of secret -> its placeholder.
PLACEHOLDERS: dict[str, str] = _TABLE["placeholders"]
# While a text is processed, each masked secret is one private-use character for its kind. No shape
# matches across one, so nothing is masked twice and earlier masks are kept.
MARKS = {kind: chr(0xE0F0 + place) for place, kind in enumerate(PLACEHOLDERS)}
#: The mark before text that must stay readable although a shape would match it.
READABLE = "\ue0ff"
ANY_MARK = "\ue0f0-\ue0ff"

# The beginnings of keys: repetitions are shortened to one or more characters.
_STEMS = (re.sub(r"\{\d+(?:,\d*)?\}", "+", keys) for keys in SERVICE_KEYS.values())
_PARTS = {
    "ANY_MARK": ANY_MARK,
    "SERVICE_KEYS": "|".join(SERVICE_KEYS.values()),
    "STEMS": "|".join(_STEMS),
}


def _filled(pattern: str | list[str]) -> str:
    """A pattern with the parts that it names."""
    return re.sub("<<([A-Z_]+)>>", lambda part: _PARTS[part[1]], "".join(pattern))


for _name, _pattern in _TABLE["parts"].items():
    _PARTS[_name] = _filled(_pattern)
SHAPES = tuple((row["kind"], _filled(row["pattern"])) for row in _TABLE["shape"])
KEPT_READABLE = tuple(_filled(row["pattern"]) for row in _TABLE["readable"])
HINTS = tuple(_filled(row["pattern"]) for row in _TABLE["hint"])


def as_pairs(column: pl.Series) -> pl.Series:
    """The column with maps, however deep, as lists of ``key`` and ``value``.

    Examples
    --------
    >>> maps = pl.Series("n", [{"a": 1}], dtype=pl.Map(pl.String, pl.Int64))
    >>> as_pairs(maps).to_list()
    [[{'key': 'a', 'value': 1}]]
    """
    if not column.dtype.is_nested():
        return column
    dtype = _without_maps(column.dtype)
    return column if dtype == column.dtype else column.cast(dtype)


def _without_maps(dtype: Any) -> pl.DataType:
    match dtype:
        case pl.Map():
            pair = {"key": _without_maps(dtype.key), "value": _without_maps(dtype.value)}
            return pl.List(pl.Struct(pair))
        case pl.List():
            return pl.List(_without_maps(dtype.inner))
        case pl.Struct():
            return pl.Struct({field.name: _without_maps(field.dtype) for field in dtype.fields})
    known: pl.DataType = dtype
    return known


_HINT = "|".join(HINTS)
_MARK = "[" + "".join(MARKS.values()) + "]"
# The longest first, because some placeholders begin with another one.
_BY_LENGTH = sorted(PLACEHOLDERS, key=lambda kind: -len(PLACEHOLDERS[kind]))


def redact(frame: pl.DataFrame) -> tuple[pl.DataFrame, Counter[str]]:
    """Mask what looks like a secret in a frame, and count how many of each kind were masked.

    Parameters
    ----------
    frame : polars.DataFrame
        Any. Every text is looked at, inside lists and structs as well.

    Returns
    -------
    tuple of polars.DataFrame and Counter
        The same rows and columns. In a text, a secret is replaced by the placeholder of its kind,
        such as ``[API key]``, always the same; everything else stays, except that a map becomes a
        list of its pairs (in a map, keys with the same mask would be one). The kinds that are
        counted are the keys of `stateanalytics.core.redaction.PLACEHOLDERS`.

    Notes
    -----
    Secrets are recognised by format, not by meaning: a password in prose that looks like a word
    stays. Redacting twice is redacting once. Time grows with the length of the text.

    Examples
    --------
    >>> import polars as pl
    >>> messages = pl.DataFrame({"message": ["DB_PASS=hunter2 for ann@example.org", "exit code 1"]})
    >>> masked, n_masked = redact(messages)
    >>> masked["message"].to_list()
    ['DB_PASS=[secret] for [e-mail]', 'exit code 1']
    >>> sorted(n_masked.items())
    [('e-mail address', 1), ('named secret', 1)]
    """
    n_masked: Counter[str] = Counter()
    columns = []
    for column in frame.get_columns():
        masked, n_in_column = redact_column(column)
        columns.append(masked)
        n_masked += n_in_column
    return pl.DataFrame(columns, height=frame.height), n_masked


def redact_with_names(frame: pl.DataFrame) -> tuple[pl.DataFrame, Counter[str]]:
    """As `redact`, for the names of columns as well, which in raw tables come from a store."""
    masked, n_masked = redact(frame)
    return masked.rename(
        dict(zip(frame.columns, redact_names(frame.columns), strict=True))
    ), n_masked


def redact_names(names: Sequence[str]) -> list[str]:
    """Names without secrets and invisible characters, made unique.

    Examples
    --------
    >>> redact_names(["id", "sk-abcdefghijklmnopqrst", "sk-abcdefghijklmnopqrsu"])
    ['id', '[API key]', '[API key]_1']
    """
    shown = [visible(name) for name in redact_texts(pl.Series(names, dtype=pl.String))[0]]
    # Names without a change keep their name; changed names get another one if it is taken.
    taken = {name.casefold() for name, was in zip(shown, names, strict=True) if name == was}
    apart = []
    for name, was in zip(shown, names, strict=True):
        free, number = name, 0
        while name != was and free.casefold() in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free.casefold())
        apart.append(free)
    return apart


def redact_column(column: pl.Series) -> tuple[pl.Series, Counter[str]]:
    """A column of any type without what looks like a secret, and how many of each kind."""
    column = as_pairs(column)
    dtype = column.dtype
    if dtype == pl.String:
        return redact_texts(column)
    if dtype == pl.Categorical:
        masked, n_masked = redact_texts(column.cast(pl.String))
        return (masked.cast(dtype) if n_masked else column), n_masked
    if not dtype.is_nested() or not column.len():
        return column, Counter()
    if isinstance(dtype, pl.Struct):
        fields, n_masked = redact(column.struct.unnest())
        whole = fields.to_struct(column.name)
        is_null = column.is_null()
        return (whole.set(is_null, None) if is_null.any() else whole), n_masked
    listed = column.cast(pl.List(dtype.inner)) if isinstance(dtype, pl.Array) else column
    rows = listed.alias("was").to_frame().with_row_index("at")
    values = rows.filter(pl.col("was").list.len() > 0).explode("was")
    masked, n_masked = redact_column(values["was"])
    if not n_masked:
        return column, n_masked
    lists = values.select("at", now=masked).group_by("at", maintain_order=True).agg("now")
    joined = rows.join(lists, on="at", how="left", maintain_order="left")
    both = joined.select(pl.coalesce("now", "was").cast(dtype).alias(column.name))
    return both.to_series(), n_masked


def redact_texts(texts: pl.Series) -> tuple[pl.Series, Counter[str]]:
    """Texts without what looks like a secret, and how many of each kind; null stays null.

    Examples
    --------
    >>> redact_texts(pl.Series(["key sk-abcdefghijklmnopqrst", None]))[0].to_list()
    ['key [API key]', None]
    """
    found = texts.filter(texts.str.contains(_HINT) | texts.str.contains(UNSEEN))
    if not found.len():
        return texts, Counter()
    counted = found.alias("text").value_counts(name="n_times")
    both = pl.concat([counted, _masked(counted["text"])], how="horizontal")
    changed = both.filter(pl.any_horizontal(pl.col(*MARKS) > 0))
    if not changed.height:
        return texts, Counter()
    sums = changed.select((pl.col(*MARKS) * pl.col("n_times")).sum()).row(0, named=True)
    left = texts.replace(changed["text"], changed["masked"])
    return left, Counter({kind: n for kind, n in sums.items() if n})


def _masked(texts: pl.Series) -> pl.DataFrame:
    """``masked``, and for each kind a column with the number of masked secrets."""
    marked = texts.alias("was").to_frame().select(was=_with_marks(pl.col("was")))
    marked = marked.with_columns(now=_without_secrets(pl.col("was")))
    # Escape sequences and invisible characters inside a secret could hide it from a shape.
    is_hiding = marked["now"].str.contains(UNSEEN)
    seen = pl.col("now").str.replace_all(ANSI, "").str.replace_all(UNSEEN, "")
    if is_hiding.any():
        # Most escape sequences are colours in a text without a secret, so this is checked first.
        is_hiding &= marked.select(seen.str.contains(_HINT)).to_series()
    if is_hiding.any():
        # As a column, because polars compiles the shapes again for each expression that uses them.
        bare = marked.filter(is_hiding).with_columns(seen=_without_secrets(seen))
        n_seen, n_now = (pl.col(name).str.count_matches(_MARK) for name in ("seen", "now"))
        bare = bare.select(pl.when(n_seen > n_now).then("seen").otherwise("now"))
        marked = marked.with_columns(
            marked["now"].scatter(is_hiding.arg_true(), bare.to_series()).alias("now")
        )
    shown = pl.col("now").str.replace_all(READABLE, "", literal=True)
    for kind, mark in MARKS.items():
        shown = shown.str.replace_all(mark, PLACEHOLDERS[kind], literal=True)
    n_of = {kind: (_n(mark, "now") - _n(mark, "was")).clip(0) for kind, mark in MARKS.items()}
    return marked.select(masked=shown, **n_of)


def _with_marks(text: pl.Expr) -> pl.Expr:
    """Replace placeholders by marks, so that they are kept; marks in the text are removed."""
    text = text.str.replace_all(f"[{ANY_MARK}]", "\ufffd")
    for kind in _BY_LENGTH:
        text = text.str.replace_all(PLACEHOLDERS[kind], MARKS[kind], literal=True)
    return text


def _without_secrets(text: pl.Expr) -> pl.Expr:
    for shape in KEPT_READABLE:
        text = text.str.replace_all(shape, f"${{1}}{READABLE}${{2}}")
    for kind, shape in SHAPES:
        text = text.str.replace_all(shape, f"${{1}}{MARKS[kind]}${{2}}")
    return text


def _n(mark: str, column: str) -> pl.Expr:
    return pl.col(column).str.count_matches(mark, literal=True).cast(pl.Int64)
