"""What runs cost, as reported and as estimated by list prices."""

import itertools
import json
import tomllib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics import cli
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.schema import ENTITY_KEY
from stateanalytics.errors import ArgumentError
from stateanalytics.failures.run_costs import (
    count_costs,
    estimated_usd,
    is_retry,
    unpriced_models,
)
from stateanalytics.reporting.sections.costs import summarize_costs
from stateanalytics.reporting.sections.failures import lost_of
from stateanalytics.state.population import rows_of
from stateanalytics.systems.linking import COUNTS, used_tokens
from tests.conftest import ROOT, component
from tests.frames import AS_OF, WHOSE, facts
from tests.report_parts import material_of

AT = datetime(2026, 5, 20, 9, tzinfo=UTC)
LIST_PRICES = ROOT / "stateanalytics" / "core" / "data" / "prices.toml"
USED = {
    "input": ("input_tokens",),
    "cache_read": ("input_tokens", "cache_read_tokens"),
    "cache_write": ("input_tokens", "cache_write_tokens"),
    "cache_write_1h": ("input_tokens", "cache_write_tokens", "cache_write_1h_tokens"),
    "output": ("output_tokens",),
}
OWN = """as_of = 2026-12-01
[[price]]
input = 2
cache_read = 0.5
cache_write = 3
cache_write_1h = 4
output = 10
[price.models]
"gpt-5.2-codex" = 2026-10-01
gpt-5 = 2026-10-01
"""
LONGER = "output = 10\nlong_above = 9000\nlong_input = 3\nlong_output = 2"
WITHOUT_HISTORY = ("claude-sonnet-5-5",)
"""Models of which the independent table has the last price only."""


MERGED = {"recorded_lifecycle": "merged", "recorded_outcome": "merged"}


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
    assert rows["gpt-5-nano"]["origin"] == "stateanalytics"
    assert table.select("model", "since").is_unique().all()


def test_models_without_a_price_are_named(own: Path) -> None:
    """Their columns were empty without a word; a cost that is recorded needs no price."""
    rows = [("gpt-5", None), ("gpt-9", None), ("gpt-9", None), ("gpt-8", 1.0), (None, None)]
    models = pl.DataFrame(rows, ["model", "total_usd"], orient="row")
    assert unpriced_models(models, sa.failures.prices(own)) == ["gpt-9"]


@pytest.mark.parametrize(
    ("model", "known", "said"),
    [
        pytest.param("gpt-9", {}, "not known: no run reported it, and gpt-9 has no list price."),
        pytest.param(
            "gpt-5", {}, "no run reported it, and what an estimate needs (model and tokens) is"
        ),
        pytest.param("gpt-9", {"cost_usd": 0.0}, "not known for 1 of 2 runs, $0.00 for the others"),
    ],
)
def test_a_report_says_why_costs_are_not_known(
    model: str, known: dict[str, float], said: str
) -> None:
    """The line was missing; $0.00 for some stood before what is not known of the others."""
    ended = {"entity_type": "session", "ended_at": AS_OF, "raw_status": "completed", "model": model}
    rows = [{**ended, "entity_id": "a", **known}, {**ended, "entity_id": "b"}]
    page = sa.report(facts(rows), prices=None, sections=["headline"])
    assert said in page.summary["story"]["cost"]
    assert f"Cost: {page.summary['story']['cost']}" in page.story()


def test_a_sum_of_nothing_and_of_unknown_costs_is_not_known() -> None:
    sums = {"run_s": 9.0, "cost_usd": 0.0, "n_work": 2, "n_cost_unreported": 1}
    assert lost_of(sums)["cost"] == "not reported"
    assert lost_of({**sums, "n_cost_unreported": 0})["cost"] == "$0.00"
    assert lost_of({**sums, "cost_usd": 0.001})["cost"] == "under $0.01"


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
    for_an_hour = runs.with_columns(n_cache_write_1h_tokens=pl.Series([60_000, 0, None, 0, 0]))
    dearer = estimated_usd(for_an_hour, sa.failures.prices(own)).to_list()
    assert dearer == [pytest.approx(by_hand + 0.06 * (4 - 3)), None, 2.0, None, None]


