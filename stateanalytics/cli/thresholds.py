"""The command ``thresholds``."""

from __future__ import annotations

import click

from stateanalytics.cli.options import examples, note, sources_argument
from stateanalytics.cli.output import put
from stateanalytics.cli.request import READING, Request, takes

REVIEWED = ("name", "changed_at", "measure", "before", "promised", "since", "verdict", "in_words")
SHOWN = ("name", "today_s", "recommended_s", "verdict", "n", "in_words")


@click.command(
    epilog=examples(
        "stateanalytics thresholds state.db",
        "stateanalytics thresholds state.db --false-alarm 20 -o thresholds.csv",
        "stateanalytics thresholds state.db --settings toml -o thresholds.toml",
        "stateanalytics thresholds history/ --review",
    )
)
@sources_argument
@click.option(
    "--false-alarm",
    type=float,
    default=5.0,
    show_default=True,
    help="Count an alarm for nothing as so many minutes.",
)
@click.option(
    "--undetected-hour",
    type=float,
    default=10.0,
    show_default=True,
    help="Count an hour in which a dead or hopeless run goes unnoticed as so many minutes.",
)
@click.option(
    "--lost-run",
    type=float,
    default=60.0,
    show_default=True,
    help="Count a run that was ended though it would have ended well as so many minutes.",
)
@click.option(
    "--run-hour",
    type=float,
    default=3.0,
    show_default=True,
    help="Count an hour of a run as so many minutes.",
)
@click.option(
    "--deaths",
    type=float,
    help="Assume so many deaths per 100 session-hours; by default as many as were seen.",
)
@click.option(
    "--settings",
    type=click.Choice(("toml", "json", "python")),
    help="Give the settings in their owners' words instead of the table.",
)
@click.option(
    "--review",
    is_flag=True,
    help="Say what came of time limits that changed: before, as promised, since.",
)
@takes(*READING)
def thresholds(
    request: Request,
    *,
    false_alarm: float,
    undetected_hour: float,
    lost_run: float,
    run_hour: float,
    deaths: float | None,
    settings: str | None,
    review: bool,
) -> None:
    """Recommend a value for every threshold, beside today's, with what speaks for it.

    Costs are minutes of a person's attention; only their ratios matter. Another value
    is only recommended where it saves more than noise, today's only where none saves much.
    """
    from stateanalytics.thresholds.advice import recommend
    from stateanalytics.thresholds.costs import Costs
    from stateanalytics.thresholds.wording import SAID

    if settings and request.form:
        raise click.UsageError(
            "Settings have a format of their own; found --format, too. Hint: leave it out"
        )
    costs = Costs(false_alarm, undetected_hour, lost_run, run_hour, deaths)
    if review:
        _write_review(request)
        return
    with request.opened(is_table=settings is None) as snap:
        advice = recommend(snap, costs=costs, policy=request.chosen_policy)
        if settings:
            text = {
                "toml": advice.to_toml,
                "json": advice.to_json,
                "python": advice.to_python,
            }[settings]()
            put(text.encode(), request.output, inputs=snap.inputs)
            return
        request.write(advice.frame, columns=SHOWN, inputs=snap.inputs)
        n_of = dict(advice.frame["verdict"].value_counts().iter_rows())
        told = (f"{n_of[name]} {words}" for name, words in SAID.items() if name in n_of)
        note(f"{advice.frame.height} thresholds: {', '.join(told)}")


def _write_review(request: Request) -> None:
    from stateanalytics.thresholds.promises import review

    with request.opened() as snap:
        changed = review(snap, policy=request.chosen_policy)
        request.write(changed, columns=REVIEWED, inputs=snap.inputs)
