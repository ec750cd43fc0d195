"""Sessions: an etcd lease that lives for as long as its peer sends beats, and the stream on which the peer sends them.

    peer --beat(sequence)--> Session --keep(): renew--> etcd
    peer <-----answered(sequence)-----'  after etcd has confirmed it

Each renewal is sent because a beat has arrived since the previous renewal was sent: the lease of a silent peer expires. One
renewal is under way at a time; beats that arrive meanwhile share the next. A slow etcd does not delay the stream.

An answered beat proves that etcd has carried out a renewal that was sent after the beat arrived: the lease lives until `ttl`
after the peer sent the beat, at least. A peer that stops `Timing.validity` (which is shorter) after it sent the beat stops
before the lease can expire. It does not prove that the lease still exists: etcd may confirm the renewal of a lease that it is
revoking (etcd#20615), and a replaced leader of etcd may go on confirming (etcd#15247). Then the watch reports that the keys are
gone, and the fence refuses binds.

A conversation is a bidirectional stream with an inbox and an outbox:

    requests --> inbox --hear()--> [a task of its own] --say()--> outbox --> answers()
                   ^
            post(): other news;  silence, the end of the stream, the end of the server: a Sign

The reader runs in a task of its own: gRPC cancels the call when the peer dies, and the cleanup must not be cancelled.

Records in etcd (elections, nominations, terms, Leases of nodes) may be unreadable, written by etcdctl or a newer version. An
unreadable record ends no session: `read` returns None, and each caller decides.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, NoReturn, TypeVar

from google.protobuf.message import DecodeError, Message

from apiserver.cacher.errors import ShuttingDown
from apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError
from pinnace.api.elections_pb2 import Election
from pinnace.runtime.clock import Clock, SilenceTimer

log = logging.getLogger(__name__)

MARGIN = 0.1
"""Seconds by which peers stop early: clocks do not tick alike."""
LATE = 0.3
"""Seconds for which we must have kept a peer waiting to think that, if it leaves, it had a reason."""


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    interval: float
    """Peers beat this often."""
    silence: float
    """A peer that says nothing for this long is given up."""
    ttl: int
    """Of the etcd lease. etcd does not grant less than 2 by default."""

    @property
    def recent(self) -> float:
        """A peer that has said something within this time is taken to be well: one beat may be late, not two."""
        return self.interval * 2.5

    @property
    def validity(self) -> float:
        """How long a peer may rely on a beat that was answered, from when it was sent."""
        return self.ttl - MARGIN


class Session:
    """One lease. `id` is etcd's."""

    def __init__(self, storage: Storage, clock: Clock, lease: int) -> None:
        """For `open` and `resume`; the lease was granted or renewed just now."""
        self.id = lease
        self._storage = storage
        self._clock = clock
        self._latest = 0
        self._beaten = asyncio.Event()
        self._owing_since: float | None = None

    @classmethod
    async def open(cls, storage: Storage, timing: Timing, clock: Clock) -> "Session":
        """Raises StorageError."""
        return cls(storage, clock, await storage.grant_lease(timing.ttl))

    @classmethod
    async def resume(cls, storage: Storage, clock: Clock, lease: int) -> "Session":
        """Goes on with a lease that another server granted. Raises LeaseNotFound and other StorageErrors."""
        await storage.renew_lease(lease)
        return cls(storage, clock, lease)

    def beat(self, sequence: int) -> None:
        """The peer has beaten. The beat is answered by `keep`, or never."""
        self._latest = sequence
        if self._owing_since is None:
            self._owing_since = self._clock.monotonic()
        self._beaten.set()

    @property
    def overdue(self) -> bool:
        """Has the store left beats without an answer for so long that the peer may rightly look for another server?"""
        return self._owing_since is not None and self._clock.monotonic() - self._owing_since > LATE

    async def keep(self, answered: Callable[[int], None], expired: Callable[[], None]) -> NoReturn:
        """Renews while there are beats, until cancelled. Calls `answered` with the last beat that a renewal was for, and
        `expired` when the lease is gone."""
        while True:
            await self._beaten.wait()
            self._beaten.clear()
            sequence, asked = self._latest, self._clock.monotonic()
            try:
                await self._storage.renew_lease(self.id)
            except LeaseNotFound:
                expired()
            except StorageError as error:  # no answer: the peer must not rely on this beat
                log.warning("cannot renew the lease of a session: %s", error)
            else:
                self._owing_since = asked if self._latest > sequence else None
                answered(sequence)


Q = TypeVar("Q")
A = TypeVar("A")

MAX_INBOX = 64
"""Requests that wait to be heard; beyond, the peer is not read, and gRPC's flow control stops it."""
MAX_OUTBOX = 1000
"""Answers that wait for the peer to read them; one that reads so little is as good as dead."""
MAX_HOLDER = 253
"""Characters in which a peer says who it is: it is written to etcd, and told to the others."""


class Sign(Enum):
    """What may come instead of a request. After GONE nothing that is said arrives."""

    GONE = auto()
    """The stream has ended or broken; a kill -9 of the peer and a polite end look alike."""
    SILENT = auto()
    """The peer has said nothing for too long, although we listened."""
    EXPIRED = auto()
    """The store has ended the session."""
    DRAINED = auto()
    """The server is stopping."""
    RESTORED = auto()
    """The store has another history than the one in which this conversation began."""
    NEWS = auto()
    """Something that concerns this conversation has changed: look."""