def test_every_list_price_names_its_page_and_an_hour_is_dearer() -> None:
    table = sa.failures.prices()
    assert table["source"].str.starts_with("https://").all()
    assert (table["cache_write_1h_usd"] >= table["cache_write_usd"]).all()
    sold_apart = table.filter(pl.col("model").str.starts_with("claude"))
    twice = pytest.approx((2 * sold_apart["input_usd"]).to_list())
    assert sold_apart["cache_write_1h_usd"].to_list() == twice


def test_list_prices_are_those_of_an_independent_table() -> None:
    """That of Pydantic lacks models of ours, and brings a network client; so it only checks."""
    genai = component("genai_prices")
    compared, n_long = set(), 0
    tables = tomllib.loads(LIST_PRICES.read_text("utf-8"))["price"]
    last = {model: max(t["models"].get(model, date.min) for t in tables)
            for model in WITHOUT_HISTORY}  # fmt: skip
    for table in tables:
        for (model, since), kind in itertools.product(table["models"].items(), USED.keys() & table):
            # It takes a fast mode for the model itself.
            if since < last.get(model, since) or model.endswith("-fast"):
                continue
            at = datetime.combine(since, AT.timetz()) + timedelta(days=1)
            for n_tokens in (10_000, *(n + 1 for n in [table.get("long_above")] if n)):
                used = genai.Usage(**dict.fromkeys(USED[kind], n_tokens))
                read = genai.Usage(input_tokens=n_tokens) if kind == "output" else None
                try:
                    usd = genai.calc_price(
                        used if read is None else used + read,
                        model_ref=model,
                        genai_request_timestamp=at,
                    )
                except LookupError:
                    continue
                price = usd.total_price if read is None else usd.output_price
                is_long = n_tokens != 10_000
                factor = table[f"long_{'output' if read else 'input'}"] if is_long else 1
                found = float(price) * 1e6 / n_tokens
                assert found == pytest.approx(table[kind] * factor), (model, kind, n_tokens)
                compared.add(model)
                n_long += is_long
    assert len(compared) > 20
    assert n_long > 20


def test_long_prompts_and_later_days_have_prices_of_their_own() -> None:
    """By hand: a request of Haiku 5.5 above 100,000 tokens costs five times as much, all of it."""
    cut = datetime(2026, 10, 7, tzinfo=UTC)
    rows = pl.DataFrame(
        [
            ("claude-haiku-5-5", 100_000, 0, 10_000, cut, 100_000),
            ("claude-haiku-5-5", 100_001, 0, 10_000, cut, 100_001),
            ("claude-haiku-5-5", 900_000, 0, 10_000, cut, None),
            ("claude-sonnet-5-5", 1_000_000, 1_000_000, 0, cut - timedelta(minutes=1), 9),
            ("claude-sonnet-5-5", 1_000_000, 1_000_000, 0, cut, 9),
            ("claude-sonnet-5-5", 1_000_000, 1_000_000, 0, cut - timedelta(days=900), 9),
            ("claude-sonnet-5-5", 1_000_000, 1_000_000, 0, None, 9),
            ("global.anthropic.claude-sonnet-5-5-20260928-v1:0", 1_000_000, 1_000_000, 0, None, 9),
            ("claude-sonnet-5-5[1m]", 1_000_000, 1_000_000, 0, None, 9),
        ],
        {
            "model": pl.String,
            **dict.fromkeys(
                ("n_input_tokens", "n_cache_read_tokens", "n_output_tokens"), pl.Int64
            ),
            "at": pl.Datetime("us", "UTC"),
            "longest_prompt_tokens": pl.Int64,
        },
        orient="row",
    ).with_columns(n_cache_write_tokens=0)  # fmt: skip
    by_hand = [0.01 + 0.005, 5 * (0.0100001 + 0.005), 0.09 + 0.005, 0.2, 0.1, 0.2, 0.1, 0.1, 0.1]
    assert estimated_usd(rows, sa.failures.prices()).to_list() == pytest.approx(by_hand)


