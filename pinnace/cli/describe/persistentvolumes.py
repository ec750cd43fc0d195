"""All about a persistent volume.

Source: kubectl, pkg/describe, PersistentVolumeDescriber.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.api.core_v1_pb2 import (
    CSIPersistentVolumeSource,
    LocalVolumeSource,
    NodeSelectorRequirement,
    PersistentVolume,
    PersistentVolumeSpec,
)
from pinnace.api.pods import class_of
from pinnace.cli.describe import volumes
from pinnace.cli.describe.common import annotations, finalizers, phase
from pinnace.cli.describe.text import Fields, Value, pairs
from pinnace.printers.storage import access_modes, size


def describe(volume: PersistentVolume, now: float) -> Fields:
    meta, spec, claim = volume.metadata, volume.spec, volume.spec.claimRef
    return {
        "Name": meta.name,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "Finalizers": finalizers(meta),
        "StorageClass": class_of(volume),
        "Status": phase(meta, volume.status.phase, now),
        "Claim": f"{claim.namespace}/{claim.name}" if claim.name else "",
        "Reclaim Policy": spec.persistentVolumeReclaimPolicy,
        "Access Modes": access_modes(spec.accessModes),
        **({"VolumeMode": spec.volumeMode} if spec.volumeMode else {}),
        "Capacity": size(spec.capacity),
        "Node Affinity": _affinity(spec),
        "Message": volume.status.message,
        "Source": volumes.source(spec.persistentVolumeSource, _FORMS),
    }


def _affinity(spec: PersistentVolumeSpec) -> dict[str, Value]:
    """The labels of the nodes that reach it: those of one term are enough."""
    if not spec.nodeAffinity.HasField("required"):
        return {}
    terms = enumerate(spec.nodeAffinity.required.nodeSelectorTerms)
    return {
        "Required Terms": {f"Term {index}": [_requirement(each) for each in term.matchExpressions] for index, term in terms}
    }


def _requirement(requirement: NodeSelectorRequirement) -> str:
    """ "zone in [a, b]", "ssd exists"."""
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator.lower()}{values}"


def _csi(source: CSIPersistentVolumeSource) -> Fields:
    return {
        "Driver": source.driver,
        "FSType": source.fsType,
        "VolumeHandle": source.volumeHandle,
        "ReadOnly": str(source.readOnly).lower(),
        "VolumeAttributes": pairs(source.volumeAttributes),
    }


def _local(source: LocalVolumeSource) -> Fields:
    return {"Path": source.path}


_FORMS: Mapping[str, Callable[[Any], Fields]] = {**volumes.FORMS, "csi": _csi, "local": _local}
