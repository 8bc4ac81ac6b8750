"""Session records: opened and parsed one by one, then one frame of flat texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import polars as pl

from stateanalytics.core import schema
from stateanalytics.io.cells import shown
from stateanalytics.systems.agent_orchestrator.columns import (
    filled,
    stored_moment,
    with_defaults,
    yes_no,
)
from stateanalytics.systems.agent_orchestrator.mapping import REPORT_STATES
from stateanalytics.systems.agent_orchestrator.places import (
    ARCHIVE_NAME,
    Fault,
    Faults,
    File,
    Kind,
    project_of,
    read_file,
)


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
_MOST_KEYS_NAMED = 40
_YEAR_3000_S = 32_503_680_000
Record = dict[str, str | None]


class NoRecordError(ValueError):
    """Raised where a text is no session record."""


_FILE = {
    **dict.fromkeys(("path", "session_id", "layout", "directory", "directory_project"), pl.String),
    "is_migrated_original": pl.Boolean,
    "archived_at": pl.String,
    "problem": pl.String,
    "size_bytes": pl.Int64,
    "modified_s": pl.Float64,
}
_COLUMNS = _FILE | dict.fromkeys(("other_keys", *KEYS), pl.String)


def read_records(files: Iterable[File], faults: Faults) -> pl.DataFrame:
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
    rows: list[tuple[object, ...]] = []
    records: list[Record] = []
    for file in files:
        row, record = _read(file, faults)
        rows.append(row)
        records.append(record)
    stored = set().union(*records)
    # Most keys are in no record of a tree.
    columns: dict[str, Sequence[object]] = {
        key: [record.get(key) for record in records] for key in KEYS if key in stored
    }
    of_files = list(zip(*rows, strict=True)) or [()] * len(_FILE)
    columns |= zip(_FILE, of_files, strict=True)
    if not stored <= _KNOWN:
        columns["other_keys"] = [_other_keys(record) for record in records]
    nothing = [None] * len(rows)
    frame = pl.DataFrame(
        pl.Series(name, columns.get(name, nothing), dtype) for name, dtype in _COLUMNS.items()
    )
    # The name has dashes for colons and the point.
    digits = pl.col("archived_at").str.replace_all(r"\D", "")
    whole = digits.str.slice(0, 14).str.to_datetime("%Y%m%d%H%M%S", strict=False, time_unit="us")
    ms = digits.str.slice(14).cast(pl.Int64, strict=False).fill_null(0)
    is_json_record = pl.col("layout") == str(Kind.JSON_RECORD)
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


def _other_keys(record: Record) -> str | None:
    return ",".join([key for key in record if key not in _KNOWN][:_MOST_KEYS_NAMED]) or None


def _read(file: File, faults: Faults) -> tuple[tuple[object, ...], Record]:
    """One file that should be a session record: its row of `_FILE`, and its content."""
    is_archive = file.kind in (Kind.ARCHIVE, Kind.JSON_ARCHIVE)
    name = file.name
    archive = ARCHIVE_NAME.match(name) if is_archive else None
    session_id = archive["id"] if archive else name.removesuffix(".json")
    below = faults.below(file.path)
    content = read_file(file.path, faults, session_id=session_id)
    record: Record = {}
    problem = content.problem
    if content.text is not None and not content.text.strip():
        problem = "empty: its name is reserved, and its spawn goes on or was cut off"
        faults.add(Fault("record.reserved", "info", problem, below, session_id=session_id))
    elif content.text is not None:
        # The name promises a layout, which files that people copied do not keep.
        is_json = content.text.lstrip().startswith(("{", "["))
        parse = json_record if is_json or "=" not in content.text else key_value_record
        try:
            record = parse(content.text)
        except NoRecordError as error:
            problem = str(error)
            example = shown(content.text)
            fault = Fault("record.unreadable", "error", problem, below, 1, example, session_id)
            faults.add(fault)
    row = (
        below,
        session_id,
        file.kind.value,
        file.directory,
        project_of(file.directory),
        file.is_migrated,
        archive["at"] if archive else None,
        problem,
        content.size_bytes,
        content.modified_s,
    )
    return row, record


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
    record = {key: text_of(item) for key, item in value.items() if item is not None}
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
