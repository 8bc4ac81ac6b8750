"""Progress of long work: a bar for people, nothing for pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stateanalytics.core.text import visible

PATIENCE_S = 5.0
"""In a notebook, shorter work shows no bar, because an empty space would be left behind."""


def is_watched() -> bool:
    """Whether a person is looking: stderr is a terminal, or this is a notebook."""
    if "ipykernel" in sys.modules:
        return True
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress(
    title: str, total: int, *, shown: bool | None = None
) -> Iterator[Callable[[str], None]]:
    """Show the progress of some work while its block runs.

    Parameters
    ----------
    title : str
        The name of the work.
    total : int
        The number of steps.
    shown : bool, optional
        Whether to draw at all; by default only where a person looks.

    Yields
    ------
    callable
        Call it with the name of each step as it begins.
    """
    if not (is_watched() if shown is None else shown):
        yield lambda step: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(escape(title), total=total)
    begun, begun_at = 0, time.monotonic()

    def begin(step: str) -> None:
        nonlocal begun
        bar.update(task, completed=begun, description=escape(visible(f"{title}: {step}")))
        begun += 1
        if not bar.console.is_jupyter or time.monotonic() - begun_at > PATIENCE_S:
            bar.start()

    try:
        yield begin
    finally:
        bar.stop()
