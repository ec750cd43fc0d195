"""Limits of a gRPC server: the number of connections, the duration of TLS handshakes, and the rate of refusals.

Refusals are paced: a caller that repeats refused calls waits for each refusal.

    refused --below RATE per second of its caller, or too many calls wait--> the refusal is sent at once
       '-----above------> waits at most MAX_DELAY -------------------------> the refusal is sent

A refused call costs the server as much CPU as an empty call, 0.2 to 0.4 ms. A caller that immediately repeats thousands of
refused calls would occupy the event loop. The number of open calls of a connection is limited, and a call that waits for its
refusal is open, so a caller whose calls all wait cannot send new ones. Methods that every caller may call but rarely needs,
such as the version, are paced in the same way.

Guarantees:

* A caller receives RATE refusals per second after a burst of BURST, while fewer than MAX_WAITING calls wait. Other callers do
not
  prolong the delay.
* At most MAX_WAITING calls wait, with MAX_WAITING_BYTES of requests. Further refusals are sent at once.
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
"""The maximum duration of a TLS handshake in seconds."""
DESCRIPTOR_SHARE = 0.75
"""The share of the process's file descriptors for clients. The process uses the rest for its own files and connections."""
RATE = 100.0
BURST = 50
MAX_DELAY = 10.0
"""The maximum delay of a refusal in seconds."""
MIN_DELAY = 0.001
"""Seconds. Refusals with a shorter delay are sent at once."""
MAX_WAITING = 8_000
"""The maximum number of waiting calls. Each uses about 25 KB."""
MAX_WAITING_BYTES = 64 << 20
DEADLINE_MARGIN = 0.2
"""Seconds before the deadline of a call by which its refusal is sent."""
MAX_CALLERS = 1_000
"""The maximum number of callers that are tracked without a waiting refusal."""


def server_options(most: int, servers: int = 1, share: float = DESCRIPTOR_SHARE) -> tuple[tuple[str, int], ...]:
    """Return the gRPC options for each of `servers` servers of a process, which together accept at most `most` connections.
    Further connections are closed; existing ones are kept. `share`: the maximum share of the file descriptors.

    A client that connects without sending a certificate occupies a descriptor and about 20 KB. By default gRPC waits two
    minutes for the handshake, so some hundred such connections per second exhaust the descriptors. The process can then neither
    reach etcd nor accept clients. HANDSHAKE_TIMEOUT limits the handshake."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY:
        most = min(most, int(limit * share))
    return (
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_TIMEOUT * 1000)),
        ("grpc.max_allowed_incoming_connections", max(1, most // servers)),
    )


class RefusalPacer:
    """Paces refusals by caller. `waiting` is the number of waiting refusals."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.waiting = 0
        self._bytes = 0
        self._clock = clock
        self._next: dict[str, float] = {}

    async def wait(self, caller: str, size: int = 0, remaining: float | None = None) -> float:
        """Wait until the refusal may be sent. Return the seconds waited. `caller`: the user name; unauthenticated callers share
        one name. `size`: the size of the request in bytes. `remaining`: seconds until the deadline of the call."""
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
        """Return the seconds until the caller's next refusal may be sent. The value is negative within the burst."""
        now = self._clock.monotonic()
        earliest = now - BURST / RATE
        if caller not in self._next and len(self._next) >= MAX_CALLERS:
            self._next = {name: turn for name, turn in self._next.items() if turn > earliest}
        turn = min(max(self._next.get(caller, earliest), earliest), now + MAX_DELAY)
        self._next[caller] = turn + 1 / RATE
        return turn - now


async def abort_call(
    context: "grpc.aio.ServicerContext", code: grpc.StatusCode, message: str, trailers: Sequence[tuple[str, str | bytes]] = ()
) -> NoReturn:
    """End the call with an error, and release its memory."""
    try:
        await context.abort(code, message, trailers)
    except grpc.aio.AbortError as aborted:  # a reference cycle: call, error, traceback
        call = asyncio.current_task()
        assert call is not None
        call.add_done_callback(partial(_break_cycle_when_done, aborted))
        raise
    raise AssertionError("abort raises")


def _break_cycle_when_done(aborted: grpc.aio.AbortError, call: object) -> None:
    """Break the reference cycle when the call is done. Otherwise each refused call forms a cycle that includes gRPC's memory.
    Cycles that survive one collection persist for a long time, because full collections are rare."""
    break_reference_cycle(aborted)


def break_reference_cycle(error: BaseException) -> None:
    """Break the reference cycle of a call that ended with an exception. gRPC stores the exception, and its traceback refers to
    all objects of the call until the garbage collector runs. A few requests of some megabytes occupy hundreds of megabytes.
    Frames are not cleared, because tasks that await the same future share its exception and may still be running."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
