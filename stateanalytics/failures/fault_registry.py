"""The registry of faults: a CSV file next to the ledger of owners that keeps the id of each fault.

A line per cluster::

    member,code,template,title,fault_id,computed_id,since,split_from,version

The id that `add_faults` computes changes with the words of a message and with the table of
faults; the one that a registry has assigned stays. ``split_from`` names the fault that a cluster
was part of, and ``computed_id`` the id that ``version`` of this package computes, where it is
another. A fault that was merged into another has one line, with its id as the member.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import date
from itertools import chain
from pathlib import Path

import polars as pl

from stateanalytics.core.redaction import redact
from stateanalytics.core.windows import Window
from stateanalytics.errors import ArgumentError, check_columns
from stateanalytics.failures.fault_table import VERSION, add_faults, is_telling
from stateanalytics.failures.frames import REGISTER
from stateanalytics.failures.ownership import Entry, Form, as_frame, place_of, read_lines
from stateanalytics.failures.templates import versioned_id
from stateanalytics.io.files import read_text, unreadable

_TEXTS = ("member", "code", "template", "title", "fault_id", "computed_id")
SCHEMA = {
    **dict.fromkeys(_TEXTS, pl.String),
    "since": pl.Date,
    **dict.fromkeys(("split_from", "version"), pl.String),
    "renamed_on": pl.Date,
}
_IDS = {"member": "vf", **dict.fromkeys(("fault_id", "computed_id", "split_from"), "f")}
REGISTRY = Form("registry", SCHEMA, "member", _IDS, "fault_id")
FILE = "faults.csv"
"""The name of a registry next to a ledger."""


def read_registry(registry: object, function: str = "failures.register") -> pl.DataFrame:
    """A registry from its file, or a frame that is one.

    Raises
    ------
    ArgumentError
        If it cannot be read, a line is no such line, a member has two lines, a fault is
        merged into two, or faults are merged in a circle; names the line or the member.
    MissingColumnsError
        If a frame lacks a column.

    Examples
    --------
    >>> read_registry(pl.DataFrame(schema=SCHEMA)).height
    0
    """
    if isinstance(registry, pl.DataFrame):
        check_columns(registry, SCHEMA, function)
        text, origin = registry.select(*SCHEMA).write_csv(), "the registry"
    else:
        found, problem = read_text(place_of(registry, REGISTRY, FILE))
        if problem or found is None:
            hint = "; sa.failures.register(snap, write=True) makes one"
            shell = "; stateanalytics failures … --show registry --write makes one"
            raise unreadable("registry", str(registry), problem, hint, shell=shell)
        text, origin = found, str(registry)
    lines = as_frame(read_lines(text, origin, REGISTRY), REGISTRY)
    _roots(lines, origin)
    return lines


def registry_near(registry: object, ledger: object) -> object:
    """The registry that is given, or else the one that lies next to the ledger, or None."""
    if registry is None and isinstance(ledger, str | Path):
        near = place_of(ledger).with_name(FILE)
        return near if near.is_file() else None
    return registry


def _roots(lines: pl.DataFrame, origin: str = "the registry") -> dict[str, str]:
    """The fault that each fault of a registry is part of now, which may be itself."""
    into = dict(lines.filter(pl.col("member").str.starts_with("f"))[["member", "fault_id"]].rows())
    roots: dict[str, str] = {}
    for fault in sorted({*into, *lines["fault_id"]}):
        passed, last = {fault: None}, fault
        while last not in roots and last in into:
            last = into[last]
            if last in passed:
                shown = " → ".join([*passed, last][-5:])
                raise ArgumentError(
                    f"{origin}, member {fault}: {shown} is a circle of merged faults.",
                    "remove the line of the fault that the others are part of",
                )
            passed[last] = None
        roots |= dict.fromkeys(passed, roots.get(last, last))
    return roots


def with_registered(rows: pl.DataFrame, registry: object, function: str) -> pl.DataFrame:
    """`members` whose ``fault_id`` is the one that a registry has assigned.

    A cluster that the registry does not have gets the fault of a cluster with the same computed
    id, and keeps that id where there is none. Nothing is merged or split here.
    """
    if registry is None:
        return rows
    lines = read_registry(registry, function)
    roots = _roots(lines)
    own = {member: roots[fault] for member, fault in lines[["member", "fault_id"]].rows()}
    pairs = rows.select("cluster_id", "fault_id").unique().sort("cluster_id").rows()
    # Of faults with one computed id, that of its own members first.
    shared = _named(lines, roots) | {
        computed: own[cluster] for cluster, computed in reversed(pairs) if cluster in own
    }
    ids = {cluster: own.get(cluster, shared.get(computed, computed)) for cluster, computed in pairs}
    return rows.with_columns(fault_id=pl.col("cluster_id").replace(ids))


# The words of a change, the column that has its other fault, and the one that has its day.
_CHANGES = (
    *(("took in ", "member", "since"), ("split from ", "split_from", "since")),
    ("computed as ", "computed_id", "renamed_on"),
)


def changed_within(registry: object, window: Window | None, function: str) -> pl.DataFrame:
    """What a registry merged, split or renamed after a window began, up to the day it ends on.

    Each ``fault_id`` with its changes in words (``registry_change``). A registry is written
    after the failures, as on the next Monday. None: no registry.
    """
    lines = pl.DataFrame(schema=SCHEMA) if registry is None else read_registry(registry, function)
    whole = pl.col("fault_id").replace(_roots(lines))
    changes = pl.concat(
        lines.lazy()
        .filter(pl.col(other).str.starts_with("f"))
        .select(whole, day=day, registry_change=pl.lit(words) + pl.col(other))
        for words, other, day in _CHANGES
    )
    days = changes.group_by("fault_id", "registry_change").agg(pl.col("day").min())
    if window is not None:
        first, last = window.since.date(), window.until.date()
        days = days.filter(pl.col("day").is_between(first, last, closed="right"))
    joined = pl.col("registry_change").sort().str.join(", ")
    return days.group_by("fault_id").agg(joined).sort("fault_id").collect()


def _named(lines: pl.DataFrame, roots: Mapping[str, str]) -> dict[str, str]:
    """The fault of each id that a registry has, or that was computed for its members."""
    named = lines.drop_nulls("computed_id").sort("since", "member", descending=True)
    computed = {other: roots[fault] for other, fault in named[["computed_id", "fault_id"]].rows()}
    return computed | dict(roots)


def _wider(lines: pl.DataFrame, roots: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """The faults of templates with placeholders, the oldest first, and the texts between these."""
    texts = lines.filter(pl.col("template").str.contains("<*>", literal=True))
    pairs = texts.sort("since", "member").select("fault_id", "template").rows()
    cut = [(roots[fault], text.removeprefix("'").split("<*>")) for fault, text in pairs]
    return [(fault, parts) for fault, parts in cut if is_telling("".join(parts))]


def _fits(text: str, parts: list[str]) -> bool:
    """Whether a text has these parts in order, the first and the last of them at its ends."""
    at, end = len(parts[0]), len(text) - len(parts[-1])
    for part in parts[1:-1]:
        found = text.find(part, at)
        at = len(text) if found < 0 else found + len(part)
    return at <= end and text.startswith(parts[0]) and text.endswith(parts[-1])


def assign(
    lines: pl.DataFrame, clusters: pl.DataFrame, others: pl.DataFrame, *, today: date, version: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Assign a fault to each cluster, the one that its members had before where they had one.

    Parameters
    ----------
    lines : polars.DataFrame
        Result of `read_registry`.
    clusters : polars.DataFrame
        ``cluster_id``, ``code``, ``template``, ``rule_name``, ``cause_group``, the computed
        ``fault_id`` and ``n_rows``.
    others : polars.DataFrame
        ``cluster_id`` of today and the ``member`` that it was, or is known as.
    today : datetime.date
        Since when new faults are known.
    version : str
        Of this package.

    Returns
    -------
    tuple of polars.DataFrame
        The lines of the registry after it, and what changed: see `register`. The same whatever
        the order of rows.
    """
    lines = lines.sort("member")
    roots = _roots(lines)
    was = {row["member"]: {**row, "fault_id": roots[row["fault_id"]]} for row in lines.to_dicts()}
    groups: dict[str, list[str]] = defaultdict(list)
    own: dict[str, Counter[str]] = defaultdict(Counter)
    formerly: dict[str, Counter[str]] = defaultdict(Counter)
    members = defaultdict(set, others.group_by("cluster_id").agg("member").rows())
    ranked = clusters.sort("n_rows", "cluster_id", descending=[True, False])
    for cluster, computed, n_rows in ranked.select("cluster_id", "fault_id", "n_rows").rows():
        groups[computed].append(cluster)
        if cluster in was:
            own[was[cluster]["fault_id"]][computed] += n_rows
        for fault in {was[other]["fault_id"] for other in members[cluster] if other in was}:
            formerly[fault][computed] += n_rows
    # What some of a fault's clusters were counts only where none of them is here as it was.
    found = {**formerly, **own}
    named, matched = _named(lines, roots), {name for counts in found.values() for name in counts}
    templates, wider = dict(clusters.select("cluster_id", "template").rows()), _wider(lines, roots)
    for computed in sorted(groups.keys() - matched):
        # A fault whose members are all in other words is known by its computed id, else by a
        # template that was mined from more.
        said = [templates[cluster] or "" for cluster in groups[computed]]
        fits = (fault for fault, parts in wider if any(_fits(text, parts) for text in said))
        fault = named.get(computed) or next(fits, None)
        if fault is not None and fault not in found:
            found[fault] = Counter({computed: 1})
    since = dict.fromkeys(found, date.min) | dict(
        lines.with_columns(pl.col("fault_id").replace(roots))
        .group_by("fault_id")
        .agg(pl.col("since").fill_null(date.min).min())
        .rows()
    )
    # The largest part of a fault keeps its id, and of those in one part the oldest fault.
    homes = {fault: max(sorted(counts), key=counts.__getitem__) for fault, counts in found.items()}
    keeps: dict[str, str] = {}
    for fault in sorted(homes, key=lambda fault: (since[fault], -found[fault].total(), fault)):
        keeps.setdefault(homes[fault], fault)
    merged = {fault: keeps[home] for fault, home in homes.items() if keeps[home] != fault}
    split: dict[str, str] = {}
    for computed in sorted(groups.keys() - keeps.keys()):
        of = [(counts[computed], fault) for fault, counts in found.items() if computed in counts]
        if of:
            split[computed] = merged.get(max(of)[1], max(of)[1])
        # Once assigned, an id means no other fault, whatever is computed.
        again = (versioned_id(f"{computed}\0{n}", VERSION) for n in range(len(roots)))
        keeps[computed] = next(name for name in chain([computed], again) if name not in roots)
    after: dict[str, Entry] = {
        member: {**row, "fault_id": merged.get(row["fault_id"], row["fault_id"])}
        for member, row in was.items()
    }
    titles = _titles(lines)
    of_today: Entry = {"since": today, "version": version}
    for fault, whole in merged.items():
        after[fault] = {"member": fault, "fault_id": whole, "title": titles.get(fault), **of_today}
    texts_of = add_faults(clusters).select("code", "template", "title", member="cluster_id")
    # A line of the file is a cluster, whatever its texts hold.
    in_one_line = pl.exclude("member").str.replace_all(r"[\r\n\x00]+", " ")
    shown, _ = redact(texts_of.with_columns(in_one_line))
    texts = {row["member"]: row for row in shown.to_dicts()}
    for computed, cluster in ((name, cluster) for name in groups for cluster in groups[name]):
        row, fault = after.get(cluster, {}), keeps[computed]
        if (former := row.get("fault_id")) != fault:
            came_from = former or split.get(computed)
            row = {**texts[cluster], "fault_id": fault, **of_today, "split_from": came_from}
        other = None if computed == fault else computed
        if row.get("computed_id") != other:
            row = {**row, "computed_id": other, "version": version}
            row["renamed_on"] = other and today
        after[cluster] = row
    return as_frame(after, REGISTRY), _changes(lines, ranked, keeps, split, merged)


