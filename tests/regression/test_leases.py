"""etcd leases that end although they were renewed, are renewed after their end, or do not end."""

import asyncio

from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, election_key
from pinnace.apiserver.services.sessions import Timing
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import LeaseNotFound
from pinnace.client.heartbeat import NodeSession
from tests.conftest import EtcdFactory
from tests.contract.electing import ServeOn, Vote
from tests.contract.servers import PATIENCE
from tests.contract.voters import ELECTION, Speaker
from tests.storage.memory import MemoryStorage
from tests.unit.client.fakeserver import connect

KEY = election_key(ELECTION)
NODE = LEASES.key(NODE_LEASE_NAMESPACE, "n")


async def holder_of(storage: MemoryStorage, key: str) -> int:
    """Return the lease that the key is attached to, once the key exists."""
    async with asyncio.timeout(PATIENCE):
        async for batch in storage.watch(2):
            if any(change.key == key for change in batch.changes) and (record := await storage.get(key)):
                return record.lease
    raise AssertionError("the watch ended")


async def test_etcd_15247_leader_stands_down_when_its_renewed_lease_is_revoked(serve: ServeOn, vote: Vote) -> None:
    """The leader of etcd hung in fdatasync while another member was elected. When it resumed, it revoked all leases that it
    considered expired, although the new leader had renewed them: https://github.com/etcd-io/etcd/issues/15247

    Here: etcd deletes the election's key of a leader that sends heartbeats. The watch of its server has stopped and does not
    report the delete. Guard: the next renewal returns LeaseNotFound, which ends the term. Until then, the fence rejects
    writes."""
    storage = MemoryStorage()
    one, two = await serve(storage), await serve(storage)
    leader = vote("a", one)
    token = await leader.elected()
    one.blind()
    await storage.revoke_lease(await holder_of(storage, KEY))
    follower = vote("b", two)
    assert await follower.elected(after=token) > token
    assert "expired" in await leader.lost()
    assert leader.candidate.token is None


class FalseRenewals(MemoryStorage):
    """Reports the renewal of a missing lease as successful, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._remaining = times

    async def renew_lease(self, lease: int) -> float:
        try:
            return await super().renew_lease(lease)
        except LeaseNotFound:
            self._remaining -= 1
            if self._remaining < 0:
                raise
            return 2.0


ALWAYS = 1 << 30


async def test_etcd_20615_leader_stands_down_although_a_revoked_lease_is_renewed(serve: ServeOn, vote: Vote) -> None:
    """etcd reported the renewal of a lease as successful although the lease was revoked during the renewal:
    https://github.com/etcd-io/etcd/pull/20590 (20615 in 3.6)

    Here: a server acknowledges the heartbeats of a leader forever, although its key is deleted and another candidate leads.
    Guard: the server does not rely on the lease but checks the key (`key_state`)."""
    storage = FalseRenewals(ALWAYS)
    one, two = await serve(storage), await serve(storage)
    leader = vote("a", one)
    token = await leader.elected()
    await storage.revoke_lease(await holder_of(storage, KEY))
    follower = vote("b", two)
    await leader.lost()
    taken = [voter.elected(after=token) for voter in (leader, follower)]
    done, others = await asyncio.wait([asyncio.ensure_future(item) for item in taken], return_when=asyncio.FIRST_COMPLETED)
    assert {task.result() > token for task in done} == {True}
    for task in others:
        task.cancel()


async def test_etcd_20615_node_lease_is_recreated_after_a_revocation(serve: ServeOn) -> None:
    """As above: the Lease objects of nodes are missing, while the server acknowledges the heartbeats of their kubelet. Guard:
    the server checks the objects every second and ends a session whose lease accepts no keys. The fleet opens a new session."""
    storage = FalseRenewals(3)
    server = await serve(storage)
    connection = connect(server.address)
    session = NodeSession(connection, "fleet", ["n"], on_taken_over=lambda nodes, holder: None)
    running = asyncio.ensure_future(session.run())
    lease = await holder_of(storage, NODE)
    revision = await storage.current_revision()
    await storage.revoke_lease(lease)
    async with asyncio.timeout(PATIENCE):
        async for batch in storage.watch(revision + 1):
            if any(change.key == NODE and change.value and change.lease != lease for change in batch.changes):
                break
    running.cancel()
    await asyncio.wait((running,))
    await connection.close()


class EndlessLeases(MemoryStorage):
    """Leases never expire, and renewals return a TTL of three hundred years (etcd#12381)."""

    async def grant_lease(self, ttl: int) -> int:
        return await super().grant_lease(10**9)

    async def renew_lease(self, lease: int) -> float:
        await super().renew_lease(lease)
        return 9_223_372_036.0


async def test_etcd_20273_silent_leader_is_deposed_although_its_lease_never_expires(serve: ServeOn, vote: Vote) -> None:
    """Each restart and each leader election of etcd resets all leases to their full TTL. With frequent restarts, leases never
    expire: https://github.com/etcd-io/etcd/issues/20273

    Here: a silent or killed leader would keep the key. Guard: the server deposes a leader that is silent or whose stream ends,
    which needs no lease. The validity of a term depends on the server's timing, not on the TTL that etcd returns."""
    timing = Timing(interval=0.1, silence=0.5, ttl=2)
    server = await serve(EndlessLeases(), timing)
    silent = await Speaker.open(server, "silent")
    opened = (await silent.hear("opened")).opened
    assert opened.validity_ms < timing.ttl * 1000
    token = (await silent.hear("elected")).elected.token
    dies = vote("dies", server)
    token = await dies.elected(after=token)
    next_one = vote("next", server)
    await dies.kill()
    assert await next_one.elected(after=token) > token


async def test_etcd_20273_restarts_of_etcd_only_delay_the_lease_expiry(
    start_etcd: EtcdFactory, serve: ServeOn, vote: Vote
) -> None:
    """As above: leader and API server are killed together, and etcd restarts twice. Only the lease can end the term. The
    restarts delay its expiry."""
    (etcd,) = await start_etcd(1)
    storages = [EtcdStorage([etcd.endpoint]) for _ in range(2)]
    one, two = [await serve(storage) for storage in storages]
    leader = vote("a", one)
    token = await leader.elected()
    follower = vote("b", two)
    await one.kill()
    await leader.kill()
    for _ in range(2):
        etcd.kill()
        etcd.start()
        await etcd.wait_ready()
    assert await follower.elected(after=token) > token
    for storage in storages:
        await storage.close()
