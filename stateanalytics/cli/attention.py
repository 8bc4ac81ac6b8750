"""The command ``attention``: what needs somebody, and what is wrong in the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import polars as pl

from stateanalytics.cli.options import (
    examples,
    note,
    refuse_options_of_others,
    sources_argument,
)
from stateanalytics.cli.output import form_of, note_of_nothing
from stateanalytics.cli.request import IN_WINDOW, Request, limit_option, takes
from stateanalytics.cli.tables import named_entities
from stateanalytics.core.schema import FINDING_SEVERITIES, SEVERITIES
from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.io.findings import folded

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

N_OPEN_FIRST = 20
# Columns of a table on the terminal; files hold all. Of contradictions the first three, which
# are both sides and of what, fit 80 columns.
SHOWN = {
    "items": ("severity", "n", "entity", "message", "display", "since_at", "name"),
    "states": ("severity", "entity", "display", "silence_s", "reason_codes"),
    "findings": (
        *("severity", "code", "n_rows", "message"),
        *("table", "column", "example", "action"),
    ),
    "audit": ("entity", "says", "against", "severity", "code", "what_to_do"),
}


@click.command(
    epilog=examples(
        "stateanalytics attention state.db",
        "stateanalytics attention state.db --severity critical -o attention.csv",
        "stateanalytics attention state.db --show states --type session --limit 200",
        "stateanalytics attention state.db --show findings --severity error --format json",
        "stateanalytics attention state.db --show audit -o contradictions.csv",
    )
)
@sources_argument
@click.option(
    "--show",
    type=click.Choice(tuple(SHOWN)),
    default="items",
    show_default=True,
    help="Choose what is listed: what needs attention, the state of every entity (ADR-0033), what "
    "is wrong in the data and what was done about it, or where the data contradict themselves, "
    "with both sides of the evidence.",
)
@click.option("--type", "entity_type", metavar="TYPE", help="List only this entity type.")
@click.option("--severity", metavar="WORD", help="List only rows of this severity.")
@takes(limit_option, *IN_WINDOW)
def attention(
    request: Request, *, show: str, entity_type: str | None, severity: str | None
) -> None:
    """List what needs attention: critical and warning, what can still be helped first.

    A table shows similar items as one row: of what is open those that are silent for longest,
    then what has ended, the rest of what is open, and what somebody stopped on purpose. Other
    formats list each, most severe first. Items that an operator has discharged and rows that
    another one reports, such as branches, are excluded and counted. Without a window everything
    is listed, with one what the report of it counts.
    """
    in_window = dict.fromkeys(("week", "since", "until"), ("--show items",))
    refuse_options_of_others(f"--show {show}", in_window)
    is_table = form_of(request.form, request.output) == "table"
    fold = FOLDED[show] if is_table else None
    words = FINDING_SEVERITIES if show in ("findings", "audit") else SEVERITIES
    _check_known("severity", severity, words)
    with request.opened() as snap:
        frame = _listed(snap, show, request)
        types = snap.entities["entity_type"].unique().sort().drop_nulls().to_list()
        _check_known("entity_type", entity_type, types)
        for column, word in (("entity_type", entity_type), ("severity", severity)):
            if word is not None:
                frame = frame.filter(pl.col(column).cast(pl.String) == word)
        request.write(fold(frame) if fold else frame, columns=SHOWN[show], inputs=snap.inputs)


def _listed(snap: Snapshot, show: str, request: Request) -> pl.DataFrame:
    policy = request.chosen_policy
    if show in ("findings", "audit"):
        return snap.table(show, policy=policy)
    # What SQL can name takes longer to import than these two.
    if show == "states":
        from stateanalytics.state.states import states

        note(_instant(snap))
        frame: pl.DataFrame = states(snap, policy=policy)
        return frame
    from stateanalytics.queries import attention_and_left_out

    items, excluded = attention_and_left_out(snap, window=request.window, policy=policy)
    counts = [
        f"{n:,} of type {entity_type} ({why})" for entity_type, why, n in excluded.iter_rows()
    ]
    more = f"; excluded: {', '.join(counts)}" if counts else ""
    note(f"{items.height:,} critical or a warning {_instant(snap)}{more}")
    note_of_nothing(items, snap, request.window)
    return items


def _instant(snap: Snapshot) -> str:
    """Ages end here: a copy of May is not silent since May."""
    from stateanalytics.core.windows import in_utc

    return f"as of {in_utc(snap.as_of)} ({snap.why_as_of})"


def _as_shown(items: pl.DataFrame) -> pl.DataFrame:
    """What asks the same as one row, by a name that ``show`` takes: a UUID by its beginning."""
    from stateanalytics.queries import alike

    rows = alike(named_entities(items).with_columns(message=pl.coalesce("message", "code")))
    # Hundreds that are open must not hide why everything else failed.
    is_later = (pl.col("standing") == "open") & (pl.int_range(pl.len()) >= N_OPEN_FIRST)
    return rows.sort(pl.col("standing") == "stopped", is_later, maintain_order=True)


FOLDED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "items": _as_shown,
    "states": named_entities,
    "findings": folded,
    "audit": named_entities,
}
"""How rows of a table on the terminal are named and put together."""


def _check_known(column: str, word: str | None, known: Sequence[str]) -> None:
    if word is not None and word not in known:
        raise ArgumentError(
            f"There is no {column.replace('_', ' ')} {word!r} here; there are {', '.join(known)}.",
            "name one of these" + did_you_mean(word, known),
        )
