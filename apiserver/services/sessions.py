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

A stream is a bidirectional stream with an inbox and an outbox:

    requests --> inbox --receive()--> [a task of its own] --send()--> outbox --> answers()
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

from apiserver.cacher.store import ShuttingDown
from apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError
from pinnace.api.elections_pb2 import Election
from pinnace.runtime.clock import Clock, SilenceTimer

log = logging.getLogger(__name__)

MARGIN = 0.1
"""Seconds by which peers stop before the lease expires, because clocks differ in speed."""
LATE = 0.3
"""Seconds of delay by this server after which a peer that leaves may have moved to another server."""


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    interval: float
    """Time between two beats of a peer."""
    silence: float
    """Time without requests after which a peer is considered dead."""
    ttl: int
    """TTL of the etcd lease. etcd grants at least 2 by default."""

    @property
    def recent(self) -> float:
        """A peer that sent something within this many seconds is considered alive: one beat may be late, two may not."""
        return self.interval * 2.5

    @property
    def validity(self) -> float:
        """Seconds for which a peer may rely on an answered beat, from when it sent the beat."""
        return self.ttl - MARGIN


class LeaseSession:
    """An etcd lease that lives while its peer sends beats. `id`: the id of the lease."""

    def __init__(self, storage: Storage, clock: Clock, lease: int) -> None:
        """Used by `open` and `resume`, after the lease was granted or renewed."""
        self.id = lease
        self._storage = storage
        self._clock = clock
        self._latest = 0
        self._beaten = asyncio.Event()
        self._owing_since: float | None = None

    @classmethod
    async def open(cls, storage: Storage, timing: Timing, clock: Clock) -> "LeaseSession":
        """Raises StorageError."""
        return cls(storage, clock, await storage.grant_lease(timing.ttl))

    @classmethod
    async def resume(cls, storage: Storage, clock: Clock, lease: int) -> "LeaseSession":
        """Continues with a lease that another server granted. Raises LeaseNotFound and other StorageErrors."""
        await storage.renew_lease(lease)
        return cls(storage, clock, lease)

    def beat(self, sequence: int) -> None:
        """Notes a beat of the peer. `keep` answers it after a renewal."""
        self._latest = sequence
        if self._owing_since is None:
            self._owing_since = self._clock.monotonic()
        self._beaten.set()

    @property
    def overdue(self) -> bool:
        """Whether beats have waited for etcd for so long that the peer may have left for another server."""
        return self._owing_since is not None and self._clock.monotonic() - self._owing_since > LATE

    async def keep(self, answered: Callable[[int], None], expired: Callable[[], None]) -> NoReturn:
        """Renews the lease while beats arrive, until cancelled. Calls `answered` with the last beat before each renewal, and
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
"""Received requests that wait. Above, the server stops reading, and gRPC's flow control stops the peer."""
MAX_OUTBOX = 1000
"""Responses that wait for the peer to read them. A peer with more is considered dead."""
MAX_HOLDER = 253
"""Characters of a holder's name, which is stored in etcd and sent to other peers."""


class StreamEvent(Enum):
    """An event that `receive` returns instead of a request. After GONE, responses no longer reach the peer."""

    GONE = auto()
    """The stream has ended or broken. A killed peer and a peer that closes the stream look the same."""
    SILENT = auto()
    """The peer has sent nothing for too long, although the server was reading."""
    EXPIRED = auto()
    """The lease of the session is gone."""
    DRAINED = auto()
    """The server is stopping."""
    RESTORED = auto()
    """The store was restored from a backup since the stream was opened."""
    CHANGED = auto()
    """The state that this stream depends on has changed."""


