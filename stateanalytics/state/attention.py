"""The entities that need an operator's attention, and what was decided about them.

ADR-0030's words: an *item* is an entity whose severity is critical or warning; its
*fingerprint* is ``entity type:id:reason code``, so that another reason makes another
item; items of one reason and one cause form a *cluster*; an operator's *disposition*
(acknowledged, resolved, expected, snoozed) discharges an item, until it lapses or the
reason changes.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import Rows
from stateanalytics.core.shapes import Integer, Moment, Text, Words, frame
from stateanalytics.core.vocabulary import STATUS_WORDS
from stateanalytics.core.windows import instant
from stateanalytics.core.words import first_word
from stateanalytics.state.definitions import STOPPED, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import is_mirror, is_open, left_out_by_themselves
from stateanalytics.systems import all_systems, stop_commands
from stateanalytics.systems.linking import is_driven

SEVERITIES = ("critical", "warning")
DECISION = {
    **dict.fromkeys(("source", "item_id", "state", "note", "actor", "source_status"), pl.String()),
    **dict.fromkeys(("expires_at", "updated_at"), schema.MOMENT),
}
"""The columns of a decision about an item, from `Auditing.dispositions`."""

DISPOSITIONS = ("acknowledged", "resolved", "expected", "snoozed")
STANDINGS = ("open", "ended", "stopped")
"""What can still be done about an item: most for open work, nothing for stopped work."""
OPEN = "open"
NO_CODE = "unknown"

STUCK = "effort.stuck"
"""The code of an item whose only reason is that its session is stuck in a loop."""


class Attention(schema.EntityKey, key=schema.ENTITY_KEY):
    """One entity that needs attention at as-of."""

    item_id = Text("run:<session>, inv:<id>, sched:<id>, play:<topic>:<name>, …")
    fingerprint = Text("entity_type:entity_id:code; another reason, another one")
    severity = schema.States.severity
    tone = schema.States.tone
    display = schema.States.display
    name = schema.Entities.name
    dimension = Words(
        (*schema.DIMENSIONS, "effort"),
        "the axis that made it severe, or of what blocks it, or effort",
    )
    code = Text("the reason on that axis; `unknown` where none is given")
    message = Text("that reason in words")
    standing = Words(
        STANDINGS, "open: it can still be acted on; ended; stopped: somebody ended it on purpose"
    )
    since_at = Moment("its end, else its last sign of life")
    cause = Text("the invocation, else the session, else the entity itself")
    cluster = Text("code and cause: what one repair would clear")
    n_in_cluster = Integer("items in the cluster, discharged ones included")
    n_causes = Integer("distinct causes with this code")
    disposition = Text("open, or what was decided and still holds")
    reopened_because = Text("why a decision no longer holds")
    note = Text("the operator's note")
    actor = Text("who decided")
    decided_at = Moment("when it was decided")
    expires_at = Moment("when the decision lapses")


ATTENTION = frame(Attention)


_ENTITY_COLUMNS = (
    *schema.ENTITY_KEY,
    *("parent_id", "session_id", "invocation_id", "name", "raw_status", "reason_code"),
    *("created_at", "started_at", "updated_at", "ended_at", "last_activity_at"),
)
"""Columns of entities that the list shows or needs."""


def attention_items(
    facts: Facts,
    states: pl.DataFrame,
    reasons: pl.DataFrame,
    *,
    policy: Policy | None = None,
    with_discharged: bool = False,
    efforts: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The items that need attention, most severe first, then most recent.

    Parameters
    ----------
    facts : Facts
        Entities, transitions, as-of, and what operators decided (`Auditing.dispositions`).
    states, reasons : polars.DataFrame
        ``schema.STATES`` and ``schema.REASONS`` of the same facts.
    policy : Policy, optional
        The policy that the states were made with: it knows which axis each rule of the
        cascade reads. ADR-0033's by default.
    with_discharged : bool, default False
        Also list items that a disposition discharges.
    efforts : polars.DataFrame, optional
        `failures.effort`, where open sessions that are stuck are items, too.

    Returns
    -------
    polars.DataFrame
        `ATTENTION`. Without legacy entities, and without rows that repeat another row
        (`population.is_mirror`: branches; turns that are a session's last, and the parts of turns).

    Notes
    -----
    A stored disposition names an item but not its reason, so the reason is taken from the last
    transition before the decision. A disposition is void if the stored status or reason has
    changed, if it has expired, and if it is *resolved* and anything happened to the entity since.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> empty = [frame.empty() for frame in schema.FACTS]
    >>> nothing = Facts(*empty, as_of=datetime(2026, 1, 1, tzinfo=UTC))
    >>> attention_items(nothing, schema.STATES.empty(), schema.REASONS.empty()).columns[:2]
    ['source', 'system']
    """
    driven = is_driven(facts.entities, left_out_by_themselves(facts.entities, states))
    is_current = pl.col("is_legacy").fill_null(False).not_()
    judged = states.lazy().select(*schema.ENTITY_KEY, *_JUDGED).filter(is_current)
    severe = judged.filter(pl.col("severity").cast(pl.String).is_in(SEVERITIES)).collect()
    stuck = _stuck(judged, severe, efforts)
    # Most rows need no attention, and a filter by id is cheaper than a join of all columns.
    is_severe = pl.col("entity_id").is_in(pl.lit(severe["entity_id"]).implode())
    is_stuck = pl.col("entity_id").is_in(pl.lit(stuck["entity_id"]).implode())
    is_needed = is_severe | is_stuck | (pl.col("entity_type") == "show")
    needed = facts.entities.lazy().select(_ENTITY_COLUMNS)
    needed = needed.filter(is_needed & ~is_mirror(facts.entities, driven))
    entities = with_item_id(needed).collect().lazy()
    severe_items = severe.lazy().select(
        *schema.ENTITY_KEY,
        *("severity", "tone", "display", "outcome"),
        _dimension(policy),
        _is_open=is_open(),
    )
    listed = severe_items.join(entities, on=schema.ENTITY_KEY, how="inner")
    stuck_items = stuck.lazy().join(entities, on=schema.ENTITY_KEY, how="inner")
    is_stopped = pl.col("outcome").is_in(list(STOPPED)) & ~is_failure()
    items = (
        pl.concat(
            [_with_reasons(listed, reasons, is_severe).lazy(), stuck_items], how="diagonal_relaxed"
        )
        .with_columns(
            code=pl.col("code").fill_null(NO_CODE),
            cause=pl.coalesce("invocation_id", "session_id", "entity_id"),
            since_at=pl.coalesce(
                "ended_at", "last_activity_at", "updated_at", "started_at", "created_at"
            ),
        )
        .with_columns(
            standing=first_word("ended", open="_is_open", stopped=is_stopped),
            fingerprint=_joined("entity_type", "entity_id", "code"),
            cluster=_joined("code", "cause"),
            n_causes=pl.col("cause").n_unique().over("code").cast(pl.Int64),
        )
        .with_columns(n_in_cluster=pl.len().over("cluster").cast(pl.Int64))
        .pipe(_with_dispositions, facts)
    )
    kept = (items if with_discharged else items.filter(pl.col("disposition") == OPEN)).collect()
    return ATTENTION.conform(kept).sort(
        "severity",
        "since_at",
        *schema.ENTITY_KEY,
        descending=[False, True, False, False, False, False],
        nulls_last=True,
    )


