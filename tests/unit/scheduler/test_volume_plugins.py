"""The volume plugins, each on its own: which nodes they refuse, and in which words."""

from collections.abc import Mapping
from typing import Any

import pytest

from pinnace.scheduler.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from tests.builders import make_node
from tests.unit.scheduler.pods import cache_of
from tests.unit.scheduler.volume_objects import Stores, claim, csi_node, pod, refusals, storage_class, volume

DISK = "node(s) had no available disk"
IN_USE = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
ZONE = "node(s) had no available volume zone"
FULL = "node(s) exceed max volume count"


def gce(name: str, read_only: bool = False) -> Mapping[str, Any]:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}}


def ebs(name: str) -> Mapping[str, Any]:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": True}}


def iscsi(iqn: str, read_only: bool = False) -> Mapping[str, Any]:
    return {"iscsi": {"targetPortal": "p", "iqn": iqn, "readOnly": read_only}}


def rbd(*monitors: str, image: str = "i", pool: str = "p", read_only: bool = False) -> Mapping[str, Any]:
    return {"rbd": {"monitors": list(monitors), "image": image, "pool": pool, "readOnly": read_only}}


class TestVolumeRestrictions:
    @pytest.mark.parametrize(
        ("placed", "wanted", "refused"),
        [
            (gce("d"), gce("d"), True),
            (gce("d"), gce("e"), False),
            (gce("d", True), gce("d", True), False),
            (gce("d", True), gce("d"), True),
            (gce("d"), gce("d", True), True),
            (ebs("d"), ebs("d"), True),
            (ebs("d"), ebs("e"), False),
            (iscsi("i"), iscsi("i"), True),
            (iscsi("i", True), iscsi("i", True), False),
            (rbd("a", "b"), rbd("b", "c"), True),
            (rbd("a", "b"), rbd("c"), False),
            (rbd("a"), rbd("a", image="j"), False),
            (rbd("a"), rbd("a", pool="q"), False),
            (rbd("a", read_only=True), rbd("a", read_only=True), False),
            (gce("d"), {"emptyDir": {}}, False),
        ],
    )
    def test_disks(self, placed: Mapping[str, Any], wanted: Mapping[str, Any], refused: bool) -> None:
        cache = cache_of(make_node("n"), make_node("m"))
        cache.add_pod(pod(placed, name="old"), "n")
        result = refusals(VolumeRestrictions(Stores()), pod(wanted), cache.nodes)
        assert result == [DISK if refused else "", ""]

    def test_claim_of_one_pod(self) -> None:
        stores = Stores(claim("c", modes=["ReadWriteOncePod"]), claim("shared"))
        cache = cache_of(make_node("n"), make_node("m"))
        plugin = VolumeRestrictions(stores)
        assert refusals(plugin, pod("c"), cache.nodes) == ["", ""]
        cache.add_pod(pod("c", "shared", name="old"), "n")
        assert refusals(plugin, pod("c"), cache.nodes) == [IN_USE, IN_USE]
        assert refusals(plugin, pod("shared"), cache.nodes) == ["", ""]
        cache.remove_pod("old")
        assert refusals(plugin, pod("c"), cache.nodes) == ["", ""]

    def test_claim_that_is_free_again_helps_though_a_disk_is_not(self) -> None:
        stores = Stores(claim("c", modes=["ReadWriteOncePod"]))
        cache = cache_of(make_node("n"), make_node("m"))
        plugin, wanted = VolumeRestrictions(stores), pod("c", gce("d"))
        cache.add_pod(pod("c", name="old"), "n")
        cache.add_pod(pod(gce("d"), name="other"), "n")
        assert refusals(plugin, wanted, cache.nodes) == [DISK, IN_USE]
        event = cache.remove_pod("old")
        assert event is not None and refusals(plugin, wanted, cache.nodes) == [DISK, ""]
        assert plugin.helps(event, wanted, cache.nodes), "on the other node"
        assert not plugin.helps(event, pod(gce("d")), cache.nodes)

    def test_claim_that_is_not_there_is_left_to_volume_binding(self) -> None:
        cache = cache_of(make_node("n"))
        plugin = VolumeRestrictions(Stores(claim("c", modes=["ReadWriteOncePod"])))
        assert refusals(plugin, pod("missing"), cache.nodes) == [""]
        cache.add_pod(pod("c", name="old"), "n")
        assert refusals(plugin, pod("missing", "c"), cache.nodes) == [IN_USE]


