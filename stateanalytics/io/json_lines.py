r"""Lines of JSON, from bytes to typed columns: logs, streams, captures and transcripts.

A line that is not UTF-8 or no JSON is counted and skipped; the rest is read. A last line
without a line break has a finding of its own, because a writer may be in the middle of it.
Streams put ``data: `` before each record and empty lines between them.

A value of a wrong type is null and nothing else is lost. DuckDB's parser is as fast as `orjson`,
accepts values of an unexpected type, and shows which texts are no JSON.
"""

from __future__ import annotations

import codecs
import functools
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import polars as pl

from stateanalytics.core import schema
from stateanalytics.errors import DamagedStoreError
from stateanalytics.io import budget
from stateanalytics.io.duckdb_rows import DuckDBRows, answer
from stateanalytics.io.files import decoded, open_regular, without_halves
from stateanalytics.io.findings import all_findings, counted, rows_counted

if TYPE_CHECKING:
    import duckdb


CHUNK_BYTES = 8 * 2**20
TOO_LONG = f"a line of more than {budget.MAX_LINE_BYTES // 2**20} MiB"
UNFINISHED = "a last line that is cut off: it was being written, or its writer died"
MAY_BE_HALVED = pl.any_horizontal(
    pl.col("text").str.contains(escape, literal=True) for escape in (r"\ud", r"\uD")
)
"""Whether a text may have an escape of half a character, for which DuckDB refuses all of it."""
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
_ZSTD = b"\x28\xb5\x2f\xfd"
# Longer runs of blank lines are only counted: kilobytes of packed data may hold millions.
_BLANK = b"\n" * 1024
_BLANK_RUN = re.compile(rb"(\n{1024,})")
# Who appends to a file without a last line break joins two records. A name never follows the
# end of a text.
_JOINED, _TWO_RECORDS = b'}{"', re.compile(rb'\}\{(?="\w)')
Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Chunk:
    """Some lines of one file.

    Attributes
    ----------
    source : str
        The input.
    origin : str
        The kind of file, in the vocabulary of its system.
    lines : list of bytes
        Without their line breaks.
    n_before : int
        Number of lines of the file before these.
    is_finished : bool
        Whether the last line ends with a line break.
    n_bytes : int
        Their size.
    """

    source: str
    origin: str
    lines: list[bytes]
    n_before: int
    is_finished: bool
    n_bytes: int


def records_of(chunks: Sequence[Chunk]) -> pl.DataFrame:
    """The records in the lines of files.

    Parameters
    ----------
    chunks : sequence of Chunk
        Of any files, at least one.

    Returns
    -------
    polars.DataFrame
        ``source``, ``origin``, ``line_no`` (from 1 in each file), ``is_finished`` (it ends with
        a line break), ``text`` (null if it is not UTF-8, or too long) and ``is_too_long``.
    """
    heads = pl.DataFrame(
        {
            "source": [chunk.source for chunk in chunks],
            "origin": [chunk.origin for chunk in chunks],
            "is_finished": [chunk.is_finished for chunk in chunks],
            "begin": [chunk.n_before + 1 for chunk in chunks],
            "end": [chunk.n_before + len(chunk.lines) + 1 for chunk in chunks],
        }
    )
    places = heads.with_columns(line_no=pl.int_ranges("begin", "end")).explode("line_no")
    lines = _decoded_lines([line for chunk in chunks for line in chunk.lines])
    text = pl.col("text")
    records = places.hstack(lines).select(
        pl.col("source", "origin", "is_too_long"),
        pl.col("line_no").cast(pl.UInt32),
        text,
        is_finished=(pl.col("line_no") < pl.col("end") - 1) | pl.col("is_finished"),
    )
    is_object = text.str.starts_with("{") & text.str.ends_with("}")
    if records.select(is_object.all()).item():  # stripping copies every text
        return records
    records = records.with_columns(text.str.strip_chars()).filter(
        (text != "").fill_null(value=True)
    )
    if records["text"].str.starts_with("{").all():
        return records
    return records.filter(
        ~text.str.contains(r"^(?:event|id|retry):|^:").fill_null(value=False)
    ).with_columns(text.str.strip_prefix("data:").str.strip_chars_start())


