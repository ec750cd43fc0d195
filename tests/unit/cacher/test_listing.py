"""Lists and their pages, from the cache and from the storage."""

import asyncio
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.resources import PODS
from pinnace.apiserver.cacher import cacher as cacher_module
from pinnace.apiserver.cacher import listing
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.listing import ContinueToken, ListQuery
from pinnace.apiserver.cacher.store import BadToken, CacheBehind, Expired, FutureRevision, SelectionPredicate
from pinnace.runtime import tasks
from tests.clock import FakeClock
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import CASES, Case, World, pod, running

ALL_PODS = CASES[0].selection


class Client:
    """Lists pods, as a client would."""

    def __init__(self, cacher: Cacher, selection: Any = ALL_PODS) -> None:
        self._cacher = cacher
        self._selection = selection

    async def page(self, **query: Any) -> PodList:
        async with asyncio.timeout(10):
            return PodList.FromString(await self._cacher.of(PODS).list(ListQuery(self._selection, **query)))

    async def all(self, **query: Any) -> list[PodList]:
        pages = [await self.page(**query)]
        while token := getattr(pages[-1].metadata, "continue"):
            pages.append(await self.page(limit=query["limit"], continue_token=token))
        return pages


def state(*pages: PodList) -> dict[str, int]:
    """Keys in the order in which they came, and their revisions."""
    return {PODS.key_of(item): int(item.metadata.resourceVersion) for page in pages for item in page.items}


async def world_of(count: int) -> World:
    world = World(FlakyStorage())
    for number in range(count):
        namespace, app, node = ("default", "other")[number % 2], ("web", "db", "")[number % 3], ("n1", "n2", "")[number % 4 % 3]
        await world.put(pod(f"p{number:02d}", namespace, app=app, node=node))
    return world


async def test_object_counts_are_kept_per_namespace() -> None:
    world = await world_of(5)
    async with running(Cacher(world.storage)) as cacher:
        assert [cacher.of(PODS).count(namespace) for namespace in ("", "default", "other", "oth", "none")] == [5, 3, 2, 0, 0]


@pytest.mark.parametrize("limit", [0, -1, 1, 3, 12, 13, 100])
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_pages_together_are_the_state(case: Case, limit: int) -> None:
    world = await world_of(12)
    async with running(Cacher(world.storage)) as cacher:
        pages = await Client(cacher, case.selection).all(limit=limit)
        assert state(*pages) == world.state(cacher.revision, case.predicate)
        assert list(state(*pages)) == list(world.state(cacher.revision, case.predicate))
        assert {page.metadata.resourceVersion for page in pages} == {str(cacher.revision)}
        if limit > 0:
            assert [len(page.items) for page in pages[:-1]] == [limit] * (len(pages) - 1)
            assert pages[-1].items or len(pages) == 1, "no page is there for nothing"


async def test_remaining_item_count_is_set_when_known() -> None:
    world = await world_of(12)
    async with running(Cacher(world.storage)) as cacher:
        pages = await Client(cacher).all(limit=5)
        assert [page.metadata.remainingItemCount for page in pages[:2]] == [7, 2]
        assert not pages[2].metadata.HasField("remainingItemCount")
        page = await Client(cacher, CASES[2].selection).page(limit=1)
        assert not page.metadata.HasField("remainingItemCount")
        page = await Client(cacher, CASES[1].selection).page(limit=1)
        assert page.metadata.remainingItemCount == 5


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_all_pages_are_one_snapshot_while_writers_go_on(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "STORAGE_PAGE", 2)
    world = await world_of(12)
    async with running(Cacher(world.storage)) as cacher:
        client = Client(cacher, case.selection)
        pages = [await client.page(limit=1)]
        revision = int(pages[0].metadata.resourceVersion)
        while token := getattr(pages[-1].metadata, "continue"):
            number = len(pages)
            await world.delete(f"p{12 - number:02d}", ("default", "other")[(12 - number) % 2])
            await world.put(pod(f"p{number:02d}x", "other", app="web", node="n1"))
            pages.append(await client.page(limit=1, continue_token=token))
        assert state(*pages) == world.state(revision, case.predicate)
        assert {page.metadata.resourceVersion for page in pages} == {str(revision)}


