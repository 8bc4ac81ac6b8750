"""Session records of Agent Orchestrator, read as it reads them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.systems.agent_orchestrator import mapping
from stateanalytics.systems.agent_orchestrator.columns import _any_ms, iso_ms, moment
from stateanalytics.systems.agent_orchestrator.mapping import LEGACY_STATUSES, legacy_status
from stateanalytics.systems.agent_orchestrator.sessions import (
    LIFECYCLE_COLUMNS,
    RECORD_KEYS,
    parse_lifecycle,
    pull_request_number,
    read_payloads,
    refresh_status,
)
from tests.examples import examples

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPAWNED = "2026-04-01T08:30:00.000Z"


def records(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict.fromkeys(RECORD_KEYS, pl.String))


def parsed(*rows: dict) -> pl.DataFrame:
    return parse_lifecycle(read_payloads(records(*rows)), now=NOW)


def payload(**session: object) -> str:
    return json.dumps({"version": 2, "session": session})


def test_no_records_give_no_rows_with_all_columns() -> None:
    none = parsed()
    assert none.height == 0
    assert {**none.schema}.items() >= dict(LIFECYCLE_COLUMNS).items()


def test_a_record_of_nothing_is_a_session_that_was_asked_for() -> None:
    row = parsed({}).row(0, named=True)
    states = [row[name] for name in ("session_state", "pr_state", "runtime_state")]
    assert states == ["not_started", "none", "unknown"]
    assert (row["last_transition_at"], row["is_synthesized"]) == (NOW, True)
    assert row["reject_reason"] is None


def test_one_unknown_word_is_kept_and_said() -> None:
    stored = {"status": "stuck", "createdAt": SPAWNED}
    stored |= {"lifecycle": payload(state="idle", reason="migrated_from_archive")}
    row = parsed(stored).row(0, named=True)
    assert (row["session_state"], row["session_reason"]) == ("idle", "migrated_from_archive")
    assert row["reject_reason"] == "session.reason has the unknown word 'migrated_from_archive'"


def test_a_field_of_a_wrong_type_counts_as_absent() -> None:
    stored = {"lifecycle": payload(state="idle", reason="new_word", startedAt=5)}
    row = parsed(stored).row(0, named=True)
    assert (row["session_state"], row["session_reason"]) == ("idle", "new_word")
    assert (row["started_at"], row["is_synthesized"]) == (None, False)
    assert row["reject_reason"] is not None


def test_the_status_is_first_replaced_by_that_of_the_payload() -> None:
    # Of a payload without a pull request, that part is made up from the status.
    stored = {"status": "merged", "createdAt": SPAWNED, "lifecycle": payload(state="stuck")}
    read = read_payloads(records(stored))
    both = [parse_lifecycle(rows, now=NOW) for rows in (read, refresh_status(read))]
    states = [one.select("session_state", "pr_state").row(0) for one in both]
    assert states == [("stuck", "merged"), ("stuck", "none")]


def test_refreshing_leaves_a_record_without_payload_alone() -> None:
    bare = records({"status": "ci_failed"}, {"status": None}, {"lifecycle": "no json"})
    assert refresh_status(read_payloads(bare))["status"].to_list() == ["ci_failed", None, None]


def test_other_columns_and_the_order_of_rows_are_kept() -> None:
    stored = records({"status": "done"}, {"status": "idle"}).with_columns(mine=pl.Series([1, 2]))
    read = parse_lifecycle(read_payloads(stored), now=NOW)
    assert read.select("mine", "session_state").rows() == [(1, "done"), (2, "idle")]


@given(st.lists(st.sampled_from([*LEGACY_STATUSES, "starting", "DONE", "", None]), max_size=12))
@examples(30)
def test_each_record_is_read_by_itself(statuses: list[str | None]) -> None:
    rows = [{"status": status, "createdAt": SPAWNED} for status in statuses]
    together = parsed(*rows)
    alone = [parsed(row) for row in rows]
    assert together.equals(pl.concat(alone) if alone else together)


VOCABULARIES = [mapping.words_of(axis) for axis in mapping.AXES]


@given(st.tuples(*map(st.sampled_from, VOCABULARIES)))
@examples(40)
def test_every_known_word_is_accepted_with_every_other(words: tuple[str, ...]) -> None:
    axes = zip(("session", "pr", "runtime"), zip(words[::2], words[1::2], strict=True), strict=True)
    stored = {axis: {"state": state, "reason": reason} for axis, (state, reason) in axes}
    text = json.dumps({"version": 2, **stored})
    row = parsed({"lifecycle": text}).row(0, named=True)
    names = ("session_state", "session_reason", "pr_state", "pr_reason")
    assert tuple(row[name] for name in (*names, "runtime_state", "runtime_reason")) == words
    assert row["reject_reason"] is None


@pytest.mark.slow
@given(st.text(max_size=40))
@examples(60)
def test_no_payload_stops_the_reading(text: str) -> None:
    stored = {"lifecycle": text, "runtimeHandle": text, "pr": text, "createdAt": text}
    assert parsed(stored).height == 1


def test_a_state_that_is_no_word_has_no_status() -> None:
    axes = ("session_state", "session_reason", "pr_state", "pr_reason")
    frame = pl.DataFrame([["paused", None, "none", None], [None] * 4], schema=axes, orient="row")
    assert frame.select(legacy_status()).to_series().to_list() == [None, None]


@pytest.mark.parametrize(
    ("url", "number"),
    [
        ("https://github.com/a/b/pull/8/", 8),
        ("https://github.com//a//b//pull//8", 8),
        ("https://github.com/a/b/pull/8x", None),
        ("https://github.com/x/a/b/pull/7/pull/9", 7),
        *((none, None) for none in ("https://example.com/reviews/99/", "", None)),
    ],
)
def test_a_url_names_a_pull_request(url: str | None, number: int | None) -> None:
    frame = pl.DataFrame({"pr_url": [url]}, schema={"pr_url": pl.String})
    assert frame.select(pull_request_number(pl.col("pr_url"))).item() == number


def flat(path: Path) -> dict:
    record = json.loads(path.read_text(encoding="utf-8")).items()
    texts = {key: one if isinstance(one, str) else json.dumps(one) for key, one in record}
    known = {key: text for key, text in texts.items() if key in RECORD_KEYS}
    return known | {"sessionId": path.stem}


def test_real_records_are_accepted_and_give_the_status_their_story_ends_with(shared: Path) -> None:
    folder = shared / "samples" / "agent-orchestrator" / "v3_json_final_ts"
    paths = sorted(folder.glob("projects/*/sessions/*.json"))
    read = parsed(*map(flat, paths))
    assert read["reject_reason"].null_count() == read.height
    status = dict(read.select("sessionId", status=legacy_status()).rows())
    # The flat status of app-1 still says merged.
    told = {1: "cleanup", 2: "working", 4: "stuck", 10: "idle", 15: "review_pending"}
    assert {number: status[f"app-{number}"] for number in told} == told


# --- stored times, numbers and JSON ----------------------------------------------------

ISO = [
    pytest.param("2026-04-01T08:30:00.000Z", 1775032200000, id="as JavaScript writes it"),
    pytest.param("2026-04-01", 1775001600000, id="a day"),
    pytest.param("2026-04-01 08:30", 1775032200000, id="a space, no seconds, no zone"),
    pytest.param("2026-04-01T08:30:00.123456789Z", 1775032200123, id="nanoseconds"),
    pytest.param("2026-04-01t08:30:00+0530", 1775012400000, id="an offset without a colon"),
    pytest.param("2026-04-01T08:30:00-05:30", 1775052000000, id="west"),
    pytest.param("1775032200", 1775032200000, id="seconds since the epoch"),
    pytest.param("1775032200000.5", 1775032200000, id="milliseconds since the epoch"),
    *(("2026-04-31", None), ("2026-04-01T08:30:60Z", None), ("2026-04-01T25:30Z", None)),
    *(("2026", None), ("April 1, 2026", None), ("2026-04-01T08:30:00Z ", None)),
    *(("", None), (None, None)),
]


@pytest.mark.parametrize(("text", "ms"), ISO)
def test_the_product_reads_iso_dates_and_numbers_only(text: str | None, ms: int | None) -> None:
    frame = pl.DataFrame({"at": [text]}, schema={"at": pl.String})
    assert frame.select(iso_ms(pl.col("at"))).item() == ms


def test_a_moment_is_worked_out_once_from_its_text() -> None:
    asked = []

    def read(texts: pl.Series) -> pl.Series:
        asked.append(texts.len())
        return texts.cast(pl.Int64)

    ms = pl.col("at").map_batches(read, return_dtype=pl.Int64, is_elementwise=True)
    found = pl.DataFrame({"at": ["1500", "9" * 18]}).select(moment(ms)).to_series()
    assert found.to_list() == [datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC), None]
    assert asked == [2]


NEARLY_USUAL = st.from_regex(
    r"20[0-9]{2}-[0-3][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9]\.[0-9]{2,4}Z?",
    fullmatch=True,
)


@given(st.lists(st.none() | NEARLY_USUAL, max_size=8))
@examples(60)
def test_times_as_usual_are_read_as_any_other_is(texts: list[str | None]) -> None:
    frame = pl.DataFrame({"at": texts}, schema={"at": pl.String})
    read, slowly = (frame.select(reader(pl.col("at"))) for reader in (iso_ms, _any_ms))
    assert read.rows() == slowly.rows()
