"""What happened to one entity, in order: its states, attempts, messages, silences, relatives."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import Facts
from stateanalytics.core.joins import Rows, collected
from stateanalytics.core.redaction import redact_texts
from stateanalytics.core.shapes import Columns, Moment, Real, Text, frame
from stateanalytics.core.text import visible
from stateanalytics.core.words import first_word, how_long, how_long_each
from stateanalytics.errors import ArgumentError, did_you_mean, in_short
from stateanalytics.failures.call_outcomes import calls
from stateanalytics.io.archive.reading import is_archive
from stateanalytics.state.definitions import RUN
from stateanalytics.state.policy import Policy
from stateanalytics.systems import all_systems
from stateanalytics.systems.base import OTHER, Constant, System
from stateanalytics.thresholds.settings import constants

LANES = ("state", "attempt", "parent", "child", "call", "event", "message", "tool", "silence")
_OF_TOOLS = ("action", "tool")
_OF_CALLS = ("call", "tool_end")
SHORTEST_SILENCE_S = 60.0
_MOST_LISTED = 4
N_TEXTS = 6
"""Of so many of its last messages a page shows the text."""
_MOST_SAID_CHARS = 500


class Timeline(Columns, key=("at", "lane", "what")):
    """One thing that happened to an entity, or lasted."""

    at = Moment("when it happened or began")
    until = Moment("when it ended; null: a moment, or it goes on")
    lane = Text("which kind of thing: " + ", ".join(LANES))
    what = Text("the status, ending, message, entity or silence")
    detail = Text("why, or which limits a silence is past")
    duration_s = Real("how long, of an event before it", unit="s")
    outcome = Text("of a call, parent or child: how it ended")
    entity_type = Text("of a parent or child: its type")
    entity_id = Text("of a parent or child: its id")


TIMELINE = frame(Timeline)


def find_entity(entities: pl.DataFrame, entity_id: str) -> dict[str, Any]:
    """The row of an entity by its id, or by the beginning of one that no other has.

    Parameters
    ----------
    entities : polars.DataFrame
        `schema.ENTITIES`.
    entity_id : str
        Or ``type:id`` where several types share an id; also as pages show it, with secrets
        masked and signs that nobody sees as escapes.

    Raises
    ------
    ArgumentError
        If there is none, or there are several.
    """
    if not isinstance(entity_id, str) or not entity_id.strip():
        raise ArgumentError(
            f"session needs the id of an entity; found {in_short(entity_id)}.",
            'sa.session(snap, "6009d20f"): the beginning is enough',
            shell="stateanalytics show state.db 6009d20f: the beginning is enough",
        )
    kind, colon, rest = entity_id.strip().partition(":")
    is_typed = bool(colon) and kind in entities["entity_type"]
    rows = entities.filter(entity_type=kind) if is_typed else entities
    asked = rest if is_typed else entity_id.strip()
    same = rows.filter(pl.col("entity_id") == asked)
    matching = rows.filter(pl.col("entity_id").str.starts_with(asked)) if same.is_empty() else same
    if matching.is_empty():
        shown = redact_texts(rows["entity_id"])[0].map_elements(visible, pl.String)
        matching = rows.filter(shown == asked)
    # A session and the run of it in its own words may share an id: the session is meant.
    of_work = matching.filter(pl.col("entity_type") == "session")
    # Subagents have the id of their session before their own.
    alone = of_work.filter(~pl.col("entity_id").str.contains("/", literal=True))
    found = alone if of_work.height > 1 and alone.height == 1 else of_work
    chosen = found if matching.height > 1 and found.height == 1 else matching
    if chosen.height == 1:
        return chosen.row(0, named=True)
    if chosen.is_empty():
        near = did_you_mean(asked, rows["entity_id"].drop_nulls().unique())
        raise ArgumentError(
            f"There is no entity {entity_id!r:.80} among {entities.height:,}.",
            f'snap.sql("FROM entity_states") lists them{near}',
            shell=f"`stateanalytics attention --show states` lists them{near}",
        )
    name = pl.format("{}:{}", "entity_type", "entity_id")
    names = chosen.select(name.alias("name"), owned=pl.format("{} of {}", name, "source"))
    are_distinct = names["name"].n_unique() == names.height
    listed = names["name" if are_distinct else "owned"].head(_MOST_LISTED)
    raise ArgumentError(
        f"{entity_id!r:.80} is {chosen.height:,} entities: "
        f"{', '.join(listed)}{', …' if chosen.height > _MOST_LISTED else ''}.",
        "write more of it, with its type before a colon where ids are the same"
        if are_distinct
        else "read one of the stores alone",
    )


def timeline_of(
    facts: Facts,
    entity: dict[str, Any],
    *,
    states: pl.DataFrame,
    runs: pl.DataFrame,
    policy: Policy | None = None,
    n_texts: int | None = 0,
    whole: Facts | None = None,
) -> pl.DataFrame:
    """Everything that is known of one entity's life, in order.

    Parameters
    ----------
    facts : Facts
    entity : dict
        A row of ``facts.entities``, from `find_entity`.
    states : polars.DataFrame
        The states of the facts, for the words of its relatives.
    runs : polars.DataFrame
        The `spells` of the facts, for its attempts.
    policy : Policy, optional
        For the limits that silences are held against.
    n_texts : int, optional
        Of how many of its last messages the text is shown; None: of all.
    whole : Facts, optional
        The snapshot with the open stores of the texts, where ``facts`` are a part of it.

    Returns
    -------
    polars.DataFrame
        `TIMELINE`, in the order of ``at``. Silences shorter than a minute are excluded. Equal
        calls in a row with one outcome are one row, with their number, as are messages without
        their text. What only a log needs (``log_kinds`` of its system) and messages that only
        ask for a call are excluded; ``facts.events`` has them.
    """
    is_it = _is(entity)
    changes = facts.transitions.filter(is_it)
    events = facts.events.filter(is_it)
    own = _system_of(entity)
    is_log = pl.col("kind").str.contains(own.words.log_kinds) if own else pl.lit(value=False)
    # Where a status is what records show of a turn, its name is no word for people.
    display = states.filter(is_it)["display"].cast(pl.String).first()
    worded = {entity["raw_status"]: display} if own and own.past.history == "derived" else {}
    own_calls = collected(_calls_of(calls(facts), entity, facts.as_of))
    folded = _calls(own_calls.lazy())
    is_call = pl.col("entity_id").is_in(own_calls["entity_id"].implode())
    parts = (
        _states(changes, entity).with_columns(pl.col("what").replace(worded)),
        _attempts(runs.filter(is_it)),
        _silences(events, entity, facts, policy, states),
        _with_texts(whole or facts, entity, _without_calls(events.lazy(), folded), n_texts)
        .filter(~is_log)
        .pipe(_events)
        .pipe(collected),
        folded,
        # Its calls are shown already, with what they were about.
        _relatives(facts.entities.filter(~is_call), entity, states),
    )
    order = pl.col("lane").replace_strict(list(LANES), list(range(len(LANES))))
    ordered = pl.concat([TIMELINE.conform(part) for part in parts]).sort(
        "at", order, "what", nulls_last=True, maintain_order=True
    )
    alone = _without_wrappers(ordered.lazy(), own_calls["started_at"])
    return collected(_without_repeats(alone))


def _without_wrappers(ordered: pl.LazyFrame, called_at: pl.Series) -> pl.LazyFrame:
    """Rows without the empty messages, such as thoughts, at the moment of a call or a text."""
    is_agents = (pl.col("lane") == "message") & pl.col("what").str.contains(r"^\S+ · assistant")
    has_text = is_agents & pl.col("detail").is_not_null()
    is_wrapper = pl.col("at").is_in(called_at.implode()) | has_text.any().over("at")
    shown = ~is_agents | has_text | ~is_wrapper.fill_null(value=False)
    return ordered.filter(shown).select(*TIMELINE.dtypes)


def _without_repeats(ordered: pl.LazyFrame) -> pl.LazyFrame:
    """Equal messages and events in a row, of which nothing more is shown, as one with a number."""
    is_bare = pl.col("lane").is_in(["message", "event"]) & pl.all_horizontal(
        pl.col("detail", "until", "duration_s", "outcome", "entity_id").is_null()
    )
    alone = pl.when(~is_bare).then(pl.int_range(pl.len()))
    row = pl.struct("lane", "what", alone=alone).rle_id()
    folded = ordered.group_by(row=row, maintain_order=True).agg(pl.all().first(), n=pl.len())
    return folded.with_columns(what=_numbered(pl.col("what"))).select(*TIMELINE.dtypes)


def note_on_texts(
    facts: Facts, entity: dict[str, Any], timeline: pl.DataFrame, *, bodies: bool
) -> str:
    """Why no message of a run shows its text, and what helps; empty where one does.

    Parameters
    ----------
    facts, entity
        As for `timeline_of`.
    timeline : polars.DataFrame
        Its result, with texts.
    bodies : bool
        Whether all texts were asked for.
    """
    if entity["entity_type"] != RUN or timeline.filter(lane="message")["detail"].count():
        return ""
    own = _system_of(entity)
    if own is None or own.runs.texts is None:
        others = "the transcripts of its agents may have them"
        more = "" if bodies else "; --bodies shows what its events hold"
        title = own.title if own else entity["system"]
        return f"No texts of messages: none are read from {title}; {others}{more}."
    if not any(map(is_archive, facts.inputs)):
        return "No texts of messages: the store holds none of this run."
    store = f"show the run from the store itself ({entity['source']}) while that has it"
    if bodies:
        return f"No texts of messages: this archive holds none of this run; {store}."
    kept = "an archive made with --bodies shows them with --bodies"
    return f"No texts of messages: {kept}; otherwise {store}."


def last_steps(
    facts: Facts, entity: dict[str, Any], called: pl.DataFrame, *, n: int = N_TEXTS
) -> pl.DataFrame:
    """The last messages and calls of one entity: the end of its `timeline_of`, at less cost.

    Parameters
    ----------
    facts, entity
        As for `timeline_of`.
    called : polars.DataFrame
        The `calls` of the facts.
    n : int
        How many.

    Returns
    -------
    polars.DataFrame
        `TIMELINE`.
    """
    folded = _calls(_calls_of(called, entity, facts.as_of))
    events = _without_calls(facts.events.lazy().filter(_is(entity)), folded)
    said = events.filter(pl.col("kind").str.starts_with("message")).sort("at", "seq")
    # Of one answer a call, a thought and a text may be messages of their own.
    shown = _events(_with_texts(facts, entity, said.tail(3 * n), None))
    parts = [TIMELINE.empty().lazy(), shown, folded.lazy()]
    steps = pl.concat(parts, how="diagonal_relaxed").sort("at", "what")
    # Not folded: an archive has no texts, and shows as many of its messages.
    return collected(_without_wrappers(steps, folded["at"]).tail(n))


def _system_of(entity: dict[str, Any]) -> System | None:
    return next((known for known in all_systems() if known.name == entity["system"]), None)


def _is(entity: dict[str, Any]) -> pl.Expr:
    return pl.all_horizontal(pl.col(name) == entity[name] for name in schema.ENTITY_KEY)


def _states(changes: pl.DataFrame, entity: dict[str, Any]) -> pl.DataFrame:
    """One row per status; where no change was recorded, the one that the row has."""
    if changes.is_empty():
        at = entity["ended_at"] or entity["started_at"] or entity["created_at"]
        row = {"at": at, "what": entity["raw_status"], "detail": entity["reason_message"]}
        return _lasting(pl.DataFrame([row], schema=_SHAPE), "state")
    ordered = changes.sort("at", "seq")
    return _lasting(
        ordered.select(
            "at",
            until=pl.col("at").shift(-1),
            what="status",
            detail=pl.coalesce("message", "reason_code"),
        ),
        "state",
    )


_SHAPE = {name: TIMELINE.dtypes[name] for name in ("at", "what", "detail", "until")}


def _attempts(runs: pl.DataFrame) -> pl.DataFrame:
    return _lasting(
        runs.select(
            at="started_at",
            until="ended_at",
            what=pl.format("attempt {}: {}", pl.int_range(1, pl.len() + 1), "ending"),
            detail=pl.when(pl.col("timeout_s").is_not_null()).then(
                pl.format("time limit {}", how_long_each("timeout_s"))
            ),
        ),
        "attempt",
    )


def _silences(
    events: pl.DataFrame,
    entity: dict[str, Any],
    facts: Facts,
    policy: Policy | None,
    states: pl.DataFrame,
) -> pl.DataFrame:
    """Stretches without a sign of life while it worked, and the limits that they are past.

    Between two turns, and while a question is open, it waits for a person.
    """
    session = entity["session_id"] if entity["entity_type"] == RUN else None
    turns = facts.entities.filter(
        pl.col("session_id") == pl.lit(session, pl.String),
        source=entity["source"],
        entity_type="turn",
    ).select("started_at", turn_until=pl.col("ended_at").fill_null(facts.as_of))
    turns = turns.drop_nulls("started_at").sort("started_at")
    ends = [entity["started_at"], entity["ended_at"] or facts.as_of]
    # The last sign may be recorded without the event that it was.
    known = pl.Series([*ends, entity["last_activity_at"]], dtype=schema.MOMENT)
    of_turns = [turns["started_at"], turns["turn_until"]]
    signs = pl.concat([events.filter("is_activity")["at"], known, *of_turns]).drop_nulls()
    within = signs.to_frame("at").unique().sort("at").filter(
        pl.col("at") <= ends[1], pl.col("at") >= (ends[0] or signs.min())
    )  # fmt: skip
    gaps = _lasting(within.with_columns(until=pl.col("at").shift(-1)), "silence").filter(
        pl.col("duration_s") >= SHORTEST_SILENCE_S
    )
    passed = pl.concat_str(
        [
            pl.when(pl.col("duration_s") > limit.today_s).then(
                pl.lit(f"{limit.name} ({how_long(limit.today_s)})")
            )
            for limit in _limits(entity, policy)
        ]
        or [pl.lit(None, pl.String)],
        separator=", ",
        ignore_nulls=True,
    )
    if turns.height:
        in_turns = gaps.sort("at").join_asof(turns, left_on="at", right_on="started_at")
        gaps = in_turns.filter(pl.col("at") < pl.col("turn_until")).drop("started_at", "turn_until")
    if "idle" in states.filter(_is(entity))["health"].cast(pl.String):
        gaps = gaps.filter(pl.col("until") < facts.as_of)
    return gaps.with_columns(
        what=pl.format("silent for {}", how_long_each("duration_s")),
        detail=pl.when(passed != "").then(pl.format("past {}", passed)),
    )


def _limits(entity: dict[str, Any], policy: Policy | None) -> list[Constant]:
    """Today's limits of silence for such work, the shortest first."""
    kind = entity["kind"]
    held = [
        constant
        for constant in constants(policy)
        if constant.system == entity["system"]
        # A schedule waits for its next run, and does not work.
        and entity["entity_type"] != "schedule"
        and constant.is_of_silence
        and constant.is_there
        and constant.today_s is not None
        and (
            constant.kind in (None, kind)
            or (constant.kind == OTHER and kind not in constant.other_kinds)
        )
    ]
    return sorted(held, key=lambda constant: (constant.today_s, constant.name))


