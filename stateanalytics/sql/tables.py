"""Everything that SQL over a snapshot can name, each table loaded when it is first named.

Canonical frames say what is meant; raw tables say what is there, column by column as it
was written. SQLite types values and not columns, so a raw column gets the one type that
all its cells have in all stores, and text where they differ: nothing is cast away. Moments
stay what they are, epoch seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl

from stateanalytics.auditing import as_findings, audit, outside_vocabulary
from stateanalytics.core import schema
from stateanalytics.core.dictionary import data_dictionary
from stateanalytics.core.facts import Facts, pool
from stateanalytics.core.schema import Frame
from stateanalytics.failures.clustering import count_clusters
from stateanalytics.failures.failure_rows import find_members
from stateanalytics.failures.frames import FAILURE_CLUSTERS, FAILURES
from stateanalytics.io.sqlite import Cell, Store, read_table
from stateanalytics.io.sqlite_copy import quoted
from stateanalytics.queries import find_phantoms
from stateanalytics.sql.frames import COLUMNS, ERROR_COUNTS, REASON_CODES, SNAPSHOT, TABLES
from stateanalytics.sql.own_tables import tables_of_own
from stateanalytics.sql.running import Table
from stateanalytics.sql.views import VIEWS
from stateanalytics.state.attention import ATTENTION, attention_items
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.state.reason_codes import reason_codes
from stateanalytics.state.states import evaluate_once, reasons_of, states_of
from stateanalytics.survival.run_spells import spells
from stateanalytics.survival.time_limits import timeouts
from stateanalytics.systems import all_systems, detail_frames
from stateanalytics.systems.linking import LINKS, links
from stateanalytics.weekly import WEEKS, weekly_numbers

PREFIX = "raw_"
STORE = "store"
"""Name of the column that says which input a row came from; `source` is taken in some."""

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
"""Columns that hold what people and models said, or keys: only read on request."""


def raw_columns(stores: Sequence[Store], *, bodies: bool) -> dict[str, tuple[str, ...]]:
    """The columns of each raw table, over all stores, in the order they were first seen."""
    seen: dict[str, dict[str, None]] = {}
    for store in stores:
        for table, columns in store.tables.items():
            kept = seen.setdefault(table, {})
            kept.update(
                dict.fromkeys(column for column in columns if _is_wanted(table, column, bodies))
            )
    return {PREFIX + table: (STORE, *columns) for table, columns in sorted(seen.items())}


def left_out(stores: Sequence[Store], *, bodies: bool) -> dict[str, tuple[str, ...]]:
    """The columns of each raw table that are not read without bodies."""
    return {
        PREFIX + table: tuple(sorted(names))
        for table in sorted({table for store in stores for table in store.tables})
        if (
            names := {
                column
                for store in stores
                for column in store.tables.get(table, ())
                if not _is_wanted(table, column, bodies)
            }
        )
    }


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
    """The one kind of each column; ``mixed`` where its cells differ."""
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
    ATTENTION,
    LINKS,
    schema.PHANTOMS,
    FAILURES,
    FAILURE_CLUSTERS,
    WEEKS,
    *(view.frame for view in VIEWS),
    REASON_CODES,
    ERROR_COUNTS,
    SNAPSHOT,
    TABLES,
    COLUMNS,
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
        Open stores, for raw tables and error counts.
    policy : Policy, optional
        For ``states``, ``reasons``, ``attention`` and ``phantoms``; v1 by default.
    bodies : bool
        Whether raw tables show what people and models said.
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
    unread = left_out(stores, bodies=bodies)
    loaders = {
        **_derived(facts, policy),
        REASON_CODES.name: lambda: REASON_CODES.conform(reason_codes()),
        ERROR_COUNTS.name: lambda: _error_counts(stores),
        SNAPSHOT.name: lambda: _snapshot_row(facts, policy, bodies),
        TABLES.name: lambda: _table_list(raw, own),
        COLUMNS.name: lambda: data_dictionary(FRAMES, raw=raw, left_out=unread, own=own),
    }
    return {
        **{name: _table(name, load) for name, load in loaders.items()},
        **{
            view.frame.name: Table(tuple(view.frame.dtypes), view=view.sql.strip())
            for view in VIEWS
        },
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
    evaluated = functools.cache(lambda: evaluate_once(facts, "states", policy=policy))
    judged = functools.cache(lambda: states_of(evaluated()))
    explained = functools.cache(lambda: reasons_of(evaluated()))
    rows = functools.cache(lambda: rows_of(facts, states=judged()))
    failed = functools.cache(lambda: find_members(facts, rows=rows()))
    audited = functools.cache(lambda: audit(facts, policy=policy, states=judged()))
    return {
        **{shape.name: functools.partial(getattr, facts, shape.name) for shape in schema.FACTS},
        **{
            shape.name: functools.partial(facts.detail, shape) for shape in detail_frames().values()
        },
        schema.STATES.name: judged,
        schema.REASONS.name: explained,
        FAILURES.name: lambda: FAILURES.conform(failed()),
        FAILURE_CLUSTERS.name: lambda: FAILURE_CLUSTERS.conform(
            count_clusters(failed(), window=None, as_of=facts.as_of)
        ),
        WEEKS.name: lambda: weekly_numbers(facts, policy=policy),
        schema.SPELLS.name: lambda: spells(facts, rows=rows()),
        schema.TIMEOUTS.name: lambda: timeouts(facts, rows=rows()),
        schema.AUDIT.name: audited,
        # Problems of reading, words outside of the ADR, contradictions: one question finds all.
        schema.FINDINGS.name: lambda: pool(
            [facts.findings, outside_vocabulary(judged()), as_findings(audited())],
            schema.FINDINGS,
        ),
        ATTENTION.name: lambda: attention_items(facts, judged(), explained(), policy=policy),
        LINKS.name: lambda: links(facts.entities),
        schema.PHANTOMS.name: lambda: find_phantoms(facts, judged(), policy),
    }


_DTYPES = {shape.name: shape.dtypes for shape in FRAMES}


def _table(name: str, load: Callable[[], pl.DataFrame]) -> Table:
    return Table(tuple(_DTYPES[name]), load=functools.cache(load))


def _error_counts(stores: Iterable[Store]) -> pl.DataFrame:
    counted = [
        known.count_errors(store).with_columns(
            source=pl.lit(store.label), system=pl.lit(known.name)
        )
        for store in stores
        for known in all_systems()
        if known.count_errors and known.stores and known.stores.recognises(store)
    ]
    return pl.concat([ERROR_COUNTS.conform(rows) for rows in counted] or [ERROR_COUNTS.empty()])


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
    rows = [(shape.name, shape.row, ", ".join(shape.key)) for shape in FRAMES]
    rows += [(name, "one row as it is stored", "") for name in raw]
    rows += [(name, "one row of a table of yours", "") for name in own]
    return pl.DataFrame(rows, schema=TABLES.dtypes, orient="row")
