"""What a call has while it is at work, or while it waits for that.

with control.enter(...) as seat:
    if seat.waits:
        await seat.taken()
    ...
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Protocol, Self

from apiserver.flow.account import Account, Room, Selection
from apiserver.flow.queue import Flow


class Seats(Protocol):
    def left(self, seat: "Seat", flow: "Flow[Seat]") -> None:
        """Said once of each seat."""
        ...

    def answered(self, flow: "Flow[Seat]", size: int, refusable: bool) -> Callable[[], None]:
        """The other side of Seat.answer."""
        ...

    def watching(self, flow: "Flow[Seat]", selection: Selection, *, bounded: bool, initial: bool) -> Account:
        """The other side of Seat.watching."""
        ...

    def connection(self, flow: "Flow[Seat]", *, bounded: bool) -> AbstractContextManager[None]:
        """The other side of Seat.connection."""
        ...


class Seat:
    """Of one call. `width`: how many seats it is. `unread`: bytes of a request that is still to be read, in a turn that is as
    long as that takes."""

    __slots__ = ("_flow", "_over", "_seats", "future", "since", "size", "unread", "until", "waits", "width")

    def __init__(self, seats: Seats, flow: "Flow[Seat]", width: int, unread: int = 0) -> None:
        self._seats = seats
        self.unread = unread
        self._flow = flow
        self._over = False
        self.width = width
        self.waits = False

    def wait(self, since: float, until: float, size: int) -> None:
        """From now on it does: monotonic seconds, and bytes of the request. The `future` says how that ends."""
        self.waits = True
        self.since, self.until, self.size = since, until, size
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def taken(self) -> None:
        """Returns when the call may begin. Raises Rejected."""
        await self.future

    def refuse(self, error: Exception) -> None:
        """It waits no more, and never begins."""
        self._over = True
        if not self.future.done():
            self.future.set_exception(error)

    def leave(self) -> None:
        """The call is over, or its caller does not wait any more. May be said again."""
        if not self._over:
            self._over = True
            self._seats.left(self, self._flow)

    def answer(self, size: int, *, refusable: bool) -> Callable[[], None]:
        """The call has an answer of so many bytes. Returns what is to be called once, when the caller has taken it or is gone:
        it may last much longer than the seat. Raises Rejected when too much waits for him, if the answer is `refusable`."""
        return self._seats.answered(self._flow, size, refusable)

    def watching(self, selection: Selection, *, bounded: bool, initial: bool) -> Account:
        """The call opens a watch, for which the account is charged. `bounded`: there may only be so many. `initial`: the
        present state comes first. Raises Rejected."""
        return self._seats.watching(self._flow, selection, bounded=bounded, initial=initial)

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        """Entered while the call has a connection to a kubelet. `bounded`: there may only be so many, and to enter raises
        Rejected."""
        return self._seats.connection(self._flow, bounded=bounded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Exempt:
    """Of a call that needs no seat."""

    waits = False

    async def taken(self) -> None:
        return

    def leave(self) -> None:
        return

    def answer(self, size: int, *, refusable: bool) -> Callable[[], None]:
        return self.leave

    def watching(self, selection: Selection, *, bounded: bool, initial: bool) -> Account:
        return Account(Room())

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


EXEMPT = Exempt()
_OWN: ContextVar[Seat | Exempt] = ContextVar("seat", default=EXEMPT)


def sit(seat: Seat | Exempt) -> None:
    """What the task, and those that it starts, do from now on is done in this seat."""
    _OWN.set(seat)


def own() -> Seat | Exempt:
    """The seat in which the task is."""
    return _OWN.get()


def stand_up() -> None:
    """The call waits for somebody outside the server from now on, for as long as that takes: its seat is for others."""
    own().leave()
