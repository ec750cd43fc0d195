"""Charges, transaction by transaction."""

import asyncio
from random import Random

from pinnace.api.core_v1_pb2 import ResourceQuota
from pinnace.api.resources import COMMITS_PREFIX, NODES, PODS, RESOURCE_QUOTAS
from pinnace.apiserver.storage.committer import MAX_GROUP_BYTES, WriteConflict, WriteDenied
from pinnace.apiserver.storage.interface import MAX_OPERATIONS, StorageError, StorageUnavailable, Write
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.clock import FakeClock
from tests.contract.steps import DEADLINE, put
from tests.storage.memory import MemoryStorage
from tests.unit.quota.world import QUOTA, chargers, pod, pods, quota, used
from tests.unit.storage.faults import FaultyStorage


def transactions(storage: FaultyStorage) -> list[list[str]]:
    """The keys of each, without markers."""
    groups = ([write.key for write in group if not write.key.startswith(COMMITS_PREFIX)] for group in storage.groups)
    return [group for group in groups if group]


async def counted(storage: FaultyStorage, room: int, said: int) -> None:
    """A quota that says that so much is used."""
    made = ResourceQuota.FromString(quota(room))
    made.status.hard["pods"].string, made.status.used["pods"].string = str(room), str(said)
    await put(storage.inner, QUOTA, made.SerializeToString())


async def test_batched_creates_are_charged_in_one_transaction() -> None:
    storage = FaultyStorage()
    await counted(storage, 9, 0)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        await asyncio.gather(server.create("a"), server.create("b", "c"))
    assert transactions(storage) == [[*(PODS.key("default", name) for name in "abc"), QUOTA]]
    assert await used(storage.inner) == 3


async def test_quota_with_room_is_not_recounted() -> None:
    storage = FaultyStorage()
    await counted(storage, 9, 5)  # which is more than there is
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        await server.create("a")
    assert await used(storage.inner) == 6


async def test_usage_is_recounted_before_a_refusal() -> None:
    storage = FaultyStorage()
    await counted(storage, 2, 2)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        a, b, c = await server.create("a", "b", "c")
    assert isinstance(a, int) and isinstance(b, int)
    assert isinstance(c, WriteDenied)
    assert str(c) == 'pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    assert await used(storage.inner) == 2


async def test_existing_object_is_not_charged() -> None:
    """Nor does it keep anybody out who came after it."""
    storage = FaultyStorage()
    await counted(storage, 2, 0)
    async with asyncio.timeout(DEADLINE), chargers(storage, 2, FakeClock(), Random(1)) as (one, other):
        await one.create("a")
        taken, b, late = await other.create("a", "b", "c")
    assert not isinstance(taken, int) and isinstance(b, int) and isinstance(late, WriteDenied)
    assert await used(storage.inner) == 2 == len(await pods(storage.inner))


async def test_deleted_quota_refuses_nothing() -> None:
    storage = FaultyStorage()
    await counted(storage, 1, 1)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        result = await storage.inner.get(QUOTA)
        assert result is not None
        await storage.inner.transact([Write(QUOTA, None, result.mod_revision)])
        assert [type(outcome) for outcome in await server.create("a", "b")] == [int, int]


async def test_usage_is_forgotten_with_the_quota() -> None:
    storage = FaultyStorage()
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        for number in range(20):
            made = ResourceQuota.FromString(quota(9))
            made.metadata.namespace = f"n{number}"
            key = RESOURCE_QUOTAS.key_of(made)
            await put(storage.inner, key, made.SerializeToString())
            await server.cacher.wait_until_fresh(DEADLINE)
            await server.quotas.committer_of(PODS).commit_many([Write(PODS.key(f"n{number}", "a"), pod("a"), 0)])
            result = await storage.inner.get(key)
            assert result is not None
            await storage.inner.transact([Write(key, None, result.mod_revision)])
            await server.cacher.wait_until_fresh(DEADLINE)
        states = server.quotas.states
        assert not states.keys_by_namespace
        assert not states._newest_versions


