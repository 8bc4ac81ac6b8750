"""The outcome of a schedule's occurrence, joined from the three rows that know of it.

A session that ended speaks first, then the invocation that ended, then the
occurrence itself, then its bare status and exit code. Which session speaks for
several is decided by `rollups.roll_up` (``grading_status``).
"""

from __future__ import annotations

from typing import Any

import narwhals as nw

from stateanalytics.core.engines import NUMBER, TEXT, Frame, adapt, optional
from stateanalytics.core.vocabulary import EXIT_CODES, words_of
from stateanalytics.systems.lionagi.rollups import TERMINAL_STATUSES

EXIT_UNKNOWN = 2
EXIT_RUNNING = 3
EXIT_SKIPPED = 1
_RUN_ENDS = tuple(word.raw_status for word in words_of("schedule_run") if word.is_terminal)


def run_view_outcome(runs: Any) -> Any:
    """What came of each occurrence of a schedule, and who says so.

    Parameters
    ----------
    runs : frame
        One row an occurrence: ``run_status``, ``run_exit_code`` (integer),
        ``run_error_detail``, ``invocation_status``, ``session_status`` (the session that
        speaks for the occurrence; null while none does). Used if there:
        ``run_reason_message``; ``invocation_reason_code``, ``session_reason_code`` and
        ``…_reason_message``; ``n_artifacts`` of the sessions.

    Returns
    -------
    frame
        The same rows and kind with ``outcome_code``, ``outcome_summary``,
        ``outcome_source`` (session, invocation, occurrence, fallback),
        ``is_summary_reported`` (did somebody write the summary, or was it made here) and
        ``exit_code`` (0 good, 1 bad, 2 not known, 3 running, or the end's own code).

    Notes
    -----
    Codes such as ``run.failed.cancelled`` and ``failed_no_exit_code`` are made up for
    lists; no store ever holds them.

    Examples
    --------
    >>> import polars as pl
    >>> row = {"run_status": "failed", "run_exit_code": 2, "run_error_detail": "boom",
    ...        "invocation_status": None, "session_status": None}
    >>> run_view_outcome(pl.DataFrame([row])).select("outcome_code", "outcome_source").row(0)
    ('failed_failed', 'occurrence')
    """
    needed = {
        "run_status": TEXT,
        "run_exit_code": NUMBER,
        "run_error_detail": TEXT,
        "invocation_status": TEXT,
        "session_status": TEXT,
    }
    adapter = adapt(runs, needed, "run_view_outcome")
    rows = adapter.frame
    marked = rows.with_columns(_speaker=_speaker())
    parts = _parts(rows)
    return adapter.give_back(
        marked.with_columns(
            outcome_code=_by_speaker({who: code for who, (code, _, _) in parts.items()}),
            outcome_summary=_by_speaker({who: text for who, (_, text, _) in parts.items()}),
            outcome_source=_by_speaker(
                {who: nw.lit(_SOURCES.get(who, "occurrence")) for who in parts}
            ),
            is_summary_reported=_by_speaker({who: said for who, (_, _, said) in parts.items()}),
            exit_code=_exit_code(),
        ).drop("_speaker")
    )


_SOURCES = {"session": "session", "invocation": "invocation", "bare": "fallback"}


def _text(column: str) -> nw.Expr:
    """An empty text says as little as none."""
    return nw.when(nw.col(column) != "").then(nw.col(column))


def _speaker() -> nw.Expr:
    has_ended = nw.col("invocation_status").is_in(TERMINAL_STATUSES).fill_null(False)
    return (
        nw.when(~nw.col("session_status").is_null())
        .then(nw.lit("session"))
        .when(has_ended)
        .then(nw.lit("invocation"))
        .when(nw.col("run_status") == "running")
        .then(nw.lit("running"))
        .when(nw.col("run_status") == "skipped")
        .then(nw.lit("skipped"))
        .when(~_text("run_error_detail").is_null())
        .then(nw.lit("error"))
        .otherwise(nw.lit("bare"))
    )


def _by_speaker(answers: dict[str, nw.Expr]) -> nw.Expr:
    chain: Any = nw
    for who, answer in answers.items():
        chain = chain.when(nw.col("_speaker") == who).then(answer)
    answer_of_speaker: nw.Expr = chain.otherwise(nw.lit(None))
    return answer_of_speaker


