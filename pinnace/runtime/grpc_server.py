"""How many peers a gRPC server lets connect, and how long one has to show who it is.

Anybody who reaches a port may connect to it and say nothing. Each connection takes a descriptor and some 20 KB, and gRPC waits
two minutes for its certificate: who opened some hundred a second took all descriptors, and the process could neither reach etcd
nor let anybody else in.

Paces the refusals of a gRPC server, so that a caller that repeats refused calls at once waits for each refusal.

    refused --under RATE calls per second of its caller, or no room to wait--> refusal is sent at once
       '-----faster-----> waits, for LONGEST at most ------------------------> refusal is sent

A refused call costs the server as much CPU as an empty call, 0.2 to 0.4 ms: a caller that repeats some thousand calls as soon
as they are refused takes the whole event loop. A connection has a limit of open calls, and a call that waits for its refusal is
one of them. So a caller whose calls all wait sends no new ones.

Methods that every caller may call, and need not call often, such as that for the version, are paced in the same way.

Guarantees:

* A caller gets RATE refusals per second, after a burst of BURST, as long as fewer than MAX_WAITING calls wait. What others do
  makes no caller wait longer.
* At most MAX_WAITING calls wait, with MAX_WAITING_BYTES of requests. Refusals above that are sent at once.
* A refusal is sent before the deadline of its call.
"""

import asyncio
import resource
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import grpc
import grpc.aio

from pinnace.runtime.clock import SYSTEM_CLOCK, Clock

HANDSHAKE = 5.0
"""Seconds."""
SHARE = 0.75
"""Of the descriptors that the process may have: the others are for what it opens itself."""


def options(most: int, servers: int = 1, share: float = SHARE) -> tuple[tuple[str, int], ...]:
    """For each of so many servers of a process, which together let at most `most` peers connect. Others are hung up on, and
    those that are there stay. `share`: of the descriptors, which they may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY:
        most = min(most, int(limit * share))
    return (
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE * 1000)),
        ("grpc.max_allowed_incoming_connections", max(1, most // servers)),
    )


RATE = 100.0
BURST = 50
LONGEST = 10.0
"""Seconds."""
LEAST = 0.001
"""Seconds that are worth a timer."""
MAX_WAITING = 8_000
"""Calls. Each takes about 25 KB."""
MAX_WAITING_BYTES = 64 << 20
MOMENT = 0.2
"""Seconds before the deadline of a call."""
KEPT = 1_000
"""Callers that are remembered although their refusals do not wait."""


class Refusals:
    """`waiting`: how many refusals wait now."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.waiting = 0
        self._bytes = 0
        self._clock = clock
        self._next: dict[str, float] = {}

    async def wait(self, caller: str, size: int = 0, remaining: float | None = None) -> float:
        """Returns when the refusal is to be sent: the seconds that it has waited. `caller`: the name of a user; all callers
        that are not authenticated share one. `size`: bytes of the request. `remaining`: seconds until the call's deadline."""
        delay = min(self._take_turn(caller), LONGEST)
        if remaining is not None:
            delay = min(delay, remaining - MOMENT)
        if delay < LEAST or self.waiting >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
            return 0.0
        self.waiting += 1
        self._bytes += size
        try:
            await self._clock.sleep(delay)
        finally:
            self.waiting -= 1
            self._bytes -= size
        return delay

    def _take_turn(self, caller: str) -> float:
        """Seconds until its turn; negative within the burst."""
        now = self._clock.monotonic()
        earliest = now - BURST / RATE
        if caller not in self._next and len(self._next) >= KEPT:
            self._next = {name: turn for name, turn in self._next.items() if turn > earliest}
        turn = min(max(self._next.get(caller, earliest), earliest), now + LONGEST)
        self._next[caller] = turn + 1 / RATE
        return turn - now


async def abort(
    context: "grpc.aio.ServicerContext", code: grpc.StatusCode, message: str, trailers: Sequence[tuple[str, str | bytes]] = ()
) -> NoReturn:
    """Ends the call. Nothing is left of it afterwards."""
    try:
        await context.abort(code, message, trailers)
    except grpc.aio.AbortError as aborted:  # the call keeps it, and by all that it went through it leads back to the call
        call = asyncio.current_task()
        assert call is not None
        call.add_done_callback(partial(_over, aborted))
        raise
    raise AssertionError("abort raises")


def _over(aborted: grpc.aio.AbortError, call: object) -> None:
    """When the call is over. Each refused call was garbage for the collector, with the memory that gRPC has for it; and those
    that were under way when it looked stayed for good, as it hardly ever looks at what is old."""
    let_go(aborted)


def let_go(error: BaseException) -> None:
    """gRPC keeps the exception with which a call ended, and with its traceback all that the call had, in a cycle that the
    garbage collector finds much later: a few requests of megabytes, which are hundreds in memory. (Frames are left alone: where
    many wait for one thing they share its error, and with it the frames of whoever goes on.)"""
    error.__traceback__ = error.__cause__ = error.__context__ = None
