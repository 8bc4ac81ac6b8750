"""Everything that can be wrong with an input, as one tree.

::

    StateAnalyticsError
    ├── SourceError                  an input cannot be read
    │   ├── SourceNotFoundError      (FileNotFoundError)  nothing is there
    │   ├── NotAStoreError           (ValueError)  something is there, but no store
    │   ├── DamagedStoreError        (ValueError)  a store, truncated or corrupted
    │   ├── StoreBusyError           (TimeoutError)  a store that cannot be opened now
    │   └── NoRoomError              (OSError)  its private copy, or an output, does not fit
    ├── MissingColumnsError          (ValueError)  a frame lacks columns
    ├── ColumnTypeError              (TypeError)  a column has another type
    ├── ArgumentError                (ValueError)  an argument makes no sense
    ├── QueryError                   (ValueError)  the SQL is wrong
    │   ├── QueryRefusedError        (PermissionError)  the SQL is not allowed
    │   └── QueryTimeoutError        (TimeoutError)  the SQL took too long
    └── MissingComponentError        (ImportError)  an optional part is not installed

`MaskedWarning` and `TruncatedWarning` are each a UserWarning.

Every message says what was needed, what was found, and ends with a line
``Hint: …`` that says what to type. The command line prints it and exits with 2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from stateanalytics.core.text import visible

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "ArgumentError",
    "ColumnTypeError",
    "DamagedStoreError",
    "MaskedWarning",
    "MissingColumnsError",
    "MissingComponentError",
    "NoRoomError",
    "NotAStoreError",
    "QueryError",
    "QueryRefusedError",
    "QueryTimeoutError",
    "SourceError",
    "SourceNotFoundError",
    "StateAnalyticsError",
    "StoreBusyError",
    "TruncatedWarning",
]


class StateAnalyticsError(Exception):
    """Base of every error that this package raises on purpose.

    Parameters
    ----------
    problem : str
        What was needed and what was found, in one or two sentences.
    hint : str
        What to type or change.
    shell : str
        The same on the command line, where that is something else.
    """

    def __init__(self, problem: str, hint: str = "", *, shell: str = "") -> None:
        self.problem = problem
        self.hint = hint
        self.shell = shell or hint
        super().__init__(f"{problem}\nHint: {hint}" if hint else problem)

    # OSError and KeyError print their own way; ours all read the same.
    def __str__(self) -> str:
        return str(self.args[0])

    def _render_traceback_(self) -> list[str]:
        """How a notebook shows it: the message, escaped, without the stack."""
        return [f"{type(self).__name__}: {visible(str(self), keep=chr(10))}"]


class SourceError(StateAnalyticsError):
    """An input cannot be read."""


class SourceNotFoundError(SourceError, FileNotFoundError):
    """Nothing is at the path."""


class NotAStoreError(SourceError, ValueError):
    """Something is at the path, but no store that is understood."""


class DamagedStoreError(SourceError, ValueError):
    """A store whose pages cannot all be read."""


class StoreBusyError(SourceError, TimeoutError):
    """A store that exists but cannot be opened now: locked, or no permission."""


class NoRoomError(SourceError, OSError):
    """A private copy does not fit into the folder for temporary files, or an output to its disk."""


class MissingColumnsError(StateAnalyticsError, ValueError):
    """A frame lacks columns that a function needs."""

    @classmethod
    def of(cls, missing: Sequence[str], found: Iterable[str], function: str) -> MissingColumnsError:
        """The error that names the function, the missing columns and the present ones."""
        there = sorted(found)
        near = did_you_mean(sorted(missing)[0], there)
        shown = ", ".join(there[:12]) + (f" and {len(there) - 12} more" if len(there) > 12 else "")
        return cls(
            f"{function} needs columns {sorted(missing)}, which this frame does not have; "
            f"it has {shown or 'no columns'}.",
            f"rename with .rename({{'old': {sorted(missing)[0]!r}}})" + near,
            shell="name an existing column" + near,
        )


class ColumnTypeError(StateAnalyticsError, TypeError):
    """A column has a type that the function cannot use."""


class ArgumentError(StateAnalyticsError, ValueError):
    """An argument makes no sense: an unknown name, an empty or reversed window."""


class QueryError(StateAnalyticsError, ValueError):
    """The SQL cannot be run as it is written."""


class QueryRefusedError(QueryError, PermissionError):
    """The SQL asks for something outside the snapshot."""


class QueryTimeoutError(QueryError, TimeoutError):
    """The SQL took longer than its time limit."""


class MissingComponentError(StateAnalyticsError, ImportError):
    """An optional part is not installed."""


class MaskedWarning(UserWarning):
    """Masking made different texts equal, so that a query cannot tell them apart."""


class TruncatedWarning(UserWarning):
    """A result was cut at its maximum of rows."""


def with_gone(
    loaded: Callable[[str], object], space: str, instead: Mapping[str, str]
) -> Callable[[str], object]:
    """The ``__getattr__`` of a namespace, which says what to type for names that are gone.

    Parameters
    ----------
    loaded : callable
        That of the names that are there.
    space : str
        The namespace.
    instead : mapping of str to str
        What to type, by the name that was there.
    """

    def named(name: str) -> object:
        if name in instead:
            raise AttributeError(f"There is no {space}.{name} any more. Hint: {instead[name]}")
        return loaded(name)

    return named


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Near matches as a clause to append to a hint; empty where none is near."""
    near = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def found(value: object) -> str:
    """A value that a caller gave, in a few words, with its type.

    Examples
    --------
    >>> found("week.html"), found({"a": 1})
    ("str 'week.html'", "dict {'a': 1}")
    """
    kind, shown = type(value).__name__, in_short(value)
    return shown if shown.startswith(kind) else f"{kind} {shown}"


