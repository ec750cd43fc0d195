"""Lists: snapshots, pages and continue tokens.

    resourceVersion  response
    ""               the latest state (linearizable): the cache, after it has reached the current revision of the storage
    "0"              the current state of the cache
    N                the cache, after it has reached N; with match Exact, the state at exactly N
    (continue token) the state of the first page

If no object of the resource has changed since a past revision, the cache contains the state at this revision. Otherwise the
state is read from the storage in pages, even if the list has no limit. All pages of a list are from one snapshot, even if
different servers return them.

A continue token contains the revision, a digest of the selection, and the last key. Clients must treat it as opaque. It does
not grant permissions.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

import base64
import binascii
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from pinnace.api import wire
from pinnace.api.integers import parse_natural
from pinnace.api.resources import Object
from pinnace.apiserver.cacher.store import (
    CacheEntry,
    CacheProgress,
    CacheStore,
    InvalidContinueToken,
    RevisionExpired,
    SelectionPredicate,
)
from pinnace.apiserver.storage.interface import Compacted, Storage
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import TimeSlice

MAX_LENGTH = 2048
_HINT = "pass the token unchanged, with the namespace and selectors of the first page"

T = TypeVar("T", bound=Object)
BURST = 50
"""Number of objects that are matched between two reads of the clock."""
STORAGE_PAGE = 500
MAX_STORED = 1000
"""Maximum number of items of a page that is read from the storage."""


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The position of the next page: after the key `after`, at `revision`."""

    revision: int
    after: str

    def encode(self, selection: SelectionPredicate) -> str:
        text = f"{self.revision} {selection.digest} {self.after}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, selection: SelectionPredicate) -> Self:
        """Parse a token. Raises InvalidContinueToken if it is malformed or belongs to another selection."""
        try:
            padded = text[:MAX_LENGTH] + "=" * (-len(text) % 4)
            revision, digest, after = base64.b64decode(padded, b"-_", validate=True).decode().split(" ", 2)
        except (binascii.Error, ValueError):  # UnicodeError is a ValueError
            raise InvalidContinueToken(f"invalid continue token: {_HINT}") from None
        if digest != selection.digest:
            raise InvalidContinueToken(f"the continue token belongs to another list: {_HINT}")
        number = parse_natural(revision)
        if not number or not after.startswith(selection.prefix):
            raise InvalidContinueToken(f"invalid continue token: {_HINT}")
        return cls(number, after)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """See ListOptions in proto/."""

    selection: SelectionPredicate
    limit: int = 0
    """Maximum number of items of a page; no limit if it is not positive."""
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""
    """"", NotOlderThan or Exact. "" means NotOlderThan."""
    timeout: float = 5.0
    """Maximum seconds to wait for the cache."""


@dataclass(frozen=True, slots=True)
class _ListPage(Generic[T]):
    """The state at `revision`. `entries` yields the matching entries from the first item of the page on."""

    revision: int
    entries: AsyncGenerator[CacheEntry[T]]
    count: int | None
    """The number of these entries; None if it is unknown."""
    limit: int
    """Maximum number of items of the page; no limit if it is not positive."""


