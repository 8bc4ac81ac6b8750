"""Failed rows: the cluster, the incident and the cost of each, before anything is counted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.joins import collected
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import check_one_of
from stateanalytics.failures.call_outcomes import CALL, OF, RUNS, call_rows
from stateanalytics.failures.cause_groups import NO_MESSAGE, add_cause_groups
from stateanalytics.failures.counting import add_costs, without_nested
from stateanalytics.failures.failure_rates import add_mass
from stateanalytics.failures.fault_registry import with_registered
from stateanalytics.failures.fault_table import add_faults
from stateanalytics.failures.frames import MEMBERS
from stateanalytics.failures.incident_grouping import (
    GAP_S,
    add_incidents,
    count_incidents,
    observed_s,
)
from stateanalytics.failures.masking import as_line, clean_lines, is_blank, mask
from stateanalytics.failures.rules_file import Rules, apply_rules, rules_applied
from stateanalytics.failures.templates import mine_templates, template_ids, versioned_id
from stateanalytics.failures.traces import CUT
from stateanalytics.state.definitions import cause_key, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import is_counted, rows_of, within
from stateanalytics.systems.history import begins_of

N_STEPS = 3
"""Activities that stand in for a message that is not there."""

_PLACE = ("is_open", "created_at", "started_at", "ended_at", "placed_at")


def members(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
    of: str = RUNS,
    registry: object = None,
) -> pl.DataFrame:
    """Every failed row with the cluster it belongs to.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, which override the mined ones: see `Rules.of`.
    earlier : polars.DataFrame, optional
        Templates mined before, with ``pattern``, as for `mine_templates`.
    of : str
        runs, or calls: the calls of tools inside of runs.
    registry : path or polars.DataFrame, optional
        Ids of faults from a file that `register` wrote.

    Returns
    -------
    polars.DataFrame
        A row for each failed or timed-out entity of every type but branches (and what died, where a
        system calls that failed although its ``outcome`` is aborted), newest first. In addition to
        canonical columns: ``code`` (null: none was stored), ``message``, ``template`` and
        ``template_id`` (without a message: the run's last activities; null: none), ``cluster_id``
        (of code and template), ``fault_id`` (`faults`), ``cause_group`` (a key of
        `cause_groups.TITLES`; null: not known), ``rule`` and ``rule_name`` (which of your rules
        claimed it), ``cause`` (`cause_key`), ``incident_id`` (of `incidents`, or of the request
        that it failed with; null: by itself), ``is_mass`` (started during a mass failure:
        `mass_failures`), ``failed_at``, and the ``unit`` of work with its ``run_s``, ``n_tokens``
        and ``cost_usd`` (null: not reported).

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, or a rule or the registry
        cannot be used.

    Notes
    -----
    Templates are mined from the failures of all time, so that a cluster keeps its id
    whatever the window. Legacy, mirrored and imported rows are excluded (`population`).
    The text is as it is stored: mask secrets and escape it where it is shown.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> rows = members(demo(), window="2026-W21")
    >>> rows["code"].drop_nulls().str.starts_with("run.").any()
    True
    """
    rows = find_members(snap, window=window, policy=policy, rules=rules, earlier=earlier, of=of)
    return with_registered(rows, registry, "failures.members")


def rules(
    snap: Facts, rules: object, *, window: object = None, policy: Policy | None = None
) -> pl.DataFrame:
    """How many rows each of your rules matches, and how many earlier rules took first.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    rules : path, mapping or Rules
        See `Rules.of`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.

    Returns
    -------
    polars.DataFrame, shape (n_rules, 9)
        In the order of the rules: ``rule`` (from 1), ``name``, ``action``, ``code``,
        ``message``, ``into_code``; ``n_rows`` that it claimed (0: the rule is idle);
        ``n_lost``, rows that fit but were claimed by the earlier rules ``lost_to`` (names).

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, or a rule cannot be used.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> limits = {"name": "limits", "action": "merge", "message": "(?i)rate limit|overloaded"}
    >>> slow_down = {"name": "slow down", "action": "name", "message": "Error: 429"}
    >>> applied = rules(demo(), {"rule": [limits, slow_down]})
    >>> applied.select("name", "n_rows", "lost_to").rows()[1]
    ('slow down', 0, 'limits')
    """
    return rules_applied(failed_rows(snap, window=window, policy=policy), Rules.of(rules))


def incidents(
    snap: Facts,
    *,
    window: object = None,
    gap_s: float = GAP_S,
    policy: Policy | None = None,
    rules: object = None,
    nested: bool = False,
    of: str = RUNS,
) -> pl.DataFrame:
    """Failures that belong together, one row per incident.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    gap_s : float
        A pair further apart than this is not linked by time; in a burst of three and more,
        gaps up to nine times as long are, if they do not stand out.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    nested : bool
        ``cluster_ids``, ``codes``, ``providers`` and ``systems`` as lists; else as text, which
        fits into CSV.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_incidents, 20)
        At least two pieces of work each, newest first. ``incident_id`` (of its earliest
        row); ``since`` and ``until``, the first and last failure, ``duration_s`` between
        them; ``n_rows``, ``n_sessions``, ``n_causes``, ``n_clusters``; ``linked_by``, words
        of `LINKS` joined by ', '; ``title``, ``code`` and ``template`` of its largest cluster;
        ``cluster_ids``, ``codes``, ``providers`` and ``systems``, joined by ', '; ``run_s``,
        ``n_tokens`` and ``cost_usd`` of ``n_work`` pieces of work (null: none reported it).
        `members` names the incident of every row.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense or ``gap_s`` is negative.

    Notes
    -----
    Failures of a cluster, at a provider, of a cause group on one host, or of a task (one name
    and directory, one cause) are linked in time where so many follow so fast that it is too
    unlikely by chance even at four times the usual rate, as in the busy hours of a week. The
    usual rate is that in the window, whatever came before it, without the busiest hours: a
    cluster that fails every minute makes no incident.
    Links are hypotheses about a common cause, not proof of one.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> incidents(demo()).sort("n_rows")["n_rows"][-1] > 10
    True
    """
    rows = find_members(snap, window=window, policy=policy, rules=rules, of=of)
    counted = count_incidents(add_incidents(rows, gap_s=gap_s, span_s=_span_s(snap, window)))
    return counted if nested else without_nested(counted)


def _span_s(snap: Facts, window: object) -> pl.Expr:
    """Seconds of data in a window; without one, those since the data of a source begin."""
    begins = begins_of(snap.entities)
    first = min(begins.values(), default=snap.as_of)
    asked = window_of(snap, window) or Window(first, snap.as_of, "all time")
    return observed_s(asked, snap.as_of, begins)


def find_members(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    earlier: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
    of: str = RUNS,
) -> pl.DataFrame:
    """The `members`, for the functions that count them.

    ``rows`` is the `population` of all time, where the caller has it already.
    """
    chosen_rules = Rules.of(rules)
    failed = failed_rows(snap, window=window, policy=policy, earlier=earlier, rows=rows, of=of)
    return (
        apply_rules(failed, chosen_rules)
        .pipe(add_clusters)
        .pipe(add_incidents, span_s=_span_s(snap, window))[MEMBERS.dtypes.names()]
        .sort("failed_at", "source", "entity_type", "entity_id", descending=[True, *[False] * 3])
    )


def failed_rows(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    earlier: pl.DataFrame | None = None,
    rows: pl.DataFrame | None = None,
    of: str = RUNS,
) -> pl.DataFrame:
    """Failed rows with ``code``, ``message``, mined ``template`` and costs, before any rule."""
    chosen = window_of(snap, window)
    population = judged_rows(snap, policy, of) if rows is None else rows
    everything = select_failures(population)
    if of == RUNS:
        everything = add_mass(everything, population)
    failed = everything if chosen is None else within(everything, chosen, as_of=snap.as_of)
    if of == RUNS:
        failed = add_costs(failed, snap.entities)
    return add_templates(named(failed, snap), everything["reason_message"], earlier=earlier)


def named(failed: pl.DataFrame, snap: Facts) -> pl.DataFrame:
    """Failures with costs in the columns of `members`, with their last steps."""
    names = {"reason_code": "code", "reason_message": "message", "placed_at": "failed_at"}
    renamed = failed.lazy().rename(names).with_columns(outcome=pl.col("outcome").cast(pl.String))
    return add_last_steps(renamed.collect(), snap.events)


def add_templates(
    failed: pl.DataFrame, messages: pl.Series, *, earlier: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Failed rows with the ``template`` of their message, mined from all of ``messages``.

    Without a message, the run's last activities take its place.
    """
    texts = messages.drop_nulls().unique(maintain_order=True)
    templates = mine_templates(texts, earlier=earlier).lazy().select("template", message=texts)
    joined = failed.lazy().join(templates, on="message", how="left", maintain_order="left")
    template = pl.coalesce("last_steps", pl.col("template").replace("", None))
    return joined.with_columns(template=template).pipe(collected)


