"""An object in etcd that nobody can read is left out, and harms no other."""

import logging

import pytest

from pinnace.api.core_v1_pb2 import PodList
from pinnace.api.resources import PODS, SERVICES
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.listing import ListQuery
from pinnace.apiserver.cacher.store import CacheStore, SelectionPredicate
from pinnace.apiserver.storage.interface import Committed, KeyChange, KeyValue, Write
from tests.nesting import groups
from tests.unit.cacher.world import Reader, World, pod, running

KEY = PODS.key("default", "b")
BROKEN = [
    pytest.param(b"\xff", id="no message"),
    pytest.param(pod("b").SerializeToString() + b"\x0a\x02\x0a\xff", id="no message inside"),
]
SELECTIONS = [("", ""), ("app!=web", ""), ("", "spec.nodeName=n1"), ("", "spec.nodeName!=n2"), ("", "spec.schedulerName!=x")]


async def put(world: World, value: bytes, expected: int = 0) -> int:
    outcome = await world.storage.transact([Write(KEY, value, expected)])
    assert isinstance(outcome, Committed)
    return outcome.revision


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize(("labels", "fields"), SELECTIONS)
async def test_unreadable_object_is_in_no_list_and_no_watch(value: bytes, labels: str, fields: str) -> None:
    world, selection = World(), SelectionPredicate.parse(PODS, "", labels, fields)
    await put(world, value)
    for name in "ac":
        await world.put(pod(name, node="n1"))
    async with running(Cacher(world.storage)) as cacher:
        cache, now = cacher.cache_of(PODS), cacher.revision
        assert KEY in cache.undecodable_keys and cache.get(KEY) is None
        for query in (ListQuery(selection), ListQuery(selection, resource_version=str(now), match="Exact")):
            listed = PodList.FromString(await cache.list(query))
            assert [item.metadata.name for item in listed.items] == ["a", "c"]
        reader = Reader(cache.watch(selection, None))
        await reader.until(now)
        assert reader.initial == [PODS.key("default", name) for name in "ac"]


@pytest.mark.parametrize("value", BROKEN)
async def test_object_that_becomes_unreadable_is_hidden_until_repaired(value: bytes) -> None:
    world = World()
    first = await world.put(pod("a"))
    async with running(Cacher(world.storage)) as cacher:
        await cacher.wait_until_fresh(5)
        readers = [
            Reader(cacher.cache_of(PODS).watch(SelectionPredicate.parse(PODS, "", *selection), first), first)
            for selection in SELECTIONS
        ]
        made = await world.put(pod("b", node="n1"))
        broken = await put(world, value, made)
        outcome = await world.storage.transact([Write(KEY, pod("b", node="n1").SerializeToString(), broken)])
        assert isinstance(outcome, Committed)
        last = await world.put(pod("c"))
        for reader in readers:
            await reader.until(last)
            told = [(event.revision, event.kind) for event in reader.events if event.name == "default/b"]
            assert told == [(made, "ADDED"), (broken, "DELETED"), (outcome.revision, "ADDED")]
        assert not cacher.cache_of(PODS).undecodable_keys


async def test_unreadable_past_version_is_left_out() -> None:
    world = World()
    await world.put(pod("a"))
    broken = await put(world, b"\xff")
    async with running(Cacher(world.storage)) as cacher:
        await world.storage.transact([Write(KEY, None, broken)])
        await cacher.wait_until_fresh(5)
        for fields in ("", "metadata.name=b"):
            selection = SelectionPredicate.parse(PODS, "default", "", fields)
            answer = await cacher.cache_of(PODS).list(ListQuery(selection, resource_version=str(broken), match="Exact"))
            assert len(PodList.FromString(answer).items) == (not fields)


def test_oversized_stored_object_is_left_out() -> None:
    """It can be read, but in no response to a watch."""
    store = CacheStore(PODS)
    store.reset(5, [KeyValue(KEY, pod("b", node="n1").SerializeToString() + groups(99), 5, 5, 1)])
    assert (store.unreadable, store.entries) == ({KEY}, {})


def test_unreadable_object_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = CacheStore(SERVICES)
    with caplog.at_level(logging.ERROR):
        store.reset(5, [KeyValue("/registry/services/default/a", b"\xff", 5, 5, 1)])
        assert store.apply(KeyChange("/registry/services/default/b", b"\xff", 6, 6)) is None
        assert store.apply(KeyChange("/registry/services/default/b", None, 0, 7)) is None
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "/registry/services/default/a",
        "/registry/services/default/b",
    ]
    assert store.unreadable == {"/registry/services/default/a"}
