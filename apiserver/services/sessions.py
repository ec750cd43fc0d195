"""Sessions: an etcd lease that lives while its peer sends beats, and the stream for these beats.

    peer --heartbeat(sequence)--> LeaseSession --keep_alive(): renew--> etcd
    peer <-----acknowledge(sequence)--------'  after etcd has confirmed it

Each renewal is sent because a beat has arrived since the previous renewal was sent: the lease of a silent peer expires. At most
one renewal is in progress; beats that arrive during it share the next. A slow etcd does not delay the stream.

An answered beat proves that etcd has executed a renewal that was sent after the beat arrived: the lease lives until at least
`ttl` after the peer sent the beat. A peer that stops `Timing.validity` (which is shorter) after it sent the beat stops before
the lease can expire. It does not prove that the lease still exists: etcd may confirm the renewal of a lease that it is revoking
(etcd#20615), and a replaced leader of etcd may still confirm renewals (etcd#15247). In these cases, the watch reports that the
keys are deleted, and the fence refuses binds.

A stream is a bidirectional stream with an inbox and an outbox:

    requests --> inbox --receive()--> [a task of its own] --send()--> outbox --> responses()
                   ^
            post_event(): other events;  silence, end of the stream, end of the server: a StreamEvent

The reader runs in its own task: gRPC cancels the call when the peer dies, and the cleanup must not be cancelled.

Records in etcd (elections, nominations, terms, Leases of nodes) may be unreadable, because etcdctl or a newer version wrote
them. An unreadable record ends no session: `decode_record` returns None, and each caller decides.
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

from pinnace.api.elections_pb2 import Election
from pinnace.apiserver.cacher.store import ShuttingDown
from pinnace.apiserver.storage.interface import KeyValue, LeaseNotFound, Storage, StorageError
from pinnace.runtime.clock import Clock, SilenceTimer

log = logging.getLogger(__name__)

MARGIN = 0.1
"""Seconds by which peers stop before the lease expires, because clocks differ in speed."""
STALL_THRESHOLD = 0.3
"""Delay in seconds by this server after which a peer that leaves may have moved to another server."""
Q = TypeVar("Q")
A = TypeVar("A")
MAX_INBOX = 64
"""Maximum number of received requests in the inbox. Above it, the server stops reading, and flow control stops the peer."""
MAX_OUTBOX = 1000
"""Maximum number of responses that wait for the peer. A peer with more is considered dead."""
MAX_HOLDER = 253
"""Maximum length of a holder's name in characters. It is stored in etcd and sent to other peers."""
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a session in seconds."""

    interval: float
    """Time between two beats of a peer."""
    silence: float
    """Time without requests after which a peer is considered dead."""
    ttl: int
    """TTL of the etcd lease. etcd grants at least 2 by default."""

    @property
    def recent_seconds(self) -> float:
        """A peer that sent something within this many seconds is considered alive: one beat may be missing, two may not."""
        return self.interval * 2.5

    @property
    def validity(self) -> float:
        """Seconds for which a peer may rely on an answered beat, from the time at which it sent the beat."""
        return self.ttl - MARGIN


class LeaseSession:
    """An etcd lease that lives while its peer sends beats. `id`: the id of the lease."""

    def __init__(self, storage: Storage, clock: Clock, lease: int) -> None:
        """Call `open` or `resume` instead, which grant or renew the lease first."""
        self.id = lease
        self._storage = storage
        self._clock = clock
        self._latest = 0
        self._heartbeat_received = asyncio.Event()
        self._unacknowledged_since: float | None = None

    @classmethod
    async def open(cls, storage: Storage, timing: Timing, clock: Clock) -> "LeaseSession":
        """Grant a lease. Raises StorageError."""
        return cls(storage, clock, await storage.grant_lease(timing.ttl))

    @classmethod
    async def resume(cls, storage: Storage, clock: Clock, lease: int) -> "LeaseSession":
        """Continue with a lease that another server granted. Raises LeaseNotFound and other StorageErrors."""
        await storage.renew_lease(lease)
        return cls(storage, clock, lease)

    def record_heartbeat(self, sequence: int) -> None:
        """Record a beat of the peer. `keep_alive` answers it after a renewal."""
        self._latest = sequence
        if self._unacknowledged_since is None:
            self._unacknowledged_since = self._clock.monotonic()
        self._heartbeat_received.set()

    @property
    def is_overdue(self) -> bool:
        """Whether beats have waited for etcd for so long that the peer may have moved to another server."""
        return self._unacknowledged_since is not None and self._clock.monotonic() - self._unacknowledged_since > STALL_THRESHOLD

    async def keep_alive(self, acknowledge: Callable[[int], None], on_expired: Callable[[], None]) -> NoReturn:
        """Renew the lease while beats arrive, until cancelled. Calls `acknowledge` with the last beat before each renewal, and
        `on_expired` when the lease is gone."""
        while True:
            await self._heartbeat_received.wait()
            self._heartbeat_received.clear()
            sequence, asked = self._latest, self._clock.monotonic()
            try:
                await self._storage.renew_lease(self.id)
            except LeaseNotFound:
                on_expired()
            except StorageError as error:  # the peer gets no response, because it must not rely on this beat
                log.warning("cannot renew the lease of a session: %s", error)
            else:
                self._unacknowledged_since = asked if self._latest > sequence else None
                acknowledge(sequence)


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
        self._recent = timing.recent_seconds
        self._silence = SilenceTimer(timing.silence, self._step, now)
        self._inbox: deque[Q | StreamEvent] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._outbox: deque[A] = deque()
        self._output_ready = asyncio.Event()
        self._gone = False
        self._ended = False
        self._error: Exception | None = None
        self._checked_at = now
        self._stalled_at = float("-inf")
        self.last_message = now
        """The monotonic time of the last message of the peer."""

    async def receive_requests(self) -> None:
        """Read requests into the inbox until the stream ends."""
        try:
            async for request in self._requests:
                self.last_message = self._clock.monotonic()
                self._silence.record_message(self.last_message)
                self._inbox.append(request)
                self._arrived.set()
                while len(self._inbox) >= MAX_INBOX:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:  # gRPC has several exceptions for a broken stream
            log.debug("the stream is broken: %r", error)
        finally:
            self.post_event(StreamEvent.GONE)

    async def receive(self) -> Q | StreamEvent:
        """Return the next request or event."""
        self._detect_stall(0.0)
        while not self._inbox:
            if self._silence.has_exceeded_limit(self._clock.monotonic()):
                return StreamEvent.SILENT
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._step):
                    await self._arrived.wait()
            self._detect_stall(self._step)
        self._room.set()
        return self._inbox.popleft()

    @property
    def pending(self) -> bool:
        """Whether a request or event is waiting."""
        return bool(self._inbox)

    @property
    def gone(self) -> bool:
        """Whether the peer has left, although requests from it may be in the inbox."""
        return self._gone

    @property
    def recent(self) -> bool:
        """Whether the peer is alive: it has sent something recently, and has not left."""
        return not self.gone and self._silence.silence_seconds(self._clock.monotonic()) < self._recent

    @property
    def was_late(self) -> bool:
        """Whether the server was stalled within the last second, so that the peer may have moved to another server."""
        return self._clock.monotonic() - self._stalled_at < 1.0

    def post_event(self, event: StreamEvent) -> None:
        self._gone = self._gone or event is StreamEvent.GONE
        if not (event is StreamEvent.CHANGED and StreamEvent.CHANGED in self._inbox):
            self._inbox.append(event)
            self._arrived.set()

    def send(self, response: A) -> None:
        """Queue a response without waiting. A peer that does not read its responses is considered gone."""
        if len(self._outbox) < MAX_OUTBOX:
            self._outbox.append(response)
            self._output_ready.set()
        else:
            self.post_event(StreamEvent.GONE)

    def end(self, error: Exception | None = None) -> None:
        """End the stream after the queued responses; with `error`, if given."""
        self._ended = True
        self._error = error
        self._output_ready.set()

    async def responses(self) -> AsyncGenerator[A, None]:
        """Yield the queued responses until `end`, for the handler of the call."""
        while True:
            while self._outbox:
                yield self._outbox.popleft()
            if self._ended:
                break
            self._output_ready.clear()
            await self._output_ready.wait()
        if self._error is not None:
            raise self._error

    def _detect_stall(self, expected: float) -> None:
        """Detect a stall of the server: it runs more than LATE later than `expected` seconds after the last call."""
        now = self._clock.monotonic()
        if now - self._checked_at > expected + STALL_THRESHOLD:
            self._stalled_at = now
        self._checked_at = now


class SessionStreams:
    """The open streams of a service."""

    def __init__(self) -> None:
        self._streams: dict[asyncio.Task[None], SessionStream[Any, Any]] = {}
        self._draining = False

    async def serve_stream(
        self, stream: SessionStream[Q, A], handler: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[A, None]:
        """Run `handler` in its own task and yield the responses of the call.

        An error of `handler` ends the call. If the call ends first, `handler` receives GONE and is not cancelled, so that it
        can clean up.
        """
        if self._draining:
            raise ShuttingDown
        task = asyncio.create_task(_run_handler(stream, handler))
        self._streams[task] = stream
        task.add_done_callback(lambda done: self._streams.pop(done, None))
        try:
            async for response in stream.responses():
                yield response
        finally:
            stream.post_event(StreamEvent.GONE)

    def drain(self) -> None:
        """Send DRAINED to all streams and refuses new ones."""
        self._draining = True
        for stream in self._streams.values():
            stream.post_event(StreamEvent.DRAINED)

    def end_restored_streams(self) -> None:
        """Send RESTORED to all streams."""
        for stream in self._streams.values():
            stream.post_event(StreamEvent.RESTORED)


async def _run_handler(stream: SessionStream[Q, A], handler: Callable[[], Awaitable[None]]) -> None:
    listening = asyncio.create_task(stream.receive_requests())
    try:
        await handler()
    except Exception as error:
        stream.end(error)
    else:
        stream.end()
    finally:
        listening.cancel()


def decode_record(message: type[M], value: bytes) -> M | None:
    """Return the decoded record; None if it cannot be decoded."""
    try:
        return message.FromString(value)
    except DecodeError:
        return None


def election_of(record: KeyValue) -> Election:
    """Return the election for clients: with its token, without the session and the hash of the secret.

    While the key exists, no other candidate can lead. If it cannot be decoded, the holder is unknown.
    """
    election = decode_record(Election, record.value) or Election(name=record.key.rpartition("/")[2])
    election.token = record.create_revision
    election.ClearField("session")
    election.ClearField("secret_hash")
    return election
