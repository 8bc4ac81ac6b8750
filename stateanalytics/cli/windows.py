"""Options that name a stretch of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def window_options(command: Command) -> Command:
    """``--week``, ``--since`` and ``--until``."""
    for option in (
        click.option("--until", metavar="MOMENT", help="End of the window, not part of it."),
        click.option("--since", metavar="MOMENT", help="Begin of the window."),
        click.option("--week", metavar="YYYY-Www", help="An ISO week, Monday to Monday in UTC."),
    ):
        command = option(command)
    return command


def window_of(week: str | None, since: str | None, until: str | None) -> object:
    """What the library takes as a window; None where nothing was asked for."""
    if week is not None and (since is not None or until is not None):
        raise click.UsageError(
            "A window is a week, or since and until; found both. Hint: leave one of them out"
        )
    if week is not None:
        return week
    return None if since is None and until is None else (since, until)
