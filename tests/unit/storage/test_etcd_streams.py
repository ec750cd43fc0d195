import asyncio

import grpc
import pytest

from pinnace.apiserver.storage.etcd.storage import send_request


class Call:
    """`write` returns, and the call ends, when they are let."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()
        self.over = asyncio.Event()
        self.written: list[object] = []

    async def write(self, request: object) -> None:
        await self.taken.wait()
        self.written.append(request)

    async def code(self) -> grpc.StatusCode:
        await self.over.wait()
        return grpc.StatusCode.UNAVAILABLE


async def test_send_returns_when_the_message_is_taken() -> None:
    call = Call()
    call.taken.set()
    await send_request(call, "hello")
    assert call.written == ["hello"]


async def test_call_that_ends_before_it_takes_anything_is_not_waited_for() -> None:
    call = Call()
    sending = asyncio.create_task(send_request(call, "hello"))
    await asyncio.sleep(0)
    assert not sending.done()
    call.over.set()
    async with asyncio.timeout(5):
        await sending
    assert not call.written


async def test_cancelled_call_leaves_no_task() -> None:
    call = Call()
    sending = asyncio.create_task(send_request(call, "hello"))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    call.taken.set()
    await asyncio.sleep(0)
    assert not call.written