class SessionStream(Generic[Q, A]):
    def __init__(self, requests: AsyncIterator[Q], timing: Timing, clock: Clock) -> None:
        now = clock.monotonic()
        self._requests = requests
        self._clock = clock
        self._step = timing.interval / 2
        self._recent = timing.recent
        self._silence = SilenceTimer(timing.silence, self._step, now)
        self._inbox: deque[Q | StreamEvent] = deque()
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
        """Reads requests into the inbox until the stream ends."""
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
            self.post(StreamEvent.GONE)

    async def receive(self) -> Q | StreamEvent:
        """The next request or event."""
        self._look(0.0)
        while not self._inbox:
            if self._silence.exceeded(self._clock.monotonic()):
                return StreamEvent.SILENT
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._step):
                    await self._arrived.wait()
            self._look(self._step)
        self._room.set()
        return self._inbox.popleft()

    @property
    def pending(self) -> bool:
        """Whether a request or event is waiting."""
        return bool(self._inbox)

    @property
    def gone(self) -> bool:
        """Whether the peer has left, even if requests of it still wait."""
        return self._gone

    @property
    def recent(self) -> bool:
        """Whether the peer is alive: it has sent something recently, and has not left."""
        return not self.gone and self._silence.lasts(self._clock.monotonic()) < self._recent

    @property
    def was_late(self) -> bool:
        """Whether the server was stalled within the last second, so that the peer may have left for another server."""
        return self._clock.monotonic() - self._late < 1.0

    def post(self, sign: StreamEvent) -> None:
        self._gone = self._gone or sign is StreamEvent.GONE
        if not (sign is StreamEvent.CHANGED and StreamEvent.CHANGED in self._inbox):
            self._inbox.append(sign)
            self._arrived.set()

    def send(self, answer: A) -> None:
        """Queues a response without waiting. A peer that does not read its responses is considered gone."""
        if len(self._outbox) < MAX_OUTBOX:
            self._outbox.append(answer)
            self._said.set()
        else:
            self.post(StreamEvent.GONE)

    def end(self, error: Exception | None = None) -> None:
        """Ends the stream after the queued responses; with `error`, if given."""
        self._ended = True
        self._error = error
        self._said.set()

    async def answers(self) -> AsyncGenerator[A, None]:
        """The queued responses until `end`, for the handler of the call."""
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
        """Notes whether the server was stalled: it runs later than `expected` seconds after the last time."""
        now = self._clock.monotonic()
        if now - self._looked > expected + LATE:
            self._late = now
        self._looked = now


class SessionStreams:
    """The open streams of a service."""

    def __init__(self) -> None:
        self._held: dict[asyncio.Task[None], SessionStream[Any, Any]] = {}
        self._draining = False

    async def hold(self, stream: SessionStream[Q, A], talk: Callable[[], Awaitable[None]]) -> AsyncGenerator[A, None]:
        """Runs `talk` in its own task and yields the responses of the call. An error of `talk` ends the call. If the call ends
        first, `talk` receives GONE and is not cancelled, so that it can clean up."""
        if self._draining:
            raise ShuttingDown
        task = asyncio.create_task(_hold(stream, talk))
        self._held[task] = stream
        task.add_done_callback(lambda done: self._held.pop(done, None))
        try:
            async for answer in stream.answers():
                yield answer
        finally:
            stream.post(StreamEvent.GONE)

    def drain(self) -> None:
        """Sends DRAINED to all streams and refuses new ones."""
        self._draining = True
        for stream in self._held.values():
            stream.post(StreamEvent.DRAINED)

    def restored(self) -> None:
        """Sends RESTORED to all streams."""
        for stream in self._held.values():
            stream.post(StreamEvent.RESTORED)


async def _hold(stream: SessionStream[Q, A], talk: Callable[[], Awaitable[None]]) -> None:
    listening = asyncio.create_task(stream.listen())
    try:
        await talk()
    except Exception as error:
        stream.end(error)
    else:
        stream.end()
    finally:
        listening.cancel()


M = TypeVar("M", bound=Message)


def read(message: type[M], value: bytes) -> M | None:
    """The decoded record; None if it cannot be decoded."""
    try:
        return message.FromString(value)
    except DecodeError:
        return None


def election_of(record: KeyValue) -> Election:
    """The election for clients: with its token, without the session and the hash of the secret. While the key exists, no other
    candidate can lead, even if the key cannot be decoded; then the holder is unknown."""
    election = read(Election, record.value) or Election(name=record.key.rpartition("/")[2])
    election.token = record.create_revision
    election.ClearField("session")
    election.ClearField("secret_hash")
    return election
