"""The rules and thresholds of states as one frozen, versioned value.

A `Policy` holds everything that a team may decide differently: the severity cascade (an ordered
list of rules), the thresholds, and which stored words are read as others. `Policy.v1` is ADR-0033
to the letter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stateanalytics.core import schema
from stateanalytics.core.session_health import HOUR_S, STALLED_AFTER_S
from stateanalytics.core.vocabulary import TABLES, words_of
from stateanalytics.errors import (
    ArgumentError,
    check_number,
    check_one_of,
    did_you_mean,
    in_short,
)
from stateanalytics.io.files import parsed, read_text, unreadable
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.systems import limits_of_systems

AXES: Mapping[str, tuple[str, ...]] = {
    "outcome": schema.OUTCOMES,
    "health": schema.HEALTHS,
    "delivery": schema.DELIVERIES,
}

TONES_OF: Mapping[str, tuple[str, ...]] = {
    "critical": ("danger",),
    "warning": ("warning",),
    "info": ("info", "neutral"),
    "neutral": ("success", "neutral"),
}
"""ADR-0033's table: the tones that each severity may have."""

NULL, EMPTY = "<null>", "<empty>"
"""How a missing and an empty status are written in a policy."""


@dataclass(frozen=True)
class SeverityRule:
    """One step of the cascade: the severity of some words of one axis.

    It knows neither the lifecycle nor a time. A condition that depends on a time is a health first
    (`stateanalytics.state.health`).

    Attributes
    ----------
    number : int
        Its number in ``severity_rule``. The order of rules is that of the list.
    axis : str or None
        ``outcome``, ``health`` or ``delivery``; None for the last rule, which is for all others.
    words : tuple of str
        Words of that axis.
    severity, tone : str
        The severity and tone of these words.

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
        """The condition in words, which is also the name of its evidence column."""
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


SIGN_LIMITS: Mapping[str, float] = {
    # Equal calls in a row with equal results, or of which all fail; two alternating calls;
    # answers without a call (OpenHands).
    "n_repeated": 4,
    "n_repeated_errors": 3,
    "n_alternating": 6,
    "n_answers": 3,
    # Equal calls in a row whose results are not known (gemini-cli).
    "n_repeated_unseen": 5,
    # Refused calls of one thread; fewer are enough if all of its calls are refused.
    "n_denied": 3,
    # Failed calls to a server that does not run, or that a sandbox refuses.
    "n_down": 2,
    # Failed calls if more fail than succeed, and if none succeeds.
    "n_failing": 5,
    "n_all_failing": 3,
    # Retries of requests to the provider.
    "n_retries": 3,
    # The longest time from the end of a turn to a prompt that corrects it.
    "corrected_within_s": 120.0,
}
"""Numbers from which calls and turns of one thread are a sign of struggle."""

_PAIRS, LAYERED = ("stalled_after_s", "signs"), ("stalled_after_s", "signs", "read_as", "limits")
"""Fields in which a mapping changes some values and keeps the others."""


def laid_over(name: str, here: Iterable[tuple[Any, ...]], over: Mapping[str, Any]) -> Any:
    """A layered field with some of its values replaced by those of a mapping."""
    given = over.items() if name in _PAIRS else _triples(name, over)
    merged = {tuple(keys): value for *keys, value in (*here, *given)}
    return tuple((*key, value) for key, value in merged.items())


_EXAMPLES: Mapping[str, str] = {
    "read_as": 'such as {"session": {"<null>": "completed"}}',
    "limits": 'such as {"system": {"stalled_after_s": 900}}',
}


def _triples(name: str, nested: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    for key, inner in nested.items():
        if not isinstance(inner, Mapping):
            raise ArgumentError(
                f"{name} of {key!r} needs a mapping of words; found {in_short(inner)}.",
                _EXAMPLES[name],
            )
    return [(key, word, value) for key, inner in nested.items() for word, value in inner.items()]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(
            f"A policy's {name} is a name; found {in_short(value)}.", f'such as {name}="ours-1"'
        )
    return value


def _seconds(name: str, value: Any) -> float:
    check_number(name, value, 3600)
    return float(value)


def _count(name: str, value: Any) -> int:
    check_number(name, value, 10, least=1, is_whole=True)
    return int(value)


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
    # Sorted, so that policies with the same content are equal.
    return tuple(sorted((_text(name, kind), _seconds(name, limit)) for kind, limit in pairs))


def _signs(name: str, value: Any) -> tuple[tuple[str, float], ...]:
    pairs = dict(value.items() if isinstance(value, Mapping) else value)
    for sign in pairs:
        check_one_of(sign, tuple(SIGN_LIMITS), "number of a sign")
    read = {sign: _count if sign.startswith("n_") else _seconds for sign in pairs}
    chosen = {sign: read[sign](f"{name}.{sign}", given) for sign, given in pairs.items()}
    return tuple(sorted({**SIGN_LIMITS, **chosen}.items()))


def _limits(name: str, value: Any) -> tuple[tuple[str, str, float], ...]:
    own = limits_of_systems()
    chosen: dict[tuple[str, str], float] = {}
    for system, limit, given in _triples(name, value) if isinstance(value, Mapping) else value:
        of_system = own[check_one_of(system, tuple(own), "system with limits")]
        check_one_of(limit, tuple(of_system), f"limit of {system}")
        read = _count if limit.startswith("min_") else _seconds
        chosen[system, limit] = read(f"{system}.{limit}", given)
    # Values equal to the system's own are dropped, so that equal settings are equal policies.
    differing = ((*key, given) for key, given in chosen.items() if given != own[key[0]][key[1]])
    return tuple(sorted(differing))


def _readings(name: str, value: Any) -> tuple[tuple[str, str, str], ...]:
    triples = _triples(name, value) if isinstance(value, Mapping) else value
    for entity_type, _word, as_if in triples:
        check_one_of(entity_type, tuple(TABLES), "entity type")
        known = tuple(word.raw_status for word in words_of(entity_type))
        check_one_of(as_if, known, f"status of a {entity_type}")
    return tuple(sorted((entity_type, word, as_if) for entity_type, word, as_if in triples))


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
    check_one_of(rule.severity, schema.SEVERITIES, "severity")
    check_one_of(rule.tone, TONES_OF[rule.severity], f"tone of severity {rule.severity}")
    if rule.axis is not None:
        check_one_of(rule.axis, tuple(AXES), "axis")
        for word in rule.words:
            check_one_of(word, AXES[rule.axis], rule.axis)
    return rule


_READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "version": _text,
    "severity_rules": _cascade,
    "read_as": _readings,
    "stalled_after_s": _kinds,
    "signs": _signs,
    "approximate_end_confidence": _share,
    "limits": _limits,
    "is_unseen_dead": _flag,
    "is_stuck_critical": _flag,
    "is_display_verbose": _flag,
}


def read_field(name: str, given: Any) -> Any:
    """The value of a field as the policy keeps it; fields without a reader are durations.

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
    # Readers unpack nested values, which fails for a value of another shape.
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"{name} of a policy cannot hold {type(given).__name__} {_shown(given)}.",
            "write it as Policy.v1().to_dict() does",
        ) from None


