"""Whatever a public function is given in place of a snapshot, it says so in its own words."""

import inspect

import duckdb
import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError, StateAnalyticsError, found

PARTS = (sa, sa.detectors, sa.failures, sa.survival, sa.thresholds)
FUNCTIONS = {
    f"{part.__name__}.{name}": function
    for part in PARTS
    for name in dir(part)
    if inspect.isfunction(function := getattr(part, name))
}


def needed(function):
    """The parameters that have to be given."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


ASKED = sorted(name for name, function in FUNCTIONS.items() if needed(function))


@pytest.fixture(scope="module")
def wrong(demo):
    return {
        "a DuckDB relation": duckdb.sql("SELECT 1 AS a"),
        "a summary": sa.summarize(demo),
        "a frame without rows": pl.DataFrame(),
        "a text": "x",
        "a number": 5,
        "nothing": None,
    }


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_served_is_an_error_of_its_own(name, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = FUNCTIONS[name]
    for value in wrong.values():
        # Some can be served; what is refused is refused in words, on one line and a hint.
        try:
            function(**dict.fromkeys(needed(function), value))
        except StateAnalyticsError as error:
            told = str(error).splitlines()
            assert 1 <= len(told) <= 2 and "object at 0x" not in told[0], told


def test_a_summary_in_place_of_a_snapshot_is_named_once(wrong):
    with pytest.raises(ArgumentError, match=r"^audit needs a snapshot; found Summary as of .*…\."):
        sa.audit(wrong["a summary"])
    assert found("x" * 80) == f"str '{'x' * 58}…"


def test_known_detectors_with_what_is_none():
    with pytest.raises(ArgumentError, match=r"known needs your own detectors; found int 5"):
        sa.detectors.known(5)
    with pytest.raises(ArgumentError, match=r"known needs your own detectors; found str 'x'"):
        sa.detectors.known("x")