def test_prices_of_yours_replace_every_price_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(OWN.replace("gpt-5 =", "claude-sonnet-5-5 =").replace("output = 10", LONGER))
    table = sa.failures.prices(path)
    [sonnet] = table.filter(model="claude-sonnet-5-5").rows(named=True)
    assert (sonnet["input_usd"], sonnet["long_above"], sonnet["long_input"]) == (2.0, 9000, 3.0)
    path.write_text(path.read_text().replace("long_input = 3", ""))
    with pytest.raises(ArgumentError, match="price 1: long_above, long_input, long_output go"):
        sa.failures.prices(path)


def test_reported_and_estimated_costs_stay_two(snap: sa.Snapshot, own: Path) -> None:
    unpriced = snap.entities.with_columns(model=pl.lit("unheard-of"))
    without = changed_facts(snap, entities=unpriced, details={})
    [unknown] = sa.failures.costs(without, by=()).to_dicts()
    assert (unknown["reported_usd"], unknown["estimated_usd"]) == (None, None)
    [row] = sa.failures.costs(snap, by=("system",), prices=own).to_dicts()
    assert (row["system"], row["n_runs"], row["reported_usd"]) == ("codex", 15, None)
    runs = snap.entities.filter(entity_type="session").filter(pl.col("model") == "gpt-5.2-codex")
    cached = runs["n_cache_read_tokens"].sum()
    fresh = runs["n_input_tokens"].sum() - cached
    by_hand = (fresh * 2 + cached * 0.5 + runs["n_output_tokens"].sum() * 10) / 1e6
    assert row["estimated_usd"] == pytest.approx(by_hand)
    assert row["estimated_n"] == runs.height


@pytest.mark.slow
@pytest.mark.parametrize(
    ("period", "labels"),
    [
        ("day", ["2024-12-29", "2024-12-30", "2025-01-02"]),
        ("week", ["2024-W52", "2025-W01"]),
        ("month", ["2024-12", "2025-01"]),
    ],
)
def test_costs_by_period_stand_in_the_order_of_time(period: str, labels: list[str]) -> None:
    """A run counts on the day of its end in UTC; the sums are those of all runs together."""
    ends = ["2025-01-02 00:00", "2024-12-29 23:59", "2024-12-30 00:00", "2024-12-29 12:00"]
    rows = [
        {"entity_id": end, "raw_status": "completed", "cost_usd": usd, "model": f"m{usd}",
         "started_at": at, "ended_at": at}
        for end, usd in zip(ends, (1.0, 2.0, 4.0, 8.0), strict=True)
        for at in [datetime.fromisoformat(f"{end}+00:00")]
    ]  # fmt: skip
    found = sa.failures.costs(facts(rows), by=period)
    assert found[period].to_list() == labels
    assert found["reported_usd"].sum() == 15
    by_both = sa.failures.costs(facts(rows), by=(period, "model"))
    assert by_both[period].is_sorted()
    assert by_both.filter(pl.col(period) == labels[0])["reported_usd"].is_sorted(descending=True)


def test_days_of_costs_are_those_of_a_zone() -> None:
    rows = [
        {"entity_id": end, "raw_status": "completed", "cost_usd": usd, "started_at": at,
         "ended_at": at}
        for end, usd in (("2024-12-29 22:59", 1.0), ("2024-12-29 23:01", 2.0))
        for at in [datetime.fromisoformat(f"{end}+00:00")]
    ]  # fmt: skip
    here = {"by": "day", "tz": "Europe/Berlin"}
    days = sa.failures.costs(facts(rows), **here).select("day", "total_usd")
    assert days.rows() == [("2024-12-29", 1.0), ("2024-12-30", 2.0)]
    monday = sa.failures.costs(facts(rows), window="2025-W01", **here)
    assert monday["day"].to_list() == ["2024-12-30"]


