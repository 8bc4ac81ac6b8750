"""Calls of tools in one shape, and the phrases of answers and prompts, without their texts.

An input or a result may be a whole file, so none is kept: only a digest, the file, host or
command that a call was about, and whether a summary of tests or a known phrase was found.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache
from hashlib import sha256

import polars as pl

from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.schema import CALLS, INPUTS, RESULTS
from stateanalytics.systems.history import values_at
from stateanalytics.systems.situations import first_that_holds

_MOST_NAME_CHARS = 300
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_PATH = rf'"(?:file_path|filePath|notebook_path|path)"\s*:\s*{_TEXT}'
_PATCHED = r"\*\*\* (?:Update|Add|Delete) File: ([^\n\\]+)"
_HOST = r'"url"\s*:\s*"[a-z]+://([^/"?#\\]+)'
_COMMAND = rf'"(?:command|cmd)"\s*:\s*{_TEXT}'
_ARGUMENTS = r'"(?:command|cmd)"\s*:\s*\[\s*("(?:[^"\\]|\\.)*"(?:\s*,\s*"(?:[^"\\]|\\.)*")*)\s*\]'
_SCRIPT = rf'^"(?:[^"]*/)?(?:ba|z|da|k|fi)?sh"\s*,.*?{_TEXT}\s*$'
_BETWEEN = r'"\s*,\s*"'
_VALUE = r"""(?:"[^"]*"|'[^']*'|\\.|[^\s;&|])*"""
_STARTERS = r"sudo|time|nice|exec|env|xargs|then|do|else|timeout\s+\S+"
_SET = rf"(?:[A-Za-z_]\w*={_VALUE}[\s;&]+|(?:{_STARTERS})\s+)*"
_CHANGED_FOLDER = r"^\s*(?:cd\s+[^;&|\n]+(?:&&|;|\n)\s*)*"
_NAME = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s;|&<>()])+"""
_FIRST = rf"{_CHANGED_FOLDER}{_SET}({_NAME})"
# A cmdlet of PowerShell that selects or formats keeps the exit code of the program before it.
_CMDLETS = r"\|\s*(?i:(?:select|where|sort|format|measure|out)-[a-z]+)\b[^;|&\n]*"
_LAST_COMMAND = rf"([^;|&\n]*?)(?:{_CMDLETS})*$"
# Only those commands of git are named whose exit code may be an answer.
_DIFFERS = r"diff\b.* --(?:no-index|exit-code|quiet)"
_PROGRAM = rf"^\s*{_SET}(git (?:config|{_DIFFERS}|grep|check-ignore|merge-base)\b|{_NAME})"
_OPTION = r"-[^\s;&|]+[ \t]+(?:[^\s;&|-][^\s;&|]*[ \t]+)?|workspace[ \t]+\S+[ \t]+"
"""An option with its value, if any; a workspace may be named at the same place."""
TESTS = (
    r"(?:^|[\s;&|/(\"'])(?:pytest|py\.test|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|ava|"
    r"unittest|go\s+test|cargo\s+(?:test|nextest)|node\s+--test|(?:npm|pnpm|yarn|bun|deno)\s+"
    rf"(?:{_OPTION}|run\s+)*test\S*|"
    r"(?:mvn|gradle|\./gradlew|\./mvnw|make|rake|dotnet|bazel|swift|mix|sbt)\s+(?:\S+\s+)*?"
    r"(?:test|check|verify))(?:$|[\s;&|:)\"'])"
)
"""The commands that start runners of tests."""
_NO_TESTS = (
    r"\b(?:[cp]?npm|yarn|bun|deno|pip[3x]?|uv|pdm|poetry|(?:mini|micro)?(?:conda|mamba)|cargo|gem"
    r"|bundle|composer|dotnet|go|brew|apk|apt(?:-get)?|dnf|yum|choco|winget)[ \t]+"
    rf"(?:{_OPTION}|(?:tool|global|pip)[ \t]+)*(?:i|add|get|create|require|download|(?:un)?install"
    r"|remove|update|upgrade|ls|list|why|info|view|show)\b[^;&|\n]*"
    r"|\b(?:e?grep|rg|which|ls|find|cat|head|tail|sed|echo|pgrep|pkill)[ \t][^;&|\n$]*"
    r"|\S+[ \t]+--(?:version|help)\b"
)
"""Parts of commands that name a runner without running it."""
_GIT = rf"(?:^|[;&|\n(]|-l?c\s+[\"'])\s*{_SET}git[ \t]+(?:-[Cc][ \t]+\S+[ \t]+|-\S+[ \t]+)*"
UNDOING = (
    rf"{_GIT}(?:restore\b|revert\b"
    r"|reset[ \t]+(?:[^\s;&|]+[ \t]+)*"
    r"(?:--(?:hard|keep|merge)\b|(?:HEAD|@)[~^@{]|ORIG_HEAD|[0-9a-f]{7,40}\b)"
    # A checkout of files: after two dashes, after a revision, or a name with an extension.
    r"|checkout[ \t]+(?:[^\s;&|]+[ \t]+)*--(?:\s|$)|checkout[ \t]+(?:-[fqp][ \t]+)*"
    r"(?:[^\s;&|<>()#-][^\s;&|()]*[ \t]+[^\s;&|<>()#\d-]|\.(?:[\s;&|/]|$)"
    r"|\S*\.[A-Za-z]\w{0,5}(?:[\s;&|)]|$)))"
)
"""Commands that undo changes. A checkout of a branch undoes nothing."""
_LOOKING = (
    rf"{_CHANGED_FOLDER}(?:cat|head|tail|ls|rg|e?grep|find|fd|pwd|wc|tree|stat|which|echo|nl|jq"
    r"|sed -n|git (?:status|log|diff|show|blame|grep))\b(?:[^;&<>\n]|<[^<])*$"
)
"""Commands that only read."""
_NO_UNDOING = (
    r"\brestore\b[^;&|\n]*[ \t](?:--staged|-S)\b[^;&|\n]*"
    r"|\brevert[ \t]+--(?:abort|quit|skip|continue)\b"
)
"""Parts of commands like `UNDOING` that do not change files."""
_WORKTREE = r"restore\b[^;&|\n]*[ \t](?:--worktree|-W|-SW|-WS)\b"
_STRING = r"""(?s:"(?:[^"\\]|\\.)*"|'[^']*')"""
_QUOTED_PATH = r"""(?:"[\w$.:~ -]*[/\\][^"\n]*"|'[\w.:~ -]*[/\\][^'\n]*')"""
_SHELL = (
    r"(?:^|[\s;&|(/])(?:(?:ba|z|da|k|fi|s|pw)?sh|powershell|su|eval)(?:\.exe)?[ \t][^;&|\n\"'\\]*"
)
_NOT_OF_PROGRAMS = {
    rf"\bgit(?:[ \t]+(?:-[Cc][ \t]+(?:{_STRING}|\S+)|-\S+))+": "git",
    rf"({_STRING}|\\.)|(?m:^|[ \t;])#[^\n]*": "${1}",
    # Quoted text is a message or a pattern, unless it is the program or a command for a shell.
    rf"(\A\s*{_STRING}|[;&|]\s*{_QUOTED_PATH}|{_SHELL}{_STRING}|\\.)|{_STRING}": "${1}",
    r"\d?[<>]&[\d-]|\d?&?>\s*/dev/null|\\\n|(?:\s*[;\n]\s*(?:fi|done|esac))*[\s;]*\z": " ",
}
"""Parts of a command line that do not show which programs run, and their replacements."""

