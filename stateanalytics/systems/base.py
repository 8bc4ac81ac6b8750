"""The protocol that a system implements: one declarative value per system.

A `System` is defined in ``systems/<name>/__init__.py``, or in a package of somebody else's,
and names only what it has. What costs an import (readers, detectors, features) is a
function, so that nothing of a system is loaded before it is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stateanalytics.core.package_tables import package_table
from stateanalytics.core.vocabulary import ReasonCode, StatusWord

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts, Past
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.cells import Cell
    from stateanalytics.io.parts import Parts
    from stateanalytics.io.processes import Process
    from stateanalytics.io.sqlite import Store
    from stateanalytics.systems.detector import Detector

Mistake = Literal["false_alarm", "lost_run"]

OTHER = "other"
"""Stands for every kind of work that has no value of its own."""

NO_NAME = re.compile("(?!)")
"""Matches nothing."""

NO_SETTING = "no setting"
"""Prefix of the place of a threshold that its system does not have."""


def expanded(text: str) -> Path:
    """A path with ``~`` expanded, unless a file has that name or no user has."""
    path = Path(text)
    try:
        return path if text.startswith("~") and path.exists() else path.expanduser()
    except (OSError, RuntimeError):
        return path


def nothing(*_args: object, **_options: object) -> tuple[()]:
    """An empty tuple: the default of functions of a `System` that return several things."""
    return ()


def when_called(package: str, name: str) -> Callable[..., Any]:
    """A function of a package, by ``module:function``, imported when it is called."""
    module, _, function = name.partition(":")

    def called(*values: object, **options: object) -> Any:
        return getattr(import_module(f"{package}.{module}"), function)(*values, **options)

    return called


def no_kinds(_path: Path) -> Mapping[str, int]:
    """No files, by kind: the default where a system leaves no other files near its inputs."""
    return {}


def no_text(*_args: object) -> str:
    """An empty text: the default where a system has no text of its own."""
    return ""


@dataclass(frozen=True, kw_only=True)
class Stores:
    """How a system's SQLite databases are recognised and read.

    Attributes
    ----------
    recognises : callable
        ``recognises(store) -> bool``, by the tables that there are.
    read : callable
        ``read(store, *, bodies, before) -> Parts``; ``before`` is what an earlier read of
        the same store kept in `Parts.kept`, or None.
    read_uncached : callable, optional
        ``read_uncached(store, *, bodies, before) -> Parts``: the same, where a read that keeps
        nothing for the next one takes less memory.
    needs : str
        What it is recognised by, as text: ``tables 'a' and 'b'``; empty: not shown.
    lies_at : tuple of str
        Paths of a store inside of a directory that a user names, most likely first.
    companions : callable
        ``companions(path) -> paths`` of files and directories that are read along with a store.
    unread_kinds : callable
        ``unread_kinds(path)``: how many files of each kind lie near a store, are the system's
        own and are not read; see `omissions.kinds_of_files`.
    """

    recognises: Callable[[Store], bool]
    read: Callable[..., Parts]
    needs: str = ""
    lies_at: tuple[str, ...] = ()
    companions: Callable[[Path], Iterable[Path]] = nothing
    unread_kinds: Callable[[Path], Mapping[str, int]] = no_kinds
    read_uncached: Callable[..., Parts] | None = None


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Which tables of a system's databases are read; any other table with rows is a finding.

    Attributes
    ----------
    read : mapping
        Each table that is read, with its columns.
    ignored : tuple of str
        Tables that are not read on purpose, as they record no work: settings, caches,
        the system's own notes on its schema.
    version : tuple of str and Cell, optional
        A table and a cell: the greatest value of the cell is the version of the schema.
    newest : int or str
        The newest version that the reader was checked on.
    in_words : callable, optional
        ``in_words(tables) -> str``: the version, inferred from the tables and columns that
        exist, where that is more exact.
    """

    read: Mapping[str, Collection[str]]
    ignored: tuple[str, ...] = ()
    version: tuple[str, Cell] | None = None
    newest: Any = None
    in_words: Callable[[Mapping[str, Collection[str]]], str] | None = None


def stores_of(facts: Facts, source: str) -> list[Store]:
    """The open stores of a snapshot that an input is read from; facts alone have none."""
    stores: tuple[Store, ...] = getattr(facts, "stores", ())
    return [store for store in stores if store.label == source and store.is_open]


