"""A rule that calls work stale, stuck, slow or dead, and its entry in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, NamedTuple, TypeAlias

import polars as pl

from stateanalytics.core.package_tables import package_table
from stateanalytics.core.words import how_long
from stateanalytics.errors import ArgumentError, did_you_mean, in_short

CONSTRUCTS: Mapping[str, str] = {
    "silence": "how long ago the last sign of life was",
    "elapsed": "how long ago it started",
    "write": "how long ago its row was last written, by anyone",
    "liveness": "whether its process is alive",
    "lock": "whether lock files are left",
    "count": "how often something happened",
    "schedule": "whether a planned fire happened",
    "verdict": "which words are stored, or what other rules answered",
}
"""What a rule measures; rules of different constructs answer different questions."""

QUESTIONS = ("stale", "stuck", "slow", "dead", "attention", "overdue", "degraded", "waiting")
COMPARISONS = (">", ">=")
LIVENESS: Mapping[str, str] = {
    "not asked": "it does not ask whether the process is alive",
    "assumed": "it assumes that every process is alive",
    "unknown is dead": "a process that was not checked counts as dead",
    "unknown stays unknown": "a process that was not checked is judged by its silence",
}
RESTARTS = ("message", "activity", "report", "start", "creation")
"""What resets the clock of a rule, where it is recorded as it happens."""


def limits_by_kind(limits: Mapping[str, float]) -> str:
    """Limits by kind of work as text, the default first.

    Examples
    --------
    >>> limits_by_kind({"default": 21600, "flow": 43200, "fanout": 43200})
    '6 h; flow, fanout 12 h'
    """
    default = limits["default"]
    kinds: dict[float, list[str]] = {}
    for kind, limit in limits.items():
        if limit != default:
            kinds.setdefault(limit, []).append(kind)
    own = (f"{', '.join(names)} {how_long(limit)}" for limit, names in kinds.items())
    return "; ".join((how_long(default), *own))


Limits: TypeAlias = float | Mapping[str, float]
Classifier: TypeAlias = Callable[[pl.DataFrame, Limits | None], pl.Series]


@dataclass(frozen=True)
class Entry:
    """The texts of a rule in the catalogue.

    Attributes
    ----------
    known_as, family : str
        Its number, and the catalogue that numbers it.
    origin, page : str
        Where it is in the code of its system, and the page that shows it.
    since, until : str
        The first release with it, and the last; empty: it is current.
    clock : str
        The clock that it reads.
    scope_words, rule, limits : str
        The rows that it covers, the rule and, where they are an expression, its limits, as
        text.
    version_of : str
        The rule of which it is a version; two versions never existed in the same release.
    is_chosen : bool
        Whether it is evaluated by default while it is current: one of the rules that answer
        the same question on a page.
    """

    known_as: str = ""
    family: str = "yours"
    origin: str = ""
    page: str = ""
    since: str = ""
    until: str = ""
    clock: str = "the reader's"
    scope_words: str = ""
    rule: str = ""
    limits: str = ""
    version_of: str = ""
    is_chosen: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class Detector:
    """One rule: what it measures, when it fires, and where it comes from.

    Parameters
    ----------
    name : str
        Its name in tables and charts.
    measures : str or tuple of str, optional
        The column that it compares with its threshold; of several, the first that is not
        null in a row.
    comparison : {">", ">="}
        Whether it fires above its threshold, or already at it.
    threshold_s : float, mapping of str to float, or polars.Expr, optional
        Seconds; by kind of work with a ``default``; or an expression over the features.
    upper_s : float, optional
        It fires only (strictly) below this.
    counts_never : bool
        Whether a row without any of ``measures`` exceeds the limit.
    when : polars.Expr, optional
        A further condition of the comparison; null counts as false.
    also : polars.Expr, optional
        A condition that makes it fire whatever it measured; null counts as false.
    fires : polars.Expr, optional
        The whole rule as a Boolean over the features, where it is no comparison.
    classify : callable, optional
        Rows and ``threshold_s`` → a word for each row, where the rule is a classifier;
        it fires where the word is in ``bad``, and its limits are seconds.
    bad : tuple of str
        The classifier's words that ask for attention.
    scope : polars.Expr, optional
        The rows that it covers; all by default.
    label : str or polars.Expr
        The word that people see.
    entity_types : tuple of str
        The types of entities that it covers.
    system : str, optional
        The system that it covers; None: all.
    inputs : tuple of str, optional
        The columns that it reads; by default those of its expressions. It does not cover a
        source in which one of them has no value.
    construct, question, liveness : str
        One of `CONSTRUCTS`, `QUESTIONS`, `LIVENESS`.
    restarts_on : str, optional
        One of `RESTARTS`, where its alarms can be computed for the whole history.
    listed_s : float, optional
        How long after its start a page lists running work; ``scope`` has the same limit at
        one instant.
    population : polars.Expr, optional
        The part of ``scope`` that never changes for an entity, for alarms over history.
    entry : Entry
        Its number, place and texts in a catalogue.
    why_not : str
        Why it cannot be evaluated from data alone; empty where it can.

    Raises
    ------
    ArgumentError
        If it has no rule, or one of its words is not known.

    Examples
    --------
    >>> quiet = Detector("quiet_20m", measures="silence_s", threshold_s=1200.0,
    ...                  scope=pl.col("status") == "running")
    >>> quiet
    Detector 'quiet_20m': silence_s > 1200 s
    >>> Detector("chatty", fires=pl.col("n_messages") > 500).reads
    ('n_messages',)
    """

    name: str
    _: KW_ONLY
    measures: str | tuple[str, ...] = ()
    comparison: str = ">"
    threshold_s: Limits | pl.Expr | None = None
    upper_s: float | None = None
    counts_never: bool = False
    when: pl.Expr | None = None
    also: pl.Expr | None = None
    fires: pl.Expr | None = None
    classify: Classifier | None = None
    bad: tuple[str, ...] = ()
    scope: pl.Expr | None = None
    label: str | pl.Expr = ""
    entity_types: tuple[str, ...] = ("session",)
    system: str | None = None
    inputs: tuple[str, ...] = ()
    construct: str = "verdict"
    question: str = "attention"
    liveness: str = "not asked"
    restarts_on: str | None = None
    listed_s: float | None = None
    population: pl.Expr | None = None
    why_not: str = ""
    entry: Entry = Entry()

    def __post_init__(self) -> None:
        check(self)
        if self.fires is None and self.construct == "verdict" and self.compares:
            construct = _CONSTRUCT_OF.get(self.compares[0], "silence")
            object.__setattr__(self, "construct", construct)

    @property
    def is_offline(self) -> bool:
        """Whether it can be evaluated from data alone."""
        return not self.why_not

    @property
    def is_default(self) -> bool:
        """Whether it is evaluated by default."""
        return self.is_offline and not self.entry.until and self.entry.is_chosen

    @property
    def compares(self) -> tuple[str, ...]:
        """The columns that it compares; of several, the first that is not null in a row."""
        return (self.measures,) if isinstance(self.measures, str) else self.measures

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return self.inputs or _columns_of(self)

    @property
    def title(self) -> str:
        """Its label, page and first release: ``stuck (dashboard, 0.26.1)``; else its name."""
        at = ", ".join(filter(None, (self.entry.page, self.entry.since)))
        return f"{self.one_label or self.question} ({at})" if at else self.name

    @property
    def word(self) -> str:
        """The column with the classifier's word."""
        return f"word_{self.name}"

    @property
    def one_label(self) -> str | None:
        """The word that people see; None where there are several, or none is known."""
        return self.label if isinstance(self.label, str) and self.label else None

    def threshold(self) -> pl.Expr:
        """The limit of each row in seconds; null where there is none."""
        if isinstance(self.threshold_s, pl.Expr):
            return self.threshold_s.cast(pl.Float64)
        if isinstance(self.threshold_s, Mapping):
            default = float(self.threshold_s["default"])
            own = {kind: float(s) for kind, s in self.threshold_s.items() if kind != "default"}
            if own:
                kind = pl.col("kind")
                return kind.replace_strict(own, default=default, return_dtype=pl.Float64)
            return pl.lit(default)
        return pl.lit(self.threshold_s, dtype=pl.Float64)

    def measured(self) -> pl.Expr:
        """The measured seconds of each row; null where they are not known."""
        if not self.compares:
            return pl.lit(None, dtype=pl.Float64)
        return pl.coalesce(pl.col(name).cast(pl.Float64) for name in self.compares)

    def verdict(self) -> pl.Expr:
        """Whether it fires in each row; never null."""
        if self.fires is not None:
            return self.fires.fill_null(value=False)
        if self.classify is not None:
            return pl.col(self.word).is_in(self.bad).fill_null(value=False)
        value, limit = self.measured(), self.threshold()
        over = value > limit if self.comparison == ">" else value >= limit
        if self.upper_s is not None:
            over = over & (value < self.upper_s)
        over = over.fill_null(value=self.counts_never)
        if self.also is not None:
            over = over | self.also.fill_null(value=False)
        return over if self.when is None else over & self.when.fill_null(value=False)

    def threshold_words(self) -> str:
        """The limits as text."""
        if self.entry.limits or isinstance(self.threshold_s, pl.Expr):
            return self.entry.limits or "depends on the row"
        if isinstance(self.threshold_s, Mapping):
            return limits_by_kind(self.threshold_s)
        if self.threshold_s is None:
            return ""
        upper = "" if self.upper_s is None else f" to {how_long(self.upper_s)}"
        return how_long(self.threshold_s) + upper

    def __repr__(self) -> str:
        if self.why_not:
            return f"Detector {self.name!r}: cannot be evaluated, {self.why_not}"
        if not self.compares:
            return f"Detector {self.name!r}: {self.entry.rule or self.construct}"
        limit = (
            f"{self.threshold_s:g} s"
            if isinstance(self.threshold_s, int | float)
            else self.threshold_words()
        )
        return f"Detector {self.name!r}: {', else '.join(self.compares)} {self.comparison} {limit}"


