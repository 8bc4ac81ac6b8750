"""Every frame that a public function returns is documented: names, order and dtypes."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.core.schema import Frame
from stateanalytics.errors import ArgumentError
from stateanalytics.live import severity_changes
from stateanalytics.sql.returned import FRAMES_RETURNED, RETURNED_BY, frames_named
from stateanalytics.sql.tables import FRAMES
from stateanalytics.weekly_limits import failure_alarm
from tests.conftest import SHIPPED
from tests.examples import a_few, examples

SPACES = (sa.failures, sa.survival, sa.detectors, sa.thresholds)
DOCUMENTED = {frame.name: frame for frame in (*FRAMES, *FRAMES_RETURNED)}
BY = ("kind", "model")
CLUSTER = "v1:3dd4831bf7f3"
WINDOW = "2026-W21"
HEALTH = {
    **dict.fromkeys(("status", "invocation_kind"), pl.String),
    **dict.fromkeys(("started_at", "updated_at", "last_message_at"), pl.Datetime("us", "UTC")),
    **dict.fromkeys(("process_alive", "has_artifacts", "has_stale_locks"), pl.Boolean),
    "message_count": pl.Int64,
}

# Public functions whose results are no frames: a snapshot, a page, a widget, a plan in words.
WITHOUT_FRAMES = {"read", "demo", "report", "explore", "thresholds.plan_trial"}
# Of nothing there is no session, no two detectors, no store.
NEED_ROWS = {"session", "detectors.agreement", "collect", "archive", "schema"}
# What has rows of nothing, too: of the package's tables, of weeks, of what is given by hand.
ROWS_OF_NOTHING = set(
    "control_limits detectors.known diff failures.costs failures.merge_templates "
    "failures.mine_templates failures.own failures.owners failures.prices failures.rules "
    "reason_codes survival.logrank survival.never_ending survival.timeout_candidates weeks".split()
)
# Methods that give any table of SQL.
ANY_TABLE = {"sql", "table", "detail"}


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, by its name without ``sa.``, and what a snapshot counts itself."""
    for space in (sa, *SPACES):
        prefix = "" if space is sa else space.__name__.rpartition(".")[2] + "."
        for name in space.__all__:
            if inspect.isfunction(getattr(space, name)):
                yield prefix + name, getattr(space, name)
    for name, method in inspect.getmembers(sa.Snapshot, inspect.isfunction):
        is_frame = "DataFrame" in str(method.__annotations__.get("return"))
        if not name.startswith("_") and is_frame and name not in ANY_TABLE:
            yield name, method


FUNCTIONS = dict(public())


OF_SPELLS = (
    *("completion_times", "cumulative_incidence", "implicit_timeouts", "kaplan_meier"),
    *("never_ending", "slow_thresholds", "timeout_candidates"),
)


