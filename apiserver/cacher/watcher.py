"""One watch: an async iterator of encoded WatchResponses.

    catching up --the past is told--> live --overflow------> SlowWatcher
         |                             |  --drain----------> ShuttingDown
         '--- the ring moved on -------'--- cache reloaded -> Expired

Catching up (the initial state, or events from the ring) goes at the reader's pace, a chunk at a time, in turns with others who
do (apiserver.cacher.catching_up), and keeps nothing for it but a position. Live, responses are put into a bounded outbox as the
cache applies changes. The step from one to the other happens between two changes, so nothing is lost or told twice. A reader
that stops reading costs the outbox at most, and those of one flow together what it may have: while gRPC has as much of it as it
may (apiserver.flow.account), only small responses are handed over, and the past not at all. Who waits longer than PATIENCE for
that is at its end as if it were slow.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Protocol, Self

from apiserver.cacher.catching_up import CatchingUp
from apiserver.cacher.errors import CacheError, SlowWatcher
from apiserver.cacher.outbox import MERGE_BYTES, Outbox, Parcel, Told
from apiserver.cacher.selection import Selection
from apiserver.flow.account import LARGE, Account, Room
from pinnace.runtime.clock import SYSTEM_CLOCK


class Hub(Protocol):
    """Who tells watchers what happens. `told`: events that they have read."""

    told: int

    def join(self, watcher: "Watcher") -> None:
        """From now on the watcher is offered what it selects."""
        ...

    def leave(self, watcher: "Watcher") -> None: ...


class Watcher:
    """To be read by one task, and closed by it. Raises SlowWatcher, ShuttingDown or Expired, once, then is at its end."""

    def __init__(
        self,
        hub: Hub,
        selection: Selection,
        since: int,
        past: Iterator[Told],
        turns: CatchingUp | None = None,
        *,
        announced: bool = False,
        account: Account | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        """`past`: what is to be told before the watcher is live. A response b"" in it only lets others run. `turns`: with whom
        it catches up, `account`: whom it shares its room with; None: nobody."""
        self.selection = selection
        self.announced = announced
        """Is it told of elections at once?"""
        self.delivered = since
        """Everything up to this revision has been handed to the reader."""
        self.idle = False
        """Has nothing been offered since the last beat of the bookmark timer?"""
        self.account = account if account is not None else Account(Room())
        self._hub = hub
        self._past: Iterator[Told] | None = past
        self._turns = turns if turns is not None else CatchingUp(SYSTEM_CLOCK)
        self._found: Told | None = None  # the next of the past, which is charged already
        self._outbox = outbox if outbox is not None else Outbox()
        self._end: CacheError | None = None
        self._closed = False
        self._charged = 0  # bytes that the reader has and may not have sent yet
        self._reader: asyncio.Future[None] | None = None
        self.account.open(self)

    def __aiter__(self) -> Self:
        return self

    @property
    def ended(self) -> bool:
        """Is there nothing more to come than what waits?"""
        return self._closed or self._end is not None

    @property
    def waiting(self) -> int:
        """Bytes in the outbox."""
        return self._outbox.bytes

    async def __anext__(self) -> bytes:
        if self._found is None:
            self._taken()
        while not self._closed:
            if self._found is not None:
                told, self._found = self._found, None
                return self._deliver(told)
            if self._past is not None:
                await self._step()
            elif self._outbox:
                if self.account.crowded and self._outbox.next < LARGE:
                    return self._hand_over(self._outbox.take(LARGE - 1))
                if self.account.crowded:
                    await self._room()
                if self._outbox:
                    return self._hand_over(self._outbox.take(MERGE_BYTES))
            elif self._end is not None:
                self.close()
                raise self._end
            else:
                await self._wait()
        raise StopAsyncIteration

    def offer(self, parcel: Parcel) -> None:
        """The cache's side. On overflow the watcher is at its end, and leaves."""
        self.idle = False
        if self._end is not None:
            parcel.let_go()
        elif not self._outbox.put(parcel):
            self.end(SlowWatcher(self.delivered))
        self._wake()

    def overflow(self) -> None:
        """There is no room for what waits, or has not been for too long."""
        self._outbox.clear()
        self.end(SlowWatcher(self.delivered))

    def end(self, error: CacheError) -> None:
        """The reader gets what waits for it (not the rest of the past), then the error."""
        if self._end is None:
            self._end = error
            self._past = None
            self._hub.leave(self)
        if not self._outbox:
            self.account.close(self)
            self._wake()

    def close(self) -> None:
        """Ends it without an error; a reader that waits sees the end of the iteration."""
        if not self._closed:
            self._closed = True
            self._past = self._found = None
            self._taken()
            self._outbox.clear()
            self._hub.leave(self)
            self.account.close(self)
            self._wake()

    async def _step(self) -> None:
        """Catches up by a step, when the flow has room for it and it is this watch's turn."""
        if not self.account.crowded:
            await self._turns.step(self.account, self._catch_up)
            return
        try:
            async with self.account.turn(self):
                await self._turns.step(self.account, partial(self._catch_up, entitled=True))
        except TimeoutError:
            self.overflow()

    def _catch_up(self, *, entitled: bool = False) -> None:
        """One step of the past, or the step from there to live. `entitled`: there was room when its turn came."""
        if self._past is None or (self.account.full and not entitled):
            return
        try:
            told = next(self._past, None)
        except CacheError as error:
            self.end(error)
            return
        if told is None:
            self._past = None
            self._hub.join(self)
        elif told.response:
            self._found = told
            self._charge(told)

    def _hand_over(self, told: Told) -> bytes:
        self._charge(told)
        return self._deliver(told)

    def _deliver(self, told: Told) -> bytes:
        if told.revision:
            self.delivered = told.revision
        self._hub.told += told.events
        return told.response

    def _charge(self, told: Told) -> None:
        if (size := len(told.response)) >= LARGE:
            self._charged = size
            self.account.charge(size)

    def _taken(self) -> None:
        """The reader has sent what it was handed last, or has gone."""
        if self._charged:
            self.account.charge(-self._charged)
            self._charged = 0

    async def _room(self) -> None:
        """Waits until something large may be handed over. Without success there is nothing to hand over any more."""
        try:
            await self.account.wait(self)
        except TimeoutError:
            self.overflow()

    async def _wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