def test_what_somebody_stopped_is_not_lost_to_failures() -> None:
    rows = [
        {"entity_id": end, "raw_status": end, "cost_usd": usd, "started_at": AT, "ended_at": AT}
        for end, usd in (("failed", 2.0), ("timed_out", 0.5), ("aborted", 1.0), ("completed", 4.0))
    ]
    [row] = sa.failures.costs(facts(rows), by=()).to_dicts()
    assert (row["reported_usd"], row["reported_lost_usd"]) == (7.5, 2.5)


def test_first_passes_hours_and_retries_are_those_of_the_runs() -> None:
    """One is known to be the first attempt at its play, one the second, of one it is unknown."""
    hour = timedelta(hours=1)
    rows: list[dict[str, object]] = [
        {"entity_id": name, "session_id": name, "raw_status": "completed", "cost_usd": usd,
         "started_at": AT, "ended_at": AT + hour, "model": model}
        for name, usd, model in (("a", 1.0, "m"), ("b", 2.0, "m"), ("c", 4.0, None))
    ]  # fmt: skip
    rows.append(
        {"entity_id": "p", "entity_type": "play", "session_id": "c", "raw_status": "merged",
         "attempt": 2, "started_at": AT, "ended_at": AT + hour}
    )  # fmt: skip
    rows.append({**rows[-1], "entity_id": "q", "session_id": "a", "attempt": 1})
    snap = facts(rows)
    shown = ("n_completed", "n_first_pass", "n_first_pass_of", "run_s", "retries_usd")
    # "b" does not say which attempt it was.
    assert sa.failures.costs(snap, by=()).select(shown).rows() == [(3, 1, 2, 3 * 3600.0, 4.0)]
    by_model = sa.failures.costs(snap, by="model").select("model", *shown).rows()
    assert by_model == [(None, 1, 0, 1, 3600.0, 4.0), ("m", 2, 1, 1, 7200.0, 0.0)]
    [first] = sa.failures.costs(facts(rows[1:2]), by=()).select(shown).rows()
    assert first == (1, None, 0, 3600.0, None)
    failed = {**rows[1], "raw_status": "failed"}
    [none] = sa.failures.costs(facts([failed]), by=()).select(shown).rows()
    assert none == (0, 0, 0, 3600.0, None)
    assert sa.failures.costs(facts([]), by=()).select(shown).rows() == [(0, 0, 0, None, 0.0)]


def test_a_prompt_is_repeated_only_after_it_failed_the_last_time() -> None:
    """A failure is made up for by the first success after it, not repeated for ever."""
    ends = ("failed", "cancelled", "completed", "completed", "timed_out", "failed", "completed")
    hours = [timedelta(hours=n) for n in range(len(ends))]
    rows: list[dict[str, object]] = [
        {"entity_id": f"n{n}", "raw_status": end, "cost_usd": 1.0, "created_at": AT + at,
         "started_at": None if n == 3 else AT + at, "ended_at": AT + at + timedelta(minutes=59)}
        for n, (end, at) in enumerate(zip(ends, hours, strict=True))
    ]  # fmt: skip
    # One in another directory, and one that began before the failure ended.
    rows += [
        rows[6] | {"entity_id": "there", "directory": "/there"},
        rows[0] | {"entity_id": "too early", "started_at": AT + timedelta(minutes=58)},
        rows[2] | {"entity_id": "no end", "ended_at": None, "raw_status": "failed"},
    ]
    said = [
        {**WHOSE, "entity_id": row["entity_id"], "at": AT, "seq": 1, "kind": "message",
         "role": "user", "body": "Triage the new issues"}
        for row in rows
    ]  # fmt: skip
    snap = facts(list(reversed(rows)), events=said)
    everything = rows_of(snap)
    found = everything.select("entity_id", again=is_retry(everything, everything, snap.events))
    assert sorted(found.filter("again")["entity_id"]) == ["n1", "n2", "n5", "n6", "no end"]
    assert found["again"].null_count() == 0


