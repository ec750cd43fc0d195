"""What is asked of etcd again when no answer comes: of members that are slow, that hang, or that refuse."""

import asyncio
from contextlib import suppress

import grpc
import pytest

from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.etcd import storage as module
from pinnace.apiserver.storage.etcd.members import Member
from pinnace.apiserver.storage.interface import Unavailable
from tests.unit.cacher.world import eventually

QUICK, TIMEOUT = 0.04, 0.5
NEVER = 60.0
ANSWER = 7


class Asked(EtcdStorage):
    """Its members answer what is sent to them after these seconds, the last of them again and again; None: they refuse. When
    their connections are `broken`, all fails that is under way."""

    def __init__(self, *seconds: float | None, members: int = 1) -> None:
        super().__init__([f"etcd-{number}:2379" for number in range(members)], timeout=TIMEOUT)
        self.seconds = list(seconds)
        self.sent: list[str] = []
        self.under_way = 0
        self.broken = asyncio.Event()

    async def ask(self) -> int:
        return int(await self._call_members(self.attempt))

    async def attempt(self, member: Member, timeout: float) -> int:
        self.sent.append(member.endpoint)
        seconds = self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.under_way += 1
        try:
            broken = await happens(self.broken, min(seconds or 0.0, timeout))
        finally:
            self.under_way -= 1
        if seconds is None or (broken and seconds):
            raise failure(grpc.StatusCode.UNAVAILABLE)
        if seconds > timeout:
            raise failure(grpc.StatusCode.DEADLINE_EXCEEDED)
        return ANSWER


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether it does within so many seconds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds takes a tenth of it."""
    monkeypatch.setattr(module, "QUICK", QUICK)
    monkeypatch.setattr(module, "PAUSE", QUICK / 8)


@pytest.mark.parametrize("times", [1.5, 3.0, 6.0])
async def test_member_that_is_slow_is_heard_and_asked_few_times(times: float) -> None:
    storage = Asked(times * QUICK)
    assert await storage.ask() == ANSWER
    assert len(storage.sent) <= 1 + times
    assert storage.under_way == 0


async def test_slow_member_is_asked_again_beside_the_next_one() -> None:
    storage = Asked(NEVER, NEVER, 0.0, members=2)
    assert await storage.ask() == ANSWER
    assert storage.sent == ["etcd-0:2379", "etcd-1:2379", "etcd-0:2379"]
    assert storage.under_way == 0


async def test_silent_member_is_polled_with_backoff_until_the_deadline() -> None:
    storage = Asked(NEVER)
    async with asyncio.timeout(10 * TIMEOUT):
        with pytest.raises(Unavailable, match="etcd-0"):
            await storage.ask()
    assert len(storage.sent) <= 9
    assert storage.under_way == 0


async def test_refusing_member_is_given_up_earlier() -> None:
    storage = Asked(None, members=2)
    with pytest.raises(Unavailable):
        await storage.ask()
    assert storage.sent == ["etcd-0:2379", "etcd-1:2379"] * module.ROUNDS


async def test_requests_that_fail_with_their_connection_have_failed_once() -> None:
    storage = Asked(NEVER, NEVER, NEVER, 0.0)
    asking = asyncio.ensure_future(storage.ask())
    await eventually(lambda: storage.under_way == module.ROUNDS)
    storage.broken.set()
    assert await asking == ANSWER


async def test_cancelled_call_leaves_no_task() -> None:
    storage = Asked(NEVER)
    asking = asyncio.ensure_future(storage.ask())
    await eventually(lambda: storage.under_way == 2)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert storage.under_way == 0
