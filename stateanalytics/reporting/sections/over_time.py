"""Runs over time: how they ended in each step, and how many were open at its end."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stateanalytics.core.joins import collected
from stateanalytics.core.windows import TICK, day_of, instant, iso_week, step_of, steps_between
from stateanalytics.core.words import capitalised, in_one_line, say
from stateanalytics.reporting.material import Material, Plain, Section, iso
from stateanalytics.state.definitions import ENDINGS, is_failure
from stateanalytics.state.population import is_counted
from stateanalytics.stats import process_control
from stateanalytics.stats.intervals import wilson_columns

# Longest window (days), the step that it is cut into, and the name of that step.
STEPS = ((2.0, "1h", "hour"), (35.0, "1d", "day"), (400.0, "1w", "week"))
LONGEST_STEP = ("1mo", "month")


def summarize_over_time(material: Material) -> Plain:
    """Runs that ended in each step of the window, by outcome, and those open at its end."""
    fitting = (step for longest, *step in STEPS if material.window.days <= longest)
    every, name = next(fitting, LONGEST_STEP)
    steps = _steps(material, every)
    ended = material.ended_runs.select(
        from_at=step_of("placed_at", every, material.zone),
        ending=pl.col("outcome").cast(pl.String),
        has_failed=is_failure(),
    )
    counts = collected(
        ended.group_by("from_at", "ending").agg(n=pl.len(), n_failed=pl.col("has_failed").sum())
    )
    section = over_time_of(steps, counts, name)
    moments = material.changes.select(step_of("changed_at", every, material.zone)).to_series()
    marks = list(zip(map(iso, moments), in_one_line(material.changes), strict=True))
    for row in section["rows"]:
        row["changed"] = [text for moment, text in marks if moment == row["from"]]
    return section


def over_time_of(steps: pl.DataFrame, counts: pl.DataFrame, name: str) -> Plain:
    """The section from steps with the runs open at their ends, and ``n`` runs by ending.

    ``n_failed`` of them are failures: for some systems, aborted runs are.
    """
    endings = [ending for ending in ENDINGS if ending in counts["ending"].to_list()]
    endings += sorted(set(counts["ending"].to_list()) - {None, *endings})
    wide = _wide(steps, counts, endings)
    return {
        "finding": _finding(wide, name),
        "denominator": say("over_time.counted"),
        "step": name,
        "endings": endings,
        "rows": [
            {
                **{key: row[key] for key in ("is_part", "n", "n_failed", "n_open")},
                "from": iso(row["from_at"]),
                "label": _label(row["from_at"], name, is_part=row["is_part"]),
                "counts": [row[ending] for ending in endings],
                "changed": [],
            }
            for row in wide.iter_rows(named=True)
        ],
    }


def _steps(material: Material, every: str) -> pl.DataFrame:
    """Every step that overlaps the window, with the runs open at its end."""
    window, as_of = material.window, material.facts.as_of
    last = min(window.until - TICK, as_of)
    ends = (window.since, max(window.since, last))
    from_at, steps_until = (pl.col(x).dt.convert_time_zone("UTC") for x in ("from_at", "until"))
    seen_until = pl.min_horizontal(steps_until, instant(window.until), instant(as_of + TICK))
    is_part = (from_at < instant(window.since)) | (seen_until < steps_until)
    plan = steps_between(*ends, every, material.zone)
    frame = plan.with_columns(seen_until=seen_until, is_part=is_part).collect()
    began = pl.coalesce("started_at", "created_at")
    ended = pl.when(~pl.col("is_open")).then(pl.max_horizontal(began, "placed_at"))
    runs = material.ever.lazy().filter(is_counted("session"))
    times = collected(runs.select(began=began, ended=ended).drop_nulls("began"))
    n_began, n_ended = (
        moments.drop_nulls().sort().search_sorted(frame["seen_until"], side="left").cast(pl.Int64)
        for moments in times
    )
    return frame.hstack([(n_began - n_ended).alias("n_open")])


def _wide(steps: pl.DataFrame, counts: pl.DataFrame, endings: list[str]) -> pl.DataFrame:
    """One row for each step, one column for each ending; zero where no run ended."""
    rows = counts.lazy()
    per_step = rows.group_by("from_at").agg(
        pl.col("n", "n_failed").sum(),
        *(pl.col("n").filter(pl.col("ending") == ending).sum().alias(ending) for ending in endings),
    )
    joined = steps.lazy().join(per_step, on="from_at", how="left", maintain_order="left")
    numbers = pl.col("n", "n_failed", *endings).fill_null(0).cast(pl.Int64)
    return joined.with_columns(numbers).pipe(collected)


def _finding(steps: pl.DataFrame, step_name: str) -> str:
    if not steps["n"].sum():
        return say("over_time.none")
    # A step that the window cuts has fewer runs for that reason alone.
    whole = steps.filter(~pl.col("is_part") | pl.col("is_part").all())
    fewest, most = int(whole["n"].min()), int(whole["n"].max())  # type: ignore[arg-type]
    step = step_name if whole.height == steps.height else f"whole {step_name}"
    name = "over_time.every" if fewest == most else "over_time.range"
    name = name if most else "over_time.no_whole"
    name = "over_time.whole" if steps.height == 1 else name
    ended = capitalised(say(name, n=most, fewest=fewest, most=most, step=step))
    # Ranked by the lower end of the interval, so that 1 failure of 1 run is not the worst day.
    with_ends = steps.lazy().with_columns(wilson_columns("n_failed", "n"))
    order = with_ends.sort("share_low", "from_at", descending=[True, False], nulls_last=True)
    worst = order.pipe(collected).row(0, named=True)
    n_failed, n = worst["n_failed"], worst["n"]
    if not n_failed:
        return say("over_time.none_failed", ended=ended)
    if steps.height == 1:
        return say("over_time.failed", ended=ended, n=n_failed)
    given = {"step": _label(worst["from_at"], step_name), "n_failed": n_failed, "n": n}
    chance = _chance_of_worst(steps, worst)
    return say("over_time.worst", ended=ended, share=n_failed / n, chance=chance, **given)


def _chance_of_worst(steps: pl.DataFrame, worst: Plain) -> str:
    """Whether chance explains the worst of so many steps, in words; empty: not known."""
    ended = steps[["from_at", "n_failed", "n"]].rows()
    ended.sort(key=lambda row: (row[0] == worst["from_at"], row[0]))
    points = [process_control.share_point(n_failed, n) for _, n_failed, n in ended if n > 0]
    n_tests = process_control.CHANGES_PER_ALARM * max(len(points), 1)
    found = process_control.newest_change(points, alpha=0.05 / n_tests, most_new=1)
    if found is None:
        return ""
    high = process_control.share_back(found.high, worst["n"])
    is_beyond = worst["n_failed"] / worst["n"] > high
    name = "over_time.beyond_chance" if is_beyond else "over_time.within_chance"
    return say(name, high=high, n=len(points))


def _label(moment: datetime, name: str, *, is_part: bool = False) -> str:
    day = day_of(moment)
    texts = {"hour": f"{day} {moment:%H:%M}", "day": day, "week": iso_week(moment)}
    text = texts.get(name, f"{moment:%Y-%m}")
    return f"{text} (part)" if is_part else text


SECTION = Section("over_time", "Over time", summarize_over_time, place=70, needs=("endings",))