def _calls_of(called: pl.DataFrame, entity: dict[str, Any], as_of: datetime) -> pl.LazyFrame:
    """The calls of a session, a subagent or a turn."""
    if entity["entity_type"] not in ("session", "turn"):
        return schema.CALLS.empty().lazy()
    own = {name: entity[name] for name in ("source", "system")}
    if entity["entity_type"] == "session":
        return called.lazy().filter(**own, thread_id=entity["entity_id"])
    end = entity["ended_at"] or as_of
    is_own = pl.col("started_at").is_between(entity["started_at"], end).fill_null(value=False)
    return called.lazy().filter(is_own, **own, thread_id=entity["parent_id"])


def _calls(own: pl.LazyFrame) -> pl.DataFrame:
    """One row for each call, or for several equal ones in a row with one outcome."""
    same = pl.struct("tool", "input_digest", "outcome").rle_id()
    alone = pl.when(pl.col("input_digest").is_null()).then(pl.int_range(pl.len()))
    folded = own.group_by(row=pl.struct(same, alone=alone), maintain_order=True).agg(
        pl.col("tool", "target", "outcome", "exit_code").first(),
        n=pl.len(),
        at=pl.col("started_at").first(),
        until=pl.col("ended_at").max(),
        message=pl.col("message").drop_nulls().last(),
    )
    name = pl.concat_str("tool", "target", separator=" ", ignore_nulls=True)
    exited = pl.when(pl.col("exit_code") != 0).then(pl.format("exit {}", "exit_code"))
    outcome = pl.col("outcome").replace({"ok": None, "unknown": "no result"}).str.replace("_", " ")
    calls = _lasting(folded, "call").with_columns(
        what=_numbered(name),
        detail=pl.concat_str(outcome, exited, "message", separator=", ", ignore_nulls=True).replace(
            "", None
        ),
    )
    return collected(calls)


