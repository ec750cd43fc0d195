"""Several gRPC servers behind one port."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import grpc
import grpc.aio
import pytest

from pinnace.apiserver.server import SHARDS, ApiServer, ListenerShards
from pinnace.runtime.logs import CertificateReloaded
from pinnace.runtime.tls import TlsFiles, shared_port_credentials
from tests.logged import logged
from tests.storage.memory import MemoryStorage
from tests.unit.client.certificates import certificates

METHOD = "/test/Which"
CONNECTIONS = 40
"""All of them end up in one line once in 8 to the 39th."""
DEADLINE = 10.0
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


def numbered() -> ListenerShards:
    """Each line says which it is."""
    numbers = count()

    def handlers() -> grpc.GenericRpcHandler:
        number = next(numbers)

        async def which(request: bytes, context: object) -> bytes:
            return bytes([number])

        return grpc.method_handlers_generic_handler("test", {"Which": grpc.unary_unary_rpc_method_handler(which)})

    return ListenerShards((), handlers)


@asynccontextmanager
async def serving(address: str) -> AsyncIterator[str]:
    lines = numbered()
    listening = lines.listen(address, None)
    await lines.start()
    try:
        yield listening
    finally:
        await lines.stop(0)


async def which(address: str) -> int:
    """The line that takes a new connection."""
    async with grpc.aio.insecure_channel(address, options=OWN_CONNECTION) as channel:
        (number,) = await channel.unary_unary(METHOD)(b"", timeout=DEADLINE)
        return int(number)


async def test_connections_are_spread_over_the_lines_of_one_port() -> None:
    async with serving("127.0.0.1:0") as address:
        seen = {await which(address) for _ in range(CONNECTIONS)}
    assert 1 < len(seen) <= SHARDS


async def test_port_has_one_server() -> None:
    """Even though its lines share it."""
    async with serving("127.0.0.1:0") as address:
        with pytest.raises(OSError, match=f"cannot listen on {address}: .*the port may be in use"):
            numbered().listen(address, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_only_one_of_two_concurrent_servers_listens(host: str) -> None:
    """Both have seen that nobody does before one of them shares the port among its lines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    refused = list[str]()

    def another_comes() -> grpc.ServerCredentials:
        if not refused:
            with pytest.raises(OSError, match="the port may be in use") as caught:
                numbered().listen(f"127.0.0.1:{port}", None)
            refused.append(str(caught.value))
        return grpc.local_server_credentials()

    lines = numbered()
    try:
        assert lines.listen(f"{host}:{port}", another_comes) == f"{host}:{port}"
        with pytest.raises(OSError, match="the port may be in use"):
            numbered().listen(f"0.0.0.0:{port}", None)
    finally:
        await lines.stop(0)
    assert refused


async def test_two_addresses_may_have_the_same_port() -> None:
    async with serving("127.0.0.1:0") as address:
        port = address.rpartition(":")[2]
        async with serving(f"127.0.0.2:{port}") as other:
            assert await which(other) < SHARDS


async def test_shared_port_is_refused() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="the port may be in use"):
            numbered().listen(f"127.0.0.1:{other.getsockname()[1]}", None)


async def test_server_that_has_stopped_may_start_again_at_once() -> None:
    async with serving("127.0.0.1:0") as address:
        await which(address)
    async with serving(address) as again:
        assert again == address
        await which(again)


@pytest.mark.parametrize("address", ["127.0.0.1:http-and-more", "nowhere.invalid:7000", "127.0.0.1"])
async def test_address_that_is_none(address: str) -> None:
    with pytest.raises(OSError, match="cannot listen on"):
        numbered().listen(address, None)


async def test_renewed_certificate_is_used_by_all_shards_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pinnace.runtime.tls")
    pki = certificates(tmp_path, "localhost")
    files = pki.files("server")
    lines = numbered()
    port = lines.listen("127.0.0.1:0", shared_port_credentials(files)).rpartition(":")[2]
    await lines.start()

    async def seen() -> set[bytes]:
        """The certificates that new connections are shown."""
        return {await shown_by(int(port), pki.files("client")) for _ in range(CONNECTIONS)}

    try:
        (former,) = await seen()
        for file in (files.cert, files.key):
            file.unlink()
        certificates(tmp_path, "localhost")
        (latter,) = await seen()
    finally:
        await lines.stop(0)
    assert former != latter
    assert logged(caplog, CertificateReloaded) == [CertificateReloaded(str(files.cert))] and len(caplog.records) == 1


async def shown_by(port: int, tls: TlsFiles) -> bytes:
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls.create_ssl_context(), server_hostname="localhost")
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_key_that_is_none_is_no_port_that_is_taken(tmp_path: Path) -> None:
    files = certificates(tmp_path, "localhost").files("server")
    assert files.key is not None
    files.key.write_text("")
    server = ApiServer(MemoryStorage())
    with pytest.raises(OSError) as caught:
        await server.start("127.0.0.1:0", files)
    assert str(caught.value) == f"{files.key}: not a PEM private key without a passphrase"
