"""What the three systems share: a run that is folded from records, and its rows in frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics import plugin
from stateanalytics.plugin import Column, ReasonCode, as_count, as_text, schema

COUNTS = ("n_input_tokens", "n_output_tokens", "n_cache_read_tokens", "n_cache_write_tokens")
_ERROR = {"error_type": pl.String, "error_status": pl.Int64, "error_message": pl.String}
_TEXTS = {"input": pl.String, "output": pl.String}


def text_in(value: object, most: int = 500) -> str | None:
    """The beginning of a text; null for anything else, and for an empty text."""
    return (as_text(value) or "")[:most] or None


def mapping(value: object) -> dict[str, Any]:
    """An object of JSON; empty for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list of JSON; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def calls_frame(system: str) -> plugin.Frame:
    """The detail frame of calls: those of `schema.CALLS`, with whether each failed."""
    failed = Column("is_error", schema.YES_NO, "it failed; null: no result")
    key, columns = ("source", "thread_id", "call_id"), (*schema.CALLS.columns, failed)
    return plugin.Frame(f"{system}_calls", "one call of a tool", key, columns)


def used_frame(system: str) -> plugin.Frame:
    """The detail frame of tokens: a row for each answer of a model, as far as each is recorded."""
    columns = (
        *schema.KEY_COLUMNS,
        Column("at", schema.MOMENT, "when"),
        Column("model", schema.TEXT, "model id"),
        *(Column(name, schema.INTEGER, "as in entities", "tokens") for name in COUNTS),
    )
    key = (*(column.name for column in schema.KEY_COLUMNS), "at", "model")
    return plugin.Frame(f"{system}_usage", "the tokens of one answer", key, columns)


def cause_of(kind: object, status: object, message: object) -> str:
    """The cause of an error of a provider: ``provider_unknown`` where no rule fits."""
    return _cause(text_in(kind), as_count(status), text_in(message))


@lru_cache(maxsize=4096)
def _cause(*error: Any) -> str:
    """Thousands of equal errors are judged once."""
    return str(pl.DataFrame([error], _ERROR, orient="row").select(plugin.cause_of_error()).item())


class Run:
    """A session or a part of it, to which its records are applied in order.

    Attributes
    ----------
    row : dict
        Its row of ``entities``.
    status : str
        Its status; a change of it is a row of ``transitions``.
    changes, calls, used : list or dict
        Rows of ``transitions``, calls by their id, and tokens.
    n : Counter
        Counts, by name of the column.
    """

    def __init__(self, key: str, parent: str | None = None, ends: Iterable[str] = ()) -> None:
        kind = "subagent" if parent else "session"
        self.row: dict[str, Any] = {"entity_id": key, "session_id": key, "kind": kind}
        self.row |= {"parent_id": parent, "parent_type": parent and "session"}
        self.status, self.ends = "", tuple(ends)
        self.changes: list[dict[str, Any]] = []
        self.calls: dict[str, dict[str, Any]] = {}
        self.used: list[dict[str, Any]] = []
        self.n: Counter[str] = Counter()

    def becomes(
        self, status: str, at: Any, reason: str | None = None, message: str | None = None
    ) -> None:
        """Note a change of the status, and the end of the work where it is one."""
        if status == self.status:
            return
        change = {"previous_status": self.status or None, "status": status, "reason_code": reason}
        change |= {"entity_id": self.row["entity_id"], "at": at, "message": message}
        self.changes.append(change | {"writer": "executor"})
        is_end = status in self.ends
        self.row |= {"reason_code": reason, "reason_message": message}
        self.row["ended_at"] = at if is_end else None
        self.row["end_written_by"] = "executor" if is_end else None
        self.status = status

    def seen(self, at: Any) -> None:
        """Note a sign of life."""
        if at is not None:
            self.row.setdefault("started_at", at)
            self.row["last_activity_at"] = at

    def says(self, at: Any) -> None:
        """Note a prompt or an answer."""
        self.n["n_chat_messages"] += 1
        self.row["last_message_at"] = at

    def uses(
        self, usage: Mapping[str, Any], names: Mapping[str, str], *, model: object, at: Any
    ) -> None:
        """Note tokens, by the names that the format has for `COUNTS`."""
        place = {name: self.row.get(name) for name in ("entity_type", "entity_id")}
        place |= {"at": at, "model": as_text(model)}
        counts = {name: as_count(usage.get(key)) for name, key in names.items()}
        self.used.append(place | counts)

    def entity(self) -> dict[str, Any]:
        """Its row of ``entities``; tokens are null where none are recorded."""
        known = {
            name: [use[name] for use in self.used if use.get(name) is not None] for name in COUNTS
        }
        is_open = self.status not in self.ends
        n_open = sum(call.get("ended_at") is None for call in self.calls.values())
        return {
            **{name: sum(values) if values else None for name, values in known.items()},
            **self.n,
            "n_messages": self.n.get("n_chat_messages"),
            "created_at": self.row.get("started_at"),
            "raw_status": self.status or None,
            "n_running": n_open if is_open else 0,
            **self.row,
        }


