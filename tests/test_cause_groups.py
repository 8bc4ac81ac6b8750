"""What kind of thing went wrong, which clusters may have one cause, and silent failures."""

import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.failures import cause_groups
from stateanalytics.failures.associations import relate
from stateanalytics.failures.cause_groups import RULES, TITLES, add_cause_groups, proposed_cause
from stateanalytics.failures.fault_table import add_faults
from stateanalytics.failures.templates import mine_templates
from tests.conftest import SHARED
from tests.examples import a_few
from tests.failures import run
from tests.frames import WHOSE, ago, facts
from tests.template_scores import CauseScores, cause_scores

LABELLED = SHARED / "agent_failures_2" / "messages.jsonl"
SEVERAL = [
    ("API Error: 429 slow down", "provider_limit"),
    ("You exceeded your current quota, check your plan", "provider_limit"),
    *(("529 Overloaded", "provider_down"), ("invalid x-api-key", "auth")),
    ("getaddrinfo ENOTFOUND <*>", "network"),
    ("httpx.ReadTimeout, then app.ProviderError in call", "network"),
    ("prompt is too long: <*> tokens", "context_length"),
    ("output blocked by content filtering policy", "content_filter"),
    ("No such tool available: <*>", "bad_tool_call"),
    ("FAILED <*> - KeyError: '<*>'", "test_failed"),  # a test, not its exception
    ("Failed to create worktree for <*>", "orchestration"),  # failed is no FAILED
    ("requests that failed: <*>", None),  # requests are no tests
    ("error TS2322: Type '<*>' is not assignable", "type_check"),
    ("Incompatible types in <*>:<*>: error: x [assignment]", "type_check"),
    ("make: *** No rule to make target '<*>'", "build_failed"),
    *(("Flow timed out after <*>", "timeout"), ("process <*> killed by SIGKILL", "killed")),
    ("OSError: [Errno 28] No space left on device", "disk_full"),
    ("bash: <*>: Permission denied", "permission"),
    ("The user rejected permission to run gradle", "permission"),  # no build
    ("Claude Code said: Invalid API key (api_error_status <*>)", "auth"),
    ("git@<*>: Permission denied (publickey).", "auth"),  # a key, no file
    ("fatal: not a git repository", "git_state"),
    ("CONFLICT (content): Merge conflict in <*>", "merge_conflict"),
    ("Missing required artifact: <*>", "artifact_missing"),
    ("ls: <*>: Aucun fichier ou dossier de ce nom", "missing_file"),
    *(("KeyError: '<*>' in load (store.py)", "bug"), ("my.pkg.OddError: <*>", "bug")),
    *(("Command failed with exit code 1: <*>", "command_failed"), ("hello", None), ("", None)),
    ("\u202e\x00x" * 10, None),
]


# Kinds of failures in the words of tools, with values of our own; no group: it says no cause.
KINDS = Path(__file__).parent / "data" / "cause_kinds.csv"


def test_kinds_of_failures_have_a_cause_in_the_words_of_any_tool():
    kinds = pl.read_csv(KINDS).with_columns(code=pl.lit(None, pl.String))
    found = add_cause_groups(kinds.rename({"cause_group": "right"}))
    wrong = found.filter(pl.col("right").ne_missing(pl.col("cause_group")))
    assert wrong.select("template", "right", "cause_group").rows() == []


def grouped(template, code=None):
    one = pl.DataFrame({"code": [code], "template": [template]}, schema_overrides=_TEXT)
    return add_cause_groups(one)["cause_group"].item()


_TEXT = {"code": pl.String, "template": pl.String}


@pytest.mark.slow
@pytest.mark.parametrize(("template", "group"), a_few(SEVERAL, 10))
def test_a_template_tells_its_cause(template, group):
    assert grouped(template) == group


def test_the_message_says_more_than_the_code_and_the_code_more_than_nothing():
    assert grouped("disk full", "run.timed_out.deadline") == "disk_full"
    assert grouped("hello", "run.timed_out.deadline") == "timeout"
    assert grouped(None, "run.failed.provider_quota") == "provider_limit"
    assert grouped(None, None) is None


ENDED = "CLI subprocess exited with code 1 and wrote nothing to stderr"


@pytest.mark.parametrize(
    "said, group",
    [
        ("ProviderQuotaError: Claude Code said: API Error: 429 slow down; ", "provider_limit"),
        ("ProviderContextError: Claude Code said: Prompt is too long; ", "context_length"),
        ("ProviderError: Claude Code said: <*>'s safeguards flagged this; ", "content_filter"),
        ("ProviderError: Claude Code said: something odd; ", "command_failed"),
        ("Step failed: ", "command_failed"),
        ("[RuntimeError] ", "command_failed"),
        ("", "command_failed"),
    ],
)
def test_what_a_client_said_is_the_cause_and_not_that_its_process_then_ended(said, group):
    assert grouped(said + ENDED) == group
    assert grouped("CLI subprocess exited with code 1: 429 rate limit exceeded") == "provider_limit"


