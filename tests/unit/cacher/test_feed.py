"""Loading and following, whatever the storage does meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

from pinnace.api.resources import COMMITS_PREFIX
from pinnace.apiserver.cacher import reflector as module
from pinnace.apiserver.cacher.reflector import Reflector
from pinnace.apiserver.storage.interface import ChangeBatch, KeyValue, StorageUnavailable, Write
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage
from tests.unit.cacher.flaky import FlakyStorage
from tests.unit.cacher.world import DEADLINE, TimeMachine, eventually


class Target:
    """Keeps what it is fed, and checks that revisions come whole, in order, none twice, none left out."""

    def __init__(self, *late: str) -> None:
        self.late_prefixes = late
        self.revision = 0
        self.loads: list[int] = []
        self.state: dict[str, bytes] = {}
        self.refused: set[str] = set()
        """Keys that no state of its history has."""

    def is_same_history(self, items: Sequence[KeyValue]) -> bool:
        return self.refused.isdisjoint(item.key for item in items)

    def install_state(self, revision: int, items: Sequence[KeyValue]) -> None:
        self.revision = revision
        self.loads.append(revision)
        self.state = {item.key: item.value for item in items}

    async def install_late_prefix(self, prefix: str, revision: int, items: Sequence[KeyValue]) -> None:
        assert prefix in self.late_prefixes and self.loads[-1] <= revision <= self.revision
        self.supplied = {item.key: item.value for item in items}

    def apply_changes(self, changes: ChangeBatch) -> ChangeBatch | None:
        revisions = sorted({change.mod_revision for change in changes.changes})
        assert revisions == list(range(self.revision + 1, self.revision + 1 + len(revisions)))
        assert changes.revision == self.revision + len(revisions)
        self.revision = changes.revision
        for change in changes.changes:
            if change.value is None:
                del self.state[change.key]
            else:
                self.state[change.key] = change.value
        return None

    async def reach(self, revision: int) -> None:
        await eventually(lambda: self.revision >= revision)


async def put(storage: MemoryStorage, name: str, value: bytes = b"x") -> int:
    key = f"/registry/pods/default/{name}"
    current = await MemoryStorage.page(storage, key)
    expected = current.items[0].mod_revision if current.items else 0
    outcome = await storage.transact([Write(key, value, expected)])
    return outcome.revision


@asynccontextmanager
async def fed(storage: MemoryStorage, target: Target) -> AsyncIterator[Reflector]:
    feed = Reflector(storage, target, SYSTEM_CLOCK, Random(1))
    task = asyncio.create_task(feed.run())
    try:
        yield feed
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=DEADLINE)
        assert task.cancelled(), task.exception()


@pytest.fixture
def target() -> Target:
    return Target()


async def test_feed_lists_and_watches(target: Target) -> None:
    storage = FlakyStorage()
    await put(storage, "a")
    async with fed(storage, target) as feed:
        assert not feed.alive
        await target.reach(await put(storage, "b"))
        await target.reach(await put(storage, "a", b"y"))
        assert target.state == {"/registry/pods/default/a": b"y", "/registry/pods/default/b": b"x"}
        assert feed.alive
    assert not feed.alive
    assert not storage.watching.is_set(), "the watch was closed"


class Slow(Target):
    """One revision goes into a turn. Notes in which it took which."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.took: dict[int, int] = {}
        self.breaks = 0
        """The watch does before this revision, once."""

    def apply_changes(self, changes: ChangeBatch) -> ChangeBatch | None:
        if not changes.changes:
            return super().apply_changes(changes)
        revision = changes.changes[0].mod_revision
        if revision == self.breaks:
            self.breaks = 0
            raise StorageUnavailable("the watch broke")
        count = sum(change.mod_revision == revision for change in changes.changes)
        assert super().apply_changes(ChangeBatch(revision, changes.changes[:count])) is None
        self.took[revision] = self.turn
        return ChangeBatch(changes.revision, changes.changes[count:]) if changes.changes[count:] else None


async def test_others_run_between_the_revisions_of_a_slow_target() -> None:
    storage, target = FlakyStorage(), Slow()
    for number in range(30):
        last = await put(storage, f"p{number}")

    async def turns() -> None:
        while True:
            target.turn += 1
            await asyncio.sleep(0)

    async with fed(storage, target):
        other = asyncio.create_task(turns())
        await target.reach(last)
        other.cancel()
        assert await put(storage, "more") == last + 1
        await target.reach(last + 1)
    assert len(target.state) == 31
    assert target.loads == [1]
    turns_of = [target.took[revision] for revision in range(2, last + 1)]
    assert len(turns_of) == len(set(turns_of)) == 30


