"""What a call had is gone when the call is over, however it ended."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from weakref import ref

import grpc
import grpc.aio
import pytest

from pinnace.api.status import Code, Refusal
from pinnace.apiserver.auth.authentication import RequestAuthenticator
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.calls import CallRunner, RequestIds
from pinnace.apiserver.services.handlers import MethodHandlers
from pinnace.runtime.grpc_server import RefusalPacer


class Large:
    """A request, or a part of it."""

    def __len__(self) -> int:
        return 0


class Context:
    """As gRPC's: it keeps what a call ended with, which leads back to it."""

    ended: BaseException | None = None

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def time_remaining(self) -> None:
        return

    def set_trailing_metadata(self, trailers: object) -> None:
        return

    async def abort(self, code: object, details: str, trailers: object) -> None:
        raise ValueError(details)


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("end", [Rejected(Refusal(Code.INVALID_ARGUMENT, "Invalid", "no")), asyncio.CancelledError()])
async def test_call_that_fails_keeps_nothing(end: BaseException) -> None:
    kept: list[ref[Large]] = []

    async def fail(request: Large, call: object) -> bytes:
        part = Large()
        kept.extend((ref(request), ref(part)))
        try:
            raise KeyError("inside")
        except KeyError as error:
            raise end from error

    method: Any = SimpleNamespace(
        call=fail, parse=lambda data: data, is_paced=False, client_streaming=False, server_streaming=False
    )
    handlers = MethodHandlers({"/a/B": method}, None, CallRunner(RequestIds("s"), RefusalPacer()))
    handler = handlers.service(SimpleNamespace(method="/a/B"))
    context = Context()
    try:
        await handler.unary_unary(Large(), context)
    except (ValueError, asyncio.CancelledError) as error:
        context.ended = error
    assert context.ended is not None
    assert [item() for item in kept] == [None, None]


async def test_stream_keeps_nothing_of_what_was_said() -> None:
    """By gRPC itself: its iterator of requests has the last one for as long as the collector has not come by."""
    kept: list[ref[Large]] = []

    def read(data: bytes) -> Large:
        large = Large()
        kept.append(ref(large))
        return large

    async def refuse(requests: AsyncIterator[Large], call: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            raise Rejected(Refusal(Code.INVALID_ARGUMENT, "Invalid", "no"))
        yield b""

    method: Any = SimpleNamespace(stream=refuse, parse=read, is_paced=False, client_streaming=True, server_streaming=True)
    async with serving(method) as channel:
        call = channel.stream_stream("/a/B")()
        with pytest.raises(grpc.aio.AioRpcError, match="no"):
            await call.write(b"said")
            await call.read()
    assert [item() for item in kept] == [None]


@pytest.mark.parametrize("streaming", [False, True])
async def test_refused_call_is_freed(streaming: bool) -> None:
    """By gRPC itself: the call has the error with which it was ended, and that all that it went through."""

    async def refuse(request: bytes, call: object) -> bytes:
        raise Rejected(Refusal(Code.INVALID_ARGUMENT, "Invalid", "no"))

    async def refuse_stream(request: bytes, call: object) -> AsyncIterator[bytes]:
        raise Rejected(Refusal(Code.INVALID_ARGUMENT, "Invalid", "no"))
        yield b""

    method: Any = SimpleNamespace(
        call=refuse, stream=refuse_stream, parse=bytes, is_paced=False, client_streaming=False, server_streaming=streaming
    )
    gc.collect()
    async with serving(method) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="no"):
            if streaming:
                await channel.unary_stream("/a/B")(b"").read()
            else:
                await channel.unary_unary("/a/B")(b"")
    assert not [obj for obj in gc.get_objects() if isinstance(obj, grpc.aio.AbortError)]


@pytest.mark.parametrize("path", ["/a/C", "/a/B"])
async def test_call_refused_before_its_request_is_freed(path: str) -> None:
    """One of an unknown method; one whose caller nobody knows, of a known method."""
    method: Any = SimpleNamespace(parse=bytes, is_paced=False, client_streaming=True, server_streaming=True)
    gc.collect()
    async with serving(method, RequestAuthenticator(lambda: 0.0)) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="a client certificate or a bearer token is required"):
            await channel.unary_unary(path)(b"")
    async with serving(method) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="the server has no method /a/C"):
            await channel.unary_unary("/a/C")(b"")
    assert not [obj for obj in gc.get_objects() if isinstance(obj, grpc.aio.AbortError)]


@asynccontextmanager
async def serving(method: Any, authenticator: RequestAuthenticator | None = None) -> AsyncIterator[grpc.aio.Channel]:
    """The method as /a/B, until the server has stopped."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (MethodHandlers({"/a/B": method}, authenticator, CallRunner(RequestIds("s"), RefusalPacer())),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)
