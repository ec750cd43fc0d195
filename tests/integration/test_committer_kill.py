"""kill -9 of etcd in the middle of group commits: what was said is what happened."""

import asyncio
from collections import Counter
from random import Random

from pinnace.apiserver.storage.committer import Committer
from pinnace.apiserver.storage.etcd import EtcdStorage
from tests.conftest import EtcdFactory
from tests.unit.storage.history import Log, violations, write_at_random

KILLS = 3
WRITERS = 8
DEADLINE = 45.0


async def test_etcd_is_killed_again_and_again(start_etcd: EtcdFactory) -> None:
    (server,) = await start_etcd(1)
    storage = EtcdStorage([server.endpoint])
    committer, log = Committer(storage), Log()
    calls, stop = asyncio.Semaphore(0), asyncio.Event()

    async def write(rng: Random) -> None:
        while not stop.is_set():
            await write_at_random(storage, committer, log, rng)
            calls.release()

    async def until_more_calls(count: int) -> None:
        for _ in range(count):
            await calls.acquire()

    running = asyncio.create_task(committer.run())
    async with asyncio.timeout(DEADLINE), asyncio.TaskGroup() as writers:
        for seed in range(WRITERS):
            writers.create_task(write(Random(seed)))
        for _ in range(KILLS):
            await until_more_calls(100)
            server.kill()
            server.start()
            await server.wait_ready()
        await until_more_calls(100)
        stop.set()
    running.cancel()

    said = Counter(type(outcome).__name__ for _, outcome in log.outcomes)
    assert said["int"] > 100, f"it did nothing: {said}"
    assert said["StorageUnavailable"] + said["OutcomeUnknown"] > 0, f"the kills did nothing: {said}"
    assert await violations(storage, log) == []
    await storage.close()
