"""Lists: the snapshot that a query reads, its pages, and the continue tokens between pages.

    resourceVersion  answer
    ""               the latest state (linearizable): the cache, after it has reached the current revision of the storage
    "0"              the cache as it is
    N                the cache, after it has reached N; with match Exact, the state at exactly N
    a later page     the state of the first page

A past state equals the cache if no object of the resource has changed since. Otherwise it is read from the storage, in pages
even without a limit. All pages of a list are one snapshot, on any server.

A continue token holds the revision, the query and the last key. It is opaque to clients and grants no permission.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

import base64
import binascii
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from apiserver.cacher.store import BadToken, CacheEntry, CacheProgress, CacheStore, Expired, FutureRevision, SelectionPredicate
from apiserver.storage.interface import Compacted, Storage
from pinnace.api import wire
from pinnace.api.resources import Object
from pinnace.api.scalars import natural
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import TimeSlice

MAX_LENGTH = 2048
_HINT = "pass the token as it was given, with the selectors of the list that it belongs to"


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The next page begins after the key `after`, at `revision`."""

    revision: int
    after: str

    def encode(self, selection: SelectionPredicate) -> str:
        text = f"{self.revision} {selection.digest} {self.after}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, selection: SelectionPredicate) -> Self:
        """Raises BadToken, also when the token belongs to another selection."""
        try:
            padded = text[:MAX_LENGTH] + "=" * (-len(text) % 4)
            revision, digest, after = base64.b64decode(padded, b"-_", validate=True).decode().split(" ", 2)
        except (binascii.Error, ValueError):  # a UnicodeError is a ValueError
            raise BadToken(f"the continue token is not one that this API gave out: {_HINT}") from None
        if digest != selection.digest:
            raise BadToken(f"the continue token belongs to another list: {_HINT}")
        number = natural(revision)
        if not number or not after.startswith(selection.prefix):
            raise BadToken(f"the continue token is not one that this API gave out: {_HINT}")
        return cls(number, after)