@pytest.mark.parametrize(("writer", "hours"), [("executor", 9.0), ("observer", 1.0)])
def test_work_whose_end_a_sweep_wrote_ends_at_its_last_message(writer: str, hours: float) -> None:
    row = {"entity_id": "s", "raw_status": "failed", "end_written_by": writer}
    row |= {"started_at": AT, "last_message_at": AT + timedelta(hours=1)}
    row |= {"ended_at": AT + timedelta(hours=9)}
    snap = facts([row])
    assert sa.failures.costs(snap, by=())["run_s"].to_list() == [3600.0 * hours]
    assert sa.failures.members(snap)["run_s"].to_list() == [3600.0 * hours]


def test_a_wait_for_the_next_prompt_is_no_time_of_work() -> None:
    """Two turns of a minute, an hour apart; where no turn has a time, the whole span."""
    minute = timedelta(minutes=1)
    session = {"entity_id": "s", "session_id": "s", "raw_status": "failed", "cost_usd": 1.0,
               "started_at": AT, "ended_at": AT + 62 * minute}  # fmt: skip
    turns: list[dict[str, object]] = [
        {**session, "entity_id": name, "entity_type": "turn", "started_at": at,
         "ended_at": at + minute, "raw_status": status, "cost_usd": None}
        for name, at, status in (("t1", AT, "completed"), ("t2", AT + 61 * minute, "failed"))
    ]  # fmt: skip

    def times(rows: list[dict[str, object]]) -> tuple[float, float]:
        snap = facts(rows)
        [lost] = sa.failures.members(snap).filter(entity_type="session")["run_s"]
        [hours] = sa.failures.costs(snap, by=())["run_s"]
        return lost, hours

    assert times([session, *turns]) == (120.0, 120.0)
    without_end = {**turns[1], "ended_at": None}
    assert times([session, turns[0], without_end]) == (60.0, 60.0)
    alive = {**without_end, "last_activity_at": AT + 61 * minute + timedelta(seconds=20)}
    assert times([session, turns[0], alive]) == (80.0, 80.0)
    assert times([session, without_end]) == (3720.0, 3720.0)
    backwards = {**turns[1], "ended_at": AT, "last_activity_at": AT}
    assert times([session, backwards]) == (3720.0, 3720.0)
    # While it is open again, the turns that ended have taken their time.
    reopened = facts([{**session, "ended_at": None, "raw_status": "running"}, turns[0], alive])
    assert sa.failures.costs(reopened, by=())["run_s"].to_list() == [80.0]
    assert times([session]) == (3720.0, 3720.0)
    # Turns that overlap do not take longer than their session.
    assert times([session, *({**turn, "ended_at": AT + 62 * minute} for turn in turns)]) == (
        3720.0,
        3720.0,
    )
    elsewhere = [{**turn, "source": "another"} for turn in turns]
    assert times([session, *elsewhere]) == (3720.0, 3720.0)


@pytest.mark.slow
@pytest.mark.parametrize("by", [(), ("system",), ("system", "kind"), "week"])
def test_first_passes_and_retries_are_parts_of_all(snap: sa.Snapshot, by: object) -> None:
    found = sa.failures.costs(snap, by=by)  # type: ignore[arg-type]
    assert (found["n_first_pass"] <= found["n_completed"]).all()
    assert (found["retries_usd"] <= found["total_usd"] + 1e-6).all()
    sums = found.select(pl.col("n_first_pass", "run_s", "retries_usd").sum()).row(0)
    [whole] = sa.failures.costs(snap, by=()).select("n_first_pass", "run_s", "retries_usd").rows()
    assert sums == pytest.approx([part or 0.0 for part in whole])


