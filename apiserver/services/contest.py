"""One election, as the candidates on this server see it: who leads, who waits, and whose turn it is.

Whose turn: those that waited longest go first, but none that has not beaten just now (a frozen one, elected, would be a second
without a leader). While a transfer is under way the one that accepted the nomination goes before all others, which wait for it
NOMINEE_FIRST seconds at most. All of this is courtesy between candidates: only the key decides who leads.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from apiserver.cacher.cacher import Cacher
from apiserver.cacher.errors import CacheError
from apiserver.services.conversation import Conversation, Sign
from apiserver.services.records import read
from apiserver.services.terms import RAN_OUT
from apiserver.storage.interface import Change, KeyValue
from pinnace.api.elections_pb2 import Election, Nomination, Term
from pinnace.api.resources import ELECTIONS_PREFIX, election_key, nomination_key
from pinnace.api.times import to_micro_time
from pinnace.runtime.clock import Clock

Member = Conversation[Any, Any]

NOMINEE_FIRST = 1.0
"""Seconds after the key is gone for which a nominee has the right of way."""
UNSEEN = 1.0
"""Seconds for which what was written from here counts although the cache does not show it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A leadership that this server knows to be a candidate's: the key's create_revision and mod_revision."""

    token: int
    mod_revision: int


class Verdict(Enum):
    OURS = auto()
    LOST = auto()
    """The key is gone, or another candidate's."""
    MOVED = auto()
    """The key was put again by another server: the candidate has gone on there."""


def judge(held: Held, record: KeyValue | None, cache_revision: int) -> Verdict:
    """What the cached key says about a leadership. A cache that has not seen the key's last write from here says nothing."""
    if cache_revision < held.mod_revision:
        return Verdict.OURS
    if record is None or record.create_revision != held.token:
        return Verdict.LOST
    return Verdict.OURS if record.mod_revision == held.mod_revision else Verdict.MOVED


class Contest:
    def __init__(self, name: str, cacher: Cacher, clock: Clock) -> None:
        self.name = name
        self.key = election_key(name)
        self.nomination_key = nomination_key(name)
        self._cacher = cacher
        self._clock = clock
        self._vacant_since = float("-inf")
        self._deleted = 0
        """The revision of the key's last deletion from here."""
        self._members: list[Member] = []
        self._line: list[Member] = []
        self._latest = term_of(record) if (record := self.record()) else None
        self._written = 0
        """The revision of the key's last put from here: until the cache has it, somebody leads of whom it knows nothing."""
        self._written_at = float("-inf")

    def record(self) -> KeyValue | None:
        """The key, as the cache has it, unless it has been deleted from here just now."""
        if self._cacher.revision < self._deleted and self._clock.monotonic() - self._vacant_since < UNSEEN:
            return None
        return self._cacher.raw(self.key)

    async def catch_up(self, revision: int, timeout: float) -> None:
        """Waits until the cache has seen `revision`, `timeout` seconds at most."""
        with suppress(CacheError):
            await self._cacher.wait_for(revision, timeout)

    def verdict(self, held: Held) -> Verdict:
        return judge(held, self.record(), self._cacher.revision)

    def join(self, member: Member) -> None:
        """Its news concern `member` from now on; it stands at the end of the line."""
        self._members.append(member)
        self._line.append(member)

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        self.step_out(member)

    def won(self, member: Member, held: Held) -> None:
        """It leads, by a put from here."""
        self._written, self._written_at = held.mod_revision, self._clock.monotonic()
        self.step_out(member)

    def vacated(self, revision: int) -> None:
        """The key was deleted from here, at this revision: the next one need not wait until the cache shows it."""
        self._deleted = revision
        self._vacant_since = self._clock.monotonic()
        self._tell_all()

    def step_out(self, member: Member) -> None:
        """It leads, or has gone: it is the next one's turn."""
        if member in self._line:
            self._line.remove(member)
            for following in self._line[:1]:
                following.post(Sign.NEWS)

    def turn_of(self, member: Member) -> bool:
        """Is it the first of those that wait and are well?"""
        return next((each for each in self._line if each.recent), None) is member

    def nomination(self) -> tuple[KeyValue, Nomination] | None:
        """The transfer that is under way. One whose record cannot be read is none."""
        record = self._cacher.raw(self.nomination_key)
        nomination = read(Nomination, record.value) if record else None
        return (record, nomination) if record and nomination else None

    def may_stand(self, member: Member, session: int) -> bool:
        """Nobody leads, as far as the cache knows: may this candidate stand now?"""
        if self._cacher.revision < self._written and self._clock.monotonic() - self._written_at < UNSEEN:
            return False
        nomination = self.nomination()
        if nomination is not None and (nominee := nomination[1].session):
            if nominee == session:
                return True
            if self._clock.monotonic() - self._vacant_since < NOMINEE_FIRST:
                return False
        return self.turn_of(member)

    def rival(self, scheduler_names: Sequence[str]) -> Election | None:
        """Another election whose leader binds the pods of one of these schedulers, as far as the cache knows. Two of them would
        place pods without knowing of each other. This finds a wrong configuration; it is no lock."""
        names = set(scheduler_names)
        elections = (election_of(record) for record in self._cacher.raw_items(ELECTIONS_PREFIX) if record.key != self.key)
        return next((each for each in elections if not names.isdisjoint(each.scheduler_names)), None) if names else None

    def announce(self, change: Change) -> None:
        """The key or the nomination has changed."""
        if change.key == self.key:
            self._follow(change)
        self._tell_all()

    def _tell_all(self) -> None:
        for member in self._members:
            member.post(Sign.NEWS)

    def _follow(self, change: Change) -> None:
        if change.value is not None:
            self._latest = term_of(KeyValue(change.key, change.value, change.create_revision, change.mod_revision, 1))
            return
        self._vacant_since = self._clock.monotonic()
        if self._latest is not None:
            self._latest.ended.CopyFrom(to_micro_time(self._clock.time()))
            self._latest.reason, self._latest.presumed = RAN_OUT, True

    def before(self, token: int) -> Term | None:
        """The latest earlier term that was seen to end from here; why it did is presumed. For the record."""
        latest = self._latest
        return latest if latest is not None and latest.token < token and latest.HasField("ended") else None

    @property
    def deserted(self) -> bool:
        return not self._members


def election_of(record: KeyValue) -> Election:
    """The election as it is returned: with its token, without the session and the hash of the secret.

    While the key is there nobody else can lead, whatever is in it: who holds an election that cannot be read is not known."""
    election = read(Election, record.value) or Election(name=record.key.rpartition("/")[2])
    election.token = record.create_revision
    election.ClearField("session")
    election.ClearField("secret_hash")
    return election


def term_of(record: KeyValue) -> Term:
    """The term that the key stands for, not ended."""
    election = election_of(record)
    return Term(election=election.name, holder=election.holder, token=election.token, began=election.since)
