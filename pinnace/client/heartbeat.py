"""Renew the leases of a fleet's nodes, as a client of Nodes.Heartbeat.

A broken stream is resumed on another API server with the same session, so the leases persist as long as one server is
reachable. If the session's lease expires while no server is reachable, the session is lost. A new session replaces it and
creates the leases again. The new session keeps the birth time of the old one, and does not claim nodes that a younger fleet has
taken over. The session drops nodes that were taken over, and calls `on_taken_over`. To claim them again, call `add`: they are
assigned when they are free.

The leases of released nodes are deleted; the other leases are kept. The release is sent to each server to which the session
moves until one server acknowledges it. Otherwise, if a server crashed before it deleted the leases, the resumed session would
keep them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.integers import parse_natural
from pinnace.api.nodes_pb2 import HeartbeatRequest, HeartbeatResponse
from pinnace.api.wellknown import BIRTH_ANNOTATION
from pinnace.client.channel import Caller, Duplex
from pinnace.client.errors import ApiError, unavailable_error
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock, HeartbeatTimer
from pinnace.runtime.logs import NodesTakenOver
from pinnace.runtime.supervise import supervise
from pinnace.runtime.tasks import run_until_first

log = logging.getLogger(__name__)

HEARTBEAT_METHOD = "/pinnace.v1.Nodes/Heartbeat"
OPEN_TIMEOUT = 2.0
"""Seconds within which a server must open a session."""
RESPONSE_TIMEOUT = 2.0
"""Seconds without a response after which another server is tried. The sum with OPEN_TIMEOUT is less than the TTL of the
leases."""
CLOSE_TIMEOUT = 1.0
MAX_NODES_PER_MESSAGE = 5_000
"""The maximum number of nodes in a message. Servers accept 10,000."""

Stream = Duplex[HeartbeatRequest, HeartbeatResponse]


class NodeSession:
    """A heartbeat session for the nodes of one fleet.

    `on_taken_over(nodes, holder)` is called on the event loop after `holder` has taken over these nodes. The callee must stop
    acting for them."""

    def __init__(
        self,
        connection: Caller,
        holder: str,
        nodes: Sequence[str],
        *,
        on_taken_over: Callable[[Sequence[str], str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._connection = connection
        self._holder = holder
        self._nodes = dict.fromkeys(nodes)
        self._unsent_nodes: list[str] = []
        self._released: dict[str, int] = {}  # the number of the release message; 0: not sent to this server
        self._release_count = 0  # the number of release messages sent to this server
        self._unsent_releases: list[str] = []  # released nodes that have not been sent to this server
        self._on_taken_over = on_taken_over
        self._clock = clock
        self._session = 0
        self._birth = 0
        self._stream: Stream | None = None
        self._open = False
        self._heartbeat_timer = HeartbeatTimer(1.0, RESPONSE_TIMEOUT, 0.0)
        self._changed = asyncio.Event()
        """Set while added or released nodes wait to be sent."""
        self._closing = False
        self._closed = asyncio.Event()

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes of the session, without nodes that were taken over."""
        return self._nodes.keys()

    def owns_lease(self, lease: Lease) -> bool:
        """Return whether a node's Lease object belongs to this session or to an earlier session of this fleet."""
        birth = parse_natural(lease.metadata.annotations.get(BIRTH_ANNOTATION, ""))
        return lease.spec.holderIdentity == self._holder and birth == self._birth

    @property
    def healthy(self) -> str | None:
        """None if the session is open, otherwise the problem. Used by /readyz."""
        return None if self._open else "no heartbeat session with an API server"

    def add(self, nodes: Sequence[str]) -> None:
        """Add nodes to the session. They are sent at once."""
        self._nodes.update(dict.fromkeys(nodes))
        self._unsent_nodes.extend(nodes)
        self._changed.set()
        for node in nodes:
            self._released.pop(node, None)

    def release(self, nodes: Iterable[str]) -> None:
        """Remove nodes from the session. They are sent at once. Unknown nodes are ignored."""
        released = {node for node in nodes if node in self._nodes}
        for node in released:
            del self._nodes[node]
            self._released[node] = 0
        self._unsent_nodes = [node for node in self._unsent_nodes if node not in released]
        self._unsent_releases.extend(released)
        self._changed.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled or closed."""
        beating = supervise(
            f"heartbeats of {self._holder}",
            self._run_session,
            retry_on=(ApiError,),
            backoff=Backoff(initial=0.02, maximum=0.5),
            clock=self._clock,
        )
        await run_until_first(beating, self._closed.wait())

    async def close(self) -> None:
        """End the session and delete its leases. Takes at most CLOSE_TIMEOUT."""
        self._closing = True
        if self._stream is not None:
            with suppress(ApiError):
                await self._stream.write(HeartbeatRequest(close=HeartbeatRequest.Close()))
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._closed.wait()
            except TimeoutError:
                log.warning("the end of the heartbeat session was not acknowledged; its leases will expire")
        self._closed.set()

    async def _run_session(self) -> None:
        """Run one session, or a part of it, on one server. Raises ApiError unless the session was closed."""
        stream = await self._connection.duplex(HEARTBEAT_METHOD, HeartbeatRequest, HeartbeatResponse)
        try:
            await self._open_session(stream)
            await run_until_first(self._receive_responses(stream), self._send_heartbeats(stream))
        finally:
            self._stream = None
            self._open = False
            stream.cancel()

    async def _open_session(self, stream: Stream) -> None:
        """Open a session, or resume the previous session if the server still has it."""
        nodes, released = list(self._nodes), list(self._released)
        first, self._unsent_nodes = nodes[:MAX_NODES_PER_MESSAGE], nodes[MAX_NODES_PER_MESSAGE:]
        opening = HeartbeatRequest.Open(holder=self._holder, nodes=first, session=self._session, birth=self._birth)
        self._stream = stream  # set before the session is open, so that `close` is sent after this message
        await stream.write(HeartbeatRequest(open=opening))
        response = await stream.read(OPEN_TIMEOUT)
        if response is None or not response.HasField("opened"):
            raise unavailable_error(f"API server {stream.endpoint} did not open a session")
        self._open = True
        if response.opened.session != self._session:  # a new session does not contain the released nodes
            for node in released:
                self._released.pop(node, None)
        self._unsent_releases, self._release_count = list(self._released), 0
        self._released = dict.fromkeys(self._unsent_releases, 0)
        self._session = response.opened.session
        self._birth = response.opened.birth
        self._heartbeat_timer = HeartbeatTimer(response.opened.interval_ms / 1000, RESPONSE_TIMEOUT, self._clock.monotonic())

    async def _receive_responses(self, stream: Stream) -> None:
        while (response := await stream.read()) is not None:
            self._handle_response(response)
        if not self._closing:
            raise unavailable_error(f"API server {stream.endpoint} ended the heartbeats")
        self._closed.set()

    async def _send_heartbeats(self, stream: Stream) -> None:
        while True:
            await self._send_changes(stream)
            sequence = self._heartbeat_timer.record_beat(self._clock.monotonic())
            await stream.write(HeartbeatRequest(beat=HeartbeatRequest.Beat(sequence=sequence)))
            due = self._clock.monotonic() + self._heartbeat_timer.interval
            while (remaining := due - self._clock.monotonic()) > 0:
                await run_until_first(self._clock.sleep(remaining), self._changed.wait())
                await self._send_changes(stream)
            if self._heartbeat_timer.is_silent(self._clock.monotonic()):
                stream.cancel_and_switch_server()
                raise unavailable_error(f"API server {stream.endpoint} does not acknowledge heartbeats")

    async def _send_changes(self, stream: Stream) -> None:
        """Send the released and the added nodes."""
        self._changed.clear()
        while self._unsent_releases:
            released, self._unsent_releases = (
                self._unsent_releases[:MAX_NODES_PER_MESSAGE],
                self._unsent_releases[MAX_NODES_PER_MESSAGE:],
            )
            self._release_count += 1
            self._released.update((node, self._release_count) for node in released if node in self._released)
            await stream.write(HeartbeatRequest(release=HeartbeatRequest.Release(nodes=released)))
        while self._unsent_nodes:
            added, self._unsent_nodes = self._unsent_nodes[:MAX_NODES_PER_MESSAGE], self._unsent_nodes[MAX_NODES_PER_MESSAGE:]
            await stream.write(HeartbeatRequest(add=HeartbeatRequest.Add(nodes=added)))

    def _forget_released(self, messages: int) -> None:
        """Drop the nodes of the first `messages` release messages, which the server has processed."""
        if messages and self._released:
            self._released = {node: number for node, number in self._released.items() if not 0 < number <= messages}

    def _handle_response(self, response: HeartbeatResponse) -> None:
        match response.WhichOneof("kind"):
            case "ack":
                self._heartbeat_timer.record_acknowledgement(response.ack.sequence, self._clock.monotonic())
                self._forget_released(response.ack.released)
            case "taken_over":
                taken_over = response.taken_over
                holder, nodes = taken_over.holder, taken_over.nodes
                lost = NodesTakenOver(holder, len(nodes)).extra
                log.warning("%s took over %d nodes, for example %s", holder, len(nodes), nodes[0], extra=lost)
                for node in taken_over.nodes:
                    self._nodes.pop(node, None)
                self._on_taken_over(list(taken_over.nodes), taken_over.holder)
            case "lost":
                raise unavailable_error(f"the session has ended: {response.lost.reason}")
