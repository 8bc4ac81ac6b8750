"""Which rows a number counts and excludes, and which of them are independent.

One rule places a row in a window: the time when it ended, else started, else was created. Open
work is judged at as-of and belongs to every window that ends after it began.

The sessions of a fan-out succeed and fail together, so intervals and tests count independent
units and not rows: shows, invocations or sessions, or projects if there are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import Rows, collected_each, deduplicated, left_join
from stateanalytics.core.schema import ENTITIES, ENTITY_KEY, STATES
from stateanalytics.core.windows import Window, instant
from stateanalytics.errors import check_columns
from stateanalytics.state.definitions import TROUBLE, ended_well
from stateanalytics.state.policy import Policy
from stateanalytics.state.states import states_at_hand
from stateanalytics.systems import all_systems
from stateanalytics.systems.linking import is_driven, with_usage

if TYPE_CHECKING:
    from stateanalytics.stats.shares import ClusteredShare

FEWEST_PROJECTS = 8
"""Effective number of projects from which a project is the unit: its runs are similar."""

_SESSION = ["source", "system", "session_id"]


def shows_of(entities: pl.DataFrame) -> pl.Series:
    """The show that the session of each entity belongs to; null: none.

    Parameters
    ----------
    entities : polars.DataFrame
        Canonical ``entities``.
    """
    plays = (
        entities.lazy()
        .filter(pl.col("entity_type") == "play", pl.col("parent_type") == "show")
        .select(*_SESSION, show_id="parent_id")
        .drop_nulls()
        .unique(_SESSION, keep="first", maintain_order=True)
        .collect()
    )
    if plays.is_empty():
        return pl.Series("show_id", [None], pl.String).new_from_index(0, entities.height)
    return entities[_SESSION].join(plays, on=_SESSION, how="left", maintain_order="left")["show_id"]


def host_of(source: str) -> str:
    """The host of a source: its folder, up to the first name that begins with a dot.

    Examples
    --------
    >>> host_of("hosts/a/.agents/state.db"), host_of("fleet/b/state.db"), host_of("state.db")
    ('hosts/a', 'fleet/b', '.')
    """
    path = PurePath(source)
    for place, name in enumerate(path.parts):
        if name.startswith(".") and name not in (".", ".."):
            return str(PurePath(*path.parts[:place]))
    return str(path.parent)


def hosts_of(sources: pl.Series) -> pl.Expr:
    """The host of each row's ``source``, by `host_of`; ``sources`` are those of the rows."""
    known = list(dict.fromkeys(sources.to_list()))
    hosts = [host_of(source) for source in known]
    return pl.col("source").replace_strict(known, hosts, return_dtype=pl.String)


def unit_of() -> pl.Expr:
    """The show of a row, else its invocation, session or itself, as text with its source."""
    unit = pl.coalesce("show_id", "invocation_id", "session_id", "entity_id")
    return pl.concat_str("source", unit, separator="\n").alias("unit")


def sampling_units(runs: pl.DataFrame) -> tuple[pl.Series, str]:
    """The independent unit that each run belongs to, and what those units are called.

    Parameters
    ----------
    runs : polars.DataFrame
        Rows of a `population`. Rows of sums, which have no ids, are a unit each; with
        ``incident_id``, those of one are one.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {"source": "s", "show_id": [None, None], "invocation_id": ["i", "i"],
    ...      "session_id": ["1", "2"], "entity_id": ["1", "2"], "project": ["p", "q"]},
    ...     schema_overrides={"show_id": pl.String},
    ... )
    >>> units, name = sampling_units(runs)
    >>> units.n_unique(), name
    (1, 'invocation')
    """
    unit, is_project, name = _sampling_unit(runs)
    units = runs.select(unit.alias("unit"), is_project=is_project)
    return units["unit"], "project" if units["is_project"].any() else name


def _sampling_unit(runs: pl.DataFrame) -> tuple[pl.Expr, pl.Expr, str]:
    """The unit of each run, whether units are projects, and the name of the unit otherwise."""
    if "invocation_id" not in runs.columns:
        return pl.int_range(pl.len()), pl.lit(value=False), "run"
    if "incident_id" in runs.columns:
        return pl.coalesce("incident_id", unit_of()), pl.lit(value=False), "incident"
    sizes = pl.col("project").drop_nulls().value_counts().struct.field("count").cast(pl.Int64)
    are_many = (sizes.sum() ** 2 >= FEWEST_PROJECTS * (sizes**2).sum()) & (sizes.len() > 0)
    # Work without a project has a unit of its own.
    unit = pl.when(are_many).then(pl.coalesce("project", unit_of())).otherwise(unit_of())
    return unit, are_many, "invocation"


