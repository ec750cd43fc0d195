"""The HTTPS client: certificates, services, limits, and what a bad webhook costs."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from pinnace.api.admissionregistration_v1_pb2 import ServiceReference, WebhookClientConfig
from pinnace.apiserver.webhooks import client as client_module
from pinnace.apiserver.webhooks.client import (
    MAX_CONNECTIONS,
    MAX_RESPONSE,
    NoEndpoint,
    ServiceTarget,
    TooManyCalls,
    WebhookCallError,
    WebhookClient,
    WebhookTarget,
)
from tests.webhook_server import WebhookServer, allow, certificate, hang

PATIENCE = 20.0

REVIEW = b'{"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1"}}'
SERVICE = ServiceTarget("team", "hook", 443)


def no_service(target: ServiceTarget) -> tuple[str, int]:
    raise NoEndpoint(f'service "{target.name}" not found')


@pytest.fixture
async def server() -> AsyncIterator[WebhookServer]:
    running = WebhookServer("127.0.0.1", SERVICE.host)
    running.answers = {"allow": allow, "hang": hang}
    async with running.run():
        yield running


@pytest.fixture
async def client() -> AsyncIterator[WebhookClient]:
    calls = WebhookClient(no_service)
    yield calls
    await calls.close()


def target(server: WebhookServer, path: str) -> WebhookTarget:
    return WebhookTarget(server.url(path), server.ca_bundle)


async def error_of(client: WebhookClient, to: WebhookTarget, timeout: float = 5) -> str:
    with pytest.raises(WebhookCallError) as caught:
        await client.post(to, REVIEW, timeout)
    return str(caught.value)


async def test_connection_is_reused(server: WebhookServer, client: WebhookClient) -> None:
    for _ in range(5):
        assert b'"allowed": true' in await client.post(target(server, "allow"), REVIEW, 5)
    assert (len(server.reviews["allow"]), server.connections) == (5, 1)


async def test_service_is_called_at_endpoint_with_its_name(server: WebhookServer) -> None:
    client = WebhookClient(lambda service: ("127.0.0.1", server.port))
    to = WebhookTarget(f"https://{SERVICE.host}:443/allow", server.ca_bundle, SERVICE)
    assert b"allowed" in await client.post(to, REVIEW, 5)
    await client.close()


async def test_certificate_for_other_name_is_refused(server: WebhookServer) -> None:
    other = ServiceTarget("team", "other", 443)
    client = WebhookClient(lambda service: ("127.0.0.1", server.port))
    to = WebhookTarget(f"https://{other.host}:443/allow", server.ca_bundle, other)
    assert await error_of(client, to) == (
        'Post "https://other.team.svc:443/allow?timeout=5s": tls: failed to verify certificate: x509: '
        "certificate is not valid for other.team.svc"
    )
    await client.close()


async def test_certificate_of_unknown_authority_is_refused(server: WebhookServer, client: WebhookClient) -> None:
    for bundle in (certificate("other")[0], b""):
        error = await error_of(client, WebhookTarget(server.url("allow"), bundle))
        assert error.endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")
    assert not server.reviews


@pytest.mark.parametrize("bundle", [b"nonsense", b"\xff", b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"])
async def test_invalid_bundle_is_reported(client: WebhookClient, bundle: bytes) -> None:
    error = await error_of(client, WebhookTarget("https://127.0.0.1:1/", bundle))
    assert error == "unable to load root certificates: unable to parse bytes as PEM block"


async def test_missing_service_is_reported(client: WebhookClient) -> None:
    to = WebhookTarget(f"https://{SERVICE.host}:443/x", b"", SERVICE)
    assert await error_of(client, to) == 'Post "https://hook.team.svc:443/x?timeout=5s": service "hook" not found'


async def test_unknown_host_is_reported(client: WebhookClient) -> None:
    error = await error_of(client, WebhookTarget("https://nowhere.invalid/x"))
    assert error == 'Post "https://nowhere.invalid/x?timeout=5s": dial tcp: lookup nowhere.invalid: no such host'


async def test_plain_http_server_is_reported(client: WebhookClient) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    error = await error_of(client, WebhookTarget(f"https://127.0.0.1:{port}/"))
    listening.close()
    assert error.endswith("http: server gave HTTP response to HTTPS client")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (500, 'an error on the server ("broken") has prevented the request from succeeding'),
        (404, "the server could not find the requested resource"),
        (302, "the server responded with the status code 302 but did not return more information"),
    ],
)
async def test_http_error_is_reported(server: WebhookServer, client: WebhookClient, code: int, error: str) -> None:
    async def answer(request: web.Request, review: Any) -> web.Response:
        return web.Response(status=code, text="broken", headers={"Location": server.url("allow")})

    server.raw["x"] = answer
    assert await error_of(client, target(server, "x")) == error
    assert "allow" not in server.reviews


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not today", "code": 418}, "not today"),
        ({"status": "Failure", "message": "not today"}, "not today"),
        ({"kind": "Status", "status": "Success", "message": "x"}, "the server could not find the requested resource"),
        ([], "the server could not find the requested resource"),
    ],
)
async def test_http_error_can_be_a_status(server: WebhookServer, client: WebhookClient, status: Any, error: str) -> None:
    """As Kubernetes' client, prefer the message of a Status object to that of the HTTP status."""

    async def answer(request: web.Request, review: Any) -> web.Response:
        return web.json_response(status, status=404)

    server.raw["x"] = answer
    assert await error_of(client, target(server, "x")) == error


