"""Where Agent Orchestrator keeps what: names of directories and files, every generation."""

from __future__ import annotations

import re
from enum import StrEnum

HASH_DIRECTORY = re.compile(r"^([0-9a-f]{12})(?:-(.+))?$")
"""A project before April 2026: twelve digits, mostly with a name after them."""

MIGRATED = ".migrated"
"""What the storage migration adds to the name of a directory whose records it copied."""

OBSERVABILITY = "-observability"
RECORD_NAME = re.compile(r"^[A-Za-z0-9_-]+$")
ARCHIVE_NAME = re.compile(
    r"^(?P<id>[A-Za-z0-9_-]+?)_"
    r"(?P<at>\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}-\d{3}Z|\d{8}T\d{6}Z)(?P<json>\.json)?$"
)
"""Name of an archived record: the session, and when it was put away."""

CORRUPT = ".json.corrupt-"
LOCK = ".lock"
TEMPORARY = ".tmp."
EVENTS_DATABASE = "activity-events.db"
GO_DATABASE = "ao.db"
ROOT_NAMES = (".agent-orchestrator", ".ao")
"""Directories of a home that Agent Orchestrator writes to."""


SYSTEM = "agent_orchestrator"


class Kind(StrEnum):
    """What a file holds."""

    JSON_RECORD = "json"
    RECORD = "kv"
    ARCHIVE = "kv_archive"
    JSON_ARCHIVE = "json_archive"
    CORRUPT_COPY = "corrupt copy"
    LOCK = "lock"
    AUDIT = "audit trail"
    ACTIVITY = "activity log"
    OBSERVABILITY = "observability log"
    TRACES = "process snapshot"
    NOTIFICATIONS = "notifications"
    RECOVERY = "recovery log"
    FEEDBACK = "feedback report"
    EVENTS_DATABASE = "events database"
    GO_DATABASE = "database of the Go rewrite"


RECORDS = (Kind.JSON_RECORD, Kind.RECORD, Kind.ARCHIVE, Kind.JSON_ARCHIVE)


def project_of(directory: str) -> str | None:
    """The project that the name of a directory tells; None: only a hash.

    Examples
    --------
    >>> project_of("82cd38fe090d-billing.migrated"), project_of("82cd38fe090d"), project_of("web")
    ('billing', None, 'web')
    """
    name = directory.removesuffix(MIGRATED)
    found = HASH_DIRECTORY.match(name)
    return found.group(2) if found else name