def _numbered(what: pl.Expr) -> pl.Expr:
    return pl.when(pl.col("n") > 1).then(pl.format("{} × {}", "n", what)).otherwise(what)


def _without_calls(events: pl.LazyFrame, folded: pl.DataFrame) -> pl.LazyFrame:
    """Events without those that only record a call which has a line of its own.

    These are results of tools, and answers that ask for a call again and again.
    """
    if folded.is_empty():
        return events
    kind = pl.col("kind")
    is_result = pl.col("role").is_in(_OF_TOOLS) | kind.is_in(_OF_CALLS)
    repeated = folded.lazy().filter(pl.col("n") > 1)
    loops = repeated.select(loop_at="at", loop_until="until").sort("loop_at")
    placed = events.sort("at").join_asof(loops, left_on="at", right_on="loop_at")
    is_in_loop = (pl.col("at") <= pl.col("loop_until")) & kind.str.starts_with("message")
    is_hidden = (is_result | is_in_loop).fill_null(value=False)
    return placed.filter(~is_hidden).drop("loop_at", "loop_until")


def _with_texts(
    facts: Facts, entity: dict[str, Any], events: pl.LazyFrame, n_texts: int | None
) -> pl.LazyFrame:
    """Events with the texts of the last messages as their detail, where a system has them."""
    if n_texts == 0:
        return events
    own = _system_of(entity)
    said = [own.runs.texts(facts, entity)] if own and own.runs.texts else []
    events = events.sort("at", "seq")
    shown = events.with_columns(text=pl.lit(None, pl.String))
    if said:
        # Where no event says who spoke, the text of the same moment does.
        speaker = said[0].lazy().unique("at", keep="first").select("at", speaker="role")
        is_said = pl.col("role").is_in(["user", "assistant"]).any()
        is_first = pl.struct("at", "speaker").is_first_distinct()
        is_spoken = ~is_said & is_first & pl.col("speaker").is_not_null()
        events = (
            events.join(speaker, on="at", how="left", maintain_order="left")
            .with_columns(
                role=pl.when(is_spoken).then("speaker").otherwise("role"),
                kind=pl.when(is_spoken).then(pl.lit("message")).otherwise("kind"),
            )
            .drop("speaker")
        )
        known = said[0].lazy().join(events, on=["at", "role"], how="semi", maintain_order="left")
        last = known if n_texts is None else known.tail(n_texts)
        # Thoughts may have the moment of the text behind them.
        its_text = pl.when(pl.struct("at", "role").is_last_distinct()).then("text")
        shown = events.join(last, on=["at", "role"], how="left", maintain_order="left")
        shown = shown.with_columns(text=its_text)
    text = pl.coalesce("text", pl.col("body").cast(pl.String)).str.slice(0, _MOST_SAID_CHARS)
    return shown.with_columns(detail=pl.coalesce("detail", text.replace("", None))).drop("text")