def _decoded_lines(octets: Sequence[bytes]) -> pl.DataFrame:
    """Lines as ``text``, null where one is not UTF-8 or too long, and ``is_too_long``."""
    lines = pl.Series("text", octets, dtype=pl.Binary)
    sized = lines.to_frame().with_columns(
        is_too_long=pl.col("text").bin.size() > budget.MAX_LINE_BYTES
    )
    kept = sized.with_columns(pl.when(~pl.col("is_too_long")).then("text"))
    return kept.with_columns(decoded(kept["text"]))


def chunks_of(path: Path, source: str, origin: str) -> Iterator[Chunk]:
    """The lines of a plain or Zstandard-compressed file, some megabytes at a time.

    Text in UTF-16 is converted as it is read. Long runs of blank lines are only counted.

    Raises
    ------
    OverBoundError
        Where the file or the whole read exceeds its budget, after the lines before that.
    """
    spent = budget.spending()
    with open_regular(path) as raw:
        status = os.fstat(raw.fileno())
        most, n_rows, n_before = spent.budget.most_rows(status), 0, 0
        n_drawn, unread_bytes = 0, status.st_size
        try:
            for octets, is_finished in _octets_of(raw, status, spent):
                # Only now is it known that the last piece was not the end of the file.
                spent.draw(n_rows=n_rows - n_drawn)
                n_drawn, unread_bytes = n_rows, max(0, status.st_size - raw.tell())
                parts = _BLANK_RUN.split(octets) if _BLANK in octets else [octets]
                for place, part in enumerate(parts):
                    if place % 2:
                        # Its first line break ends the line before it.
                        n_before += part.count(b"\n") - 1
                        continue
                    is_last = place == len(parts) - 1
                    n_left = min(most - n_rows, sys.maxsize)
                    lines = lines_of(part, int(n_left))
                    if is_over := len(lines) > n_left:
                        lines.pop()
                    yield Chunk(
                        source, origin, lines, n_before, is_finished or not is_last, len(part)
                    )
                    n_before += len(lines)
                    n_rows += len(lines)
                    if is_over:
                        raise budget.over_growth(status, most, "records")
        except budget.BudgetSpentError as error:
            error.n_bytes = unread_bytes
            raise
        finally:
            # These lines are kept: the next file reports it.
            with suppress(budget.BudgetSpentError):
                spent.draw(n_rows=n_rows - n_drawn)


def lines_of(octets: bytes, n_most: int = -1) -> list[bytes]:
    """Lines with one record each; a program may leave out the break between two.

    After so many lines, the rest is one more.
    """
    parted = _TWO_RECORDS.sub(b"}\n{", octets) if _JOINED in octets else octets
    return parted.split(b"\n", n_most)


def _octets_of(
    raw: BinaryIO, status: os.stat_result, spent: budget.Spending
) -> Iterator[tuple[bytes, bool]]:
    """Octets up to a line break, without it, and whether there was one."""
    spent.draw()
    begin = raw.read(4)
    raw.seek(len(_BOM) if begin.startswith(_BOM) else 0)
    read: Callable[[int], bytes] = raw.read
    if begin.startswith(_UTF16):
        read = _converting(raw)
    elif begin == _ZSTD:
        read = _unpacking(raw)
    is_plain, most, n_read, rest = read == raw.read, spent.budget.most_bytes(status), 0, b""
    while chunk := read(CHUNK_BYTES):
        n_over = n_read + len(chunk) - most
        chunk = chunk[: len(chunk) - int(n_over)] if n_over > 0 else chunk
        n_read += len(chunk)
        spent.draw(grown_bytes=0 if is_plain else len(chunk))
        end = chunk.rfind(b"\n")
        if end >= 0:
            yield b"".join((rest, memoryview(chunk)[:end])), True
            rest = chunk[end + 1 :]
        else:
            rest += chunk
        if len(rest) > budget.MAX_LINE_BYTES:
            # Enough to recognise a line that is too long; no record may seem whole without a part.
            rest = bytes(budget.MAX_LINE_BYTES + 1)
        if n_over > 0:
            raise budget.over_growth(status, most)
    if rest:
        yield rest, False


def grows(path: Path) -> bool:
    """Whether a file is in UTF-16, or becomes many times larger than its room on disk."""
    try:
        with open_regular(path) as raw:
            status, begin = os.fstat(raw.fileno()), raw.read(4)
            most = max(budget.LEAST_BYTES, budget.SUSPICIOUS_RATIO * budget.on_disk(status))
            if begin != _ZSTD:
                return begin.startswith(_UTF16) or status.st_size > most
            raw.seek(0)
            read, n_left = _unpacking(raw), most
            while n_left >= 0 and (octets := read(CHUNK_BYTES)):
                n_left -= len(octets)
            return n_left < 0
    except OSError:  # the read itself reports it
        return False


