"""The command ``failures``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import polars as pl

from stateanalytics.cli.options import (
    examples,
    note,
    opened,
    refuse_options_of_others,
    sources_argument,
)
from stateanalytics.cli.output import form_of, note_of_nothing
from stateanalytics.cli.ownership import WithOwn, known_cluster, ledger_option
from stateanalytics.cli.request import IN_WINDOW, Request, limit_option, takes
from stateanalytics.cli.tables import changed_only, named_entities
from stateanalytics.errors import did_you_mean

if TYPE_CHECKING:
    from stateanalytics.snapshot import Snapshot

N_NAMED = 3
# Columns of a table on the terminal; files hold all.
SHOWN = {
    "clusters": (
        "id",
        "state",
        "owner",
        "n_incidents",
        "cost_usd",
        "run_s",
        "template",
        "code",
        "last_at",
        "n_rows",
    ),
    "codes": ("code", "n_rows", "n_sessions", "n_incidents", "cost_usd", "last_at", "what_to_do"),
    "members": ("failed_at", "entity", "message", "code", "cluster_id"),
    "parameters": ("template", "position", "value", "n_rows", "n_distinct"),
    "change": (
        "id",
        "status",
        "n_incidents_before",
        "n_incidents",
        "cost_usd_before",
        "cost_usd",
        "template",
        "code",
        "why",
    ),
    "life": (
        "id",
        "state",
        "owner",
        "n_incidents_before",
        "n_incidents",
        "cost_usd",
        "template",
        "code",
        "last_at",
    ),
    "lift": ("code", "template", "dimension", "value", "n_in", "n_cluster", "lift", "q_value"),
    "incidents": ("since", "duration_s", "n_sessions", "n_causes", "linked_by", "code", "template"),
    "mass": ("since", "until", "n_starts", "n_failed", "share", "is_mass"),
    "related": ("cause_group", "code", "template", "related_code", "related_template", "score"),
    "rules": ("rule", "name", "action", "n_rows", "n_lost", "lost_to"),
}


@click.command(
    cls=WithOwn,
    epilog=examples(
        "stateanalytics failures state.db --week 2026-W21",
        "stateanalytics failures state.db --week 2026-W21 --rules rules.toml",
        "stateanalytics failures state.db --show change --against last-week/state.db",
        "stateanalytics failures state.db --cluster 3dd4831b",
        "stateanalytics failures state.db --cluster 3dd4831b -o rows.csv",
        "stateanalytics failures history/ --show life --ledger owners.csv",
        "stateanalytics failures own v1:3dd4831bf7f3 --owner ada --ticket OPS-17",
    ),
)
@sources_argument
@click.option(
    "--show",
    type=click.Choice(tuple(SHOWN)),
    help="Choose what is shown: clusters by cost (the default; of one --cluster its members), the "
    "namespace of codes, the rows, what stood in the holes of templates, what is new or gone since "
    "a week, what became of each over all history and whose it is, what distinguishes clusters, "
    "what hangs together, when almost all that was started failed, which clusters may have one "
    "cause, what your rules claimed.",
)
@click.option("--code", help="Count only this code and those below it, such as run.failed.")
@click.option(
    "--cluster", metavar="ID", help="Count only this cluster, by its id or the beginning of it."
)
@click.option(
    "--rules",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Apply your own clusters, from a TOML file.",
)
@click.option(
    "--against",
    metavar="STORE",
    help="Read, with --show change, the earlier stretch from this store.",
)
@click.option(
    "--leave-out-mass",
    is_flag=True,
    help="Count, with --show change, no run that was started when almost all failed.",
)
@ledger_option
@takes(limit_option, *IN_WINDOW)
def failures(
    request: Request,
    *,
    show: str | None,
    code: str | None,
    cluster: str | None,
    rules: Path | None,
    against: str | None,
    leave_out_mass: bool,
    ledger: Path | None,
) -> None:
    """Show why runs fail, by reason code and message template, the most expensive first.

    Without a window, everything is counted; --show change and life then compare the seven
    days up to as-of with the seven before. `failures own` says who looks after a failure.
    """
    show = show or ("clusters" if cluster is None else "members")
    if show == "rules" and rules is None:
        raise click.UsageError("There are no rules to show. Hint: --rules rules.toml")
    refuse_options_of_others(
        f"--show {show}",
        {
            "against": ["--show change"],
            "leave_out_mass": ["--show change"],
            "ledger": ["--show clusters", "--show life"],
        },
    )
    asked: dict[str, Any] = {
        "window": request.window,
        "policy": request.chosen_policy,
        "rules": rules,
    }
    if show == "life":
        asked["ledger"] = ledger
    if show == "change":
        asked["leave_out_mass"] = leave_out_mass
    if show in ("clusters", "codes", "incidents"):
        asked["nested"] = form_of(request.form, request.output) in ("json", "parquet")
    with request.opened() as snap:
        if against is None:
            frame = _answer(show, snap, asked, None)
        else:
            with opened([against], salvage=request.salvage) as earlier:
                frame = _answer(show, snap, asked, earlier)
        if cluster is not None and "cluster_id" in frame.columns:
            of_all = {"policy": request.chosen_policy, "rules": rules}
            cluster = known_cluster(cluster, frame["cluster_id"], snap, **of_all)
        frame = _narrowed(frame, show, code, cluster)
        if show == "parameters" and request.redact:
            frame = _without_taken_out(frame, snap, asked)
        is_table = form_of(request.form, request.output) == "table"
        if show == "clusters" and (is_table or ledger):
            frame = _with_lives(frame, snap, {**asked, "ledger": ledger})
        shown = _for_eyes(frame, show) if is_table else frame
        columns = [name for name in SHOWN[show] if name in shown.columns]
        request.write(shown, columns=columns, inputs=snap.inputs)
        note_of_nothing(shown, snap, request.window)
        _note_failure_is(snap)
        if show == "life":
            _note_renamed(frame)
            _note_unknown(frame)


def _with_lives(clusters: pl.DataFrame, snap: Snapshot, asked: dict[str, Any]) -> pl.DataFrame:
    """Clusters with what became of each lately, and who looks after it."""
    from stateanalytics import failures

    keys = {name: asked[name] for name in ("window", "policy", "rules", "ledger")}
    lives = failures.life(snap, **keys).select("cluster_id", "state", "owner")
    return clusters.join(lives, on="cluster_id", how="left", maintain_order="left")


def _for_eyes(frame: pl.DataFrame, show: str) -> pl.DataFrame:
    """A table with ids to type, and of changes what changed alone."""
    if show == "change":
        frame = changed_only(frame, "status", ("unclear", "steady"))
    if show == "members":
        return named_entities(frame)
    if show not in ("clusters", "change", "life"):
        return frame
    brief = pl.col("cluster_id").str.extract(r"^v\d+:([0-9a-f]{8})")
    named = frame.with_columns(_brief=brief).with_columns(
        id=pl.when(pl.col("_brief").is_unique()).then("_brief").otherwise("cluster_id")
    )
    is_owned = "owner" in frame.columns and frame["owner"].is_not_null().any()
    return named.drop("_brief", *(() if is_owned else ("owner",)), strict=False)


def _note_failure_is(snap: Snapshot) -> None:
    """Say what else some of the systems that were read call a failure."""
    from stateanalytics.systems import all_systems

    for known in all_systems():
        if known.failure_is and known.name in snap.sources["system"]:
            note(f"{known.title}: {known.failure_is}")


def _note_renamed(lives: pl.DataFrame) -> None:
    """Say which ids of the ledger have changed."""
    renamed = lives.filter(pl.col("ledger_id") != pl.col("cluster_id"))
    for was, now in renamed.select("ledger_id", "cluster_id").head(N_NAMED).rows():
        note(f"{was} of the ledger is {now} now; name it so there")


def _note_unknown(lives: pl.DataFrame) -> None:
    """Say which ids of the ledger are of no cluster."""
    unknown = lives.filter(pl.col("state") == "unknown")["cluster_id"].to_list()
    if unknown:
        more = f" and {len(unknown) - N_NAMED} more" if len(unknown) > N_NAMED else ""
        note(f"of the ledger no failure here has: {', '.join(unknown[:N_NAMED])}{more}")


def _answer(
    show: str,
    snap: Snapshot,
    asked: dict[str, Any],
    earlier: Snapshot | None,
) -> pl.DataFrame:
    from stateanalytics import failures

    answers: dict[str, Callable[[], pl.DataFrame]] = {
        "clusters": lambda: failures.clusters(snap, **asked),
        "codes": lambda: failures.codes(snap, **asked),
        "members": lambda: failures.members(snap, **asked),
        "parameters": lambda: failures.parameters(snap, **asked),
        "change": lambda: failures.change(snap, earlier=earlier, **asked),
        "life": lambda: failures.life(snap, **asked),
        "lift": lambda: failures.lift(snap, **asked),
        "incidents": lambda: failures.incidents(snap, **asked),
        "mass": lambda: failures.mass_failures(
            snap, window=asked["window"], policy=asked["policy"]
        ),
        "related": lambda: failures.related(snap, **asked),
        "rules": lambda: failures.rules(snap, **asked),
    }
    return answers[show]()


def _narrowed(
    frame: pl.DataFrame, show: str, code: str | None, cluster: str | None
) -> pl.DataFrame:
    for asked, name, column in ((code, "--code", "code"), (cluster, "--cluster", "cluster_id")):
        if asked is not None and (column not in frame.columns or show == "rules"):
            raise click.UsageError(f"{name} does not narrow --show {show}. Hint: leave it out")
    if code is not None:
        known = frame["code"].drop_nulls().unique().sort()
        is_below = pl.col("code").str.starts_with(f"{code}.")
        frame = frame.filter((pl.col("code") == code) | is_below)
        if frame.is_empty():
            note(f"nothing here has code {code} or one below it{did_you_mean(code, known)}")
    if cluster is not None:
        frame = frame.filter(pl.col("cluster_id") == cluster)
    return frame


def _without_taken_out(
    parameters: pl.DataFrame, snap: Snapshot, asked: dict[str, Any]
) -> pl.DataFrame:
    """Parameters without the words that redaction takes out of the messages.

    A value stands alone here; the words that mark it as a secret are in the template.
    """
    from stateanalytics import failures
    from stateanalytics.core.redaction import redact_texts
    from stateanalytics.core.secret_shapes import PLACEHOLDERS

    words = r"[A-Za-z0-9]+"
    messages, _ = redact_texts(failures.members(snap, **asked)["message"])
    left = messages.str.extract_all(words).explode().unique().implode()
    of_value = pl.col("value").str.extract_all(words)
    is_left = of_value.list.set_difference(pl.lit(left)).list.len() == 0
    masked = pl.when(is_left.fill_null(value=True)).then("value")
    return parameters.with_columns(value=masked.otherwise(pl.lit(PLACEHOLDERS["named secret"])))
