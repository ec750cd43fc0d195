"""Elections that had two leaders, or none."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from apiserver.services.sessions import Timing
from apiserver.storage.interface import Committed, CompareFailed, OutcomeUnknown, Unavailable, Write
from pinnace.api import wellknown
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.elections_pb2 import Election
from pinnace.api.resources import PODS, election_key
from pinnace.api.status import Code
from pinnace.api.wellknown import FENCE_ANNOTATION
from pinnace.client.client import Client
from pinnace.client.election import Candidate
from scheduler.config import Configuration
from scheduler.scheduler import Scheduler
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
FORBEARING = Timing(interval=0.2, silence=10.0, ttl=20)
"""A leader is not lost because the machine is busy."""


class Renewals(MemoryStorage):
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
        """Until there have been that many more."""
        wanted = self.count + times
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(lambda: self.count >= wanted)


async def test_kubernetes_125761_the_clock_is_set_by_an_hour(
    monkeypatch: pytest.MonkeyPatch, serve: ServeOn, vote: Vote
) -> None:
    """When the machine's clock was set an hour ahead, a standby saw the lease expired, and for two seconds there were two
    schedulers: https://github.com/kubernetes/kubernetes/issues/125761

    Here: whatever reads time.time() of clients, servers and store. Kept by: leases, silence and validity go by the monotonic
    clock; nothing that is written down is compared with now."""
    storage = Renewals()
    server = await serve(storage)
    leader = vote("a", server)
    token = await leader.elected()
    follower = vote("b", server)
    real = time.time
    for step in (HOUR, -HOUR):
        monkeypatch.setattr(time, "time", lambda step=step: real() + step)
        await storage.more(6)  # of two sessions, each twice a second: longer than a lease lives
        assert (leader.history, leader.candidate.token, follower.history) == ([token], token, [])
    silent = await Speaker.open(server, "c")
    await silent.hear("opened")
    assert "no heartbeat" in (await silent.skip("observed")).lost.reason, "an hour back, nobody is ever silent"


async def test_kubernetes_23731_replaced_leader_is_notified(serve: ServeOn, vote: Vote) -> None:
    """A leader whose update was refused found the lock held by another, went back to waiting for it, and never called
    OnStoppedLeading: two leaders, for ever: https://github.com/kubernetes/kubernetes/issues/23731

    Here: the key is deleted and created anew by somebody else, while the heartbeats of the first leader go on being answered.
    By the store itself, with nothing in between: of two candidates the first might as well win again, on a busy machine.
    Kept by: the server compares the key with the leadership that it knows (`judge`), and says Lost; `on_lost` comes once."""
    storage = MemoryStorage()
    leader = vote("a", await serve(storage, FORBEARING))
    token = await leader.elected()
    await storage.transact([Write(KEY, None, expected=token)])
    await storage.transact([Write(KEY, Election(name=ELECTION, holder="b").SerializeToString(), expected=0)])
    reason = await leader.lost()
    assert "key was deleted" in reason, "it had to find out by itself"
    assert leader.candidate.token is None
    assert leader.history == [token, reason]


async def test_kubernetes_23731_a_leader_that_cannot_renew_tells_itself(serve: ServeOn, vote: Vote) -> None:
    """As above; the first sign was an update that failed ("too many concurrent requests"), again and again.

    Here: etcd refuses every renewal, and every attempt to depose the leader, while its stream lives. Kept by: a heartbeat is
    answered only after the renewal that it needs, and the candidate counts from the last answer, by its own clock: it has stood
    down while its key is still there."""
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
    """Takes no writes, and renews no lease, while it is `refusing`. Leases outlive the test: on a busy machine it looks late,
    and what it looks for must not have run out meanwhile."""

    refusing = False

    async def grant_lease(self, ttl: int) -> int:
        return await super().grant_lease(ttl + HOUR)

    async def renew_lease(self, lease: int) -> float:
        if self.refusing:
            raise Unavailable("etcdserver: too many requests")
        return await super().renew_lease(lease)

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if self.refusing:
            raise Unavailable("etcdserver: too many requests")
        return await super().transact(writes)


class Actor:
    """A candidate that binds pods for as long as it believes that it leads, and once more with a token that it has lost."""

    def __init__(self, name: str, address: str, pods: Callable[[], str]) -> None:
        self.client = Client(connect(address))
        self.late: list[int] = []
        self._pods = pods
        self._believes = asyncio.Event()
        self._lost: asyncio.Queue[int] = asyncio.Queue()
        self._token = 0
        self.candidate = Candidate(
            self.client.connection,
            ELECTION,
            name,
            on_elected=self._elected,
            on_lost=self._told,
            scheduler_names=(wellknown.DEFAULT_SCHEDULER,),
        )
        self._tasks = [asyncio.ensure_future(each) for each in (self.candidate.run(), self._act(), self._act_too_late())]

    def _elected(self, token: int) -> None:
        self._token = token
        self._believes.set()

    def _told(self, reason: str) -> None:
        self._lost.put_nowait(self._token)

    async def _act(self) -> None:
        while True:
            await self._believes.wait()
            while (token := self.candidate.token) is not None:
                await self._bind(token)
            self._believes.clear()

    async def _act_too_late(self) -> None:
        """As one who was never told."""
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


async def test_kubernetes_67651_terms_that_overlap_in_the_leaders_heads() -> None:
    """With 10,000 candidates and a leader that was changed by force, the terms of leaders overlapped, each acting:
    https://github.com/kubernetes/kubernetes/issues/67651

    Here: between the end of a term in etcd and the leader's hearing of it there is a moment too. Kept by: each bind carries the
    token, and commits only while the election's key has it (`fencing.Fences.term`)."""
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
            async for told in storage.watch(revision + 1):
                for change in told.changes:
                    if change.key == KEY:
                        token = change.create_revision
                        tokens += [token] if change.create_revision == change.mod_revision else []
                    elif change.key.startswith(PODS.prefix) and change.value:
                        said = Pod.FromString(change.value).metadata.annotations[FENCE_ANNOTATION]
                        assert said == f"{ELECTION}/{token}", f"revision {told.revision}: bound by {said}, {token} leads"
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


