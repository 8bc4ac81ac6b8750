"""Message templates: what is kept apart, what is joined, and that order never matters."""

import json
import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.core.package_tables import table_rows
from stateanalytics.errors import ArgumentError, ColumnTypeError, MissingColumnsError
from stateanalytics.failures import merging
from stateanalytics.failures.masking import patterns_of
from stateanalytics.failures.templates import merge_templates, mine_templates, versioned_id
from tests.examples import examples
from tests.generators.failure_corpus import failure_corpus


def templates(*messages: str) -> list[str]:
    return mine_templates(messages)["template"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("session 550e8400-e29b-41d4-a716-446655440000 lost", "session <*> lost"),
        pytest.param("died at 2026-05-18T12:00:00.5Z in step", "died at <*> in step", id="time"),
        pytest.param("cannot read /home/me/a b.md now", "cannot read <*> b.md now", id="path"),
        pytest.param("GET https://api.x.io/v1/a failed", "GET https://<*> failed", id="link"),
        pytest.param("mail to a.b@c.de bounced", "mail to <*> bounced", id="mail"),
        pytest.param("used 5.2 KB of cache", "used <*> of cache", id="size"),
        pytest.param("dumped core.2275 here", "dumped core.<*> here", id="name with number"),
        pytest.param("Callback count.......12", "Callback count.......<*>", id="dots that lead"),
        pytest.param("in field ........... 3", "in field ........... <*>", id="dots and a space"),
        pytest.param("in field ...........3", "in field ...........<*>", id="dots alone"),
        pytest.param("waiting...3 of 20", "waiting...<*> of <*>", id="a number behind three dots"),
        pytest.param("pushed 7c3f1a2...9e8d7c6 now", "pushed <*> now", id="range of commits"),
        pytest.param("10.0.0.1:8080 refused it", "<*>:<*> refused it", id="address"),
        pytest.param("jk2_init() saw child 17", "jk2_init() saw child <*>", id="function name"),
        pytest.param("\x1b[31mred\x1b[0m alert 7\n\tnext", "red alert <*> next", id="terminal"),
        pytest.param("Größe 7 überschritten", "Größe <*> überschritten", id="unicode"),
        pytest.param("apply aafee13a now", "apply <*> now", id="hash that looks like a name"),
        pytest.param("read <PATH> of <*> now", "read <*> of <*> now", id="a template"),
        pytest.param("GET https://<LINK> failed", "GET https://<*> failed", id="masked link"),
        pytest.param("", "", id="empty"),
    ],
)
def test_what_varies_is_masked(message, template):
    assert templates(message) == [template]


APART = [
    ("tool died: exit code 137", "tool died: exit code 1"),
    ("command exited with 2", "command exited with 127"),
    ("provider said HTTP 429", "provider said HTTP 500"),
    ("Error code: 429 - slow", "Error code: 529 - slow"),
    ("API Error: 429 slow", "API Error: 529 slow"),
    ("[Errno -2] no name", "[Errno -3] no name"),
    ("killed by signal 9", "killed by signal 15"),
    ("killed by SIGKILL now", "killed by SIGTERM now"),
    ("lint says E1234 here", "lint says E9999 here"),
    ("needs python3.11 here", "needs python3.12 here"),
    ("model gpt-4.1 is gone", "model claude-opus-4-5 is gone"),
    ("ValueError: bad 1", "KeyError: bad 1"),
    ("lionagi._errors.TimeoutError: late", "lionagi._errors.RateError: late"),
    ("connect ECONNREFUSED x", "connect ECONNRESET x"),
]


def test_what_tells_failures_apart_is_kept_in_all_words():
    messages = [[one, other, *[f"{one} {i}" for i in range(9)]] for one, other in APART]
    found = iter(templates(*[message for several in messages for message in several]))
    for several in messages:
        first, second, *others = (next(found) for _ in several)
        assert len({first, second}) == 2
        assert len({first, second, *others}) == 3


def test_a_word_that_takes_many_values_varies():
    users = ("ada", "ben", "cyd", "dov", "eve")
    found = templates(*[f"login of {user} went wrong" for user in users])
    assert set(found) == {"login of <*> went wrong"}
    assert len(set(templates(*[f"login of {user} went wrong" for user in users[:4]]))) == 4


def test_opposites_are_not_merged_away():
    ends = ("failed", "succeeded", "started", "stopped", "timeout", "denied")
    assert len(set(templates(*[f"the login step {end}" for end in ends]))) == len(ends)


