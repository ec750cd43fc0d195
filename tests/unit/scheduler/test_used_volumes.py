"""Which nodes use which claims and disks."""

import random

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import Pod
from pinnace.api.resources import PODS
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.columns import Disk, PodVolumes, UsedVolumes, pod_volumes
from pinnace.scheduler.cache.pod_info import PodInfo


def pod(*sources: dict[str, object], name: str = "p", node: str = "") -> Pod:
    volumes = [{"name": f"v{index}", **source} for index, source in enumerate(sources)]
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return from_dict(PODS, {"metadata": metadata, "spec": {"volumes": volumes, "nodeName": node}})


@pytest.mark.parametrize(
    ("sources", "claims", "disks"),
    [
        ([{"emptyDir": {}}], None, None),
        ([{"persistentVolumeClaim": {"claimName": "c"}}] * 2, ("ns/c",), ()),
        ([{"ephemeral": {}}], ("ns/p-v0",), ()),
        ([{"gcePersistentDisk": {"pdName": "d", "readOnly": True}}], (), (Disk("gcePersistentDisk", ("d",), True),)),
        ([{"awsElasticBlockStore": {"volumeID": "d", "readOnly": True}}], (), (Disk("awsElasticBlockStore", ("d",), False),)),
        ([{"iscsi": {"iqn": "i", "targetPortal": "t"}}], (), (Disk("iscsi", ("i",), False),)),
        (
            [{"rbd": {"monitors": ["a", "b"], "pool": "p", "image": "i"}}],
            (),
            (Disk("rbd", ("a", "p", "i"), False), Disk("rbd", ("b", "p", "i"), False)),
        ),
    ],
)
def test_volumes_of_a_pod_are_counted(
    sources: list[dict[str, object]], claims: tuple[str, ...], disks: tuple[Disk, ...]
) -> None:
    assert pod_volumes(pod(*sources)) == (None if claims is None else PodVolumes(claims, disks))


def test_cache_counts_pods_by_node() -> None:
    cache, source = Cache(), {"persistentVolumeClaim": {"claimName": "c"}}
    for name in "ab":
        cache.add_pod(PodInfo(pod(source, name=name)), "n")
    cache.assume_pod(PodInfo(pod(source, name="c")), "m")
    used = cache.nodes.used_volumes
    assert used.count_users("ns/c") == {"n": 2, "m": 1}
    cache.remove_pod("a")
    cache.forget_pod("c")
    assert (used.count_users("ns/c"), used.claims_on("n"), used.claims_on("m")) == ({"n": 1}, {"ns/c": 1}, {})
    cache.remove_pod("b")
    assert (used.count_users("ns/c"), list(used.nodes_with_claims())) == ({}, [])


def test_changes_name_the_nodes_whose_claims_are_others() -> None:
    used, one = UsedVolumes(), PodVolumes(("ns/c",), ())
    start = used.position
    used.add("n", one)
    middle = used.position
    used.add("n", one)
    assert (used.nodes_changed_since(start), used.nodes_changed_since(middle)) == (["n"], [])
    used.remove("n", one)
    used.remove("n", one)
    assert used.nodes_changed_since(middle) == ["n"]
    for _ in range(3000):
        used.add("n", one)
        used.remove("n", one)
    assert used.nodes_changed_since(start) is None
    assert used.nodes_changed_since(used.position) == []


def test_removed_pod_leaves_no_volumes() -> None:
    rng, used, placed = random.Random(7), UsedVolumes(), []
    for _ in range(500):
        disks = tuple({Disk("gcePersistentDisk", (rng.choice("xy"),), rng.random() < 0.5) for _ in range(rng.randrange(2))})
        placed.append(
            (rng.choice("nm"), PodVolumes(tuple({f"ns/{rng.choice('abc')}" for _ in range(rng.randrange(3))}), disks))
        )
        used.add(*placed[-1])
        if rng.random() < 0.6:
            used.remove(*placed.pop(rng.randrange(len(placed))))
        for claim in ("ns/a", "ns/b", "ns/c"):
            nodes = [node for node, volumes in placed if claim in volumes.claims]
            assert used.count_users(claim) == {node: nodes.count(node) for node in nodes}
    for node, volumes in placed:
        used.remove(node, volumes)
    assert not used._users and not used._claims
