"""Persistent volumes in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printPersistentVolume.
"""

from pinnace.api.core_v1_pb2 import PersistentVolume
from pinnace.api.storageclass import class_of
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns
from pinnace.printers.volumes import UNSET, access_modes, phase, size


def row(volume: PersistentVolume, now: float) -> tuple[str, ...]:
    spec, claim = volume.spec, volume.spec.claimRef
    return (
        volume.metadata.name,
        size(spec.capacity),
        access_modes(spec.accessModes),
        spec.persistentVolumeReclaimPolicy,
        phase(volume.metadata, volume.status.phase),
        f"{claim.namespace}/{claim.name}" if claim.name else "",
        class_of(volume),
        spec.volumeAttributesClassName or UNSET,
        volume.status.reason,
        since(volume.metadata.creationTimestamp, now),
        spec.volumeMode or UNSET,
    )


COLUMNS = Columns(
    headers=(
        "NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS",
        "REASON", "AGE",
    ),
    wide=("VOLUMEMODE",),
    row=row,
)  # fmt: skip
