"""Changes to SQLite stores: cells, tables, the list of tables, pages, logs beside them."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from tests.fuzz import hostile
from tests.fuzz.mutations import Mutation, cut_off, flip_bytes


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tables(store: sqlite3.Connection) -> list[str]:
    """Names of tables, those that hold rows first and twice as often."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    names = [row[0] for row in store.execute(f"{query} ORDER BY name")]
    full = [name for name in names if store.execute(f"SELECT 1 FROM {_quoted(name)}").fetchone()]
    return [*full, *full, *names]


def _columns(store: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in store.execute(f"PRAGMA table_info({_quoted(table)})")]


def with_store(change: Callable[[sqlite3.Connection, Random], None]) -> Mutation:
    """A mutation by SQL; what SQLite refuses is not changed."""

    def mutate(path: Path, rng: Random) -> None:
        with suppress(sqlite3.Error, UnicodeError), closing(sqlite3.connect(path)) as store:
            for pragma in ("foreign_keys=OFF", "ignore_check_constraints=ON", "synchronous=OFF"):
                store.execute(f"PRAGMA {pragma}")
            change(store, rng)
            store.commit()

    mutate.__name__, mutate.__doc__ = change.__name__, change.__doc__
    return mutate


def odd_cells(store: sqlite3.Connection, rng: Random) -> None:
    """Cells of a few columns hold what does not belong there."""
    for _ in range(rng.randint(1, 6)):
        table = rng.choice(_tables(store))
        column = rng.choice(_columns(store, table))
        place, value = hostile.for_cell(rng)
        rest = rng.choice((1, 1, 2, 3))
        with suppress(sqlite3.Error):
            store.execute(
                f"UPDATE {_quoted(table)} SET {_quoted(column)} = {place} WHERE rowid % {rest} = 0",
                (value,),
            )


def more_rows(store: sqlite3.Connection, rng: Random) -> None:
    """Rows twice, without their keys, or gone."""
    table = rng.choice(_tables(store))
    columns = _columns(store, table)
    names = ", ".join(map(_quoted, columns))
    values = ", ".join(
        rng.choice((_quoted(name), _quoted(name), _quoted(name), "NULL")) for name in columns
    )
    if rng.random() < 0.3:
        store.execute(f"DELETE FROM {_quoted(table)} WHERE rowid % {rng.choice((1, 2, 3))} = 0")
    else:
        store.execute(f"INSERT OR IGNORE INTO {_quoted(table)} ({names}) SELECT {values} FROM "
                      f"{_quoted(table)} LIMIT {rng.choice((1, 5, 50))}")  # fmt: skip


def no_rows(store: sqlite3.Connection, rng: Random) -> None:
    """Tables are empty, mostly all of them."""
    for table in dict.fromkeys(_tables(store)):
        if rng.random() < 0.9:
            store.execute(f"DELETE FROM {_quoted(table)}")


def many_rows(store: sqlite3.Connection, rng: Random) -> None:
    """The rows of a table, and of those that name them, many times under other ids."""
    tables = dict.fromkeys(_tables(store))
    n_times = rng.choice((3, 10, 30))
    for table in rng.sample(list(tables), min(len(tables), rng.randint(1, 3))):
        columns = _columns(store, table)
        keys = {columns[0], *rng.sample(columns, rng.randint(0, 1))}
        values = ", ".join(
            f"{_quoted(name)} || '-' || n" if name in keys else _quoted(name) for name in columns
        )
        with suppress(sqlite3.Error):
            store.execute(
                f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
                f"WHERE n < {n_times}) INSERT OR IGNORE INTO {_quoted(table)} "
                f"SELECT {values} FROM {_quoted(table)}, numbers"
            )


def swapped_cells(store: sqlite3.Connection, rng: Random) -> None:
    """Well-formed values where they do not belong: of another row, or of another column."""
    for _ in range(rng.randint(1, 4)):
        table = _quoted(rng.choice(_tables(store)))
        columns = _columns(store, table[1:-1])
        column, other = (_quoted(rng.choice(columns)) for _ in range(2))
        value = rng.choice((
            other,
            f"(SELECT {column} FROM {table} LIMIT 1 OFFSET {rng.randrange(6)})",
            f"(SELECT other.{column} FROM {table} AS other WHERE other.rowid > {table}.rowid "
            "ORDER BY other.rowid LIMIT 1)",
        ))  # fmt: skip
        with suppress(sqlite3.Error):
            store.execute(f"UPDATE {table} SET {column} = {value}")


def odd_moments(store: sqlite3.Connection, rng: Random) -> None:
    """All moments of a table become equal, odd, or swapped."""
    table = rng.choice(_tables(store))
    times = [name for name in _columns(store, table) if name.endswith("_at") or "time" in name]
    if times:
        first, second = rng.choice(times), rng.choice(times)
        value = rng.choice((_quoted(second), str(rng.choice(hostile.NUMBERS)), "NULL", "1779840000",
                            f"{_quoted(second)} * 1000", f"-{_quoted(first)}"))  # fmt: skip
        store.execute(f"UPDATE {_quoted(table)} SET {_quoted(first)} = {value}")


