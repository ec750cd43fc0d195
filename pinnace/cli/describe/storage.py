"""Descriptions of persistent volumes, claims and storage classes.

Source: kubectl, pkg/describe: PersistentVolumeDescriber, PersistentVolumeClaimDescriber, StorageClassDescriber.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pinnace.api.core_v1_pb2 import (
    CSIPersistentVolumeSource,
    LocalVolumeSource,
    NodeSelectorRequirement,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    Pod,
    TopologySelectorTerm,
    TypedLocalObjectReference,
)
from pinnace.api.pods import class_of
from pinnace.api.resources import PODS
from pinnace.api.storage_v1_pb2 import StorageClass
from pinnace.api.wellknown import DEFAULT_CLASS_ANNOTATION
from pinnace.cli.describe import pods
from pinnace.cli.describe.text import Fields, NotShown, Rows, Value, annotations, finalizers, instant, joined, pairs, phase
from pinnace.printers.storage import UNSET_FIELD, access_modes, size


def describe_volume(volume: PersistentVolume, now: float) -> Fields:
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
        "Source": pods.source(spec.persistentVolumeSource, _FORMS),
    }


def _affinity(spec: PersistentVolumeSpec) -> dict[str, Value]:
    """Describe the node affinity. A node must match one of the terms."""
    if not spec.nodeAffinity.HasField("required"):
        return {}
    terms = enumerate(spec.nodeAffinity.required.nodeSelectorTerms)
    return {
        "Required Terms": {f"Term {index}": [_requirement(each) for each in term.matchExpressions] for index, term in terms}
    }


def _requirement(requirement: NodeSelectorRequirement) -> str:
    """Format a requirement: "zone in [a, b]", "ssd exists"."""
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


_FORMS: Mapping[str, Callable[[Any], Fields]] = {**pods.FORMS, "csi": _csi, "local": _local}


def describe_claim(claim: PersistentVolumeClaim, pods: Iterable[Pod] | NotShown, now: float) -> Fields:
    """Describe a claim. `pods` are the pods of its namespace."""
    meta, spec, status = claim.metadata, claim.spec, claim.status
    bound = bool(spec.volumeName)
    fields: dict[str, Value] = {
        "Name": meta.name,
        "Namespace": meta.namespace,
        "StorageClass": class_of(claim),
        "Status": phase(meta, status.phase, now),
        "Volume": spec.volumeName,
        "Labels": pairs(meta.labels),
        "Annotations": annotations(meta),
        "Finalizers": finalizers(meta),
        "Capacity": size(status.capacity) if bound else "",
        "Access Modes": access_modes(status.accessModes) if bound else "",
    }
    if spec.volumeMode:
        fields["VolumeMode"] = spec.volumeMode
    if spec.HasField("dataSource"):
        fields["DataSource"] = _source(spec.dataSource)
    fields["Used By"] = pods if isinstance(pods, NotShown) else sorted({pod.metadata.name for pod in pods if _uses(pod, claim)})
    if status.conditions:
        headers = ("Type", "Status", "LastProbeTime", "LastTransitionTime", "Reason", "Message")
        fields["Conditions"] = Rows(
            headers,
            [
                (
                    each.type,
                    each.status,
                    instant(each.lastProbeTime),
                    instant(each.lastTransitionTime),
                    each.reason,
                    each.message,
                )
                for each in status.conditions
            ],
        )
    return fields


def _source(source: TypedLocalObjectReference) -> Fields:
    group = {"APIGroup": source.apiGroup} if source.HasField("apiGroup") else {}
    return {**group, "Kind": source.kind, "Name": source.name}


def _uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether the pod uses the claim by name, or by an ephemeral volume."""
    meta = claim.metadata
    return any(volume.volumeSource.persistentVolumeClaim.claimName == meta.name for volume in pod.spec.volumes) or any(
        owner.kind == PODS.kind and owner.uid == pod.metadata.uid for owner in meta.ownerReferences
    )


def describe_storage_class(storage_class: StorageClass) -> Fields:
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
    """Format the requirements of a term: "topology.kubernetes.io/zone in [a, b]"."""
    return [f"{each.key} in [{', '.join(each.values)}]" for each in term.matchLabelExpressions]
