"""What is changed and what is run, one row a format: the table to add a format to."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from stateanalytics.io.files import legible
from tests.fuzz import archives, seeds, steps
from tests.fuzz.mutations import DOCUMENTS, KEY_VALUES, PLACES, SETTINGS, Mutation
from tests.fuzz.stores import STORES

MOST_CHANGED = 2**20 * 4
Pair = tuple[str, tuple[Mutation, ...]]


@dataclass(frozen=True)
class Target:
    """A format: how a small whole input is made, what of it is named, which files are changed and
    how, how often (``share``), and what is done with it (``run``).
    """

    name: str
    make: Callable[[Path], object]
    named: str
    mutations: tuple[Pair, ...]
    share: int
    run: Callable[[Path, Random, dict[str, str]], dict[str, Any]] = steps.read_and_judge


TARGETS = (
    Target("lionagi store", seeds.lionagi, "state.db", (("state.db", STORES),), 30),
    Target(
        "lionagi directories", seeds.lionagi, "state.db",
        (
            ("runs/*/*.json", DOCUMENTS),
            ("shows/**/*.*", (*DOCUMENTS, *PLACES)),
            ("runs/*/*", PLACES),
        ), 8,
    ),
    Target(
        "agent orchestrator tree", seeds.agent_orchestrator, ".agent-orchestrator",
        (
            ("**/sessions/*.json", DOCUMENTS), ("**/*.ndjson", DOCUMENTS),
            ("**/*.jsonl", DOCUMENTS), ("**/bil-*", KEY_VALUES), ("**/*.kv", KEY_VALUES),
            ("**/recovery.log", DOCUMENTS), ("**/*-1.json", DOCUMENTS), ("**/*.*", PLACES),
            ("**/sessions/**/*", PLACES), ("**/.agent-report-audit/*", PLACES),
            ("**/activity-events.db", STORES),
        ), 20,
    ),
    Target("agent orchestrator go", seeds.agent_orchestrator_go, "ao.db", (("ao.db", STORES),), 8),
    Target(
        "opencode database", seeds.opencode_database, "opencode.db", (("opencode.db", STORES),), 12
    ),
    Target("opencode log", seeds.opencode_log, "log.jsonl", (("log.jsonl", DOCUMENTS),), 10),
    Target(
        "opencode export", seeds.opencode_export, "export.json", (("export.json", DOCUMENTS),), 4
    ),
    Target(
        "opencode storage", seeds.opencode_storage, "storage",
        (("**/*.json", (*DOCUMENTS, *PLACES)),), 4,
    ),
    Target("claude code", seeds.claude_code, "claude", (("**/*.json*", DOCUMENTS),), 8),
    Target("codex", seeds.codex, "codex", (("**/*.jsonl*", DOCUMENTS),), 8),
    Target(
        "archive", archives.archive, "history",
        (
            ("history/manifests/*.json", archives.MANIFESTS),
            ("history/shards/**/*.parquet", archives.SHARDS),
            ("history/manifests/*.json", (*DOCUMENTS, *PLACES)),
            ("history/looks/*.json", (*DOCUMENTS, *PLACES)),
        ), 10, steps.read_archive,
    ),
    Target("rules", seeds.rules, "rules.toml", (("rules.toml", SETTINGS),), 5, steps.apply_rules),
    Target(
        "policy", seeds.policy, "policy.toml", (("policy.toml", SETTINGS),), 5, steps.apply_policy
    ),
    Target(
        "summary", archives.summary, "fleet",
        (
            ("fleet/*.parquet", archives.COUNTS),
            ("fleet/head.json", (*DOCUMENTS, *PLACES, archives.odd_head)),
        ), 5, steps.read_summary,
    ),
    Target(
        "old report", seeds.report, "report.json", (("report.json", DOCUMENTS),), 3,
        steps.compare_reports,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Input:
    """One changed input: what it is, what to name, what was changed, and what chance is left."""

    target: Target
    path: Path
    changed: list[str]
    rng: Random


def chosen(seed: int, number: int) -> tuple[Target, Random]:
    """Which format an input is of, and the generator that makes it."""
    rng = Random(f"{seed}:{number}")
    return rng.choices(TARGETS, [each.share for each in TARGETS])[0], rng


def made(folder: Path, seed: int, number: int, originals: Path) -> Input:
    """Write input ``number`` of a seed, the same on every machine, into an empty folder.

    Unchanged inputs are made once and kept in ``originals``.
    """
    target, rng = chosen(seed, number)
    original = originals / target.name.replace(" ", "-")
    if not original.exists():
        half = originals / f"{original.name}-{os.getpid()}"
        half.mkdir(parents=True)
        target.make(half)
        half.replace(original)
    shutil.copytree(original, folder, symlinks=True, dirs_exist_ok=True)
    changed = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        pattern, mutations = rng.choice(target.mutations)
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        file, mutate = rng.choice(files or [None]), rng.choice(mutations)
        # What has a hole of gigabytes by now is not read again to be changed.
        if file is not None and not file.is_symlink() and file.stat().st_size < MOST_CHANGED:
            mutate(file, rng)
            changed.append(f"{mutate.__name__} {legible(str(file.relative_to(folder)))}")
    return Input(target, folder / target.named, changed, rng)
