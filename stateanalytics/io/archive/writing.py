"""Adding to an archive what it does not hold yet of a source, filed by week.

A row is filed under the week of its work, so that a week can be opened without the others.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.facts import losses_of
from stateanalytics.core.redaction import redact
from stateanalytics.errors import NoRoomError
from stateanalytics.io.archive import manifests
from stateanalytics.io.archive.manifests import Archived, Manifest
from stateanalytics.io.archive.reading import FACTS, archived_source, read_archived
from stateanalytics.io.as_of import newest_proven, oldest_proven
from stateanalytics.io.observations import CHANGE, EVENT, is_owned_elsewhere
from stateanalytics.io.outputs import alone_in, put_whole
from stateanalytics.io.parts import FRAMES, Parts, digests, fingerprint

_OPEN = ("draft", "planned", "pending", "queued", "active", "running", "paused", "blocked")
_NO_WEEK = 0


def week_of(at: pl.Expr) -> pl.Expr:
    """The ISO week of a moment as one number, such as 202621; 0 for no week."""
    year = at.dt.iso_year().cast(pl.Int32)
    number = year * 100 + at.dt.week()
    return pl.when(year.is_between(1, 9999)).then(number).otherwise(_NO_WEEK).fill_null(_NO_WEEK)


def weeks_of_work(entities: pl.DataFrame) -> pl.DataFrame:
    """The week of each entity, where everything recorded about its session lies in one week.

    Parameters
    ----------
    entities : polars.DataFrame
        In the shape of `schema.ENTITIES`.

    Returns
    -------
    polars.DataFrame
        In the order of ``entities``: ``entity_id``, ``work`` (its session, else itself),
        ``week`` as a number, and ``begin_week``, the week of its own first moment.

    Notes
    -----
    Open work has no week: it belongs to every later one.
    """
    status = pl.coalesce("recorded_lifecycle", "raw_status")
    is_open = (status.is_in(_OPEN) & pl.col("ended_at").is_null()).fill_null(value=False)
    begin, last = week_of(pl.min_horizontal(schema.LIFE)), week_of(pl.max_horizontal(schema.LIFE))
    own = pl.when((begin == last) & ~is_open).then(begin).otherwise(_NO_WEEK)
    work = pl.coalesce("session_id", "entity_id")
    rows = entities.select("entity_id", work=work, begin_week=begin, own=own)
    is_one = pl.col("own").min().over("work") == pl.col("own").max().over("work")
    week = pl.when(is_one & pl.col("work").is_not_null()).then("own").otherwise(_NO_WEEK)
    return rows.select("entity_id", "work", "begin_week", week=week)


def weeks_of_details(detail: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    """The week of the work that each row of a detail frame belongs to."""
    return _weeks_of_its_work(detail, work).fill_null(_NO_WEEK)


def weeks_of_history(history: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    """The week of the work that each row of history belongs to, else of its own moment."""
    own = history.select(week_of(pl.col("at"))).to_series()
    return _weeks_of_its_work(history, work).fill_null(own)


def identity_of(rows: pl.DataFrame) -> pl.Series:
    """Identifier of the work that each row belongs to: its session, else itself."""
    names = [name for name in ("session_id", "entity_id") if name in rows.columns]
    return rows.with_columns(id=pl.coalesce(*names, pl.lit(None, pl.String)))["id"]


def identities(work: pl.DataFrame) -> pl.DataFrame:
    """Each ``id`` that rows use for some ``work``, and its ``week``."""
    return pl.concat(
        [
            work.select("work", id="work", week="week"),
            work.select("work", id="entity_id", week="week"),
        ]
    ).drop_nulls("id")


def _weeks_of_its_work(rows: pl.DataFrame, work: pl.DataFrame) -> pl.Series:
    by_id = (
        identities(work)
        .group_by("id")
        .agg(
            week=pl.when(pl.col("week").n_unique() == 1)
            .then(pl.col("week").first())
            .otherwise(_NO_WEEK)
        )
    )
    asked = identity_of(rows).to_frame()
    return asked.join(by_id, on="id", how="left", maintain_order="left")["week"]


def by_week(rows: pl.DataFrame, week: pl.Series) -> Iterator[tuple[str, pl.DataFrame]]:
    """Rows split by the name of their week, in their order."""
    numbered = rows.with_columns(week.alias("_week"))
    for part in numbered.partition_by("_week", maintain_order=True, include_key=True):
        yield week_name(part["_week"][0]), part.drop("_week")


def week_name(number: int) -> str:
    """The name of a week.

    Examples
    --------
    >>> week_name(202609), week_name(0)
    ('2026-W09', 'across')
    """
    return manifests.ACROSS if number == _NO_WEEK else f"{number // 100:04}-W{number % 100:02}"


LAST_MOMENT = pl.max_horizontal(schema.LIFE)
"""The last moment in a row of `schema.ENTITIES`."""


_HISTORY = {"transitions": CHANGE, "events": EVENT}
_NEVER_MASKED = "system"


Filed = Iterator[tuple[str, pl.DataFrame]]
"""Rows with the name of their week."""


@dataclass(frozen=True)
class Options:
    """How a source is archived.

    Attributes
    ----------
    bodies, redacted : bool
        Whether texts of messages are kept; whether likely secrets are masked.
    """

    bodies: bool = False
    redacted: bool = False


def archive_part(
    part: Parts,
    root: Path,
    key: str,
    frames: Mapping[str, schema.Frame],
    *,
    place: str,
    files: str,
    options: Options,
    observed_at: datetime,
) -> Manifest | None:
    """Add to an archive what it does not hold yet of one source.

    Parameters
    ----------
    part : Parts
        What was read of the source.
    root : pathlib.Path
        The archive; created where there is none.
    key : str
        The `manifests.source_key` of the source.
    frames : mapping of str to Frame
        The shapes of the detail frames, by name.
    place, files : str
        Its location, and the digest of its files' names, sizes and times.
    options : Options
        What to keep.
    observed_at : datetime
        When it was read.

    Returns
    -------
    Manifest or None
        None where the last run observed the same. Where only the files were touched since,
        a manifest without rows is written, so that the next run recognises the files.

    Raises
    ------
    NoRoomError
        If something cannot be written; nothing that was archived before is lost.
    StoreBusyError
        If another process keeps writing to the archive; see `alone_in`.
    """
    part = _as_kept(part, options)
    part = replace(part, fingerprint=digests([part])[0].fingerprint)
    content = _digest_of_all(part)
    with suppress(OSError):  # reported where something is written
        root.mkdir(parents=True, exist_ok=True)
    # A concurrent run would write the same rows and count them as new.
    with alone_in(root):
        earlier = archived_source(root, key)
        last = earlier.last
        is_same = _is_same(last, content, options)
        is_touched = last is None or (part.size_bytes, files or last.files) != (
            last.size_bytes,
            last.files,
        )
        if is_same and not is_touched:
            return None
        codes = part.findings.group_by("code").len().sort("code").rows()
        numbers = [int(path.name.split("-")[1]) for path in earlier.files]
        draft = Manifest(
            key=key,
            number=max(numbers, default=0) + 1,
            run=secrets.token_hex(4),
            label=part.label,
            system=part.system,
            format=part.format,
            place=masked_text(place) if options.redacted else place,
            observed_at=observed_at,
            first_at=oldest_proven(part),
            last_at=newest_proven([part]),
            is_live=part.is_live,
            size_bytes=part.size_bytes,
            fingerprint=part.fingerprint,
            content=content,
            files=files,
            counts={name: frame.height for name, frame in _frames_of(part)},
            findings=dict(codes),
            status="partial" if losses_of(part.findings).height else "complete",
            bodies=options.bodies,
            redacted=options.redacted,
            package=manifests.package_version(),
            shards=(),
        )
        new: Iterable[tuple[str, Filed]] = ()
        if not is_same:  # else only files were touched, and the manifest alone is new
            new = _new_rows(part, earlier, draft, frames) if earlier.runs else _all_rows(part)
        target = root / manifests.MANIFESTS / draft.name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shards = [
                _put(root, draft, name, week, rows)
                for name, filed in new
                for week, rows in filed
                if rows.height
            ]
            if part.findings.height:
                shards.append(_put(root, draft, "findings", manifests.ACROSS, part.findings))
            manifest = replace(draft, shards=tuple(shards))
            put_whole(target, manifest.as_json().encode("utf-8"))
        except OSError as error:
            if not earlier.files:
                raise NoRoomError(
                    f"Nothing can be archived to {str(root)!r}: {error.strerror or error}.",
                    "name a folder that you may write to, on a disk with room",
                ) from None
            raise no_more_room(root, error) from None
        return None if last is not None and last.content == content else manifest


def no_more_room(root: Path, error: OSError) -> NoRoomError:
    """The error for an archive that cannot take more rows."""
    return NoRoomError(
        f"Nothing more can be written to the archive {str(root)!r}: "
        f"{error.strerror or error}. Nothing that was archived before is lost.",
        "make room, or archive to a folder that you may write to",
    )


def _digest_of_all(part: Parts) -> str:
    """A digest of all kept frames; the facts are in the fingerprint already."""
    rest = [frame.drop("source") for name, frame in _frames_of(part) if name not in FACTS]
    return sha256(f"{part.fingerprint} {fingerprint(rest)}".encode()).hexdigest()


def _is_same(last: Manifest | None, content: str, options: Options) -> bool:
    return last is not None and (last.content, last.bodies, last.redacted, last.schema_version) == (
        content,
        options.bodies,
        options.redacted,
        manifests.SCHEMA_VERSION,
    )


def _as_kept(part: Parts, options: Options) -> Parts:
    """What the options keep of a source."""
    if not options.bodies:
        part = replace(part, events=part.events.with_columns(body=pl.lit(None, pl.String)))
    if not options.redacted:
        return part
    masked: dict[str, Any] = {name: _masked(getattr(part, name)) for name in FRAMES}
    return replace(
        part,
        **masked,
        details={name: _masked(frame) for name, frame in part.details.items()},
        label=masked_text(part.label),
        fingerprint="",
    )


def masked_text(text: str) -> str:
    """A text with secrets masked."""
    return str(redact(pl.DataFrame({"text": [text]}))[0].item())


def _masked(frame: pl.DataFrame) -> pl.DataFrame:
    """Frames with secrets in texts masked; ids stay, as they identify rows."""
    names = [name for name in frame.columns if not name.endswith("_id") and name != _NEVER_MASKED]
    return frame.with_columns(redact(frame.select(names))[0])


def _frames_of(part: Parts) -> Iterator[tuple[str, pl.DataFrame]]:
    yield from ((name, getattr(part, name)) for name in FRAMES)
    yield from sorted(part.details.items())


def _all_rows(part: Parts) -> Iterator[tuple[str, Filed]]:
    """Every frame by week, of a source that was not archived before."""
    work = weeks_of_work(part.entities)
    yield "entities", by_week(part.entities, work["week"])
    for name in _HISTORY:
        rows = getattr(part, name)
        yield name, by_week(rows, weeks_of_history(rows, work))
    for name, rows in sorted(part.details.items()):
        yield name, by_week(rows, weeks_of_details(rows, work))


def _new_rows(
    part: Parts, earlier: Archived, draft: Manifest, frames: Mapping[str, schema.Frame]
) -> Iterator[tuple[str, Filed]]:
    """Every frame by week, without rows that the archive holds already.

    An observation older than an archived one adds only what is not known yet, and rows that
    are themselves newer than the archived ones.
    """
    is_latest = draft.order > earlier.runs[-1].order
    work = weeks_of_work(part.entities)
    of_history = (getattr(part, name).select(week_of(pl.col("at"))) for name in _HISTORY)
    numbers = [work["week"], work["begin_week"], *(rows.to_series() for rows in of_history)]
    weeks = set(map(week_name, pl.concat(numbers).unique()))
    held = read_archived(earlier, frames, weeks=weeks.__contains__)
    is_duplicate = is_owned_elsewhere(part.events, [held.events, part.events])
    part = replace(part, events=part.events.filter(~is_duplicate))
    is_new = dict(_new_facts(part, held, draft, is_latest=is_latest))
    work, refiled = _without_filed_weeks(part, held, work, is_new)
    if not is_latest:
        refiled = refiled.clear()
    changed = is_new["entities"] | work["work"].is_in(refiled["work"].implode())
    yield "entities", by_week(part.entities.filter(changed), work["week"].filter(changed))
    for name, columns in _HISTORY.items():
        rows, archived = getattr(part, name), getattr(held, name)
        kept = rows.filter(is_new[name] | identity_of(rows).is_in(refiled["id"].implode()))
        pruned = archived.filter(identity_of(archived).is_in(refiled["id"].implode()))
        pruned = pruned.join(kept, on=list(columns), how="anti", nulls_equal=True)
        kept = pl.concat([kept, pruned])
        yield name, by_week(kept, weeks_of_history(kept, work))
    for name, rows in sorted(part.details.items()):
        archived = held.details.get(name, frames[name].empty())
        key = [column for column in frames[name].key if column != "source"]
        changed, is_known = _new_or_changed(rows, archived, key, is_latest=is_latest)
        changed |= identity_of(rows).is_in(refiled["id"].implode())
        number = weeks_of_details(rows, work)
        week = pl.select(pl.when(~is_known).then(number).otherwise(0)).to_series()
        yield name, by_week(rows.filter(changed), week.filter(changed))


def _new_facts(
    part: Parts, held: Parts, draft: Manifest, *, is_latest: bool
) -> Iterator[tuple[str, pl.Series]]:
    """The rows of each frame of facts that have to be written."""
    key = ["entity_type", "entity_id"]
    is_new, _ = _new_or_changed(
        part.entities, held.entities, key, is_latest=is_latest, moment=LAST_MOMENT
    )
    yield "entities", is_new
    ignored = ["seq"] if draft.bodies else ["seq", "body"]
    for name, columns in _HISTORY.items():
        is_new, _ = _new_or_changed(
            getattr(part, name),
            getattr(held, name),
            list(columns),
            is_latest=is_latest,
            is_history=True,
            ignored=ignored,
        )
        yield name, is_new


def _without_filed_weeks(
    part: Parts, held: Parts, work: pl.DataFrame, is_new: Mapping[str, pl.Series]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The weeks of work, none for work that continued, and the work filed under a week so far.

    All rows of the latter must be written a second time: rows of one work are filed together.
    """
    named = identities(work)
    new_ids = pl.concat(
        identity_of(getattr(part, name).filter(mask)) for name, mask in is_new.items()
    )
    # Rows of history name an entity; rows of entities name their session.
    own_ids = part.entities["entity_id"].filter(is_new["entities"])
    ids = pl.concat([new_ids, own_ids]).unique().implode()
    touched = named.filter(pl.col("id").is_in(ids))["work"].unique().implode()
    before = weeks_of_work(held.entities).filter(pl.col("work").is_in(touched))
    known = before["work"].unique().implode()
    filed = before.filter(pl.col("week") != 0)["work"].unique().implode()
    week = pl.when(pl.col("work").is_in(known)).then(0).otherwise("week")
    return work.with_columns(week=week), named.filter(pl.col("work").is_in(filed))


