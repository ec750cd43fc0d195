"""A page of three pods in a cluster with the process runtime, reached through the service proxy."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dnslib import DNSRecord

from pinnace.api.core_v1_pb2 import Namespace, Pod, Service
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.policy_v1_pb2 import Eviction
from pinnace.api.resources import DEPLOYMENTS, IP_ADDRESSES, SERVICES
from pinnace.client.client import Client
from pinnace.client.errors import Exhausted, NotFound, error_of
from pinnace.cluster import certificates
from pinnace.cluster.cluster import Cluster
from pinnace.cluster.errors import StartFailed
from pinnace.cluster.spec import DNS, PROCESS, ClusterSpec, pki_folder
from pinnace.verification.bench import pages
from pinnace.verification.bench.load import NAMESPACE
from pinnace.verification.bench.pages import PageLoad
from pinnace.verification.bench.services import kill_listener
from tests.conftest import free_port

# one at a time: process pods of all clusters on a machine have the same addresses
pytestmark = [pytest.mark.stories, pytest.mark.timeout(240), pytest.mark.xdist_group("process-runtime")]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    spec = ClusterSpec(
        nodes=3,
        schedulers=1,
        apiservers=1,
        controllers=1,
        runtime=PROCESS,
        proxy=True,
        gateways=1,
        data_dir=tmp_path / "cluster",
    )
    cluster = Cluster(spec)
    await cluster.up()
    yield cluster
    await cluster.down()


async def scale(client: Client, replicas: int) -> None:
    await client.of(DEPLOYMENTS).modify("web", NAMESPACE, lambda item: setattr(item.spec, "replicas", replicas))
    await pages.wait_for_deployment(client, "web", replicas)


async def served(service: Service, timeout: float = 10.0) -> str:
    async with asyncio.timeout(timeout):
        while True:
            try:
                return await pages.request_page(service.spec.clusterIP, 80)
            except OSError:
                await asyncio.sleep(0.02)


async def page(client: Client) -> Service:
    """A Deployment of three ready pods, and its service, which answers."""
    await client.of(DEPLOYMENTS).create(pages.build_page_deployment("web", 3))
    service = await client.of(SERVICES).create(pages.build_page_service("web"))
    await pages.wait_for_deployment(client, "web", 3)
    await served(service)
    return service


async def refused(service: Service, timeout: float = 5.0) -> None:
    async with asyncio.timeout(timeout):
        while True:
            try:
                await pages.request_page(service.spec.clusterIP, 80, 1.0)
            except ConnectionRefusedError:
                return
            except OSError:
                pass
            await asyncio.sleep(0.02)


async def test_page_of_three_pods_is_served_evenly_through_crashes_and_updates(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.of(DEPLOYMENTS).create(pages.build_page_deployment("web", 3))
        service = await pages.create_page_service(
            client, pages.build_page_service("web", type="NodePort"), f"127.250.{os.getpid() % 256}.1", free_port()
        )
        await pages.wait_for_deployment(client, "web", 3)
        address, node_port = service.spec.clusterIP, service.spec.ports[0].nodePort
        await served(service)

        counts = Counter([await pages.request_page(address, 80) for _ in range(300)])
        assert len(counts) == 3 and pages.chi_square_p_value(counts) > 0.01, counts
        assert {await pages.request_page("127.0.0.1", node_port) for _ in range(6)} == set(counts)

        assert await asyncio.to_thread(_resolve, cluster, "web.default.svc.cluster.local") == address
        kubernetes = (await client.of(SERVICES).get("kubernetes", "default")).spec.clusterIP
        assert await asyncio.to_thread(_resolve, cluster, "kubernetes.default.svc.cluster.local") == kubernetes
        assert await asyncio.to_thread(_resolve, cluster, "10-0-0-1.kube-system.pod.cluster.local") == "10.0.0.1"

        # a rolling update under load: no request fails
        async with PageLoad(address, 80, interval=0.01) as load:
            await load.wait_for_requests(100, 20)
            await client.of(DEPLOYMENTS).modify("web", NAMESPACE, _updated)
            await pages.wait_for_deployment(client, "web", 3)
            await load.wait_for_requests(load.requests + 100, 20)
        assert load.failures == []
        assert len(set(load.answers) - set(counts)) == 3, "the pods were not replaced"

        # a killed pod: only requests that it was serving fail
        victim = next(
            pod for pod in (await client.pods.list(NAMESPACE)).items if not pod.metadata.HasField("deletionTimestamp")
        )
        async with PageLoad(address, 80, callers=4, interval=0.01) as load:
            await load.wait_for_requests(50, 20)
            kill_listener(victim.status.podIP, pages.PORT)
            await load.wait_for_requests(load.requests + 300, 30)
        assert len(load.failures) <= load.callers, load.failures

        # the proxy is killed and started again
        assert "services with ready endpoints that accept connections: 2 of 2" in await asyncio.to_thread(_doctor, cluster)
        cluster.kill("proxy-0")
        await refused(service)
        diagnosis = await asyncio.to_thread(_doctor, cluster)
        assert "no connection to default/kubernetes, default/web" in diagnosis, diagnosis
        assert "proxy-0 is not running" in diagnosis
        await cluster.restart(["proxy-0"])
        await served(service, 1.0)
        assert {item.name: item.ready for item in await cluster.status()}["proxy-0"]

        # the API server is away: the proxy goes on with what it knows
        cluster.kill("apiserver-0", signal.SIGSTOP)
        assert len({await pages.request_page(address, 80) for _ in range(6)}) >= 2
        cluster.kill("apiserver-0", signal.SIGCONT)

        await scale(client, 0)
        await refused(service)
        await scale(client, 2)
        await served(service)
        assert await pages.request_page("127.0.0.1", node_port)


async def test_requests_succeed_while_the_proxy_is_replaced_and_a_node_is_drained(cluster: Cluster) -> None:
    async with cluster.client() as client:
        service = await page(client)
        address = service.spec.clusterIP

        # a graceful restart of the proxy under load
        async with PageLoad(address, 80, interval=0.005) as load:
            await load.wait_for_requests(50, 20)
            for _ in range(3):
                before = cluster.pid("proxy-0")
                await cluster.replace_by_successor("proxy-0", timeout=30)
                assert cluster.pid("proxy-0") not in (0, before)
                await load.wait_for_requests(load.requests + 50, 20)
            command = [
                sys.executable,
                "-m",
                "pinnace.cli.entry",
                "restart",
                "proxy-0",
                "--data-dir",
                str(cluster.spec.data_dir),
            ]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=40, check=False)
            assert "proxy-0 was replaced without interruption (pid" in done.stdout, (done.stdout, done.stderr)
            cluster._refresh()
            await load.wait_for_requests(load.requests + 50, 20)
        assert load.failures == []
        assert await asyncio.to_thread(_resolve, cluster, "web.default.svc.cluster.local") == address

        # a successor that cannot get ready: the running proxy continues
        before = cluster.pid("proxy-0")
        cluster.kill("apiserver-0", signal.SIGSTOP)
        async with PageLoad(address, 80, interval=0.01) as load:
            with pytest.raises(StartFailed, match="a successor of proxy-0 was not ready within 3 s"):
                await cluster.replace_by_successor("proxy-0", timeout=3)
            await load.wait_for_requests(load.requests + 50, 20)
        cluster.kill("apiserver-0", signal.SIGCONT)
        assert load.failures == [] and cluster.pid("proxy-0") == before

        # a drain under load
        pod = (await client.pods.list(NAMESPACE)).items[0]
        async with PageLoad(address, 80, interval=0.01) as load:
            await load.wait_for_requests(50, 20)
            await drain(client, pod.spec.nodeName)
            await pages.wait_for_deployment(client, "web", 3)
            await load.wait_for_requests(load.requests + 50, 20)
        assert load.failures == []
        left = await client.pods.list(NAMESPACE, fields=f"spec.nodeName={pod.spec.nodeName}")
        assert left.items == []


async def drain(client: Client, node: str) -> None:
    """As kubectl does."""
    await client.nodes.modify(node, "", lambda item: setattr(item.spec, "unschedulable", True))
    async with asyncio.timeout(25):
        while pods := (await client.pods.list(NAMESPACE, fields=f"spec.nodeName={node}")).items:
            for outcome in await client.pods.evict_batch([Eviction(metadata=_named(pod)) for pod in pods]):
                assert error_of(outcome) is None or isinstance(error_of(outcome), Exhausted | NotFound), outcome
            await asyncio.sleep(0.1)


def _named(pod: Pod) -> ObjectMeta:
    return ObjectMeta(namespace=pod.metadata.namespace, name=pod.metadata.name)


async def test_requests_succeed_while_all_api_servers_are_dead_and_a_namespace_frees_its_addresses(cluster: Cluster) -> None:
    async with cluster.client() as client:
        service = await page(client)
        async with PageLoad(service.spec.clusterIP, 80, interval=0.01) as load:
            await load.wait_for_requests(50, 20)
            cluster.kill("apiserver-0")
            await load.wait_for_requests(load.requests + 300, 30)
            await cluster.restart(["apiserver-0"])
            await load.wait_for_requests(load.requests + 50, 20)
        assert load.failures == [] and len(load.answers) == 3
        # a deleted namespace frees the addresses of its services
        await client.namespaces.create(Namespace(metadata={"name": "gone"}))
        made = pages.build_page_service("page", type="NodePort")
        made.metadata.namespace = "gone"
        addresses = {(await client.of(SERVICES).create(made)).spec.clusterIP}
        assert addresses < await allocated(client)
        await client.namespaces.delete("gone")
        async with asyncio.timeout(20):
            while addresses & await allocated(client):  # noqa: ASYNC110 (a controller of another process deletes them)
                await asyncio.sleep(0.1)

        await scale(client, 1)
        async with asyncio.timeout(20):
            while len({await pages.request_page(service.spec.clusterIP, 80) for _ in range(6)}) > 1:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.1)


async def allocated(client: Client) -> set[str]:
    return {item.metadata.name for item in (await client.of(IP_ADDRESSES).list()).items}


def _doctor(cluster: Cluster) -> str:
    command = [sys.executable, "-m", "pinnace.cli.entry", "doctor", "--data-dir", str(cluster.spec.data_dir)]
    config = certificates.client_config_path(pki_folder(cluster.spec.data_dir), "admin")
    environment = {**os.environ, "COLUMNS": "200", "KUBECONFIG": str(config)}
    return subprocess.run(command, capture_output=True, text=True, timeout=40, check=False, env=environment).stdout


def _resolve(cluster: Cluster, name: str) -> str:
    argv = cluster.state.find_process("proxy-0").plan.argv
    host, _, port = argv[argv.index(DNS) + 1].rpartition(":")
    return str(DNSRecord.parse(DNSRecord.question(name).send(host, int(port), timeout=5)).rr[0].rdata)


def _updated(each: object) -> None:
    each.spec.template.spec.containers[0].env[1].value = "2"
