"""Session records of Agent Orchestrator, read as it reads them."""

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import MissingColumnsError
from stateanalytics.systems.agent_orchestrator.columns import (
    NotJsonError,
    _any_ms,
    iso_ms,
    leading_integer,
    moment,
    read_json,
    trim,
    write_json,
)
from stateanalytics.systems.agent_orchestrator.lifecycle import (
    LIFECYCLE_COLUMNS,
    RECORD_KEYS,
    parse_lifecycle,
    read_payloads,
    refresh_status,
    synthesize_lifecycle,
)
from stateanalytics.systems.agent_orchestrator.records import pull_request_number
from stateanalytics.systems.agent_orchestrator.statuses import (
    LEGACY_STATUSES,
    PR_REASONS,
    PR_STATES,
    RUNTIME_REASONS,
    RUNTIME_STATES,
    SESSION_REASONS,
    SESSION_STATES,
    derive_legacy_status,
)
from tests.examples import examples

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SPAWNED = "2026-04-01T08:30:00.000Z"


def records(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=dict.fromkeys(RECORD_KEYS, pl.String))


def payload(**session: object) -> str:
    return json.dumps({"version": 2, "session": session})


def test_no_records_give_no_rows_with_all_columns() -> None:
    parsed = parse_lifecycle(records(), now=NOW)
    assert parsed.height == 0
    assert {**parsed.schema}.items() >= dict(LIFECYCLE_COLUMNS).items()


@pytest.mark.parametrize(
    ("stored", "written"),
    [
        pytest.param(
            '{"id":"a","runtimeName":"tmux","data":{"n":42,"is":true,"at":null}}',
            '{"id":"a","runtimeName":"tmux","data":{"n":42,"is":true,"at":null}}',
            id="as it is written",
        ),
        pytest.param(
            '{"id":"a","runtimeName":"tmux","data":{"n":42.0}}',
            '{"id":"a","runtimeName":"tmux","data":{"n":42}}',
            id="a whole number with a point",
        ),
        pytest.param(
            '{"id": "a", "runtimeName": "\\u0061"}', '{"id":"a","runtimeName":"a"}', id="loosely"
        ),
        pytest.param("null", None, id="null"),
        pytest.param("{", None, id="no JSON"),
        pytest.param(None, None, id="none"),
    ],
)
def test_a_handle_is_as_javascript_writes_it(stored: str | None, written: str | None) -> None:
    made_up = synthesize_lifecycle(records({"runtimeHandle": stored}, {}), now=NOW)
    assert made_up["runtime_handle"].to_list() == [written, None]


def test_payloads_that_were_read_before_are_read_no_other_way() -> None:
    stored = records(
        {"lifecycle": payload(state="stuck", reason="probe_failure")},
        {"statePayload": payload(state="done"), "stateVersion": "2"},
        {"lifecycle": ""},
    )
    for rows in (stored, stored[:1]):
        read = read_payloads(rows["lifecycle"])
        refreshed = refresh_status(rows, read)
        again = parse_lifecycle(refreshed, now=NOW, read=read)
        assert refreshed.equals(refresh_status(rows))
        assert again.equals(parse_lifecycle(refreshed, now=NOW))


def test_a_record_of_nothing_is_a_session_that_was_asked_for() -> None:
    row = parse_lifecycle(records({}), now=NOW).row(0, named=True)
    assert (row["session_state"], row["pr_state"], row["runtime_state"]) == (
        "not_started",
        "none",
        "unknown",
    )
    assert row["last_transition_at"] == NOW
    assert row["is_synthesized"] is True
    assert row["reject_reason"] is None


def test_one_unknown_word_is_kept_and_said() -> None:
    stored = {"status": "stuck", "createdAt": SPAWNED}
    stored |= {"lifecycle": payload(state="idle", reason="migrated_from_archive")}
    row = parse_lifecycle(records(stored), now=NOW).row(0, named=True)
    assert (row["session_state"], row["session_reason"]) == ("idle", "migrated_from_archive")
    assert row["reject_reason"] == "session.reason has the unknown word 'migrated_from_archive'"


def test_a_field_of_a_wrong_type_counts_as_absent() -> None:
    stored = {"lifecycle": payload(state="idle", reason="new_word", startedAt=5)}
    row = parse_lifecycle(records(stored), now=NOW).row(0, named=True)
    assert (row["session_state"], row["session_reason"]) == ("idle", "new_word")
    assert row["started_at"] is None
    assert row["reject_reason"] is not None
    assert row["is_synthesized"] is False


