"""The command ``diff``."""

from __future__ import annotations

from pathlib import Path

import click

from stateanalytics.cli.options import examples, output_options
from stateanalytics.cli.output import FORMATS, write


@click.command(
    epilog=examples(
        "stateanalytics diff last.json this.json",
        "stateanalytics diff last.json this.json --format csv",
    )
)
@click.argument("last", type=click.Path(path_type=Path))
@click.argument("this", type=click.Path(path_type=Path))
@output_options(FORMATS)
def diff(*, last: Path, this: Path, form: str | None, output: Path | None, safe_csv: bool) -> None:
    """Say why the numbers of one report differ from those of another.

    LAST and THIS are what `stateanalytics report --json` wrote beside the page. Each
    headline number is taken apart by cause: new rows, late rows, work that has ended
    since, another policy, as-of, window or input, and what remains unexplained.
    """
    from stateanalytics.reporting.diff import diff as compare

    found = compare(last, this)
    shown = ("title", "cause", "n_runs", "before", "after", "change", "n_after", "of_after")
    write(
        found,
        form=form,
        output=output,
        safe_csv=safe_csv,
        columns=shown,
        limit=found.height,
        inputs=[last, this],
    )
