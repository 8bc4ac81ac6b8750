"""The ways to fail that generated messages are made from."""

from __future__ import annotations

from dataclasses import dataclass

from tests.generators.failure_corpus import HOLE


@dataclass(frozen=True)
class Template:
    """One way to fail: a text with holes, the code it is stored under, and its true cause."""

    template_id: str
    reason_code: str
    exception_class: str
    cause: str
    text: str

    @property
    def holes(self) -> tuple[str, ...]:
        """Names of the holes, in order."""
        return tuple(HOLE.findall(self.text))

    @property
    def pattern(self) -> str:
        """The text with every hole written ``<*>``."""
        return HOLE.sub("<*>", self.text)

    def fill(self, **values: object) -> str:
        """The text with its holes filled.

        Examples
        --------
        >>> BY_ID["tool_exit_137"].fill(path="/tmp/a.rs")
        'ToolError: Bash exited with code 137: killed while building /tmp/a.rs'
        """
        return self.text.format(**values)


_RETRY = "run.failed.provider_retryable"
_PERMANENT = "run.failed.provider_nonretryable"
_EXCEPTION = "run.failed.exception"

# Exit codes and exception classes are constants, not holes: in a failure they are
# the information, so messages that differ in them belong to different templates.
TEMPLATES = (
    Template(
        "rate_limit_429",
        _RETRY,
        "ProviderQuotaError",
        "provider limit",
        "ProviderQuotaError: API Error: 429 rate limit exceeded for {model}; "
        "retry after {seconds}s (request {request})",
    ),
    Template(
        "overloaded_529",
        _RETRY,
        "ProviderQuotaError",
        "provider overload",
        "ProviderQuotaError: API Error: 529 overloaded; gave up after {count} attempts "
        "(request {request})",
    ),
    Template(
        "unavailable_503",
        _RETRY,
        "ProviderError",
        "provider outage",
        "ProviderError: API Error: 503 upstream connect error from {host}, reset reason: overflow",
    ),
    Template(
        "auth_401",
        _PERMANENT,
        "ProviderAuthError",
        "provider auth",
        "ProviderAuthError: API Error: 401 invalid key {secret} for organization {uuid}",
    ),
    Template(
        "model_404",
        _PERMANENT,
        "ProviderRequestError",
        "bad request",
        "ProviderRequestError: API Error: 404 model {model} does not exist (request {request})",
    ),
    Template(
        "context_length_400",
        _PERMANENT,
        "ProviderContextError",
        "context length",
        "ProviderContextError: API Error: 400 prompt is too long: {tokens} tokens > 200000 maximum",
    ),
    Template(
        "content_filter_400",
        _PERMANENT,
        "ProviderRequestError",
        "content filter",
        "ProviderRequestError: API Error: 400 output blocked by content filtering policy "
        "(request {request})",
    ),
    Template(
        "stream_cut",
        _EXCEPTION,
        "ValueError",
        "network",
        "ValueError: Failed to stream API call: connection reset by peer after {size} bytes "
        "from {host}",
    ),
    Template(
        "name_resolution",
        _EXCEPTION,
        "ConnectError",
        "network",
        "httpx.ConnectError: [Errno -3] Temporary failure in name resolution: {host}",
    ),
    Template(
        "read_timeout",
        _EXCEPTION,
        "ReadTimeout",
        "network",
        "httpx.ReadTimeout: no response from {host} within {seconds}s",
    ),
    Template(
        "tool_exit_1",
        _EXCEPTION,
        "ToolError",
        "tool exit",
        "ToolError: Bash exited with code 1: pytest {path}: {count} failed, {size} passed",
    ),
    Template(
        "tool_exit_124",
        _EXCEPTION,
        "ToolError",
        "tool timeout",
        "ToolError: Bash exited with code 124: no output for {seconds}s, command stopped",
    ),
    Template(
        "tool_exit_137",
        _EXCEPTION,
        "ToolError",
        "out of memory",
        "ToolError: Bash exited with code 137: killed while building {path}",
    ),
    Template(
        "subprocess_silent",
        _EXCEPTION,
        "ValueError",
        "tool exit",
        "ValueError: CLI subprocess exited with code 1 and wrote nothing to stderr",
    ),
    Template(
        "git_conflict",
        _EXCEPTION,
        "GitError",
        "git conflict",
        "GitError: merge conflict in {path}: could not apply {sha}",
    ),
    Template(
        "git_lock",
        _EXCEPTION,
        "GitError",
        "git lock",
        "GitError: Unable to create '{directory}/.git/index.lock': File exists.",
    ),
    Template(
        "permission",
        _EXCEPTION,
        "PermissionError",
        "permission",
        "PermissionError: [Errno 13] Permission denied: '{path}'",
    ),
    Template(
        "no_file",
        _EXCEPTION,
        "FileNotFoundError",
        "missing file",
        "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
    ),
    Template(
        "disk_full",
        _EXCEPTION,
        "OSError",
        "disk full",
        "OSError: [Errno 28] No space left on device: '{path}'",
    ),
    Template(
        "bad_json",
        _EXCEPTION,
        "JSONDecodeError",
        "bad model output",
        "json.decoder.JSONDecodeError: Expecting ',' delimiter: line {count} column {seconds} "
        "(char {size})",
    ),
    Template(
        "plan_key",
        _EXCEPTION,
        "KeyError",
        "orchestrator bug",
        'Traceback (most recent call last):\n  File "{path}", line {count}, in run_plan\n'
        "    step = plan[name]\nKeyError: 'step_{seconds}'",
    ),
    Template(
        "worker_silent",
        _EXCEPTION,
        "WorkerLivenessError",
        "worker silent",
        "WorkerLivenessError: worker {uuid} produced no output within 120 s",
    ),
    Template(
        "missing_artifact",
        "run.failed.missing_artifact",
        "",
        "missing artifact",
        "Missing required artifact: {artifact} ({relative}).",
    ),
    Template(
        "artifact_write",
        "run.failed.artifact_write",
        "",
        "disk full",
        "DAG completed successfully but writing its output artifact raised OSError: "
        "[Errno 28] No space left on device: '{path}'",
    ),
)
BY_ID = {template.template_id: template for template in TEMPLATES}
