"""Flow control of the gateway: seats for requests, and memory for request bodies, shared by users.

    request --its user has a free seat--> executing --> released
               '--waits in the queue of the user --WAIT_TIMEOUT--> 429

The API servers have flow control of their own (docs/design/flow-control.md), with levels. The gateway's protects the gateway:

* A user that is alone has ALONE seats. If others had requests within ALONE_AFTER seconds, each has at most SHARE seats, and a
  free seat goes to the user with the fewest.
* Bodies are read as long as their user holds less than USER_BYTES and all users together less than TOTAL_BYTES. A body that
  waits is not read, so its client waits, too.

Source: https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from pinnace.gateway.http import ApiStatus

SEATS, ALONE, SHARE = 128, 96, 16
ALONE_AFTER = 1.0
"""Seconds without a request of another user after which a user is alone: users whose requests are short are often absent."""
MAX_WAITING, MAX_WAITING_BODIES = 200, 16
"""The maximum number of requests of a user that wait for a seat, and for memory. A body that waits has buffers of 0.5 MB."""
WAIT_TIMEOUT = 5.0
"""Seconds that a request waits for a seat, or a body for memory."""
TOTAL_BYTES, USER_BYTES = 64 << 20, 16 << 20
RETRY_AFTER = 1


def too_many_requests(why: str) -> ApiStatus:
    message = f"too many requests, please try again later: {why}"
    return ApiStatus(429, "TooManyRequests", message, retry_after=RETRY_AFTER)


class _UserShare:
    """The seats or bytes that one user holds, and what waits."""

    __slots__ = ("held", "waiting")

    def __init__(self) -> None:
        self.held = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()


class FairPool:
    """A number of units, such as seats or bytes, that users share. `total`: the number of units. `alone`: the most that a user
    gets while no other user holds or wants any, or did within ALONE_AFTER seconds. `share`: the most that a user gets
    otherwise. A request for more than that gets them when the user holds none. `waiting`: the most requests of a user that
    wait."""

    def __init__(
        self, total: int, alone: int, share: int, waiting: int, what: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._alone, self._share_size, self._waiting, self._what = total, alone, share, waiting, what
        self._now = now
        self._latest: str | None = None
        """The user of the latest request, which is alone from `_alone_from` on."""
        self._alone_from = now()
        self._held = self._waiting_count = 0
        self._shares: dict[str, _UserShare] = {}

    @property
    def held_units(self) -> int:
        return self._held

    def try_take_units(self, user: str, units: int) -> bool:
        """Take units if they are free and nothing of the user waits. Return whether they were taken."""
        if user != self._latest:
            self._alone_from = self._now() + (ALONE_AFTER if self._latest is not None else 0.0)
            self._latest = user
        share = self._shares.get(user)
        if share is None:
            share = self._shares[user] = _UserShare()
        if share.waiting or not self._has_room(share, units):
            return False
        share.held += units
        self._held += units
        return True

    async def wait_for_units(self, user: str, units: int) -> None:
        """Wait for units that `try_take_units` did not get. Raises ApiStatus (429)."""
        share = self._shares[user]
        if len(share.waiting) >= self._waiting:
            raise too_many_requests(f'{len(share.waiting)} requests of user "{user}" wait for {self._what}')
        taken = asyncio.get_running_loop().create_future()
        share.waiting.append((units, taken))
        self._waiting_count += 1
        try:
            async with asyncio.timeout(WAIT_TIMEOUT):
                await taken
        except BaseException as error:
            if taken.done() and not taken.cancelled():
                self.release_units(user, units)
            else:
                self._stop_waiting(user, share, units, taken)
            if isinstance(error, TimeoutError):
                raise too_many_requests(f"waited {WAIT_TIMEOUT:g} s for {self._what}") from None
            raise

    def release_units(self, user: str, units: int) -> None:
        share = self._shares[user]
        share.held -= units
        self._held -= units
        self._remove_if_empty(user, share)
        while self._waiting_count and (result := self._next_share()) is not None:
            units, taken = result.waiting.popleft()
            self._waiting_count -= 1
            if taken.cancelled():
                continue  # its task removes the share
            result.held += units
            self._held += units
            taken.set_result(None)

    def _stop_waiting(self, user: str, share: _UserShare, units: int, taken: asyncio.Future[None]) -> None:
        if (units, taken) in share.waiting:
            share.waiting.remove((units, taken))
            self._waiting_count -= 1
        self._remove_if_empty(user, share)

    def _has_room(self, share: _UserShare, units: int) -> bool:
        if self._held + units > self._total:
            return not self._held
        if not share.held or share.held + units <= self._share_size:
            return True
        is_alone = len(self._shares) == 1 and self._now() >= self._alone_from
        return is_alone and share.held + units <= self._alone

    def _next_share(self) -> _UserShare | None:
        """Return the user whose first waiting request gets its units next."""
        candidates = [share for share in self._shares.values() if share.waiting and self._has_room(share, share.waiting[0][0])]
        return min(candidates, key=lambda share: share.held, default=None)

    def _remove_if_empty(self, user: str, share: _UserShare) -> None:
        if not share.held and not share.waiting and self._shares.get(user) is share:
            del self._shares[user]


class ChunkTurns:
    """Parts of large work, such as the pieces of large responses, take turns: one part in each iteration of the event loop,
    whatever the number of responses. Small work of other users runs in between."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def take_turn(self) -> None:
        """Wait for the turn of the next part. Turns are given in the order of the calls."""
        async with self._lock:
            await asyncio.sleep(0)


class FlowControl:
    """The seats and the memory of a gateway."""

    def __init__(self) -> None:
        self._seats = FairPool(SEATS, ALONE, SHARE, MAX_WAITING, "a seat")
        self._bytes = FairPool(TOTAL_BYTES, USER_BYTES, USER_BYTES, MAX_WAITING_BODIES, "memory")

    async def take_seats(self, user: str, seats: int) -> None:
        """Take seats. Raises ApiStatus (429)."""
        if not self._seats.try_take_units(user, seats):
            await self._seats.wait_for_units(user, seats)

    def release_seats(self, user: str, seats: int) -> None:
        self._seats.release_units(user, seats)

    async def reserve_bytes(self, user: str, size: int) -> None:
        """Implement pinnace.gateway.connection.BodyBudget."""
        if not self._bytes.try_take_units(user, size):
            await self._bytes.wait_for_units(user, size)

    def release_bytes(self, user: str, size: int) -> None:
        """Implement pinnace.gateway.connection.BodyBudget."""
        self._bytes.release_units(user, size)
