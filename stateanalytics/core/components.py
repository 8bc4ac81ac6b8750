"""Libraries that only an extra installs, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stateanalytics.errors import MissingComponentError


@contextmanager
def needing(library: str, task: str, *, extra: str, instead: str) -> Iterator[None]:
    """Turn imports that fail into an error that says what to install.

    Parameters
    ----------
    library : str
        What is imported within.
    task : str
        What needs it, as the start of a sentence.
    extra : str
        The extra of this package that installs it.
    instead : str
        What can be done without it.

    Raises
    ------
    MissingComponentError
        If something imported within is not installed.
    """
    try:
        yield
    except ImportError as missing:
        raise MissingComponentError(
            f"{task} needs {library}, which is not installed ({missing}).",
            f"pip install 'stateanalytics[{extra}]', or {instead}",
        ) from missing
