"""Sweeps away the commit markers that nobody moves any more: of servers that have gone, of chains that were given up.

    look at all markers <--INTERVAL--> look again: those that have not moved are deleted, where they were seen, oldest first

Guarantees: while a marker stands unmoved, none that was moved later is deleted: apiserver.cacher.markers rests on that. No
answer becomes false by a sweep (apiserver.storage.lane says why). Every server sweeps: one is enough, several do no harm.

Does not know who is idle from who has gone. So committers move the markers of their idle lanes; a lane whose marker was swept
away all the same pays with two transactions more for its next.
"""

from collections.abc import Mapping
from contextlib import suppress

from apiserver.storage.interface import Storage, StorageError, Write
from pinnace.api.resources import COMMITS_PREFIX
from pinnace.runtime.clock import Clock

INTERVAL = 600.0
"""Seconds; far longer than a transaction can be in doubt."""


class Sweeper:
    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled. When the store is away it waits for the next turn."""
        seen: Mapping[str, int] = {}
        while True:
            with suppress(StorageError):
                seen = await self._sweep(seen)
            await self._clock.sleep(INTERVAL)

    async def _sweep(self, seen: Mapping[str, int]) -> Mapping[str, int]:
        """Deletes those that are as they were `seen`; returns all that there were, with their mod_revisions."""
        found: dict[str, int] = {}
        last, more = "", True
        while more:
            page = await self._storage.page(COMMITS_PREFIX, after=last)
            found |= {marker.key: marker.mod_revision for marker in page.items}
            last, more = next(reversed(found), ""), page.more
        for key, revision in sorted(found.items(), key=lambda marker: marker[1]):
            if seen.get(key) == revision:
                await self._storage.transact([Write(key, None, expected=revision)])
        return found