def typed(rows: list[dict[str, Any]], frame: plugin.Frame, label: str, system: str) -> pl.DataFrame:
    """Rows in the shape of a frame; they are of sessions unless they say otherwise."""
    table = pl.DataFrame(rows, schema=frame.dtypes, strict=False)
    key = {"source": label, "system": system, "entity_type": "session"}
    names = [name for name in key if name in frame.dtypes]
    return frame.conform(
        table.with_columns(pl.col(name).fill_null(pl.lit(key[name])) for name in names)
    )


def typed_calls(runs: Iterable[Run], frame: plugin.Frame, label: str, system: str) -> pl.DataFrame:
    """Calls of tools, with what their ``input`` and ``output`` show and why they failed."""
    calls = [call for run in runs for call in run.calls.values()]
    rows = pl.DataFrame(calls, schema={**frame.dtypes, **_TEXTS}, strict=False)
    found = [*plugin.inputs_of(rows["input"]), *plugin.results_of(rows["output"])]
    by_exit = pl.when(pl.col("exit_code") > 0).then(pl.lit("exit_nonzero"))
    causes = pl.coalesce("cause", by_exit, plugin.cause_in(pl.col("message")))
    place = {"source": pl.lit(label), "system": pl.lit(system)}
    return frame.conform(rows.with_columns(*found, cause=pl.when("is_error").then(causes), **place))


def parts_of(
    runs: list[Run],
    events: list[dict[str, Any]],
    findings: list[pl.DataFrame],
    *,
    frames: tuple[plugin.Frame, plugin.Frame],
    label: str,
    system: str,
    files: Iterable[Path],
    format: str,
) -> plugin.Parts:
    """Everything of one input, in canonical frames."""
    calls, used = frames
    changes = [row for run in runs for row in run.changes if row["at"] is not None]
    numbered = [{**row, "seq": seq} for seq, row in enumerate(changes)]
    happened = [{**row, "is_activity": row["at"] is not None} for row in events]
    uses = [use for run in runs for use in run.used]
    return plugin.Parts(
        system=system,
        format=format,
        entities=typed([run.entity() for run in runs], schema.ENTITIES, label, system),
        transitions=typed(numbered, schema.TRANSITIONS, label, system),
        events=typed(happened, schema.EVENTS, label, system),
        findings=pl.concat([schema.FINDINGS.empty(), *findings]),
        details={
            calls.name: typed_calls(runs, calls, label, system),
            used.name: typed(uses, used, label, system),
        },
        label=label,
        size_bytes=sum(file.stat().st_size for file in files if file.exists()),
    )


def unknown_kinds(kinds: Counter[str], label: str, system: str, what: str) -> list[pl.DataFrame]:
    """A finding for each kind of records that is not known."""
    return [
        plugin.counted(
            label, system, "record.unknown_type", "info", f"{what} of a kind that is not known",
            n_rows=n, example=kind, action="not read further",
        )
        for kind, n in sorted(kinds.items())
    ]  # fmt: skip


def codes(system: str, rows: Iterable[tuple[str, str, str]]) -> tuple[ReasonCode, ...]:
    """Reason codes: code, meaning, what to do; the second segment is the status."""
    return tuple(
        ReasonCode(code, system, ("session",), code.split(".")[1], meaning, to_do)
        for code, meaning, to_do in rows
    )
