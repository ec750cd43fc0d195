"""The provisioner of volumes in local clusters: which claims get a volume, and which directories are removed."""

from pathlib import Path
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.resources import NAMESPACES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION, SELECTED_NODE, STORAGE_PROVISIONER
from pinnace.controllers.volume_provisioner import CLASS, PROVISIONER, VolumeProvisioner, default_class
from tests.killpoints import KillableCluster

KEY = "default/data"


@pytest.fixture
def cluster(tmp_path: Path) -> KillableCluster:
    cluster = KillableCluster(lambda context: VolumeProvisioner(context, tmp_path))
    cluster.create(NAMESPACES, from_dict(NAMESPACES, {"metadata": {"name": "default"}}))
    return cluster


def make_claim(node: str = "node-0", **spec: Any) -> PersistentVolumeClaim:
    annotations = {STORAGE_PROVISIONER: PROVISIONER} | ({SELECTED_NODE: node} if node else {})
    metadata = {"name": "data", "namespace": "default", "annotations": annotations}
    defaults = {"accessModes": ["ReadWriteMany"], "storageClassName": CLASS, "resources": {"requests": {"storage": "1Gi"}}}
    return from_dict(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": defaults | spec})


async def test_default_class_is_created_once_and_an_existing_one_is_kept(cluster: KillableCluster) -> None:
    await cluster.settle()
    assert cluster.of(STORAGE_CLASSES)[CLASS].metadata.annotations[DEFAULT_CLASS_ANNOTATION] == "true"
    cluster.change(STORAGE_CLASSES, CLASS, lambda made: made.metadata.annotations.clear())
    cluster.elect()
    await cluster.settle()
    assert not cluster.of(STORAGE_CLASSES)[CLASS].metadata.annotations


async def test_volume_has_the_size_modes_and_class_of_the_claim(cluster: KillableCluster, tmp_path: Path) -> None:
    claim = cluster.create(PERSISTENT_VOLUME_CLAIMS, make_claim())
    await cluster.settle()
    (volume,) = cluster.of(PERSISTENT_VOLUMES).values()
    assert volume.metadata.name == f"pvc-{claim.metadata.uid}"
    assert (volume.spec.capacity["storage"].string, list(volume.spec.accessModes)) == ("1Gi", ["ReadWriteMany"])
    assert (volume.spec.storageClassName, volume.spec.persistentVolumeReclaimPolicy) == (CLASS, "Delete")
    assert (volume.spec.claimRef.uid, volume.spec.claimRef.name) == (claim.metadata.uid, "data")
    source = volume.spec.persistentVolumeSource.hostPath
    assert (source.path, source.type) == (str(tmp_path / volume.metadata.name), "DirectoryOrCreate")
    assert cluster.reasons == ["Provisioning", "ProvisioningSucceeded"]


async def test_claim_waits_for_its_first_consumer(cluster: KillableCluster) -> None:
    cluster.create(PERSISTENT_VOLUME_CLAIMS, make_claim(node=""))
    await cluster.settle()
    assert not cluster.of(PERSISTENT_VOLUMES) and not cluster.events
    cluster.change(PERSISTENT_VOLUME_CLAIMS, KEY, lambda claim: claim.metadata.annotations.update({SELECTED_NODE: "node-0"}))
    await cluster.settle()
    assert len(cluster.of(PERSISTENT_VOLUMES)) == 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"volumeMode": "Block"}, "volumeMode Block is not supported: use Filesystem"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "claim.Spec.Selector is not supported"),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}, "a dataSource is not supported"),
    ],
)
async def test_claim_that_needs_more_than_a_directory_is_refused_once(
    cluster: KillableCluster, spec: dict[str, Any], problem: str
) -> None:
    cluster.create(PERSISTENT_VOLUME_CLAIMS, make_claim(**spec))
    await cluster.settle()
    cluster.change(PERSISTENT_VOLUME_CLAIMS, KEY, lambda claim: claim.metadata.labels.update(a="b"))
    await cluster.settle()
    ((reason, message),) = cluster.events
    assert reason == "ProvisioningFailed" and problem in message and not cluster.of(PERSISTENT_VOLUMES)


async def test_claims_and_volumes_of_others_are_left_alone(cluster: KillableCluster) -> None:
    other = default_class()
    other.metadata.name, other.provisioner = "other", "example.com/disks"
    cluster.create(STORAGE_CLASSES, other)
    claim = make_claim(storageClassName="other")
    claim.metadata.annotations[STORAGE_PROVISIONER] = "example.com/disks"
    cluster.create(PERSISTENT_VOLUME_CLAIMS, claim)
    await cluster.settle()
    assert not cluster.of(PERSISTENT_VOLUMES)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
async def test_directory_is_removed_only_with_the_policy_delete(cluster: KillableCluster, tmp_path: Path, policy: str) -> None:
    cluster.create(PERSISTENT_VOLUME_CLAIMS, make_claim())
    await cluster.settle()
    (name,) = cluster.of(PERSISTENT_VOLUMES)
    (tmp_path / name).mkdir()

    def release(volume: Any) -> None:
        volume.status.phase, volume.spec.persistentVolumeReclaimPolicy = "Released", policy

    cluster.change(PERSISTENT_VOLUMES, name, release)
    cluster.remove(PERSISTENT_VOLUME_CLAIMS, cluster.of(PERSISTENT_VOLUME_CLAIMS)[KEY])
    await cluster.settle()
    kept = policy == "Retain"
    assert (name in cluster.of(PERSISTENT_VOLUMES), (tmp_path / name).exists()) == (kept, kept)


async def test_directory_that_is_not_the_volumes_own_is_never_removed(cluster: KillableCluster, tmp_path: Path) -> None:
    """A user has changed the path, or has written the annotation of the provisioner on a volume."""
    cluster.create(PERSISTENT_VOLUME_CLAIMS, make_claim())
    await cluster.settle()
    (name,) = cluster.of(PERSISTENT_VOLUMES)
    mine = tmp_path / "mine"
    mine.mkdir()

    def change(volume: Any) -> None:
        volume.status.phase, volume.spec.persistentVolumeSource.hostPath.path = "Released", str(mine)

    cluster.change(PERSISTENT_VOLUMES, name, change)
    await cluster.settle()
    assert mine.exists() and name in cluster.of(PERSISTENT_VOLUMES)
    assert cluster.events[-1][0] == "VolumeFailedDelete"
