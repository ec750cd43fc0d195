"""Compaction of etcd's history. The API servers agree on one of them that compacts.

    sleep an interval --> move the key --moved-----------> compact up to the revision of the previous turn
         ^                    |--moved by another server-> only read its position
         |                    '--no space to move it-----> compact, and log a warning
         '--------------------------------------------- store the position of the key, and etcd's revision

The design is that of Kubernetes (apiserver/pkg/storage/etcd3/compact.go): servers move a key under compare-and-swap, which
serves as a logical clock. Kubernetes compares the key's version, this compactor its mod_revision, which is never used twice.
The value of the key is the compacted revision, for information.

Guarantees: compacted versions were overwritten at least an interval ago. A server compacts up to the revision of its previous
turn, and sleeps for an interval in between. A pause of the server only makes that revision older. A server moves the key only
if it has not moved for an interval. So the key moves at most once per interval, and one server compacts while it lives. A
server compacts nothing at its first turn. The history covers one to two intervals, or three after the loss of the server that
compacts.

When etcd is out of space, it accepts no puts, so no server can move the key. To wait would keep etcd full (kubernetes#94029).
Then every server compacts. This is safe: each compacts up to a revision that is an interval old, and etcd ignores a compaction
at a lower revision than the last. etcd frees the space as part of it (`Storage.compact`), twice if two servers compact at once.

Watches and list pages at compacted revisions fail (Compacted; clients receive OUT_OF_RANGE and list again). The ring of the
watch cache is in memory and stays. Its watch has received these revisions long before. A server that was stopped or
disconnected for longer loads the state again (apiserver.cacher.reflector).

Compaction does not affect compares. It removes versions that were overwritten or deleted. The last version of an existing key
stays, with its create_revision and mod_revision, and no revision is used again. So fences (the create_revision of an election's
key), terms, leases and commit markers stay valid.
"""

import asyncio
import logging

from pinnace.api.resources import COMPACT_REV_KEY
from pinnace.apiserver.storage.interface import Committed, Compacted, OutOfSpace, Storage, StorageError, Write
from pinnace.runtime.clock import Clock
from pinnace.runtime.logs import CompactionFailed

log = logging.getLogger(__name__)

INTERVAL = 300.0
"""Seconds, as for kube-apiserver's --etcd-compaction-interval."""
OUT_OF_SPACE = (
    "etcd is out of space; its history up to revision %d was compacted. If it still refuses writes, delete objects or raise "
    "etcd's --quota-backend-bytes, then run `etcdctl defrag` and `etcdctl alarm disarm`"
)


class Compactor:
    """Compacts etcd's history. `interval`: in seconds; 0 disables compaction."""

    def __init__(self, storage: Storage, clock: Clock, interval: float = INTERVAL) -> None:
        self._storage = storage
        self._clock = clock
        self._interval = interval
        self._key_at = 0  # last seen mod_revision of the key; 0: the key did not exist
        self._revision = 0  # revision of etcd at the last turn; 0: there was none

    async def run(self) -> None:
        """Compact until cancelled. While etcd is unavailable, turns are skipped."""
        if not self._interval:
            await asyncio.get_running_loop().create_future()
        while True:
            await self._clock.sleep(self._interval)
            try:
                await self._compact_if_due()
            except StorageError as error:
                log.warning("the history is not compacted: %s", error, extra=CompactionFailed(str(error)).extra)

    async def _compact_if_due(self) -> None:
        old = self._revision
        try:
            moved = await self._move_key(old)
        except OutOfSpace:
            self._revision = await self._storage.current_revision()
            if old:
                await self._compact(old)
                log.warning(OUT_OF_SPACE, old)
        else:
            if moved and old:
                await self._compact(old)

    async def _move_key(self, old: int) -> bool:
        """Move the key and store its position. Return whether it had not moved since the last turn. Raises StorageError."""
        answer = await self._storage.transact([Write(COMPACT_REV_KEY, str(old).encode(), expected=self._key_at)])
        self._revision = answer.revision
        if isinstance(answer, Committed):
            self._key_at = answer.revision
            return True
        stored = answer.current[COMPACT_REV_KEY]
        self._key_at = stored.mod_revision if stored else 0
        return False

    async def _compact(self, revision: int) -> None:
        """Compact the history. Raises StorageError."""
        try:
            await self._storage.compact(revision)
        except Compacted:
            return  # another server has compacted up to this revision or a later one
        log.info("compacted the history up to revision %d", revision)