_OF_EVALUATION = ("evaluated_at", "policy_version", "origin")
_STATE_COLUMNS = [name for name in STATES.dtypes if name not in (*ENTITY_KEY, *_OF_EVALUATION)]


def population(entities: pl.DataFrame, states: pl.DataFrame, *, as_of: datetime) -> pl.DataFrame:
    """Every entity, with its state and whether rates may count it; `within` narrows it.

    Parameters
    ----------
    entities : polars.DataFrame
        Canonical ``entities``.
    states : polars.DataFrame
        The result of `states` for them.
    as_of : datetime
        The instant that the states were read at.

    Returns
    -------
    polars.DataFrame
        ``entities`` in its order, with the columns of ``states`` and five more: ``show_id`` (of
        the play that its session works for), ``is_open`` (not ended, by a status that is
        understood), ``placed_at`` (the moment that placed it: as-of where open), ``left_out``
        (null: counted; else a key of `LEFT_OUT`) and ``is_mirror`` (another row repeats it, as a
        session its branches: totals over several types exclude it). Undated rows belong to every
        window, and future ones to every window that reaches as-of; both are excluded.

    Raises
    ------
    MissingColumnsError
        If a canonical column is absent.
    """
    check_columns(entities, ENTITIES.dtypes.names(), "population (entities)")
    check_columns(states, (*ENTITY_KEY, *_STATE_COLUMNS), "population (states)")
    known = deduplicated(states[[*ENTITY_KEY, *_STATE_COLUMNS]])
    uncounted = left_out_by_themselves(entities, known)
    driven = is_driven(entities, uncounted)
    described = with_usage(entities, uncounted).hstack(
        [is_mirror(entities, driven), shows_of(entities)]
    )
    return (
        left_join(described, known)
        .lazy()
        .with_columns(driven, is_open=is_open())
        .with_columns(
            placed_at=pl.when("is_open").then(instant(as_of)).otherwise(_stored_moment()),
            left_out=_left_out(as_of),
        )
        .drop("is_driven")
        .collect()
    )


