"""Traces: the innermost cause, its wrappers and the own frame, in every language."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateanalytics.failures.templates import mine_templates
from stateanalytics.failures.traces import LIMITS
from tests.examples import examples

HEADER = "Traceback (most recent call last):\n"
STEP = '  File "/repo/app/steps.py", line {}, in call_model\n    return await client.post(url)\n'
PLAN = '  File "/repo/app/plan.py", line {}, in run_plan\n    await step(value)\n'
LIBRARY = '  File "/repo/.venv/lib/python3.12/site-packages/httpx/_api.py", line {}, in get\n'
LIBRARY += "    raise\n"
CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def python(raised: str, line: int = 1) -> str:
    return HEADER + PLAN.format(line) + STEP.format(line + 1) + LIBRARY.format(line + 2) + raised


RAISED = ["httpx.ReadTimeout", "subprocess.TimeoutExpired: Command timed out", "WorkerDied"]
RAISED += ["trio.Cancelled: Cancelled", "app.worker.Gone: away", "KeyboardInterrupt"]


def templates(*messages: str) -> list[str]:
    return mine_templates(messages)["template"].to_list()


@pytest.mark.slow
@pytest.mark.parametrize("raised", RAISED)
def test_python_with_any_name_of_an_exception(raised):
    assert set(templates(python(raised, 3), python(raised, 700))) == {
        f"{raised} in call_model (steps.py)"
    }


@pytest.mark.parametrize("link", [CAUSED, DURING])
def test_the_innermost_cause_decides_and_the_wrapper_is_seen(link):
    chained = python("httpx.ReadTimeout") + "\n" + link + HEADER + PLAN.format(9) + "app.Bad: no"
    assert templates(chained) == ["httpx.ReadTimeout, then app.Bad in call_model (steps.py)"]
    other = chained.replace("httpx.ReadTimeout", "httpx.ConnectError")
    assert len(set(templates(chained, other, python("httpx.ReadTimeout")))) == 3


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/repo/app/cli.py", line 1, in main
  |     async with anyio.create_task_group() as tg:
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/repo/app/worker.py", line 2, in run_worker
    |     raise WorkerDied(code)
    | app.WorkerDied: worker 17 died
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/repo/app/worker.py", line 2, in run_worker
    |     raise WorkerDied(code)
    | app.WorkerDied: worker 9 died
    +------------------------------------"""
NODE = """TypeError: Cannot read properties of undefined (reading 'plan')
    at new Diff (/repo/node_modules/diff/index.js:1:2)
    at async renderDiff (/repo/src/ui/diff.tsx:131:39)
    at process.processTicksAndRejections (node:internal/process/task_queues:156:5) {
  [cause]: Error: connect ECONNREFUSED
      at TCPConnectWrap.afterConnect (node:net:1555:16)"""
JAVA = """Exception in thread "pool-9-thread-1" java.lang.RuntimeException: call failed
\tat com.acme.agent.Client.call(Client.java:631)
\tat org.springframework.web.Filter.go(Filter.java:9)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 25 more"""
GO = """panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x53 pc=0x70b337]

goroutine 14 [running]:
runtime.panicmem(...)
\t/usr/local/go/src/runtime/panic.go:262
github.com/acme/agent/runner.(*Runner).Step(0x94c65bb476, {0x6f6ca489, 0x1a})
\t/repo/runner/step.go:914 +0x450
main.main()
\t/repo/main.go:1224 +0x48
exit status 2"""
RUST = """thread 'worker-3' panicked at src/chat.rs:267:53:
index out of bounds: the len is 11 but the index is 4690
stack backtrace:
   0: rust_begin_unwind
             at /rustc/1/library/std/src/panicking.rs:331:35
   1: core::panicking::panic_fmt
             at /rustc/1/library/core/src/panicking.rs:31:5
   2: codex_tui::chat::render
             at /repo/src/chat.rs:878:49
note: Some details are omitted."""
DOTNET = """Unhandled exception. System.InvalidOperationException: step failed
 ---> System.Net.Http.HttpRequestException: Connection refused
   at System.Net.Http.HttpClient.SendAsync(HttpRequestMessage request)
   at Acme.Agent.Client.Call(String url) in /repo/Client.cs:line 12
   --- End of inner exception stack trace ---
   at Acme.Agent.Program.Main(String[] args) in /repo/Program.cs:line 4"""
