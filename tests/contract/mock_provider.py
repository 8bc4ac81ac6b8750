"""A model provider on the loopback address that plays scenarios and keeps the truth.

It speaks Anthropic Messages, OpenAI Chat Completions and OpenAI Responses, streaming, and needs
Python's standard library only. A request belongs to the scenario whose marker stands first in its
conversation; one without tools or marker (a title, a warm-up) gets a short answer aside.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.contract.scenarios import ERRORS, SCENARIOS, Answer, Usage

MARKER = re.compile(r"\[\[(\w+)\]\]")
_SESSION = re.compile(r"session(?:_id\W+|_)([0-9a-f]{8}-[0-9a-f-]{27})")
ASIDE = Answer("A title", usage=Usage(7, 0, 0, 3, 0))
Translate = Callable[[str, str, dict[str, Any]], tuple[str, dict[str, Any]]]
"""A call in general words, with the request, as the client's tool and its arguments."""


def _new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:20]


def _texts(part: Any) -> Iterator[str]:
    """All that was said in a conversation, without what the client itself always says."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for item in part:
            yield from _texts(item)
    elif isinstance(part, dict) and part.get("role") not in ("system", "developer"):
        for key in ("text", "content", "input", "output"):
            yield from _texts(part.get(key))


def marker_of(body: dict[str, Any]) -> str | None:
    """The scenario that a request belongs to."""
    for text in _texts(body.get("messages") or body.get("input") or []):
        if found := MARKER.search(text):
            return found[1]
    return None


def session_of(body: dict[str, Any]) -> str | None:
    """The session of a request, where the client says so: what its transcript is named after."""
    if key := body.get("prompt_cache_key"):
        return str(key)
    found = _SESSION.search(str((body.get("metadata") or {}).get("user_id")))
    return found[1] if found else None


class MockProvider(ThreadingHTTPServer):
    """Plays `SCENARIOS`; ``log`` is what it answered, in order."""

    daemon_threads = True

    def __init__(self, translate: Translate) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.translate = translate
        self.log: list[dict[str, Any]] = []
        self._n_asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> MockProvider:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that were killed leave connections behind."""

    def next_answer(self, body: dict[str, Any]) -> tuple[Answer, dict[str, Any]]:
        """What a request is answered with, and its row of the log."""
        name = marker_of(body)
        with self._lock:
            if name not in SCENARIOS or not body.get("tools"):
                answer, number, name = ASIDE, -1, None
            else:
                number = self._n_asked[name]
                self._n_asked[name] += 1
                answers = SCENARIOS[name].answers
                answer = answers[min(number, len(answers) - 1)]
            row = {
                "scenario": name,
                "number": number,
                "status": answer.status,
                "is_whole": False,
                "usage": asdict(answer.usage),
                "n_calls": len(answer.calls),
                "session_id": session_of(body),
                "stop": answer.stop,
            }
            self.log.append(row)
        return answer, row


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MockProvider

    def log_message(self, *_: Any) -> None:
        """Say nothing: the log of the provider is what counts."""

    def do_HEAD(self) -> None:
        self._send(200, {})

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [], "models": []})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            return self._send(200, {"input_tokens": 100})
        wires = {
            "/messages": ("anthropic", anthropic_events),
            "/responses": ("openai", responses_events),
            "/chat/completions": ("openai", chat_events),
        }
        wire = next((wire for end, wire in wires.items() if path.endswith(end)), None)
        if wire is None:
            return self._send(404, {"error": {"type": "not_found_error", "message": path}})
        family, events_of = wire
        answer, row = self.server.next_answer(body)
        time.sleep(answer.wait_s)
        if answer.status >= 400:
            kind, message = ERRORS[answer.error][family]
            error = {"type": kind, "message": message, "code": kind}
            row["is_whole"] = True
            # OpenAI says it in the stream that a conversation is too long.
            if answer.error == "overflow" and path.endswith("/responses"):
                return self._stream(iter([_failed(error)]), answer, row)
            return self._send(answer.status, {"type": "error", "error": error}, retry_after=1)
        calls = [(*self.server.translate(*call, body), _new_id("call_")) for call in answer.calls]
        events = events_of(answer, calls, body.get("model"))
        if body.get("stream"):
            return self._stream(events, answer, row)
        row["is_whole"] = True
        return self._send(200, _as_one(family, path, answer, body.get("model")))

    def _send(self, status: int, answer: dict[str, Any], retry_after: int | None = None) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if retry_after and status in (429, 529):
            self.send_header("retry-after", str(retry_after))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(
        self, events: Iterator[dict[str, Any] | str], answer: Answer, row: dict[str, Any]
    ) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                data = event if isinstance(event, str) else json.dumps(event)
                name = event.get("type") if isinstance(event, dict) else None
                sent = ((f"event: {name}\n" if name else "") + f"data: {data}\n\n").encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent))
                self.wfile.flush()
            if answer.is_cut:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
            row["is_whole"] = True
        except OSError:  # the client went away, as in scenarios that kill it
            self.close_connection = True


Calls = list[tuple[str, dict[str, Any], str]]


def _pieces(answer: Answer) -> list[str]:
    return re.findall(r".{1,12}", answer.text or "", re.DOTALL)