def catalogued(name: str, **words: Any) -> Detector:
    """A detector with its catalogue entry, from the fields of both.

    Examples
    --------
    >>> catalogued("silent", known_as="Z9", measures="silence_s", threshold_s=60.0).entry.known_as
    'Z9'
    """
    texts = {field.name: words.pop(field.name) for field in fields(Entry) if field.name in words}
    return Detector(name, entry=Entry(**texts), **words)


class _Listed(NamedTuple):
    """A row of a catalogue; an empty text means the default of `Detector` or `Entry`."""

    name: str
    known_as: str = ""
    family: str = ""
    entity_types: tuple[str, ...] = ()
    question: Annotated[str, ("", *QUESTIONS)] = ""
    construct: Annotated[str, ("", *CONSTRUCTS)] = ""
    liveness: Annotated[str, ("", *LIVENESS)] = ""
    restarts_on: Annotated[str, ("", *RESTARTS)] = ""
    label: str = ""
    rule: str = ""
    scope_words: str = ""
    limits: str = ""
    why_not: str = ""
    page: str = ""
    origin: str = ""
    since: str = ""
    until: str = ""
    clock: str = ""
    version_of: str = ""
    is_default: bool = True
    measures: tuple[str, ...] = ()
    comparison: Annotated[str, ("", *COMPARISONS)] = ""
    threshold_s: float | None = None
    upper_s: float | None = None
    listed_s: float | None = None
    counts_never: bool = False
    bad: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def catalogue(package: str, rules: Mapping[str, Mapping[str, Any]]) -> tuple[Detector, ...]:
    """The detectors of ``data/detectors.csv`` in a package, in the order of its rows.

    Parameters
    ----------
    package : str
        The package of a system, whose last part is the system's name.
    rules : mapping of str to mapping
        By name: the fields of a detector that are code; those that cannot be evaluated from
        data (``why_not``) have none.

    Raises
    ------
    ArgumentError
        If a rule has no row, or a cell no value of its type; see `package_table`.
    """
    rows = package_table(package, "detectors.csv", _Listed)
    if unlisted := sorted(rules.keys() - {row.name for row in rows}):
        raise ArgumentError(
            f"The catalogue of {package!r} has no row for the rules {unlisted[:3]}.",
            "add them to its data/detectors.csv",
        )
    system = package.rpartition(".")[-1]
    given = [
        {name: value for name, value in row._asdict().items() if value not in ("", (), None)}
        for row in rows
    ]
    merged = [{**words, **rules.get(words["name"], {})} for words in given]
    return tuple(
        catalogued(is_chosen=words.pop("is_default"), **words, system=system) for words in merged
    )


