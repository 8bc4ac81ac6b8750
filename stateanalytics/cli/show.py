"""The command that goes down to one run: ``show``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from stateanalytics.cli.options import (
    as_of_option,
    examples,
    opened,
    policy_of,
    policy_option,
    redact_option,
    salvage_option,
    sources_argument,
)
from stateanalytics.cli.output import PAGES, form_of, refuse_inputs_of, show_in_browser
from stateanalytics.core.text import visible


@click.command(
    epilog=examples(
        "stateanalytics show state.db 6009d20f",
        "stateanalytics show state.db 6009d20f -o run.html --open",
    )
)
@sources_argument
@click.argument("entity_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the page with its drawing to this file.",
)
@click.option("--open", "is_opened", is_flag=True, help="Show the page in the browser.")
@as_of_option
@policy_option
@salvage_option
@redact_option
def show(
    *,
    sources: tuple[str, ...],
    entity_id: str,
    output: Path | None,
    is_opened: bool,
    as_of: str | None,
    policy: str,
    salvage: bool,
    redact: bool,
) -> None:
    """Show everything that is known of one run or other entity, in order.

    ID is its id, or the beginning of it; type:ID where several types share one. Its states,
    attempts, messages and silences, the entities around it, and what became of others that
    failed with the same words.
    """
    from stateanalytics.reporting.session import session_page
    from stateanalytics.systems.base import expanded

    if is_opened and output is None:
        raise click.UsageError("Nothing to open without a page. Hint: -o run.html --open")
    # Where an id is no path at all, as one too long is not, it is asked for as an id; so is
    # one with a folder of its name, as worktrees have.
    path = expanded(entity_id)
    is_folder = Path(path).name == entity_id != os.pardir and os.path.isdir(path)  # noqa: PTH112
    if not sources and not is_folder and os.path.exists(path):  # noqa: PTH110
        raise click.UsageError(
            f"{entity_id!r} is a source, and the id of a run is missing. Hint: "
            f"stateanalytics show {shlex.quote(entity_id)} ID; "
            "`stateanalytics attention --show states` lists ids"
        )
    form_of(None, output, PAGES)
    refuse_inputs_of(output)
    with opened(sources, as_of=as_of, salvage=salvage) as snap:
        one = session_page(snap, entity_id, policy=policy_of(policy), redact=redact)
    if output is None:
        click.echo("\n".join(map(visible, repr(one).split("\n"))))
        return
    click.echo(f"wrote {visible(str(one.write_html(output)))}")
    if is_opened:
        show_in_browser(output)
