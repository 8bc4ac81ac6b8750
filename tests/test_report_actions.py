"""What to do first, Markdown for a chat, and when a report is bad news for a machine."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

import stateanalytics as sa
from stateanalytics.cli import run as cli
from stateanalytics.core.facts import changed_facts
from stateanalytics.core.windows import iso_week, read_window
from stateanalytics.errors import ArgumentError
from stateanalytics.reporting.digest import MOST_BLOCKS, as_markdown, as_slack
from stateanalytics.reporting.entities import named_runs, place_of, show_command
from stateanalytics.reporting.first_screen import actions_of, front_of, opening, tripped, unassigned
from stateanalytics.reporting.material import arguments_of, clean
from stateanalytics.reporting.sections.failures import lost_of
from tests.conftest import ROOT, component
from tests.failures import run
from tests.frames import AS_OF, ago, facts
from tests.lionagi_stores import session, write_store
from tests.report_parts import material_of
from tests.samples import SAMPLES

HOSTILE = "<img src=x onerror=alert(1)> @everyone [x](http://evil.invalid) | `rm` #1 **b** <!--"


def cluster(**more):
    return {
        "cluster_id": "v1:1", "name": "boom", "code": "run.failed.exception", "state": "ongoing",
        "is_consequence": False, "n_runs": 2, "n_incidents": 2, "run_s": 60.0, "rank": 1,
        "lost": {"time": "1 min", "cost": None, "unreported": None}, "cause_group": "bug",
        **dict.fromkeys(("is_expected", "is_back", "owner", "ticket", "cost_usd", "fault_id")),
        **dict.fromkeys(("seen_after", "dimension", "value", "n_in", "n_fault")), **more,
    }  # fmt: skip


def faults_of(clusters):
    """One of each cluster without any, and of those that name one together."""
    shared = ("code", "run_s", "cost_usd", "cause_group", "lost", "n_runs", "n_incidents",
              "seen_after", "dimension", "value", "n_in", "n_fault")  # fmt: skip
    faults = {}
    for place, row in enumerate(sorted(clusters, key=lambda row: row["rank"])):
        row["fault_id"] = row["fault_id"] or f"f1:{place}"
        fault = {name: row[name] for name in ("fault_id", *shared)} | {
            "n_clusters": 0, "n_expected": 0, "title": "fault", "todo": None, "ranks": [],
        }  # fmt: skip
        fault = faults.setdefault(row["fault_id"], fault)
        fault["n_clusters"] += 1
        fault["n_expected"] += bool(row["is_expected"])
        fault["ranks"].append(row["rank"])
        if not row["is_expected"]:
            fault["todo"] = fault["todo"] or row
    return [*faults.values()]


def read_from(snap):
    return place_of(snap, sa.Policy.v1())


def item(**more):
    return {
        "entity_type": "session", "entity_id": "s", "source": "a b.db", "name": None,
        "agent": None, "project": None, "silence_s": 10.0, "when": "open for 10 s", "reason": None,
        "n_runs": 1, "n_runs_old": 0, "n_alike": 1,
        **more,
    }  # fmt: skip


def summary(clusters=(), items=(), n_old=0, **more):
    return {
        "title": "Week", "made_by": "1", "losses": [], "coverage": None,
        "window": {"label": "W21"},
        "headline": {"finding": "fine", "numbers": [number()]}, "lead": ["fine.", ""],
        "failures": {"clusters": list(clusters), "codes": [], "faults": faults_of(clusters)},
        "attention": {"open": {"n_runs": len(items), "n_runs_old": n_old, "items": list(items),
                               "is_mixed": False}},
        **more,
    }  # fmt: skip


WEEK = "--week 2026-W21"


def number(**more):
    change = {"difference": 0.1, "is_clear": True, "words": "better", **more}
    words = {"name": "completed", "title": "Completed", "shown": "5 %", "shown_interval": None}
    return {**words, "change": change}


def test_what_is_lost_comes_first_then_what_cost_most_then_what_is_open():
    told = summary(
        [cluster(rank=3, run_s=9e9), cluster(name="dear", rank=2, owner="ann", ticket="T-1"),
         cluster(name="known", rank=1, is_expected=True, run_s=1e9)],
        [item()],
        losses=[{"source": "x.db", "message": "gone"}],
    )  # fmt: skip
    found = actions_of(told, "'a b.db'", WEEK)
    what = [one["what"] for one in found]
    assert what == ["Data of 1 input is missing", "Fix “dear”", "Resume or stop session s"]
    assert found[2]["command"] == "stateanalytics show 'a b.db' s"
    assert found[2]["why"] == "open for 10 s. No reason was stored."
    assert [one["who"] for one in found] == [None, "owner: ann (T-1)", None]
    assert unassigned(found) == "No owner: actions 1 and 3."
    assert unassigned(found[::2]) == "No owner is recorded."
    assert unassigned(found[1:2]) is None
    [dashed] = actions_of(summary(items=[item(entity_id="-x")]), "'a b.db'", WEEK)
    assert dashed["command"] == "stateanalytics show -- 'a b.db' -x"
    assert actions_of(summary(), "", WEEK) == []
    [several] = actions_of(summary(items=[item(), item()]), "'a b.db'", WEEK)
    assert several["command"] == f"stateanalytics attention 'a b.db' --standing open {WEEK}"


def test_what_continues_by_itself_is_nothing_to_do_and_no_cost_is_no_loss():
    waits = item(reason={"what_to_do": "Nothing; it continues by itself.", "message": "retry"})
    assert actions_of(summary(items=[waits]), "", WEEK) == []
    [both] = actions_of(summary(items=[waits, item(name="t")]), "", WEEK)
    assert both["what"] == "Resume or stop session “t”"
    told = summary([cluster(cost_usd=0.004)])
    assert actions_of(told, "", WEEK)[0]["why"] == "2 runs, 1 min lost."
    # The verdict above counts runs, and says that none failed.
    [act] = actions_of(summary([cluster(n_runs=0)]), "", WEEK)
    assert act["why"].startswith("2 incidents without a failed run, ")


def test_losses_of_which_neither_time_nor_cost_is_recorded_are_a_sentence():
    sums = {"run_s": None, "cost_usd": None, "n_work": 1, "n_cost_unreported": 0}
    told = summary(headline={"clauses": ["fine"], "numbers": [{**number(), "of": 0}]})
    told["failures"] = {"lost": {**sums, **lost_of(sums)}}
    assert front_of(told)["lost"] == "neither time nor cost is recorded."


def test_open_work_always_has_a_place_and_names_what_is_left_over():
    dear = [cluster(name=name, rank=rank, run_s=9.0) for rank, name in enumerate("abc", 1)]
    found = actions_of(summary(dear, [item(), item()], n_old=1), "a.db", WEEK)
    what = [one["what"] for one in found]
    assert what == ["Fix “a”", "Fix “b”", "Resume or stop session s and 1 other"]
    assert found[2]["why"].endswith(" 1 is silent for longer than this window: stop it.")


def test_open_runs_of_one_request_are_as_many_as_the_number_says():
    """One answer clears both of them; the number and what to do count runs."""
    quiet = dict.fromkeys(("started_at", "last_message_at", "last_activity_at"), ago(days=2))
    rows = [
        run(name, status="running", ended_at=None, invocation_id=request, **quiet)
        for name, request in (("a", "i"), ("b", "i"), ("c", "j"))
    ]
    made = sa.report(facts(rows), shown=False)
    said = {one["name"]: one for one in made.summary["headline"]["numbers"]}["unresolved"]
    assert (said["n"], said["of"]) == (3, 3)
    [action] = made.summary["actions"]
    assert action["what"].endswith("and 2 others")
    assert "silent for longer" not in action["why"]
    # Each is judged by its own silence, whichever of a request is shown.
    for names in ("ab", "ba"):
        old, alive = rows[0] | {"entity_id": names[0]}, rows[1] | {"entity_id": names[1]}
        old |= dict.fromkeys(quiet, ago(days=9))
        [action] = sa.report(facts([old, alive]), shown=False).summary["actions"]
        assert "1 is silent for longer than this window: stop it." in action["why"]


def test_a_failure_that_was_resolved_is_reopened_for_its_owner():
    back = cluster(owner="ann", ticket="T-1", is_back=True)
    [found] = actions_of(summary([back]), "a.db", WEEK)
    assert found["who"] == "owner: ann (T-1), reopened"


@pytest.mark.parametrize(
    ("n_in", "words"),
    [(9, "All in project mobile."), (5, "Most in project mobile."), (4, "Many in project mobile.")],
)
def test_a_failure_names_where_it_is_concentrated_and_since_when_it_is_seen(n_in, words):
    where = {"dimension": "project", "value": "mobile", "n_in": n_in, "n_fault": 9}
    [found] = actions_of(summary([cluster(**where, seen_after="2.1.3")]), "a.db", WEEK)
    assert f"{words} Only with version 2.1.3" in found["why"]


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ({"agent": "ann", "project": "shop"}, "s of ann in shop"),
        ({"agent": "ann"}, "s of ann"),
        ({"project": "shop"}, "s in shop"),
        ({"name": "n"}, "“n”"),
    ],
)
def test_open_work_says_who_runs_it_and_that_is_no_owner(by, words):
    [found] = actions_of(summary(items=[item(**by)]), "a.db", WEEK)
    assert (found["what"], found["is_owned"]) == (f"Resume or stop session {words}", False)


def test_clusters_of_one_fault_are_one_thing_to_do():
    """The order and the numbers are those of the table of what to fix."""
    told = summary(
        [cluster(rank=2, fault_id="f1:a", owner="ann"), cluster(rank=3, fault_id="f1:a"),
         cluster(rank=4, name="other")],
    )  # fmt: skip
    where = {"dimension": "kind", "value": "flow", "n_in": 9, "n_fault": 9}
    told["failures"]["faults"][0] |= {"n_incidents": 9, **where}
    found = actions_of(told, "a.db", WEEK)
    assert [one["what"] for one in found] == ["Fix “fault”", "Fix “other”"]
    assert found[0]["why"].startswith("2 runs, 1 min lost. All in kind flow")
    told["failures"]["faults"][0] |= {"n_runs": 12}
    assert actions_of(told, "a.db", WEEK)[0]["why"].startswith("12 runs, 1 min lost")
    assert found[0]["command"].endswith("--show members --cluster f1:a")
    assert (found[0]["cluster_id"], found[0]["who"]) == ("v1:1", "owner: ann")


def test_what_somebody_expects_is_not_counted_among_what_to_do():
    """Nor where the rest of its fault is to be fixed."""
    rows = [cluster(rank=1, fault_id="f1:a", is_expected=True, n_incidents=90, cluster_id="v1:0"),
            cluster(rank=2, fault_id="f1:a", name="rest")]  # fmt: skip
    [found] = actions_of(summary(rows), "a.db", WEEK)
    assert (found["what"], found["cluster_id"]) == ("Fix “rest”", "v1:1")
    assert found["why"].startswith("2 runs")
    assert found["command"].endswith("--show members --cluster v1:1")
    assert actions_of(summary(rows[:1]), "a.db", WEEK) == []


@pytest.mark.parametrize(
    ("days", "verdict"),
    [
        ((1,), "Nothing to compare with: nothing was recorded in the earlier window"),
        # Ten failures after none are more, but nothing says that it was better before.
        ((1, 15), "Nothing to compare with: no run ended in the earlier window"),
        ((1, 8), "No significant change"),
        ((), None),
    ],
)
def test_the_verdict_says_where_there_is_nothing_to_compare_with(days, verdict):
    rows = [
        run(f"r{day}-{n}", reason_message="boom", ended=AS_OF - timedelta(days=day, hours=n))
        for day in days for n in range(10)
    ]  # fmt: skip
    made = sa.report(facts(rows), sections=["failures"], shown=False)
    assert made.summary["verdict"] == verdict
    if verdict and "no run ended" in verdict:
        numbers = made.summary["headline"]["numbers"]
        changes = [one["change"] for one in numbers if one["name"] != "unresolved"]
        said = {(one["words"], one["short"]) for one in changes}
        assert said == {("No run ended in the earlier window.", "")}
    if verdict:
        assert ("before" in made.summary["lost"]) == (verdict == "No significant change")


def test_what_to_do_is_in_the_order_of_faults_though_the_page_shows_few_clusters():
    """Without a code all clusters are of one group, of which three are shown."""
    texts = {
        "Process exited with code 1": 9, "3 of 5 sessions failed": 8, "exit 1": 7,
        "phantom_reaped": 6, "No space left on device": 2, "prompt is too long": 1,
    }  # fmt: skip
    rows = [
        run(f"{text}-{n}", reason_message=text, invocation_id=f"{text}-{n}", cost_usd=hours,
            ended=AS_OF - timedelta(hours=7 * hours + n))
        for text, hours in texts.items() for n in range(2)
    ]  # fmt: skip
    made = sa.report(facts(rows), sections=["failures"], shown=False)
    faults = [row["title"] for row in made.summary["failures"]["faults"]]
    first = made.summary["actions"][0]
    assert first["what"] == f"Fix “{faults[0]}”"
    assert first["link"] in {"#failures", "#cluster-5", "#cluster-6"}


def test_thresholds_come_last_and_facts_without_a_source_have_no_place():
    rows = [{"verdict": "change", "name": "slow", "recommended": "2 h", "today": "1 h",
             "in_words": "1 h (mixed; other limits apply, too) to 2 h: 1 h gives 9.5 false alarms, "
             "2 h 3; saves 40 min. Evidence: 99 invocations."}, {"verdict": "keep"}]  # fmt: skip
    found = actions_of(summary([cluster()], thresholds={"rows": rows}), "", WEEK)
    assert [one["what"] for one in found] == ["Fix “boom”", "Set slow to 2 h, from 1 h"]
    assert found[1]["why"] == "1 h gives 9.5 false alarms, 2 h 3; saves 40 min."
    assert found[0]["command"].startswith("stateanalytics failures --week 2026-W21 --show")


def test_a_thing_to_do_says_what_is_known_and_nothing_else():
    asked = "Read the message: this code covers every unforeseen exception."
    told = summary([cluster(name="no <*>: <*>: poetry (image <*>)"), cluster(name="b", run_s=None)])
    told["failures"]["codes"] = [{"code": "run.failed.exception", "what_to_do": asked}]
    first, second = actions_of(told, "a.db", WEEK)
    assert first["what"] == "Fix “no … poetry”"
    assert (first["why"], second["why"]) == ("2 runs, 1 min lost.", "2 runs.")


def test_open_work_that_is_not_shown_may_be_no_runs():
    rows = [run(f"s{n:02}", status="running", last_activity_at=ago(days=1)) for n in range(11)]
    past = dict.fromkeys(("created_at", "started_at", "last_message_at"), ago(days=5))
    rows[0] |= {"entity_type": "play", "last_activity_at": ago(days=5), **past}
    told = sa.report(facts(rows), sections=["attention"]).summary
    assert {row["entity_type"] for row in told["attention"]["open"]["items"]} == {"session"}
    assert told["actions"][0]["what"].endswith(" and 10 others, runs and other work")
    only_runs = sa.report(facts(rows[1:]), sections=["attention"]).summary
    assert only_runs["actions"][0]["what"].endswith(" and 9 others")


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_every_action_of_the_sample_is_a_command_that_works(demo_week, capsys):
    actions = demo_week.summary["actions"]
    assert [one["what"].split()[0] for one in actions] == ["Stop", "Fix", "Resume"]
    assert actions[0]["what"] == "Stop session “play” of architect in checkout, stuck in a loop"
    # Of the nine that can be acted on, one is the first action; a play and a schedule are no runs.
    assert actions[2]["what"].endswith(" and 7 others, runs and other work")
    assert actions[0]["examples"][0]["entity_id"] not in str(actions[2]["examples"])
    for one in actions:
        words = one["command"].split()[1:]
        assert cli([*words, *(["--limit", "1"] if words[0] != "show" else [])]) == 0
    assert "What to do first" in demo_week.as_html()


def test_a_text_of_a_store_makes_no_markup_in_markdown():
    told = summary([cluster(name=HOSTILE, owner=HOSTILE)], losses=[{"message": HOSTILE}])
    told["actions"] = [{"what": HOSTILE, "why": HOSTILE, "who": HOSTILE, "command": "a `` b"}]
    text = as_markdown(told)
    assert not re.search("<img|@everyone|http://", text)
    assert not re.search(r"(?<!\\)\[x\](?!\\)", text)
    assert "``` a `` b ```" in text
    links = "see www.evil.example, WWW.x.org, GH-12, #12 and some/repository#3"
    linked = as_markdown(summary([cluster(name=links)]))
    assert not re.search(r"(?i)www\.|gh-|#\d", linked)
    # A row of a table keeps its cells.
    rows = [line for line in text.splitlines() if line.startswith("| ") and "img" in line]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)


def test_the_digest_of_the_sample_is_a_screen(demo_week):
    text = demo_week.as_markdown()
    assert text.startswith("## Weekly report: week 2026-W21")
    # Commands are to be pasted, not read.
    assert len(re.sub(r"`[^`]*`", "", text).replace("|", " ").split()) < 390
    assert all(words in text for words in ("| Completed | 57 % |", "16 more in the whole report"))
    assert "<*>" not in demo_week.summary["failures"]["finding"]
    assert "\\*\\>" not in text, "a gap is said as one"


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        (summary([cluster(state="new")]), "new-critical", ["1 failure new, first: boom"]),
        (summary([cluster(is_back=True)]), "new-critical",
         ["1 failure reappeared after being resolved"]),
        (summary([cluster(state="new", is_expected=True)]), "new-critical", []),
        (summary([cluster(state="growing")]), "regression", ["more of boom: 2 incidents"]),
        (summary(), "regression", []),
        (summary(headline={"numbers": [number(difference=-0.1, words="down")]}), "regression",
         ["Completed is worse: down"]),
        (summary(headline={"numbers": [number(difference=-0.1, is_clear=False)]}), "regression",
         []),
        (summary(losses=[{"message": "gone"}]), "coverage", ["1 loss of data, first: gone"]),
        (summary(coverage={"n_failed": 0, "n_stale": 1, "in_words": "one is stale"}), "coverage",
         ["one is stale"]),
        (summary(coverage={"n_failed": 0, "n_stale": 0, "in_words": "fine"}), "coverage", []),
    ],
)  # fmt: skip
def test_bad_news_is_told_and_nothing_else(told, kind, words):
    found = tripped(told, [kind])
    assert len(found) == len(words)
    assert all(sentence.startswith(begin) for sentence, begin in zip(found, words, strict=True))


def test_what_is_no_tripwire_is_one_line():
    with pytest.raises(ArgumentError, match="has no condition 'regresion'") as raised:
        tripped(summary(), ["regresion"])
    assert "regression" in raised.value.hint


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_the_command_fails_on_what_it_is_asked_to(tmp_path, capsys):
    store = str(SAMPLES / "state.db")
    options = ["--week", "2026-W21", "--sections", "failures", "-o", str(tmp_path / "w.md")]
    assert cli(["report", store, *options, "--fail-on", "coverage"]) == 0
    told = capsys.readouterr()
    assert "1. Fix " in told.out
    assert cli(["report", store, *options, "--fail-on", "new-critical|coverage"]) == 3
    assert "failed on 15 failures new" in capsys.readouterr().err
    assert (tmp_path / "w.md").read_text("utf-8").startswith("## ")
    assert cli(["report", store, *options, "--fail-on", "moon"]) == 2
    assert "no condition 'moon'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("read_once")
def test_a_report_is_written_in_the_form_that_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["report", str(SAMPLES / "state.db"), "--sections", "headline"]
    for options, name, begin in [
        (["--format", "md", "-o", "week.md"], "week.md", "## "),
        (["--format", "md", "--json"], "week.json", "{"),
        (["--brief"], "week.html", "<!DOCTYPE html>"),
        (["--full", "-o", "full.html"], "full.html", "<!DOCTYPE html>"),
    ]:
        assert cli([*asked, *options]) == 0
        assert (tmp_path / name).read_text("utf-8").lstrip().startswith(begin)
    assert "<style" not in (tmp_path / "week.html").read_text("utf-8")
    assert "<details>" not in (tmp_path / "full.html").read_text("utf-8")
    capsys.readouterr()
    for form, begin in {"md": "## ", "json": "{", "slack": "{"}.items():
        written = set(tmp_path.iterdir())
        assert cli([*asked, "--format", form]) == 0
        told = capsys.readouterr()
        assert told.out.startswith(begin)
        assert " ended runs completed (" in told.err
        assert set(tmp_path.iterdir()) == written
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout.isatty", lambda: True)
        assert cli([*asked, "--format", "slack"]) == 0
    assert capsys.readouterr().out.startswith("wrote week.slack.json (")
    for options, words in [
        (["--format", "md", "-o", "week.html"], "The suffix of 'week.html' means html"),
        (["--full", "--format", "json"], "--full is for the HTML page only"),
        (["-o", "week.pdf"], "has no known suffix"),
    ]:
        assert cli([*asked, *options]) == 2
        assert words in capsys.readouterr().err


def test_the_terminal_begins_with_the_verdict_of_the_page(demo_week):
    lead = opening(demo_week.summary)
    # No part of the change is clear, so what most runs failed by is named.
    assert lead.startswith("146 of 255 ended runs completed (57 %). No significant change.")
    explained = demo_week.summary["story"]["explained"]
    assert lead.endswith(explained)
    assert explained.startswith("Why: 30 of 93 failed or timed-out runs")
    assert sum(map(int, re.findall(r"(?:: |, | and )(\d+) ", explained))) == 93
    assert repr(demo_week).split("\n")[1:4:2] == [lead, demo_week.story()[2]]
    assert f"<strong>{demo_week.summary['lead'][0]}</strong>" in demo_week.as_html()


def test_the_brief_fits_an_email(demo_week):
    text = demo_week.as_email()
    assert len(text.encode()) <= 120_000
    assert all(word not in text for word in ("<script", "<style", "<svg", "<details"))


@pytest.mark.slow
def test_a_report_of_few_sections_says_what_it_can(demo):
    made = sa.report(demo, window="2026-W21", sections=["headline"])
    assert made.summary["actions"] == []
    assert made.as_markdown()
    assert made.tripped("new-critical", "coverage") == []


def texts_of(blocks):
    for block in blocks:
        texts = [block["text"]] if "text" in block else []
        yield from ((block["type"], text) for text in texts)
        for parts in ("fields", "elements"):
            assert 1 <= len(block.get(parts, "x")) <= 10
            yield from ((parts, text) for text in block.get(parts, ()))


def assert_slack_takes(posted):
    """The limits of https://docs.slack.dev/reference/block-kit/blocks."""
    longest = {"header": 150, "section": 3000, "fields": 2000, "elements": 2000}
    assert len(posted["blocks"]) <= 50
    for kind, text in texts_of(posted["blocks"]):
        assert 1 <= len(text["text"]) <= longest[kind], text
        assert text["type"] == "plain_text"
        assert text["emoji"] is False


