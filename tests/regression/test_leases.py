"""Leases of etcd that ended although they were renewed, were renewed although they had ended, or did not end."""

import asyncio

from apiserver.services.sessions import Timing
from apiserver.storage.etcd import EtcdStorage
from apiserver.storage.interface import LeaseNotFound
from pinnace.api.resources import LEASES, NODE_LEASE_NAMESPACE, election_key
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
    """The lease that the key is attached to, once it is there."""
    async with asyncio.timeout(PATIENCE):
        async for told in storage.watch(2):
            if any(change.key == key for change in told.changes) and (record := await storage.get(key)):
                return record.lease
    raise AssertionError("the watch ended")


async def test_etcd_15247_leases_that_are_renewed_are_revoked_all_the_same(serve: ServeOn, vote: Vote) -> None:
    """A member of etcd that had stood still (fdatasync) while another became leader revoked, once it went on, all leases that
    it believed to have expired, though the new leader had renewed them: https://github.com/etcd-io/etcd/issues/15247

    Here: the election's key vanishes under a leader that beats, at a server whose watch shows nothing, so that it is not told.
    Kept by: the next renewal says LeaseNotFound, which ends the term; and the fence, before that."""
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


class Lying(MemoryStorage):
    """Says of a lease that is gone that it was renewed, so many times."""

    def __init__(self, lies: int) -> None:
        super().__init__()
        self._lies = lies

    async def renew_lease(self, lease: int) -> float:
        try:
            return await super().renew_lease(lease)
        except LeaseNotFound:
            self._lies -= 1
            if self._lies < 0:
                raise
            return 2.0


FOR_EVER = 1 << 30


async def test_etcd_20615_a_renewal_that_succeeds_after_the_revocation(serve: ServeOn, vote: Vote) -> None:
    """A lease that was revoked while a renewal was under way was reported as renewed:
    https://github.com/etcd-io/etcd/pull/20590 (20615 in 3.6)

    Here: a leader whose heartbeats are answered for ever, although its key is gone and another leads. Kept by: a server does
    not trust the lease, but looks at the key (`judge`)."""
    storage = Lying(FOR_EVER)
    one, two = await serve(storage), await serve(storage)
    leader = vote("a", one)
    token = await leader.elected()
    await storage.revoke_lease(await holder_of(storage, KEY))
    follower = vote("b", two)
    await leader.lost()
    taken = [voter.elected(after=token) for voter in (leader, follower)]
    done, others = await asyncio.wait([asyncio.ensure_future(each) for each in taken], return_when=asyncio.FIRST_COMPLETED)
    assert {task.result() > token for task in done} == {True}
    for task in others:
        task.cancel()


async def test_etcd_20615_the_lease_of_a_node_comes_back(serve: ServeOn) -> None:
    """As above: nodes whose Lease objects are gone for ever, while their kubelet beats and is answered. Kept by: the server
    looks for the objects every second, and ends a session whose lease takes no keys; the fleet begins another."""
    storage = Lying(3)
    server = await serve(storage)
    connection = connect(server.address)
    session = NodeSession(connection, "fleet", ["n"], on_taken_over=lambda nodes, holder: None)
    running = asyncio.ensure_future(session.run())
    lease = await holder_of(storage, NODE)
    revision = await storage.current_revision()
    await storage.revoke_lease(lease)
    async with asyncio.timeout(PATIENCE):
        async for told in storage.watch(revision + 1):
            if any(change.key == NODE and change.value and change.lease != lease for change in told.changes):
                break
    running.cancel()
    await asyncio.wait((running,))
    await connection.close()


class Everlasting(MemoryStorage):
    """No lease ever runs out, and renewals promise three hundred years (etcd#12381)."""

    async def grant_lease(self, ttl: int) -> int:
        return await super().grant_lease(10**9)

    async def renew_lease(self, lease: int) -> float:
        await super().renew_lease(lease)
        return 9_223_372_036.0


async def test_etcd_20273_leases_that_begin_anew_with_each_restart(serve: ServeOn, vote: Vote) -> None:
    """Each restart and each election of a leader in etcd gives all leases their full time again: with enough of them none ever
    runs out: https://github.com/etcd-io/etcd/issues/20273

    Here: a leader that has fallen silent, or died, would keep the key. Kept by: the server deposes by silence and by the end of
    the stream, which take no lease; and a candidate's time is counted by its server's timing, not by what etcd promises."""
    timing = Timing(interval=0.1, silence=0.5, ttl=2)
    server = await serve(Everlasting(), timing)
    silent = await Speaker.open(server, "silent")
    opened = (await silent.hear("opened")).opened
    assert opened.validity_ms < timing.ttl * 1000
    token = (await silent.hear("elected")).elected.token
    dies = vote("dies", server)
    token = await dies.elected(after=token)
    next_one = vote("next", server)
    await dies.kill()
    assert await next_one.elected(after=token) > token


async def test_etcd_20273_restarts_of_etcd_only_delay(start_etcd: EtcdFactory, serve: ServeOn, vote: Vote) -> None:
    """As above, when leader and API server have died together and etcd restarts twice: only the lease is left to end the term.
    It takes longer by the restarts; it does end."""
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
