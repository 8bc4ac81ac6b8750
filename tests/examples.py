"""How much a proof is tried on: a part of it at the desk, more in CI, all of it before a release.

``pytest --hypothesis-profile=quick``, as `make test` does, asks for an eighth of a property's
examples, `make slow` for half of them, and ``--hypothesis-profile=whole``, as `make check-all`
does, for all. So it is with simulations and repetitions (`some_of`). Of a matrix (one property
on many samples, formats or texts) `make test` runs a few members; the others are marked slow,
for `make slow`, which CI runs as well.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

QUICK, WHOLE = "quick", "whole"
PARTS = {QUICK: 8, WHOLE: 1}
FEWEST = 3
for name in PARTS:
    settings.register_profile(name)


def examples(number: int, **others: Any) -> settings:
    """Decorate a property that is tried on ``number`` examples, however long each takes."""
    part = PARTS.get(settings.get_current_profile_name(), 2)
    number = min(number, max(FEWEST, number // part))
    return settings(max_examples=number, deadline=None, **others)


def is_whole() -> bool:
    """Whether everything is tried, as before a release."""
    return settings.get_current_profile_name() == WHOLE


def some_of(number: int, part: int) -> int:
    """So many simulations or repetitions where everything is tried, else a part of them."""
    return number if is_whole() else number // part


def a_few(cases: Iterable[Any], number: int = 1) -> list[Any]:
    """The members of a matrix, all but ``number`` of them slow; the first and the last stay.

    A tuple is one row of several arguments.
    """
    members = [
        case if hasattr(case, "marks") else pytest.param(*(case if type(case) is tuple else [case]))
        for case in cases
    ]
    kept = {round(i * (len(members) - 1) / max(1, number - 1)) for i in range(number)}
    return [
        member
        if place in kept
        else pytest.param(*member.values, id=member.id, marks=(*member.marks, pytest.mark.slow))
        for place, member in enumerate(members)
    ]
