"""The DNS server of the cluster's domain, over UDP and TCP. It answers in a thread of its own.

The main thread forwards connections. A query delays it for at most SWITCH_INTERVAL, whatever the query costs. The main thread
binds the sockets, and a successor takes them over like those of services.

A TCP connection has DNS_TIMEOUT for each query. Connections take turns after each query. If one client or all have too many,
the one that is idle for the longest time ends, so that idle connections lock nobody out (RFC 7766).
"""

import asyncio
import socket
import threading
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

import uvloop
from prometheus_client import Counter

from pinnace.proxy.dns_message import ANY_CLASS, IN, DnsQuery, Rcode, encode_answer, parse_query
from pinnace.proxy.dns_records import TTL, DnsAnswer, Resolver
from pinnace.proxy.forward import RESET
from pinnace.proxy.limits import (
    BACKLOG,
    DNS_CONNECTIONS,
    DNS_CONNECTIONS_PER_CLIENT,
    DNS_MAX_QUERY,
    DNS_QUERIES_PER_CONNECTION,
    DNS_TIMEOUT,
)
from pinnace.proxy.plan import Frontend

QUERIES = Counter("pinnace_proxy_dns_queries", "Number of DNS queries by response code.", ("rcode",))
_LENGTH = 2
"""Bytes of the length before a message over TCP."""


def answer_query(resolver: Resolver, message: bytes, *, limit: bool) -> bytes | None:
    """Return the answer to a query, or None if it is no query. `limit`: truncate it to the size that a datagram may have."""
    query = parse_query(message)
    if query is None:
        return None
    answer = _resolve_query(resolver, query)
    QUERIES.labels(answer.rcode.name).inc()
    missing = not answer.records and answer.rcode in (Rcode.NOERROR, Rcode.NXDOMAIN)
    authority = [resolver.authority] if missing else []
    return encode_answer(query, answer.rcode, answer.records, authority, answer.extra, ttl=TTL, datagram=limit)


def _resolve_query(resolver: Resolver, query: DnsQuery) -> DnsAnswer:
    if query.error:
        return DnsAnswer(query.error)
    if query.klass not in (IN, ANY_CLASS):
        return DnsAnswer(Rcode.REFUSED)
    return resolver.answer(query.labels, query.kind)


def _listen_frontends(host: str, port: int) -> tuple[Frontend, Frontend]:
    return Frontend(host, port, "UDP"), Frontend(host, port, "TCP")


class DnsServer:
    """Serves a resolver. Call all methods in the thread of the event loop."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._sockets: dict[Frontend, socket.socket] = {}
        self._ended: Future[None] = Future()
        """Set when the thread has ended, with its exception."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    @property
    def descriptors(self) -> dict[Frontend, int]:
        """The descriptors of the listening sockets."""
        return {frontend: listener.fileno() for frontend, listener in self._sockets.items()}

    async def start(self, host: str, port: int, inherited: dict[Frontend, socket.socket] | None = None) -> None:
        """`inherited`: see Userspace. Raises OSError."""
        sockets = inherited if inherited is not None else {}
        try:
            for frontend in _listen_frontends(host, port):
                self._sockets[frontend] = sockets.pop(frontend) if frontend in sockets else _bind_sockets(frontend)
        except OSError as error:
            self._close()
            raise OSError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address with --dns") from None
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="dns", daemon=True)
        self._thread.start()

    async def wait(self) -> None:
        """Return when the server has stopped. Raises what its thread raised."""
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def stop(self) -> None:
        """Stop the server and close its connections."""
        if self._thread is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the thread has failed
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()
            self._thread = self._loop = None
        self._close()

    def _close(self) -> None:
        for listener in self._sockets.values():
            listener.close()
        self._sockets = {}

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        connections = _TcpConnections()
        udp, tcp = self._sockets.values()
        datagrams, _ = await loop.create_datagram_endpoint(lambda: _DnsDatagramProtocol(self._resolver), sock=udp.dup())
        server = await loop.create_server(lambda: _TcpConnection(self._resolver, connections), sock=tcp.dup(), backlog=BACKLOG)
        await self._stopped.wait()
        datagrams.close()
        server.close()
        connections.close()