def _new_or_changed(
    rows: pl.DataFrame,
    held: pl.DataFrame,
    key: Sequence[str],
    *,
    is_latest: bool,
    is_history: bool = False,
    ignored: Sequence[str] = (),
    moment: pl.Expr | None = None,
) -> tuple[pl.Series, pl.Series]:
    """Which rows have to be written, and which have a key that the archive holds."""
    compared = [name for name in rows.columns if name not in ("source", *ignored)]
    ours, theirs = (_hashed(frame, key, compared, moment) for frame in (rows, held))
    same = ["row", "nth"] if is_latest else ["key", "nth_of_key"]
    known = theirs.select(same).unique().with_columns(is_known=pl.lit(value=True))
    is_new = ours.join(known, on=same, how="left", maintain_order="left")["is_known"].is_null()
    if not is_latest:
        last = theirs.group_by("key").agg(held_at=pl.col("moment").max())
        both = ours.join(last, on="key", how="left", maintain_order="left")
        is_new |= (both["moment"] > both["held_at"]).fill_null(value=False)
    if not is_history:
        # Rows without a key are kept of the latest observation only, so each writes all of them.
        is_new |= rows.select(pl.any_horizontal(pl.col(key).is_null())).to_series()
    # All rows of a key together, so that the second of two equal rows stays the second.
    keys = ours.filter(is_new)["key"].unique()
    return ours["key"].is_in(keys.implode()), ours["key"].is_in(theirs["key"].unique().implode())


