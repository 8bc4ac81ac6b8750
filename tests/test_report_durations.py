"""The chapter on durations: where runs were after so long, by invocation."""

from dataclasses import replace

import pytest

from stateanalytics.reporting.sections import durations
from stateanalytics.reporting.sections.durations import _never, summarize_durations
from tests.frames import WHOSE, ago, facts
from tests.report_parts import material_of


def signs(*entities):
    return [
        {**WHOSE, "entity_id": entity, "at": ago(minutes=minute), "seq": seq, "is_activity": True}
        for entity, minutes in entities
        for seq, minute in enumerate(minutes)
    ]


def fan_outs(n_units, size):
    """Of each invocation one run completes, the others go silent, and half of them go on."""
    rows, seen = [], []
    for unit in range(n_units):
        for place in range(size):
            name = f"{unit} {place}"
            ended = {"ended_at": ago(hours=9, minutes=30), "raw_status": "completed"}
            rows.append(
                {**WHOSE, "entity_id": name, "session_id": name, "invocation_id": f"{unit}",
                 "kind": "agent", "raw_status": "running", "started_at": ago(hours=10),
                 "last_activity_at": ago(hours=10), **(ended if place == 0 else {})}
            )  # fmt: skip
            again = [420] if place % 2 and place else []
            seen.append((name, [600, *again]))
    return facts(rows, events=signs(*seen))


def test_the_chapter_says_where_runs_were_and_who_went_on():
    material = material_of(fan_outs(6, 5))
    soon = replace(material.policy, stalled_after_s=(), stalled_after_default_s=900.0)
    found = summarize_durations(replace(material, policy=soon))["in_between"]
    assert (found["unit"], found["n_units"]) == ("invocation", 6)
    shares = {row["state"]: row for row in found["rows"]}
    assert shares["completed"]["share"] == pytest.approx(0.2)
    assert shares["stalled"]["share"] == pytest.approx(0.8)
    assert shares["stalled"]["share_low"] < 0.8 < shares["stalled"]["share_high"]
    assert shares["stalled"]["recover"] == pytest.approx(0.5)
    words = found["in_words"]
    assert words.startswith("After 1 h: 80 % (")
    assert "stalled, of which 50 % (" in words
    assert words.endswith("resume; 20 % (8 to 36) completed (by 6 invocations).")


def test_a_few_invocations_give_shares_without_an_interval():
    words = summarize_durations(material_of(fan_outs(4, 5)))["in_between"]["in_words"]
    assert "20 % completed (by 4 invocations)." in words


def test_of_very_many_runs_some_invocations_are_told(monkeypatch):
    given = fan_outs(6, 5)
    monkeypatch.setattr(durations, "MOST_STRETCHES", 50)
    found = summarize_durations(material_of(given))["in_between"]
    assert found["n_units"] == 3
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)


def test_no_runs_say_nothing():
    found = summarize_durations(material_of(facts([])))["in_between"]
    assert (found["in_words"], found["rows"]) == ("", [])


def without_a_unit(part, path="", *, is_named=False):
    """Every interval of a report that nothing above or beside it names the unit of."""
    if isinstance(part, list):
        for place in part:
            yield from without_a_unit(place, path, is_named=is_named)
    elif isinstance(part, dict):
        is_named = is_named or any("unit" in name for name in part)
        ends = ("_low", "_low_s", "interval")
        if not is_named:
            yield from (f"{path}.{name}" for name, value in part.items()
                        if value is not None and name.endswith(ends))  # fmt: skip
        for name, value in part.items():
            yield from without_a_unit(value, f"{path}.{name}", is_named=is_named)


def test_every_interval_of_the_report_names_its_unit(demo_week):
    assert set(without_a_unit(demo_week.summary)) == set()


@pytest.mark.parametrize(
    ("share", "low", "high", "words"),
    [
        (0.25, 0.1, 0.4, "25 % (10 to 40)"),
        (0.25, None, None, "25 %"),
        (None, None, 0.4, "cannot tell; at most 40 %"),
        (None, None, None, "cannot tell"),
    ],
)
def test_a_share_that_never_ends_is_shown_with_the_interval_that_it_has(share, low, high, words):
    assert _never({"never_share": share, "never_low": low, "never_high": high}) == words