def test_slack_gets_blocks_within_its_limits(demo_week):
    posted = json.loads(demo_week.as_slack())
    assert_slack_takes(posted)
    words = "\n".join(text["text"] for _, text in texts_of(posted["blocks"]))
    assert opening(demo_week.summary) in words
    assert demo_week.summary["unassigned"] in words
    assert all(one["command"] in words for one in demo_week.summary["actions"])
    assert all(one["shown"] in words for one in demo_week.summary["headline"]["numbers"])


def test_hostile_and_endless_texts_fit_into_slack_and_mention_nobody():
    long = f"<!channel> {HOSTILE} " + "x" * 5000
    action = {"what": long, "who": long, "why": long, "command": long}
    given = summary([cluster(name=long, owner=long)] * 9, losses=[{"message": long}])
    news = [{"n": 1, "title": "New", "names": [{"name": long}], "n_more": 2}]
    told = as_slack({**given, "title": long, "actions": [action] * 60, "news": news})
    assert_slack_takes(told)
    assert len(told["blocks"]) == MOST_BLOCKS
    assert "more in the whole report" in told["blocks"][-1]["text"]["text"]
    assert "<" not in told["text"]
    assert "*" not in told["text"]
    assert not re.search(r"@\w|://", json.dumps(told))


@pytest.mark.slow
def test_slack_has_a_format_and_json_beside_it_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = str((SAMPLES / "state.db").absolute())
    assert cli(["report", store, "--format", "slack", "--json"]) == 2
    assert "remove --json" in capsys.readouterr().err
    arguments = ("--format", "slack", "--sections", "attention")
    assert cli(["report", store, *arguments]) == 0
    assert_slack_takes(json.loads(capsys.readouterr().out))


