"""Moving leadership to another candidate, without a moment in which the wrong one could take it.

    nominate --a candidate accepts--> depose, guarded by the nomination --> wait for the next leader --> end the nomination
        '---nobody does in time: the leader stays; NOT_FOUND

Guarantees: the leader is deposed only after the wanted candidate, which has beaten just now, has accepted through the API
server that holds its session; so a name that nobody has, or that hangs, changes nothing. The deposition compares the key's
mod_revision and the nomination's create_revision: it is of the leader that was seen, or does not happen. The nomination is
on an etcd lease: it outlives neither this call nor its server by more than NOMINATION_TTL.

Does not promise that the wanted one leads in the end: it may die having accepted. Then the others stand, a second later.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from apiserver.cacher.cacher import Cacher
from apiserver.errors import Rejected
from apiserver.services.contest import election_of
from apiserver.services.records import read
from apiserver.services.terms import TermLog
from apiserver.storage.committer import Committer, Conflict, GuardFailed
from apiserver.storage.interface import Guard, KeyValue, Storage, StorageError, Write
from pinnace.api.elections_pb2 import Election, Nomination, Term, TransferElectionResponse
from pinnace.api.resources import election_key, nomination_key
from pinnace.api.status import Code, Refusal
from pinnace.api.times import to_micro_time
from pinnace.runtime.clock import Clock

T = TypeVar("T")

NOMINATION_TTL = 2
"""Seconds; etcd's least."""
ACCEPTANCE = 0.5
"""Seconds in which a candidate must have accepted."""
SUCCESSION = 2.0
"""Seconds in which somebody must lead again: longer than the others wait for the nominee."""


class Transfer:
    """One transfer; `run` it once, with a cache that is fresh."""

    def __init__(
        self, name: str, to: str, storage: Storage, committer: Committer, cacher: Cacher, terms: TermLog, clock: Clock
    ) -> None:
        self._name = name
        self._to = to
        self._key = election_key(name)
        self._nomination_key = nomination_key(name)
        self._storage = storage
        self._committer = committer
        self._cacher = cacher
        self._terms = terms
        self._clock = clock
        self._changed = asyncio.Event()

    async def run(self) -> TransferElectionResponse:
        """Raises Rejected, StorageError; after OutcomeUnknown the leader may have been deposed."""
        record = self._cacher.raw(self._key)
        if record is None:
            raise Rejected(nobody_leads(self._name))
        before = election_of(record)
        if self._to and before.holder == self._to:
            return TransferElectionResponse(before=before, after=before)
        lease = await self._storage.grant_lease(NOMINATION_TTL)
        stop_listening = self._cacher.subscribe(self._nomination_key, lambda change: self._changed.set())
        stop_following = self._cacher.subscribe(self._key, lambda change: self._changed.set())
        try:
            return await self._transfer(before, lease)
        finally:
            stop_listening()
            stop_following()
            with suppress(StorageError):  # it runs out
                await self._storage.revoke_lease(lease)

    async def _transfer(self, before: Election, lease: int) -> TransferElectionResponse:
        nomination = Nomination(election=self._name, token=before.token, holder=self._to)
        write = Write(self._nomination_key, nomination.SerializeToString(), expected=0, lease=lease)
        try:
            nominated = await self._nominate(write)
        except Conflict:
            raise Rejected(_busy(self._name)) from None
        nominee = await self._until(lambda: self._accepted(nominated), ACCEPTANCE)
        if nominee is None:
            raise Rejected(_nobody_stands(self._name, self._to, before.holder))
        started = self._clock.monotonic()
        await self._depose(before, nominated, nominee.holder)
        after = await self._until(lambda: self._following(before.token), SUCCESSION)
        gap = self._clock.monotonic() - started
        return TransferElectionResponse(before=before, after=after, gap_micros=round(gap * 1e6))

    async def _nominate(self, write: Write) -> int:
        """The nomination's revision. Raises Conflict when there is one; one that cannot be read is in nobody's way."""
        try:
            return await self._committer.commit(write)
        except Conflict as conflict:
            found = conflict.current
            if found is None or read(Nomination, found.value) is not None:
                raise
        await self._committer.commit(Write(write.key, None, expected=found.mod_revision))
        return await self._committer.commit(write)

    async def _depose(self, before: Election, nominated: int, nominee: str) -> None:
        """Deletes the key of this very term, wherever its session has moved meanwhile."""
        record = self._cacher.raw(self._key)
        ended = to_micro_time(self._clock.time())
        while record is not None and record.create_revision == before.token:
            guard = Guard(self._nomination_key, nominated)
            try:
                await self._committer.commit(Write(self._key, None, expected=record.mod_revision, guards=(guard,)))
            except Conflict as conflict:
                record = conflict.current
            except GuardFailed:
                raise Rejected(_too_slow(self._name, before.holder)) from None
            else:
                term = Term(election=self._name, holder=before.holder, token=before.token, began=before.since, ended=ended)
                term.reason = f"transferred to {nominee}"
                self._terms.note(term)
                return
        raise Rejected(_changed_meanwhile(self._name, before.holder))

    def _accepted(self, nominated: int) -> Nomination | None:
        """The nomination that was made at this revision: the cache may still have one before it."""
        record = self._cacher.raw(self._nomination_key)
        if record is None or record.create_revision != nominated:
            return None
        nomination = read(Nomination, record.value)
        return nomination if nomination and nomination.session else None

    def _following(self, token: int) -> Election | None:
        record: KeyValue | None = self._cacher.raw(self._key)
        return election_of(record) if record is not None and record.create_revision > token else None

    async def _until(self, look: Callable[[], T | None], timeout: float) -> T | None:
        """What `look` finds, as soon as it finds something; None after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while (found := look()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                return found
        return None


def nobody_leads(election: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, "NotFound", f'election "{election}": nobody leads')


def _nobody_stands(election: str, wanted: str, leader: str) -> Refusal:
    who = f'no candidate "{wanted}" stands' if wanted else "nobody else stands"
    message = f'election "{election}": {who}, so {leader} goes on leading'
    return Refusal(Code.NOT_FOUND, "NoCandidate", message)


def _busy(election: str) -> Refusal:
    message = f'election "{election}": another transfer is under way'
    return Refusal(Code.ABORTED, "Conflict", message, retry_after=float(NOMINATION_TTL))


def _too_slow(election: str, leader: str) -> Refusal:
    message = f'election "{election}": the transfer took too long, so {leader} goes on leading'
    return Refusal(Code.ABORTED, "Conflict", message)


def _changed_meanwhile(election: str, leader: str) -> Refusal:
    return Refusal(Code.ABORTED, "Conflict", f'election "{election}": {leader} has ceased to lead meanwhile')
