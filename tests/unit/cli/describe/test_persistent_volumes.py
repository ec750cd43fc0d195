"""Claims and the volumes behind them, as `describe` shows them."""

from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSource, Pod
from pinnace.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from pinnace.cli.describe import storage
from pinnace.cli.describe.pods import KINDS
from pinnace.cli.describe.text import NotShown, render
from tests.builders import make_pod

NOW = 1_000_000_000.0
LOST = PersistentVolumeSource.FromString(b"\xc2\x3e\x00")


def volume(spec: dict[str, Any], **more: Any) -> PersistentVolume:
    made = from_dict(PERSISTENT_VOLUMES, {"metadata": {"name": "v"}, "spec": spec, **more})
    assert isinstance(made, PersistentVolume)
    return made


def claim(spec: dict[str, Any], **more: Any) -> PersistentVolumeClaim:
    made = from_dict(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data", "namespace": "ns"}, "spec": spec, **more})
    assert isinstance(made, PersistentVolumeClaim)
    return made


def test_a_volume_in_kubectls_form() -> None:
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "ssd", "operator": "Exists"}]},
        {},
    ]
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": "ns", "name": "data"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "fast",
        "volumeMode": "Block",
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "csi": {"driver": "d", "volumeHandle": "h", "readOnly": True, "volumeAttributes": {"b": "2", "a": "1"}},
    }
    metadata = {"name": "v", "finalizers": ["kubernetes.io/pv-protection", "x/y"]}
    shown = storage.describe_volume(volume(spec, metadata=metadata, status={"phase": "Bound"}), NOW)
    assert list(render(shown)) == [
        "Name:            v",
        "Labels:          <none>",
        "Annotations:     <none>",
        "Finalizers:      [kubernetes.io/pv-protection x/y]",
        "StorageClass:    fast",
        "Status:          Bound",
        "Claim:           ns/data",
        "Reclaim Policy:  Retain",
        "Access Modes:    RWO",
        "VolumeMode:      Block",
        "Capacity:        5Gi",
        "Node Affinity:",
        "  Required Terms:",
        "    Term 0:  zone in [a, b]",
        "             ssd exists",
        "    Term 1:  <none>",
        "Message:",
        "Source:",
        "  Type:              CSI (a Container Storage Interface (CSI) volume source)",
        "  Driver:            d",
        "  FSType:",
        "  VolumeHandle:      h",
        "  ReadOnly:          true",
        "  VolumeAttributes:  a=1",
        "                     b=2",
    ]


@pytest.mark.parametrize(
    ("affinity", "line"),
    [
        ({}, "Node Affinity: <none>"),
        ({"nodeAffinity": {}}, "Node Affinity: <none>"),
        ({"nodeAffinity": {"required": {}}}, "Required Terms: <none>"),
    ],
)
def test_a_volume_that_is_nowhere_in_particular(affinity: dict[str, Any], line: str) -> None:
    described = storage.describe_volume(volume({"local": {"path": "/d"}, **affinity}), NOW)
    shown = [" ".join(each.split()) for each in render(described)]
    assert line in shown and "Path: /d" in shown and not any("VolumeMode" in each or "Term 0" in each for each in shown)


@pytest.mark.parametrize("kind", [field.name for field in PersistentVolumeSource.DESCRIPTOR.fields])
def test_every_kind_of_source_has_a_form(kind: str) -> None:
    shown = storage.describe_volume(volume({kind: {}}), NOW)["Source"]
    assert isinstance(shown, dict) and shown["Type"] == KINDS[kind]


@pytest.mark.parametrize("source", [PersistentVolumeSource(), LOST])
def test_a_source_that_is_not_known(source: PersistentVolumeSource) -> None:
    made = volume({})
    made.spec.persistentVolumeSource.CopyFrom(source)
    assert storage.describe_volume(made, NOW)["Source"] == {"Type": "<unknown>"}


def using(name: str, claim_name: str) -> Pod:
    data = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"volumes": [{"name": "v"}]}}
    made = from_dict(PODS, data)
    assert isinstance(made, Pod)
    for _ in range(2):  # also twice, it is used by one pod
        made.spec.volumes.add(name="w").volumeSource.persistentVolumeClaim.claimName = claim_name
    return made


def test_a_claim_in_kubectls_form() -> None:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "4Gi"}},
        "storageClassName": "fast",
        "volumeName": "v",
        "volumeMode": "Filesystem",
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"},
    }
    resizing = {
        "type": "Resizing",
        "status": "True",
        "lastTransitionTime": "2001-09-09T01:46:40Z",
        "reason": "r",
        "message": "m",
    }
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "conditions": [resizing]}
    pods = [using("b", "data"), using("a", "data"), using("c", "other")]
    assert list(render(storage.describe_claim(claim(spec, status=status), pods, NOW))) == [
        "Name:          data",
        "Namespace:     ns",
        "StorageClass:  fast",
        "Status:        Bound",
        "Volume:        v",
        "Labels:        <none>",
        "Annotations:   <none>",
        "Finalizers:    []",
        "Capacity:      5Gi",
        "Access Modes:  RWO",
        "VolumeMode:    Filesystem",
        "DataSource:",
        "  APIGroup:  snapshot.storage.k8s.io",
        "  Kind:      VolumeSnapshot",
        "  Name:      s",
        "Used By:       a",
        "               b",
        "Conditions:",
        "  Type      Status  LastProbeTime  LastTransitionTime               Reason  Message",
        "  ----      ------  -------------  ------------------               ------  -------",
        "  Resizing  True                   Sun, 09 Sep 2001 01:46:40 +0000  r       m",
    ]


def test_a_claim_that_has_no_volume_yet() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}}
    shown = storage.describe_claim(claim(spec, status={"phase": "Pending"}), [], NOW)
    assert (shown["Status"], shown["Capacity"], shown["Access Modes"], shown["Used By"]) == ("Pending", "", "", [])
    assert not shown.keys() & {"VolumeMode", "DataSource", "Conditions"}


def test_a_pod_uses_the_claim_that_it_owns() -> None:
    made, owner = claim({}), make_pod("p", "ns").uid("1").build()
    made.metadata.ownerReferences.add(kind="Pod", name="p", uid="1")
    made.metadata.ownerReferences.add(kind="ReplicaSet", name="q", uid="2")
    others = [make_pod("q", "ns").uid("2").build(), make_pod("r", "ns").uid("3").build()]
    assert storage.describe_claim(made, [owner, *others], NOW)["Used By"] == ["p"]
    assert storage.describe_claim(made, NotShown("<not shown: no>"), NOW)["Used By"] == "<not shown: no>"


def test_what_is_being_deleted() -> None:
    metadata = {"name": "x", "namespace": "ns", "deletionTimestamp": "2001-09-09T01:46:35Z"}
    for shown in (
        storage.describe_claim(claim({}, metadata=metadata), [], NOW),
        storage.describe_volume(volume({}, metadata={**metadata, "namespace": ""}), NOW),
    ):
        assert shown["Status"] == "Terminating (lasts 5s)"