class Lister(Generic[T]):
    """Lists the objects of one resource. `wait_until_fresh` and `wait_until_revision` are those of Cacher.
    `require_loaded` raises CacheBehind if the cache is not loaded."""

    def __init__(
        self,
        store: CacheStore[T],
        storage: Storage,
        progress: CacheProgress,
        wait_until_fresh: Callable[[float], Awaitable[int]],
        wait_until_revision: Callable[[int, float], Awaitable[None]],
        require_loaded: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._storage = storage
        self._progress = progress
        self._fresh = wait_until_fresh
        self._reach = wait_until_revision
        self._require = require_loaded
        self._clock = clock

    async def list(self, query: ListQuery) -> bytes:
        """Return the encoded `<Kind>List`. Raises RevisionExpired, FutureRevision, CacheBehind, InvalidContinueToken,
        StorageError."""
        try:
            return await self._encode_list(query, await self._list_page(query))
        except Compacted as compacted:
            raise RevisionExpired(compacted.compact_revision) from None

    async def _list_page(self, query: ListQuery) -> _ListPage[T]:
        selection = query.selection
        if query.match not in ("", "NotOlderThan", "Exact"):
            raise InvalidContinueToken(f'resourceVersionMatch "{query.match[:32]}": expected NotOlderThan or Exact')
        if query.match and not query.resource_version:
            raise InvalidContinueToken("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if query.continue_token:
            if query.resource_version not in ("", "0"):
                raise InvalidContinueToken("specifying resource version is not allowed when using continue")
            token = ContinueToken.decode(query.continue_token, selection)
            if token.revision > self._progress.revision and token.revision > await self._fresh(query.timeout):
                raise InvalidContinueToken(
                    "the continue token contains a future revision: start the list again without a continue token"
                )
            return self._page_at(token.revision, query, token.after)
        if query.match == "Exact":
            return self._page_at(await self._wait_for_exact_revision(query), query, "")
        wanted = _parse_revision(query.resource_version)
        if wanted is None:
            await self._fresh(query.timeout)
        else:
            await self._reach(wanted, query.timeout)
        return self._page_from_cache(self._progress.revision, query, "")

    async def _wait_for_exact_revision(self, query: ListQuery) -> int:
        """Return the requested revision of an Exact query, after the cache has reached it."""
        wanted = _parse_revision(query.resource_version)
        if not wanted:
            raise InvalidContinueToken('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        await self._reach(wanted, query.timeout)
        return wanted

    def _page_at(self, revision: int, query: ListQuery, after: str) -> _ListPage[T]:
        """Return the page of the state at a past revision."""
        if self._store.changed <= revision <= self._progress.revision:
            return self._page_from_cache(revision, query, after)
        limit = query.limit if 0 < query.limit < MAX_STORED else MAX_STORED
        return _ListPage(revision, self._page_from_storage(revision, query.selection, after, limit), None, limit)

    def _page_from_cache(self, revision: int, query: ListQuery, after: str) -> _ListPage[T]:
        self._require()
        selection = query.selection
        enough = query.limit + 1 if 0 < query.limit < sys.maxsize and selection.plain else None
        candidates = self._store.candidates(selection, after, enough)
        count = self._store.count(selection.prefix, after) if selection.plain else None
        return _ListPage(revision, _matching_entries(selection, candidates, TimeSlice(self._clock)), count, query.limit)

    async def _page_from_storage(
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
            async with aclosing(
                _matching_entries(selection, filter(None, map(self._store.entry, page.items)), turn)
            ) as entries:
                async for entry in entries:
                    yield entry
            more = page.more
            after = page.items[-1].key if page.items else after

    async def _encode_list(self, query: ListQuery, page: _ListPage[T]) -> bytes:
        items: list[bytes] = []
        last = ""
        async with aclosing(page.entries) as entries:
            async for entry in entries:
                if len(items) == page.limit > 0:
                    remaining = page.count - len(items) if page.count is not None else None
                    token = ContinueToken(page.revision, last).encode(query.selection)
                    return wire.list_response(items, page.revision, token, remaining)
                items.append(entry.encoded_for(query.selection))
                last = entry.key
        return wire.list_response(items, page.revision)


async def _matching_entries(
    selection: SelectionPredicate, candidates: Iterable[CacheEntry[T]], turn: TimeSlice
) -> AsyncGenerator[CacheEntry[T]]:
    """Yield the matching entries in order. Between time slices, other tasks run."""
    for number, entry in enumerate(candidates, 1):
        if selection.matches(entry):
            yield entry
        if number % BURST == 0:
            await turn.end()


def _parse_revision(text: str) -> int | None:
    """Parse a resourceVersion; None if it is empty. Raises InvalidContinueToken."""
    if not text:
        return None
    if (revision := parse_natural(text)) is None:
        raise InvalidContinueToken(f'invalid resource version "{text[:32]}"')
    return revision
