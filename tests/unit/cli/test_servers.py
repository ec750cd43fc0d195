"""The errors of unreachable servers, which are reported before the verb runs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from pinnace.cli.outcomes import ExitCode, Failure
from pinnace.cli.servers import CERTIFICATES, connect_to_any_server
from pinnace.client import connection
from pinnace.client.config import ClientConfig
from pinnace.cluster.folder import ClusterFolder as ClusterFolder
from pinnace.cluster.spec import APISERVER, ClusterSpec, ClusterState, ProcessPlan, ProcessRecord
from pinnace.pki import Authority, Subject
from pinnace.pki.authority import CertificatePair
from pinnace.pki.folder import PkiFolder
from pinnace.runtime import procfs
from pinnace.runtime.http import StatusServer
from pinnace.runtime.tls import TlsFiles
from tests.unit.client.certificates import certificates
from tests.unit.client.fakeserver import FakeServer


@pytest.fixture
def pki(tmp_path: Path) -> PkiFolder:
    return certificates(tmp_path / "pki", "127.0.0.1")


@pytest.fixture
async def server(pki: PkiFolder) -> AsyncIterator[FakeServer]:
    server = await FakeServer().start(tls=pki.files("server"))
    yield server
    await server.stop()


async def test_server_is_reachable_with_and_without_tls(server: FakeServer, pki: PkiFolder) -> None:
    await connect_to_any_server(ClientConfig((server.address,), tls=pki.files("client")))
    plain = await FakeServer().start()
    await connect_to_any_server(ClientConfig((plain.address,)))
    await plain.stop()


async def test_connect_to_any_server_needs_one_reachable_server(server: FakeServer, pki: PkiFolder) -> None:
    await connect_to_any_server(ClientConfig(("127.0.0.1:1", server.address), tls=pki.files("client")))


async def refused(server: FakeServer, tls: TlsFiles | None) -> Failure:
    with pytest.raises(Failure, match=f"no API server answers at {server.address}") as caught:
        await connect_to_any_server(ClientConfig((server.address,), tls=tls))
    assert caught.value.report.hint == CERTIFICATES and caught.value.report.code is ExitCode.UNAVAILABLE
    return caught.value


async def test_server_of_another_authority_is_refused(server: FakeServer, tmp_path: Path) -> None:
    failure = await refused(server, certificates(tmp_path / "other").files("client"))
    assert "invalid certificate: unable to get local issuer certificate" in str(failure)


async def test_client_certificate_of_another_authority_is_refused(server: FakeServer, pki: PkiFolder, tmp_path: Path) -> None:
    stranger = certificates(tmp_path / "other").files("client")
    failure = await refused(server, TlsFiles(pki.files("client").ca, stranger.cert, stranger.key))
    assert "it rejects the client certificate" in str(failure) or "alert" in str(failure)


async def test_http_address_is_recognized(server: FakeServer, pki: PkiFolder) -> None:
    """`pinnace status` shows this address next to the gRPC address."""
    status = StatusServer("127.0.0.1", 0, {}, asyncio.get_running_loop())
    status.start()
    with pytest.raises(Failure, match="it does not speak TLS") as caught:
        await connect_to_any_server(ClientConfig((status.address,), tls=pki.files("client")))
    assert "for an API server" in caught.value.report.hint
    await asyncio.to_thread(status.stop)


@pytest.mark.parametrize("silent", [True, False])
async def test_hint_for_an_unresponsive_process_is_to_kill_it(
    pki: PkiFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 0.05)
    us = procfs.identify_process(os.getpid())
    assert us is not None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if not silent:
            listener.close()
        record = ProcessRecord(ProcessPlan(APISERVER, "apiserver-0", address, "127.0.0.1:1", ("x",)), us)
        ClusterFolder(tmp_path).write(ClusterState(ClusterSpec(data_dir=tmp_path), 0.0, (), (record,)))
        with pytest.raises(Failure) as caught:
            await connect_to_any_server(ClientConfig((address,), data_dir=tmp_path, tls=pki.files("client")))
    assert (f"kill -9 {os.getpid()}" in caught.value.report.hint) is silent


@pytest.mark.parametrize(("days", "said", "hint"), [(-400, "has expired", "`pinnace restart`"), (9, "not yet valid", "clock")])
async def test_expired_or_future_server_certificate_is_refused(pki: PkiFolder, days: int, said: str, hint: str) -> None:
    ours = pki.files("server")
    ca = Authority(CertificatePair((pki.path / "ca.crt").read_bytes(), (pki.path / "ca.key").read_bytes()))
    pair = ca.issue(Subject("server"), datetime.now(UTC) + timedelta(days=days), hosts=["127.0.0.1"])
    ours.cert.write_bytes(pair.certificate)
    ours.key.write_bytes(pair.key)
    server = await FakeServer().start(tls=ours)
    try:
        with pytest.raises(Failure, match=said) as caught:
            await connect_to_any_server(ClientConfig((server.address,), tls=pki.files("client")))
        assert hint in caught.value.report.hint
    finally:
        await server.stop()


async def test_client_without_certificates_is_refused(server: FakeServer) -> None:
    assert "TLS" in str(await refused(server, None))


NO_CERTIFICATE, NO_KEY = "not a PEM certificate", "not a PEM private key without a passphrase"


@pytest.mark.parametrize(
    ("key", "file", "holds", "said"),
    [
        ("certificate-authority", "ca.crt", None, "no such file or directory"),
        ("client-certificate", "client.crt", None, "no such file or directory"),
        ("client-key", "client.key", None, "no such file or directory"),
        ("certificate-authority", "ca.crt", "", NO_CERTIFICATE),
        ("certificate-authority", "ca.crt", "garbage", NO_CERTIFICATE),
        ("client-certificate", "client.crt", "garbage", NO_CERTIFICATE),
        ("client-key", "client.key", "garbage", NO_KEY),
        ("client-key", "client.key", "server.key", "not the key of {}/client.crt"),
    ],
)
async def test_unusable_certificate_file_is_named(pki: PkiFolder, key: str, file: str, holds: str | None, said: str) -> None:
    changed, other = pki.path / file, pki.path / (holds or "none")
    if holds is None:
        changed.unlink()
    else:
        changed.write_bytes(other.read_bytes() if other.exists() else holds.encode())
    with pytest.raises(Failure) as caught:
        await connect_to_any_server(ClientConfig(("127.0.0.1:1",), tls=pki.files("client")))
    assert str(caught.value) == f"the certificates cannot be used: {key} {changed}: {said.format(pki.path)}"
    assert caught.value.report.code is ExitCode.USAGE


async def test_encrypted_key_prompts_for_no_passphrase(pki: PkiFolder) -> None:
    """A component has no terminal for a prompt."""
    file = pki.path / "client.key"
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    form, locked = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
    with pytest.raises(Failure, match=f"client-key {file}: {NO_KEY}"):
        await connect_to_any_server(ClientConfig(("127.0.0.1:1",), tls=pki.files("client")))


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_malformed_host_name_is_reported(host: str) -> None:
    with pytest.raises(Failure) as caught:
        await connect_to_any_server(ClientConfig((f"{host}:80",)))
    assert str(caught.value) == f"no API server answers at {host}:80 (no such host)"
    assert caught.value.report.code is ExitCode.UNAVAILABLE and caught.value.report.hint
