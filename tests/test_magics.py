"""SQL cells in a notebook: what they ask, what they bind, what they complete."""

import atexit

import polars as pl
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from stateanalytics.errors import ArgumentError, QueryError, QueryRefusedError, TruncatedWarning
from stateanalytics.magics import names_for
from tests.samples import the_week


@pytest.fixture(scope="module")
def snap(demo):
    return demo


@pytest.fixture(scope="module")
def one_shell(tmp_path_factory):
    """A shell that keeps no history."""
    # To forget its answers it would collect garbage, and that of the whole suite each time.
    config = Config({"HistoryManager": {"enabled": False}, "InteractiveShell": {"cache_size": 0}})
    made = InteractiveShell(config=config, ipython_dir=str(tmp_path_factory.mktemp("ipython")))
    yield made
    atexit.unregister(made.atexit_operations)
    made.restore_sys_module_state()


@pytest.fixture
def shell(one_shell, snap):
    one_shell.reset(new_session=False)
    one_shell.extension_manager.load_extension("stateanalytics")
    one_shell.user_ns["snap"] = snap
    return one_shell


def cell(shell, query, options=""):
    return shell.run_cell_magic("statesql", options, query)


def test_a_cell_gives_the_frame_that_the_snapshot_gives(shell, snap):
    query = "SELECT severity, count(*) AS n FROM states GROUP BY ALL ORDER BY ALL"
    assert cell(shell, query).equals(snap.sql(query))


def test_a_cell_names_tables_of_ones_own(shell, snap):
    teams = pl.DataFrame({"kind": ["agent"], "owner": ["ann"]})
    shell.user_ns["snap"] = snap.with_table("teams", teams)
    assert cell(shell, "SELECT owner FROM teams JOIN entities USING (kind) LIMIT 1").item() == "ann"


def test_a_line_is_a_query_too_and_keeps_its_quotes(shell):
    query = "SELECT count(*) AS n FROM entities WHERE kind = 'flow'"
    found = shell.run_line_magic("statesql", query)
    assert found["n"][0] > 0


def test_a_result_can_go_into_a_variable(shell):
    assert cell(shell, "SELECT 1 AS one", "-o found") is None
    assert shell.user_ns["found"]["one"].to_list() == [1]


def test_variables_are_bound_as_values_and_never_as_sql(shell):
    shell.user_ns["kind"] = "x' OR true --"
    assert cell(shell, "SELECT * FROM entities WHERE kind = $kind").height == 0
    shell.user_ns["kind"] = "flow"
    assert cell(shell, "SELECT * FROM entities WHERE kind = $kind").height > 0


def test_a_dollar_in_a_text_or_a_comment_is_no_variable(shell):
    found = cell(shell, "SELECT '$nothing' AS t -- $nor\n/* $this */")
    assert found["t"].to_list() == ["$nothing"]


def test_the_only_snapshot_is_found_under_any_name(shell):
    shell.user_ns["fleet"] = shell.user_ns.pop("snap")
    shell.user_ns["_"] = shell.user_ns["_3"] = shell.user_ns["fleet"]
    assert cell(shell, "SELECT 1 AS one").height == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(("-s snp", "did you mean 'snap'"), ("--nosuch", "unrecognized arguments: --nosuch")),
        *(("-o 1x", "'1x' is no name of a variable"), ("-o class", "'class' is no name")),
        *(("SELECT 2", "begins on a new line"), ("--timeout soon", "invalid float value")),
        ("-s 'open", "is not a snapshot"),
    ],
)
def test_a_wrong_cell_says_what_to_type(shell, options, words):
    with pytest.raises(ArgumentError, match=words):
        cell(shell, "SELECT 1", options)


def test_a_cell_without_a_snapshot_says_what_to_type(shell):
    shell.user_ns["snap"] = None
    with pytest.raises(ArgumentError, match="no variable is one"):
        cell(shell, "SELECT 1")


def test_two_snapshots_must_be_told_apart(shell):
    with the_week() as other:
        shell.user_ns.update(this=shell.user_ns.pop("snap"), other=other)
        with pytest.raises(ArgumentError, match="several snapshots: other, this"):
            cell(shell, "SELECT 1")
        assert cell(shell, "SELECT 1", "-s this").height == 1


def test_a_missing_variable_is_named(shell):
    with pytest.raises(ArgumentError, match="names \\$since, and there is no variable since"):
        cell(shell, "SELECT * FROM entities WHERE created_at > $since")


def test_limits_are_those_of_the_snapshot(shell):
    with pytest.warns(TruncatedWarning):
        assert cell(shell, "FROM entities", "--max-rows 3").height == 3
    with pytest.raises(QueryRefusedError):
        cell(shell, "SELECT * FROM read_csv('/etc/passwd')")
    with pytest.raises(QueryError, match="nosuch"):
        cell(shell, "SELECT * FROM nosuch")


def test_an_error_is_shown_in_two_lines_without_a_stack(shell, capsys):
    shell.run_cell("%%statesql\nSELECT * FROM no_such_table")
    shown = capsys.readouterr().out
    assert "no_such_table" in shown and "Hint:" in shown
    assert "Traceback" not in shown
    assert len(shown.strip().splitlines()) <= 4


def test_an_error_cannot_act_on_the_terminal(shell, capsys):
    shell.run_cell("%%statesql -s \x1b]0;owned\x07x\nSELECT 1")
    assert "\x1b]0" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("written", "among"),
    [
        ("%%statesql\nSELECT * FROM sta", "states"),
        ("%%statesql\nSELECT states.sev", "states.severity"),
        ("%%statesql\nFROM states WHERE sev", "severity"),
        ("%%statesql\nSEL", "SELECT"),
        ("%%statesql -s snap\nFROM raw_ses", "raw_sessions"),
    ],
)
def test_names_are_completed(snap, written, among):
    found = names_for(written, {"snap": snap})
    assert among in found
    last = written.split()[-1].lower()
    assert all(name.lower().startswith(last) for name in found)


def test_nothing_is_completed_without_a_snapshot():
    assert names_for("%%statesql\nFROM sta", {}) == []


@pytest.mark.slow
def test_the_shell_completes_in_our_cells_and_leaves_others_alone(shell):
    def completed(text):
        with provisionalcompleter():
            return {one.text for one in shell.Completer.completions(text, len(text))}

    assert "attention" in completed("%%statesql\nSELECT * FROM attent")
    assert "attention" not in completed("attent")


def test_loading_twice_adds_nothing_and_unloading_takes_all_away(shell):
    before = len(shell.Completer.custom_matchers)
    shell.extension_manager.reload_extension("stateanalytics")
    assert len(shell.Completer.custom_matchers) == before
    shell.extension_manager.unload_extension("stateanalytics")
    assert len(shell.Completer.custom_matchers) == before - 1
    assert "statesql" not in shell.magics_manager.magics["cell"]


def test_an_empty_answer_is_an_empty_frame(shell):
    found = cell(shell, "SELECT entity_id FROM entities WHERE false")
    assert isinstance(found, pl.DataFrame) and found.height == 0