@pytest.mark.slow
def test_each_model_of_a_run_is_priced_by_itself(tmp_path: Path) -> None:
    """Claude Code: Sonnet then Haiku, with 300 of 1,000 tokens in the cache for an hour."""
    sonnet, haiku = "claude-sonnet-4-6", "claude-haiku-4-5"
    told = [
        _answer("a", sonnet, 2_000, written=1_000, for_an_hour=300, read=5_000, output=400),
        _answer("b", haiku, 8_000, written=0, for_an_hour=0, read=0, output=100),
    ]
    path = tmp_path / "4f0c1c50-0000-4000-8000-000000000001.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [_PROMPT, *told]))
    snap = sa.read(path, progress=False)
    of_sonnet = (2_000 * 3 + 700 * 3.75 + 300 * 6 + 5_000 * 0.3 + 400 * 15) / 1e6
    of_haiku = (8_000 * 1 + 100 * 5) / 1e6
    [total] = sa.failures.costs(snap, by=()).to_dicts()
    assert total["estimated_usd"] == pytest.approx(of_sonnet + of_haiku)
    rows = {row["model"]: row for row in sa.failures.costs(snap, by="model").to_dicts()}
    assert {model: row["estimated_usd"] for model, row in rows.items()} == {
        sonnet: pytest.approx(of_sonnet),
        haiku: pytest.approx(of_haiku),
    }
    assert [row["n_runs"] for row in rows.values()] == [1, 1]
    path.write_text(path.read_text().replace(haiku, "unheard-of"))
    partly = sa.read(path, progress=False)
    assert sa.failures.costs(partly, by=())["estimated_usd"].to_list() == [None]
    assert sa.failures.costs(partly, by="model")["estimated_n"].sum() == 1


_AT = "2026-05-20T10:00:{:02}.000Z"
_RECORD = {"sessionId": "4f0c1c50-0000-4000-8000-000000000001", "cwd": "/x", "version": "2.1.0"}
_PROMPT = {
    **_RECORD,
    "type": "user",
    "uuid": "p",
    "timestamp": _AT.format(0),
    "message": {"role": "user", "content": "go"},
}


def _answer(
    name: str, model: str, fresh: int, *, written: int, for_an_hour: int, read: int, output: int
) -> dict[str, object]:
    usage = {
        "input_tokens": fresh,
        "cache_creation_input_tokens": written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": written - for_an_hour,
            "ephemeral_1h_input_tokens": for_an_hour,
        },
        "cache_read_input_tokens": read,
        "output_tokens": output,
    }
    content = [{"type": "text", "text": "done"}]
    message = {"id": name, "role": "assistant", "model": model, "content": content}
    return {
        **_RECORD,
        "type": "assistant",
        "uuid": name,
        "requestId": name,
        "timestamp": _AT.format(1 + ord(name) - ord("a")),
        "message": {**message, "stop_reason": "end_turn", "usage": usage},
    }


def test_costs_are_those_of_the_day_on_which_they_were_spent(tmp_path: Path) -> None:
    """A session of two nights: $0.003 and $0.015 before midnight in UTC, $0.001 after it."""
    sonnet, haiku = "claude-sonnet-4-6", "claude-haiku-4-5"
    none = {"written": 0, "for_an_hour": 0, "read": 0}
    lines = [
        {**_PROMPT, "timestamp": "2026-05-18T23:00:00.000Z"},
        {**_answer("a", sonnet, 1_000, **none, output=0), "timestamp": "2026-05-18T23:10:00.000Z"},
        {**_answer("b", sonnet, 0, **none, output=1_000), "timestamp": "2026-05-18T23:50:00.000Z"},
        {**_answer("c", haiku, 1_000, **none, output=0), "timestamp": "2026-05-19T00:10:00.000Z"},
    ]
    path = tmp_path / "4f0c1c50-0000-4000-8000-000000000001.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    snap = sa.read(path, progress=False)
    shown = ("day", "n_runs", "estimated_n", "total_usd")
    days = sa.failures.costs(snap, by="day")
    assert days.select(shown).rows() == [("2026-05-18", 0, 0, 0.018), ("2026-05-19", 1, 1, 0.001)]
    assert days["total_per_completed_usd"].to_list() == [None, 0.001]
    both = sa.failures.costs(snap, by=("day", "model")).select("model", *shown).rows()
    assert both == [
        (sonnet, "2026-05-18", 0, 0, 0.018),
        (haiku, "2026-05-19", 1, 1, 0.001),
        (sonnet, "2026-05-19", 1, 1, 0.0),
    ]
    here = sa.failures.costs(snap, by="day", tz="America/New_York").select(shown)
    assert here.rows() == [("2026-05-18", 1, 1, 0.019)]


