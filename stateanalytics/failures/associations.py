"""What clusters are associated with: their fault, agents, models and hours, similar clusters."""

from __future__ import annotations

import polars as pl

from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import collected, left_joined
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.core.text import shortened
from stateanalytics.core.words import say
from stateanalytics.errors import check_columns, check_number, check_share
from stateanalytics.failures.call_outcomes import RUNS
from stateanalytics.failures.cause_groups import TITLES
from stateanalytics.failures.clustering import clusters, count_clusters
from stateanalytics.failures.counting import count_groups, is_code, sorted_by_cost, without_nested
from stateanalytics.failures.failure_rows import ended_runs, find_members, judged_rows, window_of
from stateanalytics.failures.fault_registry import changed_within, with_registered
from stateanalytics.failures.fault_table import KEY, LONGEST_TITLE, is_consequence, titles_of_faults
from stateanalytics.failures.frames import FAULTS, LIFT, RELATED
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import within
from stateanalytics.stats.bursts import burst_number
from stateanalytics.stats.distributions import benjamini_hochberg, hypergeometric_tail
from stateanalytics.stats.intervals import wilson_columns
from stateanalytics.systems.linking import program_versions

DIMENSIONS = ("agent", "model", "provider", "playbook", "project", "kind", "hour", "version")
CONCENTRATED = ("project", "kind", "model", "provider", "version")
"""Dimensions in which a fault may be concentrated; they show who can fix it."""

FDR = 0.05
"""The false discovery rate of `lift` that is accepted by default."""

_LIFTS = ("lift", "lift_low", "lift_high")
N_RELATED = 5
GRAM = 4
"""Characters of an n-gram."""

SAME_GROUP = 0.5
"""Added to the similarity of two texts (at most 1) if they have the same cause group."""

LEAST = 0.35
"""Clusters of different groups with a lower similarity are not suggested."""

_LONGEST = 300
# An n-gram that more texts share is not specific, and its pairs would take quadratic time.
_COMMONEST = 100
_BATCH = 500


def lift(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    fdr: float = FDR,
) -> pl.DataFrame:
    """Lift of each agent, model, hour … in each cluster: its share there over that in all.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    fdr : float
        The false discovery rate that is accepted.

    Returns
    -------
    polars.DataFrame, shape (n_findings, 19)
        The key of `clusters`, ``rule_name``, ``dimension`` (of `DIMENSIONS`) and
        ``value``; ``n_in`` of ``n_cluster`` requests of the cluster, one an incident, in which
        a failed run has the value, and ``n_value`` of ``n_all`` requests in all, or as many
        as its share of all runs makes where that is larger; the two shares, and ``lift``, the
        first over the second, with its 95 % interval; ``p_value`` and ``q_value``;
        ``is_over_represented`` where the q-value is at most ``fdr``. Smallest p-value
        first. Values that no failure of the cluster has are not listed.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, or ``fdr`` is not between 0
        and 1.

    Notes
    -----
    The unit is a request (an invocation, else a session) with ended runs; it counts for every
    value that one of its runs has: the sessions of a fan-out are similar and would prove
    anything. Whether each run fails by itself or all of a request is not known: with many runs
    a request has many chances. So a value is expected as often as its share of requests or of
    runs, whichever is larger. Of the requests of a cluster in one incident, only the first counts:
    what fails together shares its hour and project anyway; so does what fails in a burst among
    all requests, or among those of a value (`burst_number`). Requests without a recorded value
    of a dimension are excluded from it.
    The test is Fisher's, one-sided; the interval is Wilson's for the share in the cluster,
    with the share in all runs taken as known. ``hour`` is that of the start, UTC; ``version``
    is what wrote the store. Only clusters with at least two requests and dimensions
    with at least two values are tested; the q-value is Benjamini and Hochberg's over all tests.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> lift(demo())["lift"].min() > 0
    True
    """
    check_share("fdr", fdr, FDR)
    chosen = window_of(snap, window)
    rows = judged_rows(snap, policy)
    members = find_members(snap, window=chosen, rules=rules, rows=rows)
    here = rows if chosen is None else within(rows, chosen, as_of=snap.as_of)
    return _lift(members.with_columns(request=_request()), ended_runs(here), snap.sources, fdr)


