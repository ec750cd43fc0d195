"""Passes the listeners of a proxy to its successor, so that a restart interrupts none of them.

    successor                                            running proxy
      --connects to its abstract Unix socket-->            stops its status server
      <--the listening sockets (SCM_RIGHTS)--              continues to accept
      applies its rules to these sockets, and accepts
      --READY-->                                           ends: closes its copies, lets open connections finish
                                                           if the successor fails before: serves its status again

Both processes accept from the same queues. So no connection is refused or reset, and none waits while the successor starts. If
the successor never becomes ready, for example because the API servers are unavailable, the running proxy continues. It waits
for the successor to answer or to exit: `pinnace restart` kills a successor that is not ready in time.

The name of the Unix socket contains the status address. Only a process of the same user in the same network namespace can take
over.
"""

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from pinnace.proxy.plan import Frontend
from pinnace.runtime.process import FatalError

log = logging.getLogger(__name__)

READY = b"ready"
TIMEOUT = 10.0
"""Seconds within which the other process must answer."""
BATCH = 100
"""Sockets per message. Linux allows 253."""
MESSAGE = 64 * 1024
_CREDENTIALS = struct.Struct("3i")


def socket_name(status: str) -> str:
    """Return the name of the abstract Unix socket of the proxy with this status address."""
    return f"\0pinnace-proxy/{status}"


class Predecessor:
    """The running proxy, from the side of its successor. The calls block."""

    def __init__(self, peer: socket.socket, sockets: dict[Frontend, socket.socket]) -> None:
        self._peer = peer
        self.sockets = sockets
        """The listening sockets. A socket that is taken out belongs to its taker."""

    @classmethod
    def receive_listeners(cls, status: str) -> "Predecessor | None":
        """Get the listeners of the running proxy. None: no proxy runs. Raises Fatal."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.settimeout(TIMEOUT)
        sockets: dict[Frontend, socket.socket] = {}
        try:
            peer.connect(socket_name(status))
        except ConnectionRefusedError:
            peer.close()
            return None
        try:
            if _peer_uid(peer) != os.geteuid():
                raise FatalError(f"the proxy with the status address {status} belongs to another user")
            while batch := _receive(peer):
                sockets.update(batch)
        except (OSError, FatalError) as error:
            peer.close()
            for item in sockets.values():
                item.close()
            if isinstance(error, FatalError):
                raise
            why = "no answer" if isinstance(error, TimeoutError) else str(error)
            raise FatalError(f"cannot take over from the proxy with the status address {status}: {why}; end it first") from None
        return cls(peer, sockets)

    def take_over(self) -> None:
        """The successor accepts connections: the running proxy ends. Return when it accepts none any more."""
        with suppress(OSError):  # it is gone
            self._peer.send(READY)
            self._peer.recv(1)
        self.close()

    def close(self) -> None:
        self._peer.close()
        for item in self.sockets.values():
            item.close()
        self.sockets.clear()


def _receive(peer: socket.socket) -> dict[Frontend, socket.socket]:
    """Receive one message. Return {} after the last one, and if the running proxy has ended. Raises OSError."""
    message, descriptors, flags, _ = socket.recv_fds(peer, MESSAGE, BATCH)
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    names = [Frontend(*load) for load in json.loads(message or b"[]")]
    if flags & socket.MSG_CTRUNC or len(sockets) != len(names):
        for item in sockets:
            item.close()
        raise OSError("too few file descriptors; raise the limit of open files (ulimit -n)")
    return dict(zip(names, sockets, strict=True))


def _peer_uid(peer: socket.socket) -> int:
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


class Handover:
    """Waits for a successor. `listeners` returns the descriptors. `suspend` and `resume` end and start the status server."""

    def __init__(
        self,
        status: str,
        listeners: Callable[[], Mapping[Frontend, int]],
        suspend: Callable[[], Awaitable[None]],
        resume: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = socket_name(status)
        self._listeners, self._suspend, self._resume = listeners, suspend, resume
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_for_successor(self) -> None:
        """Return when a successor is ready and this process is to end. Raises OSError."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as listener:
            listener.bind(self._name)
            listener.listen(1)
            while True:
                peer, _ = await loop.sock_accept(listener)
                self._idle.clear()
                try:
                    if _peer_uid(peer) == os.geteuid() and await self._pass_sockets(peer):
                        listener.close()
                        return
                finally:
                    peer.close()
                    self._idle.set()

    async def wait_until_idle(self, timeout: float) -> None:
        """Wait until no successor is starting, or for `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._idle.wait()

    async def _pass_sockets(self, peer: socket.socket) -> bool:
        """Return whether the successor has taken over."""
        await self._suspend()
        copies = {frontend: os.dup(each) for frontend, each in self._listeners().items()}
        log.info("a successor takes over %d listeners", len(copies))
        try:
            await asyncio.to_thread(_send, peer, copies)
            if await asyncio.get_running_loop().sock_recv(peer, len(READY)) == READY:
                return True
        except OSError as error:
            log.warning("cannot pass the listeners to the successor: %s", error)
        finally:
            for descriptor in copies.values():
                os.close(descriptor)
        log.warning("the successor has ended before it was ready; this process continues")
        await self._resume()
        return False


def _send(peer: socket.socket, descriptors: Mapping[Frontend, int]) -> None:
    """Raises OSError."""
    with peer.dup() as sender:
        sender.settimeout(TIMEOUT)
        left = list(descriptors.items())
        while left:
            part, left = left[:BATCH], left[BATCH:]
            socket.send_fds(sender, [json.dumps([name for name, _ in part]).encode()], [each for _, each in part])
        sender.send(b"[]")
