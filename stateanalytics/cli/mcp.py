"""The command that answers agents: ``mcp``."""

from __future__ import annotations

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


@click.command(
    epilog=examples(
        "stateanalytics mcp history/",
        "your-agent mcp add fleet -- stateanalytics mcp ~/history",
    )
)
@sources_argument
@as_of_option
@policy_option
@salvage_option
@click.option(
    "--sql/--no-sql",
    "has_sql",
    default=True,
    show_default=True,
    help="Offer the tools `sql` and `schema`, too.",
)
def mcp(
    *, sources: tuple[str, ...], as_of: str | None, policy: str, salvage: bool, has_sql: bool
) -> None:
    """Serve read-only tools for agents over standard input and output (MCP).

    The sources are read once, when it starts, and nothing else is ever opened. Secrets are
    masked, answers are short, and say what was cut off.
    """
    from stateanalytics.mcp_server import serve

    with opened(sources, as_of=as_of, salvage=salvage) as snap:
        serve(snap, policy_of(policy), has_sql=has_sql)
