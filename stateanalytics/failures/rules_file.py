"""Your own clusters: a file of rules that win over the mined templates.

::

    version = 1

    [[rule]]
    name = "provider limit"               # what the cluster is called
    action = "merge"                      # name, merge, split or ignore
    code = "run.failed.provider_*"        # which codes: exact, or all that begin so
    message = "(?i)rate limit|overloaded" # which messages: a regular expression
    into_code = "run.failed.provider_retryable"

A row belongs to the first rule that fits. ``name`` only calls its clusters so; ``merge``
makes them one, over codes too where ``into_code`` is given; ``split`` keeps apart what the
groups of ``message`` find; ``ignore`` leaves the rows out, counted.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.errors import ArgumentError, did_you_mean, found, in_short
from stateanalytics.failures.masking import cut
from stateanalytics.failures.patterns import check_pattern, n_groups, search
from stateanalytics.io.files import parsed, read_text, unreadable

ACTIONS = ("name", "merge", "split", "ignore")
KEYS = ("name", "action", "code", "message", "into_code")
VERSION = 1


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes
    ----------
    name : str
        What its cluster is called.
    action : str
        One of `ACTIONS`.
    code : str or None
        The code, or its beginning followed by ``*``; ``""``: no code was stored.
    message : str or None
        A regular expression that finds something in the message.
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
    """Rules in order; the first that fits a row claims it.

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
            A TOML file, what one would hold, or none.

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
            return _read(rules, _Places("rules", ""))
        if isinstance(rules, (str, Path)):
            return _from_file(Path(rules).expanduser())
        raise ArgumentError(
            f"rules needs a TOML file or a mapping; found {found(rules)}.",
            'rules="rules.toml"',
        )


class _Places:
    """Where a key stands in the text of a file, for errors."""

    def __init__(self, origin: str, text: str) -> None:
        self.origin = origin
        self.lines = text.splitlines()

    def of(self, number: int | None = None, key: str = "") -> str:
        """The file and the line, and the rule and the key."""
        rule = "" if number is None else f", rule {number}" + (f", key {key!r}" if key else "")
        line = self._line(number, key)
        return f"{self.origin}{rule}" if line is None else f"{self.origin}, line {line}{rule}"

    def _line(self, number: int | None, key: str) -> int | None:
        heads = [i for i, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]
        first, last = 0, len(self.lines)
        if number is not None:
            if number > len(heads):
                return None
            first, last = heads[number - 1], [*heads, len(self.lines)][number]
        is_key = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        at = [i for i in range(first, last) if key and is_key.match(self.lines[i])]
        return at[0] + 1 if at else (first + 1 if number is not None else None)


def _from_file(path: Path) -> Rules:
    text, problem = read_text(path)
    if text is None:
        raise unreadable("rules", path, problem)
    whole, problem = parsed(text, tomllib.loads)
    if problem is not None:
        raise ArgumentError(
            f"The rules {str(path)!r} are no TOML: {problem}.",
            "write patterns in single quotes, so that \\d needs no second backslash",
        )
    return _read(whole, _Places(str(path), text))


def _read(whole: Mapping[str, Any], places: _Places) -> Rules:
    if unknown := sorted(set(whole) - {"version", "rule"}):
        raise ArgumentError(
            f"{places.of(None, unknown[0])}: unknown key {unknown[0]!r}.",
            "a file of rules has version = 1 and [[rule]] tables"
            + did_you_mean(unknown[0], ("version", "rule")),
        )
    if whole.get("version", VERSION) != VERSION:
        raise ArgumentError(
            f"{places.of(None, 'version')}: version {whole['version']!r} is not known.",
            "version = 1",
        )
    tables = whole.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise ArgumentError(
            f"{places.of(None, 'rule')}: rule needs tables; found {in_short(tables)}.",
            "begin every rule with [[rule]]",
        )
    rules = tuple(_rule(table, number, places) for number, table in enumerate(tables, 1))
    return Rules(rules, places.origin)


