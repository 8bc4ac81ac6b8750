"""The meaning of the words in every count: ends, failures, deaths and causes.

Every count of runs uses these. `stateanalytics.state.population` decides which rows a number
counts; the words for readers are `DEFINITIONS` of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import polars as pl

from stateanalytics.core.package_tables import package_table
from stateanalytics.systems import all_systems

RUN = "session"
"""The entity type that is a run; a system may work in smaller pieces (`Runs.entity_type`)."""

GOOD_ENDS = ("succeeded", "completed", "merged")
"""Outcomes of runs that ended well; the word depends on the type."""

FAILURES = ("failed", "timed_out")
"""Outcomes that are failures; stopped work has not failed. See `is_failure`."""

BAD_ENDS = (*FAILURES, "aborted")
"""Failures and aborted work, because some systems call work aborted when it died."""

STOPPED = ("aborted", "cancelled")
"""Outcomes of work that a person or an observer stopped."""

ENDINGS = ("completed", *FAILURES, *STOPPED, "skipped", "running")
"""How runs ended, or that they run, in the order of pages. All good ends are *completed*."""

SILENT_HEALTHS = ("stalled", "process_dead", "orphaned")
"""Healths of work that has shown no sign of life for too long."""

TROUBLE = ("critical", "warning")
"""Severities that need a look. An open run with one of them is *unresolved*."""

EMPTY_HANDED = ("missing", "partial")
"""Deliveries that are less than was promised."""


class _LeftOut(NamedTuple):
    """A reason why a row is not counted, and the counts that it concerns."""

    word: str
    of: Annotated[str, ("any count", "durations", "silences")]
    meaning: str


_WORDS = package_table("stateanalytics.state", "left_out.csv", _LeftOut)


def _left_out_of(*counts: str) -> Mapping[str, str]:
    return {row.word: row.meaning for row in _WORDS if row.of in counts}


LEFT_OUT = _left_out_of("any count")
"""The reasons why no rate counts a row."""

LEFT_OUT_OF_DURATIONS = _left_out_of("any count", "durations")
"""Why a run has no duration; what is known least comes first."""

LEFT_OUT_OF_SILENCES = _left_out_of("any count", "silences")
"""The reasons why the time between two moments does not count as silence."""


def ended_well() -> pl.Expr:
    """Whether an outcome is one of `GOOD_ENDS`; null where none is known."""
    return pl.col("outcome").is_in(list(GOOD_ENDS))


def is_failure() -> pl.Expr:
    """Whether work failed or timed out, or was aborted as its system calls failed.

    Null where no outcome is known. Some systems call work aborted when it died; see
    `Ends.failure_codes`.
    """
    has_died = pl.any_horizontal(
        pl.lit(value=False),
        *(
            (pl.col("system") == known.name)
            & pl.col("reason_code").is_in(list(known.ends.failure_codes))
            for known in all_systems()
            if known.ends.failure_codes
        ),
    )
    died = (pl.col("outcome") == "aborted") & has_died.fill_null(value=False)
    return pl.col("outcome").is_in(list(FAILURES)) | died


def is_found_dead() -> pl.Expr:
    """Whether an observer ended a row because its process was gone; never null.

    Notes
    -----
    The work died between its last sign of life and that end. Each system knows which
    reasons mean that (`Ends.death_codes`, `Ends.death_messages`): those of an observer that
    looked for the process and did not find it. A sweep by age or a kill by a person does not
    show that the work had already died.
    """
    codes = [code for known in all_systems() for code in known.ends.death_codes]
    messages = [message for known in all_systems() for message in known.ends.death_messages]
    is_verdict = pl.col("reason_code").is_in(codes) | pl.col("reason_message").is_in(messages)
    return ((pl.col("end_written_by") == "observer") & is_verdict).fill_null(value=False)


def cause_key() -> pl.Expr:
    """The distinct cause that a failed entity belongs to, as text.

    Returns
    -------
    polars.Expr
        ``source|group|class``. The group is the invocation, else the session, else the
        entity itself; the class is the reason code, else the same row again. Each side
        names its kind (``invocation:``, ``session:``, ``reason:``), so that an id can
        never equal a code. Never null.

    Notes
    -----
    For entities without a session (a play that never started) the key falls back to the
    entity. Two stores never share a cause.

    Examples
    --------
    >>> failed = pl.DataFrame(
    ...     {
    ...         "source": "state.db",
    ...         "entity_type": "session",
    ...         "entity_id": ["a", "b", "c", "d"],
    ...         "session_id": ["a", "b", "c", "d"],
    ...         "invocation_id": ["i", "i", None, None],
    ...         "reason_code": "run.failed.exception",
    ...     }
    ... )
    >>> failed.select(cause_key()).n_unique()
    3
    """
    own_row = pl.coalesce(
        pl.lit("session:") + pl.col("session_id"),
        pl.col("entity_type") + ":" + pl.col("entity_id"),
        pl.lit("row:?"),
    )
    group = pl.coalesce(pl.lit("invocation:") + pl.col("invocation_id"), own_row)
    reason = pl.coalesce(pl.lit("reason:") + pl.col("reason_code"), own_row)
    return pl.concat_str(pl.col("source").fill_null(""), group, reason, separator="|").alias(
        "cause"
    )


def nouns_of(rows: pl.DataFrame) -> tuple[str, str]:
    """The noun for entities of these types, singular and plural: runs, or turns of sessions.

    Examples
    --------
    >>> nouns_of(pl.DataFrame({"entity_type": ["turn", "session"]}))
    ('run or turn', 'runs and turns')
    """
    types = rows["entity_type"].unique().to_list() or [RUN]
    names = sorted(name.replace(RUN, "run").replace("_", " ") for name in types)
    return " or ".join(names), " and ".join(f"{name}s" for name in names)