def _unpacking(raw: BinaryIO) -> Callable[[int], bytes]:
    """A function that reads decompressed octets; an incomplete file raises OSError."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    file = zstd.ZstdFile(raw)

    def read(n_bytes: int) -> bytes:
        try:
            return bytes(file.read(n_bytes))
        except (zstd.ZstdError, EOFError) as error:
            raise OSError(f"Zstandard reports: {error}") from error

    return read


def _converting(raw: BinaryIO) -> Callable[[int], bytes]:
    """A function that reads text in UTF-16 as UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-16")("replace")

    def read(n_bytes: int) -> bytes:
        while octets := raw.read(n_bytes):
            if text := decoder.decode(octets):
                return text.encode("utf-8", "replace")
        return decoder.decode(b"", final=True).encode("utf-8", "replace")

    return read


def in_pieces(chunks: Iterable[Chunk], most_bytes: int = CHUNK_BYTES) -> Iterator[list[Chunk]]:
    """Groups of chunks that are parsed at once, of about so many bytes in all."""
    piece: list[Chunk] = []
    n_bytes = 0
    for chunk in chunks:
        if piece and n_bytes + chunk.n_bytes > most_bytes:
            yield piece
            piece, n_bytes = [], 0
        piece.append(chunk)
        n_bytes += chunk.n_bytes
    if piece:
        yield piece


def side_by_side(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """The results of some work on each piece, done in threads, in the order of the pieces.

    Only one piece more than there are threads is taken in advance, to bound the memory.
    """
    n_threads = min(os.cpu_count() or 1, _MOST_THREADS)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(n_threads) as threads:
        for piece in pieces:
            waiting.append(threads.submit(work, piece))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


BATCH = 100_000
"""Most rows that are parsed at once."""
_FEWEST = 10_000  # rows that are worth a thread
_MOST_THREADS = 4

Fields = Mapping[str, tuple[tuple[str, ...], Any]]
"""By field the paths where it may be, of which the first with a value counts, and its type."""
DTYPES = {
    **{"VARCHAR": pl.String(), "BIGINT": pl.Int64(), "DOUBLE": pl.Float64()},
    "BOOLEAN": pl.Boolean(),
}


def dtypes_of(fields: Fields) -> dict[str, pl.DataType]:
    """The type of each field's column."""
    return {name: DTYPES[kind] for name, (_, kind) in fields.items()}


def conform(frame: pl.DataFrame, shape: pl.Schema) -> pl.DataFrame:
    """The columns of a shape, absent ones as null."""
    return frame.select(
        (pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype)).alias(name)
        for name, dtype in shape.items()
    )