def _stuck(
    judged: pl.LazyFrame, severe: pl.DataFrame, efforts: pl.DataFrame | None
) -> pl.DataFrame:
    """Open sessions that are stuck in a loop and are no items for any other reason."""
    if efforts is None:
        return severe.clear()[list(schema.ENTITY_KEY)]
    stuck = efforts.lazy().filter(effort="stuck", entity_type="session")
    how = pl.col("system").replace_strict(stop_commands(), default="", return_dtype=pl.String)
    stop = pl.when(how != "").then(pl.format(". To stop it: {}", how))
    return (
        judged.filter(is_open())
        .join(severe.lazy(), on=schema.ENTITY_KEY, how="anti")
        .join(stuck.select(*schema.ENTITY_KEY, "why"), on=schema.ENTITY_KEY, how="inner")
        .with_columns(
            severity=pl.lit("critical", pl.Enum(schema.SEVERITIES)),
            tone=pl.lit("danger", pl.Enum(schema.TONES)),
            dimension=pl.lit("effort"),
            code=pl.lit(STUCK),
            message=pl.concat_str("why", stop, ignore_nulls=True),
            _is_open=pl.lit(value=True),
        )
        .drop("why")
        .collect()
    )


_JUDGED = (
    *("severity", "tone", "display", "outcome", "severity_rule"),
    *("lifecycle", "health", "is_legacy", "is_terminal"),
)


