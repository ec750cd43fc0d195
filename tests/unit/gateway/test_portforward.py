"""Port forwarding over v4.channel.k8s.io, as in the official Python client."""

import asyncio
from typing import Any

import pytest

from pinnace.api.pods_pb2 import PortForwardRequest, PortForwardResponse
from pinnace.client.errors import unavailable_error
from pinnace.gateway.exec import WebSocketUpgrade
from pinnace.gateway.http import ApiStatus, Request
from pinnace.gateway.portforward import CHANNELS, PortForward
from pinnace.gateway.routes import resolve_route

PATH = "/api/v1/namespaces/default/pods/a/portforward"
DEADLINE = 10.0


class Port:
    """A forwarding stream of an API server. It returns the received bytes in upper case. Port 81 is unreachable."""

    def __init__(self) -> None:
        self.cancelled = False
        self._number = 0
        self._received: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, request: PortForwardRequest, *, patience: float | None = None) -> None:
        if request.HasField("start"):
            self._number = request.start.port
        else:
            self._received.put_nowait(request.data)

    async def read(self, silence: float | None = None) -> PortForwardResponse | None:
        if self._number == 0:  # the check before the upgrade
            return None
        if self._number == 81:
            raise unavailable_error("port 81: connection refused")
        return PortForwardResponse(data=(await self._received.get()).upper())

    def cancel(self) -> None:
        self.cancelled = True


class Ports:
    def __init__(self) -> None:
        self.opened: list[Port] = []

    async def duplex(self, *arguments: Any) -> Port:
        self.opened.append(Port())
        return self.opened[-1]


class Socket:
    """A WebSocket. `incoming`: messages of the client; None ends the connection."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    async def send(self, data: bytes) -> None:
        self.outgoing.put_nowait(data)


async def forward(ports: Ports, *numbers: str) -> WebSocketUpgrade:
    headers = {"upgrade": "websocket", "sec-websocket-protocol": CHANNELS}
    request = Request("GET", PATH, {"ports": numbers}, headers)
    backend: Any = ports
    return await PortForward(backend).port_forward(request, resolve_route(request))


async def test_each_port_has_a_data_and_an_error_channel() -> None:
    ports, socket = Ports(), Socket()
    async with asyncio.timeout(DEADLINE):
        upgrade = await forward(ports, "80,81")
        assert upgrade.protocols == (CHANNELS,)
        running = asyncio.ensure_future(upgrade.run(socket))
        socket.incoming.put_nowait(b"\x00hello")
        result = [await socket.outgoing.get() for _ in range(6)]
        for channel, port in ((0, 80), (1, 80), (2, 81), (3, 81)):
            assert bytes((channel,)) + port.to_bytes(2, "little") in result, "a channel does not begin with its port"
        assert b"\x00HELLO" in result and b"\x03port 81: connection refused" in result
        socket.incoming.put_nowait(None)
        await running
    assert all(port.cancelled for port in ports.opened)


@pytest.mark.parametrize("numbers", [(), ("0",), ("70000",), ("x",), ("80", "-1")])
async def test_invalid_ports_are_refused(numbers: tuple[str, ...]) -> None:
    with pytest.raises(ApiStatus) as refused:
        await forward(Ports(), *numbers)
    assert refused.value.code == 400
