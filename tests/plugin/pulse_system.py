"""pulse: a directory of JSON lines, one file per run, with a start, heartbeats and an end."""

import json
from pathlib import Path

import polars as pl

from stateanalytics import plugin

SUFFIX = ".pulse.jsonl"
QUIET_S = 120.0
OUT_OF_MEMORY = plugin.ReasonCode(
    "run.failed.no_memory", "pulse", ("session",), "broke", "It ran out of memory.", "Give it more."
)
KEY = {"system": "pulse", "entity_type": "session", "kind": "pulse"}
TEXTS = ("entity_id", "at", "what", "agent", "result", "reason", "error")
LINE = dict.fromkeys(TEXTS, pl.String) | dict.fromkeys(("timeout_s", "load"), pl.Float64)
BEATS = plugin.schema.Frame(
    "pulse_beats",
    "one run of pulse, with its heartbeats",
    ("source", "entity_id"),
    (
        *plugin.schema.KEY_COLUMNS,
        plugin.schema.Column("n_beats", plugin.schema.INTEGER, "heartbeats that were written"),
        plugin.schema.Column("load", plugin.schema.REAL, "load at the last one, 0 to 1"),
    ),
)


def find(path: Path) -> list[Path]:
    """The directory, if a file in it has our suffix, or such a file itself."""
    files = path.glob(f"*{SUFFIX}") if path.is_dir() else [path]
    return [path] if any(file.name.endswith(SUFFIX) for file in files) else []


def read(path: Path, *, label: str, **_options: object) -> plugin.Parts:
    """Every run of the directory, in canonical frames."""
    files, lines, n_broken = sorted(path.glob(f"*{SUFFIX}")) or [path], [], 0
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            try:
                lines.append({**json.loads(line), "entity_id": file.name.removesuffix(SUFFIX)})
            except (ValueError, TypeError):
                n_broken += 1
    rows = (
        pl.DataFrame(lines, schema=LINE)
        .with_columns(pl.col("at").str.to_datetime(time_unit="us", time_zone="UTC"))
        .with_columns(source=pl.lit(label), **{name: pl.lit(word) for name, word in KEY.items()})
        .sort("entity_id", "at")
    )
    beats, ends = pl.col("what") == "beat", pl.col("what") == "end"
    runs = rows.group_by("entity_id", maintain_order=True).agg(
        pl.col("source", "system", "entity_type", "kind", "agent", "timeout_s").first(),
        started_at=pl.col("at").first(),
        ended_at=pl.col("at").filter(ends).last(),
        last_activity_at=pl.col("at").last(),
        raw_status=pl.col("result").filter(ends).last().fill_null("beating"),
        reason_code=pl.col("reason").filter(ends).last(),
        reason_message=pl.col("error").filter(ends).last(),
        n_beats=beats.sum(),
        load=pl.col("load").last(),
    )
    entities = runs.with_columns(
        session_id="entity_id",
        created_at="started_at",
        n_messages="n_beats",
        end_written_by=pl.when(pl.col("ended_at").is_not_null()).then(pl.lit("executor")),
    )
    changes = rows.filter(pl.col("what") != "beat").with_columns(
        seq=pl.int_range(pl.len()),
        previous_status=pl.when(ends).then(pl.lit("beating")),
        status=pl.when(ends).then("result").otherwise(pl.lit("beating")),
    )
    happened = rows.with_columns(seq=pl.int_range(pl.len()), kind="what", is_activity=pl.lit(True))
    return plugin.Parts(
        system="pulse",
        format="1",
        entities=plugin.schema.ENTITIES.conform(entities),
        transitions=plugin.schema.TRANSITIONS.conform(changes),
        events=plugin.schema.EVENTS.conform(happened),
        findings=plugin.counted(
            label, "pulse", "line.not_json", "warning", "not JSON", n_rows=n_broken
        ),
        details={BEATS.name: BEATS.conform(runs)},
        label=label,
        size_bytes=sum(file.stat().st_size for file in files),
    )


def add_features(rows: pl.DataFrame, past: object) -> pl.DataFrame:
    """Runs with the load at their last heartbeat."""
    load = past.facts.detail(BEATS).select(*BEATS.key, "load")
    return rows.join(load, on=BEATS.key, how="left", maintain_order="left")


SYSTEM = plugin.System(
    name="pulse", title="Pulse",
    home=plugin.Home(usual_places=lambda environment, home: [home / ".pulse"]),
    files=plugin.Files(find=find, read=read), frames=lambda: (BEATS,),
    words=plugin.Words(
        vocabulary=(
            plugin.StatusWord("session", "", "beating", "running", is_initial=True),
            plugin.StatusWord("session", "", "done", "completed", "completed", is_terminal=True),
            plugin.StatusWord("session", "", "broke", "failed", "failed", is_terminal=True),
        ),
        reason_codes=lambda: (OUT_OF_MEMORY,)),
    runs=plugin.Runs(meaning="A run is a file."),
    detecting=lambda: plugin.Detecting(detectors=(
        plugin.Detector("pulse_quiet", measures="silence_s", threshold_s=QUIET_S, system="pulse",
                 scope=pl.col("status") == "beating", question="stale", restarts_on="activity"),
        plugin.Detector("pulse_hot", fires=pl.col("load") > 0.9, system="pulse"),
    ), features=plugin.Features(columns={"load": "load at the last heartbeat"}, add=add_features)),
    thresholds=lambda: plugin.Thresholds(constants=lambda policy: (
        plugin.Constant("pulse.quiet", "pulse", "pulse.toml", ("quiet_s",), QUIET_S,
                 "silent for longer: shown as quiet", "silences"),)),
)  # fmt: skip
