"""The command ``failures own``, and the group that finds it beside ``failures``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stateanalytics.cli.options import examples, note, opened, sources_argument
from stateanalytics.core.text import visible
from stateanalytics.errors import ArgumentError, did_you_mean

ledger_option = click.option(
    "--ledger",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Who looks after which failure: a CSV file that `failures own` edits.",
)
LEDGER = Path("owners.csv")


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
    theirs, and the ledger keeps its code and template beside the id.
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
            given = {**_described(failures.members(snap), cluster), **given}
    entries = failures.own(place, cluster, inputs=inputs, **given)
    row = entries.filter(cluster_id=cluster).drop("cluster_id").row(0, named=True)
    told = ", ".join(f"{name} {value}" for name, value in row.items() if value is not None)
    click.echo(visible(f"{cluster}: {told or 'nothing is said of it'}"))
    note(f"{place} holds {entries.height:,} of them")


def _described(members: Any, cluster: str) -> dict[str, str | None]:
    """Code and template of a cluster, without secrets: a ledger is read by many."""
    import polars as pl

    from stateanalytics.core.redaction import redact

    known = members.select("cluster_id", "code", "template").unique()
    if cluster not in known["cluster_id"]:
        raise ArgumentError(
            f"There is no cluster {cluster!r:.60} here; there are {known.height}.",
            "stateanalytics failures … --format json lists their ids"
            + did_you_mean(cluster, known["cluster_id"]),
        )
    masked, _ = redact(known.filter(pl.col("cluster_id") == cluster).select("code", "template"))
    return dict(masked.row(0, named=True))
