"""Where the sample store is, in an installation and in a checkout."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from stateanalytics.errors import MissingComponentError

AS_OF = datetime(2026, 5, 25, 6, tzinfo=UTC)


def demo_path() -> Path:
    """The folder of the sample: ``history``, ``state.db``, ``owners.csv``, ``README.md``.

    Returns
    -------
    Path
        A folder to be read, not written to: it may belong to the system.

    Raises
    ------
    MissingComponentError
        If this installation was made without the sample.

    Examples
    --------
    >>> (demo_path() / "history").is_dir()
    True
    """
    package = Path(__file__).resolve().parent
    places = (package / "demo", package.parent / "data" / "samples" / "twelve_weeks")
    for place in places:
        if (place / "history").is_dir():
            return place
    raise MissingComponentError(
        "The sample is part of the package, and it is neither in "
        f"{str(places[0])!r} nor in {str(places[1])!r}.",
        "pip install --force-reinstall stateanalytics",
    )
