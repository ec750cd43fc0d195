"""The DNS server with real sockets: clients that send much, slowly, or nothing."""

import asyncio
import select
import socket
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from dnslib import RCODE, DNSRecord

from pinnace.proxy import dns
from pinnace.proxy.dns import DnsServer, answer_query
from pinnace.proxy.plan import Frontend
from tests.conftest import free_port
from tests.unit.proxy.dns_objects import RESOLVER

NAME = "web.default.svc.cluster.local"
QUERY = bytes(DNSRecord.question(NAME).pack())
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients:
    """Connects to a server. All connections end with the test."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: list[Stream] = []

    async def connect(self, address: str = "127.0.0.1") -> Stream:
        stream = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        self._streams.append(stream)
        return stream

    async def close(self) -> None:
        for _, writer in self._streams:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def server() -> AsyncIterator[Clients]:
    running, clients = DnsServer(RESOLVER), Clients(free_port())
    await running.start("127.0.0.1", clients.port)
    try:
        yield clients
    finally:
        await clients.close()
        running.stop()
        async with asyncio.timeout(5):
            await running.wait()


def framed(query: bytes) -> bytes:
    return len(query).to_bytes(2, "big") + query


async def ask(stream: Stream, query: bytes = QUERY) -> DNSRecord:
    stream[1].write(framed(query))
    return await read(stream)


async def read(stream: Stream) -> DNSRecord:
    async with asyncio.timeout(5):
        size = int.from_bytes(await stream[0].readexactly(2), "big")
        return DNSRecord.parse(await stream[0].readexactly(size))


async def wait_until_closed(stream: Stream) -> None:
    async with asyncio.timeout(5):
        with suppress(ConnectionResetError):
            assert await stream[0].read() == b""


async def test_udp_and_tcp_have_the_same_answers() -> None:
    async with server() as clients:
        for tcp in (False, True):
            raw: Any = await asyncio.to_thread(DNSRecord.parse(QUERY).send, "127.0.0.1", clients.port, tcp, 5)
            assert str(DNSRecord.parse(raw).rr[0].rdata) == "127.250.0.1"


async def test_truncated_answer_is_complete_over_tcp() -> None:
    query = DNSRecord.question("big.default.svc.cluster.local")
    async with server() as clients:
        raw: Any = await asyncio.to_thread(query.send, "127.0.0.1", clients.port, False, 5)
        assert DNSRecord.parse(raw).header.tc
        whole = await ask(await clients.connect(), query.pack())
        assert len(whole.rr) == 60


async def test_queries_in_one_packet_and_in_parts_are_answered_in_order() -> None:
    async with server() as clients:
        stream = await clients.connect()
        stream[1].write(framed(b"\0\1" + QUERY[2:]) + framed(b"\0\2" + QUERY[2:])[:9])
        assert (await read(stream)).header.id == 1
        stream[1].write(framed(b"\0\2" + QUERY[2:])[9:])
        assert (await read(stream)).header.id == 2


async def test_idle_connections_lock_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "DNS_CONNECTIONS_PER_CLIENT", 4)
    async with server() as clients:
        idle = [await clients.connect() for _ in range(4)]
        for stream in idle:
            assert (await ask(stream)).rr
        assert (await ask(idle[0])).rr, "used last"
        new = await clients.connect()
        assert (await ask(new)).rr
        await wait_until_closed(idle[1])
        for stream in (idle[0], idle[2], idle[3]):
            assert (await ask(stream)).rr
        idle += [await clients.connect() for _ in range(40)]
        assert (await ask(await clients.connect())).rr


async def test_connections_of_one_client_do_not_end_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "DNS_CONNECTIONS_PER_CLIENT", 2)
    async with server() as clients:
        other = await clients.connect("127.0.0.9")
        assert (await ask(other)).rr
        many = [await clients.connect() for _ in range(6)]
        assert (await ask(many[-1])).rr
        assert (await ask(other)).rr


async def test_connection_ends_without_a_whole_query_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "DNS_TIMEOUT", 0.1)
    async with server() as clients:
        silent, slow = [await clients.connect() for _ in range(2)]
        slow[1].write(framed(QUERY)[:5])
        await wait_until_closed(silent)
        await wait_until_closed(slow)


async def test_client_that_reads_no_answers_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of the kernel are small here, so that few answers fill them."""
    monkeypatch.setattr(dns, "DNS_TIMEOUT", 0.2)
    bind = dns._bind_sockets

    def bind_with_a_small_buffer(frontend: Frontend) -> socket.socket:
        listener = bind(frontend)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(dns, "_bind_sockets", bind_with_a_small_buffer)
    huge = framed(DNSRecord.question("huge.default.svc.cluster.local").pack())
    async with server() as clients:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", clients.port))
            client.sendall(huge * 20)
            broken = select.poll()
            broken.register(client, 0)
            ((_, event),) = await asyncio.to_thread(broken.poll, 8_000)
            assert event & select.POLLHUP


async def test_connection_ends_after_a_number_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "DNS_QUERIES_PER_CONNECTION", 3)
    async with server() as clients:
        stream = await clients.connect()
        stream[1].write(framed(QUERY) * 5)
        for _ in range(3):
            assert (await read(stream)).rr
        await wait_until_closed(stream)


@pytest.mark.parametrize("records", [5_900, 2])
async def test_large_message_is_refused_by_its_header(records: int) -> None:
    opt = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0)
    message = (struct.pack("!6H", 7, 0, 1, 0, 0, records) + QUERY[12:] + opt * 5_900)[:65_535]
    async with server() as clients:
        stream = await clients.connect()
        answer = await ask(stream, message)
        assert (answer.header.id, answer.header.rcode) == (7, RCODE.FORMERR)
        await wait_until_closed(stream)


async def test_queries_are_answered_outside_the_thread_that_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()
    monkeypatch.setattr(
        dns, "answer_query", lambda *args, **kwargs: threads.add(threading.current_thread()) or answer_query(*args, **kwargs)
    )
    async with server() as clients:
        assert (await ask(await clients.connect())).rr
        await asyncio.to_thread(DNSRecord.parse(QUERY).send, "127.0.0.1", clients.port, False, 5)
    (thread,) = threads
    assert thread is not threading.current_thread() and not thread.is_alive()


async def test_failure_of_the_thread_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: DnsServer) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(DnsServer, "_serve", fail)
    running = DnsServer(RESOLVER)
    await running.start("127.0.0.1", free_port())
    with pytest.raises(ValueError, match="broken"):
        async with asyncio.timeout(5):
            await running.wait()
    running.stop()
