"""Elections with two leaders, or without a leader."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import PODS, election_key
from pinnace.api.status import Code
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.interface import CommitOutcomeUnknown, Committed, CompareFailed, StorageUnavailable, Write
from pinnace.client.client import Client
from pinnace.client.election import LeaderElector
from pinnace.scheduler.config import Configuration
from pinnace.scheduler.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.contract.electing import ServeOn, Vote
from tests.contract.servers import PATIENCE
from tests.contract.voters import ELECTION, Speaker
from tests.regression.servers import serving
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.world import eventually
from tests.unit.client.fakeserver import connect

KEY = election_key(ELECTION)
HOUR = 3600
LONG_TIMEOUTS = Timing(interval=0.2, silence=10.0, ttl=20)
"""Long timeouts: a leader must not lose its term on a busy machine."""


class CountingStorage(MemoryStorage):
    """Counts the renewals of leases."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._more = asyncio.Condition()

    async def renew_lease(self, lease: int) -> float:
        ttl = await super().renew_lease(lease)
        async with self._more:
            self.count += 1
            self._more.notify_all()
        return ttl

    async def more(self, times: int) -> None:
        """Wait for that many further renewals."""
        wanted = self.count + times
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(lambda: self.count >= wanted)


async def test_kubernetes_125761_wall_clock_change_does_not_end_a_term(
    monkeypatch: pytest.MonkeyPatch, serve: ServeOn, vote: Vote
) -> None:
    """The clock of the machine was set one hour ahead. A standby considered the lease expired, and two schedulers were active
    for two seconds: https://github.com/kubernetes/kubernetes/issues/125761

    Here: all uses of time.time() in clients, servers and store. Guard: leases, silence and validity use the monotonic clock. No
    code compares a stored time with the current time."""
    storage = CountingStorage()
    server = await serve(storage)
    leader = vote("a", server)
    token = await leader.elected()
    follower = vote("b", server)
    real = time.time
    for step in (HOUR, -HOUR):
        monkeypatch.setattr(time, "time", lambda step=step: real() + step)
        await storage.more(6)  # two sessions renew twice per second each, so this exceeds the TTL
        assert (leader.history, leader.candidate.token, follower.history) == ([token], token, [])
    silent = await Speaker.open(server, "c")
    await silent.hear("opened")
    assert "no heartbeat" in (await silent.skip("observed")).lost.reason, "a clock that goes back hides the silence"


async def test_kubernetes_23731_replaced_leader_is_notified(serve: ServeOn, vote: Vote) -> None:
    """The update of a leader failed because another candidate held the lock. The leader returned to waiting and never called
    OnStoppedLeading, so two leaders were active: https://github.com/kubernetes/kubernetes/issues/23731

    Here: the key is deleted and recreated for another holder, while the server acknowledges the heartbeats of the first leader.
    The test writes the key directly, because the first of two candidates could win again on a busy machine.
    Guard: the server compares the key with the term that it knows (`key_state`) and sends Lost. `on_lost` is called once."""
    storage = MemoryStorage()
    leader = vote("a", await serve(storage, LONG_TIMEOUTS))
    token = await leader.elected()
    await storage.transact([Write(KEY, None, expected=token)])
    await storage.transact([Write(KEY, Election(name=ELECTION, holder="b").SerializeToString(), expected=0)])
    reason = await leader.lost()
    assert "key was deleted" in reason, "the server did not report the deleted key"
    assert leader.candidate.token is None
    assert leader.history == [token, reason]


async def test_kubernetes_23731_leader_that_cannot_renew_stands_down(serve: ServeOn, vote: Vote) -> None:
    """As above. The first symptom was a repeated failure of the update ("too many concurrent requests").

    Here: etcd rejects every renewal and every delete of the key, while the stream stays open. Guard: the server acknowledges a
    heartbeat only after a renewal. The candidate measures the time since the last acknowledged heartbeat with its own clock and
    stands down before its key is deleted."""
    storage = Unwritable()
    server = await serve(storage)
    leader = vote("a", server)
    token = await leader.elected()
    storage.refusing = True
    await leader.lost()
    record = await storage.get(KEY)
    assert record is not None and record.create_revision == token
    assert leader.candidate.token is None


