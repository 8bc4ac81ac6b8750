"""The fault of a cluster, which is what one person would mend, and its title for people.

``faults.csv`` is the table: of the rows of a cluster's cause group, the first that fits its
template names the fault. Where a row names none, the innermost message is the fault. Both depend
on the cluster alone, so a fault has one id in every week and store, whatever else failed.
"""

from __future__ import annotations

import re
from functools import lru_cache

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.package_tables import table_rows
from stateanalytics.core.text import shortened
from stateanalytics.core.words import shorten_template
from stateanalytics.errors import check_columns
from stateanalytics.failures.call_outcomes import CALL
from stateanalytics.failures.cause_groups import NO_MESSAGE, proposed_cause
from stateanalytics.failures.templates import versioned_id

LONGEST_TITLE = 80
_LONGEST_PART = 30
_FEWEST = 5
VERSION = "f1"
"""The beginning of every id of a fault."""

RULES = table_rows("stateanalytics.core", "faults.csv")
"""The table, in the order in which rows claim the clusters of their ``cause_group``.

``message`` is a regular expression for templates, regardless of case; empty: all of the group.
``fault`` is empty where each innermost message is a fault of its own. ``label`` begins the
title; ``{}`` in it is what the group of ``message`` matches: each value is another fault.
"""

# The closing quote may be missing: messages are cut.
_KEYED = re.compile(
    r"""["'](?:message|msg|detail|error_description)["']\s*:\s*"""
    r"""(?:"((?:[^"\\]|\\.)+)|'((?:[^'\\]|\\.|(?<=\w)'(?=\w))+)|`([^`]+))"""
)
_CLASS = r"(?:(?:\w+\.)*\w*(?:error|exception): )?"
# What programs put before the message of another program.
_WRAPPERS = re.compile(
    rf"(?i)^(?:{_CLASS}(?:api error|error code|http|got status|unexpected status|status code)"
    r":? (?:status )?\d{3}(?:(?: [a-z]+){1,3}: |:? (?:- )?)"
    rf"|{_CLASS}(?:[a-z]+ )?(?:request |command )?failed with (?:http|status|exit code) \d{{1,3}}: "
    rf"|{_CLASS}(?:\w+ )?exited with (?:exit )?code \d{{1,3}}: |{_CLASS}exit code:? \d{{1,3}}\s+"
    r"|(?:runtime|tool)?(?:error|exception): |litellm\.\w+: (?:\w+(?:exception|error) - )?"
    r"|(?:fatal|warning|remote): |(?:stream disconnected before completion"
    r"|failed to stream api call|api error|error during build): "
    r"|an error occurred \(\w+\) when calling the \w+ operation(?: \([^)]*\))?: "
    r"|<tool_use_error>|<\*>: |[⎿●■│×\s]+)+"
)
_TAILS = re.compile(
    r"(?i),? ?\(?(?:url: |cf-ray|request[ _]?id:? |request <).*$|</?tool_use_error>$|<<\*>>$"
)
# A record of a log that says nothing of an error, whole or cut.
_LOGGED = re.compile(r"""(?i)\{[^{}]*"level":\s*"(?:debug|info|trace|warn)[^{}]*(?:\}|$)""")
# How what says it begins in the output of a command, the more telling ones first.
_TELLING = tuple(
    re.compile(rf"(?<!\S)(?:{begins})")
    for begins in (
        r"--- FAIL: (?!<)|FAILED (?=\S+::)|E {1,3}(?=\S)|CONFLICT \(|! \[(?:remote )?rejected",
        r"(?:<\*>:){2,3} (?=[^\s<#])",
        r"(?<![a-z] )(?:[\w-]+: )?(?i:error|fatal|panic|unknown flag)(?:\[\S+\]| TS\d+)?: "
        r"|[\w.]+Error: |(?<=━ )[×!] (?=\S)|error: unknown option ",
        r"<\*> issues: |\S+: (?:\*\*\* |(?:[^:]{1,60}: )?(?i:not found|no such file|no match))",
    )
)
# What runners of tasks print before a command does: the command itself, and its task.
_ECHOED = re.compile(r"^\[\S+\] \$ .*(?=\[\S+\] ERROR )|^(?:> \S+ \S+ (?:<\*> )?)+> ")
_TOOL = re.compile(r"(?:^|: )([A-Z][A-Za-z]+) (?:exited|failed|timed out)\b")
_LETTERS = re.compile(r"[^\W\d_]{2}")
_BLANKS = re.compile(r"\d+|<\*>")
# Names of a project's own things, which another message of one fault has others of; the frame
# at the end of a trace says which fault it is.
_NAMES = re.compile(
    r"""( in \w+ \([\w.]+\))|(?<!\w)(?:`[^`\s]*`|'[^'\s]*'|"[^"\s]*"|[\w.-]*/[\w./-]+"""
    r"""|\w[\w-]*\.[a-z]\w{1,4}|[a-z]+(?:_[a-z]+)+|[a-z]{2,}[A-Z]\w*)(?!\w)"""
)
# What fails because something else did: its exit code, its process, or what it waited for.
_CONSEQUENCE = (
    r"(?i)^(?:\w*error: )*(?:exit(?:ed)?(?: with)?(?: code| status)?:? (?:<\*>|[1-9]\d?)$"
    r"|(?:\w+ )*(?:sub)?process exited with (?:code|status) (?:<\*>|[1-9]\d?)(?: and signal \S+)?$"
    r"|(?:<\*>|\d+) (?:of|out of|/) (?:<\*>|\d+) (?:session|agent|run|job|task|step|play|worker"
    r"|child|process)(?:s|es|ren)? (?:have |were )?(?:failed|killed)\.?$"
    r"|(?:\w+[ _])*(?:reaped|removed as dead)$|its (?:process|runtime) (?:is|was) gone\b"
    r"|(?:an? |the )?(?:(?:upstream|parent|child|sub-?agent|sub-?task)s?(?: \S+)?(?: \S+)?"
    r"|dependenc(?:y|ies)(?: (?:job|run|session|step|task|play|<\*>))*)"
    r" (?:has |have )?(?:failed|escalated)\.?$)"
)
# A rule is about the beginning of a template, so that no text takes long.
_LONGEST = 1000
KEY = ("cluster_id", "code", "template", "template_id")
"""What `members` have in common that are in one cluster."""
# Cause groups whose titles name the provider.
_OF_PROVIDERS = (
    *("auth", "bad_request", "billing", "content_filter", "context_length", "empty_answer"),
    *("no_such_model", "provider_down", "provider_limit"),
)