def with_item_id(entities: Rows) -> Rows:
    """Each entity with the id that attention lists and stored dispositions use for it.

    Parameters
    ----------
    entities : polars.DataFrame or LazyFrame
        ``schema.ENTITIES``.

    Returns
    -------
    polars.DataFrame or LazyFrame
        The same rows with ``item_id``: ``run:<session>``, ``inv:<id>``, ``sched:<id>``,
        ``play:<topic>:<name>`` (by id where the show is not known), else
        ``<entity_type>:<id>``.

    Examples
    --------
    >>> session = pl.DataFrame({"entity_type": ["session"], "entity_id": ["a"]})
    >>> rows = schema.ENTITIES.conform(session)
    >>> with_item_id(rows)["item_id"].to_list()
    ['run:a']
    """
    shows = (
        entities.filter(pl.col("entity_type") == "show")
        .select("source", "system", parent_id="entity_id", _topic="name")
        .unique(["source", "system", "parent_id"], keep="last")
    )
    prefix = pl.col("entity_type").replace(
        {"session": "run", "invocation": "inv", "schedule": "sched"}
    )
    named_play = (pl.col("entity_type") == "play") & pl.col("_topic").is_not_null()
    return (
        entities.join(
            shows, on=["source", "system", "parent_id"], how="left", maintain_order="left"
        )
        .with_columns(
            item_id=pl.when(named_play & pl.col("name").is_not_null())
            .then(pl.concat_str(pl.lit("play"), "_topic", "name", separator=":"))
            .otherwise(pl.concat_str(prefix, "entity_id", separator=":"))
        )
        .drop("_topic")
    )


def _joined(*columns: str) -> pl.Expr:
    return pl.concat_str(*columns, separator=":")


def _dimension(policy: Policy | None) -> pl.Expr:
    """The axis of the rule that fired, in the vocabulary of reasons."""
    axes = {
        rule.number: "lifecycle" if rule.axis == "outcome" else rule.axis
        for rule in (policy or Policy.v1()).severity_rules
        if rule.axis
    }
    axis = pl.col("severity_rule").replace_strict(axes, default="lifecycle", return_dtype=pl.String)
    # The health only says that it is blocked; the blocker is a reason of the lifecycle.
    is_blocked = pl.col("health") == "blocked"
    return pl.when(is_blocked).then(pl.lit("lifecycle")).otherwise(axis).alias("dimension")


