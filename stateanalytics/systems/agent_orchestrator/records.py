"""Session records: opened and parsed one by one, handed on as one frame of flat texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from stateanalytics.systems.agent_orchestrator.columns import with_defaults
from stateanalytics.systems.agent_orchestrator.files import (
    Content,
    Fault,
    Faults,
    example,
    moments,
    read_file,
    texts,
)
from stateanalytics.systems.agent_orchestrator.places import ARCHIVE_NAME, File, Kind, project_of
from stateanalytics.systems.agent_orchestrator.stored_values import (
    WHITE_SPACE,
    DateReader,
    is_filled,
    iso_ms,
    moment,
)
from stateanalytics.systems.agent_orchestrator.words import REPORT_STATES


def read_reports(records: pl.DataFrame, *, dates: DateReader = iso_ms) -> pl.DataFrame:
    """Add the last report that a flat session record holds.

    Parameters
    ----------
    records : polars.DataFrame
        Flat session records: text columns ``agentReportedState``, ``agentReportedAt`` and
        ``agentReported`` + ``Note``, ``PrNumber``, ``PrUrl``, ``PrIsDraft``. An absent
        column counts as an absent key.
    dates : callable, default `iso_ms`
        How stored times are read.

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
    >>> import polars as pl
    >>> records = pl.DataFrame(
    ...     {"agentReportedState": ["started"], "agentReportedAt": ["2026-05-01T11:58:00Z"]}
    ... )
    >>> read_reports(records)["report_state"].item()
    'started'
    """
    keys = ("State", "At", "Note", "PrNumber", "PrUrl", "PrIsDraft")
    filled = with_defaults(records, {f"agentReported{key}": pl.String() for key in keys})
    state, note, number, url, draft = (pl.col(f"agentReported{key}") for key in keys if key != "At")
    at_ms = dates(pl.col("agentReportedAt"))
    is_readable = state.is_in(REPORT_STATES).fill_null(False) & at_ms.is_not_null()
    digits = number.str.extract("^([0-9]+)$").cast(pl.Int64, strict=False)
    return filled.with_columns(
        report_state=pl.when(is_readable).then(state),
        report_at=moment(pl.when(is_readable).then(at_ms)),
        report_note=pl.when(is_readable & is_filled(note)).then(note),
        report_pr_number=pl.when(is_readable).then(digits),
        report_pr_url=pl.when(is_readable & is_filled(url)).then(url),
        report_is_draft=pl.when(is_readable & draft.is_in(("true", "false"))).then(draft == "true"),
    )


# Path of a URL that JavaScript's URL class accepts, cut out of the trimmed text.
_WEB_PATH = r"^(?i:https?|wss?|ftp):[/\\]*[^/\\?#\s]+([^?#]*)"
_OTHER_PATH = r"^[A-Za-z][A-Za-z0-9+.-]*:([^?#]*)"
_PULL = r"^(?:/+[^/]+)*?/+([^/]+)/+([^/]+)/+pull/+([0-9]+)(?:/|$)"
_MERGE = r"^(?:/+[^/]+)*?/+([^/]+)/+([^/]+)/+-/+merge_requests/+([0-9]+)(?:/|$)"
_TRAILING = r"/([0-9]+)$"


def pull_request_of(url: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Owner, repository and number of a URL, as three expressions."""
    trimmed = url.str.replace_all(r"^[\x00-\x20]+|[\x00-\x20]+$|[\t\r\n]", "")
    path = pl.coalesce(trimmed.str.extract(_WEB_PATH), trimmed.str.extract(_OTHER_PATH))
    parts = [
        pl.coalesce(path.str.extract(_PULL, group), path.str.extract(_MERGE, group))
        for group in (1, 2, 3)
    ]
    number = pl.coalesce(parts[2], url.str.extract(_TRAILING)).cast(pl.Int64, strict=False)
    return parts[0], parts[1], number