def test_a_sibling_with_a_wildcard_absorbs():
    assert templates("job 17 of batch done", "job x of batch done") == ["job <*> of batch done"] * 2


PYTHON = """Traceback (most recent call last):
  File "/home/me/app/run.py", line {}, in main
    step(x)
  File "/usr/lib/python3.11/asyncio/tasks.py", line 489, in wait_for
    return fut.result()
  File "/home/me/.venv/lib/python3.11/site-packages/httpx/_api.py", line 1, in get
    raise ConnectError
httpx.ConnectError: cannot reach host {}"""
NODE = """TypeError: x is not a function
    at runStep (/srv/app/steps.js:{}:7)
    at Module._compile (node:internal/modules/cjs/loader:1554:14)
    at /srv/app/node_modules/q/index.js:2:1"""


def test_a_traceback_is_its_exception_and_the_users_own_frames():
    assert set(templates(PYTHON.format(10, 1), PYTHON.format(99, 2))) == {
        "httpx.ConnectError: cannot reach host <*> in main (run.py)"
    }
    assert templates(NODE.format(1)) == ["TypeError: x is not a function in runStep (steps.js)"]


def test_typed_placeholders_name_what_varies():
    mined = mine_templates(["read /a/b of 550e8400-e29b-41d4-a716-446655440000 in 17"])
    assert mined["template_typed"].item() == "read <PATH> of <UUID> in <*>"


def test_null_stays_null_and_order_is_kept():
    mined = mine_templates(["b 1", None, "a 2", "b 3"])
    assert mined["template"].to_list() == ["b <*>", None, "a <*>", "b <*>"]
    assert mined["template_id"].to_list()[1] is None
    assert mined.columns == ["template", "template_typed", "template_id", "pattern"]


@pytest.mark.parametrize("first", [[], ["a 1"], ["Exit code 1 a"]])
def test_null_has_no_merged_template(first):
    assert merging.merge(pl.Series([*first, None], dtype=pl.String)).to_list() == [*first, None]


@pytest.mark.parametrize("messages", [[], [None, None], pl.Series([], dtype=pl.String)])
def test_nothing_gives_nothing(messages):
    assert mine_templates(messages)["template"].drop_nulls().is_empty()


def test_what_is_kept_is_a_choice():
    exits = {"tool died: exit code 137", "tool died: exit code 1"}
    messages = [*exits, "said HTTP 500", "said HTTP 429"]
    for keep, found in (
        ((), {"tool died: exit code <*>", "said HTTP <*>"}),
        (["exit code"], {*exits, "said HTTP <*>"}),
    ):
        assert set(mine_templates(messages, keep=keep)["template"]) == found


@pytest.mark.parametrize("keep", ["exit codes", ["exit codes"], 3, [["exit code"]]])
def test_what_is_no_kind_is_not_kept(keep):
    with pytest.raises(ArgumentError, match="keep needs kinds of exit code, HTTP status"):
        mine_templates([], keep=keep)


def test_what_is_no_text_is_refused():
    with pytest.raises(ColumnTypeError, match="needs text; found int"):
        mine_templates([1])
    with pytest.raises(ColumnTypeError, match="needs text; found Int64"):
        mine_templates(pl.Series([1]))


def test_ids_are_versioned_and_depend_on_the_template_alone():
    mined = mine_templates(["x 1 y", "x 2 y"])
    assert mined["template_id"].to_list() == [versioned_id("x <*> y")] * 2


def test_a_megabyte_keeps_its_beginning_and_its_end():
    [template] = templates("begin " + "word " * 250_000 + "end")
    assert template.startswith("begin word")
    assert template.endswith("word end")
    assert len(template) < 5_000


def test_characters_that_we_use_inside_cannot_be_smuggled_in():
    assert templates("a \ue000UUID\ue001 \ue002 \ue003 b") == ["a UUID b"]
    assert templates("a <*> b \x00 c") == ["a <*> b c"]


WORDS = st.sampled_from([*"job 17 of x1 failed ada ben (a) =".split(), "exit code 3"])


@pytest.mark.slow
@given(st.lists(st.lists(WORDS, max_size=6).map(" ".join), max_size=25), st.randoms())
@examples(60)
def test_order_and_repetition_never_matter(messages, chance: random.Random):
    shuffled = messages * 2
    chance.shuffle(shuffled)
    by_message = dict(zip(messages, templates(*messages), strict=True))
    assert templates(*shuffled) == [by_message[message] for message in shuffled]


MESSAGES = st.lists(st.lists(WORDS, max_size=5).map(" ".join), max_size=15)


