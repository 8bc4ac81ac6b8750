"""What is done with an input, and what must be true of each answer."""

import json
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import stateanalytics as sa
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.errors import TruncatedWarning
from stateanalytics.failures import Rules
from tests.fuzz.archives import add_to, archive, check_shards
from tests.fuzz.counting import check_lines, check_tables, counted
from tests.fuzz.hostile import MARK
from tests.samples import the_week

Step = Callable[[Any], object]
QUERIES = (
    "SELECT severity, count(*) FROM states GROUP BY 1",
    "FROM attention LIMIT 5",
    "SELECT code, sum(n_rows) FROM findings GROUP BY ALL",
    "SELECT * FROM entities ORDER BY created_at DESC LIMIT 3",
    "FROM failures LIMIT 3",
)


class WrongAnswerError(AssertionError):
    """A step answered, and what it says cannot be true."""


def must(holds: object, what: str) -> None:
    """Raise where an answer cannot be true."""
    if not holds:
        raise WrongAnswerError(what)


def states(snap: Any) -> None:
    """One state an entity, each of a known severity."""
    judged = sa.states(snap)
    must(judged.height == snap.entities.height, "one state an entity")
    must(judged["severity"].null_count() == 0, "every state has a severity")


def reasons(snap: Any) -> None:
    """Reasons are of entities that are there."""
    told = sa.reasons(snap)
    must(told.join(snap.entities, on=ENTITY_KEY, how="anti").height == 0, "whose reason is it")


def attention(snap: Any) -> None:
    """Nobody is named twice."""
    must(not sa.attention(snap).select(ENTITY_KEY).is_duplicated().any(), "nobody twice")


def failures(snap: Any) -> None:
    """Every member belongs to a cluster."""
    members, clusters = sa.failures.members(snap), sa.failures.clusters(snap)
    must(members.height == clusters["n_rows"].sum(), "members are those of the clusters")


def spells(snap: Any) -> None:
    """A duration is never negative."""
    durations = sa.survival.spells(snap)["duration_s"].drop_nulls()
    must((durations >= 0).all(), "no negative duration")


def detections(snap: Any) -> None:
    """What every detector says."""
    _ = sa.detectors.detect(snap, detectors="all").rows


def query(snap: Any) -> None:
    """A short query of the ready tables."""
    for sql in QUERIES[:1]:
        snap.sql(sql, timeout_s=15)


def other_queries(snap: Any) -> None:
    """Every other query, and a raw table."""
    for sql in QUERIES[1:]:
        snap.sql(sql, timeout_s=15)
    raw = [name for name in snap.schema()["frame"].unique().sort() if name.startswith("raw_")]
    if raw:
        snap.table(raw[len(snap.findings) % len(raw)])


def report(snap: Any) -> None:
    """A page in which nothing acts, and its JSON."""
    made = sa.report(snap, shown=False)
    page = made.as_html()
    must(MARK not in page, "hostile text stands in the page as it is")
    must("\x1b" not in page and "\x00" not in page, "control characters in the page")
    json.loads(made.as_json())


def audit(snap: Any) -> None:
    """Contradictions."""
    sa.audit(snap)
    sa.phantoms(snap)


def summary(snap: Any) -> None:
    """Counts that add up."""
    counts = sa.merge([sa.summarize(snap)])
    must(counts.states["n"].sum() == snap.entities.height, "every entity is counted once")


def refreshed(snap: Any) -> None:
    """A second look at what did not change."""
    with snap.refresh(progress=False) as again:
        must(again.entities.equals(snap.entities), "a refresh changed what nobody changed")


def shown(snap: Any) -> None:
    """What a person sees of it."""
    must("\x1b" not in repr(snap), "control characters in the words of a snapshot")
    must(MARK not in snap._repr_html_(), "hostile text in the words of a snapshot")


ALWAYS: tuple[Step, ...] = (shown, states)
OFTEN: tuple[Step, ...] = (reasons, attention, failures, spells, query)
SELDOM: tuple[Step, ...] = (
    detections, report, report, audit, summary, refreshed, other_queries,
)  # fmt: skip
SELDOM_SHARE = 0.04
"""A report costs as much as reading ten stores; an hour is to try ten thousand of them."""


