"""Shared code of the built-in plugins: argument checks, lookups of other objects, and sums over topology domains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

import numpy as np

from pinnace.api import names
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.resources import NAMESPACES, SERVICES, Object, Resource
from pinnace.api.selectors import LabelRequirement, LabelSelector
from pinnace.client.informer import Index
from pinnace.scheduler.cache.columns import EncodedColumn
from pinnace.scheduler.cache.pod_index import AffinityTerm, Selection, selector_of_controller
from pinnace.scheduler.cache.pod_info import PodInfo
from pinnace.scheduler.framework import BoolArray, FloatArray, NodeTable

T = TypeVar("T", bound=Object)
MOST = 1_000
"""Maximum number of Services to check per pod, which takes three milliseconds."""
_SPREADING = ("ReplicaSet", "ReplicationController", "StatefulSet")
Weighted = tuple[str, Selection | AffinityTerm, float]
"""A topology key, the counted pods, and the factor of their number."""


def check_names(args: Mapping[str, Any], allowed: Sequence[str], path: str = "") -> None:
    """Raise ValueError for an unknown field. apiVersion and kind are always allowed."""
    for name in args:
        if name not in (*allowed, "apiVersion", "kind"):
            raise ValueError(f"{path}{name}: unknown field; supported: {', '.join(allowed)}")


def parse_fields(raw: Any, path: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of a nested object without null values. Raise ValueError."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"{path}: expected fields ({', '.join(allowed)})")
    check_names(raw, allowed, f"{path}.")
    return {name: value for name, value in raw.items() if value is not None}


def parse_items(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{path}: expected a list")
    return raw


def check_label_key(key: str, path: str) -> str:
    """Check a label key or a resource name. Raise ValueError."""
    if problems := names.label_key(key):
        raise ValueError(f"{path}: {problems[0]}, got {key!r}")
    return key


def parse_whole_number(args: Mapping[str, Any], name: str, default: int, least: int, most: int, path: str = "") -> int:
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{path}{name}: expected a whole number from {least} to {most}, got {value!r}")
    return value


def parse_flag(args: Mapping[str, Any], name: str) -> bool:
    """Return a boolean argument, which is False by default. Raise ValueError."""
    value = args.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected true or false, got {value!r}")
    return value


class ObjectStores(Protocol):
    """The methods of the framework's handle that these plugins use."""

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """Return the informer's objects by "namespace/name" or "name"."""
        ...

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """Return an index of the objects by the key that `by` returns."""
        ...


def _service_index_key(service: Service) -> str:
    """Return the index key of a Service: its label with the longest value, or "" if it has no selector."""
    label = max(service.spec.selector.items(), key=lambda item: (len(item[1]), item), default=None)
    return _index_key(service.metadata.namespace, *label) if label is not None else ""


def _index_key(namespace: str, key: str, value: str) -> str:
    return f"{namespace}/{key}={value}"


class NamespaceLabels:
    needs = (NAMESPACES,)

    def __init__(self, handle: ObjectStores | None) -> None:
        self._handle = handle

    def __len__(self) -> int:
        return len(self._handle.objects(NAMESPACES)) if self._handle is not None else 0

    def labels(self, name: str) -> Mapping[str, str]:
        namespace = self._handle.objects(NAMESPACES).get(name) if self._handle is not None else None
        return namespace.metadata.labels if namespace is not None else {}

    def namespaces_of_term(self, term: AffinityTerm) -> frozenset[str] | None:
        """Return the namespaces to which a term applies, or None for all."""
        selector = term.namespace_selector
        if selector is None:
            return term.namespaces
        if not selector.requirements:
            return None
        namespaces = self._handle.objects(NAMESPACES).items() if self._handle is not None else ()
        return term.namespaces.union(name for name, each in namespaces if selector.matches(each.metadata.labels))


class SiblingPods:
    """Finds the pods among which a pod is spread by default.

    These are the pods of its ReplicaSet, ReplicationController or StatefulSet, and of its Services. Pods of other
    controllers, such as Jobs, are spread only among the pods of their Services.

    Kubernetes matches the selectors of these controllers; owner references give the same result. Services are found by
    one label of their selector in the pod's namespace. At most MOST are checked, because a user of a namespace can create
    20,000.
    """

    needs = (SERVICES,)

    def __init__(self, handle: ObjectStores | None) -> None:
        self._services = (
            handle.index(SERVICES, _service_index_key) if handle is not None else Index[Service](_service_index_key)
        )

    def selection_of(self, pod: PodInfo) -> Selection | None:
        """Return a selection of the pods without pods that are being deleted, or None if the pod has no controller or
        Service."""
        owner = next(
            (owner_reference for owner_reference in pod.raw.metadata.ownerReferences if owner_reference.controller), None
        )
        selector = selector_of_controller(owner.uid) if owner is not None and owner.kind in _SPREADING else LabelSelector()
        labels = pod.raw.metadata.labels
        result = (self._services.under(_index_key(pod.namespace, *label)).values() for label in labels.items())
        demanded = set[str]()
        for service in islice(chain.from_iterable(result), MOST):
            wanted = service.spec.selector
            if len(wanted) == 1 or wanted.items() <= labels.items():
                demanded.update(wanted)
        if demanded:
            selector = selector.and_also(LabelRequirement(key, frozenset((labels[key],))) for key in demanded)
        return Selection(frozenset((pod.namespace,)), selector, living=True) if selector.requirements else None


def sum_per_domain(numbers: FloatArray, labels: EncodedColumn[str | None]) -> FloatArray:
    """Return the sum over the domain of each node, or 0 for a node without the label."""
    return sums_by_domain(numbers, labels)[labels.codes]


def sums_by_domain(numbers: FloatArray | BoolArray, labels: EncodedColumn[str | None]) -> FloatArray:
    """Return the sums by code of the label, with 0 for nodes without the label."""
    sums = np.bincount(labels.codes, numbers, minlength=1).astype(np.float64, copy=False)
    sums[0] = 0
    return sums


def weighted_sum(nodes: NodeTable, items: Iterable[Weighted]) -> FloatArray:
    """Return the total of the items' domain sums for each node."""
    by_key: dict[str, list[tuple[Selection | AffinityTerm, float]]] = {}
    for key, pods, weight in items:
        if nodes.any_node_has_label(key):
            by_key.setdefault(key, []).append((pods, weight))
    total: FloatArray = np.zeros(len(nodes))
    for key, wanted in by_key.items():
        total += sum_per_domain(nodes.pods.sum_pods(wanted), nodes.label(key))
    return total
