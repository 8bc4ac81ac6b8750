"""Why work failed: clusters of failures by cost, with their code, history and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

import polars as pl

from stateanalytics.core.joins import collected, left_joined
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.windows import WEEK, Window, instant
from stateanalytics.core.words import (
    capitalised,
    count,
    dollars,
    how_long,
    listed,
    number,
    say,
    share,
    shorten_template,
)
from stateanalytics.failures.associations import count_faults
from stateanalytics.failures.cluster_life import count_lives, former_ids
from stateanalytics.failures.clustering import count_clusters
from stateanalytics.failures.counting import count_groups, incident_count, sorted_by_cost, sum_costs
from stateanalytics.failures.failure_rates import STEP_S, count_starts, without_mass
from stateanalytics.failures.failure_rows import placed_runs
from stateanalytics.failures.fault_registry import changed_within
from stateanalytics.failures.fault_table import add_faults, is_consequence
from stateanalytics.failures.incident_grouping import count_incidents
from stateanalytics.failures.weekly_change import NEWS_CHANCE, QUIET_CHANCE
from stateanalytics.reporting.changes import rate_of_growing
from stateanalytics.reporting.material import Material, Plain, Section, iso, plain_rows, tally
from stateanalytics.state.definitions import RUN, ended_well, is_failure
from stateanalytics.state.population import is_counted
from stateanalytics.state.reasons import REGISTRY
from stateanalytics.systems.linking import program_versions

N_NAMED = 2
_LONGEST_NAME = 60
_SUMS = ("run_s", "cost_usd", "n_work", "n_cost_unreported")


def lost_of(row: Plain) -> Plain:
    """Cost and time of a failure in words; a cost that is not reported is never shown as 0."""
    cost, unreported = row["cost_usd"], row["n_cost_unreported"]
    # A sum of zeros and unknown costs is not known to be zero.
    cost = None if unreported and not cost else cost
    return {
        "cost": say("failures.not_reported") if cost is None else dollars(cost),
        "unreported": number(unreported) if cost is not None and unreported else None,
        "time": say("failures.not_known") if row["run_s"] is None else how_long(row["run_s"]),
    }


def lost_in_words(lost: Plain) -> str:
    """Time and cost of a failure for a table cell; a cost that is not reported is named so."""
    time, cost = lost["time"], lost["cost"]
    if cost == say("failures.not_reported"):
        cost = f"cost {cost}"
    return ", ".join(part for part in (time, cost) if part and part != say("failures.not_known"))


def lost_in_all(failed: pl.DataFrame) -> Plain:
    """What all failures of a window cost together; parts of a run are not counted twice."""
    of_incident = (
        failed.lazy()
        .drop_nulls("unit")
        .unique("unit", keep="first", maintain_order=True)
        .group_by(pl.coalesce("incident_id", "cause"))
        .agg(pl.col("run_s").sum())
    )
    # Each incident either happens or not, so the variance of their sum is the sum of squares.
    spread_s = of_incident.select(spread_s=pl.col("run_s").pow(2).sum().sqrt().round(3))
    both = pl.concat([failed.lazy().select(**sum_costs()), spread_s], how="horizontal")
    row = both.pipe(collected).row(0, named=True)
    sums = {name: None if row[name] is None else round(row[name], 6) for name in _SUMS}
    return {**sums, "spread_s": row["spread_s"], **lost_of(sums)}


def name_of(row: Plain) -> str:
    """The name of a failure: given by a rule, else its title."""
    return str(row["rule_name"] or row["title"])


def finding_of(
    material: Material,
    clusters: pl.DataFrame,
    codes: pl.DataFrame,
    n_in_state: Mapping[str, int] | None,
    n_weeks: int,
) -> str:
    """What failed, which clusters have no owner, and which are new, back or no longer seen."""
    failed = material.failed
    if failed.is_empty():
        return say("failures.nothing")
    has_ledger = material.ledger is not None
    parts = [_incident_counts(failed), *_most_expensive(clusters, has_ledger=has_ledger)]
    n_of = Counter(failed["code"].filter(failed["entity_type"] == RUN))
    pairs = codes[["code", "n_incidents"]].rows()
    counts = ((n_of[code], n_incidents, code) for code, n_incidents in pairs)
    n_runs, n_incidents, code = max(counts, key=lambda row: row[0] - row[1])
    if n_runs >= 2 * n_incidents and n_runs > 2:
        given = {"code": code or "no code", "n_runs": n_runs, "n_incidents": n_incidents}
        parts.append(say("failures.widest", **given))
    if n_in_state is not None:
        lives = [
            say("failures.new_and_surprising", n=n, n_news=n_in_state["surprising"])
            if state == "new" and 0 < n_in_state["surprising"] < n
            else say(f"failures.{state}", n=n)
            for state in ("new", "back", "flapping", "growing", "gone")
            if (n := n_in_state.get(state))
        ]
        states = listed(lives) or say("failures.none_new")
        parts.append(say("failures.lives", states=states, n_weeks=n_weeks))
    return capitalised("; ".join(parts)) + "."


def _incident_counts(failed: pl.DataFrame) -> str:
    """Runs and their incidents, as the headline counts them; without runs, the other work."""
    runs = failed.filter(pl.col("entity_type") == RUN)
    counted, noun = (runs, "run") if runs.height else (failed, "row")
    n_clusters, n_of_all = (rows["cluster_id"].n_unique() for rows in (counted, failed))
    # The sentence goes on with the states of all clusters, so their number must be in it.
    has_others = n_of_all >= 2 * n_clusters
    return say(
        "failures.incidents",
        rows=count(counted.height, f"failed or timed-out {noun}"),
        n=counted.height,
        n_incidents=int(counted.select(incident_count()).item()),
        n_clusters=n_clusters,
        more=say("failures.other_work", n=n_of_all) if has_others else "",
    )


def _most_expensive(clusters: pl.DataFrame, *, has_ledger: bool) -> list[str]:
    """The most expensive clusters without an owner."""
    unowned = [row for row in clusters.iter_rows(named=True) if row["owner"] is None]
    first = sorted(unowned, key=lambda row: row["is_consequence"])[: N_NAMED if has_ledger else 1]
    priced = [(_quoted(row), _priced(row)) for row in first]
    names = [name + price for name, price in priced]
    if has_ledger:
        return [say("failures.unassigned", names=names) if names else say("failures.all_owned")]
    return [say("failures.most_expensive", name=names[0])] if priced[0][1] else []


def _priced(row: Plain) -> str:
    lost = lost_of(row)
    known = {"cost": row["cost_usd"], "time": row["run_s"]}
    words = [lost[name] for name, value in known.items() if value is not None]
    return f" ({', '.join(words)})" if words else ""


def _returned(clusters: pl.DataFrame) -> str:
    back = clusters.filter(pl.col("is_back").fill_null(value=False))
    if back.is_empty():
        return ""
    n_more = back.height - N_NAMED
    return say(
        "failures.returned",
        names=[_quoted(row) for row in back.head(N_NAMED).iter_rows(named=True)],
        more=say("failures.more", n=n_more) if n_more > 0 else "",
    )


def _quoted(row: Plain) -> str:
    return f"“{shorten_template(name_of(row), _LONGEST_NAME)}”"


N_CODES, N_OF_CODE, N_INCIDENTS, N_GONE, N_WEEKS, N_FAULTS = 20, 3, 3, 5, 12, 10
NO_CODE = "(no code was stored)"
_COUNTS = ("n_rows", "n_failed", "n_timed_out", "n_sessions", "n_causes", "n_incidents", "share")
_COSTS = ("run_s", "n_tokens", "cost_usd", "n_work", "n_cost_unreported")
_LIFE = (
    *("cluster_id", "code", "template", "rule_name", "cause_group", "state", "n_quiet_weeks"),
    *("first_at", "last_at", "n_incidents_before", "ratio", "renamed_from"),
    *("is_news", "is_consequence"),
    *("owner", "ticket", "note", "resolved_in", "resolved_on", "expected_until"),
    *("is_back", "is_expected"),
)
_NAMES = ("title", "fault_id", "where")
_EXAMPLES = ("example_newest", "example_shortest", "example_median")
_INCIDENT = (
    *("incident_id", "since", "until", "duration_s", "n_rows", "n_sessions", "n_causes"),
    *("n_clusters", "linked_by", "title", "code", "template", "run_s", "cost_usd"),
)


def summarize_failures(material: Material) -> Plain:
    """The window's failures by cost, its largest incidents, and clusters no longer seen."""
    window, as_of, failed = material.window, material.facts.as_of, material.failed
    placed = placed_runs(material.ever)
    lives = count_lives(
        *(material.failed_ever, placed, window),
        as_of=as_of,
        entries=material.ledger,
        fdr=rate_of_growing(material),
        begins=material.begins_of,
    )
    codes = sorted_by_cost(count_groups(failed, ["code"]), "code")
    in_window = count_clusters(failed, window=window, as_of=as_of)
    changed = changed_within(material.registry, window, "report")
    ended, sources = material.ended_runs.collect(), material.facts.sources
    versions = program_versions(material.facts)
    faults = count_faults(failed, in_window, ended, sources, changed=changed, versions=versions)
    clusters = _clusters(material, lives, in_window, faults)
    # A cluster that is news is always named on the page, however little it cost.
    is_first_of_code = (pl.col("place") < N_OF_CODE) | pl.col("is_news")
    most = codes.lazy().head(N_CODES)
    shown = (
        clusters.lazy()
        .filter(is_first_of_code)
        .join(most, on="code", how="semi", nulls_equal=True)
        .collect()
    )
    runs = failed.filter(pl.col("entity_type") == RUN)
    order = ("n_rows", "since", "incident_id")
    incidents = count_incidents(failed).sort(order, descending=[True, True, False])
    # Clusters that had already disappeared before the window are no news.
    newly_gone = lives.lazy().filter(
        pl.col("state") == "gone",
        pl.col("quiet_chance") < _news_chance(lives),
        pl.col("quiet_chance_before") >= _news_chance(lives),
    )
    gone = newly_gone.sort("n_causes_ever", "cluster_id", descending=[True, False]).collect()
    begins = lives["first_at"].min(), placed["placed_at"].min(), window.since
    begin = min(at for at in begins if isinstance(at, datetime))
    n_weeks = max(1, round((window.until - begin) / WEEK))
    first_at = material.failed_ever["failed_at"].min()
    is_first = not isinstance(first_at, datetime) or first_at >= window.since
    news, states = tally(clusters.filter("is_news"), "state"), tally(clusters, "state")
    n_in_state = {**states, "gone": gone.height, "surprising": news.get("new", 0)}
    return {
        "finding": finding_of(material, clusters, codes, None if is_first else n_in_state, n_weeks),
        "denominator": "failed and timed-out entities of the window, each work once",
        "also": [*filter(None, [_returned(clusters)]), *_also(material, changed)],
        "n_rows": failed.height,
        "n_runs": runs.height,
        "n_causes": failed["cause"].n_unique(),
        "n_run_causes": runs["cause"].n_unique(),
        "n_incidents": failed.select(incident_count()).item(),
        "n_clusters": clusters.height,
        "n_run_clusters": runs["cluster_id"].n_unique(),
        "by_type": _by_type(failed),
        "since": iso(window.since),
        "is_first": is_first,
        "lost": lost_in_all(failed),
        "n_weeks_of_history": n_weeks,
        "news": news,
        "lives": states,
        "has_ledger": material.ledger is not None,
        "owners": _owners(clusters, runs) if material.ledger is not None else None,
        "n_unknown": tally(lives, "state").get("unknown", 0),
        "codes": [_code(row, clusters, shown) for row in plain_rows(codes.head(N_CODES))],
        "faults": [*_faults(faults.head(N_FAULTS), clusters, shown, runs)],
        "n_faults": faults.height,
        "clusters": [_cluster(row) for row in plain_rows(shown)],
        "not_shown": {
            "n_codes": max(codes.height - N_CODES, 0),
            "n_rows": int(codes.slice(N_CODES)["n_rows"].sum()),
        },
        "gone": {
            "n": gone.height,
            "names": [name_of(row) for row in add_faults(gone.head(N_GONE)).to_dicts()],
        },
        "together": {
            "n": incidents.height,
            "incidents": [
                {**row, "lasted": how_long(row["duration_s"], is_estimate=True)}
                for row in plain_rows(incidents.head(N_INCIDENTS), _INCIDENT)
            ],
        },
        "mass": _mass(material),
        "stopped": _stopped(material),
    }


