"""The last messages and calls of examples, shown with each action of the page."""

from __future__ import annotations

import shlex
from typing import Any

import polars as pl

from stateanalytics.core.text import shortened
from stateanalytics.core.words import capitalised, how_long
from stateanalytics.reporting.entities import pill_of, show_command
from stateanalytics.reporting.first_screen import N_EXAMPLES
from stateanalytics.reporting.material import Material, Plain, iso
from stateanalytics.state.definitions import RUN
from stateanalytics.systems import stop_commands
from stateanalytics.timeline import last_steps

_KEY = ("source", "entity_type", "entity_id")
N_STEPS, LONGEST_STEP = 5, 90


def with_evidence(actions: list[Plain], material: Material, place: str) -> list[Plain]:
    """The actions with the last messages and calls of at most two examples of each.

    Parameters
    ----------
    actions : list of dict
        From `first_screen.actions_of`.
    material : Material
        Only the examples are looked up in it.
    place : str
        The inputs as arguments of a command.

    Returns
    -------
    list of dict
        Each with ``examples``: ``name``, the key of an entity, ``rows`` (each ``at`` and
        ``words``), ``command``, which shows its whole history, and ``stop``, how its
        orchestrator stops it (None: not known, or it is not open). Examples of which nothing
        is recorded are excluded.
    """
    keys = [_keys(action, material) for action in actions]
    asked = list(dict.fromkeys(key for some in keys for key in some))
    wanted = pl.LazyFrame(asked, dict.fromkeys(_KEY, pl.String), orient="row")
    rows = material.ever.lazy().join(wanted, on=_KEY, how="semi").collect()
    found = {
        tuple(row[name] for name in _KEY): _example(row, material, place)
        for row in rows.iter_rows(named=True)
    }
    return [
        {
            **action,
            "examples": [found[key] for key in some if key in found and found[key]["rows"]],
        }
        for action, some in zip(actions, keys, strict=True)
    ]


def _keys(action: Plain, material: Material) -> list[tuple[str, ...]]:
    if action["cluster_id"] is None:
        return [tuple(one[name] for name in _KEY) for one in action["examples"]]
    failed = material.failed.lazy().filter(cluster_id=action["cluster_id"])
    newest = failed.sort(pl.col("entity_type") == RUN, "failed_at", *_KEY, descending=True)
    return newest.select(_KEY).head(N_EXAMPLES).collect().rows()


def _example(row: Plain, material: Material, place: str) -> Plain:
    steps = last_steps(material.facts, row, material.calls, n=N_STEPS)
    lines = [line_of(step) for step in steps.iter_rows(named=True)]
    lines = [{**line, "words": shortened(line["words"], LONGEST_STEP)} for line in lines]
    # Its state as on the page: the words of a store are no words for people.
    ended = ": ".join(filter(None, (capitalised(pill_of(row)["label"]), row["reason_message"])))
    if row["ended_at"] is not None:
        lines.append({"at": iso(row["ended_at"]), "words": ended})
    is_open_run = row["is_open"] and row["entity_type"] == RUN and row["left_out"] is None
    own = stop_commands().get(row["system"]) if is_open_run else None
    return {
        **{name: row[name] for name in (*_KEY, "name")},
        "rows": lines,
        "command": show_command(row, place),
        "stop": own.replace("ID", shlex.quote(row["entity_id"])) if own else None,
    }


def line_of(row: dict[str, Any]) -> Plain:
    """A row of a timeline in words."""
    lasted = row["duration_s"]
    long = f", {how_long(lasted)}" if lasted and row["lane"] != "silence" else ""
    why = f": {' '.join(row['detail'].split())}" if row["detail"] else ""  # one line a row
    words = f"{row['what'] or 'unknown'}{long}{why}"
    about = {name: row[name] for name in ("lane", "entity_id")}
    return {"at": iso(row["at"]), **about, "words": words}
