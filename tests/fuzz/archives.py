"""An archive to change, changes that its own digests do not show, and its rows counted."""

import io
import json
import shutil
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import polars as pl

import stateanalytics as sa
from stateanalytics.errors import StateAnalyticsError
from stateanalytics.io.archive import manifests, writing
from stateanalytics.io.archive.writing import Options, archive_part
from stateanalytics.io.files import read_octets
from stateanalytics.io.parts import Parts
from stateanalytics.systems import detail_frames
from tests.fuzz import hostile, seeds
from tests.fuzz.counting import LostRowsError
from tests.fuzz.mutations import cut_off, flip_bytes, insert_bytes, odd_place

FACTS = ("entities", "transitions", "events")
MOMENTS = (
    "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "2026-05-20T10:00:00", "2026-W21",
    "2124-01-01T00:00:00+00:00", "1970-01-01T00:00:00Z", None, "",
)  # fmt: skip
LIES: dict[str, tuple[Any, ...]] = {
    "schema_version": (0, 2, 99, "1", True, None),
    "number": (0, 7, 10**6, "000001", True, -1),
    "system": ("opencode", "lionagi", "nobody", "", "../..", None, 3),
    "label": (*hostile.TEXTS[:10], "\ud800", None, 7),
    "format": (None, 7, [], "\ud800", ""),
    "place": (None, 7, "\ud800"),
    "fingerprint": (None, 7, "\ud800", ""),
    "content": (None, 7, ""),
    "size_bytes": (-1, 10**400, 2**63, "1", None, 1.5),
    "is_live": (None, "yes", 7),
    "observed_at": MOMENTS,
    "first_at": MOMENTS,
    "last_at": MOMENTS,
    "counts": ({}, {"entities": 2**80}, None, [], {"entities": -1}),
    "findings": (None, [], {"x": "y"}),
    "shards": ([], None, {}, [[]], "x"),
}
"""Values of a manifest that are as well written, by key."""
SHARD_LIES: dict[str, tuple[Any, ...]] = {
    "frame": ("horoscopes", "findings", "events", "entities", "opencode_steps", "..", None),
    "week": ("across", "2026-W22", "2026-W99", "0000-W00", "../..", None),
    "sha256": ("0" * 64, "x", None),
    "n_rows": (0, -1, 2**63, 10**400, "1", True, None),
    "n_bytes": (0, -1, 10**400, "1", None),
}


def archive(folder: Path) -> Path:
    """Two sources: a store that was pruned between three runs, and a log."""
    root = folder / "history"
    with sa.read(seeds.lionagi(folder), progress=False) as snap:
        whole = _part(snap, "state.db")
    names = whole.entities["entity_id"].unique().sort()
    for n, (since, until) in enumerate(((0.0, 0.6), (0.3, 0.8), (0.5, 1.0)), 1):
        kept = names[int(since * len(names)) : int(until * len(names))]
        _archived(_narrowed(whole, kept), root, "0123456789abcdef", n)
    with sa.read(seeds.opencode_log(folder), progress=False) as snap:
        _archived(_part(snap, "log.jsonl"), root, "fedcba9876543210", 1)
    for day in (3, 4):
        with mock.patch.object(manifests, "secrets", _named(day)):
            keys = ("0123456789abcdef", "fedcba9876543210")
            statuses = dict.fromkeys(keys[: 5 - day], "unchanged")
            manifests.note_looks(root, statuses, datetime(2026, 6, day, tzinfo=UTC))
    for path in sorted(folder.iterdir()):
        if path != root:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return root


def _part(snap: Any, label: str) -> Parts:
    """What was read, under a label that says nothing of where it lay."""
    source = pl.lit(label).alias("source")
    frames = [snap.entities, snap.transitions, snap.events, snap.findings]
    return Parts(
        snap.sources["system"][0],
        snap.sources["format"][0],
        *(frame.with_columns(source) for frame in frames),
        details={
            name: frame.with_columns(source)
            for name, frame in snap.details.items()
            if frame.height and name != "lionagi_shows_on_disk"  # it holds places
        },
        label=label,
    )


def _narrowed(part: Parts, names: pl.Series) -> Parts:
    def of(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("entity_id").is_in(names.implode()))

    return Parts(
        part.system, part.format, of(part.entities), of(part.transitions), of(part.events),
        part.findings, details=part.details, label=part.label,
    )  # fmt: skip


def _archived(part: Parts, root: Path, key: str, number: int) -> None:
    """A run whose name is the same every time."""
    at = datetime(2026, 6, number, tzinfo=UTC)
    with mock.patch.object(writing, "secrets", _named(number)):
        archive_part(part, root, key, detail_frames(), place=part.label, files="",
                     options=Options(), observed_at=at)  # fmt: skip


def _named(number: int) -> SimpleNamespace:
    return SimpleNamespace(token_hex=lambda _: f"{number:08x}")


