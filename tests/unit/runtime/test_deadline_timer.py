"""DeadlineTimer: one timer for many deadlines."""

import asyncio
import math

from pinnace.runtime.tasks import DeadlineTimer


async def test_each_deadline_expires_on_time_in_any_order() -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    left, over = {start + 0.04, start + 0.01, start + 0.02}, asyncio.Event()

    def expire(now: float) -> float:
        for due in [item for item in left if item <= now]:
            left.remove(due)
        if not left:
            over.set()
        return min(left, default=math.inf)

    timer = DeadlineTimer(expire)
    for deadline in left:
        timer.add(deadline)
    async with asyncio.timeout(5):
        await over.wait()
    assert loop.time() >= start + 0.04