@pytest.mark.slow
@given(MESSAGES, MESSAGES, MESSAGES)
@examples(40)
def test_any_parts_that_are_merged_are_what_the_whole_would_be(one, two, three):
    mined = [mine_templates(part) for part in (one, two, three)]
    whole = merge_templates(mine_templates(one + two + three))
    assert merge_templates(*mined).equals(whole)
    assert merge_templates(merge_templates(mined[2], mined[0]), mined[1]).equals(whole)
    known = dict(whole.select("pattern", "template").iter_rows())
    later = mine_templates(three, earlier=merge_templates(*mined[:2]))
    assert later["template"].to_list() == [known[pattern] for pattern in later["pattern"]]


@pytest.mark.slow
@given(MESSAGES)
@examples(40)
def test_a_pattern_is_its_own_pattern(messages):
    patterns = mine_templates(messages)["pattern"]
    assert mine_templates(patterns)["pattern"].equals(patterns)


def test_a_new_week_is_mined_in_the_light_of_earlier_weeks():
    users = ("ada", "ben", "cyd", "dov", "eve")
    earlier = mine_templates([f"login of {user} went wrong" for user in users])
    later = mine_templates(["login of fay went wrong", "disk 7 is full"], earlier=earlier)
    assert later["template_id"][0] == earlier["template_id"][0]
    assert later["template"].to_list() == ["login of <*> went wrong", "disk <*> is full"]


def test_nothing_merged_is_nothing():
    assert merge_templates().is_empty()
    assert merge_templates(mine_templates([])).columns == merge_templates().columns


def test_what_was_not_mined_cannot_be_merged():
    with pytest.raises(MissingColumnsError, match="merge_templates needs columns \\['pattern'\\]"):
        merge_templates(pl.DataFrame({"template": ["a"]}))


def test_stragglers_of_two_words_that_vary_join_their_template():
    names, files = ("ada", "ben", "cyd", "dov", "eve"), ("plan.md", "note.md", "code.py", "a.rs")
    many = [f"output of {name} is missing: {file}" for name in names for file in (*files, "b.rs")]
    found = templates(*many, "output of fay is missing: c.rs")
    assert set(found) == {"output of <*> is missing: <*>"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("messages", "template"),
    [
        (["no such tool: 'read file'", "no such tool: 'go'"], "no such tool: '<*>'"),
        (["TypeError: 'a' and 'b'", "TypeError: 'c' and 'd'", "TypeError: 'e' and 'f'"],
         "TypeError: '<*>' and '<*>'"),
        ([f"the tool was called with {said} in vain" for said in ('{"q": "a"}', '{"p": 2}')],
         "the tool was called with <*> in vain"),
        (["cannot read src/app/main.py now", "cannot read lib/util.rs now"],
         "cannot read <*> now"),
        (["FAILED tests/test_a.py::test_b[x] - assert 1", "FAILED t/u/v.py::C::d - assert 2"],
         "FAILED <*> - assert <*>"),
        (["lost 00:1a:2b:3c:4d:5e here", "lost aa:bb:cc:dd:ee:ff here"], "lost <*> here"),
        (["lost fe80::abcd:ef here", "lost 2001:db8:0:0:0:0:0:1 here"], "lost <*> here"),
        (["no route to api.example.com now", "no route to localhost now"], "no route to <*> now"),
        ([f"build of {name} is broken" for name in ("my_app", "theApp", "some_tool")],
         "build of <*> is broken"),
        (["would be lost by merge:\n\ta/b.py\n\tc/d.py", "would be lost by merge:\n\tx/y.rs"],
         "would be lost by merge: <*>"),
        pytest.param(
            [
                f"the review of my_app said:\n{text}"
                for text in (
                    "add a test before you go on", "this is wrong", "rename it, then run all of it",
                    "do not touch the public interface at all", "why", "please look again",
                )
            ],
            "the review of my_app said: <*>",
            id="free end",
        ),
        pytest.param(
            [f"Stopped the run of {name}. {text}"
             for name, text in (("my_app", "Please add a test before you go on"),
                                ("theApp", "You should look at it again then"),
                                ("my_tool", "Could somebody tell me what this is about"))],
            "Stopped the run of <*>. <*>",
            id="a few long ends of a sentence",
        ),
        pytest.param(
            [f"model {name} is not available for provider {where}, ask for it"
             for name, where in (("my_app", "a_b"), ("theApp", "c_d"), ("my_tool", "e_f"))],
            "model <*> is not available for provider <*>, ask for it",
            id="names together in a long frame",
        ),
        ([f"PR 7 closed without merge by {name}" for name in ("ada", "ben", "cyd", "dov")],
         "PR <*> closed without merge by <*>"),
        (["the tool timed out at cargo test -p my_app", "the tool timed out at make all"],
         "the tool timed out at <*>"),
        (["the hook refused [git push --force && ls]", "the hook refused [rm -rf x]"],
         "the hook refused [<*>]"),
    ],
)  # fmt: skip
def test_what_agents_say_varies(messages, template):
    assert set(templates(*messages)) == {template}


