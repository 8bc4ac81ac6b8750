"""The command ``failures own``: a ledger of who owns which failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.options import examples, named, note, sources_argument
from stateanalytics.cli.output import Request
from stateanalytics.core.text import visible
from stateanalytics.core.words import count
from stateanalytics.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

LEDGER = Path("owners.csv")
FAULT = "f1:"
"""The beginning of ids of faults, which stand for all clusters of one."""
_SHORTEST_ID = 4


class WithOwn(click.Command):
    """A command whose first word may be ``own``; a store of that name is ``./own``."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:  # fmt: skip
        """The context of this command, or of ``own``."""
        if args and args[0] == "own":
            return own.make_context(f"{info_name} own", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("own", epilog=examples("own"))
@click.argument("cluster", metavar="CLUSTER")
@sources_argument
@named("own.owner", "own.ticket", "own.remark", "own.resolved_in", "own.resolved_on")
@named("own.expected_until", "ledger")
def own(
    *,
    cluster: str,
    sources: tuple[str, ...],
    remark: str | None,
    ledger: Path | None,
    **fields: Any,
) -> None:
    """Record the owner and the status of a failure in the ledger.

    An empty value removes an entry. If SOURCES are given, CLUSTER must be a cluster of
    theirs, as for --cluster, and the ledger also keeps its code and template.
    """
    from stateanalytics import failures
    from stateanalytics.failures.fault_registry import registry_near

    given = {name: text for name, text in {**fields, "note": remark}.items() if text is not None}
    if not given:
        raise click.UsageError("Nothing to record. Hint: --owner ada, or --resolved-in 1.4.2")
    place = ledger or LEDGER
    inputs: tuple[Path, ...] = ()
    chosen: dict[str, dict[str, Any]] = {cluster: {}}
    if sources:
        with Request(sources=sources).opened() as snap:
            inputs = snap.inputs
            members = failures.members(snap, registry=registry_near(None, place))
            of = "fault_id" if cluster.startswith(FAULT) else "cluster_id"
            current = find_cluster(cluster, members[of], snap)
            owned = members.filter(pl.col(of) == current)["cluster_id"].unique().sort()
            chosen = {each: _code_and_template(members, each) for each in owned}
        # An entry that the ledger has under an earlier id of the cluster stays there.
        if place.exists() and cluster in failures.owners(place)["cluster_id"]:
            chosen = {cluster: chosen[current]}
    for each, texts in chosen.items():
        entries = failures.own(place, each, inputs=inputs, **texts, **given)
        row = entries.filter(cluster_id=each).drop("cluster_id").row(0, named=True)
        recorded = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
        click.echo(visible(f"{each}: {recorded or 'nothing is recorded'}"))
    note(f"{place} holds {count(entries.height, 'cluster')}")


def find_cluster(cluster: str, known: pl.Series, snap: Snapshot, **given: Any) -> str:
    """The full id of a cluster or fault, from the beginning of it or from an earlier id."""
    from stateanalytics import failures

    ids = known.unique()
    short = ids.str.replace(r"^v\d+:", "")
    starting = ids.filter(ids.str.starts_with(cluster) | short.str.starts_with(cluster))
    if cluster in ids:
        return cluster
    if len(starting) == 1 and len(cluster.rpartition(":")[2]) >= _SHORTEST_ID:
        return str(starting.item())
    others = failures.aliases(snap, **given).filter(
        pl.col("alias_id") == cluster, pl.col("cluster_id").is_in(ids.implode())
    )
    if others.is_empty():
        what = "failure" if cluster.startswith(FAULT) else "cluster"
        raise ArgumentError(
            f"There is no {what} {cluster!r:.60} here; there are {len(ids)}.",
            "`stateanalytics failures` shows how each id begins" + did_you_mean(cluster, ids),
        )
    current = str(others["cluster_id"].item())
    note(f"{cluster} is now {current}")
    return current


def _code_and_template(members: pl.DataFrame, cluster: str) -> dict[str, str | None]:
    """Code and template of a cluster, without secrets: a ledger is read by many."""
    from stateanalytics.core.redaction import redact

    is_member = pl.col("cluster_id") == cluster
    masked, _ = redact(members.filter(is_member).select("code", "template").unique())
    return dict(masked.row(0, named=True))