def _shown(given: Any) -> str:
    """A value in few characters, or nothing for huge numbers and endless lists."""
    try:
        return f"{in_short(given)}"
    except (ValueError, RecursionError):
        return "that is too large to show"


__all__ = ["NAMES", "Policy", "SeverityRule"]


@dataclass(frozen=True)
class Policy:
    """The rules and thresholds of health and severity.

    Start from `v1`, `adr0025`, `operator` or `parity`, and derive your own with
    `replace`; the version then changes by itself, so that no two policies share one.

    Attributes
    ----------
    version : str
        Stamped on every state.
    severity_rules : tuple of SeverityRule
        The cascade, first match wins; the last rule matches everything.
    read_as : tuple of (str, str, str)
        Entity type, stored status (`NULL` and `EMPTY` for none), and the status of that
        type it is read as.
    stalled_after_s : tuple of (str, float)
        Silence after which running work of a kind is stalled (strictly longer); give a
        mapping. Kinds that it does not name have ``stalled_after_default_s``.
    idle_after_s : float
        Silence after which running work is idle (strictly longer).
    slow_after_s, stuck_after_s : float
        Age above which a session of any system is slow or stuck: ADR-0025's dashboard thresholds.
    play_stalled_after_s, schedule_run_stalled_after_s : float
        Silence at which a play without a session, and a fire of a schedule, is stalled
        (at least as long: sweepers use >= here).
    overdue_cadences, overdue_grace_s : float
        A schedule is misfired when silent for longer than ``overdue_cadences`` cadences
        and longer than one cadence plus ``overdue_grace_s``; without a cadence, when its
        planned time is longer ago than ``overdue_grace_s``.
    phantom_after_s : float
        Age from which `phantoms` lists a session.
    approximate_end_confidence : float
        Confidence in a stored reason whose end was estimated later.
    limits : tuple of (str, str, float)
        System, name of one of its limits (`health.LIMITS` explains each), and the value that
        replaces the system's own; give a mapping of mappings. Values equal to the system's own are
        omitted.
    signs : tuple of (str, float)
        Numbers from which calls and turns of one thread are a sign of struggle (`SIGN_LIMITS`
        explains each number); give a mapping.
    is_unseen_dead : bool
        Whether open work that was never observed (no output, no check of its process, no timestamp)
        is dead or stalled at once, as its recorder has it. Otherwise its health is unknown until it
        has been silent for too long.
    is_stuck_critical : bool
        Whether an open session that is stuck in a loop of equal calls needs attention like critical
        work. Its severity does not change.
    is_display_verbose : bool
        Show segments that ADR-0033 leaves out: ``Failed · Infra OK``.

    Examples
    --------
    >>> Policy.v1().stalled_after("flow")
    43200.0
    >>> strict = Policy.v1().replace(idle_after_s=600)
    >>> strict.version.startswith("v1+")
    True
    >>> strict.replace(idle_after_s=3600) == Policy.v1()
    True
    """

    version: str
    severity_rules: tuple[SeverityRule, ...] = CASCADE
    read_as: tuple[tuple[str, str, str], ...] = ()
    stalled_after_s: tuple[tuple[str, float], ...] = tuple(STALLED_AFTER_S.items())
    stalled_after_default_s: float = 6 * HOUR_S
    idle_after_s: float = HOUR_S
    slow_after_s: float = HOUR_S
    stuck_after_s: float = HOUR_S
    play_stalled_after_s: float = 6 * HOUR_S
    schedule_run_stalled_after_s: float = 24 * HOUR_S
    overdue_cadences: float = 3.0
    overdue_grace_s: float = 300.0
    phantom_after_s: float = HOUR_S
    approximate_end_confidence: float = 0.8
    limits: tuple[tuple[str, str, float], ...] = ()
    signs: tuple[tuple[str, float], ...] = tuple(SIGN_LIMITS.items())
    is_unseen_dead: bool = False
    is_stuck_critical: bool = False
    is_display_verbose: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, read_field(field.name, getattr(self, field.name)))

    @classmethod
    def v1(cls) -> Policy:
        """ADR-0033's cascade to the letter, with the thresholds that ship today."""
        return cls("v1")

    @classmethod
    def adr0025(cls) -> Policy:
        """As v1, but an abort counts as intentional, so it is neutral, as in ADR-0025."""
        changed = {1: ("failed",), 13: ("cancelled", "aborted")}
        return cls(
            "adr0025",
            tuple(
                dataclasses.replace(rule, words=changed.get(rule.number, rule.words))
                for rule in CASCADE
            ),
        )

    @classmethod
    def operator(cls) -> Policy:
        """As v1, but blocked work is a warning and unknown states are info.

        An open session that is stuck in a loop of calls also needs attention.
        """
        before = {
            9: (SeverityRule(15, "health", ("blocked",), "warning", "warning"),),
            12: (
                SeverityRule(16, "outcome", ("unknown",), "info", "neutral"),
                SeverityRule(17, "health", ("unknown",), "info", "neutral"),
            ),
        }
        return cls(
            "operator",
            tuple(step for rule in CASCADE for step in (*before.get(rule.number, ()), rule)),
            is_stuck_critical=True,
        )

    @classmethod
    def parity(cls) -> Policy:
        """As v1, but with statuses read as the recorder's own pages show them.

        A session without a status counts as completed, a good end without evidence as
        failed, open work that was never observed as dead.
        """
        gone = (("session", NULL, "completed"), ("session", EMPTY, "completed"))
        mirrored = ("session", "branch", "invocation")
        empty = tuple((entity_type, "completed_empty", "failed") for entity_type in mirrored)
        return cls("parity", read_as=(*gone, *empty), is_unseen_dead=True)

    @classmethod
    def named(cls, name: str) -> Policy:
        """The policy of that name: v1, adr0025, operator or parity.

        Raises
        ------
        ArgumentError
            If there is none.
        """
        if name not in NAMES:
            raise ArgumentError(
                f"There is no policy {name!r}; there are {', '.join(NAMES)}.",
                "give one of these, or a .toml or .json file" + did_you_mean(name, NAMES),
            )
        policy: Policy = getattr(cls, name)()
        return policy

    @classmethod
    def of(cls, name_or_path: str | Path) -> Policy:
        """A named policy, or the one that a .toml or .json file describes (see `from_dict`).

        Raises
        ------
        ArgumentError
            If there is neither, or the file does not describe a policy.
        """
        path = Path(name_or_path)
        if path.suffix.lower() not in _PARSERS:
            return cls.named(str(name_or_path))
        text, problem = read_text(path)
        if text is None:
            raise unreadable("policy file", path, problem, f", or one of: {', '.join(NAMES)}")
        content, problem = parsed(text, _PARSERS[path.suffix.lower()])
        if problem is not None:
            raise ArgumentError(
                f"The policy file {str(path)!r} cannot be read: {problem}.",
                'a policy file looks like: {"base": "v1", "idle_after_s": 1800}',
            )
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Policy:
        """A policy from plain data: the output of `to_dict`, or only what differs.

        Parameters
        ----------
        content : mapping
            Fields of `Policy`; ``base`` names the policy that the rest is taken from
            (default v1), ``version`` its own name (default: made from the base).

        Raises
        ------
        ArgumentError
            If a field is unknown or its value makes no sense.

        Examples
        --------
        >>> Policy.from_dict({"base": "operator", "idle_after_s": 1800}).idle_after_s
        1800.0
        >>> Policy.from_dict(Policy.parity().to_dict()) == Policy.parity()
        True
        """
        if not isinstance(content, Mapping):
            raise ArgumentError(
                f"A policy is a mapping of fields; found {type(content).__name__}.",
                'such as {"base": "v1", "idle_after_s": 1800}',
            )
        changes = {name: value for name, value in content.items() if name != "base"}
        return cls.named(str(content.get("base", "v1"))).replace(**changes)

    def to_dict(self) -> dict[str, Any]:
        """The policy as plain data that JSON and TOML can hold.

        Examples
        --------
        >>> Policy.parity().to_dict()["read_as"]["session"]
        {'<empty>': 'completed', '<null>': 'completed', 'completed_empty': 'failed'}
        """
        rules = [
            {
                "number": rule.number,
                **({"axis": rule.axis, "words": list(rule.words)} if rule.axis else {}),
                "severity": rule.severity,
                "tone": rule.tone,
            }
            for rule in self.severity_rules
        ]
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **plain,
            "severity_rules": rules,
            "read_as": _nested(self.read_as),
            **{name: dict(getattr(self, name)) for name in _PAIRS},
            "limits": _nested(self.limits),
        }

    def replace(self, **changes: Any) -> Policy:
        """A copy of this policy with other values in the named fields.

        Parameters
        ----------
        **changes
            Fields of `Policy`. ``stalled_after_s``, ``signs``, ``read_as`` and ``limits`` given as
            mappings are merged into the existing values; without ``version`` the new one is the
            base's and a digest of the content.

        Raises
        ------
        ArgumentError
            If a field is unknown or its value makes no sense.

        Examples
        --------
        >>> Policy.v1().replace(stalled_after_s={"agent": 7200}).stalled_after("play")
        21600.0
        """
        fields = [field.name for field in dataclasses.fields(self)]
        if unknown := [name for name in changes if name not in fields]:
            raise ArgumentError(
                f"A policy has no field {unknown[0]!r}; it has {', '.join(fields)}.",
                "drop it or spell it as above" + did_you_mean(unknown[0], fields),
            )
        layered = {
            name: laid_over(name, getattr(self, name), changes[name])
            for name in LAYERED
            if isinstance(changes.get(name), Mapping)
        }
        changed = dataclasses.replace(self, **{**changes, **layered})
        if "version" in changes or changed == self:
            return changed
        base = self.version.partition("+")[0]
        restored = Policy.named(base) if base in NAMES else None
        if restored is not None and dataclasses.replace(changed, version=base) == restored:
            return restored
        return dataclasses.replace(changed, version=f"{base}+{changed._digest()}")

    def stalled_after(self, kind: str | None) -> float:
        """Seconds of silence after which running work of this kind is stalled."""
        return dict(self.stalled_after_s).get(kind or "", self.stalled_after_default_s)

    def limit(self, system: str, name: str) -> float | None:
        """A limit of a system's open work; None where the system has none of that name.

        Examples
        --------
        >>> Policy.v1().limit("a system without limits", "stalled_after_s") is None
        True
        """
        chosen = {(owner, limit): value for owner, limit, value in self.limits}
        return chosen.get((system, name), limits_of_systems().get(system, {}).get(name))

    def words(self, axis: str) -> tuple[str, ...]:
        """The distinct words of an axis that the cascade names, in its order."""
        named = (word for rule in self.severity_rules if rule.axis == axis for word in rule.words)
        return tuple(dict.fromkeys(named))

    def status_read(self, entity_type: str, raw_status: str | None) -> str | None:
        """The status that a stored one is read as; itself, unless ``read_as`` names it."""
        stored = NULL if raw_status is None else (raw_status or EMPTY)
        for owner, word, as_if in self.read_as:
            if (owner, word) == (entity_type, stored):
                return as_if
        return raw_status

    def _digest(self) -> str:
        # The effective limits are included, because a release that changes one changes states.
        limits = {
            system: {name: self.limit(system, name) for name in own}
            for system, own in limits_of_systems().items()
        }
        content = {**self.to_dict(), "limits": limits}
        del content["version"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _nested(triples: Iterable[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    """Triples as a mapping of mappings."""
    nested: dict[str, dict[str, Any]] = {}
    for first, second, value in triples:
        nested.setdefault(first, {})[second] = value
    return nested


_SUCH_AS = 'policy=Policy.named("operator"), or one of your own from Policy.v1().replace(…)'


def checked_policy(policy: object) -> Policy:
    """The policy that a caller gave, or v1 for None; anything else is an error."""
    chosen = Policy.v1() if policy is None else policy
    if not isinstance(chosen, Policy):
        raise ArgumentError(f"policy needs a Policy; found {in_short(chosen)}.", _SUCH_AS)
    return chosen


NAMES = ("v1", "adr0025", "operator", "parity")

_PARSERS: Mapping[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".json": json.loads}