def test_an_alarm_is_not_put_out_by_leaving_its_section_out(capsys, tmp_path):
    arguments = ["report", str(SAMPLES / "state.db"), "--sections", "attention", "--fail-on"]
    assert cli([*arguments, "new-critical", "-o", str(tmp_path / "week.html")]) == 2
    assert "--sections attention,failures" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_week_that_the_clock_would_not_call_the_last_is_told(capsys, tmp_path):
    arguments = ["report", str(SAMPLES / "state.db"), "--sections", "attention"]
    assert cli([*arguments, "--week", "last-week", "-o", str(tmp_path / "week.json")]) == 0
    said = capsys.readouterr().err
    assert "last-week is week 2026-W21" in said
    assert f"--week {iso_week(datetime.now(UTC).date() - timedelta(days=7))}" in said


def test_the_action_and_the_script_ask_for_what_there_is():
    action = component("yaml").safe_load((ROOT / "action.yml").read_text("utf-8"))
    script = (ROOT / "deploy" / "weekly.sh").read_text("utf-8")
    subprocess.run(["sh", "-n", ROOT / "deploy" / "weekly.sh"], check=True)
    steps = action["runs"]["steps"]
    assert not any("${{" in step.get("run", "") for step in steps), "an input would be run"
    used = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"[^@]+@[0-9a-f]{40}", action) for action in used)
    given = {"AS_OF", "GH_TOKEN", "STATEANALYTICS"}.union(*(step.get("env", {}) for step in steps))
    assert {*re.findall(r"\$\{?([A-Z_]+)", script)} <= given


