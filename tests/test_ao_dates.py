"""Moments as JavaScript reads and writes them."""

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.systems.agent_orchestrator.stored_values import (
    NotJsonError,
    _any_ms,
    iso_ms,
    leading_integer,
    moment,
    read_json,
    trim,
    write_json,
)
from tests.conformance.agent_orchestrator.javascript_dates import (
    date_ms,
    iso_text,
    parse_dates,
)
from tests.examples import examples

# What V8 (Node 20, TZ=UTC) says: new Date(Date.parse(text)).toISOString(), None for NaN.
V8 = [
    ("2026-04-01T08:30:00.000Z", "2026-04-01T08:30:00.000Z"),
    ("2026-04-01 08:30", "2026-04-01T08:30:00.000Z"),
    ("Wed, 01 Apr 2026 08:30:00 GMT", "2026-04-01T08:30:00.000Z"),
    ("Apr 1 2026 5:03 pm", "2026-04-01T17:03:00.000Z"),
    ("1/2/2026", "2026-01-02T00:00:00.000Z"),
    ("2026/04/01", "2026-04-01T00:00:00.000Z"),
    ("Wed Apr 01 2026 08:30:00 GMT+0200 (CEST)", "2026-04-01T06:30:00.000Z"),
    ("2026-4-1", "2026-04-01T00:00:00.000Z"),
    ("1 April 2026 10:00 EST", "2026-04-01T15:00:00.000Z"),
    ("2026-04-01T08:30:00+05:30", "2026-04-01T03:00:00.000Z"),
    ("+012026-04-01T00:00:00Z", "+012026-04-01T00:00:00.000Z"),
    ("-000001-01-01", "-000001-01-01T00:00:00.000Z"),
    ("12 am 1 Jan 2026", None),
    ("1 Jan 2026 12:00 PM", "2026-01-01T12:00:00.000Z"),
    ("2026-04-01T08:30:00.1Z", "2026-04-01T08:30:00.100Z"),
    ("2026-04-01T08:30:00.123456789012Z", "2026-04-01T08:30:00.123Z"),
    ("2026-04-01T24:00:00.001Z", None),
    ("2026-04-01T8:30Z", None),
    ("2026-04-31", "2026-05-01T00:00:00.000Z"),
    ("2026-04-32", None),
    ("Jan 1 50", "1950-01-01T00:00:00.000Z"),
    ("Jan 1 49", "2049-01-01T00:00:00.000Z"),
    ("1 Foo 2026", None),
    ("foo 1 Jan 2026", "2026-01-01T00:00:00.000Z"),
    ("2026-04-01T08:30:00 +0100", None),
    ("2026-04-01T08:30+01", None),
    ("Apr 1 2026 08:30 GMT-8", "2026-04-01T16:30:00.000Z"),
    ("Apr 1 2026 08:30 GMT-12345", None),
    ("Apr 1 2026 (unclosed", "2026-04-01T00:00:00.000Z"),
    ("(a(b)c) 1 Apr 2026", "2026-04-01T00:00:00.000Z"),
    ("-000000-01-01", "2001-01-01T00:00:00.000Z"),
    ("275760-09-13", "+275760-09-13T00:00:00.000Z"),
    ("+275760-09-13T00:00:00.001Z", None),
    ("+275760-09-13T00:00:00.000Z", "+275760-09-13T00:00:00.000Z"),
    ("2026-04-01T08:30:60Z", None),
    ("2026-04-01t08:30z", "2026-04-01T08:30:00.000Z"),
    ("99999999999 1 1", None),
    ("1 1 1 1", None),
    ("8:30:15.5 Apr 1 2026", "2026-04-01T08:30:15.500Z"),
    ("8::30 Apr 1 2026", "2026-04-01T08:00:30.000Z"),
    ("Apr-1-2026", "2026-04-01T00:00:00.000Z"),
    ("2026 Apr 1", "2026-04-01T00:00:00.000Z"),
    ("1. Apr 2026", "2026-04-01T00:00:00.000Z"),
    ("2026-04-01T08:30:00.000+0530", "2026-04-01T03:00:00.000Z"),
    ("Sept 3 2026", "2026-09-03T00:00:00.000Z"),
    ("Mayor 3 2026", "2026-05-03T00:00:00.000Z"),
    ("3 pm", None),
    ("T", None),
    ("2026-W14", None),
]


@pytest.mark.parametrize(("text", "iso"), V8, ids=[text for text, _ in V8])
def test_a_date_reads_as_v8_reads_it(text: str, iso: str | None) -> None:
    ms = pl.DataFrame({"ms": parse_dates(pl.Series([text]))})
    assert ms.select(iso_text(pl.col("ms"))).item() == iso


def test_times_without_a_zone_are_local_to_the_machine_that_wrote_them() -> None:
    texts = pl.Series(["2026-01-15T12:00:00", "2026-07-15T12:00:00", "2026-07-15"])
    frame = pl.DataFrame({"ms": parse_dates(texts, local_zone="America/New_York")})
    assert frame.select(iso_text(pl.col("ms")))["ms"].to_list() == [
        "2026-01-15T17:00:00.000Z",
        "2026-07-15T16:00:00.000Z",
        "2026-07-15T00:00:00.000Z",
    ]


def test_null_empty_and_repeated_texts_keep_their_place() -> None:
    texts = pl.Series("at", ["2026", None, "", "soon", "2026"])
    assert parse_dates(texts).is_null().to_list() == [False, True, True, True, False]
    assert parse_dates(texts).name == "at"
    assert parse_dates(pl.Series("at", [], dtype=pl.String)).to_list() == []
    assert parse_dates(pl.Series("at", [None, None], dtype=pl.String)).to_list() == [None, None]


LARGEST = 8_640_000_000_000_000


@given(st.lists(st.integers(-LARGEST, LARGEST), min_size=1, max_size=20))
@examples(60)
def test_what_is_written_is_read_back(ms: list[int]) -> None:
    written = pl.DataFrame({"ms": ms}, schema={"ms": pl.Int64}).select(at=iso_text(pl.col("ms")))
    assert written.select(date_ms("at"))["at"].to_list() == ms


@pytest.mark.slow
@given(st.lists(st.text(max_size=30), max_size=20))
@examples(60)
def test_any_text_is_a_moment_or_null(texts: list[str]) -> None:
    read = parse_dates(pl.Series(texts, dtype=pl.String))
    assert read.len() == len(texts)
    assert read.is_between(-LARGEST, LARGEST).drop_nulls().all()


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


@given(st.lists(st.datetimes(), min_size=1, max_size=20))
@examples(40)
def test_what_both_read_they_read_alike(moments: list[datetime]) -> None:
    texts = pl.Series([at.isoformat(timespec="milliseconds") + "Z" for at in moments])
    read = pl.DataFrame({"at": texts}).select(iso_ms(pl.col("at")))["at"]
    assert read.to_list() == parse_dates(texts).to_list()


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


@pytest.mark.parametrize(
    ("zone", "hours"),
    [
        *(("UT", 0), ("UTC", 0), ("Z", 0), ("GMT", 0), ("EST", -5), ("EDT", -4)),
        *(("CST", -6), ("CDT", -5), ("MST", -7), ("MDT", -6), ("PST", -8), ("PDT", -7)),
    ],
)
def test_every_zone_that_has_a_name_is_as_far_from_utc_as_v8_says(zone, hours) -> None:
    found = parse_dates(pl.Series([f"1 April 2026 10:00 {zone}"]))
    assert found.item() == 1775037600000 - hours * 3_600_000
