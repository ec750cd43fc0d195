"""Compacts the store's history, so that it does not grow for ever: the API servers agree on one of them to do it.

    sleep an interval --> move the key --moved-----------> compact up to what was current at the turn before
         ^                    |--moved by somebody else--> nothing: see where it is
         |                    '--no space to move it-----> compact all the same, and say what is to be done
         '--------------------------------------------- remember where the key is, and the store's revision

The design is Kubernetes' (apiserver/pkg/storage/etcd3/compact.go): a key that is moved under compare-and-swap tells the time,
in turns. There the key's version counts them; here it is the mod_revision, which is what our writes compare, and which never
comes back. Its value is for people: the revision before which there is no history any more.

Guarantees: what is compacted had been overwritten for an interval, or longer. A server goes by the revision that it saw at its
turn before, and sleeps in between; however long it was stopped, and wherever, what it remembers has only become older. Whoever
moves the key saw it there an interval ago: so it moves once in an interval at most, and one server compacts, the same one while
it lives. One that has just started remembers nothing, and compacts nothing at its first turn. The history of one to two
intervals is there; of three, when the server that compacts is lost.

A store that is out of space takes no puts, so nobody can move the key; to wait for that would keep it full (kubernetes#94029).
Then every server compacts. That is harmless: what each takes is an interval old by its own measure, the highest revision
counts, and about a lower one the store says that it has happened already. The store gives the space back as part of it
(`Storage.compact`), and does so twice when two ask at the same moment.

Whom it concerns: watches and pages of lists that are further behind are refused (Compacted; for clients OUT_OF_RANGE, upon
which they list again). The watch cache's ring is memory, and stays. Its watch, while it runs, has been told all of it long
before; a server that was stopped or cut off for longer than that loads again (apiserver.cacher.reflector).

Whom it does not concern: whoever compares. What goes are versions that were overwritten or deleted. Of a key that exists the
last one stays, with its create_revision and mod_revision, and no revision is ever given out again. So a fence (the
create_revision of an election's key) holds or fails as it did, and terms, leases and commit markers are keys like others.
"""

import asyncio
import logging

from apiserver.storage.interface import Committed, Compacted, OutOfSpace, Storage, StorageError, Write
from pinnace.api.resources import COMPACT_REV_KEY
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import CompactionFailed

log = logging.getLogger(__name__)

INTERVAL = 300.0
"""Seconds; kube-apiserver's --etcd-compaction-interval."""
OUT_OF_SPACE = (
    "the store is out of space; its history up to revision %d is compacted. If writes are refused even so, delete what is not "
    "needed, or raise etcd's --quota-backend-bytes; then `etcdctl defrag`, and `etcdctl alarm disarm`"
)


class Compactor:
    """`interval` in seconds; 0: nothing is compacted."""

    def __init__(self, storage: Storage, clock: Clock, interval: float = INTERVAL) -> None:
        self._storage = storage
        self._clock = clock
        self._interval = interval
        self._key_at = 0  # the key's mod_revision, when last seen; 0: there was none
        self._revision = 0  # the store's, at the last turn; 0: there was none

    async def run(self) -> None:
        """Until cancelled. When the store is away it waits for the next turn."""
        if not self._interval:
            await asyncio.get_running_loop().create_future()
        while True:
            await self._clock.sleep(self._interval)
            try:
                await self._take_turn()
            except StorageError as error:
                log.warning("the history is not compacted: %s", error, extra=CompactionFailed(str(error)).extra)

    async def _take_turn(self) -> None:
        old = self._revision
        try:
            moved = await self._move(old)
        except OutOfSpace:
            self._revision = await self._storage.current_revision()
            if old:
                await self._compact(old)
                log.warning(OUT_OF_SPACE, old)
        else:
            if moved and old:
                await self._compact(old)

    async def _move(self, old: int) -> bool:
        """Was the key where it was seen last? Remembers where it is now. Raises StorageError."""
        answer = await self._storage.transact([Write(COMPACT_REV_KEY, str(old).encode(), expected=self._key_at)])
        self._revision = answer.revision
        if isinstance(answer, Committed):
            self._key_at = answer.revision
            return True
        found = answer.current[COMPACT_REV_KEY]
        self._key_at = found.mod_revision if found else 0
        return False

    async def _compact(self, revision: int) -> None:
        """Raises StorageError."""
        try:
            await self._storage.compact(revision)
        except Compacted:
            return  # somebody has, up to there or further
        log.info("compacted the history up to revision %d", revision)
