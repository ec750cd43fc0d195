"""What all tests share: free ports, and real etcd processes that end with the test run."""

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import pytest
from aetcd.rpc import DeleteRangeRequest, KVStub, LeaseLeasesRequest, LeaseRevokeRequest, LeaseStub

from apiserver.storage.etcd import EtcdStorage
from pinnace.cluster.etcd import EtcdBinary, EtcdMember, etcd_command, etcd_environment, find_etcd, wait_ready

READY_TIMEOUT = 20.0


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(name="free_port")
def free_port_fixture() -> Callable[[], int]:
    return free_port


def die_with_parent() -> None:
    """In a child before exec: SIGKILL when the test process ends, however it ends (Linux)."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class EtcdServer:
    """One running etcd member. `endpoint` is host:port."""

    def __init__(self, binary: EtcdBinary, member: EtcdMember, members: Sequence[EtcdMember]) -> None:
        self.endpoint = member.endpoint
        self.version = binary.version
        self._command = etcd_command(binary, member, members, fsync=False)
        self._log = member.data_dir.parent / f"{member.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, or starts it again after `kill` with its data; does not wait."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=etcd_environment(os.environ), stdout=log, stderr=log, preexec_fn=die_with_parent
            )

    async def wait_ready(self) -> None:
        process = self._process
        assert process is not None
        try:
            await wait_ready([self.endpoint], READY_TIMEOUT, running=lambda: process.poll() is None)
        except Exception as error:
            error.add_note(self._log.read_text()[-4000:])
            raise

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT are of use."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9. Allowed when it is gone already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


EtcdFactory = Callable[[int], Awaitable[list[EtcdServer]]]


async def start_members(folder: Path, count: int) -> list[EtcdServer]:
    binary = find_etcd()
    members = [EtcdMember(f"etcd-{i}", folder / f"etcd-{i}", free_port(), free_port()) for i in range(count)]
    servers = [EtcdServer(binary, member, members) for member in members]
    for server in servers:
        server.start()
    for server in servers:
        await server.wait_ready()
    return servers


@pytest.fixture(scope="session")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdServer]:
    """An etcd that the whole test run shares: leave it running. Its revision only grows; start from what you read."""
    (server,) = await start_members(tmp_path_factory.mktemp("etcd"), 1)
    yield server
    server.kill()


@pytest.fixture
async def start_etcd(tmp_path: Path) -> AsyncIterator[EtcdFactory]:
    """Starts a cluster of its own with that many members, to be killed, stopped and restarted at will."""
    if find_etcd().fallback:
        pytest.skip("this etcd loses committed writes when it is killed; install a newer one")
    started: list[EtcdServer] = []

    async def start(count: int) -> list[EtcdServer]:
        folder = tmp_path / f"etcd-cluster-{len(started)}"
        folder.mkdir()
        servers = await start_members(folder, count)
        started.extend(servers)
        return servers

    yield start
    for server in started:
        server.kill()


@pytest.fixture
async def etcd_storage(etcd: EtcdServer) -> AsyncIterator[EtcdStorage]:
    """The shared etcd, empty: no keys, no leases."""
    await wipe(etcd.endpoint)
    storage = EtcdStorage([etcd.endpoint])
    yield storage
    await storage.close()


async def wipe(endpoint: str) -> None:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        leases = LeaseStub(channel)
        for lease in (await leases.LeaseLeases(LeaseLeasesRequest(), timeout=5)).leases:
            await leases.LeaseRevoke(LeaseRevokeRequest(ID=lease.ID), timeout=5)
        await KVStub(channel).DeleteRange(DeleteRangeRequest(key=b"\0", range_end=b"\0"), timeout=5)