async def test_page_of_an_unchanged_past_costs_no_read() -> None:
    world = await world_of(3)
    async with running(Cacher(world.storage)) as cacher:
        first = await Client(cacher).page(limit=1)
        assert isinstance(world.storage, FlakyStorage)
        world.storage.leave()
        page = await Client(cacher).page(limit=1, continue_token=getattr(first.metadata, "continue"))
        assert len(page.items) == 1


async def test_another_server_goes_on_with_the_list() -> None:
    world = await world_of(6)
    async with running(Cacher(world.storage)) as one:
        first = await Client(one).page(limit=2)
        revision = int(first.metadata.resourceVersion)
        await world.delete("p05", "other")
        async with running(Cacher(world.storage)) as other:
            rest = await Client(other).page(continue_token=getattr(first.metadata, "continue"))
    assert state(first, rest) == world.state(revision, lambda pod: True)


async def test_snapshot_that_is_compacted_has_expired() -> None:
    world = await world_of(3)
    async with running(Cacher(world.storage)) as cacher:
        first = await Client(cacher).page(limit=1)
        last = await world.put(pod("new"))
        await world.storage.compact(last)
        await cacher.wait_until_fresh(5)
        with pytest.raises(Expired) as caught:
            await Client(cacher).page(limit=1, continue_token=getattr(first.metadata, "continue"))
        assert caught.value.oldest == last


async def test_list_sees_what_was_written_before_it() -> None:
    world = await world_of(1)
    async with running(Cacher(world.storage)) as cacher:
        for name in "abc":
            revision = await world.put(pod(name))
            listed = await Client(cacher).page()
            assert int(listed.metadata.resourceVersion) >= revision
            assert PODS.key("default", name) in state(listed)


async def test_zero_is_whatever_is_there_even_without_a_storage() -> None:
    world = await world_of(2)
    async with running(Cacher(world.storage)) as cacher:
        assert isinstance(world.storage, FlakyStorage)
        world.storage.leave()
        assert len((await Client(cacher).page(resource_version="0")).items) == 2


async def test_revision_is_waited_for() -> None:
    world = await world_of(2)
    async with running(Cacher(world.storage)) as cacher:
        with pytest.raises(CacheBehind):
            await Client(cacher).page(resource_version=str(cacher.revision + 1), timeout=0.02)
        waiting = asyncio.ensure_future(Client(cacher).page(resource_version=str(cacher.revision + 1), match="NotOlderThan"))
        await asyncio.sleep(0)
        await world.put(pod("new"))
        assert len((await waiting).items) == 3


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_exactly_that_revision(case: Case) -> None:
    world = await world_of(4)
    await world.delete("p01", "other")
    async with running(Cacher(world.storage)) as cacher:
        for revision in range(2, cacher.revision + 1):
            pages = await Client(cacher, case.selection).all(resource_version=str(revision), match="Exact", limit=2)
            assert state(*pages) == world.state(revision, case.predicate)
            assert {page.metadata.resourceVersion for page in pages} == {str(revision)}


async def test_list_of_one_name_at_an_exact_revision_is_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(FlakyStorage())
    revisions = [await world.put(pod("a", app=app)) for app in ("web", "db")]
    revisions += [await world.delete("a"), await world.put(pod("b"))]
    async with running(Cacher(world.storage)) as cacher:
        monkeypatch.setattr(world.storage, "page", None)
        for labels, fields in (
            ("", "metadata.name=a"),
            ("app=web", "metadata.name=a"),
            ("", "metadata.name=a,status.phase=Failed"),
        ):
            selection = SelectionPredicate.parse(PODS, "default", labels, fields)
            pages = [
                await Client(cacher, selection).page(resource_version=str(revision), match="Exact") for revision in revisions
            ]
            expected = {"app=web": [1, 0, 0, 0], "": [1, 1, 0, 0]}[labels] if "phase" not in fields else [0, 0, 0, 0]
            assert [len(page.items) for page in pages] == expected


@pytest.mark.parametrize("match", ["", "NotOlderThan", "Exact"])
async def test_list_at_future_revision_is_refused(match: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cacher_module, "FUTURE_TIMEOUT", 0.05)
    world = await world_of(1)
    async with running(Cacher(world.storage)) as cacher:
        future = str(cacher.revision + 1)
        with pytest.raises(FutureRevision, match=f"Too large resource version: {future}, current: {cacher.revision}"):
            await Client(cacher).page(resource_version=future, match=match)
        written = await world.put(pod("new"))  # which this server may not have heard of yet
        assert len((await Client(cacher).page(resource_version=str(written), match=match)).items) == 2