def test_the_status_is_first_replaced_by_that_of_the_payload() -> None:
    # Of a payload without a pull request, that part is made up from the status.
    stored = {"status": "merged", "createdAt": SPAWNED, "lifecycle": payload(state="stuck")}
    states = [
        parse_lifecycle(rows, now=NOW).select("session_state", "pr_state").row(0)
        for rows in (records(stored), refresh_status(records(stored)))
    ]
    assert states == [("stuck", "merged"), ("stuck", "none")]


def test_refreshing_leaves_a_record_without_payload_alone() -> None:
    bare = records({"status": "ci_failed"}, {"status": None}, {"lifecycle": "no json"})
    assert refresh_status(bare)["status"].to_list() == ["ci_failed", None, None]


def test_other_columns_and_the_order_of_rows_are_kept() -> None:
    stored = records({"status": "done"}, {"status": "idle"}).with_columns(mine=pl.Series([1, 2]))
    read = parse_lifecycle(stored, now=NOW)
    assert read.select("mine", "session_state").rows() == [(1, "done"), (2, "idle")]


@given(st.lists(st.sampled_from([*LEGACY_STATUSES, "starting", "DONE", "", None]), max_size=12))
@examples(30)
def test_each_record_is_read_by_itself(statuses: list[str | None]) -> None:
    rows = [{"status": status, "createdAt": SPAWNED} for status in statuses]
    together = parse_lifecycle(records(*rows), now=NOW)
    alone = [parse_lifecycle(records(row), now=NOW) for row in rows]
    assert together.equals(pl.concat(alone) if alone else together)


VOCABULARIES = (
    SESSION_STATES,
    SESSION_REASONS,
    PR_STATES,
    PR_REASONS,
    RUNTIME_STATES,
    RUNTIME_REASONS,
)


@given(st.tuples(*map(st.sampled_from, VOCABULARIES)))
@examples(40)
def test_every_known_word_is_accepted_with_every_other(words: tuple[str, ...]) -> None:
    axes = zip(("session", "pr", "runtime"), zip(words[::2], words[1::2], strict=True), strict=True)
    stored = {axis: {"state": state, "reason": reason} for axis, (state, reason) in axes}
    text = json.dumps({"version": 2, **stored})
    row = parse_lifecycle(records({"lifecycle": text}), now=NOW).row(0, named=True)
    names = ("session_state", "session_reason", "pr_state", "pr_reason")
    assert tuple(row[name] for name in (*names, "runtime_state", "runtime_reason")) == words
    assert row["reject_reason"] is None


MOMENTS = st.sampled_from([None, "2026-04-02T10:00:00.000Z", "bogus", "", "null"])
TEXTS = st.one_of(st.none(), st.text(max_size=8))
HANDLES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "id": st.text(max_size=4),
            "runtimeName": st.sampled_from(["tmux", "process"]),
            "data": st.dictionaries(
                st.text(max_size=3), st.one_of(TEXTS, st.integers()), max_size=2
            ),
        }
    ),
)
PAYLOADS = st.fixed_dictionaries(
    {
        "version": st.just(2),
        "session": st.fixed_dictionaries(
            {
                "kind": st.sampled_from(["worker", "orchestrator", "cook"]),
                "state": st.sampled_from(SESSION_STATES),
                "reason": st.sampled_from(SESSION_REASONS),
                "startedAt": MOMENTS,
                "completedAt": MOMENTS,
                "terminatedAt": MOMENTS,
                "lastTransitionAt": MOMENTS,
            }
        ),
        "pr": st.fixed_dictionaries(
            {
                "state": st.sampled_from(PR_STATES),
                "reason": st.sampled_from(PR_REASONS),
                "number": st.one_of(st.none(), st.integers(-(10**16), 10**16)),
                "url": TEXTS,
                "lastObservedAt": MOMENTS,
            }
        ),
        "runtime": st.fixed_dictionaries(
            {
                "state": st.sampled_from(RUNTIME_STATES),
                "reason": st.sampled_from(RUNTIME_REASONS),
                "lastObservedAt": MOMENTS,
                "handle": HANDLES,
                "tmuxName": TEXTS,
            }
        ),
    }
)


