"""Regular expressions that other people wrote: checked before use, and bounded in time.

The engine (that of polars) never backtracks: its time grows with text times pattern. So
repetitions that multiply are refused, long texts are cut, and a clock is read in between.
"""

from __future__ import annotations

import re
import time

import polars as pl

from stateanalytics.errors import ArgumentError
from stateanalytics.failures.masking import cut

#: Characters of a pattern, and pieces of it once its counted repetitions are written out.
LONGEST, MOST_PIECES = 1_000, 2_000
#: Seconds that one pattern may take over all messages of a snapshot.
LIMIT_S = 10.0
_CHUNK = 16

_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*\}|\w)|\\x\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\{\d*,?\d*\}|.",
    re.S,
)


def check_pattern(pattern: str, *, needs_group: bool = False) -> tuple[str, str] | None:
    """What is wrong with a pattern, and what to do; None where it can be used.

    Examples
    --------
    >>> check_pattern("(?i)rate limit")
    >>> check_pattern("(.{0,100}){50}")[0]
    'the pattern stands for 50,000 pieces, and at most 2,000 can be looked for in time'
    """
    if len(pattern) > LONGEST:
        return f"the pattern has {len(pattern):,} characters, at most {LONGEST:,} fit", "split it"
    if not pattern:
        return "the pattern is empty and would match everything", "leave the key out"
    try:
        pl.Series([""]).str.contains(pattern, strict=True)
    except pl.exceptions.PolarsError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        problem = next((line for line in lines if line.startswith("error:")), lines[0])
        return (
            f"the pattern {pattern!r:.80} cannot be used: {problem.removeprefix('error:').strip()}",
            "there is no look-around and there are no back-references, so that time is bounded",
        )
    if (n := n_pieces(pattern)) > MOST_PIECES:
        return (
            f"the pattern stands for {n:,} pieces, and at most {MOST_PIECES:,} can be looked for "
            "in time",
            "use * or + instead of counted repetitions inside each other",
        )
    if needs_group and not n_groups(pattern):
        return f"split needs a group; found {pattern!r:.80}", r"message = 'host (\S+)'"
    return None


def n_pieces(pattern: str) -> int:
    """How long a pattern is with its counted repetitions written out.

    A class of characters counts ten: Unicode's are large.

    Examples
    --------
    >>> n_pieces("ab{3}"), n_pieces("(a{10}){10}")
    (4, 100)
    """
    sizes, last = [0], 0  # of the open groups; of what a repetition would repeat
    for token in _TOKEN.findall(pattern):
        if re.fullmatch(r"\{\d*,?\d*\}", token) and re.search(r"\d", token):
            times = max(1, *(int(number) for number in re.findall(r"\d+", token)))
            sizes[-1] += last * (times - 1)
            last *= times
        elif token == "(":
            sizes.append(0)
        elif token == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif token not in "*+?|^$":
            last = 10 if token == "." or token[0] == "[" or token[:2] in _CLASSES else 1
            sizes[-1] += last
    return sum(sizes)


_CLASSES = (r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\p", r"\P")


def n_groups(pattern: str) -> int:
    """How many groups a pattern has that can be asked for.

    Examples
    --------
    >>> n_groups("host (a|b) (?:c)")
    1
    """
    return len(pl.select(pl.lit("").str.extract_groups(pattern)).to_series().struct.fields)


def search(messages: pl.Series, pattern: str, origin: str) -> pl.Series:
    """In which messages a pattern finds something; null stays null.

    Long messages are searched at their beginning and their end, as they are mined.

    Raises
    ------
    ArgumentError
        If it takes longer than `LIMIT_S`.
    """
    begun, parts, size, at = time.monotonic(), [], _CHUNK, 0
    shown = messages.to_frame("text").select(cut(pl.col("text"))).to_series()
    while at < shown.len():
        parts.append(shown.slice(at, size).str.contains(pattern))
        at, size = at + size, 2 * size
        if (spent := time.monotonic() - begun) > LIMIT_S and at < shown.len():
            raise ArgumentError(
                f"{origin}: the pattern {pattern!r:.80} took {spent:.0f} s for {at:,} of "
                f"{shown.len():,} messages, and {LIMIT_S:g} s is the limit.",
                "use a simpler pattern",
            )
        if spent > LIMIT_S / 8:
            size = _CHUNK
    return pl.concat(parts) if parts else pl.Series(dtype=pl.Boolean)
