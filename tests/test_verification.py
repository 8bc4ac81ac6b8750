"""Contract and directory listing to verdict, and what a page shows of it."""

import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.errors import MissingColumnsError
from tests.conformance.lionagi.verification import verify_contracts, with_shown_verdict
from tests.conftest import component
from tests.engines import assert_same_rows, on_every_engine
from tests.examples import examples


def contract(*outputs):
    return json.dumps(
        {"expected": [{"id": name, "path": path, "required": need} for name, path, need in outputs]}
    )


def contracts(*texts):
    ids = [f"s{number}" for number in range(len(texts))]
    return pl.DataFrame(
        {"entity_id": ids, "contract": list(texts)},
        schema={"entity_id": pl.String, "contract": pl.String},
    )


def listing(files, entity_id="s0"):
    return pl.DataFrame(
        {
            "entity_id": [entity_id] * len(files),
            "path": list(files),
            "size_bytes": list(files.values()),
        },
        schema={"entity_id": pl.String, "path": pl.String, "size_bytes": pl.Int64},
    )


def verdict(text, files=None):
    return verify_contracts(contracts(text), listing(files or {})).row(0, named=True)


def test_what_is_there_and_not_empty_is_delivered():
    row = verdict(contract(("a", "x/y.md", True)), {"x/y.md": 3})
    assert (row["verdict"], row["produced"], row["n_produced"]) == ("passed", "a:x/y.md:3", 1)


def test_an_empty_file_is_as_good_as_none():
    assert verdict(contract(("a", "y.md", True)), {"y.md": 0})["missing_required"] == "a"


def test_an_empty_file_at_the_path_hides_a_full_one_below():
    row = verdict(contract(("a", "y.md", True)), {"y.md": 0, "critic/y.md": 5})
    assert row["verdict"] == "failed"


def test_a_bare_name_is_found_one_directory_down_in_the_first_that_has_it():
    files = {"b/y.md": 2, "a/y.md": 1, "a/b/y.md": 9}
    assert verdict(contract(("o", "y.md", True)), files)["produced"] == "o:a/y.md:1"
    assert verdict(contract(("o", "y.md", True)), {"a/b/y.md": 9})["verdict"] == "failed"


def test_a_path_with_directories_is_looked_for_only_there():
    assert verdict(contract(("o", "x/y.md", True)), {"a/x/y.md": 1})["verdict"] == "failed"


def test_paths_are_compared_as_paths():
    assert verdict(contract(("o", "./x//y.md", True)), {"x/y.md": 1})["verdict"] == "passed"


def test_optional_outputs_only_warn():
    row = verdict(contract(("a", "a.md", False), ("b", "b.md", True)), {"b.md": 1})
    assert (row["verdict"], row["missing_optional"]) == ("warning", "a")


def test_ids_are_listed_in_the_order_of_the_contract():
    row = verdict(contract(("z", "z.md", True), ("a", "a.md", True)))
    assert row["missing_required"] == "z|a"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "3",
        "{}",
        '{"expected": {}}',
        '{"expected": ["x"]}',
        '{"expected": [{"id": "a b", "path": "x"}]}',
        '{"expected": [{"id": "a", "path": "/x"}]}',
        '{"expected": [{"id": "a", "path": "../x"}]}',
        '{"expected": [{"id": "a", "path": "*.md"}]}',
        '{"expected": [{"id": "a", "path": ""}]}',
        '{"expected": [{"id": "a", "path": "x", "required": "yes"}]}',
        '{"expected": [{"id": "a", "path": "x"}, {"id": "a", "path": "y"}]}',
    ],
)
def test_a_malformed_contract_has_no_verdict(text):
    row = verdict(text, {"x": 1})
    assert row["is_contract_valid"] is False
    assert row["verdict"] is None
    assert row["n_expected"] is None


@pytest.mark.parametrize("text", [None, "null"])
def test_nothing_promised_is_nothing_to_judge(text):
    row = verdict(text, {"x": 1})
    assert row["is_contract_valid"] is None
    assert row["verdict"] is None


def test_a_promise_of_nothing_is_kept():
    row = verdict('{"expected": []}')
    assert (row["verdict"], row["n_expected"]) == ("passed", 0)


