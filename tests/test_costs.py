"""What runs cost, as reported and as estimated by list prices."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.price_table import estimated_usd
from stateanalytics.reporting.sections.costs import summarize_costs
from tests.conftest import ROOT
from tests.frames import facts
from tests.report_parts import material_of
from tests.samples import the_week

AT = datetime(2026, 5, 20, 9, tzinfo=UTC)
OWN = """as_of = 2026-11-01
[[price]]
input = 2
cache_read = 0.5
cache_write = 3
output = 10
[price.models]
"gpt-5.2-codex" = 2026-10-01
gpt-5 = 2026-10-01
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prices") / "prices.toml"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def snap() -> sa.Snapshot:
    return sa.read(ROOT / "data" / "samples" / "codex", as_of="2026-05-20T17:05Z", progress=False)


def test_your_own_prices_win_and_the_others_stay(own: Path) -> None:
    table = sa.failures.prices(own)
    rows = {row["model"]: row for row in table.to_dicts()}
    assert (rows["gpt-5"]["input_usd"], rows["gpt-5"]["origin"]) == (2.0, str(own))
    assert rows["o3"]["origin"] == "stateanalytics"
    assert table["model"].is_unique().all()


def test_tokens_are_priced_by_where_they_were_read_from(own: Path) -> None:
    runs = pl.DataFrame(
        {
            "model": ["openai/gpt-5-2026-01-02", "gpt-5", "gpt-5", "unheard-of", None],
            "n_input_tokens": [1_000_000] * 5,
            "n_cache_read_tokens": [400_000, None, 0, 0, 0],
            "n_cache_write_tokens": [100_000, 0, None, 0, 0],
            "n_output_tokens": [10_000, 1, 0, 1, 1],
        }
    )
    by_hand = 0.5 * 2 + 0.4 * 0.5 + 0.1 * 3 + 0.01 * 10
    found = estimated_usd(runs, sa.failures.prices(own)).to_list()
    assert found == [pytest.approx(by_hand), None, 2.0, None, None]


def test_reported_and_estimated_costs_stay_two(snap: sa.Snapshot, own: Path) -> None:
    [unknown] = sa.failures.costs(snap, by=()).to_dicts()
    assert (unknown["reported_usd"], unknown["estimated_usd"]) == (None, None)
    [row] = sa.failures.costs(snap, by=("system",), own_prices=own).to_dicts()
    assert (row["system"], row["n_runs"], row["reported_usd"]) == ("codex", 15, None)
    runs = snap.entities.filter(entity_type="session").filter(pl.col("model") == "gpt-5.2-codex")
    cached = runs["n_cache_read_tokens"].sum()
    fresh = runs["n_input_tokens"].sum() - cached
    by_hand = (fresh * 2 + cached * 0.5 + runs["n_output_tokens"].sum() * 10) / 1e6
    assert row["estimated_usd"] == pytest.approx(by_hand)
    assert row["estimated_n"] == runs.height


def test_what_somebody_stopped_is_not_lost_to_failures() -> None:
    rows = [
        {"entity_id": end, "raw_status": end, "cost_usd": usd, "started_at": AT, "ended_at": AT}
        for end, usd in (("failed", 2.0), ("timed_out", 0.5), ("aborted", 1.0), ("completed", 4.0))
    ]
    [row] = sa.failures.costs(facts(rows), by=()).to_dicts()
    assert (row["reported_usd"], row["reported_lost_usd"]) == (7.5, 2.5)


def test_a_group_that_is_none_is_said(snap: sa.Snapshot) -> None:
    with pytest.raises(ArgumentError, match="Costs have no group 'colour'; there are system,"):
        sa.failures.costs(snap, by=["colour"])
    twice = sa.failures.costs(snap, by=["model", "model"])
    assert twice.equals(sa.failures.costs(snap, by="model"))
    assert sa.failures.costs(snap, by=None).equals(sa.failures.costs(snap, by=()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: No such file"),
        ("= 3", "are no TOML"),
        ("as_of = 2026-11-01", "as_of and price were needed; found as_of"),
        ("as_of = 'today'\nprice = []", "as_of and price were needed"),
        (OWN.replace("input = 2", "input = -2"), "price 1: input cannot be -2"),
        (OWN.replace("input = 2", ""), "price 1: input cannot be None"),
        (OWN.replace("gpt-5 = 2026-10-01", "gpt-5 = 'new'"), "price 1: models cannot be"),
        (OWN.replace("output = 10", "output = 10\noutputs = 1"), "unknown key 'outputs'"),
    ],
)
def test_prices_that_cannot_be_used_are_said(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        sa.failures.prices(path)


def test_prices_are_a_file() -> None:
    with pytest.raises(ArgumentError, match="Prices are a TOML file; found int"):
        sa.failures.prices(3)


def test_the_page_says_how_old_the_prices_are(snap: sa.Snapshot) -> None:
    told = summarize_costs(material_of(snap))
    assert told["finding"] == (
        "None of 15 runs reported what it cost; from tokens, by list prices of 2025-11-24 "
        "(177 days old), none can be estimated."
    )
    told = summarize_costs(material_of(the_week()))
    assert told["total"]["reported_usd"] == 33.605
    assert [row["system"] for row in told["models"]] == ["lionagi"] * 4


@pytest.mark.slow
def test_the_chapter_is_there_where_something_is_estimated(
    snap: sa.Snapshot, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"sections": ["costs"], "window": "2026-W21"}
    assert 'id="costs"' not in sa.report(snap, **asked).as_html()
    table = sa.failures.prices(own)
    monkeypatch.setattr("stateanalytics.reporting.sections.costs.prices", lambda: table)
    page = sa.report(snap, **asked).as_html()
    assert "list prices of 2026-11-01 (no days old)" in page
    assert "Reported" in page
    assert "Estimated" in page
