"""Port forwarding over a WebSocket, with kubectl's SPDY/3.1+portforward.k8s.io or the client libraries' v4.channel.k8s.io.

Each connection to a port is a separate stream to the API server and to the kubelet of the pod's node.

With SPDY, a connection is a pair of streams with the same request ID: `data`, and `error` for a text message. With channels,
the query contains the ports. Port number n has the channels 2n for data and 2n+1 for errors; both start with the port.

Source: https://github.com/kubernetes/kubernetes/tree/master/staging/src/k8s.io/kubelet/pkg/cri/streaming/portforward
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pinnace.api.pods_pb2 import PortForwardRequest, PortForwardResponse, PortForwardStart
from pinnace.client.errors import ApiError
from pinnace.gateway import spdy
from pinnace.gateway.backend import Backend
from pinnace.gateway.exec import (
    WEBSOCKET_PORT_FORWARD,
    WebSocketStream,
    WebSocketUpgrade,
    await_check_with_timeout,
    choose_protocol,
    refusal_response,
    websocket_required,
)
from pinnace.gateway.http import Request, bad_request
from pinnace.gateway.routes import Route
from pinnace.gateway.spdy import SpdyError

SPDY, CHANNELS = "SPDY/3.1+portforward.k8s.io", "v4.channel.k8s.io"
MAX_CONNECTIONS = 256
"""The maximum number of open connections of a WebSocket."""
MAX_PORTS = 64
"""The maximum number of ports in a query."""
QUEUE = 8
"""The maximum number of queued messages of a connection."""
Send = Callable[[bytes], Awaitable[None]]


class PortForward:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def port_forward(self, request: Request, route: Route) -> WebSocketUpgrade:
        """Forward ports of a pod. Raises ApiStatus before the upgrade if the pod does not support it."""
        protocol = choose_protocol(request, (SPDY, CHANNELS))
        ports = _read_ports(request) if protocol == CHANNELS else []
        check = _PortConnection(self._backend, request, route, 0)
        try:
            await await_check_with_timeout(check.run(_discard_data))
        except ApiError as error:
            raise refusal_response(error, route) from None
        if protocol is None:
            raise websocket_required(request, "port-forward", WEBSOCKET_PORT_FORWARD)

        def connect(port: int) -> _PortConnection:
            return _PortConnection(self._backend, request, route, port)

        if protocol == SPDY:
            return WebSocketUpgrade((SPDY,), _SpdyForwarder(connect).run)
        return WebSocketUpgrade(
            (CHANNELS,), lambda socket: _forward_channels(socket, [(port, connect(port)) for port in ports])
        )


async def _discard_data(data: bytes) -> None:
    pass


def _read_ports(request: Request) -> list[int]:
    """Return the ports in the query. Raises ApiStatus (400)."""
    texts = [text for value in request.query.get("ports", ()) for text in value.split(",")]
    if not texts:
        raise bad_request("query parameter 'ports' is required")
    if len(texts) > MAX_PORTS:
        raise bad_request(f"too many ports: at most {MAX_PORTS}")
    ports = [int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0 for text in texts]
    if not all(0 < port < 65536 for port in ports):
        raise bad_request("query parameter 'ports' must be numbers from 1 to 65535")
    return ports


class _PortConnection:
    """A connection to a port."""

    def __init__(self, backend: Backend, request: Request, route: Route, port: int) -> None:
        self._backend = backend
        self._request = request
        self._start = PortForwardStart(namespace=route.namespace, name=route.name, port=port)
        self._outgoing: asyncio.Queue[PortForwardRequest] = asyncio.Queue(QUEUE)
        self._ended = False

    async def send(self, data: bytes) -> None:
        """Send data to the port. Blocks while the queue is full. Data for a closed connection is dropped."""
        if data and not self._ended:
            await self._outgoing.put(PortForwardRequest(data=data))

    async def close_write(self) -> None:
        if not self._ended:
            await self._outgoing.put(PortForwardRequest(closeWrite=True))

    async def run(self, receive: Send) -> None:
        """Run until the port closes the connection. Raises ApiError."""
        stream: Any = None
        try:
            stream = await self._backend.duplex(
                self._request, "/pinnace.v1.Pods/PortForward", PortForwardRequest, PortForwardResponse
            )
            await stream.write(PortForwardRequest(start=self._start))
            writing = asyncio.create_task(self._write(stream))
            try:
                while (answer := await stream.read()) is not None:
                    if answer.data:
                        await receive(answer.data)
            finally:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
        finally:
            if stream is not None:
                stream.cancel()
            self._ended = True
            while not self._outgoing.empty():
                self._outgoing.get_nowait()

    async def _write(self, stream: Any) -> None:
        while True:
            await stream.write(await self._outgoing.get(), patience=None)


async def _forward_channels(socket: WebSocketStream, connections: list[tuple[int, _PortConnection]]) -> None:
    async def forward(number: int, port: int, connection: _PortConnection) -> None:
        data, error = bytes((2 * number,)), bytes((2 * number + 1,))
        for channel in (data, error):
            await socket.send(channel + port.to_bytes(2, "little"))
        try:
            await connection.run(lambda received: socket.send(data + received))
        except ApiError as failed:
            await socket.send(error + failed.message.encode())

    async def read() -> None:
        while (message := await socket.receive()) is not None:
            number, is_error = divmod(message[0], 2) if message else (0, 1)
            if not is_error and number < len(connections):
                await connections[number][1].send(message[1:])

    reading = asyncio.ensure_future(read())
    forwarding = asyncio.gather(*(forward(number, *each) for number, each in enumerate(connections)))
    try:
        await asyncio.wait((reading, forwarding), return_when=asyncio.FIRST_COMPLETED)
    finally:
        reading.cancel()
        forwarding.cancel()
        await asyncio.gather(reading, forwarding, return_exceptions=True)


class _SpdyForwarder:
    """The SPDY streams of one WebSocket."""

    def __init__(self, connect: Callable[[int], _PortConnection]) -> None:
        self._connect = connect
        self._decoder, self._encoder = spdy.SpdyDecoder(), spdy.SpdyEncoder()
        self._errors: dict[str, int] = {}
        """The error stream of each request ID whose data stream has not been opened."""
        self._connections: dict[int, _PortConnection] = {}
        """Connections by data stream."""
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self, socket: WebSocketStream) -> None:
        try:
            while (message := await socket.receive()) is not None:
                for frame in self._decoder.frames(message):
                    await self._handle_frame(frame, socket)
        except SpdyError:
            pass  # the WebSocket is closed
        finally:
            tasks = [*self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _handle_frame(self, frame: spdy.Frame, socket: WebSocketStream) -> None:
        if frame.kind == spdy.SYN_STREAM:
            await self._open_stream(frame.stream, self._decoder.headers(frame.payload), socket)
        elif frame.kind == spdy.PING:
            await socket.send(self._encoder.encode_pong(frame.payload))
        elif frame.kind == spdy.RST_STREAM:
            if task := self._tasks.get(frame.stream):
                task.cancel()
        elif connection := self._connections.get(frame.stream):
            await connection.send(frame.payload)
            if frame.flags & spdy.FIN:
                await connection.close_write()

    async def _open_stream(self, stream: int, headers: Any, socket: WebSocketStream) -> None:
        if stream in self._connections or stream in self._errors.values():
            raise SpdyError(f"stream {stream} is already open")
        kind, request_id, port = headers.get("streamtype"), headers.get("requestid", ""), headers.get("port", "")
        is_port = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
        if kind == "error" and is_port and len(self._errors) < MAX_CONNECTIONS:
            self._errors[request_id] = stream
            await socket.send(self._encoder.encode_reply(stream))
        elif kind == "data" and is_port and request_id in self._errors and len(self._tasks) < MAX_CONNECTIONS:
            connection = self._connections[stream] = self._connect(int(port))
            await socket.send(self._encoder.encode_reply(stream))
            error = self._errors.pop(request_id)
            task = self._tasks[stream] = asyncio.create_task(self._forward(stream, error, connection, socket))
            task.add_done_callback(lambda _: self._forget_stream(stream))
        else:
            await socket.send(self._encoder.encode_reset(stream, spdy.REFUSED_STREAM))

    def _forget_stream(self, stream: int) -> None:
        del self._tasks[stream], self._connections[stream]

    async def _forward(self, stream: int, error: int, connection: _PortConnection, socket: WebSocketStream) -> None:
        message = b""
        try:
            await connection.run(lambda data: socket.send(self._encoder.encode_data(stream, data)))
        except ApiError as failed:
            message = failed.message.encode()
        await socket.send(self._encoder.encode_data(error, message, spdy.FIN))
        await socket.send(self._encoder.encode_data(stream, b"", spdy.FIN))