def _news_chance(lives: pl.DataFrame) -> float:
    """The chance below which a silence is news, corrected for the number of clusters."""
    return min(QUIET_CHANCE, NEWS_CHANCE / max(lives["new_chance"].null_count(), 1))


def _clusters(
    material: Material, lives: pl.DataFrame, in_window: pl.DataFrame, faults: pl.DataFrame
) -> pl.DataFrame:
    """The clusters of the window in the order of the page, each with its rank within its code."""
    is_news = (
        pl.when(pl.col("state") == "back")
        .then(pl.col("quiet_chance") < _news_chance(lives))
        .when(pl.col("state") == "new")
        .then(pl.col("new_chance") < NEWS_CHANCE)
        .otherwise(pl.col("state") == "growing")
    )
    of_cluster = material.failed.lazy().sort("failed_at", "entity_type", "entity_id", "source")
    newest = of_cluster.group_by("cluster_id").agg(
        n_mass=pl.col("is_mass").sum(), newest=pl.struct("entity_type", "entity_id").last()
    )
    named = in_window.lazy().join(faults.lazy().select("fault_id", "where"), on="fault_id")
    counts = named.select("cluster_id", *_NAMES, *_COUNTS, *_COSTS, *_EXAMPLES)
    former = former_ids(material.failed_ever).lazy()
    return collected(
        lives.lazy()
        .with_columns(is_news=is_news, is_consequence=is_consequence())
        .select(_LIFE)
        .join(counts, on="cluster_id", maintain_order="left")
        .pipe(left_joined, _weeks(material), newest, former, on="cluster_id")
        .with_columns(rank=pl.int_range(1, pl.len() + 1), place=pl.int_range(pl.len()).over("code"))
    )


