"""Questions to a snapshot that need its states: each is one call."""

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
    """What needs an operator's eyes at as-of, most severe first, then most recent.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        As in `read_window`: only what the report of it counts, open work and what ended in
        it; None: all time.
    policy : Policy, optional
        What counts as critical and warning; ADR-0033's by default.
    with_discharged : bool
        Also list what an operator acknowledged, resolved, expects or snoozed.

    Returns
    -------
    polars.DataFrame
        `rules.attention.ATTENTION`: an item an entity, with its reason, its fingerprint,
        the cluster it belongs to and what was decided about it.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or the window makes no sense.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> attention(demo())["severity"].unique().sort().to_list()
    ['critical', 'warning']
    """
    return _judged(snap, window, policy, with_discharged=with_discharged)[-1]


def attention_and_left_out(
    snap: Facts, *, window: object = None, policy: Policy | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What `attention` gives, and how much else is critical or a warning, and why it is not in it.

    Parameters
    ----------
    snap, window, policy
        As for `attention`.

    Returns
    -------
    items : polars.DataFrame
    left_out : polars.DataFrame
        ``why`` in words, ``entity_type`` and ``n``.
    """
    states, every, items = _judged(snap, window, policy, with_discharged=False)
    return items, _left_out(snap, states, every, items)


def _judged(
    snap: Facts, window: object, policy: Policy | None, *, with_discharged: bool
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The states of all, the items of all time, and those of the window."""
    states, reasons = states_and_reasons(checked_snapshot(snap, "attention"), policy=policy)
    every = attention_items(snap, states, reasons, policy=policy, with_discharged=with_discharged)
    if window is None:
        return states, every, every
    asked = read_window(window, as_of=snap.as_of)
    rows = counted(within(rows_of(snap, states=states), asked, as_of=snap.as_of))
    items = every.join(rows, on=schema.ENTITY_KEY, how="semi", maintain_order="left")
    return states, every, items


def _left_out(
    snap: Facts, states: pl.DataFrame, items: pl.DataFrame, told: pl.DataFrame
) -> pl.DataFrame:
    """How many severe entities are not told, and why; ``items`` are those of all time."""
    is_severe = pl.col("severity").cast(pl.String).is_in(SEVERITIES)
    every = snap.entities.select(*schema.ENTITY_KEY, _is_mirror=is_mirror(snap.entities))
    others = items.select(*schema.ENTITY_KEY, _is_item=pl.lit(value=True))
    why = (
        pl.when("_is_mirror")
        .then(pl.lit("told by another row"))
        .when(pl.col("is_legacy").fill_null(value=False))
        .then(pl.lit("of an old version, whose words say too little"))
        .when(pl.col("_is_item").is_null())
        .then(pl.lit("discharged by somebody"))
        .otherwise(pl.lit("not counted in the window"))
    )
    left_out: pl.DataFrame = (
        states.filter(is_severe)
        .join(told, on=schema.ENTITY_KEY, how="anti")
        .join(every, on=schema.ENTITY_KEY)
        .join(others, on=schema.ENTITY_KEY, how="left")
        .group_by("entity_type", why=why)
        .agg(n=pl.len())
        .sort("n", "why", "entity_type", descending=[True, False, False])
    )
    return left_out


def phantoms(snap: Facts, *, policy: Policy | None = None) -> pl.DataFrame:
    """Which entities a reaper would close at as-of, with which status and reason.

    A preview: nothing is ever written.

    Parameters
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    policy : Policy, optional
        Whose ``phantom_after_s`` counts; v1's by default.

    Returns
    -------
    polars.DataFrame
        `schema.PHANTOMS`, a row an entity and rule. Unless ``is_certain``, the
        entity is closed only if its process is not alive, which data alone cannot tell.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> phantoms(demo()).columns[4:7]
    ['reaper', 'known_as', 'raw_status']
    """
    states, _ = states_and_reasons(checked_snapshot(snap, "phantoms"), policy=policy)
    return find_phantoms(snap, states, policy)


def find_phantoms(facts: Facts, states: pl.DataFrame, policy: Policy | None) -> pl.DataFrame:
    """What `phantoms` gives, where the states are known already."""
    previews = [
        known.phantoms(facts, states, policy=policy)
        for known in all_systems()
        if known.phantoms is not None
    ]
    return pl.concat([schema.PHANTOMS.empty(), *previews])


_SAME = ("system", "standing", "severity", "entity_type", "code")


def with_thing(items: pl.DataFrame) -> pl.DataFrame:
    """Items with what they ask of somebody, which many may ask at once.

    Parameters
    ----------
    items : polars.DataFrame
        What `attention` gave, or rows with its columns.

    Returns
    -------
    polars.DataFrame
        The same rows with ``thing``, equal where one answer does. Of what is open, where the
        cause is the same (``cluster``). Of what has ended, where severity, code and message
        are, but for what varies in a message; what ended with a session, such as its
        invocation, goes with it.
    """
    said = pl.concat_str(*_SAME, patterns_of(items["message"]), separator="|", ignore_nulls=True)
    # The same cause in two sources is two, as ids are.
    cause = pl.concat_str("source", "standing", "cluster", separator="|", ignore_nulls=True)
    order = (pl.col("entity_type") != "session", "entity_type", "_said")
    type_of, said_of = (
        pl.col(name).sort_by(order).first().over("_cause") for name in ("entity_type", "_said")
    )
    ended = pl.when(pl.col("entity_type") == type_of).then("_said").otherwise(said_of)
    return (
        items.with_columns(_said=said, _cause=cause)
        .with_columns(thing=pl.when(standing="open").then("_cause").otherwise(ended))
        .drop("_said", "_cause")
    )


def alike(items: pl.DataFrame) -> pl.DataFrame:
    """What asks the same of somebody as one row: what can still be done first, then by number.

    Parameters
    ----------
    items : polars.DataFrame
        What `attention` gave.

    Returns
    -------
    polars.DataFrame
        The columns of ``items`` as those of its newest session (of what is open, of its
        longest silent), and ``n``, how many ask the same (`with_thing`). What is open stands
        first, longest silent first; what somebody stopped stands last.
    """
    is_open = pl.col("standing") == "open"
    order = pl.col("since_at").dt.timestamp()
    return (
        with_thing(items)
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