@pytest.mark.parametrize(
    ("own_usd", "model", "share"),
    [
        pytest.param([0.5, 1.5], "gpt-5", 0.25, id="as its parts report"),
        pytest.param([None, 1.5], "gpt-5", 9 / 17, id="as estimated, where not all of them do"),
        pytest.param([None, None], "unheard-of", 0.9, id="by tokens, without prices"),
    ],
)
def test_a_reported_cost_is_shared_by_the_days_of_its_parts(
    own_usd: list[float | None], model: str, share: float
) -> None:
    """A run of $4 read 7,200 tokens ($0.009), then wrote 800 ($0.008), nobody knows when."""
    run = {"entity_id": "1", "raw_status": "failed", "cost_usd": 4.0, "model": model}
    runs = rows_of(facts([{**run, "ended_at": AT}])).with_columns(day=pl.lit("19"))
    tokens = pl.DataFrame({name: [0, 0] for name in COUNTS}).with_columns(
        n_input_tokens=pl.Series([7_200, 0]), n_output_tokens=pl.Series([0, 800])
    )
    used = pl.concat([runs.select(*ENTITY_KEY, "model")] * 2).hstack(tokens)
    used = used.with_columns(
        day=pl.Series(["18", None]),
        cost_usd=pl.Series(own_usd, dtype=pl.Float64),
        is_cost_recorded=pl.lit(None, pl.Boolean),
    )
    columns = ("day", "n_runs", "reported_usd", "reported_lost_usd", "total_usd")
    days = count_costs(runs, used, sa.failures.prices(), ("day",)).select(columns)
    first, last = (pytest.approx(4 * part, abs=1e-6) for part in (share, 1 - share))
    assert days.rows() == [("18", 0, first, first, first), ("19", 1, last, last, last)]


def test_what_a_run_reported_stands_once_by_model() -> None:
    """Two models of one run: its reported cost is with the last, as is every cost by hand."""
    rows = [
        {
            "entity_id": "1",
            "raw_status": "completed",
            "project": "p",
            "cost_usd": 3.0,
            "model": "b",
        },
        {
            "entity_id": "2",
            "raw_status": "merged",
            **MERGED,
            "project": "p",
            "cost_usd": 1.0,
            "model": "b",
        },
        {"entity_id": "3", "raw_status": "failed", "project": "q", "cost_usd": 0.5, "model": "a"},
    ]
    moments = {"started_at": AT, "ended_at": AT}
    snap = facts([{**row, **moments} for row in rows])
    runs = rows_of(snap)
    key = ("source", "system", "entity_type", "entity_id")
    used = runs.filter(entity_id="1").select(*key, model=pl.lit(["a", "b"])).explode("model")
    used = used.with_columns(pl.lit(10, pl.Int64).alias(name) for name in COUNTS)
    table = sa.failures.prices()
    by_model = {row["model"]: row for row in count_costs(runs, used, table, ("model",)).to_dicts()}
    assert {model: row["reported_usd"] for model, row in by_model.items()} == {"a": 0.5, "b": 4.0}
    assert {model: row["n_runs"] for model, row in by_model.items()} == {"a": 2, "b": 2}
    [total] = count_costs(runs, used, table).to_dicts()
    assert (total["n_runs"], total["n_completed"], total["n_merged"]) == (3, 2, 1)
    assert total["reported_usd"] == 4.5
    assert total["reported_per_completed_usd"] == 2.25
    assert total["reported_per_merged_usd"] == 4.5
    assert total["reported_lost_usd"] == 0.5
    by_project = count_costs(runs, used, table, ("project",)).to_dicts()
    projects = {row["project"]: row for row in by_project}
    assert projects["p"]["reported_per_merged_usd"] == 4.0
    assert (projects["q"]["reported_lost_usd"], projects["p"]["reported_lost_usd"]) == (0.5, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample", "n_input", "n_output"),
    [
        # Read anew, from a cache and into one; written and thought: as steps and events tell.
        pytest.param("opencode", 5160, 344, id="opencode"),
        pytest.param("codex", 282_000, 1_314, id="codex"),
        pytest.param("claude_code", 170_468, 9_174, id="claude_code"),
    ],
)
def test_tokens_by_model_add_up_to_what_the_samples_have(
    sample: str, n_input: int, n_output: int
) -> None:
    snap = sa.read(ROOT / "data" / "samples" / sample, progress=False)
    told = used_tokens(snap)
    for used in (told, snap.entities.filter(entity_type="session")):
        assert (used["n_input_tokens"].sum(), used["n_output_tokens"].sum()) == (n_input, n_output)


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
        (OWN.replace("output = 10", "output = 10\nsource = 1"), "price 1: source cannot be 1"),
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


