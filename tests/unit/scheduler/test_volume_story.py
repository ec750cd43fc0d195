"""Pods with claims, through the whole scheduler, against a real API server in this process."""

from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from tests.builders import PodBuilder, make_node, make_pod
from tests.unit.scheduler.cluster import Cluster
from tests.unit.scheduler.volume_objects import claim, csi_node, storage_class, volume

HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    """With two nodes and a scheduler."""
    await cluster.create(make_node("a"), make_node("b"))
    cluster.schedule("s0")
    return cluster


def wanting(name: str, *claims: str) -> PodBuilder:
    builder = make_pod(name).req(cpu="100m")
    for at, each in enumerate(claims):
        source = builder._pod.spec.volumes.add(name=f"v{at}").volumeSource
        source.persistentVolumeClaim.claimName = each
    return builder


async def put(cluster: Cluster, *objs: Any) -> None:
    """Creates them, in namespace default."""
    for obj in objs:
        kinds = (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, CSI_NODES)
        resource = next(kind for kind in kinds if isinstance(obj, kind.message))
        obj.metadata.CopyFrom(ObjectMeta(name=obj.metadata.name, namespace="default" if resource.namespaced else ""))
        await cluster.client.of(resource).create(obj)


async def claimed(cluster: Cluster, name: str) -> PersistentVolumeClaim:
    return await cluster.client.of(PERSISTENT_VOLUME_CLAIMS).get(name, "default")


def local(name: str, node: str) -> Any:
    return volume(name, storage_class="hand", near=[(HOSTNAME, "In", [node])], local={"path": "/d"})


async def test_claim_is_bound_where_the_pod_goes(cluster: Cluster) -> None:
    await put(cluster, storage_class("hand"), local("of-b", "b"), claim("data", storage_class="hand"))
    await cluster.create(wanting("p", "data"))
    assert await cluster.bound("p") == "b"
    result = await claimed(cluster, "data")
    assert (result.spec.volumeName, result.status.phase) == ("of-b", "Bound")
    owner = await cluster.client.of(PERSISTENT_VOLUMES).get("of-b")
    assert (owner.spec.claimRef.name, owner.spec.claimRef.uid, owner.status.phase) == ("data", result.metadata.uid, "Bound")
    await cluster.create(wanting("second", "data"))
    assert await cluster.bound("second") == "b"


async def test_many_pods_share_few_disks_without_a_clash(cluster: Cluster) -> None:
    disks = [local(f"{node}{at}", node) for node in "ab" for at in range(4)]
    claims = [claim(f"c{at}", storage_class="hand") for at in range(8)]
    await put(cluster, storage_class("hand"), *disks, *claims)
    await cluster.create(*(wanting(f"p{at}", f"c{at}") for at in range(8)))
    nodes = [await cluster.bound(f"p{at}") for at in range(8)]
    volumes = [(await claimed(cluster, f"c{at}")).spec.volumeName for at in range(8)]
    assert sorted(volumes) == sorted(f"{node}{at}" for node in "ab" for at in range(4))
    assert [name[0] for name in volumes] == nodes


async def test_claim_that_comes_later_wakes_the_pod(cluster: Cluster) -> None:
    await put(cluster, storage_class("hand"))
    await cluster.create(wanting("p", "data"))
    await cluster.until(lambda: told(cluster, 'persistentvolumeclaim "data" not found'))
    await put(cluster, claim("data", storage_class="hand"))
    await cluster.until(lambda: told(cluster, "2 node(s) didn't find available persistent volumes to bind"))
    await put(cluster, local("of-a", "a"))
    assert await cluster.bound("p") == "a"


async def test_limit_that_is_raised_wakes_the_pod(cluster: Cluster) -> None:
    nodes = {name: csi_node(name, d=1) for name in "ab"}
    await put(cluster, *nodes.values(), storage_class("made", "d"))
    for at in range(3):
        source = {"driver": "d", "volumeHandle": str(at)}
        await put(cluster, volume(f"v{at}", csi=source, claimRef={"namespace": "default", "name": f"c{at}"}))
        bound = claim(f"c{at}", volumeName=f"v{at}", annotations={})
        await put(cluster, bound)
        stored = await claimed(cluster, f"c{at}")
        stored.status.phase = "Bound"
        await cluster.client.of(PERSISTENT_VOLUME_CLAIMS).update_status(stored)
    await cluster.create(*(wanting(f"p{at}", f"c{at}") for at in range(3)))
    await cluster.until(lambda: told(cluster, "2 node(s) exceed max volume count"))
    more = await cluster.client.of(CSI_NODES).get("b")
    more.spec.drivers[0].allocatable.count = 2
    await cluster.client.of(CSI_NODES).update(more)
    assert sorted([await cluster.bound(f"p{at}") for at in range(3)]) == ["a", "b", "b"]


async def told(cluster: Cluster, text: str) -> bool:
    return any(text in event for event in await cluster.events())