def _request() -> pl.Expr:
    request = pl.coalesce(
        pl.lit("invocation:") + pl.col("invocation_id"), pl.lit("session:") + pl.col("session_id")
    )
    return pl.concat_str("source", request, separator="|")


def _values(described: pl.LazyFrame) -> pl.LazyFrame:
    """The values of the runs of each request: one row per request, dimension and value."""
    return (
        described.unpivot(DIMENSIONS, index="at", variable_name="dimension")
        .drop_nulls("value")
        .group_by("dimension", "value", "at")
        .agg(n_runs=pl.len())
        .sort("dimension", "value", "at")
        .with_columns(place=pl.int_range(1, pl.len() + 1).over("dimension", "value"))
    )


def _described(runs: pl.DataFrame, sources: pl.DataFrame) -> pl.LazyFrame:
    """Runs of requests with all `DIMENSIONS`, and the place ``at`` of their request among all."""
    versions = sources.lazy().select("source", version="format").unique("source", keep="first")
    found = runs.lazy().join(versions, on="source", how="left", maintain_order="left")
    found = found.with_columns(request=_request(), hour=pl.col("started_at").dt.strftime("%H:00"))
    ended_at = found.drop_nulls("request").group_by("request").agg(pl.col("ended_at").min())
    order = ended_at.sort("ended_at", "request").with_columns(
        at=pl.int_range(1, pl.len() + 1), n_requests=pl.len()
    )
    return found.drop("ended_at").join(order, on="request")


def _lift(
    rows: pl.DataFrame, ended: pl.DataFrame, sources: pl.DataFrame, fdr: float
) -> pl.DataFrame:
    by_value = ["cluster_id", "dimension", "value"]
    # Collected here, because a single plan would compute the values of all runs several times.
    described = collected(_described(ended, sources)).lazy()
    values = collected(_values(described)).lazy()
    of_dimensions = values.group_by("dimension").agg(
        n_all=pl.col("at").n_unique().cast(pl.Int64),
        n_all_runs=pl.col("n_runs").sum(),
        n_values=pl.col("value").n_unique(),
    )
    of_all = (
        values.group_by("dimension", "value")
        .agg(n_value=pl.len().cast(pl.Int64), n_runs=pl.col("n_runs").sum())
        .join(of_dimensions, on="dimension")
    )
    n_runs, n_all_runs = (pl.col(name).cast(pl.Int64) for name in ("n_runs", "n_all_runs"))
    # Rounded up in integers, so that 7/25 of 25 is exactly 7.
    expected = (n_runs * pl.col("n_all") + n_all_runs - 1) // n_all_runs
    own = (
        described.join(rows.lazy().select("cluster_id", *ENTITY_KEY), on=ENTITY_KEY)
        .unpivot(DIMENSIONS, index=["cluster_id", "at"], variable_name="dimension")
        .drop_nulls("value")
        .unique()
        .with_columns(is_own=True)
    )
    has_own = pl.col("is_own").any().over("cluster_id", "at")
    places = described.select("request", "at", "n_requests").unique()
    at_in_cluster = burst_number(pl.col("at"), pl.col("n_requests").first()).over("cluster_id")
    # All failures of an incident have one reason, so only its first request counts.
    in_clusters = collected(
        rows.lazy()
        .join(places, on="request")
        .join(values, on="at", how="semi")
        .with_columns(unit=pl.coalesce("incident_id", "request"))
        .sort("failed_at", "request")
        .unique(["cluster_id", "unit"], keep="first", maintain_order=True)
        .unique(["cluster_id", "request"], keep="first", maintain_order=True)
        .sort("cluster_id", "at")
        .select(*KEY, "rule_name", "at", burst_of_all=at_in_cluster)
        .join(values.drop("n_runs"), on="at")
        .join(own, on=["at", *by_value], how="left")
        # A request counts with the values of its failed runs, or if none failed, with all.
        .filter(pl.col("is_own").is_not_null() | ~has_own)
        .join(of_all, on=["dimension", "value"])
        .sort("cluster_id", "dimension", "value", "place")
        .with_columns(burst=burst_number(pl.col("place"), pl.col("n_value").first()).over(by_value))
        # Only the first of a burst counts as well, of all requests or of this value.
        .filter(pl.col("at") == pl.col("at").min().over("cluster_id", "dimension", "burst_of_all"))
        .unique([*by_value, "burst"], keep="first", maintain_order=True)
    ).lazy()
    n_cluster = pl.col("at").n_unique().cast(pl.Int64)
    of_cluster = in_clusters.group_by("cluster_id", "dimension").agg(n_cluster=n_cluster)
    counts = collected(
        in_clusters.group_by(*KEY, "dimension", "value")
        .agg(
            pl.max_horizontal("n_value", expected).first().alias("n_value"),
            pl.col("rule_name", "n_all", "n_values").first(),
            n_in=pl.col("at").n_unique().cast(pl.Int64),
        )
        .join(of_cluster, on=["cluster_id", "dimension"])
        .filter(pl.col("n_cluster") > 1, pl.col("n_values") > 1)
        .with_columns(
            *wilson_columns("n_in", "n_cluster", prefix="share_in"),
            share_all=pl.col("n_value") / pl.col("n_all"),
        )
    )
    tables = ["n_in", "n_cluster", "n_value", "n_all"]
    distinct = counts[tables].unique()
    p_values = pl.Series([hypergeometric_tail(*row) for row in distinct.rows()], dtype=pl.Float64)
    return collected(
        counts.lazy()
        .join(distinct.lazy().with_columns(p_value=p_values), on=tables, how="left")
        .with_columns(
            benjamini_hochberg(),
            *(
                (pl.col(f"share_in{end}") / pl.col("share_all")).alias(f"lift{end}")
                for end in ("", "_low", "_high")
            ),
        )
        .with_columns(is_over_represented=pl.col("q_value") <= fdr)
        .sort("p_value", -pl.col("lift"), *by_value)
        .select(LIFT.dtypes.names())
    )


