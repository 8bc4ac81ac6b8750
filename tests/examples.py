"""How many examples a property is tried on: a quarter at the desk, all of them in CI.

``pytest --hypothesis-profile=quick``, as `make test` does, asks for a quarter.
"""

from typing import Any

from hypothesis import settings

QUICK = "quick"
FEWEST = 3
settings.register_profile(QUICK)


def examples(number: int, **others: Any) -> settings:
    """Decorate a property that is tried on ``number`` examples, however long each takes."""
    if settings.get_current_profile_name() == QUICK:
        number = min(number, max(FEWEST, number // 4))
    return settings(max_examples=number, deadline=None, **others)
