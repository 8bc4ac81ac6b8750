"""What commands that read stores have in common: their options, the snapshot, the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stateanalytics.cli.options import (
    Command,
    as_of_option,
    opened,
    output_options,
    policy_of,
    policy_option,
    probe_option,
    salvage_option,
    window_of,
    window_options,
)
from stateanalytics.cli.output import FORMATS, form_of, refuse_inputs_of, write

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.snapshot import Snapshot
    from stateanalytics.state.policy import Policy

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="Print so many rows; 50 in a table by default."
)


@dataclass(frozen=True)
class Request:
    """The shared part of a command's line: which stores, as of when, and where the answer goes."""

    sources: tuple[str, ...] = ()
    week: str | None = None
    since: str | None = None
    until: str | None = None
    as_of: str | None = None
    probe: bool = False
    salvage: bool = False
    bodies: bool = False
    policy: str = "v1"
    limit: int | None = None
    form: str | None = None
    output: Path | None = None
    safe_csv: bool | None = None
    redact: bool = True
    wide: bool = False

    @property
    def window(self) -> object:
        """What the library takes as a window; None where nothing was asked for."""
        return window_of(self.week, self.since, self.until)

    @property
    def chosen_policy(self) -> Policy:
        """The policy that was named."""
        return policy_of(self.policy)

    def opened(self, *, is_table: bool = True) -> Snapshot:
        """The snapshot of the stores that were named, once it is known where and what to write."""
        refuse_inputs_of(self.output)
        if is_table:
            form_of(self.form, self.output)
        return opened(
            self.sources,
            as_of=self.as_of,
            bodies=self.bodies,
            salvage=self.salvage,
            probe=self.probe,
        )

    def write(
        self,
        frame: pl.DataFrame,
        *,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        inputs: Sequence[Path] = (),
    ) -> None:
        """Print the answer, or write it to the file that was named."""
        write(
            frame,
            form=self.form,
            output=self.output,
            safe_csv=self.safe_csv,
            redact=self.redact,
            is_wide=self.wide,
            columns=columns,
            limit=self.limit if limit is None else limit,
            inputs=inputs,
        )


def takes(
    *own: Callable[[Command], Command],
    formats: Mapping[str, Sequence[str]] = FORMATS,
    otherwise: str = "a table",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command shared options, and its function one `Request` in place of them."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        shared = [field.name for field in fields(Request)]

        @wraps(command)
        def asked(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in shared if name in arguments}
            command(Request(**given), **arguments)

        for option in (output_options(formats, otherwise), *reversed(own)):
            asked = option(asked)
        return asked

    return add


READING = (as_of_option, probe_option, salvage_option, policy_option)
"""The options of every command that derives states from stores."""
IN_WINDOW = (window_options, *READING)