@pytest.mark.parametrize("beginning", ["the step of my_app failed: {}", "my_app has ended. {}"])
def test_what_tells_failures_apart_is_in_no_free_end(beginning):
    ends = (
        "ValueError: bad thing in here", "exit code 3 of a tool in there", "killed by SIGKILL",
        "httpx.ReadTimeout after a long time", "HTTP 429 too many requests at once",
        "nobody knows what went wrong", "why do you ask me", "it is a long story", "gone", "a b c",
    )  # fmt: skip
    found = templates(*map(beginning.format, ends))
    assert found[:5] == [beginning.format(end) for end in ends[:5]]


def test_a_command_that_tells_of_a_failure_is_not_one_value():
    commands = ("git push --force failed", "git pull --rebase failed", "git pull --rebase denied")
    assert len(set(templates(*[f"the hook said {command}" for command in commands]))) == 3


def test_an_error_says_one_of_few_sentences_in_quotes():
    bodies = [f'{{"type": "error", "message": "{said}"}}' for said in ("overloaded", "no credit")]
    assert len(set(templates(*[f"provider said no {body}" for body in bodies]))) == 2


def test_a_template_takes_in_by_its_first_or_its_last_word():
    many = [f"Cannot find tool_{name} in the registry" for name in ("a", "b", "c")]
    found = templates(*many, "Cannot find it all in the registry", "We cannot find it in the list")
    assert found[3:] == ["Cannot find it all in the registry", "We cannot find it in the list"]
    assert templates(*many, "Cannot find Write in the registry")[-1] == found[0]


def test_a_template_takes_in_what_it_matches_but_no_opposite():
    many = [f"No such tool is available: tool_{name}" for name in ("a", "b", "c")]
    assert templates(*many, "No such tool is available: Write")[-1].endswith(": <*>")
    assert templates(*many, "No such tool is available: failed")[-1].endswith(": failed")


def test_a_merge_conflict_is_no_end_that_is_another_every_time():
    ends = ("CONFLICT (content): a.go", "Auto-merging b.go\nCONFLICT (add/add): no")
    ends += ("error: no such branch here", "hint: nobody may push to it now", "fatal: not for you")
    begin = "Exit code 1\nFrom example.org:shop\n * branch main -> FETCH_HEAD\n"
    found = templates(*(begin + end for end in ends))
    assert ["CONFLICT" in text for text in found] == [True, True, False, False, False]
    assert len(set(found)) == 3


def test_a_text_cut_off_at_a_usual_length_joins_the_one_that_goes_on():
    whole = "the server did not answer while it was asked for " + "many things " * 20 + "at last {}"
    cut = whole.format(1)[:200]
    assert len(set(templates(whole.format(1), whole.format(2), cut))) == 1
    other = cut[:-3] + " other things and more"
    assert len(set(templates(whole.format(1), cut, other))) >= 2
    assert templates("x" * 200) == ["x" * 200]


def test_a_value_is_not_all_that_is_left_of_a_text_that_was_cut_off():
    """Of outputs of commands only the first two words are equal."""
    whole = [f"Exit code 1\n/a/b{n}\n---\n{n}\n---\nls: /c/{n}: No such file" for n in (1, 2)]
    cut = "Exit code 1\n" + "".join(f"/a/b{n}: the {n}th value is unused\n" for n in range(50))
    *equal, other = templates(*whole, cut[:500])
    assert len({*equal}) == 1 and other not in equal


