"""Servers that charge quotas, over one storage, without what is around them; and what must be true of its history."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.resources import PODS, RESOURCE_QUOTAS
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.quota.ledger import Quotas
from pinnace.apiserver.storage.committer import CommitOutcome, Committer
from pinnace.apiserver.storage.interface import KeyValue, Storage, Write
from pinnace.runtime.clock import Clock
from tests.builders import make_pod

NAMESPACE = "default"
QUOTA = RESOURCE_QUOTAS.key(NAMESPACE, "q")
PATIENCE = 10.0


class Charger:
    """What of a server has to do with quotas."""

    def __init__(self, storage: Storage, clock: Clock, rng: Random) -> None:
        self.cacher = Cacher(storage, rng=rng)
        self.committer = Committer(storage, clock=clock, rng=rng)
        self.quotas = Quotas(storage, self.cacher, self.committer, self._refresh, clock, rng)
        self._commits = self.quotas.committer_of(PODS)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for work in (self.cacher.run(), self.committer.run(), self.quotas.run()):
                tasks.create_task(work)

    async def create(self, *names: str) -> list[CommitOutcome]:
        return await self._commits.commit_many([Write(PODS.key(NAMESPACE, name), pod(name), 0) for name in names])

    async def delete(self, *found: KeyValue) -> list[CommitOutcome]:
        return await self._commits.commit_many([Write(item.key, None, item.mod_revision) for item in found])

    async def _refresh(self) -> None:
        await self.cacher.wait_until_fresh(PATIENCE)


@asynccontextmanager
async def chargers(storage: Storage, count: int, clock: Clock, rng: Random) -> AsyncIterator[Sequence[Charger]]:
    """Running, and all have seen what is there."""
    async with AsyncExitStack() as stack:
        made = [Charger(storage, clock, Random(rng.random())) for _ in range(count)]
        for item in made:
            stack.push_async_callback(_stop, asyncio.create_task(item.run()))
        for item in made:
            await item.cacher.wait_until_fresh(PATIENCE)
        yield made


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()):
        raise error


def pod(name: str) -> bytes:
    return make_pod(name, NAMESPACE).req(cpu="100m").new().SerializeToString()


def quota(room: int, **more: str) -> bytes:
    data = {"metadata": {"name": "q", "namespace": NAMESPACE}, "spec": {"hard": {"pods": str(room), **more}}}
    return from_dict(RESOURCE_QUOTAS, data).SerializeToString()


async def pods(storage: Storage, revision: int = 0) -> list[KeyValue]:
    return list((await storage.page(PODS.prefix, limit=10_000, revision=revision)).items)


async def used(storage: Storage, revision: int = 0) -> int | None:
    """What the quota says; None: nothing yet, or there is none."""
    result = await storage.get(QUOTA, revision=revision)
    status = ResourceQuota.FromString(result.value).status if result else ResourceQuota().status
    return int(status.used["pods"].string) if "pods" in status.used else None


async def violations(storage: Storage, room: int, since: int = 1) -> list[str]:
    """At which revisions there are more pods than the quota says, or than it allows."""
    result = []
    for revision in range(since, await storage.current_revision() + 1):
        said, there = await used(storage, revision), len(await pods(storage, revision))
        if there > room or (said is not None and not there <= said <= room):
            result.append(f"at {revision}: {there} pods, the quota says {said} of {room}")
    return result
