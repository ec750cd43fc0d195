"""A simulated network: connections as TCP gives them, over links that delay, stall and break.

    Socket --frames, in order--> [link: delay; blocked: kept, as retransmission would] --> the other end's Socket

What TCP and gRPC's keepalive let applications see, and no more:

* A connection delivers in order and once, or breaks. Packets that are lost are delays. What was sent before a connection broke
  may arrive, and may not; that is how requests come to be carried out twice, and late.
* A link can be blocked in one direction. What is sent is kept, and arrives after the link is free again, if the connection
  still stands. Each end gives a connection up by itself, by keepalive, between KEEPALIVE seconds after the block began.
* A paused process is silent, so keepalive finds it too. A process that dies has its connections closed by its kernel.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.loop import SimLoop

Frame = tuple[Any, ...]
"""What one end says to the other, of immutable parts. The first says what it is; CLOSED ends the connection."""
CLOSED: Frame = ("closed",)

DIALLER_KEEPALIVE = (1.0, 3.2)
"""Seconds after which the end that dialled gives up a silent connection: see pinnace.client.channel.OPTIONS."""
LISTENER_KEEPALIVE = (2.0, 4.2)
"""The other end: see pinnace.apiserver.server.options."""
RETRANSMISSION = 0.4
"""Seconds, at most, after which what was kept arrives when a link is free again."""


@dataclass(slots=True)
class Weather:
    """How the network behaves, in seconds. Changed by faults."""

    latency: float = 0.0005
    """Of every packet."""
    jitter: float = 0.001
    """Mean of what comes on top."""
    loss: float = 0.0
    """Share of packets that have to be sent again."""
    retransmission: float = 0.2
    """What a lost packet costs."""


class Socket:
    """One end of a connection. `receive(frame)` runs in its owner's process; the last frame that comes is CLOSED."""

    def __init__(self, network: "Network", owner: Process, keepalive: tuple[float, float]) -> None:
        self.owner = owner
        self.peer: Socket
        self.open = True
        self.receive: Callable[[Frame], None] = lambda frame: None
        self.keepalive = keepalive
        self.last = 0.0
        """When the latest frame that was sent arrives."""
        self.flying: deque[tuple[Any, Frame]] = deque()
        self.kept: deque[Frame] = deque()
        self._network = network

    def send(self, frame: Frame) -> None:
        """Never waits. A closed socket takes no notice."""
        if self.open and self.owner.alive:
            self._network.transmit(self, frame)

    def close(self) -> None:
        """Breaks the connection from this end; the other end learns of it after what was sent before."""
        if self.open:
            self.open = False
            self._network.transmit(self, CLOSED)

    def give_up(self) -> None:
        """The connection is broken as far as this end knows: tells the owner."""
        if self.open:
            self.close()
            self.receive(CLOSED)

    def arrive(self) -> None:
        """The next frame of the other end is here."""
        _, frame = self.peer.flying.popleft()
        if not self.open:
            return
        self._network.trace(self.peer.owner, self.owner, frame)
        if frame is CLOSED:
            self.open = False
        self.receive(frame)


