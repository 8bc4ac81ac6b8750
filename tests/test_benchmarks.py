"""The benchmark table: no number beside another without saying in what they are not the same."""

from types import SimpleNamespace

import pytest

from benchmarks import measure
from benchmarks.__main__ import HEAD, line, main
from benchmarks.measure import SAME, Row, grown


def test_a_row_says_in_what_its_peer_is_not_the_same_work():
    with pytest.raises(ValueError, match="Say in what 'SQLite' is not the work of 'load'"):
        Row("load", 1.0, "SQLite", 2.0, "none", is_met=True)


def test_the_table_shows_the_difference_and_the_load():
    row = Row("load", 1.0, "SQLite", 2.0, "≤ 2 s", True, "cold", differs=SAME, load=3.14)
    shown = "| load | 1 s | SQLite: 2 s | 2 × | nothing: the same work | ≤ 2 s | yes (cold) | 3.1 |"
    assert line(row) == shown
    assert shown.count("|") == len(HEAD) + 1


@pytest.mark.parametrize(
    ("each_s", "n_measured"), [(0.5, 2 * 6), (2.0, 2 * 3), (8.0, 2 * 2), (11.0, 2)]
)
def test_what_takes_long_is_measured_less_often(monkeypatch, each_s, n_measured):
    seconds = []
    monkeypatch.setattr(measure, "_seconds", lambda work: seconds.append(each_s) or each_s)
    assert measure.side_by_side(print, print) == (each_s, each_s)
    assert len(seconds) == n_measured


@pytest.mark.parametrize(("power", "is_met"), [(1, True), (2, False)])
def test_growth_is_linear_up_to_its_exponent(monkeypatch, power, is_met):
    monkeypatch.setattr(measure, "cpu_s", lambda size, n_runs: float(size) ** power)
    row = grown("work", (10, 100, 1000), lambda size: size)
    assert row.is_met is is_met
    assert f"exponents {power:.2f}, {power:.2f}; CPU s 10: {10.0**power:.3g}" in row.note


def test_a_topic_that_fails_costs_its_own_rows_only(monkeypatch, capsys):
    def row() -> list[Row]:
        return [Row("a thing", 1.0, "", None, "≤ 2 s", True)]

    def wrong() -> list[Row]:
        raise ValueError("no disk")

    topics = {"benchmarks.bench_sql": wrong, "benchmarks.bench_states": row}
    monkeypatch.setattr("importlib.import_module", lambda name: SimpleNamespace(run=topics[name]))
    with pytest.raises(SystemExit, match="since they failed: sql"):
        main(["sql", "states"])
    told = capsys.readouterr()
    assert "| a thing |" in told.out
    assert "no disk" in told.err
