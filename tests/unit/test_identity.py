"""Two control planes on one etcd: the second one is refused unless it has its own prefix.

Without an identity, each control plane evicted the pods of the other one's nodes, and both elected a common leader.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.namespaces_pb2 import CreateNamespaceRequest
from pinnace.api.resources import CLUSTER_KEY, NAMESPACES
from pinnace.apiserver.assembly import Assembly, ServerSettings
from pinnace.apiserver.startup import ClusterMismatch, IdentityClaim, IdentityRecord, authority_reader, reconcile_identity
from pinnace.apiserver.storage.interface import PrefixedStorage, Storage
from pinnace.pki.authority import Authority
from tests.contract.steps import put
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import eventually

DEADLINE = 10.0
OLD, NEW, FOREIGN = "0a" * 32, "0b" * 32, "0f" * 32


def claim(*authorities: str, cluster: str = "") -> IdentityClaim:
    return IdentityClaim(cluster, lambda: frozenset(authorities), "etcd at 127.0.0.1:2379")


def identity(*authorities: str, cluster: str = "one") -> IdentityRecord:
    return IdentityRecord(cluster, frozenset(authorities))


async def stored(storage: Storage) -> IdentityRecord:
    result = await storage.get(CLUSTER_KEY)
    assert result is not None
    return IdentityRecord.decode(result.value)


@asynccontextmanager
async def serving(storage: Storage, claimed: IdentityClaim) -> AsyncIterator[Assembly]:
    """An API server that is ready. Raises ClusterMismatch."""
    assembly = Assembly(storage, ServerSettings(cluster=claimed))
    running = asyncio.ensure_future(assembly.run())
    ready = asyncio.ensure_future(assembly.opening.bootstrapped.wait())
    try:
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        yield assembly
    finally:
        ready.cancel()
        running.cancel()
        await asyncio.gather(running, ready, return_exceptions=True)


class TestCompare:
    @pytest.mark.parametrize(
        ("found", "own", "wanted"),
        [
            (identity(OLD), identity(OLD, cluster=""), identity(OLD)),
            (identity(OLD), identity(OLD, NEW, cluster=""), identity(OLD, NEW)),
            (identity(OLD, NEW), identity(NEW, cluster=""), identity(OLD, NEW)),
            (identity(), identity(cluster=""), identity()),
            (identity(OLD), identity(NEW), identity(OLD, NEW)),
            (identity(OLD), identity(), identity(OLD)),
        ],
        ids=[
            "same CA",
            "bundle with the new CA",
            "the new CA after a bundle",
            "both without TLS",
            "same id",
            "same id, no TLS",
        ],
    )
    def test_same_cluster(self, found: IdentityRecord, own: IdentityRecord, wanted: IdentityRecord) -> None:
        assert reconcile_identity(found, own, "etcd") == wanted

    @pytest.mark.parametrize(
        ("found", "own"),
        [
            (identity(OLD), identity(FOREIGN, cluster="")),
            (identity(OLD), identity(cluster="")),
            (identity(), identity(OLD, cluster="")),
            (identity(OLD), identity(OLD, cluster="two")),
        ],
        ids=["other CA", "without TLS", "with TLS beside one without", "other id"],
    )
    def test_other_cluster(self, found: IdentityRecord, own: IdentityRecord) -> None:
        with pytest.raises(ClusterMismatch, match="contains the cluster one"):
            reconcile_identity(found, own, "etcd")

    def test_refusal_contains_both_identities_and_a_solution(self) -> None:
        with pytest.raises(ClusterMismatch) as refused:
            reconcile_identity(identity(OLD), identity(FOREIGN, cluster=""), "etcd at 127.0.0.1:2379")
        assert str(refused.value) == (
            "etcd at 127.0.0.1:2379 contains the cluster one (client CA SHA-256 0a0a0a0a0a0a0a0a...), but this API server "
            "belongs to another cluster (client CA SHA-256 0f0f0f0f0f0f0f0f...); use another etcd or another --etcd-prefix. If "
            "the cluster has a new CA, start the server with --cluster-id one"
        )


async def test_servers_of_one_cluster_agree() -> None:
    storage = MemoryStorage()
    async with serving(storage, claim(OLD)), serving(storage, claim(OLD)):
        assert (await stored(storage)).authorities == {OLD}


async def test_server_of_another_cluster_writes_nothing() -> None:
    storage = MemoryStorage()
    async with serving(storage, claim(OLD)):
        pass
    before = await storage.current_revision()
    with pytest.raises(ClusterMismatch):
        async with serving(storage, claim(FOREIGN)):
            pass
    assert await storage.current_revision() == before


async def test_data_without_identity_is_adopted() -> None:
    storage = MemoryStorage()
    await put(storage, NAMESPACES.key("", "kept"), Namespace(metadata=ObjectMeta(name="kept")).SerializeToString())
    async with serving(storage, claim(OLD, cluster="mine")) as server:
        assert server.cacher.cache_of(NAMESPACES).get(NAMESPACES.key("", "kept")) is not None
        assert await stored(storage) == identity(OLD, cluster="mine")


async def test_new_authority_needs_the_id_once() -> None:
    storage = MemoryStorage()
    async with serving(storage, claim(OLD)):
        known = (await stored(storage)).id
    async with serving(storage, claim(NEW, cluster=known)):
        pass
    async with serving(storage, claim(NEW)):
        assert await stored(storage) == identity(OLD, NEW, cluster=known)


async def test_identity_survives_a_restore_of_a_backup_without_one() -> None:
    storage = FlakyStorage()
    async with serving(storage, claim(OLD)) as server:
        known = await stored(storage)
        await eventually(lambda: server.opening.readiness() is None)
        storage.leave()
        await eventually(lambda: server.opening.readiness() is not None)
        storage.restore(MemoryStorage())
        storage.come_back()
        await eventually(lambda: server.opening.readiness() is None)
        assert await stored(storage) == known


async def test_server_ends_when_the_backup_of_another_cluster_is_restored() -> None:
    backup = MemoryStorage()
    async with serving(backup, claim(OLD)):
        pass
    storage = FlakyStorage()
    assembly = Assembly(storage, ServerSettings(cluster=claim(OLD)))
    running = asyncio.ensure_future(assembly.run())
    await eventually(lambda: assembly.opening.readiness() is None)
    storage.leave()
    await eventually(lambda: assembly.opening.readiness() is not None)
    storage.restore(backup)
    storage.come_back()
    async with asyncio.timeout(DEADLINE):
        with pytest.raises(ExceptionGroup) as ended:
            await running
    assert ended.value.subgroup(ClusterMismatch) is not None


async def test_two_control_planes_share_one_store_below_prefixes() -> None:
    """Each one sees only its own objects."""
    shared = MemoryStorage()
    admin = Caller(PEOPLE["admin"])
    async with serving(shared, claim(OLD)) as first, serving(PrefixedStorage(shared, "/staging"), claim(FOREIGN)) as second:
        for server, mine in ((first, "a"), (second, "b")):
            request = CreateNamespaceRequest(object=Namespace(metadata=ObjectMeta(name=mine)))
            await server.methods["/pinnace.v1.Namespaces/Create"].call(request, admin)
        revision = await shared.current_revision()
        for server, mine, other in ((first, "a", "b"), (second, "b", "a")):
            await server.cacher.wait_for(revision, DEADLINE)
            assert server.cacher.cache_of(NAMESPACES).get(NAMESPACES.key("", mine)) is not None
            assert server.cacher.cache_of(NAMESPACES).get(NAMESPACES.key("", other)) is None


def test_authorities_of_a_bundle_are_reread(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    first, second = (Authority.create(name, now).pair.certificate for name in ("first", "second"))
    bundle = tmp_path / "ca.crt"
    read = authority_reader(bundle)
    bundle.write_bytes(first)
    (only,) = read()
    bundle.write_bytes(first + second)
    both = read()
    assert only in both and len(both) == 2
    bundle.write_text("half a file")
    assert read() == both, "an incomplete file changes nothing"
