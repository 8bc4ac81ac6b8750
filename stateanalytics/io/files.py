"""Files and directories: opened safely, read within bounds, found by patterns, turned into values.

Files are opened in one way: regular files only, and never more than a bound. A pipe would block
for ever, a device may never end, and what `stat` reports is old by the time a file is read. So
an open file is checked a second time, and reading stops at the bound whatever its size was.
"""

from __future__ import annotations

import errno
import glob
import itertools
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, BinaryIO

import polars as pl

from stateanalytics.errors import ArgumentError, StateAnalyticsError, did_you_mean
from stateanalytics.io.budget import over_growth, spending

DEPTH = 5
"""Levels below a link that are searched: no system's records lie deeper, and a link may lead to
the root of a disk."""

Seen = dict[tuple[int, int], float]
"""Directories by device and number, with the levels below each that were searched."""


def files_below(
    path: str, seen: Seen | None = None, *, is_strict: bool, depth: float = math.inf
) -> Iterator[tuple[str, os.stat_result]]:
    """Each file at a path or below it, by name, with its status; none where nothing is there.

    Parameters
    ----------
    path : str
        A file or a directory.
    seen : dict, optional
        Directories that were searched before; they are skipped, and new ones added.
    is_strict : bool
        Whether an unreadable directory is an error; else it is skipped.
    depth : float
        Levels of directories to search.

    Raises
    ------
    OSError
        If ``is_strict`` and something cannot be read.
    """
    seen = {} if seen is None else seen
    try:
        status = os.stat(path)  # noqa: PTH116 - so many Paths are slow
        own = status.st_dev, status.st_ino
        if not stat.S_ISDIR(status.st_mode):
            yield path, status
            return
        if depth <= seen.get(own, 0):
            return
        seen[own] = depth
        with os.scandir(path) as entries:
            below = sorted((entry.path, entry.is_symlink()) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        if is_strict:
            raise
        return
    for name, is_link in below:
        left = min(depth - 1, DEPTH if is_link else math.inf)
        yield from files_below(name, seen, is_strict=is_strict, depth=left)


def folders_below(
    roots: Iterable[str | Path],
    skips: Collection[str] = (),
    on_error: Callable[[OSError], object] | None = None,
) -> Iterator[tuple[str, list[str]]]:
    """Each folder at some paths or below, with its names of files; linked folders, too.

    Parameters
    ----------
    roots : iterable of str or pathlib.Path
        Folders; what is none has nothing below it.
    skips : collection of str
        Names of folders below them that are skipped.
    on_error : callable, optional
        Called with the error of each folder that cannot be listed.

    Notes
    -----
    A folder comes once, by its own path where it lies below a root: links come last.
    """
    seen = set()
    pending = [(os.fspath(root), math.inf) for root in roots]
    for top, depth in pending:
        for folder, inner, names in os.walk(top, onerror=on_error):
            left = depth - folder.count(os.sep, len(top))
            try:
                status = os.stat(folder)  # noqa: PTH116 - so many Paths are slow
            except FileNotFoundError:
                continue
            own = status.st_dev, status.st_ino
            if own in seen or left <= 0:
                inner.clear()
                continue
            seen.add(own)
            inner[:] = sorted(name for name in inner if name not in skips)
            below = [os.path.join(folder, name) for name in inner]  # noqa: PTH118
            pending += [(link, min(left - 1, DEPTH)) for link in filter(os.path.islink, below)]
            yield folder, names


# Windows alone has O_BINARY, without which it would end a file at Ctrl-Z.
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"):
    _FLAGS |= getattr(os, _name, 0)
_PIECE = 1 << 20


def open_regular(path: str | Path) -> BinaryIO:
    """A regular file, open for reading; links are followed.

    Parameters
    ----------
    path : str or pathlib.Path

    Returns
    -------
    file
        Opened without blocking.

    Raises
    ------
    OSError
        If there is none, it may not be read, or it is a directory, a pipe or a device.
    """
    handle, _ = _opened(path)
    try:
        return os.fdopen(handle, "rb", buffering=0)
    except BaseException:
        os.close(handle)
        raise


def beginning_of(path: Path, n_bytes: int = 1 << 16) -> bytes:
    """The first bytes of a file, UTF-16 converted to UTF-8; empty if it cannot be opened.

    So an unreadable file does not hide the others in its folder.
    """
    try:
        with open_regular(path) as file:
            begin = file.read(n_bytes)
    except OSError:
        return b""
    is_utf16 = begin.startswith((b"\xff\xfe", b"\xfe\xff"))
    return begin.decode("utf-16", "replace").encode() if is_utf16 else begin


def _opened(path: str | Path) -> tuple[int, os.stat_result]:
    """The handle of a regular file, and its status."""
    _check_regular(os.stat(path))  # noqa: PTH116 - opening a device may have an effect
    handle = os.open(path, _FLAGS)
    try:
        status = os.fstat(handle)
        _check_regular(status)
    except BaseException:
        os.close(handle)
        raise
    return handle, status


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")


def read_octets(path: str | Path, max_bytes: int | None = None) -> tuple[bytes, os.stat_result]:
    """The content of a regular file, and its status when it was opened.

    Parameters
    ----------
    path : str or pathlib.Path
    max_bytes : int, optional
        Larger files are refused, by default those above the budget's ``document_bytes``;
        files that grow too much are always refused.

    Raises
    ------
    OSError
        As `open_regular`; with ``EFBIG`` if it is larger.

    Examples
    --------
    >>> read_octets("/dev/zero", 10)
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file
    """
    spent = spending()
    spent.draw()
    handle, status = _opened(path)
    # By its handle: to create a file object takes longer than to read a small file.
    try:
        if max_bytes is None:
            max_bytes = spent.budget.document_bytes
        if max_bytes is not None and status.st_size > max_bytes:
            raise _too_large(status.st_size, max_bytes)
        most = spent.budget.most_bytes(status, max_bytes)
        if status.st_size > most:
            raise over_growth(status, most)
        pieces = [os.read(handle, status.st_size + 1)]
        # The room on disk is not known for files that grew meanwhile or report no size.
        bound = float("inf") if max_bytes is None else max_bytes
        left = bound + 1 - len(pieces[0])
        # This first read is complete unless the file grew; some files report a size of 0.
        if len(pieces[0]) != status.st_size or not pieces[0]:
            while left > 0 and (piece := os.read(handle, int(min(left, _PIECE)))):
                pieces.append(piece)
                left -= len(piece)
    finally:
        os.close(handle)
    if left <= 0:
        raise _too_large(None, bound)
    return b"".join(pieces), status


def _too_large(size: int | None, most: float) -> OSError:
    found = "more" if size is None else f"{size:,} bytes, more"
    return OSError(errno.EFBIG, f"{found} than the {most:,.0f} that are read")


def read_parquet(file: IO[bytes], status: os.stat_result) -> pl.DataFrame:
    """The rows of a Parquet file; a few bytes may hold billions.

    Raises
    ------
    OverBoundError
        If it has more rows than a file of its size may have, or the budget is spent.
    """
    spent = spending()
    most = spent.budget.most_rows(status)
    rows = pl.read_parquet(file, n_rows=None if most == float("inf") else int(most) + 1)
    if rows.height > most:
        raise over_growth(status, most, "rows")
    spent.draw(n_rows=rows.height)
    return rows


def decoded_or_none(octets: bytes | None) -> str | None:
    """Octets as text; None for None and for octets that are not UTF-8."""
    try:
        return None if octets is None else octets.decode()
    except UnicodeDecodeError:
        return None


def decoded(octets: pl.Series) -> pl.Series:
    """Text, null where it is not UTF-8; such cells are searched by halves."""
    try:
        return octets.cast(pl.String)
    except pl.exceptions.ComputeError:
        if octets.len() <= _FEW_CELLS:
            texts = [decoded_or_none(cell) for cell in octets]
            return pl.Series(octets.name, texts, dtype=pl.String)
        half = octets.len() // 2
        return pl.concat([decoded(octets[:half]), decoded(octets[half:])])


_FEW_CELLS = 1000  # that are decoded one by one
MAX_JSON_BYTES = 8_000_000
MAX_TEXT_BYTES = 1_000_000
MAX_DEPTH = 20
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
LOG_ENDINGS = ("-wal", "-shm", "-journal")
"""Files of SQLite next to a store. Closing any of these, or the store, in this process would
drop the locks that another connection of the process holds."""
_OLDEST_S, _NEWEST_S = 946_684_800.0, 4_102_444_800.0  # 2000-01-01, 2100-01-01


@dataclass(frozen=True)
class JsonObject:
    """A JSON object from a file, or the problem with the file; neither if there is no file."""

    value: dict[str, Any] | None
    problem: str | None = None


def read_json_object(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> JsonObject:
    """The JSON object in a file.

    Parameters
    ----------
    path : pathlib.Path
        May be absent, a directory, a pipe, unreadable, half-written, huge.
    max_bytes : int
        Larger files are not read.

    Returns
    -------
    JsonObject
        ``value`` None and ``problem`` None where there is no file.
    """
    text, problem = read_text(path, max_bytes=max_bytes)
    if text is None:
        return JsonObject(None, problem)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return JsonObject(None, f"not JSON ({as_text(str(error))})")
    if not isinstance(value, dict):
        return JsonObject(None, f"a JSON {type(value).__name__}, no object")
    return JsonObject(value)


def read_text(path: Path, *, max_bytes: int = MAX_TEXT_BYTES) -> tuple[str | None, str | None]:
    """The text of a small regular file and None, or None and the problem with the file."""
    try:
        return read_octets(path, max_bytes)[0].decode("utf-8-sig"), None
    except FileNotFoundError:
        return None, None
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EINVAL, errno.EFBIG):
            return None, error.strerror
        return None, f"cannot be read ({type(error).__name__})"


_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):/")


