"""An HTTP server for /metrics, /livez, /readyz and JSON pages. It runs in a separate thread.

/livez, /readyz and pages are computed on the event loop within a deadline. If the event loop is blocked, the process is not
alive, and the response contains the blocking location (pinnace/runtime/stalls.py).
"""

import asyncio
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from pinnace.runtime.stalls import describe_stall

T = TypeVar("T")
Check = Callable[[], str | None]
"""A health check. Called on the event loop. Returns None if healthy, otherwise a description of the problem."""
Page = Callable[[], object]
"""A function whose result is served as JSON. Called on the event loop, which it blocks."""
LOOP_DEADLINE = 2.0
MAX_PEERS = 100
"""The maximum number of connections, each with its own thread. If it is exceeded, the oldest connection is closed."""
SHUTDOWN = "shutdown"
"""The /readyz check that fails once the process is asked to stop, as in kube-apiserver."""
stopping = threading.Event()
"""Set when the process is asked to stop (pinnace.runtime.process)."""
_PORT = re.compile("[0-9]{1,5}")


def parse_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f'"{text}" is not HOST:PORT')
    return host, int(port)


def format_address(address: tuple[str, int]) -> str:
    """Format a pair as HOST:PORT."""
    return f"{address[0]}:{address[1]}"


class StatusServer:
    """The status server. The constructor binds the port and raises OSError; `start` and `stop` control the server. `address` is
    HOST:PORT with the actual port."""

    def __init__(
        self,
        host: str,
        port: int,
        ready: Mapping[str, Check],
        loop: asyncio.AbstractEventLoop,
        pages: Mapping[str, Page] | None = None,
        registries: Sequence[CollectorRegistry] = (REGISTRY,),
    ) -> None:
        """`pages`: JSON pages by path. `registries`: the metric registries that /metrics serves."""
        handler = type(
            "Handler", (_Handler,), {"ready": dict(ready), "loop": loop, "pages": dict(pages or {}), "registries": registries}
        )
        try:
            self._server = _Server((host, port), handler)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --http") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="status-http", daemon=True)
        self.address = f"{host}:{self._server.server_address[1]}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return at once. `shutdown` alone waits until the thread polls, which it does every 0.5 s; a socket that no longer
        listens wakes it."""
        with suppress(OSError):  # the system has closed it
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()


def _check_not_stopping() -> str:
    return "the process is stopping"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MAX_PEERS

    def __init__(self, *arguments: Any) -> None:
        self._peers: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._peers) >= MAX_PEERS:
                oldest = next(iter(self._peers))
                del self._peers[oldest]
                with suppress(OSError):  # the peer has disconnected
                    oldest.shutdown(socket.SHUT_RDWR)
            self._peers[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._peers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect before they receive the response, such as a prober that timed out."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    ready: Mapping[str, Check]
    pages: Mapping[str, Page]
    registries: Sequence[CollectorRegistry]
    loop: asyncio.AbstractEventLoop
    timeout = 5  # seconds within which a client must send its request

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/metrics":
            self._send_answer(200, b"".join(map(generate_latest, self.registries)), CONTENT_TYPE_LATEST)
        elif path == "/livez":
            self._serve_checks({})
        elif path in ("/readyz", "/healthz"):
            self._serve_checks({**self.ready, SHUTDOWN: _check_not_stopping} if stopping.is_set() else self.ready)
        elif path in self.pages:
            self._serve_page(self.pages[path])
        else:
            self._send_answer(404, f"not found; paths: {', '.join(('/metrics', '/livez', '/readyz', *self.pages))}\n".encode())

    def _serve_page(self, page: Page) -> None:
        result = self._ask(page)
        if result is not None:
            self._send_answer(200, json.dumps(result).encode(), "application/json")

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Call `question` on the event loop. If the event loop does not respond, send status 503 and return None."""

        async def ask() -> T:
            return question()

        asking = ask()
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self.loop)
        except RuntimeError:  # the loop is closed
            asking.close()
        else:
            wait((answer,), LOOP_DEADLINE)
            if answer.done() or not answer.cancel():
                return answer.result()
        where = describe_stall(self.loop)
        self._send_answer(503, f"[-] event loop: no answer{f'; {where}' if where else ''}\n".encode())
        return None

    def _serve_checks(self, checks: Mapping[str, Check]) -> None:
        results = self._ask(lambda: {name: check() for name, check in checks.items()})
        if results is None:
            return
        lines = [f"[{'-' if wrong else '+'}] {name}: {wrong or 'ok'}\n" for name, wrong in results.items()]
        bad = any(results.values())
        self._send_answer(503 if bad else 200, ("".join(lines) + ("not ready\n" if bad else "ok\n")).encode())

    def _send_answer(self, code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
        pass
