"""Claude Code transcripts and Codex rollouts, built by the scripts of their samples."""

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

from stateanalytics.core.facts import Facts
from stateanalytics.state.states import states
from stateanalytics.systems import claude_code, codex
from stateanalytics.systems.claude_code import frames as claude_code_frames
from stateanalytics.systems.claude_code import places as claude_code_places
from stateanalytics.systems.codex import frames as codex_frames
from stateanalytics.systems.codex import places as codex_places
from stateanalytics.systems.reading import read_facts
from tests.conftest import ROOT

SAMPLES = ROOT / "data" / "samples"
NOON = datetime(2026, 5, 20, 17, 5, tzinfo=UTC)
transcript_maker, rollout_maker = (
    SimpleNamespace(**runpy.run_path(str(SAMPLES / script)))
    for script in ("claude_code/make_transcripts.py", "codex/make_rollouts.py")
)
Transcript, Rollout = transcript_maker.Transcript, rollout_maker.Rollout


def begun_transcript(name: str = "one") -> Transcript:
    transcript = Transcript(name, "2026-05-18T09:00:00")
    transcript.user("Do it")
    return transcript


def begun_rollout(policy: str = "on-request", name: str = "one") -> Rollout:
    rollout = Rollout(name, "2026-05-18T09:00:00")
    rollout.turn("Do it", policy=policy)
    return rollout


@dataclass(frozen=True)
class Client:
    """One of the two clients, for tests that hold of both."""

    name: str
    frames: ModuleType
    places: ModuleType
    files: dict[str, bytes]
    """What the script of the sample makes, by path."""
    begun: Callable[[str], object]
    lister: str
    """The function that lists the transcripts of an input."""

    @property
    def sample(self) -> Path:
        return SAMPLES / self.name


CLIENTS = [
    Client(
        claude_code.NAME,
        claude_code_frames,
        claude_code_places,
        {name: text.encode() for name, text in transcript_maker.transcripts().items()},
        begun_transcript,
        "transcripts_of",
    ),
    Client(
        codex.NAME,
        codex_frames,
        codex_places,
        rollout_maker.rollouts(),
        lambda name: begun_rollout(name=name),
        "rollouts_of",
    ),
]


def file_of(transcript: object) -> Path:
    """Where a transcript or rollout lies in its folder."""
    if isinstance(transcript, Rollout):
        return Path(transcript.file)
    session = Path(transcript.session_id)
    if transcript.agent:
        return session / "subagents" / f"agent-{transcript.agent}.jsonl"
    return session.with_suffix(".jsonl")


def facts_of(folder: Path, *transcripts: object, as_of: object = None, tail: str = "") -> Facts:
    """The facts of a folder with these transcripts, each followed by ``tail``."""
    for transcript in transcripts:
        path = folder / file_of(transcript)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(transcript.text() + tail)
    return read_facts(folder, as_of=as_of or transcripts[0].now + timedelta(seconds=30))[0]


def state_of(facts: Facts, entity_id: str | None = None) -> dict:
    sessions = states(facts).filter(entity_type="session")
    [row] = (sessions if entity_id is None else sessions.filter(entity_id=entity_id)).to_dicts()
    return row


def axes(facts: Facts, entity_id: str | None = None) -> tuple:
    row = state_of(facts, entity_id)
    return row["lifecycle"], row["health"], row["delivery"], row["reason_codes"]


def findings_of(facts: Facts) -> dict[str, int]:
    """The number of rows by code of a finding."""
    return dict(facts.findings.select("code", "n_rows").iter_rows())


def after(minutes: float) -> timedelta:
    return timedelta(minutes=minutes)
