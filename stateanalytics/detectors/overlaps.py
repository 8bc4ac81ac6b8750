"""Which detectors flag the same rows together: the sets of an UpSet chart."""

from __future__ import annotations

import polars as pl

from stateanalytics.core import schema
from stateanalytics.core.schema import INTEGER, TEXT, YES_NO, Column
from stateanalytics.errors import ArgumentError, check_columns

UNIT = [*schema.ENTITY_KEY, "at"]
INTERSECTIONS = schema.Frame(
    "intersections",
    "one detector in one set of detectors that flag the same rows",
    ("rank", "detector"),
    (
        Column("rank", INTEGER, "place of the set, 1 for the largest"),
        Column("n", INTEGER, "rows that exactly these detectors flag"),
        Column("n_members", INTEGER, "detectors in the set"),
        Column("detector", TEXT, "one of all detectors that flag anything"),
        Column("is_member", YES_NO, "does this one flag these rows"),
        Column("n_flagged", INTEGER, "rows that this one flags at all"),
    ),
)


def intersections(detections: pl.DataFrame, *, most: int = 12) -> pl.DataFrame:
    """Sets of detectors by how many rows exactly they flag.

    Parameters
    ----------
    detections : polars.DataFrame
        From `detect`.
    most : int
        Sets to keep, the largest first.

    Returns
    -------
    polars.DataFrame, shape (n_sets * n_detectors, 6)
        `INTERSECTIONS`: a row a set and detector. Detectors that flag nothing are left
        out; sets of one size stand in the order of their names. A row that a detector
        cannot judge counts as not flagged by it: look at ``covered`` for that.

    Raises
    ------
    MissingColumnsError
        If it is no frame of detections.
    ArgumentError
        If ``most`` is below 1.

    Examples
    --------
    >>> from stateanalytics import demo
    >>> from stateanalytics.detectors.detections import detect
    >>> sets = intersections(detect(demo(), detectors=["B2", "B4"]))
    >>> sets.filter("is_member").select("rank", "n", "detector").rows()[:2]
    [(1, 6, 'dashboard_stuck_60m'), (2, 5, 'dashboard_stale_card')]
    """
    needed = [*UNIT, "detector", "fires"]
    check_columns(detections, needed, "intersections")
    if most < 1:
        raise ArgumentError(f"most needs at least 1; found {most!r}.", "most=12")
    flagged = detections.filter(pl.col("fires")).select(*UNIT, "detector").unique()
    sets = (
        flagged.group_by(UNIT)
        .agg(members=pl.col("detector").sort().str.join("\n"))
        .group_by("members")
        .agg(n=pl.len().cast(pl.Int64))
        .sort("n", "members", descending=[True, False])
        .head(most)
        .with_row_index("rank", offset=1)
    )
    alone = flagged.group_by("detector").agg(n_flagged=pl.len().cast(pl.Int64)).sort("detector")
    members = pl.col("members").str.split("\n")
    rows = sets.join(alone, how="cross", maintain_order="left_right").with_columns(
        is_member=members.list.contains(pl.col("detector")), n_members=members.list.len()
    )
    return INTERSECTIONS.conform(rows)