class Calls:
    """How each public function is called; by default with a snapshot alone."""

    def __init__(self, snap: sa.Snapshot, folder: Path) -> None:
        self.snap, self.folder = snap, folder

    @cached_property
    def spells(self) -> pl.DataFrame:
        return sa.survival.spells(self.snap)

    @cached_property
    def gaps(self) -> pl.DataFrame:
        return sa.detectors.silence_gaps(self.snap, by=BY)

    @cached_property
    def detections(self) -> Any:
        return sa.detectors.detect(self.snap)

    def of(self, name: str) -> Iterator[tuple[Any, tuple[str, ...]]]:
        """Results of a function, each with the columns of its ``by``."""
        snap, spells, curve = self.snap, self.spells, sa.survival.kaplan_meier
        messages = ["exit code 1", None]
        match name.rpartition(".")[2]:
            case "collect":
                yield sa.collect([SHIPPED["lionagi"]], self.folder / "history"), ()
            case "archive":
                yield snap.archive(self.folder / "archive"), ()
            case "compare_policies":
                yield sa.compare_policies(snap, sa.Policy.v1(), sa.Policy.parity()), ()
            case "classify_session_health":
                rows = pl.DataFrame(schema=HEALTH)
                yield sa.classify_session_health(rows, now=snap.as_of), tuple(HEALTH)
            case "derive_severity":
                axes = ("lifecycle", "outcome", "health", "delivery")
                yield sa.derive_severity(sa.states(snap).select(axes)), axes
            case "diff":
                page = sa.report(snap, window=WINDOW)
                yield sa.diff(page, page), ()
            case "merge":
                yield sa.merge([sa.summarize(snap, by=BY)]), BY
            case "session":
                yield sa.session(snap, snap.entities["entity_id"].first()), ()
            case "summarize":
                yield sa.summarize(snap, by=BY), BY
            case "watch":
                yield severity_changes(snap, snap), ()
            case "schema" | "error_counts" | "weeks" | "control_limits" | "reason_codes":
                owner = sa if name == "reason_codes" else snap
                yield getattr(owner, name)(), ()
            case "clusters" | "codes" | "incidents":
                yield FUNCTIONS[name](snap), ()
            case "costs":
                yield sa.failures.costs(snap, by=BY), BY
                yield sa.failures.costs(snap, by=None), ()
            case "compare" if name == "compare":
                found = snap.compare("failed", by="kind", window="2026-W21", against="before")
                yield found.frame, ("kind",)
            case "rules":
                rule = {"name": "limits", "action": "merge", "message": "(?i)rate limit"}
                yield sa.failures.rules(snap, {"rule": [rule]}), ()
            case "mine_templates":
                yield sa.failures.mine_templates(messages), ()
            case "merge_templates":
                yield sa.failures.merge_templates(sa.failures.mine_templates(messages)), ()
            case "own" | "owners":
                path = self.folder / "owners.csv"
                yield sa.failures.own(path, CLUSTER, owner="ann"), ()
                yield sa.failures.owners(path), ()
            case "prices":
                yield sa.failures.prices(), ()
            case "compare":
                yield sa.survival.compare(snap, "model"), ()
            case "quantiles":
                yield sa.survival.quantiles(curve(spells, BY)), BY
            case "restricted_mean":
                yield sa.survival.restricted_mean(curve(spells, BY), 3600.0), BY
            case "logrank":
                yield sa.survival.logrank(spells, "kind"), ()
                yield sa.survival.logrank(spells, "model", within="kind"), ("kind",)
            case "turnbull":
                ends = spells.with_columns(end_width_s=pl.col("end_width_s").fill_null(0.0))
                yield sa.survival.turnbull(ends, BY), BY
            case "state_occupancy":
                yield sa.survival.state_occupancy(snap, BY, at_s=(60.0,)), BY
            case "duration_change":
                yield sa.survival.duration_change(snap, WINDOW), ()
            case name_of if name_of in OF_SPELLS:
                yield FUNCTIONS[name](spells, by=BY), BY
                yield FUNCTIONS[name](spells, by=()), ()
            case "agreement" | "disagreements" | "intersections":
                yield FUNCTIONS[name](self.detections), ()
            case "known":
                yield sa.detectors.known(), ()
            case "covering":
                yield sa.thresholds.covering(snap, by="kind"), ("kind",)
            case "gap_sums" | "quality_of_service" | "stale":
                yield FUNCTIONS[name](self.gaps, by=BY), BY
            case "merge_gap_sums":
                yield sa.detectors.merge_gap_sums([sa.detectors.gap_sums(self.gaps, by=BY)]), BY
            case "phi":
                yield sa.detectors.phi(self.gaps, [60.0], by=BY), BY
            case "phi_threshold":
                yield sa.detectors.phi_threshold(self.gaps, 1.0, by=BY), BY
            case "silence_gaps":
                yield self.gaps, BY
            case _:
                yield FUNCTIONS[name](snap), ()


