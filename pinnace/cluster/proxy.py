"""A TCP proxy that stands between a client and a server and misbehaves when told to.

Each direction has a mode, which may change at any time and counts for what is under way as well as for what comes:

    pass    everything goes on at once
    delay   everything goes on so many seconds after it came, in order
    hold    nothing goes on, nothing is lost: a partition that heals, as TCP sees it
    lose    everything is taken and thrown away, and the connection stays open: a box in between has forgotten it.
            What has lost bytes is of no use any more: in another mode it is reset at the next byte that comes

The end of a connection is treated like its bytes: through `hold` a client does not learn that its server has died.

Not promised: that nobody notices the proxy. It accepts connections before it knows whether the server does, and takes bytes of
its own accord (up to `_QUEUE` chunks a connection and direction), so that the kernel's view (TCP_USER_TIMEOUT) is always good.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from enum import StrEnum
from typing import Self

_CHUNK = 1 << 16
_QUEUE = 256
"""Chunks that are taken from a sender before it is made to wait."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""For SO_LINGER: close at once, and say so with RST."""


class Mode(StrEnum):
    PASS = "pass"
    DELAY = "delay"
    HOLD = "hold"
    LOSE = "lose"


class Lane:
    """One direction through a proxy, for all its connections."""

    def __init__(self) -> None:
        self.mode = Mode.PASS
        self.delay = 0.0
        self.bytes = 0
        """That went on, so far."""
        self._changed = asyncio.Event()

    def set(self, mode: Mode, delay: float = 0.0) -> None:
        """`delay` in seconds, for DELAY."""
        self.mode, self.delay = mode, delay
        self._changed.set()
        self._changed = asyncio.Event()

    async def passage(self, arrived: float) -> bool:
        """Returns when what arrived then (loop time) may go on; False: it is to be thrown away."""
        now = asyncio.get_running_loop().time
        while self.mode not in (Mode.PASS, Mode.LOSE):
            due = arrived + self.delay if self.mode is Mode.DELAY else None
            if due is not None and due <= now():
                break
            changed = self._changed
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await changed.wait()
        return self.mode is not Mode.LOSE


class Proxy:
    """Forwards `listen` (host:port; port 0 is any that is free) to `target` (host:port). An async context manager; `endpoint`
    is the address to connect to."""

    def __init__(self, target: str, listen: str = "127.0.0.1:0") -> None:
        self.target = target
        self.endpoint = listen
        self.requests = Lane()
        self.answers = Lane()
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.reset()

    def set(self, mode: Mode, delay: float = 0.0) -> None:
        """Both directions."""
        self.requests.set(mode, delay)
        self.answers.set(mode, delay)

    def reset(self) -> None:
        """Breaks all connections with RST; what was held or delayed is lost. New ones work as the modes say."""
        for connection in self._connections:
            connection.abort()

    def refuse(self) -> None:
        """Takes no new connection: "connection refused". Those that are there stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def accept(self) -> None:
        """Takes new connections (again)."""
        if self._server is None:
            host, _, port = self.endpoint.rpartition(":")
            self._server = await asyncio.start_server(self._enter, host, int(port))
            self.endpoint = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, far_writer)
        self._connections.add(connection)
        try:
            await asyncio.gather(
                connection.forward(self.requests, reader, far_writer), connection.forward(self.answers, far_reader, writer)
            )
        finally:
            connection.abort()
            self._connections.discard(connection)


class _Connection:
    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers

    def abort(self) -> None:
        for writer in self._writers:
            with suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    async def forward(self, lane: Lane, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Until the source has ended and all that it sent has gone on, or the connection is broken."""
        queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_QUEUE)
        taking = asyncio.create_task(_take(source, queue))
        lost = False
        try:
            while True:
                arrived, data = await queue.get()
                passed = await lane.passage(arrived)
                if not passed and data:
                    lost = True
                elif not passed:
                    return None  # nobody will ever be told
                elif lost or data is None:
                    return self.abort()
                elif not data:
                    return sink.write_eof()
                else:
                    sink.write(data)
                    lane.bytes += len(data)
                    await sink.drain()
        except OSError:
            self.abort()
        finally:
            taking.cancel()


async def _take(source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes | None]]) -> None:
    """Puts what comes into the queue, with when it came; b"" is the polite end, None a reset."""
    now = asyncio.get_running_loop().time
    try:
        while data := await source.read(_CHUNK):
            await queue.put((now(), data))
        await queue.put((now(), b""))
    except OSError:
        await queue.put((now(), None))