class Unwritable(MemoryStorage):
    """Rejects writes and renewals while `refusing` is set. Leases outlive the test, so that the key still exists when a busy
    machine delays the check."""

    refusing = False

    async def grant_lease(self, ttl: int) -> int:
        return await super().grant_lease(ttl + HOUR)

    async def renew_lease(self, lease: int) -> float:
        if self.refusing:
            raise StorageUnavailable("etcdserver: too many requests")
        return await super().renew_lease(lease)

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if self.refusing:
            raise StorageUnavailable("etcdserver: too many requests")
        return await super().transact(writes)


class Actor:
    """A candidate that binds pods while its term is valid, and once more with each token that it has lost."""

    def __init__(self, name: str, address: str, pods: Callable[[], str]) -> None:
        self.client = Client(connect(address))
        self.late: list[int] = []
        self._pods = pods
        self._believes = asyncio.Event()
        self._lost: asyncio.Queue[int] = asyncio.Queue()
        self._token = 0
        self.candidate = LeaderElector(
            self.client.connection,
            ELECTION,
            name,
            on_elected=self._elected,
            on_lost=self._on_lost,
            scheduler_names=(wellknown.DEFAULT_SCHEDULER,),
        )
        self._tasks = [asyncio.ensure_future(item) for item in (self.candidate.run(), self._act(), self._act_too_late())]

    def _elected(self, token: int) -> None:
        self._token = token
        self._believes.set()

    def _on_lost(self, reason: str) -> None:
        self._lost.put_nowait(self._token)

    async def _act(self) -> None:
        while True:
            await self._believes.wait()
            while (token := self.candidate.token) is not None:
                await self._bind(token)
            self._believes.clear()

    async def _act_too_late(self) -> None:
        """Bind with each lost token, as a leader that received no notice would."""
        while True:
            self.late.append(await self._bind(await self._lost.get()))

    async def _bind(self, token: int) -> int:
        binding = Binding()
        binding.metadata.name, binding.metadata.namespace, binding.target.name = self._pods(), "default", "n"
        (item,) = await self.client.pods.bind_batch([binding], self.candidate.fence_of(token))
        return item.error.code

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.connection.close()


async def test_kubernetes_67651_late_binds_of_deposed_leaders_fail() -> None:
    """With 10,000 candidates and forced leader changes, the terms of active leaders overlapped:
    https://github.com/kubernetes/kubernetes/issues/67651

    Here: a leader learns of the end of its term after etcd has ended it. Guard: each bind carries the token and commits only
    while the election's key has that token (`fencing.FenceVerifier.verify`)."""
    storage = MemoryStorage()
    numbers = count()
    async with serving(storage) as one, serving(storage) as two:
        client = Client(connect(one))
        pods = [make_pod(f"pod-{number}").req(cpu="1m").new() for number in range(1000)]
        await client.pods.create_batch(pods)
        actors = [Actor(f"candidate-{n}", (one, two)[n % 2], lambda: f"pod-{next(numbers) % 1000}") for n in range(4)]
        revision = await storage.current_revision()
        tokens: list[int] = []
        bound: dict[int, int] = {}
        async with asyncio.timeout(PATIENCE):
            token = 0
            async for batch in storage.watch(revision + 1):
                for change in batch.changes:
                    if change.key == KEY:
                        token = change.create_revision
                        tokens += [token] if change.create_revision == change.mod_revision else []
                    elif change.key.startswith(PODS.prefix) and change.value:
                        fence = Pod.FromString(change.value).metadata.annotations[FENCE_ANNOTATION]
                        assert fence == f"{ELECTION}/{token}", f"revision {batch.revision}: bound by {fence}, {token} leads"
                        bound[token] = bound.get(token, 0) + 1
                        if bound[token] == 5 and len(tokens) < 9:
                            key = await storage.get(KEY)
                            assert key is not None
                            await storage.transact([Write(KEY, None, key.mod_revision)])
                if len(tokens) == 9:
                    break
        late = [code for actor in actors for code in actor.late]
        for actor in actors:
            await actor.stop()
        await client.connection.close()
    assert tokens == sorted(set(tokens))
    assert len(late) >= 7 and set(late) == {Code.FAILED_PRECONDITION}


