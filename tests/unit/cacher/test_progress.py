import asyncio

import pytest

from pinnace.apiserver.cacher.store import CacheBehind, CacheProgress


async def test_reached_revision_needs_no_wait() -> None:
    progress = CacheProgress()
    progress.advance(5)
    await progress.wait_for(5, 0)
    await progress.wait_for(0, 0)


async def test_waiting_until_it_is_reached() -> None:
    progress = CacheProgress()
    waits = {wanted: asyncio.ensure_future(progress.wait_for(wanted, 5)) for wanted in (0, 1, 4, 7)}
    await asyncio.sleep(0)
    progress.advance(4)
    await asyncio.wait(waits.values(), timeout=0.01)
    assert {wanted for wanted, wait in waits.items() if wait.done()} == {0, 1, 4}
    progress.advance(9)
    await waits[7]


async def test_wait_for_progress_ends_at_the_deadline() -> None:
    progress = CacheProgress()
    with pytest.raises(CacheBehind, match="not loaded"):
        await progress.wait_for(0, 0.01)
    progress.advance(4)
    with pytest.raises(CacheBehind, match="at revision 4 and has not reached 9"):
        await progress.wait_for(9, 0.01)
    with pytest.raises(CacheBehind):
        await progress.wait_for(9, -1)


async def test_cancelled_waiter_is_removed() -> None:
    progress = CacheProgress()
    for wanted in (10**17, 10**17 + 1):
        with pytest.raises(CacheBehind):
            await progress.wait_for(wanted, 0)
    assert vars(progress)["_waiting"] == {}


async def test_wait_that_was_cancelled_does_no_harm() -> None:
    progress = CacheProgress()
    wait = asyncio.ensure_future(progress.wait_for(3, 5))
    await asyncio.sleep(0)
    wait.cancel()
    progress.advance(3)
    with pytest.raises(asyncio.CancelledError):
        await wait
