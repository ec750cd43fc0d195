"""The tables of volumes, claims, storage classes and CSI nodes.

Source: Kubernetes, pkg/printers/internalversion/printers.go.
"""

from collections.abc import Iterable, Mapping

from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.api.pods import class_of
from pinnace.api.resource_v1_pb2 import Quantity
from pinnace.api.storage_v1_pb2 import CSINode, StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION
from pinnace.printers.columns import Columns, format_age, is_set

UNSET_FIELD = "<unset>"
_SHORT = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def format_access_modes(modes: Iterable[str]) -> str:
    """ "RWO,ROX", in kubectl's order."""
    given = set(modes)
    return ",".join(short for mode, short in _SHORT.items() if mode in given)


def format_storage_size(amounts: Mapping[str, Quantity]) -> str:
    """The size of storage; empty if unknown."""
    return amounts["storage"].string if "storage" in amounts else ""


def object_phase(metadata: ObjectMeta, word: str) -> str:
    return "Terminating" if is_set(metadata.deletionTimestamp) else word


def volume_row(volume: PersistentVolume, now: float) -> tuple[str, ...]:
    spec, claim = volume.spec, volume.spec.claimRef
    return (
        volume.metadata.name,
        format_storage_size(spec.capacity),
        format_access_modes(spec.accessModes),
        spec.persistentVolumeReclaimPolicy,
        object_phase(volume.metadata, volume.status.phase),
        f"{claim.namespace}/{claim.name}" if claim.name else "",
        class_of(volume),
        spec.volumeAttributesClassName or UNSET_FIELD,
        volume.status.reason,
        format_age(volume.metadata.creationTimestamp, now),
        spec.volumeMode or UNSET_FIELD,
    )


PERSISTENT_VOLUMES = Columns(
    headers=(
        "NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS",
        "REASON", "AGE",
    ),
    wide=("VOLUMEMODE",),
    row=volume_row,
)  # fmt: skip


def claim_row(claim: PersistentVolumeClaim, now: float) -> tuple[str, ...]:
    spec, status = claim.spec, claim.status
    bound = bool(spec.volumeName)
    return (
        claim.metadata.name,
        object_phase(claim.metadata, status.phase),
        spec.volumeName,
        format_storage_size(status.capacity) if bound else "",
        format_access_modes(status.accessModes) if bound else "",
        class_of(claim),
        spec.volumeAttributesClassName or UNSET_FIELD,
        format_age(claim.metadata.creationTimestamp, now),
        spec.volumeMode or UNSET_FIELD,
    )


PERSISTENT_VOLUME_CLAIMS = Columns(
    headers=("NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS", "AGE"),
    wide=("VOLUMEMODE",),
    row=claim_row,
)


def storage_class_row(storage_class: StorageClass, now: float) -> tuple[str, ...]:
    meta = storage_class.metadata
    return (
        f"{meta.name} (default)" if meta.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true" else meta.name,
        storage_class.provisioner,
        storage_class.reclaimPolicy or "Delete",
        storage_class.volumeBindingMode or "Immediate",
        "true" if storage_class.allowVolumeExpansion else "false",
        format_age(meta.creationTimestamp, now),
    )


STORAGE_CLASSES = Columns(
    headers=("NAME", "PROVISIONER", "RECLAIMPOLICY", "VOLUMEBINDINGMODE", "ALLOWVOLUMEEXPANSION", "AGE"),
    wide=(),
    row=storage_class_row,
)


def csi_node_row(node: CSINode, now: float) -> tuple[str, ...]:
    return node.metadata.name, str(len(node.spec.drivers)), format_age(node.metadata.creationTimestamp, now)


CSI_NODES = Columns(headers=("NAME", "DRIVERS", "AGE"), wide=(), row=csi_node_row)