class FailingDelete(MemoryStorage):
    """Rejects the first `times` deletes of the election's key with `error`."""

    def __init__(self, times: int, error: Exception) -> None:
        super().__init__()
        self.times = times
        self._error = error

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if self.times and any(write.key == KEY and write.value is None for write in writes):
            self.times -= 1
            raise self._error
        return await super().transact(writes)


@pytest.mark.parametrize("error", [StorageUnavailable("no leader"), CommitOutcomeUnknown("no answer")])
async def test_kubernetes_112023_failed_release_of_the_key_is_retried(error: Exception, serve: ServeOn, vote: Vote) -> None:
    """A stopping leader could not release its lock because it had overwritten its record of it. There was no leader until the
    lease expired: https://github.com/kubernetes/kubernetes/issues/112023

    Here: etcd does not delete the key when the leader resigns. Guard: the server retries until the lease must have expired
    (`LeaderKey.depose_leader`). The TTL of one minute exceeds the duration of the test."""
    storage = FailingDelete(2, error)
    server = await serve(storage, Timing(interval=0.1, silence=2.0, ttl=60))
    leader = vote("a", server)
    token = await leader.elected()
    follower = vote("b", server)
    await leader.candidate.release()
    assert leader.candidate.token is None
    assert await follower.elected(after=token) > token
    assert storage.times == 0


class BlockedDelete(MemoryStorage):
    """Blocks the delete of the election's key until `gate` is set. Sets `asked` when a delete arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if any(write.key == KEY and write.value is None for write in writes):
            self.asked.set()
            await self.gate.wait()
        return await super().transact(writes)


async def test_cilium_42920_leader_stops_binding_during_a_hanging_shutdown() -> None:
    """An operator lost leadership and shut down gracefully. One stop hook blocked, so the later components stayed active beside
    the next leader: https://github.com/cilium/cilium/pull/42920

    Here: the server does not answer the resignation, and the key still exists, so the old leader could bind a pending pod.
    Guard: `resign` ends the term locally before it waits, and the binder stops with the term."""
    storage = BlockedDelete()
    async with serving(storage) as address:
        client = Client(connect(address))
        await client.nodes.create(make_node("n").condition("Ready", "True").new())
        first, second = (Scheduler(Client(connect(address)), name, Configuration()) for name in ("first", "second"))
        tasks = [asyncio.ensure_future(first.run())]
        await client.pods.create(make_pod("before").req(cpu="1m").new())
        token = await bound_by(storage, "before")
        tasks.append(asyncio.ensure_future(second.run()))

        tasks.append(asyncio.ensure_future(first.stop()))
        async with asyncio.timeout(PATIENCE):
            await storage.asked.wait()
        await client.pods.create(make_pod("late").req(cpu="1m").new())
        await eventually(lambda: [item.count_pending().get("active") for item in (first, second)] == [1, 1])
        storage.gate.set()
        assert await bound_by(storage, "late") > token
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.connection.close()


async def bound_by(storage: MemoryStorage, name: str) -> int:
    """Return the token with which the pod was bound, once it is bound."""
    async with asyncio.timeout(PATIENCE):
        async for batch in storage.watch(2):
            for change in batch.changes:
                if change.key == PODS.key("default", name) and change.value:
                    pod = Pod.FromString(change.value)
                    if pod.spec.nodeName:
                        return int(pod.metadata.annotations[FENCE_ANNOTATION].partition("/")[2])
    raise AssertionError("the watch ended")
