"""The userspace backend with real sockets on loopback addresses."""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import exp
from typing import cast

import pytest

from pinnace.proxy import userspace
from pinnace.proxy.plan import NO_RULES, Endpoint, Frontend, Rule, ServiceRules
from pinnace.proxy.userspace import EndpointBalancer, UserspaceBackend

ADDRESS = "127.251.7.1"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def free_port(address: str = ADDRESS, kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def endpoint(host: str, handler: Handler | None = None, port: int = 0) -> AsyncIterator[Endpoint]:
    """A TCP server. By default it sends its address and closes the connection."""

    async def name(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(host.encode())
        writer.close()

    server = await asyncio.start_server(handler or name, host, port)
    try:
        yield Endpoint(host, server.sockets[0].getsockname()[1])
    finally:
        server.close()


@asynccontextmanager
async def proxy(**options: object) -> AsyncIterator[UserspaceBackend]:
    made = UserspaceBackend(seed=1, **options)
    try:
        yield made
    finally:
        await made.close()


def rules(port: int, *endpoints: Endpoint, affinity: int | None = None, protocol: str = "TCP") -> ServiceRules:
    return ServiceRules({Frontend(ADDRESS, port, protocol): Rule("default/web", tuple(sorted(endpoints)), affinity)})


async def ask(port: int) -> str:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()


def p_value(counts: Counter[str], endpoints: int) -> float:
    """The p-value of a chi-square test with three endpoints, which has two degrees of freedom."""
    assert endpoints == 3
    expected = counts.total() / 3
    return exp(-sum((counts[count] - expected) ** 2 / expected for count in counts) / 2)


async def test_connections_are_spread_evenly() -> None:
    port = free_port()
    async with endpoint("127.251.7.2") as a, endpoint("127.251.7.3") as b, endpoint("127.251.7.4") as c, proxy() as it:
        await it.apply({"default/web": rules(port, a, b, c)})
        counts: Counter[str] = Counter()
        for _ in range(60):
            counts.update(await asyncio.gather(*(ask(port) for _ in range(50))))
    assert set(counts) == {"127.251.7.2", "127.251.7.3", "127.251.7.4"} and counts.total() == 3_000
    assert p_value(counts, 3) > 0.01, counts


async def test_connections_are_refused_while_a_service_has_no_endpoints() -> None:
    port = free_port()
    async with endpoint("127.251.7.2") as a, proxy() as it:
        await it.apply({"default/web": rules(port)})
        with pytest.raises(ConnectionRefusedError):
            await ask(port)
        await it.apply({"default/web": rules(port, a)})
        assert await ask(port) == "127.251.7.2"
        await it.apply({"default/web": rules(port)})
        with pytest.raises(ConnectionRefusedError):
            await ask(port)
        await it.apply({"default/web": rules(port, a)})
        await it.apply({"default/web": NO_RULES})
        assert not it.services
        with pytest.raises(ConnectionRefusedError):
            await ask(port)


async def test_endpoint_that_refuses_connections_is_skipped() -> None:
    port = free_port()
    dead = Endpoint("127.251.7.9", free_port("127.251.7.9"))
    async with endpoint("127.251.7.2") as a, proxy() as it:
        await it.apply({"default/web": rules(port, a, dead)})
        assert {await ask(port) for _ in range(10)} == {"127.251.7.2"}
        await it.apply({"default/web": rules(port, dead)})
        with pytest.raises(ConnectionResetError):
            await ask(port)
        assert it.open_connections == 0


async def test_removed_endpoint_keeps_its_connections_and_gets_no_new_one() -> None:
    port = free_port()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with endpoint("127.251.7.2", echo) as a, endpoint("127.251.7.3") as b, proxy() as it:
        await it.apply({"default/web": rules(port, a)})
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        await it.apply({"default/web": rules(port, b)})
        assert {await ask(port) for _ in range(5)} == {"127.251.7.3"}
        await it.apply({"default/web": rules(port)})
        writer.write(b"two")
        assert await reader.readexactly(3) == b"two"
        writer.close()


async def test_half_close_is_passed_on() -> None:
    port = free_port()

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        writer.write(str(len(data)).encode())
        writer.close()

    async with endpoint("127.251.7.2", count) as a, proxy() as it:
        await it.apply({"default/web": rules(port, a)})
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        writer.write(b"x" * 100_000)
        writer.write_eof()
        async with asyncio.timeout(5):
            assert await reader.read() == b"100000"
        writer.close()


async def test_large_stream_arrives_complete_with_a_slow_reader() -> None:
    port, size = free_port(), 50_000_000
    block = bytes(range(256)) * 4096

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0
        while sent < size:
            part = block[: size - sent]
            writer.write(part)
            await writer.drain()
            sent += len(part)
        writer.close()

    async with endpoint("127.251.7.2", stream) as a, proxy() as it:
        await it.apply({"default/web": rules(port, a)})
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(ADDRESS, port)
            await asyncio.sleep(0.2)  # all buffers fill
            result = 0
            while data := await reader.read(1 << 20):
                start = result % 256
                assert data == (block[start:] + block)[: len(data)]
                result += len(data)
            writer.close()
    assert result == size


async def test_connection_reset_is_passed_on() -> None:
    port = free_port()

    async def abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with endpoint("127.251.7.2", abort) as a, proxy() as it:
        await it.apply({"default/web": rules(port, a)})
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            async with asyncio.timeout(5):
                await reader.read()
        writer.close()


async def test_connections_beyond_the_limit_are_closed_with_a_log(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await reader.read()
        writer.close()

    async with endpoint("127.251.7.2", hold) as a, proxy(max_connections=2) as it:
        await it.apply({"default/web": rules(port, a)})
        held = [await asyncio.open_connection(ADDRESS, port) for _ in range(2)]
        for reader, _ in held:
            assert await reader.readexactly(1) == b"x"
        with pytest.raises(ConnectionResetError):
            await ask(port)
        assert "2 connections are open" in caplog.text
        held[0][1].close()
        async with asyncio.timeout(5):
            while it.open_connections == 2:  # noqa: ASYNC110 (there is no event)
                await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(ADDRESS, port)
        assert await reader.readexactly(1) == b"x"
        for item in (writer, held[1][1]):
            item.close()


async def test_successor_listens_before_its_predecessor_stops() -> None:
    port = free_port()
    failures: list[str] = []
    stop = False

    async def load() -> int:
        count = 0
        while not stop:
            try:
                assert await ask(port) == "127.251.7.2"
                count += 1
            except OSError as error:
                failures.append(str(error))
        return count

    async with endpoint("127.251.7.2") as a:
        last = UserspaceBackend()
        await last.apply({"default/web": rules(port, a)})
        loading = [asyncio.create_task(load()) for _ in range(4)]
        for _ in range(5):
            await asyncio.sleep(0.05)
            following = UserspaceBackend()
            await following.apply({"default/web": rules(port, a)})
            await last.close(1.0)
            last = following
        await asyncio.sleep(0.05)
        stop = True
        assert sum(await asyncio.gather(*loading)) > 50
        await last.close()
    assert failures == []


async def test_address_in_use_is_reported_and_retried() -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind((ADDRESS, port))
        other.listen()
        async with endpoint("127.251.7.2") as a, proxy() as it:
            await it.apply({"default/web": rules(port, a)})
            assert it.problem and f"{ADDRESS}:{port}/TCP: Address already in use" in it.problem
            other.close()
            await it.retry_failed()
            assert it.problem is None
            assert await ask(port) == "127.251.7.2"


async def test_address_moves_to_another_service() -> None:
    port = free_port()
    async with endpoint("127.251.7.2") as a, endpoint("127.251.7.3") as b, proxy() as it:
        await it.apply({"default/one": rules(port, a)})
        await it.apply({"default/two": rules(port, b)})
        assert await ask(port) == "127.251.7.2"  # the first service keeps it
        await it.apply({"default/one": NO_RULES})
        assert await ask(port) == "127.251.7.3"
        await it.apply({"default/one": rules(port, a), "default/two": NO_RULES})
        assert await ask(port) == "127.251.7.2"


def test_affinity_lasts_until_its_timeout_after_the_last_connection() -> None:
    endpoints = tuple(Endpoint("127.0.0.1", port) for port in (1, 2, 3))
    now = 0.0
    it = EndpointBalancer(Rule("s", endpoints, affinity=10), lambda: now, random.Random(1))

    def connect(client: str) -> Endpoint:
        chosen = it.ordered_endpoints(client)[0]
        it.record_connection(client, chosen)
        return chosen

    first = connect("a")
    for now in (9.0, 18.0, 27.0):
        assert connect("a") == first
        assert {connect(f"{now}-{index}") for index in range(6)} == set(endpoints)
    left = tuple(item for item in endpoints if item != first)
    it.update(Rule("s", left, affinity=10))
    assert connect("a") in left
    it.update(Rule("s", endpoints, affinity=10))
    kept, now = connect("a"), 100.0
    assert len({connect("a"), *(it.ordered_endpoints(f"x{index}")[0] for index in range(3))}) == 3
    assert kept in endpoints


class _UdpServer(asyncio.DatagramProtocol):
    def __init__(self, name: str) -> None:
        self.name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(self.name.encode() + data, addr)


async def udp_server(host: str) -> tuple[asyncio.DatagramTransport, Endpoint]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _UdpServer(host), local_addr=(host, 0))
    return transport, Endpoint(host, transport.get_extra_info("sockname")[1])


async def test_udp_flows_keep_their_endpoint_until_it_is_gone() -> None:
    port = free_port(kind=socket.SOCK_DGRAM)
    loop = asyncio.get_running_loop()
    servers = [await udp_server(host) for host in ("127.251.7.2", "127.251.7.3")]
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    async def exchange() -> str:
        async with asyncio.timeout(2):
            await loop.sock_sendto(client, b"!", (ADDRESS, port))
            return (await loop.sock_recv(client, 100)).decode()

    try:
        async with proxy() as it:
            await it.apply({"default/web": rules(port, *(each for _, each in servers), protocol="UDP")})
            first = await exchange()
            assert {await exchange() for _ in range(5)} == {first}
            other = next(each for _, each in servers if f"{each.address}!" != first)
            await it.apply({"default/web": rules(port, other, protocol="UDP")})
            assert await exchange() == f"{other.address}!"
            # An endpoint that has ended rejects datagrams. The flow ends, and a later datagram gets another endpoint.
            await it.apply({"default/web": rules(port, *(each for _, each in servers), protocol="UDP")})
            next(transport for transport, each in servers if each == other).close()
            await asyncio.sleep(0.01)
            for _ in range(3):
                await loop.sock_sendto(client, b"?", (ADDRESS, port))
                await asyncio.sleep(0.01)
            async with asyncio.timeout(2):
                assert (await loop.sock_recv(client, 100)).decode().startswith(first[:-1])
    finally:
        client.close()
        for transport, _ in servers:
            transport.close()


async def test_idle_udp_flows_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(userspace, "UDP_IDLE", 0.0)
    monkeypatch.setattr(userspace, "SWEEP_INTERVAL", 0.02)
    port = free_port(kind=socket.SOCK_DGRAM)
    transport, server = await udp_server("127.251.7.2")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        async with proxy() as it:
            await it.apply({"default/web": rules(port, server, protocol="UDP")})
            client.sendto(b"!", (ADDRESS, port))
            listener = it._listeners[Frontend(ADDRESS, port, "UDP")]
            assert isinstance(listener, userspace._UdpListener)
            await asyncio.sleep(0.1)
            assert listener.flow_count == 0
    transport.close()
