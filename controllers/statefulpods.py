"""The pods and claims of stateful sets: names, labels, volumes, and the owners of claims. Pure.

    pod      SET-ORDINAL             hostname = its name, subdomain = spec.serviceName
    claim    TEMPLATE-SET-ORDINAL    owned by the set, by the pod, or by nobody, as persistentVolumeClaimRetentionPolicy says:

                  whenDeleted   whenScaled   a pod in the set   a pod beyond the replicas
                  Retain        Retain       -                  -
                  Delete        Retain       the set            the set
                  Retain        Delete       -                  the pod
                  Delete        Delete       the set            the pod

The garbage collector deletes the claims of deleted owners.

Source: pkg/controller/statefulset/stateful_set_utils.go of Kubernetes 1.36.
"""

import re
from collections.abc import Iterator, Sequence

from pinnace.api.apps_v1_pb2 import StatefulSet
from pinnace.api.core_v1_pb2 import PersistentVolumeClaim, Pod, PodTemplateSpec
from pinnace.api.meta_v1_pb2 import ObjectMeta, OwnerReference
from pinnace.api.resources import PODS, STATEFUL_SETS
from pinnace.controllers.ownership import new_controller_ref
from pinnace.controllers.podcontrol import build_pod_from_template
from pinnace.controllers.revisions import REVISION_LABEL

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
DELETE = "Delete"
_split_name = re.compile(r"(.*)-([0-9]+)").fullmatch
_MAX_ORDINAL = 2**31 - 1


def pod_name(stateful_set: StatefulSet, ordinal: int) -> str:
    return f"{stateful_set.metadata.name}-{ordinal}"


def claim_name(stateful_set: StatefulSet, template: PersistentVolumeClaim, ordinal: int) -> str:
    return f"{template.metadata.name}-{stateful_set.metadata.name}-{ordinal}"


def parse_pod_name(name: str) -> tuple[str, int]:
    """Return the names of the set and the ordinal. Return "" and -1 if no set names pods so."""
    match = _split_name(name)
    if match is None or str(int(match[2][:20])) != match[2] or int(match[2]) > _MAX_ORDINAL:
        return "", -1
    return match[1], int(match[2])


def ordinal_of(pod: Pod) -> int:
    return parse_pod_name(pod.metadata.name)[1]


def is_member(owner: ObjectMeta, pod: Pod) -> bool:
    """Return whether the pod has a name of this set."""
    return parse_pod_name(pod.metadata.name)[0] == owner.name


def set_names_of_claim(name: str) -> Iterator[str]:
    """Yield the names of the sets that may have made a claim of this name."""
    rest, _ = parse_pod_name(name)
    while "-" in rest:
        rest = rest.partition("-")[2]
        yield rest


def first_ordinal(stateful_set: StatefulSet) -> int:
    return stateful_set.spec.ordinals.start


def is_in_range(stateful_set: StatefulSet, ordinal: int) -> bool:
    first = first_ordinal(stateful_set)
    return first <= ordinal < first + stateful_set.spec.replicas


def pod_revision(pod: Pod) -> str:
    return pod.metadata.labels.get(REVISION_LABEL, "")


def build_stateful_pod(stateful_set: StatefulSet, template: PodTemplateSpec, revision: str, ordinal: int) -> Pod:
    """Return the pod to create. `revision`: the name of the revision of the template."""
    pod = build_pod_from_template(template, STATEFUL_SETS, stateful_set)
    pod.metadata.name = pod.spec.hostname = pod_name(stateful_set, ordinal)
    pod.spec.subdomain = stateful_set.spec.serviceName
    pod.metadata.labels[REVISION_LABEL] = revision
    _set_identity(stateful_set, pod)
    return pod


def _set_identity(stateful_set: StatefulSet, pod: Pod) -> None:
    """Set the labels and the volumes of the claims, which replace volumes of the same name."""
    ordinal = ordinal_of(pod)
    pod.metadata.labels.update({POD_NAME_LABEL: pod.metadata.name, POD_INDEX_LABEL: str(ordinal)})
    templates = {template.metadata.name: template for template in stateful_set.spec.volumeClaimTemplates}
    if not templates:
        return
    others = [volume for volume in pod.spec.volumes if volume.name not in templates]
    del pod.spec.volumes[:]
    for name, template in templates.items():
        source = pod.spec.volumes.add(name=name).volumeSource
        source.persistentVolumeClaim.claimName = claim_name(stateful_set, template, ordinal)
    pod.spec.volumes.extend(others)