def summary(folder: Path) -> Path:
    """The counts of a small store."""
    with sa.read(seeds.lionagi(folder), progress=False) as snap:
        counts = sa.summarize(snap, k=1)
    for path in sorted(folder.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return counts.write(folder / "fleet")


HEAD_LIES: dict[str, tuple[Any, ...]] = {
    "version": (0, 2, "1", True, None),
    "kind": ("archive", None, 7),
    "as_of": MOMENTS,
    "policy": (*hostile.TEXTS[:6], "\ud800", None, 7),
    "k": (0, -1, 10**400, "1", True, None),
    "by": ([], ["kind"], ["reason_message"], ["kind", "kind"], [None], None, "kind"),
    "detectors": ([], ["x"], ["n"], [7], None, *([text] for text in hostile.TEXTS[:4])),
    "frames": ({}, [], None, {"states": {"sha256": "../.."}}),
}


def odd_head(path: Path, rng: Random) -> None:
    """The head of a summary says something else that is as well written."""
    with suppress(ValueError, RecursionError, AttributeError, TypeError):
        key = rng.choice(sorted(HEAD_LIES))
        told = json.loads(path.read_bytes().decode("utf-8", "replace"))
        path.write_text(json.dumps(told | {key: rng.choice(HEAD_LIES[key])}))


def odd_counts(path: Path, rng: Random) -> None:
    """A frame of a summary holds other rows or columns, and its head has the digest of those."""
    with suppress(pl.exceptions.PolarsError, ValueError, RecursionError, AttributeError,
                  TypeError, KeyError, OSError):  # fmt: skip
        frame = pl.read_parquet(path)
        for _ in range(rng.choice((1, 1, 2, 3))):
            frame = _changed(frame, rng)
        octets = io.BytesIO()
        frame.write_parquet(octets)
        name, head = path.name.partition("-")[0], path.with_name("head.json")
        told, digest = json.loads(head.read_bytes()), sha256(octets.getvalue()).hexdigest()
        told["frames"][name] = {
            "sha256": digest, "n_rows": frame.height, "n_bytes": len(octets.getvalue()),
        }  # fmt: skip
        path.with_name(f"{name}-{digest[:32]}.parquet").write_bytes(octets.getvalue())
        head.write_text(json.dumps(told))


def odd_manifest(path: Path, rng: Random) -> None:
    """It says something else that is as well written; one from the future among them."""
    with suppress(ValueError, RecursionError, AttributeError, TypeError, KeyError):
        told = json.loads(path.read_bytes().decode("utf-8", "replace"))
        for _ in range(rng.choice((1, 1, 2))):
            shards = told.get("shards")
            if rng.random() < 0.4 and isinstance(shards, list) and shards:
                key = rng.choice(sorted(SHARD_LIES))
                rng.choice(shards)[key] = rng.choice(SHARD_LIES[key])
            else:
                key = rng.choice(sorted(LIES))
                told[key] = rng.choice(LIES[key])
        path.write_text(json.dumps(told))
        # One that its name belies is found at once.
        path.rename(path.with_name(f"{told['key']}-{told['number']:06}-{told['run']}.json"))


def another_run(path: Path, rng: Random) -> None:
    """The manifest of a run that comes after it, or long after it, and tells the same."""
    with suppress(ValueError, RecursionError, TypeError, KeyError):
        told = json.loads(path.read_bytes()) | {"number": rng.randint(0, 999_999), "run": "f" * 8}
        other = path.with_name(f"{told['key']}-{told['number']:06}-{told['run']}.json")
        other.write_text(json.dumps(told))


def odd_rows(path: Path, rng: Random) -> None:
    """A shard holds other rows or columns, and its manifests have the digest of those."""
    with suppress(pl.exceptions.PolarsError):
        frame = pl.read_parquet(path)
        for _ in range(rng.choice((1, 1, 2, 3))):
            frame = _changed(frame, rng)
        octets = io.BytesIO()
        frame.write_parquet(octets)
        _vouched(path, octets.getvalue())


def odd_parquet(path: Path, rng: Random) -> None:
    """Other bytes, and its manifests have the digest of those."""
    before = path.read_bytes()
    rng.choice((flip_bytes, flip_bytes, cut_off, insert_bytes))(path, rng)
    after = path.read_bytes()
    path.write_bytes(before)
    _vouched(path, after)


def swapped_shard(path: Path, rng: Random) -> None:
    """It holds what another shard does, with or without the word of its manifests."""
    others = sorted(path.parents[3].rglob("*.parquet"))
    octets = rng.choice(others).read_bytes()
    if rng.random() < 0.5:
        path.write_bytes(octets)
    else:
        _vouched(path, octets)


def _changed(frame: pl.DataFrame, rng: Random) -> pl.DataFrame:
    name = rng.choice(frame.columns) if frame.width else "none"
    column = pl.col(name)
    kind = rng.randrange(8)
    if not frame.width:
        return pl.DataFrame({"x": [1]})
    if kind == 0:
        return frame.drop(name)
    if kind == 1:
        return frame.with_columns(pl.lit(rng.choice(hostile.TEXTS)).alias(rng.choice("xyz")))
    if kind == 2:
        other = rng.choice((pl.String, pl.Int64, pl.Float32, pl.Boolean, pl.Date, pl.Binary))
        with suppress(pl.exceptions.PolarsError):
            return frame.with_columns(column.cast(other, strict=False))
        return frame
    if kind == 3:
        return pl.concat([frame, frame.head(rng.randint(0, 3))])
    if kind == 4:
        return frame.head(rng.randint(0, 2))
    if kind == 5:
        return frame.with_columns(pl.lit(None, frame.schema[name]).alias(name))
    with suppress(pl.exceptions.PolarsError, OverflowError):
        odd = pl.lit(rng.choice((*hostile.TEXTS, *hostile.NUMBERS, *map(_moment, MOMENTS))))
        is_it = pl.int_range(pl.len()) % rng.randint(1, 4) == 0
        written = odd.cast(frame.schema[name], strict=False)
        return frame.with_columns(pl.when(is_it).then(written).otherwise(column).alias(name))
    return frame


def _moment(text: str | None) -> datetime | None:
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(text)).replace(tzinfo=UTC)
    return None