KEYS = (
    "status", "lifecycle", "stateVersion", "statePayload", "pr", "prs", "prAutoDetect",
    "createdAt", "restoredAt", "terminatedAt", "terminationReason",
    "runtimeHandle", "tmuxName", "role", "project", "agent", "branch", "worktree",
    "issue", "issueTitle", "displayName", "codexModel",
    "opencodeSessionId", "claudeSessionUuid", "codexThreadId", "lifecycleEvidence",
    "detectingAttempts", "detectingStartedAt", "detectingEscalatedAt", "detectingEvidenceHash",
    "agentReportedState", "agentReportedAt", "agentReportedNote", "agentReportedPrNumber",
    "agentReportedPrUrl", "agentReportedPrIsDraft",
    "reportWatcherActiveTrigger", "reportWatcherTriggerCount", "reportWatcherTriggerActivatedAt",
    "prEnrichment", "prReviewComments", "mergedPendingCleanupSince",
    "recoveryCount", "escalatedAt", "escalationReason",
)  # fmt: skip
"""The stored keys that become columns, under their own names."""

_SILENT = frozenset(
    (
        "summary", "pinnedSummary", "userPrompt", "dashboard", "dashboardPort",
        "terminalWsPort", "directTerminalWsPort", "promptDelivered", "opencodeCleanedAt",
        "reportWatcherLastAuditedAt", "displayNameUserSet",
    )
)  # fmt: skip
_KNOWN = frozenset(KEYS) | _SILENT
_NOTHING = (None,) * len(KEYS)
_MOST_KEYS_NAMED = 40
Record = dict[str, str | None]


class NoRecordError(ValueError):
    """The text is no session record."""


@dataclass(frozen=True)
class Opened:
    """What is kept of one file that should be a session record."""

    file: File
    session_id: str
    size_bytes: int
    modified_s: float | None
    values: tuple[str | None, ...]
    other_keys: str | None
    problem: str | None


def read_records(files: Iterable[File], faults: Faults) -> pl.DataFrame:
    """Every session record of a tree as flat texts, one row a file.

    Parameters
    ----------
    files : iterable of File
        Those of the four kinds that are records.
    faults : Faults
        Where to say what could not be read.

    Returns
    -------
    polars.DataFrame, shape (n_files, len(KEYS) + 13)
        ``path``, ``session_id``, ``layout``, ``directory``, ``project``, ``archived_at``,
        ``modified_at``, ``size_bytes``, ``is_migrated_original``, ``is_readable``,
        ``problem``, ``other_keys``, ``sessionId``, and `KEYS` as texts.
    """
    opened = [_open(file, faults) for file in files]
    columns: dict[str, pl.Series] = {
        "path": texts([faults.below(record.file.path) for record in opened]),
        "session_id": texts([record.session_id for record in opened]),
        "layout": texts([str(record.file.kind) for record in opened]),
        "directory": texts([record.file.directory for record in opened]),
        "directory_project": texts([project_of(record.file.directory) for record in opened]),
        "is_migrated_original": pl.Series(
            [record.file.is_migrated for record in opened], dtype=pl.Boolean
        ),
        "archived_at": _archived_at(opened),
        "modified_at": moments([record.modified_s for record in opened]),
        "size_bytes": pl.Series([record.size_bytes for record in opened], dtype=pl.Int64),
        "is_readable": pl.Series([record.problem is None for record in opened], dtype=pl.Boolean),
        "problem": texts([record.problem for record in opened]),
        "other_keys": texts([record.other_keys for record in opened]),
    }
    held = zip(*(record.values for record in opened), strict=True) if opened else [()] * len(KEYS)
    keys = {key: texts(values) for key, values in zip(KEYS, held, strict=True)}
    frame = pl.DataFrame(columns | keys)
    named = frame.with_columns(
        sessionId="session_id",
        project=pl.coalesce(
            pl.when(pl.col("layout") == str(Kind.JSON_RECORD)).then("directory_project"),
            pl.col("project"),
            "directory_project",
        ),
    )
    return named.drop("directory_project")


