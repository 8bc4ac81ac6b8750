"""Everything that SQL over a snapshot can name, each table loaded when it is first named.

Canonical frames hold meanings; raw tables hold what is stored, column by column. SQLite types
values and not columns, so a raw column gets the type that all its cells have in all stores, and
text where they differ: no value is lost by a cast. Moments stay epoch seconds.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import narwhals as nw
import polars as pl

from stateanalytics import questions
from stateanalytics.auditing import all_findings, audit
from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.redaction import as_pairs, redact_names, redact_with_names
from stateanalytics.core.schema import CALLS, Frame
from stateanalytics.core.shapes import data_dictionary
from stateanalytics.errors import ArgumentError, in_short
from stateanalytics.errors import found as kind_of
from stateanalytics.failures.call_outcomes import recorded
from stateanalytics.failures.clustering import count_clusters
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.frames import EFFORT, FAILURE_CLUSTERS, FAILURES
from stateanalytics.io.budget import MAX_OWN_COLUMNS, on_disk, spending
from stateanalytics.io.cells import Cell
from stateanalytics.io.files import open_regular, read_parquet, unreadable
from stateanalytics.io.sqlite import Store
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.io.sqlite_tables import read_table
from stateanalytics.queries import judged_effort
from stateanalytics.sql.frames import COLUMNS, ERROR_COUNTS, REASON_CODES, SNAPSHOT, TABLES, VIEWS
from stateanalytics.sql.running import Table
from stateanalytics.state import definitions
from stateanalytics.state.attention import ATTENTION, attention_items
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.state.reasons import reason_codes, reasons_of
from stateanalytics.state.states import evaluate_once, states_of
from stateanalytics.systems import detail_frames
from stateanalytics.systems.linking import LINKS, links
from stateanalytics.weekly import WEEKS, weekly_numbers

PREFIX = "raw_"
STORE = "store"
"""Name of the column with the input that a row came from; `source` is taken in some tables."""

BODIES: Mapping[str, frozenset[str]] = {
    "artifacts": frozenset({"content"}),
    "branches": frozenset({"node_metadata"}),
    "dispatch_outbox": frozenset({"payload", "ack_token"}),
    "invocations": frozenset({"prompt"}),
    "messages": frozenset({"content", "node_metadata", "embedding"}),
    "session_controls": frozenset({"payload", "result"}),
    "session_signals": frozenset({"payload"}),
    "team_messages": frozenset({"content", "summary"}),
}
"""Columns with texts of people and models, or keys: only read on request."""


def raw_columns(stores: Sequence[Store], *, bodies: bool) -> dict[str, tuple[str, ...]]:
    """The columns of each raw table, over all stores, in the order they were first seen."""
    return {
        PREFIX + table: (STORE, *(name for name in columns if _is_wanted(table, name, bodies)))
        for table, columns in _stored_columns(stores).items()
    }


def unread_columns(stores: Sequence[Store], *, bodies: bool) -> dict[str, tuple[str, ...]]:
    """The columns of each raw table that are not read without bodies."""
    unread = {
        PREFIX + table: sorted(name for name in columns if not _is_wanted(table, name, bodies))
        for table, columns in _stored_columns(stores).items()
    }
    return {name: tuple(columns) for name, columns in unread.items() if columns}


def _stored_columns(stores: Sequence[Store]) -> dict[str, dict[str, None]]:
    """The columns of each table, by its name, over all stores."""
    seen: dict[str, dict[str, None]] = {}
    for store in stores:
        for table, columns in store.tables.items():
            seen.setdefault(table, {}).update(dict.fromkeys(columns))
    return dict(sorted(seen.items()))


def read_raw_table(stores: Sequence[Store], name: str, *, bodies: bool) -> pl.DataFrame:
    """One raw table of all stores, stacked by the names of its columns.

    Parameters
    ----------
    stores : sequence of Store
        Open stores. One that lacks the table adds no rows; a column it lacks is null.
    name : str
        ``raw_`` and the name of the table.
    bodies : bool
        Whether `BODIES` are read too.

    Returns
    -------
    polars.DataFrame
        ``store`` (how the input was named), then the table's columns: integers, floats or
        text, whichever all cells are; bytes as text in hexadecimal.
    """
    table = name.removeprefix(PREFIX)
    columns = raw_columns(stores, bodies=bodies)[name][1:]
    having = [store for store in stores if table in store.tables]
    kinds = _kinds(having, table, columns)
    cells = {column: _cell(column, kinds[column]) for column in columns}
    return pl.concat(
        pl.select(pl.lit(store.label).alias(STORE)).join(
            read_table(store, table, cells)[0], how="cross"
        )
        for store in having
    )


def _is_wanted(table: str, column: str, bodies: bool) -> bool:
    # A name that differs only by case, or is ours, would be another column in SQL.
    return column.casefold() != STORE and (bodies or column not in BODIES.get(table, ()))


_GROUP = 500  # columns in one expression, of which SQLite nests no more than 1,000
_TYPES = {"i": "integer", "r": "real", "t": "text", "b": "blob"}


def _kinds(stores: Iterable[Store], table: str, columns: Sequence[str]) -> dict[str, str]:
    """The kind of each column; ``mixed`` where its cells differ."""
    seen: dict[str, set[str]] = {column: set() for column in columns}
    for store in stores:
        here = [column for column in columns if column in store.tables[table]]
        groups = [here[i : i + _GROUP] for i in range(0, len(here), _GROUP)]
        words, _ = read_table(
            store, table, {str(i): _letters(group) for i, group in enumerate(groups)}
        )
        for group, letters in zip(groups, words.get_columns(), strict=True):
            for word in letters.drop_nulls().unique():
                for column, letter in zip(group, word, strict=True):
                    seen[column].add(letter)
    return {column: _kind(letters - {"n"}) for column, letters in seen.items()}


def _letters(columns: Sequence[str]) -> Cell:
    """One letter a column: a scan gives few distinct words, however many rows."""
    letters = " || ".join(f"substr(typeof({quoted(column)}), 1, 1)" for column in columns)
    return Cell("text", letters, tuple(columns))


def _kind(letters: set[str]) -> str:
    if letters == {"i", "r"}:
        return "real"
    return _TYPES[next(iter(letters))] if len(letters) == 1 else "mixed" if letters else "text"


def _cell(column: str, kind: str) -> Cell:
    if kind in ("integer", "real", "text"):
        return Cell(kind, quoted(column), (column,))  # type: ignore[arg-type]
    as_text = (
        f"CASE typeof({quoted(column)}) WHEN 'blob' THEN hex({quoted(column)}) "
        f"ELSE CAST({quoted(column)} AS TEXT) END"
    )
    return Cell("text", as_text, (column,))


FRAMES: tuple[Frame, ...] = (
    *schema.FRAMES.values(),
    *detail_frames().values(),
    *(ATTENTION, LINKS, schema.PHANTOMS, schema.CALLS, schema.SIGNS),
    *(EFFORT, FAILURES, FAILURE_CLUSTERS, WEEKS),
    *(view.frame for view in VIEWS),
    *(REASON_CODES, ERROR_COUNTS, SNAPSHOT, TABLES, COLUMNS),
)
"""Every documented table; raw tables come on top."""


def tables_of(
    facts: Facts,
    stores: Sequence[Store] = (),
    *,
    policy: Policy | None = None,
    bodies: bool = False,
    own: Mapping[str, pl.DataFrame] | None = None,
) -> Mapping[str, Table]:
    """The tables that queries over these facts may name.

    Parameters
    ----------
    facts : Facts
        Canonical frames, and as-of.
    stores : sequence of Store
        Open stores, for raw tables.
    policy : Policy, optional
        For ``states``, ``reasons``, ``attention`` and ``phantoms``; v1 by default.
    bodies : bool
        Whether raw tables show texts of people and models.
    own : mapping of str to polars.DataFrame, optional
        Tables of the user, from `own_tables.own_table`.

    Returns
    -------
    mapping of str to Table
        Derived and raw tables are computed once, when a query first names them.
    """
    policy, own = policy or Policy.v1(), own or {}
    # A directory may have brought along databases of something else.
    stores = [store for store in stores if store.label in set(facts.sources["source"])]
    raw = raw_columns(stores, bodies=bodies)
    unread = unread_columns(stores, bodies=bodies)
    loaders = {
        **_derived(facts, policy),
        REASON_CODES.name: lambda: REASON_CODES.conform(reason_codes()),
        ERROR_COUNTS.name: lambda: _error_counts(facts),
        SNAPSHOT.name: lambda: _snapshot_row(facts, policy, bodies),
        TABLES.name: lambda: _table_list(raw, own),
        COLUMNS.name: lambda: data_dictionary(FRAMES, raw=raw, left_out=unread, own=own),
    }
    return {
        **{name: _table(name, load) for name, load in loaders.items()},
        **{view.frame.name: Table(tuple(view.frame.dtypes), view=view.sql) for view in VIEWS},
        **{
            name: Table(
                columns,
                left_out=unread.get(name, ()),
                load=functools.cache(
                    functools.partial(read_raw_table, stores, name, bodies=bodies)
                ),
            )
            for name, columns in raw.items()
        },
        **tables_of_own(own),
    }


def _derived(facts: Facts, policy: Policy) -> dict[str, Callable[[], pl.DataFrame]]:
    """What is computed from the facts: the states once, whichever tables need them."""
    evaluated = functools.cache(lambda: evaluate_once(facts, "states", policy=policy))
    states = functools.cache(lambda: states_of(evaluated()))
    reasons = functools.cache(lambda: reasons_of(evaluated()))
    rows = functools.cache(lambda: rows_of(facts, states=states()))
    failed = functools.cache(lambda: find_members(facts, rows=rows()))
    audited = functools.cache(lambda: audit(facts, policy=policy, states=states()))
    shared = {"states": states, "rows": rows}
    return {
        **{
            question.table: functools.partial(_answer, question, facts, policy, shared)
            for question in questions.QUESTIONS
            if question.table and question.function
        },
        **{frame.name: functools.partial(getattr, facts, frame.name) for frame in schema.FACTS},
        **{
            frame.name: functools.partial(facts.detail, frame) for frame in detail_frames().values()
        },
        schema.STATES.name: states,
        schema.REASONS.name: reasons,
        FAILURES.name: lambda: FAILURES.conform(failed()),
        FAILURE_CLUSTERS.name: lambda: FAILURE_CLUSTERS.conform(
            count_clusters(failed(), window=None, as_of=facts.as_of)
        ),
        WEEKS.name: lambda: weekly_numbers(facts, policy=policy),
        schema.AUDIT.name: audited,
        schema.FINDINGS.name: lambda: all_findings(facts, states(), audited()),
        ATTENTION.name: lambda: attention_items(
            facts, states(), reasons(), policy=policy, efforts=judged_effort(facts, policy)
        ),
        LINKS.name: lambda: links(facts.entities),
    }


def _answer(
    question: questions.Question,
    facts: Facts,
    policy: Policy,
    shared: Mapping[str, Callable[[], pl.DataFrame]],
) -> pl.DataFrame:
    """The answer of a question for all time; states and rows are shared where it takes them."""
    function = question.answer()
    # Rows are derived from states, so that a function that takes both needs rows only.
    derived = question.accepted({name: shared[name] for name in ("rows", "states")})
    given = {name: make() for name, make in list(derived.items())[:1]}
    result = function(facts, **given, **question.accepted({"policy": policy}))
    frame: pl.DataFrame = getattr(result, question.part) if question.part else result
    return frame


_DTYPES = {frame.name: frame.dtypes for frame in FRAMES}


def _table(name: str, load: Callable[[], pl.DataFrame]) -> Table:
    return Table(tuple(_DTYPES.get(name, ())), load=functools.cache(load))


def _error_counts(facts: Facts) -> pl.DataFrame:
    """The answers and the errors of tools in each session, by its calls."""
    counted = (
        recorded(facts, CALLS)
        .filter(pl.col("ended_at").is_not_null())
        .group_by("source", "system", "session_id", maintain_order=True)
        .agg(
            n_tool_answers=pl.len(),
            n_tool_errors=pl.col("outcome").is_in(definitions.FAILURES).sum(),
            n_pruned=(pl.col("outcome") == "unknown").sum(),
        )
    )
    return ERROR_COUNTS.conform(counted)


def _snapshot_row(facts: Facts, policy: Policy, bodies: bool) -> pl.DataFrame:
    row = {
        "as_of": facts.as_of,
        "as_of_from": facts.as_of_from,
        "policy_version": policy.version,
        "slow_after_s": policy.slow_after_s,
        "n_sources": facts.sources.height,
        "has_bodies": bodies,
    }
    return pl.DataFrame([row], schema=SNAPSHOT.dtypes)


def _table_list(raw: Mapping[str, Sequence[str]], own: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    rows = [(frame.name, frame.row, ", ".join(frame.key)) for frame in FRAMES]
    rows += [
        (question.table, f"one row of {question.gives}", "")
        for question in questions.QUESTIONS
        if question.table and question.table not in _DTYPES
    ]
    rows += [(name, "one row as it is stored", "") for name in raw]
    rows += [(name, "one row of a table of yours", "") for name in own]
    return pl.DataFrame(rows, schema=TABLES.dtypes, orient="row")


_OWN_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_READERS: Mapping[str, Callable[[IO[bytes], os.stat_result], pl.DataFrame]] = {
    ".csv": lambda file, _: pl.read_csv(file, infer_schema_length=None, try_parse_dates=True),
    ".parquet": read_parquet,
    ".json": lambda file, _: pl.read_json(file.read(), infer_schema_length=None),
    ".jsonl": lambda file, _: pl.read_ndjson(file, infer_schema_length=None),
}
_HINT = 'snap.with_table("teams", "teams.csv"), or a frame instead of the file'
_IN_SHELL = "--table teams=teams.csv"


def own_table(name: str, rows: Any, known: Collection[str]) -> pl.DataFrame:
    """The rows of a user's own table, as SQL can name them.

    Parameters
    ----------
    name : str
        Small letters, digits and ``_``, at most 31.
    rows : frame, str or pathlib.Path
        A frame of polars, pandas or Arrow, or a CSV, Parquet or JSON file.
    known : collection of str
        Names that are taken.

    Raises
    ------
    ArgumentError
        If the name is taken or invalid, or the rows are not a table.
    """
    if not isinstance(name, str) or not _OWN_NAME.fullmatch(name) or name.startswith("raw_"):
        raise ArgumentError(
            f"A table cannot be called {in_short(name)}.",
            "begin with a small letter, then small letters, digits and _, at most 31 in all; "
            "raw_ is for tables of stores",
        )
    if name in known:
        raise ArgumentError(f"There is a table {name!r} already.", "give yours another name")
    frame = _read_own(rows) if isinstance(rows, str | Path) else _as_polars(rows)
    if frame.width > MAX_OWN_COLUMNS:
        raise ArgumentError(
            f"Table {name!r} has {frame.width:,} columns; your own table may have at most "
            f"{MAX_OWN_COLUMNS:,}.",
            "keep the columns that are needed",
        )
    if not frame.width:
        raise ArgumentError(f"Table {name!r} has no columns.", _HINT, shell=_IN_SHELL)
    folded = Counter(column.casefold() for column in frame.columns)
    if same := [column for column in frame.columns if folded[column.casefold()] > 1]:
        raise ArgumentError(
            f"Columns of table {name!r} are the same in SQL: {', '.join(map(repr, same[:4]))}.",
            "rename them",
        )
    if objects := [column for column, dtype in frame.schema.items() if dtype == pl.Object]:
        raise ArgumentError(
            f"Column {in_short(objects[0])} of table {name!r} contains Python objects.",
            "convert it to text or numbers first",
        )
    # Words without a documented rank sort as text does.
    texts = frame.with_columns(pl.col(pl.Categorical, pl.Enum, pl.Int128).cast(pl.String))
    return texts.with_columns(as_pairs(column) for column in texts.get_columns())


def tables_of_own(own: Mapping[str, pl.DataFrame]) -> dict[str, Table]:
    """The user's own tables, as queries name them."""
    return {name: Table(tuple(frame.columns), load=frame.clone) for name, frame in own.items()}


