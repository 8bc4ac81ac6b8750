"""Your own clusters: a file of rules that win over the mined templates.

::

    version = 1

    [[rule]]
    name = "provider limit"               # what the cluster is called
    action = "merge"                      # name, merge, split or ignore
    code = "run.failed.provider_*"        # which codes: exact, or all that begin so
    message = "(?i)rate limit|overloaded" # which messages: a regular expression
    into_code = "run.failed.provider_retryable"

A row belongs to the first rule that fits. ``name`` only names its clusters; ``merge``
makes them one, across codes too where ``into_code`` is given; ``split`` makes a cluster for
each value of the groups of ``message``; ``ignore`` excludes the rows, and counts them.

Other people write the patterns, so they are checked before use and bounded in time. The
engine (that of polars) never backtracks: its time grows with text times pattern. So
repetitions that multiply are refused, long texts are shortened, and a clock is read in between.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.errors import ArgumentError, did_you_mean, found, in_short
from stateanalytics.failures.masking import shortened
from stateanalytics.io.files import toml_of_user

ACTIONS = ("name", "merge", "split", "ignore")
KEYS = ("name", "action", "code", "message", "into_code")
VERSION = 1

#: Characters of a pattern, and pieces of it once its counted repetitions are written out.
LONGEST, MOST_PIECES = 1_000, 2_000
#: Seconds that one pattern may take over all messages of a snapshot.
LIMIT_S = 10.0
_CHUNK = 16
_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*\}|\w)|\\x\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\{\d*,?\d*\}|.",
    re.S,
)
_CLASSES = (r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\p", r"\P")


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    name : str
        The name of its cluster.
    action : str
        One of `ACTIONS`.
    code : str or None
        The code, or its beginning followed by ``*``; ``""``: no code was stored.
    message : str or None
        A regular expression that matches somewhere in the message.
    into_code : str or None
        The code of the merged cluster; None: each code keeps its own.
    """

    name: str
    action: str
    code: str | None = None
    message: str | None = None
    into_code: str | None = None


@dataclass(frozen=True)
class Rules:
    """Rules in order; a row belongs to the first that matches it.

    Attributes
    ----------
    rules : tuple of Rule
        In the order of the file.
    origin : str
        The file, or ``rules``.
    """

    rules: tuple[Rule, ...] = ()
    origin: str = "rules"

    @classmethod
    def of(cls, rules: object) -> Rules:
        """Read rules.

        Parameters
        ----------
        rules : path, mapping, Rules or None
            A TOML file, the same as a mapping, or none.

        Returns
        -------
        Rules
            None gives no rules.

        Raises
        ------
        ArgumentError
            If there is no such file, it is no TOML, a key is unknown or missing, or a
            pattern cannot be used; names the file, the line and the key.

        Examples
        --------
        >>> rule = {"name": "limits", "action": "merge", "message": "rate limit"}
        >>> Rules.of({"rule": [rule]}).rules[0].name
        'limits'
        """
        if rules is None:
            return cls()
        if isinstance(rules, Rules):
            return rules
        if isinstance(rules, Mapping):
            return _read(rules, _Origin("rules", ""))
        if isinstance(rules, (str, Path)):
            path = Path(rules).expanduser()
            hint = "write patterns in single quotes, so that \\d needs no second backslash"
            text, whole = toml_of_user("rules", path, hint)
            return _read(whole, _Origin(str(path), text))
        raise ArgumentError(
            f"rules needs a TOML file or a mapping; found {found(rules)}.", 'rules="rules.toml"'
        )