class Network:
    """`trace(source, target, frame)` is told of every frame that arrives."""

    def __init__(self, loop: "SimLoop", rng: random.Random, trace: Callable[[Process, Process, Frame], None]) -> None:
        self.weather = Weather()
        self.trace = trace
        self._loop = loop
        self._rng = rng
        self._listeners: dict[str, tuple[Process, Callable[[Socket], None]]] = {}
        self._sockets: list[Socket] = []
        self._blocked: dict[tuple[str, str], int] = {}

    def listen(self, address: str, process: Process, accept: Callable[[Socket], None]) -> None:
        """`accept` is called, in the process, with its end of every new connection."""
        self._listeners[address] = (process, accept)
        process.on_crash.append(lambda: self._died(process, address))

    async def dial(self, process: Process, address: str) -> Socket | None:
        """A connection; None when nobody listens there. Takes for ever when the way is blocked: the caller has a deadline."""
        await asyncio.sleep(self.delay())
        while True:
            server, accept = self._listeners.get(address, (None, None))
            if server is None or accept is None:
                await asyncio.sleep(self.delay())
                return None
            if server.paused or self.is_blocked(process.name, server.name) or self.is_blocked(server.name, process.name):
                await asyncio.sleep(0.1)  # the SYN is sent again
                continue
            break
        ours, theirs = Socket(self, process, DIALLER_KEEPALIVE), Socket(self, server, LISTENER_KEEPALIVE)
        ours.peer, theirs.peer = theirs, ours
        if len(self._sockets) > 200:
            self._sockets = [socket for socket in self._sockets if socket.open or socket.peer.open]
        self._sockets += (ours, theirs)
        server.context.run(accept, theirs)
        process.on_crash.append(ours.close)
        await asyncio.sleep(self.delay())
        return ours

    def close_listener(self, address: str) -> None:
        """Nobody listens there any more; connections stay."""
        self._listeners.pop(address, None)

    def delay(self) -> float:
        weather, chance = self.weather, self._rng.random
        delay = weather.latency + weather.jitter * -log(1.0 - chance())
        if weather.loss and chance() < weather.loss:
            delay += weather.retransmission * (1 + chance())
        return delay

    def transmit(self, source: Socket, frame: Frame) -> None:
        if source.kept or self._is_held(source):
            source.kept.append(frame)
            return
        self._fly(source, frame, self._loop.time() + self.delay())

    # --- faults

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def block(self, source: str, target: str) -> None:
        """Swallows what goes from one process to the other."""
        key = (source, target)
        self._blocked[key] = self._blocked.get(key, 0) + 1
        for socket in self._sockets:
            if (socket.owner.name, socket.peer.owner.name) == key:
                self._ground(socket)
                self._doom(socket)
                self._doom(socket.peer)

    def unblock(self, source: str, target: str) -> None:
        key = (source, target)
        self._blocked[key] -= 1
        if not self._blocked[key]:
            del self._blocked[key]
            for socket in self._sockets:
                if (socket.owner.name, socket.peer.owner.name) == key:
                    self._release(socket)

    def reset(self, between: str, other: str) -> int:
        """Breaks the connections between two processes; what is on its way is lost. How many they were."""
        broken = [s for s in self._sockets if s.open and s.owner.name == between and s.peer.owner.name == other]
        for socket in broken:
            for end in (socket, socket.peer):
                for handle, _ in end.flying:
                    handle.cancel()
                end.flying.clear()
                end.kept.clear()
            for end in (socket, socket.peer):
                if end.open:
                    end.open = False
                    self._loop.call_soon(end.receive, CLOSED, context=end.owner.context)
        return len(broken)

    def silenced(self, process: Process) -> None:
        """A process was paused: its peers' keepalive may find it."""
        for socket in self._sockets:
            if socket.open and socket.owner is process:
                self._doom(socket.peer)

    # --- how frames travel

    def _fly(self, source: Socket, frame: Frame, at: float) -> None:
        source.last = at = max(source.last, at)
        target = source.peer
        handle = self._loop.call_at(at, target.arrive, context=target.owner.context)
        source.flying.append((handle, frame))

    def _is_held(self, socket: Socket) -> bool:
        return bool(self._blocked) and (socket.owner.name, socket.peer.owner.name) in self._blocked

    def _ground(self, socket: Socket) -> None:
        """What is on its way does not arrive yet."""
        grounded = []
        while socket.flying and socket.flying[-1][0].when() > self._loop.time():
            handle, frame = socket.flying.pop()
            handle.cancel()
            grounded.append(frame)
        socket.kept.extendleft(grounded)

    def _release(self, socket: Socket) -> None:
        at = self._loop.time() + self._rng.random() * RETRANSMISSION
        kept, socket.kept = socket.kept, deque()
        for frame in kept:
            self._fly(socket, frame, at)
            at += self.delay() / 4

    def _doom(self, socket: Socket) -> None:
        """Keepalive gives a connection up, if it is silent for that long."""
        if socket.open:
            self._loop.call_later(self._rng.uniform(*socket.keepalive), self._look, socket, context=self._loop.world.context)

    def _look(self, socket: Socket) -> None:
        other = socket.peer.owner
        if socket.open and (other.paused or self._is_held(socket) or self._is_held(socket.peer)):
            self._loop.call_soon(socket.give_up, context=socket.owner.context)

    def _died(self, process: Process, address: str) -> None:
        if self._listeners.get(address, (None, None))[0] is process:
            del self._listeners[address]
        for socket in self._sockets:
            if socket.owner is process:
                socket.close()