def _titles(lines: pl.DataFrame) -> dict[str, str | None]:
    """The title of each fault, that of its first line."""
    return dict(lines[["fault_id", "title"]].reverse().rows())


def _changes(
    lines: pl.DataFrame,
    ranked: pl.DataFrame,
    keeps: Mapping[str, str],
    split: Mapping[str, str],
    merged: Mapping[str, str],
) -> pl.DataFrame:
    """What became of each fault."""
    names: dict[str, set[str | None]] = defaultdict(set)
    roots = _roots(lines)
    for fault, other in lines.select("fault_id", "computed_id").rows():
        names[roots[fault]] |= {fault, other}
    found = add_faults(ranked).select("title", "n_rows", computed=ranked["fault_id"])
    counted = found.group_by("computed", maintain_order=True).agg(
        pl.col("title").first(), pl.col("n_rows").sum(), n_clusters=pl.len()
    )
    rows = []
    for row in counted.iter_rows(named=True):
        computed = row.pop("computed")
        fault = keeps[computed]
        other = split.get(computed)
        change = "split" if other else "kept" if fault in names else "new"
        if change == "kept" and computed not in names[fault]:
            change, other = "renamed", computed
        rows.append({"fault_id": fault, "change": change, "other_id": other, **row})
    titles = _titles(lines)
    rows += [
        {"fault_id": fault, "change": "merged", "other_id": whole, "title": titles[fault]}
        for fault, whole in merged.items()
    ]
    return (
        pl.DataFrame(rows, schema=REGISTER.dtypes)
        .with_columns(pl.col("n_rows", "n_clusters").fill_null(0))
        .sort("change", "n_rows", "fault_id", descending=[False, True, False])
    )