def _owners(clusters: pl.DataFrame, runs: pl.DataFrame) -> list[Plain]:
    """Clusters of failed runs by ``owner``, the busiest first; None: nobody."""
    counts = clusters.join(runs, on="cluster_id", how="semi").group_by("owner").agg(n=pl.len())
    return plain_rows(counts.sort("n", "owner", descending=[True, False]))


def _weeks(material: Material) -> pl.LazyFrame:
    """Incidents of each cluster in each of the last weeks, up to the window's end."""
    ends = [material.window.until - n * WEEK for n in reversed(range(N_WEEKS))]
    weeks = [Window(end - WEEK, end, "") for end in ends]
    rows = pl.concat(
        rows.lazy().with_columns(place=pl.lit(place, pl.Int64))
        for place, rows in enumerate(material.failed_in(*weeks))
    )
    counts = rows.group_by("cluster_id", "place").agg(n=incident_count().cast(pl.Int64))
    steps = [pl.col("n").filter(pl.col("place") == place).sum() for place in range(N_WEEKS)]
    return counts.group_by("cluster_id").agg(weeks=pl.concat_list(steps).first())


def _code(row: Plain, clusters: pl.DataFrame, shown: pl.DataFrame) -> Plain:
    known = REGISTRY.get(row["code"]) if row["code"] else None
    n_clusters, n_shown = (each["code"].to_list().count(row["code"]) for each in (clusters, shown))
    return {
        **row,
        "code": row["code"] or NO_CODE,
        # Shares of a code are shares of causes.
        "unit": "cause",
        "is_known": known is not None,
        "meaning": known.meaning if known else None,
        "what_to_do": known.what_to_do if known else None,
        "lost": lost_of(row),
        "n_clusters": n_clusters,
        "n_more": n_clusters - n_shown,
    }