@pytest.mark.slow
@pytest.mark.parametrize(
    "template, group",
    [
        ("the promised file was never written", "artifact_missing"),
        ("memory was exhausted", "out_of_memory"),
        ("branch and worktree exist already", "git_state"),
        ("something went wrong", None),
        ("model <*> refuses images", None),
    ],
)
def test_a_cause_is_proposed_where_the_table_is_silent_and_a_text_is_near(template, group):
    texts = {"code": None, "template": template, "rule_name": None}
    found = add_faults(add_cause_groups(frame_of(texts)))
    assert found.select("cause_group", "cause_proposed").row(0) == (None, group)
    assert found["title"].item().startswith("Perhaps ") == (group is not None)
    # The id does not depend on it, nor does what a person or a rule of yours has named.
    named = add_faults(add_cause_groups(frame_of(texts | {"rule_name": "mine"})))
    assert named["cause_proposed"].item() is None
    known = add_faults(frame_of(texts | {"cause_group": "bug"}))
    assert known["cause_proposed"].item() is None


def frame_of(row):
    return pl.DataFrame([row], schema_overrides=dict.fromkeys(row, pl.String))


@settings(deadline=None)
@given(st.text(max_size=400))
def test_any_text_has_a_known_group_or_none_proposed(text):
    assert proposed_cause(text) in {None, *TITLES}
    if text.isascii():
        assert proposed_cause(text) == proposed_cause(text.upper())


def hidden(patterns, text):
    """The table without each alternative of a message that fits the text."""
    kept = [[part for part in parts if not part.search(text)] for parts in patterns]
    messages = ["|".join(part.pattern for part in parts) for parts in kept]
    pairs = zip(RULES, messages, strict=True)
    return tuple(rule._replace(message=message) for rule, message in pairs)


def alternatives(pattern):
    """The parts of a regular expression between its outermost bars."""
    parts, depth, is_class, last = [""], 0, False, ""
    for char in pattern:
        if last != "\\":
            is_class = char != "]" if is_class else char == "["
            depth += 0 if is_class else (char == "(") - (char == ")")
        if char == "|" and not depth and not is_class and last != "\\":
            parts.append("")
        else:
            parts[-1] += char
        last = "" if last == "\\" else char
    return parts


def test_alternatives_of_a_pattern_by_hand():
    assert alternatives(r"a(?:b|c)|[|]d|\||") == ["a(?:b|c)", "[|]d", r"\|", ""]


@pytest.mark.slow
@pytest.mark.skipif(not LABELLED.exists(), reason="the second corpus is not here")
def test_proposals_are_right_where_all_rules_that_fit_are_hidden(monkeypatch):
    corpus = pl.read_ndjson(LABELLED, infer_schema_length=None)
    mined = corpus.with_columns(mined=mine_templates(corpus["plain"])["template"])
    texts = mined.group_by("group").agg(pl.col("mined").mode().sort().first(), pl.first("causes"))
    parts = [filter(None, alternatives(rule.message)) for rule in RULES]
    patterns = [[re.compile(part, re.I) for part in rule] for rule in parts]
    proposed = []
    for text, causes in texts.sort("group").select("mined", "causes").rows():
        monkeypatch.setattr(cause_groups, "RULES", hidden(patterns, text))
        cause_groups._own_grams.cache_clear()
        proposed.append((proposed_cause.__wrapped__(text), causes))
    cause_groups._own_grams.cache_clear()
    said = [cause in causes for cause, causes in proposed if cause]
    assert len(said) >= 25
    assert sum(said) / len(said) >= 0.9


def test_every_group_has_one_title_and_every_row_looks_somewhere():
    assert {(rule.cause_group, rule.title) for rule in RULES} == set(TITLES.items())
    assert all(rule.code or rule.message for rule in RULES)


INDEPENDENT = SHARED / "agent_failures" / "messages.jsonl"


@pytest.mark.slow
@pytest.mark.skipif(not INDEPENDENT.exists(), reason="the independent corpus is not here")
def test_causes_of_an_independent_corpus_are_grouped_and_related():
    corpus = pl.read_ndjson(INDEPENDENT, infer_schema_length=None)
    found = (
        corpus.with_columns(template=mine_templates(corpus["message"])["template"])
        .group_by("template_id", "cause")
        .agg(pl.col("template").mode().sort().first())
        .sort("template_id")
        .with_columns(code=pl.lit(None, pl.String), systems=pl.lit("x"), cluster_id="template_id")
        .pipe(add_cause_groups)
    )
    scores = cause_scores(found, relate(found, n=1))
    assert scores.pair_f1 >= 0.6
    assert scores.precision_at_1 >= 0.75


def test_scores_of_causes_by_hand():
    # One true pair of two is grouped, and no false one; the first related are right of four.
    groups, causes = ["limit", "limit", None, "full", None], ["x", "x", "y", "y", "alone"]
    labels = pl.DataFrame({"cluster_id": range(1, 6), "cause_group": groups, "cause": causes})
    related = pl.DataFrame({"cluster_id": [1, 2, 3, 5], "related_id": [2, 1, 1, 4]})
    assert cause_scores(labels, related) == CauseScores(pair_f1=2 / 3, precision_at_1=0.5)