def test_a_text_that_was_cut_off_goes_on_only_in_the_same_words():
    whole = "Run {} of the tool has failed because " + "nobody asked for it, " * 12 + "it seems"
    other = ("Run 7 of the tool has failed because " + "somebody stopped it, " * 12)[:200]
    found = templates(whole.format(1), whole.format(2), whole.format(3)[:200], other)
    assert found[0] == found[1] == found[2]
    assert found[3].startswith("Run <*> of the tool has failed because somebody")
    # A value of several words, which the text that was cut off has as they are.
    many = [f"Stop the run of {name} {'as nobody looks at it ' * 9}now" for name in
            ("my_app", "theApp", "my_tool")]  # fmt: skip
    cut = many[0].replace("my_app", "all that I ever made")[:200]
    assert set(templates(*many, cut)) == {f"Stop the run of <*> {'as nobody looks at it ' * 9}now"}
    # Of a long one only so many words are compared as an expression takes.
    long = [text.replace("now", "and so on " * 30) for text in many]
    assert len(set(templates(*long, cut))) == 1


def test_the_pattern_of_each_message_stands_at_its_place():
    said = ["took 3s", None, "exit code 1", "took 4s", "took 3s", ""]
    patterns = patterns_of(pl.Series(said, dtype=pl.String))
    assert patterns.to_list() == ["took <*>", None, "exit code 1", "took <*>", "took <*>", ""]
    assert patterns_of(pl.Series([], dtype=pl.String)).to_list() == []
    assert patterns_of(pl.Series([None], dtype=pl.String)).to_list() == [None]


# --- what tells failures apart is kept, however it is worded --------------------------------

EXITS = (1, 2, 124, 127, 137)
STATUSES = (400, 401, 403, 404, 429, 500, 502, 503)


def check_apart(messages):
    found = templates(*messages)
    assert len(set(found)) == len(messages), [text for text in found if "<*>" in text][:2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "exited with code {}", "exit status {}", "returned non-zero exit status {}.", "exit={}",
        "exit_code: {}", '"exit_code": {}', "exit code: {}", "(exit {})", "ExitCode {}", "rc={}",
        "exited with code {}.", "command failed (code {})", "failed with code {}", "exitCode={}",
        "exit code -{}", "ended with exit-code {}", "make: *** [all] Error {}", "errno {}",
        "exit code {}, stopped",
    ],
)  # fmt: skip
def test_exit_codes_stay_apart(words):
    check_apart([f"tool x: {words.format(code)}" for code in EXITS])


HTTP = [
        "HTTP {}", "HTTP/1.1 {}", "HTTP_{}", "status {}", "status code {}", "statusCode: {}",
        "http_status={}", "error {}", "HTTPError {}", "RequestError {}:", "HTTP Error {}: x",
        "{} Not Found", "Error code: {} - x", "API Error: {} slow", "API Error ({} slow)",
        "APIError({})", "Overloaded ({})", "[{}] slow", "got {} from server", "server returned {}",
        "response {}", "responded with {}", "returned error: {}", '"status": {}', "code: {}",
        "API returned status code {} with", "Request Failed: {} x",
]  # fmt: skip


def test_http_statuses_stay_apart():
    check_apart([f"provider x: {words.format(status)}" for words in HTTP for status in STATUSES])


@pytest.mark.parametrize("words", ["signal {}", "signal: {}", "signal number {}", "Signal={}"])
def test_signals_stay_apart(words):
    check_apart([f"killed by {words.format(number)}" for number in (2, 6, 9, 11, 15)])


@pytest.mark.parametrize("words", ["run failed: {} after step", "{}: something went bad", "({}) x"])
def test_exceptions_and_system_errors_stay_apart(words):
    names = """httpx.ReadTimeout httpx.ConnectTimeout subprocess.TimeoutExpired BrokenProcessPool
        asyncio.CancelledError StopIteration KeyboardInterrupt openai.RateLimitError SystemExit
        RecursionError UnicodeDecodeError http.client.RemoteDisconnected BrokenPipe NotFound
        Unauthorized TooManyRequests ReadTimeout PoolTimeout zlib.error AbortError ETIMEDOUT
        ECONNRESET ENOENT EACCES EPIPE ENOSPC SIGKILL SIGTERM SIGSEGV SIGINT
        ERR_HTTP2_PING_FAILED ERR_TLSV1_ALERT NU1101 NU1605 ORA-01017 ORA-12541 NETSDK1045
        NETSDK1004 AADSTS50076 AADSTS700016 PGRST116 PGRST301""".split()
    check_apart([words.format(name) for name in names])


@pytest.mark.parametrize("words", ["model {} is overloaded", "model={}, region eu", "for {}; wait"])
def test_models_stay_apart(words):
    models = """claude-opus-4-5 claude-opus-4-5-20251101 claude-sonnet-4-5 gpt-4o gpt-4o-mini
        gpt-5.1 gpt-5.1-codex gpt-oss-120b o3 o3-mini o4-mini gemini-2.5-pro gemini-3-pro
        llama-3.1-70b qwen3-coder deepseek-v3 deepseek-r1 grok-4 kimi-k2 glm-4.6 mistral-large-2411
        sonnet opus
        anthropic/claude-sonnet-4.5 codex/gpt-5.1-codex us.anthropic.claude-opus-4-1-v1:0
        models/gemini-2.5-flash""".split()
    check_apart([words.format(model) for model in models])


