"""All about a claim of a volume: what it got, and which pods use it.

Source: kubectl, pkg/describe, PersistentVolumeClaimDescriber.
"""

from collections.abc import Iterable

from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, Pod, TypedLocalObjectReference
from pinnace.api.pods import class_of
from pinnace.api.resources import PODS
from pinnace.cli.describe.common import annotations, finalizers, phase
from pinnace.cli.describe.text import Fields, NotShown, Rows, Value, instant, pairs
from pinnace.printers.storage import access_modes, size


def describe(claim: PersistentVolumeClaim, pods: Iterable[Pod] | NotShown, now: float) -> Fields:
    """`pods`: of its namespace."""
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
    """By its name, or as the pod whose ephemeral volume it is."""
    meta = claim.metadata
    return any(volume.volumeSource.persistentVolumeClaim.claimName == meta.name for volume in pod.spec.volumes) or any(
        owner.kind == PODS.kind and owner.uid == pod.metadata.uid for owner in meta.ownerReferences
    )
