"""What a call had is gone when the call is over, however it ended."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any
from weakref import ref

import grpc
import grpc.aio
import pytest

from apiserver.auth.user import UNSECURED
from apiserver.errors import Rejected
from apiserver.services.handlers import MethodHandlers
from apiserver.services.requests import RequestIds
from pinnace.api.status import Code, Refusal
from tests.credentials import Shown


class Large:
    """A part of a request."""


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
async def test_a_call_that_fails_keeps_nothing(end: BaseException) -> None:
    kept: list[ref[Large]] = []

    async def fail(request: Large, call: object) -> bytes:
        part = Large()
        kept.extend((ref(request), ref(part)))
        try:
            raise KeyError("inside")
        except KeyError as error:
            raise end from error

    method: Any = SimpleNamespace(call=fail, parse=None, client_streaming=False, server_streaming=False)
    handlers = MethodHandlers({"/a/B": method}, lambda context: Shown(UNSECURED), RequestIds("s"))
    handler = handlers.service(SimpleNamespace(method="/a/B"))
    context = Context()
    try:
        await handler.unary_unary(Large(), context)
    except (ValueError, asyncio.CancelledError) as error:
        context.ended = error
    assert context.ended is not None
    assert [each() for each in kept] == [None, None]


async def test_a_stream_keeps_nothing_of_what_was_said() -> None:
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

    method: Any = SimpleNamespace(stream=refuse, parse=read, client_streaming=True, server_streaming=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((MethodHandlers({"/a/B": method}, lambda context: Shown(UNSECURED), RequestIds("s")),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/a/B")()
        with pytest.raises(grpc.aio.AioRpcError, match="no"):
            await call.write(b"said")
            await call.read()
    await server.stop(None)
    assert [each() for each in kept] == [None]
