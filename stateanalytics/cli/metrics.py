"""The command for alerts: ``metrics``."""

from __future__ import annotations

from pathlib import Path

import click

from stateanalytics.cli.options import (
    as_of_option,
    examples,
    opened,
    policy_of,
    policy_option,
    salvage_option,
    sources_argument,
)
from stateanalytics.cli.output import put


@click.command(
    epilog=examples(
        "stateanalytics metrics state.db",
        "stateanalytics metrics state.db -o /var/lib/node_exporter/agents.prom",
    )
)
@sources_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file, whole or not at all; by default to standard output.",
)
@as_of_option
@policy_option
@salvage_option
def metrics(
    *, sources: tuple[str, ...], output: Path | None, as_of: str | None, policy: str, salvage: bool
) -> None:
    """Write what alerts need as OpenMetrics text: what is open, past its limits, and failed.

    Limits are the recommended ones, else today's. `watch --metrics FILE` keeps a file fresh.
    """
    from stateanalytics.metrics import as_openmetrics, limits

    with opened(sources, as_of=as_of, salvage=salvage) as snap:
        chosen = policy_of(policy)
        text = as_openmetrics(snap, policy=chosen, limits=limits(snap, policy=chosen))
        put(text.encode(), output, inputs=snap.inputs)