T = TypeVar("T", bound=Object)
BURST = 50
"""Objects that are looked at before the clock is: what a look takes depends on what is asked."""
STORAGE_PAGE = 500
MAX_STORED = 1000
"""Most items of a page that is read from the storage."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """See ListOptions in proto/."""

    selection: SelectionPredicate
    limit: int = 0
    """Most items of a page; 0 or less: no limit."""
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    """"" or NotOlderThan; Exact."""
    timeout: float = 5.0
    """Seconds that it waits for the cache."""


@dataclass(frozen=True, slots=True)
class _Page(Generic[T]):
    """What a page is cut from: the matches from its first item on, as they are at `revision`."""

    revision: int
    found: AsyncGenerator[CacheEntry[T]]
    count: int | None
    """How many they are, where that is known without looking."""
    limit: int
    """Most items of it; 0 or less: no limit."""


class Lister(Generic[T]):
    """`fresh(timeout)`: makes the cache linearizable, as `Cacher.fresh`. `require` raises CacheBehind when the store lacks its
    state."""

    def __init__(
        self,
        store: CacheStore[T],
        storage: Storage,
        progress: CacheProgress,
        fresh: Callable[[float], Awaitable[int]],
        require: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._storage = storage
        self._progress = progress
        self._fresh = fresh
        self._require = require
        self._clock = clock

    async def list(self, query: ListQuery) -> bytes:
        """The encoded `<Kind>List`. Raises Expired, CacheBehind, BadToken, StorageError."""
        try:
            return await self._encode(query, await self._page(query))
        except Compacted as compacted:
            raise Expired(compacted.compact_revision) from None

    async def _page(self, query: ListQuery) -> _Page[T]:
        selection = query.selection
        if query.match not in ("", "NotOlderThan", "Exact"):
            raise BadToken(f'resourceVersionMatch "{query.match[:32]}": expected NotOlderThan or Exact')
        if query.match and not query.resource_version:
            raise BadToken("resourceVersionMatch needs a resourceVersion")
        if query.continue_token:
            if query.resource_version not in ("", "0"):
                raise BadToken("resourceVersion must not be given with a continue token: the token says which snapshot it is")
            token = ContinueToken.decode(query.continue_token, selection)
            if token.revision > self._progress.revision and token.revision > await self._fresh(query.timeout):
                raise BadToken("the continue token is of a revision that has not been reached: list again from the beginning")
            return self._at(token.revision, query, token.after)
        if query.match == "Exact":
            return self._at(await self._past(query), query, "")
        wanted = _revision(query.resource_version)
        if wanted is None:
            await self._fresh(query.timeout)
        else:
            await self._progress.wait_for(wanted, query.timeout)
        return self._cached(self._progress.revision, query, "")

    async def _past(self, query: ListQuery) -> int:
        """A revision that has been, and that the cache has reached."""
        wanted = _revision(query.resource_version)
        if not wanted:
            raise BadToken("resourceVersionMatch Exact needs a resourceVersion other than 0")
        if wanted > self._progress.revision and wanted > (now := await self._fresh(query.timeout)):
            raise FutureRevision(wanted, now)
        return wanted

    def _at(self, revision: int, query: ListQuery, after: str) -> _Page[T]:
        """The state at a revision of the past."""
        if self._store.changed <= revision <= self._progress.revision:
            return self._cached(revision, query, after)
        limit = query.limit if 0 < query.limit < MAX_STORED else MAX_STORED
        return _Page(revision, self._stored(revision, query.selection, after, limit), None, limit)

    def _cached(self, revision: int, query: ListQuery, after: str) -> _Page[T]:
        self._require()
        selection = query.selection
        enough = query.limit + 1 if 0 < query.limit < sys.maxsize and selection.plain else None
        candidates = self._store.candidates(selection, after, enough)
        count = self._store.count(selection.prefix, after) if selection.plain else None
        return _Page(revision, _matching(selection, candidates, TimeSlice(self._clock)), count, query.limit)

    async def _stored(
        self, revision: int, selection: SelectionPredicate, after: str, enough: int
    ) -> AsyncGenerator[CacheEntry[T]]:
        if selection.key is not None:
            item = await self._storage.get(selection.key, revision=revision)
            if item is None or item.key <= after or (entry := self._store.entry(item)) is None:
                return
            if selection.matches(entry):
                yield entry
            return
        turn = TimeSlice(self._clock)
        size, more = min(enough + 1, STORAGE_PAGE) if selection.plain else STORAGE_PAGE, True
        while more:
            page = await self._storage.page(selection.prefix, after=after, limit=size, revision=revision)
            async with aclosing(_matching(selection, filter(None, map(self._store.entry, page.items)), turn)) as found:
                async for entry in found:
                    yield entry
            more = page.more
            after = page.items[-1].key if page.items else after

    async def _encode(self, query: ListQuery, page: _Page[T]) -> bytes:
        items: list[bytes] = []
        last = ""
        async with aclosing(page.found) as found:
            async for entry in found:
                if len(items) == page.limit > 0:
                    remaining = page.count - len(items) if page.count is not None else None
                    token = ContinueToken(page.revision, last).encode(query.selection)
                    return wire.list_response(items, page.revision, token, remaining)
                items.append(entry.stamped)
                last = entry.key
        return wire.list_response(items, page.revision)


async def _matching(
    selection: SelectionPredicate, candidates: Iterable[CacheEntry[T]], turn: TimeSlice
) -> AsyncGenerator[CacheEntry[T]]:
    """Those that match, in order; lets others have their turns."""
    for number, entry in enumerate(candidates, 1):
        if selection.matches(entry):
            yield entry
        if number % BURST == 0:
            await turn.end()


def _revision(text: str) -> int | None:
    """None when none was given."""
    if not text:
        return None
    if (revision := natural(text)) is None:
        raise BadToken(f'resourceVersion "{text[:32]}" is not a number that this API gave out')
    return revision
