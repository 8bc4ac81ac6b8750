"""The registry: every rule of the catalogues is there, and each fires exactly at its limit."""

import dataclasses
from datetime import UTC, datetime

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.detectors.catalogue import chosen_detectors, named, registry
from stateanalytics.detectors.comparing import CAUSES
from stateanalytics.detectors.detections import feature_columns, in_words, truths
from stateanalytics.errors import ArgumentError
from stateanalytics.systems import all_systems
from stateanalytics.systems.detector import CONSTRUCTS, Detector, Entry, catalogue
from tests.conftest import ROOT

NOW = datetime(2026, 5, 27, tzinfo=UTC)


def numbers(family):
    """What a family covers: ``A7, B15`` counts for both, ``B9/04`` for B9."""
    known = sa.detectors.known().filter(pl.col("family").is_in(family))["known_as"].drop_nulls()
    return {part.split("/")[0] for text in known for part in text.split(", ")}


@pytest.mark.parametrize(
    ("family", "letter", "last"),
    [
        *((["lionagi A", "lionagi B"], "A", 10), (["lionagi B", "proposals"], "B", 20)),
        *((["lionagi C"], "C", 18), (["lionagi D"], "D", 11), (["lionagi E"], "E", 7)),
        (["agent_orchestrator"], "D", 25),
    ],
)
def test_every_number_of_the_catalogue_is_there(family, letter, last):
    expected = {f"{letter}{n}" for n in range(1, last + 1)}
    assert expected - {"C3"} <= numbers(family), "C2 is C3's rule"


def test_opencode_and_the_policy_are_there():
    names = set(sa.detectors.known()["name"])
    assert {"opencode_stalled", "opencode_retry_overdue", "opencode_runaway", "policy"} <= names


def test_the_list_says_why_not():
    listed = sa.detectors.known()
    assert listed["name"].is_unique().all()
    assert listed["rule"].null_count() == 0
    assert listed["construct"].is_in(list(CONSTRUCTS)).all()
    cannot = listed.filter(~pl.col("is_offline"))
    assert cannot.height > 20
    assert cannot["why_not"].str.len_chars().min() > 10
    assert listed.filter("is_offline")["why_not"].null_count() == listed["is_offline"].sum()


def test_detectors_read_signs_that_are_described():
    read = {name for detector in chosen_detectors("all") for name in detector.reads}
    undescribed = read - {*feature_columns()}
    # What reapers read of the rows themselves, and of linked ones.
    assert undescribed <= {
        *("entity_type", "raw_status", "parent_id", "has_live_play", "disk_end"),
        *("has_session_row", "n_plays"),
    }


# --- one grid for all: below, at and past the limit -----------------------------------


def signs(detector, value):
    """One running row with everything fine, but the measure of one detector."""
    row = {
        **dict.fromkeys(detector.reads),
        "source": "s", "system": detector.system or "lionagi",
        "entity_type": detector.entity_types[0], "entity_id": "e", "session_id": "e",
        "kind": "agent", "status": "running", "raw_status": "running",
        "message_count": 4, "n_messages": 4, "invocation_kind": "agent",
        "has_artifacts": True, "has_stale_locks": False, "process_alive": None,
        "last_message_age_s": None, "updated_age_s": None, "started_age_s": 60.0,
        "ended_age_s": None, "created_age_s": None, "recorded_by": "mirrored",
        "report_state": "working", "execution": "open", "n_tools_running": 0,
        "is_retry_pending": True, "is_claimed": False, "is_foreign": None, "generation": "G2",
        "activity": "blocked" if detector.name in BLOCKED else "idle", "pr_reason": None,
        "open_tool_name": "Read",
        "schedule_limit_s": 600.0, "silence_s": 1.0, "n_children": 0, "has_live_play": False,
    }  # fmt: skip
    row |= UNLIKE.get(detector.name, {})
    row[detector.compares[0]] = value
    if "silence_s" in detector.compares:
        row["last_message_age_s"] = value
    numbers = [name for name in row if name.endswith("_s") or name.startswith("n_")]
    flags = ("is_foreign", "process_alive", "session_alive", "has_session_row")
    return pl.DataFrame([row]).with_columns(
        *(pl.col(name).cast(pl.Float64) for name in numbers),
        *(pl.col(name).cast(pl.Boolean) for name in flags if name in row),
        *(pl.col(name).cast(pl.String) for name in ("pr_reason", "agent") if name in row),
    )


