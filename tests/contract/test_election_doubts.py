"""Elections whose outcome is unknown to the API server, or arrives late."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from pinnace.api.elections_pb2 import Election
from pinnace.apiserver.storage.interface import (
    CommitOutcomeUnknown,
    Committed,
    CompareFailed,
    KeyValue,
    LeaseNotFound,
    Storage,
    Write,
)
from tests.contract.electing import HASTY, KEY
from tests.contract.servers import PATIENCE, Server, Severable
from tests.contract.voters import Speaker, stored_election


class LateWrite(Severable):
    """Applies `write` right after the first read of its key."""

    def __init__(self, inner: Storage, write: Write) -> None:
        super().__init__(inner)
        self._late: list[Write] = [write]

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        result = await super().get(key, revision=revision)
        if self._late and key == self._late[0].key:
            await self.transact([self._late.pop()])
        return result


class DropsCreate(Severable):
    """Drops the first create of the election's key and reports an unknown outcome."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.lost = False

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if not self.lost and any(write.key == KEY for write in writes):
            self.lost = True
            raise CommitOutcomeUnknown("no answer")
        return await super().transact(writes)


class ExpiredLease(Severable):
    """Refuses to renew one lease, although its keys still exist."""

    def __init__(self, inner: Storage, lease: int) -> None:
        super().__init__(inner)
        self._lease = lease

    async def renew_lease(self, lease: int) -> float:
        if lease == self._lease:
            raise LeaseNotFound(f"lease {lease:x} has run out")
        return await super().renew_lease(lease)


class HangingRenewal(Severable):
    """Never completes the renewal of one lease."""

    def __init__(self, inner: Storage, lease: int) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()
        self._lease = lease

    async def renew_lease(self, lease: int) -> float:
        if lease == self._lease:
            self.asked.set()
            await asyncio.get_running_loop().create_future()
        return await super().renew_lease(lease)


class CompetingPut(Severable):
    """Simulates another server, to which the candidate has moved, that puts the key first: the same bytes at the same version.
    `answer` maps the store's result of the local attempt to the result that the caller sees."""

    def __init__(
        self, inner: Storage, answer: Callable[[Committed | CompareFailed], Awaitable[Committed | CompareFailed]]
    ) -> None:
        super().__init__(inner)
        self.competing_revision = 0
        """The revision of the other server's put."""
        self._answer = answer

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if not self.competing_revision and (put := [write for write in writes if write.key == KEY]):
            self.competing_revision = (await super().transact(put)).revision
            return await self._answer(await super().transact(writes))
        return await super().transact(writes)


async def lead(storage: Storage) -> tuple[int, int]:
    """Elect candidate "a" through a server that no longer exists. Return its session and its token."""
    session = await storage.grant_lease(HASTY.ttl)
    created = await storage.transact([Write(KEY, stored_election("a", session), expected=0, lease=session)])
    return session, created.revision


@asynccontextmanager
async def serving(storage: Storage) -> AsyncIterator[Server]:
    server = await Server(storage, elections=HASTY).start()
    try:
        yield server
    finally:
        await server.kill()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (the server sends no event when a peer disconnects)
            await asyncio.sleep(0.001)


async def test_late_create_of_the_key_is_taken_over_by_its_session(storage: Storage) -> None:
    """The candidate's server dies after it has sent the create of the key. The create takes effect after the next server has
    read the key. That server renews the lease. If it did not take over the key, the election would have no leader for good."""
    session = await storage.grant_lease(HASTY.ttl)
    late = Write(KEY, stored_election("a", session), expected=0, lease=session)
    async with serving(LateWrite(storage, late)) as server:
        speaker = await Speaker.open(server, "a", session)
        token = await speaker.win()
        record = await storage.get(KEY)
        assert record is not None
        assert (record.create_revision, record.lease) == (token, session)
        assert record.mod_revision > token


async def test_key_of_an_expired_session_is_not_used_by_the_next_session(storage: Storage) -> None:
    """The candidate does not lead. It opens a stream with a session whose lease has expired and whose key still exists. The
    server assigns a new session. The candidate leads once it has created a key with the new session."""
    session, token = await lead(storage)
    async with serving(ExpiredLease(storage, session)) as server:
        candidate = await Speaker.open(server, "a", session)
        opened = (await candidate.hear("opened")).opened.session
        later = await candidate.win()
        record = await storage.get(KEY)
        assert opened != session and later > token
        assert record is not None
        assert (record.create_revision, record.lease, Election.FromString(record.value).session) == (later, opened, opened)


async def test_candidate_that_disconnects_during_its_renewal_does_not_block_the_election(storage: Storage) -> None:
    """The candidate is first in the queue. The server cannot notice its disconnect while the renewal is pending."""
    hanging = HangingRenewal(storage, await storage.grant_lease(HASTY.ttl))
    async with serving(hanging) as server:
        first = await Speaker.open(server, "a", hanging._lease)
        await hanging.asked.wait()
        first.vanish()
        assert await (await Speaker.open(server, "b")).win()


async def test_create_without_a_response_does_not_end_the_session(storage: Storage) -> None:
    """The candidate may have moved to another server with this session and may lead there."""
    lossy = DropsCreate(storage)
    async with serving(lossy) as server:
        candidate = await Speaker.open(server, "a")
        session = (await candidate.hear("opened")).opened.session
        token = await candidate.win()
        record = await storage.get(KEY)
        assert lossy.lost
        assert record is not None
        assert (record.create_revision, record.lease) == (token, session)


async def test_identical_put_of_another_server_does_not_resolve_a_lost_take_over(storage: Storage) -> None:
    """The response to a take-over is lost. The server to which the candidate has moved puts the same bytes. If the first server
    mistook that put for its own, it would delete the key and depose a healthy leader."""

    joined: asyncio.Future[Speaker] = asyncio.get_running_loop().create_future()

    async def lose(answer: Committed | CompareFailed) -> Committed | CompareFailed:
        (await joined).vanish()
        await until(lambda: any(stream.gone for stream in server.elections._streams._streams.values()))
        raise CommitOutcomeUnknown("no answer")

    session, token = await lead(storage)
    competing = CompetingPut(storage, lose)
    async with serving(competing) as server:
        joined.set_result(await Speaker.open(server, "a", session, token))
        await until(lambda: competing.competing_revision > 0 and not server.elections._streams._streams)
        record = await storage.get(KEY)
        assert record is not None
        assert record.mod_revision == competing.competing_revision


async def test_session_that_moved_to_another_server_is_not_taken_over_again(storage: Storage) -> None:
    """The candidate disconnects during a take-over, and another server is faster. The key stays with that server."""

    joined: asyncio.Future[Speaker] = asyncio.get_running_loop().create_future()

    async def leave(answer: Committed | CompareFailed) -> Committed | CompareFailed:
        (await joined).vanish()
        await until(lambda: any(stream.gone for stream in server.elections._streams._streams.values()))
        return answer

    session, token = await lead(storage)
    competing = CompetingPut(storage, leave)
    async with serving(competing) as server:
        joined.set_result(await Speaker.open(server, "a", session, token))
        await until(lambda: competing.competing_revision > 0 and not server.elections._streams._streams)
        record = await storage.get(KEY)
        assert record is not None
        assert record.mod_revision == competing.competing_revision
