"""The page that every port of a simulated pod serves: HTTP/1.1 over a forwarded connection.

    bytes of the client --> HttpPage.feed --> bytes for the client

GET and HEAD of any path return a text that names the pod; other methods return 405. Bodies of requests are discarded.
"""

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus

import httptools

MAX_HEAD = 16 << 10
"""Bytes of a request before its body. A longer one is answered with 431."""
SERVER = "pinnace-simulated"


class HttpPage:
    """One connection. `describe(method, path)`: returns the text of the page. `now`: returns the Unix time."""

    def __init__(self, describe: Callable[[str, str], str], now: Callable[[], float]) -> None:
        self._describe = describe
        self._now = now
        self._parser = httptools.HttpRequestParser(self)
        self._head = 0  # bytes of the present head; -1: in a body
        self._url = b""
        self._answers = bytearray()
        self.closed = False
        """Whether the connection must be closed after the last answer."""

    def feed(self, data: bytes) -> bytes:
        """The answers to the requests that are complete now."""
        for start in range(0, len(data), MAX_HEAD):
            if self.closed:
                break
            self._feed_bytes(data[start : start + MAX_HEAD])
        answers, self._answers = bytes(self._answers), bytearray()
        return answers

    def _feed_bytes(self, data: bytes) -> None:
        if self._head >= 0:
            self._head += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # the request was answered; what follows is another protocol
            self.closed = True
        except httptools.HttpParserError:
            self._write_answer(HTTPStatus.BAD_REQUEST, "the request is not HTTP/1.1\n", keep_alive=False)
        if self._head > MAX_HEAD and not self.closed:
            text = f"the head of the request exceeds {MAX_HEAD} bytes\n"
            self._write_answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text, keep_alive=False)

    def on_message_begin(self) -> None:
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        self._head = -1

    def on_message_complete(self) -> None:
        self._head = 0
        if self.closed:
            return
        method, keep_alive = self._parser.get_method().decode("ascii", "replace"), self._parser.should_keep_alive()
        if method not in ("GET", "HEAD"):
            self._write_answer(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not allowed: use GET\n", keep_alive=keep_alive)
            return
        path = self._url.decode("ascii", "replace")
        text = self._describe(method, path)
        self._write_answer(HTTPStatus.OK, text, keep_alive=keep_alive, has_body=method == "GET")

    def _write_answer(self, status: HTTPStatus, text: str, *, keep_alive: bool, has_body: bool = True) -> None:
        body = text.encode()
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Server: {SERVER}",
            f"Date: {formatdate(self._now(), usegmt=True)}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        self._answers += "\r\n".join((*lines, "", "")).encode() + (body if has_body else b"")
        self.closed = self.closed or not keep_alive