def read_and_judge(path: Path, rng: Random, at: dict[str, str]) -> dict[str, Any]:
    """Read an input in some way and take some steps with it; what there was.

    The ``step`` of ``at`` always says what is being done.
    """
    on_error = rng.choice(("skip", "skip", "raise", "salvage"))
    steps = [*ALWAYS, rng.choice(OFTEN)]
    if rng.random() < SELDOM_SHARE:
        steps.append(rng.choice(SELDOM))
    options = {"bodies": rng.random() < 0.3, "as_of": rng.choice((None, None, None, 1779840000))}
    at["step"] = f"read on_error={on_error}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in (TruncatedWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        with counted() as seen:
            snap = sa.read(path, on_error=on_error, progress=False, **options)
        with snap:
            at["step"] = "counting rows"
            if options["as_of"] is None:
                check_tables(seen, snap)
                if path.name == ".agent-orchestrator" and path.is_dir():
                    check_lines(path, snap, seen)
                if (path / "manifests").is_dir():
                    check_shards(path, snap)
            for step in steps:
                at["step"] = step.__name__
                step(snap)
    return {"n_entities": snap.entities.height, "n_findings": snap.findings.height}


def read_archive(path: Path, rng: Random, at: dict[str, str]) -> dict[str, Any]:
    """Add to an archive or open some of its weeks, then read all of it."""
    kind = rng.random()
    if kind < 0.15:
        at["step"] = "archiving again"
        add_to(path, sound_archive())
    elif kind < 0.35:
        at["step"] = "some weeks"
        chosen = rng.choice(("2026-W20", "2026-W20..W21", "2026-W22..W40"))
        with sa.read(path, weeks=chosen, progress=False) as snap:
            states(snap)
    return read_and_judge(path, rng, at)


@cache
def sound_archive() -> Path:
    """An archive that nobody changed, written once in a process."""
    return archive(Path(tempfile.mkdtemp(prefix="fuzz-archive-")))


def apply_rules(path: Path, rng: Random, at: dict[str, str]) -> dict[str, Any]:
    """Read rules, and let them claim the failures of the sample."""
    at["step"] = "rules"
    read = Rules.of(path)
    if rng.random() < 0.2:
        claimed = sa.failures.rules(demo(), read)
        must(claimed.height == len(read.rules), "one row a rule")
    return {"n_rules": len(read.rules)}


def apply_policy(path: Path, rng: Random, at: dict[str, str]) -> dict[str, Any]:
    """Read a policy, and judge the sample by it."""
    at["step"] = "policy"
    read = sa.Policy.of(path)
    must(sa.Policy.from_dict(read.to_dict()) == read, "a policy is what it writes")
    if rng.random() < 0.2:
        sa.states(demo(), policy=read)
    return {"version": len(read.version)}


def compare_reports(path: Path, rng: Random, at: dict[str, str]) -> dict[str, Any]:
    """What changed since a report that was written to a file."""
    at["step"] = "diff"
    return {"n_rows": len(str(sa.diff(path, path)))}


def read_summary(path: Path, rng: Random, at: dict[str, str]) -> dict[str, Any]:
    """Read counts, add them to themselves, and look at them."""
    at["step"] = "summary"
    read = sa.Summary.read(path)
    must("\x1b" not in repr(read) and MARK not in read._repr_html_(), "hostile text acts")
    must(read.failures()["n_rows"].sum() == read.templates["n_rows"].sum(), "failures add up")
    must(read.agreement().height <= 10_000, "pairs of detectors")
    must(sa.merge([read]).states["n"].sum() == read.states["n"].sum(), "counts add up")
    if rng.random() < 0.3:
        at["step"] = "report of sums"
        page = sa.report(read).as_html()
        must(MARK not in page and "\x1b" not in page, "hostile text acts in the page of sums")
        at["step"] = "writing again"
        again = sa.Summary.read(read.write(path.with_name("again")))
        must(again.states.equals(read.states), "what is written is read")
    return {"n": int(read.states["n"].sum())}


_DEMO: list[Any] = []


def demo() -> Any:
    """The sample, read once in a process."""
    if not _DEMO:
        _DEMO.append(the_week())
    return _DEMO[0]
