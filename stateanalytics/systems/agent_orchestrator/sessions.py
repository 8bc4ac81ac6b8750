"""From files of session records to their three axes, and to `frames.SESSIONS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, NamedTuple

import orjson
import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.package_tables import package_table
from stateanalytics.io.cells import shown
from stateanalytics.systems.agent_orchestrator import frames, mapping, places
from stateanalytics.systems.agent_orchestrator.columns import (
    EPOCH,
    MOST_DETAIL,
    filled,
    first_true,
    flag,
    look_up,
    stored_moment,
    unreadable_times,
    with_defaults,
    yes_no,
)
from stateanalytics.systems.agent_orchestrator.mapping import REPORT_STATES
from stateanalytics.systems.agent_orchestrator.places import Kind


def read_reports(records: pl.DataFrame) -> pl.DataFrame:
    """Add the last report that a flat session record holds.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records: text columns ``agentReportedState``, ``agentReportedAt`` and
        ``agentReported`` + ``Note``, ``PrNumber``, ``PrUrl``, ``PrIsDraft``. An absent
        column counts as an absent key.

    Returns
    -------
    polars.DataFrame
        With ``report_state``, ``report_at`` (moment in UTC), ``report_note``,
        ``report_pr_number`` (Int64), ``report_pr_url``, ``report_is_draft`` (Boolean);
        all null where there is no readable report.

    Notes
    -----
    Agent Orchestrator's ``readAgentReport``: the state must be one of the ten words as
    written (aliases are for typing), the time one that can be read.

    Examples
    --------
    >>> records = pl.DataFrame(
    ...     {"agentReportedState": ["started"], "agentReportedAt": ["2026-05-01T11:58:00Z"]}
    ... )
    >>> read_reports(records)["report_state"].item()
    'started'
    """
    keys = ("State", "At", "Note", "PrNumber", "PrUrl", "PrIsDraft")
    reports = with_defaults(records, {f"agentReported{key}": pl.String() for key in keys})
    reports = reports.with_columns(report_at=stored_moment("agentReportedAt"))
    state, at = pl.col("agentReportedState"), pl.col("report_at")
    digits = pl.col("agentReportedPrNumber").str.extract("^([0-9]+)$")
    values = {
        "report_state": state,
        "report_at": at,
        "report_note": filled("agentReportedNote"),
        "report_pr_number": digits.cast(pl.Int64, strict=False),
        "report_pr_url": filled("agentReportedPrUrl"),
        "report_is_draft": yes_no("agentReportedPrIsDraft"),
    }
    is_readable = state.is_in(REPORT_STATES) & at.is_not_null()
    return reports.with_columns(
        pl.when(is_readable).then(value).alias(name) for name, value in values.items()
    )


# Path of a URL that JavaScript's URL class accepts, cut out of the trimmed text.
_WEB_PATH = r"^(?i:https?|wss?|ftp):[/\\]*[^/\\?#\s]+([^?#]*)"
_OTHER_PATH = r"^[A-Za-z][A-Za-z0-9+.-]*:([^?#]*)"
_PULL = r"^(?:/+[^/]+)*?/+[^/]+/+[^/]+/+pull/+([0-9]+)(?:/|$)"
_MERGE = r"^(?:/+[^/]+)*?/+[^/]+/+[^/]+/+-/+merge_requests/+([0-9]+)(?:/|$)"
_TRAILING = r"/([0-9]+)$"


def pull_request_number(url: pl.Expr) -> pl.Expr:
    """Number of the pull or merge request that a URL names."""
    trimmed = url.str.replace_all(r"^[\x00-\x20]+|[\x00-\x20]+$|[\t\r\n]", "")
    path = pl.coalesce(trimmed.str.extract(_WEB_PATH), trimmed.str.extract(_OTHER_PATH))
    digits = (path.str.extract(_PULL), path.str.extract(_MERGE), url.str.extract(_TRAILING))
    return pl.coalesce(digits).cast(pl.Int64, strict=False)


class Key(NamedTuple):
    """A key of session records: the column it becomes and how it is read, if as it is stored.

    ``kind`` is one of `sessions.READERS`, or ``silent``: known, and not read.
    """

    key: str
    column: str | None
    kind: str | None
    decides_axes: bool


_STORED = package_table(__package__, "keys.csv", Key)
_INSIDE = "prEnrichment."
ENRICHED = tuple(
    row._replace(key=row.key.removeprefix(_INSIDE))
    for row in _STORED
    if row.key.startswith(_INSIDE)
)
"""Keys of the details of a pull request, which are JSON inside of JSON."""
_ENRICHED_KEYS = [row.key for row in ENRICHED]
OWN_KEYS = tuple(row for row in _STORED if row.kind != "silent" and "." not in row.key)
KEYS = tuple(row.key for row in OWN_KEYS)
"""The stored keys that become columns, under their own names."""
_KNOWN = frozenset(row.key for row in _STORED)
_MOST_KEYS_NAMED = 40
_YEAR_3000_S = 32_503_680_000
Record = dict[str, str | None]


class NoRecordError(ValueError):
    """Raised where a text is no session record."""


_FILE_COLUMNS = {
    **dict.fromkeys(("path", "session_id", "layout", "directory", "directory_project"), pl.String),
    "is_migrated_original": pl.Boolean,
    "archived_at": pl.String,
    "problem": pl.String,
    "size_bytes": pl.Int64,
    "modified_s": pl.Float64,
    **dict.fromkeys(("other_keys", *KEYS), pl.String),
}


def read_records(files: Iterable[places.File], faults: places.Faults) -> pl.DataFrame:
    """Every session record of a tree as flat texts, one row per file.

    Parameters
    ----------
    files : iterable of File
        Files of the four kinds of records.
    faults : Faults
        Receives what could not be read.

    Returns
    -------
    polars.DataFrame, shape (n_files, len(KEYS) + 13)
        ``path``, ``session_id``, ``layout``, ``directory``, ``project``, ``archived_at``,
        ``modified_at``, ``size_bytes``, ``is_migrated_original``, ``is_readable``,
        ``problem``, ``other_keys``, ``sessionId``, and `KEYS` as texts.
    """
    columns = _turned([_read(file, faults) for file in files], len(_FILE_COLUMNS))
    frame = pl.DataFrame(map(pl.Series, _FILE_COLUMNS, columns, _FILE_COLUMNS.values()))
    # The name has dashes for colons and the point.
    digits = pl.col("archived_at").str.replace_all(r"\D", "")
    whole = digits.str.slice(0, 14).str.to_datetime("%Y%m%d%H%M%S", strict=False, time_unit="us")
    ms = digits.str.slice(14).cast(pl.Int64, strict=False).fill_null(0)
    is_json_record = pl.col("layout") == str(places.Kind.JSON_RECORD)
    return frame.with_columns(
        archived_at=(whole + pl.duration(milliseconds=ms)).dt.replace_time_zone("UTC"),
        # A file may be dated beyond the calendar of Python's dates.
        modified_at=pl.when(pl.col("modified_s").abs() < _YEAR_3000_S).then(
            (pl.col("modified_s") * 1e6).round().cast(pl.Int64, strict=False).cast(schema.MOMENT)
        ),
        is_readable=pl.col("problem").is_null(),
        sessionId="session_id",
        project=pl.coalesce(
            pl.when(is_json_record).then("directory_project"), "project", "directory_project"
        ),
    ).drop("directory_project", "modified_s")


def _turned(rows: Sequence[Sequence[object]], width: int) -> list[Sequence[object]]:
    """Columns of rows; of no row empty ones."""
    return list(zip(*rows, strict=True)) or [()] * width


def _read(file: places.File, faults: places.Faults) -> tuple[object, ...]:
    """One file that should be a session record, as a row of `_FILE_COLUMNS`."""
    is_archive = file.kind in (places.Kind.ARCHIVE, places.Kind.JSON_ARCHIVE)
    name = file.name
    archive = places.ARCHIVE_NAME.match(name) if is_archive else None
    session_id = archive["id"] if archive else name.removesuffix(".json")
    content = places.read_file(file.path, faults, session_id=session_id)
    record: Record = {}
    problem = content.problem
    if content.text is not None and not content.text.strip():
        problem = faults.note("record.reserved", file.path, session_id=session_id)
    elif content.text is not None:
        # The name promises a layout, which files that people copied do not keep.
        is_json = content.text.lstrip().startswith(("{", "["))
        parse = json_record if is_json or "=" not in content.text else key_value_record
        try:
            record = parse(content.text)
        except NoRecordError as error:
            more = {"example": shown(content.text), "session_id": session_id}
            problem = faults.note("record.unreadable", file.path, error, **more)
    others = () if record.keys() <= _KNOWN else [key for key in record if key not in _KNOWN]
    directory, at = file.directory, archive["at"] if archive else None
    place = (faults.below(file.path), session_id, file.kind.value, directory)
    origin = (places.project_of(directory), file.is_migrated, at)
    known = (problem, content.size_bytes, content.modified_s)
    named = ",".join(others[:_MOST_KEYS_NAMED]) or None
    return (*place, *origin, *known, named, *map(record.get, KEYS))


def json_record(text: str) -> Record:
    """Flat keys of a JSON record, as Agent Orchestrator flattens them.

    Parameters
    ----------
    text : str
        The file.

    Returns
    -------
    dict of str to str
        Objects as JSON text, Booleans and numbers as JSON writes them; null keys are absent.

    Raises
    ------
    NoRecordError
        If it is no JSON, or no object.

    Examples
    --------
    >>> json_record('{"pr": null, "prAutoDetect": false, "lifecycle": {"version": 2}}')
    {'prAutoDetect': 'off', 'lifecycle': '{"version":2}'}
    """
    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise NoRecordError(f"it is no JSON ({str(error)[:80]})") from error
    if not isinstance(value, dict):
        raise NoRecordError(f"it is a JSON {type(value).__name__}, and no object")
    record = {
        key: item if isinstance(item, str) else text_of(item)
        for key, item in value.items()
        if item is not None
    }
    if isinstance(auto_detect := value.get("prAutoDetect"), bool):
        record["prAutoDetect"] = "on" if auto_detect else "off"
    return record


def text_of(value: Any) -> str | None:
    """Value of JSON as text: a text as it is, anything else as JSON; null for null."""
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # It writes fewer levels (254) than it reads (1,024).
        return "nested too deeply"


def key_value_record(text: str) -> Record:
    r"""Keys of a record of lines ``key=value``; the last of a key counts.

    Parameters
    ----------
    text : str
        The file.

    Returns
    -------
    dict of str to str
        Blank lines, comments and lines without ``=`` are skipped.

    Raises
    ------
    NoRecordError
        If no line holds a key.

    Examples
    --------
    >>> key_value_record("# by hand\nstatus = working\npr=https://x/pull/1?a=b\n")
    {'status': 'working', 'pr': 'https://x/pull/1?a=b'}
    """
    record: Record = {}
    for line in text.split("\n"):
        trimmed = line.strip()
        if not trimmed or trimmed.startswith("#"):
            continue
        key, equals, value = trimmed.partition("=")
        if equals and key:
            record[key.strip()] = value.strip()
    if not record:
        raise NoRecordError("no line of it holds a key and a value")
    return record


RECORD_KEYS = ("sessionId", *(row.key for row in OWN_KEYS if row.decides_axes))
"""The keys of a flat session record that decide its lifecycle, named as they are stored."""


class Field(NamedTuple):
    """Where a payload holds a column, and of what kind its value is (`_CHECKS`)."""

    axis: str
    key: str
    column: str
    kind: str


_FIELDS = package_table(__package__, "payload.csv", Field)
_AXES = {
    axis: [field.key for field in _FIELDS if field.axis == axis]
    for axis in ("session", "pr", "runtime")
}
_COLUMNS = tuple(field.column for field in _FIELDS)
LIFECYCLE_COLUMNS: dict[str, pl.DataType] = {
    name: schema.MOMENT if name.endswith("_at") else pl.String() for name in _COLUMNS
} | {"pr_number": pl.Int64()}
"""The columns of a lifecycle: three axes, flat."""

PAYLOAD_TIMES = {
    f"lifecycle.{field.axis}.{field.key}": f"payload_{field.column}"
    for field in _FIELDS
    if field.key.endswith("At")
}
"""Place of each time in a record to the column of `read_payloads` that holds its text."""

# --- the payload -------------------------------------------------------------------------

_PAYLOAD: dict[str, pl.DataType] = {
    "reject_reason": pl.String(),
    "is_synthesized": pl.Boolean(),
    **{f"has_{name}": pl.Boolean() for name in _COLUMNS},
    **{f"payload_{name}": pl.String() for name in _COLUMNS},
    "payload_pr_number": pl.Int64(),
}
_VERSION = 2
_INT64 = 2**63
_WORDS = {field.column: mapping.words_of(field.column) for field in _FIELDS if field.kind == "word"}


def read_payloads(records: pl.DataFrame) -> pl.DataFrame:
    """Add the fields of every record's lifecycle payload.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_records, ...)
        Flat records. The payload is in ``lifecycle`` (JSON text), or in ``statePayload``
        where ``stateVersion`` is "2".

    Returns
    -------
    polars.DataFrame, shape (n_records, ... + 37)
        With ``payload_key`` (``lifecycle``, ``statePayload`` or null), ``reject_reason``
        (null: nothing is wrong with the payload), ``is_synthesized`` (no payload can be
        used), and for every lifecycle column ``has_<column>`` (Boolean: is the key there,
        and to be used) and ``payload_<column>`` (its value; moments as they were written).

    Notes
    -----
    Agent Orchestrator rejects a payload as a whole: one unknown word loses all three axes.
    Here its good fields are used: words are kept as they are, also unknown ones, and
    fields of a wrong type count as absent.

    Examples
    --------
    >>> records = pl.DataFrame({"lifecycle": ['{"version":2,"pr":{"state":"lost"}}']})
    >>> read_payloads(records)["reject_reason"].item()
    "pr.state has the unknown word 'lost'"
    """
    names = ("lifecycle", "stateVersion", "statePayload")
    first = filled("lifecycle")
    second = pl.when(pl.col("stateVersion") == "2").then(filled("statePayload"))
    keyed = with_defaults(records, dict.fromkeys(names, pl.String())).with_columns(
        payload_key=first_true(
            (first.is_not_null(), "lifecycle"), (second.is_not_null(), "statePayload")
        )
    )
    texts = keyed.select(pl.coalesce(first, second)).to_series()
    rows = [_read_payload(text) for text in texts]
    problems, is_synthesized, *stored = _turned(rows, 2 + len(_FIELDS))
    reasons: list[Any] = [*problems]
    read = [_read_field(*pair, reasons) for pair in zip(_FIELDS, stored, strict=True)]
    has, values = zip(*read, strict=True)
    columns = (reasons, is_synthesized, *has, *values)
    return keyed.with_columns(map(pl.Series, _PAYLOAD, columns, _PAYLOAD.values()))


def _read_payload(text: str | None) -> tuple[object, ...]:
    """What is wrong with a payload as a whole, is it of no use, and each of `_FIELDS` in it."""
    problem = None if text is None else "it is no object"
    try:
        payload = orjson.loads(text or "null")
    except ValueError:
        payload, problem = None, "it is no JSON"
    if not isinstance(payload, dict):
        return (problem, True, *[_ABSENT] * len(_FIELDS))
    version = payload.get("version")
    is_known = version == _VERSION and not isinstance(version, bool)
    problems = [] if is_known else [f"version is {_shown(version)}, not 2"]
    values: list[object] = []
    for name, keys in _AXES.items():
        axis = payload.get(name, {})
        if not isinstance(axis, dict):
            problems.append(f"{name} is no object")
            axis = {}
        values += map(axis.get, keys, repeat(_ABSENT))
    return (problems[0] if problems else None, False, *values)


def _read_field(
    field: Field, stored: Sequence[Any], reasons: list[str | None]
) -> tuple[list[bool], Sequence[Any]]:
    """Where a field has a usable value, and the values; what is first wrong is its reason."""
    place, kind = f"{field.axis}.{field.key}", field.kind
    usual, is_good, wanted = _CHECKS[kind]
    has, kept = [True] * len(stored), stored
    if not usual.issuperset(map(type, stored)):
        kept = [*stored]
        for row, value in enumerate(stored):
            if type(value) not in usual and not is_good(value):
                has[row], kept[row] = False, None
                if value is not _ABSENT:
                    reasons[row] = reasons[row] or f"{place} is {_shown(value)}, not {wanted}"
    if kind == "word" and (odd := {*kept} - {*_WORDS[field.column], None}):
        for row, value in enumerate(kept):
            if value in odd:
                reasons[row] = reasons[row] or f"{place} has the unknown word {value[:40]!r}"
    elif kind == "handle":
        kept = [None if value is None else _handle_text(value) for value in kept]
    elif kind == "integer":
        kept = [
            None if value is None or not -_INT64 <= value < _INT64 else int(value) for value in kept
        ]
    return has, kept


def _is_whole(value: object) -> bool:
    # JavaScript has one type of numbers: 42.0 is a whole one.
    return isinstance(value, float) and value.is_integer()


def _is_handle(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(key), str) for key in ("id", "runtimeName")
    )


_ABSENT = object()
_CHECKS: dict[str, tuple[set[type], Callable[[object], bool], str]] = {
    "word": ({str}, lambda _: False, "a word"),
    "text": ({str}, lambda _: False, "a text"),
    "text or null": ({str, type(None)}, lambda _: False, "a text"),
    "integer": ({int, type(None)}, _is_whole, "a whole number"),
    "handle": ({type(None)}, _is_handle, "an object with a text id and runtimeName"),
}
"""Kind of a field to types that are always good, a test of the others, and what is wanted."""


def _shown(value: object) -> str:
    """The beginning of a value as JSON text."""
    return f'"{value[:38]}"' if isinstance(value, str) else str(text_of(value))[:40]


def _handle_text(handle: Mapping[str, Any]) -> str | None:
    data = handle.get("data")
    kept = {name: handle[name] for name in ("id", "runtimeName")}
    return text_of(kept | {"data": data if isinstance(data, dict) else {}})


# --- the axes of a record without a payload ----------------------------------------------

_SYNTHESIS = pl.DataFrame(
    {
        "_status": status,
        "session_state": meaning.session_state,
        "session_reason": meaning.session_reason,
        **{f"_{what}": what in meaning.moments for what in ("started", "completed", "terminated")},
    }
    for status, meaning in mapping.LEGACY_MEANINGS.items()
)
_EMPTY_HANDLES = ("0", "false", '""')


def synthesize_lifecycle(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """Add the three axes that Agent Orchestrator makes up for a record without them.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records: one text column per stored key (`RECORD_KEYS`). An absent
        column counts as an absent key.
    now : datetime
        Stands for a creation time that cannot be read, in UTC.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 17)
        With `LIFECYCLE_COLUMNS`. Moments are ``Datetime("us", "UTC")``;
        ``runtime_handle`` is JSON text.

    Notes
    -----
    Agent Orchestrator's ``synthesizeCanonicalLifecycle``. It forgets review and CI states
    (``ci_failed`` becomes working on a task), and all its times are the creation time:
    none of them is an observation.

    Examples
    --------
    >>> records = pl.DataFrame({"status": ["errored"], "createdAt": ["2026-04-01"]})
    >>> synthesize_lifecycle(records).select(
    ...     "session_state", "session_reason", "runtime_state"
    ... ).row(0)
    ('terminated', 'error_in_process', 'unknown')
    """
    status, handle = pl.col("status"), pl.col("runtime_handle")
    created_at = pl.coalesce(stored_moment("createdAt"), pl.lit(now).cast(schema.MOMENT))
    tmux_name = pl.col("tmuxName").str.strip_chars()
    has_name = tmux_name != ""
    has_handle = ~handle.is_in(_EMPTY_HANDLES)
    is_orchestrator = (pl.col("role") == "orchestrator").fill_null(value=False) | pl.col(
        "sessionId"
    ).str.ends_with("-orchestrator").fill_null(value=False)
    is_merged, has_url = pl.col("_status") == "merged", filled("pr").is_not_null()
    return (
        with_defaults(records, dict.fromkeys(RECORD_KEYS, pl.String()))
        .with_columns(
            # A word of today's vocabulary; anything unknown counts as spawning.
            _status=first_true(
                (status == "starting", "working"),
                (status.is_in(mapping.LEGACY_STATUSES), status),
                default="spawning",
            ),
            _at=created_at,
            # Null where it is no JSON.
            runtime_handle=pl.when(
                pl.col("runtimeHandle").str.json_path_match("$").is_not_null()
            ).then("runtimeHandle"),
        )
        .join(_SYNTHESIS, on="_status", how="left", maintain_order="left")
        .with_columns(
            kind=first_true((is_orchestrator, "orchestrator"), default="worker"),
            started_at=pl.when("_started").then("_at"),
            completed_at=pl.when("_completed").then("_at"),
            terminated_at=pl.when("_terminated").then("_at"),
            last_transition_at=pl.col("_at"),
            pr_state=first_true((is_merged, "merged"), (has_url, "open"), default="none"),
            pr_reason=first_true(
                (is_merged, "merged"), (has_url, "in_progress"), default="not_created"
            ),
            pr_number=pull_request_number(filled("pr")),
            pr_url=filled("pr"),
            pr_observed_at=pl.when(has_url).then("_at"),
            runtime_state=pl.lit("unknown"),
            runtime_reason=pl.lit("spawn_incomplete"),
            runtime_observed_at=pl.when(
                has_handle.fill_null(value=False) | has_name.fill_null(value=False)
            ).then("_at"),
            tmux_name=pl.when(has_name).then(tmux_name),
        )
        .select(*records.columns, *LIFECYCLE_COLUMNS)
    )


def parse_lifecycle(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """Add the three axes of every session record: the payload's, else synthesized ones.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_sessions, ...)
        Flat session records with the columns of `read_payloads`.
    now : datetime
        Stands for a creation time that cannot be read, in UTC.

    Returns
    -------
    polars.DataFrame, shape (n_sessions, ... + 17)
        With `LIFECYCLE_COLUMNS`, without the single fields of the payload.

    Notes
    -----
    Each field that a payload lacks is filled from `synthesize_lifecycle`. Agent
    Orchestrator's readers first replace the flat ``status`` by that of the payload, good
    or bad: see `refresh_status`.

    Examples
    --------
    >>> payload = '{"version":2,"session":{"state":"stuck","reason":"probe_failure"}}'
    >>> records = pl.DataFrame({"status": ["working"] * 2, "lifecycle": [payload, "[]"]})
    >>> parse_lifecycle(read_payloads(records)).select(
    ...     "session_state", "pr_state", "reject_reason"
    ... ).rows()
    [('stuck', 'none', None), ('working', 'none', 'it is no object')]
    """
    merged = {}
    for name, dtype in LIFECYCLE_COLUMNS.items():
        value, has_value = pl.col(f"payload_{name}"), flag(f"has_{name}")
        if dtype == schema.MOMENT:
            value = stored_moment(value)
        if name == "last_transition_at":
            has_value &= value.is_not_null()
        merged[name] = pl.when(has_value).then(value).otherwise(name).cast(dtype)
    fields = [f"{prefix}_{name}" for prefix in ("has", "payload") for name in _COLUMNS]
    return synthesize_lifecycle(records, now=now).with_columns(**merged).drop(fields)


def refresh_status(records: pl.DataFrame) -> pl.DataFrame:
    """Replace the flat status by that of the payload in ``lifecycle``, valid or not.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records with ``status`` and the columns of `read_payloads`.

    Notes
    -----
    Agent Orchestrator's ``readMetadataRaw``. Apply it before `parse_lifecycle`: what a
    damaged payload lacks is then synthesized from the words that it does hold.

    Examples
    --------
    >>> payload = '{"session":{"state":"terminated","reason":"migrated_from_archive"}}'
    >>> records = pl.DataFrame({"status": ["working"], "lifecycle": [payload]})
    >>> refresh_status(read_payloads(records))["status"].item()
    'terminated'
    """
    by_payload = pl.when(pl.col("payload_key") == "lifecycle").then(
        mapping.legacy_status("payload_")
    )
    return with_defaults(records, {"status": pl.String()}).with_columns(
        status=pl.coalesce(by_payload, "status")
    )


# --- records in the shape of their frame -------------------------------------------------

_MADE_UP = [name for name, dtype in LIFECYCLE_COLUMNS.items() if dtype == schema.MOMENT]


def _leading_integer(name: str) -> pl.Expr:
    return pl.col(name).str.extract(r"^\s*([+-]?[0-9]+)").cast(pl.Int64, strict=False)


def _on_off(name: str) -> pl.Expr:
    words = {"on": True, "true": True, "off": False, "false": False}
    return look_up(pl.col(name), words, dtype=pl.Boolean())


READERS: Mapping[str, Callable[[str], pl.Expr]] = {
    "text": filled,
    "word": pl.col,
    "moment": stored_moment,
    "integer": _leading_integer,
    "number": lambda name: pl.col(name).cast(pl.Int64, strict=False),
    "yes_no": yes_no,
    "on_off": _on_off,
}
"""How the text of a stored key is read, by its kind in ``data/keys.csv``."""


def _columns_of(keys: Sequence[Key]) -> dict[str, pl.Expr]:
    return {row.column: READERS[row.kind](row.key) for row in keys if row.column and row.kind}


def interpret(records: pl.DataFrame, *, now: datetime = EPOCH) -> pl.DataFrame:
    """Add the axes of every record, and the status that they imply.

    Parameters
    ----------
    records : polars.DataFrame, shape (n_records, ...)
        Records with the columns of `read_payloads`.
    now : datetime
        Stands for the creation time of a record that has none.

    Returns
    -------
    polars.DataFrame
        With the columns of `parse_lifecycle`, ``legacy_status``, and ``stored_status`` (the
        flat one).
    """
    parsed = parse_lifecycle(refresh_status(records.with_columns(stored_status="status")), now=now)
    return parsed.with_columns(legacy_status=mapping.legacy_status())


def read_sessions(records: pl.DataFrame) -> pl.DataFrame:
    """One row per record in the shape of `frames.SESSIONS`, not yet linked to an entity.

    Parameters
    ----------
    records : polars.DataFrame
        Records with the columns of `read_payloads`.

    Returns
    -------
    polars.DataFrame, shape (n_records, ...)
        Everything that follows from one record alone; what depends on other records and
        logs (``entity_id``, ``is_current``, ``has_kill_event``) is added by `events`, and
        what follows from all (traps, mapping) by `meaning`.
    """
    with_reports = read_reports(interpret(records))
    is_made_up, created = pl.col("is_synthesized"), pl.col("created_at")
    sessions = with_reports.with_columns(**_columns_of(OWN_KEYS)).with_columns(
        generation=_generation(),
        stored_status=filled("stored_status"),
        # What a payload lacks is filled with the time of creation, which is no observation.
        **{
            name: pl.when(
                ~is_made_up & pl.col(name).ne(pl.lit(EPOCH)) & pl.col(name).ne_missing(created)
            ).then(name)
            for name in _MADE_UP
        },
        report_note=pl.col("report_note").str.slice(0, MOST_DETAIL),
        agent_session_id=pl.coalesce(
            filled("claudeSessionUuid"), filled("codexThreadId"), filled("opencodeSessionId")
        ),
        runtime_name=pl.col("runtime_handle").str.json_path_match("$.runtimeName"),
        name=pl.coalesce(filled("displayName"), filled("issueTitle"), filled("issue")),
    )
    return (
        _with_pull_request(sessions)
        .with_columns(terminated_at=pl.coalesce("terminated_at", "_flat_terminated_at"))
        .drop({*KEYS, "_flat_terminated_at"} - {row.column for row in OWN_KEYS})
    )


def time_findings(records: pl.DataFrame, label: str) -> pl.DataFrame:
    """Findings on stored times that cannot be read, flat ones and those of payloads."""
    keys = [row.key for row in OWN_KEYS if row.kind == "moment"]
    stored = {key: key for key in (*keys, "agentReportedAt")} | PAYLOAD_TIMES
    columns = {place: pl.col(column) for place, column in stored.items()}
    return unreadable_times(records, label, None, columns)


def _generation() -> pl.Expr:
    is_json = pl.col("layout").is_in([str(Kind.JSON_RECORD), str(Kind.JSON_ARCHIVE)])
    has_payload = pl.col("statePayload").is_not_null()
    by_lines = pl.when(has_payload).then(pl.lit("G1")).otherwise(pl.lit("G0"))
    return pl.when(is_json).then(pl.lit("G2")).otherwise(by_lines)


def _with_pull_request(sessions: pl.DataFrame) -> pl.DataFrame:
    """Add the pull request: of the axis, else of the flat key that is written first; its detail."""
    url = pl.coalesce(filled("pr_url"), filled("pr"))
    unnumbered = pl.when(pl.col("pr_number").is_null()).then(url)
    return (
        sessions.hstack(read_enrichment(sessions["prEnrichment"]))
        .with_columns(**_columns_of(ENRICHED))
        .with_columns(
            pl.coalesce("is_pr_draft", "report_is_draft"),
            pr_url=url,
            pr_number=pl.coalesce("pr_number", pull_request_number(unnumbered)),
            n_prs=pl.coalesce(
                pl.col("pr_urls").str.count_matches("[^,]+"), url.is_not_null().cast(pl.UInt32)
            ).cast(pl.Int64),
            n_pr_unresolved_threads=pl.col("prReviewComments")
            .str.json_path_match("$.unresolvedThreads")
            .cast(pl.Int64, strict=False),
        )
        .drop(row.key for row in ENRICHED)
    )


def read_enrichment(texts: pl.Series) -> pl.DataFrame:
    """Details of pull requests, which are kept as JSON inside of JSON: one text column per key.

    Null where a key is absent, or the text no JSON.

    Examples
    --------
    >>> texts = pl.Series(['{"title": "Fix it", "additions": 3}', "{"])
    >>> read_enrichment(texts).select("title", "additions").rows()
    [('Fix it', '3'), (None, None)]
    """
    columns = _turned([_enrichment(text) for text in texts], len(ENRICHED))
    return pl.DataFrame(map(pl.Series, _ENRICHED_KEYS, columns, repeat(pl.String)))


def _enrichment(text: str | None) -> list[str | None]:
    try:
        details = orjson.loads(text or "null")
    except ValueError:
        details = None
    keys = details if isinstance(details, dict) else {}
    values = map(keys.get, _ENRICHED_KEYS)
    return [
        value if value is None or isinstance(value, str) else text_of(value) for value in values
    ]


def shaped(sessions: pl.DataFrame, label: str) -> pl.DataFrame:
    """Records in the shape of `frames.SESSIONS`, without axes where a file cannot be read."""
    interpreted = [
        "kind", "legacy_status", "is_ao_terminal", "is_synthesized",
        "event_priority", "primary_reason", *mapping.AXES,
    ]  # fmt: skip
    readable = pl.when("is_readable").then(pl.col(interpreted)).name.keep()
    return frames.SESSIONS.conform(sessions.with_columns(readable, source=pl.lit(label)))
