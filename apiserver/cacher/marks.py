"""Of which history a revision is: told apart by the commit marker that was moved last, at that revision or before.

A store that was restored from a backup goes on from an earlier revision, and gives the same numbers out for something else.
But each transaction of a committer moves a marker to where no marker has ever been (apiserver.storage.lane). So a revision and
its *mark* (a digest of that marker) can be checked by any server, also by one that has just started, without anybody having
noticed a restore or written that down: two histories that part have other marks from the first commit after that on.

What it does not promise: to tell histories apart whose only difference so far is in which order leases ran out; nor to know
marks that are compacted, and older than what it remembers. The design is in docs/design/restore.md.
"""

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable
from hashlib import blake2b

from apiserver.cacher.errors import HistoryChanged
from apiserver.cacher.progress import Progress
from apiserver.storage.interface import Compacted, KeyValue, Storage
from pinnace.api.resources import COMMITS_PREFIX

KEPT = 100_000
"""Marks that are remembered: 1.6 MB."""
MARK_BYTES = 8
_NONE = 0


class Marks:
    """The marks of the revisions that a cache has gone through."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._revisions = array("Q")
        self._marks = array("Q")
        self.reset(0, ())

    def reset(self, revision: int, markers: Iterable[KeyValue]) -> None:
        """Begins at a revision, with the markers as they were there."""
        last = _last(markers)
        self._revisions, self._marks = array("Q", [revision]), array("Q", [_mark(last.key, last.value) if last else _NONE])

    def moved(self, revision: int, key: str, value: bytes) -> None:
        """A marker was. `revision` is above all before."""
        self._revisions.append(revision)
        self._marks.append(_mark(key, value))
        if len(self._revisions) > self._kept:
            gone = self._kept // 8
            del self._revisions[:gone], self._marks[:gone]

    def at(self, revision: int) -> bytes | None:
        """The mark of a revision that was gone through; b"" where nothing had been committed; None: not known any more."""
        if revision >= self._revisions[-1]:
            return _told(self._marks[-1])
        index = bisect_right(self._revisions, revision)
        return _told(self._marks[index - 1]) if index else None


class Proof:
    """Whether what somebody knows is of the history that the storage has. `fresh` asks the storage for its revision."""

    def __init__(self, storage: Storage, marks: Marks, progress: Progress, fresh: Callable[[], Awaitable[int]]) -> None:
        self._storage = storage
        self._marks = marks
        self._progress = progress
        self._fresh = fresh

    async def check(self, revision: int, mark: bytes, timeout: float) -> None:
        """Raises HistoryChanged when the revision has another mark, or one that nobody can tell any more, or will only come;
        CacheBehind and StorageErrors."""
        if revision > self._progress.revision and await self._is_to_come(revision):
            raise HistoryChanged(revision)
        await self._progress.wait_for(revision, timeout)
        known = self._marks.at(revision)
        if known is None:
            known = await self._read(revision)
        if known != mark:
            raise HistoryChanged(revision)

    async def _is_to_come(self, revision: int) -> bool:
        """A single answer may be stale, from a member that was stopped (etcd#20418)."""
        return await self._fresh() < revision and await self._fresh() < revision

    async def _read(self, revision: int) -> bytes | None:
        last, after, more = None, "", True
        while more:
            try:
                page = await self._storage.page(COMMITS_PREFIX, after=after, revision=revision)
            except Compacted:
                return None
            last = _last([last, *page.items] if last else page.items)
            after, more = page.items[-1].key if page.items else "", page.more
        return _told(_mark(last.key, last.value) if last else _NONE)


def _last(markers: Iterable[KeyValue]) -> KeyValue | None:
    """What was moved last."""
    return max(markers, key=lambda marker: marker.mod_revision, default=None)


def _mark(key: str, value: bytes) -> int:
    return int.from_bytes(blake2b(b"%b %b" % (key.encode(), value), digest_size=MARK_BYTES).digest())


def _told(mark: int) -> bytes:
    return mark.to_bytes(MARK_BYTES) if mark != _NONE else b""