@pytest.mark.slow
def test_the_script_keeps_the_digest_on_one_issue(tmp_path):
    """With a `gh` that writes down what it is asked."""
    said, gh = tmp_path / "said", tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(f'#!/bin/sh\necho "$@" >> {said}\n[ "$2" = list ] && cat {tmp_path}/number\n:\n')
    gh.chmod(0o755)
    asked = {
        **os.environ, "PATH": f"{gh.parent}:{os.environ['PATH']}", "ISSUE": "Agents",
        "HISTORY": str(tmp_path / "history"), "OUT": str(tmp_path / "out"), "WEEK": "2026-W21",
        "FAIL_ON": "new-critical", "STATEANALYTICS": f"{sys.executable} -m stateanalytics",
    }  # fmt: skip
    command = ["sh", ROOT / "deploy" / "weekly.sh", SAMPLES / "state.db"]
    for number, verb in (("", "create --title Agents"), ("7", "edit 7")):
        (tmp_path / "number").write_text(number)
        code = subprocess.run(command, env=asked, cwd=ROOT, timeout=300, check=False).returncode
        assert code == 3, "bad news"
        assert f"issue {verb} --body-file" in said.read_text()
    assert (tmp_path / "out" / "week.html").stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new\nline", "a'b $(id) `id`", "\x1b[31mred", "x\u202ey", "ü 🦜"])