def _read_own(path: str | Path) -> pl.DataFrame:
    read = _READERS.get(Path(path).suffix.lower())
    if read is None:
        raise ArgumentError(
            f"{str(path)!r:.200} is not a table that can be read; readable files end in "
            f"{', '.join(_READERS)}.",
            _HINT,
            shell=_IN_SHELL,
        )
    try:
        with open_regular(Path(path).expanduser()) as file:
            status, budget = os.fstat(file.fileno()), spending().budget
            most = budget.most_bytes(status, budget.document_bytes)
            if status.st_size > most:
                raise ArgumentError(
                    f"The table {str(path)!r:.200} has {status.st_size:,} bytes, "
                    f"{on_disk(status):,} of them on disk; it is read up to {most:,.0f}.",
                    "keep the columns and rows that are needed, or write it as Parquet",
                )
            return read(file, status)
    except (OSError, RuntimeError, pl.exceptions.PolarsError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition("\n")[0]
        raise unreadable("table", path, reason[:200]) from error


def _as_polars(rows: Any) -> pl.DataFrame:
    rows = rows.collect() if isinstance(rows, pl.LazyFrame) else rows
    try:
        frame: pl.DataFrame = nw.from_native(rows, eager_only=True).to_polars()
    except TypeError:
        raise ArgumentError(
            f"A table is a frame or a file; found {kind_of(rows)}.", _HINT
        ) from None
    return frame


def masked_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """The same tables, with secrets masked in names and rows before a query sees them.

    A mask laid over an answer is undone by a function: ``reverse(text)`` has no shape.

    Parameters
    ----------
    tables : mapping of str to Table
        Names of raw tables and of their columns come from a store.

    Returns
    -------
    dict of str to Table
        Names that masking makes equal get ``_1``, ``_2`` …. Rows are masked when a query first
        names their table.
    """
    names = redact_names([*tables])
    return {name: _masked(table) for name, table in zip(names, tables.values(), strict=True)}


def _masked(table: Table) -> Table:
    merged: set[str] = set()
    return Table(
        tuple(redact_names(table.columns)),
        left_out=tuple(redact_names(table.left_out)),
        view=table.view,
        load=table.load and functools.partial(_masked_rows, table.load, merged),
        merged=merged,
    )


def _masked_rows(load: Callable[[], pl.DataFrame], merged: set[str]) -> pl.DataFrame:
    rows = load()
    masked, n_masked = redact_with_names(rows)
    if n_masked:
        for before, after in zip(rows.get_columns(), masked.get_columns(), strict=True):
            if after.dtype == pl.String and after.n_unique() < before.n_unique():
                merged.add(after.name)
    return masked
