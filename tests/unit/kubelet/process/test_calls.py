"""Hooks and probes of real processes."""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from pinnace.api.core_v1_pb2 import ExecAction, GRPCAction, HTTPGetAction, SleepAction, TCPSocketAction
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.kubelet.runtime.interface import CallKind, CallView, ContainerCall, Handler, read_clocks
from pinnace.pki import Authority, Subject
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.conftest import free_port
from tests.unit.kubelet.process.scene import FOR_EVER, UID, Scene, shell

pytestmark = pytest.mark.processes


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A scene with a running container."""
    scene = Scene(tmp_path / "root")
    scene.run(shell(FOR_EVER))
    await scene.running()
    yield scene
    await scene.close()


def begin(scene: Scene, handler: Handler, timeout: float = 5.0, number: int = 0, kind: CallKind = CallKind.READINESS) -> None:
    call = ContainerCall(kind, number, handler, timeout)
    scene.runtime.call(UID, "c0", call, read_clocks(SYSTEM_CLOCK))


async def ended(scene: Scene) -> CallView:
    view = await scene.until(lambda view: bool(view.calls) and view.calls[-1].ended is not None)
    return view.calls[-1]


async def failure(
    scene: Scene, handler: Handler, timeout: float = 5.0, number: int = 0, kind: CallKind = CallKind.READINESS
) -> str:
    begin(scene, handler, timeout, number, kind)
    return (await ended(scene)).failure


def http(port: int, path: str = "/") -> HTTPGetAction:
    return HTTPGetAction(host="127.0.0.1", port=IntOrString(intVal=port), path=path)


@asynccontextmanager
async def answering(line: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that begins each response with `line`. Yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /ready HTTP/1.1\r\n") and b"\r\nX-Who: me\r\n" in request
        writer.write(line)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def test_failed_exec_probe_reports_its_output(scene: Scene) -> None:
    assert await failure(scene, ExecAction(command=["true"])) == ""
    assert await failure(scene, ExecAction(command=["sh", "-c", "echo not ready; exit 1"])) == "not ready"
    assert await failure(scene, ExecAction(command=["false"])) == "command terminated with exit code 1"
    assert (await failure(scene, ExecAction(command=["true", "\0"]))).startswith("cannot run true: embedded null")


async def test_slow_call_times_out(scene: Scene) -> None:
    assert await failure(scene, ExecAction(command=["sleep", "1000"]), timeout=0.1) == "timed out after 0.1 s"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.0 302 Found\r\n\r\n", ""),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "HTTP probe failed with statuscode: 503"),
        (b"what?\r\n", "malformed HTTP response"),
        (b"", "malformed HTTP response"),
    ],
)
async def test_http_probe_depends_on_the_status_code(scene: Scene, line: bytes, said: str) -> None:
    async with answering(line) as port:
        action = http(port, "/ready")
        action.httpHeaders.add(name="X-Who", value="me")
        assert await failure(scene, action) == said


async def test_https_probe_does_not_verify_certificates(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the trusted certificates of the machine blocks the event loop for 20 ms. With 200 probes at once, heartbeats
    were late.
    """
    now = datetime.now(UTC)
    pair = Authority.create("who-knows", now).issue(Subject("a"), now, hosts=["another"])
    (tmp_path / "pair").write_bytes(pair.certificate + pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "pair")
    trusted = list[ssl.SSLContext]()
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context, *_: trusted.append(context))
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n", server) as port:
        action = http(port, "/ready")
        action.scheme = "HTTPS"
        action.httpHeaders.add(name="X-Who", value="me")
        assert await failure(scene, action) == ""
    assert not trusted


@asynccontextmanager
async def pages(answers: Mapping[str, str]) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that answers each path with a status, and with the location of a redirect if the answer has one. Yields its
    port and the requests.
    """
    requests: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        status, _, location = answers[requests[-1].split(" ")[1]].partition(" ")
        writer.write(f"HTTP/1.1 {status} Said\r\n{f'Location: {location}' if location else 'X-A: b'}\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], requests


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"/": "301 /new", "/new": "200"}, ""),
        ({"/": "302 new?a=b", "/new?a=b": "500"}, "HTTP probe failed with statuscode: 500"),
        ({"/": "308 http://another.example/"}, ""),
        ({"/": "308 http://another.example:99999/"}, ""),
        ({"/": "302 com.app:/done"}, ""),
        ({"/": "301 /x y?a=b c", "/x%20y?a=b%20c": "200"}, ""),
        ({"/": "301 /x%20y/\N{LATIN SMALL LETTER E WITH ACUTE}?a=/?", "/x%20y/%C3%A9?a=/?": "200"}, ""),
        ({"/": "307 /"}, "stopped after 10 redirects"),
        ({"/": "303 ftp://127.0.0.1/"}, "malformed HTTP response: unsupported protocol scheme ftp"),
        ({"/": "304 /new"}, ""),
    ],
)
async def test_redirects_are_followed_only_on_the_same_host(scene: Scene, answers: Mapping[str, str], said: str) -> None:
    async with pages(answers) as (port, _):
        assert await failure(scene, http(port)) == said


@pytest.mark.parametrize(("path", "sent"), [("/a b?c d#e", "/a%20b?c%20d"), ("/a%20b", "/a%20b")])
async def test_path_is_escaped_once(scene: Scene, path: str, sent: str) -> None:
    async with pages({sent: "200"}) as (port, _):
        assert await failure(scene, http(port, path)) == ""


async def test_custom_headers_replace_default_ones_and_are_sent_after_redirects(scene: Scene) -> None:
    async with pages({"/": "302 /new", "/new": "200"}) as (port, requests):
        action = http(port)
        for name, value in (("host", "a.example"), ("user-agent", ""), ("X-A", "1"), ("x-a", "2")):
            action.httpHeaders.add(name=name, value=value)
        assert await failure(scene, action) == ""
    headers = [sorted(request.strip().split("\r\n")[1:]) for request in requests]
    assert headers == [["Accept: */*", "Connection: close", "Host: a.example", "X-A: 1", "X-A: 2"]] * 2


@asynccontextmanager
async def greeting(first: bytes) -> AsyncIterator[int]:
    """A server that answers the first bytes of a connection with `first`. Yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(first)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", "first record does not look like a TLS handshake"),
        (b"\x15\x03\x01\x00\x02\x02\x28", "alert handshake failure"),
    ],
)
async def test_tls_errors_are_reported_as_tls_errors(scene: Scene, first: bytes, words: str) -> None:
    async with greeting(first) as port:
        action = http(port)
        action.scheme = "HTTPS"
        said = await failure(scene, action)
    assert said.startswith("tls: ") and said.endswith(words)


