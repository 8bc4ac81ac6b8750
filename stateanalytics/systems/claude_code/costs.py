"""What Claude Code recorded of costs, and the requests that no other record shows.

A process writes a ``cost-state`` record when it ends well. It counts from the first process of
a session on, through resumes, and a fork continues the count of its origin. The count of a
process that was killed is lost; requests of compaction are recorded nowhere else.
"""

from __future__ import annotations

import polars as pl

from stateanalytics.core.joins import total
from stateanalytics.systems.claude_code.folding import SIGNS
from stateanalytics.systems.claude_code.frames import COSTS, MESSAGES, USAGE
from stateanalytics.systems.claude_code.lines import COST_RECORD, MODEL_USAGE
from stateanalytics.systems.threads import THREAD

_TOTALS = ("cost_usd", "api_s", "tool_s", "n_lines_added", "n_lines_removed")
_COUNTS = (*_TOTALS, *(name for name in MODEL_USAGE.values() if name not in _TOTALS))
_USAGE = pl.Struct(dict.fromkeys(MODEL_USAGE, pl.Float64))
_BY_MODEL = pl.List(pl.Struct({"key": pl.String, "value": _USAGE}))
LARGEST = 2.0**53
_SESSION = ("source", "session")
# The name of a model without its provider's prefix, release date and context size.
_MODEL_NAME = r"^.*?(claude-.*?)(?:[-@]20\d{6})?(?:-v\d+(?::\d+)?)?(?:\[[^\]]*\])?$"


def cost_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """The increase of each record of costs over the previous one, or over that of the origin.

    Parameters
    ----------
    rows : polars.DataFrame
        From `folding.with_threads`.

    Returns
    -------
    polars.DataFrame
        One row per record and model, and one with ``model`` null for the whole record: the key
        of the thread, ``by`` (the last moment before the record), `_COUNTS`, ``inherited_usd``.
        A record whose count began at an unknown value has no row.
    """
    states = rows.filter(pl.col("type") == COST_RECORD).select(
        *THREAD, "seq", "counted_since", "model_usage", *_TOTALS,
        # In a shuffled file the time of the record is not known; the end is assumed.
        by=pl.coalesce("by", pl.col("at").max().over(THREAD)),
    )  # fmt: skip
    at = pl.col("at")
    threads = rows.group_by(THREAD).agg(
        begun_at=at.filter(~pl.col("is_copied"), pl.col("what").is_in(list(SIGNS))).min(),
        copied_until=at.filter("is_copied").max(),
        origin=pl.col("copied_from").drop_nulls().last(),
        copied_since=pl.col("copied_since").drop_nulls().last(),
    )
    forks = threads.drop_nulls("origin")
    # Two forks of a deleted session share records, but neither is the origin of the other, and
    # the count that the second one began with is not recorded.
    is_sibling = (pl.col("copied_until") < pl.col("copied_since")).fill_null(value=False)
    inherited = (
        states.join(
            forks.filter(~is_sibling).select("source", "origin", "begun_at", fork="thread_id"),
            left_on=THREAD,
            right_on=("source", "origin"),
        )
        .filter(pl.col("by") <= pl.col("begun_at"))
        .drop("thread_id", "begun_at")
        .rename({"fork": "thread_id"})
    )
    unknown = states.join(forks.filter(is_sibling), on=THREAD, how="semi").filter(
        pl.col("seq") == pl.col("seq").min().over(THREAD)
    )
    known = pl.concat(
        [
            pl.concat([inherited, unknown], how="diagonal").with_columns(is_own=False),
            states.join(unknown, on=[*THREAD, "seq"], how="anti").with_columns(is_own=True),
        ],
        how="diagonal",
    ).with_row_index("record")
    models = (
        known.select("record", models=pl.col("model_usage").str.json_decode(_BY_MODEL))
        .explode("models", empty_as_null=False, keep_nulls=False)
        .unnest("models")
        .unnest("value")
        .rename({**MODEL_USAGE, "key": "model"})
        .with_columns(pl.col(MODEL_USAGE.values()).pipe(_sound))
    )
    sums = models.group_by("record").agg(pl.col(_COUNTS[len(_TOTALS) :]).sum())
    wholes = known.join(sums, on="record", how="left").with_columns(
        pl.col(_TOTALS).cast(pl.Float64).pipe(_sound)
    )
    place = ("record", *THREAD, "seq", "by", "is_own", "counted_since")
    every = pl.concat(
        [wholes, models.join(known.select(place), on="record")], how="diagonal_relaxed"
    ).sort(*THREAD, "is_own", "seq")
    return _increases(every).filter("is_own")


def _sound(numbers: pl.Expr) -> pl.Expr:
    """Numbers that can be counts; null where they are below zero or beyond all bounds."""
    return pl.when(numbers.is_between(0, LARGEST)).then(numbers)


