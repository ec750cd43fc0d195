"""Marks: whether a revision that somebody knows is of the history that the store has."""

from collections.abc import Sequence
from random import Random

from pinnace.api.resources import COMMITS_PREFIX
from pinnace.apiserver.cacher.event_history import HistoryFingerprints, RevisionVerifier
from pinnace.apiserver.cacher.store import CacheProgress, HistoryChanged
from pinnace.apiserver.storage.committer import TransactionPipeline, marker_keys
from pinnace.apiserver.storage.interface import Write
from pinnace.runtime.clock import SYSTEM_CLOCK
from tests.storage.memory import MemoryStorage

PATIENCE = 5.0


def test_mark_holds_until_the_next_commit() -> None:
    marks = HistoryFingerprints()
    marks.record_marker_change(5, "a", b"1")
    marks.record_marker_change(8, "b", b"1")
    five, eight = marks.fingerprint_at(5), marks.fingerprint_at(8)
    assert five and eight and five != eight
    assert [marks.fingerprint_at(revision) for revision in (4, 5, 7, 8, 99)] == [b"", five, five, eight, eight]


def test_oldest_marks_are_forgotten() -> None:
    marks = HistoryFingerprints(capacity=8)
    for revision in range(1, 11):
        marks.record_marker_change(revision, "a", bytes((revision,)))
    assert marks.fingerprint_at(10) and marks.fingerprint_at(1) is None


class Server:
    """One that has followed the store all the time, or (`loaded`) has started at its revision of now."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.marks, self.progress = HistoryFingerprints(), CacheProgress()
        self.answers: list[int] = []
        """What the store says of its revision, before it says the truth."""
        self.proof = RevisionVerifier(storage, self.marks, self.progress, self._fresh)

    async def _fresh(self) -> int:
        return self.answers.pop(0) if self.answers else await self.storage.current_revision()

    async def load(self) -> None:
        page = await self.storage.page(COMMITS_PREFIX)
        self.marks.reset(page.revision, page.items)
        self.progress.advance(page.revision)

    async def knows(self, revision: int, mark: bytes) -> bool:
        try:
            await self.proof.verify_revision(revision, mark, PATIENCE)
        except HistoryChanged:
            return False
        return True


async def history(*lives: Sequence[str]) -> tuple[MemoryStorage, dict[int, bytes]]:
    """A store into which as many servers have written, one after the other, and the marks of all its revisions."""
    storage, marks = MemoryStorage(), {}
    for seed, names in enumerate(lives):
        rng = Random(f"{seed} {names}")
        lane = TransactionPipeline(storage, marker_keys(rng), SYSTEM_CLOCK, rng)
        for name in names:
            await lane.send([Write(f"/registry/{name}", b"x", 0)])
            server = Server(storage)
            await server.load()
            marks[server.progress.revision] = server.marks.fingerprint_at(server.progress.revision) or b""
    return storage, marks


async def test_new_server_knows_earlier_fingerprints() -> None:
    storage, marks = await history("ab", "cd")
    server = Server(storage)
    await server.load()
    assert all([await server.knows(revision, mark) for revision, mark in marks.items()])
    assert not await server.knows(min(marks), b"another!")


async def test_histories_that_part_have_other_marks_from_there_on() -> None:
    """Whatever the revisions are: lower, the same, or higher."""
    _, gone = await history("ab", "cdef")
    storage, there = await history("ab", "CDE")
    server = Server(storage)
    await server.load()
    common = [revision for revision in gone if gone[revision] == there.get(revision)]
    assert len(common) == 2
    for revision, mark in gone.items():
        assert await server.knows(revision, mark) == (revision in common)


async def test_compacted_fingerprint_is_unknown() -> None:
    storage, marks = await history("abcd")
    await storage.compact(max(marks))
    server = Server(storage)
    await server.load()
    assert not await server.knows(min(marks), marks[min(marks)])
    assert await server.knows(max(marks), marks[max(marks)])


async def test_etcd_20418_one_stale_answer_is_no_restore() -> None:
    storage, marks = await history("ab")
    server = Server(storage)
    await server.load()
    *_, ahead = marks
    server.progress.revision = 1
    server.answers = [1, ahead]
    checking = server.knows(ahead, marks[ahead])
    server.progress.advance(ahead)
    assert await checking
    assert not await server.knows(ahead + 1, b""), "nobody can have heard of that in this history"
