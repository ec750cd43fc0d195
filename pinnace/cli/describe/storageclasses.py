"""All about a storage class.

Source: kubectl, pkg/describe, StorageClassDescriber.
"""

from pinnace.api.core_v1_pb2 import TopologySelectorTerm
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION
from pinnace.cli.describe.common import annotations
from pinnace.cli.describe.text import Fields, joined
from pinnace.printers.storage import UNSET_FIELD


def describe(storage_class: StorageClass) -> Fields:
    meta = storage_class.metadata
    expands = str(storage_class.allowVolumeExpansion) if storage_class.HasField("allowVolumeExpansion") else UNSET_FIELD
    return {
        "Name": meta.name,
        "IsDefaultClass": "Yes" if meta.annotations.get(DEFAULT_CLASS_ANNOTATION) == "true" else "No",
        "Annotations": annotations(meta),
        "Provisioner": storage_class.provisioner,
        "Parameters": joined(storage_class.parameters),
        "AllowVolumeExpansion": expands,
        "MountOptions": list(storage_class.mountOptions),
        "ReclaimPolicy": storage_class.reclaimPolicy or "Delete",
        "VolumeBindingMode": storage_class.volumeBindingMode or "Immediate",
        "AllowedTopologies": {f"Term {index}": _term(term) for index, term in enumerate(storage_class.allowedTopologies)},
    }


def _term(term: TopologySelectorTerm) -> list[str]:
    """ "topology.kubernetes.io/zone in [a, b]", a line for each."""
    return [f"{each.key} in [{', '.join(each.values)}]" for each in term.matchLabelExpressions]
