"""One transaction after another, with an exact outcome for each, even if its answer is lost; and the removal of old markers.

Each transaction also moves the *commit marker* of the lane, a key of its own, from the mod_revision that the last transaction
left (r) to a unique nonce:

    no chain --open: create a marker under a new key, alone--> at r
       ^                                                        |
       |<----------- refused: the marker is not at r -----------|  send the writes, and the marker at r := nonce
       |             (it was swept): NOT_DONE                   |
       |                                                        |--> Committed at r' --> at r'
       |                                                        |--> refused, or an error that means "not done" --> at r
       |                                                        '--> no answer, or out of space --> in doubt
       |                                                                                               |
       |                              write a tombstone: the marker at r := door, until it is known    |
       |                                                                                               |
       |<-- neither nonce nor door, or no answer until the deadline: OutcomeUnknown -------------------|
                                                       at r' <--  the marker is the nonce: Committed --|
                                                       at r' <--  it is the door: NOT_DONE ------------|
                                                       at r  <--  at r still, and full: OutOfSpace ----'

Guarantees: Committed means that the writes happened, at that revision. Refused, NOT_DONE and every StorageError but
OutcomeUnknown mean that they did not and never will.

A mod_revision never returns. Of all requests that compare the marker with r, at most one succeeds: the writes or the
tombstone. The value of the marker then tells which. The creation of a marker carries no other write, because a late copy of
it can succeed after the marker is gone. So a marker can be deleted at any time: that costs one refusal and a new chain.

After OutcomeUnknown the writes may still happen. Where the store has no space for a marker, a transaction of deletes goes
without one; if its answer is lost, its outcome is unknown.

The sweeper deletes markers that did not move for INTERVAL, oldest first: while a marker stands unmoved, no marker that moved
later is deleted (apiserver.cacher.history relies on that). Committers move the markers of idle lanes.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import count
from typing import Final, Literal, TypeAlias

from apiserver.storage.interface import (
    Committed,
    OutcomeUnknown,
    OutOfSpace,
    Refused,
    Storage,
    StorageError,
    Unavailable,
    Write,
    is_at_expected,
)
from apiserver.uids import new_uid
from pinnace.api.resources import COMMITS_PREFIX, commit_key
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import Clock

RESOLVE_LIMIT = 10.0
"""Seconds after which a lost answer stays unknown."""
MARKER_BYTES = 8
"""What the marker adds to the values of a transaction; it also adds one operation."""


class _NotDone(Enum):
    NOT_DONE = auto()


NOT_DONE: Final = _NotDone.NOT_DONE
"""The writes did not happen and never will, through no fault of theirs: they may go again."""

Answer: TypeAlias = Committed | Refused | Literal[_NotDone.NOT_DONE]


def marker_keys(rng: random.Random) -> Iterator[str]:
    """Keys for the chains of one server, that no other server has."""
    server = new_uid(rng)
    return (commit_key(server, chain) for chain in count(1))


class Lane:
    """`keys`: for new chains; lanes of one server share them."""

    def __init__(self, storage: Storage, keys: Iterator[str], clock: Clock, rng: random.Random) -> None:
        self._storage = storage
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._nonces = count(1)
        self._key = ""
        self._at = 0  # the marker's mod_revision; 0: there is no chain

    async def send(self, writes: Sequence[Write]) -> Answer:
        """One at a time. Raises StorageError. A cancelled call leaves the lane unusable."""
        try:
            return await self._send(writes)
        except OutOfSpace:
            if any(write.value is not None for write in writes):
                raise
            return await self._storage.transact(writes)  # deletes pass when puts do not, and a marker is a put

    async def _send(self, writes: Sequence[Write]) -> Answer:
        await self.open()
        marker = self._next_marker()
        try:
            answer = await self._storage.transact([*writes, marker])
        except (OutcomeUnknown, OutOfSpace) as error:
            return await self._resolve(marker, error)
        if isinstance(answer, Committed):
            self._at = answer.revision
        elif not is_at_expected(marker, answer.current[marker.key]):
            self._at = 0
            return NOT_DONE
        return answer

    async def open(self) -> None:
        """Begins a chain where there is none; the first `send` does it otherwise. Raises StorageError."""
        if self._at:
            return
        self._key = next(self._keys)
        try:
            answer = await self._storage.transact([self._next_marker()])
        except OutcomeUnknown as error:  # about the marker only
            raise Unavailable(str(error)) from None
        if isinstance(answer, Refused):
            raise StorageError(f"{self._key} is in use")
        self._at = answer.revision

    async def touch(self) -> None:
        """Moves the marker, so that nobody takes it for one of a server that has gone. Not while something is sent. Raises
        StorageError."""
        if not self._at:
            return
        marker, self._at = self._next_marker(), 0  # in doubt there is no chain: the next write begins one
        answer = await self._storage.transact([marker])
        if isinstance(answer, Committed):
            self._at = answer.revision

    def _next_marker(self) -> Write:
        return Write(self._key, next(self._nonces).to_bytes(MARKER_BYTES), expected=self._at)

    async def _resolve(self, marker: Write, error: OutcomeUnknown | OutOfSpace) -> Answer:
        """What became of the transaction with this marker, which ended with `error`. Raises that, or OutcomeUnknown."""
        door = self._next_marker()
        backoff = Backoff(rng=self._rng)
        deadline = self._clock.monotonic() + RESOLVE_LIMIT
        while self._clock.monotonic() < deadline:
            try:
                value, revision = await self._close(door)
            except StorageError:
                await self._clock.sleep(backoff.next())
                continue
            if revision != door.expected:
                self._at = revision if value in (marker.value, door.value) else 0
                match value:
                    case marker.value:
                        return Committed(revision)
                    case door.value:
                        return NOT_DONE
                raise OutcomeUnknown(str(error)) from None
            if isinstance(error, OutOfSpace):  # which is an answer: no copy is still on its way
                raise error
            await self._clock.sleep(backoff.next())
        self._at = 0
        raise OutcomeUnknown(str(error)) from None

    async def _close(self, door: Write) -> tuple[bytes | None, int]:
        """Tries to move the marker on; its value and mod_revision then (None and 0: it has gone). Where there is no space for
        that, it only looks: etcd says "out of space" also about what it has done (quotaApplierV3)."""
        try:
            answer = await self._storage.transact([door])
        except OutOfSpace:
            state = await self._storage.get(door.key)
        else:
            if isinstance(answer, Committed):
                return door.value, answer.revision
            state = answer.current[door.key]
        return (state.value, state.mod_revision) if state else (None, 0)


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
