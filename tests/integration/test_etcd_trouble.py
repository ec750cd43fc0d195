"""A cluster whose etcd loses its quorum, or its leader: honest while it lasts, and well again by itself.

The quorum is lost for 10 s here; PINNACE_QUORUM_LOSS=30 makes it 30, PINNACE_REPEAT=5 repeats it (`make soak`)."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from aetcd.rpc import MaintenanceStub, StatusRequest

from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.api.verbs_pb2 import GetRequest
from pinnace.apiserver.services.methods import READ_TIMEOUT
from pinnace.apiserver.storage.etcd import EtcdStorage
from pinnace.apiserver.storage.interface import StorageError
from pinnace.client.client import Client
from pinnace.client.errors import AlreadyExists, ApiError
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.spec import ETCD, ClusterSpec
from pinnace.runtime.tls import TlsFiles
from tests.builders import make_pod
from tests.integration.witnesses import PATIENCE, Seen, compare, loads, witnesses

pytestmark = pytest.mark.chaos

LOSS = float(os.environ.get("PINNACE_QUORUM_LOSS", "10"))
REPEAT = int(os.environ.get("PINNACE_REPEAT", "1"))
FIRST_BIND = 3.0
"""Seconds after the quorum is back."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    spec = ClusterSpec(nodes=3, schedulers=2, apiservers=2, etcd_members=3, data_dir=tmp_path / "cluster")
    cluster = Cluster(spec)
    await cluster.up()
    yield cluster
    await cluster.down()


async def run_pods(client: Client, *names: str) -> dict[str, str]:
    """Creates pods and waits until they run; their uids."""
    await client.pods.create_batch([make_pod(name).req(cpu="10m").new() for name in names])
    async with asyncio.timeout(PATIENCE):
        while True:
            listed = (await client.pods.list()).items
            if all(pod.status.phase == "Running" for pod in listed):
                return {pod.metadata.name: pod.metadata.uid for pod in listed}
            await asyncio.sleep(0.05)


async def honest(endpoint: str, tls: TlsFiles) -> None:
    """A read at this server fails, as UNAVAILABLE, within the time that servers allow themselves; but for those that were
    answered by what was under way when the quorum was lost."""
    async with grpc.aio.secure_channel(endpoint, tls.read().for_channel()) as channel:
        call = channel.unary_unary(f"/{PODS.service}/Get", GetRequest.SerializeToString, Pod.FromString)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(READ_TIMEOUT + 1.0):
                while True:
                    await call(GetRequest(namespace="default", name="runs-0"), timeout=2 * READ_TIMEOUT)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def create_when_possible(client: Client, name: str) -> None:
    while True:
        try:
            await client.pods.create(make_pod(name).req(cpu="10m").new())
        except AlreadyExists:  # an answer was lost
            return
        except ApiError:
            continue
        return


async def bound(storage: EtcdStorage, name: str) -> float:
    """When the pod has a node, in etcd."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StorageError):
                record = await storage.get(PODS.key("default", name))
                if record is not None and Pod.FromString(record.value).spec.nodeName:
                    return time.monotonic()
            await asyncio.sleep(0.01)


async def answers(storage: EtcdStorage) -> float:
    """When etcd has a quorum again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StorageError):
                await storage.current_revision()
                return time.monotonic()


async def lose_quorum(cluster: Cluster, client: Client, number: int, how: signal.Signals) -> float:
    """Without two of three members for LOSS seconds; how long after their return a pod is bound that waits to be created."""
    members = [record.name for record in cluster.state.processes_of(ETCD)][:2]
    storage = EtcdStorage(
        [record.plan.address for record in cluster.state.processes_of(ETCD)], tls=cluster.etcd_tls, timeout=0.5
    )
    try:
        for name in members:
            cluster.kill(name, how)
        until = time.monotonic() + LOSS
        await asyncio.gather(*(honest(endpoint, cluster.tls) for endpoint in cluster.endpoints))
        creating = asyncio.ensure_future(create_when_possible(client, f"waits-{number}"))
        known = (await client.pods.list(resource_version="0")).items
        phases = {pod.status.phase for pod in known if pod.metadata.name.startswith("runs-")}
        assert phases == {"Running"}, "what is known is still told, to those who ask for it"
        await asyncio.sleep(max(0.0, until - time.monotonic()))
        assert cluster.stopped_processes() == (members if how is signal.SIGKILL else []), "a process has ended"
        if how is signal.SIGKILL:
            back = asyncio.ensure_future(cluster.restart(members))
        else:
            for name in members:
                cluster.kill(name, signal.SIGCONT)
            back = asyncio.ensure_future(asyncio.sleep(0))
        since, at = await asyncio.gather(answers(storage), bound(storage, f"waits-{number}"))
        await asyncio.gather(back, creating)
        return at - since
    finally:
        await storage.close()


@pytest.mark.timeout(60 + REPEAT * (LOSS + 30))
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_quorum_is_lost_and_comes_back(cluster: Cluster, how: signal.Signals) -> None:
    async with cluster.client() as client, witnesses(cluster, 2) as result:
        uids = await run_pods(client, *(f"runs-{number}" for number in range(5)))
        pids = {record.name: cluster.pid(record.name) for record in cluster.state.processes if record.component != ETCD}
        took = [await lose_quorum(cluster, client, number, how) for number in range(REPEAT)]
        moments = ", ".join(f"{item:.2f} s" for item in took)
        print(f"{how.name}, {LOSS:g} s without quorum; first bind after its return: {moments}")
        assert max(took) < FIRST_BIND
        assert {name: cluster.pid(name) for name in pids} == pids, "a process was restarted"
        listed = {pod.metadata.name: pod for pod in (await client.pods.list()).items}
        assert {name: listed[name].metadata.uid for name in uids} == uids
        assert {listed[name].status.phase for name in uids} == {"Running"}
        history = await compare(cluster, result)
        assert history.tokens == sorted(set(history.tokens))
        assert (await client.elections.get("scheduler")).token == history.tokens[-1]


async def leading_member(cluster: Cluster) -> str:
    shown = cluster.etcd_tls.read().for_channel()
    for record in cluster.state.processes_of(ETCD):
        async with grpc.aio.secure_channel(record.plan.address, shown) as channel:
            status = await MaintenanceStub(channel).Status(StatusRequest(), timeout=5)
            if status.leader == status.header.member_id:
                return record.name
    raise AssertionError("etcd has no leader")


async def test_leader_of_etcd_is_killed(cluster: Cluster) -> None:
    """Watches go on without loss, and what was acknowledged is there."""
    async with cluster.client() as client, witnesses(cluster, 4) as result, loads(cluster, 3) as load:
        for _ in range(2):
            calls = [item.calls for item in load]
            name = await leading_member(cluster)
            cluster.kill(name)
            killed = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                while any(each.calls < had + 10 for each, had in zip(load, calls, strict=True)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            print(f"{name} killed: everybody's calls go on within {time.monotonic() - killed:.1f} s")
            await cluster.start(name)
        for item in load:
            await item.stop()
        await client.pods.list()
        history = await compare(cluster, result)
        happened = set(history.pods)
        created = {Seen(revision, PODS.key("default", name), False) for item in load for name, revision in item.created.items()}
        errors = [error for item in load for error in item.errors]
        print(f"{len(created)} creates were acknowledged, {len(history.pods)} events; errors: {errors}")
        assert created and created <= happened
        assert history.tokens == sorted(set(history.tokens))
        assert [error for error in errors if "OutcomeUnknown(" not in error] == []
