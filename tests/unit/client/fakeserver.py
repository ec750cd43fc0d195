"""An API server with scripted responses, over real gRPC on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import Message

from pinnace.api import wire
from pinnace.api.resources import Object
from pinnace.api.status import DETAILS_KEY, Code, Refusal, encode
from pinnace.api.verbs_pb2 import Known, WatchEventType
from pinnace.client.connection import Connection
from pinnace.runtime.tls import TlsFiles, server_credentials

Unary = Callable[[Any, grpc.aio.ServicerContext], Awaitable[Message]]


class FakeServer(grpc.GenericRpcHandler):
    """`on` sets the handler of a method; `calls` has the called methods in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.address = ""
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._server.add_generic_rpc_handlers((self,))

    async def start(self, address: str = "127.0.0.1:0", tls: TlsFiles | None = None) -> "FakeServer":
        if tls is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, server_credentials(tls))
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Stop at once; streams break."""
        await self._server.stop(None)

    def on(self, method: str, request: type[Message], answer: Unary) -> None:
        self._handlers[method] = grpc.unary_unary_rpc_method_handler(answer, request.FromString, _encode)

    def on_watch(self, method: str, request: type[Message], answer: Callable[[Any, Any], AsyncIterator[bytes]]) -> None:
        self._handlers[method] = grpc.unary_stream_rpc_method_handler(answer, request.FromString, None)

    def on_duplex(self, method: str, request: type[Message], answer: Callable[[Any, Any], AsyncIterator[Message]]) -> None:
        self._handlers[method] = grpc.stream_stream_rpc_method_handler(answer, request.FromString, _encode)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        self.calls.append(details.method)
        return self._handlers.get(details.method)


class End(Enum):
    OVER = auto()
    """The server ends the stream without an error."""


Step: TypeAlias = bytes | Refusal | End


class WatchScript:
    """Answers watches from lists of steps.

    The first watch gets the first list, and so on. After its steps, the last stream stays silent. A step is an encoded
    response, a Refusal that ends the stream, or an End. `asked` has the resourceVersion of each watch; `known` has the
    revision and history that its client sent.
    """

    def __init__(self, *streams: Sequence[Step]) -> None:
        self._streams = list(streams)
        self.asked: list[str] = []
        self.known: list[Known] = []
        self._another = asyncio.Condition()

    async def wait_asked(self, times: int) -> None:
        """Wait until that many watches were opened."""
        async with asyncio.timeout(5.0), self._another:
            await self._another.wait_for(lambda: len(self.asked) >= times)

    async def answer(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        async with self._another:
            self.asked.append(request.options.resourceVersion)
            self.known.append(request.known)
            self._another.notify_all()
        steps = self._streams.pop(0) if self._streams else []
        for step in steps:
            match step:
                case Refusal():
                    await refuse(context, step)
                case End.OVER:
                    return
                case _:
                    yield step
        await asyncio.get_running_loop().create_future()


def events(revision: int | None, *changes: tuple[WatchEventType, Object], history: bytes = b"") -> bytes:
    """A watch response. Without a revision it is a part of the initial state."""
    encoded = [wire.watch_event(kind, obj.SerializeToString()) for kind, obj in changes]
    return wire.watch_response(encoded, revision, history) if revision else b"".join(encoded)


async def refuse(context: grpc.aio.ServicerContext, refusal: Refusal) -> None:
    """End the call as the API server does."""
    code = next(code for code in grpc.StatusCode if code.value[0] == int(refusal.code))
    await context.abort(code, refusal.message, ((DETAILS_KEY, encode(refusal).SerializeToString()),))


async def lose(context: grpc.aio.ServicerContext) -> None:
    """End the call as a broken connection does: without error details of the API server."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def unavailable(retry_after: float | None = 0.01) -> Refusal:
    return Refusal(Code.UNAVAILABLE, "StorageUnavailable", "etcd: no answer", retry_after=retry_after)


class InOrder:
    """A `random.Random` for Connection that keeps the order of the servers and chooses the shortest delay."""

    def sample(self, population: list[str], k: int) -> list[str]:
        return population[:k]

    def uniform(self, low: float, high: float) -> float:
        return low


def connect(*servers: FakeServer | str) -> Connection:
    """A connection that tries the servers in this order."""
    endpoints = [server if isinstance(server, str) else server.address for server in servers]
    return Connection(endpoints, rng=InOrder())


def _encode(message: Message) -> bytes:
    return message.SerializeToString()
