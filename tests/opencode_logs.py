"""Small opencode logs for tests: events as a stream would have them, written by hand."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

import stateanalytics as sa
from stateanalytics.core.facts import Facts
from stateanalytics.systems.reading import read_facts

T0 = 1_795_300_000_000


def event(seq: int | None, kind: str, session: str = "ses_a", **data: Any) -> dict[str, Any]:
    """One event of 2.0 on the wire, a second after the one before."""
    at = data.pop("at_ms", T0 + 1000 * (seq or 0))
    envelope: dict[str, Any] = {
        "id": data.pop("event_id", f"evt_{session}_{seq}_{kind}"),
        "created": at,
        "type": f"session.{kind}" if not kind.startswith("permission") else kind,
        "data": {"sessionID": session, **data},
    }
    if seq is not None:
        envelope["durable"] = {"aggregateID": session, "seq": seq, "version": 1}
    return envelope


def step(seq: int, kind: str, message: str = "msg_1", **data: Any) -> dict[str, Any]:
    """One event of a step or of what it says."""
    return event(seq, kind, assistantMessageID=message, **data)


def write(path: Path, events: Iterable[dict[str, Any] | str]) -> Path:
    """A log with one event a line; a text is written as it is."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in events]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def facts_of(path: Path, *events: dict[str, Any] | str, as_of_ms: int | None = None) -> Facts:
    """The facts of a log."""
    as_of = None if as_of_ms is None else datetime.fromtimestamp(as_of_ms / 1000, UTC)
    return read_facts(write(path / "log.jsonl", events), as_of=as_of)[0]


def in_sessions(lives: Mapping[str, Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Lives that are written as those of `ses_a`, each as a session of its own with that id."""
    return [
        json.loads(json.dumps(one).replace("ses_a", session).replace("msg_", f"msg_{session}_"))
        for session, life in lives.items()
        for one in life
    ]


def ending_at(at_ms: int, *events: dict[str, Any]) -> list[dict[str, Any]]:
    """The same events at another time, so that the last of them is at ``at_ms``."""
    later = at_ms - max(one["created"] for one in events)
    return [
        one
        | {"created": one["created"] + later}
        | {"data": {k: v + later if k == "at" else v for k, v in one["data"].items()}}
        for one in events
    ]


def ms(frame: pl.DataFrame) -> pl.DataFrame:
    """Moments as epoch milliseconds."""
    return frame.with_columns(
        pl.col(name).dt.epoch("ms")
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.Datetime)
    )


@functools.cache
def read_once(path: Path) -> Facts:
    """The facts of a sample, which many tests ask for and none changes."""
    return read_facts(path)[0]


@functools.cache
def states_once(path: Path) -> pl.DataFrame:
    """The states of a sample."""
    return sa.states(read_once(path))


@functools.cache
def reasons_once(path: Path) -> pl.DataFrame:
    """The reasons of a sample."""
    return sa.reasons(read_once(path))


def v1_message(number: int, role: str = "assistant", **data: Any) -> dict[str, Any]:
    """One message of V1 with its ``parts``, ten seconds after the one before."""
    at = T0 + 10_000 * number
    parts = [
        {"id": f"prt_{number}_{place}", "messageID": f"msg_{number}", "sessionID": "ses_v1"} | part
        for place, part in enumerate(data.pop("parts", ()))
    ]
    info = {"id": f"msg_{number}", "sessionID": "ses_v1", "role": role, "time": {"created": at}}
    if role == "assistant":
        info |= {"parentID": "msg_1", "finish": "stop"}
        info["time"]["completed"] = at + 5000
    return {"info": info | data, "parts": parts}


def v1_call(name: str = "bash", status: str = "completed", **state: Any) -> dict[str, Any]:
    """A tool call of V1, as a part of a message."""
    known = {"status": status, "time": {"start": T0, "end": T0 + 1000}}
    return {"type": "tool", "tool": name, "callID": "call_1", "state": known | state}


def v1_export(path: Path, *messages: dict[str, Any], n_silent_s: float = 60) -> Facts:
    """The facts of an export of V1, so long after its last message."""
    created = {"created": T0, "updated": T0}
    exported = {"info": {"id": "ses_v1", "version": "1.18.33", "time": created}}
    (path / "export.json").write_text(json.dumps(exported | {"messages": messages}))
    last = max(message["info"]["time"]["created"] for message in messages)
    as_of = datetime.fromtimestamp(last / 1000 + n_silent_s, UTC)
    return read_facts(path / "export.json", as_of=as_of)[0]