@pytest.mark.parametrize(
    "words",
    [
        "worker {} is late", "{} of 9 sessions failed", "line {} is bad", "took {}s in all",
        "RateLimitError: {} requests used", "KeyError: {}", "process {} is gone", "retry in {} s",
    ],
)  # fmt: skip
def test_other_numbers_vary(words):
    assert mine_templates([words.format(n) for n in (3, 17, 404)])["template"].n_unique() == 1


KNOWN = table_rows("stateanalytics.core", "known_messages.csv")
VALUES = {"{}": ("alpha", "some-Name"), "{w}": ("app.core", "Widget"),
          "{l}": ("a whole line", "another one"),
          "{*}": ("one", "\tsrc/a.py\n\tsrc/b.py")}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", [row["text"] for row in KNOWN])
def test_values_in_messages_of_known_tools_are_values_from_the_first_on(text):
    messages = []
    for n in range(2):
        message = text.replace("\\n", "\n")
        for slot, values in VALUES.items():
            message = message.replace(slot, values[n])
        messages.append(f"tool: {message} end")
    found = mine_templates(messages)["template"]
    assert found.n_unique() == 1
    assert "<*>" in found[0]
    assert all(value not in found[0] for value in ("alpha", "Widget", "whole", "src"))


@pytest.mark.parametrize(
    "shown",
    [
        "  ⎿  EACCES: permission denied, open 'a.py' of the whole project",
        "\x1b[31mEACCES: permission denied, open 'a.py' of the whole project\x1b[0m",
        "■ EACCES: permission denied, open 'a.py' of the whole project\n",
        "● EACCES: permission denied, open 'a.py' of the whole project",
        "│ EACCES: permission denied, open 'a.py' of the whole project",
        "┃ EACCES: permission denied, open 'a.py' of the whole project   ┃ ",
        "❯ ✗ EACCES: permission denied, open 'a.py' of the whole project",
        "EACCES: permission denied, open 'a.py'\n     of the whole project",
    ],
)
def test_what_a_terminal_put_around_a_message_is_no_part_of_it(shown):
    plain = "EACCES: permission denied, open 'a.py' of the whole project"
    assert mine_templates([shown, plain])["template"].n_unique() == 1


def test_a_module_that_node_misses_is_named_whoever_asked_for_it():
    stack = "\nRequire stack:\n- /a/b.js\n    at Module._resolve (node:internal/loader:1:2)"
    found = mine_templates([f"Error: Cannot find module '{name}'{stack}" for name in "xy"])
    assert found["template"].unique().len() == 1
    assert found["template"][0].startswith("Error: Cannot find module '<*>'")


SENTENCES = (
    "Your credit balance is too low to access the API",
    "Output blocked by content filtering policy",
    "thinking blocks cannot be modified",
    "Invalid signature in thinking block",
    "messages must alternate between roles",
    "tools must have unique names",
    "this model does not take pictures",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "envelope",
    [
        'API Error: 400 {"type":"error","error":{"message":"SAID"},"request_id":"req_NUMBER"}',
        "litellm.BadRequestError: XException - {'error': {'message': 'SAID'}}",
        'API Error: 400 {"error":{"message":"{\\"error\\":{\\"message\\":\\"SAID\\"}}"}}',
        'GaxiosError: [{\n  "error": {\n    "code": 400,\n    "message": "SAID"\n  }\n}]',
        "stream disconnected before completion: SAID",
        "Error: Exit code 1\nSAID",
        'time=NUMBER level=error msg="SAID" request=req_NUMBER',
    ],
)
def test_sentences_of_one_envelope_are_never_one_template_by_their_count(envelope):
    messages = [
        envelope.replace("SAID", said).replace("NUMBER", f"{n}{place}")
        for place, said in enumerate(SENTENCES)
        for n in range(3)
    ]
    found = mine_templates(messages)["template"]
    assert found.unique().len() == len(SENTENCES)
    users = [envelope.replace("SAID", f"user {name} is not here") for name in
             ("ada", "ben", "cyd", "dov", "eve", "fay")]  # fmt: skip
    assert mine_templates([*messages, *users])["template"].n_unique() == len(SENTENCES) + 1