def _faults(
    faults: pl.DataFrame, clusters: pl.DataFrame, shown: pl.DataFrame, runs: pl.DataFrame
) -> Iterator[Plain]:
    """Faults with ``ranks``: the places on the page of those of their clusters it shows.

    ``todo`` is the most expensive cluster that nobody expects, with its own cost. ``n_runs``
    counts the failed runs in the same way as the explanation of the window.
    """
    rows, ranks = clusters.sort("rank").to_dicts(), set(shown["rank"])
    n_of = Counter(runs["cluster_id"]) + Counter(runs["fault_id"])
    for fault in plain_rows(faults.drop("cluster_ids")):
        own = [row for row in rows if row["fault_id"] == fault["fault_id"]]
        todo = next((row for row in own if not row["is_expected"]), None)
        yield {
            **fault,
            "n_runs": n_of[fault["fault_id"]],
            # The lift of a fault is computed from requests.
            "unit": "request",
            "ranks": [row["rank"] for row in own if row["rank"] in ranks],
            "lost": lost_of(fault),
            "n_expected": sum(bool(row["is_expected"]) for row in own),
            "todo": todo
            and {
                **{name: todo[name] for name in _TODO},
                "name": name_of(todo),
                "n_runs": n_of[todo["cluster_id"]],
                "lost": lost_of(todo),
            },
        }