async def test_events_before_a_break_are_not_repeated() -> None:
    """Between two turns: the next watch goes on after the revision that was applied, and proves that one."""
    storage, target = FlakyStorage(), Slow()
    for number in range(30):
        last = await put(storage, f"p{number}")
    target.breaks = 10
    async with fed(storage, target) as feed:
        await target.reach(last)
        await eventually(lambda: feed.alive)
    assert storage.watches == 2
    assert target.loads == [1]
    assert sorted(target.took) == list(range(2, last + 1))


async def test_feed_loads_pages_at_one_earlier_revision(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HISTORY", 3)
    storage = FlakyStorage()
    for number in range(1200):
        last = await put(storage, f"p{number:04d}")
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
    assert target.loads == [last - 3]
    assert len(target.state) == 1200


@pytest.mark.parametrize(
    ("size", "limit"), [(0, module.LARGEST_PAGE), (100, module.LARGEST_PAGE), (8192, 1024), (module.PAGE_BYTES * 2, 1)]
)
def test_pages_grow_to_a_number_of_bytes(size: int, limit: int) -> None:
    """Every page costs etcd a walk through all that is left, so a load of many pages takes for ever on a busy machine."""
    items = [KeyValue(f"/registry/pods/default/{number}", bytes(size), 1, 1, 1) for number in range(2)]
    assert module.next_page_limit(items) == limit


async def test_feed_is_alive_only_after_catching_up(target: Target) -> None:
    storage = FlakyStorage()
    await put(storage, "a")
    storage.silent = True
    async with fed(storage, target) as feed:
        async with asyncio.timeout(DEADLINE):
            await storage.watching.wait()
        assert target.revision == 1
        assert not feed.alive, "it was loaded in the past"


async def test_feed_loads_at_the_compacted_revision(target: Target) -> None:
    storage = FlakyStorage()
    for name in "abcd":
        last = await put(storage, name)
    await storage.compact(last - 1)
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
    assert target.loads == [last - 1]
    assert target.revision == last


async def test_feed_waits_for_an_unavailable_store(target: Target) -> None:
    storage = FlakyStorage()
    last = await put(storage, "a")
    storage.leave()
    async with fed(storage, target) as feed:
        await asyncio.sleep(0.01)
        assert target.loads == []
        storage.come_back()
        await eventually(lambda: feed.alive)
    assert target.revision == last


async def test_feed_resumes_where_a_broken_watch_ended(target: Target) -> None:
    storage = FlakyStorage()
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
        storage.leave()
        await eventually(lambda: not feed.alive)
        for name in "abc":
            last = await put(storage, name)
        assert not feed.alive
        storage.come_back()
        await target.reach(last)
        assert feed.alive
    assert len(target.loads) == 1


async def test_feed_reloads_after_expiry(target: Target) -> None:
    storage = FlakyStorage()
    await put(storage, "gone")
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
        storage.leave()
        await eventually(lambda: not feed.alive)
        for name in "abc":
            last = await put(storage, name)
        await storage.compact(last)
        storage.come_back()
        await target.reach(last)
        await eventually(lambda: feed.alive)
        await target.reach(await put(storage, "d"))
        assert not feed.restored
    assert target.loads[1:] == [last]
    assert len(target.state) == 5


async def test_reload_after_expiry_detects_another_history(target: Target) -> None:
    storage, backup = FlakyStorage(), MemoryStorage()
    await put(storage, "a")
    for name in "bcde":
        last = await put(backup, name)
    await backup.compact(last - 1)
    target.refused = {"/registry/pods/default/b"}
    async with restored(storage, target, backup) as feed:
        assert feed.restored
    assert target.loads[1:] == [last - 1]


@asynccontextmanager
async def restored(storage: FlakyStorage, target: Target, backup: MemoryStorage) -> AsyncIterator[Reflector]:
    """A feed that was alive when the store was replaced by the backup, and is again."""
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
        storage.leave()
        await eventually(lambda: not feed.alive)
        storage.restore(backup)
        storage.come_back()
        await eventually(lambda: feed.alive)
        yield feed


@pytest.mark.parametrize("names", [["old"], ["a", "b", "old"], ["a", "b", "old", "older"], ["a", "b", "c"]])
async def test_feed_reloads_after_a_restore(target: Target, names: Sequence[str]) -> None:
    """Whatever the revision of the backup is, and of what was written since: lower, the same, or higher."""
    storage, backup = FlakyStorage(), MemoryStorage()
    for name in "abc":
        await put(storage, name)
    for name in names:
        await put(backup, name, b"of the backup")
    async with restored(storage, target, backup):
        await target.reach(await put(storage, "new"))
    values = dict.fromkeys((f"/registry/pods/default/{name}" for name in names), b"of the backup")
    assert target.state == {**values, "/registry/pods/default/new": b"x"}


async def commit(storage: MemoryStorage, value: bytes) -> int:
    """Moves a commit marker, as a transaction of a committer does."""
    outcome = await storage.transact([Write(f"{COMMITS_PREFIX}{value.decode()}/1", value, 0)])
    return outcome.revision


@pytest.mark.parametrize("after", [["same"], ["same", "other"]])
async def test_restore_is_detected_when_the_last_revision_is_the_same_in_both_histories(
    target: Target, after: Sequence[str]
) -> None:
    """Writes without a commit marker, such as the storage format, can be equal in two histories."""
    storage, backup = FlakyStorage(), MemoryStorage()
    for each, marker in ((storage, b"before"), (backup, b"of-the-backup")):
        await commit(each, marker)
        for name in after:
            await put(each, name)
    async with restored(storage, target, backup) as feed:
        assert feed.restored
    assert target.state[f"{COMMITS_PREFIX}of-the-backup/1"] == b"of-the-backup"


async def test_watch_resumes_when_the_last_commit_marker_is_compacted(target: Target) -> None:
    storage = FlakyStorage()
    async with fed(storage, target) as feed:
        await commit(storage, b"a")
        before = await put(storage, "x")
        await target.reach(await put(storage, "y"))
        storage.leave()
        await eventually(lambda: not feed.alive)
        await storage.compact(before)
        storage.come_back()
        await eventually(lambda: feed.alive)
        assert not feed.restored
    assert len(target.loads) == 1


async def test_store_that_had_been_empty_is_replaced_by_the_right_one(target: Target) -> None:
    """Of a backup with more revisions than the empty store had, the watch shows what came after those, and nothing more."""
    storage, backup = FlakyStorage(), MemoryStorage()
    for number in range(30):
        await put(backup, f"right-{number}")
    await put(storage, "wrong")
    async with restored(storage, target, backup):
        assert set(target.state) == {f"/registry/pods/default/right-{number}" for number in range(30)}


async def test_watches_of_a_history_that_is_gone_cannot_go_on(target: Target) -> None:
    """They are taken up at revisions that both histories have: what is loaded begins now, and refuses them."""
    storage, backup = FlakyStorage(), MemoryStorage()
    for number in range(30):
        last = await put(backup, f"p{number}")
    await put(storage, "wrong")
    async with restored(storage, target, backup):
        assert target.loads[-1] >= last - 1


async def test_feed_is_alive_only_after_the_store_is_confirmed_unchanged(target: Target) -> None:
    storage = FlakyStorage()
    await put(storage, "a")
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
        storage.silent = True
        storage.break_watches()
        await eventually(lambda: storage.watches == 2 and storage.watching.is_set())
        assert not feed.alive
        storage.silent = False
        storage.break_watches()
        await eventually(lambda: feed.alive)
    assert len(target.loads) == 1


async def test_feed_reloads_when_history_cannot_be_compared(target: Target) -> None:
    storage, backup = FlakyStorage(), MemoryStorage()
    for name in "abc":
        last = await put(storage, name)
        await put(backup, name, b"of the backup")
    await storage.compact(last)
    async with restored(storage, target, backup):
        assert set(target.state.values()) == {b"of the backup"}


async def test_silent_watch_is_restarted(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, machine = FlakyStorage(), TimeMachine(monkeypatch)
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
        storage.silent = True
        last = await put(storage, "a")
        feed.expect_revision(last)
        await machine.skip(module.STALL_LIMIT - 0.5)
        assert storage.watches == 1, "it may still come"
        feed.expect_revision(last)
        storage.silent = False
        await machine.skip(0.6)
        await target.reach(last)
    assert storage.watches == 2
    assert len(target.loads) == 1


async def test_watch_that_makes_progress_is_left_alone(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, machine = FlakyStorage(), TimeMachine(monkeypatch)
    async with fed(storage, target) as feed:
        await eventually(lambda: feed.alive)
        feed.expect_revision(await storage.current_revision() + 4)
        for name in "abcd":
            await machine.skip(module.STALL_LIMIT * 0.7)
            await target.reach(await put(storage, name))
        await machine.skip(module.STALL_LIMIT * 2)
        feed.expect_revision(target.revision)
        await machine.skip(module.STALL_LIMIT * 2)
        assert feed.alive
    assert storage.watches == 1
