"""What failed, by the reason that was stored: rows, sessions, causes."""

from __future__ import annotations

import polars as pl

from stateanalytics.failures.by_code import count_by_reason_code
from stateanalytics.failures.counting import count_causes
from stateanalytics.failures.failure_rows import select_failures
from stateanalytics.reporting.material import Material, Plain, Section, plain_rows, tally
from stateanalytics.reporting.phrases import count, listed, number, share
from stateanalytics.state.definitions import RUN
from stateanalytics.state.population import counted

N_SHOWN = 20
NO_CODE = "(no code was stored)"


def summarize_failures(material: Material) -> Plain:
    """Reason codes of failed and timed-out entities, with what each means."""
    failed = select_failures(material.rows)
    by_code = count_by_reason_code(failed)
    n_causes = count_causes(failed)
    runs = failed.filter(pl.col("entity_type") == RUN)
    n_run_causes = count_causes(runs)
    return {
        "finding": _sentence(by_code, (failed.height, runs.height), (n_causes, n_run_causes)),
        "n_rows": failed.height,
        "n_runs": runs.height,
        "n_causes": n_causes,
        "n_run_causes": n_run_causes,
        "denominator": "failed and timed-out entities of the window, each work once",
        "codes": [_code(row, n_causes) for row in plain_rows(by_code.head(N_SHOWN))],
        "not_shown": {
            "n_codes": max(by_code.height - N_SHOWN, 0),
            "n_rows": int(by_code.slice(N_SHOWN)["n_rows"].sum()),
        },
        "by_type": _by_type(failed),
        "stopped": _stopped(material.rows),
    }


def _code(row: Plain, n_causes: int) -> Plain:
    from stateanalytics.state.reason_codes import REGISTRY

    known = REGISTRY.get(row["code"]) if row["code"] else None
    return {
        **row,
        "code": row["code"] or NO_CODE,
        "is_known": known is not None,
        "meaning": known.meaning if known else None,
        "what_to_do": known.what_to_do if known else None,
        "share_of_causes": row["n_causes"] / n_causes,
        "shown_share": share(row["n_causes"] / n_causes),
    }


def _sentence(
    by_code: pl.DataFrame, rows_and_runs: tuple[int, int], causes: tuple[int, int]
) -> str:
    """What failed as rows of any type, and how much of it is runs: the headline counts these."""
    (n_rows, n_runs), (n_causes, n_run_causes) = rows_and_runs, causes
    if not n_rows:
        return "Nothing failed or timed out in this window."
    top = by_code.row(0, named=True)
    of_runs = f", {number(n_runs)} of them runs," if 0 < n_runs < n_rows else ""
    rest = f" ({number(n_run_causes)} of runs)" if 0 < n_run_causes < n_causes else ""
    from_causes = (
        f"{count(n_rows, 'failed or timed-out row').capitalize()}{of_runs} come from "
        if n_rows != 1
        else "One failed or timed-out row comes from "
    ) + f"{count(n_causes, 'cause')}{rest}"
    most = (
        f"{top['code']} stands for {number(top['n_causes'])} of them"
        if top["code"]
        else f"{number(top['n_causes'])} of them without a reason code"
    )
    widest = max(by_code.iter_rows(named=True), key=lambda row: row["n_rows"] - row["n_causes"])
    fan_out = (
        f"; {widest['code'] or 'no code'} is {number(widest['n_rows'])} rows but only "
        f"{count(widest['n_causes'], 'cause')}"
        if widest["n_rows"] >= 2 * widest["n_causes"] and widest["n_rows"] > 2
        else ""
    )
    return f"{from_causes}; {most}{fan_out}."


def _by_type(failed: pl.DataFrame) -> str:
    counts = sorted(tally(failed, "entity_type").items(), key=lambda pair: (-pair[1], pair[0]))
    return listed(count(n, name.replace("_", " "), plural(name)) for name, n in counts)


def plural(entity_type: str) -> str:
    """The name of several entities of a type."""
    return entity_type.replace("_", " ") + ("es" if entity_type.endswith("ch") else "s")


def _stopped(rows: pl.DataFrame) -> Plain:
    """Ends that somebody chose are no failures; they are counted beside them."""
    ends = counted(rows).filter(pl.col("outcome").is_in(["aborted", "cancelled"]))
    counts = tally(ends, "outcome")
    return {"aborted": counts.get("aborted", 0), "cancelled": counts.get("cancelled", 0)}


SECTION = Section("failures", "Failures", summarize_failures, place=50)
