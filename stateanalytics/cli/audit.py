"""The command ``audit``."""

from __future__ import annotations

from typing import Any

import click

from stateanalytics.cli.options import examples
from stateanalytics.cli.reports import listing, print_table


@click.command(
    epilog=examples(
        "stateanalytics audit state.db",
        "stateanalytics audit state.db --severity warning -o contradictions.csv",
    )
)
@listing
def audit(**arguments: Any) -> None:
    """List where the data contradict themselves, with both sides of the evidence.

    A warning is two things that cannot both be true; an info is an exception that the
    data explain, such as an override.
    """
    shown = ("severity", "code", "entity_type", "entity_id", "says", "against", "what_to_do")
    print_table("audit", shown, **arguments)
