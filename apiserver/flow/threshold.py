"""The seat of a call whose requests are streamed. What it is about, and how much that is, its first request says: that has to
wait for a seat as any other request. The caller has it until something is answered, or the service stands up
(apiserver.flow.seat): to stay open takes none.

    opened --first request--> waiting --seat--> heard --answered, or stood up--> open
                ^                '--refused--> over                                |
                '--the next request, where each has a seat of its own--------------'

Nobody has a seat while he says nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Generic, Protocol, Self, TypeVar

from apiserver.errors import Rejected
from apiserver.flow.seat import EXEMPT, Exempt, Seat
from apiserver.flow.unread import Unread


class Request(Protocol):
    def ByteSize(self) -> int: ...  # noqa: N802 (protobuf's name)


Q = TypeVar("Q", bound=Request)


class Threshold(Exempt, Generic[Q]):
    """The requests, as the service is to hear them; and in what the call sits, which needs no seat as yet."""

    def __init__(
        self,
        requests: AsyncIterator[Q | Unread],
        enter: Callable[[Q | Unread], Seat | Exempt],
        read: Callable[[bytes], Q],
        *,
        each: bool = False,
    ) -> None:
        """`enter`: raises Rejected. `each`: each request has a seat of its own, and not the first one alone."""
        self._requests: AsyncIterator[Q | Unread] | None = requests
        self._enter = enter
        self._read = read
        self._seat: Seat | Exempt | None = None
        self._each = each
        self._over = False
        self.refused: Rejected | None = None
        """Why nothing was heard: of a service that takes it for the end of the stream."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Q:
        """Raises Rejected."""
        if self._requests is None:
            raise StopAsyncIteration
        request = await anext(self._requests)
        if self._seat is None and not self._over:
            try:
                self._seat = seat = self._enter(request)
                if seat.waits:
                    await seat.taken()
            except Rejected as rejected:
                self.refused = rejected
                raise
        return self._read(request.data) if isinstance(request, Unread) else request

    def connection(self, *, bounded: bool) -> AbstractContextManager[None]:
        return (self._seat or EXEMPT).connection(bounded=bounded)

    def leave(self) -> None:
        self._over = not self._each
        if self._seat is not None:
            self._seat.leave()
            if self._each:
                self._seat = None

    def __exit__(self, *_: object) -> None:
        """The call has ended. Timers that it has cancelled keep what it sat in until their time, and with it what was said."""
        self.leave()
        self._requests = self.refused = self._seat = None