def _parts(rows: Frame) -> dict[str, tuple[nw.Expr, nw.Expr, nw.Expr]]:
    """Each speaker's code, summary, and whether somebody wrote that summary."""

    def given(column: str) -> nw.Expr:
        value = optional(rows, column, nw.String)
        return nw.when(value != "").then(value)

    skip_message = nw.coalesce(given("run_reason_message"), _text("run_error_detail"))
    status = nw.coalesce(_text("run_status"), nw.lit("unknown"))
    dispatched = nw.coalesce(_text("run_status"), nw.lit("dispatch"))
    return {
        "session": (
            nw.coalesce(given("session_reason_code"), _end_code("session_status")),
            nw.coalesce(given("session_reason_message"), _session_summary(rows)),
            ~given("session_reason_message").is_null(),
        ),
        "invocation": (
            nw.coalesce(given("invocation_reason_code"), _end_code("invocation_status")),
            nw.coalesce(given("invocation_reason_message"), nw.col("invocation_status")),
            ~given("invocation_reason_message").is_null(),
        ),
        "running": (nw.lit("running"), nw.lit("running"), nw.lit(False)),
        "skipped": (
            nw.lit("skipped"),
            nw.coalesce(skip_message, nw.lit("skipped")),
            ~skip_message.is_null(),
        ),
        "error": (
            nw.concat_str(nw.lit("failed_"), dispatched),
            nw.col("run_error_detail"),
            nw.lit(True),
        ),
        "bare": (_bare_code(status), _bare_summary(status), nw.lit(False)),
    }


def _end_code(column: str) -> nw.Expr:
    return (
        nw.when(nw.col(column) == "completed")
        .then(nw.lit("run.completed.ok"))
        .when(nw.col(column) == "completed_empty")
        .then(nw.lit("run.completed_empty.no_evidence"))
        .otherwise(nw.concat_str(nw.lit("run.failed."), nw.col(column)))
    )


def _session_summary(rows: Frame) -> nw.Expr:
    n_artifacts = optional(rows, "n_artifacts", nw.Int64).fill_null(0)
    completed = (
        nw.when(n_artifacts > 0)
        .then(
            nw.concat_str(
                nw.lit("completed: "), n_artifacts.cast(nw.String), nw.lit(" artifact(s)")
            )
        )
        .otherwise(nw.lit("completed: no artifacts"))
    )
    return (
        nw.when(nw.col("session_status") == "completed")
        .then(completed)
        .when(nw.col("session_status") == "completed_empty")
        .then(nw.lit("completed_empty: no artifacts produced"))
        .otherwise(nw.col("session_status"))
    )


def _bare_code(status: nw.Expr) -> nw.Expr:
    exit_code = nw.col("run_exit_code")
    return (
        nw.when(status == "completed")
        .then(nw.lit("completed"))
        .when(exit_code.is_null())
        .then(nw.concat_str(status, nw.lit("_no_exit_code")))
        .when(exit_code != 0)
        .then(nw.concat_str(status, nw.lit("_exit_nonzero")))
        .otherwise(status)
    )


def _bare_summary(status: nw.Expr) -> nw.Expr:
    exit_code = nw.col("run_exit_code")
    text = nw.concat_str(status, nw.lit(" (exit "), exit_code.cast(nw.String), nw.lit(")"))
    return nw.when(exit_code.is_null()).then(status).otherwise(text)


def _exit_code() -> nw.Expr:
    def of_end(column: str, default: int) -> nw.Expr:
        return nw.col(column).replace_strict(
            dict(EXIT_CODES), default=default, return_dtype=nw.Int64
        )

    return (
        nw.when(nw.col("_speaker") == "session")
        .then(of_end("session_status", 1))
        .when(nw.col("_speaker") == "invocation")
        .then(of_end("invocation_status", 1))
        .when(nw.col("run_status") == "running")
        .then(nw.lit(EXIT_RUNNING))
        .when(nw.col("run_status").is_in(_RUN_ENDS))
        .then(of_end("run_status", EXIT_SKIPPED))
        .otherwise(nw.lit(EXIT_UNKNOWN))
    )