def _bind_sockets(frontend: Frontend) -> socket.socket:
    """Raises OSError."""
    kind = socket.SOCK_STREAM if frontend.protocol == "TCP" else socket.SOCK_DGRAM
    family, _, _, _, address = socket.getaddrinfo(frontend.address, frontend.port, type=kind)[0]
    listener = socket.socket(family, kind | socket.SOCK_NONBLOCK)
    try:
        if frontend.protocol == "TCP":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        if frontend.protocol == "TCP":
            listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class _DnsDatagramProtocol(asyncio.DatagramProtocol):
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = answer_query(self._resolver, data, limit=True)
        if answer is not None:
            with suppress(OSError):
                self._transport.sendto(answer, addr)


class _TcpConnections:
    """The TCP connections, the one that is idle for the longest time first: of all clients, and of each."""

    def __init__(self) -> None:
        self._all: OrderedDict[_TcpConnection, None] = OrderedDict()
        self._clients: dict[str, OrderedDict[_TcpConnection, None]] = {}

    def add(self, connection: "_TcpConnection") -> None:
        """Add a connection, and end another one if there are too many."""
        if len(mine := self._clients.get(connection.client, OrderedDict())) >= DNS_CONNECTIONS_PER_CLIENT:
            next(iter(mine)).abort()
        elif len(self._all) >= DNS_CONNECTIONS:
            next(iter(self._all)).abort()
        self._all[connection] = None
        self._clients.setdefault(connection.client, OrderedDict())[connection] = None

    def record_query(self, connection: "_TcpConnection") -> None:
        """Note a query."""
        if connection in self._all:
            self._all.move_to_end(connection)
            self._clients[connection.client].move_to_end(connection)

    def remove(self, connection: "_TcpConnection") -> None:
        if connection in self._all:
            del self._all[connection]
            mine = self._clients[connection.client]
            del mine[connection]
            if not mine:
                del self._clients[connection.client]

    def close(self) -> None:
        for connection in list(self._all):
            connection.abort()


class _TcpConnection(asyncio.Protocol):
    """One query at a time: received, answered, and the answer taken by the client, before the next one is read."""

    def __init__(self, resolver: Resolver, connections: _TcpConnections) -> None:
        self._resolver, self._connections = resolver, connections
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._left = DNS_QUERIES_PER_CONNECTION
        self._due: asyncio.Handle | None = None
        """The next call of `_answer_next`."""
        self._blocked = False
        """The client does not read its answers."""
        self._timer: asyncio.TimerHandle | None = None
        self.client = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.client = peer[0] if peer else ""
        self._connections.add(self)
        self._restart_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        for handle in (self._timer, self._due):
            if handle is not None:
                handle.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= _LENGTH + DNS_MAX_QUERY:
            self._transport.pause_reading()
        self._schedule()

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        self._schedule()

    def abort(self) -> None:
        """Close the connection, with a reset if the client does not read: the kernel would keep the answers."""
        self._connections.remove(self)
        if self._blocked:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._transport.abort()

    def _schedule(self) -> None:
        if self._due is None and not self._blocked and not self._transport.is_closing():
            self._due = self._loop.call_soon(self._answer_next)

    def _answer_next(self) -> None:
        self._due = None
        size = int.from_bytes(self._received[:_LENGTH], "big")
        end = _LENGTH + min(size, DNS_MAX_QUERY + 1)  # a longer message is refused by its header
        if len(self._received) < max(end, _LENGTH + 1):
            self._transport.resume_reading()
            return
        message = bytes(self._received[_LENGTH:end])
        del self._received[:end]
        answer = answer_query(self._resolver, message, limit=False)
        self._left -= 1
        if answer is not None:
            self._connections.record_query(self)
            self._restart_timer()
            self._transport.write(len(answer).to_bytes(_LENGTH, "big") + answer)
        if answer is None or not self._left or size > DNS_MAX_QUERY:
            self._transport.close()
        elif self._received:
            self._schedule()
        else:
            self._transport.resume_reading()

    def _restart_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(DNS_TIMEOUT, self.abort)