def numbered(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with their number as ``row``, for `Parser.read`."""
    return rows.with_row_index("row").with_columns(pl.col("row").cast(pl.UInt32))


def sound(name: str) -> pl.Expr:
    """Epoch milliseconds; null for 0 and outside of the years 2000 to 2100."""
    number = pl.col(name)
    return pl.when(number.is_between(946_684_800_000, 4_102_444_800_000)).then(number)


@functools.cache
def moment(name: str) -> pl.Expr:
    """Epoch milliseconds as a moment in UTC; null where `sound` is."""
    return (sound(name) * 1000).cast(schema.MOMENT)


@functools.cache
def _database(_process_id: int) -> duckdb.DuckDBPyConnection:
    """DuckDB in memory, one per process: to start it costs as much as to read a small input.

    A forked process starts its own. DuckDB has no threads of its own, which would not survive
    the fork: `Parser.read` uses threads of Python.
    """
    import duckdb

    return duckdb.connect(
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "threads": "1",
            # By default its allocator keeps 100 MB after gigabytes were read. With less than this
            # it gives the memory of each 2,048 rows back, and asks for it again.
            "allocator_bulk_deallocation_flush_threshold": "32MB",
        }
    )


class Parser:
    """DuckDB in memory, for the time that inputs are read."""

    def __init__(self) -> None:
        self._connection = _database(os.getpid()).cursor()

    def __enter__(self) -> Parser:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(
        self,
        texts: pl.DataFrame,
        fields: Fields,
        *,
        lengths: Mapping[str, str] | None = None,
        is_hashed: bool = False,
        sql: Mapping[str, str] | None = None,
    ) -> pl.DataFrame:
        """The fields of each text, and whether it is a JSON object.

        Parameters
        ----------
        texts : polars.DataFrame, shape (n_rows, 2)
            ``row`` (UInt32) and ``text``.
        fields : mapping of str to (paths, type)
            Columns to read, with DuckDB's name of their type.
        lengths : mapping of str to str, optional
            Columns with the number of characters of the text at a path.
        is_hashed : bool
            Whether to add ``digest``, a hash of the text.
        sql : mapping of str to str, optional
            Columns as expressions over ``sound``: the text, null where it is no JSON.

        Returns
        -------
        polars.DataFrame
            ``row``, ``is_object`` and one column per field, in the order of the input.
        """
        measured = lengths or {}
        paths = {path: kind for places, kind in fields.values() for path in places}
        structure = json.dumps(_nested({**paths, **dict.fromkeys(measured.values(), "VARCHAR")}))
        columns = [
            f"coalesce({', '.join(f'v.{_quoted(path)}' for path in places)}) AS {name}"
            if len(places) > 1
            else f"v.{_quoted(places[0])} AS {name}"
            for name, (places, _) in fields.items()
        ]
        columns += [f"length(v.{_quoted(path)}) AS {name}" for name, path in measured.items()]
        columns += ["hash(text) AS digest"] if is_hashed else []
        columns += [f"TRY({expression}) AS {name}" for name, expression in (sql or {}).items()]
        # TRY alone does not stop the errors of JSON inside lists.
        sound = ", CASE WHEN json_valid(text) THEN text END AS sound" if sql else ""
        query = (
            f"SELECT row, v IS NOT NULL AND is_braced AS is_object, {', '.join(columns)} FROM "
            f"(SELECT *, TRY(json_transform(text, '{structure}')) AS v{sound} FROM texts)"
        )
        pair = texts.select("row", "text", is_braced=pl.col("text").str.contains(r"^ *\{"))
        n_threads = min(os.cpu_count() or 1, _MOST_THREADS)
        n_rows = max(_FEWEST, min(BATCH, -(-texts.height // n_threads)))
        parts = list(pair.iter_slices(n_rows)) if texts.height else [pair]
        if len(parts) == 1:
            return self._run(query, pair)
        with ThreadPoolExecutor(n_threads) as threads:
            return pl.concat(threads.map(lambda part: self._run(query, part), parts))

    def _run(self, query: str, part: pl.DataFrame) -> pl.DataFrame:
        with self._connection.cursor() as cursor:
            cursor.register("texts", DuckDBRows(part))
            return answer(cursor.sql(query))


def _nested(paths: Mapping[str, str]) -> dict[str, Any]:
    """The structure that DuckDB expects: ``{"a": {"b": "VARCHAR"}}`` for ``a.b``.

    Examples
    --------
    >>> _nested({"id": "VARCHAR", "tokens.input": "BIGINT", "tokens.output": "BIGINT"})
    {'id': 'VARCHAR', 'tokens': {'input': 'BIGINT', 'output': 'BIGINT'}}
    """
    tree: dict[str, Any] = {}
    for path, kind in paths.items():
        *branches, leaf = path.split(".")
        place = tree
        for branch in branches:
            place = place.setdefault(branch, {})
        place[leaf] = kind
    return tree


def _quoted(path: str) -> str:
    return ".".join(f'"{part}"' for part in path.split("."))


Typed = Callable[[pl.DataFrame, pl.DataFrame, Parser], tuple[pl.DataFrame, ...]]
"""From the fields of records and their texts to rows of a system's frames."""
BAD = pl.Schema({"file": pl.String(), "line_no": pl.Int64(), "code": pl.String()})
"""One line that could not be read."""
_WORDS = {
    "record.not_json": ("warning", "a line that is no JSON object"),
    "record.not_utf8": ("warning", "a line that is not UTF-8"),
    "record.too_long": ("warning", TOO_LONG),
    "line.unfinished": ("info", UNFINISHED),
}


def objects_of(
    records: pl.DataFrame, fields: Fields, parser: Parser
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The lines that are JSON objects with their fields, and the other lines.

    Parameters
    ----------
    records : polars.DataFrame
        From `records_of`.
    fields : Fields
    parser : Parser

    Returns
    -------
    texts : polars.DataFrame
        ``row`` and ``text``, for further fields.
    objects : polars.DataFrame
        ``row``, ``file``, ``line_no`` and the fields.
    bad : polars.DataFrame
        The other lines, as `BAD`. Half a surrogate pair is read as a question mark.
    """
    texts = numbered(records.filter(pl.col("text").is_not_null()))
    if texts.select(MAY_BE_HALVED.any()).item():
        whole = pl.col("text").map_elements(lambda text: without_halves(text)[0], pl.String)
        texts = texts.with_columns(whole)
    read = parser.read(texts, fields)
    rows = texts.select("line_no", "is_finished", file="source").hstack(read)
    unfinished = pl.when(~pl.col("is_finished")).then(pl.lit("line.unfinished"))
    not_text = pl.when("is_too_long").then(pl.lit("record.too_long"))
    bad = (
        rows.filter(~pl.col("is_object")).select(
            "file", "line_no", code=unfinished.otherwise(pl.lit("record.not_json"))
        ),
        records.filter(pl.col("text").is_null()).select(
            "line_no", file="source", code=not_text.otherwise(pl.lit("record.not_utf8"))
        ),
    )
    typed = [frame.select(pl.col(name).cast(kind) for name, kind in BAD.items()) for frame in bad]
    return texts, rows.filter("is_object"), pl.concat(typed)


def typed_rows(
    piece: Sequence[Chunk], fields: Fields, typed: Typed, parser: Parser
) -> list[pl.DataFrame]:
    """The rows of a system's frames in some lines, and `BAD` of the lines without rows."""
    texts, objects, bad = objects_of(records_of(piece), fields, parser)
    return [*typed(objects, texts, parser), bad]


def losses(
    bad: pl.DataFrame, lost: Sequence[tuple[str, OSError]], source: str, system: str
) -> pl.DataFrame:
    """Findings about unreadable lines, counted by file, and about files that were lost.

    Parameters
    ----------
    bad : polars.DataFrame
        `BAD`.
    lost : sequence of (str, OSError)
        Files that could not be opened, or read to their end; rows read before that stay.
    source, system : str
        As in `schema.FINDINGS`.
    """
    spent = [(file, error) for file, error in lost if isinstance(error, budget.BudgetSpentError)]
    files = [
        counted(source, system, code, "warning", message, table=file, action="the rest was read")
        for file, error in lost
        if not isinstance(error, budget.BudgetSpentError)
        for code, message in [loss_reason(error)]
    ]
    if spent:
        n_bytes = sum(error.n_bytes for _, error in spent)
        message = f"files of which {n_bytes:,} bytes were not read: {spent[0][1]}"
        action = "raise the budget, or name fewer sources"
        files.append(
            counted(
                source, system, budget.OVER_BUDGET, "warning", message, n_rows=len(spent),
                table=spent[0][0], action=action,
            )
        )  # fmt: skip
    by_file = bad.group_by("code", "file", maintain_order=True).agg(
        n_rows=pl.len().cast(pl.Int64), line_no=pl.col("line_no").min()
    )
    severities, messages = (
        pl.col("code").replace_strict(
            {code: words[place] for code, words in _WORDS.items()}, return_dtype=pl.String
        )
        for place in (0, 1)
    )
    lines = rows_counted(
        by_file.with_columns(source=pl.lit(source)),
        system,
        pl.col("code"),
        severities,
        messages,
        table=pl.col("file"),
        example=pl.format("line {}", "line_no"),
        action="excluded",
    )
    return all_findings(*files, lines)


def loss_reason(error: OSError) -> tuple[str, str]:
    """The code of the finding about a file that was not read to its end, and the message."""
    if isinstance(error, FileNotFoundError):
        return "file.vanished", "a file that no longer existed when it was to be opened"
    if isinstance(error, budget.BudgetSpentError):
        return budget.OVER_BUDGET, f"a file that is not read: {error}"
    if isinstance(error, budget.OverBoundError):
        return "file.over_bound", f"a file that is larger than its bound: {error}"
    return "file.unreadable", f"a file that cannot be read ({error.strerror or error})"


def refuse_losses(lost: pl.DataFrame, source: str, on_error: str) -> None:
    """Raise an error about the first loss, if ``on_error`` is ``raise``.

    Raises
    ------
    DamagedStoreError
        If something is lost.
    """
    damage = lost.filter(pl.col("severity") != "info")
    if on_error != "raise" or damage.is_empty():
        return
    first = damage.row(0, named=True)
    raise DamagedStoreError(
        f"{source!r} cannot be read completely: it has {first['message']} "
        f"({first['n_rows']} times, first: {first['example'] or first['table']}).",
        'read the rest with on_error="skip"',
    )
