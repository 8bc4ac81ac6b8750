"""The registry of reason codes: whole, well formed, and open to codes it does not know."""

import csv
import itertools
import re
from dataclasses import replace

import polars as pl
import pytest

from stateanalytics.auditing import audit
from stateanalytics.core import schema
from stateanalytics.core.vocabulary import ADR_DELIVERIES, ADR_HEALTHS
from stateanalytics.state.reasons import DOMAINS, FORM, REGISTRY, reason_codes, with_meanings
from stateanalytics.systems import reading as sources
from stateanalytics.systems.agent_orchestrator.mapping import (
    AXES,
    GO_MEANINGS,
    LEGACY_MEANINGS,
    SESSION_MEANINGS,
    map_axes,
    map_go_words,
    map_legacy_words,
    words_of,
)
from stateanalytics.systems.opencode.states import CAUSES
from tests.conftest import component
from tests.frames import AS_OF, WHOSE, facts

ADR0033 = (
    "run.failed.exit_nonzero", "run.failed.artifact_contract", "run.health.process_dead",
    "run.health.stalled", "run.delivery.missing", "show.failed.critical_path_blocked",
    "play.blocked.dependency_failed", "play.blocked.dependency_invalid", "schedule.health.misfired",
    "team.health.orphaned", "knowledge.disputed.conflicting_evidence",
    "knowledge.disputed.user_rejection", "knowledge.superseded.newer_observation",
    "knowledge.stale.unverified_too_long", "system.health.process_dead_no_terminal",
)  # fmt: skip


def test_every_code_of_the_installed_lionagi_is_registered():
    reasons = component("lionagi.state.reasons")
    mine = {code for code, one in REGISTRY.items() if one.origin == "lionagi"}
    assert mine == reasons.VALID_REASON_CODES


def test_constants_are_those_of_the_installed_lionagi():
    reasons = component("lionagi.state.reasons")
    for one in REGISTRY.values():
        if one.origin == "lionagi":
            holder, _, name = one.constant.rpartition(".")
            found = getattr(getattr(reasons, holder), name) if holder else getattr(reasons, name)
            assert found == one.code


def test_every_code_of_adr_0033_is_registered_with_what_lionagi_writes_instead():
    assert [code for code in ADR0033 if code not in REGISTRY] == []
    for code in ADR0033:
        for nearest in REGISTRY[code].nearest:
            assert REGISTRY[nearest].origin == "lionagi"
    assert REGISTRY["run.failed.exit_nonzero"].origin == "lionagi"
    assert REGISTRY["schedule.health.misfired"].nearest == ("schedule.skipped.missed_fire",)
    assert REGISTRY["knowledge.disputed.user_rejection"].nearest == ()


def is_valid_code(code):
    """Is it a code by either namespace rule: the slow and obvious version."""
    if code is None or code == "legacy.imported":
        return code is not None
    domain, *rest = code.split(".")
    segments = [re.fullmatch("[a-z][a-z0-9_]*", segment) for segment in rest]
    return domain in DOMAINS and len(rest) == 2 and all(segments)


def test_every_code_is_valid_and_says_what_it_means_and_what_to_do():
    for code, one in REGISTRY.items():
        assert is_valid_code(code), code
        assert one.code == code
        assert one.meaning and one.what_to_do.endswith("."), code
        assert one.entity_types, code


@pytest.mark.slow
def test_every_code_that_other_systems_are_mapped_to_is_registered():
    words = pl.DataFrame({"status": [*LEGACY_MEANINGS, *GO_MEANINGS]})
    both = [words.with_columns(has_pr=pl.lit(has_pr)) for has_pr in (True, False)]
    of_words = [*map(map_legacy_words, both), map_go_words(words)]
    rows = [row for mapped in of_words for row in mapped["reason_codes"]]
    written = {code for row in rows for code in row.split(", ")}
    written |= {meaning.code for meaning in SESSION_MEANINGS.values()}
    axes = itertools.product(*(words_of(name) for name in AXES))
    mapped = map_axes(pl.DataFrame(list(axes), schema=list(AXES), orient="row"))
    written |= {code for row in mapped["reason_codes"].unique() for code in row.split(", ")}
    # A call that took too long has timed out, and not failed.
    causes = {*CAUSES.values()} - {"timeout"}
    written |= {f"{of}.failed.{cause}" for of in ("run", "invocation") for cause in causes}
    assert sorted(written - set(REGISTRY)) == []