BLOCKED = ("ao_blocked_stuck", "ao_call_decayed")
UNLIKE = {
    "claude_code_stalled": {"raw_status": "awaiting_model"},
    "claude_code_stream": {"raw_status": "awaiting_model"},
    "claude_code_subagent": {"raw_status": "awaiting_model", "kind": "subagent"},
    "claude_code_command": {"raw_status": "open_tool", "open_tool_name": "Bash"},
    "claude_code_tool": {"raw_status": "open_tool"},
    "claude_code_retry_overdue": {"raw_status": "retrying"},
    "codex_stalled": {"raw_status": "awaiting_model"},
    "codex_stream": {"raw_status": "awaiting_model"},
    "codex_retries": {"raw_status": "awaiting_model"},
    "codex_command": {"raw_status": "open_tool", "open_call_name": "shell"},
    "codex_mcp": {"raw_status": "open_tool", "open_call_name": "mcp__a__b"},
    # By the first version, what nobody saw alive is stale at once.
    "health_0_26": {"process_alive": True},
    "ao_detecting_budget": {"detecting_attempts": 3},
    "dashboard_slow_30m": {"status": "completed"},
    "dashboard_slow_60m": {"status": "completed"},
    "null_status": {"status": None, "raw_status": None},
    "stale_schedule_run": {"parent_id": "x"},
    "stale_show": {"status": "active", "raw_status": "active", "disk_end": "show.aborted.operator"},
    "kill_all_stale_plays": {"session_status": "completed", "has_session_row": True},
    "kill_all_stale_shows": {
        "status": "active", "raw_status": "active", "n_plays": 2, "n_open_plays": 0,
    },
    "schedule_overdue": {"status": "enabled"},
    "schedule_card_overdue": {"status": "enabled"},
    "ao_no_acknowledge": {"report_state": None},
}  # fmt: skip
COMPARING = [one for one in chosen_detectors("all") if one.compares and one.fires is None]


@pytest.mark.slow
@pytest.mark.parametrize("detector", COMPARING, ids=lambda one: one.name)
def test_each_fires_exactly_at_its_limit(detector):
    limit = signs(detector, 0.0).select(detector.threshold()).item()
    # Whole seconds, where a browser counts.
    step = 1.0 if "elapsed_whole_s" in detector.compares else 0.001

    def fires(value):
        return in_words(truths(signs(detector, value), [detector]), at=NOW)["fires"].item()

    assert fires(limit - step) is False
    assert fires(limit) is (detector.comparison == ">=")
    assert fires(limit + step) is True


# The limit of the others is computed from other columns of the row.
OF_ONE_LIMIT = [one for one in COMPARING if not isinstance(one.threshold_s, pl.Expr)]


@pytest.mark.slow
@pytest.mark.parametrize("detector", OF_ONE_LIMIT, ids=lambda one: one.name)
def test_each_takes_another_limit(detector):
    """The limit is a parameter: nothing of it is baked into the rule."""
    other = {"default": 77.0, "agent": 77.0} if isinstance(detector.threshold_s, dict) else 77.0
    moved = dataclasses.replace(detector, threshold_s=other)
    found = in_words(truths(signs(moved, 78.0), [moved]), at=NOW)
    assert found.select("fires", "threshold_s").row(0) == (True, 77.0)


def test_one_number_limits_every_kind_of_a_classifier():
    health = dataclasses.replace(named("A6"), threshold_s=77.0)
    flow = signs(health, 78.0).with_columns(kind=pl.lit("flow"), invocation_kind=pl.lit("flow"))
    found = in_words(truths(flow, [health]), at=NOW)
    assert found.select("fires", "label").row(0) == (True, "stale")


def test_what_a_changed_detector_reads_follows():
    moved = dataclasses.replace(named("adr0030_stuck"), measures="updated_age_s")
    assert moved.reads == ("updated_age_s", "status")


