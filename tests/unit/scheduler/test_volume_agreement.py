"""The volume plugins say what the plain ones say, on random clusters that change: each is asked about more than 100,000 pairs
of a pod and a node."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.resources import PERSISTENT_VOLUMES
from pinnace.scheduler.cache.cache import Cache
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.plugins.volume_binding import NOTHING_TO_BIND, OUT_OF_REACH, VolumeBinding
from pinnace.scheduler.plugins.volumes import LIMIT_REASON as FULL
from pinnace.scheduler.plugins.volumes import ZONE_REASON as WRONG_ZONE
from pinnace.scheduler.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from tests.builders import make_node
from tests.unit.scheduler import volumes_reference as reference
from tests.unit.scheduler.pairs import PAIRS, TIMEOUT
from tests.unit.scheduler.volume_objects import Stores, claim, csi_node, pod, refusals, storage_class, volume

pytestmark = pytest.mark.slow

PODS, NODES = 51, 50
SEEDS = -(-PAIRS // (PODS * NODES))
LABELS = (*reference.ZONES, *reference.OLD_ZONES)


class World:
    """A cluster whose pods come and go."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.stores, self.cache = Stores(), Cache()
        self.placed: dict[str, list[Pod]] = {}
        self._number = 0
        for name in range(NODES):
            node = make_node(f"n{name}")
            for label in LABELS:
                if rng.random() < 0.4:
                    node.label(label, rng.choice("abc"))
            self.cache.set_node(node.build())
            if rng.random() < 0.8:
                self.stores.put(csi_node(f"n{name}", d=rng.randrange(4), e=rng.randrange(3)))
        terms = [{"matchLabelExpressions": [{"key": LABELS[0], "values": ["a", "b"]}]}, {}]
        for item in (storage_class("hand"), storage_class("d", "d"), storage_class("e", "e", allowedTopologies=terms)):
            self.stores.put(item)
        for at in range(30):
            self._add_volume(at)
        for at in range(24):
            self._add_claim(f"c{at}")

    def _add_volume(self, at: int) -> None:
        rng = self.rng
        near = None
        if rng.random() < 0.8:
            key = rng.choice((*LABELS, "kubernetes.io/hostname"))
            values = [f"n{rng.randrange(NODES)}"] if key.startswith("kubernetes") else rng.sample("abc", 2)
            near = [(key, rng.choice(("In", "In", "In", "NotIn")), values)]
            if rng.random() < 0.2:
                near.append((rng.choice(LABELS), "Exists", []))
        spec: dict[str, Any] = {"csi": {"driver": rng.choice("de"), "volumeHandle": str(at)}} if rng.random() < 0.7 else {}
        if rng.random() < 0.1:
            spec["claimRef"] = {"namespace": "ns", "name": f"c{rng.randrange(24)}"}
        if rng.random() < 0.1:
            spec["volumeAttributesClassName"] = "fast"
        labels = {label: rng.choice(("a", "b", "a__c")) for label in LABELS if rng.random() < 0.2}
        made = volume(
            f"v{at}",
            storage_class=rng.choice(("hand", "hand", "d")),
            size=rng.choice(("1Gi", "2Gi")),
            modes=rng.choice((["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"])),
            labels={**labels, "tier": rng.choice("xy")},
            near=near,
            phase=rng.choice(("Available", "Available", "Available", "Released")),
            **spec,
        )
        self.stores.put(made)

    def _add_claim(self, name: str) -> None:
        """Bound to a volume of its own, or waiting."""
        rng = self.rng
        free = [obj for obj in self.stores.objects(PERSISTENT_VOLUMES).values() if obj.status.phase == "Released"]
        more: dict[str, Any] = {"selector": {"matchLabels": {"tier": "x"}}} if rng.random() < 0.3 else {}
        if free and rng.random() < 0.5:
            chosen = rng.choice(free)
            more = {"volume": chosen.metadata.name}
        if rng.random() < 0.1:
            more["volumeAttributesClassName"] = "fast"
        modes = [rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"))]
        made = claim(
            name,
            storage_class=rng.choice(("hand", "hand", "d", "e")),
            size=rng.choice(("1Gi", "2Gi")),
            modes=modes,
            **more,
        )
        self.stores.put(made)

    def pod(self) -> PodInfo:
        rng, sources = self.rng, list[Any]()
        for _ in range(rng.randrange(4)):
            read_only = rng.random() < 0.5
            sources.append(
                rng.choice(
                    (
                        f"c{rng.randrange(24)}",
                        f"c{rng.randrange(24)}",
                        f"c{rng.randrange(24)}",
                        {"gcePersistentDisk": {"pdName": rng.choice("pq"), "readOnly": read_only}},
                        {"awsElasticBlockStore": {"volumeID": rng.choice("pq"), "readOnly": read_only}},
                        {"iscsi": {"iqn": rng.choice("pq"), "readOnly": read_only}},
                        {"rbd": {"monitors": rng.sample("xyz", 2), "image": rng.choice("pq"), "readOnly": read_only}},
                    )
                )
            )
        self._number += 1
        return pod(*sources, name=f"p{self._number}")

    def change(self, info: PodInfo) -> None:
        """The pod goes somewhere, another leaves; a node or a limit may change."""
        rng, name = self.rng, f"n{self.rng.randrange(NODES)}"
        self.cache.add_pod(info, name)
        self.placed.setdefault(name, []).append(info.pod)
        if sum(map(len, self.placed.values())) > 40:
            old = rng.choice([node for node, pods in self.placed.items() if pods])
            gone = self.placed[old].pop(rng.randrange(len(self.placed[old])))
            self.cache.remove_pod(gone.metadata.uid)
        if rng.random() < 0.1:
            self.stores.put(csi_node(name, d=rng.randrange(4)))
            self.cache.nodes.begin_generation()
        if rng.random() < 0.05:
            node = self.cache.nodes.nodes[self.cache.nodes.row(name) or 0]
            self.cache.remove_node(node.metadata.name)
            self.cache.set_node(node)

    def everywhere(self) -> list[Pod]:
        return [item for pods in self.placed.values() for item in pods]


def restrictions(world: World, wanted: Pod, node: Node) -> str:
    here = world.placed.get(node.metadata.name, [])
    return reference.restrictions(wanted, here, world.everywhere(), world.stores)


def zone(world: World, wanted: Pod, node: Node) -> str:
    return WRONG_ZONE if reference.zone(wanted, node, world.stores) else ""


def limits(world: World, wanted: Pod, node: Node) -> str:
    name = node.metadata.name
    return FULL if reference.limits(wanted, name, world.placed.get(name, []), world.stores) else ""


def binding(world: World, wanted: Pod, node: Node) -> str:
    told = zip(reference.binding(wanted, node, world.stores), (OUT_OF_REACH, NOTHING_TO_BIND), strict=True)
    return ", ".join(reason for refused, reason in told if refused)


def worlds(seed: int) -> Iterator[tuple[World, PodInfo]]:
    world = World(random.Random(seed))
    for _ in range(PODS):
        wanted = world.pod()
        yield world, wanted
        world.change(wanted)


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("make", "plain"),
    [(VolumeRestrictions, restrictions), (VolumeZone, zone), (NodeVolumeLimits, limits), (VolumeBinding, binding)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_agreement(make: Callable[[Any], Any], plain: Callable[[World, Pod, Node], str]) -> None:
    refused = 0
    for seed in range(SEEDS):
        plugin = None
        for world, wanted in worlds(seed):
            plugin = plugin or make(world.stores)
            nodes = world.cache.nodes
            expected = [plain(world, wanted.pod, node) for node in nodes.nodes]
            assert refusals(plugin, wanted, nodes) == expected, f"seed {seed}, pod {wanted.name}"
            refused += sum(map(bool, expected))
    assert 0.02 < refused / (SEEDS * PODS * NODES) < 0.9, "the clusters are neither empty nor full"
