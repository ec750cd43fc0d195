"""Etcd is restored from a backup under a running cluster: everybody notices, and goes on in the history that there is now."""

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from pathlib import Path

import pytest

from pinnace.api.apps_v1_pb2 import Deployment
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import DEPLOYMENTS
from pinnace.client.client import Client
from pinnace.client.connection import Connection
from pinnace.runtime.logs import ComponentRestarted, StoreRestored
from tests.builders import make_pod
from tests.conftest import EtcdFactory, EtcdServer
from tests.integration.conftest import Start
from tests.integration.processes import Component, log_of

NOTICED = 10.0
"""Seconds from the return of etcd until a new pod runs. By itself it takes one or two."""
GIVEN_UP = 60.0
"""Seconds until no component waits for a stopped server any more. By itself it takes five."""
SLEEP = [sys.executable, "-S", "-c", "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"]


class Backup:
    """Of one member's data, taken while it stands still."""

    def __init__(self, etcd: EtcdServer) -> None:
        self._etcd = etcd
        self._copy = etcd.data_dir.with_name("backup")

    async def take(self) -> None:
        self._etcd.kill()
        shutil.copytree(self._etcd.data_dir, self._copy)
        self._etcd.start()
        await self._etcd.wait_ready()

    async def restore(self) -> None:
        self._etcd.kill()
        shutil.rmtree(self._etcd.data_dir)
        shutil.copytree(self._copy, self._etcd.data_dir)
        self._etcd.start()
        await self._etcd.wait_ready()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder for pods, of which nothing runs after the test."""
    folder = tmp_path / "kubelet"
    yield folder
    subprocess.run([sys.executable, "-m", "pinnace.kubelet.runtime.process.root", folder], check=True, timeout=20)


class World:
    def __init__(self, backup: Backup, servers: Sequence[Component], others: Sequence[Component], client: Client) -> None:
        self.backup = backup
        self.servers = servers
        self.others = others
        self.client = client

    async def deploy(self, name: str, replicas: int = 2) -> list[Pod]:
        """Its pods, when they run."""
        deployment = Deployment()
        deployment.metadata.name, deployment.metadata.namespace = name, "default"
        deployment.spec.replicas = replicas
        deployment.spec.selector.matchLabels["app"] = name
        deployment.spec.template.metadata.labels["app"] = name
        pod = make_pod("template").req(cpu="10m").build()
        pod.spec.containers[0].command[:] = SLEEP
        deployment.spec.template.spec.CopyFrom(pod.spec)
        await self.client.of(DEPLOYMENTS).create(deployment)
        async with asyncio.timeout(NOTICED):
            while len(pods := await self.running(name)) < replicas:  # noqa: ASYNC110 - what watches do is under test
                await asyncio.sleep(0.05)
        return pods

    async def all_anew(self) -> None:
        """Wait until all components have restarted. Raises AssertionError with the logs of those that have not."""
        try:
            async with asyncio.timeout(GIVEN_UP):
                while not all(other.logged(ComponentRestarted) for other in self.others):  # noqa: ASYNC110 - in other processes
                    await asyncio.sleep(0.05)
        except TimeoutError:
            waiting = [other for other in self.others if not other.logged(ComponentRestarted)]
            raise AssertionError("\n".join(f"{item.name}:\n{item.log()[-5000:]}" for item in waiting)) from None

    async def tokens(self, other_than: Collection[int] = ()) -> set[int]:
        """Of a scheduler and of controllers that lead."""
        async with asyncio.timeout(NOTICED):
            while True:
                tokens = {election.token for election in (await self.client.elections.list())} - set(other_than)
                if len(tokens) == 2:
                    return tokens
                await asyncio.sleep(0.05)

    async def served(self, server: Component, name: str) -> None:
        """Wait until this server has the running pods of the deployment."""
        connection = Connection([server.address])
        try:
            async with asyncio.timeout(NOTICED):
                while not await running(Client(connection), name):  # noqa: ASYNC110 - another process serves it
                    await asyncio.sleep(0.05)
        finally:
            await connection.close()

    async def running(self, name: str) -> list[Pod]:
        return await running(self.client, name)

    async def pids(self, name: str) -> dict[str, str]:
        """By pod, of its process, once that has said it: it runs from before it has been loaded."""
        async with asyncio.timeout(NOTICED):
            return {pod.metadata.name: await self._said(pod.metadata.name) for pod in await self.running(name)}

    async def _said(self, pod: str) -> str:
        while not (said := await log_of(self.client, pod)):
            pass
        return said


async def running(client: Client, name: str) -> list[Pod]:
    result = (await client.pods.list(labels=f"app={name}")).items
    return [pod for pod in result if pod.status.phase == "Running"]


@pytest.fixture
async def world(root: Path, start_etcd: EtcdFactory, start: Start, tmp_path: Path) -> AsyncIterator[World]:
    (etcd,) = await start_etcd(1)
    servers = [start("apiserver", f"apiserver-{index}", "--etcd", etcd.endpoint) for index in range(2)]
    for server in servers:
        await server.ready()
    addresses = ",".join(server.address for server in servers)
    others = [
        start(module, f"{module}-{index}", "--server", addresses)
        for module in ("scheduler", "controllers") for index in (0, 1)
    ]  # fmt: skip
    others.append(
        start(
            "kubelet", "fleet", "--server", addresses, "--nodes", "2",
            "--runtime", "process", "--root-dir", str(root), "--listen", "127.0.0.1:0",
        )
    )  # fmt: skip
    for other in others:
        await other.ready()
    connection = Connection([server.address for server in servers])
    yield World(Backup(etcd), servers, others, Client(connection))
    await connection.close()


@pytest.mark.parametrize("fresh", [False, True], ids=["servers-that-go-on", "servers-that-start-anew"])
async def test_cluster_resumes_after_a_restore_without_intervention(world: World, fresh: bool) -> None:
    await world.deploy("before")
    pids = await world.pids("before")
    assert len(pids) == 2 and all(pid.startswith("pid ") for pid in pids.values())
    await world.backup.take()
    for number in range(3):
        await world.deploy(f"after-{number}")
    if fresh:
        for server in world.servers:
            server.kill()
    await world.backup.restore()
    if fresh:
        for server in world.servers:
            server.restart()
    for server in world.servers:
        await server.ready()
    began = time.monotonic()
    try:
        await world.deploy("new")
    except TimeoutError:
        raise AssertionError("\n".join(item.log()[-3000:] for item in world.others)) from None
    print(f"new pods ran {time.monotonic() - began:.2f} s after the servers were ready")
    assert {item.name: item.process.poll() for item in world.others} == {item.name: None for item in world.others}
    await world.all_anew()  # a standby may come back a moment later: pods do not wait for it
    for other in world.others:
        await other.ready()
    assert not await world.running("after-0"), "it has not happened"
    assert await world.pids("before") == pids, "what runs, runs on"


async def test_server_that_was_stopped_meanwhile_leaves_the_new_leaders_alone(world: World) -> None:
    """Once nobody has his informers there any more: who has, begins anew when it notices."""
    await world.deploy("before")
    before = await world.tokens()
    await world.backup.take()
    late = world.servers[1]
    await world.deploy("after")
    await world.served(late, "after")
    await world.deploy("later")  # meanwhile the informers of `late` receive the writes that are lost
    late.process.send_signal(signal.SIGSTOP)
    try:
        await world.backup.restore()
        await world.servers[0].ready()
        await world.all_anew()
        await world.deploy("since")
        since = await world.tokens(before)
    finally:
        late.process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(NOTICED):
        while not late.logged(StoreRestored):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    await late.ready()
    await world.deploy("new")
    assert await world.tokens() == since
