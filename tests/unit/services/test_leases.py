"""Lease objects as they are read: of nodes, with the time of their session; of elections, with the leader of now."""

from collections.abc import Mapping

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.elections_pb2 import Election, Term
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, SYSTEM_NAMESPACE, election_key
from pinnace.api.scalars import to_micro_time, to_seconds
from pinnace.apiserver.admission.authorization import ElectionLeases
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.election.term_history import end_term, lease_after_change
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.services.leases import RENEWAL_CACHE_SECONDS, RenewalTimes
from pinnace.apiserver.services.nodes import LeaseSignature, encode_lease
from pinnace.apiserver.storage.interface import Committed, KeyValue, StorageUnavailable, Write
from tests.clock import FakeClock
from tests.storage.memory import MemoryStorage

TTL = 5


class Keys:
    """The keys that a cacher has beside the objects."""

    def __init__(self) -> None:
        self.found: dict[str, KeyValue] = {}

    def raw_key(self, key: str) -> KeyValue | None:
        return self.found.get(key)


class Store(MemoryStorage):
    """Counts what it is asked for. `away`: it does not answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.asked = 0
        self.away = False

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        self._answer()
        return await super().get(key, revision=revision)

    async def lease_age(self, lease: int) -> float:
        self._answer()
        return await super().lease_age(lease)

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise StorageUnavailable("away")


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.storage = Store(self.clock)
        self.keys = Keys()
        self.stamps = RenewalTimes(self.keys, self.storage, self.clock)

    async def claim(self, *nodes: str, stream: str = "s") -> int:
        """The session of a fleet that has claimed these nodes, with its stream."""
        session = await self.storage.grant_lease(TTL)
        for node in nodes:
            value = encode_lease(node, LeaseSignature("fleet", 1, stream), TTL, self.clock.time(), "uid", None)
            await self.storage.transact([Write(LEASES.key(NODE_LEASE_NAMESPACE, node), value, 0, lease=session)])
        return session

    async def lead(self, holder: str) -> int:
        """The session of a leader; the cacher has heard of it."""
        session = await self.storage.grant_lease(TTL)
        key, election = election_key("scheduler"), Election(name="scheduler", holder=holder)
        election.since.CopyFrom(to_micro_time(self.clock.time()))
        written = await self.storage.transact([Write(key, election.SerializeToString(), 0, lease=session)])
        assert isinstance(written, Committed)
        self.keys.found[key] = KeyValue(key, election.SerializeToString(), written.revision, written.revision, 1, session)
        return session

    async def stored(self, node: str) -> Lease:
        result = await self.storage.get(LEASES.key(NODE_LEASE_NAMESPACE, node))
        assert result is not None
        return Lease.FromString(result.value)

    async def read(self, *leases: Lease) -> list[float]:
        """Their renewTime, in Unix time."""
        await self.stamps.load_sessions(leases)
        for lease in leases:
            self.stamps.stamp_lease(lease)
        return [to_seconds(lease.spec.renewTime) for lease in leases]


@pytest.fixture
def world() -> World:
    return World()


async def test_renew_time_of_a_node_is_that_of_its_session(world: World) -> None:
    session = await world.claim("n-0")
    lease = await world.stored("n-0")
    claimed = world.clock.time()
    assert await world.read(lease) == [claimed]
    await world.clock.advance(3.0)
    await world.storage.renew_lease(session)
    await world.clock.advance(1.0)
    assert await world.read(await world.stored("n-0")) == [claimed + 3.0]


async def test_renewals_write_nothing_and_read_the_session_once(world: World) -> None:
    nodes = [f"n-{number}" for number in range(50)]
    await world.claim(*nodes)
    leases = [await world.stored(node) for node in nodes]
    revision = await world.storage.current_revision()
    world.storage.asked = 0
    for _ in range(3):
        await world.read(*leases)
    assert world.storage.asked == 2, "which session it is, and how old its last renewal is"
    await world.clock.advance(RENEWAL_CACHE_SECONDS)
    await world.read(*leases)
    assert world.storage.asked == 3
    assert await world.storage.current_revision() == revision


async def test_session_that_is_over_leaves_the_stored_time(world: World) -> None:
    session = await world.claim("n-0")
    lease = await world.stored("n-0")
    claimed = world.clock.time()
    await world.read(lease)
    await world.storage.revoke_lease(session)
    await world.clock.advance(10.0)
    assert await world.read(lease) == [claimed]


async def test_without_an_answer_of_the_store_the_stored_time_is_shown(world: World) -> None:
    await world.claim("n-0")
    lease = await world.stored("n-0")
    await world.clock.advance(2.0)
    world.storage.away = True
    assert await world.read(lease) == [world.clock.time() - 2.0]


async def test_lease_that_is_no_nodes_is_left_alone(world: World) -> None:
    lease = Lease()
    lease.metadata.name, lease.metadata.namespace = "mine", "default"
    assert await world.read(lease) == [0.0]
    assert world.storage.asked == 0


def term(token: int, holder: str, began: float) -> Term:
    return Term(election="scheduler", holder=holder, token=token, began=to_micro_time(began))


def spec(lease: Lease | None) -> Mapping[str, object]:
    assert lease is not None
    result = lease.spec
    return {"holder": result.holderIdentity, "transitions": result.leaseTransitions, "acquired": to_seconds(result.acquireTime)}


def test_election_is_shown_as_kubernetes_does_and_counts_its_terms() -> None:
    first = lease_after_change(None, term(5, "a", 10.0), TTL, "uid")
    assert first is not None
    assert (first.metadata.namespace, first.metadata.name, first.metadata.uid) == (SYSTEM_NAMESPACE, "kube-scheduler", "uid")
    assert spec(first) == {"holder": "a", "transitions": 0, "acquired": 10.0}
    over = lease_after_change(first, end_term(term(5, "a", 10.0), "resigned", to_micro_time(12.0)), TTL, "")
    assert spec(over) == {"holder": "", "transitions": 0, "acquired": 10.0}
    assert spec(lease_after_change(over, term(7, "b", 13.0), TTL, "")) == {"holder": "b", "transitions": 1, "acquired": 13.0}


def test_old_news_changes_no_lease_object() -> None:
    latest = lease_after_change(None, term(7, "b", 13.0), TTL, "uid")
    for news in (term(7, "b", 13.0), term(5, "a", 10.0), end_term(term(5, "a", 10.0), "resigned", to_micro_time(14.0))):
        assert lease_after_change(latest, news, TTL, "") is None


def test_foreign_lease_object_is_not_changed() -> None:
    foreign = Lease()
    foreign.metadata.name, foreign.metadata.namespace = "kube-scheduler", SYSTEM_NAMESPACE
    assert lease_after_change(foreign, term(5, "a", 10.0), TTL, "") is None
    other = lease_after_change(None, Term(election="kube-scheduler", holder="x", token=3), TTL, "uid")
    assert lease_after_change(other, term(5, "a", 10.0), TTL, "") is None


async def test_lease_object_of_an_election_names_the_leader(world: World) -> None:
    stored = lease_after_change(None, term(1, "old", 10.0), TTL, "uid")
    assert stored is not None
    await world.read(stored)
    assert stored.spec.holderIdentity == "", "nobody leads"
    session = await world.lead("new")
    began = world.clock.time()
    await world.clock.advance(2.0)
    await world.storage.renew_lease(session)
    assert await world.read(stored) == [began + 2.0]
    assert (stored.spec.holderIdentity, to_seconds(stored.spec.acquireTime)) == ("new", began)


@pytest.mark.parametrize(
    ("name", "namespace", "fence", "refused"),
    [
        ("kube-scheduler", SYSTEM_NAMESPACE, "", True),
        ("kube-scheduler", "default", "", False),
        ("batch", SYSTEM_NAMESPACE, "", False),
        ("batch", SYSTEM_NAMESPACE, "batch/7", True),
    ],
)
def test_lease_objects_of_elections_are_read_only(name: str, namespace: str, fence: str, refused: bool) -> None:
    lease = Lease()
    lease.metadata.name, lease.metadata.namespace = name, namespace
    lease.metadata.annotations.update({"pinnace.io/fence": fence} if fence else {})
    admission, by = ElectionLeases(), WriteRequest(User("admin", (MASTERS,)))
    for operation, obj in ((AdmissionOperation.UPDATE, lease), (AdmissionOperation.DELETE, None)):
        if refused:
            with pytest.raises(Rejected, match=r"read-only; run `pinnace leader transfer (scheduler|batch)`"):
                admission.validate(by, operation, obj, lease)
        else:
            admission.validate(by, operation, obj, lease)
