"""Frames in notebooks and terminals: units, notes and colours; hostile text does nothing."""

import csv
import io
import subprocess
import sys
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

import stateanalytics as sa
from stateanalytics.cli import run
from stateanalytics.cli.output import named_entities
from stateanalytics.core.tables import N_FIRST, N_SHOWN, PROSE, as_html, as_table
from stateanalytics.magics import explained
from stateanalytics.questions import QUESTIONS
from stateanalytics.reporting.first_screen import _whose
from stateanalytics.timeline import find_entity
from tests.conftest import ROOT
from tests.frames import facts
from tests.lionagi_stores import session, write_store

HOSTILE = "</td><script>alert(1)</script>\u202egnp.exe\x1b[31m'\""


@pytest.fixture(scope="module")
def clusters():
    return sa.failures.clusters(sa.demo())


def shown_by_ipython(frame):
    """Both forms, as a shell of IPython writes them."""
    shell = InteractiveShell.instance()
    sa._show_frames()
    try:
        return shell.display_formatter.format(frame)[0]
    finally:
        InteractiveShell.clear_instance()


def test_a_frame_in_a_notebook_shows_units_notes_and_the_columns_that_matter(clusters):
    shown = shown_by_ipython(clusters)
    head, page = shown["text/plain"].splitlines()[0], shown["text/html"]
    assert head.split()[:4] == ["title", "n_incidents", "cost_usd", "cluster_id"]
    assert len(head.split()) <= N_FIRST
    assert ">$20.81<" in page and 'data-v="20.8' in page
    assert "title='cost; null: not reported, never free (USD)'>cost_usd</th>" in page
    assert page.count("<th ") == clusters.width
    assert page.count('class="more"') + page.count('n more"') >= clusters.width - N_FIRST
    kept = shown_by_ipython(clusters.filter(pl.col("cost_usd") > 1).select("title", "cost_usd"))
    assert "sa-frame" in kept["text/html"]
    assert type(clusters) is pl.DataFrame


def test_a_frame_of_others_is_shown_as_polars_shows_it():
    own = pl.DataFrame({"apples": [1], "pears": ["<b>"]})
    assert explained(own) is None
    assert shown_by_ipython(own) == {"text/plain": repr(own), "text/html": own._repr_html_()}


@pytest.mark.parametrize("n", [0, 1, N_SHOWN, N_SHOWN + 1])
def test_any_number_of_rows_is_shown(n):
    page = as_html(pl.DataFrame({"severity": ["critical"] * n, "run_s": [None] * n}))
    assert page.count('<td class="critical">') == min(n, N_SHOWN)
    assert ("the first 100 of 101 rows" in page) == (n > N_SHOWN)


@settings(deadline=None)
@given(st.text(), st.binary(max_size=40), st.floats(), st.text(min_size=1))
def test_no_text_of_a_frame_becomes_markup(text, octets, number, name):
    frame = pl.DataFrame({"a": [HOSTILE + text], "b": [octets], "c_s": [number], "d": [[text]]})
    frame = frame.with_columns(pl.lit("x" * 9_000).alias(f"_{HOSTILE}{name}"))
    page = as_html(frame, notes={"a": HOSTILE})
    assert page.count("<script>") == page.count("</script>") == 1
    assert page.count("<td") == page.count("</td>") == page.count("<th ") == 5
    assert len(page) < 20_000
    assert not {"\u202e", "\x1b"} & {*page}


def test_a_name_of_sa_that_is_wrong_suggests_one():
    with pytest.raises(AttributeError, match=r"Did you mean sa\.report\?"):
        _ = sa.repot
    with pytest.raises(AttributeError, match=r"There are .*states"):
        _ = sa.xyzzy


def test_a_report_and_a_snapshot_say_what_matters(demo_week):
    page = demo_week._repr_html_()
    assert page.index(demo_week.summary["verdict"]) < page.index("Cost: $") < page.index("1. ")
    assert repr(demo_week).split("\n")[1:-1] == demo_week.story()
    with sa.demo() as snap:
        assert "1,232 runs, 9 open, 243 failed or timed out; from 2026-03-01; lionagi" in repr(snap)


# --- the command line ------------------------------------------------------------------


def in_a_terminal(*arguments, **environment):
    """What a command prints to a terminal of 80 columns."""
    code = "import sys, pty; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    command = [sys.executable, "-c", code, sys.executable, "-m", "stateanalytics", *arguments]
    settings = {"TERM": "xterm", "COLUMNS": "80", "PYTHONPATH": str(ROOT), **environment}
    printed = subprocess.run(command, capture_output=True, env=settings, check=True, timeout=300)
    return printed.stdout.decode()


