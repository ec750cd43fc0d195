"""One API server's way to the simulated etcd: a Storage that answers and fails as apiserver.storage.etcd does.

    call --request--> [lost | late | held] --> SimEtcd --answer--> [lost | held] --> call

* A read, and a renewal, is tried twice within TIMEOUT, then StorageUnavailable.
* A write whose answer does not come (a transaction's: within IMPATIENCE) is CommitOutcomeUnknown; one that etcd did not take is
  StorageUnavailable.
* What was sent travels on whatever becomes of the sender: it may arrive after its sender has given up, or died.
* A watch gives whole revisions in order, a sign of life a second, and StorageUnavailable after SILENCE_LIMIT or when it breaks.
  One that is stalled gives signs of life, and tells nothing any more (Patroni 4.0.7): StorageUnavailable when that has been
  noticed.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from pinnace.apiserver.storage.etcd.storage import IMPATIENCE, PROBE_INTERVAL, SILENCE_LIMIT
from pinnace.apiserver.storage.interface import (
    ChangeBatch,
    CommitOutcomeUnknown,
    Committed,
    Compacted,
    CompareFailed,
    KeyChange,
    KeyPage,
    KeyValue,
    StorageUnavailable,
    Write,
)
from tests.simulation.etcd import NotProposed, Operation, SimEtcd

TIMEOUT = 5.0
"""Seconds of each call: EtcdStorage's default."""
T = TypeVar("T")


class _Lost(Exception):
    """No answer: it may have happened, or may still."""


class _Fate(Enum):
    """What becomes of a request whose connection breaks."""

    REQUEST_LOST = auto()
    ANSWER_LOST = auto()
    DELAYED = auto()
    """It arrives when its sender has given up."""


@dataclass(slots=True)
class Odds:
    """What may happen to each request. Times are means of exponential distributions, in seconds."""

    latency: float = 0.001
    """One way."""
    loss: float = 0.0
    """The share of requests whose connection breaks."""
    delay: float = 0.3
    """After which a request that was delayed arrives."""
    watch_latency: float = 0.001
    """Of the watch, beside the way."""


class _Stream:
    """A watch: etcd --> sent --at its time--> held, while there is a partition --> pending --> the client.
    `due`: when the last that was sent arrives, by the loop's time."""

    def __init__(self, start_revision: int) -> None:
        self.told = start_revision - 1
        self.pending: deque[ChangeBatch] = deque()
        self.due = 0.0
        self.sent: deque[ChangeBatch] = deque()
        self.held: deque[ChangeBatch] = deque()
        self.stalled = False
        self.left = False
        """The client is gone."""
        self.broken = ""
        self._arrived = asyncio.Event()

    def release(self) -> None:
        """What was held arrives."""
        if not self.stalled and self.held:
            self.pending += self.held
            self._arrived.set()
        self.held.clear()

    def end(self, why: str) -> None:
        self.broken = self.broken or why
        self._arrived.set()

    async def wait(self, seconds: float) -> None:
        """Until there is something, or the stream has ended, at most for this long."""
        self._arrived.clear()
        if self.pending or self.broken:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            pass


