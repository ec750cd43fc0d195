"""An HTTP/1.1 client for attacks: it sends any bytes, stops in the middle, does not read, and counts what the server does.

An outcome is the status of an answer, or the way in which the connection ended without one:

    closed    the server closed the connection
    reset     the server reset the connection, or broke off TLS
    silent    no answer within ANSWER_TIMEOUT
    refused   no connection, or no TLS session within ANSWER_TIMEOUT
"""

import asyncio
import itertools
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

ANSWER_TIMEOUT = 20.0
RECONNECT = 0.1
"""Seconds after a refused connection until the next attempt."""
CHUNK = 1 << 16
READ_LIMIT = 1 << 17
"""The maximum number of bytes that a connection reads ahead. A connection that is not read stops receiving there."""
AT_ONCE = 16
"""The maximum number of concurrent TLS handshakes."""
CLOSED, RESET, SILENT, REFUSED = "closed", "reset", "silent", "refused"
ANONYMOUS = ""
"""The user without a certificate."""


class AttackConnection:
    """A connection to the gateway. `reusable`: the last exchange is complete in both directions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reusable = True
        self._reader = reader
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Send data without waiting until the server reads it."""
        self._writer.write(data)

    async def send_and_observe(self, data: bytes) -> str:
        """Send data, and return the outcome. The answer may arrive before the server has read all data."""
        sending = asyncio.create_task(self._send(data))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                outcome = await self._read_response()
        except asyncio.IncompleteReadError:
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENT
        except (OSError, ssl.SSLError):
            outcome = RESET
        finally:
            complete = sending.done()
            sending.cancel()
            await asyncio.wait((sending,))
        self.reusable = self.reusable and complete and outcome.isdigit()
        return outcome

    async def read_until_end(self) -> str:
        """Read until the server ends the connection, and return how it did."""
        try:
            while await self._reader.read(CHUNK):
                pass
        except (OSError, ssl.SSLError):
            return RESET
        return CLOSED

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _send(self, data: bytes) -> None:
        view = memoryview(data)
        with suppress(OSError, ssl.SSLError, RuntimeError):  # reading reports the end of the connection
            for start in range(0, len(view), CHUNK):
                self._writer.write(view[start : start + CHUNK])
                await self._writer.drain()

    async def _read_response(self) -> str:
        """Read an answer, and return its status. Its body is discarded."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = head[9:12].decode()
        headers = dict(line.split(b":", 1) for line in head.splitlines()[1:] if b":" in line)
        if status == "101":
            self.reusable = False
        elif b"chunked" in headers.get(b"transfer-encoding", b""):
            while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                await self._discard_body(size + 2)
            await self._reader.readuntil(b"\r\n")
        elif b"content-length" in headers:
            await self._discard_body(int(headers[b"content-length"]))
        elif status not in ("204", "304"):
            self.reusable = False
        if b"close" in headers.get(b"connection", b""):
            self.reusable = False
        return status

    async def _discard_body(self, size: int) -> None:
        while size:
            part = await self._reader.read(min(size, CHUNK))
            if not part:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(part)


class AttackTarget:
    """The gateway as attackers see it. `contexts`: the TLS contexts of the users, by name. `outcomes`: the number of
    outcomes."""

    def __init__(self, address: str, contexts: Mapping[str, ssl.SSLContext]) -> None:
        host, _, port = address.rpartition(":")
        self.outcomes: Counter[str] = Counter()
        self._host = host
        self._port = int(port)
        self._contexts = contexts
        self._handshakes = asyncio.Semaphore(AT_ONCE)

    async def connect(self, user: str | None, *, receive_buffer: int = 0) -> AttackConnection:
        """Open a connection as this user; None stays without TLS. Retries refused connections, and counts them.
        `receive_buffer`: the size of the kernel's buffer in bytes, or 0 for its default."""
        while True:
            try:
                async with self._handshakes, asyncio.timeout(ANSWER_TIMEOUT):
                    return await self._open(user, receive_buffer)
            except (OSError, ssl.SSLError):  # including TimeoutError
                self.outcomes[REFUSED] += 1
            await asyncio.sleep(RECONNECT)

    async def _open(self, user: str | None, receive_buffer: int) -> AttackConnection:
        plain = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            if receive_buffer:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            await asyncio.get_running_loop().sock_connect(plain, (self._host, self._port))
            if user is None:
                return AttackConnection(*await asyncio.open_connection(sock=plain, limit=READ_LIMIT))
            context = self._contexts[user]
            opened = await asyncio.open_connection(sock=plain, ssl=context, server_hostname=self._host, limit=READ_LIMIT)
        except BaseException:
            plain.close()
            raise
        return AttackConnection(*opened)

    async def repeat_requests(
        self, user: str | None, requests: Iterable[bytes], connections: int, *, rate: float = 0.0, pause: float = 0.0
    ) -> None:
        """Send the requests one after the other on each connection until cancelled. A connection that the server ends is
        opened again. `rate`: requests per second of all connections together, independent of the answers; 0: as fast as
        possible. `pause`: seconds between an answer and the next request of a connection."""
        numbered, began = enumerate(requests), time.monotonic()

        async def one() -> None:
            connection = None
            try:
                for number, data in numbered:  # shared between the connections
                    if rate:
                        await asyncio.sleep(began + number / rate - time.monotonic())
                    if connection is None:
                        connection = await self.connect(user)
                    self.outcomes[await connection.send_and_observe(data)] += 1
                    if not connection.reusable:
                        connection.abort()
                        connection = None
                    if pause:
                        await asyncio.sleep(pause)
            finally:
                if connection is not None:
                    connection.abort()

        await self._run_concurrently(one, connections)

    async def hold_connections(
        self, user: str | None, data: bytes, connections: int, *, read: bool, receive_buffer: int = 0
    ) -> None:
        """Send data on each connection, and nothing more, until cancelled. `read`: receive answers, and count the ends of
        connections; otherwise nothing is received."""

        async def one() -> None:
            connection = await self.connect(user, receive_buffer=receive_buffer)
            try:
                connection.write(data)
                if read:
                    self.outcomes[await connection.read_until_end()] += 1
                await asyncio.Event().wait()  # until the attack ends
            finally:
                connection.abort()

        await self._run_concurrently(one, connections)

    async def _run_concurrently(self, one: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())


def build_request(
    method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"", *, length: int | None = None
) -> bytes:
    """Return a request. `length`: the Content-Length, if it is not that of the body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: gateway", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    if body or length:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def repeat_forever(*requests: bytes) -> Iterator[bytes]:
    return itertools.cycle(requests)