def test_codes_of_other_systems_stay_unknown_in_rows_of_lionagi():
    words = "its reason is 'run.aborted.runtime_lost'"
    assert unknown(ended("run.aborted.runtime_lost")) == [("info", "0", words)]


def test_every_health_and_delivery_that_can_be_inferred_has_a_code():
    for words, dimension in ((ADR_HEALTHS, "health"), (ADR_DELIVERIES, "delivery")):
        for entity_type, causes in words.items():
            domain = "run" if entity_type == "session" else entity_type
            for cause in set(causes) - {"ok", "passed", "not_expected"}:
                assert f"{domain}.{dimension}.{cause}" in REGISTRY


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *((code, True) for code in ("legacy.imported", "knowledge.disputed.anything")),
        *(("run.failed.new_cause_2", True), ("schedule_definition.disabled.manual", True)),
        *((code, False) for code in ("legacy.exported", "run.failed", "run.failed.a.b")),
        *((code, False) for code in ("gremlin.failed.x", "run.Failed.x", "run..x")),
        *((code, False) for code in ("run.failed.x\n", "", None)),
    ],
)
def test_both_namespaces_are_accepted_and_nothing_else(code, expected):
    assert is_valid_code(code) is expected
    is_formed = pl.Series([code], dtype=pl.String).str.contains(FORM).item() or False
    assert is_formed is (expected and code != "legacy.imported")


def test_the_registry_is_a_frame_too():
    frame_of_codes = reason_codes()
    assert frame_of_codes.height == len(REGISTRY)
    assert frame_of_codes["code"].is_sorted() and frame_of_codes["code"].is_unique().all()


def test_the_shipped_table_has_no_code_twice(pytestconfig):
    for folder in ("state", "systems/lionagi", "systems/agent_orchestrator"):
        path = pytestconfig.rootpath / "stateanalytics" / folder / "data" / "reason_codes.csv"
        with path.open(newline="", encoding="utf-8") as lines:
            codes = [row["code"] for row in csv.DictReader(lines)]
        assert len(codes) == len(set(codes))


def test_a_code_has_its_meaning_and_what_to_do_and_any_other_has_none():
    known = REGISTRY["run.failed.exit_nonzero"]
    found = with_meanings(pl.DataFrame({"code": [known.code, "run.failed.gremlins", None]}))
    assert found.rows() == [
        (known.code, known.meaning, known.what_to_do),
        ("run.failed.gremlins", None, None),
        (None, None, None),
    ]


def unknown(rows, **frames):
    found = audit(facts(rows, **frames)).filter(code="audit.reason_unknown")
    return found.select("severity", "entity_id", "says").rows()


def ended(*codes, **columns):
    return [
        {"entity_id": str(number), "raw_status": "failed", "reason_code": code, **columns}
        for number, code in enumerate(codes)
    ]


def test_unknown_codes_are_rows_of_the_audit_and_kept_visible():
    rows = ended(*["run.failed.gremlins"] * 2, "oops", "run.completed.ok", None, "")
    assert unknown(rows) == [
        ("warning", "2", "its reason is 'oops'"),
        ("info", "0", "its reason is 'run.failed.gremlins'"),
        ("info", "1", "its reason is 'run.failed.gremlins'"),
    ]


def test_a_code_of_row_and_history_is_one_row_of_the_audit():
    change = {**WHOSE, "entity_id": "0", "at": AS_OF, "status": "failed", "reason_code": "oops"}
    earlier = {**change, "reason_code": "ouch"}
    assert len(unknown(ended("oops"), transitions=[change])) == 1
    assert len(unknown(ended("oops"), transitions=[earlier, change])) == 2


def test_other_systems_have_registries_of_their_own():
    assert unknown(ended("oops", system="opencode")) == []


def test_no_entities_have_no_unknown_codes():
    assert unknown([]) == []


@pytest.mark.slow
def test_real_stores_hold_known_codes_but_for_the_planted_one(lionagi_samples):
    read, _ = sources.read_facts([lionagi_samples / "0.36.0" / "state.db"])
    planted = audit(read).filter(code="audit.reason_unknown")
    assert planted.height <= 2
    history = audit(replace(read, entities=schema.ENTITIES.empty()))
    assert history.filter(code="audit.reason_unknown").is_empty()