_OTHER = " of other codes"


def faults(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    nested: bool = False,
    of: str = RUNS,
    registry: object = None,
    code: str | None = None,
) -> pl.DataFrame:
    """Faults, each of which one person would fix, the most expensive first.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    nested : bool
        ``cluster_ids`` as lists; else as text, which fits into CSV.
    of : str
        runs, or calls: the calls of tools inside of runs.
    registry : path or polars.DataFrame, optional
        Ids of faults from a file that `register` wrote.
    code : str, optional
        Count only this reason code and those below it; shares are of all failures.

    Returns
    -------
    polars.DataFrame, shape (n_faults, 42)
        ``fault_id``, the same in every week and store where the table of faults names it;
        ``title`` and ``code`` of its most expensive cluster, and the columns of `clusters`
        that count; ``registry_change``, what the registry merged, split or renamed from the
        window's first day to its end; ``is_consequence`` (`is_consequence`), which is listed after
        all causes, and ``cause_id``, the fault that failed most often in the requests of a
        consequence, which its title names; ``n_clusters`` and ``cluster_ids``; ``where`` it is
        concentrated, in words: the value of `CONCENTRATED` with the smallest p-value among those of
        `lift` that are over-represented, with ``n_in`` of ``n_fault`` requests and ``lift``;
        ``seen_after``, the version of the agent's program with and since which alone it fails.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense or the registry cannot be used.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> limits = faults(demo()).filter(pl.col("title").str.contains("rate limit"))
    >>> limits.select("n_clusters", "is_consequence").rows()
    [(2, False), (1, True)]
    """
    chosen = window_of(snap, window)
    rows = judged_rows(snap, policy, of)
    failed = find_members(snap, window=chosen, policy=policy, rules=rules, rows=rows, of=of)
    failed = with_registered(failed, registry, "failures.faults")
    # Failures of a fault with other codes are kept as a separate fault, as they may be a cause.
    is_asked = pl.lit(value=True) if code is None else is_code(code)
    other = pl.concat_str("fault_id", pl.lit(_OTHER))
    failed = failed.with_columns(pl.when(is_asked).then("fault_id").otherwise(other))
    here = rows if chosen is None else within(rows, chosen, as_of=snap.as_of)
    ranked = count_clusters(failed, window=chosen, as_of=snap.as_of)
    ended = ended_runs(here, of)
    changed, versions = changed_within(registry, chosen, "failures.faults"), program_versions(snap)
    counted = count_faults(failed, ranked, ended, snap.sources, changed=changed, versions=versions)
    counted = counted.filter(is_asked).with_columns(pl.col("cause_id").str.strip_suffix(_OTHER))
    return counted if nested else without_nested(counted)