async def test_list_waits_for_a_revision_that_is_written_meanwhile() -> None:
    world = await world_of(1)
    async with running(Cacher(world.storage)) as cacher:
        reading = asyncio.create_task(Client(cacher).page(resource_version=str(cacher.revision + 1)))
        await asyncio.sleep(0)
        await world.put(pod("new"))
        assert len((await reading).items) == 2


async def test_past_that_is_compacted_has_expired() -> None:
    world = await world_of(3)
    async with running(Cacher(world.storage)) as cacher:
        before, last = str(cacher.revision), await world.put(pod("new"))
        await world.storage.compact(last)
        await cacher.wait_until_fresh(5)
        for selection in (ALL_PODS, SelectionPredicate.parse(PODS, "default", "", "metadata.name=p00")):
            with pytest.raises(Expired) as caught:
                await Client(cacher, selection).page(resource_version=before, match="Exact")
            assert caught.value.oldest == last


async def test_list_at_a_past_revision_is_paged_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_STORED", 5)
    world = await world_of(12)
    async with running(Cacher(world.storage)) as cacher:
        past = cacher.revision
        await world.put(pod("new"))
        await cacher.wait_until_fresh(5)
        pages = await Client(cacher).all(resource_version=str(past), match="Exact", limit=0)
        assert [len(page.items) for page in pages] == [5, 5, 2]
        assert state(*pages) == world.state(past, lambda pod: True)


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"continue_token": "x"}, "continue token"),
        ({"continue_token": "x", "resource_version": "5"}, "not allowed when using continue"),
        ({"resource_version": "abc"}, "invalid resource version"),
        ({"resource_version": "-1"}, "invalid resource version"),
        ({"resource_version": "9" * 19}, "invalid resource version"),
        ({"match": "exact"}, "NotOlderThan or Exact"),
        ({"match": "Exact"}, "forbidden unless resourceVersion is provided"),
        ({"match": "NotOlderThan"}, "forbidden unless resourceVersion is provided"),
        ({"match": "Exact", "resource_version": "0"}, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
        ({"match": "Exact", "resource_version": "5", "continue_token": "x"}, "not allowed when using continue"),
    ],
)
async def test_queries_that_make_no_sense_are_refused(query: dict[str, str], complaint: str) -> None:
    async with running(Cacher(FlakyStorage())) as cacher:
        with pytest.raises(BadToken, match=complaint):
            await Client(cacher).page(**query)


async def test_token_of_the_future_is_refused_and_not_waited_for() -> None:
    async with running(Cacher(FlakyStorage())) as cacher:
        token = ContinueToken(10**17, PODS.prefix + "default/a").encode(ALL_PODS)
        with pytest.raises(BadToken, match="contains a future revision"):
            await Client(cacher).page(continue_token=token)


async def test_largest_limit_is_no_limit() -> None:
    world = await world_of(3)
    async with running(Cacher(world.storage)) as cacher:
        assert len((await Client(cacher).page(limit=2**63 - 1)).items) == 3


async def test_long_list_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "BURST", 2)
    monkeypatch.setattr(tasks, "SLICE", -1.0)
    world = await world_of(10)
    async with running(Cacher(world.storage)) as cacher:
        had = 0

        async def others() -> None:
            nonlocal had
            while True:
                had += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        await Client(cacher).page(resource_version="0")
        task.cancel()
        assert had >= 5 * tasks.YIELDS


async def test_list_that_asks_much_of_each_object_lets_others_run_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a turn lasts is a matter of time, not of a number of objects."""
    clock, had = FakeClock(), 0
    monkeypatch.setattr(
        SelectionPredicate, "matches", lambda selection, entry: clock.stall(tasks.SLICE / listing.BURST * 1.5) or True
    )

    async def others() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    world = await world_of(listing.BURST * 4)
    async with running(Cacher(world.storage, clock=clock)) as cacher:
        await cacher.wait_for(1, 5)
        task = asyncio.create_task(others())
        await Client(cacher).page(resource_version="0")
        task.cancel()
    assert had >= 4 * tasks.YIELDS