_TODO = ("cluster_id", "owner", "ticket", "is_back", "n_incidents", "run_s", "cost_usd")


def _cluster(row: Plain) -> Plain:
    examples = dict.fromkeys(row.pop(name) for name in _EXAMPLES)
    most = max(row["weeks"] or [0])
    days = {name: row[name] and str(row[name]) for name in ("resolved_on", "expected_until")}
    return {
        **row,
        **days,
        "code": row["code"] or NO_CODE,
        "former_ids": row["former_ids"] or [],
        "name": name_of(row),
        # A message that equals the template adds nothing as an example.
        "examples": [text for text in examples if text and text != row["template"]],
        "bars": [n / most if most else 0.0 for n in row["weeks"] or []],
        "lost": lost_of(row),
    }


def _mass(material: Material) -> Plain:
    """Hours in which almost every run that started failed, and the rate without them."""
    window = material.window
    since, until = instant(window.since), instant(window.until)
    is_here = (pl.col("until") > since, pl.col("since") < until)
    mass = count_starts(material.ever).filter("is_mass", *is_here)
    kept = material.ended_runs
    if mass.height:
        others = without_mass(material.ever).lazy().select(ENTITY_KEY)
        kept = kept.join(others, on=ENTITY_KEY, how="semi", nulls_equal=True)
    n_completed, n_kept = kept.select(ended_well().sum(), n=pl.len()).collect().row(0)
    shown = share(n_completed / n_kept if n_kept else None)
    return {
        "step_s": STEP_S,
        "stretches": plain_rows(mass, ("since", "n_starts", "n_failed")),
        "completed_without": {"n": n_completed, "of": n_kept, "shown": shown},
    }


def _also(material: Material, changed: pl.DataFrame) -> list[str]:
    """What the registry changed, and what else some of the systems call a failure."""
    registered = [say("failures.registry", n=changed.height)] if changed.height else []
    return registered + [
        f"{known.title}: {known.runs.failure_meaning}"
        for known in material.systems_read
        if known.runs.failure_meaning
    ]


def _by_type(failed: pl.DataFrame) -> str:
    counts = sorted(tally(failed, "entity_type").items(), key=lambda pair: (-pair[1], pair[0]))
    return listed(count(n, name.replace("_", " "), plural(name)) for name, n in counts)


def plural(entity_type: str) -> str:
    """The plural of an entity type."""
    return entity_type.replace("_", " ") + ("es" if entity_type.endswith("ch") else "s")


def _stopped(material: Material) -> Plain:
    """Runs that somebody stopped: they are no failures and are counted separately."""
    is_stopped = pl.col("outcome").is_in(["aborted", "cancelled"])
    is_no_failure = is_stopped & ~is_failure().fill_null(value=False)
    ends = material.rows.lazy().filter(is_counted(), is_no_failure).select("outcome").collect()
    return {"aborted": 0, "cancelled": 0, **tally(ends, "outcome")}


SECTION = Section("failures", "Failures", summarize_failures, place=50, needs=("n_rows",))
