"""An extender over HTTP, in a thread of the test."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], Any]
"""From what was sent to what is answered; an int is a status, bytes are sent as they are."""


REDIRECTS = (301, 302, 303, 307, 308)


class HttpExtender:
    """Answers by verb. What it was asked is in `asked`."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.called = threading.Event()
        extender = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                verb = self.path.removeprefix("/ext/")
                extender.asked.append((verb, args))
                extender.called.set()
                answer = extender.answers[verb](args)
                with suppress(ConnectionError):  # nobody waits any more
                    self.send_response(answer if isinstance(answer, int) else 200)
                    if answer in REDIRECTS:
                        self.send_header("Location", f"{extender.url}/elsewhere")
                    self.end_headers()
                    if not isinstance(answer, int):
                        self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's name)
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/ext"

    @contextmanager
    def running(self) -> Iterator["HttpExtender"]:
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.server.shutdown()
            self.server.server_close()
            thread.join()
