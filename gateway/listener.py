"""The listening sockets. TLS handshakes take turns, so that many new connections do not delay the requests of open ones.

    accepted --sends its first bytes--> waits for its turn --PACE--> TLS handshake --> HttpConnection
        '--sends nothing for HANDSHAKE_TIMEOUT, or too many are silent--> closed

A handshake with a client certificate takes the event loop about a millisecond. A connection that is silent costs a socket and
nothing else.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from pinnace.runtime.grpc_server import HANDSHAKE_TIMEOUT

BACKLOG = 1024
ACCEPTS = 32
"""The maximum number of connections that are accepted in one step of the event loop."""
PACE = 0.003
"""The minimum seconds between the starts of two handshakes, whether the connections arrive at once or one by one."""
MAX_SILENT = 2_000
"""The maximum number of connections that have sent nothing. Above it, the oldest one is closed."""
MAX_WAITING = 1_000
"""The maximum number of connections that wait for their handshake, three seconds at PACE. Further ones are closed."""
RECEIVE_BUFFER = 64 << 10
"""The size of the kernel's receive buffer in bytes. What a client sends without being asked is held in it."""
RETRY_DELAY = 1.0
"""Seconds without accepting connections after the process has run out of file descriptors."""


class Listener:
    """Accepts connections and passes them to protocols after the TLS handshake."""

    def __init__(self, context: ssl.SSLContext, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._context = context
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._silent: dict[socket.socket, float] = {}
        """The connections that have sent nothing, and when they were accepted; the oldest first."""
        self._waiting: deque[socket.socket] = deque()
        self._arrived = asyncio.Event()
        self._tasks = set[asyncio.Task[None]]()

    async def open(self, host: str, port: int, *, shared: bool = False) -> tuple[str, int]:
        """Start to listen on all addresses of a host. Return the first one. `shared`: other processes listen on the port as
        well, and the kernel distributes the connections. Raises OSError."""
        result = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, address in dict.fromkeys((family, address) for family, _, _, _, address in result):
                opened = socket.create_server(address[:2], family=family, backlog=BACKLOG, reuse_port=shared)
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
                opened.setblocking(False)
                self._sockets.append(opened)
        except OSError:
            self.close()
            raise
        for opened in self._sockets:
            self._loop.add_reader(opened, self._accept, opened)
        self._create_task(self._start_handshakes())
        address = self._sockets[0].getsockname()
        return address[0], address[1]

    def close(self) -> None:
        """Stop to listen, and close the connections without a handshake."""
        for task in self._tasks:
            task.cancel()
        for item in (*self._sockets, *self._silent):
            self._loop.remove_reader(item)
        for item in (*self._sockets, *self._silent, *self._waiting):
            item.close()
        self._sockets.clear()
        self._silent.clear()
        self._waiting.clear()

    def sweep(self, now: float) -> None:
        """Close the connections that have been silent for too long."""
        while self._silent:
            oldest, since = next(iter(self._silent.items()))
            if now - since < HANDSHAKE_TIMEOUT:
                return
            self._close_silent(oldest)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no file descriptors are left
                self._loop.remove_reader(listening)
                self._loop.call_later(RETRY_DELAY, self._resume_accepting, listening)
                return
            accepted.setblocking(False)
            if len(self._silent) >= MAX_SILENT:
                self._close_silent(next(iter(self._silent)))
            self._silent[accepted] = self._loop.time()
            self._loop.add_reader(accepted, self._queue_handshake, accepted)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _close_silent(self, silent: socket.socket) -> None:
        del self._silent[silent]
        self._loop.remove_reader(silent)
        silent.close()

    def _queue_handshake(self, accepted: socket.socket) -> None:
        """The first bytes of a connection have arrived, or its end."""
        del self._silent[accepted]
        self._loop.remove_reader(accepted)
        if len(self._waiting) >= MAX_WAITING:
            accepted.close()
            return
        self._waiting.append(accepted)
        self._arrived.set()

    async def _start_handshakes(self) -> None:
        """Start the handshakes, one after the other."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            self._create_task(self._shake_hands(self._waiting.popleft()))
            await asyncio.sleep(PACE)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            with suppress(OSError, ssl.SSLError):  # the client leaves, or does not speak TLS
                await self._loop.connect_accepted_socket(
                    self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
                )
                return
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
