"""Limits of a gRPC server: how many clients may connect, how long a TLS handshake may take, and how fast calls are refused.

Refusals are paced, so that a caller that repeats refused calls waits for each refusal:

    refused --under RATE calls per second of its caller, or too many calls wait--> refusal is sent at once
       '-----faster-----> waits, for MAX_DELAY at most ---------------------------> refusal is sent

A refused call costs the server as much CPU as an empty call, 0.2 to 0.4 ms: a caller that repeats some thousand calls as soon
as they are refused would take the whole event loop. A connection has a limit of open calls, and a call that waits for its
refusal is one of them. So a caller whose calls all wait sends no new ones. Methods that every caller may call but rarely needs,
such as the version, are paced in the same way.

Guarantees:

* A caller gets RATE refusals per second, after a burst of BURST, as long as fewer than MAX_WAITING calls wait. Other callers do
  not prolong its wait.
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

HANDSHAKE_TIMEOUT = 5.0
"""Seconds."""
DESCRIPTOR_SHARE = 0.75
"""The share of the process's file descriptors that clients may use. The rest is for files and connections that it opens."""


def options(most: int, servers: int = 1, share: float = DESCRIPTOR_SHARE) -> tuple[tuple[str, int], ...]:
    """The gRPC options of each of the `servers` of a process, which together accept at most `most` connections. Further
    connections are closed; existing ones stay. `share`: the share of the file descriptors that they may use.

    A client that connects and sends no certificate uses a descriptor and about 20 KB, and by default gRPC waits two minutes for
    the handshake: some hundred such connections per second use up all descriptors, and the process can neither reach etcd nor
    accept other clients. So handshakes are limited to HANDSHAKE_TIMEOUT seconds."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY:
        most = min(most, int(limit * share))
    return (
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT * 1000)),
        ("grpc.max_allowed_incoming_connections", max(1, most // servers)),
    )


RATE = 100.0
BURST = 50
MAX_DELAY = 10.0
"""Seconds."""
MIN_DELAY = 0.001
"""Seconds below which a refusal does not wait."""
MAX_WAITING = 8_000
"""Calls. Each takes about 25 KB."""
MAX_WAITING_BYTES = 64 << 20
DEADLINE_MARGIN = 0.2
"""Seconds before the deadline of a call."""
MAX_CALLERS = 1_000
"""Callers that are remembered while none of their refusals wait."""


class Refusals:
    """`waiting`: the number of refusals that wait."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.waiting = 0
        self._bytes = 0
        self._clock = clock
        self._next: dict[str, float] = {}

    async def wait(self, caller: str, size: int = 0, remaining: float | None = None) -> float:
        """Waits until the refusal may be sent, and returns the seconds waited. `caller`: the name of the user; all callers that
        are not authenticated share one. `size`: bytes of the request. `remaining`: seconds until the call's deadline."""
        delay = min(self._take_turn(caller), MAX_DELAY)
        if remaining is not None:
            delay = min(delay, remaining - DEADLINE_MARGIN)
        if delay < MIN_DELAY or self.waiting >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
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
        """Seconds until the caller's next refusal may be sent; negative within the burst."""
        now = self._clock.monotonic()
        earliest = now - BURST / RATE
        if caller not in self._next and len(self._next) >= MAX_CALLERS:
            self._next = {name: turn for name, turn in self._next.items() if turn > earliest}
        turn = min(max(self._next.get(caller, earliest), earliest), now + MAX_DELAY)
        self._next[caller] = turn + 1 / RATE
        return turn - now


async def abort(
    context: "grpc.aio.ServicerContext", code: grpc.StatusCode, message: str, trailers: Sequence[tuple[str, str | bytes]] = ()
) -> NoReturn:
    """Ends the call, and releases its memory."""
    try:
        await context.abort(code, message, trailers)
    except grpc.aio.AbortError as aborted:  # the call refers to it, and its traceback refers to the call
        call = asyncio.current_task()
        assert call is not None
        call.add_done_callback(partial(_over, aborted))
        raise
    raise AssertionError("abort raises")


def _over(aborted: grpc.aio.AbortError, call: object) -> None:
    """Called when the call is over. Otherwise every refused call would be a reference cycle with the memory that gRPC has for
    it, and cycles that survive one collection stay for long, because full collections are rare."""
    let_go(aborted)


def let_go(error: BaseException) -> None:
    """Breaks the reference cycle of a call that ended with an exception. gRPC keeps the exception, and its traceback everything
    that the call had, until the garbage collector finds the cycle: a few requests of megabytes, which are hundreds of megabytes
    in memory. (Frames are not cleared: tasks that wait for one future share its error, and some of them may still run.)"""
    error.__traceback__ = error.__cause__ = error.__context__ = None