def _with_reasons(listed: pl.LazyFrame, reasons: pl.DataFrame, is_asked: pl.Expr) -> pl.DataFrame:
    """Items with the reason on the axis that made the entity severe, else its first reason."""
    # Row numbers of the reasons first: their texts are looked up after.
    place = pl.col("order") * 2**32 + pl.col("row").cast(pl.Int64)
    first_of = {
        axis: pl.when(pl.col("axis") == axis).then("place").min() for axis in schema.DIMENSIONS
    }
    places = (
        reasons.lazy()
        .with_row_index("row")
        .filter(is_asked)
        .select(*schema.ENTITY_KEY, axis=pl.col("dimension").cast(pl.String), place=place)
        .group_by(schema.ENTITY_KEY)
        .agg(**first_of, first=pl.col("place").min())
    )
    on_axis = pl.coalesce(
        pl.when(pl.col("dimension") == axis).then(axis) for axis in schema.DIMENSIONS
    )
    placed = (
        listed.join(places, on=schema.ENTITY_KEY, how="left")
        .with_columns(own=on_axis % 2**32, first=pl.col("first") % 2**32)
        .drop(schema.DIMENSIONS)
        .collect()
    )
    own, first = (pl.lit(placed.drop_in_place(name)) for name in ("own", "first"))
    texts = reasons.select(
        pl.coalesce(pl.col(name).gather(own), pl.col(name).gather(first))
        for name in ("code", "message")
    )
    return placed.hstack(texts)


def _dispositions(facts: Facts) -> pl.DataFrame:
    """The decisions of all systems that record them."""
    present = set(facts.entities["system"].unique())
    shapes = [known.auditing().dispositions for known in all_systems() if known.name in present]
    decisions = [facts.detail(shape).select(list(DECISION)) for shape in shapes if shape]
    return pl.concat(decisions) if decisions else pl.DataFrame(schema=DECISION)


def _with_dispositions(items: pl.LazyFrame, facts: Facts) -> pl.LazyFrame:
    """Join the decision about each item, and whether it still holds."""
    decided = (
        _dispositions(facts)
        .lazy()
        .filter(pl.col("state").is_in(DISPOSITIONS))
        .sort("updated_at")
        .unique(["source", "item_id"], keep="last", maintain_order=True)
        .rename({"updated_at": "decided_at"})
    )
    joined = items.join(decided, on=["source", "item_id"], how="left")
    is_decided = pl.col("state").is_not_null()
    history = _history(joined.filter(is_decided), facts.transitions.lazy())
    void = _void(facts)
    return joined.join(history, on=schema.ENTITY_KEY, how="left").with_columns(
        reopened_because=pl.when(is_decided).then(void),
        disposition=pl.when(is_decided & void.is_null()).then("state").otherwise(pl.lit(OPEN)),
    )


def _history(decided: pl.LazyFrame, transitions: pl.LazyFrame) -> pl.LazyFrame:
    """Status and reason of each item when it was decided, and whether more followed."""
    keys = list(schema.ENTITY_KEY)
    rows = (
        transitions.join(decided.select(*keys, "decided_at"), on=keys, how="inner")
        .sort("at", "seq", nulls_last=True)
        .with_columns(is_before=pl.col("at") <= pl.col("decided_at"))
    )
    before = pl.col("is_before")
    return rows.group_by(keys).agg(
        decided_status=pl.col("status").filter(before).last(),
        decided_code=pl.col("reason_code").filter(before).last(),
        was_seen=before.any(),
        has_later=(~before).any(),
    )


_WORDS = sorted(f"{word.entity_type}:{word.raw_status}" for word in STATUS_WORDS)


def _void(facts: Facts) -> pl.Expr:
    """Why a decision no longer holds; null while it does."""
    was_seen = pl.col("was_seen").fill_null(False)
    changed = pl.col("decided_status").ne_missing(pl.col("raw_status")) | pl.col(
        "decided_code"
    ).ne_missing(pl.col("reason_code"))
    # Pages also store words such as `stuck`, which are not statuses of the row.
    is_word = _joined("entity_type", "source_status").is_in(_WORDS).fill_null(False)
    other_word = is_word & pl.col("source_status").ne_missing(pl.col("raw_status"))
    return (
        pl.when(pl.col("expires_at") <= instant(facts.as_of))
        .then(pl.lit("expired"))
        .when(pl.when(was_seen).then(changed).otherwise(other_word))
        .then(pl.lit("new reason"))
        .when((pl.col("state") == "resolved") & pl.col("has_later").fill_null(False))
        .then(pl.lit("happened again"))
    )
