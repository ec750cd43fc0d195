"""Pods with a volume each, whose claims are bound already: what is scheduled is by the volumes, and nothing is to be bound."""

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim, Pod
from pinnace.api.storage_v1_pb2 import CSINode
from pinnace.api.wellknown import BIND_COMPLETED_ANNOTATION
from pinnace.bench import workload

DRIVER = "ebs.csi.aws.com"
VOLUMES_PER_NODE = 39
SIZE, MODE = "1Gi", "ReadOnlyMany"


def pod(name: str) -> Pod:
    """It uses the claim of its own name."""
    made = workload.pod(name)
    made.spec.volumes.add(name="data").volumeSource.persistentVolumeClaim.claimName = name
    return made


def volume(name: str, namespace: str) -> PersistentVolume:
    made = PersistentVolume()
    made.metadata.name = f"{namespace}-{name}"
    spec = made.spec
    spec.accessModes.append(MODE)
    spec.capacity["storage"].string = SIZE
    spec.persistentVolumeSource.csi.driver = DRIVER
    spec.persistentVolumeSource.csi.volumeHandle = made.metadata.name
    spec.claimRef.kind, spec.claimRef.apiVersion = "PersistentVolumeClaim", "v1"
    spec.claimRef.namespace, spec.claimRef.name = namespace, name
    return made


def claim(name: str, namespace: str) -> PersistentVolumeClaim:
    made = PersistentVolumeClaim()
    made.metadata.name, made.metadata.namespace = name, namespace
    made.metadata.annotations[BIND_COMPLETED_ANNOTATION] = "true"
    made.spec.accessModes.append(MODE)
    made.spec.resources.requests["storage"].string = SIZE
    made.spec.volumeName = f"{namespace}-{name}"
    return made


def csi_node(name: str) -> CSINode:
    """The driver on a node, and how many of its volumes it attaches there."""
    made = CSINode()
    made.metadata.name = name
    made.spec.drivers.add(name=DRIVER, nodeID=name).allocatable.count = VOLUMES_PER_NODE
    return made