def cluster(name, template, group=None, systems="a"):
    return {"cluster_id": name, "code": None, "template": template, "systems": systems,
            "cause_group": group}  # fmt: skip


def related_ids(*ranked, n=5):
    types = {"cause_group": pl.String, "code": pl.String}
    frame = pl.DataFrame(list(ranked), schema_overrides=types)
    return relate(frame, n=n).select("cluster_id", "related_id").rows()


def test_clusters_of_one_group_are_related_across_systems():
    limit = cluster("l", "HTTP 429", "provider_limit")
    quota = cluster("q", "quota used up", "provider_limit", "b")
    assert related_ids(limit, quota, cluster("x", "zzz")) == [("l", "q"), ("q", "l")]


def test_texts_that_look_alike_are_related_without_a_group():
    alike = [cluster("a", "the ledger of tenant <*> is sealed"),
             cluster("b", "the ledger of invoice <*> is sealed"),
             cluster("c", "nothing like it")]  # fmt: skip
    assert related_ids(*alike) == [("a", "b"), ("b", "a")]


def test_an_empty_template_is_like_nothing():
    assert related_ids(cluster("a", ""), cluster("b", "x"), cluster("c", "the ledger")) == []


def test_at_most_n_are_suggested_and_never_itself():
    many = [cluster(f"c{i}", f"error {'abc'[i % 3]}", "network") for i in range(9)]
    found = related_ids(*many, n=2)
    assert len(found) == 18
    assert all(one != other for one, other in found)


# --- failures without a message ---------------------------------------------------------


def step(whose, minutes, kind="message", role="assistant", name=None, is_activity=True):
    return {**WHOSE, "entity_id": whose, "at": ago(days=1, minutes=minutes), "seq": -minutes,
            "kind": kind, "role": role, "name": name, "is_activity": is_activity}  # fmt: skip


def silent(*events, **rest):
    return sa.failures.members(
        facts([run("a", **rest), run("b", reason_message="boom")], events=list(events))
    ).filter(entity_id="a")["template"].item()  # fmt: skip


@pytest.mark.slow
def test_a_failure_without_a_message_is_named_by_what_it_did_last():
    steps = [step("a", 9), step("a", 8), step("a", 5, role="action", name="Bash"),
             step("a", 1, "signal.RunFailed", None)]  # fmt: skip
    said = "(no message; last Bash: message of assistant, message of action, signal.RunFailed)"
    assert silent(*steps) == silent(*reversed(steps)) == silent(*steps, reason_message=" ") == said


@pytest.mark.slow
@pytest.mark.parametrize("message", ["\x1b[0m", "\x00", "\u200b", " \x1b[1m\t\x1b[0m "])
def test_a_message_of_nothing_that_is_seen_is_no_message(message):
    last = "(no message; last Bash: message of action)"
    assert silent(step("a", 1, role="action", name="Bash"), reason_message=message) == last
    assert silent(reason_message=message) is None


def test_what_came_after_or_was_no_activity_or_another_run_is_not_told():
    assert silent(step("a", -1), step("a", 2, is_activity=False), step("b", 2)) is None
    assert silent(step("a", 2), reason_message="boom") == "boom"


def test_silent_failures_of_one_end_are_one_cluster_of_their_code():
    rows = [run(f"s{i}", reason_code="run.timed_out.deadline") for i in range(4)]
    ends = ["Bash", "Bash", "Read", "Bash"]
    events = [step(f"s{i}", 1, "message", "action", tool) for i, tool in enumerate(ends)]
    found = sa.failures.clusters(facts(rows, events=events))
    assert dict(found.select("template", "n_rows").rows()) == {
        "(no message; last Bash: message of action)": 3,
        "(no message; last Read: message of action)": 1,
    }
    assert found["cause_group"].unique().to_list() == ["timeout"]


def test_a_step_that_is_named_by_an_id_makes_no_cluster_of_its_own():
    rows = [run(f"s{i}") for i in range(4)]
    events = [step(f"s{i}", 1, "signal", None, str(UUID(int=i))) for i in range(4)]
    found = sa.failures.clusters(facts(rows, events=events))
    assert found.select("template", "n_rows").rows() == [("(no message; last <UUID>: signal)", 4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\nb\x1b[31m", "a b"), ("Bash", "Bash"), ("x" * 200, "x" * 200), ("\x1b[0m", None)],
)
def test_the_name_of_a_step_is_one_clean_line(name, shown):
    tool = "" if shown is None else f"{shown}: "
    assert silent(step("a", 1, name=name)) == f"(no message; last {tool}message of assistant)"
    assert len(silent(step("a", 1, name="tool " * 9_000))) < 4_000


def test_steps_at_the_moment_of_the_failure_count():
    [row] = [run("a", ended=ago(days=1) + timedelta(seconds=0))]
    found = sa.failures.members(facts([row], events=[step("a", 0, name="Edit")]))
    assert found["template"].item() == "(no message; last Edit: message of assistant)"