_OF_ARCHIVES = re.compile(r"(s3a?|gs|az|abfss?|file)://", re.IGNORECASE)


def is_url(name: object) -> bool:
    """Whether a name is that of an archive in Delta tables.

    Examples
    --------
    >>> is_url("s3://bucket/history"), is_url("history/"), is_url("https://host/x")
    (True, False, False)
    """
    return isinstance(name, str) and _OF_ARCHIVES.match(name) is not None


def refuse_scheme(path: str | Path) -> None:
    """Refuse URLs such as ``s3://bucket``, which would become the name of a local folder.

    Examples
    --------
    >>> refuse_scheme("history/")
    >>> refuse_scheme("s3://bucket/history")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    stateanalytics.errors.ArgumentError: 's3://bucket/history' names a place by the scheme 's3', ...
    """
    match = _SCHEME.match(str(path))
    if match and not os.path.lexists(path):
        raise ArgumentError(
            f"{str(path)!r:.200} names a place by the scheme {match['scheme']!r}, which is not "
            "supported: only local files and folders are.",
            "name a local folder, and copy it from or to there with a tool for that place",
        )


def unreadable(
    what: str,
    path: str | Path,
    problem: str | None,
    instead: str = "",
    *,
    shell: str = "",
    kind: type[StateAnalyticsError] = ArgumentError,
) -> StateAnalyticsError:
    """The error for a file that the user named, with similar names and what to do instead."""
    named = Path(path)
    try:
        siblings = [file.name for file in named.expanduser().parent.iterdir()]
    except (OSError, RuntimeError):
        siblings = []
    if named.name in siblings:
        hint, near = "name a file that can be read", ""
    else:
        # A common suffix alone is not near.
        siblings = [name for name in siblings if did_you_mean(named.stem, [Path(name).stem])]
        hint, near = "name an existing file", did_you_mean(named.name, siblings)
    return kind(
        f"The {what} {str(path)!r:.200} cannot be read: {problem or 'No such file'}.",
        f"{hint}{instead}{near}",
        shell=f"{hint}{shell or instead}{near}",
    )