@pytest.mark.slow
def test_a_terminal_has_colours_unless_they_are_refused(tmp_path, capfd):
    store = str(write_store(tmp_path / "s.db", sessions=[session("a", status="failed")]))
    home = {"HOME": str(tmp_path), "STATEANALYTICS_CACHE": "off"}
    red = "\x1b[31mcritical\x1b[0m"
    assert red in in_a_terminal("attention", store, **home)
    assert red not in in_a_terminal("attention", store, NO_COLOR="1", **home)
    assert run(["attention", store]) == 0
    assert "\x1b" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("settings", "is_coloured"),
    [
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "true", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": ""}, False),
    ],
)
def test_colours_can_be_forced_into_a_pipe(tmp_path, monkeypatch, capsys, settings, is_coloured):
    store = str(write_store(tmp_path / "s.db", sessions=[session("a", status="failed")]))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.setenv(name, settings.get(name, ""))
    assert run(["attention", store]) == 0
    assert ("\x1b[31mcritical\x1b[0m" in capsys.readouterr().out) == is_coloured


@pytest.mark.parametrize(
    ("begin", "ends", "shown"),
    [
        ("019e461d-", ("aa01-7def-8000-00000000000a", "aa02-7def-8000-00000000000a"),
         ["019e461d-aa01", "019e461d-aa02"]),
        ("ses_e0493d", ("1e2ffexwUom0ml5VqjXE", "409ffeCClltSbnbMvXTm"), None),
        ("6009d20f-", ("3861-4c7a-8adc-3edda7d52f6e",), ["6009d20f"]),
        # Two that begin alike are shown whole in one table.
        ("6009d20f-", ("3861-4c7a-8adc-3edda7d52f6e", "3862-4c7a-8adc-3edda7d52f6e"), None),
    ],
)  # fmt: skip
def test_a_short_id_is_of_one_session_and_show_takes_it(begin, ends, shown):
    ids = [begin + end for end in ends]
    found = facts([{"entity_id": name, "name": None} for name in ids])
    short = [text.removeprefix("session:") for text in named_entities(found.entities)["entity"]]
    assert short == (shown or ids)
    assert [find_entity(found.entities, text)["entity_id"] for text in short] == ids


def test_an_action_names_a_session_without_a_name_by_an_id_of_its_own():
    item = {"entity_type": "session", "name": None, "agent": None, "project": None}
    ids = ("ses_e0493d1e2ffexwUom0ml5VqjXE", "019e461d-aa01-7def-8000-00000000000a",
           "6009d20f-3861-4c7a-8adc-3edda7d52f6e")  # fmt: skip
    names = [_whose({**item, "entity_id": name}) for name in ids]
    assert names == [f"session {ids[0]}", "session 019e461d-aa01", "session 6009d20f"]


def test_colours_change_no_width():
    frame = pl.DataFrame({"state": ["Failed", "x"], "n": [1, 20]})
    text, _ = as_table(frame, 80, is_coloured=True)
    plain = text.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert plain == as_table(frame, 80)[0]
    assert text != plain


def test_messages_come_before_ids():
    ids = {"entity", "entity_id", "id", "cluster_id", "fault_id", "thread_id"}
    for question in QUESTIONS:
        prose = [n for n, name in enumerate(question.columns) if name in PROSE - {"says"}]
        first = [n for n, name in enumerate(question.columns) if name in ids]
        if prose and first and "says" not in question.columns and question.mode != "--rows":
            assert prose[0] < first[0], question.gives


@pytest.mark.slow
def test_one_note_comes_before_a_table_and_the_others_after(tmp_path):
    store = str(ROOT / "data" / "samples" / "twelve_weeks" / "history")
    shown = in_a_terminal("attention", store, HOME=str(tmp_path), STATEANALYTICS_CACHE="off")
    before, table, after = shown.partition("severity ")
    assert table and before.count("note: ") == 1 and after.count("note: ") >= 2