def _open(file: File, faults: Faults) -> Opened:
    name = file.name
    archive = ARCHIVE_NAME.match(name) if file.kind in (Kind.ARCHIVE, Kind.JSON_ARCHIVE) else None
    session_id = archive["id"] if archive else name.removesuffix(".json")
    content = read_file(file.path, faults, session_id=session_id)
    if content.text is None:
        return _unread(file, session_id, content, content.problem)
    if not content.text.strip():
        problem = "empty: its name is reserved, and its spawn goes on or was cut off"
        fault = Fault(
            "record.reserved", "info", problem, faults.below(file.path), session_id=session_id
        )
        faults.add(fault)
        return _unread(file, session_id, content, problem)
    # A name promises a layout, and a hand that copies files keeps none.
    is_json = content.text.lstrip().startswith(("{", "["))
    parse = json_record if is_json or "=" not in content.text else key_value_record
    try:
        record = parse(content.text)
    except NoRecordError as error:
        faults.add(
            Fault(
                "record.unreadable",
                "error",
                str(error),
                faults.below(file.path),
                example=example(content.text),
                session_id=session_id,
            )
        )
        return _unread(file, session_id, content, str(error))
    values = tuple(map(record.get, KEYS))
    size_bytes, modified_s = content.size_bytes, content.modified_s
    return Opened(file, session_id, size_bytes, modified_s, values, _others(record), None)


def _unread(file: File, session_id: str, content: Content, problem: str | None) -> Opened:
    size_bytes, modified_s = content.size_bytes, content.modified_s
    return Opened(file, session_id, size_bytes, modified_s, _NOTHING, None, problem)


def json_record(text: str) -> Record:
    """The flat keys of a JSON record, as Agent Orchestrator flattens them.

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
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise NoRecordError(f"it is no JSON ({str(error)[:80]})") from error
    if not isinstance(value, dict):
        raise NoRecordError(f"it is a JSON {type(value).__name__}, and no object")
    return {
        key: item if type(item) is str else _flat(key, item)
        for key, item in value.items()
        if item is not None
    }


def key_value_record(text: str) -> Record:
    r"""The keys of a record of lines ``key=value``; the last of a key counts.

    Parameters
    ----------
    text : str
        The file.

    Returns
    -------
    dict of str to str
        Blank lines, comments and lines without ``=`` are passed over.

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
        trimmed = line.strip(WHITE_SPACE)
        if not trimmed or trimmed.startswith("#"):
            continue
        key, equals, value = trimmed.partition("=")
        if equals and key:
            record[key.strip(WHITE_SPACE)] = value.strip(WHITE_SPACE)
    if not record:
        raise NoRecordError("no line of it holds a key and a value")
    return record


def _flat(key: str, value: Any) -> str:
    if isinstance(value, bool):
        words = ("on", "off") if key == "prAutoDetect" else ("true", "false")
        return words[0] if value else words[1]
    return _ENCODER.encode(value)


def _others(record: Mapping[str, object]) -> str | None:
    others = [key for key in record if key not in _KNOWN]
    return ",".join(others[:_MOST_KEYS_NAMED]) if others else None


def _archived_at(opened: list[Opened]) -> pl.Series:
    """When each record was put away: the name has dashes for colons and the point."""
    matches = [
        ARCHIVE_NAME.match(record.file.name)
        if record.file.kind in (Kind.ARCHIVE, Kind.JSON_ARCHIVE)
        else None
        for record in opened
    ]
    digits = pl.col("at").str.replace_all(r"\D", "")
    whole = digits.str.slice(0, 14).str.to_datetime("%Y%m%d%H%M%S", strict=False, time_unit="us")
    ms = digits.str.slice(14).cast(pl.Int64, strict=False).fill_null(0)
    names = pl.DataFrame({"at": texts([match["at"] if match else None for match in matches])})
    at = (whole + pl.duration(milliseconds=ms)).dt.replace_time_zone("UTC")
    return names.select(at.alias("at")).to_series()


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