class _Origin:
    """Where a key stands in the text of a file, for errors."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.splitlines()

    def wrong(self, number: int | None, key: str, problem: str, hint: str) -> ArgumentError:
        """The error for a key, which names the file and the line, the rule and the key."""
        line, rule = self._line(number, key), "" if number is None else f", rule {number}"
        at = "" if line is None else f", line {line}"
        in_rule = f", key {key!r}" if rule else ""
        return ArgumentError(f"{self.name}{at}{rule}{in_rule}: {problem}.", hint)

    def _line(self, number: int | None, key: str) -> int | None:
        heads = [i for i, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]
        first, last = 0, len(self.lines)
        if number is not None:
            if number > len(heads):
                return None
            first, last = heads[number - 1], [*heads, len(self.lines)][number]
        is_key = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        places = [i for i in range(first, last) if is_key.match(self.lines[i])]
        return places[0] + 1 if places else (first + 1 if number is not None else None)


def _read(whole: Mapping[str, Any], origin: _Origin) -> Rules:
    if unknown := sorted(set(whole) - {"version", "rule"}):
        hint = "a file of rules has version = 1 and [[rule]] tables"
        hint += did_you_mean(unknown[0], ("version", "rule"))
        raise origin.wrong(None, unknown[0], f"unknown key {unknown[0]!r}", hint)
    if whole.get("version", VERSION) != VERSION:
        problem = f"version {whole['version']!r} is not known"
        raise origin.wrong(None, "version", problem, "version = 1")
    tables = whole.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        problem = f"rule needs tables; found {in_short(tables)}"
        raise origin.wrong(None, "rule", problem, "begin every rule with [[rule]]")
    rules = tuple(_rule(table, number, origin) for number, table in enumerate(tables, 1))
    return Rules(rules, origin.name)


def _rule(table: Mapping[str, Any], number: int, origin: _Origin) -> Rule:
    wrong = partial(origin.wrong, number)
    for key, value in table.items():
        if key not in KEYS:
            hint = f"keys are {', '.join(KEYS)}" + did_you_mean(key, KEYS)
            raise wrong(key, "this key is unknown", hint)
        if not isinstance(value, str):
            raise wrong(key, f"a text was needed; found {in_short(value)}", f'{key} = "…"')
    name, action = table.get("name", ""), table.get("action")
    if not name.strip():
        raise wrong("name", "a rule needs a name", 'name = "provider limit"')
    if action not in ACTIONS:
        hint = 'action = "merge"' + did_you_mean(str(action), ACTIONS)
        raise wrong("action", f"needs one of {', '.join(ACTIONS)}; found {action!r}", hint)
    if table.get("code") is None and table.get("message") is None:
        problem = "a rule needs a code, a message or both"
        raise wrong("message", problem, "message = '(?i)rate limit'")
    if "*" in table.get("code", "").removesuffix("*"):
        problem = f"* stands at the end; found {table['code']!r}"
        raise wrong("code", problem, 'code = "run.failed.*"')
    if table.get("into_code") is not None and action != "merge":
        raise wrong("into_code", f"belongs to merge; the action is {action!r}", 'action = "merge"')
    if (pattern := table.get("message")) is not None:
        if unusable := check_pattern(pattern, needs_group=action == "split"):
            raise wrong("message", *unusable)
    elif action == "split":
        raise wrong("message", "split needs a message with a group", "message = 'host (\\S+)'")
    return Rule(**{"action": action, **table})


def apply_rules(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Rows with the cluster that the first fitting rule gives them.

    Parameters
    ----------
    rows : polars.DataFrame
        With ``code``, ``message`` and ``template``.
    rules : Rules
        In order.

    Returns
    -------
    polars.DataFrame
        ``rows`` in its order without the ignored ones; ``code`` and ``template`` changed
        where a rule merged or split; ``rule`` (from 1) and ``rule_name`` of the rule
        that claimed the row, null where none did.
    """
    claimed = claim(rows, rules).lazy().drop("fitting")
    by_number = dict(enumerate(rules.rules, 1))
    names = {number: rule.name for number, rule in by_number.items()}
    codes = {n: rule.into_code for n, rule in by_number.items() if rule.into_code is not None}
    merged = {n: rule.name for n, rule in by_number.items() if rule.action == "merge"}
    ignored = [n for n, rule in by_number.items() if rule.action == "ignore"]
    number = pl.col("rule")
    template = pl.coalesce(_named(number, merged), "template")
    for n, rule in by_number.items():
        if rule.action == "split":
            template = pl.when(number == n).then(_split(rule)).otherwise(template)
    kept = claimed.filter(~number.is_in(ignored).fill_null(False)).with_columns(
        code=pl.coalesce(_named(number, codes), "code"),
        template=template,
        rule_name=_named(number, names),
    )
    return collected(kept)


