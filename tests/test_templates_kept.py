"""What is the information of a failure is kept, however it is worded."""

import pytest

from stateanalytics.failures.templates import mine_templates

EXITS = (1, 2, 124, 127, 137)
STATUSES = (400, 401, 403, 404, 429, 500, 502, 503)


def assert_apart(messages):
    found = mine_templates(messages)["template"].to_list()
    assert len(set(found)) == len(messages), [text for text in found if "<*>" in text][:2]


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
def test_exit_codes(words):
    assert_apart([f"tool x: {words.format(code)}" for code in EXITS])


HTTP = [
        "HTTP {}", "HTTP/1.1 {}", "HTTP_{}", "status {}", "status code {}", "statusCode: {}",
        "http_status={}", "error {}", "HTTPError {}", "RequestError {}:", "HTTP Error {}: x",
        "{} Not Found", "Error code: {} - x", "API Error: {} slow", "API Error ({} slow)",
        "APIError({})", "Overloaded ({})", "[{}] slow", "got {} from server", "server returned {}",
        "response {}", "responded with {}", "returned error: {}", '"status": {}', "code: {}",
        "API returned status code {} with",
]  # fmt: skip


def test_http_statuses_in_all_words():
    assert_apart([f"provider x: {words.format(status)}" for words in HTTP for status in STATUSES])


@pytest.mark.slow
@pytest.mark.parametrize("words", HTTP)
def test_http_statuses(words):
    assert_apart([f"provider x: {words.format(status)}" for status in STATUSES])


@pytest.mark.parametrize("words", ["signal {}", "signal: {}", "signal number {}", "Signal={}"])
def test_signals(words):
    assert_apart([f"killed by {words.format(number)}" for number in (2, 6, 9, 11, 15)])


@pytest.mark.parametrize("words", ["run failed: {} after step", "{}: something went bad", "({}) x"])
def test_exceptions_and_system_errors(words):
    names = """httpx.ReadTimeout httpx.ConnectTimeout subprocess.TimeoutExpired BrokenProcessPool
        asyncio.CancelledError StopIteration KeyboardInterrupt openai.RateLimitError SystemExit
        RecursionError UnicodeDecodeError http.client.RemoteDisconnected BrokenPipe NotFound
        Unauthorized TooManyRequests ReadTimeout PoolTimeout zlib.error AbortError ETIMEDOUT
        ECONNRESET ENOENT EACCES EPIPE ENOSPC SIGKILL SIGTERM SIGSEGV SIGINT""".split()
    assert_apart([words.format(name) for name in names])


@pytest.mark.parametrize("words", ["model {} is overloaded", "model={}, region eu", "for {}; wait"])
def test_models(words):
    models = """claude-opus-4-5 claude-opus-4-5-20251101 claude-sonnet-4-5 gpt-4o gpt-4o-mini
        gpt-5.1 gpt-5.1-codex gpt-oss-120b o3 o3-mini o4-mini gemini-2.5-pro gemini-3-pro
        llama-3.1-70b qwen3-coder deepseek-v3 deepseek-r1 grok-4 kimi-k2 glm-4.6 mistral-large-2411
        sonnet opus
        anthropic/claude-sonnet-4.5 codex/gpt-5.1-codex us.anthropic.claude-opus-4-1-v1:0
        models/gemini-2.5-flash""".split()
    assert_apart([words.format(model) for model in models])


@pytest.mark.parametrize(
    "words",
    [
        "worker {} is late", "{} of 9 sessions failed", "line {} is bad", "took {}s in all",
        "RateLimitError: {} requests used", "KeyError: {}", "process {} is gone", "retry in {} s",
    ],
)  # fmt: skip
def test_other_numbers_vary(words):
    assert mine_templates([words.format(n) for n in (3, 17, 404)])["template"].n_unique() == 1