_DOCUMENT = re.compile(r"(?<!<)<<-?[ \t]*[\"'\\]?([A-Za-z_][\w.-]*)[\"']?")
"""The beginning of a here-document, and the word that ends it."""

_MOST_RESULT_CHARS = 4000
_TIMES = r"\b\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds)\b|\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?"
_COLOURS = r"(?:\x1b|\\u001b)\[[\d;]*m"
_SAID_IN_QUOTES = (
    r"""(^|[\s(:])(?:"[^"\n]{2,300}"|'[^'\n]{2,300}'|`[^`\n]{2,300}`|[“„«][^“”»\n]{2,300}[“”»])"""
)
_OLD = rf'"(?:old_string|oldString|old_str)"\s*:\s*{_TEXT}'
_NEW = rf'"(?:new_string|newString|new_str)"\s*:\s*{_TEXT}'
_PATCH = r'\*\*\* Begin Patch|"patch":"@@'
_PATCH_LINES = {"replaced_digest": r"(?m)^-(.*)$", "written_digest": r"(?m)^\+(.*)$"}


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
    >>> inputs_of(asked).select("target", "last_command", "is_test", "is_undo").row(0)
    ('npm', 'tail', True, False)
    """
    # Agents repeat commands, and the patterns below are slow: each text is looked at once.
    known = texts.alias("text").unique(maintain_order=True)
    found = _inputs_of(known).with_columns(known)
    asked = texts.alias("text").to_frame()
    return INPUTS.conform(
        asked.join(found, on="text", how="left", nulls_equal=True, maintain_order="left")
    )


def _inputs_of(texts: pl.Series) -> pl.DataFrame:
    text = pl.col("text")
    listed = text.str.extract(_ARGUMENTS)
    words = listed.str.replace_all(_BETWEEN, " ").str.strip_chars('"')
    raw = pl.coalesce(text.str.extract(_COMMAND), listed.str.extract(_SCRIPT), words)
    command = raw.str.replace_many({r"\r": "", r"\n": "\n", r"\t": " ", r"\"": '"', r"\\": "\\"})
    documents = pl.when(command.str.contains("<<", literal=True)).then(command)
    command = pl.coalesce(documents.map_elements(_without_documents, pl.String), command)
    for pattern, kept in _NOT_OF_PROGRAMS.items():
        command = command.str.replace_all(pattern, kept)
    # polars also evaluates the text behind a null, so nulls become empty texts here.
    columns = {"text": texts.fill_null(""), "input_digest": digest(texts)}
    # Programs inside of $(…) run too, but are neither the first nor the last of the line.
    whole, first = pl.col("command"), pl.col("first")
    name = whole.str.replace_all(r"\$\([^()]*\)", " ")
    found = pl.DataFrame(columns).with_columns(command=command)
    found = found.with_columns(first=name.str.extract(_FIRST).str.replace_all("[\"']", ""))
    other = pl.when(first.is_null()).then(text).otherwise(pl.lit(""))
    target = pl.coalesce(first, *(other.str.extract(place) for place in (_PATCHED, _PATH, _HOST)))
    last = name.str.extract(_LAST_COMMAND).str.extract(_PROGRAM).str.replace("(git diff).* ", "$1 ")
    patch = pl.when(text.str.contains(_PATCH)).then(text).otherwise(pl.lit(""))
    patch = patch.str.replace_all("\\n", "\n", literal=True)
    edits = found.select(
        pl.coalesce(text.str.extract(pattern), _lines_in(patch, _PATCH_LINES[name])).alias(name)
        for name, pattern in (("replaced_digest", _OLD), ("written_digest", _NEW))
    )
    return found.hstack([digest(edit.replace("", None)) for edit in edits]).with_columns(
        target=target.str.slice(0, _MOST_NAME_CHARS),
        last_command=last.str.replace_all("[\"']", "").str.slice(0, _MOST_NAME_CHARS),
        is_test=_is_test(whole),
        is_undo=_is_undo(whole),
        is_look=name.str.contains(_LOOKING),
    )


def _without_documents(command: str) -> str:
    """A command without the texts of its here-documents."""
    # In Python, because a pattern of polars cannot require the same word again at the end.
    lines = command.split("\n")
    ends = [line.strip().rstrip("`\"');") for line in lines]
    last, kept, number = {end: number for number, end in enumerate(ends)}, [], -1
    while (number := number + 1) < len(lines):
        kept.append(_DOCUMENT.sub("<<", lines[number]))
        for word in _DOCUMENT.findall(lines[number]):
            if last.get(word, 0) > number:
                number = ends.index(word, number + 1)
                kept.append(lines[number].strip().removeprefix(word))
    return "\n".join(kept)


def _is_test(command: pl.Expr) -> pl.Expr:
    """Whether a command line runs tests, and does not only install or look for a runner."""
    named = command.str.contains(TESTS)
    running = pl.when(named).then(command).str.replace_all(_NO_TESTS, " ")
    return pl.coalesce(running.str.contains(TESTS), named)


def _is_undo(command: pl.Expr) -> pl.Expr:
    """Whether a command line undoes changes of files or commits."""
    # Few commands use git; the slow patterns see empty texts instead of the others.
    of_git = pl.when(command.str.contains("git", literal=True)).then(command).otherwise(pl.lit(""))
    acting = of_git.str.replace_all(_NO_UNDOING, "")
    is_undo = acting.str.contains(UNDOING) | of_git.str.contains(f"{_GIT}{_WORKTREE}")
    return pl.when(command.is_not_null()).then(is_undo.fill_null(value=False))


def _lines_in(text: pl.Expr, pattern: str) -> pl.Expr:
    """The lines of a text that match, joined."""
    return text.str.extract_all(pattern).list.eval(pl.element().str.slice(1)).list.join("\n")


def results_of(texts: pl.Series) -> pl.DataFrame:
    """What calls returned, from the text of their results.

    Parameters
    ----------
    texts : polars.Series of String
        Plain, or the JSON of a list of texts; null where there is none.

    Returns
    -------
    polars.DataFrame
        A row for each, in the shape of `schema.RESULTS`. The digest is of the first 4,000
        characters without durations and clock times, so that two equal runs of tests are equal.

    Examples
    --------
    >>> given = pl.Series(["2 failed, 3 passed in 0.12s", "2 failed, 3 passed in 0.48s", None])
    >>> found = results_of(given)
    >>> found["test_result"].to_list(), found["result_digest"].n_unique()
    (['failed', 'failed', None], 2)
    """
    text = pl.col("text")
    is_json = text.str.starts_with("[{")
    end = text.str.tail(_MOST_RESULT_CHARS).str.replace_all(_COLOURS, "")
    lines = pl.when(is_json).then(end.str.replace_many(["\\n", "\\t"], ["\n", "\t"])).otherwise(end)
    # If several suites ran, one failure makes the result "failed".
    results = {
        result: lines.str.contains("(?m)" + _patterns("test_summaries.csv", "result", result))
        for result in ("failed", "passed")
    }
    begin = text.str.slice(0, _MOST_RESULT_CHARS).str.replace_all(_TIMES, "")
    rows = pl.DataFrame({"text": texts.fill_null("")}).select(
        begin=pl.when(texts.is_not_null()).then(begin),
        test_result=first_that_holds(results),
    )
    return RESULTS.conform(rows.with_columns(result_digest=digest(rows["begin"])))


def phrase_in(text: pl.Expr, kind: str) -> pl.Expr:
    """Whether the beginning of a text has a phrase of a kind, by ``core/data/phrases.csv``.

    Parameters
    ----------
    text : polars.Expr
        At most some hundred characters of an answer or a prompt.
    kind : str
        ``gives_up`` or ``asks`` of answers, or ``corrects`` of prompts.

    Notes
    -----
    A hypothesis: words do not prove that somebody gave up.

    Examples
    --------
    >>> said = pl.DataFrame({"text": ["I was unable to fix the build.", "All tests pass."]})
    >>> said.select(phrase_in(pl.col("text"), "gives_up")).to_series().to_list()
    [True, False]
    """
    found, excused = (_patterns("phrases.csv", "kind", name) for name in (kind, f"not_{kind}"))
    # Quoted phrases are usually quotations, so they are removed.
    own = text.str.replace_all(_SAID_IN_QUOTES, "${1}")
    is_found = own.str.contains(f"(?is){found}")
    if not excused:
        return is_found
    # A success that is told after the phrase excuses it; one before it does not.
    in_doubt = pl.when(is_found).then(own).otherwise(pl.lit(""))
    is_excused = in_doubt.str.contains(f"(?is)(?:{found}).*?(?:{excused})")
    return is_found & ~is_excused


@cache
def _patterns(table: str, column: str, value: str) -> str:
    """All patterns of a table whose column has this value, joined into one."""
    rows = table_rows("stateanalytics.core", table)
    return "|".join(f"(?:{row['pattern']})" for row in rows if row[column] == value)


def phrase_of(text: pl.Expr, **is_asked: pl.Expr) -> pl.Expr:
    """The kind of phrase that the beginning of a text has, the first that fits; null: none.

    Parameters
    ----------
    text : polars.Expr
        As for `phrase_in`.
    **is_asked : polars.Expr
        By kind, the rows in which it is looked for.
    """
    return pl.coalesce(
        # polars also evaluates the text behind a null; an empty text is cheap.
        pl.when(phrase_in(pl.when(asked).then(text).otherwise(pl.lit("")), kind)).then(pl.lit(kind))
        for kind, asked in is_asked.items()
    )


MOST_MESSAGE_CHARS = 500
_MOST_CHARS = 4000
_LAST_LINES = r"(?s)^[^\n]*[^\s:=\\][ \t\r]*\n(.*)$"
_FOLDER = r"^(?:/\w+)*/bin/"
_SILENT = r"(?i)^exit(?:ed with)? code \d+\s*$"
"""The message of a command that printed nothing."""
_OUTCOMES = {
    "denied": ("permission_rejected", "permission_denied", "hook_blocked", "declined"),
    "timed_out": ("timeout", "timed_out"),
    "interrupted": ("interrupted", "user_interrupt", "cancelled", "aborted", "shutdown"),
}
"""The causes of each outcome; any other cause is a failure."""
POLLS = ("BashOutput", "TaskOutput", "write_stdin", "wait")
"""Tools that read the output of a background process."""


@cache
def expected_exits() -> pl.DataFrame:
    """``program`` and ``exit_code``: nonzero exit codes that are an answer, not a failure."""
    rows = pl.DataFrame(table_rows("stateanalytics.core", "expected_exits.csv"))
    return rows.select(
        program="command", exit_code=pl.col("exit_code").cast(pl.Int64), is_expected=True
    )


def ends_of(sql: str) -> str:
    """SQL for a text, or for the beginning and end of a long one; the middle is never needed."""
    both = f"substr({sql}, 1, {_MOST_CHARS}) || substr({sql}, -{_MOST_CHARS})"
    return f"CASE WHEN length({sql}) > {2 * _MOST_CHARS} THEN {both} ELSE {sql} END"


def ends_in(text: pl.Expr, longest: int = MOST_MESSAGE_CHARS) -> pl.Expr:
    r"""A text, or the beginning and the last lines of a long one, which say what failed.

    The end consists of whole lines, so that a secret is never shown without the name that marks
    it. If the end has no whole line, or the text has a private key, only the beginning is kept.

    Examples
    --------
    >>> printed = pl.DataFrame({"text": ["make test\nok a\nok b\nFAIL c", "x" * 40]})
    >>> printed.select(ends_in(pl.col("text"), 20)).to_series().to_list()
    ['make test\n…\nFAIL c', 'xxxxxxxxxxxxxxxxxxxx']
    """
    n_end = longest * 2 // 5
    # Short texts are null here, which saves the searches below.
    long = pl.when(text.str.len_chars() > longest).then(text)
    begin = long.str.slice(0, longest - n_end - 2).str.replace(r"\s\S*$", "")
    # After a line that ends in a name, the next line may be its secret: it is not shown.
    end = long.str.strip_chars_end().str.tail(n_end).str.extract(_LAST_LINES)
    has_key = long.str.contains("PRIVATE KEY|PuTTY-User-Key-File")
    both = pl.when(~has_key).then(pl.concat_str(begin, pl.lit("\n…\n"), end))
    return pl.coalesce(both, text.str.slice(0, longest))


def calls_from(tools: pl.DataFrame, system: str) -> pl.DataFrame:
    """The calls of a system's own frame in the shape of `schema.CALLS`.

    Parameters
    ----------
    tools : polars.DataFrame
        Columns of `schema.CALLS`, as far as the system knows them; ``is_error`` (null: without
        a result); and optionally ``is_background``: the process ran on after the result, so
        its end is not known.
    system : str
        Its name.

    Returns
    -------
    polars.DataFrame
        In the shape of `schema.CALLS`, in order of time within each part of a thread.

    Notes
    -----
    A command that answers by its exit code, such as ``grep`` without a hit, did not fail:
    ``core/data/expected_exits.csv`` lists these with a source for each. If a line printed
    nothing, the exit code is that of its first command, as in ``rg x && cat y``.
    """
    shaped = CALLS.conform(tools)
    lasted = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1e6
    # If a result is older than its call, a time is wrong, so no duration is known.
    lasted = pl.when(lasted >= 0).then(lasted)
    first, last = (pl.col(name).str.replace(_FOLDER, "") for name in ("target", "last_command"))
    known = expected_exits()
    pair = ["program", "exit_code"]
    pairs = known.select(pl.concat_str(pair, separator=" ")).to_series()
    is_first = pl.concat_str(first, "exit_code", separator=" ").is_in(pairs.implode())
    is_first &= pl.col("message").str.contains(_SILENT)
    is_poll = pl.col("tool").is_in(POLLS) & pl.col("test_result").is_not_null()
    rows = shaped.with_columns(
        tools["is_error"],
        tools.get_column("is_background", default=pl.lit(value=False)).alias("is_background"),
        pl.col("is_test") | is_poll,
        system=pl.lit(system),
        duration_s=pl.coalesce("duration_s", lasted),
        program=pl.when(is_first).then(first).otherwise(last),
    ).join(known, on=pair, how="left", maintain_order="left")
    by_cause = [
        pl.when(pl.col("cause").is_in(list(causes))).then(pl.lit(outcome))
        for outcome, causes in _OUTCOMES.items()
    ]
    is_open = pl.col("ended_at").is_null() | pl.col("is_error").is_null()
    runs_on = pl.col("is_background") & ~pl.col("is_error") & pl.col("exit_code").is_null()
    outcome = pl.coalesce(
        # Tests that run on after their time limit may still pass.
        pl.when(runs_on, "is_test").then(pl.lit("unknown")),
        *by_cause,
        pl.when(is_open | runs_on).then(pl.lit("unknown")),
        pl.when(~pl.col("is_error")).then(pl.lit("ok")),
        pl.when("is_expected").then(pl.lit("expected_nonzero")),
        pl.lit("failed"),
    )
    return CALLS.conform(rows.with_columns(outcome=outcome)).sort(
        "source", "thread_id", "part_id", "started_at", maintain_order=True
    )


def in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls from a frame that already has the columns of `schema.CALLS`, sorted."""
    place = ("source", "thread_id", "part_id", "started_at", "entity_id")
    return CALLS.conform(calls).sort(place)


_OF_THE_END = dict.fromkeys(
    ("ended_at", "duration_s", "cause", "message", "exit_code", *RESULTS.dtypes), "ended_at"
)


def calls_until(calls: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The calls that had begun at an instant, without results of those that had not ended."""
    began = calls.filter(pl.coalesce("started_at", "ended_at") <= at)
    return began.with_columns(
        outcome=pl.when(pl.col("ended_at") > at).then(pl.lit("unknown")).otherwise("outcome"),
        **values_at(at, _OF_THE_END),
    )


def turns_until(turns: pl.DataFrame, at: datetime) -> pl.DataFrame:
    """The turns that had begun at an instant, without answers of those that had not ended."""
    begun = turns.filter(pl.col("started_at") <= at)
    return begun.with_columns(
        **values_at(
            at, dict.fromkeys(("ended_at", "gives_up", "is_question"), "ended_at"), is_written=False
        )
    )
