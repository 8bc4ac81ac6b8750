"""The command ``detectors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stateanalytics.cli.options import detectors_option, examples, note, sources_argument
from stateanalytics.cli.request import READING, Request, limit_option, takes
from stateanalytics.core.text import visible

if TYPE_CHECKING:
    from stateanalytics.detectors.comparing import Disagreements
    from stateanalytics.detectors.detections import Detections

_OF_CAUSES = ("a", "b", "label_a", "n_a", "n_b", "cause", "n", "words")
_OF_ROWS = ("entity_type", "entity_id", "a", "b", "label_a", "says_b", "cause", "words")
_OF_LIST = (
    *("name", "known_as", "is_default", "since", "until"),
    *("construct", "comparison", "threshold", "rule"),
)


@click.command(
    epilog=examples(
        "stateanalytics detectors state.db",
        "stateanalytics detectors state.db --detectors all",
        "stateanalytics detectors state.db --at 2026-05-20T12:00 --detectors B2,B4",
        "stateanalytics detectors state.db --rows -o disagreements.csv",
        "stateanalytics detectors --list",
    )
)
@sources_argument
@click.option("--at", metavar="MOMENT", help="Ask about this earlier instant; by default as-of.")
@detectors_option
@click.option(
    "--rows", is_flag=True, help="List each entity that two disagree about, not the totals."
)
@click.option("--list", "listed", is_flag=True, help="List the known detectors; no store is read.")
@takes(limit_option, *READING)
def detectors(
    request: Request,
    *,
    at: str | None,
    chosen: list[str] | None,
    rows: bool,
    listed: bool,
) -> None:
    """List where rules for stale, stuck and slow contradict each other, and why.

    The worst contradiction is said first, in a sentence: of rules about runs, those that
    stood on one page, then those that disagree about most.
    """
    from stateanalytics.detectors.catalogue import known

    if listed:
        request.write(known(), columns=_OF_LIST)
        return
    from stateanalytics.detectors.comparing import disagreements
    from stateanalytics.detectors.detections import detect

    with request.opened() as snap:
        detections = detect(snap, at=at, detectors=chosen, policy=request.chosen_policy)
        compared = disagreements(detections)
        if request.form in (None, "table") and request.output is None:
            click.echo(visible(_in_words(detections, compared)))
        else:
            note(_in_words(detections, compared))
        request.write(
            compared.rows if rows else compared.causes,
            columns=_OF_ROWS if rows else _OF_CAUSES,
            inputs=snap.inputs,
        )


def _in_words(detections: Detections, compared: Disagreements) -> str:
    """What the table shows, in a sentence or two."""
    n_lost = sum((~column).sum() for column in detections.is_knowable)
    lost = f" {n_lost:,} answers are not knowable any more." if n_lost else ""
    looking = [name for name in detections.names if detections.covered[name].any()]
    n = len(looking)
    if not looking:
        return "None of these detectors looks at anything that is here." + lost
    if compared.worst is not None:
        return compared.worst + lost
    if n == 1:
        return f"Only {looking[0]} looks at anything here: nothing to compare." + lost
    if n == 2:
        return "Both detectors agree on all that they both look at." + lost
    return f"All {n} detectors agree on all that two or more of them look at." + lost