def _hashed(
    frame: pl.DataFrame, key: Sequence[str], compared: Sequence[str], moment: pl.Expr | None
) -> pl.DataFrame:
    """Hashes of the key and the contents of each row, and its position among equal rows."""
    last = pl.lit(None, schema.MOMENT) if moment is None else moment
    numbers = pl.DataFrame(
        [
            frame.select(key).hash_rows(seed=7).alias("key"),
            frame.select(compared).hash_rows(seed=11).alias("row"),
            frame.with_columns(moment=last)["moment"],
        ]
    )
    return numbers.with_columns(
        nth=pl.int_range(pl.len()).over("row"), nth_of_key=pl.int_range(pl.len()).over("key")
    )


def _put(root: Path, run: Manifest, frame: str, week: str, rows: pl.DataFrame) -> manifests.Shard:
    """Write one shard, unless an identical one exists already."""
    memory = io.BytesIO()
    rows.write_parquet(memory, compression="zstd")
    content = memory.getvalue()
    shard = manifests.Shard(frame, week, sha256(content).hexdigest(), rows.height, len(content))
    target = shard.path(root, run.system, run.key)
    if not (target.is_file() and target.read_bytes() == content):
        target.parent.mkdir(parents=True, exist_ok=True)
        put_whole(target, content)
    return shard