def anthropic_events(answer: Answer, calls: Calls, model: Any) -> Iterator[dict[str, Any] | str]:
    usage = answer.usage
    yield {
        "type": "message_start",
        "message": {
            "id": _new_id("msg_"), "type": "message", "role": "assistant", "model": model,
            "content": [], "stop_reason": None, "stop_sequence": None,
            "usage": {
                "input_tokens": usage.fresh, "output_tokens": 1,
                "cache_creation_input_tokens": usage.cache_write,
                "cache_read_input_tokens": usage.cache_read,
            },
        },
    }  # fmt: skip
    index = 0
    if answer.text is not None:
        block: dict[str, Any] = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for piece in _pieces(answer):
            delta = {"type": "text_delta", "text": piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if answer.is_cut:
            return
        yield {"type": "content_block_stop", "index": index}
        index += 1
    for name, arguments, call_id in calls:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
        index += 1
    stops = {"output_limit": "max_tokens", "refusal": "refusal"}
    stop = stops.get(answer.stop, "tool_use" if calls else "end_turn")
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": usage.output},
    }
    yield {"type": "message_stop"}


def chat_events(answer: Answer, calls: Calls, model: Any) -> Iterator[dict[str, Any] | str]:
    base = {"id": _new_id("chatcmpl-"), "object": "chat.completion.chunk", "model": model}
    base["created"] = int(time.time())

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(answer):
        yield chunk({"content": piece})
    if answer.is_cut:
        return
    for index, (name, arguments, call_id) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": index, "id": call_id, "type": "function", "function": function}
        yield chunk({"tool_calls": [call]})
    stops = {"output_limit": "length", "refusal": "content_filter"}
    yield chunk({}, stops.get(answer.stop, "tool_calls" if calls else "stop"))
    usage = answer.usage
    n_input = usage.fresh + usage.cache_write + usage.cache_read
    yield base | {
        "choices": [],
        "usage": {
            "prompt_tokens": n_input, "completion_tokens": usage.output,
            "total_tokens": n_input + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }  # fmt: skip
    yield "[DONE]"


def responses_events(answer: Answer, calls: Calls, model: Any) -> Iterator[dict[str, Any] | str]:
    response: dict[str, Any] = {
        "id": _new_id("resp_"), "object": "response", "created_at": int(time.time()),
        "status": "in_progress", "model": model, "output": [],
    }  # fmt: skip
    yield {"type": "response.created", "response": response}
    items: list[dict[str, Any]] = []
    if answer.text is not None:
        item: dict[str, Any] = {"type": "message", "id": _new_id("msg_"), "role": "assistant"}
        part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
        where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        started = item | {"status": "in_progress", "content": []}
        yield {"type": "response.output_item.added", "output_index": 0, "item": started}
        yield {"type": "response.content_part.added", "part": part} | where
        for piece in _pieces(answer):
            yield {"type": "response.output_text.delta", "delta": piece} | where
        if answer.is_cut:
            return
        item |= {"status": "completed", "content": [part | {"text": answer.text}]}
        yield {"type": "response.output_text.done", "text": answer.text} | where
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        items.append(item)
    for name, arguments, call_id in calls:
        space, _, short = name.rpartition(".")
        item = {"type": "function_call", "id": _new_id("fc_"), "call_id": call_id, "name": short}
        item |= {"arguments": json.dumps(arguments), "status": "completed"}
        item |= {"namespace": space} if space else {}
        number = len(items)
        started = item | {"arguments": ""}
        yield {"type": "response.output_item.added", "output_index": number, "item": started}
        yield {"type": "response.output_item.done", "output_index": number, "item": item}
        items.append(item)
    usage = answer.usage
    n_input = usage.fresh + usage.cache_write + usage.cache_read
    response |= {
        "output": items,
        "usage": {
            "input_tokens": n_input, "output_tokens": usage.output,
            "total_tokens": n_input + usage.output,
            "input_tokens_details": {"cached_tokens": usage.cache_read},
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }  # fmt: skip
    stops = {"output_limit": "max_output_tokens", "refusal": "content_filter"}
    if answer.stop in stops:
        response |= {"incomplete_details": {"reason": stops[answer.stop]}, "status": "incomplete"}
        yield {"type": "response.incomplete", "response": response}
    else:
        yield {"type": "response.completed", "response": response | {"status": "completed"}}


def _failed(error: dict[str, Any]) -> dict[str, Any]:
    response = {"id": _new_id("resp_"), "object": "response", "status": "failed", "output": []}
    return {"type": "response.failed", "response": response | {"error": error}}


def _as_one(family: str, path: str, answer: Answer, model: Any) -> dict[str, Any]:
    """An answer that is not streamed: what clients ask for aside."""
    usage = answer.usage
    if family == "anthropic":
        return {
            "id": _new_id("msg_"), "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": answer.text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": usage.fresh, "output_tokens": usage.output},
        }  # fmt: skip
    counts = {"total_tokens": usage.fresh + usage.output}
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        item = {"type": "message", "id": _new_id("msg_"), "role": "assistant", "content": [part]}
        counts |= {"input_tokens": usage.fresh, "output_tokens": usage.output}
        return {
            "id": _new_id("resp_"), "object": "response", "status": "completed", "model": model,
            "output": [item | {"status": "completed"}], "usage": counts,
        }  # fmt: skip
    counts |= {"prompt_tokens": usage.fresh, "completion_tokens": usage.output}
    message = {"role": "assistant", "content": answer.text}
    return {
        "id": _new_id("chatcmpl-"), "object": "chat.completion", "model": model, "usage": counts,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }  # fmt: skip
