"""What changed: versions, models, providers, playbooks as they are read, or as declared."""

from types import SimpleNamespace

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.charts import chart_weeks
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.windows import Window
from stateanalytics.core.words import in_one_line
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.story import _changed
from tests.frames import ago, facts, frame
from tests.test_compare import ended


@pytest.fixture(scope="module")
def weeks():
    return sa.demo()


VERSIONS = ("2.1.329", "2.1.329", "2.1.330", "2.1.329", "2.1.330", "2.1.330")


def with_versions(rows, versions=VERSIONS):
    threads = [
        {"source": "state.db", "thread_id": row["entity_id"], "program_version": version}
        for row, version in zip(rows, versions, strict=False)
    ]
    details = {"claude_sessions": frame("claude_sessions", threads)}
    return changed_facts(facts(rows), details=details)


def runs(n, **rest):
    return [ended(f"r{place}", "completed", 200 - 10 * place, **rest) for place in range(n)]


def test_a_version_is_a_change_at_its_first_run():
    [found] = sa.changes(with_versions(runs(6))).to_dicts()
    assert found == {
        "changed_at": ago(hours=181), "what": "version", "from": "2.1.329", "to": "2.1.330",
        "where": "lionagi", "n_runs_before": 2, "n_runs_after": 3, "source": "store",
    }  # fmt: skip


def test_a_model_is_a_change_where_thirty_runs_had_none_of_it():
    own = {"model": "a", "agent": "x"}
    rows = [ended(f"r{place}", "completed", 500 - 10 * place, **own) for place in range(40)]
    rows[20]["model"] = "b"  # one of two that are in use
    rows[35]["model"] = "c"
    found = sa.changes(facts(rows))
    found = found.select("what", "from", "to", "where", "n_runs_before")
    assert found.rows() == [("model", "a", "c", "x", 35)]


def test_a_few_runs_of_one_version_are_no_change(weeks):
    assert sa.changes(facts(runs(1))).is_empty()
    assert sa.changes(weeks)["to"].unique().to_list() == ["claude_code/opus"]


def test_what_is_declared_counts_the_runs_of_its_place(tmp_path):
    file = tmp_path / "changes.csv"
    file.write_text(
        "when,what,where\n\n2026-05-20T00:00Z,new prompt,x\n2026-05-21,policy,\n2026-05-22,z,none\n"
    )
    rows = [*runs(10, project="x"), ended("other", "completed", 3, project="y")]
    found = sa.changes(facts(rows), file)
    assert found.select("what", "where", "n_runs_before", "n_runs_after", "source").rows() == [
        ("new prompt", "x", 4, 6, str(file)),
        ("policy", None, 6, 5, str(file)),
        ("z", "none", 0, 0, str(file)),
    ]
    assert in_one_line(found)[1:2] == ["policy (since 2026-05-21)"]
    given = pl.read_csv(file).drop_nulls("what")
    assert sa.changes(facts(rows), given).drop("source").equals(found.drop("source"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: there is no column when"),
        ("when,what\n", "line 1: there is no column where"),
        ("when,what,where\n2026-05-01,a,b\nsoon,x,y\n", "line 3, column when, needs a moment"),
        ("when,what,where\n2026-05-01,x\n", "line 2: needed 3 columns; found 2"),
        ('when,what,where\n2026-05-01,"x,y\n', "line 2: no CSV"),
        ("when,what,where\n2026-05-01, ,y\n", "line 2, column what: it is empty"),
    ],
)
def test_a_bad_file_names_line_and_column(text, words, tmp_path):
    file = tmp_path / "changes.csv"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=words):
        sa.changes(facts(runs(2)), file)
    with pytest.raises(ArgumentError):
        sa.report(facts(runs(2)), changes=file)
    with pytest.raises(ArgumentError):
        sa.changes(facts([]), tmp_path / "none.csv")


@pytest.mark.slow
def test_hostile_words_stay_words(tmp_path):
    file = tmp_path / "changes.csv"
    file.write_text("when,what,where\n2026-05-26,<script>\x1b[2J,</script>\n")
    rows = [ended(name, "completed", 20) for name in "abc"]
    page = sa.report(facts(rows), changes=file, sections=["over_time"]).as_html()
    assert "&lt;script&gt;" in page and "<script>" not in page and "\x1b" not in page


@pytest.mark.slow
def test_a_fault_of_one_version_says_after_which_it_was_first_seen():
    rows = runs(7)
    for place in (2, 4, 6):
        rows[place] |= {"raw_status": "failed", "reason_message": "tool broke"}
    for place in (0, 5):
        rows[place] |= {"raw_status": "failed", "reason_message": "quota gone"}
    versions = [*VERSIONS[:6], VERSIONS[4]]
    found = sa.failures.faults(with_versions(rows, versions))
    found = set(found.select("seen_after", "where", "n_rows").rows())
    assert found == {("2.1.330", "only with version 2.1.330", 3), (None, None, 2)}
    # Without a version before it, nobody knows.
    only = sa.failures.faults(with_versions(rows, ["2.1.330"] * 7))
    assert only["seen_after"].null_count() == only.height


def test_the_story_says_what_changed_at_the_onset_and_only_then():
    made = SimpleNamespace(changes=sa.changes(with_versions(runs(6))))
    near, far = (_changed(Window(ago(hours=hours), ago(hours=0), ""), made) for hours in (170, 100))
    assert near == " What changed then: version 2.1.330 (lionagi, since 2026-05-19)."
    assert far == ""


@pytest.mark.slow
def test_changes_are_marked_in_every_chart_over_time(weeks):
    changes = sa.changes(weeks)
    drawn = weeks.compare("cost_usd", every="1w").chart(changes=changes)
    assert drawn.data["change"].drop_nulls().unique().str.contains("claude_code/opus").all()
    assert "strokeDash" in str(drawn.to_dict())
    numbers = weeks.weeks(8)
    charts = [chart_weeks(numbers, changes=one) for one in (None, changes)]
    plain, marked = (len(str(chart.to_dict())) for chart in charts)
    assert marked > plain
    declared = pl.DataFrame({"when": ["2026-05-19"], "what": ["new prompt"], "where": ["infra"]})
    week = sa.report(weeks, window="2026-W21", changes=declared, sections=["over_time"])
    changed = [row["changed"] for row in week.summary["over_time"]["rows"][:2]]
    assert changed == [[], ["new prompt (infra, since 2026-05-19)"]]
    assert "new prompt (infra" in week.as_html()
