"""How much attention a state needs: ADR-0033's cascade over three axes, in bulk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw

from stateanalytics.core.engines import TEMPORARY, TEXT, Frame, adapt, encode, first_true, lookup
from stateanalytics.state.policy import AXES, Policy

_FIRED = f"{TEMPORARY}fired"


def derive_severity(
    frame: Any, *, policy: Policy | None = None, with_evidence: bool = False
) -> Any:
    """Severity, tone and the rule that fired, for every row.

    Parameters
    ----------
    frame : polars DataFrame or LazyFrame, DuckDB relation, PySpark frame, pyarrow Table
        With the columns ``outcome``, ``health`` and ``delivery`` (text, Categorical or
        Enum); null: not known, or does not apply.
    policy : Policy, optional
        Whose cascade; default `Policy.v1`, which is ADR-0033's.
    with_evidence : bool
        Also keep one Boolean column per rule, named by its condition, such as
        ``health is stalled``: was it true, whichever rule fired first.

    Returns
    -------
    frame
        The same kind and the same rows in their order, with ``severity`` and ``tone``
        (text) and ``severity_rule`` (64-bit integer) added, or replaced where they were.

    Raises
    ------
    MissingColumnsError
        If one of the three columns is absent.
    ColumnTypeError
        If one of them holds no words.

    Notes
    -----
    The first rule that is true decides. Null and unknown words make no rule true, so
    they fall through to the last: neutral, by rule 14 of v1.

    References
    ----------
    ADR-0033, "Severity derivation heuristic".

    Examples
    --------
    >>> import polars as pl
    >>> states = pl.DataFrame({"delivery": ["passed", "missing"]}).with_columns(
    ...     outcome=pl.lit("completed"), health=pl.lit("ok")
    ... )
    >>> derive_severity(states).select("severity", "tone", "severity_rule").rows()
    [('neutral', 'success', 12), ('critical', 'danger', 3)]
    """
    chosen = policy or Policy.v1()
    adapter = adapt(frame, dict.fromkeys(AXES, TEXT), "derive_severity")
    codes = {axis: f"{TEMPORARY}{axis}" for axis in AXES}
    named = {axis: words for axis in AXES if (words := chosen.words(axis))}
    coded = encode(adapter.frame, {codes[axis]: (axis, words) for axis, words in named.items()})
    rules = severity_rules(chosen, codes, named)
    evidence = {
        rule.name: rules[rule.number].fill_null(value=False)
        for rule in chosen.severity_rules
        if rule.axis
    }
    kept = coded.with_columns(**evidence) if with_evidence else coded
    judged = _add_severity(kept, chosen, rules)
    return adapter.give_back(judged.drop([codes[axis] for axis in named]))


def severity_rules(
    policy: Policy, codes: Mapping[str, str], words: Mapping[str, Sequence[str | None]]
) -> dict[int, nw.Expr]:
    """The cascade as expressions, by rule number, in its order.

    Parameters
    ----------
    policy : Policy
        Whose cascade.
    codes : mapping of str to str
        Axis to the column that holds its words as positions.
    words : mapping of str to sequence of str
        Axis to the word that each position means; several may mean the same.

    Returns
    -------
    dict of int to narwhals.Expr
        Boolean, null where the axis is; the last one is always true.
    """
    return {
        rule.number: (
            nw.col(codes[rule.axis]).is_in(
                [place for place, word in enumerate(words[rule.axis]) if word in rule.words]
            )
            if rule.axis
            else nw.lit(value=True)
        )
        for rule in policy.severity_rules
    }


def words_by_number(policy: Policy) -> tuple[list[str | None], list[str | None]]:
    """Severity and tone at the number of each rule; None at numbers no rule has."""
    by_number = {rule.number: rule for rule in policy.severity_rules}
    numbered = [by_number.get(number) for number in range(max(by_number) + 1)]
    return (
        [rule.severity if rule else None for rule in numbered],
        [rule.tone if rule else None for rule in numbered],
    )


def _add_severity(frame: Frame, policy: Policy, rules: Mapping[int, nw.Expr]) -> Frame:
    severities, tones = words_by_number(policy)
    fired = frame.with_columns(first_true(rules).alias(_FIRED))
    worded = lookup(fired, {"severity": (_FIRED, severities), "tone": (_FIRED, tones)})
    return worded.with_columns(severity_rule=nw.col(_FIRED).cast(nw.Int64)).drop(_FIRED)