def test_an_upper_limit_ends_a_range():
    slow = named("adr0030_slow")
    rows = pl.concat([signs(slow, age) for age in (3600.0, 3601.0, 10799.0, 10800.0)])
    assert in_words(truths(rows, [slow]), at=NOW)["fires"].to_list() == [False, True, True, False]


def test_a_run_that_began_before_the_range_is_not_covered():
    stuck = named("dashboard_stuck_60m")
    old = signs(stuck, 90_000.0).with_columns(started_age_s=86_400.001)
    found = in_words(truths(old, [stuck]), at=NOW)
    assert found.select("covered", "fires").row(0) == (False, None)
    assert "within the last 24 h" in found["why"].item()
    at_edge = old.with_columns(started_age_s=86_400.0)
    assert in_words(truths(at_edge, [stuck]), at=NOW)["fires"].to_list() == [True]


# --- asking for detectors --------------------------------------------------------------


def test_an_unknown_name_lists_near_matches():
    with pytest.raises(ArgumentError, match=r"no detector 'dashbord_stuck_60m'.*\n.*did you mean"):
        named("dashbord_stuck_60m")
    with pytest.raises(ArgumentError, match="'dashboard_stuck_60m'"):
        named("stuck")


def test_a_number_names_its_detector_unless_two_have_it():
    assert named("C11").name == "kill_all_stale"
    with pytest.raises(ArgumentError, match="'D3' is the number of 'flow_idle_stall' and"):
        named("D3")


def test_what_cannot_be_evaluated_says_why():
    with pytest.raises(ArgumentError, match="'stale_locks_v2' cannot be evaluated from data: lock"):
        chosen_detectors(["stale_locks_v2"])


