"""The command ``costs``, and the option that names prices."""

from __future__ import annotations

from pathlib import Path

import click

from stateanalytics.cli.options import (
    examples,
    note,
    sources_argument,
    tables_option,
    with_tables,
)
from stateanalytics.cli.request import IN_WINDOW, Request, limit_option, takes

# Columns of a table on the terminal; files hold all.
SHOWN = (
    *("n_runs", "n_completed", "n_merged", "total_usd"),
    *("reported_usd", "reported_per_completed_usd", "reported_lost_usd"),
    *("estimated_usd", "estimated_n", "estimated_per_completed_usd", "estimated_lost_usd"),
)

prices_option = click.option(
    "--prices",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Estimate costs by prices of yours, from a TOML file; other models keep list prices.",
)


@click.command(
    epilog=examples(
        "stateanalytics costs state.db --week 2026-W21",
        "stateanalytics costs --by project --prices my.toml",
        "stateanalytics costs history/ --by system,model,project -o costs.csv",
    )
)
@sources_argument
@click.option(
    "--by",
    default="system,model",
    show_default=True,
    metavar="NAMES",
    help="Sum by these, joined by commas: system, model, provider, project, agent, kind, "
    "playbook, or a column of --table, such as teams.owner; or none: all runs together.",
)
@prices_option
@tables_option
@takes(limit_option, *IN_WINDOW)
def costs(request: Request, *, by: str, prices: Path | None, own: tuple[str, ...]) -> None:
    """Show what runs cost: as reported, and estimated from tokens.

    Estimates take list prices. Both in all, per completed and merged run, and lost to
    failures. Without a window, everything is counted.
    """
    from stateanalytics.failures import costs as costs_by
    from stateanalytics.failures import prices as price_table

    groups = [] if by == "none" else by.replace(" ", "").split(",")
    looked_on = price_table(prices)["as_of"].dt.to_string().max()
    with request.opened() as snap:
        frame = costs_by(
            with_tables(snap, own),
            by=groups,
            window=request.window,
            policy=request.chosen_policy,
            prices=prices,
        )
        note("total_usd: as reported where it is, and estimated for the rest")
        note(f"estimated by list prices of {looked_on!s}; --prices takes others")
        inputs = [*snap.inputs, *([prices] if prices else [])]
        request.write(frame, columns=(*groups, *SHOWN), inputs=inputs)
