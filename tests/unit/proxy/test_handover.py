"""A successor takes the listeners of a proxy over, with real sockets on loopback addresses."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pinnace.proxy import handover
from pinnace.proxy.handover import Handover, Predecessor
from pinnace.proxy.plan import Endpoint, Frontend
from pinnace.proxy.userspace import UserspaceBackend
from pinnace.runtime.process import FatalError
from tests.unit.proxy.test_userspace import ADDRESS, ask, endpoint, free_port, proxy, rules

STATUS = f"test-{os.getpid()}:1"


class Status:
    """The status server of the running proxy."""

    def __init__(self) -> None:
        self.serves = True
        self.resumed = asyncio.Event()

    async def suspend(self) -> None:
        self.serves = False

    async def resume(self) -> None:
        self.serves = True
        self.resumed.set()


@asynccontextmanager
async def waiting(it: UserspaceBackend, status: Status) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.ensure_future(Handover(STATUS, lambda: it.descriptors, status.suspend, status.resume).wait_for_successor())
    await asyncio.sleep(0)
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def find() -> Predecessor:
    result = await asyncio.to_thread(Predecessor.receive_listeners, STATUS)
    assert result is not None
    return result


async def test_takeover_fails_no_request() -> None:
    ports, stop, failures, served = [free_port() for _ in range(3)], asyncio.Event(), [], 0

    async def call(port: int) -> None:
        nonlocal served
        while not stop.is_set():
            try:
                assert await ask(port) == "127.251.7.2"
                served += 1
            except (OSError, AssertionError, TimeoutError) as error:
                failures.append(repr(error))

    async with endpoint("127.251.7.2") as a:
        services = {f"default/s{port}": rules(port, a) for port in ports}
        current = UserspaceBackend(seed=1)
        await current.apply(services)
        callers = [asyncio.ensure_future(call(port)) for port in ports for _ in range(4)]
        for _ in range(20):
            async with waiting(current, Status()) as ended:
                predecessor = await find()
                assert predecessor.sockets.keys() == current.descriptors.keys()
                following = UserspaceBackend(seed=1, inherited=predecessor.sockets)
                await following.apply(services)
                before = served
                await asyncio.to_thread(predecessor.take_over)
                await asyncio.wait_for(ended, 5)
                await current.close(1.0)
                current = following
                async with asyncio.timeout(5):
                    while served < before + 20:  # noqa: ASYNC110 (a counter)
                        await asyncio.sleep(0.001)
        stop.set()
        await asyncio.gather(*callers)
        await current.close()
    assert failures == [] and served >= 400


async def test_proxy_continues_if_its_successor_ends_before_it_is_ready() -> None:
    port, status = free_port(), Status()
    async with endpoint("127.251.7.2") as a, proxy() as it, waiting(it, status) as ended:
        await it.apply({"default/web": rules(port, a)})
        predecessor = await find()
        assert not status.serves
        predecessor.close()
        await asyncio.wait_for(status.resumed.wait(), 5)
        assert not ended.done() and await ask(port) == "127.251.7.2"
        await asyncio.to_thread((await find()).take_over)
        await asyncio.wait_for(ended, 5)


async def test_more_listeners_than_a_message_can_have_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "BATCH", 7)
    ports = [free_port() for _ in range(30)]
    async with endpoint("127.251.7.2") as a, proxy() as it, waiting(it, Status()):
        await it.apply({f"default/s{port}": rules(port, a) for port in ports})
        predecessor = await find()
        assert predecessor.sockets.keys() == {Frontend(ADDRESS, port, "TCP") for port in ports}
        assert {item.getsockname()[1] for item in predecessor.sockets.values()} == set(ports)
        predecessor.close()


async def test_late_udp_answer_reaches_the_client_after_a_handover() -> None:
    port = free_port(kind=socket.SOCK_DGRAM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        for item in (server, client):
            item.bind(("127.251.7.2", 0))
            item.setblocking(False)
        rule = rules(port, Endpoint(*server.getsockname()), protocol="UDP")
        loop = asyncio.get_running_loop()
        current = UserspaceBackend(seed=1)
        await current.apply({"default/web": rule})
        await loop.sock_sendto(client, b"one", (ADDRESS, port))
        asked, flow = await loop.sock_recvfrom(server, 10)
        async with waiting(current, Status()) as ended:
            predecessor = await find()
            await asyncio.to_thread(predecessor.take_over)
            await asyncio.wait_for(ended, 5)
        assert asked == b"one"
        closing = asyncio.ensure_future(current.close(0.5))
        await asyncio.sleep(0)
        await loop.sock_sendto(server, b"answer", flow)
        assert await asyncio.wait_for(loop.sock_recv(client, 10), 5) == b"answer"
        await closing


async def test_takeover_needs_a_running_proxy() -> None:
    assert Predecessor.receive_listeners(STATUS) is None


async def test_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "TIMEOUT", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hung:
        hung.bind(handover.socket_name(STATUS))
        hung.listen()
        with pytest.raises(FatalError, match=r"cannot take over from the proxy .*: no answer; end it first"):
            Predecessor.receive_listeners(STATUS)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(FatalError, match="belongs to another user"):
            Predecessor.receive_listeners(STATUS)