@dataclass(frozen=True, kw_only=True)
class Files:
    """How a system's files and directories are found and read.

    Attributes
    ----------
    find : callable
        ``find(path) -> list of Path``: the inputs of this system at a path; empty where there
        are none. It looks at names and the beginnings of files only.
    never : re.Pattern
        Names that no file of this system has: such a file is not shown to ``find``.
    read : callable
        ``read(path, *, label, bodies, on_error, before) -> Parts`` of one path that
        ``find`` gave.
    read_many : callable, optional
        ``read_many(paths, *, labels, bodies, on_error)``: an iterator of the `Parts` of each
        path, where reading many together is faster. Not used for an installed system, so
        that one path that fails costs no other.
    companions : callable
        ``companions(path) -> paths`` of files and directories that are read along with one.
    opens : callable, optional
        ``opens(path) -> paths`` (or texts) of all that `read` opens, where that is less than
        everything in the directory.
    skips : tuple of str
        Names of directories in which no unread files are looked for: those that are read
        whole, and those of other programs. Every other kind of files is a finding, where
        ``opens`` or `Parts.opened` says what was read.
    unread_kinds : callable
        ``unread_kinds(path)``: as for `Stores`, near an input that is a single file.
    version : callable
        ``version(path) -> str``: of its format; empty: not known.
    version_key : str
        The key of a record that holds the version of its program.
    evidence : callable, optional
        ``evidence(path) -> bool``: whether this system wrote a file, judged by its beginning.
        Where several systems find something in one directory, the one with the most such
        files reads it; a database counts as one, so that a single foreign one never
        outweighs others. None: each input that `find` gave counts.
    processes : callable
        ``processes(path)``: the `io.processes.Process` values that its programs recorded for
        an input; called only with ``probe=True``.
    ignored : tuple of str
        Names of directories of the system's own that hold no records of work: caches, file
        history, plug-ins. Their files are counted as not read, yet never as missing.
    """

    find: Callable[[Path], list[Path]]
    read: Callable[..., Parts]
    never: re.Pattern[str] = NO_NAME
    read_many: Callable[..., Iterator[Parts]] | None = None
    companions: Callable[[Path], Iterable[Path]] = nothing
    opens: Callable[[Path], Iterable[str | Path]] | None = None
    skips: tuple[str, ...] = ()
    unread_kinds: Callable[[Path], Mapping[str, int]] = no_kinds
    version: Callable[[Path], str] = no_text
    version_key: str = ""
    evidence: Callable[[Path], bool] | None = None
    processes: Callable[[Path], Iterable[Process]] = nothing
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Features:
    """The columns that only this system's detectors read.

    Attributes
    ----------
    columns : mapping of str to str
        Each column, and what it means; ages in seconds.
    add : callable
        ``add(rows, past) -> rows`` with those columns: entities of this system with the
        ages that all systems share, and the facts at the instant (`core.facts.Past`).
    lost_of : mapping of str to tuple of str
        What a column's past value depends on: words of `history.LOST`, or of Boolean columns
        ``lost_<word>`` that ``add`` makes.
    """

    columns: Mapping[str, str]
    add: Callable[..., pl.DataFrame]
    lost_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class _Feature(NamedTuple):
    """A row of ``data/features.csv``; without a meaning it is no column, but may be lost."""

    name: str
    meaning: str
    lost_of: tuple[str, ...] = ()
    column: str = ""


def features_from_csv(package: str, add: Callable[..., pl.DataFrame]) -> Features:
    """The columns of ``data/features.csv`` in a package, with what adds them."""
    rows = package_table(package, "features.csv", _Feature)
    return Features(
        columns={row.name: row.meaning for row in rows if row.meaning},
        add=add,
        lost_of={row.name: row.lost_of for row in rows if row.lost_of},
    )


