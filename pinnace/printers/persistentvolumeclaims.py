"""Claims of volumes in a table.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printPersistentVolumeClaim.
"""

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim
from pinnace.api.storageclass import class_of
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns
from pinnace.printers.volumes import UNSET, access_modes, phase, size


def row(claim: PersistentVolumeClaim, now: float) -> tuple[str, ...]:
    spec, status = claim.spec, claim.status
    bound = bool(spec.volumeName)
    return (
        claim.metadata.name,
        phase(claim.metadata, status.phase),
        spec.volumeName,
        size(status.capacity) if bound else "",
        access_modes(status.accessModes) if bound else "",
        class_of(claim),
        spec.volumeAttributesClassName or UNSET,
        since(claim.metadata.creationTimestamp, now),
        spec.volumeMode or UNSET,
    )


COLUMNS = Columns(
    headers=("NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "VOLUMEATTRIBUTESCLASS", "AGE"),
    wide=("VOLUMEMODE",),
    row=row,
)
