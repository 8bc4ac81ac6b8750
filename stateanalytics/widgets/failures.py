"""A drill-down into failures: code, template, sessions, evidence, and the SQL for the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import polars as pl

from stateanalytics import failures
from stateanalytics.core.facts import Facts, checked_snapshot
from stateanalytics.core.redaction import redact
from stateanalytics.core.text import shortened
from stateanalytics.core.windows import Window, read_window
from stateanalytics.errors import ArgumentError, did_you_mean
from stateanalytics.failures.by_code import count_codes
from stateanalytics.failures.clustering import count_clusters
from stateanalytics.failures.counting import count_incidents_of
from stateanalytics.widgets.drawing import safe, table

N_ROWS, N_LETTERS = 12, 90
NO_CODE = "(no code)"


@dataclass(frozen=True, eq=False, repr=False)
class FailureExplorer:
    """From a reason code to its templates, their rows, and the evidence behind one.

    Attributes
    ----------
    snap : Snapshot or Facts
        What `read` gave.
    window : str, pair of moments or Window, optional
        As in `read_window`; None: all time.
    is_redacted : bool
        Whether what looks like a secret is masked.

    Notes
    -----
    Everything is counted once, when it is first shown; a choice only narrows frames.
    Texts come from a store and are shown as text.

    Examples
    --------
    >>> import stateanalytics as sa
    >>> look = FailureExplorer(sa.demo(), window="2026-W21")
    >>> "run.failed.exception" in look.codes
    True
    >>> look.view("run.failed.exception").count("<table")
    2
    """

    snap: Facts
    window: object = None
    is_redacted: bool = True

    def __post_init__(self) -> None:
        checked_snapshot(self.snap, "FailureExplorer")

    @cached_property
    def members(self) -> pl.DataFrame:
        """`failures.members` of the window."""
        return failures.members(self.snap, window=self.window)

    @cached_property
    def clusters(self) -> pl.DataFrame:
        """`failures.clusters` of the window."""
        return count_clusters(self.members, window=self._chosen, as_of=self.snap.as_of)

    @cached_property
    def codes(self) -> list[str]:
        """The nodes of the namespace, the widest first; rows without a code last."""
        nodes = count_codes(self.members, window=self._chosen, as_of=self.snap.as_of)
        order = nodes.sort("n_rows", "code", descending=[True, False])["code"]
        return [*order.drop_nulls().to_list(), *([NO_CODE] if order.null_count() else [])]

    def templates(self, code: str | None = None) -> pl.DataFrame:
        """Clusters of a code and of all below it; of everything without one."""
        return self.clusters.filter(self._within(code))

    def rows(self, code: str | None = None, cluster_id: str | None = None) -> pl.DataFrame:
        """Members of a code and of all below it, or of one cluster; newest first."""
        rows = self.members.filter(self._within(code))
        if cluster_id is None:
            return rows
        return rows.filter(pl.col("cluster_id") == self._today(cluster_id))

    def sql(self, code: str | None = None, cluster_id: str | None = None) -> str:
        """The query that gives the same rows over all time, for ``snap.sql``."""
        parts = []
        if cluster_id is not None:
            parts.append(f"cluster_id = {_literal(self._today(cluster_id))}")
        elif code == NO_CODE:
            parts.append("code IS NULL")
        elif code is not None:
            parts.append(f"(code = {_literal(code)} OR starts_with(code, {_literal(code + '.')}))")
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        return f"FROM failures{where} ORDER BY failed_at DESC"

    def view(self, code: str | None = None, *, cluster_id: str | None = None) -> str:
        """Templates and rows of a choice as HTML, with their evidence and the SQL."""
        templates = self.templates(code).select(
            "rank", "code", "template", "n_rows", "n_incidents", "cost_usd", "run_s"
        )
        rows = self.rows(code, cluster_id)
        shown = rows.head(N_ROWS).select("failed_at", "session_id", "agent", "model", "message")
        head = f"<p>{safe(_counted(rows))}</p>"
        newest = rows.head(1)
        message = newest["message"][0] if newest.height else None
        evidence = f"<pre>{safe(self._clean([message], 2_000)[0])}</pre>" if message else ""
        return (
            head
            + table("Templates", self._masked(templates.head(N_ROWS)), templates.columns)
            + table("Newest rows", self._masked(shown), shown.columns)
            + evidence
            + f"<p><code>snap.sql({safe(repr(self.sql(code, cluster_id)))})</code></p>"
        )

    def as_html(self) -> str:
        """The first view, for pages where nothing moves."""
        return self.view()

    @cached_property
    def widget(self) -> Any:
        """The ipywidgets box: a code, one of its templates, and what is behind them."""
        import ipywidgets as w

        shown = w.HTML()
        if self.members.is_empty():
            shown.value = "<p>Nothing failed or timed out in this window.</p>"
            return w.VBox([shown])
        everything = ("everything", None)
        code = w.Dropdown(
            options=[everything, *zip(self._clean(self.codes), self.codes, strict=True)],
            description="code",
        )
        template = w.Dropdown(options=[everything], description="template")

        def draw(_: object = None) -> None:
            shown.value = self.view(code.value, cluster_id=template.value)

        def choose(_: object = None) -> None:
            templates = self.templates(code.value).select("rank", "template", "cluster_id")
            template.options = [
                everything,
                *(
                    (f"{rank} {text or ''}", cluster_id)
                    for rank, text, cluster_id in self._masked(templates).rows()
                ),
            ]
            draw()

        choose()
        code.observe(choose, "value")
        template.observe(draw, "value")
        return w.VBox([code, template, shown])

    def _today(self, cluster_id: str) -> str:
        """The id that a cluster has now, where it had another."""
        if cluster_id in self.members["cluster_id"]:
            return cluster_id
        others = failures.aliases(self.snap).filter(pl.col("alias_id") == cluster_id)
        return others["cluster_id"].item() if others.height else cluster_id

    @property
    def _chosen(self) -> Window | None:
        return None if self.window is None else read_window(self.window, as_of=self.snap.as_of)

    def _within(self, code: str | None) -> pl.Expr:
        if code is None:
            return pl.lit(value=True)
        if code not in self.codes:
            raise ArgumentError(
                f"Nothing failed with {code!r:.80} here; there are {len(self.codes)} codes.",
                "look.codes lists them" + did_you_mean(str(code), self.codes),
            )
        if code == NO_CODE:
            return pl.col("code").is_null()
        return (pl.col("code") == code) | pl.col("code").str.starts_with(code + ".")

    def _masked(self, frame: pl.DataFrame, width: int = N_LETTERS) -> pl.DataFrame:
        """The few rows that are shown, without secrets, each text cut to a width."""
        frame = redact(frame)[0] if self.is_redacted else frame
        cut = partial(shortened, width=width)
        return frame.with_columns(pl.col(pl.String).map_elements(cut, return_dtype=pl.String))

    def _clean(self, texts: Sequence[str], width: int = N_LETTERS) -> list[str]:
        frame = pl.DataFrame({"text": texts}, schema={"text": pl.String})
        return self._masked(frame, width)["text"].to_list()

    def __repr__(self) -> str:
        return (
            f"FailureExplorer of {self.members.height:,} failed rows in {len(self.codes)} codes. "
            "Show it as the last line of a cell, or .as_html()"
        )

    def _repr_html_(self) -> str:
        return self.as_html()

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(self.widget._repr_mimebundle_())
        return {**bundle, "text/html": self.as_html(), "text/plain": repr(self)}


def _counted(rows: pl.DataFrame) -> str:
    sessions = rows["session_id"].drop_nulls().n_unique()
    n_incidents = rows.select(count_incidents_of()).item()
    return f"{rows.height:,} rows, {sessions:,} runs, {n_incidents:,} incidents"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
