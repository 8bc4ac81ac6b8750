"""What one person would fix is one fault, and its title is for people."""

import json
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateanalytics as sa
from stateanalytics.errors import MissingColumnsError
from stateanalytics.failures.cause_groups import TITLES, add_cause_groups
from stateanalytics.failures.fault_table import (
    LONGEST_TITLE,
    RULES,
    add_faults,
    in_common,
    innermost,
    is_consequence,
    title_of,
)
from tests.conftest import SHARED
from tests.failures import run, store
from tests.frames import ago

NEEDED = ["code", "template", "cause_group", "rule_name"]


def titled(*templates, **columns):
    rows = [{"code": None, "rule_name": None, **columns, "template": text} for text in templates]
    found = pl.DataFrame(rows, schema_overrides=dict.fromkeys(NEEDED, pl.String))
    return add_faults(found if "cause_group" in found.columns else add_cause_groups(found))


def fault_ids(*templates, **columns):
    return titled(*templates, **columns)["fault_id"].to_list()


INSIDE = [
    ('API Error: 400 {"type":"error","error":{"message":"prompt is too long"}}',
     "prompt is too long"),
    ("Error code: 401 - {'error': {'message': 'Bad key, isn\\'t it', 'code': 'x'}}",
     "Bad key, isn't it"),
    # Escaped, two deep.
    (r'litellm.BadRequestError: AnthropicException - {"message":"{\"error\":{\"message\":'
     r'\"too many tokens\"}}"}', "too many tokens"),
    ('API Error: 400 {"message":"prompt is too lo', "prompt is too lo"),
    ("Fehler: 接続が拒否されました / connection refused",
     "Fehler: 接続が拒否されました / connection refused"),
    ("ProviderError: API Error: 503 upstream connect error", "upstream connect error"),
    ("unexpected status 401 Unauthorized: Missing bearer, url: https://<*>, request id: <*>",
     "Missing bearer"),
    ("Exit code 1 header is missing", "header is missing"),
    # Of a log the records that say nothing of an error are none of it.
    ('no such row {"time":"<*>","level":"INFO","msg":"ready","at":"<*>"} {"level":"info","msg":"b',
     "no such row"),
    ('{"level":"info","msg":"ready"} {"level":"error","msg":"no such row"}', "no such row"),
    ("KeyError: '<*>' in drain (queue.py)", "KeyError: '<*>' in drain (queue.py)"),
    # Nothing inside, and too short to say anything.
    ("API Error: 500 <*>", "API Error: 500 <*>"),
    ('{"message":"c"}', '{"message":"c"}'),
]  # fmt: skip


@pytest.mark.parametrize(("template", "inside"), INSIDE)
def test_the_innermost_message_is_what_envelopes_hold(template, inside):
    assert innermost(template) == inside


