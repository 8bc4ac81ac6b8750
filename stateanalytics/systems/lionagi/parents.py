"""Which play a session worked for: the play's own link, else the names in the session."""

from __future__ import annotations

import polars as pl

from stateanalytics.systems.lionagi.raw import Raw


def played_sessions(raw: Raw) -> pl.DataFrame:
    """Sessions that worked for a play or a show, and which.

    Parameters
    ----------
    raw : mapping of str to polars.DataFrame
        The tables, as `raw.read_raw` gives them.

    Returns
    -------
    polars.DataFrame, shape (n_played, 3)
        ``entity_id`` (a session, once), ``play_type`` and ``play_id``: the play that links
        it; else the play, or at least the show, of the names that the session carries.
    """
    plays = raw["plays"].select("show_id", "session_id", play_id="id", show_play_name="name")
    shows = raw["shows"].select(show_id="id", show_topic="topic")
    linked = plays.filter(pl.col("session_id").is_not_null()).select(
        entity_id="session_id", play_type=pl.lit("play"), play_id="play_id"
    )
    named = (
        raw["sessions"]
        .filter(pl.col("show_topic").is_not_null())
        .select("show_topic", "show_play_name", entity_id="id")
        .join(shows, on="show_topic", how="inner", maintain_order="left")
        .join(
            plays.drop("session_id"),
            on=["show_id", "show_play_name"],
            how="left",
            maintain_order="left",
        )
        .select(
            "entity_id",
            play_type=pl.when(pl.col("play_id").is_null())
            .then(pl.lit("show"))
            .otherwise(pl.lit("play")),
            play_id=pl.coalesce("play_id", "show_id"),
        )
    )
    return pl.concat([linked, named]).unique("entity_id", keep="first", maintain_order=True)


def add_plays_as_parents(sessions: pl.DataFrame, raw: Raw) -> pl.DataFrame:
    """Make the play (or show) a session worked for its direct parent."""
    played = played_sessions(raw)
    if played.is_empty():
        return sessions
    return (
        sessions.join(played, on="entity_id", how="left", maintain_order="left")
        .with_columns(
            parent_type=pl.coalesce("play_type", "parent_type"),
            parent_id=pl.coalesce("play_id", "parent_id"),
        )
        .drop("play_type", "play_id")
    )
