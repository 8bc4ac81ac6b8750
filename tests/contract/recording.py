"""What a client wrote, made small and cleaned of the machine that it ran on."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

KEPT = {
    "claude": ("projects/*/**/*.jsonl", "projects/*/**/*.json", "sessions/*.json"),
    "codex": ("sessions/**/*.jsonl", "archived_sessions/*.jsonl"),
    "opencode": ("opencode*.db",),
    "lionagi": (
        ".lionagi/state.db",
        ".lionagi/runs/*/run.json",
        ".claude/projects/*/**/*.jsonl",
        ".codex/sessions/**/*.jsonl",
    ),
}
"""What our reading opens; caches, logs and derived databases are excluded."""
LONGEST_TEXT = 600
"""Longer texts are what the program always says to its model: they are cut."""


def record(client: str, store: Path, into: Path, base: Path) -> None:
    """Copy what is read of a store, without paths of this machine and without long texts."""
    shutil.rmtree(into, ignore_errors=True)
    for pattern in KEPT[client]:
        for path in sorted(store.glob(pattern)):
            name = _clean(str(path.relative_to(store)), base)
            target = into / name.replace("/.", "/").lstrip(".")
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".db":
                _dump(path, target.with_suffix(".sql"), base)
            else:
                target.write_text(_clean_lines(path.read_text("utf-8"), base), "utf-8")


def restore(recorded: Path, into: Path) -> Path:
    """A recorded store as the client left it: databases are made from their text again."""
    shutil.copytree(recorded, into, ignore=shutil.ignore_patterns("truth.csv"))
    for path in list(into.rglob("*.sql")):
        with closing(sqlite3.connect(path.with_suffix(".db"))) as connection, connection:
            connection.executescript(path.read_text("utf-8"))
        path.unlink()
    return into


def _clean(text: str, base: Path) -> str:
    text = re.sub(r'("pidDomain": ?")[^"]*', r"\1linux:contract:pid:[1]", text)
    mangled = re.sub(r"[^A-Za-z0-9]", "-", str(base))
    # opencode also keeps the path of a directory relative to the root.
    for path, name in ((str(base), "/contract"), (str(base).lstrip("/"), "contract")):
        text = text.replace(path, name)
    return text.replace(mangled, "-contract")


def _shorten(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else value[:40] + " …"
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items()}
    return value


def _clean_lines(text: str, base: Path) -> str:
    """JSON lines stay lines in their order, a line cut by a killed program stays cut."""
    lines = []
    for line in _clean(text, base).splitlines(keepends=True):
        try:
            end = "\n" if line.endswith("\n") else ""
            kept = json.dumps(_shorten(json.loads(line)), ensure_ascii=False, separators=(",", ":"))
            lines.append(kept + end)
        except ValueError:
            lines.append(line)
    return "".join(lines)


def _dump(database: Path, target: Path, base: Path) -> None:
    """A database as text: smaller, and a change of it can be read."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as source, source:
        copy = sqlite3.connect(":memory:")
        source.backup(copy)
    for (table,) in copy.execute(
        "SELECT name FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall():
        for _, column, *_ in copy.execute(f'PRAGMA table_info("{table}")').fetchall():
            rows = copy.execute(
                f'SELECT rowid, "{column}" FROM "{table}" WHERE typeof("{column}") = \'text\''
            ).fetchall()
            for rowid, value in rows:
                cleaned = _clean_lines(value, base)
                if cleaned != value:
                    copy.execute(
                        f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ?',
                        (cleaned, rowid),
                    )
    version = copy.execute("PRAGMA user_version").fetchone()[0]
    copy.commit()
    lines = [*copy.iterdump(), f"PRAGMA user_version = {version};"]
    target.write_text("\n".join(lines) + "\n", "utf-8")
    copy.close()