@dataclass(frozen=True)
class Constant:
    """One threshold that somebody chose: its name, where it is set, and its value.

    Attributes
    ----------
    name : str
        Our name of it; unique.
    system : str
        The system that has it.
    place : str
        The file that sets it, or ``environment``, or who else sets it.
    path : tuple of str
        Its name there, from the outside in.
    today_s : float or None
        Today's value in seconds; None: not set.
    meaning : str
        What happens if it is exceeded.
    evidence : str
        Which durations judge it: ``silences`` (between signs of life), ``runs`` (their elapsed
        time), or a key of its system's `Thresholds.evidence`.
    unit : str
        The unit that its setting has: s, ms, h, duration, polls.
    kind : str or None
        The kind of work that it applies to; `OTHER`; None: every kind.
    mistake : {"false_alarm", "lost_run"}
        What it costs when it hits a healthy run: a look, or the run.
    at_least : bool
        Whether a duration of exactly this length exceeds it.
    policy_field : str or None
        The field of `Policy` that holds it.
    is_configurable : bool
        Whether users can set it without changing code.
    is_mixed : bool
        Whether runs have several values of it, of which today's is the most common.
    other_kinds : tuple of str
        For the kind ``other``: the kinds that it does not apply to.
    """

    name: str
    system: str
    place: str
    path: tuple[str, ...]
    today_s: float | None
    meaning: str
    evidence: str
    unit: str = "s"
    kind: str | None = None
    mistake: Mistake = "false_alarm"
    at_least: bool = False
    policy_field: str | None = None
    is_configurable: bool = False
    is_mixed: bool = False
    other_kinds: tuple[str, ...] = ()

    @property
    def setting(self) -> str:
        """Its name where it is set."""
        return ".".join(self.path)

    @property
    def prob(self) -> float:
        """The quantile of healthy durations that it is compared with.

        0.95 where a person only looks, 0.99 where runs are closed.
        """
        return 0.99 if self.mistake == "lost_run" else 0.95

    @property
    def is_of_silence(self) -> bool:
        """Whether silences judge it; all others are judged by elapsed time."""
        return self.evidence in ("silences", "reports")

    @property
    def is_there(self) -> bool:
        """Whether its system has this threshold; advice may ask for a new one."""
        return not self.place.startswith(NO_SETTING)


def constants_from_csv(package: str, policy: Any = None) -> list[Constant]:
    """The constants of ``data/constants.csv`` in a package, with the values of a policy.

    Parameters
    ----------
    package : str
        The package of a system.
    policy : state.policy.Policy, optional
        Has today's values of constants with a ``policy_field``; without it they have none.
    """

    def today_s(row: Constant) -> Any:
        if row.policy_field is None or policy is None:
            return row.today_s
        if row.policy_field == "limits":
            return policy.limit(*row.path[1:])
        if row.policy_field == "stalled_after_s":
            return policy.stalled_after(row.kind)
        return getattr(policy, row.policy_field)

    rows = package_table(package, "constants.csv", Constant)
    return [replace(row, today_s=today_s(row)) for row in rows]


def today_s_of(package: str) -> dict[str, float]:
    """Today's values by the names of constants, of those that no policy holds."""
    rows = constants_from_csv(package)
    return {row.name: row.today_s for row in rows if row.today_s is not None}


@dataclass(frozen=True, kw_only=True)
class Ends:
    """How a system records ends: by which statuses, by which writers, and what they prove.

    Attributes
    ----------
    statuses : mapping of str to str
        Statuses of transitions after which a session does not work, each with its outcome;
        empty: it works while *running*, and the terminal words of the vocabulary end it.
    own_writers : tuple of str
        Writers of transitions whose ends are the run's own, so that their time is exact.
    death_codes, death_messages : tuple of str
        Reasons of an observer that looked for the process and did not find it. Sweeps by
        age alone, and people who kill runs, do not prove that the work had died.
    failure_codes : tuple of str
        Reasons of aborted work that the system calls failed, such as a session that died.
        What failed or timed out is a failure whatever its reason.
    are_unsigned_own : bool
        Whether the run itself wrote the ends that have no writer.
    never_there : callable or None
        ``never_there(facts)``: keys of entities whose store has no field for an end.
    of_attempts : callable or None
        ``of_attempts(facts) -> frame`` of ends after which the same run was resumed, where
        transitions do not record them: the key, ``ended_at``, ``resumed_at``,
        ``last_sign_at``, ``outcome``, ``raw_status``, ``reason_code``, ``reason_message``,
        ``end_written_by``.
    of_silences : callable or None
        ``of_silences(facts) -> frame`` of ends of sessions that may have been resumed:
        ``source``, ``system``, ``entity_id``, ``at``, and ``boundary``: crash (noticed when
        work starts again), own_end or other_end.
    """

    statuses: Mapping[str, str] = field(default_factory=dict)
    own_writers: tuple[str, ...] = ("executor",)
    death_codes: tuple[str, ...] = ()
    death_messages: tuple[str, ...] = ()
    failure_codes: tuple[str, ...] = ()
    are_unsigned_own: bool = False
    never_there: Callable[[Facts], pl.DataFrame] | None = None
    of_attempts: Callable[[Facts], pl.DataFrame] | None = None
    of_silences: Callable[[Facts], pl.DataFrame] | None = None


