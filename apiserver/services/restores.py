"""After a restore: ends the terms that the backup has, and only these, whichever servers notice it, and when.

A term of before is to end, as its leader knows what has not happened. One that was won since is not: who leads by it began in
the history that there is now. So the first server notes that the store was restored, in a key of the store, and the revision of
the note divides the two:

    a: the note in the history that was parted from, as it was last told
    b: the note as it is now --a begins with b--> write b + id, compared with b --> bound: the revision of that
           ^                   '--otherwise: somebody has noted it----------------> bound: the revision of b
           '--- Conflict: another was first

Each key of an election whose create_revision is not above the bound is deleted; then calls are taken.

Guarantees: when `end_terms` returns, no term goes on that the store had when it was restored (but see the server that was away
for two restores). A term that was won after the first server has noted the restore goes on, unless it was won through a server
that had not noticed yet: that one ends it (campaign.py).

Why a backup's own note does no harm, though its revision says nothing: revisions come again. A note has the ids of all restores
of its history, and only grows at its end. Everything up to the backup is also in the history that we part from, and we had been
told of it, else we would not have noticed. So the backup's note is a beginning of `a`. An id that is not in `a` was written
after the backup, by a server that parted from its history too; and what the backup has elected has a lower revision than that.

- Two servers at once: the note is compared with what was read. Who loses reads the other's, and takes that.
- A second restore, of the same backup or of one that has the first note: `a` has the ids of before, so it is noted anew.
- A server that was away for two restores finds ids that it does not know, and takes the revision of the last. If the second
  restore has not been noted yet, it leaves terms of between the two: the servers that were there then end those, and it has
  told their leaders nothing.
- A server that dies after its note: each of the others ends the terms by itself before it takes calls.
- Without space for the note every term ends: nobody can be elected then in any case.

What it does not promise: that a term of after the note is of somebody who has been told: see docs/design/restore.md.
"""

import logging
import random

from apiserver.cacher.cacher import Cacher
from apiserver.storage.committer import Committer, Conflict
from apiserver.storage.interface import Change, OutOfSpace, Storage, StorageError, Write
from apiserver.uids import new_uid
from pinnace.api.resources import ELECTIONS_PREFIX, RESTORES_KEY
from pinnace.runtime.clock import Clock

log = logging.getLogger(__name__)

RETRY = 0.1
"""Seconds between two attempts when etcd does not answer."""


class Restores:
    def __init__(self, storage: Storage, committer: Committer, cacher: Cacher, clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._committer = committer
        self._clock = clock
        self._rng = rng
        self._followed = b""  # the note, as the cache has told it
        self._before = b""  # the same, of the history that was parted from last
        cacher.subscribe(RESTORES_KEY, self._changed)

    def part(self) -> None:
        """The store has another history. To be called before the cache tells of it."""
        self._before = self._followed

    async def end_terms(self) -> None:
        """Ends the terms that the backup has. Tries until it is done."""
        while True:
            try:
                await self._end_until(await self._note())
                return
            except (Conflict, StorageError) as error:  # another server has noted it; has put a key, or deleted it
                log.warning("the terms of before cannot be ended yet: %s", error)
                await self._clock.sleep(RETRY)

    async def _note(self) -> int:
        """Notes the restore unless that is done: the last revision of terms that are to end. Raises Conflict, StorageError."""
        found = await self._storage.get(RESTORES_KEY)
        value, revision = (found.value, found.mod_revision) if found is not None else (b"", 0)
        if not self._before.startswith(value):
            return revision
        value += new_uid(self._rng).encode() + b"\n"
        try:
            return await self._committer.commit(Write(RESTORES_KEY, value, revision))
        except OutOfSpace:
            return await self._storage.current_revision()

    async def _end_until(self, bound: int) -> None:
        after, more = "", True
        while more:
            page = await self._storage.page(ELECTIONS_PREFIX, after=after)
            for record in page.items:
                if record.create_revision <= bound:
                    log.warning("%s: etcd was restored, token %d ends", record.key, record.create_revision)
                    await self._committer.commit(Write(record.key, None, expected=record.mod_revision))
            after, more = page.items[-1].key if page.items else "", page.more

    def _changed(self, change: Change) -> None:
        self._followed = change.value or b""