def innermost(template: str) -> str:
    """What a template says inside of all envelopes: JSON, prefixes of clients, exit codes.

    Examples
    --------
    >>> innermost('API Error: 400 {"error":{"message":"prompt is too long"}}')
    'prompt is too long'
    >>> innermost("ToolError: Bash exited with code 127: <*>: poetry: not found")
    'poetry: not found'
    """
    whole = re.sub(r"\\+([\"'])", r"\1", template[:_LONGEST])
    kept = _LOGGED.sub("", whole)
    plain = kept if _LETTERS.search(kept) else whole
    said = ["".join(groups) for groups in _KEYED.findall(plain)]
    inside = said[-1] if said and _LETTERS.search(said[-1]) else plain
    bare = _TAILS.sub("", _WRAPPERS.sub("", inside)).strip()
    return bare if _LETTERS.search(bare) else inside


def add_faults(clusters: pl.DataFrame, place: str | None = None) -> pl.DataFrame:
    """Add the fault that each cluster is a sign of, and a title: cause, message, and where.

    Parameters
    ----------
    clusters : polars.DataFrame
        With ``code``, ``template``, ``cause_group`` and ``rule_name``; any may be null.
    place : str, optional
        The column of the tool or provider; null: not known.

    Returns
    -------
    polars.DataFrame
        ``clusters`` in its order with ``fault_id`` and ``title``, of at most
        `LONGEST_TITLE` characters; never null. A cluster of your own rules is a fault of its
        own. ``cause_proposed`` where there is no ``cause_group``: see `proposed_cause`.

    Raises
    ------
    MissingColumnsError
        If a column is absent.

    Examples
    --------
    >>> row = {"code": None, "template": "Bash exited with code 127: <*>: poetry: not found"}
    >>> row |= {"cause_group": "environment", "rule_name": None}
    >>> add_faults(pl.DataFrame([row]))["title"].item()
    'Missing command `poetry` · Bash'
    """
    needed = ["code", "template", "cause_group", "rule_name"]
    check_columns(clusters, needed, "add_faults")
    rows = clusters[needed if place is None else [*needed, place]].rows()
    schema = dict.fromkeys(("fault_id", "title", "cause_proposed"), pl.String)
    found = pl.DataFrame([_fault_of(*row) for row in rows], schema=schema, orient="row")
    return clusters[[name for name in clusters.columns if name not in schema]].hstack(found)


def titled_clusters(rows: pl.DataFrame, **counted: pl.Expr) -> pl.DataFrame:
    """A row per cluster of `members`, with its fault and title, and what else is ``counted``."""
    named = rows.group_by(KEY).agg(
        pl.col("cause_group").first(),
        pl.col("rule_name").sort().first(),
        place=place_of_cluster(),
        # A registry may have given another id than today's.
        assigned=pl.col("fault_id").first(),
        **counted,
    )
    titled = add_faults(named, "place")
    index = titled.columns.index("fault_id")
    return titled.replace_column(index, titled["assigned"].alias("fault_id"))


def titles_of_faults(rows: pl.DataFrame) -> pl.DataFrame:
    """``fault_id`` and ``title`` of each fault of `members`: what those of its clusters share."""
    titled = titled_clusters(rows, n=pl.len()).lazy()
    largest = titled.sort("n", "cluster_id", descending=[True, False])
    title = pl.col("title").map_batches(in_common, return_dtype=pl.String, returns_scalar=True)
    return largest.group_by("fault_id", maintain_order=True).agg(title).pipe(collected)