@dataclass(frozen=True, kw_only=True)
class Home:
    """Where a system's records lie when a user names no path.

    Attributes
    ----------
    usual_places : callable
        ``usual_places(environment, home) -> paths``, most likely first.
    variable : str
        The environment variable that sets that place, for messages; empty: none.
    """

    usual_places: Callable[[Mapping[str, str], Path], Iterable[Path]] = nothing
    variable: str = ""


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the words that a system stores mean.

    Attributes
    ----------
    vocabulary : tuple of StatusWord
        Each stored status with its lifecycle and outcome. Empty where the system's reader
        fills the canonical columns itself.
    reason_codes : callable
        The `ReasonCode` values that it writes or that its errors are mapped to.
    are_codes_closed : bool
        Whether the audit reports a stored code outside of ``reason_codes``.
    working_states : mapping of str to str
        Statuses of transitions, and kinds of events, during which open work does not run:
        each with queued, waiting (for a person), blocked, retrying or stalled.
    log_kinds : str
        A pattern for kinds of events that a timeline leaves out, because they are a log's own or
        say what its other rows say; by default none.
    """

    vocabulary: tuple[StatusWord, ...] = ()
    reason_codes: Callable[[], Iterable[ReasonCode]] = nothing
    are_codes_closed: bool = False
    working_states: Mapping[str, str] = field(default_factory=dict)
    log_kinds: str = "^$"


@dataclass(frozen=True, kw_only=True)
class Runs:
    """What counts as one run of a system.

    Attributes
    ----------
    meaning : str
        What counts as one run, in a sentence for readers of a report.
    failure_meaning : str
        What else than *failed* and *timed out* counts as a failure, in a sentence; empty:
        nothing.
    entity_type : str
        The entity type that works without a person in between.
    part_types : tuple of str
        Types of which every row is part of another entity and not counted by itself.
    repeated_type : str or None
        The type of which the last row of a session repeats the session.
    stop : str
        How a person stops one of its runs, such as ``li kill`` and its id; empty: not known.
    texts : callable, optional
        ``texts(facts, entity)`` gives the messages of a session: ``at``, ``role``, ``text``.
    calls : callable, optional
        ``calls(facts)`` gives the calls of tools in the shape of `schema.CALLS`, for example by
        `systems.tool_calls.calls_from`.
    turns : callable, optional
        ``turns(facts)`` gives the turns in the shape of `schema.TURNS`.
    """

    meaning: str = "A run is a session."
    failure_meaning: str = ""
    entity_type: str = "session"
    part_types: tuple[str, ...] = ()
    repeated_type: str | None = None
    stop: str = ""
    texts: Callable[[Facts, Mapping[str, Any]], pl.DataFrame] | None = None
    calls: Callable[[Facts], pl.DataFrame] | None = None
    turns: Callable[[Facts], pl.DataFrame] | None = None


@dataclass(frozen=True, kw_only=True)
class Links:
    """How the sessions of a system belong to those of others: see `linking.links`.

    Attributes
    ----------
    drives_agents : bool
        Whether its sessions run agents that write transcripts of their own, so that the same
        work may be recorded twice.
    shares_directories : bool
        Whether people work in the same directories, so that not every transcript with the
        directory and time of a session belongs to it.
    """

    drives_agents: bool = False
    shares_directories: bool = False


@dataclass(frozen=True, kw_only=True)
class Detecting:
    """The detectors of a system.

    Attributes
    ----------
    detectors : sequence of Detector
        All of its detectors.
    releases : tuple of str
        The releases that ``since`` and ``until`` of its detectors name, oldest first, for
        ``system@version``.
    features : Features or None
        Columns of its own; None where those that all systems share are enough.
    """

    detectors: Sequence[Detector] = ()
    releases: tuple[str, ...] = ()
    features: Features | None = None


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The thresholds of a system, and what judges them.

    Attributes
    ----------
    constants : callable
        ``constants(policy)``: its `Constant` values, with today's values under a
        `state.policy.Policy`.
    kind_constants : callable
        ``kind_constants(policy, kinds)``: further ones by kind of work: ``kinds`` has
        ``kind``, ``limit_s`` (the most common time limit, null: none), ``is_inferred`` (not
        recorded, but many runs end there) and ``is_mixed`` (many runs have other limits).
    evidence : mapping of str to callable
        Further durations that judge constants: ``evidence(facts, gaps) -> polars.DataFrame``
        in the shape of `thresholds.evidence.SILENCES` or ``RUNS``.
    """

    constants: Callable[[Any], Sequence[Constant]] = nothing
    kind_constants: Callable[[Any, pl.DataFrame], Sequence[Constant]] = nothing
    evidence: Mapping[str, Callable[[Facts, pl.DataFrame], pl.DataFrame]] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class Auditing:
    """What a system's own rules say about its records.

    Attributes
    ----------
    checks : sequence of callable
        Checks of its own for contradictions: ``check(cases) -> schema.AUDIT``.
    advice : mapping of str to str
        What to do about a code of the audit (`core.audit.CODES`), where this system has a
        command for it; else the text of the code itself is shown.
    judge_transitions : callable or None
        ``judge_transitions(facts)``: its transitions with ``verdict`` (illegal, override,
        unknown, legal, …), where the system defines which status may follow which.
    phantoms : callable or None
        ``phantoms(facts, states, policy=…)``: the entities that its own reapers would close,
        in the shape of `schema.PHANTOMS`.
    dispositions : Frame or None
        The detail frame of what operators decided about items of the attention list; its
        columns are those of `state.attention.DECISION`.
    """

    checks: Sequence[Callable[..., pl.DataFrame | pl.LazyFrame]] = ()
    advice: Mapping[str, str] = field(default_factory=dict)
    judge_transitions: Callable[[Facts], pl.DataFrame] | None = None
    phantoms: Callable[..., pl.DataFrame] | None = None
    dispositions: Frame | None = None


