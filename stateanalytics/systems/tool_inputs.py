"""What a tool was called with, without its text: a digest, what it touches, what it runs.

The text of an input may be a whole file. Equal digests are equal inputs; the file, the host or
the command is what a call was about.
"""

from __future__ import annotations

from hashlib import sha256

import polars as pl

from stateanalytics.core.schema import Calls
from stateanalytics.core.shapes import Columns, frame


class Inputs(Columns, key=("input_digest",)):
    """What a call was about."""

    input_digest = Calls.input_digest
    target = Calls.target
    last_command = Calls.last_command
    is_test = Calls.is_test
    is_undo = Calls.is_undo


INPUTS = frame(Inputs)

_MOST_CHARS = 300
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_PATH = rf'"(?:file_path|filePath|notebook_path|path)"\s*:\s*{_TEXT}'
_PATCHED = r"\*\*\* (?:Update|Add|Delete) File: ([^\n\\]+)"
_HOST = r'"url"\s*:\s*"[a-z]+://([^/"?#\\]+)'
_COMMAND = rf'"(?:command|cmd)"\s*:\s*{_TEXT}'
_ARGUMENTS = r'"(?:command|cmd)"\s*:\s*\[\s*("(?:[^"\\]|\\.)*"(?:\s*,\s*"(?:[^"\\]|\\.)*")*)\s*\]'
_SCRIPT = rf'^"(?:[^"]*/)?(?:ba|z|da|k|fi)?sh"\s*,.*?{_TEXT}\s*$'
_BETWEEN = r'"\s*,\s*"'
_SET = r"(?:[A-Za-z_]\w*=\S*\s+|(?:sudo|time|nice|exec|env|xargs)\s+|timeout\s+\S+\s+)*"
_CHANGED_FOLDER = r"^\s*(?:cd\s+[^;&|\n]+(?:&&|;|\n)\s*)*"
_FIRST = rf"{_CHANGED_FOLDER}{_SET}([^\s;|&<>()]+)"
_LAST = rf"(?s)(?:^|[;|&\n])\s*{_SET}([^\s;|&<>()]+)[^;|&\n]*$"
TESTS = (
    r"(?:^|[\s;&|/])(?:pytest|py\.test|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|ava|"
    r"unittest|go\s+test|cargo\s+(?:test|nextest)|(?:npm|pnpm|yarn|bun)\s+(?:run\s+)?test\S*|"
    r"(?:mvn|gradle|\./gradlew|\./mvnw|make|rake|dotnet|bazel|swift|mix|sbt)\s+(?:\S+\s+)*?"
    r"(?:test|check|verify))(?:$|[\s;&|:])"
)
"""Runners of tests that people use, each by the words that it is started with."""
UNDOING = (
    r"(?:^|[\s;&|])git\s+(?:-\S+\s+)*(?:restore|revert|reset\s+--hard|"
    r"checkout\s+(?:\S+\s+)*--(?:\s|$)|checkout\s+(?:HEAD\S*\s+)?\.)"
)
"""Commands that take changes back; a checkout of a branch does not."""


def digest(texts: pl.Series) -> pl.Series:
    """The same digest for equal texts, on every machine; null for null.

    Examples
    --------
    >>> digest(pl.Series(["a", None, "a"])).to_list()
    ['ca978112ca1bbdcafac231b39a23dc4d', None, 'ca978112ca1bbdcafac231b39a23dc4d']
    """
    known = texts.unique().drop_nulls()
    digests = [sha256(text.encode("utf-8", "replace")).hexdigest()[:32] for text in known]
    return texts.replace_strict(known, pl.Series(digests, dtype=pl.String), default=None)


def inputs_of(texts: pl.Series) -> pl.DataFrame:
    """What calls were about, from the text of their inputs.

    Parameters
    ----------
    texts : polars.Series of String
        JSON, or whatever a tool takes; null where a call has none.

    Returns
    -------
    polars.DataFrame
        A row for each, in the shape of `INPUTS`.

    Examples
    --------
    >>> asked = pl.Series(['{"command": "cd app && CI=1 npm test | tail -5"}'])
    >>> inputs_of(asked).drop("input_digest").row(0)
    ('npm', 'tail', True, False)
    """
    text = pl.col("text")
    listed = text.str.extract(_ARGUMENTS)
    words = listed.str.replace_all(_BETWEEN, " ").str.strip_chars('"')
    raw = pl.coalesce(text.str.extract(_COMMAND), listed.str.extract(_SCRIPT), words)
    escaped = {r"\n": "\n", r"\t": " ", r"\"": '"', r"\\": "\\"}
    command = raw.str.replace_many(list(escaped), list(escaped.values()))
    found = pl.DataFrame({"text": texts, "input_digest": digest(texts)}).with_columns(
        command=command
    )
    name = pl.col("command")
    path = pl.coalesce(text.str.extract(_PATCHED), text.str.extract(_PATH))
    target = pl.coalesce(name.str.extract(_FIRST), path, text.str.extract(_HOST))
    return INPUTS.conform(
        found.with_columns(
            target=target.str.slice(0, _MOST_CHARS),
            last_command=name.str.extract(_LAST).str.slice(0, _MOST_CHARS),
            is_test=name.str.contains(TESTS),
            is_undo=name.str.contains(UNDOING),
        )
    )