def has_identity(stateful_set: StatefulSet, pod: Pod) -> bool:
    """Return whether the pod has the labels and the volumes of its ordinal."""
    ordinal, labels = ordinal_of(pod), pod.metadata.labels
    if labels.get(POD_NAME_LABEL) != pod.metadata.name or labels.get(POD_INDEX_LABEL) != str(ordinal):
        return False
    if not stateful_set.spec.volumeClaimTemplates:
        return True
    mounted = {volume.name: volume.volumeSource.persistentVolumeClaim.claimName for volume in pod.spec.volumes}
    return all(
        mounted.get(template.metadata.name) == claim_name(stateful_set, template, ordinal)
        for template in stateful_set.spec.volumeClaimTemplates
    )


def identified_copy(stateful_set: StatefulSet, pod: Pod) -> Pod:
    """Return a copy of the pod with the labels and the volumes of its ordinal."""
    changed = Pod()
    changed.CopyFrom(pod)
    _set_identity(stateful_set, changed)
    return changed


def claim_names(stateful_set: StatefulSet, ordinal: int) -> Iterator[str]:
    """Yield the names of the claims of the pod with this ordinal."""
    return (claim_name(stateful_set, template, ordinal) for template in stateful_set.spec.volumeClaimTemplates)


def claims_of_pod(stateful_set: StatefulSet, ordinal: int) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims to create for the pod with this ordinal."""
    for template in stateful_set.spec.volumeClaimTemplates:
        claim = PersistentVolumeClaim()
        claim.CopyFrom(template)
        claim.ClearField("status")
        metadata = claim.metadata
        metadata.name, metadata.namespace = claim_name(stateful_set, template, ordinal), stateful_set.metadata.namespace
        metadata.labels.update(stateful_set.spec.selector.matchLabels)
        if stateful_set.spec.persistentVolumeClaimRetentionPolicy.whenDeleted == DELETE:
            metadata.ownerReferences.append(new_controller_ref(STATEFUL_SETS, stateful_set))
        yield claim


def _is_reference_to(reference: OwnerReference, owner: StatefulSet | Pod) -> bool:
    """Return whether the reference names the owner, or an earlier object of the same name."""
    resource = STATEFUL_SETS if isinstance(owner, StatefulSet) else PODS
    return (reference.apiVersion, reference.kind, reference.name) == (
        resource.api_version,
        resource.kind,
        owner.metadata.name,
    )


def is_claim_stale(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether the claim belongs to an earlier pod of this name. The garbage collector deletes it."""
    return any(
        _is_reference_to(reference, pod) and reference.uid != pod.metadata.uid for reference in claim.metadata.ownerReferences
    )


def owned_claim_copy(claim: PersistentVolumeClaim, stateful_set: StatefulSet, pod: Pod) -> PersistentVolumeClaim | None:
    """Return a copy of the claim with the owners that the retention policy demands, or None if it has them.

    A claim of an earlier set or pod, or of another controller, gets no owner.
    """
    references: Sequence[OwnerReference] = claim.metadata.ownerReferences
    policy = stateful_set.spec.persistentVolumeClaimRetentionPolicy
    when_deleted, when_scaled = policy.whenDeleted == DELETE, policy.whenScaled == DELETE
    if not (when_deleted or when_scaled or references):
        return None
    own = [
        reference for reference in references if _is_reference_to(reference, stateful_set) or _is_reference_to(reference, pod)
    ]
    if any(reference.uid not in (stateful_set.metadata.uid, pod.metadata.uid) for reference in own):
        return None
    others = [reference for reference in references if reference not in own]
    scaled_down = when_scaled and not is_in_range(stateful_set, ordinal_of(pod))
    wanted = []
    if not ((when_deleted or when_scaled) and any(reference.controller for reference in others)):
        if scaled_down:
            wanted.append(new_controller_ref(PODS, pod))
        elif when_deleted:
            wanted.append(new_controller_ref(STATEFUL_SETS, stateful_set))
    if {(reference.uid, reference.controller) for reference in own} == {(reference.uid, True) for reference in wanted}:
        return None
    changed = PersistentVolumeClaim()
    changed.CopyFrom(claim)
    del changed.metadata.ownerReferences[:]
    changed.metadata.ownerReferences.extend((*others, *wanted))
    return changed
