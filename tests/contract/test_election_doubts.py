"""Elections whose outcome the API server does not know, or learns late."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from apiserver.storage.interface import Committed, CompareFailed, KeyValue, LeaseNotFound, OutcomeUnknown, Storage, Write
from pinnace.api.elections_pb2 import Election
from tests.contract.electing import HASTY, KEY
from tests.contract.servers import PATIENCE, Server, Severable
from tests.contract.voters import Speaker, stored_election


class Late(Severable):
    """A write of somebody else takes effect right after the first look at its key."""

    def __init__(self, inner: Storage, write: Write) -> None:
        super().__init__(inner)
        self._late: list[Write] = [write]

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        found = await super().get(key, revision=revision)
        if self._late and key == self._late[0].key:
            await self.transact([self._late.pop()])
        return found


class Lossy(Severable):
    """Loses the first attempt to create the election's key, and says only that there was no answer."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.lost = False

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if not self.lost and any(write.key == KEY for write in writes):
            self.lost = True
            raise OutcomeUnknown("no answer")
        return await super().transact(writes)


class RunOut(Severable):
    """Does not renew one lease any more, although its keys are there still."""

    def __init__(self, inner: Storage, lease: int) -> None:
        super().__init__(inner)
        self._lease = lease

    async def renew_lease(self, lease: int) -> float:
        if lease == self._lease:
            raise LeaseNotFound(f"lease {lease:x} has run out")
        return await super().renew_lease(lease)


class Stuck(Severable):
    """Renews one lease for ever, without an answer."""

    def __init__(self, inner: Storage, lease: int) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()
        self._lease = lease

    async def renew_lease(self, lease: int) -> float:
        if lease == self._lease:
            self.asked.set()
            await asyncio.get_running_loop().create_future()
        return await super().renew_lease(lease)


class Overtaken(Severable):
    """Another server, to which the candidate has gone on, puts the key first: the same bytes, over the same version. `answer`
    makes what is said of the attempt here then, of what the store has answered."""

    def __init__(
        self, inner: Storage, answer: Callable[[Committed | CompareFailed], Awaitable[Committed | CompareFailed]]
    ) -> None:
        super().__init__(inner)
        self.theirs = 0
        """The revision of the other's put."""
        self._answer = answer

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        if not self.theirs and (put := [write for write in writes if write.key == KEY]):
            self.theirs = (await super().transact(put)).revision
            return await self._answer(await super().transact(writes))
        return await super().transact(writes)


async def lead(storage: Storage) -> tuple[int, int]:
    """A candidate "a" has been elected by a server that is gone: its session, and its token."""
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
        while not condition():  # noqa: ASYNC110 (the server tells nobody when a peer has left)
            await asyncio.sleep(0.001)


async def test_a_key_that_comes_late_is_taken_over_by_the_session_that_it_is_for(storage: Storage) -> None:
    """The server where the candidate was has died, having sent the create of the key. It takes effect after the next server has
    looked. That one renews the lease, for the candidate beats: without an heir the key would stay for ever, and nobody lead."""
    session = await storage.grant_lease(HASTY.ttl)
    late = Write(KEY, stored_election("a", session), expected=0, lease=session)
    async with serving(Late(storage, late)) as server:
        speaker = await Speaker.open(server, "a", session)
        token = await speaker.win()
        record = await storage.get(KEY)
        assert record is not None
        assert (record.create_revision, record.lease) == (token, session)
        assert record.mod_revision > token


async def test_the_key_of_a_session_that_runs_out_is_not_carried_into_the_next(storage: Storage) -> None:
    """The lease has run out and its key is about to go, when the candidate, which does not lead, opens with that session: it
    gets another one. It leads by that when it has created a key with it."""
    session, token = await lead(storage)
    async with serving(RunOut(storage, session)) as server:
        candidate = await Speaker.open(server, "a", session)
        opened = (await candidate.hear("opened")).opened.session
        later = await candidate.win()
        record = await storage.get(KEY)
        assert opened != session and later > token
        assert record is not None
        assert (record.create_revision, record.lease, Election.FromString(record.value).session) == (later, opened, opened)


async def test_candidate_that_left_during_its_create_does_not_block_the_election(storage: Storage) -> None:
    """It stands first in the line, and nobody has the time to hear that it has gone."""
    stuck = Stuck(storage, await storage.grant_lease(HASTY.ttl))
    async with serving(stuck) as server:
        first = await Speaker.open(server, "a", stuck._lease)
        await stuck.asked.wait()
        first.vanish()
        assert await (await Speaker.open(server, "b")).win()


async def test_a_create_without_an_answer_does_not_end_the_session(storage: Storage) -> None:
    """The candidate may have gone on to another server with it, and lead there."""
    lossy = Lossy(storage)
    async with serving(lossy) as server:
        candidate = await Speaker.open(server, "a")
        session = (await candidate.hear("opened")).opened.session
        token = await candidate.win()
        record = await storage.get(KEY)
        assert lossy.lost
        assert record is not None
        assert (record.create_revision, record.lease) == (token, session)


async def test_the_put_of_another_server_is_not_taken_for_our_own(storage: Storage) -> None:
    """The answer to a take-over is lost, and the key was put again with the same bytes, by the server to which the candidate
    has gone on. Whoever took that for its own would delete it as its own, and depose a leader that is well."""

    joined: asyncio.Future[Speaker] = asyncio.get_running_loop().create_future()

    async def lose(answer: Committed | CompareFailed) -> Committed | CompareFailed:
        (await joined).vanish()
        await until(lambda: any(each.gone for each in server.elections._streams._held.values()))
        raise OutcomeUnknown("no answer")

    session, token = await lead(storage)
    overtaken = Overtaken(storage, lose)
    async with serving(overtaken) as server:
        joined.set_result(await Speaker.open(server, "a", session, token))
        await until(lambda: overtaken.theirs > 0 and not server.elections._streams._held)
        record = await storage.get(KEY)
        assert record is not None
        assert record.mod_revision == overtaken.theirs


async def test_a_session_that_has_gone_on_is_not_taken_back(storage: Storage) -> None:
    """The candidate has left while we were about to take over its key, and another server was faster: the key stays with it."""

    joined: asyncio.Future[Speaker] = asyncio.get_running_loop().create_future()

    async def leave(answer: Committed | CompareFailed) -> Committed | CompareFailed:
        (await joined).vanish()
        await until(lambda: any(each.gone for each in server.elections._streams._held.values()))
        return answer

    session, token = await lead(storage)
    overtaken = Overtaken(storage, leave)
    async with serving(overtaken) as server:
        joined.set_result(await Speaker.open(server, "a", session, token))
        await until(lambda: overtaken.theirs > 0 and not server.elections._streams._held)
        record = await storage.get(KEY)
        assert record is not None
        assert record.mod_revision == overtaken.theirs
