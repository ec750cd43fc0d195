"""Following objects through everything that can happen to a connection."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from pinnace.api.resources import PODS
from pinnace.api.status import Code
from pinnace.api.verbs_pb2 import WatchEventType
from pinnace.cli.objects.query import Selection
from pinnace.cli.waiting import Follower
from pinnace.client.errors import Forbidden, Unavailable
from pinnace.client.informer import Delta
from pinnace.client.resource import ResourceClient
from tests.builders import make_pod
from tests.unit.cli.fakes import DOWN, FakeApi, FakeResource, refusal

PATIENCE = 5.0


class NoWaiting:
    """A clock on which sleeping takes no time."""

    def monotonic(self) -> float:
        return 0.0

    def time(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Watcher:
    """A follower and what it has told."""

    def __init__(self, pods: FakeResource, selection: Selection = Selection()) -> None:  # noqa: B008 (immutable)
        self.notes: list[str] = []
        self.told: list[tuple[str, str]] = []
        self._news = asyncio.Event()
        client = cast(ResourceClient[Any], pods)
        self.follower = Follower(client, selection, note=self._note, clock=NoWaiting())

    def changed(self, deltas: Sequence[Delta[Any]]) -> None:
        self.told += [(WatchEventType.Name(delta.kind), delta.obj.metadata.name) for delta in deltas]
        self._news.set()

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._news.set()

    async def until(self, *, told: int = 0, notes: int = 0) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.told) < told or len(self.notes) < notes:
                self._news.clear()
                await self._news.wait()

    @asynccontextmanager
    async def following(self) -> AsyncIterator[asyncio.Task[None]]:
        await self.follower.start()
        task = asyncio.ensure_future(self.follower.follow(self.changed))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def pods() -> FakeResource:
    return FakeApi().of(PODS)


def pod(name: str) -> Any:
    return make_pod(name).uid("").build()


async def test_the_present_state_and_then_changes(pods: FakeResource) -> None:
    await pods.put(pod("a"))
    watcher = Watcher(pods)
    async with watcher.following():
        assert list(watcher.follower.store) == ["/registry/pods/default/a"] and not watcher.told
        await pods.put(pod("b"))
        await pods.put(pod("a"))
        await pods.remove("b", "default")
        await watcher.until(told=3)
    assert watcher.told == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert list(watcher.follower.store) == ["/registry/pods/default/a"] and not watcher.notes


async def test_a_broken_stream_is_resumed_without_loss_and_said_once(pods: FakeResource) -> None:
    await pods.put(pod("before"))
    watcher = Watcher(pods)
    async with watcher.following():
        await pods.put(pod("a"))
        await watcher.until(told=1)
        for _ in range(3):
            pods.fail("watch", DOWN)
        await pods.break_stream(DOWN)
        await watcher.until(notes=1)
        await pods.put(pod("b"))
        await watcher.until(told=2, notes=2)
    assert watcher.told == [("ADDED", "a"), ("ADDED", "b")]
    assert watcher.notes == [
        "connection lost (cannot connect): retrying",
        "reconnected; no event was missed since revision 2",
    ]


async def test_a_reader_that_was_too_slow_resumes(pods: FakeResource) -> None:
    watcher = Watcher(pods)
    async with watcher.following():
        await pods.break_stream(refusal(Code.ABORTED, "SlowWatcher"))
        await pods.put(pod("a"))
        await watcher.until(told=1)


async def test_a_watch_that_has_been_open_for_long_enough_is_resumed_without_a_word(pods: FakeResource) -> None:
    watcher = Watcher(pods)
    async with watcher.following():
        await pods.put(pod("a"))
        await watcher.until(told=1)
        await pods.end_stream()
        await pods.put(pod("b"))
        await watcher.until(told=2)
    assert watcher.told == [("ADDED", "a"), ("ADDED", "b")]
    assert not watcher.notes


async def test_follower_reports_differences_after_expiry(pods: FakeResource) -> None:
    for name in "abc":
        await pods.put(pod(name))
    watcher = Watcher(pods)
    async with watcher.following():
        pods.fail("list", DOWN)  # and there is no server to list from, at first
        await pods.remove("b", "default")
        await pods.put(pod("c"))
        await pods.put(pod("d"))
        pods.compact()
        await pods.break_stream(DOWN)
        await watcher.until(told=3)
        assert sorted(watcher.told) == [("ADDED", "d"), ("DELETED", "b"), ("MODIFIED", "c")]
        await pods.put(pod("e"))
        await watcher.until(told=4)
    assert any("listing again" in note for note in watcher.notes)
    assert {obj.metadata.name for obj in watcher.follower.store.values()} == {"a", "c", "d", "e"}


async def test_follower_reports_differences_after_a_restore(pods: FakeResource) -> None:
    for name in "ab":
        await pods.put(pod(name))
    watcher = Watcher(pods)
    async with watcher.following():
        await pods.put(pod("c"))
        await watcher.until(told=1)
        del pods.stored[PODS.key("default", "b")]
        pods.history = b"another"
        await pods.break_stream(DOWN)
        await watcher.until(told=2)
    assert watcher.told == [("ADDED", "c"), ("DELETED", "b")]
    assert any("restored from a backup" in note for note in watcher.notes)


async def test_permanent_error_is_raised(pods: FakeResource) -> None:
    pods.fail("list", DOWN)
    with pytest.raises(Unavailable):
        await Watcher(pods).follower.start()
    watcher = Watcher(pods)
    async with watcher.following() as task:
        await pods.break_stream(refusal(Code.PERMISSION_DENIED))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(Forbidden):
                await task


async def test_until(pods: FakeResource) -> None:
    watcher = Watcher(pods)
    store = watcher.follower.store
    waiting = asyncio.ensure_future(watcher.follower.until(lambda: len(store) == 2))
    for name in "ab":
        await asyncio.sleep(0)
        assert not waiting.done()
        await pods.put(pod(name))
    await asyncio.wait_for(waiting, PATIENCE)
    await asyncio.wait_for(watcher.follower.until(lambda: len(store) == 2), PATIENCE)
