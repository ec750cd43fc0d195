"""exec, attach and port-forward over SPDY: the checks run first, and nothing starts."""

import asyncio
from typing import Any

import pytest

from pinnace.api.pods_pb2 import AttachRequest, ExecRequest, PortForwardRequest
from pinnace.api.status import Code, Refusal
from pinnace.client.errors import ApiError, from_refusal
from pinnace.gateway import exec as exec_module
from pinnace.gateway.exec import PROTOCOLS, Exec, WebSocketUpgrade
from pinnace.gateway.http import ApiStatus, Request
from pinnace.gateway.portforward import PortForward
from pinnace.gateway.routes import resolve_route

DEADLINE = 10.0
VERBS = ("exec", "attach", "portforward")
NO_ENDPOINT = 'the kubelet of node "n" publishes no endpoint for logs, exec and metrics'
FORBIDDEN = 'User "bob" cannot create resource "pods/exec" in API group ""'
KUBECTL = {"exec": "1.30", "attach": "1.30", "portforward": "1.31"}
"""The first kubectl that opens WebSockets."""


class PodStream:
    """A stream of a pod: its first read raises `error`, ends, or blocks if `blocks` is set."""

    def __init__(self, error: ApiError | None, blocks: bool) -> None:
        self._error = error
        self._blocks = blocks
        self.cancelled = False
        self.written: list[Any] = []

    async def write(self, request: Any, *, patience: float | None = None) -> None:
        self.written.append(request)

    async def read(self, silence: float | None = None) -> None:
        if self._error is not None:
            raise self._error
        if self._blocks:
            await asyncio.Event().wait()

    def cancel(self) -> None:
        self.cancelled = True


class Pods:
    def __init__(self, error: ApiError | None = None, blocks: bool = False) -> None:
        self.opened = PodStream(error, blocks)

    async def duplex(self, *arguments: Any) -> PodStream:
        return self.opened

    async def stream(self, request: Any, method: str, message: Any, *arguments: Any) -> PodStream:
        self.opened.written.append(message)
        return self.opened


async def open_stream(pods: Pods, verb: str, method: str = "POST", **headers: str) -> WebSocketUpgrade:
    query = {"command": ["rm", "-r", "x"], "stdout": ["true"], "ports": ["80"]}
    request = Request(method, f"/api/v1/namespaces/default/pods/a/{verb}", query, headers)
    backend: Any = pods
    forward, commands = PortForward(backend), Exec(backend)
    handler = {"exec": commands.exec, "attach": commands.attach, "portforward": forward.port_forward}[verb]
    async with asyncio.timeout(DEADLINE):
        return await handler(request, resolve_route(request))


async def refusal(pods: Pods, verb: str, method: str = "POST", **headers: str) -> ApiStatus:
    with pytest.raises(ApiStatus) as refused:
        await open_stream(pods, verb, method, **headers)
    assert pods.opened.cancelled, "the stream stays open"
    return refused.value


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Refusal(Code.FAILED_PRECONDITION, "NoKubeletEndpoint", NO_ENDPOINT), 400, NO_ENDPOINT),
        (Refusal(Code.NOT_FOUND, "NotFound", 'pods "a" not found'), 404, 'pods "a" not found'),
        (Refusal(Code.PERMISSION_DENIED, "Forbidden", FORBIDDEN), 403, FORBIDDEN),
    ],
)
async def test_spdy_request_receives_the_error_of_its_checks(verb: str, error: Refusal, code: int, message: str) -> None:
    """kubectl repeats a refused WebSocket over SPDY and prints only that answer, so that it must contain the reason."""
    result = await refusal(Pods(from_refusal(error)), verb, upgrade="SPDY/3.1")
    assert result.code == code and message in result.message


@pytest.mark.parametrize("verb", VERBS)
async def test_spdy_refusal_names_the_kubectl_with_websockets(verb: str) -> None:
    result = await refusal(Pods(), verb, upgrade="SPDY/3.1")
    assert result.code == 400 and result.message.endswith(
        f"over SPDY is not supported: use WebSockets, which kubectl supports since {KUBECTL[verb]}"
    )


@pytest.mark.parametrize("verb", VERBS)
async def test_request_without_upgrade_is_refused(verb: str) -> None:
    result = await refusal(Pods(), verb, "GET")
    assert (result.code, result.message) == (400, "Upgrade request required")


async def test_spdy_request_starts_nothing() -> None:
    started: dict[str, Any] = {}
    for verb in VERBS:
        pods = Pods()
        await refusal(pods, verb, upgrade="SPDY/3.1")
        (started[verb],) = pods.opened.written
    assert isinstance(started["exec"], ExecRequest) and isinstance(started["attach"], AttachRequest)
    assert isinstance(started["portforward"], PortForwardRequest)
    assert started["exec"].start.check and not started["exec"].start.command
    assert started["attach"].check
    assert started["portforward"].start.port == 0


async def test_websocket_starts_the_command() -> None:
    pods = Pods()
    headers = {"upgrade": "websocket", "sec-websocket-protocol": PROTOCOLS[0]}
    assert isinstance(await open_stream(pods, "exec", "GET", **headers), WebSocketUpgrade)
    (request,) = pods.opened.written
    assert list(request.start.command) == ["rm", "-r", "x"] and not request.start.check


@pytest.mark.parametrize("verb", VERBS)
async def test_checks_end_at_their_deadline(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_module, "CHECK_TIMEOUT", 0.05)
    result = await refusal(Pods(blocks=True), verb, upgrade="SPDY/3.1")
    assert (result.code, result.reason) == (504, "Timeout")


class Keys:
    """A WebSocket of a client that presses keys and reads."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = list(messages)
        self.sent: list[bytes] = []

    async def receive(self) -> bytes | None:
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def send(self, data: bytes) -> None:
        self.sent.append(data)


async def test_control_c_detaches_a_terminal_from_a_container() -> None:
    """In a terminal, kubectl sends all keys; it could not be ended otherwise."""
    headers = {"upgrade": "websocket", "sec-websocket-protocol": PROTOCOLS[0]}
    query = {"stdin": ["true"], "stdout": ["true"], "tty": ["true"]}
    request = Request("GET", "/api/v1/namespaces/default/pods/a/attach", query, headers)
    backend: Any = Pods(blocks=True)
    upgrade = await Exec(backend).attach(request, resolve_route(request))
    socket = Keys(b"\x00abc", b"\x00\x03")
    async with asyncio.timeout(DEADLINE):
        await upgrade.run(socket)
    assert [message[:1] for message in socket.sent] == [b"\x03"] and b'"Success"' in socket.sent[0]
    assert backend.opened.cancelled