def _vouched(path: Path, octets: bytes) -> None:
    """A shard that is another, under the name of its digest, which every manifest has."""
    frame, _, old = path.stem.rpartition("-")
    new = sha256(octets).hexdigest()
    path.unlink()
    path.with_name(f"{frame}-{new[:32]}.parquet").write_bytes(octets)
    for manifest in path.parents[4].glob("manifests/*.json"):
        with suppress(ValueError, RecursionError, TypeError, KeyError, OSError):
            told = json.loads(read_octets(manifest, 10**8)[0])
            for shard in told["shards"]:
                if str(shard["sha256"]).startswith(old):
                    shard |= {"sha256": new, "n_bytes": len(octets)}
            manifest.write_text(json.dumps(told))


MANIFESTS = (*(odd_manifest,) * 5, another_run)
COUNTS = (*(odd_counts,) * 4, flip_bytes, cut_off, odd_place)
SHARDS = (*(odd_rows,) * 4, odd_parquet, swapped_shard, flip_bytes, cut_off, odd_place)


def check_shards(root: Path, snap: Any) -> None:
    """Every row of every shard is there, or its shard or its run is named as left out."""
    findings = snap.findings.filter(pl.col("code").str.starts_with("archive."))
    unread = set(findings.filter(code="archive.run_unreadable")["example"])
    named = dict(
        findings.filter(pl.col("code").str.starts_with("archive.shard"))
        .group_by("table").agg(pl.col("n_rows").sum()).iter_rows()
    )  # fmt: skip
    left_out: Counter[str] = Counter()
    ids: set[str] = set()
    hexadecimal = "[0-9a-f]"
    named_so = f"{hexadecimal * 16}-{'[0-9]' * 6}-{hexadecimal * 8}.json"
    for path in sorted((root / "manifests").glob(named_so)):
        if path.name in unread or not path.is_file():
            continue
        told = json.loads(path.read_bytes())
        for shard in told["shards"]:
            octets = _sound(root, told, shard)
            if octets is None and shard["frame"] in FACTS:
                left_out[shard["frame"]] += shard["n_rows"]
            elif octets is not None and shard["frame"] == "entities":
                ids |= _ids(octets)
    for frame, n_rows in left_out.items():
        if named.get(frame, 0) < n_rows:
            raise LostRowsError(f"{frame}: {n_rows} rows left out, {named.get(frame, 0)} named")
    known = set(snap.entities["entity_id"])
    if named.get("entities", 0) == left_out["entities"] and (lost := ids - known):
        raise LostRowsError(f"{len(lost)} ids of sound files are gone, such as {min(lost)!r}")


def _sound(root: Path, told: dict[str, Any], shard: dict[str, Any]) -> bytes | None:
    name = f"{shard['frame']}-{shard['sha256'][:32]}.parquet"
    path = root / "shards" / told["system"] / told["key"] / shard["week"] / name
    octets = path.read_bytes() if path.is_file() else b""
    return octets if sha256(octets).hexdigest() == shard["sha256"] else None


def _ids(octets: bytes) -> set[str]:
    with suppress(pl.exceptions.PolarsError):
        names = pl.read_parquet(io.BytesIO(octets), columns=["entity_id"])["entity_id"]
        return set(names.drop_nulls()) if names.dtype == pl.String else set()
    return set()


def add_to(path: Path, original: Path) -> None:
    """What is archived again is there, whatever had become of it."""
    with sa.read(original, progress=False) as snap:
        try:
            done = snap.archive(path)
        except StateAnalyticsError:
            return
        archived = done.filter(status="archived")["source"].implode()
        wanted = set(snap.entities.filter(pl.col("source").is_in(archived))["entity_id"])
    kept = set(sa.read(path, progress=False).entities["entity_id"])
    if lost := wanted - kept:
        raise LostRowsError(f"{len(lost)} ids were archived and are gone, such as {min(lost)!r}")