def test_the_page_says_how_old_the_prices_are(snap: sa.Snapshot, demo: sa.Snapshot) -> None:
    told = summarize_costs(material_of(snap))
    assert told["finding"] == (
        "None of 15 runs reported what it cost; from tokens, by list prices of 2026-11-18 "
        "(182 days after these runs), 15 are estimated at $0.18."
    )
    assert told["projects"]["rows"][0]["shown_estimated_usd"] == "$0.18"
    told = summarize_costs(material_of(demo))
    assert told["total"]["reported_usd"] == 33.605
    assert [row["system"] for row in told["models"]["rows"]] == ["lionagi"] * 4
    free = facts([{"entity_id": "1", "raw_status": "completed", "ended_at": AT}], as_of=AT)
    unknown = summarize_costs(material_of(free))["models"]
    assert (unknown["rows"], unknown["n_unknown"]) == ([], 1)


def test_costs_that_their_own_system_doubts_are_said(
    demo: sa.Snapshot, snap: sa.Snapshot, capsys: pytest.CaptureFixture[str]
) -> None:
    """All 45 of codex in the sample of lionagi; the costs of other sources have no such note."""
    words = "of all that was read: costs of the provider codex, which lionagi itself hides as "
    assert summarize_costs(material_of(demo))["doubts"] == f"in doubt, {words}unreliable (45)"
    assert summarize_costs(material_of(snap))["doubts"] == ""
    assert cli.run(["costs", str(ROOT / "data" / "samples" / "state.db")]) == 0
    assert words in capsys.readouterr().err


@pytest.mark.slow
def test_the_chapter_takes_prices_of_yours_and_says_how_old_they_are(
    snap: sa.Snapshot, own: Path, demo: sa.Snapshot
) -> None:
    asked = {"sections": ["costs"], "window": "2026-W21"}
    page = sa.report(snap, **asked, prices=own).as_html()
    assert "list prices of 2026-12-01 (195 days after these runs)" in page
    assert "Costs by model" in page
    assert "Costs by project" in page
    assert "$0.26" in page
    reported = sa.report(demo, sections=["costs"]).as_html()
    assert "Costs by model" in reported
    assert "Estimated" not in reported


@pytest.mark.slow
def test_the_command_prints_costs_by_prices_of_yours(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = str(ROOT / "data" / "samples" / "codex")
    out = tmp_path / "costs.csv"
    asked = ["costs", sample, "--by", "project", "--prices", str(own), "-o", str(out)]
    assert cli.run(asked) == 0
    assert "estimates use list prices of 2026-12-01" in capsys.readouterr().err
    [row] = [row for row in pl.read_csv(out).to_dicts() if row["estimated_n"] == 15]
    [whole] = sa.failures.costs(sa.read(sample, progress=False), by=(), prices=own).to_dicts()
    assert row["estimated_usd"] == whole["estimated_usd"]
    teams = tmp_path / "teams.csv"
    teams.write_text("project,owner\n/repo/shop,ann\n")
    by_owner = ["--by", "teams.owner", "--table", f"teams={teams}", "--format", "json"]
    assert cli.run(["costs", sample, *by_owner]) == 0
    assert [one["teams.owner"] for one in json.loads(capsys.readouterr().out)] == ["ann"]
    assert cli.run([*asked[:-1], str(own)]) != 0
    assert own.read_text() == OWN