async def test_hanging_webhook_ends_at_its_timeout(server: WebhookServer, client: WebhookClient) -> None:
    began = time.monotonic()
    error = await error_of(client, target(server, "hang"), 0.2)
    assert error == f'Post "{server.url("hang")}?timeout=0.2s": context deadline exceeded'
    assert time.monotonic() - began < 2


async def test_hanging_webhook_does_not_delay_others(server: WebhookServer, client: WebhookClient) -> None:
    hanging = [asyncio.ensure_future(error_of(client, target(server, "hang"), 60)) for _ in range(2 * MAX_CONNECTIONS)]
    for _ in range(20):
        await client.post(target(server, "allow"), REVIEW, 5)
    assert not any(call.done() for call in hanging)
    for call in hanging:
        call.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_large_response_is_cut_off(server: WebhookServer, client: WebhookClient) -> None:
    sent = 0

    async def flood(request: web.Request, review: Any) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * (1 << 20))
            sent += 1

    server.raw["flood"] = flood
    assert await error_of(client, target(server, "flood")) == f"the response has more than {MAX_RESPONSE:,} bytes"
    assert sent < 20


async def test_compressed_response_is_refused(server: WebhookServer, client: WebhookClient) -> None:
    async def answer(request: web.Request, review: Any) -> web.Response:
        response = web.Response(body=b" " * 100_000)
        response.enable_compression(web.ContentCoding.gzip)
        response.headers["Content-Encoding"] = "gzip"
        return response

    server.raw["x"] = answer
    assert "compressed" in await error_of(client, target(server, "x"))


async def test_all_large_responses_share_a_budget(
    server: WebhookServer, client: WebhookClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_BUFFERED", 1 << 20)
    small = WebhookClient(no_service)

    async def answer(request: web.Request, review: Any) -> web.Response:
        return web.Response(body=b" " * (2 << 20))

    server.raw["x"] = answer
    assert await error_of(small, target(server, "x")) == "too many large responses of webhooks at once"
    assert b"allowed" in await small.post(target(server, "allow"), REVIEW, 5)
    await small.close()


async def test_user_cannot_fill_queue(server: WebhookServer, client: WebhookClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_OPEN", 10)
    calls = [asyncio.ensure_future(client.post(target(server, "hang"), REVIEW, 30, "greedy")) for _ in range(10)]
    await asyncio.sleep(0)
    refused = [call for call in calls if call.done() and isinstance(call.exception(), TooManyCalls)]
    assert 0 < len(refused) < 10
    other = asyncio.ensure_future(client.post(target(server, "hang"), REVIEW, 30, "other"))
    await asyncio.sleep(0)
    assert not other.done()
    for call in (*calls, other):
        call.cancel()
    await asyncio.gather(*calls, other, return_exceptions=True)


async def test_closed_connection_is_replaced(server: WebhookServer, client: WebhookClient) -> None:
    """A server closes a connection that it believes to be unused, while the client sends a call on it."""
    attempts = 0

    async def answer(request: web.Request, review: Any) -> web.StreamResponse:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"again": True})

    server.raw["x"] = answer
    assert b"again" in await client.post(target(server, "x"), REVIEW, 5)
    assert attempts == 2


def test_config_of_service_names_host_and_default_port() -> None:
    config = WebhookClientConfig(service=ServiceReference(namespace="team", name="hook", path="review"), caBundle=b"x")
    assert WebhookTarget.from_config(config) == WebhookTarget("https://hook.team.svc:443/review", b"x", SERVICE)
    assert WebhookTarget.from_config(WebhookClientConfig(url="https://h/p")) == WebhookTarget("https://h/p")


@pytest.mark.processes
def test_servers_without_webhooks_do_not_import_aiohttp() -> None:
    """Its import takes 0.15 s of CPU time."""
    program = "import sys, pinnace.apiserver.assembly; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_hanging_name_occupies_one_thread(monkeypatch: pytest.MonkeyPatch, client: WebhookClient) -> None:
    """Calls to another name do not wait for it. It used to occupy all threads of the client."""
    released, real, asked = threading.Event(), socket.getaddrinfo, list[str]()

    def look_up(host: str, *more: Any) -> Any:
        asked.append(host)
        if host == "hang.example":
            released.wait(PATIENCE)
        return real("127.0.0.1" if host == "hang.example" else host, *more)

    monkeypatch.setattr("pinnace.apiserver.webhooks.client.socket.getaddrinfo", look_up)
    other = WebhookServer("localhost")
    other.answers = {"allow": allow}
    async with other.run():
        hanging = [asyncio.create_task(error_of(client, WebhookTarget("https://hang.example/x"), 0.5)) for _ in range(100)]
        assert b"allowed" in await client.post(
            WebhookTarget(f"https://localhost:{other.port}/allow", other.ca_bundle), REVIEW, PATIENCE
        )
        assert {error.partition(": ")[2] for error in await asyncio.gather(*hanging)} == {"context deadline exceeded"}
    released.set()
    assert asked.count("hang.example") == 1
