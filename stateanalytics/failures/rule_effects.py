"""What your rules make of failures: which rule claims which row, and what that changes."""

from __future__ import annotations

import polars as pl

from stateanalytics.failures.masking import cut
from stateanalytics.failures.patterns import found, n_groups
from stateanalytics.failures.rules_file import FailureRule, FailureRules


def apply_rules(rows: pl.DataFrame, rules: FailureRules) -> pl.DataFrame:
    """Let each row be claimed by the first rule that fits it.

    Parameters
    ----------
    rows : polars.DataFrame
        With ``code``, ``message`` and ``template``.
    rules : FailureRules
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


def claim(rows: pl.DataFrame, rules: FailureRules) -> pl.DataFrame:
    """Add ``rule``, the number of the first that fits, and ``fitting``, all that fit.

    Patterns run once for every distinct message.
    """
    texts = rows["message"].unique().drop_nulls()
    matches = pl.DataFrame({"message": texts}).with_columns(
        found(texts, rule.message, f"{rules.origin}, rule {number}").alias(f"rule {number}")
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


def rules_applied(rows: pl.DataFrame, rules: FailureRules) -> pl.DataFrame:
    """What each rule claimed, and what an earlier one had claimed before it.

    Parameters
    ----------
    rows : polars.DataFrame
        With ``code`` and ``message``.
    rules : FailureRules
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
        schema={"number": pl.Int64, **dict.fromkeys(FailureRule.__annotations__, pl.String)},
    )
    return (
        listed.join(counts, on="number", how="left", maintain_order="left")
        .with_columns(pl.col("n_rows", "n_lost").fill_null(0), pl.col("lost_to").replace("", None))
        .rename({"number": "rule"})
    )


def _fits(rule: FailureRule, number: int, matches: pl.DataFrame) -> pl.Expr:
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


def _split(rule: FailureRule) -> pl.Expr:
    """The template and, in brackets, what the groups found."""
    text = cut(pl.col("message"))
    pattern = str(rule.message)
    values = [text.str.extract(pattern, group) for group in range(1, n_groups(pattern) + 1)]
    found_them = pl.concat_str(values, separator=", ", ignore_nulls=True)
    return pl.concat_str(pl.col("template"), pl.lit(" [") + found_them + "]", ignore_nulls=True)


def _looked_up(number: pl.Expr, words: dict[int, str]) -> pl.Expr:
    return number.replace_strict(words, default=None, return_dtype=pl.String)
