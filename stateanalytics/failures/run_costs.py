"""Costs of runs as reported and as estimated from tokens, and list prices of models.

Prices are dated and work offline; a file of yours overrides them::

    as_of = 2026-11-01            # when you looked

    [[price]]
    input = 1.00                  # US dollars for a million tokens
    cache_read = 0.10
    cache_write = 1.25            # for five minutes
    cache_write_1h = 2.00         # for an hour, where it has its own price
    output = 5.00
    long_above = 200_000          # where longer prompts have another price:
    long_input = 2.0              # so many times as much for all input,
    long_output = 1.5             # and for the output
    source = "https://…"          # the page with the price, optional
    [price.models]
    my-model = 2026-10-01         # the day from which the price holds, until a later one
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected, with_own_column
from stateanalytics.core.package_tables import package_text
from stateanalytics.core.schema import ENTITY_KEY, MOMENT
from stateanalytics.core.windows import zone_of
from stateanalytics.core.words import say
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.failures.counting import SESSION_KEY, during_turns, turn_times, worked_s
from stateanalytics.failures.failure_rows import window_of
from stateanalytics.io.files import toml_of_user
from stateanalytics.state.definitions import GOOD_ENDS, RUN, is_failure
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import counted, is_counted, rows_of, within
from stateanalytics.systems.linking import COUNTS, used_tokens

_OF_RUN = [name for name in COUNTS if name != "n_cache_write_1h_tokens"]
PERIODS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}
GROUPS = ("system", "model", "provider", "project", "agent", "kind", "playbook", *PERIODS)

_DOUBTFUL = ("cost.unreliable", "cost.approximate", "usage.incomplete", "usage.placeholder")

_USD = ("input", "cache_read", "cache_write", "cache_write_1h", "output")
_LONG = ("long_above", "long_input", "long_output")
_MAY_LACK = ("cache_write_1h", *_LONG, "source")
_KEYS = (*_USD, *_LONG, "source", "models")
_SHAPE = pl.Schema(
    {
        "model": pl.String(),
        **{f"{name}_usd": pl.Float64() for name in _USD},
        **dict.fromkeys(_LONG, pl.Float64()),
        "since": pl.Date(),
        "as_of": pl.Date(),
        "source": pl.String(),
        "origin": pl.String(),
    }
)
_MILLION = 1e6
_HINT = (
    "a file of prices has as_of = 2026-11-01 and [[price]] tables, each with "
    f"{', '.join(_KEYS)}; {' and '.join(_MAY_LACK)} are optional"
)


def costs(
    snap: Facts,
    *,
    by: Sequence[str] | None = ("system", "model"),
    window: object = None,
    tz: str | None = None,
    policy: Policy | None = None,
    prices: str | Path | None = None,
) -> pl.DataFrame:
    """Reported and estimated costs of runs, by system and model or other columns.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    by : sequence of str
        Some of ``system``, ``model``, ``provider``, ``project``, ``agent``, ``kind``,
        ``playbook``, and ``day``, ``week`` or ``month``; none: all runs together.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    tz : str, optional
        The time zone of the window and of days, weeks and months, such as
        ``"Europe/Berlin"``; UTC by default.
    policy : Policy, optional
        Which ends count; v1 by default.
    prices : str or pathlib.Path, optional
        A file of prices of your own, as for `prices`.

    Returns
    -------
    polars.DataFrame
        One row per group, by period if there is one, the most expensive first: ``n_runs``,
        ``n_completed``, ``n_merged``; ``n_first_pass``, completed by the first attempt, of
        ``n_first_pass_of`` that completed and say which it was (null where none does); ``run_s``,
        the time of their work (of a session with turns, that of its turns); ``retries_usd``, the
        total cost of runs that repeat work (`is_retry`; null where no run says whether it does).
        By ``model`` these three are by the last model of a run. Then for costs as ``reported``, as
        ``estimated`` from list prices, and in ``total`` (reported where possible, else estimated):
        ``…_usd``, null where no run has a cost, 0 without runs; ``…_n`` runs with a cost;
        ``…_per_completed_usd`` and ``…_per_merged_usd`` of those; ``…_lost_usd`` in runs that are
        failures.

    Raises
    ------
    ArgumentError
        If ``by`` names something else, or the window, zone or prices make no sense.

    Notes
    -----
    An estimate prices the tokens of each model separately where the system records them by
    model, else all of a run's by its last model. It needs a price for every model. By
    ``model`` a run counts for every model that it used; its reported cost, for the last.

    By ``day``, ``week`` or ``month`` a run and its work count when it ended (at as-of while it
    is open), but its cost when it was spent, so that all periods add up to the total: tokens
    at their turn, step or answer, and a reported cost in the shares of what these report, else
    of their estimates or, without prices, of their tokens. Costs of a session that records
    none of these are those of its end. A period in which no run ended has costs and no runs.

    Where a system reports one cost for a session and its subagents, these add nothing to the
    total; answers of a process that was killed are in no report, and estimated.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> costs(demo(), by=()).select("n_runs", "reported_n", "estimated_n").rows()
    [(1232, 1223, 0)]
    >>> costs(demo(), by="month").select("month", "n_runs", "total_usd").head(2).rows()
    [('2026-03', 394, 43.635), ('2026-04', 462, 61.977)]
    >>> costs(demo(), by=()).select("n_completed", "n_first_pass", "retries_usd").rows()
    [(944, None, None)]
    """
    groups = [by] if isinstance(by, str) else list(dict.fromkeys(by or ()))
    if unknown := [name for name in groups if name not in GROUPS and "." not in str(name)]:
        near = did_you_mean(str(unknown[0]), GROUPS)
        raise ArgumentError(
            f"Costs have no group {in_short(unknown[0])}; there are {', '.join(GROUPS)}.",
            f'by=("system", "model"){near}',
            shell=f"--by system,model{near}",
        )
    chosen, zone = window_of(snap, window, tz), zone_of(tz)
    forms = {name: form for name, form in PERIODS.items() if name in groups}

    def periods_of(moment: str) -> list[pl.Expr]:
        local = pl.col(moment).dt.convert_time_zone(str(zone))
        return [local.dt.strftime(form).alias(name) for name, form in forms.items()]

    rows = rows_of(snap, policy=policy).with_columns(periods_of("placed_at"))
    for name in groups:
        rows = with_own_column(rows, name, getattr(snap, "own_tables", {}))
    here = rows
    if chosen is not None:
        here = within(rows, chosen, as_of=snap.as_of, sources=snap.sources)
    here, by = here.with_columns(_all=True), groups or ["_all"]
    used, table = used_tokens(snap, periods_of("at")), _price_table(prices)
    runs = counted(here).filter(pl.col("entity_type") == "session")
    runs = collected(
        runs.lazy()
        .with_columns(is_again=is_retry(runs, rows, snap.events))
        .join(turn_times(snap.entities), on=[*SESSION_KEY, "entity_type"], how="left")
    )
    took_s, is_again = during_turns(worked_s()), pl.col("is_again")
    is_again_good = is_again.filter(pl.col("outcome").is_in(GOOD_ENDS))
    # A run without a recorded attempt does not count as a first attempt.
    is_known = is_again_good.is_not_null().any() | (is_again_good.len() == 0)
    measures = runs.group_by(by).agg(
        n_again=pl.when(is_again.is_not_null().any()).then(is_again.sum()),
        _n=pl.len(),
        n_first_pass=pl.when(is_known).then((~is_again_good).sum().cast(pl.Int64)),
        n_first_pass_of=is_again_good.count().cast(pl.Int64),
        run_s=pl.when(took_s.is_not_null().any()).then(took_s.sort().sum()),
    )
    retries = count_costs(runs.filter(is_again), used, table, by)
    found = count_costs(here, used, table, groups)
    place, names = found.columns.index("n_merged") + 1, found.columns
    found = found.with_columns(_all=True)
    for measure in (measures, retries.select(*by, retries_usd="total_usd")):
        found = found.join(measure, on=by, how="left", nulls_equal=True, maintain_order="left")
    has_none = (pl.col("n_again") == 0) | (pl.col("n_runs") == 0)
    added = ("n_first_pass", "n_first_pass_of", "run_s", "retries_usd")
    no_retry = pl.when(has_none).then(0 * pl.col("total_usd"))
    return found.with_columns(
        n_first_pass=pl.when(pl.col("_n").is_not_null()).then("n_first_pass").otherwise(0),
        retries_usd=pl.coalesce("retries_usd", no_retry),
        n_first_pass_of=pl.col("n_first_pass_of").fill_null(0),
    ).select(*names[:place], *added, *names[place:])


def doubts(findings: pl.DataFrame) -> str:
    """The findings on wrong records of costs or tokens, in words; empty: none."""
    counts: Counter[str] = Counter()
    for code, message, n in findings["code", "message", "n_rows"].rows():
        counts[message] += n if code in _DOUBTFUL else 0
    known = [f"{message} ({n:,})" for message, n in sorted((+counts).items())]
    return say("costs.doubts", doubts="; ".join(known)) if known else ""


def unpriced_models(costs: pl.DataFrame, table: pl.DataFrame) -> list[str]:
    """Models without any cost, of `costs` by model, that the `prices` lack."""
    is_unknown = pl.col("total_usd").is_null() & ~_plain_model().is_in(table["model"].implode())
    return sorted(costs.filter(is_unknown)["model"].drop_nulls().unique())


def is_retry(rows: pl.DataFrame, population: pl.DataFrame, events: pl.DataFrame) -> pl.Series:
    """Whether each run repeats work: a second attempt, or a prompt that failed the last time.

    Parameters
    ----------
    rows : polars.DataFrame
        Runs of a `population`.
    population : polars.DataFrame
        That of all time.
    events : polars.DataFrame
        With the bodies of messages, if they were read.

    Returns
    -------
    polars.Series of Boolean
        Null where neither an attempt nor a prompt is recorded.
    """
    key = ["source", "system", "session_id"]
    counts = population.filter(pl.col("attempt") > 0, pl.col("session_id").is_not_null())
    attempts = counts.group_by(key).agg(pl.col("attempt").max().alias("_attempt"))
    is_prompt = (pl.col("role") == "user") & pl.col("body").is_not_null()
    prompts = (
        events.filter(is_prompt)
        .sort("at", "seq")
        .unique(ENTITY_KEY, keep="first", maintain_order=True)
        .select(*ENTITY_KEY, _prompt=pl.col("body").hash())
    )
    began = pl.coalesce("started_at", "created_at").fill_null(pl.lit(0).cast(MOMENT))
    same = ["source", "_prompt", "_directory"]
    ever = (
        counted(population, RUN)
        .join(prompts, on=ENTITY_KEY)
        .with_columns(_at=began, _directory=pl.col("directory").fill_null(""))
        .sort("_at")
    )
    # The last run that ended before decides: after a success, nothing is repeated.
    decided = ever.drop_nulls("ended_at").select(
        *same,
        # A run with a wrong end, before its start, must not precede itself.
        _at=pl.max_horizontal("ended_at", pl.col("_at") + pl.duration(microseconds=1)),
        _again=pl.when(pl.col("outcome").is_in(GOOD_ENDS) | is_failure()).then(is_failure()),
    )
    decided = decided.drop_nulls("_again").sort("_at")
    repeated = (
        ever.join_asof(decided, on="_at", by=same, check_sortedness=False)
        .select(*ENTITY_KEY, pl.col("_again").fill_null(value=False))
        .unique(ENTITY_KEY, keep="first")
    )
    found = rows.join(attempts, on=key, how="left", maintain_order="left").join(
        repeated, on=ENTITY_KEY, how="left", maintain_order="left"
    )
    by_attempt = pl.col("_attempt") > 1
    either = pl.coalesce(by_attempt | pl.col("_again"), by_attempt, "_again")
    return found.select(either).to_series()


def count_costs(
    rows: pl.DataFrame, used: pl.DataFrame, table: pl.DataFrame, by: Sequence[str] = ()
) -> pl.DataFrame:
    """Sums over runs of a `population`; see `costs` for the columns.

    Parameters
    ----------
    rows : polars.DataFrame
        Result of `population`.
    used : polars.DataFrame
        Result of `used_tokens`.
    table : polars.DataFrame
        Result of `prices`.
    by : sequence of str
    """
    runs = rows.lazy().filter(is_counted(), pl.col("entity_type") == "session")
    periods = [name for name in by if name in PERIODS]
    costed = priced(runs, used, table, by_model="model" in by).with_columns(
        is_end=pl.lit(value=True),
        is_good=pl.col("outcome").is_in(list(GOOD_ENDS)).fill_null(value=False),
        is_bad=is_failure().fill_null(value=False),
        is_merged=(pl.col("outcome") == "merged").fill_null(value=False),
    )
    if periods:
        costed = _when_spent(costed, used, table, by)
    sums = {
        "n_runs": pl.col("is_end").sum().cast(pl.Int64),
        "n_completed": pl.col("is_good").sum().cast(pl.Int64),
        "n_merged": pl.col("is_merged").sum().cast(pl.Int64),
    }
    usd_of = {"reported": "cost_usd", "estimated": "estimated_usd", "total": "total_usd"}
    for word, usd in usd_of.items():
        sums |= _sums(word, pl.col(usd))
    if not by:
        return costed.select(**sums).pipe(collected)
    highest = pl.max_horizontal("reported_usd", "estimated_usd")
    grouped = costed.group_by(by).agg(**sums)
    return grouped.sort(*periods, -highest, pl.struct(by), nulls_last=True).pipe(collected)


def _when_spent(
    costed: pl.LazyFrame, used: pl.DataFrame, table: pl.DataFrame, by: Sequence[str]
) -> pl.LazyFrame:
    """Runs with cost 0 at their end, and rows with their costs at the times of spending."""
    periods = [name for name in by if name in PERIODS]
    key = [*ENTITY_KEY, *(["model"] if "model" in by else [])]
    n_tokens = pl.sum_horizontal("n_input_tokens", "n_output_tokens").cast(pl.Float64)

    def known_of_all(usd: str) -> pl.Expr:
        is_known = pl.col(usd).is_not_null().all() & (pl.col(usd).sum() > 0)
        return pl.when(is_known.over(key)).then(usd)

    weight = pl.coalesce(known_of_all("cost_usd"), known_of_all("estimated_usd"), n_tokens)
    shares = (
        _with_estimates(used.lazy(), table)
        .select(*key, *periods, share=weight / weight.sum().over(key))
        .group_by(*key, *periods)
        .agg(pl.col("share").sum())
    )
    usd = pl.col("cost_usd", "estimated_usd", "total_usd")
    spent = costed.join(shares, on=key, how="left", nulls_equal=True, suffix="_spent").with_columns(
        usd * pl.col("share").fill_null(1),
        *(pl.coalesce(f"{name}_spent", name).alias(name) for name in periods),
        **dict.fromkeys(("is_end", "is_good", "is_merged"), pl.lit(value=False)),
    )
    return pl.concat([costed.with_columns(usd * 0), spent], how="diagonal")


def priced(
    runs: pl.DataFrame | pl.LazyFrame,
    used: pl.DataFrame,
    table: pl.DataFrame,
    *,
    by_model: bool = False,
) -> pl.LazyFrame:
    """Runs with ``estimated_usd`` and ``total_usd``; ``by_model``: a row for each of its models."""
    # In a damaged input a key may repeat; each row still counts as a run of its own.
    numbered = runs.lazy().with_row_index("run")
    keys = numbered.select("run", *ENTITY_KEY, last_model="model")
    by_models = (
        used.lazy().join(keys, on=list(ENTITY_KEY)).with_columns(pl.coalesce("model", "last_model"))
    )
    others = numbered.join(by_models, on="run", how="anti").with_columns(last_model="model")
    in_one = others.select(
        *("run", "model", "last_model", *_OF_RUN),
        at=pl.coalesce("started_at", "created_at"),
        is_cost_recorded=pl.lit(None, pl.Boolean),
    )
    models = pl.concat([by_models, in_one], how="diagonal")
    usd, model, is_recorded = pl.col("estimated_usd"), pl.col("model"), pl.col("is_cost_recorded")
    rest = pl.when(is_recorded).then(0.0).otherwise(usd)
    split = (
        _with_estimates(models, table)
        .group_by("run", *(["model"] if by_model else []))
        .agg(
            estimated_usd=pl.when(usd.is_not_null().all()).then(usd.sum()),
            rest_usd=pl.when(rest.is_not_null().all()).then(rest.sum()),
            is_split=is_recorded.is_not_null().any(),
            is_last=model.eq_missing(pl.col("last_model")).any(),
        )
    )
    is_reported = pl.col("cost_usd").is_not_null()
    rest = pl.when(is_reported, ~pl.col("is_split")).then(0.0).otherwise("rest_usd")
    total = pl.when(is_reported).then(pl.col("cost_usd") + rest).otherwise(rest)
    if not by_model:
        return numbered.join(split, on="run").with_columns(total_usd=total)
    # The reported cost is one number for all models of a run; it counts for the last model.
    is_first = pl.col("run").is_first_distinct()
    return (
        numbered.drop("model")
        .join(split.sort("run", ~pl.col("is_last"), "model"), on="run", maintain_order="right")
        .with_columns(
            cost_usd=pl.when(is_first).then("cost_usd"),
            total_usd=pl.when(is_first).then(total).otherwise(rest),
        )
    )


def _sums(word: str, usd: pl.Expr) -> dict[str, pl.Expr]:
    """The sums of one kind of cost over the runs that have it, in any order of rows."""
    is_known = usd.is_not_null()

    def total(condition: pl.Expr) -> pl.Expr:
        # The sum is 0 without such runs, and null if the costs of all of them are unknown.
        is_none = ~condition.any() & (is_known.any() | (pl.len() == 0))
        return pl.when((condition & is_known).any() | is_none).then(
            usd.filter(condition).sort().sum().round(6)
        )

    def per_run(condition: str) -> pl.Expr:
        n_runs = (pl.col(condition) & is_known).sum()
        return pl.when(n_runs > 0).then((usd.sort().sum() / n_runs).round(6))

    return {
        f"{word}_usd": total(is_known),
        f"{word}_n": (is_known & pl.col("is_end")).sum().cast(pl.Int64),
        f"{word}_per_completed_usd": per_run("is_good"),
        f"{word}_per_merged_usd": per_run("is_merged"),
        f"{word}_lost_usd": total(pl.col("is_bad")),
    }


def prices(own: str | Path | None = None) -> pl.DataFrame:
    """List prices of a million tokens of each known model.

    Parameters
    ----------
    own : str or pathlib.Path, optional
        Your own TOML file: its models override those of the package.

    Returns
    -------
    polars.DataFrame, shape (n_prices, 13)
        By ``model`` and ``since``, the day from which they hold: ``input_usd`` (not from the
        cache), ``cache_read_usd``, ``cache_write_usd`` (for five minutes),
        ``cache_write_1h_usd`` (for an hour) and ``output_usd`` for a million tokens; for prompts
        of more than ``long_above`` tokens, ``long_input`` and ``long_output`` times as much
        (null: the same for all); ``as_of``, the day of the last check, and its page
        (``source``); ``origin`` (stateanalytics, or the file).

    Raises
    ------
    ArgumentError
        If the file cannot be read, or a price is missing or no number.

    Examples
    --------
    >>> prices().filter(model="gpt-5").select("input_usd", "cache_read_usd", "output_usd").rows()
    [(1.25, 0.125, 10.0)]
    """
    listed = tomllib.loads(package_text("stateanalytics.core", "prices.toml"))
    tables = [_price_rows(listed, "stateanalytics")]
    if own is not None:
        if not isinstance(own, str | Path):
            raise ArgumentError(f"Prices are a TOML file; found {type(own).__name__}.", _HINT)
        path = Path(own).expanduser()
        _, whole = toml_of_user("prices", path, _HINT)
        owned = _price_rows(whole, str(path))
        tables = [owned, tables[0].join(owned, on="model", how="anti")]
    every = pl.concat(tables).unique(["model", "since"], keep="first", maintain_order=True)
    return every.sort("model", "since")


# An alias for functions whose argument is called ``prices``.
_price_table = prices


def _price_rows(whole: Mapping[str, Any], origin: str) -> pl.DataFrame:
    tables, as_of = whole.get("price"), whole.get("as_of")
    is_dated = type(as_of) is date and set(whole) == {"price", "as_of"}
    if not isinstance(tables, list) or not is_dated or not all(type(t) is dict for t in tables):
        found = ", ".join(sorted(whole)) or "nothing"
        raise ArgumentError(f"{origin}: as_of and price were needed; found {found}.", _HINT)
    rows = []
    for number, table in enumerate(tables, 1):
        _check(table, f"{origin}, price {number}")
        prices = {"cache_write_1h": table["cache_write"], **table}
        same: dict[str, Any] = {f"{name}_usd": float(prices[name]) for name in _USD}
        same |= {name: table.get(name) for name in (*_LONG, "source")}
        same |= {"as_of": as_of, "origin": origin}
        models = table["models"].items()
        rows += [{"model": model, "since": since, **same} for model, since in models]
    return pl.DataFrame(rows, schema=_SHAPE).with_columns(_plain_model())


def _check(table: Mapping[str, Any], place: str) -> None:
    if unknown := sorted(set(table) - set(_KEYS)):
        hint = _HINT + did_you_mean(unknown[0], _KEYS)
        raise ArgumentError(f"{place}: unknown key {in_short(unknown[0])}.", hint)
    for key in _KEYS:
        value = table.get(key)
        if key == "models":
            is_sound = isinstance(value, dict) and all(type(day) is date for day in value.values())
        elif key == "source":
            is_sound = isinstance(value, str)
        else:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_sound = is_number and 0 <= float(value or 0) < _MILLION
        if not is_sound and (value is not None or key not in _MAY_LACK):
            raise ArgumentError(f"{place}: {key} cannot be {in_short(value)}.", _HINT)
    lacking = [name for name in _LONG if name not in table]
    if 0 < len(lacking) < len(_LONG):
        raise ArgumentError(f"{place}: {', '.join(_LONG)} go together.", _HINT)


def _plain_model() -> pl.Expr:
    """The name of a model without its provider, release, size of its window and dots."""
    provider = r"^(?:.*/)?(?:(?:[a-z-]+\.)?anthropic\.)?"
    release = r"(?:[-@](?:20\d{2}-?\d{2}-?\d{2}|latest))*(?:-v\d+:\d+)?(?:\[1m\])?$"
    bare = pl.col("model").str.to_lowercase().str.replace(provider, "").str.replace(release, "")
    return bare.str.replace_all(".", "-", literal=True)


def estimated_usd(rows: pl.DataFrame, table: pl.DataFrame) -> pl.Series:
    """The cost of each row at list prices, as ``estimated_usd``.

    Parameters
    ----------
    rows : polars.DataFrame
        ``model``, ``n_input_tokens`` (cached or not), ``n_cache_read_tokens`` and
        ``n_cache_write_tokens`` of them, ``n_output_tokens``; and, where it is known,
        ``n_cache_write_1h_tokens``, the part of the cache writes that is kept for an hour;
        ``at``, whose day chooses the price (else the newest); ``longest_prompt_tokens``, of the
        requests that a row is of.
    table : polars.DataFrame
        Result of `prices`.

    Returns
    -------
    polars.Series of Float64
        Null where the model has no price, or tokens or their share from a cache are unknown.

    Examples
    --------
    >>> rows = pl.DataFrame({"model": ["gpt-5", "gpt-5", "?"], "n_input_tokens": 1_000_000,
    ...     "n_cache_read_tokens": [0, None, 0], "n_cache_write_tokens": 0, "n_output_tokens": 0})
    >>> estimated_usd(rows, prices()).to_list()
    [1.25, None, None]
    """
    return _with_estimates(rows.lazy(), table).select("estimated_usd").collect().to_series()


def _with_estimates(rows: pl.LazyFrame, table: pl.DataFrame) -> pl.LazyFrame:
    """The rows with the column of `estimated_usd`."""
    optional = ("at", "n_cache_write_1h_tokens", "longest_prompt_tokens")
    lacking = set(optional) - set(rows.collect_schema())
    read = pl.col("n_cache_read_tokens")
    # Not every provider charges for cache writes, or reports them.
    written, for_an_hour = (
        pl.col(f"n_cache_write{kept}_tokens").fill_null(0) for kept in ("", "_1h")
    )
    parts = {
        "input_usd": (pl.col("n_input_tokens") - read - written).clip(0),
        "cache_read_usd": read,
        "cache_write_usd": written - for_an_hour,
        "cache_write_1h_usd": for_an_hour,
        "output_usd": pl.col("n_output_tokens"),
    }
    *of_input, of_output = (pl.col(price) * n_tokens for price, n_tokens in parts.items())
    is_long = pl.col("longest_prompt_tokens") > pl.col("long_above")
    times_in, times_out = (pl.when(is_long).then(name).otherwise(1.0) for name in _LONG[1:])
    usd = sum(of_input, pl.lit(0.0)) * times_in + of_output * times_out
    # Before its first known day, the first price is assumed.
    since, is_first = pl.col("since"), pl.col("model").is_first_distinct()
    known = (
        table.lazy()
        .sort("model", "since")
        .select(
            *(*parts, *_LONG),
            _model="model",
            _since=pl.when(~is_first).then(since).otherwise(pl.date(1, 1, 1)),
        )
    )
    return (
        rows.with_columns(**dict.fromkeys(lacking, pl.lit(None)))
        .with_columns(
            _model=_plain_model(), _on=pl.col("at").cast(pl.Date).fill_null(pl.date(9999, 1, 1))
        )
        .with_row_index("_row")
        .sort("_on")
        .join_asof(
            known.sort("_since"),
            left_on="_on",
            right_on="_since",
            by="_model",
            check_sortedness=False,
        )
        .sort("_row")
        .with_columns(estimated_usd=usd / _MILLION)
        .drop("_row", "_model", "_on", "_since", *parts, *_LONG, *lacking)
    )
