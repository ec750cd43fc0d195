"""Storage classes in a table. The default class is marked.

Source: Kubernetes, pkg/printers/internalversion/printers.go, printStorageClass.
"""

from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION
from pinnace.printers.ages import since
from pinnace.printers.columns import Columns


def row(storage_class: StorageClass, now: float) -> tuple[str, ...]:
    meta = storage_class.metadata
    return (
        f"{meta.name} (default)" if meta.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true" else meta.name,
        storage_class.provisioner,
        storage_class.reclaimPolicy or "Delete",
        storage_class.volumeBindingMode or "Immediate",
        "true" if storage_class.allowVolumeExpansion else "false",
        since(meta.creationTimestamp, now),
    )


COLUMNS = Columns(
    headers=("NAME", "PROVISIONER", "RECLAIMPOLICY", "VOLUMEBINDINGMODE", "ALLOWVOLUMEEXPANSION", "AGE"), wide=(), row=row
)
