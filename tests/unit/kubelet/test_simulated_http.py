"""The page of a simulated pod."""

import pytest

from pinnace.kubelet.runtime.simulated_http import MAX_HEAD, HttpPage


def page() -> HttpPage:
    return HttpPage(lambda method, path: f"{method} {path}\n", lambda: 0.0)


def test_requests_of_one_connection_are_answered_in_order() -> None:
    connection = page()
    request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nHEAD /b HTTP/1.1\r\nHost: x\r\n\r\nGET /c HT"
    first, second = connection.feed(request).split(b"GET /a\n")
    assert first.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Length: 7\r\n" in first
    assert b"Content-Length: 8\r\n" in second and second.endswith(b"\r\n\r\n"), "HEAD has no body"
    assert connection.feed(b"TP/1.1\r\n\r\n").endswith(b"GET /c\n") and not connection.closed


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", b"200 OK"),
        (b"PING\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 2 * MAX_HEAD, b"431 Request Header Fields Too Large"),
    ],
)
def test_invalid_request_closes_the_connection(request_: bytes, status: bytes) -> None:
    connection = page()
    answer = connection.feed(request_)
    assert answer.startswith(b"HTTP/1.1 " + status) and connection.closed
    assert connection.feed(b"GET / HTTP/1.1\r\n\r\n") == b""


def test_other_methods_are_refused_and_their_bodies_discarded() -> None:
    connection = page()
    answer = connection.feed(
        b"POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000 + b"GET /next HTTP/1.1\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed") and b"\r\nAllow: GET, HEAD\r\n" in answer
    assert answer.endswith(b"GET /next\n") and not connection.closed
