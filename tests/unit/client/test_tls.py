"""Client and server present certificates.

A side without a certificate of the authority gets no connection, and certificates can be renewed.
"""

import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from pinnace.api.core_v1_pb2 import Node
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.client.connection import Connection
from pinnace.client.errors import ApiError
from pinnace.pki.folder import PkiFolder
from pinnace.runtime.tls import TlsFiles
from tests.unit.client.certificates import certificates
from tests.unit.client.fakeserver import FakeServer

GET = "/pinnace.v1.Nodes/Get"


@pytest.fixture
def pki(tmp_path: Path) -> PkiFolder:
    return certificates(tmp_path / "pki", "127.0.0.1", "localhost")


@pytest.fixture
async def server(pki: PkiFolder) -> AsyncIterator[FakeServer]:
    """A server that returns the serial number of the client's certificate."""

    async def answer(request: object, context: Any) -> Node:
        (shown,) = context.auth_context()["x509_pem_cert"]
        return Node(metadata={"name": str(x509.load_pem_x509_certificate(shown).serial_number)})

    server = FakeServer()
    server.on(GET, GetRequest, answer)
    await server.start(tls=pki.files("server"))
    yield server
    await server.stop()


def serial(tls: TlsFiles) -> str:
    return str(x509.load_pem_x509_certificate(tls.cert.read_bytes()).serial_number)


async def shown(connection: Connection, timeout: float = 5.0) -> str:
    """The serial number that the server received. Raises ApiError without a connection."""
    return (await connection.call(GET, GetRequest(name="a"), Node, timeout=timeout)).metadata.name


async def test_mutual_tls_connection(server: FakeServer, pki: PkiFolder) -> None:
    client = pki.files("client")
    connection = Connection([server.address], tls=client)
    assert await shown(connection) == serial(client)
    await connection.close()


async def test_server_is_verified_by_the_requested_name(server: FakeServer, pki: PkiFolder) -> None:
    connection = Connection([f"localhost:{server.address.rpartition(':')[2]}"], tls=pki.files("client"))
    assert await shown(connection)
    await connection.close()


async def test_client_without_a_certificate_is_refused(server: FakeServer) -> None:
    connection = Connection([server.address])
    with pytest.raises(ApiError):
        await shown(connection, timeout=0.5)
    await connection.close()
    assert not server.calls


async def test_client_certificate_of_another_authority_is_refused(server: FakeServer, pki: PkiFolder, tmp_path: Path) -> None:
    stranger = certificates(tmp_path / "other").files("client")
    connection = Connection([server.address], tls=TlsFiles(pki.files("client").ca, stranger.cert, stranger.key))
    with pytest.raises(ApiError):
        await shown(connection, timeout=0.5)
    await connection.close()
    assert not server.calls


async def test_server_of_another_authority_receives_nothing(server: FakeServer, pki: PkiFolder, tmp_path: Path) -> None:
    client = pki.files("client")
    connection = Connection(
        [server.address], tls=TlsFiles(certificates(tmp_path / "other").files("client").ca, client.cert, client.key)
    )
    with pytest.raises(ApiError):
        await shown(connection, timeout=0.5)
    await connection.close()
    assert not server.calls


async def test_server_with_another_name_receives_nothing(tmp_path: Path) -> None:
    pki = certificates(tmp_path / "pki", "apiserver.example")
    server = await FakeServer().start(tls=pki.files("server"))
    connection = Connection([server.address], tls=pki.files("client"))
    with pytest.raises(ApiError):
        await shown(connection, timeout=0.5)
    await connection.close()
    await server.stop()
    assert not server.calls


async def test_renewed_certificate_is_used_for_the_next_connection(server: FakeServer, pki: PkiFolder, tmp_path: Path) -> None:
    """The authority and all certificates are replaced without a restart."""
    client = pki.files("client")
    before = serial(client)
    connection = Connection([server.address], tls=client)
    assert await shown(connection) == before
    other = certificates(tmp_path / "other", "127.0.0.1", "localhost").path
    for name in ("ca.crt", "server.key", "server.crt", "client.key", "client.crt"):
        shutil.copy2(other / name, pki.path / name)
    assert await shown(connection) == before, "an open connection keeps its certificate"
    fresh = Connection([server.address], tls=client)
    assert await shown(fresh) == serial(client) != before
    await fresh.close()

    address = server.address
    await server.stop()
    again = FakeServer()
    again._handlers = server._handlers
    await again.start(address, tls=pki.files("server"))
    assert await shown(connection) == serial(client), "a reconnecting client uses the new certificate"
    await connection.close()
    await again.stop()


async def test_expired_certificate_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinnace.client.connection.PROBE_AFTER", 0.1)
    pki = certificates(tmp_path / "old", "127.0.0.1", made=datetime(2001, 1, 1, tzinfo=UTC))
    server = await FakeServer().start(tls=pki.files("server"))
    connection = Connection([server.address], tls=pki.files("client"))
    with pytest.raises(ApiError, match=f"{server.address} .invalid certificate: certificate has expired."):
        await shown(connection, timeout=3.0)
    await connection.close()
    await server.stop()
