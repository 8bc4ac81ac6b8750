"""What each field of a policy may hold, and how it is read from what people write."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stateanalytics.core import schema
from stateanalytics.core.session_health import HOUR_S
from stateanalytics.core.vocabulary import TABLES, words_of
from stateanalytics.errors import ArgumentError, in_short, no_such
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.systems import limits_of_systems

AXES = MappingProxyType(
    {
        "outcome": schema.OUTCOMES,
        "health": schema.HEALTHS,
        "delivery": schema.DELIVERIES,
    }
)

TONES_OF = MappingProxyType(
    {
        "critical": ("danger",),
        "warning": ("warning",),
        "info": ("info", "neutral"),
        "neutral": ("success", "neutral"),
    }
)
"""ADR-0033's table: the tones that each severity may have."""

NULL, EMPTY = "<null>", "<empty>"
"""How a missing and an empty status are written where only words can be."""


@dataclass(frozen=True)
class SeverityRule:
    """One step of the cascade: when one axis holds one of these words, it is this bad.

    Attributes
    ----------
    number : int
        What ``severity_rule`` shows; identifies the rule, its place is in the list.
    axis : str or None
        ``outcome``, ``health`` or ``delivery``; None for the last rule, which takes all.
    words : tuple of str
        Words of that axis.
    severity, tone : str
        What follows.

    Examples
    --------
    >>> SeverityRule(4, "health", ("stalled",), "critical", "danger").name
    'health is stalled'
    """

    number: int
    axis: str | None
    words: tuple[str, ...]
    severity: str
    tone: str

    @property
    def name(self) -> str:
        """The condition in words; also the name of its evidence."""
        return f"{self.axis} is {' or '.join(self.words)}" if self.axis else "everything else"


CASCADE = (
    SeverityRule(1, "outcome", ("failed", "aborted"), "critical", "danger"),
    SeverityRule(2, "health", ("process_dead", "orphaned"), "critical", "danger"),
    SeverityRule(3, "delivery", ("missing",), "critical", "danger"),
    SeverityRule(4, "health", ("stalled",), "critical", "danger"),
    SeverityRule(5, "health", ("misfired",), "critical", "danger"),
    SeverityRule(6, "outcome", ("timed_out",), "warning", "warning"),
    SeverityRule(7, "health", ("idle", "degraded", "disconnected"), "warning", "warning"),
    SeverityRule(8, "delivery", ("partial", "invalid"), "warning", "warning"),
    SeverityRule(9, "health", ("running",), "info", "info"),
    SeverityRule(10, "health", ("due",), "info", "info"),
    SeverityRule(11, "outcome", ("skipped",), "info", "neutral"),
    SeverityRule(12, "outcome", GOOD_ENDS, "neutral", "success"),
    SeverityRule(13, "outcome", ("cancelled",), "neutral", "neutral"),
    SeverityRule(14, None, (), "neutral", "neutral"),
)


LAYERED = ("stalled_after_s", "read_as", "limits")
"""Fields that a mapping is laid over, and does not replace."""


def laid_over(name: str, here: Iterable[tuple[Any, ...]], over: Mapping[str, Any]) -> Any:
    """A layered field with what a mapping says instead."""
    given = over.items() if name == "stalled_after_s" else _triples(name, over)
    merged = {tuple(keys): value for *keys, value in (*here, *given)}
    return tuple((*key, value) for key, value in merged.items())


_EXAMPLES = MappingProxyType(
    {
        "read_as": 'such as {"session": {"<null>": "completed"}}',
        "limits": 'such as {"system": {"stalled_after_s": 900}}',
    }
)


