"""What a system says of itself: one value that everything else asks.

A `System` is made once, in ``systems/<name>/__init__.py`` or in a package of somebody
else's, and names only what it has. What costs an import (readers, detectors, features) is
a function, so that nothing of a system is loaded before it is needed: see `later`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from stateanalytics.core.package_tables import read_table
from stateanalytics.core.vocabulary import ReasonCode, StatusWord

if TYPE_CHECKING:
    import polars as pl

    from stateanalytics.core.facts import Facts
    from stateanalytics.core.schema import Frame
    from stateanalytics.io.cells import Cell
    from stateanalytics.io.parts import Parts
    from stateanalytics.io.processes import Process
    from stateanalytics.io.sqlite import Store
    from stateanalytics.state.policy import Policy
    from stateanalytics.systems.detector import Detector
    from stateanalytics.systems.history import Past

Mistake = Literal["false_alarm", "lost_run"]

OTHER = "other"
"""In place of a kind: every kind that has no value of its own."""

NO_SETTING = "no setting"
"""Begins the place of a threshold that its system does not tell apart."""


def later(path: str) -> Callable[..., Any]:
    """A function of another module, imported when it is first called.

    Parameters
    ----------
    path : str
        ``package.module:function``.

    Examples
    --------
    >>> later("os.path:basename")("runs/state.db")
    'state.db'
    """

    def called(*args: Any, **options: Any) -> Any:
        module, _, name = path.partition(":")
        return getattr(import_module(module), name)(*args, **options)

    return called


def expanded(text: str) -> Path:
    """A path with ``~`` expanded, unless a file is called so or nobody is."""
    path = Path(text)
    try:
        return path if text.startswith("~") and path.exists() else path.expanduser()
    except (OSError, RuntimeError):
        return path


def nothing(*_args: object, **_options: object) -> tuple[()]:
    """The answer of a system that has none of what is asked for."""
    return ()


def none_unread(_path: Path) -> Mapping[str, int]:
    """The answer of a system beside whose inputs lies nothing of its own."""
    return {}


def nothing_said(*_args: object) -> str:
    """The answer of a system that has no word for what is asked for."""
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
        the same store kept, or None.
    read_once : callable, optional
        ``read_once(store, *, bodies, before) -> Parts``: the same for who keeps nothing for
        another read, where that takes less memory.
    needs : str
        What it is recognised by, for people: ``tables 'a' and 'b'``; empty: not named.
    lies_at : tuple of str
        Where a store lies in a directory that is named, most likely first.
    beside : callable
        ``beside(path) -> paths`` of the files and directories that are read beside a store.
    unread : callable
        ``unread(path)``: kinds of files beside a store that are the system's own and not read,
        each with its number; see `unread.kinds_of_files`.
    """

    recognises: Callable[[Store], bool]
    read: Callable[..., Parts]
    needs: str = ""
    lies_at: tuple[str, ...] = ()
    beside: Callable[[Path], Iterable[Path]] = nothing
    unread: Callable[[Path], Mapping[str, int]] = none_unread
    read_once: Callable[..., Parts] | None = None


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What of a system's databases is read; each other table with rows is a finding.

    Attributes
    ----------
    read : mapping
        Each table that is read, with its columns.
    aside : tuple of str
        Tables that are not read on purpose, as they say nothing of work: settings, caches,
        the system's own notes on its schema.
    version : tuple of str and Cell, optional
        The table whose greatest such cell is the version of the schema.
    newest : int or str
        The newest version that the reader was checked on.
    in_words : callable, optional
        ``in_words(tables) -> str``: the version by the tables and columns that there are,
        where that says more.
    """

    read: Mapping[str, Collection[str]]
    aside: tuple[str, ...] = ()
    version: tuple[str, Cell] | None = None
    newest: Any = None
    in_words: Callable[[Mapping[str, Collection[str]]], str] | None = None


@dataclass(frozen=True, kw_only=True)
class Files:
    """How a system's files and directories are found and read.

    Attributes
    ----------
    find : callable
        ``find(path) -> list of Path``: what of that path to read, one input each; empty
        where it holds nothing of this system. It looks at names and beginnings only.
    read : callable
        ``read(path, *, label, bodies, on_error, before) -> Parts`` of one path that
        ``find`` gave.
    read_many : callable, optional
        ``read_many(paths, *, labels, bodies, on_error)`` gives an iterator of what `read`
        gives of each path, where many are read sooner at once. Of an installed system each
        path is read alone, so that one that fails costs no other.
    beside : callable
        ``beside(path) -> paths`` of the files and directories that are read beside one.
    opens : callable, optional
        ``opens(path) -> paths``, as texts too, of all that `read` opens of one, where that is
        less than the path with all that is in it.
    skips : tuple of str
        Names of directories in it of which no file is looked for that is not read: those that
        are read whole, and those that are anybody's. With them or ``opens``, every other kind
        of files is a finding.
    unread : callable
        ``unread(path)``: kinds of files beside one that is a file, as of `Stores`.
    version : callable
        ``version(path) -> str``: of its format; empty: nothing says.
    version_key : str
        The key of a record that holds the version of its program.
    evidence : callable, optional
        ``evidence(path) -> bool``: whether this system wrote a file, judged by what it begins
        with. Where several systems find something in one directory, the one with the most
        such files reads it; a database counts as one, so that a single foreign one never
        outweighs others. None: each input that `find` gave counts.
    processes : callable
        ``processes(path)``: each `io.processes.Process` that its programs wrote down for one
        that ``find`` gave; asked for only where a person wants processes to be looked for.
    aside : tuple of str
        Names of directories of the system's own that hold no records of work: caches, file
        history, plug-ins. What lies in them is counted as not read, yet never as missing.
    """

    find: Callable[[Path], list[Path]]
    read: Callable[..., Parts]
    read_many: Callable[..., Iterator[Parts]] | None = None
    beside: Callable[[Path], Iterable[Path]] = nothing
    opens: Callable[[Path], Iterable[str | Path]] | None = None
    skips: tuple[str, ...] = ()
    unread: Callable[[Path], Mapping[str, int]] = none_unread
    version: Callable[[Path], str] = nothing_said
    version_key: str = ""
    evidence: Callable[[Path], bool] | None = None
    processes: Callable[[Path], Iterable[Process]] = nothing
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Features:
    """The columns that only this system's detectors read.

    Attributes
    ----------
    columns : mapping of str to str
        Each column, and what it says; ages in seconds.
    add : callable
        ``add(rows, past) -> rows`` with those columns: entities of this system with the
        ages that all share, and the facts at the instant (`history.Past`).
    lost_of : mapping of str to tuple of str
        What a column's value at an earlier instant rests on: words of `history.LOST`, or
        of Boolean columns ``lost_<word>`` that ``add`` makes.
    """

    columns: Mapping[str, str]
    add: Callable[..., pl.DataFrame]
    lost_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Constant:
    """One threshold that somebody once chose: what it is called, where it stands, its value.

    Attributes
    ----------
    name : str
        Ours; unique.
    system : str
        Whose it is.
    place : str
        The file it stands in, or ``environment``, or who else sets it.
    path : tuple of str
        What it is called there, from the outside in.
    today_s : float or None
        Today's value in seconds; None: nobody set one.
    meaning : str
        What happens beyond it.
    evidence : str
        What it is judged by: ``silences`` (between signs of life), ``runs`` (their elapsed
        time), or a key of its system's `System.evidence`.
    unit : str
        How it is written: s, ms, h, duration, polls.
    kind : str or None
        Kind of work it holds for; `OTHER`; None: every kind.
    mistake : {"false_alarm", "lost_run"}
        What it costs when it hits a run that was fine: a look, or the run.
    at_least : bool
        Whether exactly this long is already too long.
    policy_field : str or None
        The field of `Policy` that holds it.
    is_configurable : bool
        Whether users can set it without changing code.
    is_mixed : bool
        Whether work has several values of it, of which today's is the commonest.
    other_kinds : tuple of str
        Of the kind ``other``: the kinds that it does not hold for.
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
        """What it is called where it stands."""
        return ".".join(self.path)

    @property
    def prob(self) -> float:
        """The share of healthy work that its evidence must be able to bound.

        0.95 where a person only looks, 0.99 where runs are closed.
        """
        return 0.99 if self.mistake == "lost_run" else 0.95

    @property
    def is_of_silence(self) -> bool:
        """Whether it is judged by silences; the rest by elapsed time."""
        return self.evidence in ("silences", "reports")

    @property
    def is_there(self) -> bool:
        """Whether its system has this threshold at all; advice may ask for a new one."""
        return not self.place.startswith(NO_SETTING)


