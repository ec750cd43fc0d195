"""kubernetes-asyncio, kr8s and lightkube: the same story with each, from a creation to the end of a watch."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import TIMEOUT, deployment, pod

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def collect() -> Iterator[None]:
    """Closes here what the clients leave open."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
async def core(kubeconfig: Path) -> AsyncIterator[Any]:
    config = pytest.importorskip("kubernetes_asyncio.config", reason="pip install '.[clients]'")
    client = pytest.importorskip("kubernetes_asyncio.client")
    async with await config.new_client_from_config(str(kubeconfig)) as api:
        yield client.CoreV1Api(api)


async def test_asyncio_watches_while_it_writes(core: Any, namespace: str) -> None:
    from kubernetes_asyncio import client, watch

    start = (await core.list_namespaced_pod(namespace)).metadata.resource_version
    seen: list[tuple[str, str]] = []
    running = asyncio.Event()

    async def look() -> None:
        async with watch.Watch() as watcher:
            async for event in watcher.stream(core.list_namespaced_pod, namespace, resource_version=start, timeout_seconds=40):
                seen.append((event["type"], event["object"].metadata.name))
                if event["object"].status.phase == "Running":
                    running.set()
                if seen[-1][0] == "DELETED":
                    return

    looking = asyncio.create_task(look())
    await core.create_namespaced_pod(namespace, pod("a"))
    await asyncio.wait_for(running.wait(), TIMEOUT)
    patched = await core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"x": "1"}}})
    assert patched.metadata.labels == {"app": "a", "x": "1"}
    await core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    await asyncio.wait_for(looking, TIMEOUT)
    assert seen[0] == ("ADDED", "a") and seen[-1] == ("DELETED", "a")
    with pytest.raises(client.ApiException) as caught:
        await core.read_namespaced_pod("a", namespace)
    assert caught.value.status == 404


async def test_asyncio_reads_pages(core: Any, namespace: str) -> None:
    await asyncio.gather(*(core.create_namespaced_pod(namespace, pod(f"p{number}")) for number in range(5)))
    page = await core.list_namespaced_pod(namespace, limit=2)
    names = [item.metadata.name for item in page.items]
    while page.metadata._continue:
        page = await core.list_namespaced_pod(namespace, limit=2, _continue=page.metadata._continue)
        names += [item.metadata.name for item in page.items]
    assert names == [f"p{number}" for number in range(5)]


async def test_kr8s_waits_patches_scales_and_watches(kubeconfig: Path, namespace: str) -> None:
    kr8s = pytest.importorskip("kr8s", reason="pip install '.[clients]'")
    from kr8s.asyncio.objects import Deployment, Pod

    api = await kr8s.asyncio.api(kubeconfig=str(kubeconfig), namespace=namespace)
    single = await Pod({**pod("a"), "metadata": {"name": "a", "namespace": namespace}}, api=api)
    await single.create()
    await asyncio.wait_for(single.wait("condition=Ready"), TIMEOUT)
    assert await single.ready()
    await single.label({"x": "1"})
    assert single.labels["x"] == "1"
    assert [item.name async for item in api.get("pods", namespace=namespace, label_selector={"x": "1"})] == ["a"]
    web = await Deployment({**deployment("web", 1), "metadata": {"name": "web", "namespace": namespace}}, api=api)
    await web.create()
    await web.scale(3)
    names = set()
    async with asyncio.timeout(TIMEOUT):
        async for _, obj in api.watch("pods", namespace=namespace, label_selector="app=web"):
            names.add(obj.name)
            if len(names) == 3:
                break
    await single.delete()
    with pytest.raises(kr8s.NotFoundError):
        await Pod.get("nothing", namespace=namespace, api=api)
    assert {"deployments", "pods", "nodes"} <= {api_resource["name"] for api_resource in await api.api_resources()}
    await api._session.aclose()  # or pytest complains of an open socket


def test_lightkube_reads_writes_and_watches(kubeconfig: Path, namespace: str) -> None:
    lightkube = pytest.importorskip("lightkube", reason="pip install '.[clients]'")
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.apps_v1 import Deployment
    from lightkube.resources.core_v1 import Pod

    config = lightkube.KubeConfig.from_file(str(kubeconfig))
    client = lightkube.Client(config=config, namespace=namespace)
    created = client.create(Pod.from_dict({**pod("a"), "metadata": {"name": "a", "namespace": namespace}}))
    assert created.metadata.name == "a"
    client.wait(Pod, "a", for_conditions=["Ready"])
    client.create(Deployment.from_dict({**deployment("web", 1), "metadata": {"name": "web", "namespace": namespace}}))
    scaled = client.patch(Deployment, "web", {"spec": {"replicas": 2}})
    assert scaled.spec.replicas == 2
    client.patch(Pod, "a", {"metadata": {"labels": {"x": "1"}}}, patch_type=lightkube.types.PatchType.MERGE)
    assert [item.metadata.name for item in client.list(Pod, labels={"x": "1"})] == ["a"]
    result = client.get(Pod, "a")
    result.metadata.labels["y"] = "2"
    assert client.replace(result).metadata.labels["y"] == "2"
    for event, obj in client.watch(Pod, fields={"metadata.name": "a"}):
        assert (event, obj.metadata.name) == ("ADDED", "a")
        break
    with pytest.raises(lightkube.ApiError) as caught:
        client.create(Pod(metadata=ObjectMeta(name="a", namespace=namespace), spec=created.spec))
    assert caught.value.status.reason == "AlreadyExists"
    client.delete(Pod, "a")