def _triples(name: str, nested: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    for key, inner in nested.items():
        if not isinstance(inner, Mapping):
            raise ArgumentError(
                f"{name} of {key!r} needs a mapping of words; found {in_short(inner)}.",
                _EXAMPLES[name],
            )
    return [(key, word, value) for key, inner in nested.items() for word, value in inner.items()]


def _one_of(word: Any, known: Sequence[str], what: str) -> str:
    if word not in known:
        raise no_such(what, word, known)
    return str(word)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(
            f"A policy's {name} is a name; found {in_short(value)}.", f'such as {name}="ours-1"'
        )
    return value


def _seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise ArgumentError(
            f"{name} needs a number, zero or more; found {in_short(value)}.",
            f"such as {name}={HOUR_S:.0f}",
        )
    return float(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(
            f"{name} needs a whole number, one or more; found {in_short(value)}.",
            f"such as {name}=10",
        )
    return value


def _share(name: str, value: Any) -> float:
    if _seconds(name, value) > 1:
        raise ArgumentError(
            f"{name} needs a number from 0 to 1; found {value!r}.", f"such as {name}=0.8"
        )
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(
            f"{name} is true or false; found {in_short(value)}.",
            f"{name}=True",
            shell=f"{name} = true",
        )
    return value


def _kinds(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    pairs = value.items() if isinstance(value, Mapping) else value
    # Sorted, so that equal content is equal however it was written.
    return tuple(sorted((_text(name, kind), _seconds(name, limit)) for kind, limit in pairs))


def _limits(name: str, value: Any) -> tuple[tuple[str, str, float], ...]:
    own = limits_of_systems()
    chosen: dict[tuple[str, str], float] = {}
    for system, limit, given in _triples(name, value) if isinstance(value, Mapping) else value:
        of_system = own[_one_of(system, tuple(own), "system with limits")]
        _one_of(limit, tuple(of_system), f"limit of {system}")
        read = _count if limit.startswith("min_") else _seconds
        chosen[system, limit] = read(f"{system}.{limit}", given)
    # Only what differs from the system's own, so that equal settings are equal policies.
    differing = ((*key, given) for key, given in chosen.items() if given != own[key[0]][key[1]])
    return tuple(sorted(differing))


def _readings(name: str, value: Any) -> tuple[tuple[str, str, str], ...]:
    triples = _triples(name, value) if isinstance(value, Mapping) else value
    for entity_type, _word, as_if in triples:
        _one_of(entity_type, tuple(TABLES), "entity type")
        known = tuple(word.raw_status for word in words_of(entity_type))
        _one_of(as_if, known, f"status of a {entity_type}")
    return tuple(sorted((whose, word, as_if) for whose, word, as_if in triples))


def _cascade(name: str, value: Any) -> tuple[SeverityRule, ...]:
    rules = tuple(_rule(item) for item in value)
    numbers = [rule.number for rule in rules]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise ArgumentError(
            f"Each rule of {name} needs a number of its own; {twice} is there twice.",
            "number new rules from 15",
        )
    if [rule.axis for rule in rules].count(None) != 1 or rules[-1].axis is not None:
        raise ArgumentError(
            f"The last of {name}, and only the last, takes everything else.",
            'end with {"number": 14, "severity": "neutral", "tone": "neutral"}',
        )
    return rules


def _rule(item: Any) -> SeverityRule:
    if isinstance(item, Mapping):
        try:
            item = SeverityRule(**{"axis": None, "words": (), **item})
        except TypeError:
            fields = [field.name for field in dataclasses.fields(SeverityRule)]
            raise ArgumentError(
                f"A severity rule has the fields {', '.join(fields)}; found {dict(item)!r:.100}.",
                'such as {"number": 15, "axis": "health", "words": ["blocked"], '
                '"severity": "warning", "tone": "warning"}',
            ) from None
    if not isinstance(item, SeverityRule):
        raise ArgumentError(
            f"A severity rule is a SeverityRule or a mapping; found {in_short(item)}.",
            'SeverityRule(15, "health", ("blocked",), "warning", "warning")',
        )
    if not isinstance(item.number, int) or not 1 <= item.number <= 999:
        raise ArgumentError(
            f"A severity rule's number is 1 to 999; found {item.number!r}.", "number=15"
        )
    rule = dataclasses.replace(item, words=tuple(item.words))
    _one_of(rule.severity, schema.SEVERITIES, "severity")
    _one_of(rule.tone, TONES_OF[rule.severity], f"tone of severity {rule.severity}")
    if rule.axis is not None:
        _one_of(rule.axis, tuple(AXES), "axis")
        for word in rule.words:
            _one_of(word, AXES[rule.axis], rule.axis)
    return rule


_READERS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "version": _text,
        "severity_rules": _cascade,
        "read_as": _readings,
        "stalled_after_s": _kinds,
        "approximate_end_confidence": _share,
        "limits": _limits,
        "is_unseen_dead": _flag,
        "is_display_verbose": _flag,
    }
)


def read_field(name: str, given: Any) -> Any:
    """A field's value as the policy keeps it; what has no reader of its own is a duration.

    Raises
    ------
    ArgumentError
        If the field cannot hold it.
    """
    reader: Callable[[str, Any], Any] = _READERS.get(name, _seconds)
    try:
        return reader(name, given)
    except ArgumentError:
        raise
    # Nested values of any shape are taken apart by the readers: what does not come apart so.
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"{name} of a policy cannot hold {type(given).__name__} {_shown(given)}.",
            "write it as Policy.v1().to_dict() does",
        ) from None


def _shown(given: Any) -> str:
    """A value in few characters; a number of thousands of digits or an endless list in none."""
    try:
        return f"{in_short(given)}"
    except (ValueError, RecursionError):
        return "that is too large to show"
