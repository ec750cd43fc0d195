"""The volume plugins once more, about one node at a time and as plainly as can be. They return why the node refuses the pod."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pinnace.api.core_v1_pb2 import Node, PersistentVolume, PersistentVolumeClaim, Pod, VolumeSource
from pinnace.api.quantity import parse
from pinnace.api.resources import CSI_NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from pinnace.scheduler.plugins.volumes import DISK, IN_USE
from tests.unit.scheduler.volume_objects import Stores

ZONES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
OLD_ZONES = ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")


def claims(pod: Pod, stores: Stores) -> list[PersistentVolumeClaim]:
    """Those that there are."""
    result = stores.objects(PERSISTENT_VOLUME_CLAIMS)
    names = [volume.volumeSource.persistentVolumeClaim.claimName for volume in pod.spec.volumes]
    return [result[f"ns/{name}"] for name in dict.fromkeys(names) if f"ns/{name}" in result]


def restrictions(pod: Pod, on_node: Sequence[Pod], anywhere: Sequence[Pod], stores: Stores) -> str:
    ours = [volume.volumeSource for volume in pod.spec.volumes]
    theirs = [volume.volumeSource for other in on_node for volume in other.spec.volumes]
    if any(_conflict(one, other) for one in ours for other in theirs):
        return DISK
    alone = {claim.metadata.name for claim in claims(pod, stores) if "ReadWriteOncePod" in claim.spec.accessModes}
    return IN_USE if any(_uses(other, name) for name in alone for other in anywhere) else ""


def _uses(pod: Pod, claim: str) -> bool:
    return any(volume.volumeSource.persistentVolumeClaim.claimName == claim for volume in pod.spec.volumes)


def _conflict(one: VolumeSource, other: VolumeSource) -> bool:
    for kind in ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"):
        if not one.HasField(kind) or not other.HasField(kind):
            continue
        a: Any = getattr(one, kind)
        b: Any = getattr(other, kind)
        both_read = a.readOnly and b.readOnly
        match kind:
            case "gcePersistentDisk":
                return a.pdName == b.pdName and not both_read
            case "awsElasticBlockStore":
                return bool(a.volumeID == b.volumeID)
            case "iscsi":
                return a.iqn == b.iqn and not both_read
            case _:
                same = bool(set(a.monitors) & set(b.monitors)) and (a.pool, a.image) == (b.pool, b.image)
                return same and not both_read
    return False


def zone(pod: Pod, node: Node, stores: Stores) -> bool:
    labels = node.metadata.labels
    if not any(label in labels for label in (*ZONES, *OLD_ZONES)):
        return False
    for claim in claims(pod, stores):
        volume = stores.objects(PERSISTENT_VOLUMES).get(claim.spec.volumeName)
        for label, value in volume.metadata.labels.items() if volume is not None else ():
            if label not in (*ZONES, *OLD_ZONES):
                continue
            today = ZONES[OLD_ZONES.index(label)] if label in OLD_ZONES else label
            has = labels.get(label, labels.get(today))
            if has is None or has not in value.split("__"):
                return True
    return False


def limits(pod: Pod, node: str, on_node: Iterable[Pod], stores: Stores) -> bool:
    attached = {claim.metadata.name: driver(claim, stores) for other in on_node for claim in claims(other, stores)}
    wanted = {claim.metadata.name: driver(claim, stores) for claim in claims(pod, stores)}
    more = {name: of for name, of in wanted.items() if name not in attached}
    csi_node = stores.objects(CSI_NODES).get(node)
    for item in csi_node.spec.drivers if csi_node is not None else ():
        new, old = (list(counted.values()).count(item.name) for counted in (more, attached))
        if item.allocatable.HasField("count") and new and old + new > item.allocatable.count:
            return True
    return False


def driver(claim: PersistentVolumeClaim, stores: Stores) -> str:
    volume = stores.objects(PERSISTENT_VOLUMES).get(claim.spec.volumeName)
    if volume is not None:
        return str(volume.spec.persistentVolumeSource.csi.driver)
    storage_class = stores.objects(STORAGE_CLASSES).get(claim.spec.storageClassName)
    return storage_class.provisioner if storage_class is not None else ""


def binding(pod: Pod, node: Node, stores: Stores) -> tuple[bool, bool]:
    """(a bound volume is out of reach, a claim gets no volume)."""
    volumes, near, met = stores.objects(PERSISTENT_VOLUMES), True, True
    waiting = []
    for claim in claims(pod, stores):
        if claim.spec.volumeName:
            near = near and reaches(volumes[claim.spec.volumeName], node.metadata.labels)
        else:
            waiting.append(claim)
    chosen: set[str] = set()
    for claim in sorted(waiting, key=_asked):
        result = smallest(claim, volumes.values(), node, chosen)
        if result is None:
            met = met and _can_make(claim, node, stores)
        else:
            chosen.add(result.metadata.name)
    return not near, not met


def smallest(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume], node: Node, chosen: set[str]
) -> PersistentVolume | None:
    best = None
    for volume in sorted(volumes, key=lambda item: item.metadata.name):
        spec, owner = volume.spec, volume.spec.claimRef
        if spec.storageClassName != claim.spec.storageClassName or volume.metadata.name in chosen:
            continue
        if _has(volume) < _asked(claim) or spec.volumeAttributesClassName != claim.spec.volumeAttributesClassName:
            continue
        if owner.name:
            if owner.name == claim.metadata.name and owner.uid in ("", claim.metadata.uid):
                return volume if reaches(volume, node.metadata.labels) else None
            continue
        if volume.status.phase != "Available" or not reaches(volume, node.metadata.labels):
            continue
        if not set(claim.spec.accessModes) <= set(spec.accessModes):
            continue
        if any(volume.metadata.labels.get(key) != value for key, value in claim.spec.selector.matchLabels.items()):
            continue
        if best is None or _has(volume) < _has(best):
            best = volume
    return best


def reaches(volume: PersistentVolume, labels: Mapping[str, str]) -> bool:
    if not volume.spec.nodeAffinity.HasField("required"):
        return True
    return any(
        all(
            (labels.get(match_expression.key) in match_expression.values) == (match_expression.operator == "In")
            if match_expression.operator != "Exists"
            else match_expression.key in labels
            for match_expression in term.matchExpressions
        )
        for term in volume.spec.nodeAffinity.required.nodeSelectorTerms
    )


def _can_make(claim: PersistentVolumeClaim, node: Node, stores: Stores) -> bool:
    storage_class = stores.objects(STORAGE_CLASSES)[claim.spec.storageClassName]
    if storage_class.provisioner == "kubernetes.io/no-provisioner":
        return False
    terms = storage_class.allowedTopologies
    return not terms or any(
        term.matchLabelExpressions
        and all(
            node.metadata.labels.get(label_expression.key) in label_expression.values
            for label_expression in term.matchLabelExpressions
        )
        for term in terms
    )


def _asked(claim: PersistentVolumeClaim) -> Any:
    return parse(claim.spec.resources.requests["storage"].string)


def _has(volume: PersistentVolume) -> Any:
    return parse(volume.spec.capacity["storage"].string)