@dataclass(frozen=True, kw_only=True)
class Ends:
    """What a system's ends say: which there are, who wrote them, and of what they are no proof.

    Attributes
    ----------
    statuses : mapping of str to str
        Statuses of transitions after which a session does not work, each with its outcome;
        empty: it works while *running*, and the terminal words of the vocabulary end it.
    own_writers : tuple of str
        Writers of transitions whose ends are the run's own: it ended when they say.
    death_codes, death_messages : tuple of str
        Reasons of an observer that looked for the process and did not find it. Sweeps by
        age alone, and people who kill, prove nothing about whether the work had died.
    failure_codes : tuple of str
        Reasons of aborted work that it calls failed: a session that died, say. What failed
        or timed out is a failure whatever its reason.
    are_unsigned_own : bool
        Was an end that nobody signed written by the run itself.
    never_there : callable or None
        ``never_there(facts)``: keys of entities that never had a place for an end.
    of_attempts : callable or None
        ``of_attempts(facts) -> frame`` of ends of runs that the same work went on after,
        where their transitions do not tell: the key, ``ended_at``, ``resumed_at``,
        ``last_sign_at``, ``outcome``, ``raw_status``, ``reason_code``, ``reason_message``,
        ``end_written_by``.
    of_silences : callable or None
        ``of_silences(facts) -> frame`` of ends of sessions that work may have followed:
        ``source``, ``system``, ``entity_id``, ``at``, and ``boundary``: crash (noticed when
        work starts again), own_end or other_end.
    """

    statuses: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    own_writers: tuple[str, ...] = ("executor",)
    death_codes: tuple[str, ...] = ()
    death_messages: tuple[str, ...] = ()
    failure_codes: tuple[str, ...] = ()
    are_unsigned_own: bool = False
    never_there: Callable[[Facts], pl.DataFrame] | None = None
    of_attempts: Callable[[Facts], pl.DataFrame] | None = None
    of_silences: Callable[[Facts], pl.DataFrame] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class System:
    """One orchestrator: where its records lie, what they mean, and what is asked of them.

    Attributes
    ----------
    name : str
        Lower snake; the column ``system`` of every row.
    title : str
        As its own people write it.
    run_is : str
        What counts as one run, in a sentence for readers of a report.
    failure_is : str
        What counts as a failure beside what failed or timed out, in a sentence; empty: nothing.
    usual_places : callable
        ``usual_places(environment, home) -> paths`` to look at when nothing is named.
    variable : str
        The environment variable that says where, for messages; empty: none.
    stores, files : Stores, Files or None
        How its databases, and its files and directories, are read.
    tables : callable, optional
        ``tables() -> Tables``: what of its databases is read, however they are found.
    frames : callable
        The detail frames that it adds to the canonical ones.
    count_errors : callable or None
        ``count_errors(store) -> frame`` of errors of tools by session, which means reading
        what was said: ``session_id``, ``tool``, ``n_errors``; see the SQL table.
    vocabulary : tuple of StatusWord
        Each stored status with its lifecycle and outcome. Empty where the system's reader
        fills the canonical columns itself.
    reason_codes : callable
        The `ReasonCode` values that it writes or that its words are mapped to.
    working_states : mapping of str to str
        Statuses of transitions, and kinds of events, that say what open work does instead of
        running: queued, waiting (for a person), blocked, retrying, stalled.
    are_codes_closed : bool
        Is a stored code outside of them a row of the audit.
    run_type : str
        The entity type that works without a person in between.
    part_types : tuple of str
        Types of which every row is told by another one.
    repeated_type : str or None
        The type of which the last row of a session is told by the session.
    detectors : callable
        Its `Detector` values.
    releases : tuple of str
        Releases and days that their life spans name, oldest first: what ``system@version``
        is found in.
    features : callable
        Its `Features`; None where the columns that all systems share are enough.
    constants : callable
        ``constants(policy)``: its `Constant` values, today's value as the policy has it.
    kind_constants : callable
        ``kind_constants(policy, kinds)``: further ones for the kinds of work that there
        are: a frame of ``kind``, ``limit_s`` (the most common time limit, null: none),
        ``is_inferred`` (nobody wrote it down, but many ends lie there) and ``is_mixed``
        (others hold for many runs, too).
    evidence : mapping of str to callable
        What else constants are judged by: ``evidence(facts, gaps) -> polars.DataFrame``
        in the shape of `thresholds.evidence.SILENCES` or ``RUNS``.
    limits : mapping of str to float
        After how long its open work is judged: names of `state.open_work.LIMITS`. Without
        any, silence counts by the kind of work, as a policy says.
    audits : callable
        Checks of its own for contradictions: ``check(cases) -> schema.AUDIT``.
    advice : mapping of str to str
        What to do about a code of the audit (`core.audit.CODES`), where this system has a
        command for it; else the words of the code itself stand.
    judge_transitions : callable or None
        ``judge_transitions(facts)``: its transitions with ``verdict`` (illegal, override,
        unknown, legal, …), where the system declares which status may follow which.
    history : {"whole", "partial", "derived"}
        Is each accepted change of status a row of ``transitions``, are some, or are they
        read off its events.
    rewind : callable or None
        ``rewind(past, facts) -> past``: what only this system can say of an earlier instant,
        from its detail frames, transitions and events up to then: see `history.Past`.
        ``past`` holds all rows as the shared history tells them, ``facts`` those of now.
    tells_anew : callable or None
        ``tells_anew(facts) -> inputs`` of which ``rewind`` tells every row anew, so that nobody
        asks the shared history about them.
    rewinds_by_links : bool
        Does that say of an entity what only follows from it and all that names it, or that it
        names, by an id of ``entities``: then what was over long before is not asked about.
    ends : Ends
        What its ends say, and who wrote them.
    phantoms : callable or None
        ``phantoms(facts, states, policy=…)``: which entities its own reapers would close,
        in the shape of `schema.PHANTOMS`.
    dispositions : callable or None
        The detail frame of what operators decided about items that ask for attention:
        `state.attention.DECISION` names its columns.
    used_tokens : callable or None
        ``used_tokens(facts)``: which models its sessions used, and for how many tokens: some
        of the columns of `used_tokens.USED`, of which those of the key are ``source`` and
        ``entity_id``.
    drives_agents : bool
        Do its sessions run agents that write transcripts of their own, so that the same work
        may be told twice: see `linking.links`.
    shares_directories : bool
        Do these sessions work where people work too, so that not every transcript of their
        directory and time is theirs.
    last_update_is_life : bool
        Does a write to the row count as a sign of life where nothing was said.
    """

    name: str
    title: str
    run_is: str = "A run is a session."
    failure_is: str = ""
    usual_places: Callable[[Mapping[str, str], Path], Iterable[Path]] = nothing
    variable: str = ""
    stores: Stores | None = None
    files: Files | None = None
    tables: Callable[[], Tables] | None = None
    frames: Callable[[], Sequence[Frame]] = nothing
    count_errors: Callable[[Store], pl.DataFrame] | None = None
    vocabulary: tuple[StatusWord, ...] = ()
    reason_codes: Callable[[], Iterable[ReasonCode]] = nothing
    working_states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    are_codes_closed: bool = False
    run_type: str = "session"
    part_types: tuple[str, ...] = ()
    repeated_type: str | None = None
    detectors: Callable[[], Sequence[Detector]] = nothing
    releases: tuple[str, ...] = ()
    features: Callable[[], Features] | None = None
    constants: Callable[[Policy], Sequence[Constant]] = nothing
    kind_constants: Callable[[Policy, pl.DataFrame], Sequence[Constant]] = nothing
    evidence: Mapping[str, Callable[[Facts, pl.DataFrame], pl.DataFrame]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    limits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    audits: Callable[[], Sequence[Callable[..., pl.DataFrame]]] = nothing
    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    judge_transitions: Callable[[Facts], pl.DataFrame] | None = None
    history: Literal["whole", "partial", "derived"] = "partial"
    rewind: Callable[[Past, Facts], Past] | None = None
    tells_anew: Callable[[Facts], pl.Series] | None = None
    rewinds_by_links: bool = False
    ends: Ends = Ends()
    phantoms: Callable[..., pl.DataFrame] | None = None
    dispositions: Callable[[], Frame] | None = None
    used_tokens: Callable[[Facts], pl.DataFrame] | None = None
    drives_agents: bool = False
    shares_directories: bool = False
    last_update_is_life: bool = False

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
    return read_table(package, file, ReasonCode)
