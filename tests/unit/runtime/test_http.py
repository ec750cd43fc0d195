"""The HTTP server of a component: status pages, silent peers and errors."""

import asyncio
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest

from pinnace.runtime import http as module
from pinnace.runtime.http import StatusServer, parse_address

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""
SIZE = 1 << 24
"""More than the buffers of a connection take."""


@pytest.mark.parametrize("port", ["²", "٣", "9" * 5000, "65536", "-1", ""])
def test_invalid_port_is_rejected(port: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(f"127.0.0.1:{port}")


@pytest.fixture
async def server() -> AsyncIterator[StatusServer]:
    def broken() -> object:
        return {"a set", "is no JSON"}

    def wrong() -> object:
        raise RuntimeError("a bug")

    # A page blocks the event loop. Only `sleep` takes long enough to be noticed.
    pages = {"/large": lambda: "x" * SIZE, "/broken": broken, "/wrong": wrong, "/slow": lambda: time.sleep(0.2)}
    server = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop(), pages)
    server.start()
    yield server
    await asyncio.to_thread(server.stop)


async def test_stop_does_not_wait_for_poll_of_server() -> None:
    """serve_forever looks for a shutdown every 0.5 s, which each component spent at its end."""
    took = []
    for _ in range(3):
        server = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop())
        server.start()
        await asyncio.to_thread(urllib.request.urlopen, f"http://{server.address}/livez", timeout=10)
        before = time.monotonic()
        server.stop()
        took.append(time.monotonic() - before)
    assert min(took) < 0.1


@pytest.mark.parametrize("accept", ["", "text/plain", "application/openmetrics-text;q=0,text/plain"])
async def test_metrics_are_text_for_every_accept_header(server: StatusServer, accept: str) -> None:
    request = urllib.request.Request(f"http://{server.address}/metrics", headers={"Accept": accept})
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        assert b"# EOF" not in response.read()


async def ask(server: StatusServer, path: str) -> None:
    """Request the page, and close the connection once the response has begun."""

    def hang_up() -> None:
        with socket.create_connection(parse_address(server.address)) as peer:
            peer.sendall(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            peer.recv(1)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    def join() -> None:
        for thread in threading.enumerate():
            if "process_request_thread" in thread.name:
                thread.join()

    await asyncio.to_thread(hang_up)
    await asyncio.to_thread(join)


async def test_aborted_request_logs_nothing(server: StatusServer, capfd: pytest.CaptureFixture[str]) -> None:
    await ask(server, "/large")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("path", "error"), [("/broken", "TypeError"), ("/wrong", "RuntimeError: a bug")])
async def test_error_of_a_page_is_logged(
    server: StatusServer, capfd: pytest.CaptureFixture[str], path: str, error: str
) -> None:
    await ask(server, path)
    assert error in capfd.readouterr().err


async def test_slow_page_is_reported(
    server: StatusServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LOOP_DEADLINE", 0.05)
    assert await asyncio.to_thread(get, f"http://{server.address}/slow") == (503, "[-] event loop: no answer\n")
    assert capfd.readouterr().err == ""


async def test_silent_peers_do_not_block_others(server: StatusServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PEERS", 3)
    silent = [socket.create_connection(parse_address(server.address), timeout=10) for _ in range(3)]
    status, _ = await asyncio.to_thread(get, f"http://{server.address}/livez")
    assert status == 200
    assert await asyncio.to_thread(silent[0].recv, 1) == b"", "the oldest connection is closed"
    silent[1].sendall(b"GET /livez HTTP/1.1\r\n\r\n")
    assert (await asyncio.to_thread(silent[1].recv, 100)).startswith(b"HTTP/1.0 200"), "the other connections stay open"
    for peer in silent:
        peer.close()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
