"""A client of the Keys service: the keys of the store, read-only and without secrets."""

from collections.abc import AsyncGenerator, Sequence

from pinnace.api.keys_pb2 import KeyVersion, ListKeysRequest, ListKeysResponse, WatchKeysRequest, WatchKeysResponse
from pinnace.client.channel import Caller

LIST_TIMEOUT = 10.0
"""Seconds for one page of keys."""


class KeysClient:
    def __init__(self, connection: Caller) -> None:
        self._connection = connection

    async def list(self, request: ListKeysRequest) -> ListKeysResponse:
        """Return one page. Raises ApiError."""
        method = "/pinnace.v1.Keys/List"
        found: ListKeysResponse = await self._connection.call(
            method, request, ListKeysResponse, timeout=LIST_TIMEOUT, retry=True
        )
        return found

    async def pages(
        self, prefix: str, revision: int = 0, *, keys_only: bool = False, leases: bool = False
    ) -> AsyncGenerator[ListKeysResponse, None]:
        """Yield all keys with a prefix at one revision (0: the current one), in order. Raises ApiError."""
        after, more = "", True
        while more:
            page = await self.list(
                ListKeysRequest(prefix=prefix, after=after, revision=revision, keys_only=keys_only, leases=leases)
            )
            yield page
            revision, more = page.revision, page.more and bool(page.items)
            after = page.items[-1].key if page.items else ""

    async def get(self, key: str, revision: int = 0, *, keys_only: bool = False, leases: bool = False) -> KeyVersion | None:
        """Return a key at a revision (0: the current one), or None if it does not exist. Raises ApiError."""
        request = ListKeysRequest(prefix=key, limit=1, revision=revision, keys_only=keys_only, leases=leases)
        page = await self.list(request)  # the key sorts before all longer keys that begin with it
        return next((item for item in page.items if item.key == key), None)

    async def watch(
        self, prefixes: Sequence[str], start_revision: int, silence: float, *, keys_only: bool = False
    ) -> AsyncGenerator[WatchKeysResponse, None]:
        """Yield the changes from a revision on (0: from the next one), until the server ends the stream. Raises ApiError:
        Expired if the start was compacted, Unavailable after `silence` seconds without a response."""
        request = WatchKeysRequest(prefixes=prefixes, start_revision=start_revision, keys_only=keys_only)
        stream = await self._connection.stream("/pinnace.v1.Keys/Watch", request, WatchKeysResponse)
        try:
            while (response := await stream.read(silence)) is not None:
                yield response
        finally:
            stream.cancel()