class Port:
    """`odds` may be changed at any time."""

    def __init__(self, etcd: SimEtcd, rng: random.Random, odds: Odds | None = None) -> None:
        self.odds = odds or Odds()
        self._lag = 0.0
        self._etcd = etcd
        self._rng = rng
        self._flying: dict[asyncio.Future[Any], None] = {}
        self._streams: dict[_Stream, None] = {}
        self._requests_blocked = False
        self._answers_blocked = False
        self._held: list[Callable[[], None]] = []
        self._closed = False

    # --- Storage

    async def get(self, key: str, *, revision: int = 0) -> KeyValue | None:
        result: KeyValue | None = await self._read(lambda: self._etcd.store.get(key, revision))
        return result

    async def page(self, prefix: str, *, after: str = "", limit: int = 500, revision: int = 0) -> KeyPage:
        page: KeyPage = await self._read(lambda: self._etcd.store.page(prefix, after, limit, revision))
        return page

    async def current_revision(self) -> int:
        return int(await self._read(lambda: self._etcd.store.revision))

    async def transact(self, writes: Sequence[Write]) -> Committed | CompareFailed:
        answer: Committed | CompareFailed = await self._write(lambda: self._etcd.transact(writes), IMPATIENCE)
        return answer

    async def watch(self, start_revision: int) -> AsyncGenerator[ChangeBatch]:
        stream = _Stream(start_revision)
        try:
            try:
                await self._exchange(lambda: self._open(stream), SILENCE_LIMIT)
            except (_Lost, NotProposed) as error:
                raise StorageUnavailable(f"watch broke: {error}") from None
            yield ChangeBatch(stream.told, ())
            silence = behind = 0.0
            while True:
                if not stream.pending:
                    await stream.wait(PROBE_INTERVAL)
                if stream.broken:
                    raise StorageUnavailable(f"watch broke: {stream.broken}")
                if stream.pending:
                    yield self._take(stream)
                    behind = 0.0
                elif self._requests_blocked or self._answers_blocked:
                    silence += PROBE_INTERVAL
                    if silence >= SILENCE_LIMIT:
                        raise StorageUnavailable(f"watch silent for {SILENCE_LIMIT:g} s")
                    continue
                else:
                    behind = behind + PROBE_INTERVAL if stream.told < self._etcd.store.revision else 0.0
                    if behind > SILENCE_LIMIT:
                        raise StorageUnavailable(f"the watch shows nothing after revision {stream.told}")
                    yield ChangeBatch(stream.told, ())
                silence = 0.0
        finally:
            stream.left = True
            self._streams.pop(stream, None)

    def watch_stalled(self) -> None:
        """There is no other member."""

    async def compact(self, revision: int) -> None:
        """Gives the freed space back, as EtcdStorage does."""

        def compact() -> None:
            self._etcd.compact(revision)
            self._etcd.free()

        await self._write(compact)

    async def grant_lease(self, ttl: int) -> int:
        return int(await self._write(lambda: self._etcd.grant(ttl)))

    async def renew_lease(self, lease: int) -> float:
        loop = asyncio.get_running_loop()
        sent = loop.time()
        ttl = await self._read(lambda: self._etcd.renew(lease))
        return float(ttl - (loop.time() - sent))

    async def lease_age(self, lease: int) -> float:
        return float(await self._read(lambda: self._etcd.lease_age(lease)))

    async def revoke_lease(self, lease: int) -> None:
        await self._write(lambda: self._etcd.store.revoke(lease))

    async def close(self) -> None:
        self._closed = True
        self.reset("the storage is closed")

    # --- faults

    def block(self, *, requests: bool = True, answers: bool = True) -> None:
        """A partition, in one direction or both. What is sent waits: when it is over some of it arrives, as TCP sends again."""
        self._requests_blocked |= requests
        self._answers_blocked |= answers

    def heal(self) -> bool:
        """Is any lost for good of what was sent? Who asked for it waits in vain."""
        self._requests_blocked = self._answers_blocked = False
        held, self._held = self._held, []
        lost = False
        for arrive in held:
            if self._rng.random() < 0.7:
                self._etcd.later(self._delay(self.odds.latency), arrive)
            else:
                lost = True
        for stream in self._streams:
            stream.release()
        return lost

    def reset(self, why: str = "connection reset") -> None:
        """Breaks the connection: calls lose their answers, watches end. What was sent may still arrive."""
        for future in list(self._flying):
            if not future.done():
                future.set_result(_Lost(why))
        for stream in list(self._streams):
            stream.end(why)

    def lag(self, seconds: float) -> None:
        """By so much more, in the mean, watches come late from now on; what is on its way when that ends comes at once."""
        self._lag += seconds
        if seconds < 0:
            for stream in self._streams:
                stream.due = asyncio.get_running_loop().time() + self._delay(self.odds.latency)
                for _ in stream.sent:
                    self._etcd.at(stream.due, self._show, stream)

    def stall_watches(self) -> int:
        """Those that are open tell nothing any more; how many they are."""
        for stream in self._streams:
            stream.stalled = True
        return len(self._streams)

    @property
    def stalled(self) -> bool:
        """Is there a watch that tells nothing any more?"""
        return any(stream.stalled for stream in self._streams)

    # --- the way there and back

    async def _read(self, operation: Operation) -> Any:
        """As EtcdStorage._call_with_retry with one member: tried twice."""
        for _ in range(2):
            try:
                return await self._exchange(operation, TIMEOUT / 2)
            except (_Lost, NotProposed) as error:
                failure = str(error)
        raise StorageUnavailable(failure)

    async def _write(self, operation: Operation, timeout: float = TIMEOUT) -> Any:
        try:
            return await self._exchange(operation, timeout)
        except NotProposed as error:
            raise StorageUnavailable(str(error)) from None
        except _Lost as error:
            raise CommitOutcomeUnknown(str(error)) from None

    async def _exchange(self, operation: Operation, timeout: float) -> Any:
        """Raises _Lost, NotProposed and what etcd answers."""
        if self._closed:
            raise StorageUnavailable("the storage is closed")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._flying[answer] = None
        try:
            self._send(operation, answer)
            async with asyncio.timeout(timeout):
                result = await answer
        except TimeoutError:
            raise _Lost("Deadline Exceeded") from None
        finally:
            del self._flying[answer]
        if isinstance(result, Exception):
            raise result
        return result

    def _send(self, operation: Operation, answer: asyncio.Future[Any]) -> None:
        odds = self.odds
        fate = self._rng.choice(tuple(_Fate)) if self._rng.random() < odds.loss else None
        delay = self._delay(odds.latency)
        if fate is not _Fate.REQUEST_LOST:
            late = self._delay(odds.delay) if fate is _Fate.DELAYED else 0.0
            self._etcd.later(delay + late, self._arrive, operation, answer, fate is not None)
        if fate is not None:
            self._etcd.later(delay + self._delay(odds.latency), _settle, answer, _Lost("connection reset"))

    def _arrive(self, operation: Operation, answer: asyncio.Future[Any], unheard: bool) -> None:
        if self._requests_blocked:
            self._held.append(lambda: self._arrive(operation, answer, unheard))
            return
        self._etcd.submit(operation, lambda result: None if unheard else self._reply(answer, result))

    def _reply(self, answer: asyncio.Future[Any], result: Any) -> None:
        self._etcd.later(self._delay(self.odds.latency), self._deliver, answer, result)

    def _deliver(self, answer: asyncio.Future[Any], result: Any) -> None:
        if self._answers_blocked:
            self._held.append(lambda: self._deliver(answer, result))
        else:
            _settle(answer, result)

    def _delay(self, mean: float) -> float:
        return self._rng.expovariate(1.0 / mean) if mean else 0.0

    # --- watches

    def _open(self, stream: _Stream) -> None:
        """At etcd."""
        etcd = self._etcd
        if stream.told < etcd.store.compacted:
            raise Compacted(etcd.store.compacted)
        if stream.left:
            return

        def tell(news: Sequence[ChangeBatch]) -> None:
            if stream.left:
                etcd.watches.remove(tell)
                etcd.on_leaderless.remove(give_up)
                return
            delay = self._delay(self.odds.latency) + self._delay(self.odds.watch_latency + self._lag)
            stream.due = max(stream.due, asyncio.get_running_loop().time() + delay)
            for changes in news:
                if changes.revision > stream.told:
                    stream.sent.append(changes)
                    etcd.at(stream.due, self._show, stream)

        def give_up() -> None:
            if not self._answers_blocked:
                stream.end("etcdserver: no leader")

        self._streams[stream] = None
        etcd.watches.append(tell)
        etcd.on_leaderless.append(give_up)
        tell(etcd.store.changes_after(stream.told))

    def _show(self, stream: _Stream) -> None:
        if stream.sent:
            stream.held.append(stream.sent.popleft())
        if not self._answers_blocked:
            stream.release()

    def _take(self, stream: _Stream) -> ChangeBatch:
        """The next changes; now and then several revisions at once, as etcd sends them when they come fast."""
        batch = stream.pending.popleft()
        if stream.pending and self._rng.random() < 0.3:
            changes: list[KeyChange] = list(batch.changes)
            while stream.pending:
                batch = stream.pending.popleft()
                changes += batch.changes
            batch = ChangeBatch(batch.revision, changes)
        stream.told = batch.revision
        return batch


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)