def odd_schema(store: sqlite3.Connection, rng: Random) -> None:
    """Columns and tables are dropped, renamed or added; views and triggers come."""
    table = rng.choice(_tables(store))
    column, other = rng.choice(_columns(store, table)), rng.choice(_columns(store, table))
    name = rng.choice(
        ("x", "id", "rowid", "", "select", 'a"b', "é", "\x1b[31m", "sqlite_x", column)
    )
    t, c = _quoted(table), _quoted(column)
    odd = rng.choice(
        ("randomblob(9)", "abs(-9223372036854775808)", "json('{')", "1/0", "load_extension('x')")
    )
    statements = (
        (f"ALTER TABLE {t} DROP COLUMN {c}",),
        (f"ALTER TABLE {t} RENAME COLUMN {c} TO {_quoted(name)}",),
        (f"ALTER TABLE {t} RENAME TO {_quoted(name)}",),
        (f"ALTER TABLE {t} ADD COLUMN {_quoted(name)} TEXT DEFAULT {rng.choice(('1', 'NULL'))}",),
        (f"ALTER TABLE {t} ADD COLUMN g AS ({odd})",),
        (f"ALTER TABLE {t} RENAME TO old", f"CREATE VIEW {t} AS SELECT * FROM old"),
        (f"ALTER TABLE {t} RENAME TO old", f"CREATE VIEW {t} AS SELECT {odd} AS {c} FROM old"),
        (f"ALTER TABLE {t} RENAME TO old", f"CREATE TABLE {t} AS SELECT * FROM old"),
        (f"ALTER TABLE {t} RENAME TO old",
         f"CREATE TABLE {t} ({c} PRIMARY KEY, {_quoted(other + '_')}) WITHOUT ROWID"),
        (f"ALTER TABLE {t} RENAME TO old", f"CREATE VIRTUAL TABLE {t} USING fts5({c})"),
        (f"CREATE TRIGGER r AFTER UPDATE ON {t} BEGIN SELECT {odd}; END",),
        (f"CREATE INDEX odd ON {t} ({c} COLLATE NOCASE, length({_quoted(other)}))",),
        (f"CREATE TABLE {_quoted(name)} ({c})",),
        (f"DROP TABLE {t}",),
    )  # fmt: skip
    for statement in rng.choice(statements):
        store.execute(statement)


def odd_master(store: sqlite3.Connection, rng: Random) -> None:
    """The list of tables itself is edited."""
    store.execute("PRAGMA writable_schema=ON")
    table = rng.choice(_tables(store))
    change, value = rng.choice((
        ("rootpage = ?", rng.choice((0, 1, 2, -1, 3, 10**9, None, "x"))),
        ("rootpage = (SELECT max(rootpage) FROM sqlite_master) + ?", rng.randint(0, 1)),
        ("name = ?", rng.choice(hostile.TEXTS)), ("tbl_name = ?", rng.choice(hostile.TEXTS)),
        ("sql = ?", rng.choice((None, *hostile.TEXTS))),
        ("type = ?", rng.choice(("view", "index", "x"))),
        ("sql = replace(sql, ' TEXT', ?)", rng.choice((" INTEGER", " BLOB COLLATE odd", " x"))),
        ("sql = replace(sql, ',', ?)", rng.choice((" UNIQUE,", " CHECK (1/0),", " NOT NULL,"))),
        ("sql = substr(sql, 1, length(sql) - ?)", rng.randint(1, 60)),
        ("sql = sql || ?", rng.choice((" STRICT", " WITHOUT ROWID", "; DROP TABLE x", "\x00"))),
        ("sql = CAST(? AS TEXT)", rng.choice(hostile.OCTETS)),
    ))  # fmt: skip
    store.execute(f"UPDATE sqlite_master SET {change} WHERE name = ?", (value, table))


def odd_header(path: Path, rng: Random) -> None:
    """A field of the first hundred bytes is changed."""
    octets = bytearray(path.read_bytes())
    at = rng.choice((0, 16, 17, 18, 19, 20, 21, 24, 28, 32, 36, 40, 44, 52, 56, 59, 60, 64, 96))
    if len(octets) > 100:
        octets[at] = rng.choice((0, 1, 2, 3, 4, 255, rng.randrange(256)))
    path.write_bytes(octets)