def in_common(titles: pl.Series) -> str | None:
    """The first title, with … for words in which others differ, where most words are the same.

    Examples
    --------
    >>> in_common(pl.Series(["limit of opus reached · Task", "limit of sonnet reached · Task"]))
    'limit of … reached · Task'
    """
    split = [title.split(" · ") for title in dict.fromkeys(titles) if title is not None]
    equally_long = [parts for parts in split if len(parts) == len(split[0])]
    return " · ".join(map(_same_words, zip(*equally_long, strict=True))) or None


def _same_words(texts: tuple[str, ...]) -> str:
    first = texts[0].split(" ")
    equally_long = [words for text in texts if len(words := text.split(" ")) == len(first)]
    same = [each[0] if len(set(each)) == 1 else "…" for each in zip(*equally_long, strict=True)]
    is_known = 2 * same.count("…") < len(first)
    return re.sub("…( …)+", "…", " ".join(same)) if is_known else texts[0]


@lru_cache(maxsize=10_000)
def _fault_of(
    code: str | None,
    template: str | None,
    group: str | None,
    name: str | None,
    place: str | None = None,
) -> tuple[str, str, str | None]:
    """The id of the fault of a cluster, its title, and the cause that is proposed."""
    text = (template or "")[:_LONGEST]
    is_whole = name is not None or text.startswith(NO_MESSAGE) or not _LETTERS.search(text)
    said = text.strip("()") if text.startswith(NO_MESSAGE) else innermost(text)
    fault, label = "", ""
    for rule in RULES:
        match = rule["cause_group"] == group and re.search(rule["message"], text, re.I)
        if match:
            value = match[1] if "{}" in rule["label"] else ""
            fault = rule["fault"] and f"{rule['fault']}\0{value}"
            label = rule["label"].format(value)
            break
    proposed = None if group or is_whole else proposed_cause(text)
    label = f"Perhaps {proposed.replace('_', ' ')}" if proposed else label
    own = f"\0{code}\0{template}" if is_whole else f"\1{_bare(said)}"
    tool = _TOOL.search(text)
    shown = name or _telling(said) or code
    title = title_of("" if name else label, shown, place or (tool and tool[1]))
    digest = versioned_id(f"{group}\0{own if is_whole or not fault else fault}", VERSION)
    return digest, title, proposed


def _telling(said: str) -> str:
    """What a title has no room for from its beginning, from the part on that says what failed."""
    found = (begins.search(said) for begins in _TELLING if len(said) > LONGEST_TITLE)
    first = next(filter(None, found), None)
    return said[first.start() :].lstrip("<*>: ") if first else _ECHOED.sub("", said)


def is_telling(text: str) -> bool:
    """Whether a text has more than a word or two, so that a fault can be known by it.

    Examples
    --------
    >>> is_telling("* is not a function"), is_telling("* and *")
    (True, False)
    """
    return len(_LETTERS.findall(text)) > _FEWEST


def _bare(said: str) -> str:
    """A message without numbers and names, unless nearly nothing is left."""
    blank = _BLANKS.sub("*", said)
    names = _NAMES.sub(lambda name: name[1] or "*", blank)
    bare = re.sub(r"\*(?:[, ]+\*)+", "*", names)
    return (bare if is_telling(bare) else blank).lower()


def is_consequence() -> pl.Expr:
    """Whether a ``template`` says only that something else failed.

    Examples
    --------
    >>> said = ["<*> of <*> sessions failed.", "exit 1", "exit 1: disk full"]
    >>> pl.DataFrame({"template": said}).select(is_consequence()).to_series().to_list()
    [True, True, False]
    """
    return pl.col("template").fill_null("").str.contains(_CONSEQUENCE)


def place_of_cluster() -> pl.Expr:
    """The tool of a cluster of calls, or the one provider, where the cause is one of providers."""
    tools = pl.col("kind").filter(pl.col("entity_type") == CALL).mode().sort().first()
    provider = pl.col("provider").drop_nulls().unique()
    is_one = pl.col("cause_group").first().is_in(_OF_PROVIDERS) & (provider.len() == 1)
    return pl.coalesce(tools, pl.when(is_one).then(provider.first()))


def title_of(label: str, said: str | None, place: str | None = None) -> str:
    """A title: the label unless the message says it, the message, and where it was.

    Examples
    --------
    >>> title_of("Disk full", "write <*>: no space left on device", "Bash")
    'Disk full · write … no space left on device · Bash'
    >>> title_of("Rate limit", "Rate limit reached"), title_of("", None)
    ('Rate limit reached', 'No message')
    """
    message = " ".join((said or "").split()) or "No message"
    end = ""
    if place and place.lower() not in f"{label} {message}".lower():
        end = f" · {shortened(place, _LONGEST_PART)}"
    if "`" in label:
        return shortened(label, LONGEST_TITLE - len(end)) + end
    alone = shorten_template(message, LONGEST_TITLE - len(end))
    begin = f"{label} · " if label and label.lower() not in alone.lower() else ""
    return begin + shorten_template(message, LONGEST_TITLE - len(begin) - len(end)) + end