class TestVolumeZone:
    NEW, OLD = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ({}, ["", "", "", ""]),
            ({NEW: "a"}, ["", ZONE, "", ZONE]),
            ({NEW: "a__b"}, ["", "", "", ZONE]),
            ({NEW: "c"}, [ZONE, ZONE, "", ZONE]),
            ({OLD: "a"}, ["", ZONE, "", ""]),
            ({"topology.kubernetes.io/region": "r"}, [ZONE, ZONE, "", ZONE]),
        ],
    )
    def test_labels_of_volumes(self, labels: Mapping[str, str], expected: list[str]) -> None:
        """Nodes: zone a, zone b, no zone at all, zone a by its old name."""
        nodes = [make_node("a").label(self.NEW, "a"), make_node("b").label(self.NEW, "b"), make_node("none")]
        table = cache_of(*nodes, make_node("old").label(self.OLD, "a")).nodes
        stores = Stores(claim("c", volume="v"), volume("v", labels=labels))
        assert refusals(VolumeZone(stores), pod("c"), table) == expected

    @pytest.mark.parametrize(
        ("stores", "expected"),
        [
            (Stores(), 'persistentvolumeclaim "c" not found'),
            (Stores(claim("c")), "PersistentVolumeClaim had no pv name and storageClass name"),
            (Stores(claim("c", storage_class="s")), 'storageclass.storage.k8s.io "s" not found'),
            (Stores(claim("c", storage_class="s"), storage_class("s")), [""]),
            (
                Stores(claim("c", storage_class="s"), storage_class("s", volumeBindingMode="Immediate")),
                "PersistentVolume had no name",
            ),
            (Stores(claim("c", volume="v")), 'persistentvolume "v" not found'),
        ],
    )
    def test_claims_without_a_volume(self, stores: Stores, expected: list[str] | str) -> None:
        assert refusals(VolumeZone(stores), pod("c"), cache_of(make_node("n")).nodes) == expected

    def test_ephemeral_claim_that_is_not_there(self) -> None:
        """In the words of VolumeBinding, so that it is told once."""
        assert refusals(VolumeZone(Stores()), pod({"ephemeral": {}}), cache_of(make_node("n")).nodes) == (
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "new-v0"'
        )


class TestNodeVolumeLimits:
    def stores(self, *limits: int) -> Stores:
        stores = Stores(storage_class("made", "d"), claim("new", storage_class="made"), claim("nfs", volume="plain"))
        stores.put(volume("plain", nfs={"server": "s", "path": "/"}))
        for at in range(4):
            stores.put(claim(f"c{at}", volume=f"v{at}"))
            stores.put(volume(f"v{at}", csi={"driver": "d", "volumeHandle": f"h{at}"}))
        for at, limit in enumerate(limits):
            stores.put(csi_node(f"n{at}", d=limit))
        return stores

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (["c0"], ["", "", ""]),
            (["c1"], ["", "", ""]),
            (["c1", "c2"], [FULL, "", ""]),
            (["c0", "c1"], ["", "", ""]),
            (["c1", "c2", "c3"], [FULL, FULL, ""]),
            (["new", "c1"], [FULL, "", ""]),
            (["nfs"], ["", "", ""]),
            (["nfs", "missing"], ["", "", ""]),
        ],
    )
    def test_limits(self, wanted: list[str], expected: list[str]) -> None:
        """c0 is attached to n0 already, and counts once there; n2 says nothing of limits."""
        cache = cache_of(make_node("n0"), make_node("n1"), make_node("n2"))
        cache.add_pod(pod("c0", "nfs", name="old"), "n0")
        cache.add_pod(pod("c0", name="other"), "n0")
        assert refusals(NodeVolumeLimits(self.stores(2, 2)), pod(*wanted), cache.nodes) == expected

    def test_attached_volume_needs_no_further_slot(self) -> None:
        cache = cache_of(make_node("n0"))
        for at in range(3):
            cache.add_pod(pod(f"c{at}", name=f"old{at}"), "n0")
        plugin = NodeVolumeLimits(self.stores(2))
        assert refusals(plugin, pod("c0", "c1"), cache.nodes) == [""]
        assert refusals(plugin, pod("c3"), cache.nodes) == [FULL]

    def test_it_follows_pods_nodes_limits_and_claims(self) -> None:
        stores, cache = self.stores(1), cache_of(make_node("n0"))
        plugin = NodeVolumeLimits(stores)
        assert refusals(plugin, pod("c1"), cache.nodes) == [""]
        cache.add_pod(pod("c0", name="old"), "n0")
        assert refusals(plugin, pod("c1"), cache.nodes) == [FULL]
        stores.put(csi_node("n0", d=2))
        cache.nodes.begin_generation()
        assert refusals(plugin, pod("c1"), cache.nodes) == [""]
        cache.add_pod(pod("late", name="older"), "n0")
        assert refusals(plugin, pod("c1"), cache.nodes) == [""]
        stores.put(claim("late", storage_class="made"))
        assert refusals(plugin, pod("c1"), cache.nodes) == [FULL]
        cache.remove_pod("old")
        assert refusals(plugin, pod("c1"), cache.nodes) == [""]
        cache.set_node(make_node("n1").build())
        stores.put(csi_node("n1", d=0))
        assert refusals(plugin, pod("c1"), cache.nodes) == ["", FULL]
        cache.remove_node("n0")
        assert refusals(plugin, pod("c1"), cache.nodes) == [FULL]

    @pytest.mark.parametrize(
        ("provisioner", "unbound", "driver", "bound"),
        [("kubernetes.io/no-provisioner", "", "d", FULL), ("d", FULL, "other", "")],
        ids=["made by hand", "by another driver"],
    )
    def test_claim_counts_for_the_driver_of_its_volume_once_it_is_bound(
        self, provisioner: str, unbound: str, driver: str, bound: str
    ) -> None:
        stores, cache = self.stores(1), cache_of(make_node("n0"))
        stores.put(storage_class("made", provisioner))
        plugin = NodeVolumeLimits(stores)
        cache.add_pod(pod("new", name="old"), "n0")
        assert refusals(plugin, pod("c1"), cache.nodes) == [unbound]
        stores.put(volume("late", csi={"driver": driver, "volumeHandle": "h"}))
        stores.put(claim("new", storage_class="made", volume="late"))
        assert refusals(plugin, pod("c1"), cache.nodes) == [bound]