def parsed(text: str, parse: Callable[[str], Any]) -> tuple[Any, str | None]:
    """The data in a settings file and None, or None and the problem with the text.

    Parameters
    ----------
    text : str
    parse : callable
        From text to plain data, such as `tomllib.loads`; may raise ValueError.

    Returns
    -------
    value, problem
        A value is at most `MAX_DEPTH` levels deep and its numbers fit 64 bits, so that
        error messages can show it.

    Examples
    --------
    >>> parsed('{"a": 1e400}', json.loads)
    (None, 'a number is not finite, or does not fit 64 bits')
    """
    try:
        value = parse(text)
    except ValueError as error:
        return None, as_text(str(error))
    except RecursionError:
        return None, _TOO_DEEP
    problem = _beyond(value)
    return (None, problem) if problem else (value, None)


def toml_of_user(what: str, path: Path, hint: str) -> tuple[str, Any]:
    """The text of a TOML file that the user named, and its data.

    Raises
    ------
    ArgumentError
        If there is no such file, it cannot be read, or it is no TOML.
    """
    text, problem = read_text(path)
    if text is None:
        raise unreadable(what, path, problem)
    whole, problem = parsed(text, tomllib.loads)
    if problem is not None:
        raise ArgumentError(f"The {what} {str(path)!r} are no TOML: {problem}.", hint)
    return text, whole


