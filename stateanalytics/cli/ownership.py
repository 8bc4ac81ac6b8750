"""The command ``failures own``: a ledger of who owns which failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.options import examples, named, note, sources_argument
from stateanalytics.cli.output import Request
from stateanalytics.core.text import visible
from stateanalytics.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

LEDGER = Path("owners.csv")
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
    theirs, and the ledger also keeps its code and template.
    """
    from stateanalytics import failures

    given = {name: text for name, text in {**fields, "note": remark}.items() if text is not None}
    if not given:
        raise click.UsageError("Nothing to record. Hint: --owner ada, or --resolved-in 1.4.2")
    place = ledger or LEDGER
    inputs: tuple[Path, ...] = ()
    if sources:
        with Request(sources=sources).opened() as snap:
            inputs = snap.inputs
            members = failures.members(snap)
            current = find_cluster(cluster, members["cluster_id"], snap)
            given = {**_code_and_template(members, current), **given}
        # An entry that the ledger has under an earlier id of the cluster stays there.
        if not (place.exists() and cluster in failures.owners(place)["cluster_id"]):
            cluster = current
    entries = failures.own(place, cluster, inputs=inputs, **given)
    row = entries.filter(cluster_id=cluster).drop("cluster_id").row(0, named=True)
    recorded = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
    click.echo(visible(f"{cluster}: {recorded or 'nothing is recorded'}"))
    note(f"{place} holds {entries.height:,} failures")


def find_cluster(cluster: str, known: pl.Series, snap: Snapshot, **given: Any) -> str:
    """The full id of a cluster, from the beginning of it or from an earlier id."""
    from stateanalytics import failures

    ids = known.unique()
    starting = ids.filter(
        ids.str.replace(r"^v\d+:", "").str.starts_with(cluster) | (ids == cluster)
    )
    if cluster in ids:
        return cluster
    if len(starting) == 1 and len(cluster) >= _SHORTEST_ID:
        return str(starting.item())
    others = failures.aliases(snap, **given).filter(
        pl.col("alias_id") == cluster, pl.col("cluster_id").is_in(ids.implode())
    )
    if others.is_empty():
        raise ArgumentError(
            f"There is no cluster {cluster!r:.60} here; there are {len(ids)}.",
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