@dataclass(frozen=True, kw_only=True)
class Rewinding:
    """How an earlier state of a system is read from what it keeps.

    Attributes
    ----------
    history : {"whole", "partial", "derived"}
        Whether all changes of status are rows of ``transitions``, some are, or all are derived from
        events.
    rewind : callable or None
        ``rewind(past, facts) -> past``: past values that only this system can compute, from
        its detail frames, transitions and events up to the instant: see `core.facts.Past`.
        ``past`` holds what transitions and events show for all systems, ``facts`` the
        present.
    rebuilt_sources : callable or None
        ``rebuilt_sources(facts)``: the inputs of which ``rewind`` computes every row, so that
        the shared history skips them.
    is_by_links : bool
        Whether the past values of an entity depend only on entities that it is linked with by
        an id: then work that had ended long before the instant is skipped.
    last_update_is_life : bool
        Whether a write to its row is a sign of life of a session without messages.
    """

    history: Literal["whole", "partial", "derived"] = "partial"
    rewind: Callable[[Past, Facts], Past] | None = None
    rebuilt_sources: Callable[[Facts], pl.Series] | None = None
    is_by_links: bool = False
    last_update_is_life: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class System:
    """One orchestrator: where its records lie, and what they mean.

    Groups that only some questions need are functions, called when they are first asked for,
    so that their imports cost nothing until then.

    Attributes
    ----------
    name : str
        Lower snake; the column ``system`` of every row.
    title : str
        The name as its makers write it.
    home : Home
        Where its records usually lie.
    stores, files : Stores, Files or None
        How its databases, and its files and directories, are read.
    tables : callable, optional
        ``tables() -> Tables``: which tables of its databases are read.
    frames : callable
        The detail frames that it adds to the canonical ones.
    words : Words
        What the words that it stores mean.
    runs : Runs
        What counts as one run.
    ends : Ends
        How it records ends.
    past : Rewinding
        How its past is read.
    links : Links
        How its sessions belong to those of other systems.
    limits : mapping of str to float
        Time limits for its open work, by names of `state.health.LIMITS`. Without any,
        the policy's limits by kind of work apply.
    detecting : callable
        ``detecting() -> Detecting``.
    thresholds : callable
        ``thresholds() -> Thresholds``.
    auditing : callable
        ``auditing() -> Auditing``.
    used_tokens : callable or None
        ``used_tokens(facts)``: tokens by session and model: ``source``, ``entity_id`` and
        some of the other columns of `linking.USED`.
    """

    name: str
    title: str
    home: Home = Home()
    stores: Stores | None = None
    files: Files | None = None
    tables: Callable[[], Tables] | None = None
    frames: Callable[[], Sequence[Frame]] = nothing
    words: Words = Words()
    runs: Runs = Runs()
    ends: Ends = Ends()
    past: Rewinding = Rewinding()
    links: Links = Links()
    limits: Mapping[str, float] = field(default_factory=dict)
    detecting: Callable[[], Detecting] = Detecting
    thresholds: Callable[[], Thresholds] = Thresholds
    auditing: Callable[[], Auditing] = Auditing
    used_tokens: Callable[[Facts], pl.DataFrame] | None = None

    def __repr__(self) -> str:
        return f"System {self.name!r}: {self.title}"


def codes_from_csv(package: str, file: str = "reason_codes.csv") -> tuple[ReasonCode, ...]:
    """The reason codes of a table in the ``data`` folder of a package.

    Parameters
    ----------
    package : str
        The package with the folder.
    file : str
        With a column for each field of `ReasonCode` that differs from its default; lists
        are joined by ``|``.
    """
    return package_table(package, file, ReasonCode)