def _beyond(value: Any) -> str | None:
    """Why plain data is too deep or too large; None if it is neither."""
    level = [value]
    for _ in range(MAX_DEPTH):
        numbers = (item for item in level if isinstance(item, int | float))
        if any(not -(2**63) <= number < 2**64 for number in numbers):
            return "a number is not finite, or does not fit 64 bits"
        nested = (item for item in level if isinstance(item, dict | list))
        level = [
            inner
            for item in nested
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return None
    return _TOO_DEEP


def size_of(paths: Iterable[str | Path]) -> int:
    """The sizes of files added up; a file that no longer exists has none."""
    sizes = []
    for path in paths:
        try:
            sizes.append(os.stat(path).st_size)  # noqa: PTH116 - thousands of Paths are slow
        except OSError:
            continue
    return sum(sizes)


def written_ns(path: Path) -> int:
    """When a file was last written, in nanoseconds since 1970; 0 where that is not known."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def has_or_is_log(path: Path) -> bool:
    """Whether a file has a SQLite log next to it, or is such a log; neither is opened here."""
    store = path.name.rpartition("-")[0]
    if path.name.endswith(LOG_ENDINGS) and store and path.with_name(store).exists():
        return True
    return any(path.with_name(path.name + ending).exists() for ending in LOG_ENDINGS)


def stores_among(names: Iterable[str]) -> frozenset[str]:
    """The names of SQLite stores with a log, and of the logs, among those in a directory.

    Examples
    --------
    >>> sorted(stores_among(["app-1", "kept", "kept-journal"]))
    ['kept', 'kept-journal']
    """
    existing = frozenset(names)
    pairs = ((name, name.rpartition("-")[0]) for name in existing if name.endswith(LOG_ENDINGS))
    return frozenset(name for pair in pairs if pair[1] in existing for name in pair)


def directories_in(path: Path) -> tuple[list[Path], str | None]:
    """The directories directly inside one, by name, and the problem with it or None.

    Loops of symbolic links are no directories; an absent path has no directories.
    """
    try:
        # `Path.is_dir` raises an error for what lies in a folder that may not be entered.
        return sorted(filter(os.path.isdir, path.iterdir())), None
    except (FileNotFoundError, NotADirectoryError):
        return [], None
    except (OSError, ValueError) as error:
        return [], f"cannot be read ({type(error).__name__})"


def legible(name: str) -> str:
    r"""A name as text that can be encoded: octets that are not UTF-8 become escapes.

    Examples
    --------
    >>> print(legible("a\udcff.db"))
    a\xff.db
    """
    if name.isascii():
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode("utf-8")


def as_text(value: Any) -> str | None:
    r"""A text with "?" for half surrogates, which JSON allows; None for other types.

    Examples
    --------
    >>> as_text("a\ud800"), as_text(3)
    ('a?', None)
    """
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


_MAY_BE_HALF = re.compile(r"\\u[dD]")
_PAIR_OR_HALF = re.compile(
    r"(\\+u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\+u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def without_halves(text: str) -> tuple[str, int]:
    r"""A JSON text with a question mark for every escape of half a surrogate, and their number.

    JSON allows half a surrogate pair, which no column of texts can hold. Several backslashes
    count as one: JSON inside of JSON is found as well.

    Examples
    --------
    >>> without_halves(r'{"a": "\ud83d", "b": "\ud83d\ude00"}')
    ('{"a": "?", "b": "\\ud83d\\ude00"}', 1)
    """
    # Hardly any text has a surrogate, and the first search is a hundred times faster.
    if not _MAY_BE_HALF.search(text):
        return text, 0
    n_halves = 0

    def without_half(match: re.Match[str]) -> str:
        nonlocal n_halves
        n_halves += match[1] is None
        return match[1] or "?"

    return _PAIR_OR_HALF.sub(without_half, text), n_halves


def as_number(value: Any) -> float | None:
    """A finite number; None for Booleans, texts, NaN and infinities.

    Examples
    --------
    >>> as_number(900), as_number("900"), as_number(True), as_number(float("nan"))
    (900.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_count(value: Any) -> int | None:
    """A whole number that a float holds exactly; None for anything else."""
    number = as_number(value)
    if number is None or number != int(number) or abs(number) >= 2**53:
        return None
    return int(number)


def as_moment(value: Any) -> datetime | None:
    """A moment from epoch seconds or ISO 8601; None outside of 2000 to 2100 and for other types.

    Text without an offset is read as UTC.

    Examples
    --------
    >>> as_moment(1779840000), as_moment("2026-05-27T02:00:00+02:00"), as_moment("soon")
    (datetime.datetime(2026, 5, 27, 0, 0, tzinfo=datetime.timezone.utc), \
datetime.datetime(2026, 5, 27, 0, 0, tzinfo=datetime.timezone.utc), None)
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif (number := as_number(value)) is None:
        return None
    else:
        seconds = number
    if not _OLDEST_S <= seconds < _NEWEST_S:
        return None
    return datetime.fromtimestamp(round(seconds * 1e6) / 1e6, UTC)


MAX_DIRECTORIES = 200_000


def matching(pattern: str, *, max_directories: int = MAX_DIRECTORIES) -> list[str]:
    """The distinct paths that match a pattern, sorted.

    Parameters
    ----------
    pattern : str
        As for `glob.glob` with ``recursive=True``, except that ``**`` does not match
        directories behind a symbolic link: links that lead upwards have no end.
    max_directories : int
        Most directories that ``**`` may match.

    Returns
    -------
    list of str

    Raises
    ------
    ArgumentError
        If there are more.

    Examples
    --------
    >>> matching("no/such/**/state.db")
    []
    """
    return sorted(set(_matches(pattern, iter(range(max_directories)))))


def _matches(pattern: str, budget: Iterator[int]) -> Iterator[str]:
    parts = Path(pattern).parts
    if "**" not in parts:
        yield from glob.glob(pattern)  # noqa: PTH207 - patterns may be absolute
        return
    first = parts.index("**")
    rest = tuple(itertools.dropwhile(lambda part: part == "**", parts[first:]))
    before = str(Path(*parts[:first])) if first else ""
    after = str(Path(*rest)) if rest else ""
    for top in glob.glob(before) if before else [""]:  # noqa: PTH207
        for directory in _below(top):
            if next(budget, None) is None:
                raise ArgumentError(
                    f"{pattern!r} cannot be searched: '**' matches too many directories.",
                    "begin the pattern further down, for example '~/projects/**/state.db'",
                )
            if not after and directory:
                yield directory
            yield from _matches(os.path.join(glob.escape(directory), after or "*"), budget)  # noqa: PTH118


def _below(top: str) -> Iterator[str]:
    """A directory and those below it, without hidden ones and those behind links."""
    for folder, names, _ in os.walk(top or "."):
        names[:] = sorted(name for name in names if not name.startswith("."))
        inside = os.path.relpath(folder, top or ".")
        yield top if inside == "." else os.path.join(top, inside)  # noqa: PTH118