def test_a_command_can_be_pasted_whatever_the_path(tmp_path, name):
    """As bash takes it apart, it names the store, and runs nothing else."""
    folder = tmp_path / name
    folder.mkdir()
    store = write_store(folder / "state.db", sessions=[session("s1", status="failed")])
    snap = sa.read(store, progress=False)
    commands = [clean(read_from(snap), secrets=True)[0]]
    row = snap.entities.row(0, named=True)
    commands.append(clean(show_command(row, read_from(snap)), secrets=True)[0])
    for command, words in zip(commands, ([], ["stateanalytics", "show"]), strict=True):
        asked = ["bash", "-c", f"printf '%s\\0' {command}"]
        said = subprocess.run(asked, capture_output=True, check=True).stdout.decode().split("\0")
        assert said[: len(words) + 1] == [*words, str(store)]


def test_the_home_directory_in_a_command_is_one_that_works(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b").mkdir()
    store = write_store(tmp_path / "a b" / "state.db", sessions=[session("s1")])
    with sa.read(store, progress=False) as snap:
        assert read_from(snap) == "~/'a b/state.db'"
    with sa.read("~/a b/state.db", progress=False) as snap:
        assert snap.entities.height == 1


def test_commands_name_what_was_read_and_the_window(monkeypatch):
    monkeypatch.chdir(SAMPLES)
    with sa.read("twelve_weeks/history", progress=False) as snap:
        assert read_from(snap) == "twelve_weeks/history"
        several = changed_facts(snap, sources=_sources("state.db", "a b/state.db"))
        assert read_from(several) == "twelve_weeks/history 'a b/state.db'"
        assert snap.named == ("twelve_weeks/history",)
        many = _sources("state.db", *(f"host-{n}/state.db" for n in range(20)))
        assert read_from(changed_facts(snap, sources=many, named=("host-*/",))) == "'host-*/'"
        for named in (("x" * 2000,), ()):
            assert read_from(changed_facts(snap, sources=many, named=named)).endswith("19/state.db")
        assert read_from(changed_facts(snap, sources=many.clear())) == ""
    as_of = datetime(2026, 5, 25, 6, tzinfo=UTC)
    windows = {
        "2026-W21": "--week 2026-W21",
        None: "--since 2026-05-18T06:00:00Z",
        ("2026-05-04", "2026-05-06"): "--since 2026-05-04T00:00:00Z --until 2026-05-06T00:00:00Z",
    }
    for asked, words in windows.items():
        assert arguments_of(read_window(asked, as_of=as_of), as_of) == words


def test_a_command_on_one_run_of_many_stores_names_its_own():
    many = [{"source": f"host-{n}/state.db"} for n in range(20)]
    run = {"entity_type": "session", "entity_id": "a", "created_at": AS_OF, "raw_status": "running"}
    read = facts([{**run, "source": "host-7/state.db"}], sources=many)
    material = material_of(changed_facts(read, named=("host-*/",)), None)
    [told] = named_runs({"runs": [{"entity_id": "a"}]}, material)
    at = "--as-of 2026-05-27T00:00:00Z"
    assert told["command"] == f"stateanalytics show {at} host-7/state.db a"


def test_commands_read_as_the_report_did(monkeypatch, capsys):
    """At the same instant, and under the same policy."""
    monkeypatch.chdir(SAMPLES)
    with sa.read("state.db", as_of="2026-05-20", progress=False) as snap:
        whole = sa.report(snap, policy=sa.Policy.operator(), sections=["attention", "failures"])
        own = sa.Policy.v1().replace(idle_after_s=1)
        assert place_of(snap, own).endswith(" --policy policy.toml state.db")
        assert place_of(snap, sa.Policy.v1()) == "--as-of 2026-05-20T00:00:00Z state.db"
    at = "--as-of 2026-05-20T00:00:00Z --policy operator state.db"
    first = whole.summary["actions"][0]["command"]
    since = "--since 2026-05-13T00:00:00Z"
    assert first.startswith(f"stateanalytics failures {at} {since} --show members")
    assert cli([*first.split()[1:], "-f", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 14
    assert all(
        row["command"].startswith(f"stateanalytics show {at} ") for row in whole.summary["runs"]
    )
    known = sa.report(snap, as_known_at="2026-05-19", sections=["headline"]).summary["place"]
    assert known == "--as-of 2026-05-19T00:00:00Z state.db"


def _sources(archived: str, *read: str) -> pl.DataFrame:
    """An archived source, and some that were read themselves."""
    looked_at = [datetime(2026, 5, 25, tzinfo=UTC), *[None] * len(read)]
    return pl.DataFrame({"source": [archived, *read], "looked_at": looked_at})