@given(st.lists(PAYLOADS, max_size=4))
@examples(40)
def test_the_shortcut_for_usual_payloads_reads_the_same(payloads: list[dict]) -> None:
    # White space makes a payload unusual, and changes nothing else.
    compact = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in payloads]
    spaced = [json.dumps(one, ensure_ascii=True, indent=1) for one in payloads]
    usual, unusual = (
        parse_lifecycle(records(*({"lifecycle": text} for text in texts)), now=NOW)
        for texts in (compact, spaced)
    )
    assert usual.drop("lifecycle").equals(unusual.drop("lifecycle"))


@given(st.text(max_size=40))
@examples(60)
def test_no_payload_stops_the_reading(text: str) -> None:
    stored = records({"lifecycle": text, "runtimeHandle": text, "pr": text, "createdAt": text})
    assert parse_lifecycle(stored, now=NOW).height == 1


def test_legacy_status_needs_its_columns() -> None:
    with pytest.raises(MissingColumnsError, match=r"derive_legacy_status needs columns \['pr_re"):
        frame = pl.DataFrame({"session_state": ["idle"], "session_reason": [""], "pr_state": [""]})
        derive_legacy_status(frame)


def test_a_state_that_is_no_word_has_no_status() -> None:
    axes = ("session_state", "session_reason", "pr_state", "pr_reason")
    frame = pl.DataFrame([["paused", None, "none", None], [None] * 4], schema=axes, orient="row")
    assert derive_legacy_status(frame)["legacy_status"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("url", "number"),
    [
        pytest.param("https://github.com/a/b/pull/8/", 8, id="a slash at the end"),
        pytest.param("https://github.com//a//b//pull//8", 8, id="doubled slashes"),
        pytest.param("https://github.com/a/b/pull/8x", None, id="digits and more"),
        pytest.param("https://github.com/x/a/b/pull/7/pull/9", 7, id="the first of two"),
        pytest.param("https://example.com/reviews/99/", None, id="no marker, a slash at the end"),
        pytest.param("", None, id="empty"),
        pytest.param(None, None, id="null"),
    ],
)
def test_a_url_names_a_pull_request(url: str | None, number: int | None) -> None:
    frame = pl.DataFrame({"pr_url": [url]}, schema={"pr_url": pl.String})
    assert frame.select(pull_request_number(pl.col("pr_url"))).item() == number


def flat(path: Path) -> dict:
    record = json.loads(path.read_text(encoding="utf-8"))
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in record.items()
        if key in RECORD_KEYS
    } | {"sessionId": path.stem}


def test_real_records_are_accepted_and_give_the_status_their_story_ends_with(shared: Path) -> None:
    folder = shared / "samples" / "agent-orchestrator" / "v3_json_final_ts"
    paths = sorted(folder.glob("projects/*/sessions/*.json"))
    read = parse_lifecycle(records(*map(flat, paths)), now=NOW)
    assert read["reject_reason"].null_count() == read.height
    status = dict(derive_legacy_status(read).select("sessionId", "legacy_status").rows())
    assert status["app-1"] == "cleanup"  # its flat status still says merged
    assert status["app-2"] == "working"
    assert status["app-4"] == "stuck"
    assert status["app-10"] == "idle"
    assert status["app-15"] == "review_pending"


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
    pytest.param("2026-04-31", None, id="no such day"),
    pytest.param("2026-04-01T08:30:60Z", None, id="a leap second"),
    pytest.param("2026-04-01T25:30Z", None, id="no such hour"),
    pytest.param("2026", None, id="a year"),
    pytest.param("April 1, 2026", None, id="words"),
    pytest.param("2026-04-01T08:30:00Z ", None, id="trailing space"),
    pytest.param("", None, id="nothing"),
    pytest.param(None, None, id="null"),
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


def test_trimming_takes_what_javascript_calls_white_space() -> None:
    texts = pl.DataFrame({"text": ["\ufeff a\u00a0", "\u0085a", "a\u2028"]})
    assert texts.select(trim(pl.col("text")))["text"].to_list() == ["a", "\u0085a", "a"]


def test_a_number_is_what_a_text_begins_with() -> None:
    texts = pl.DataFrame({"text": ["+7x", "\u00a08", "١", None]})
    numbers = texts.select(leading_integer(pl.col("text")))["text"].to_list()
    assert numbers == [7.0, 8.0, None, None]


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{'a':1}", "\ufeff{}", "", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(NotJsonError):
        read_json(text)


def test_json_is_written_as_javascript_writes_it() -> None:
    assert write_json(read_json('{"a":[1.0,1.5,1e400,-0.0,true,null],"b":"é\\n"}')) == (
        '{"a":[1,1.5,null,0,true,null],"b":"é\\n"}'
    )