def _increases(records: pl.DataFrame) -> pl.DataFrame:
    """Counts minus the previous ones of the same counter, which never falls by itself."""
    of_model = (*THREAD, "model")
    size = pl.sum_horizontal(USAGE).fill_null(0)
    continues = size >= size.shift(1).over(of_model)
    steps = {}
    for name in _COUNTS:
        count = pl.col(name)
        same = count.cum_max().forward_fill().shift(1).over(*of_model, "counted_since")
        # Without `counted_since` it is not known whether two records have the same counter.
        same = pl.when(pl.col("counted_since").is_not_null()).then(same)
        before = pl.when(continues).then(count.forward_fill().shift(1).over(of_model))
        steps[name] = (count - pl.coalesce(same, before, 0.0)).clip(0)
    was_inherited = ~pl.col("is_own").shift(1).over(of_model)
    base = pl.col("cost_usd").shift(1).over(of_model)
    return records.with_columns(
        **steps, inherited_usd=pl.when(pl.col("is_own"), was_inherited, continues).then(base)
    )


def costs_by_model(steps: pl.DataFrame) -> pl.DataFrame:
    """`frames.COSTS`, from `cost_steps`."""
    summed = steps.drop_nulls("model").group_by(*THREAD, "model").agg(total(*MODEL_USAGE.values()))
    return COSTS.conform(summed.sort(*THREAD, "model"))


def costs_of_sessions(steps: pl.DataFrame) -> pl.DataFrame:
    """The key of each session with a record of costs, `_TOTALS` and ``inherited_cost_usd``."""
    wholes = steps.filter(pl.col("model").is_null())
    return wholes.group_by(THREAD).agg(total(*_TOTALS), inherited_cost_usd=total("inherited_usd"))


def with_side_requests(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Answers with ``is_cost_recorded``, and below them the requests that no answer shows.

    Usage between two records of costs beyond that of the answers belongs to side requests. If
    less was recorded, the first answers are those of a process that was killed.
    """
    session = pl.col("thread_id").str.extract(r"^([^/]*)")
    ends = steps.drop_nulls("by").select("source", "by", session="thread_id").unique()
    last = ends.group_by(_SESSION).agg(last_by=pl.col("by").max())
    n_tokens = pl.sum_horizontal(USAGE)
    answers = (
        messages.with_columns(session=session)
        .with_row_index("place")
        .sort("at", nulls_last=True)
        .join_asof(
            ends.sort("by"), left_on="at", right_on="by", by=_SESSION, strategy="forward",
            check_sortedness=False, coalesce=False,
        )
        .join(last, on=_SESSION, how="left", maintain_order="left")
        # A subagent may end after the last record of its parent that has a moment.
        .with_columns(
            by=pl.coalesce(
                "by",
                pl.when(pl.col("at").is_null() | pl.col("thread_id").str.contains("/"))
                .then("last_by"),
            )
        )
    )  # fmt: skip
    step = (*_SESSION, "by")
    named = steps.rename({"thread_id": "session"}).drop_nulls("by")
    recorded = (
        named.filter(pl.col("model").is_null())
        .group_by(step)
        .agg(n_recorded=pl.sum_horizontal(pl.col(USAGE).sum()))
    )
    lost = pl.col("n_answered") - pl.col("n_recorded")
    n_so_far = n_tokens.cum_sum().over(step)
    marked = (
        answers.with_columns(n_answered=n_tokens.sum().over(step))
        .join(recorded, on=step, how="left", maintain_order="left")
        .with_columns(
            is_cost_recorded=pl.col("by").is_not_null() & ((lost <= 0) | (n_so_far > lost)),
            is_side_request=pl.lit(value=False),
        )
        .sort("place")
    )
    return MESSAGES.conform(pl.concat([marked, _side_requests(marked, named)], how="diagonal"))


def _side_requests(answers: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The usage of each model in each record beyond that of the answers it includes."""
    counts = (*USAGE, "n_cache_1h_tokens")
    part = (*_SESSION, "by", "model_name")
    name = pl.col("model").str.to_lowercase().str.replace(_MODEL_NAME, "$1")
    counted = answers.filter("is_cost_recorded", pl.sum_horizontal(USAGE) > 0).with_columns(
        model_name=name
    )
    recorded = steps.drop_nulls("model").with_columns(model_name=name)
    # A session is skipped if the records do not name the model of an answer: usage would count
    # twice.
    others = counted.join(recorded, on=(*_SESSION, "model_name"), how="anti")
    known = counted.group_by(part).agg(pl.col(counts).sum().name.prefix("answered_"))
    beyond = [
        (pl.col(count) - pl.col(f"answered_{count}").fill_null(0)).clip(0).cast(pl.Int64)
        for count in counts
    ]
    return (
        recorded.group_by(part)
        .agg(pl.col("model").first(), pl.col("seq").min(), pl.col(counts).sum())
        .join(others, on=_SESSION, how="anti")
        .join(known, on=part, how="left")
        .with_columns(beyond)
        .filter(pl.sum_horizontal(USAGE) > 0)
        .sort(*_SESSION, "seq", "model")
        .select(
            "source",
            "model",
            *counts,
            thread_id="session",
            message_id=pl.format("cost record {}: {}", "seq", "model"),
            at="by",
            n_lines=pl.lit(0, pl.Int64),
            is_side_request=pl.lit(value=True),
            is_cost_recorded=pl.lit(value=True),
        )
    )