def test_an_id_without_a_store_is_one_short_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["show", "8eff682e"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 160


def test_completion_is_documented_and_works(monkeypatch, capsys):
    line = 'eval "$(_STATEANALYTICS_COMPLETE=bash_source stateanalytics)"'
    assert line in (ROOT / "docs" / "commands.md").read_text("utf-8")
    monkeypatch.setenv("_STATEANALYTICS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "stateanalytics att")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out == "plain,attention\n"


def test_the_page_of_commands_has_short_paragraphs():
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    report = page.partition("\n## report\n")[2].partition("\n## ")[0]
    assert max(len(line.split()) for line in report.splitlines()) < 120


# --- in a browser ----------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.slow
def test_a_frame_is_sorted_filtered_and_copied_in_a_browser(chromium, tmp_path):
    rows = [("warning", 7200.0, "=1+1"), ("critical", 90.0, 'a "b", c'), (None, None, HOSTILE)]
    frame = pl.DataFrame(rows, ["severity", "run_s", "message"], orient="row")
    frame = frame.cast({"severity": pl.Enum(["critical", "warning"])})
    wide = frame.with_columns(pl.lit(n).alias(f"c{n}") for n in range(10))
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{as_html(frame)}{as_html(wide)}")
    page = chromium.new_page()
    page.add_init_script("window.text = ''; navigator.clipboard.writeText = async t => {text = t}")
    page.goto((tmp_path / "page.html").as_uri())
    one = page.locator(".sa-frame").first
    rows = "[...document.querySelectorAll('.sa-frame tbody')[0].rows]"
    column = f"{rows}.map(r => r.cells[1].innerText)"
    one.locator("th").nth(1).click()
    assert page.evaluate(column) == ["1 min 30 s", "2 h", ""]
    one.locator("th").nth(1).press("Enter")
    assert page.evaluate(column) == ["2 h", "1 min 30 s", ""]
    one.locator("th").nth(0).click()
    assert page.evaluate(column) == ["1 min 30 s", "2 h", ""]
    one.locator("input").fill('A "b"')
    assert one.locator("tbody tr:visible").count() == 1
    one.locator("input").fill("")
    one.get_by_text("copy as CSV").click()
    one.get_by_text("copied").wait_for()
    rows = list(csv.reader(io.StringIO(page.evaluate("text"))))
    assert rows[0] == frame.columns
    assert rows[1:3] == [["critical", "90.0", 'a "b", c'], ["warning", "7200.0", "'=1+1"]]
    other = page.locator(".sa-frame").last
    assert other.locator("th:visible").count() == N_FIRST
    other.get_by_text("all columns").click()
    assert other.locator("th:visible").count() == wide.width


def test_secrets_of_a_frame_are_masked_where_notebooks_keep_them():
    key = "sk-abcdefghijklmnopqrstuvwxyz123456"
    page = as_html(pl.DataFrame({"message": [f"export OPENAI_API_KEY={key}", "fine"]}))
    assert key not in page
    assert "1 that looked like secrets is masked" in page


def test_moments_are_copied_with_their_zone_and_heads_have_no_colour():
    at = datetime(2026, 5, 18, 6, 0, 0, 250_000, tzinfo=UTC)
    assert 'data-v="2026-05-18T06:00:00.250000Z"' in as_html(pl.DataFrame({"at": [at]}))
    text, _ = as_table(pl.DataFrame({"failed": ["failed"]}), 80, is_coloured=True)
    head, _, row = text.splitlines()
    assert ("\x1b" in head, "\x1b" in row) == (False, True)


def test_a_frame_of_a_name_or_two_that_many_have_is_no_result():
    assert explained(pl.DataFrame({"id": [1], "name": ["x"]})) is None
    assert explained(sa.states(sa.demo())) is not None


def test_no_text_between_two_dollars_becomes_a_formula(demo_week, demo):
    """JupyterLab sets it as one in every HTML, but not within these classes."""
    rows = pl.DataFrame({"template": ["$HOME is not $PATH"]})
    pages = as_html(rows), demo_week._repr_html_(), demo._repr_html_()
    for page in (*pages, demo.compare("cost_usd", by="project")._repr_html_()):
        start = page[: page.index("$")] if "$" in page else page
        assert "mathjax_ignore" in start


def test_moments_stay_on_one_line_and_a_name_is_no_verdict():
    at = datetime(2026, 5, 18, tzinfo=UTC)
    page = as_html(pl.DataFrame({"name": ["stuck"], "state": ["stuck"], "since": [at]}))
    assert '<td>stuck</td><td class="critical">stuck</td><td class="at" data-v=' in page
    text, _ = as_table(pl.DataFrame({"name": ["stuck"], "state": ["new"]}), 80, is_coloured=True)
    assert "[31mnew" in text and "[31mstuck" not in text
