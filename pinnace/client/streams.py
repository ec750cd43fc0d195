"""The streams of a Connection: from one server, or with one, until they end. Nothing here resumes one."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from pinnace.client.errors import ApiError, unavailable, unimplemented, unknown_method, unreadable
from pinnace.client.peer import Peer
from pinnace.runtime.cancellation import CallCancelled, HeedsCancellation

WRITE_TIMEOUT = 1.0
"""Seconds in which a request of a stream must have left. gRPC waits for ever when a call ends before its metadata has been sent
(`_StreamRequestMixin._write` in grpcio)."""

Begin: TypeAlias = Callable[[Peer], Any]
"""Begins the call of a stream at one server."""
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def decoder(response: type[R]) -> Callable[[bytes], R | None]:
    """Reads responses. None: it cannot be read (`unreadable`). If it raised, gRPC would log
    that, and make None of it as well."""

    def read(data: bytes) -> R | None:
        try:
            return response.FromString(data)
        except DecodeError:
            return None

    return read


class Servers(Protocol):
    """A Connection."""

    async def connected(self, method: str, ignorant: Collection[str]) -> Peer: ...

    def failed(self, peer: Peer, error: grpc.aio.AioRpcError) -> ApiError: ...

    def move_on(self, peer: Peer) -> None: ...


class Stream(Generic[R]):
    """What one server sends, until it ends or fails. Never resumed here. `cancel` it when done."""

    def __init__(self, servers: Servers, method: str, peer: Peer, begin: Begin) -> None:
        self._servers = servers
        self._method = method
        self._peer = peer
        self._begin = begin
        self._call = begin(peer)
        self._ignorant: list[str] = []
        """Servers that do not know the method."""

    @property
    def endpoint(self) -> str:
        return self._peer.endpoint

    async def read(self, silence: float | None = None) -> R | None:
        """The next response; None at the end of the stream. Raises ApiError.

        A server that sends nothing for `silence` seconds is left for the next: Unavailable.
        """
        try:
            with HeedsCancellation():
                async with asyncio.timeout(silence):
                    response = await self._next()
        except TimeoutError:
            self.abandon()
            raise unavailable(f"API server {self.endpoint} fell silent for {silence:.0f} s") from None
        except CallCancelled:
            raise unavailable(f"the stream from API server {self.endpoint} was cancelled") from None
        except grpc.aio.AioRpcError as error:
            failure = self._servers.failed(self._peer, error)
            if not unknown_method(failure):
                raise failure from None
            self._ignorant.append(self.endpoint)
            await self._begin_elsewhere()
            return await self.read(silence)
        if response is None:
            raise unreadable(self._method, self.endpoint)
        return None if response is grpc.aio.EOF else response

    def leave(self) -> None:
        """Moves the connection on to another server. The stream stays as it is."""
        self._servers.move_on(self._peer)

    def abandon(self) -> None:
        """Breaks the stream off, and moves the connection on to another server."""
        self.leave()
        self.cancel()

    def cancel(self) -> None:
        self._call.cancel()

    async def _begin_elsewhere(self) -> None:
        self._peer = await self._servers.connected(self._method, self._ignorant)
        self._call = self._begin(self._peer)

    async def _next(self) -> Any:
        return await self._call.read()


class Duplex(Stream[R], Generic[Q, R]):
    """A stream in both directions. It outlives those who read it: one that is `read` no longer is still there to be left.

    Of what was written to a server that does not know the method only the first request is said again elsewhere: with more, it
    is Unimplemented at once."""

    def __init__(self, servers: Servers, method: str, peer: Peer, begin: Begin) -> None:
        super().__init__(servers, method, peer, begin)
        self._writing = asyncio.Lock()  # gRPC takes one message at a time
        self._first: Q | None = None
        self._written = 0
        self._reading: asyncio.Future[Any] | None = None

    async def write(self, request: Q, *, patience: float | None = WRITE_TIMEOUT) -> None:
        """Sends, once the peer has room for it. A stream that has ended takes no notice: `read` says why it ended. A server
        that takes nothing for `patience` seconds is left for the next: raises Unavailable."""
        async with self._writing:
            if self._first is None:
                self._first = request
            self._written += 1
            await self._write(request, patience)

    async def _write(self, request: Q, patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience):
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, CallCancelled), HeedsCancellation():
                    await self._call.write(request)
        except TimeoutError:
            self.abandon()
            raise unavailable(f"API server {self.endpoint} takes no requests") from None

    async def _begin_elsewhere(self) -> None:
        async with self._writing:
            if self._written > 1:
                raise unimplemented(self._method, self._ignorant)
            await super()._begin_elsewhere()
            self._reading = None
            if self._first is not None:
                await self._write(self._first, WRITE_TIMEOUT)

    async def _next(self) -> Any:
        """gRPC breaks a call off when its reader is cancelled (`_StreamResponseMixin._read` in grpcio): so that is a task that
        nobody cancels, and whoever reads next finds it there."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._call.read())
            self._reading.add_done_callback(_heard)
        response = await asyncio.shield(self._reading)
        self._reading = None
        return response


def _heard(reading: asyncio.Future[Any]) -> None:
    """How a read ends that nobody waits for any more is no news to anybody."""
    if not reading.cancelled():
        reading.exception()
