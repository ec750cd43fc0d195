"""gRPC's client side over the simulated network: what `pinnace.client.connection.Connection` needs of grpc.aio, and no more.

The Connection is the real one; its peers are SimPeers (tests.simulation.determinism sees to it). One answers as a
pinnace.client.channel.Peer does, its channel as a grpc.aio.Channel: unary calls, response streams, streams in both directions,
cancellation, deadlines, and AioRpcError for whatever ends a call. Messages cross as bytes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from itertools import count
from typing import Any

import grpc
import grpc.aio
from grpc import StatusCode

from pinnace.api.status import DETAILS_KEY
from pinnace.client.channel import CONNECT_TIMEOUT, Peer
from tests.simulation.network import CLOSED, Frame, Network, Socket
from tests.simulation.process import PROCESS, Process

BACKOFF = 0.1
"""Seconds after a refused connection in which no other is tried."""
STATUS = {code.value[0]: code for code in StatusCode}
Write = Callable[[Any], bytes]
Read = Callable[[bytes], Any]
Metadata = Sequence[tuple[str, str]]


class SimPeer(Peer):
    """Belongs to the process that makes it."""

    def __init__(self, endpoint: str, network: Network) -> None:
        super().__init__(endpoint)
        process = PROCESS.get()
        if process is None:
            raise RuntimeError("who connects? A peer belongs to a process")
        self._sim_channel = SimChannel(endpoint, network, process)

    @property
    def channel(self) -> Any:
        return self._sim_channel

    def is_ready(self) -> bool:
        return self._sim_channel.is_up()

    async def connect(self) -> bool:
        return await self._sim_channel.connect()

    async def close(self) -> None:
        self._sim_channel.close()


class SimChannel:
    def __init__(self, endpoint: str, network: Network, process: Process) -> None:
        self._endpoint = endpoint
        self._network = network
        self._process = process
        self._socket: Socket | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._refused = float("-inf")
        self._calls: dict[int, _Call] = {}
        self._ids = count(1)

    async def connect(self) -> bool:
        if self.is_up():
            return True
        if self._dialling is None:
            if asyncio.get_running_loop().time() - self._refused < BACKOFF:
                return False
            self._dialling = asyncio.create_task(self._dial())
        await asyncio.wait((self._dialling,), timeout=CONNECT_TIMEOUT)
        return self.is_up()

    def close(self) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
        if self._socket is not None:
            self._socket.close()
        self._receive(CLOSED)

    def unary_unary(self, method: str, write: Write, read: Read) -> Any:
        def invoke(request: Any, timeout: float, metadata: Metadata | None = None) -> "_Answer":
            call = _Call(self, method, read, write, timeout, tuple(metadata or ()))
            call.begin(write(request))
            return _Answer(call.answer(timeout))

        return invoke

    def unary_stream(self, method: str, write: Write, read: Read) -> Any:
        def invoke(request: Any, metadata: Metadata | None = None) -> "_Call":
            call = _Call(self, method, read, write, None, tuple(metadata or ()))
            call.begin(write(request))
            return call

        return invoke

    def stream_stream(self, method: str, write: Write, read: Read) -> Any:
        def invoke(metadata: Metadata | None = None) -> "_Call":
            call = _Call(self, method, read, write, None, tuple(metadata or ()))
            call.begin(None)
            return call

        return invoke

    def open(self, call: "_Call", request: bytes | None) -> int:
        """Sends the beginning of a call; its number."""
        number = next(self._ids)
        if self._socket is None or not self._socket.open:
            call.end(StatusCode.UNAVAILABLE, "failed to connect to all addresses")
            return number
        self._calls[number] = call
        self._socket.send(("call", number, call.method, request, call.timeout, call.metadata))
        return number

    def send(self, *frame: Any) -> None:
        if self._socket is not None:
            self._socket.send(frame)

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def is_up(self) -> bool:
        return self._socket is not None and self._socket.open

    async def _dial(self) -> None:
        try:
            socket = await self._network.dial(self._process, self._endpoint)
            if socket is None:
                self._refused = asyncio.get_running_loop().time()
            else:
                socket.receive = self._receive
                self._socket = socket
        finally:
            self._dialling = None

    def _receive(self, frame: Frame) -> None:
        kind, *rest = frame
        if frame is CLOSED:
            calls, self._calls = self._calls, {}
            for call in calls.values():
                call.end(StatusCode.UNAVAILABLE, "Socket closed")
            return
        number, *payload = rest
        call = self._calls.get(number)
        if call is None:
            return
        if kind == "message":
            call.deliver(payload[0])
        else:
            code, details, status = payload
            self.forget(number)
            call.end(STATUS[code], details, status)


class _Answer:
    """What a unary call gives: it can be awaited, and asked for its trailers. Simulated servers send none with an answer."""

    def __init__(self, answer: Coroutine[Any, Any, Any]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer.__await__()

    async def trailing_metadata(self) -> Metadata:
        return ()


class _Call:
    """One call, of any kind; what grpc.aio's call objects are to the Connection."""

    def __init__(
        self, channel: SimChannel, method: str, read: Read, write: Write, timeout: float | None, metadata: Metadata = ()
    ) -> None:
        self.method = method
        self.timeout = timeout
        self.metadata = metadata
        self._channel = channel
        self._from_bytes = read
        self._to_bytes = write
        self._number = 0
        self._arrived: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: grpc.aio.AioRpcError | None = None
        self._ended = False
        self._cancelled = False
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def begin(self, request: bytes | None) -> None:
        self._number = self._channel.open(self, request)

    async def answer(self, timeout: float) -> Any:
        """Of a unary call."""
        try:
            async with asyncio.timeout(timeout):
                response = await self.read()
        except TimeoutError:
            raise _error(StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        if response is grpc.aio.EOF:
            raise _error(StatusCode.INTERNAL, "no answer")
        return response

    async def read(self) -> Any:
        while not self._arrived:
            if self._cancelled:
                raise asyncio.CancelledError
            if self._ended:
                if self._error is not None:
                    raise self._error
                return grpc.aio.EOF
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                self._waiter = None
        return self._from_bytes(self._arrived.popleft())

    async def write(self, request: Any) -> None:
        if self._ended or self._cancelled:
            raise asyncio.InvalidStateError("the call has ended")
        self._channel.send("message", self._number, self._to_bytes(request))

    def cancel(self) -> None:
        if self._ended or self._cancelled:
            return
        self._cancelled = True
        self._arrived.clear()
        self._channel.send("cancel", self._number)
        self._channel.forget(self._number)
        if self._waiter is not None:
            self._waiter.cancel()
        self._run_callbacks()

    def deliver(self, message: bytes) -> None:
        if not self._cancelled:
            self._arrived.append(message)
            self._wake()

    def end(self, code: StatusCode, details: str, status: bytes = b"") -> None:
        """The call is over; what has arrived can still be read, unless it broke."""
        self._ended = True
        if code is not StatusCode.OK:
            self._error = _error(code, details, status)
        self._wake()
        self._run_callbacks()

    def _run_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _error(code: StatusCode, details: str, status: bytes = b"") -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata((DETAILS_KEY, status)) if status else grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details=details)