_CONSTRUCT_OF = {
    "started_age_s": "elapsed",
    "elapsed_s": "elapsed",
    "elapsed_whole_s": "elapsed",
    "created_age_s": "elapsed",
    "updated_age_s": "write",
    "touched_age_s": "write",
}


def _columns_of(detector: Detector) -> tuple[str, ...]:
    expressions = [
        *(detector.fires, detector.when, detector.also, detector.scope),
        *(detector.label, detector.threshold_s),
    ]
    named = [
        name
        for expression in expressions
        if isinstance(expression, pl.Expr)
        for name in expression.meta.root_names()
    ]
    by_kind = ["kind"] if isinstance(detector.threshold_s, Mapping) else []
    return tuple(dict.fromkeys([*detector.compares, *named, *by_kind]))


def check(detector: Detector) -> None:
    """Refuse a detector that cannot work, with a hint of what to type.

    Raises
    ------
    ArgumentError
        If it has no name, no rule or two rules, or an unknown word or a wrong limit.
    """
    if not isinstance(detector.name, str) or not detector.name.strip():
        raise ArgumentError(
            f"A detector needs a name; found {in_short(detector.name)}.",
            'sa.detectors.Detector("quiet_20m", …)',
        )
    for what, known in (
        ("comparison", COMPARISONS),
        ("construct", tuple(CONSTRUCTS)),
        ("question", QUESTIONS),
        ("liveness", tuple(LIVENESS)),
        ("restarts_on", (*RESTARTS, None)),
    ):
        word = getattr(detector, what)
        if word not in known:
            shown = ", ".join(repr(choice) for choice in known if choice is not None)
            raise ArgumentError(
                f"{what} of detector {detector.name!r} needs one of {shown}; "
                f"found {in_short(word)}.",
                "use one of these"
                + did_you_mean(str(word), [choice for choice in known if choice]),
            )
    if detector.why_not:
        return
    is_compared = bool(detector.compares) and detector.threshold_s is not None
    if detector.fires is None and detector.classify is None and not is_compared:
        raise ArgumentError(
            f"Detector {detector.name!r} has no rule.",
            'give measures="silence_s", threshold_s=1200, or fires=pl.col("n_messages") > 500',
        )
    if detector.fires is not None and detector.threshold_s is not None:
        raise ArgumentError(
            f"Detector {detector.name!r} has a complete rule and a threshold that it does not use.",
            "give measures and threshold_s, with further conditions in also=…; or only fires",
        )
    _check_limits(detector)


def _check_limits(detector: Detector) -> None:
    limits = detector.threshold_s
    if limits is None:
        return
    if isinstance(limits, pl.Expr):
        if detector.classify is not None:
            raise ArgumentError(
                f"The classifier of {detector.name!r} needs limits in seconds; found {limits}.",
                'such as threshold_s=1200, or {"flow": 43200, "default": 21600}',
            )
        return
    if isinstance(limits, Mapping) and "default" not in limits:
        raise ArgumentError(
            f"The thresholds of {detector.name!r} lack a 'default'; found {sorted(limits)}.",
            'such as threshold_s={"flow": 43200, "default": 21600}',
        )
    for value in limits.values() if isinstance(limits, Mapping) else (limits,):
        if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
            raise ArgumentError(
                f"The threshold of {detector.name!r} needs seconds, zero or more; "
                f"found {in_short(value)}.",
                "such as threshold_s=1200",
            )