async def test_as_many_go_as_a_transaction_has_room_for() -> None:
    """Each namespace has its own two quotas: three operations for one pod."""
    storage, namespaces = FaultyStorage(), [f"n{i:02}" for i in range(90)]
    for namespace in namespaces:
        for name in ("q", "r"):
            made = ResourceQuota.FromString(quota(1))
            made.metadata.namespace, made.metadata.name = namespace, name
            await put(storage.inner, RESOURCE_QUOTAS.key_of(made), made.SerializeToString())
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        writes = [Write(PODS.key(namespace, "a"), pod("a"), 0) for namespace in namespaces]
        outcomes = await server.quotas.committer_of(PODS).commit_many(writes)
    assert all(isinstance(outcome, int) for outcome in outcomes), outcomes
    assert max(map(len, storage.groups)) <= MAX_OPERATIONS
    assert len(transactions(storage)) <= len(namespaces) * 3 // (MAX_OPERATIONS - 3) + 1, "far fewer went than could"


async def test_recreated_quota_refuses_no_other_create() -> None:
    """It would be in the transaction twice: as what is made, and as what pods are charged to."""
    storage = FaultyStorage()
    made = quota(9, **{"count/resourcequotas": "5"})
    await put(storage.inner, QUOTA, made)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        quotas = server.quotas.committer_of(RESOURCE_QUOTAS)
        for order in (0, 1):
            again = quotas.commit_many([Write(QUOTA, made, 0)])
            pod_of = server.create(f"a{order}")
            one, other = await asyncio.gather(*((again, pod_of) if order else (pod_of, again)))
            (taken,), (created,) = (one, other) if order else (other, one)
            assert isinstance(taken, WriteConflict) and isinstance(created, int), (taken, created)
    assert await used(storage.inner) == 2


async def test_large_objects_and_their_quota_fit_into_a_transaction() -> None:
    storage = FaultyStorage()
    await counted(storage, 500, 0)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        half = pod("a") + b"\x0a\x00" * ((MAX_GROUP_BYTES // 2 - len(pod("a"))) // 2)  # with empty metadata, again and again
        writes = [Write(PODS.key("default", name), half, 0) for name in "abcd"]
        outcomes = await server.quotas.committer_of(PODS).commit_many(writes)
    assert all(isinstance(outcome, int) for outcome in outcomes), outcomes
    assert await used(storage.inner) == 4


async def test_stale_usage_refuses_nothing() -> None:
    """The store does not tell its revision: one can only try again later. Where there is room it does not matter."""

    class Silent(FaultyStorage):
        silent = False

        async def current_revision(self) -> int:
            if self.silent:
                raise StorageUnavailable("silence")
            return await super().current_revision()

    storage = Silent()
    await counted(storage, 1, 0)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        storage.silent = True
        assert [type(outcome) for outcome in await server.create("a")] == [int]
        (late,) = await server.create("b")
        assert isinstance(late, StorageError)


async def test_only_what_may_use_more_where_there_is_a_quota_goes_another_way() -> None:
    storage = FaultyStorage()
    await counted(storage, 9, 0)
    async with asyncio.timeout(DEADLINE), chargers(storage, 1, FakeClock(), Random(1)) as (server,):
        commits = server.quotas.committer_of(PODS)
        (revision,) = await server.create("a")
        assert isinstance(revision, int)
        elsewhere, born, changed = PODS.key("other", "a"), PODS.key("default", "b"), PODS.key("default", "a")
        outcomes = await commits.commit_many([
            Write(changed, pod("a"), revision), Write(born, pod("b"), 0), Write(elsewhere, pod("a"), 0)
        ])  # fmt: skip
        assert all(isinstance(outcome, int) for outcome in outcomes)
    assert sorted(transactions(storage)[1:]) == [[changed, elsewhere], [born, QUOTA]]


async def test_resource_that_is_not_counted_goes_straight_to_the_committer() -> None:
    async with chargers(MemoryStorage(), 1, SYSTEM_CLOCK, Random(1)) as (server,):
        assert server.quotas.committer_of(NODES) is server.committer