def add_last_steps(failed: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Describe the last activities of failures without a message.

    Parameters
    ----------
    failed : polars.DataFrame
        Failed rows with ``message`` and ``failed_at``.
    events : polars.DataFrame
        The events of all entities.

    Returns
    -------
    polars.DataFrame
        ``failed`` in its order with ``last_steps``: the last tool or item that an activity
        up to the failure named, masked as a message is, and the kinds of the last `N_STEPS`
        activities, with the role of a message; equal neighbours count as one. Null
        where there is a message, or no activity.
    """
    key = list(ENTITY_KEY)
    has_no_message = is_blank(pl.col("message").fill_null(""))
    without_message = failed.lazy().filter(has_no_message).select(*key, "failed_at").unique(key)
    kind = pl.concat_str("kind", "role", separator=" of ", ignore_nulls=True)
    activities = collected(
        events.lazy()
        .filter("is_activity")
        .join(without_message, on=key)
        .filter(pl.col("at") <= pl.col("failed_at"))
        .sort("at", "seq", nulls_last=True)
        .group_by(key, maintain_order=True)
        .agg(
            name=pl.col("name").filter(~is_blank(pl.col("name"))).last(),
            kinds=kind.filter(kind.ne_missing(kind.shift())).tail(N_STEPS).str.join(", "),
        )
    )
    tools = _masked_names(activities["name"].drop_nulls().unique()).lazy()
    tool = pl.coalesce(pl.col("tool") + ": ", pl.lit(""))
    last_steps = pl.format(f"{NO_MESSAGE}last {{}}{{}})", tool, "kinds")
    steps = activities.lazy().join(tools, on="name", how="left").select(*key, last_steps=last_steps)
    joined = failed.lazy().join(steps, on=key, how="left", maintain_order="left")
    last_steps = pl.when(has_no_message).then("last_steps")
    return joined.with_columns(last_steps=last_steps).pipe(collected)


def _masked_names(names: pl.Series) -> pl.DataFrame:
    """Names on one line each, with placeholders: some events are named by an id."""
    numbered = pl.DataFrame({"message": names}).with_row_index("number")
    lines = clean_lines(numbered).rename({"text": "message"})
    tool = as_line(pl.col("pattern").str.strip_suffix(f" {CUT}"))
    masked = mask(lines).lazy().select(tool=tool, number="numbers").explode("number")
    return masked.join(numbered.lazy(), on="number").select("tool", name="message").pipe(collected)


def select_failures(rows: pl.DataFrame, outcomes: Collection[str] | None = None) -> pl.DataFrame:
    """The rows of a `population` that are failures (`is_failure`), or have these outcomes.

    Each failed work counts one time: a branch only repeats the outcome of its session, and so
    do the parts of a turn (`rules.mirrors`).
    """
    is_wanted = is_failure() if outcomes is None else pl.col("outcome").is_in(list(outcomes))
    return rows.filter(is_counted(), is_wanted)


def judged_rows(snap: Facts, policy: Policy | None, of: str = RUNS) -> pl.DataFrame:
    """The `population` of all time: of runs and what belongs to them, or of calls.

    Raises
    ------
    ArgumentError
        If ``of`` is neither runs nor calls.
    """
    facts = checked_snapshot(snap, "failures.clusters")
    check_one_of(of, OF, "kind of failure")
    return rows_of(facts, policy=policy) if of == RUNS else call_rows(facts)


def ended_runs(rows: pl.DataFrame, of: str = RUNS) -> pl.DataFrame:
    """Of a `population`, the runs (or the calls) that rates count and that have ended."""
    return rows.filter(is_counted("session" if of == RUNS else CALL), ~pl.col("is_open"))


def placed_runs(rows: pl.DataFrame, of: str = RUNS) -> pl.DataFrame:
    """`ended_runs` with their moments alone: copying all columns takes memory in large stores."""
    return ended_runs(rows[["entity_type", "left_out", "source", *_PLACE]], of)


def window_of(snap: Facts, window: object, tz: str | None = None) -> Window | None:
    """A window as `read_window` gives it; None: all time."""
    as_of = checked_snapshot(snap, "failures.clusters").as_of
    return None if window is None else read_window(window, as_of=as_of, tz=tz)


def cluster_id(code: str | None, template: str | None, version: str | None = None) -> str:
    """The id of a cluster: a digest of code and template, so that it is the same next week.

    ``version`` is that of the miner; None: this one.

    Examples
    --------
    >>> cluster_id("run.failed.exception", "worker <*> died")[:3]
    'v1:'
    >>> cluster_id(None, "x") == cluster_id("", "x")
    False
    """
    parts = "".join(f"{part is None:d}{part or ''}\0" for part in (code, template))
    return versioned_id(parts, version)


def add_clusters(rows: pl.DataFrame) -> pl.DataFrame:
    """Failed rows with their ``cause``, the ids of cluster, template and fault, and the group."""
    pairs = rows.group_by("code", "template").agg(pl.col("rule_name").sort().first())
    ids = add_faults(add_cause_groups(pairs)).with_columns(
        cluster_id=pl.Series([cluster_id(*pair[:2]) for pair in pairs.rows()], dtype=pl.String),
        template_id=template_ids(pairs["template"]),
    )
    added = ids.lazy().drop("rule_name", "title", "cause_proposed")
    keyed = rows.lazy().with_columns(reason_code="code").with_columns(cause_key())
    on_pair: Any = {"on": ["code", "template"], "how": "left", "nulls_equal": True}
    return collected(keyed.join(added, maintain_order="left", **on_pair))