# --- values by their position, in whatever form they are written ------------------------------


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        ("<*> bytes copied, <*> s, <*>",
         ["512 bytes copied, 0.0001 s, 5.1 MB/s",
          "2000 bytes (2.0 kB) copied, 0.01 s, 200 kB/s",
          "1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.00123 s, 851 MB/s"]),
        ("=== <*> failed, <*> passed in <*> ===",
         ["=== 1 failed, 3 passed in 3.20s ===",
          "=== 2 failed, 9 passed in 63.20s (0:01:03) ==="]),
        ("upload of a part stopped, elapsed <*>",
         [f"upload of a part stopped, elapsed {at}" for at in ("00:02", "1:20:02", "<1 sec")]),
        ('<*> "GET <*> <*>" <*> <*>',
         ['10.0.0.1 "GET /health HTTP/1.1" 200 17',
          '10.0.0.1,10.0.0.2 "GET /users?id=7&x=y HTTP/2.0" 204 0',
          '10.0.0.1,10.0.0.2,10.0.0.3 "GET /a/b.js HTTP/1.1" 200 90210']),
        ("evicted pods <*>",
         ["evicted pods web-1",
          "evicted pods web-1 web-2 web-3",
          "evicted pods db-7 db-8 db-9 web-17 web-18"]),
        ("run <*> failed retryable=<*> attempt=<*>",
         ["run 7 failed retryable=true attempt=1",
          "run 8 failed retryable=false attempt=2",
          "run 9 failed retryable=None attempt=2"]),
        ("close of panel force=<*> delayed=<*> shown=<*>",
         ["close of panel force=true delayed=true shown=true",
          "close of panel force=false delayed=false shown=true",
          "close of panel force=false delayed=false shown=false"]),
        ("fetch of https://<*>: refused by peer",
         ["fetch of https://a.io/b: refused by peer",
          "fetch of https://a.io/c/d.html: refused by peer"]),
    ],
)  # fmt: skip
def test_a_value_is_one_however_it_is_written(template, messages):
    assert set(templates(*messages)) == {template}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(["run 7 ended success=true", "run 8 ended success=false"], id="success"),
        pytest.param(["run 7 ended isValid:true", "run 8 ended isValid:false"], id="is valid"),
        pytest.param(["box 7 gone oom_killed=true", "box 8 gone oom_killed=false"], id="killed"),
        pytest.param(["has it ended: true", "has it ended: false"], id="prose"),
        pytest.param(["lost nodes a1", "lost nodes a1 a2"], id="two are no list"),
        pytest.param(['"GET /a HTTP/1.1" 200 7', '"POST /a HTTP/1.1" 200 7'], id="methods"),
        pytest.param(['"GET /a HTTP/1.1" 404 7', '"GET /a HTTP/1.1" 500 7'], id="statuses"),
        pytest.param(['level=error msg="disk full"', 'level=error msg="no host"'], id="sentences"),
    ],
)
def test_what_tells_failures_apart_by_its_position_is_kept(messages):
    assert len(set(templates(*messages))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("envelope", ["none", "behind"])
def test_work_in_parts_gives_what_work_at_once_does(monkeypatch, envelope):
    said = in_envelope({"none": "SAID", "behind": BEHIND}[envelope], sentences(300))
    few = [f"[{n}] job {n % 7} of {word}: {said[n][: 40 + n]}" for n, word in
           enumerate(SYLLABLES * 4)]  # fmt: skip
    messages = pl.Series([*failure_corpus(1_000)["message"], *said, *few])
    at_once = mine_templates(messages)
    parts = []
    cut = merging._merge_in_rounds
    monkeypatch.setattr(merging, "_merge_in_rounds", lambda *args: parts.append(args) or cut(*args))
    monkeypatch.setattr(merging, "N_CHARS", 2_000)
    monkeypatch.setattr(merging, "N_RUNS", 500)
    assert mine_templates(messages).equals(at_once)
    assert len(parts) > 20


# --- texts that nobody meant to be a message ------------------------------------------------

SYLLABLES = ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu")
BEHIND = 'API Error: 400 {"type":"error","error":{"message":"SAID"},"request_id":"req_NUMBER"}'
BEFORE = "[req_NUMBER] API Error: 400 SAID"


def sentences(n, seed=3):
    """So many different sentences of the same few hundred words."""
    chance = random.Random(seed)
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) for _ in range(300)]
    made = {}
    while len(made) < n:
        made[" ".join(chance.choices(words, k=chance.randint(25, 40)))] = None
    return list(made)