def test_each_contract_is_judged_by_its_own_directory():
    texts = [contract(("a", "y.md", True))] * 3
    files = pl.concat([listing({"y.md": 1}, "s0"), listing({"y.md": 1}, "s2")])
    found = verify_contracts(contracts(*texts), files)
    assert found["verdict"].to_list() == ["passed", "failed", "passed"]


def test_no_contracts_give_no_verdicts():
    assert verify_contracts(contracts(), listing({})).height == 0


def test_missing_columns_say_what_to_do():
    with pytest.raises(MissingColumnsError, match=r"verify_contracts needs columns \['contract'\]"):
        verify_contracts(contracts().drop("contract"), listing({}))
    with pytest.raises(MissingColumnsError, match="size_bytes"):
        verify_contracts(contracts(), listing({}).drop("size_bytes"))


PATHS = ["a.md", "b.md", "d/a.md", "e/a.md", "d/b.md", "d/e/a.md"]
OUTPUTS = st.lists(st.tuples(st.sampled_from(PATHS), st.booleans()), max_size=4)
FILES = st.dictionaries(st.sampled_from(PATHS), st.integers(0, 3))


@examples(40)
@given(outputs=OUTPUTS, files=FILES)
def test_bulk_equals_lionagis_verifier(tmp_path_factory, outputs, files):
    verifier = component("lionagi.state.artifact_verifier")
    root = tmp_path_factory.mktemp("artifacts")
    for path, size in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x" * size)
    text = contract(*((f"o{n}", path, need) for n, (path, need) in enumerate(outputs)))
    real = verifier.verify_artifact_contract(json.loads(text), artifacts_root=str(root))
    mine = verdict(text, files)
    assert mine["verdict"] == real["status"]
    for name in ("missing_required", "missing_optional"):
        assert (mine[name] or "") == "|".join(entry["id"] for entry in real[name])
    found = [f"{entry['id']}:{entry['path']}:{entry['size']}" for entry in real["produced"]]
    assert (mine["produced"] or "") == "|".join(found)


SHOWN = {
    "verdict": pl.String,
    "raw_status": pl.String,
    "has_contract": pl.Boolean,
    "has_artifacts_path": pl.Boolean,
    "is_verdict_object": pl.Boolean,
    "is_verdict_dated": pl.Boolean,
    "live_verdict": pl.String,
}


def shown(**row):
    rows = pl.DataFrame([{name: row.get(name) for name in SHOWN}], schema=SHOWN)
    found = with_shown_verdict(rows)
    return found.select("shown_verdict", "is_provisional", "currency").row(0)


def test_a_stored_verdict_is_shown_and_its_age_marked():
    stored = {"verdict": "passed", "raw_status": "completed"}
    assert shown(**stored, has_artifacts_path=True) == ("passed", False, "checked")
    assert shown(**stored) == ("passed", False, "unknown")


def test_a_running_session_shows_a_provisional_verdict():
    row = {"raw_status": "running", "has_contract": True, "live_verdict": "failed"}
    assert shown(**row, has_artifacts_path=True) == ("failed", True, None)
    assert shown(**row) == (None, False, None)


def test_an_end_without_a_verdict_says_so():
    assert shown(raw_status="failed", has_contract=True) == ("not_recorded", False, None)
    assert shown(raw_status="failed") == (None, False, None)
    assert shown(raw_status="done", has_contract=True) == (None, False, None)


def test_words_that_are_no_verdict_object_are_shown_as_they_are():
    assert shown(verdict="passed", is_verdict_object=False) == ("passed", False, None)
    assert shown(verdict="not_recorded", has_artifacts_path=True) == ("not_recorded", False, None)


@on_every_engine
def test_every_engine_shows_the_same(engine):
    rows = pl.DataFrame(
        {
            "verdict": ["passed", None, None, None],
            "raw_status": ["completed", "running", "failed", None],
            "has_contract": [True, True, True, None],
            "has_artifacts_path": [True, True, None, None],
            "live_verdict": [None, "warning", None, None],
        }
    )
    assert_same_rows(engine.back(with_shown_verdict(engine.of(rows))), with_shown_verdict(rows))
