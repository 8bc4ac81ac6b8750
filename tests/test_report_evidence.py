"""Next to each thing to do, folded: what two examples of it last said and called."""

import html
import re
from dataclasses import replace
from datetime import timedelta

import pytest

import stateanalytics as sa
from stateanalytics.core.facts import changed_facts
from stateanalytics.reporting.evidence import LONGEST_STEP
from tests.samples import SAMPLES
from tests.transcripts import begun_transcript, facts_of, transcript_maker

SECRET = "password=hunter2hunter2"


@pytest.fixture(scope="module")
def week():
    with sa.read(SAMPLES / "claude_code", progress=False) as snap:
        yield sa.report(snap, shown=False)


def test_each_thing_to_do_has_the_last_steps_of_two_examples(week):
    failed, hard, waits = week.summary["actions"]
    [one] = waits["examples"]
    assert one["rows"][0]["words"] == "message · user: Choose a database"
    assert one["stop"] == "Esc in its terminal"
    assert [len(action["examples"]) for action in (hard, failed)] == [2, 1]
    assert "Bash pytest, 31 s: failed, exit 1" in hard["examples"][0]["rows"][1]["words"]
    assert failed["examples"][0]["rows"][-1]["words"].startswith("Failed: You've hit")
    # The words of the page, and not of what the status was read from.
    assert hard["examples"][0]["rows"][-1]["words"] == "Completed"
    assert one["rows"][-1]["words"] == "AskUserQuestion: no result"
    assert all(example["stop"] is None for example in hard["examples"] + failed["examples"])


@pytest.mark.slow
def test_they_are_folded_and_each_run_leads_to_its_row(week):
    page = week.as_html()
    [actions] = re.findall(r'<ol class="actions">.*?\n</li>\n</ol>\n<p', page, re.DOTALL)
    assert actions.count("<details>") == 3
    for action in week.summary["actions"]:
        for example in action["examples"]:
            assert re.search(
                rf'<a href="#run-\d+"><code class="id">{example["entity_id"]}', actions
            )
            assert example["rows"][-1]["words"][:11] in actions
    assert "Choose a database" not in week.as_markdown() + week.as_slack() + week.as_email()


@pytest.mark.slow
def test_their_texts_are_escaped_masked_and_cut(tmp_path):
    log = begun_transcript()
    text = f"{SECRET}\n\n<script>alert(1)</script> {'x' * 9999}"
    log.answer(transcript_maker.say(text), stop="end_turn", usage=(9, 0, 0, 9))
    log.user(text, 9.0)
    read = facts_of(tmp_path, log)
    late = changed_facts(read, as_of=read.as_of + timedelta(days=2))
    made = sa.report(late, shown=False)
    [action] = made.summary["actions"]
    [example] = action["examples"]
    said = [row["words"] for row in example["rows"] if "script" in row["words"]]
    assert said
    assert all(len(words) <= LONGEST_STEP and "\n" not in words for words in said)
    assert "hunter2" not in made.as_json()
    assert "<script" not in made.as_html()


@pytest.mark.slow
def test_without_anything_to_do_nothing_is_looked_up(demo):
    assert sa.report(demo, window="2020-W01", shown=False).summary["actions"] == []


def test_a_command_in_a_table_is_one_line_with_the_whole_as_its_tooltip(week):
    page = week.as_html()
    cut = re.findall(r'<code class="cut" title="([^"]*)">([^<]*)</code>', page)
    shown = [row["command"] for row in (*week.summary["runs"], *week.summary["inside"]["sessions"])]
    assert {html.unescape(title) for title, _ in cut} >= set(shown)
    assert all(title == text for title, text in cut)
    assert '<td class="text"><code>' not in page
    hostile = replace(week, program='x" onmouseover="alert(1)').as_html()
    assert 'title="x&#34; onmouseover=&#34;alert(1) show' in hostile