def count_faults(
    failed: pl.DataFrame,
    ranked: pl.DataFrame,
    ended: pl.DataFrame,
    sources: pl.DataFrame,
    *,
    changed: pl.DataFrame,
    versions: pl.DataFrame,
) -> pl.DataFrame:
    """Count `members` by fault; see `faults` for the columns.

    ``ranked`` are their clusters, the most expensive first, ``ended`` the runs of the window,
    ``changed`` what `changed_within` gives, ``versions`` the `program_versions`.
    """
    first = ("cause_group", "cause_proposed", "code", "meaning", "what_to_do")
    of_clusters = collected(
        ranked.lazy()
        .group_by("fault_id", maintain_order=True)
        .agg(
            pl.col(first).first(),
            n_clusters=pl.len().cast(pl.Int64),
            cluster_ids="cluster_id",
            is_consequence=is_consequence().all(),
        )
        .join(titles_of_faults(failed).lazy(), on="fault_id", maintain_order="left")
    )
    described = (
        _concentrated(failed, ended, sources),
        _seen_after(failed, ended, versions),
        _causes(failed, of_clusters),
        changed,
    )
    counted = count_groups(failed, ["fault_id"]).lazy().join(of_clusters.lazy(), on="fault_id")
    where = pl.concat_str("where", "first_seen", separator="; ", ignore_nulls=True)
    return collected(
        sorted_by_cost(counted, "fault_id")
        .sort("is_consequence", maintain_order=True)
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64))
        .pipe(left_joined, *(one.lazy() for one in described), on="fault_id")
        .with_columns(where=where.replace("", None), title=pl.coalesce("caused", "title"))
        .select(FAULTS.dtypes.names())
    )


_FEWEST_OF_VERSION = 3
"""The fewest failures for `seen_after`: fewer may be of one version by chance."""