def _rule(table: Mapping[str, Any], number: int, places: _Places) -> Rule:
    def wrong(key: str, problem: str, hint: str) -> ArgumentError:
        return ArgumentError(f"{places.of(number, key)}: {problem}.", hint)

    for key, value in table.items():
        if key not in KEYS:
            raise wrong(
                key, "this key is unknown", f"keys are {', '.join(KEYS)}" + did_you_mean(key, KEYS)
            )
        if not isinstance(value, str):
            raise wrong(key, f"a text was needed; found {in_short(value)}", f'{key} = "…"')
    name, action = table.get("name", ""), table.get("action")
    if not name.strip():
        raise wrong("name", "a rule needs a name", 'name = "provider limit"')
    if action not in ACTIONS:
        raise wrong(
            "action",
            f"needs one of {', '.join(ACTIONS)}; found {action!r}",
            'action = "merge"' + did_you_mean(str(action), ACTIONS),
        )
    if table.get("code") is None and table.get("message") is None:
        raise wrong(
            "message", "a rule needs a code, a message or both", "message = '(?i)rate limit'"
        )
    if "*" in table.get("code", "").removesuffix("*"):
        raise wrong(
            "code", f"* stands at the end; found {table['code']!r}", 'code = "run.failed.*"'
        )
    if table.get("into_code") is not None and action != "merge":
        raise wrong("into_code", f"belongs to merge; the action is {action!r}", 'action = "merge"')
    if (pattern := table.get("message")) is not None:
        if problem := check_pattern(pattern, needs_group=action == "split"):
            raise wrong("message", *problem)
    elif action == "split":
        raise wrong("message", "split needs a message with a group", "message = 'host (\\S+)'")
    return Rule(**{"action": action, **table})


def apply_rules(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Let each row be claimed by the first rule that fits it.

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
        where a rule merged or split, and ``rule`` (from 1) and ``rule_name`` of the rule
        that claimed the row, null where none did.
    """
    claimed = claim(rows, rules).drop("fitting")
    by_number = dict(enumerate(rules.rules, 1))
    names = {number: rule.name for number, rule in by_number.items()}
    codes = {n: rule.into_code for n, rule in by_number.items() if rule.into_code is not None}
    merged = {n: rule.name for n, rule in by_number.items() if rule.action == "merge"}
    ignored = [n for n, rule in by_number.items() if rule.action == "ignore"]
    number = pl.col("rule")
    template = pl.coalesce(_looked_up(number, merged), "template")
    for n, rule in by_number.items():
        if rule.action == "split":
            template = pl.when(number == n).then(_split(rule)).otherwise(template)
    return claimed.filter(~number.is_in(ignored).fill_null(False)).with_columns(
        code=pl.coalesce(_looked_up(number, codes), "code"),
        template=template,
        rule_name=_looked_up(number, names),
    )


def claim(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """Add ``rule``, the number of the first that fits, and ``fitting``, all that fit.

    Patterns run once for every distinct message.
    """
    texts = rows["message"].unique().drop_nulls()
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
    return (
        rows.join(matches, on="message", how="left", maintain_order="left")
        .with_columns(fitting=fitting)
        .with_columns(rule=pl.col("fitting").list.first())
        .drop(matches.columns[1:])
    )


def rules_applied(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """What each rule claimed, and what an earlier one had claimed before it.

    Parameters
    ----------
    rows : polars.DataFrame
        With ``code`` and ``message``.
    rules : Rules
        In order.

    Returns
    -------
    polars.DataFrame, shape (n_rules, 9)
        ``rule``, ``name``, ``action``, ``code``, ``message``, ``into_code``; ``n_rows``
        that it claimed; ``n_lost`` that fit it too, but that the earlier rules
        ``lost_to`` (names, joined by ', ') had claimed.
    """
    names = {number: rule.name for number, rule in enumerate(rules.rules, 1)}
    fitting = claim(rows, rules).select("rule", fits="fitting").explode("fits").drop_nulls()
    counts = fitting.group_by(number="fits").agg(
        n_rows=(pl.col("rule") == pl.col("fits")).sum().cast(pl.Int64),
        n_lost=(pl.col("rule") != pl.col("fits")).sum().cast(pl.Int64),
        lost_to=_looked_up(
            pl.col("rule").filter(pl.col("rule") != pl.col("fits")).unique().sort(), names
        ).str.join(", "),
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
    """The template and, in brackets, what the groups found."""
    text = cut(pl.col("message"))
    pattern = str(rule.message)
    groups = [text.str.extract(pattern, group) for group in range(1, n_groups(pattern) + 1)]
    values = pl.concat_str(groups, separator=", ", ignore_nulls=True)
    return pl.concat_str(pl.col("template"), pl.lit(" [") + values + "]", ignore_nulls=True)


def _looked_up(number: pl.Expr, words: dict[int, str]) -> pl.Expr:
    return number.replace_strict(words, default=None, return_dtype=pl.String)