@asynccontextmanager
async def plain() -> AsyncIterator[tuple[int, list[str]]]:
    """A server without TLS, which answers a TLS handshake with an HTTP error. Yields its port and the HTTP requests."""
    requests: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (first := await reader.read(1)) == b"G":
            requests.append((first + await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if first == b"G" else b"HTTP/1.0 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], requests


@pytest.mark.parametrize("kind", [CallKind.PRE_STOP, CallKind.READINESS])
async def test_https_hook_falls_back_to_http_without_its_authorization(scene: Scene, kind: CallKind) -> None:
    async with plain() as (port, requests):
        action = http(port, "/done")
        action.scheme = "HTTPS"
        for name, value in (("authorization", "Bearer secret"), ("X-A", "1")):
            action.httpHeaders.add(name=name, value=value)
        said = await failure(scene, action, kind=kind)
    if kind is CallKind.READINESS:
        assert said.startswith("tls: ") and not requests
    else:
        (request,) = requests
        assert said == "" and request.startswith("GET /done ") and "X-A: 1" in request and "secret" not in request


async def test_hook_without_an_http_response_fails_with_the_tls_error(scene: Scene) -> None:
    async with greeting(b"SSH-2.0-a\r\n") as port:
        action = http(port)
        action.scheme = "HTTPS"
        said = await failure(scene, action, kind=CallKind.POST_START)
    assert said == "tls: first record does not look like a TLS handshake"


@pytest.mark.parametrize("kind", [CallKind.POST_START, CallKind.PRE_STOP])
async def test_http_hook_succeeds_with_any_status(scene: Scene, kind: CallKind) -> None:
    async with pages({"/": "404"}) as (port, requests):
        assert await failure(scene, http(port), kind=kind) == ""
        assert "\r\nUser-Agent: kube-lifecycle/" in requests[0]
        socket = TCPSocketAction(host="127.0.0.1", port=IntOrString(intVal=port))
        assert await failure(scene, socket, kind=kind, number=1) == "invalid handler"
    assert (await failure(scene, http(port), kind=kind, number=2)).startswith("dial tcp")


async def test_tcp_probe_checks_whether_the_port_is_open(scene: Scene) -> None:
    port = free_port()
    action = TCPSocketAction(host="127.0.0.1", port=IntOrString(intVal=port))
    assert await failure(scene, action) == f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port):
        assert await failure(scene, action) == ""


async def test_grpc_probe_checks_the_health_of_the_service(scene: Scene) -> None:
    server, servicer = grpc.aio.server(), health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    action = GRPCAction(port=server.add_insecure_port("127.0.1.2:0"), service="s")  # the address of the pod
    await server.start()
    try:
        await servicer.set("s", health_pb2.HealthCheckResponse.SERVING)
        assert await failure(scene, action) == ""
        await servicer.set("s", health_pb2.HealthCheckResponse.NOT_SERVING)
        assert await failure(scene, action) == 'service unhealthy (responded with "NOT_SERVING")'
    finally:
        await server.stop(None)


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_invalid_host_name_fails_the_probe(scene: Scene, host: str) -> None:
    """No DNS query can be made for the name, because it cannot be encoded."""
    for action in (
        HTTPGetAction(host=host, port=IntOrString(intVal=80)),
        TCPSocketAction(host=host, port=IntOrString(intVal=80)),
    ):
        assert await failure(scene, action) == f"dial tcp: lookup {host}: no such host"


async def test_unknown_grpc_health_status_fails_the_probe(scene: Scene) -> None:
    server, servicer = grpc.aio.server(), health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    action = GRPCAction(port=server.add_insecure_port("127.0.1.2:0"), service="s")
    await server.start()
    try:
        await servicer.set("s", 17)
        assert await failure(scene, action)
    finally:
        await server.stop(None)


async def test_calls_end_with_their_container(scene: Scene) -> None:
    begin(scene, SleepAction(seconds=1000), timeout=math.inf)
    scene.stop(0.0)
    view = await scene.exited()
    assert [(call.ended is not None, call.failure) for call in view.calls] == [(True, "the container has exited")]


async def test_new_call_replaces_the_previous_one_of_its_kind(scene: Scene) -> None:
    begin(scene, SleepAction(seconds=1000), timeout=math.inf)
    begin(scene, SleepAction(seconds=0), number=1)
    assert (await ended(scene)).number == 1
