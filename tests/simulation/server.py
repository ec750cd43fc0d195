"""gRPC's server side over the simulated network, before the real methods of an API server (apiserver.assembly).

A call runs in a task of its own, which is cancelled when the caller cancels, its deadline passes or the connection breaks, as
grpc.aio does. A stream of requests then simply ends.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from pinnace.api.status import encode
from pinnace.apiserver.assembly import Assembly
from pinnace.apiserver.auth.authentication import User
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry import fencing
from pinnace.apiserver.services.methods import Method
from tests.credentials import Shown
from tests.simulation.network import CLOSED, Frame, Network, Socket
from tests.simulation.process import Process
from tests.simulation.users import user_of

FAREWELL = 0.2
"""As apiserver.server's."""


class SimServer:
    """`run` until the process dies; `stop` for a polite end."""

    def __init__(self, assembly: Assembly, network: Network, process: Process, address: str) -> None:
        self.assembly = assembly
        self._network = network
        self._process = process
        self._address = address
        self._sockets: list[Socket] = []

    async def run(self) -> None:
        self._network.listen(self._address, self._process, self._accept)
        await self.assembly.run()

    async def stop(self) -> None:
        """Sends everybody on to another server, and closes."""
        await self.assembly.drain()
        await asyncio.sleep(FAREWELL)
        self._network.close_listener(self._address)
        for socket in self._sockets:
            socket.close()

    def _accept(self, socket: Socket) -> None:
        self._sockets = [item for item in self._sockets if item.open]
        self._sockets.append(socket)
        socket.receive = _Session(socket, self.assembly.methods, user_of(socket.peer.owner)).receive


class _Session:
    """The calls of one connection."""

    def __init__(self, socket: Socket, methods: Mapping[str, Method], user: User) -> None:
        self._socket = socket
        self._user = user
        self._methods = methods
        self._calls: dict[int, _ServerCall] = {}

    def receive(self, frame: Frame) -> None:
        if frame is CLOSED:
            calls, self._calls = self._calls, {}
            for call in calls.values():
                call.cancel()
            return
        kind, number, *payload = frame
        if kind == "call":
            path, request, timeout, metadata = payload
            call = self._calls[number] = _ServerCall(self._socket, self._user, number, self._methods[path], timeout)
            call.task = asyncio.create_task(self._serve(call, request, metadata))
            if timeout is not None:
                call.alarm = asyncio.get_running_loop().call_later(timeout, call.cancel)
        elif (known := self._calls.get(number)) is not None:
            if kind == "message":
                known.deliver(payload[0])
            else:
                known.cancel()

    async def _serve(self, call: "_ServerCall", request: bytes | None, metadata: Sequence[tuple[str, str]]) -> None:
        method = call.method
        try:
            fencing.read_fences(metadata)
            if method.server_streaming:
                requests: Any = call.requests() if method.client_streaming else method.parse(request or b"")
                async with aclosing(method.stream(requests, call)) as responses:
                    async for response in responses:
                        call.answer(response)
            else:
                call.answer(await method.call(method.parse(request or b""), call))
        except Rejected as rejected:
            refusal = rejected.refusal
            call.finish(int(refusal.code), refusal.message, encode(refusal).SerializeToString())
        else:
            call.finish(0, "", b"")
        finally:
            self._calls.pop(call.number, None)
            if call.alarm is not None:
                call.alarm.cancel()


class _ServerCall:
    """One call, and the context that services get of it."""

    def __init__(self, socket: Socket, user: User, number: int, method: Method, timeout: float | None) -> None:
        self.user = user
        self.credential = Shown(user)
        self.number = number
        self.method = method
        self.task: asyncio.Task[None]
        self.alarm: asyncio.TimerHandle | None = None
        self._socket = socket
        self._deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        self._requests: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._over = False

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else self._deadline - asyncio.get_running_loop().time()

    def on_response_taken(self, callback: Callable[[], None]) -> None:
        callback()

    async def requests(self) -> AsyncIterator[Any]:
        while True:
            while self._requests:
                yield self.method.parse(self._requests.popleft())
            if self._over:
                return
            self._arrived.clear()
            await self._arrived.wait()

    def deliver(self, request: bytes) -> None:
        self._requests.append(request)
        self._arrived.set()

    def answer(self, response: bytes) -> None:
        self._socket.send(("message", self.number, response))

    def finish(self, code: int, message: str, status: bytes) -> None:
        self._over = True
        self._socket.send(("status", self.number, code, message, status))

    def cancel(self) -> None:
        """The caller is gone."""
        self._over = True
        self._requests.clear()
        self._arrived.set()
        self.task.cancel()