def frames_in(result: Any) -> dict[str, pl.DataFrame]:
    """The frames of a result: itself, or its public attributes."""
    if isinstance(result, pl.DataFrame):
        return {"": result}
    names = [name for name in dir(result) if not name.startswith("_")]
    values = {name: getattr(result, name) for name in names if not hasattr(pl.Expr, name)}
    return {name: value for name, value in values.items() if isinstance(value, pl.DataFrame)}


def fits(frame: Frame, result: pl.DataFrame, by: tuple[str, ...]) -> bool:
    """Whether a result has the columns of a frame: names, order, dtypes."""
    chosen = {"<detector>": [name for name, dtype in result.schema.items() if dtype == pl.Boolean]}
    if frame.name.startswith("summary."):
        declared = {column.name for column in frame.columns}
        chosen["<detector>"] = [n for n in chosen["<detector>"] if n not in declared]
    expected = []
    for column in frame.columns:
        if column.name == "<rule>":  # only with `with_evidence=True`
            continue
        names = chosen.get(column.name, by) if column.name[0] == "<" else [column.name]
        dtypes = result.schema if isinstance(column.dtype, pl.Unknown) else {}
        expected += [(name, dtypes.get(name, column.dtype)) for name in names]
    return expected == list(result.schema.items())


@pytest.fixture(scope="module")
def calls(demo, tmp_path_factory) -> dict[str, Calls]:
    """The sample, and a snapshot of nothing."""
    frames = ("entities", "transitions", "events", "findings", "sources")
    cleared = {name: getattr(demo, name).clear() for name in frames}
    details = {name: frame.clear() for name, frame in demo.details.items()}
    snaps = {"sample": demo, "nothing": replace(demo, **cleared, details=details, stores=())}
    return {name: Calls(snap, tmp_path_factory.mktemp(name)) for name, snap in snaps.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - WITHOUT_FRAMES))
@pytest.mark.parametrize("rows", a_few(["sample", "nothing"]))
def test_every_column_of_every_result_is_documented(calls, name, rows):
    if rows == "nothing" and name in NEED_ROWS:
        return
    declared = frames_named("columns" if name == "schema" else name)
    assert declared, f"{name} has no class in a frames.py"
    seen = set()
    for result, by in calls[rows].of(name):
        frames = frames_in(result)
        assert frames, f"{name} returns no frame: add it to WITHOUT_FRAMES"
        for part, frame in frames.items():
            fitting = [entry for entry in declared if fits(entry, frame, by)]
            assert fitting, f"{name} .{part}: {dict(frame.schema)}\nis none of {declared}"
            assert rows == "sample" or frame.is_empty() or name in ROWS_OF_NOTHING, part
            seen.add(fitting[0].name)
    assert seen == {entry.name for entry in declared}


@pytest.mark.slow
def test_functions_of_single_modules_are_documented(demo):
    assert fits(DOCUMENTED["failure_alarm"], failure_alarm(demo), ())
    nested = sa.failures.clusters(demo, nested=True)
    assert nested.columns == list(DOCUMENTED["failures.clusters"].dtypes)
    axes = sa.states(demo).select("outcome", "health", "delivery")
    with_evidence = sa.derive_severity(axes, with_evidence=True)
    assert set(with_evidence.dtypes[3:-3]) == {pl.Boolean}


def test_entries_are_unique_and_say_what_they_are():
    names = [frame.name for frame in (*FRAMES, *FRAMES_RETURNED)]
    assert len(names) == len(set(names))
    for frame in FRAMES_RETURNED:
        columns = [column.name for column in frame.columns]
        assert frame.row and len(columns) == len(set(columns)) > 0, frame.name
        assert set(frame.key) <= set(columns), frame.name
        for column in frame.columns:
            assert column.meaning, (frame.name, column.name)
            unit = {"s": "s", "us": "us", "usd": "USD"}.get(column.name.rpartition("_")[2])
            assert unit in (None, column.unit), (frame.name, column.name)
    assert {name for returned in RETURNED_BY.values() for name in returned} <= set(names)
    public = {name.rpartition(".")[2] for name in FUNCTIONS}
    assert {name.rpartition(".")[2] for name in RETURNED_BY} <= public


