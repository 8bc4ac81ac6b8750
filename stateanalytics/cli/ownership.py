"""The command ``failures own``, which the command ``failures`` hands over to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.options import examples, note, opened, sources_argument
from stateanalytics.core.text import visible
from stateanalytics.errors import ArgumentError, did_you_mean

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

ledger_option = click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Say who looks after which failure, from a CSV file that `failures own` edits.",
)
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


@click.command(
    "own",
    epilog=examples(
        "stateanalytics failures own v1:3dd4831bf7f3 state.db --owner ada --ticket OPS-17",
        "stateanalytics failures own v1:3dd4831bf7f3 --resolved-in 1.4.2",
        "stateanalytics failures own v1:3dd4831bf7f3 --expected-until 2026-W24 --note 'see OPS-17'",
    ),
)
@click.argument("cluster", metavar="CLUSTER")
@sources_argument
@click.option("--owner", help="Who looks after it.")
@click.option("--ticket", help="Where it is worked on.")
@click.option("--note", "remark", help="One line about it.")
@click.option("--resolved-in", help="The release, commit, day or week that ended it.")
@click.option("--resolved-on", metavar="DAY", help="Since when; by default today.")
@click.option("--expected-until", metavar="DAY", help="Up to when it is known to go on.")
@ledger_option
def own(
    *, cluster: str, sources: tuple[str, ...], remark: str | None, ledger: Path | None, **said: Any
) -> None:
    """Say in the ledger who looks after a failure, and what became of it.

    An empty text takes away what was said. Where SOURCES are named, CLUSTER has to be one of
    theirs, and the ledger keeps its code and template next to the id.
    """
    from stateanalytics import failures

    given = {name: text for name, text in {**said, "note": remark}.items() if text is not None}
    if not given:
        raise click.UsageError("Nothing is said of it. Hint: --owner ada, or --resolved-in 1.4.2")
    place = ledger or LEDGER
    inputs: tuple[Path, ...] = ()
    if sources:
        with opened(sources) as snap:
            inputs = snap.inputs
            members = failures.members(snap)
            found = known_cluster(cluster, members["cluster_id"], snap)
            given = {**_described(members, found), **given}
        # What the ledger has under the id that was asked for, it keeps there.
        if not (place.exists() and cluster in failures.owners(place)["cluster_id"]):
            cluster = found
    entries = failures.own(place, cluster, inputs=inputs, **given)
    row = entries.filter(cluster_id=cluster).drop("cluster_id").row(0, named=True)
    fields = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
    click.echo(visible(f"{cluster}: {fields or 'nothing is said of it'}"))
    note(f"{place} holds {entries.height:,} of them")


def known_cluster(cluster: str, known: pl.Series, snap: Snapshot, **asked: Any) -> str:
    """The id among the known ones that is meant: by its beginning, or by another it had."""
    from stateanalytics import failures

    ids = known.unique()
    begun = ids.filter(ids.str.replace(r"^v\d+:", "").str.starts_with(cluster) | (ids == cluster))
    if cluster in ids or (len(begun) == 1 and len(cluster) >= _SHORTEST_ID):
        return cluster if cluster in ids else str(begun.item())
    others = failures.aliases(snap, **asked).filter(
        pl.col("alias_id") == cluster, pl.col("cluster_id").is_in(known.unique().implode())
    )
    if others.is_empty():
        raise ArgumentError(
            f"There is no cluster {cluster!r:.60} here; there are {known.n_unique()}.",
            "`stateanalytics failures` shows how each id begins"
            + did_you_mean(cluster, known.unique()),
        )
    found = str(others["cluster_id"].item())
    note(f"{cluster} is {found} now")
    return found


def _described(members: pl.DataFrame, cluster: str) -> dict[str, str | None]:
    """Code and template of a cluster, without secrets: a ledger is read by many."""
    from stateanalytics.core.redaction import redact

    is_it = pl.col("cluster_id") == cluster
    masked, _ = redact(members.filter(is_it).select("code", "template").unique())
    return dict(masked.row(0, named=True))
