"""Copies the bytes of one TCP connection between a client and an endpoint.

    receive and send small messages --a full buffer--> splice through a pipe, without copies to user space

A connection starts with `recv` and `send`. A direction that fills its buffer switches to `splice`. Each event moves at most
one buffer, so that a large stream does not delay other connections. If the receiver is slow, reading pauses. The end of one
direction is passed on, and the other direction continues. A reset is passed on as a reset.
"""

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable
from contextlib import suppress

BUFFER = 64 * 1024
PIPE = 1024 * 1024
"""The size of the pipe in bytes: the default limit of Linux (fs.pipe-max-size)."""
_SPLICE = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
RESET = b"\x01\x00\x00\x00\x00\x00\x00\x00"
"""struct linger: on, 0 seconds. close() then sends a reset."""
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 60, 10, 6
"""Seconds, seconds, probes: a connection whose peer has vanished ends after two minutes."""


class _Direction:
    """One direction of a connection. Raises OSError from `move_buffer` if a side has failed."""

    __slots__ = ("_loop", "_pending", "_pipe", "_pump", "_reading", "_source", "_target", "ended", "moved")

    def __init__(self, loop: asyncio.AbstractEventLoop, source: socket.socket, target: socket.socket, pump: Callable[[], None]):
        self._loop = loop
        self._source, self._target = source, target
        self._pump = pump
        self._pending: bytes | int = b""
        """Bytes that the target has not accepted; the number of bytes in the pipe, if there is one."""
        self._pipe: tuple[int, int] | None = None
        self._reading = False
        self.ended = False
        self.moved = 0

    def move_buffer(self) -> None:
        """Move at most one buffer and wait for the next event."""
        if not self._pending:
            self._receive()
        if self._pending:
            self._send()
        if self._pending:
            self._wait_for_event(reading=False)
        elif not self.ended:
            self._wait_for_event(reading=True)

    def start(self) -> None:
        self._reading = True
        self._loop.add_reader(self._source, self._pump)

    def _wait_for_event(self, *, reading: bool) -> None:
        if reading == self._reading:
            return
        self._reading = reading
        if reading:
            self._loop.remove_writer(self._target)
            self._loop.add_reader(self._source, self._pump)
        else:
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._target, self._pump)

    def _receive(self) -> None:
        try:
            if self._pipe is not None:
                self._pending = os.splice(self._source.fileno(), self._pipe[1], PIPE, flags=_SPLICE)
            else:
                self._pending = self._source.recv(BUFFER)
                if len(self._pending) == BUFFER:
                    self._open_pipe()
        except BlockingIOError:
            return
        if not self._pending:
            self._shut_down_target()

    def _send(self) -> None:
        try:
            if isinstance(self._pending, int):
                assert self._pipe is not None
                sent = os.splice(self._pipe[0], self._target.fileno(), self._pending, flags=_SPLICE)
                self._pending -= sent
            else:
                sent = self._target.send(self._pending)
                self._pending = self._pending[sent:]
                if not self._pending and self._pipe is not None:
                    self._pending = 0
            self.moved += sent
        except BlockingIOError:
            return

    def _open_pipe(self) -> None:
        with suppress(OSError):  # no file descriptors are left: continue without a pipe
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, PIPE)

    def _shut_down_target(self) -> None:
        self.ended = True
        self._loop.remove_reader(self._source)
        self._reading = False
        self._target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe[0])
            os.close(self._pipe[1])
            self._pipe = None


class TcpForwarding:
    """An established connection. It owns both sockets, which must be nonblocking. `on_end` is called once."""

    __slots__ = ("_closed", "_down", "_loop", "_on_end", "_sockets", "_up", "seen", "since")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        server: socket.socket,
        on_end: Callable[["TcpForwarding"], None],
    ) -> None:
        self._loop = loop
        self._sockets = client, server
        self._on_end = on_end
        self._closed = False
        self._up = _Direction(loop, client, server, lambda: self._pump(self._up))
        self._down = _Direction(loop, server, client, lambda: self._pump(self._down))
        self.seen = -1
        """The value of `moved_bytes` at `since`, the last time at which data was seen to move."""
        self.since = 0.0

    def start(self) -> None:
        for item in self._sockets:
            item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(item)
        self._down.start()
        self._up.start()

    @property
    def moved_bytes(self) -> int:
        """Bytes in both directions."""
        return self._up.moved + self._down.moved

    @property
    def half_closed(self) -> bool:
        return self._up.ended or self._down.ended

    def close(self, *, reset: bool = False) -> None:
        if self._closed:
            return
        self._closed = True
        for item in self._sockets:
            self._loop.remove_reader(item)
            self._loop.remove_writer(item)
            if reset:
                with suppress(OSError):
                    item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            item.close()
        self._up.close()
        self._down.close()
        self._on_end(self)

    def _pump(self, direction: _Direction) -> None:
        try:
            direction.move_buffer()
        except OSError:
            self.close(reset=True)
            return
        if self._up.ended and self._down.ended:
            self.close()


def enable_keepalive(each: socket.socket) -> None:
    each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)


def reset_socket(each: socket.socket) -> None:
    """Close a socket with a reset."""
    with suppress(OSError):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    each.close()