ISSUE = (
    *("costs", "clusters", "members", "life", "change", "lift", "incidents"),
    *("duration_change", "silence_gaps", "control_limits", "advice", "kaplan_meier"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ISSUE, *sorted(FUNCTIONS.keys() - WITHOUT_FRAMES)])
def test_schema_explains_a_function_by_every_name_of_it(demo, name):
    if name == "schema":
        return
    found = demo.schema(name)
    assert found.height and found["meaning"].str.len_chars().min() > 0
    short = name.rpartition(".")[2]
    for other in (f"sa.{name}", name if short == "compare" else short):
        assert demo.schema(other).equals(found)
    of_all = demo.schema().filter(pl.col("frame").is_in(found["frame"].unique().to_list()))
    assert of_all.height == found.height


def test_tables_of_sql_and_of_users_come_before_results(demo):
    assert demo.schema("states")["frame"].unique().to_list() == ["states"]
    owned = demo.with_table("clusters", pl.DataFrame({"team": ["a"]}))
    assert owned.schema("clusters")["column"].to_list() == ["team"]
    assert "cluster_id" in owned.schema("failures.clusters")["column"]
    # What SQL cannot name is in no list of SQL.
    assert not demo.table("columns")["frame"].str.contains(".", literal=True).any()
    assert set(demo.table("tables")["name"]) >= set(demo.table("columns")["frame"])


@pytest.mark.parametrize("name", "|nothing|failures.|sa.|failures.nope|<by>|.|é".split("|"))
def test_an_unknown_name_is_an_error_that_lists_those_there_are(demo, name):
    with pytest.raises(ArgumentError, match=r"There is no frame .*failures\.clusters"):
        demo.schema(name)


@given(
    frame=st.sampled_from([frame for frame in FRAMES_RETURNED if len(frame.columns) > 4]),
    random=st.randoms(use_true_random=False),
)
@examples(100)
def test_schema_explains_a_result_in_whatever_order_its_columns_are(demo, frame, random):
    whole = {name: dtype for name, dtype in frame.dtypes.items() if name[0] != "<"}
    names = random.sample(list(whole), len(whole))
    result = pl.DataFrame(schema={name: whole[name] for name in names} | {"mine": pl.Int8})
    found = demo.schema(result)
    assert found["column"].to_list() == [*names, "mine"]
    assert found["meaning"].to_list()[-1] == ""
    assert found["meaning"].head(len(names)).str.len_chars().min() > 0


def test_schema_explains_the_columns_that_by_names(demo):
    curve = sa.survival.kaplan_meier(sa.survival.spells(demo), ("kind", "model"))
    found = demo.schema(curve)
    assert found["meaning"].str.len_chars().min() > 0
    assert found["frame"].to_list()[2:] == ["survival.kaplan_meier"] * (curve.width - 2)


def test_docstrings_name_the_width_of_what_there_is():
    """``polars.DataFrame, shape (n_rows, 14)``; ``n_by + 8`` beside columns of ``by``."""
    wrong = []
    for name, function in FUNCTIONS.items():
        returned = (function.__doc__ or "").partition("Returns\n")[2].partition("\n\n")[0]
        shape = re.search(r"shape \([^)]*?, (?:n_\w+ \+ )*(\d+)(?: \+ n_\w+ \+ (\d+))?\)", returned)
        frames = frames_named("columns" if name == "schema" else name)
        if shape is None or len(frames) != 1:
            continue
        columns = [column for column in frames[0].columns if column.name[0] != "<"]
        if sum(map(int, filter(None, shape.groups()))) != len(columns):
            wrong.append((name, shape[0], len(columns)))
    assert not wrong