def odd_pages(path: Path, rng: Random) -> None:
    """Pages are overwritten, swapped, cleared, or become a copy of another."""
    octets = bytearray(path.read_bytes())
    size = int.from_bytes(octets[16:18], "big") or 4096
    size = 65536 if size == 1 else size
    n_pages = max(1, len(octets) // max(size, 512))
    for _ in range(rng.randint(1, 3)):
        begin, other = (rng.randrange(n_pages) * size for _ in range(2))
        kind = rng.randrange(5)
        if kind == 0:
            octets[begin : begin + size] = rng.randbytes(size)
        elif kind == 1:
            octets[begin : begin + size] = bytes(size)
        elif kind == 2:
            octets[begin : begin + size] = octets[other : other + size]
        else:
            at = begin + rng.choice((0, 1, 3, 5, 8, 9, 12, rng.randrange(size)))
            octets[at : at + 4] = rng.randbytes(rng.randint(1, 4))
    path.write_bytes(octets)


def _beside(path: Path, mode: str, rng: Random, ending: str) -> None:
    """The store as it lies on the disk while a writer is in the middle of something."""
    copy = path.with_name("copying")
    with (
        suppress(sqlite3.Error, UnicodeError),
        closing(sqlite3.connect(path, isolation_level=None)) as store,
    ):
        store.execute(f"PRAGMA journal_mode={mode}")
        store.execute("PRAGMA cache_size=1")
        store.execute("BEGIN")
        for _ in range(3):
            table = rng.choice(_tables(store))
            column = _quoted(_columns(store, table)[-1])
            with suppress(sqlite3.Error):
                store.execute(f"UPDATE {_quoted(table)} SET {column} = {column} || 'x'")
        store.execute("CREATE TABLE filler AS SELECT ? AS x", (rng.randbytes(20_000),))
        if mode == "WAL" and rng.random() < 0.8:
            store.execute("COMMIT")
        shutil.copyfile(path, copy)
        log = path.with_name(path.name + ending)
        if log.exists():
            shutil.copyfile(log, copy.with_name(copy.name + ending))
    if copy.exists():
        for end in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        copy.replace(path)
        log = copy.with_name(copy.name + ending)
        if log.exists():
            log.replace(path.with_name(path.name + ending))


def odd_wal(path: Path, rng: Random) -> None:
    """A write-ahead log lies beside it: whole, cut off, overwritten or of nobody."""
    _beside(path, "WAL", rng, "-wal")
    _damaged(path.with_name(path.name + "-wal"), rng)


def odd_journal(path: Path, rng: Random) -> None:
    """A rollback journal lies beside it: hot, cut off, overwritten or of nobody."""
    _beside(path, "DELETE", rng, "-journal")
    _damaged(path.with_name(path.name + "-journal"), rng)


def _damaged(log: Path, rng: Random) -> None:
    kind = rng.randrange(5)
    if kind == 0 or not log.exists():
        log.write_bytes(rng.randbytes(rng.choice((0, 1, 32, 5000))))
    elif kind < 3:
        (cut_off if kind == 1 else flip_bytes)(log, rng)
    elif kind == 3:
        octets = log.read_bytes()
        log.write_bytes(octets + octets[32:])


def other_shape(path: Path, rng: Random) -> None:
    """The same rows in another page size, encoding or kind of file."""
    pragma = rng.choice(("page_size=512", "page_size=65536", "page_size=1024", "auto_vacuum=FULL"))
    with suppress(sqlite3.Error, UnicodeError), closing(sqlite3.connect(path)) as store:
        if rng.random() < 0.4:
            with closing(sqlite3.connect(path.with_name("other"))) as other:
                other.execute(f"PRAGMA encoding='UTF-16{rng.choice(('le', 'be'))}'")
                other.executescript("\n".join(store.iterdump()))
            path.with_name("other").replace(path)
        else:
            store.execute(f"PRAGMA {pragma}")
            store.execute("VACUUM")
    path.with_name("other").unlink(missing_ok=True)


def no_permission(path: Path, rng: Random) -> None:
    """It may not be read (root may anyway), or is a link, or has a name with odd letters."""
    kind = rng.randrange(3)
    if path.is_symlink():  # a link to itself has no mode and no second name
        return
    if kind == 0:
        path.chmod(0)
    elif kind == 1:
        real = path.with_name("real.file")
        path.replace(real)
        path.symlink_to(real)
    else:
        second = path.with_name("second.link")
        second.unlink(missing_ok=True)  # the same change may be made twice
        os.link(path, second)


CELLS = tuple(map(with_store, (odd_cells, more_rows, many_rows, swapped_cells, odd_moments)))
SCHEMA = (with_store(odd_schema), with_store(odd_master))
PAGES = (odd_pages, odd_pages, odd_header, flip_bytes, cut_off)
LOGS = (odd_wal, odd_journal)
STORES: tuple[Mutation, ...] = (
    *CELLS * 2,
    with_store(no_rows),
    *SCHEMA * 2,
    *PAGES,
    *LOGS,
    other_shape,
    no_permission,
)