class Conversation(Generic[Q, A]):
    def __init__(self, requests: AsyncIterator[Q], timing: Timing, clock: Clock) -> None:
        now = clock.monotonic()
        self._requests = requests
        self._clock = clock
        self._step = timing.interval / 2
        self._recent = timing.recent
        self._silence = SilenceTimer(timing.silence, self._step, now)
        self._inbox: deque[Q | Sign] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._outbox: deque[A] = deque()
        self._said = asyncio.Event()
        self._gone = False
        self._ended = False
        self._error: Exception | None = None
        self._looked = now
        self._late = float("-inf")

    async def listen(self) -> None:
        """Moves requests to the inbox, until the stream ends."""
        try:
            async for request in self._requests:
                self._silence.heard(self._clock.monotonic())
                self._inbox.append(request)
                self._arrived.set()
                while len(self._inbox) >= MAX_INBOX:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:  # gRPC has several for a stream that breaks
            log.debug("the stream broke: %r", error)
        finally:
            self.post(Sign.GONE)

    async def hear(self) -> Q | Sign:
        """The next request or sign."""
        self._look(0.0)
        while not self._inbox:
            if self._silence.exceeded(self._clock.monotonic()):
                return Sign.SILENT
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._step):
                    await self._arrived.wait()
            self._look(self._step)
        self._room.set()
        return self._inbox.popleft()

    @property
    def pending(self) -> bool:
        """Is there something to hear already?"""
        return bool(self._inbox)

    @property
    def gone(self) -> bool:
        """Is the peer known to have left, whatever is still to be heard from it?"""
        return self._gone

    @property
    def recent(self) -> bool:
        """Is the peer well, as far as one can tell: has it said something just now? One that has left is not, even while
        nobody here has had the time to hear that."""
        return not self.gone and self._silence.lasts(self._clock.monotonic()) < self._recent

    @property
    def was_late(self) -> bool:
        """Were we stalled just now, so that the peer may have left for another server?"""
        return self._clock.monotonic() - self._late < 1.0

    def post(self, sign: Sign) -> None:
        self._gone = self._gone or sign is Sign.GONE
        if not (sign is Sign.NEWS and Sign.NEWS in self._inbox):
            self._inbox.append(sign)
            self._arrived.set()

    def say(self, answer: A) -> None:
        """Never waits. A peer that does not read its answers is taken to be gone."""
        if len(self._outbox) < MAX_OUTBOX:
            self._outbox.append(answer)
            self._said.set()
        else:
            self.post(Sign.GONE)

    def end(self, error: Exception | None = None) -> None:
        """Ends the stream, after what was said; with `error` as its outcome."""
        self._ended = True
        self._error = error
        self._said.set()

    async def answers(self) -> AsyncGenerator[A, None]:
        """What was said, until `end`; for the handler of the call."""
        while True:
            while self._outbox:
                yield self._outbox.popleft()
            if self._ended:
                break
            self._said.clear()
            await self._said.wait()
        if self._error is not None:
            raise self._error

    def _look(self, expected: float) -> None:
        """Notes how much later than expected we look."""
        now = self._clock.monotonic()
        if now - self._looked > expected + LATE:
            self._late = now
        self._looked = now


class Conversations:
    """Those that a service holds now."""

    def __init__(self) -> None:
        self._held: dict[asyncio.Task[None], Conversation[Any, Any]] = {}
        self._draining = False

    async def hold(self, conversation: Conversation[Q, A], talk: Callable[[], Awaitable[None]]) -> AsyncGenerator[A, None]:
        """Runs `talk` beside the call, and gives the answers for the call to send. What `talk` raises is the call's outcome;
        when the call ends first, `talk` hears GONE, and has all the time that it needs to clean up."""
        if self._draining:
            raise ShuttingDown
        task = asyncio.create_task(_hold(conversation, talk))
        self._held[task] = conversation
        task.add_done_callback(lambda done: self._held.pop(done, None))
        try:
            async for answer in conversation.answers():
                yield answer
        finally:
            conversation.post(Sign.GONE)

    def drain(self) -> None:
        """Tells all that the server is stopping, and takes no new ones."""
        self._draining = True
        for conversation in self._held.values():
            conversation.post(Sign.DRAINED)

    def restored(self) -> None:
        """Tells all that the store has another history."""
        for conversation in self._held.values():
            conversation.post(Sign.RESTORED)


async def _hold(conversation: Conversation[Q, A], talk: Callable[[], Awaitable[None]]) -> None:
    listening = asyncio.create_task(conversation.listen())
    try:
        await talk()
    except Exception as error:
        conversation.end(error)
    else:
        conversation.end()
    finally:
        listening.cancel()


M = TypeVar("M", bound=Message)


def read(message: type[M], value: bytes) -> M | None:
    """The record; None when it cannot be read."""
    try:
        return message.FromString(value)
    except DecodeError:
        return None


def election_of(record: KeyValue) -> Election:
    """The election as it is returned: with its token, without the session and the hash of the secret.

    While the key is there nobody else can lead, whatever is in it: who holds an election that cannot be read is not known."""
    election = read(Election, record.value) or Election(name=record.key.rpartition("/")[2])
    election.token = record.create_revision
    election.ClearField("session")
    election.ClearField("secret_hash")
    return election
