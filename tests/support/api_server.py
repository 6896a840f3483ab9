"""A real HTTP server on loopback that speaks `/v1/chat/completions` from a script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One HTTP reply; `cut` announces more bytes than come, `drip` sends one byte per so long."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int = 0
    drip: float = 0.0

    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Script = Callable[[int, dict[str, Any]], Answer]
"""(number of the request from 0, its JSON) → the answer."""


def said(
    content: Any = "FINAL: null",
    *,
    reason: str = "stop",
    tokens: tuple[int, int] | None = (100, 10),
    cached: int = 0,
    logprobs: Any = None,
    **message: Any,
) -> dict[str, Any]:
    """The body of a completion; `tokens` are (prompt, generated)."""
    usage = tokens and {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    choice = {
        "index": 0,
        "finish_reason": reason,
        "message": {"role": "assistant", "content": content, **message},
        "logprobs": logprobs,
    }
    body = {"id": "c", "object": "chat.completion", "created": 0, "model": "m-2024-01-01"}
    return {**body, "choices": [choice], **({"usage": usage} if usage else {})}


def token(logprob: float, *tops: float) -> dict[str, Any]:
    """One entry of `logprobs.content`."""
    entries = [{"token": f"t{i}", "logprob": x, "bytes": None} for i, x in enumerate(tops)]
    return {"token": "x", "logprob": logprob, "bytes": None, "top_logprobs": entries}


def fault(status: int, message: str = "no", *, headers: Any = None, **error: Any) -> Answer:
    """An error as OpenAI's server words it."""
    return Answer({"error": {"message": message, **error}}, status, headers or {})


@dataclass
class ApiServer:
    """What the server was asked, and where it is."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # with the usual 5, twenty clients at once wait a second


@contextmanager
def serve(
    script: list[Answer | dict[str, Any]] | Script, models: Answer | None = None
) -> Iterator[ApiServer]:
    """Serve a script: a list of answers (the last one is repeated), or a function."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            seen.keys.append(self.headers.get("authorization"))
            self._send(models or Answer({"object": "list", "data": []}))

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with seen.lock:
                number = len(seen.requests)
                seen.requests.append(asked)
                seen.keys.append(self.headers.get("authorization"))
                seen.arrived.append(time.monotonic())
                seen.in_flight += 1
                seen.most_in_flight = max(seen.most_in_flight, seen.in_flight)
            answer = (
                script(number, asked) if callable(script) else script[min(number, len(script) - 1)]
            )
            answer = Answer(answer) if isinstance(answer, dict) else answer
            ended.wait(answer.delay)
            with seen.lock:
                seen.in_flight -= 1
            self._send(answer)

        def _send(self, answer: Answer) -> None:
            data = answer.data()
            self.send_response(answer.status)
            for name, value in {"content-type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data) + answer.cut))
            self.end_headers()
            try:
                for part in [data[i : i + 1] for i in range(len(data))] if answer.drip else [data]:
                    self.wfile.write(part)
                    self.wfile.flush()
                    if answer.drip and ended.wait(answer.drip):
                        break
            except OSError:  # the client has had enough
                self.close_connection = True
            if answer.cut:
                self.close_connection = True

    server = _Server(("127.0.0.1", 0), Handler)
    seen = ApiServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
