"""Tables that lie in the folder ``data`` of a package."""

from __future__ import annotations

import csv
from importlib import resources


def table_rows(package: str, name: str) -> list[dict[str, str]]:
    """The rows of a CSV file, each its texts by column; nothing is an empty text.

    Examples
    --------
    >>> table_rows("stateanalytics.core", "audit_codes.csv")[0]["severity"]
    'warning'
    """
    text = resources.files(package).joinpath("data", name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