def _seen_after(failed: pl.DataFrame, ended: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
    """The version of all failures of a fault, if runs of other versions came before."""
    session = versions.lazy().rename({"entity_id": "session_id"})
    runs, rows = (one.lazy().join(session, on=["source", "session_id"]) for one in (ended, failed))
    first = runs.group_by("system", "program_version").agg(pl.col("started_at").min())
    is_later = pl.col("started_at") > pl.col("started_at").min().over("system")
    later = first.filter(is_later).select("system", seen_after="program_version")
    whole = failed.lazy().group_by("fault_id").agg(n=pl.len())
    alone = collected(
        rows.group_by("fault_id", "system", seen_after="program_version")
        .agg(n=pl.len())
        .join(whole, on=["fault_id", "n"], how="semi")
        .join(later, on=["system", "seen_after"], how="semi")
        .filter(pl.col("n") >= _FEWEST_OF_VERSION)
        .select("fault_id", "seen_after")
    )
    words = [say("failures.seen_after", version=name) for name in alone["seen_after"]]
    return alone.hstack([pl.Series("first_seen", words, pl.String)])


def _causes(failed: pl.DataFrame, faults: pl.DataFrame) -> pl.DataFrame:
    """For each consequence its most frequent fault in the same requests, and a title."""
    known = faults.lazy().select("fault_id", "title", "is_consequence")
    requests = failed.lazy().select("fault_id", request=_request()).unique()
    rows = requests.join(known, on="fault_id")
    causes = rows.filter(~pl.col("is_consequence"))
    pairs = collected(
        rows.filter("is_consequence")
        .join(causes.rename({"fault_id": "cause_id"}), on="request", suffix="_of_cause")
        .group_by("fault_id", "cause_id", "title", "title_of_cause")
        .len()
        .sort("len", "cause_id", descending=[True, False])
        .unique("fault_id", keep="first", maintain_order=True)
    )
    titles = [
        shortened(f"{shortened(said.rstrip('.'), LONGEST_TITLE // 2)}: {cause}", LONGEST_TITLE)
        for said, cause in pairs[["title", "title_of_cause"]].rows()
    ]
    return pairs[["fault_id", "cause_id"]].hstack([pl.Series("caused", titles, pl.String)])


def _concentrated(failed: pl.DataFrame, ended: pl.DataFrame, sources: pl.DataFrame) -> pl.DataFrame:
    """For each fault the value with the smallest p-value in which it is concentrated, if any."""
    nothing = (pl.lit(None, pl.String).alias(name) for name in (*KEY[1:], "rule_name"))
    as_clusters = failed.with_columns(*nothing, cluster_id="fault_id", request=_request())
    found = collected(
        _lift(as_clusters, ended, sources, FDR)
        .lazy()
        .filter("is_over_represented", pl.col("dimension").is_in(CONCENTRATED))
        .unique("cluster_id", keep="first", maintain_order=True)
        .select("dimension", "value", "n_in", *_LIFTS, fault_id="cluster_id", n_fault="n_cluster")
    )
    words = [
        say("failures.where", **(row | {name: f"{row[name]:.1f}" for name in _LIFTS}))
        for row in found.iter_rows(named=True)
    ]
    return found.hstack([pl.Series("where", words, pl.String)])


def related(
    snap: Facts,
    *,
    window: object = None,
    policy: Policy | None = None,
    rules: object = None,
    n: int = N_RELATED,
    of: str = RUNS,
) -> pl.DataFrame:
    """Clusters that may have the same cause, across tools and systems.

    Parameters
    ----------
    snap : Snapshot or Facts
        From `read`.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    policy : Policy, optional
        Which states count; v1 by default.
    rules : path, mapping or Rules, optional
        Your own clusters, as for `clusters`.
    n : int
        Most suggestions for each cluster.
    of : str
        runs, or calls: the calls of tools inside of runs.

    Returns
    -------
    polars.DataFrame, shape (n_suggestions, 14)
        See `relate`; clusters in the order of `clusters`.

    Raises
    ------
    ArgumentError
        If ``snap`` is not a snapshot, the window makes no sense, or ``n`` is no number from 1.

    Notes
    -----
    These are suggestions for people. No id and no count depends on them.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> limits = related(demo(), n=1).filter(pl.col("cause_group") == "provider_limit")
    >>> limits["is_same_group"].all()
    True
    """
    return relate(clusters(snap, window=window, policy=policy, rules=rules, of=of), n=n)


def relate(ranked: pl.DataFrame, *, n: int = N_RELATED) -> pl.DataFrame:
    """Clusters that may share a cause: the same cause group, or similar texts.

    Parameters
    ----------
    ranked : polars.DataFrame
        Result of `clusters`.
    n : int
        Most suggestions for each cluster.

    Returns
    -------
    polars.DataFrame, shape (n_suggestions, 14)
        ``cluster_id``, ``code``, ``template``, ``systems`` and ``cause_group`` with its
        ``cause_title``; ``place`` from 1, the same of the ``related_…`` cluster;
        ``is_same_group``; ``similarity`` of the texts, 0 to 1 (cosine of their n-grams,
        rare ones with more weight); ``score``, the similarity plus `SAME_GROUP` where the
        group is the same, which orders them. In the order of ``ranked``.

    Raises
    ------
    MissingColumnsError
        If a column is absent.
    ArgumentError
        If ``n`` is no number from 1.
    """
    needed = ["cluster_id", "code", "template", "systems", "cause_group"]
    check_columns(ranked, needed, "relate")
    check_number("n", n, N_RELATED, least=1, is_whole=True)
    numbered = ranked.select(needed).with_row_index("i")
    group = numbered.select("i", "cause_group")
    pairs = (
        pl.concat([similar_texts(numbered), _top_of_group(group, n)], how="diagonal_relaxed")
        .group_by("i", "j")
        # Rounded, so that equal similarities stay equal whatever the order of the sums.
        .agg(pl.col("similarity").max().fill_null(0.0).round(6))
        .join(group, on="i")
        .join(group.select(j="i", other="cause_group"), on="j")
        .with_columns(is_same_group=(pl.col("cause_group") == pl.col("other")).fill_null(False))
        .filter(pl.col("is_same_group") | (pl.col("similarity") >= LEAST))
        .with_columns(score=pl.col("similarity") + SAME_GROUP * pl.col("is_same_group"))
        .sort("i", "score", "j", descending=[False, True, False])
        .with_columns(place=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("i"))
        .filter(pl.col("place") <= n)
    )
    names = {f"related_{name}": name for name in ("code", "template", "systems")}
    others = numbered.select(j="i", related_id="cluster_id", **names)
    cause_title = pl.col("cause_group").replace_strict(dict(TITLES), default=None)
    return (
        pairs.drop("cause_group")
        .join(numbered, on="i", maintain_order="left")
        .join(others, on="j", maintain_order="left")
        .with_columns(cause_title=cause_title)
        .select(RELATED.dtypes.names())
    )


def _top_of_group(group: pl.DataFrame, n: int) -> pl.DataFrame:
    """Pairs of each cluster with the first ones of its group; all pairs would be too many."""
    named = group.drop_nulls("cause_group")
    # One more than `n`, because a pair of a cluster with itself is dropped.
    first = named.group_by("cause_group", maintain_order=True).head(n + 1)
    pairs = named.join(first.rename({"i": "j"}), on="cause_group")
    return pairs.filter(pl.col("i") != pl.col("j")).select("i", "j")


def similar_texts(texts: pl.DataFrame) -> pl.DataFrame:
    """Similarity of every pair of texts that share an n-gram."""
    grams = _grams(texts).lazy()
    other = grams.rename({"i": "j", "weight": "other"})
    pairs = pl.concat(
        grams.filter(pl.col("i") // _BATCH == part)
        .join(other, on="gram")
        .filter(pl.col("i") != pl.col("j"))
        .group_by("i", "j")
        .agg(similarity=(pl.col("weight") * pl.col("other")).sum())
        for part in range(1 + texts.height // _BATCH)
    )
    return collected(pairs)


def _grams(texts: pl.DataFrame) -> pl.DataFrame:
    """The n-grams of each text and their weights, normalised to a vector of length 1."""
    words = pl.col("template").str.head(_LONGEST).str.to_lowercase()
    spaced = words.str.replace_all(r"<[a-z*]*>|[^\p{L}\d]+", " ").str.replace_all(r"\s+", " ")
    counts = (
        texts.lazy()
        .select("i", text=pl.lit(" ") + spaced + pl.lit(" "))
        .drop_nulls()
        # Signed, because a text may be shorter than an n-gram.
        .with_columns(n_starts=pl.col("text").str.len_chars().cast(pl.Int64) - GRAM + 1)
        .with_columns(at=pl.int_ranges(pl.col("n_starts").clip(1)))
        .explode("at")
        .group_by("i", gram=pl.col("text").str.slice("at", GRAM))
        .agg(n=pl.len())
    )
    n_with = pl.len().over("gram")
    rarity = ((1.0 + texts.height) / (1.0 + pl.col("n_with"))).log() + 1.0
    weight = (1.0 + pl.col("n").cast(pl.Float64).log()) * rarity
    length = (pl.col("weight") ** 2).sum().over("i").sqrt()
    return collected(
        counts.with_columns(n_with=n_with)
        .with_columns(weight=weight)
        .with_columns(weight=pl.when(length > 0).then(pl.col("weight") / length).otherwise(0.0))
        .filter(pl.col("n_with") > 1, pl.col("n_with") <= _COMMONEST)
        .sort("gram", "i")
        .select("i", "gram", "weight")
    )