def rows_of(
    snap: Facts,
    *,
    policy: Policy | None = None,
    states: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The `population` of all time, derived unless the caller already has it.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    policy : Policy, optional
        For deriving states, where neither they nor rows are at hand.
    states : polars.DataFrame, optional
        The states of the snapshot.
    rows : polars.DataFrame, optional
        The population itself, which is returned as it is.
    """
    if rows is not None:
        return rows
    # `states_at_hand` raises if this is no snapshot.
    judged = states_at_hand(snap, states, policy=policy)
    return population(snap.entities, judged, as_of=snap.as_of)


def within(
    rows: Rows, window: Window, *, as_of: datetime, sources: pl.DataFrame | None = None
) -> Rows:
    """Rows of a `population` of all time that belong to a window.

    With ``sources``, open work of sources without data in the window is excluded.
    """
    here = rows.filter(_is_within(window, as_of))
    if sources is None:
        return here
    return here.filter(~is_open_in(outdated_sources(sources, window)))


def outdated_sources(sources: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Sources whose newest row is older than a window; none if that holds for all sources.

    The time when an archive collected a source does not matter.
    """
    if sources.height < 2:
        return sources.clear()
    outdated = sources.filter((pl.col("last_at") < instant(window.since)).fill_null(value=False))
    return outdated if 0 < outdated.height < sources.height else outdated.clear()


def is_open_in(outdated: pl.DataFrame) -> pl.Expr:
    """Whether a row is open work of one of these `outdated_sources`, where it would look dead."""
    return pl.col("is_open") & pl.col("source").is_in(outdated["source"].implode())


def counted(rows: pl.DataFrame, entity_type: str | None = None) -> pl.DataFrame:
    """Rows of a `population` that rates may count.

    Parameters
    ----------
    rows : polars.DataFrame
        The result of `population`.
    entity_type : str, optional
        Only this type; None: every type, each piece of work once (no mirrors).
    """
    return rows.filter(is_counted(entity_type))


def is_counted(entity_type: str | None = None) -> pl.Expr:
    """Whether `counted` keeps a row of a `population`."""
    is_asked = ~pl.col("is_mirror") if entity_type is None else pl.col("entity_type") == entity_type
    return pl.col("left_out").is_null() & is_asked


def left_out_by_themselves(entities: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """Keys of rows that no rate counts, whether or not they drove others: those count instead."""
    undated = entities.lazy().filter(_stored_moment().is_null())
    both = (states.lazy().filter(_is_legacy()), undated)
    return pl.concat([rows.select(ENTITY_KEY) for rows in both]).unique().collect()


def _stored_moment() -> pl.Expr:
    return pl.coalesce("ended_at", "started_at", "created_at")


def _is_legacy() -> pl.Expr:
    return pl.col("is_legacy").fill_null(True) | (
        pl.col("lifecycle").fill_null("unknown") == "unknown"
    )


def is_open() -> pl.Expr:
    """Whether work has not ended, by a known status; over states."""
    return ~_is_legacy() & ~pl.col("is_terminal").fill_null(False)


def _left_out(as_of: datetime) -> pl.Expr:
    return (
        pl.when(_is_legacy())
        .then(pl.lit("legacy"))
        .when(pl.col("recorded_by").is_in(["mirrored", "imported"]))
        .then(pl.col("recorded_by"))
        .when("is_driven")
        .then(pl.lit("driven"))
        .when(_stored_moment().is_null())
        .then(pl.lit("undated"))
        .when(~pl.col("is_open") & (_stored_moment() > instant(as_of)))
        .then(pl.lit("future"))
    )


def _is_within(window: Window, as_of: datetime) -> pl.Expr:
    began = pl.coalesce("started_at", "created_at")
    is_open_in_window = pl.col("is_open") & (began < instant(window.until)).fill_null(True)
    has_ended_in_window = ~pl.col("is_open") & window.holds("placed_at")
    # Future rows, by a wrong clock or an as-of in the past, would otherwise be in no window.
    is_future = (pl.col("left_out") == "future").fill_null(False) & (window.until > as_of)
    return is_open_in_window | has_ended_in_window | is_future | _stored_moment().is_null()


def is_mirror(entities: pl.DataFrame, driven: pl.Series | None = None) -> pl.Series:
    """Which rows repeat another row, of the same store or of the system that drove the work.

    Parameters
    ----------
    entities : polars.DataFrame, shape (n_entities, ...)
        All entities, not only those of a window: which turn is the last one depends on
        the others.
    driven : polars.Series of Boolean, optional
        The result of `linking.is_driven`, where it is at hand.

    Returns
    -------
    polars.Series of Boolean, shape (n_entities,)
        Never null. A turn without a start, or with the start of the last one, counts as the
        last, because one row too few is better than the same work twice. A row of another type
        with the id of a session repeats that session, such as the run of an engine.

    Examples
    --------
    >>> repeats = next(known.name for known in all_systems() if known.runs.repeated_type)
    >>> entities = pl.DataFrame(
    ...     {
    ...         "source": "log", "system": repeats, "session_id": "s",
    ...         "entity_type": ["session", "turn", "turn", "execution"],
    ...         "entity_id": ["s", "t1", "t2", "e"],
    ...         "started_at": [1, 1, 2, 2],
    ...     }
    ... )
    >>> is_mirror(entities).to_list()
    [False, False, True, True]
    """
    last = pl.col("started_at").max().over("source", "system", "session_id", "entity_type")
    is_repeated = pl.lit(value=False)
    sessions = pl.col("entity_id").filter(entity_type="session").implode()
    is_same = (pl.col("entity_type") != "session") & (pl.col("entity_id") == pl.col("session_id"))
    is_part = pl.when(is_same).then("entity_id").is_in(sessions)
    for known in all_systems():
        own, entity_type = pl.col("system") == known.name, pl.col("entity_type")
        is_part |= own & entity_type.is_in(known.runs.part_types)
        is_repeated |= own & (entity_type == pl.lit(known.runs.repeated_type, pl.String))
    is_last = is_repeated & (pl.col("started_at") >= last).fill_null(True)
    # Skipped for systems without repetition, because looking for last turns takes long.
    repeats = [known.name for known in all_systems() if known.runs.repeated_type]
    has_repeated = any((entities["system"] == name).any() for name in repeats)
    is_elsewhere = is_part | is_last if has_repeated else is_part
    driven = is_driven(entities) if driven is None else driven
    return entities.select(is_mirror=is_elsewhere.fill_null(False) | driven).to_series()


@cache
def part_types() -> tuple[str, ...]:
    """Types whose rows always repeat another row, of all systems."""
    return tuple(dict.fromkeys(name for known in all_systems() for name in known.runs.part_types))


HEADLINE: Mapping[str, str] = {
    "runs": "runs",
    "completed": "share of ended runs",
    "timed_out": "share of ended runs",
    "unresolved": "share of open runs",
    "incidents": "incidents",
}
"""The names of the numbers, and the unit of each."""


class Count(NamedTuple):
    """A number and what it is a share of (``of``; None: it is a count and no share).

    ``sure`` is the share with its number of independent units; ``unit`` is their name.
    """

    n: int
    of: int | None = None
    sure: ClusteredShare | None = None
    unit: str = ""


def count_headline(runs: pl.DataFrame, n_incidents: int) -> dict[str, Count]:
    """The five numbers of some runs.

    Parameters
    ----------
    runs : polars.DataFrame
        The sessions of a window that rates count: `population.counted` of a `population`.
    n_incidents : int
        The number of incidents among the failed ones.

    Returns
    -------
    dict of str to Count
        By the names of `HEADLINE`, in its order.

    Examples
    --------
    >>> runs = pl.DataFrame(
    ...     {
    ...         "is_open": [False, False, True], "outcome": ["completed", "failed", None],
    ...         "severity": ["neutral", "critical", "warning"],
    ...     }
    ... )
    >>> [(count.n, count.of) for count in count_headline(runs, 1).values()]
    [(3, None), (1, 2), (0, 2), (1, 1), (1, None)]
    """
    return count_headlines([runs], [n_incidents])[0]


def count_headlines(
    windows: Sequence[pl.DataFrame], n_incidents: Sequence[int]
) -> list[dict[str, Count]]:
    """The `count_headline` of each of some windows, in one query."""
    is_open = pl.col("is_open")
    asked = {
        "completed": (~is_open, ended_well()),
        "timed_out": (~is_open, pl.col("outcome") == "timed_out"),
        "unresolved": (is_open, pl.col("severity").is_in(list(TROUBLE))),
    }
    of_each = [(runs, name, *asked[name]) for runs in windows for name in asked]
    units = collected_each([_units_hit(runs, is_hit, among) for runs, _, among, is_hit in of_each])
    shares = [
        (name, _share(hits, runs, is_hit, among))
        for hits, (runs, name, among, is_hit) in zip(units, of_each, strict=True)
    ]
    return [
        {
            "runs": Count(runs.height),
            **dict(shares[i * len(asked) : (i + 1) * len(asked)]),
            "incidents": Count(n),
        }
        for i, (runs, n) in enumerate(zip(windows, n_incidents, strict=True))
    ]


def share_of(runs: pl.DataFrame, is_hit: pl.Expr) -> Count:
    """The share of runs with a property, with the number of independent units behind it."""
    return _share(_units_hit(runs, is_hit).collect(), runs, is_hit)


def _units_hit(runs: pl.DataFrame, is_hit: pl.Expr, *among: pl.Expr) -> pl.LazyFrame:
    """The number of units with ``x`` hits among ``m`` of their runs."""
    unit, is_project, _ = _sampling_unit(runs)
    rows = runs.lazy().filter(*among).select(
        hit=is_hit.fill_null(value=False), unit=unit, is_project=is_project
    )  # fmt: skip
    of_units = rows.group_by("unit", "is_project").agg(x=pl.col("hit").sum(), m=pl.len())
    return of_units.group_by("x", "m", "is_project").agg(times=pl.len())


def _share(units: pl.DataFrame, runs: pl.DataFrame, is_hit: pl.Expr, *among: pl.Expr) -> Count:
    from stateanalytics.stats.shares import clustered_share, share_of_units

    sure = share_of_units(units)
    name = "project" if units["is_project"].any() else _sampling_unit(runs)[2]
    if name == "project" and sure.n_hits in (0, sure.n):
        # Nothing shows how projects differ. They do, and a few are no more than a few runs: half
        # of what invocations alone would show is kept, whichever unit is that of other shares.
        hits = runs.filter(*among).select(hit=is_hit.fill_null(value=False), unit=unit_of())
        alone, name = clustered_share(*hits.get_columns()), "invocation"
        sure = alone._replace(n_effective=alone.n_effective / 2, n_if_alike=alone.n_if_alike / 2)
    return Count(sure.n_hits, sure.n, sure, name)