def _events(events: pl.LazyFrame) -> pl.LazyFrame:
    is_message = pl.col("kind").str.starts_with("message")
    words = pl.concat_str("kind", "role", "name", separator=" · ", ignore_nulls=True)
    return events.sort("at", "seq").select(
        *("at", "detail", "duration_s"),
        lane=first_word(
            "event", tool=is_message & pl.col("role").is_in(_OF_TOOLS), message=is_message
        ),
        what=words,
    )


def _relatives(
    entities: pl.DataFrame, entity: dict[str, Any], states: pl.DataFrame
) -> pl.DataFrame:
    """Who it belongs to, and what belongs to it or works for it."""
    own_type, own_id = entity["entity_type"], entity["entity_id"]
    is_similar = pl.all_horizontal(pl.col(name) == entity[name] for name in ("source", "system"))
    is_self = (pl.col("entity_type") == own_type) & (pl.col("entity_id") == own_id)
    is_child = (pl.col("parent_type") == own_type) & (pl.col("parent_id") == own_id)
    if own_type == "session":
        is_child = is_child | (pl.col("session_id") == own_id)
    if own_type == "invocation":
        is_child = is_child | (pl.col("invocation_id") == own_id)
    named = {entity["parent_type"]: entity["parent_id"], "invocation": entity["invocation_id"]}
    if own_type != "session":
        named["session"] = entity["session_id"]
    is_parent = pl.any_horizontal(
        pl.lit(value=False),
        *(
            (pl.col("entity_type") == kind) & (pl.col("entity_id") == its_id)
            for kind, its_id in named.items()
            if kind is not None and its_id is not None
        ),
    )
    near = entities.filter(
        is_similar & ~is_self & (is_child.fill_null(value=False) | is_parent)
    ).with_columns(lane=pl.when(is_parent).then(pl.lit("parent")).otherwise(pl.lit("child")))
    worded = near.join(
        states.select(*schema.ENTITY_KEY, "display", pl.col("outcome").cast(pl.String)),
        on=schema.ENTITY_KEY,
        how="left",
    )
    began = pl.coalesce("started_at", "created_at", "ended_at")
    return worded.select(
        *("lane", "entity_type", "entity_id", "outcome"),
        at=began,
        until="ended_at",
        what=pl.concat_str("entity_type", pl.coalesce("name", "entity_id"), separator=" "),
        detail="display",
        duration_s=_seconds(pl.col("ended_at") - pl.col("started_at")),
    )


def _lasting(rows: Rows, lane: str) -> Rows:
    return rows.with_columns(lane=pl.lit(lane), duration_s=_seconds(pl.col("until") - pl.col("at")))


def _seconds(lasted: pl.Expr) -> pl.Expr:
    return lasted.dt.total_microseconds() / 1e6
