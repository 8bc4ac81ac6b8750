"""What needs attention, what a reaper would close, what changed: answers that rest on states."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.text import visible
from stateanalytics.core.windows import read_moment, read_window, zone_of
from stateanalytics.errors import ArgumentError, in_short
from stateanalytics.failures.masking import patterns_of
from stateanalytics.io.files import read_text, unreadable
from stateanalytics.state.attention import SEVERITIES, attention_items
from stateanalytics.state.definitions import RUN
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, is_mirror, rows_of, within
from stateanalytics.state.states import states_and_reasons
from stateanalytics.systems import all_systems
from stateanalytics.systems.linking import program_versions


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
    rows = counted(
        within(rows_of(snap, states=states), asked, as_of=snap.as_of, sources=snap.sources)
    )
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
        The result of `attention`, or rows with its columns.

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
    return collected(
        items.lazy()
        .with_columns(_words=words, _cause=cause)
        .with_columns(thing=pl.when(standing="open").then("_cause").otherwise(ended))
        .drop("_words", "_cause")
    )


def grouped_items(items: pl.DataFrame) -> pl.DataFrame:
    """Items that one action answers as one row: what can still be helped first, then by number.

    Parameters
    ----------
    items : polars.DataFrame
        The result of `attention`.

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


OF_CHANGES = {
    "version": ("system", 1),
    "model": ("agent", 30),
    "provider": ("agent", 30),
    "playbook": ("system", 30),
}
"""What is read of each run, where, and after how many runs there a new value is a change.

Programs are updated once; of models and playbooks some are in use and seldom chosen.
"""
_DECLARED = ("when", "what", "where")
_EXAMPLE = 'the first line is "when,what,where", then 2026-05-19T08:00Z,new prompt,billing'


def changes(
    snap: Facts,
    declared: object = None,
    *,
    policy: Policy | None = None,
    rows: pl.DataFrame | None = None,
    tz: str | None = None,
) -> pl.DataFrame:
    """What changed in how agents run: versions, models, providers, playbooks, or as declared.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    declared : path or polars.DataFrame, optional
        A CSV file with the columns ``when``, ``what`` and ``where``: a project, agent, model,
        kind or system, or nothing: everywhere.
    policy : Policy, optional
        Which runs count; v1 by default.
    rows : polars.DataFrame, optional
        The `population` of all time, if already computed.
    tz : str, optional
        The time zone of moments that name none; UTC by default.

    Returns
    -------
    polars.DataFrame, shape (n_changes, 8)
        `schema.CHANGED`, oldest first. A version is a change at its first run if its system had
        another one before; a model, provider or playbook if the agent or system had 30 runs without
        it before.

    Raises
    ------
    ArgumentError
        If ``snap`` is no snapshot, or the file is not of this form: names line and column.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> changes(demo()).select("what", "to").unique().rows()
    [('model', 'claude_code/opus')]
    """
    checked_snapshot(snap, "changes")
    runs = counted(rows_of(snap, policy=policy, rows=rows), RUN)
    versions, key = program_versions(snap).lazy(), ["source", "entity_id"]
    with_versions = runs.lazy().join(versions, on=key, how="left", maintain_order="left")
    began = with_versions.rename({"program_version": "version"}).with_columns(
        began_at=pl.coalesce("started_at", "created_at"), agent=pl.coalesce("agent", "system")
    )
    dated = collected(began.drop_nulls("began_at").sort("began_at", "source", "entity_id"))
    found = [_new_values(dated.lazy(), what, *where) for what, where in OF_CHANGES.items()]
    if declared is not None:
        found.append(schema.CHANGED.conform(_declared(declared, dated, zone_of(tz))))
    return pl.concat(found).sort("changed_at", "what", "where", "to", nulls_last=True)


def _new_values(runs: pl.LazyFrame, what: str, where: str, usual: int) -> pl.DataFrame:
    """The first run with each value that is new where it ran."""
    known = runs.drop_nulls([what, where]).with_columns(
        place=pl.int_range(pl.len()).over(where),
        n_after=pl.len().over(where, what),
        before=pl.col(what).shift(1).over(where),
        is_first=pl.struct(where, what).is_first_distinct(),
    )
    first = known.filter("is_first", pl.col("place") >= usual)
    return schema.CHANGED.conform(
        first.select(
            *(pl.lit(what).alias("what"), pl.col("before").alias("from"), pl.col(what).alias("to")),
            changed_at="began_at",
            where=pl.col(where),
            n_runs_before="place",
            n_runs_after="n_after",
            source=pl.lit("store"),
        ).collect()
    )


def _declared(given: object, runs: pl.DataFrame, zone: tzinfo) -> pl.DataFrame:
    rows = []
    for row in _declared_rows(given, zone):
        place = pl.col("project", "agent", "model", "kind", "system") == pl.lit(row["where"])
        is_there = pl.any_horizontal(place).fill_null(value=False)
        there = (runs.filter(is_there) if row["where"] else runs)["began_at"]
        n_before = int((there < row["changed_at"]).sum())
        rows.append(row | {"n_runs_before": n_before, "n_runs_after": there.len() - n_before})
    return pl.DataFrame(rows, infer_schema_length=None)


def _declared_rows(given: object, zone: tzinfo) -> Iterator[dict[str, Any]]:
    """The rows of a file of changes, each checked."""
    if isinstance(given, pl.DataFrame):
        known = given.select(name for name in _DECLARED if name in given.columns)
        name, cells = "changes", known.select(pl.all().cast(pl.String).fill_null("")).rows()
        lines = [(1, known.columns), *enumerate(map(list, cells), 2)]
    elif isinstance(given, str | Path):
        name = str(given)
        text, problem = read_text(Path(given).expanduser())
        if text is None:
            raise unreadable("changes", Path(given), problem)
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            lines = [(reader.line_num, cells) for cells in reader if cells]
        except csv.Error as error:
            place = f"{in_short(name)}, line {reader.line_num}"
            raise ArgumentError(f"{place}: no CSV ({error}).", _EXAMPLE) from None
    else:
        raise ArgumentError(f"changes needs a CSV file; found {type(given).__name__}.", _EXAMPLE)
    head = [cell.strip() for cell in lines[0][1]] if lines else []
    if missing := [column for column in _DECLARED if column not in head]:
        place = f"{in_short(name)}, line 1"
        raise ArgumentError(f"{place}: there is no column {missing[0]}.", _EXAMPLE)
    for number, cells in lines[1:]:
        place = f"{in_short(name)}, line {number}"
        if len(cells) != len(head):
            words = f"needed {len(head)} columns; found {len(cells)}"
            raise ArgumentError(f"{place}: {words}.", _EXAMPLE)
        row = dict(zip(head, cells, strict=True))
        if not row["what"].strip():
            raise ArgumentError(f"{place}, column what: it is empty.", _EXAMPLE)
        yield {
            "changed_at": read_moment(row["when"], f"{place}, column when,", zone),
            "what": visible(row["what"].strip()),
            "where": visible(row["where"].strip()) or None,
            "source": name,
        }