def in_short(value: object) -> str:
    """A value on one line of 60 characters at most; a frame is not computed for it.

    Examples
    --------
    >>> in_short("week.html"), in_short("x" * 80)[-5:]
    ("'week.html'", 'xxxx…')
    """
    # Of its class: to ask a lazy frame for its columns is to plan it.
    if hasattr(type(value), "columns"):
        return type(value).__name__
    shown = repr(value).partition("\n")[0]
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def check_columns(frame: pl.DataFrame, needed: Iterable[str], function: str) -> None:
    """Raise an error unless this is a polars frame with the columns that a function needs."""
    needed = list(needed)
    if not hasattr(frame, "get_columns"):
        shown = ", ".join(needed[:4]) + (", …" if len(needed) > 4 else "")
        collected = ".collect()" if hasattr(type(frame), "collect") else ""
        raise ArgumentError(
            f"{function} needs a polars frame with {shown}; found {found(frame)}.",
            f"{function}(frame{collected}), with a frame that a function of this package returned",
        )
    if missing := [name for name in needed if name not in frame.columns]:
        raise MissingColumnsError.of(missing, frame.columns, function)


def check_number(
    name: str,
    value: Any,
    usual: float,
    *,
    least: float = 0,
    is_above: bool = False,
    is_whole: bool = False,
) -> None:
    """Raise an error unless this is a finite number from ``least``; the hint shows ``usual``."""
    kinds: Any = Integral if is_whole else Real
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not least <= value < inf or (is_above and value == least):
        kind = "whole number" if is_whole else "number"
        raise ArgumentError(
            f"{name} needs a {kind} {'above' if is_above else 'from'} {least:g}; "
            f"found {in_short(value)}.",
            f"{name}={usual}",
            shell=f"a number such as {usual:g}",
        )


def no_such(what: str, name: object, known: Iterable[str]) -> ArgumentError:
    """The error for a name that is not among the known ones."""
    known = list(known)
    return ArgumentError(
        f"There is no {what} {in_short(name)}; there are {', '.join(known)}.",
        "use one of these" + did_you_mean(str(name), known),
    )


def check_one_of(word: Any, known: Collection[str], what: str) -> str:
    """The word, or an error unless it is one of the known ones."""
    if word not in known:
        raise no_such(what, word, known)
    return str(word)


def check_option(name: str, value: object, known: Sequence[str]) -> None:
    """Raise an error unless the value of an argument is one of the known words."""
    if value not in known:
        raise ArgumentError(
            f"{name} must be one of {', '.join(known)}; found {in_short(value)}.",
            f"{name}={known[0]!r}" + did_you_mean(str(value), known),
        )


def check_share(name: str, value: Any, usual: float) -> None:
    """Raise an error unless this is a share, such as a confidence; the hint shows ``usual``."""
    kinds: Any = Real
    if not (isinstance(value, kinds) and 0 < value < 1):
        raise ArgumentError(
            f"{name} must be a share between 0 and 1; found {value!r:.40}.",
            f"{name}={usual}",
            shell=f"a share such as {usual:g}",
        )


@contextmanager
def needing(library: str, task: str, *, extra: str, instead: str) -> Iterator[None]:
    """Turn a failed import of an optional library into an error that names the extra.

    Parameters
    ----------
    library : str
        The library that the block imports.
    task : str
        What needs it, as the start of a sentence.
    extra : str
        The extra of this package that installs it.
    instead : str
        What the user can do without it.

    Raises
    ------
    MissingComponentError
        If an import in the block fails.
    """
    try:
        yield
    except ImportError as missing:
        raise MissingComponentError(
            f"{task} needs {library}: {missing}.",
            f"pip install 'stateanalytics[{extra}]', or {instead}",
        ) from missing
