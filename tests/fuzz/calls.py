"""Sends one shot, and tells what came of it."""

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.rpc import status_pb2

from pinnace.api.status import Refusal, decode
from tests.fuzz.live import Live
from tests.fuzz.shots import How, Shot, Who

LINGER = 0.1
"""Seconds for which a stream is listened to."""
CROWD = 200
"""Streams of a crowd."""
CROWD_LINGER = 1.0
HALF_OPEN = 50
"""Connections that are left open; then the oldest is closed."""
_DETAILS = "grpc-status-details-bin"
_LOST = "Internal error from Core"
"""What grpcio's client makes of a status that comes while it writes."""


class Answer(NamedTuple):
    """`code` is None when we left before there was one. `refusal`: the details of a status, where there are any."""

    code: grpc.StatusCode | None
    seconds: float
    message: str = ""
    refusal: Refusal | None = None
    response: bytes = b""
    """Of a method with one response."""


class Caller:
    """As everybody, over connections that many share."""

    def __init__(self, server: Live, methods: dict[str, MethodDescriptor]) -> None:
        self._server = server
        self._methods = methods
        self._channels = {who: server.channel(who) for who in Who}
        self._half_open: list[socket.socket] = []

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        for item in self._half_open:
            item.close()
        self._half_open.clear()

    async def send(self, shot: Shot) -> Answer:
        """The answer; never raises for what a server may say."""
        began = time.monotonic()
        match shot.how:
            case How.KNOCK:
                await asyncio.to_thread(self._knock, shot)
                return Answer(None, time.monotonic() - began)
            case How.CROWD:
                return await self._crowd(shot)
            case How.OWN_CHANNEL:
                async with self._server.channel(shot.who) as channel:
                    return await self._call(channel, shot)
        return await self._call(self._channels[shot.who], shot)

    async def _call(self, channel: grpc.aio.Channel, shot: Shot) -> Answer:
        method = self._methods.get(shot.what.path)
        began, response = time.monotonic(), b""
        if method is None or not method.server_streaming:
            call: Any = channel.unary_unary(shot.what.path)(
                shot.what.messages[0], timeout=shot.deadline, metadata=shot.metadata
            )
            with suppress(grpc.aio.AioRpcError):
                response = await call
        else:
            call = _open(channel, shot, method)
            if not await _listen(call, shot, method):
                call.cancel()
                return Answer(None, time.monotonic() - began)
        code, said = await call.code(), await call.details() or ""
        if said == _LOST:
            code = None
        return Answer(code, time.monotonic() - began, said, await _refusal(call), response)

    async def _crowd(self, shot: Shot) -> Answer:
        """A third ends politely, a third is cancelled, and the others lose their connection."""
        began = time.monotonic()
        method = self._methods[shot.what.path]
        async with self._server.channel(shot.who) as channel:
            left = [_open(channel, shot._replace(how=How.ABANDON), method) for _ in range(CROWD * 2 // 3)]
            await asyncio.gather(*(_say(call, shot.what.messages[:1]) for call in left))
            polite = [_open(channel, shot, method) for _ in range(CROWD // 3)]
            await asyncio.wait([asyncio.ensure_future(call.code()) for call in polite], timeout=CROWD_LINGER)
            for call in left[::2]:
                call.cancel()
        return Answer(None, time.monotonic() - began)

    def _knock(self, shot: Shot) -> None:
        """Raw bytes, before TLS or inside of it."""
        host, port = self._server.address(shot.who).split(":")
        made: socket.socket = socket.create_connection((host, int(port)), timeout=shot.deadline)
        with suppress(OSError):
            if shot.who is Who.ADMIN:
                made = self._server.tls(shot.who).create_ssl_context().wrap_socket(made, server_hostname=host)
            made.sendall(shot.what.messages[0])
        self._half_open.append(made)
        if len(self._half_open) > HALF_OPEN:
            self._half_open.pop(0).close()


def _open(channel: grpc.aio.Channel, shot: Shot, method: MethodDescriptor) -> Any:
    """A stream, on which everything has been said; or, if it is to be abandoned, nothing yet."""
    if not method.client_streaming:
        return channel.unary_stream(shot.what.path)(shot.what.messages[0], timeout=shot.deadline, metadata=shot.metadata)
    said = None if shot.how is How.ABANDON else shot.what.messages
    return channel.stream_stream(shot.what.path)(said, timeout=shot.deadline, metadata=shot.metadata)


async def _say(call: Any, messages: Sequence[bytes]) -> None:
    """As long as somebody listens."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for message in messages:
            await call.write(message)


async def _listen(call: Any, shot: Shot, method: MethodDescriptor) -> bool:
    """For a moment; whether it has ended then."""
    with suppress(TimeoutError, grpc.aio.AioRpcError):
        async with asyncio.timeout(LINGER):
            if method.client_streaming and shot.how is How.ABANDON:
                await _say(call, shot.what.messages)
            while await _read(call) is not grpc.aio.EOF:
                if shot.how is How.ABANDON:
                    return False
            return not call.cancelled()
    done: bool = call.done() and not call.cancelled()
    return done


async def _read(call: Any) -> Any:
    """The next response. grpcio cancels a call, and who reads from it, when the server ends it while it is told something."""
    try:
        return await call.read()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        return grpc.aio.EOF


async def _refusal(call: Any) -> Refusal | None:
    for key, value in await call.trailing_metadata() or ():
        if key == _DETAILS:
            return decode(status_pb2.Status.FromString(value))
    return None
