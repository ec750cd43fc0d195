import asyncio
from collections.abc import AsyncIterator

import pytest

from pinnace.apiserver.cacher.store import CurrentRevisionReader
from pinnace.apiserver.storage.interface import StorageUnavailable
from tests.storage.memory import MemoryStorage


class Store(MemoryStorage):
    """Its reads wait for the test, and see the revision of when they began."""

    def __init__(self) -> None:
        super().__init__()
        self.revision = 10
        self.begun: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def current_revision(self) -> int:
        seen = self.revision
        answer = asyncio.get_running_loop().create_future()
        self.begun.put_nowait(answer)
        await answer
        return seen

    async def next_read(self) -> "asyncio.Future[None]":
        async with asyncio.timeout(5):
            return await self.begun.get()


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
async def freshness(store: Store) -> AsyncIterator[CurrentRevisionReader]:
    freshness = CurrentRevisionReader(store)
    task = asyncio.create_task(freshness.run())
    yield freshness
    task.cancel()
    await asyncio.wait((task,))


async def test_request_during_a_read_shares_the_next_read(store: Store, freshness: CurrentRevisionReader) -> None:
    early = asyncio.ensure_future(freshness.read_current_revision())
    first = await store.next_read()
    store.revision = 11
    late = [asyncio.ensure_future(freshness.read_current_revision()) for _ in range(3)]
    await asyncio.sleep(0)
    assert store.begun.empty(), "one read at a time"
    first.set_result(None)
    assert await early == 10
    (await store.next_read()).set_result(None)
    assert await asyncio.gather(*late) == [11, 11, 11]
    assert store.begun.empty()


async def test_error_is_returned_to_all_waiting_reads_and_no_other(store: Store, freshness: CurrentRevisionReader) -> None:
    unlucky = [asyncio.ensure_future(freshness.read_current_revision()) for _ in range(2)]
    (await store.next_read()).set_exception(StorageUnavailable("gone"))
    assert [type(item) for item in await asyncio.gather(*unlucky, return_exceptions=True)] == [StorageUnavailable] * 2
    lucky = asyncio.ensure_future(freshness.read_current_revision())
    (await store.next_read()).set_result(None)
    assert await lucky == 10


async def test_cancelled_reader_does_not_cancel_the_read(store: Store, freshness: CurrentRevisionReader) -> None:
    asks = [asyncio.ensure_future(freshness.read_current_revision()) for _ in range(2)]
    read = await store.next_read()
    asks[0].cancel()
    read.set_result(None)
    assert await asks[1] == 10
    (gone,) = await asyncio.gather(asks[0], return_exceptions=True)
    assert isinstance(gone, asyncio.CancelledError)


async def test_reader_whose_deadline_passes_fails_alone(store: Store, freshness: CurrentRevisionReader) -> None:
    patient = asyncio.ensure_future(freshness.read_current_revision())
    read = await store.next_read()
    with pytest.raises(TimeoutError):
        await freshness.read_current_revision(asyncio.get_running_loop().time() + 0.01)
    read.set_result(None)
    assert await patient == 10
