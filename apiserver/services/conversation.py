"""A stream in both directions as a mailbox: what the peer says, and what becomes of the stream, one after another.

    requests --> inbox --hear()--> [a task of its own] --say()--> outbox --> answers()
                   ^
            post(): other news;  silence, the end of the stream, the end of the server: a Sign

The one who hears runs in a task of its own, not in the call's: when the peer dies gRPC cancels the call, and what must be
cleaned up then must not be cancelled with it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from apiserver.cacher.errors import ShuttingDown
from apiserver.sessions import LATE, Timing
from pinnace.runtime.clock import Clock
from pinnace.runtime.silence import Silence

log = logging.getLogger(__name__)

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
        self._silence = Silence(timing.silence, self._step, now)
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