TRACES = {
    GROUP: "app.WorkerDied: worker <*> died, then ExceptionGroup in run_worker (worker.py)",
    NODE: "Error: connect ECONNREFUSED, then TypeError in renderDiff (diff.tsx)",
    JAVA: "java.net.ConnectException: Connection refused, then java.lang.RuntimeException"
    " in com.acme.agent.Client.call",
    GO: "panic: runtime error: invalid memory address or nil pointer dereference (SIGSEGV)"
    " in runner.(*Runner).Step",
    RUST: "panicked: index out of bounds: the len is <*> but the index is <*>"
    " in codex_tui::chat::render",
    DOTNET: "System.Net.Http.HttpRequestException: Connection refused, then"
    " System.InvalidOperationException in Acme.Agent.Client.Call",
}


def test_a_panic_without_its_backtrace_says_what_was_raised():
    head, said, *_ = RUST.split("\n")
    told = "panicked: index out of bounds: the len is <*> but the index is <*>"
    assert templates(f"{head}\n{said}") == [told]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "template"), TRACES.items(), ids=["group", "node", "java", "go", "rust", "dotnet"]
)
def test_a_trace_of_each_language(trace, template):
    assert templates(trace) == [template]
    coloured = trace.replace("a", "\x1b[31ma\x1b[0m").replace("\n", "\r\n")
    assert templates(coloured, trace) == [template, template]


def test_the_own_frame_tells_failures_apart():
    elsewhere = python("KeyError: 'a'").replace("call_model", "load").replace("steps.py", "io.py")
    assert len(set(templates(python("KeyError: 'a'"), elsewhere))) == 2


def test_a_trace_that_was_cut_off_joins_the_one_that_goes_on():
    whole = python("httpx.ReadTimeout", 100)
    cut = whole[:200]
    assert "ReadTimeout" not in cut
    assert len(set(templates(whole, cut))) == 1
    other = python("ValueError: no", 100)
    assert templates(whole, other, cut)[2] not in templates(whole, other, cut)[:2]
    java = JAVA[:200]
    assert "refused" not in java
    assert len(set(templates(JAVA, java))) == 1


def test_a_pattern_of_a_trace_is_its_own_pattern():
    patterns = mine_templates([*TRACES, python("KeyError: 'a'")[:200]])["pattern"]
    assert mine_templates(patterns)["pattern"].equals(patterns)


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [
        HEADER,
        HEADER * 3,
        GO[:80] + NODE + JAVA,
        "\n".join(map("".join, zip(GO.split("\n"), RUST.split("\n"), strict=False))),
        "\u202e" + python("ValueError: \u05e9\u05dc\u05d5\u05dd"),
        python('ValueError: {"error": {"message": "cut o'),
        python("ValueError: no", 1) + "\n" + "x" * 1_000_000,
        HEADER + (PLAN.format(1) * 20_000) + "RecursionError: maximum depth",
        "log line\n" * 5_000 + python("ValueError: no"),
    ],
    ids="header,headers,mixed,interleaved,right to left,JSON,long,deep,log".split(","),
)
def test_no_text_is_too_odd(message):
    [template] = templates(message)
    assert 0 < len(template) < 5_000


LINES = st.sampled_from(
    [line for trace in [*TRACES, python("a.B: c")] for line in trace.split("\n")]
    + ["", " ", "{", "x"]
)


def check_lines(messages, chance):
    shuffled = messages * 2
    chance.shuffle(shuffled)
    by_message = dict(zip(messages, templates(*messages), strict=True))
    assert templates(*shuffled) == [by_message[message] for message in shuffled]
    patterns = mine_templates(messages)["pattern"]
    # A pattern that is by chance as long as texts are cut looks cut off.
    if not patterns.str.len_chars().is_in(LIMITS).any():
        assert mine_templates(patterns)["pattern"].equals(patterns)


def test_lines_of_traces_in_another_order_do_not_raise():
    chance = random.Random(5)
    lines = [line for trace in TRACES for line in trace.split("\n")]
    check_lines(["\n".join(chance.sample(lines, 6)) for _ in range(8)], chance)


@pytest.mark.slow
@given(st.lists(st.lists(LINES, max_size=8).map("\n".join), max_size=8), st.randoms())
@examples(60)
def test_lines_of_traces_in_any_order_never_raise(messages, chance):
    check_lines(messages, chance)
