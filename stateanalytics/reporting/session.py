"""The page of an entity: its facts, its timeline, why it ended so, and similar failures."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.redaction import redact as redact_frame
from stateanalytics.core.text import APART, CELL, as_written
from stateanalytics.core.windows import minute_of
from stateanalytics.core.words import how_long, say
from stateanalytics.failures.failure_rows import find_members, select_failures
from stateanalytics.io.outputs import write_output
from stateanalytics.reporting.entities import pill_of
from stateanalytics.reporting.evidence import line_of
from stateanalytics.reporting.material import Plain, clean
from stateanalytics.state.definitions import GOOD_ENDS
from stateanalytics.state.policy import Policy
from stateanalytics.state.population import rows_of
from stateanalytics.state.reasons import REGISTRY
from stateanalytics.state.states import states_and_reasons
from stateanalytics.survival.run_spells import spells
from stateanalytics.systems.history import linked_work
from stateanalytics.timeline import N_TEXTS, find_entity, note_on_texts, timeline_of

if TYPE_CHECKING:
    import altair as alt

_MOST_ROWS = 300
_FACTS = {
    "system": "System",
    "kind": "Kind",
    "agent": "Agent",
    "model": "Model",
    "project": "Project",
    "playbook": "Playbook",
    "invocation_id": "Invocation",
    "source": "Store",
}


def session_page(
    snap: Facts,
    entity_id: str,
    *,
    policy: Policy | None = None,
    redact: bool = True,
    n_texts: int | None = N_TEXTS,
) -> SessionPage:
    """The page of an entity as plain data, and the frame of its timeline.

    Parameters
    ----------
    snap, entity_id, policy, redact
        As for `widgets.timeline.session`, which shows the same in a notebook.
    n_texts : int, optional
        Of how many of its last messages the text is shown; None: of all.

    Raises
    ------
    ArgumentError
        If there is no such entity, or several; the message names them.
    """
    whole = checked_snapshot(snap, "session")
    entity = find_entity(whole.entities, entity_id)
    facts = linked_work(whole, entity["entity_id"])
    states, reasons = states_and_reasons(facts, policy=policy)
    rows = rows_of(facts, states=states)
    runs = spells(facts, rows=rows)
    timeline = timeline_of(
        facts, entity, states=states, runs=runs, policy=policy, n_texts=n_texts, whole=whole
    )
    is_entity = pl.all_horizontal(pl.col(name) == entity[name] for name in schema.ENTITY_KEY)
    state = states.filter(is_entity).row(0, named=True)
    why = reasons.filter(is_entity).sort("order")
    note = "" if n_texts == 0 else note_on_texts(whole, entity, timeline, bodies=n_texts is None)
    plain = {
        "name": entity["name"] or entity["entity_id"],
        **{name: entity[name] for name in ("entity_type", "entity_id")},
        "as_of": minute_of(facts.as_of),
        "finding": _finding(entity, state, facts.as_of, why),
        "pill": pill_of(state),
        "severity": state["severity"],
        "facts": _facts(entity),
        "reasons": [_reason(row) for row in why.select(_REASON).iter_rows(named=True)],
        "similar": _similar(whole, policy, select_failures(rows.filter(is_entity)), is_entity),
        "rows": [line_of(row) for row in timeline.head(_MOST_ROWS).iter_rows(named=True)],
        "n_rows": timeline.height,
        "note_on_texts": note,
    }
    shown, n_masked = clean(plain, secrets=redact)
    return SessionPage({**shown, "n_masked": n_masked.total()}, timeline, facts.inputs, redact)


def _reason(row: dict[str, Any]) -> Plain:
    """A reason with advice; None where there is nothing to do, or its code is not known."""
    known = REGISTRY.get(row["code"]) if row["code"] else None
    advice = known.what_to_do if known else None
    return {**row, "what_to_do": None if (advice or "Nothing").startswith("Nothing") else advice}


_REASON = ("dimension", "code", "message", "claim_status", "confidence", "evidence")


@dataclass(repr=False, eq=False)
class SessionPage:
    """An entity, from `session_page`.

    Attributes
    ----------
    summary : dict
        The content of the page as plain data, safe to show.
    timeline : polars.DataFrame
        `timeline.TIMELINE`: everything that happened, as stored.
    inputs : tuple of Path
        Files that were read, which are never written over.
    is_redacted : bool
        Whether secrets were masked in the summary.
    """

    summary: Plain
    timeline: pl.DataFrame
    inputs: tuple[Path, ...] = field(default=())
    is_redacted: bool = True

    def chart(self, *, width: int = 620) -> alt.LayerChart:
        """The timeline as a chart: a lane for each kind of event."""
        from stateanalytics.charts.timeline import chart_timeline

        return chart_timeline(self.drawn, sentence=self.summary["finding"], width=width)

    def as_html(self) -> str:
        """The whole page: one file, no network, no script."""
        from stateanalytics.reporting.render import render_session

        return render_session(self.summary, self.drawn)

    @cached_property
    def drawn(self) -> pl.DataFrame:
        """The timeline for charts, with secrets masked: the labels of bars may hold some, too."""
        # Secrets are masked before labels are cut: half of a secret is not recognised.
        return redact_frame(self.timeline)[0] if self.is_redacted else self.timeline

    def write_html(self, path: str | Path) -> Path:
        """Write the page atomically and return its path."""
        return write_output(
            path, self.as_html().encode(), inputs=self.inputs, is_private=not self.is_redacted
        )

    def __repr__(self) -> str:
        page = self.summary
        lines = [f"{_called(page)}: {page['finding']}"]
        lines += [f"  {row['at'] or '?':24}  {row['words']}" for row in page["rows"]]
        n_left = page["n_rows"] - len(page["rows"])
        lines += [f"  and {n_left} more"] if n_left else []
        return "\n".join([*lines, *_notes(page)])

    def _repr_html_(self) -> str:
        page = self.summary
        cells = "".join(
            f"<tr><td{APART}>{html.escape(row['at'] or '?')}</td>"
            f"<td{CELL}>{html.escape(row['words'])}</td></tr>"
            for row in page["rows"]
        )
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in _notes(page))
        return as_written(
            f"<p><strong>{html.escape(_called(page))}.</strong> {html.escape(page['finding'])}</p>"
            f"<table>{cells}</table>{notes}"
        )


def _notes(page: Plain) -> list[str]:
    """What follows the timeline: its texts, similar failures, and advice without repeats."""
    advice = [reason["what_to_do"] for reason in page["reasons"] if reason["what_to_do"]]
    notes = filter(None, (page["note_on_texts"], page["similar"]["in_words"]))
    return [*notes, *(f"What to do: {text}" for text in dict.fromkeys(advice))]


def _called(page: Plain) -> str:
    """Its type and name, and its id where that differs."""
    what = f"{page['entity_type']} {page['name']}"
    return what if page["name"] == page["entity_id"] else f"{what} ({page['entity_id']})"


def _finding(
    entity: dict[str, Any], state: dict[str, Any], as_of: datetime, reasons: pl.DataFrame
) -> str:
    """The state, its duration and its reason, in a sentence."""
    # Work that its record has as open is open, whatever end stands next to it.
    began, ended = entity["started_at"], entity["ended_at"] if state["outcome"] else None
    lasted = ((ended or as_of) - began).total_seconds() if began else None
    name = "session.after" if ended else "session.open_for"
    if lasted is not None and lasted < 0:
        name, lasted = "session.reversed", -lasted
    inferred = reasons.filter(dimension="lifecycle")["message"].to_list()
    # A resumed run may still have the numbers of an earlier time.
    after = _timed_out(entity) if state["outcome"] == "timed_out" else None
    timed_out = f"timed out {after}" if after else None
    why = entity["reason_message"] or timed_out or entity["reason_code"] or next(iter(inferred), "")
    return say(
        "session.finding",
        state=state["display"] or state["lifecycle"] or "unknown",
        duration="" if lasted is None else say(name, seconds=lasted, as_of=minute_of(as_of)),
        reason=say("session.reason", text=why) if why else "",
    )


def _timed_out(entity: dict[str, Any]) -> str | None:
    """When a time limit stopped it, if that is recorded."""
    limit_s, elapsed_s = entity["timeout_s"], entity["timeout_elapsed_s"]
    if None in (limit_s, elapsed_s):
        return None
    return f"after {elapsed_s:,g} s (configured timeout: {limit_s:,g} s)"


def _facts(entity: dict[str, Any]) -> list[Plain]:
    facts = {label: entity[name] for name, label in _FACTS.items()}
    facts["Timed out"] = _timed_out(entity)
    if entity["timeout_s"] is not None:
        facts["Time limit"] = how_long(entity["timeout_s"])
    if entity["cost_usd"] is not None:
        facts["Cost"] = f"{entity['cost_usd']:,.2f} USD"
    tokens = [entity["n_input_tokens"], entity["n_output_tokens"]]
    if None not in tokens:
        facts["Tokens read, written"] = f"{tokens[0]:,}, {tokens[1]:,}"
    return [{"label": name, "value": value} for name, value in facts.items() if value is not None]


def _similar(
    facts: Facts, policy: Policy | None, itself: pl.DataFrame, is_entity: pl.Expr
) -> Plain:
    """What became of other entities that failed with the same message."""
    # Clusters are those of all failures, so what did not fail needs none of them.
    if itself.is_empty():
        return {"in_words": "", "cluster_id": None, "template": None}
    rows = rows_of(facts, policy=policy)
    failed = find_members(facts, rows=rows)
    own = failed.filter(is_entity)
    cluster = own["cluster_id"][0]
    others = failed.filter(pl.col("cluster_id") == cluster, ~is_entity)
    resumed = spells(facts, rows=rows).join(others, on=schema.ENTITY_KEY, how="semi")
    works = resumed.group_by(schema.ENTITY_KEY).agg(
        is_resumed=pl.len() > 1, ended_well=pl.col("ending").last().is_in(list(GOOD_ENDS))
    )
    n_resumed = int(works["is_resumed"].sum())
    n_well = works.filter("is_resumed", "ended_well").height
    more = say("session.resumed", n=n_resumed, n_well=n_well) if n_resumed else ""
    incident = failed.join(own.drop_nulls("incident_id"), on="incident_id", how="semi")
    if incident["unit"].n_unique() > 1:
        span = incident.select(pl.col("failed_at").max() - pl.col("failed_at").min()).item()
        more += say("session.together", n=incident.height, seconds=span.total_seconds())
    return {
        "in_words": say("session.similar", n=others.height, cluster=cluster, more=more),
        "cluster_id": cluster,
        "template": own["template"][0],
    }