def in_envelope(envelope, said):
    """Each sentence in it with a number of its own, every twentieth cut at a usual length."""
    whole = [
        envelope.replace("SAID", text).replace("NUMBER", f"{n:012x}") for n, text in enumerate(said)
    ]
    return [text if n % 20 else text[:200] for n, text in enumerate(whole)]


def n_compared(monkeypatch, messages):
    """Rows that joins give and items of lists that become columns, while messages are mined."""
    counts = [0]
    join, init = pl.DataFrame.join, pl.Series.__init__

    def counted_join(*args, **named):
        joined = join(*args, **named)
        counts[0] += joined.height
        return joined

    def counted_init(self, name=None, values=None, *args, **named):
        counts.append(len(values) if isinstance(values, list | tuple) else 0)
        init(self, name, values, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "join", counted_join)
        patch.setattr(pl.Series, "__init__", counted_init)
        found = mine_templates(messages)["template"]
    return sum(counts), found


@pytest.mark.slow
@pytest.mark.parametrize("envelope", [BEHIND, BEFORE, "SAID"], ids=["behind", "before", "none"])
def test_many_sentences_of_one_envelope_take_work_in_proportion(monkeypatch, envelope):
    said = sentences(8_000)
    work = {}
    for n in (2_000, 8_000):
        messages = pl.Series(in_envelope(envelope, said[:n]))
        assert (messages.str.len_chars() == 200).sum() > n / 50
        work[n], found = n_compared(monkeypatch, messages)
        # No two are one failure, and what was cut off is none of the others.
        assert found.n_unique() == n
    assert work[8_000] / work[2_000] < 5


@pytest.mark.slow
@pytest.mark.parametrize("n_chars", [90, 99, 101, 110, 120, 130, 200])
def test_sentences_of_json_that_was_cut_off_stay_apart(n_chars):
    body = '"error":{"type":"invalid_request_error","message":"SAID"},"request_id":"req_NUMBER"}'
    whole = [
        ('API Error: 400 {"type":"error",' + body).replace("SAID", said).replace("NUMBER", f"{n}a")
        for n, said in enumerate(SENTENCES)
    ]
    cut = [text[:n_chars] for text in whole]
    n_found = mine_templates([*whole, *cut])["template"].n_unique()
    assert n_found == len(SENTENCES) * (1 if n_chars == 200 else 2)
    assert mine_templates(cut)["template"].n_unique() == len(SENTENCES)


def escaped(said, depth):
    for _ in range(depth):
        said = json.dumps({"error": {"message": said}})
    return said


def test_what_is_said_ten_escapes_deep_is_kept_and_its_values_vary():
    messages = [
        f"API Error: 400 {escaped(f'{said} (in request {n})', 10)}"
        for said in SENTENCES
        for n in range(3)
    ]
    assert max(map(len, messages)) > 5_000
    found = mine_templates(messages)["template"].unique(maintain_order=True)
    assert found.len() == len(SENTENCES)
    for template, said in zip(found, SENTENCES, strict=True):
        assert f"{said} (in request <*>)" in template
        assert "\\" not in template


def test_a_message_that_is_a_whole_log_file_is_one_template_by_its_beginning_and_its_end():
    lines = "\n".join(f"2026-05-18 12:00:{n % 60:02d} worker {n} is ready" for n in range(30_000))
    ends = ("KeyError: 'a'", "ValueError: 'a'")
    first, other = templates(*[f"{lines}\nthe last said {end}" for end in ends])
    assert first != other
    assert first.startswith("<*> worker <*> is ready <*> worker <*> is ready")
    assert first.endswith(f"the last said {ends[0]}")
    assert templates(f"{lines}\nthe last said {ends[0]}", "worker 7 died")[1] == "worker <*> died"


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("Fehler {}: 接続が拒否されました / connection refused",
         "Fehler <*>: 接続が拒否されました / connection refused"),
        ("磁盘已满 ({} МБ свободно): disk of /srv/{} is full",
         "磁盘已满 (<*> МБ свободно): disk of <*> is full"),
        ("\u202eרשת נפלה\u202c: network {} is down", "רשת נפלה: network <*> is down"),
    ],
)  # fmt: skip
def test_values_vary_in_a_message_of_several_languages(message, template):
    others = ("接続が中断されました", "磁盘损坏", "רשת איטית")
    many = [message.format(n, n) for n in (7, 8, 99)]
    assert templates(*many, *others)[:3] == [template] * 3