def claim(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Add ``rule``, the number of the first rule that fits, and ``fitting``, all that fit.

    Patterns run on distinct messages.
    """
    texts = rows["message"].drop_nulls().unique()
    matches = pl.DataFrame({"message": texts}).with_columns(
        search(texts, rule.message, f"{rules.origin}, rule {number}").alias(f"rule {number}")
        for number, rule in enumerate(rules.rules, 1)
        if rule.message is not None
    )
    fits = [
        pl.when(_fits(rule, number, matches)).then(pl.lit(number, pl.Int64))
        for number, rule in enumerate(rules.rules, 1)
    ]
    fitting = pl.concat_list(fits).list.drop_nulls() if fits else pl.lit([], pl.List(pl.Int64))
    return collected(
        rows.lazy()
        .join(matches.lazy(), on="message", how="left", maintain_order="left")
        .with_columns(fitting=fitting)
        .with_columns(rule=pl.col("fitting").list.first())
        .drop(matches.columns[1:])
    )


def rules_applied(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Count what each rule claimed of ``rows``; see `rules` for the columns."""
    names = {number: rule.name for number, rule in enumerate(rules.rules, 1)}
    fitting = claim(rows, rules).select("rule", fits="fitting").explode("fits").drop_nulls()
    is_lost = pl.col("rule") != pl.col("fits")
    counts = fitting.group_by(number="fits").agg(
        n_rows=(~is_lost).sum().cast(pl.Int64),
        n_lost=is_lost.sum().cast(pl.Int64),
        lost_to=_named(pl.col("rule").filter(is_lost).unique().sort(), names).str.join(", "),
    )
    listed = pl.DataFrame(
        [{"number": number, **vars(rule)} for number, rule in enumerate(rules.rules, 1)],
        schema={"number": pl.Int64, **dict.fromkeys(Rule.__annotations__, pl.String)},
    )
    return (
        listed.join(counts, on="number", how="left", maintain_order="left")
        .with_columns(pl.col("n_rows", "n_lost").fill_null(0), pl.col("lost_to").replace("", None))
        .rename({"number": "rule"})
    )


def _fits(rule: Rule, number: int, matches: pl.DataFrame) -> pl.Expr:
    fits = pl.lit(value=True)
    if rule.code == "":
        fits = pl.col("code").is_null()
    elif rule.code is not None and rule.code.endswith("*"):
        fits = pl.col("code").str.starts_with(rule.code.removesuffix("*"))
    elif rule.code is not None:
        fits = pl.col("code") == rule.code
    if f"rule {number}" in matches.columns:
        fits = fits & pl.col(f"rule {number}")
    return fits.fill_null(False)


def _split(rule: Rule) -> pl.Expr:
    """The template and, in brackets, the values of the groups."""
    text = shortened(pl.col("message"))
    pattern = str(rule.message)
    groups = [text.str.extract(pattern, group) for group in range(1, n_groups(pattern) + 1)]
    values = pl.concat_str(groups, separator=", ", ignore_nulls=True)
    return pl.concat_str(pl.col("template"), pl.lit(" [") + values + "]", ignore_nulls=True)


def _named(number: pl.Expr, names: dict[int, str]) -> pl.Expr:
    return number.replace_strict(names, default=None, return_dtype=pl.String)


def check_pattern(pattern: str, *, needs_group: bool = False) -> tuple[str, str] | None:
    """The problem with a pattern, and what to do; None where it can be used.

    Examples
    --------
    >>> check_pattern("(?i)rate limit")
    >>> check_pattern("(.{0,100}){50}")[0]
    'the pattern stands for 50,000 pieces, and at most 2,000 can be looked for in time'
    """
    if len(pattern) > LONGEST:
        return f"the pattern has {len(pattern):,} characters, at most {LONGEST:,} fit", "split it"
    if not pattern:
        return "the pattern is empty and would match everything", "leave the key out"
    try:
        pl.Series([""]).str.contains(pattern, strict=True)
    except pl.exceptions.PolarsError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        problem = next((line for line in lines if line.startswith("error:")), lines[0])
        return (
            f"the pattern {pattern!r:.80} cannot be used: {problem.removeprefix('error:').strip()}",
            "there is no look-around and there are no back-references, so that time is bounded",
        )
    if (n := n_pieces(pattern)) > MOST_PIECES:
        return (
            f"the pattern stands for {n:,} pieces, and at most {MOST_PIECES:,} can be looked for "
            "in time",
            "use * or + instead of counted repetitions inside each other",
        )
    if needs_group and not n_groups(pattern):
        return f"split needs a group; found {pattern!r:.80}", r"message = 'host (\S+)'"
    return None


def n_pieces(pattern: str) -> int:
    """The length of a pattern with its counted repetitions written out.

    A character class counts as ten: those of Unicode are large.

    Examples
    --------
    >>> n_pieces("ab{3}"), n_pieces("(a{10}){10}")
    (4, 100)
    """
    sizes, last = [0], 0  # of the open groups; of the piece that a repetition would repeat
    for token in _TOKEN.findall(pattern):
        if re.fullmatch(r"\{\d*,?\d*\}", token) and re.search(r"\d", token):
            times = max(1, *(int(number) for number in re.findall(r"\d+", token)))
            sizes[-1] += last * (times - 1)
            last *= times
        elif token == "(":
            sizes.append(0)
        elif token == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif token not in "*+?|^$":
            last = 10 if token == "." or token[0] == "[" or token[:2] in _CLASSES else 1
            sizes[-1] += last
    return sum(sizes)


def n_groups(pattern: str) -> int:
    """How many capturing groups a pattern has.

    Examples
    --------
    >>> n_groups("host (a|b) (?:c)")
    1
    """
    return len(pl.select(pl.lit("").str.extract_groups(pattern)).to_series().struct.fields)


def search(messages: pl.Series, pattern: str, origin: str) -> pl.Series:
    """Whether a pattern matches in each message; null stays null.

    Long messages are searched at their beginning and their end, as they are mined.

    Raises
    ------
    ArgumentError
        If it takes longer than `LIMIT_S`.
    """
    started, parts, size, done = time.monotonic(), [], _CHUNK, 0
    texts = messages.to_frame("text").select(shortened(pl.col("text"))).to_series()
    while done < texts.len():
        parts.append(texts.slice(done, size).str.contains(pattern))
        done, size = done + size, 2 * size
        if (spent := time.monotonic() - started) > LIMIT_S and done < texts.len():
            raise ArgumentError(
                f"{origin}: the pattern {pattern!r:.80} took {spent:.0f} s for {done:,} of "
                f"{texts.len():,} messages, and {LIMIT_S:g} s is the limit.",
                "use a simpler pattern",
            )
        if spent > LIMIT_S / 8:
            size = _CHUNK
    return pl.concat(parts) if parts else pl.Series(dtype=pl.Boolean)