def test_an_empty_selection_and_two_of_one_name_are_refused():
    with pytest.raises(ArgumentError, match="needs at least one detector"):
        chosen_detectors([])
    with pytest.raises(ArgumentError, match="two detectors called 'dashboard_stuck_60m'"):
        chosen_detectors(["B2", "dashboard_stuck_60m"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(({}, "has no rule"), ({"measures": "silence_s"}, "has no rule")),
        ({"fires": pl.lit(value=True), "threshold_s": 3}, "that it does not use"),
        ({"classify": lambda rows, limits: rows["kind"], "threshold_s": pl.lit(3)},
         "needs limits in seconds"),
        ({"measures": "silence_s", "threshold_s": -1}, "needs seconds"),
        ({"measures": "silence_s", "threshold_s": True}, "needs seconds"),
        ({"measures": "silence_s", "threshold_s": {"flow": 3}}, "lack a 'default'"),
        ({"measures": "silence_s", "threshold_s": 3, "comparison": "=>"},
         "comparison of detector 'mine' needs one of '>', '>='"),
        ({"fires": pl.lit(value=True), "construct": "silense"}, "did you mean 'silence'"),
    ],
)  # fmt: skip
def test_a_detector_that_makes_no_sense_says_so(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        Detector("mine", **arguments)


def test_a_rule_that_the_catalogue_of_its_system_does_not_list_is_refused():
    with pytest.raises(ArgumentError, match=r"has no row for the rules \['silnt'\]"):
        catalogue("stateanalytics.systems.lionagi", {"silnt": {"measures": "silence_s"}})


def test_a_nameless_detector_says_what_to_type():
    with pytest.raises(ArgumentError, match="needs a name"):
        Detector(" ", fires=pl.lit(value=True))


# --- a user's own, in a few lines ------------------------------------------------------


def test_a_users_detector_joins_every_table(demo):
    chatty = sa.detectors.Detector("chatty", fires=pl.col("n_messages") > 5, label="chatty")
    quiet = sa.detectors.Detector(
        "quiet_20m", measures="silence_s", threshold_s=1200.0, restarts_on="message",
        scope=pl.col("status") == "running",
    )  # fmt: skip
    found = sa.detectors.detect(demo, detectors=["B2", chatty, quiet]).rows
    fired = set(found.filter("fires")["detector"])
    assert fired == {"chatty", "dashboard_stuck_60m", "quiet_20m"}
    assert sa.detectors.agreement(found, n_resamples=20).pairs.height == 3
    told = sa.detectors.disagreements(found, detectors=[chatty, quiet])
    assert {"chatty", "quiet_20m"} <= set(told.rows["a"])
    assert sa.detectors.alarms(demo, detectors=[quiet]).height > 0
    assert sa.detectors.known().height + 1 == sa.detectors.known([quiet]).height


def test_a_detector_whose_inputs_are_not_there_covers_nothing(demo):
    odd = sa.detectors.Detector("odd", fires=pl.col("n_sneezes") > 1)
    found = sa.detectors.detect(demo, detectors=[odd]).rows
    assert not found["covered"].any()
    assert found["fires"].null_count() == found.height
    assert found["why"].unique().to_list() == ["it needs n_sneezes, which does not exist"]


def test_why_of_what_compares_nothing_is_its_rule_or_what_it_means(demo):
    mine = sa.detectors.Detector("mine", fires=pl.col("n_messages") > 5)
    in_words = dataclasses.replace(mine, name="in_words", entry=Entry(rule="more than five"))
    judged = sa.detectors.detect(demo, detectors=[mine, in_words]).rows.filter("covered")
    why = dict(judged.select("detector", "why").unique().iter_rows())
    assert why == {"mine": mine.construct, "in_words": "more than five"}


def test_a_detector_shows_itself():
    assert repr(named("B2")) == "Detector 'dashboard_stuck_60m': elapsed_whole_s > 3600 s"
    assert "cannot be evaluated" in repr(registry()["stale_locks_v1"])
    assert "closed by the phantom reaper" in repr(named("B13"))


def test_the_page_names_every_cause():
    page = (ROOT / "docs" / "detectors.md").read_text("utf-8")
    for cause, meaning in CAUSES.items():
        assert f"| `{cause}` | {meaning} |" in page


# --- which are asked: a dozen, all, or those of one release -----------------------------

RELEASES = {system.name: system.detecting().releases for system in all_systems()}


@pytest.mark.parametrize("system", RELEASES)
def test_by_default_about_a_dozen_current_rules_of_a_system_are_asked(system):
    chosen = [rule for rule in chosen_detectors() if rule.system == system]
    assert 0 < len(chosen) <= 11  # and the policy
    assert not [rule.name for rule in chosen if rule.entry.until or not rule.is_offline]
    # One a question and place; a rule without a place is the only one with its words.
    places = [(rule.question, rule.entry.page or rule.name, rule.entity_types) for rule in chosen]
    assert len(set(places)) == len(places)
    versions = [rule.entry.version_of for rule in chosen if rule.entry.version_of]
    assert len(set(versions)) == len(versions)


def test_by_default_the_policy_and_the_listed_ones_are_asked():
    chosen = {rule.name for rule in chosen_detectors()}
    assert "policy" in chosen
    assert chosen == set(sa.detectors.known().filter("is_default")["name"])
    assert chosen < {rule.name for rule in chosen_detectors("all")}


@pytest.mark.parametrize("system", RELEASES)
def test_every_release_that_a_life_span_names_has_a_place(system):
    entries = [rule.entry for rule in registry().values() if rule.system == system]
    named_ones = {word for entry in entries for word in (entry.since, entry.until)}
    assert named_ones <= {*RELEASES[system], None, ""}


@pytest.mark.parametrize(
    ("asked", "name", "stood"),
    [
        ("lionagi@0.26.0", "dashboard_stuck_30m", True),
        ("lionagi@0.26.1", "dashboard_stuck_30m", False),
        ("lionagi@0.26.1", "dashboard_stuck_60m", True),
        ("lionagi@0.28.0", "dashboard_stuck_60m", False),
        *(("lionagi@0.29.0", "health_0_28", True), ("lionagi@0.29.0", "health_0_29", False)),
        ("lionagi@2026-07-12", "health_0_28", True),  # 0.29.1 came later
        ("lionagi@0.29", "health_0_28", False),  # the last known one of 0.29
        *((f"lionagi@{release}", "health_0_29", True) for release in ("0.29", "0.30", "v0.34.2")),
        *(("lionagi@0.35", "health_0_29", False), ("lionagi@0.36.0", "health_0_36", True)),
        ("lionagi@2026-07-05", "mission_attention_v1", False),  # replaced that day
        ("lionagi@2026-07-04", "mission_attention_v1", True),
        ("lionagi@2026-07-07", "fleet_attention_0_35", True),
        # Proposed only, of no data alone, and of ours.
        *(("lionagi@0.29", name, False) for name in ("adr0030_stuck", "stale_locks_v1", "policy")),
        ("agent-orchestrator@2026-05-16", "ao_call_decayed", True),
        ("agent_orchestrator@2026-05-17", "ao_call_decayed", False),
        ("agent_orchestrator@the Go rewrite", "ao_go_no_signal", True),
    ],
)
def test_a_release_has_the_rules_that_stood_in_it(asked, name, stood):
    chosen = {rule.name: rule for rule in chosen_detectors(asked)}
    assert (name in chosen) is stood
    assert len({rule.system for rule in chosen.values()}) == 1


@pytest.mark.parametrize("release", RELEASES["lionagi"])
def test_no_release_has_two_versions_of_one_rule(release):
    chosen = chosen_detectors(f"lionagi@{release}")
    of = [rule.entry.version_of for rule in chosen if rule.entry.version_of]
    assert len(set(of)) == len(of)


NO_RELEASE = {
    r"There is no release .* of lionagi(.|\n)*0\.26\.1, ": (
        *("lionagi@9", "lionagi@0.2", "lionagi@", "lionagi@2027-01-01", "lionagi@" + "9" * 9999),
    ),
    "releases: agent_orchestrator, lionagi": ("lionag@0.29", "codex@1.0", "@", "@0.29"),
}


@pytest.mark.parametrize("words", NO_RELEASE, ids=["of lionagi", "of a system without any"])
def test_an_unknown_release_lists_the_known_ones(words):
    for asked in NO_RELEASE[words]:
        with pytest.raises(ArgumentError, match=words):
            chosen_detectors(asked)


def test_words_names_and_own_rules_go_together():
    mine = sa.detectors.Detector("mine", fires=pl.lit(value=True))
    every = chosen_detectors("all")
    assert chosen_detectors(["all", "B2", mine]) == (*every, mine)
    of_release = chosen_detectors("lionagi@0.26.1")
    assert chosen_detectors(("B2", "lionagi@0.26.1", "lionagi@0.26.1")) == of_release
    with pytest.raises(ArgumentError, match="two detectors called 'dashboard_stuck_60m'"):
        chosen_detectors(["all", dataclasses.replace(named("B2"), threshold_s=1.0)])
    with pytest.raises(ArgumentError, match="no detector ''"):
        chosen_detectors("")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ({"is_default": "no"}, "column 'is_default': needed true, yes, false or nothing"),
        ({"question": "stael"}, "column 'question': needed one of .*did you mean 'stale'"),
        ({"colour": "red"}, "has the column 'colour', which nothing reads"),
    ],
)
def test_an_entry_that_makes_no_sense_names_its_row_and_column(monkeypatch, cell, words):
    rows = [{"name": "odd", "family": "x", **cell}]
    monkeypatch.setattr("stateanalytics.core.package_tables.table_rows", lambda *_: rows)
    with pytest.raises(ArgumentError, match=f"lionagi/data/detectors.csv.*{words}"):
        catalogue("stateanalytics.systems.lionagi", {})


@pytest.mark.slow
def test_the_sample_is_judged_by_the_dozen_unless_all_are_asked(demo):
    few, every = (sa.detectors.detect(demo, detectors=asked) for asked in (None, "all"))
    assert few.names == [rule.name for rule in chosen_detectors() if rule.name in every.names]
    assert len(few.names) == 12
    assert few.fires.equals(every.fires.select(few.names))
    told = sa.detectors.disagreements(few)
    assert 0 < 10 * told.rows.height < sa.detectors.disagreements(every).rows.height


def test_alarms_of_words_are_of_the_rules_that_have_some(demo):
    has_alarms = set(sa.detectors.known().filter("has_alarms")["name"])
    for asked in (None, "all", "lionagi@0.26.1"):
        found = set(sa.detectors.alarms(demo, detectors=asked)["detector"])
        assert found and found <= has_alarms & {rule.name for rule in chosen_detectors(asked)}
