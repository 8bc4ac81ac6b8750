"""Which detectors stood side by side: life spans in releases and days."""

from __future__ import annotations

from stateanalytics.systems.detector import Detector

ORDER = (
    *("2026-05-20", "2026-05-21", "0.26.0", "2026-05-23", "0.26.1", "0.26.7", "2026-05-30"),
    *("0.27.0", "0.27.2", "2026-07", "2026-07-04", "0.28.0", "2026-07-05", "2026-07-06"),
    *("2026-07-08", "0.29.0", "2026-07-12", "2026-07-13", "0.29.1", "2026-08", "2026-08-06"),
    *("2026-08-09", "2026-08-15", "0.34", "0.35"),
)
"""Releases and days that life spans name, in the order in which they came."""

_PLACE = {word: place for place, word in enumerate(ORDER)}


def stood_together(a: Detector, b: Detector) -> bool:
    """Did people see both on one page at one time.

    Examples
    --------
    >>> from stateanalytics.detectors.catalogue import named
    >>> stood_together(named("B2"), named("B4")), stood_together(named("B2/30"), named("B4"))
    (True, False)
    """
    if not a.page or a.page != b.page or (a.version_of and a.version_of == b.version_of):
        return False
    return _begin(a) <= _end(b) and _begin(b) <= _end(a)


def _begin(detector: Detector) -> int:
    return _PLACE.get(detector.since, 0)


def _end(detector: Detector) -> int:
    return _PLACE.get(detector.until, len(ORDER))