def test_escapes_ten_deep_and_a_whole_log_file_take_no_time_and_give_one_line():
    deep = "prompt is too long"
    for _ in range(10):
        deep = json.dumps({"error": {"message": deep}})
    log = "2026-05-18 12:00:00 INFO ready\n" * 30_000
    titles = titled(deep, log, deep[: len(deep) // 2])["title"]
    assert titles.str.len_chars().max() <= LONGEST_TITLE
    assert not titles.str.contains("\n").any()


SHORT = [
    ("ToolError: Bash exited with code 127: <*>: <*>: poetry: not found (image <*>)",
     "Missing command `poetry` · Bash"),
    ("write <*>: no space left on device", "Disk full · write … no space left"),
    ("Rate limit reached", "Rate limit reached"),
    (f"[ci] $ go test ./... {'ok <*> (cached) ' * 9}--- FAIL: TestSell (<*>) FAIL",
     "Tests fail in go test · --- FAIL: TestSell"),
    (f"{'Auto-merging <*> ' * 9}CONFLICT (content): Merge conflict in <*>",
     "CONFLICT (content): Merge conflict"),
    (f"$ lint {'--all ' * 20}<*>:<*>:<*>: `a` is not used <*> issues: * unused: <*>",
     "golangci-lint · `a` is not used"),
    ("Exit code 1 [fmt] $ gofmt -w . [lint] $ golangci-lint run ./... [lint] ERROR task failed <*>",
     "golangci-lint · [lint] ERROR task failed"),
    ("[test] $ go test ./... ? <*> [no test files] ok <*> <*> FAIL [test] ERROR task failed",
     "Tests fail in go test · [test] ERROR task failed"),
    ("> <*> check > ultracite check <*> format <*>", "ultracite check"),
    ("> <*> check-types <*> > tsc --noEmit <*>(<*>,<*>): error TS2304: Cannot find name '<*>'.",
     "TypeScript compiler · error TS2304: Cannot find name"),
    (f"> <*> check > ultracite check <*>:<*>:<*> <*> FIXABLE {'━' * 12} × Member '<*>' is never x",
     "Biome · × Member"),
    ("> <*> format > ultracite format --write error: unknown option '--write' Usage: ultracite",
     "error: unknown option '--write'"),
    (f"{'Step <*> : COPY <*> ' * 9}make: *** [Makefile:<*>: image] Error 1", "make: *** [Makefile"),
    (f"{'we think of it ' * 9}as an error: no", "we think of it"),
    ("hello there", "hello there"),
    ("(no message; last Bash: message)", "no message; last Bash: message"),
    (None, "No message"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "title"), SHORT)
def test_a_title_says_cause_message_and_place(template, title):
    assert titled(template)["title"].item().startswith(title)


def test_a_title_names_rule_provider_and_code_where_there_is_nothing_better():
    assert titled("x y", rule_name="mine")["title"].item() == "mine"
    assert titled(None, code="run.failed.exception")["title"].item() == "run.failed.exception"
    overloaded = titled("529 overloaded").drop("fault_id", "title")
    at = overloaded.with_columns(place=pl.lit("anthropic"))
    named = add_faults(at, "place")["title"].item()
    assert named == "Provider overloaded · 529 overloaded · anthropic"


@pytest.mark.parametrize(
    "texts",
    [
        ("ENOSPC: no space left on device", "OSError: [Errno 28] No space left"),
        ("getaddrinfo ENOTFOUND <*>", "curl: (6) Could not resolve host: <*>"),
        ("sh: <*>: jq: not found", "bash: line 1: jq: command not found"),
        ("Process exited with code 1", "Command failed with exit code 2: <*>"),
        ('API Error: 400 {"message":"<*> odd, very odd"}', "<*> odd, very odd"),
        ("No such container: jobRunner", "No such container: <*>"),
        ("KeyError: 'a_b' in f (x.py)", "KeyError: '<*>' in f (x.py)"),
        (
            "# <*>:<*>:<*>: undefined: <*>",
            "go test ./... # <*> [<*>] <*>:<*>:<*>: cannot use n as int",
        ),
        ("lint fail <*> https://<*>", "docs pass <*> https://<*> e2e pending <*> https://<*>"),
    ],
)
def test_what_one_person_would_fix_is_one_fault(texts):
    assert len(set(fault_ids(*texts))) == 1


@pytest.mark.parametrize(
    "texts",
    [
        ("getaddrinfo ENOTFOUND <*>", "connect ECONNREFUSED <*>"),
        ("bash: poetry: command not found", "bash: npm: command not found"),
        ("KeyError: 'a' in f (x.py)", "KeyError: 'a' in g (y.py)"),
        ("invalid x-api-key", "remote: Invalid username or token."),
        ("invalid_request", "insufficient_quota"),
        ("Exit code 1 lint: 3 problems", "Exit code 1 plan: no such zone"),
    ],
)
def test_what_several_would_fix_are_several(texts):
    assert len(set(fault_ids(*texts))) == 2


def test_a_cluster_of_your_own_rule_is_a_fault_of_its_own():
    assert len(set(fault_ids("disk full", "no space left on device"))) == 1
    assert len(set(fault_ids("disk full", "no space left on device", rule_name="mine"))) == 2


def test_every_row_of_the_table_can_be_reached():
    assert {rule["cause_group"] for rule in RULES} <= set(TITLES)
    closed = set()
    for rule in RULES:
        group, message = rule["cause_group"], rule["message"]
        assert group not in closed, f"a row before {rule} takes all of its group"
        assert rule["fault"] or not message
        assert rule["label"]
        closed |= {group} if not message else set()


MESSAGES = st.text(
    st.one_of(st.sampled_from(list("\"'`{}\\:<*> \n")), st.characters(codec="utf-8")), max_size=60
)
SOME = st.lists(
    st.tuples(
        st.one_of(st.none(), MESSAGES, st.sampled_from([text for text, _ in (*INSIDE, *SHORT)])),
        st.one_of(st.none(), st.sampled_from(sorted(TITLES))),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(deadline=None)  # the first example compiles the table
@given(SOME, st.randoms())
def test_a_fault_depends_on_its_cluster_alone(rows, random):
    found = pl.DataFrame(
        [(None, text, group, None) for text, group in rows],
        schema=dict.fromkeys(NEEDED, pl.String),
        orient="row",
    )
    whole = add_faults(found)
    assert whole["title"].str.len_chars().is_between(1, LONGEST_TITLE).all()
    assert whole["fault_id"].str.contains(r"^f1:[0-9a-f]{12}$").all()
    order = list(range(len(rows)))
    random.shuffle(order)
    assert add_faults(found[order]).equals(whole[order])
    alone = [add_faults(found[n])["fault_id"].item() for n in range(found.height)]
    assert alone == whole["fault_id"].to_list()
    # A fault is part of one cause group.
    groups = whole.group_by("fault_id").agg(pl.col("cause_group").n_unique())
    assert (groups["cause_group"] == 1).all()


def test_no_clusters_have_no_faults_and_missing_columns_are_named():
    assert add_faults(pl.DataFrame(schema=dict.fromkeys(NEEDED, pl.String))).is_empty()
    with pytest.raises(MissingColumnsError, match="add_faults needs columns"):
        add_faults(pl.DataFrame({"code": ["x"]}))


def test_members_and_clusters_have_the_same_fault_whatever_the_code():
    message = "RuntimeError: no candidate passed the gate"
    snap = store(
        run("a", reason_message=message),
        run("b", reason_message=message, reason_code="run.failed.exception"),
    )
    clusters = sa.failures.clusters(snap)
    assert clusters.height == 2
    assert clusters["fault_id"].n_unique() == 1
    members = sa.failures.members(snap)
    keys = ("cluster_id", "fault_id")
    assert dict(members.select(keys).rows()) == dict(clusters.select(keys).rows())


def test_a_title_is_never_longer_than_a_line():
    for label in ("Cause", "Missing `" + "x" * 99 + "`", ""):
        for place in ("Bash", "mcp__" + "server" * 30, None):
            assert 0 < len(title_of(label, "word " * 99, place)) <= LONGEST_TITLE


def concentrated(*, of_mobile, of_others):
    """A disk that is full in one project, in two wordings, among runs that completed."""
    message = {0: "OSError: [Errno 28] No space left on device", 1: "ENOSPC: disk is full"}
    n_runs = len(of_mobile) + len(of_others)
    # In turns: failures of one project that are of one time, too, are an outage.
    apart = [ago(days=1, hours=n * 7 % n_runs) for n in range(n_runs)]
    rows = [
        run(
            f"r{n}",
            status="failed" if is_failed else "completed",
            reason_message=message[n % 2] if is_failed else None,
            project="mobile" if n < len(of_mobile) else "web",
            ended=apart[n],
        )
        for n, is_failed in enumerate((*of_mobile, *of_others))
    ]
    return store(*rows)


@pytest.mark.slow
def test_a_fault_names_the_project_in_which_it_is_concentrated():
    snap = concentrated(of_mobile=[True] * 10, of_others=[False] * 20)
    assert sa.failures.clusters(snap).height == 2
    [fault] = sa.failures.faults(snap, nested=True).to_dicts()
    words = "10 of 10 in project mobile, 3.0 times its usual share (95 %: 2.2 to 3.0)"
    assert fault["where"] == words
    # It is `lift`, of faults instead of clusters.
    assert (fault["n_in"], fault["n_fault"], fault["lift"]) == (10, 10, 3.0)
    assert (fault["n_clusters"], fault["n_rows"]) == (2, 10)
    assert fault["cluster_ids"] == sa.failures.clusters(snap)["cluster_id"].to_list()


def test_a_fault_that_is_everywhere_names_nothing():
    [fault] = sa.failures.faults(
        concentrated(of_mobile=[True, False] * 5, of_others=[True, False] * 10)
    ).to_dicts()
    assert (fault["where"], fault["lift"]) == (None, None)


@pytest.mark.slow
def test_faults_of_nothing_of_calls_and_of_shuffled_rows():
    snap = concentrated(of_mobile=[True] * 5, of_others=[False, True] * 5)
    assert sa.failures.faults(snap, window="2020-W21").is_empty()
    assert sa.failures.faults(snap, of="calls").is_empty()
    shuffled = replace(snap, entities=snap.entities.sample(fraction=1, shuffle=True, seed=7))
    assert sa.failures.faults(shuffled).equals(sa.failures.faults(snap))


@pytest.mark.slow
def test_faults_count_what_their_clusters_count(demo):
    faults = sa.failures.faults(demo, nested=True)
    clusters = sa.failures.clusters(demo)
    assert faults.height < clusters.height
    assert sorted(faults["cluster_ids"].explode()) == sorted(clusters["cluster_id"])
    per_fault = clusters.group_by("fault_id").agg(pl.col("n_rows").sum(), n_clusters=pl.len())
    both = faults.join(per_fault, on="fault_id")
    assert both["n_rows"].equals(both["n_rows_right"], check_names=False)
    assert both["n_clusters"].to_list() == both["n_clusters_right"].to_list()


MISSING = "ToolError: Bash exited with code 127: sh: 1: poetry: not found"
CONSEQUENCES = [
    *("exit 1", "Error: exit code: 2", "ValueError: CLI subprocess exited with code 1"),
    *("3 of 5 sessions failed.", "<*> of <*> sessions failed", "phantom_reaped"),
    *("removed as dead", "its runtime was gone: a crash", "upstream play failed"),
]
CAUSES = [
    *(MISSING, "exit code 137", "exit 1: disk full", "3 of 5 tests failed: test_x", "FAILED t.py"),
    *("sessions failed to start: no such table", "", "child process killed by SIGKILL"),
]


@pytest.mark.parametrize("text", CONSEQUENCES + CAUSES)
def test_a_consequence_says_only_that_something_else_failed(text):
    found = pl.DataFrame({"template": [text]}).select(is_consequence()).item()
    assert found == (text in CONSEQUENCES)


def with_children(n_missing, n_full):
    """An invocation that failed because its sessions did, of one of two causes each."""
    texts = [MISSING] * n_missing + ["OSError: [Errno 28] No space left on device"] * n_full
    ended = [ago(hours=2, minutes=n) for n in range(len(texts))]
    return [
        *(
            run(f"s{n}", invocation_id="i", reason_message=text, ended=ended[n], cost_usd=0.1)
            for n, text in enumerate(texts)
        ),
        run(
            "i",
            entity_type="invocation",
            session_id=None,
            invocation_id="i",
            reason_message=f"{len(texts)} of 9 sessions failed.",
            ended=ago(hours=1),
            cost_usd=9.0,
        ),
        run("other", reason_message="exit 1", ended=ago(days=3), cost_usd=7.0),
    ]


def test_consequences_are_after_causes_and_name_the_most_frequent():
    faults = sa.failures.faults(store(*with_children(2, 1)))
    causes, rest = faults[:2], faults[2:]
    assert causes["is_consequence"].to_list() == [False, False]
    assert causes["cause_id"].null_count() == 2
    assert rest["is_consequence"].to_list() == [True, True]
    assert rest["rank"].to_list() == [3, 4]
    by_title = dict(rest.select("title", "cause_id").rows())
    missing = causes.row(by_predicate=pl.col("title").str.contains("poetry"), named=True)
    assert by_title == {
        "… of … sessions failed: Missing command `poetry` · Bash": missing["fault_id"],
        "exit 1": None,
    }
    assert rest["n_rows"].to_list() == [1, 1]


@pytest.mark.slow
def test_consequences_alone_name_nothing_and_order_does_not_matter():
    rows = with_children(1, 1)
    alone = sa.failures.faults(store(*rows[2:]))
    assert alone["is_consequence"].all()
    assert alone["cause_id"].is_null().all()
    assert sa.failures.faults(store(*rows[::-1])).equals(sa.failures.faults(store(*rows)))


SECOND = SHARED / "agent_failures_2" / "messages.jsonl"


@pytest.mark.slow
@pytest.mark.skipif(not SECOND.exists(), reason="the labelled messages are not here")
def test_labelled_faults_are_few_rows_and_never_mixed():
    rows = pl.read_ndjson(SECOND)
    mined = sa.failures.mine_templates(rows["message"])["template"]
    found = rows.select(true="fault").with_columns(fault_id=titled(*mined)["fault_id"])
    assert (found.group_by("fault_id").agg(pl.col("true").n_unique())["true"] == 1).all()
    assert found.group_by("true").agg(pl.col("fault_id").n_unique())["fault_id"].mean() <= 1.5


@pytest.mark.parametrize(
    ("titles", "title"),
    [
        (["limit of opus reached"], "limit of opus reached"),
        (["limit of opus reached", "limit of sonnet reached"], "limit of … reached"),
        (["a b c d e", "a x y d e", "a x z d e"], "a … d e"),
        (["Timeout · Bash", "ENOENT · Bash"], "Timeout · Bash"),
        (["limit of a · Task", "limit of b · Task"], "limit of … · Task"),
        (["limit reached", "too many requests"], "limit reached"),
        (["one two three", "four five six"], "one two three"),
        ([None], None),
    ],
)
def test_a_fault_of_several_clusters_has_the_words_of_all(titles, title):
    assert in_common(pl.Series(titles, dtype=pl.String)) == title
