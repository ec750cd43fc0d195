"""Volumes, claims and classes for the tests of the volume plugins, and a handle over them."""

from collections.abc import Mapping, Sequence
from typing import Any

from pinnace.api.codec import from_dict
from pinnace.api.core_v1_pb2 import PersistentVolume, PersistentVolumeClaim
from pinnace.api.resources import (
    CSI_NODES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    Object,
    Resource,
)
from pinnace.api.storage_v1_pb2 import CSINode, StorageClass
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import SKIP, CycleState, NodeTable


class Stores:
    """A handle of stores that tests fill: `Stores(claim("c"), volume("v"))`."""

    client: Any = None

    def __init__(self, *objs: Object) -> None:
        self._stores: dict[str, dict[str, Any]] = {}
        for obj in objs:
            self.put(obj)

    def objects(self, resource: Resource[Any]) -> Mapping[str, Any]:
        return self._stores.setdefault(resource.plural, {})

    def put(self, obj: Object) -> None:
        plural, key = self._place(obj)
        self._stores.setdefault(plural, {})[key] = obj

    def remove(self, obj: Object) -> None:
        plural, key = self._place(obj)
        del self._stores[plural][key]

    @staticmethod
    def _place(obj: Object) -> tuple[str, str]:
        resources = (PODS, NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, CSI_NODES)
        resource = next(item for item in resources if isinstance(obj, item.message))
        meta = obj.metadata
        return resource.plural, f"{meta.namespace}/{meta.name}" if resource.namespaced else meta.name


def pod(*sources: Mapping[str, Any] | str, name: str = "new", node: str = "") -> PodInfo:
    """A pod in namespace ns; a text is the name of a claim."""
    volumes = [
        {"name": f"v{at}", **({"persistentVolumeClaim": {"claimName": each}} if isinstance(each, str) else each)}
        for at, each in enumerate(sources)
    ]
    metadata = {"name": name, "namespace": "ns", "uid": name}
    return PodInfo(from_dict(PODS, {"metadata": metadata, "spec": {"volumes": volumes, "nodeName": node}}))


def claim(
    name: str,
    *,
    volume: str = "",
    storage_class: str = "",
    size: str = "1Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> PersistentVolumeClaim:
    """With a volume, it is bound to it."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": dict(annotations or {})}
    asked = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, "storageClassName": storage_class}
    status = {"phase": "Bound" if volume else "Pending"}
    return from_dict(
        PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": {**asked, "volumeName": volume, **spec}, "status": status}
    )


def volume(
    name: str,
    *,
    storage_class: str = "",
    size: str = "1Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    labels: Mapping[str, str] | None = None,
    near: Sequence[tuple[str, str, Sequence[str]]] | None = None,
    phase: str = "Available",
    **spec: Any,
) -> PersistentVolume:
    """`near`: requirements of the nodes that can reach it, such as ("zone", "In", ["a"])."""
    fields: dict[str, Any] = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": storage_class}
    if near is not None:
        expressions = [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in near]
        fields["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    metadata = {"name": name, "labels": dict(labels or {})}
    return from_dict(PERSISTENT_VOLUMES, {"metadata": metadata, "spec": {**fields, **spec}, "status": {"phase": phase}})


def storage_class(name: str, provisioner: str = "kubernetes.io/no-provisioner", **fields: Any) -> StorageClass:
    return from_dict(
        STORAGE_CLASSES,
        {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **fields},
    )


def csi_node(name: str, **limits: int) -> CSINode:
    drivers = [{"name": driver, "nodeID": name, "allocatable": {"count": count}} for driver, count in limits.items()]
    return from_dict(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": drivers}})


def refusals(plugin: Any, info: PodInfo, nodes: NodeTable, state: CycleState | None = None) -> list[str] | str:
    """For each node what the plugin says, "" where it passes; or what it says of all."""
    state = {} if state is None else state
    status = plugin.pre_filter(state, info, nodes)
    if status is SKIP:
        return [""] * len(nodes)
    if status is not None:
        return str(status.reason)
    result = plugin.filter(state, info, nodes)
    told = result.explain()
    assert result.passed.tolist() == (told.codes == 0).tolist()
    return [", ".join(told.reasons(int(code))) if code else "" for code in told.codes]