class Reluctant(MemoryStorage):
    """Refuses to delete the election's key the first `times`, with `error`."""

    def __init__(self, times: int, error: Exception) -> None:
        super().__init__()
        self.times = times
        self._error = error

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if self.times and any(write.key == KEY and write.value is None for write in writes):
            self.times -= 1
            raise self._error
        return await super().transact(writes)


@pytest.mark.parametrize("error", [Unavailable("no leader"), OutcomeUnknown("no answer")])
async def test_kubernetes_112023_a_release_that_fails(error: Exception, serve: ServeOn, vote: Vote) -> None:
    """A leader that stopped could not release its lock (it had overwritten what it knew of it), and nobody led until the lease
    had run out: https://github.com/kubernetes/kubernetes/issues/112023

    Here: etcd does not delete the key when the leader resigns. Kept by: the server tries again until the lease must have run
    out (`Leadership.depose`). In this test the lease lives for a minute: it is no help."""
    storage = Reluctant(2, error)
    server = await serve(storage, Timing(interval=0.1, silence=2.0, ttl=60))
    leader = vote("a", server)
    token = await leader.elected()
    follower = vote("b", server)
    await leader.candidate.resign()
    assert leader.candidate.token is None
    assert await follower.elected(after=token) > token
    assert storage.times == 0


class Gated(MemoryStorage):
    """Does not delete the election's key before `gate` is set; `asked` is set when it should."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if any(write.key == KEY and write.value is None for write in writes):
            self.asked.set()
            await self.gate.wait()
        return await super().transact(writes)


async def test_cilium_42920_a_shutdown_that_hangs() -> None:
    """An operator that lost the lead shut down in good order; one stop hook blocked, and the parts that came after it went on
    as if they led, beside the next leader: https://github.com/cilium/cilium/pull/42920

    Here: the resignation is not answered, while a pod waits that the old leader could bind: its key is still there.
    Kept by: `resign` ends the term here before anything that may take time, and the binder stands down with it."""
    storage = Gated()
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
        await eventually(lambda: [each.pending().get("active") for each in (first, second)] == [1, 1])
        storage.gate.set()
        assert await bound_by(storage, "late") > token
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.connection.close()


async def bound_by(storage: MemoryStorage, name: str) -> int:
    """The token under which the pod was bound, once it is."""
    async with asyncio.timeout(PATIENCE):
        async for told in storage.watch(2):
            for change in told.changes:
                if change.key == PODS.key("default", name) and change.value:
                    pod = Pod.FromString(change.value)
                    if pod.spec.nodeName:
                        return int(pod.metadata.annotations[FENCE_ANNOTATION].partition("/")[2])
    raise AssertionError("the watch ended")
