"""What all tests share: free ports, and real etcd processes that end with the test run."""

import asyncio
import gc
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from unittest import mock

import grpc
import hypothesis
import pytest
from aetcd.rpc import CompactionRequest, DeleteRangeRequest, KVStub, LeaseLeasesRequest, LeaseRevokeRequest, LeaseStub

from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.cluster.etcd import EtcdBinary, EtcdMember, EtcdTls, etcd_command, etcd_environment, find_etcd, is_healthy
from pinnace.cluster.processes import PortAllocator
from tests.examples import examples

# How fast a busy machine makes examples says nothing about the code.
hypothesis.settings.register_profile(
    "pinnace", max_examples=examples(30), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("pinnace"), max_examples=10)
hypothesis.settings.load_profile("pinnace")

READY_TIMEOUT = 20.0

_folder = tempfile.TemporaryDirectory(prefix="pinnace-tests-")
tempfile.tempdir = None  # commands that tests run in a fork of this process read TMPDIR again
# Tests neither read nor write the kubeconfig of the user who runs them, and nor do the programs that they start.
REAL_HOME = Path(os.environ.setdefault("PINNACE_TESTS_REAL_HOME", os.environ.get("HOME") or str(Path.home())))
"""The home of the user, also in a worker of pytest-xdist, which inherits the environment."""
REAL_KUBECONFIGS = [
    Path(path)
    for path in os.environ.setdefault("PINNACE_TESTS_REAL_KUBECONFIG", os.environ.get("KUBECONFIG", "")).split(os.pathsep)
    if path
] + [REAL_HOME / ".kube" / "config"]
os.environ.setdefault("XDG_CACHE_HOME", str(REAL_HOME / ".cache"))  # of browsers and compilers
for _name in ("PINNACE_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
    os.environ.pop(_name, None)
os.environ |= {"HOME": f"{_folder.name}/home", "KUBECONFIG": f"{_folder.name}/kubeconfig"}
Path(os.environ["HOME"]).mkdir()


def contexts_of_pinnace(path: Path) -> int:
    """How often a kubeconfig names pinnace. The user may change the rest of it while the tests run."""
    try:
        return path.read_bytes().count(b"pinnace")
    except OSError:
        return 0


_before = {path: contexts_of_pinnace(path) for path in REAL_KUBECONFIGS}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test has written the user's own kubeconfig."""
    if changed := [str(path) for path, before in _before.items() if contexts_of_pinnace(path) != before]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\na test has written your own kubeconfig: {', '.join(changed)}")


# What a shell runs in its background ignores SIGINT, and so does all that this starts: the programs under test shall hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays: garbage collections, which stop everything, need not look through it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A component that runs within a test configures logging for all of the process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def stop_servers_at_once() -> Iterator[None]:
    """An API server in the test process that stops does not wait for late calls."""
    with mock.patch("pinnace.apiserver.server.DRAIN_GRACE", 0.0):
        yield


free_port = PortAllocator().next
"""A loopback port on which nothing listens, and that no outgoing connection of another test will take before a server does."""


@pytest.fixture(name="free_port")
def free_port_fixture() -> Callable[[], int]:
    return free_port


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, made to die when the test process does, however it ends. Not by preexec_fn: a fork with gRPC's threads in it
    may crash before it gets to exec."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)


class EtcdServer:
    """One running etcd member. `endpoint` is where clients find it, `http` where it says how it is, both host:port."""

    def __init__(
        self,
        binary: EtcdBinary,
        member: EtcdMember,
        members: Sequence[EtcdMember],
        flags: Sequence[str],
        tls: EtcdTls | None,
    ) -> None:
        self.endpoint = member.endpoint
        self.http = member.http
        self.version = binary.version
        self._command = [*etcd_command(binary, member, members, tls=tls, fsync=False), *flags]
        self.data_dir = member.data_dir
        self._log = member.data_dir.parent / f"{member.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, or starts it again after `kill` with its data; does not wait."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_us(self._command), env=etcd_environment(os.environ), stdout=log, stderr=log
            )

    async def wait_ready(self) -> None:
        process = self._process
        assert process is not None
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                while not await asyncio.to_thread(is_healthy, self.http):
                    assert process.poll() is None, "etcd ended while it was starting"
                    await asyncio.sleep(0.02)
        except Exception as error:
            error.add_note(self._log.read_text()[-4000:])
            raise

    def pause(self) -> None:
        """It stands still; its connections stay open. `kill` works all the same."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9. Allowed when it is gone already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)


class EtcdFactory(Protocol):
    def __call__(self, count: int, *flags: str, tls: EtcdTls | None = None) -> Awaitable[list[EtcdServer]]:
        """Starts a new cluster of `count` members, with more flags of etcd, and waits until it is healthy. Without `tls` it is
        spoken to in the clear."""
        ...


async def start_members(folder: Path, count: int, *flags: str, tls: EtcdTls | None = None) -> list[EtcdServer]:
    binary = find_etcd()
    members = [EtcdMember(f"etcd-{i}", folder / f"etcd-{i}", free_port(), free_port(), free_port()) for i in range(count)]
    servers = [EtcdServer(binary, member, members, flags, tls) for member in members]
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
    """Clusters of the test's own, to be killed, stopped and restarted at will."""
    if find_etcd().fallback:
        pytest.skip("this etcd loses committed writes when it is killed; install a newer one")
    started: list[EtcdServer] = []

    async def start(count: int, *flags: str, tls: EtcdTls | None = None) -> list[EtcdServer]:
        folder = tmp_path / f"etcd-cluster-{len(started)}"
        folder.mkdir()
        servers = await start_members(folder, count, *flags, tls=tls)
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
            try:
                await leases.LeaseRevoke(LeaseRevokeRequest(ID=lease.ID), timeout=5)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:  # an earlier test's, that has run out just now
                    raise
        keys = KVStub(channel)
        deleted = await keys.DeleteRange(DeleteRangeRequest(key=b"\0", range_end=b"\0"), timeout=5)
        # A server that starts also looks at what was there before: there shall be nothing of an earlier test.
        with suppress(grpc.aio.AioRpcError):  # compacted at this revision already
            await keys.Compact(CompactionRequest(revision=deleted.header.revision), timeout=5)
