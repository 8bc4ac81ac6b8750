"""Columns of JSON text: which cells are none, and which were encoded twice.

DuckDB's parser checks a million cells in the time that SQLite's needs for a tenth of
them. It is more lenient than the standard, so that the few cells with words that it
lets pass (``NaN``, ``Infinity``) are parsed again strictly, and so are those with so
many brackets that they may be nested deeper than readers can follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stateanalytics.io.cells import problem

FEW = 10_000  # cells
LONG, MANY = 1000, 200  # bytes, brackets
# Brackets are only counted where there is room for many.
_DOUBTFUL = (
    "contains({c}, 'NaN') OR contains({c}, 'Infinity') OR CASE WHEN strlen({c}) > "
    f"{LONG} THEN strlen({{c}}) - strlen(replace(replace({{c}}, '[', ''), '{{{{', '')) > {MANY} END"
)
_COUNTS = (
    "count(*) FILTER (NOT json_valid({c})), count(*) FILTER (starts_with({c}, '\"')), "
    f"count(*) FILTER ({_DOUBTFUL})"
)
# A string that holds an object or a list was encoded once too often.
_INNER = "json_extract_string({c}, '$')"
_DECODED = f"""SELECT {{c}} AS raw, json_valid({{c}}) AS is_json,
  CASE WHEN NOT json_valid({{c}}) THEN NULL
  WHEN json_type({{c}}) <> 'VARCHAR' OR NOT json_valid({_INNER}) THEN {{c}}
  WHEN json_type({_INNER}) IN ('OBJECT', 'ARRAY') THEN {_INNER}
  WHEN json_type({_INNER}) = 'NULL' THEN NULL ELSE {{c}} END AS decoded
FROM cells"""


def checked(
    frame: pl.DataFrame, columns: Sequence[str]
) -> tuple[pl.DataFrame, list[dict[str, object]]]:
    """Set what is no JSON to null, and decode what was encoded twice.

    Parameters
    ----------
    frame : polars.DataFrame, shape (n_rows, n_columns)
        Rows with text columns.
    columns : sequence of str
        Those that should hold JSON.

    Returns
    -------
    frame : polars.DataFrame, shape (n_rows, n_columns)
        The same rows and columns.
    problems : list of dict
        ``cell.not_json`` and ``cell.double_encoded`` per column, as `cells.problem`.

    Examples
    --------
    >>> frame = pl.DataFrame({"a": ['{"b": 1}', '{"b": ', '"[1]"', None]})
    >>> frame, problems = checked(frame, ["a"])
    >>> frame["a"].to_list()
    ['{"b": 1}', None, '[1]', None]
    >>> [(problem["code"], problem["n_rows"]) for problem in problems]
    [('cell.not_json', 1), ('cell.double_encoded', 1)]
    """
    columns = [name for name in columns if not _are_few_and_fine(frame[name])]
    if not columns:
        return frame, []
    import duckdb

    config = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    problems: list[dict[str, object]] = []
    mended: dict[str, pl.Series] = {}
    names = {name: f"k{i}" for i, name in enumerate(columns)}
    with duckdb.connect(config={**config, "python_enable_replacements": "false"}) as connection:
        connection.register("cells", frame.select(columns).rename(names).to_arrow())
        asked = ", ".join(_COUNTS.format(c=c) for c in names.values())
        counts = connection.sql(f"SELECT {asked} FROM cells").fetchall()[0]
        for i, (name, c) in enumerate(names.items()):
            n_bad, n_strings, n_doubtful = counts[3 * i : 3 * i + 3]
            if n_bad or n_strings or n_doubtful:
                cells = pl.DataFrame(connection.sql(_DECODED.format(c=c)).to_arrow_table())
                mended[name], found = _mended(name, cells)
                problems += found
    return frame.with_columns(**mended), problems


def _are_few_and_fine(cells: pl.Series) -> bool:
    """Are there so few cells that the strict parser is done before DuckDB has begun."""
    if cells.len() - cells.null_count() > FEW:
        return False
    cells = cells.drop_nulls()
    parsed = cells.str.json_path_match("$")
    return parsed.null_count() == 0 and not cells.str.starts_with('"').any()


def _mended(name: str, cells: pl.DataFrame) -> tuple[pl.Series, list[dict[str, object]]]:
    """One column of documents, and what became of the cells that were none."""
    document = pl.col("decoded")
    is_long = document.str.len_bytes() > LONG
    has_many = document.str.count_matches(r"[\[{]") > MANY
    doubtful = document.str.contains("NaN|Infinity") | (is_long & has_many)
    cells = cells.with_row_index()
    strict = cells.filter(doubtful).select(
        "index", is_strict=document.str.json_path_match("$").is_not_null()
    )
    cells = (
        cells.join(strict, on="index", how="left", maintain_order="left")
        .with_columns(is_bad=~pl.col("is_json") | ~pl.col("is_strict").fill_null(True))
        .with_columns(kept=pl.when(~pl.col("is_bad")).then(document))
    )
    bad = cells.filter("is_bad")["raw"].drop_nulls()
    twice = cells.filter(~pl.col("is_bad"), pl.col("kept").ne_missing(pl.col("raw")))["raw"]
    problems = []
    if bad.len():
        problems.append(
            problem("cell.not_json", name, bad.len(), "text that is not JSON", str(bad.min()))
        )
    if twice.len():
        found = problem(
            "cell.double_encoded", name, twice.len(), "JSON inside a JSON string", str(twice.min())
        )
        problems.append(found | {"severity": "info", "action": "decoded once more"})
    return cells["kept"].alias(name), problems
