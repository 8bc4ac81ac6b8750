"""The command ``thresholds``."""

from __future__ import annotations

import click

from stateanalytics.cli.options import (
    examples,
    note,
    policy_of,
    refuse_options_of_others,
    sources_argument,
)
from stateanalytics.cli.output import put
from stateanalytics.cli.request import READING, Request, takes

REVIEWED = ("name", "changed_at", "measure", "before", "promised", "since", "verdict", "in_words")
CHANGED = ("entity_type", "entity_id", "severity_a", "severity_b", "display_a", "display_b")
SHOWN = ("name", "today_s", "recommended_s", "verdict", "n", "in_words")


@click.command(
    epilog=examples(
        "stateanalytics thresholds state.db",
        "stateanalytics thresholds state.db --false-alarm 20 -o thresholds.csv",
        "stateanalytics thresholds state.db --settings toml -o thresholds.toml",
        "stateanalytics thresholds history/ --review",
        "stateanalytics thresholds state.db --policy v1 --against operator",
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
@click.option(
    "--against",
    metavar="NAME|FILE",
    help="List instead which entities have another severity under this policy than under --policy.",
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
    against: str | None,
) -> None:
    """Recommend a value for every threshold, with the evidence.

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
    advised = ("the recommendations",)
    costing = ("false_alarm", "undetected_hour", "lost_run", "run_hour", "deaths", "settings")
    mode = "--review" if review else "--against" if against is not None else advised[0]
    refuse_options_of_others(mode, {**dict.fromkeys(costing, advised), "against": ["--against"]})
    if review:
        _write_review(request)
        return
    if against is not None:
        _write_changes(request, against)
        return
    costs = Costs(false_alarm, undetected_hour, lost_run, run_hour, deaths)
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
        counts = (f"{n_of[name]} {words}" for name, words in SAID.items() if name in n_of)
        note(f"{advice.frame.height} thresholds: {', '.join(counts)}")


def _write_review(request: Request) -> None:
    from stateanalytics.thresholds.promises import review

    with request.opened() as snap:
        changed = review(snap, policy=request.chosen_policy)
        request.write(changed, columns=REVIEWED, inputs=snap.inputs)


def _write_changes(request: Request, against: str) -> None:
    from stateanalytics.state.states import compare_policies, count_changes

    with request.opened() as snap:
        changed = compare_policies(snap, request.chosen_policy, policy_of(against))
        for entity_type, before, after, n in count_changes(changed).head(5).iter_rows():
            note(f"{n:,} of type {entity_type} from {before} to {after}")
        request.write(changed, columns=CHANGED, inputs=snap.inputs)
