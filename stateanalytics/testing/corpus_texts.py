"""What agents fail with: the texts of the labelled corpus, by family.

Each is (what it must be kept apart by, text with holes). Texts of one family that differ
only in an exit code, an exception, a status, a signal or a model are different failures.
"""

from __future__ import annotations

_EXIT, _EXCEPTION, _HTTP = "exit code", "exception", "HTTP status"
_SIGNAL, _MODEL = "signal", "model"

FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {
    "rate limit": (
        (_HTTP, "API Error: 429 rate limit exceeded, retry after {seconds}s (request {request})"),
        (_HTTP, "API Error: 529 overloaded, retry after {seconds}s (request {request})"),
        (_EXCEPTION, "RateLimitError: {count} requests per minute used of {limit} at {host}"),
        (_EXCEPTION, "QuotaExceededError: {count} requests per minute used of {limit} at {host}"),
        ("", "Concurrency cap of {limit} reached; {count} agents wait since {time}"),
        ("", "tokens per day: {tokens} of {tokens} used by key ending {hex4}, resets at {time}"),
    ),
    "provider": (
        (_HTTP, "Error code: 401 - invalid key {secret} for organization {uuid}"),
        (_HTTP, "Error code: 403 - invalid key {secret} for organization {uuid}"),
        (_HTTP, "Provider request failed with HTTP 400: prompt has {tokens} tokens"),
        (_HTTP, "Provider request failed with HTTP 413: prompt has {tokens} tokens"),
        (_HTTP, "Provider request failed with HTTP 500: upstream {host} (request {request})"),
        (_HTTP, "Provider request failed with HTTP 503: upstream {host} (request {request})"),
        (_MODEL, "model claude-opus-4-5 is not available in region {region}"),
        (_MODEL, "model gpt-5.1-codex is not available in region {region}"),
        (_MODEL, "model gemini-3-pro is not available in region {region}"),
        ("", "Insufficient credits: balance {amount} USD, needed {amount} USD"),
        ("", "stream ended without a finish event after {size} bytes (request {request})"),
        ("", '{"type":"error","request_id":"{request}","message":"Overloaded"}'),
    ),
    "content filter": (
        ("", "Output blocked by content filtering policy (request {request})"),
        ("", "The response was refused: category violence, score {score}"),
        ("", "The response was refused: category self-harm, score {score}"),
    ),
    "tool": (
        (_EXIT, "Command failed with exit code 1: {tool} {path}"),
        (_EXIT, "Command failed with exit code 2: {tool} {path}"),
        (_EXIT, "Command failed with exit code 124: {tool} {path}"),
        (_EXIT, "Command failed with exit code 126: {tool} {path}"),
        (_EXIT, "Command failed with exit code 127: {tool} {path}"),
        (_EXIT, "Command failed with exit code 137: {tool} {path}"),
        (_SIGNAL, "process {pid} killed by SIGKILL after {duration}"),
        (_SIGNAL, "process {pid} killed by SIGTERM after {duration}"),
        (_SIGNAL, "process {pid} killed by SIGSEGV after {duration}"),
        ("", "tool call {request} returned {size} bytes, more than the {limit} that fit"),
        ("", "{count} failed, {count} passed in {duration}"),
        ("", "{path}:{line}: error: cannot find name '{word}'"),
        ("", "{red}FAIL{plain} {path} {bold}expected {count}, received {count}{plain}"),
    ),
    "artifact": (
        ("", "Missing required artifact: {word} ({relative})."),
        ("", "Artifact {path} is empty ({size} bytes expected)"),
        ("", "Contract names {count} outputs, {count} were found in {path}"),
    ),
    "timeout": (
        ("", "Run exceeded the configured timeout of {seconds}s after {count} turns"),
        ("", "worker {uuid} produced no output within {seconds} s"),
        ("", "Lease of session {uuid} expired at {time}"),
        (_EXCEPTION, "asyncio.TimeoutError: step {word} took {duration}"),
        (_EXCEPTION, "httpx.ReadTimeout: step {word} took {duration}"),
    ),
    "git": (
        ("", "fatal: Unable to create '{path}/.git/index.lock': File exists."),
        ("", "CONFLICT (content): Merge conflict in {relative}"),
        ("", "error: could not apply {sha}... {word}"),
        ("", "fatal: unable to access '{url}': Could not resolve host: {host}"),
        (_HTTP, "fatal: unable to access '{url}': The requested URL returned error: 403"),
        (_HTTP, "fatal: unable to access '{url}': The requested URL returned error: 502"),
        ("", " ! [rejected] {branch} -> {branch} (non-fast-forward)"),
    ),
    "network": (
        ("", "connect ECONNREFUSED {ip}:{port}"),
        ("", "connect ECONNRESET {ip}:{port}"),
        ("", "connect ETIMEDOUT {ip}:{port}"),
        ("", "getaddrinfo ENOTFOUND {host}"),
        (_EXCEPTION, "SSLError: certificate of {host} expired {time}"),
        ("", "[Errno 104] Connection reset by peer: {ip}:{port}"),
        ("", "[Errno 111] Connection refused: {ip}:{port}"),
    ),
    "permission": (
        ("", "The user rejected permission to run {tool} in {path}"),
        (_EXCEPTION, "PermissionError: [Errno 13] Permission denied: '{path}'"),
        ("", "sandbox: write to {path} refused by policy {word}"),
        ("", "User {user} may not use project {uuid}"),
    ),
    "unicode": (
        ("", "Datei „{path}“ enthält {count} ungültige Zeichen"),
        ("", "ファイル {path} が見つかりません (コード {count})"),
        ("", "🔥 session {uuid} burnt {tokens} tokens"),
    ),
}

_PYTHON = """Traceback (most recent call last):
  File "{directory}/{function}.py", line {line}, in {function}
    result = step(value)
  File "/usr/lib/python3.12/asyncio/tasks.py", line {line}, in wait_for
    return await fut
{raised}"""
_NODE = """{raised}
    at {function} ({directory}/{function}.js:{line}:{count})
    at Module._compile (node:internal/modules/cjs/loader:{line}:{count})
    at /srv/app/node_modules/queue/index.js:{line}:{count}"""


def _traceback(shape: str, function: str, raised: str) -> str:
    return shape.replace("{function}", function).replace("{raised}", raised)


TRACEBACKS: dict[str, tuple[tuple[str, str], ...]] = {
    "python": (
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "KeyError: 'step_{count}'")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "ValueError: 'step_{count}'")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "workers._errors.TimeoutError: {duration}")),
        (_EXCEPTION, _traceback(_PYTHON, "run_plan", "workers._errors.RateLimitError: {duration}")),
        ("", _traceback(_PYTHON, "load_memory", "KeyError: 'step_{count}'")),
    ),
    "node": (
        (_EXCEPTION, _traceback(_NODE, "runStep", "TypeError: cannot read property {count}")),
        (_EXCEPTION, _traceback(_NODE, "runStep", "RangeError: cannot read property {count}")),
        ("", _traceback(_NODE, "spawnAgent", "TypeError: cannot read property {count}")),
    ),
}
