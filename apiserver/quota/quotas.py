"""All about quotas in one server, put together; and which writes are charged."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from apiserver.cacher.cacher import Cacher
from apiserver.quota.ledger import Ledger
from apiserver.quota.recount import Recount
from apiserver.quota.states import States
from apiserver.quota.tally import Tally
from apiserver.quota.usage import COUNTED, GROWING
from apiserver.registry.mutation import Commits
from apiserver.storage.committer import Committer, Outcome
from apiserver.storage.interface import Storage, Write
from pinnace.api.resources import Resource, namespace_of
from pinnace.runtime.clock import Clock
from pinnace.runtime.cpu import never
from pinnace.runtime.supervise import unending


class Quotas:
    """`committer`: of everything that is not charged. `refresh`: as in Ledger; `preempted`: as in Committer. `run` until
    cancelled."""

    def __init__(
        self,
        storage: Storage,
        cacher: Cacher,
        committer: Committer,
        refresh: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        *,
        preempted: Callable[[], int] = never,
    ) -> None:
        self.states = States(cacher)
        self.tally = Tally(cacher, clock)
        ledger = Ledger(cacher, self.states, self.tally, refresh, clock)
        self._committer = committer
        self._charging = Committer(storage, max_in_flight=1, send=ledger.send, clock=clock, rng=rng, preempted=preempted)
        self._recount = Recount(self.states, self.tally, committer, clock, rng)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(unending("committer of what is charged", self._charging.run), name="committer of what is charged")
            tasks.create_task(unending("recount of quotas", self._recount.run), name="recount of quotas")

    def commits(self, resource: Resource[Any]) -> Commits:
        """Who takes the writes of a resource to etcd."""
        if resource not in COUNTED:
            return self._committer
        return _Parting(resource in GROWING, self.states, self._committer, self._charging)


class _Parting:
    """Sends what may use more in a namespace with quotas one way, and the rest the other. `growing`: all updates may, too."""

    def __init__(self, growing: bool, states: States, committer: Committer, charging: Committer) -> None:
        self._growing = growing
        self._states = states
        self._committer = committer
        self._charging = charging

    async def commit_many(self, writes: Sequence[Write]) -> list[Outcome]:
        bounded = self._states.keys
        charged = [namespace_of(write.key) in bounded and self._may_grow(write) for write in writes] if bounded else ()
        if not any(charged):
            return await self._committer.commit_many(writes)
        parted: tuple[list[Write], list[Write]] = ([], [])
        for write, is_charged in zip(writes, charged, strict=True):
            parted[is_charged].append(write)
        done = await asyncio.gather(self._committer.commit_many(parted[0]), self._charging.commit_many(parted[1]))
        outcomes = [iter(each) for each in done]
        return [next(outcomes[is_charged]) for is_charged in charged]

    def _may_grow(self, write: Write) -> bool:
        return write.value is not None and (not write.expected or self._growing or write.grows)
