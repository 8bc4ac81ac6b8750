"""What needs attention, and what a reaper would close: answers that rest on the states."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.windows import read_window
from stateanalytics.failures.masking import patterns_of
from stateanalytics.state.attention import SEVERITIES, attention_items
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, is_mirror, rows_of, within
from stateanalytics.state.states import states_and_reasons
from stateanalytics.systems import all_systems


def attention(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    with_discharged: bool = False,
) -> pl.DataFrame:
    """What needs an operator's attention at as-of, most severe first, then most recent.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`: only what the report of that window counts, which is open work
        and what ended in the window; None: all time.
    policy : Policy, optional
        What counts as critical and warning; ADR-0033's by default.
    with_discharged : bool
        Also list items that an operator acknowledged, resolved, expects or snoozed.

    Returns
    -------
    polars.DataFrame
        `state.attention.ATTENTION`: one item for each entity, with its reason, its fingerprint,
        its cluster and what was decided about it.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, or the window makes no sense.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> attention(demo())["severity"].unique().sort().to_list()
    ['critical', 'warning']
    """
    return _judged(snap, window, policy, with_discharged=with_discharged)[-1]


def attention_and_excluded(
    snap: Facts, *, window: object = None, policy: Policy | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The items of `attention`, and counts of what else is critical or a warning, with the reason.

    Parameters
    ----------
    snap, window, policy
        As for `attention`.

    Returns
    -------
    items : polars.DataFrame
    excluded : polars.DataFrame
        ``why`` in words, ``entity_type`` and ``n``.
    """
    states, all_items, items = _judged(snap, window, policy, with_discharged=False)
    return items, _count_excluded(snap, states, all_items, items)


def _judged(
    snap: Facts, window: object, policy: Policy | None, *, with_discharged: bool
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """All states, the items of all time, and the items of the window."""
    states, reasons = states_and_reasons(checked_snapshot(snap, "attention"), policy=policy)
    all_items = attention_items(
        snap,
        states,
        reasons,
        policy=policy,
        with_discharged=with_discharged,
        efforts=judged_effort(snap, policy),
    )
    if window is None:
        return states, all_items, all_items
    asked = read_window(window, as_of=snap.as_of)
    rows = counted(within(rows_of(snap, states=states), asked, as_of=snap.as_of))
    items = all_items.join(rows, on=schema.ENTITY_KEY, how="semi", maintain_order="left")
    return states, all_items, items


def judged_effort(snap: Facts, policy: Policy | None) -> pl.DataFrame | None:
    """The effort that `attention_items` takes; calls are read only where the policy asks."""
    if policy is None or not policy.is_stuck_critical:
        return None
    from stateanalytics.failures.struggles import effort

    return effort(snap, policy=policy)


def _count_excluded(
    snap: Facts, states: pl.DataFrame, all_items: pl.DataFrame, shown: pl.DataFrame
) -> pl.DataFrame:
    """Counts of severe entities that are not shown, by the reason."""
    is_severe = pl.col("severity").cast(pl.String).is_in(SEVERITIES)
    mirrors = snap.entities.select(*schema.ENTITY_KEY, _is_mirror=is_mirror(snap.entities))
    items = all_items.select(*schema.ENTITY_KEY, _is_item=pl.lit(value=True))
    why = (
        pl.when("_is_mirror")
        .then(pl.lit("reported by another row"))
        .when(pl.col("is_legacy").fill_null(value=False))
        .then(pl.lit("of an old version, whose status words are not clear"))
        .when(pl.col("_is_item").is_null())
        .then(pl.lit("discharged by somebody"))
        .otherwise(pl.lit("not counted in the window"))
    )
    excluded: pl.DataFrame = (
        states.filter(is_severe)
        .join(shown, on=schema.ENTITY_KEY, how="anti")
        .join(mirrors, on=schema.ENTITY_KEY)
        .join(items, on=schema.ENTITY_KEY, how="left")
        .group_by("entity_type", why=why)
        .agg(n=pl.len())
        .sort("n", "why", "entity_type", descending=[True, False, False])
    )
    return excluded


def phantoms(
    snap: Facts, *, policy: Policy | None = None, states: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Which entities a reaper would close at as-of, with which status and reason.

    A preview: nothing is ever written.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        Gives ``phantom_after_s``; v1's by default.
    states : polars.DataFrame, optional
        The states of the snapshot, where they are computed already.

    Returns
    -------
    polars.DataFrame
        `schema.PHANTOMS`, a row for each entity and rule. Unless ``is_certain``, the
        entity is closed only if its process is not alive, which the data alone do not show.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> phantoms(demo()).columns[4:7]
    ['reaper', 'known_as', 'raw_status']
    """
    facts = checked_snapshot(snap, "phantoms")
    if states is None:
        states, _ = states_and_reasons(facts, policy=policy)
    present = set(facts.entities["system"].unique())
    previews = [
        preview(facts, states, policy=policy)
        for system in all_systems()
        if system.name in present and (preview := system.auditing().phantoms) is not None
    ]
    return pl.concat([schema.PHANTOMS.empty(), *previews])


_SAME = ("system", "standing", "severity", "entity_type", "code")


def with_action_key(items: pl.DataFrame) -> pl.DataFrame:
    """Items with a key that is equal where one action answers several of them.

    Parameters
    ----------
    items : polars.DataFrame
        What `attention` gave, or rows with its columns.

    Returns
    -------
    polars.DataFrame
        The same rows with ``thing``. Open items share it where the cause is the same
        (``cluster``). Ended items share it where severity, code and message are, but for what
        varies in a message; what ended with a session, such as its invocation, goes with it.
    """
    words = pl.concat_str(*_SAME, patterns_of(items["message"]), separator="|", ignore_nulls=True)
    # The same cause in two sources is two, as ids are.
    cause = pl.concat_str("source", "standing", "cluster", separator="|", ignore_nulls=True)
    order = (pl.col("entity_type") != "session", "entity_type", "_words")
    first_type, first_words = (
        pl.col(name).sort_by(order).first().over("_cause") for name in ("entity_type", "_words")
    )
    ended = pl.when(pl.col("entity_type") == first_type).then("_words").otherwise(first_words)
    return (
        items.with_columns(_words=words, _cause=cause)
        .with_columns(thing=pl.when(standing="open").then("_cause").otherwise(ended))
        .drop("_words", "_cause")
    )


def grouped_items(items: pl.DataFrame) -> pl.DataFrame:
    """Items that one action answers as one row: what can still be helped first, then by number.

    Parameters
    ----------
    items : polars.DataFrame
        What `attention` gave.

    Returns
    -------
    polars.DataFrame
        The columns of ``items`` as those of its newest session (of open items, of the session
        that is silent for longest), and ``n``, the number of items (`with_action_key`). Open
        items come first, longest silent first; what somebody stopped comes last.
    """
    is_open = pl.col("standing") == "open"
    order = pl.col("since_at").dt.timestamp()
    return (
        with_action_key(items)
        .sort(
            pl.col("entity_type") != "session",
            pl.when(is_open).then(order).otherwise(-order),
            "item_id",
            "source",
            nulls_last=True,
        )
        .group_by("thing", maintain_order=True)
        .agg(pl.all().first(), n=pl.len())
        .sort(
            "standing",
            pl.when(is_open).then("since_at"),
            "severity",
            "n",
            descending=[False, False, False, True],
            nulls_last=True,
            maintain_order=True,
        )
        .select(*items.columns, "n")
    )
