"""What people type for a window, and the words when it makes no sense."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from stateanalytics.core.windows import TICK, Window, read_moment, read_window
from stateanalytics.errors import ArgumentError
from tests.frames import AS_OF


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


LATE = utc(2030, 1, 1)


@pytest.mark.parametrize(
    ("asked", "since", "until"),
    [
        ("2026-W21", utc(2026, 5, 18), utc(2026, 5, 25)),
        ("2026w21", utc(2026, 5, 18), utc(2026, 5, 25)),
        ("2026-W01", utc(2025, 12, 29), utc(2026, 1, 5)),  # begins in the old year
        ("2026-W53", utc(2026, 12, 28), utc(2027, 1, 4)),  # a year of 53 weeks
        ("2027-W01", utc(2027, 1, 4), utc(2027, 1, 11)),
        (("2026-03-28", "2026-03-30"), utc(2026, 3, 28), utc(2026, 3, 30)),  # a clock change
        ((date(2026, 5, 1), 1779840000), utc(2026, 5, 1), AS_OF),
        (("2026-05-18T02:00+02:00", datetime(2026, 5, 19)), utc(2026, 5, 18), utc(2026, 5, 19)),
        (["2026-05-18", None], utc(2026, 5, 18), LATE + TICK),
        ((None, "2026-05-18"), utc(2026, 5, 11), utc(2026, 5, 18)),
        (None, LATE + TICK - timedelta(days=7), LATE + TICK),
        (("7d", None), LATE + TICK - timedelta(days=7), LATE + TICK),
        (("2W", "24 h"), LATE + TICK - timedelta(days=14), LATE + TICK - timedelta(days=1)),
        (("90m", None), LATE + TICK - timedelta(minutes=90), LATE + TICK),
        (("yesterday", "today"), utc(2029, 12, 31), LATE),
    ],
)
def test_a_window_is_read(asked, since, until):
    found = read_window(asked, as_of=LATE)
    assert (found.since, found.until) == (since, until)


@pytest.mark.parametrize(
    ("week", "days"),
    [
        ("2026-W21", "Mon 18 May to Sun 24 May 2026"),
        ("2026-W01", "Mon 29 Dec 2025 to Sun 4 Jan 2026"),
        ("2026-W53", "Mon 28 Dec 2026 to Sun 3 Jan 2027"),
    ],
)
def test_a_week_over_new_year_names_both_years(week, days):
    assert read_window(week, as_of=LATE).label == f"week {week}, {days}"


def test_yesterday_is_the_day_of_its_clock():
    window = read_window(("yesterday", "today"), as_of=LATE, tz="America/New_York")
    assert (window.since, window.until) == (utc(2029, 12, 30, 5), utc(2029, 12, 31, 5))


@pytest.mark.parametrize("word", ["d", "7x", "-7d", "1.5h", "99999d", "tomorrow"])
def test_a_word_that_names_no_moment_is_refused(word):
    with pytest.raises(ArgumentError, match=r"(?s)the start of the window needs.*7d") as caught:
        read_window((word, None), as_of=LATE)
    assert "--since 7d" in caught.value.shell


def test_a_moment_before_the_first_year_is_refused():
    with pytest.raises(ArgumentError, match="the start of the window needs a moment"):
        read_window(("9999w", None), as_of=utc(100, 1, 1))


def test_a_window_passes_through():
    window = Window(utc(2026, 5, 1), utc(2026, 5, 2), "a day")
    assert read_window(window, as_of=AS_OF) is window


def test_the_default_window_holds_as_of_itself():
    window = read_window(None, as_of=AS_OF)
    assert window.since <= AS_OF < window.until


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("2025-W53", "no week 53 in 2025, which has 52"),
        ("2026-W00", "no week 0 in 2026"),
        ("0000-W01", "no week 1 in 0"),
        ("9999-W52", "no week 52 in 9999 .* ends in the year 10000"),
        ("last week", "year; found .last week."),
        (("2026-05-18", "2026-05-18"), "needs a length"),
        (("2026-05-19", "2026-05-18"), "swap the two"),
        ("2026-W23", "the data end, or are read as of, 2026"),
        (("soon", "2026-05-18"), "start of the window needs a moment"),
        *(((0, end), "end of the window needs a moment") for end in (float("nan"), True, 1e300)),
        *((no_pair, "pair of moments") for no_pair in ((1, 2, 3), (None, None), 7)),
        *((text, "ISO week") for text in ("2026-W1", "x" * 10_000)),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(asked, words):
    with pytest.raises(ArgumentError, match=words) as refused:
        read_window(asked, as_of=AS_OF)
    assert "Hint: " in str(refused.value)
    assert len(str(refused.value)) < 500


def test_every_week_of_a_century_is_seven_days_and_follows_the_last():
    last = None
    for year in range(2000, 2100):
        for week in range(1, date(year, 12, 28).isocalendar().week + 1):
            window = read_window(f"{year}-W{week:02}", as_of=utc(2200, 1, 1))
            assert (window.days, window.since.weekday()) == (7, 0)
            assert last is None or window.since == last.until
            last = window


def test_moments_may_come_from_any_zone():
    here = datetime(2026, 5, 27, 2, tzinfo=timezone(timedelta(hours=2)))
    assert read_moment(here) == AS_OF
