"""The Keys service lists and streams the keys of the store, without secrets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from pinnace.api.elections_pb2 import Election
from pinnace.api.keys_pb2 import KeyVersion, ListKeysRequest, ListKeysResponse, WatchKeysRequest, WatchKeysResponse
from pinnace.api.status import Code
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.services.keys import MAX_STREAMS, KeysService
from pinnace.apiserver.storage.interface import Write
from tests.storage.memory import MemoryStorage
from tests.unit.auth.matrix import PEOPLE, Caller

CALLER = Caller(PEOPLE["admin"])
ELECTION = "/registry/elections/scheduler"
SECRET = "/registry/secrets/default/password"
POD = "/registry/pods/default/a"


@pytest.fixture
async def storage() -> MemoryStorage:
    made = MemoryStorage()
    election = Election(name="scheduler", holder="s-0", session=7, secret_hash=b"hash")
    for key, value in ((POD, b"pod"), (SECRET, b"password"), (ELECTION, election.SerializeToString())):
        await made.transact([Write(key, value, 0)])
    return made


async def listed(storage: MemoryStorage, **request: object) -> ListKeysResponse:
    return await KeysService(storage).list(ListKeysRequest(**request), CALLER)


async def changes(stream: AsyncIterator[WatchKeysResponse]) -> list[KeyVersion]:
    """The changes of the next message that has some."""
    async with asyncio.timeout(10):
        while True:
            if result := list((await anext(stream)).changes):
                return result


async def test_list_has_versions_and_pages(storage: MemoryStorage) -> None:
    first = await listed(storage, limit=2)
    assert [item.key for item in first.items] == [ELECTION, POD] and first.more
    rest = await listed(storage, after=first.items[-1].key, revision=first.revision)
    assert [item.key for item in rest.items] == [SECRET] and not rest.more
    pod = first.items[1]
    assert (pod.value, pod.version, pod.size) == (b"pod", 1, 3) and pod.create_revision == pod.mod_revision > 0


async def test_secrets_are_left_out(storage: MemoryStorage) -> None:
    items = {item.key: item for item in (await listed(storage)).items}
    assert items[SECRET].value == b"" and items[SECRET].size == len(b"password")
    election = Election.FromString(items[ELECTION].value)
    assert election.holder == "s-0" and not election.secret_hash


async def test_watch_streams_later_changes_of_its_prefixes_without_secrets(storage: MemoryStorage) -> None:
    async with aclosing(KeysService(storage).watch(WatchKeysRequest(prefixes=["/registry/secrets/"]), CALLER)) as stream:
        waiting = asyncio.ensure_future(changes(stream))
        await asyncio.sleep(0)
        page = await storage.page("/registry/")
        for item in page.items:
            await storage.transact([Write(item.key, b"new", item.mod_revision)])
        (change,) = await waiting
        assert (change.key, change.value, change.size, change.deleted) == (SECRET, b"", 3, False)


async def test_watch_resumes_at_a_revision_and_reports_deletions(storage: MemoryStorage) -> None:
    (pod,) = (await storage.page(POD)).items
    await storage.transact([Write(POD, None, pod.mod_revision)])
    request = WatchKeysRequest(prefixes=[POD], start_revision=pod.mod_revision)
    async with aclosing(KeysService(storage).watch(request, CALLER)) as stream:
        result = await changes(stream)
        while len(result) < 2:
            result += await changes(stream)
    assert [(item.deleted, item.value) for item in result] == [(False, b"pod"), (True, b"")]


async def test_compacted_revision_is_out_of_range(storage: MemoryStorage) -> None:
    await storage.compact(await storage.current_revision())
    with pytest.raises(Rejected) as rejected:
        await listed(storage, revision=1)
    assert rejected.value.refusal.code is Code.OUT_OF_RANGE
    async with aclosing(KeysService(storage).watch(WatchKeysRequest(start_revision=1), CALLER)) as stream:
        with pytest.raises(Rejected) as rejected:
            await changes(stream)
    assert rejected.value.refusal.code is Code.OUT_OF_RANGE


@pytest.mark.parametrize(("revision", "code"), [(1 << 40, Code.OUT_OF_RANGE), (-1, Code.INVALID_ARGUMENT)])
async def test_revision_that_is_not_there_is_refused(storage: MemoryStorage, revision: int, code: Code) -> None:
    with pytest.raises(Rejected) as rejected:
        await listed(storage, revision=revision)
    assert rejected.value.refusal.code is code


async def test_number_of_streams_is_bounded(storage: MemoryStorage) -> None:
    service = KeysService(storage)
    streams = [service.watch(WatchKeysRequest(start_revision=1), CALLER) for _ in range(MAX_STREAMS + 1)]
    async with asyncio.timeout(10):
        for stream in streams[:-1]:
            await anext(stream)
        with pytest.raises(Rejected, match="at most"):
            await anext(streams[-1])
        await streams[0].aclose()
        again = service.watch(WatchKeysRequest(start_revision=1), CALLER)
        await anext(again)
        for stream in (*streams[1:], again):
            await stream.aclose()
