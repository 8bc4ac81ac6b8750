"""Owners of failures: a ledger that a team keeps in its repository.

A CSV file, one line per cluster::

    cluster_id,code,template,owner,ticket,note,resolved_in,resolved_on,expected_until
    v1:3dd4831bf7f3,run.failed.exception,KeyError: '<*>',ada,OPS-17,,1.4.2,2026-05-20,

Only ``cluster_id`` is needed. ``code`` and ``template`` describe the cluster: for people, and
to recognise it after its id has changed. Lines are sorted by id, so that two people who add
one each seldom have a merge conflict.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stateanalytics.core.text import shell_word, visible, without_formula
from stateanalytics.core.windows import read_window
from stateanalytics.errors import (
    ArgumentError,
    StateAnalyticsError,
    check_columns,
    did_you_mean,
    found,
    in_short,
)
from stateanalytics.io.files import MAX_TEXT_BYTES, as_text, read_text, unreadable
from stateanalytics.io.outputs import alone_in, write_output
from stateanalytics.systems.base import expanded

TEXTS = ("code", "template", "owner", "ticket", "note", "resolved_in")
DAYS = ("resolved_on", "expected_until")
SCHEMA = {
    "cluster_id": pl.String,
    **dict.fromkeys(TEXTS, pl.String),
    **dict.fromkeys(DAYS, pl.Date),
}
_ID = re.compile(r"v\d+:[0-9a-f]{12}")
_FROM_STORES = ("code", "template", "title")
_CONFLICT = re.compile(r"<{7}|={7}|>{7}|\|{7}")
Entry = dict[str, str | date | None]


class Form(NamedTuple):
    """What a file of a team is like: ``name``, columns, and the ``key`` of a line.

    ``ids`` are the columns that hold an id, with the letters that begin it; ``said`` is what two
    lines of one key are distinguished by.
    """

    name: str
    schema: Mapping[str, Any]
    key: str
    ids: Mapping[str, str]
    said: str

    @property
    def columns(self) -> str:
        """A hint."""
        return f"columns are {', '.join(self.schema)}"


LEDGER = Form("ledger", SCHEMA, "cluster_id", {"cluster_id": "v"}, "owner")


def owners(path: str | Path) -> pl.DataFrame:
    """The ledger of the owners of failures.

    Parameters
    ----------
    path : str or pathlib.Path
        A CSV file.

    Returns
    -------
    polars.DataFrame, shape (n_entries, 9)
        One row per cluster, sorted by ``cluster_id``: ``code``, ``template``, ``owner``,
        ``ticket``, ``note``, ``resolved_in`` (a release, a commit, a day, a week),
        ``resolved_on`` (since which day; by default the last one of a day or week in
        ``resolved_in``), ``expected_until`` (the last day). Null: empty in the ledger.

    Raises
    ------
    ArgumentError
        If there is no such file, it is no such CSV, it holds an unfinished merge, an
        id or a day cannot be read, or a cluster has two lines; names the line.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "owners.csv"
    ...     own(path, "v1:3dd4831bf7f3", owner="ada").height, owners(path)["owner"].item()
    (1, 'ada')
    """
    text = _text(path)
    if text is None:
        raise _unreadable(path, "No such file")
    return as_frame(read_lines(text, str(path)))


def checked_ledger(ledger: object, function: str) -> pl.DataFrame:
    """A ledger as `owners` gives it, from its file or a frame.

    Raises
    ------
    MissingColumnsError
        If a frame lacks a column.
    ArgumentError
        If it is neither, or no such ledger, as for `owners`.
    """
    if isinstance(ledger, str | Path):
        return owners(ledger)
    if not isinstance(ledger, pl.DataFrame):
        raise ArgumentError(
            f"{function} needs a ledger; found {found(ledger)}.",
            'ledger="owners.csv", or the result of owners(…)',
        )
    check_columns(ledger, SCHEMA, function)
    try:
        text = ledger.select(*SCHEMA).write_csv()
    except pl.exceptions.ComputeError as error:
        raise ArgumentError(
            f"The ledger is no table of texts and days: {error}.", LEDGER.columns
        ) from None
    return as_frame(read_lines(text, "the ledger"))


def own(
    path: str | Path,
    cluster_id: str,
    *,
    owner: str | None = None,
    ticket: str | None = None,
    note: str | None = None,
    resolved_in: str | None = None,
    resolved_on: str | date | None = None,
    expected_until: str | date | None = None,
    code: str | None = None,
    template: str | None = None,
    today: date | None = None,
    inputs: Iterable[Path] = (),
) -> pl.DataFrame:
    """Record the owner of a failure, its ticket and its end in a ledger.

    Parameters
    ----------
    path : str or pathlib.Path
        The ledger; created where there is none.
    cluster_id : str
        Which failure.
    owner, ticket, note, resolved_in, resolved_on, expected_until, code, template : optional
        Columns of `owners`. None: unchanged; ``""``: emptied.
    today : date, optional
        The value of ``resolved_on`` where only ``resolved_in`` is given; None: today.
    inputs : iterable of pathlib.Path
        Files that were read and must not be overwritten.

    Returns
    -------
    polars.DataFrame
        The ledger as it is now: see `owners`.

    Raises
    ------
    ArgumentError
        If the ledger cannot be read or written, or a value is no day or has several
        lines. The file then stays as it was.
    """
    place = place_of(path)
    if not isinstance(cluster_id, str) or not _ID.fullmatch(cluster_id):
        again = f"stateanalytics failures own {shell_word(visible(str(cluster_id)))} STORE …"
        shell = f"name the store that has it: {again}"
        raise ArgumentError(_no_id(cluster_id), _HOW_TO_IDS, shell=shell)
    given = {
        **{"owner": owner, "ticket": ticket, "note": note, "code": code, "template": template},
        **{"resolved_in": resolved_in, "resolved_on": resolved_on},
        "expected_until": expected_until,
    }
    new = {name: _checked(name, value, "own") for name, value in given.items() if value is not None}
    if new.get("resolved_in") and not new.get("resolved_on"):
        new["resolved_on"] = _day_of(str(new["resolved_in"])) or today or datetime.now(UTC).date()
    with alone_in(place.parent):
        entries = read_lines(_text(path) or "", str(path))
        was = entries.get(cluster_id, {})
        if "resolved_in" in new and "resolved_on" not in new and was.get("resolved_in"):
            new["resolved_on"] = None
        entries[cluster_id] = {**was, **new, "cluster_id": cluster_id}
        return write_lines(place, as_frame(entries), inputs=inputs)


def write_lines(
    place: Path, lines: pl.DataFrame, form: Form = LEDGER, *, inputs: Iterable[Path] = ()
) -> pl.DataFrame:
    """Write a file that can be read again, and give what is read then."""
    text = lines.write_csv(line_terminator="\n")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ArgumentError(
            f"{str(place)!r} would have more than {MAX_TEXT_BYTES:,} bytes, which is too long "
            f"for a {form.name}.",
            "keep long notes in the ticket",
        )
    after = as_frame(read_lines(text, str(place), form), form)
    write_output(place, text.encode(), inputs=inputs)
    return after


_OF_BOTH = {"owner": "owned by", "fault_id": "with the faults"}
_HOW_TO_IDS = "stateanalytics failures … --format json lists the ids of clusters"


def place_of(path: object, form: Form = LEDGER, example: str = "owners.csv") -> Path:
    """The file that a name means."""
    if not isinstance(path, str | Path) or not str(path).strip() or "\0" in str(path):
        raise ArgumentError(
            f"A {form.name} needs the name of a CSV file; found {in_short(path)}.", example
        )
    return expanded(str(path))


def _text(path: object) -> str | None:
    """The text of a ledger; None: there is no such file."""
    text, problem = read_text(place_of(path))
    if problem:
        raise _unreadable(path, problem)
    return text


def _unreadable(path: object, problem: str) -> StateAnalyticsError:
    hint, shell = "; own(…) makes one", "; stateanalytics failures own makes one"
    return unreadable("ledger", str(path), problem, hint, shell=shell)


def _no_id(text: object, kinds: str = "v") -> str:
    what = "cluster" if "v" in kinds else "fault"
    return (
        f"{in_short(visible(str(text)))} is no id of a {what}, such as '{kinds[0]}1:3dd4831bf7f3'."
    )


def as_frame(entries: Mapping[str, Entry], form: Form = LEDGER) -> pl.DataFrame:
    """The lines of a file as a frame, sorted by their key."""
    rows = [{name: row.get(name) for name in form.schema} for row in entries.values()]
    return pl.DataFrame(rows, schema=form.schema).sort(form.key)


def read_lines(text: str, origin: str, form: Form = LEDGER) -> dict[str, Entry]:
    """The lines of a file by their key, checked; an error names line and column."""
    for number, line in enumerate(text.split("\n"), 1):
        if _CONFLICT.match(line):
            raise ArgumentError(
                f"{origin}, line {number}: a merge was not finished ({line[:30]!r}).",
                f"keep one line for each {form.key} and remove the marks",
            )
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    entries: dict[str, Entry] = {}
    lines: dict[str, int] = {}
    try:
        names = next(reader, [form.key])
        _check_header(names, origin, form)
        for cells in reader:
            if any(cell.strip() for cell in cells):
                entry = _entry(names, cells, f"{origin}, line {reader.line_num}", form)
                cluster = str(entry[form.key])
                if cluster in entries:
                    said = [row.get(form.said) for row in (entries[cluster], entry)]
                    both = " and ".join(repr(str(one or f"no {form.said}")) for one in said)
                    raise ArgumentError(
                        f"{origin}, lines {lines[cluster]} and {reader.line_num}: {cluster} has "
                        f"two lines, {_OF_BOTH[form.said]} {both}.",
                        "keep one of the two lines",
                    )
                entries[cluster], lines[cluster] = entry, reader.line_num
    except csv.Error as error:
        raise ArgumentError(
            f"{origin}, line {reader.line_num}: this is no CSV ({error}).",
            'put a text with a comma or a quote in quotes: "two, words"',
        ) from None
    return entries


def _check_header(names: list[str], origin: str, form: Form) -> None:
    if unknown := [name for name in names if name not in form.schema]:
        raise ArgumentError(
            f"{origin}, line 1: unknown column {in_short(visible(unknown[0]))}.",
            form.columns + did_you_mean(unknown[0], form.schema),
        )
    if form.key not in names or len(set(names)) < len(names):
        raise ArgumentError(
            f"{origin}, line 1: a {form.name} needs the column {form.key}, and no column twice.",
            f"begin it with {','.join(form.schema)}",
        )


def _entry(names: list[str], cells: list[str], place: str, form: Form) -> Entry:
    if len(cells) != len(names):
        raise ArgumentError(
            f"{place}: {len(names)} cells were needed; found {len(cells)}.",
            'put a text with a comma in quotes: "two, words"',
        )
    entry: Entry = {
        name: _checked(name, cell.strip(), place) for name, cell in zip(names, cells, strict=True)
    }
    for name, kinds in form.ids.items():
        text = str(entry.get(name) or "")
        is_needed = text or name in (form.key, form.said)
        if is_needed and not re.fullmatch(rf"[{kinds}]\d+:[0-9a-f]{{12}}", text):
            where = "" if form is LEDGER else f"{name}: "
            raise ArgumentError(f"{place}: {where}{_no_id(text, kinds)}", _HOW_TO_IDS)
    if entry.get("resolved_in") and not entry.get("resolved_on"):
        entry["resolved_on"] = _day_of(str(entry["resolved_in"]))
    return entry


def _checked(name: str, value: object, place: str) -> str | date | None:
    if value is None or value == "":
        return None
    if name in (*DAYS, "since", "renamed_on"):
        day = value if isinstance(value, date) else _day_of(str(value))
        if day is None:
            raise ArgumentError(
                f"{place}: {name} needs a day or an ISO week; found {visible(str(value))!r:.40}.",
                f"{name} 2026-05-31, or 2026-W22",
            )
        return day.date() if isinstance(day, datetime) else day
    # Only text from a store may be a formula in disguise; owners often begin with @.
    text = without_formula(str(value)) if name in _FROM_STORES else str(value)
    if any(character in text for character in "\n\r\0"):
        raise ArgumentError(f"{place}: {name} needs one line.", "keep long notes in the ticket")
    if as_text(text) != text:
        raise ArgumentError(
            f"{place}: {name} needs text; found half a character, {in_short(text)}.",
            "remove it, or write it as UTF-8",
        )
    if len(text) > csv.field_size_limit():
        raise ArgumentError(
            f"{place}: {name} needs at most {csv.field_size_limit():,} characters; "
            f"found {len(text):,}.",
            "keep long notes in the ticket",
        )
    return text


def _day_of(text: str) -> date | None:
    """The day that a text names, the last day of an ISO week; None: neither."""
    far = datetime(9000, 1, 1, tzinfo=UTC)
    try:
        if "W" not in text:
            return date.fromisoformat(text)
        return (read_window(text, as_of=far).until - timedelta(days=1)).date()
    except (ValueError, StateAnalyticsError):
        return None
