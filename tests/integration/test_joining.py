"""A machine joins by a token: `pinnace signer`, `token` and `join`, and the kubelet with the certificate that it gets."""

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pinnace.api.core_v1_pb2 import Node, Secret
from pinnace.api.resources import SECRETS
from pinnace.client.client import Client
from pinnace.client.config import load_config
from pinnace.client.connection import Connection
from pinnace.cluster.certificates import create_certificates
from pinnace.cluster.joining import token_secret
from pinnace.pki.bootstrap import BootstrapToken, certificate_pin
from tests.conftest import EtcdServer, dying_with_us, free_port, wipe
from tests.integration.conftest import Start
from tests.integration.test_kubelet import eventually, until

TIMEOUT = 40.0


@dataclass
class Site:
    """A cluster with a signer, and the machine of its administrator. `folder`: where the new machine is."""

    pki: Path
    folder: Path
    signer: str
    client: Client

    @property
    def pin(self) -> str:
        return certificate_pin((self.pki / "ca.crt").read_bytes())

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command of pinnace, and return what it prints; of one that fails, its errors."""
        environment = os.environ | {"KUBECONFIG": str(self.pki / "admin.conf"), "NO_COLOR": "1", "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "pinnace.cli.entry", *arguments],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def join(self, token: object, *, pin: str = "", name: str = "delta", code: int = 0) -> str:
        pinned = ("--discovery-token-ca-cert-hash", pin or self.pin)
        return self.run("join", self.signer, "--token", str(token), *pinned, "--node-name", name, code=code)

    async def store(self, secret: Secret) -> None:
        await self.client.of(SECRETS).create(secret)


def start_signer(pki: Path, address: str, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pinnace.cli.entry", "signer", str(pki), "--listen", address]
    with log.open("wb") as file:
        return subprocess.Popen(dying_with_us(command), stdout=file, stderr=file)


@pytest.fixture
async def site(etcd: EtcdServer, start: Start, tmp_path: Path) -> AsyncIterator[Site]:
    await wipe(etcd.endpoint)
    pki, machine = tmp_path / "pki", tmp_path / "delta"
    machine.mkdir()
    address = f"127.0.0.1:{free_port()}"
    create_certificates(pki, [address], {"alpha": ["alpha-*"]})
    files = ("--tls-cert-file", pki / "apiserver.crt", "--tls-private-key-file", pki / "apiserver.key")
    arguments = ("--listen", address, "--etcd", etcd.endpoint, "--client-ca-file", pki / "ca.crt", *files)
    disabled = ("--disable-admission-plugins", "ServiceAccount")
    component = start("apiserver", "apiserver-0", *map(str, arguments), *disabled, insecure=False)
    await component.ready()
    signer = f"127.0.0.1:{free_port()}"
    config = load_config(file=pki / "admin.conf")
    connection = Connection(config.endpoints, tls=config.tls)
    process = start_signer(pki, signer, tmp_path / "signer.log")
    try:
        await eventually(lambda: "signer on" in (tmp_path / "signer.log").read_text())
        yield Site(pki, machine, signer, Client(connection))
    finally:
        process.kill()
        process.wait(10)
    await connection.close()


async def test_machine_joins_by_the_printed_command_and_its_nodes_become_ready(site: Site, start: Start) -> None:
    command = site.run("token", "create", "--print-join-command", "--ttl", "1h").split()
    assert command[:3] == ["pinnace", "join", site.signer]
    site.run(*command[1:], "--node-name", "delta")
    folder = site.folder / "pki"
    assert {path.name for path in folder.iterdir()} == {"ca.crt", "delta.crt", "delta.key", "delta.conf"}
    assert (folder / "delta.key").stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE KEY" not in (folder / "ca.crt").read_bytes()
    kubelet = start("kubelet", "delta", "--kubeconfig", str(folder / "delta.conf"), "--nodes", "2")
    await kubelet.ready()
    await until(site.client.nodes, lambda nodes: is_ready(nodes, "delta-0") and is_ready(nodes, "delta-1"))


def is_ready(nodes: Mapping[str, Node], name: str) -> bool:
    node = nodes.get(name)
    return node is not None and any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)


async def test_token_cannot_take_over_nodes_that_exist(site: Site, start: Start) -> None:
    token = site.run("token", "create").strip()
    assert '"alpha" has a certificate' in site.join(token, name="alpha", code=6)
    site.join(token)
    kubelet = start("kubelet", "delta", "--kubeconfig", str(site.folder / "pki/delta.conf"), "--nodes", "1")
    await kubelet.ready()
    assert "delete the file, or use another --cert-dir" in site.join(token, code=2)
    (site.folder / "pki").rename(site.folder / "earlier")
    assert 'the node "delta-0" exists' in site.join(token, code=6)
    assert not (site.folder / "pki").exists()


async def test_wrong_tokens_and_hashes_are_refused(site: Site) -> None:
    good = BootstrapToken.parse(site.run("token", "create").strip())
    assert "the token is unknown or has expired" in site.join(f"{good.id}.0000000000000000", code=6)
    assert "the token is unknown or has expired" in site.join("zzzzzz.0000000000000000", code=6)
    assert "not of the form [a-z0-9]{6}.[a-z0-9]{16}" in site.join("short", code=2)
    assert "has none of the given hashes" in site.join(good, pin=f"sha256:{'0' * 64}", code=6)
    assert "not of the form sha256:HEX" in site.join(good, pin="sha256:12", code=2)
    site.run("token", "delete", good.id)
    assert "the token is unknown or has expired" in site.join(good, code=6)


async def test_expired_token_is_refused_and_deleted(site: Site) -> None:
    old = BootstrapToken.generate()
    await site.store(token_secret(old, datetime.now(UTC) - timedelta(minutes=1), "of yesterday"))
    assert "<expired>" in site.run("token", "list")
    assert "the token is unknown or has expired" in site.join(old, code=6)
    assert str(old) not in site.run("token", "list")


async def test_tokens_for_other_purposes_do_not_let_machines_join(site: Site) -> None:
    other = BootstrapToken.generate()
    secret = token_secret(other, None, "")
    secret.data["auth-extra-groups"] = b"system:bootstrappers:others"
    await site.store(secret)
    assert "the token is unknown or has expired" in site.join(other, code=6)


async def test_joined_machine_can_do_no_more_than_a_kubelet(site: Site) -> None:
    site.join(site.run("token", "create").strip())
    assert "forbidden" in site.run("token", "list", "--kubeconfig", "pki/delta.conf", code=1).lower()


def test_cluster_info_is_public_and_contains_no_secret(site: Site) -> None:
    site.run("token", "create")
    context = ssl.create_default_context(cafile=site.pki / "ca.crt")
    with urllib.request.urlopen(f"https://{site.signer}/cluster-info", timeout=TIMEOUT, context=context) as answer:
        info = json.loads(answer.read())
    assert info.keys() == {"signer", "ca.crt", "servers"} and info["signer"] == site.signer
    assert info["ca.crt"] == (site.pki / "ca.crt").read_text()
