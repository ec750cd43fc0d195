"""What the built-in plugins share: checks of arguments, listers of other objects, and sums over topology domains."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

import numpy as np

from pinnace.api import names
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.resources import NAMESPACES, SERVICES, Object, Resource
from pinnace.api.selectors import LabelRequirement, LabelSelector
from pinnace.client.informer import Index
from scheduler.cache.columns import Coded
from scheduler.cache.pod_index import Selection, Term, controlled_by
from scheduler.cache.pod_info import PodInfo
from scheduler.framework import BoolArray, FloatArray, NodeTable


def check_names(args: Mapping[str, Any], allowed: Sequence[str], path: str = "") -> None:
    """Of the fields; apiVersion and kind may always stand there."""
    for name in args:
        if name not in (*allowed, "apiVersion", "kind"):
            raise ValueError(f"{path}{name}: not supported; there are {', '.join(allowed)}")


def fields(raw: Any, path: str, allowed: Sequence[str]) -> Mapping[str, Any]:
    """Those of one object among the arguments, without those that are null."""
    if not isinstance(raw, Mapping):
        raise ValueError(f"{path}: expected fields ({', '.join(allowed)})")
    check_names(raw, allowed, f"{path}.")
    return {name: value for name, value in raw.items() if value is not None}


def items(raw: Any, path: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ValueError(f"{path}: expected a list")
    return raw


def label_key(key: str, path: str) -> str:
    """Also the name of a resource."""
    if problems := names.label_key(key):
        raise ValueError(f"{path}: {problems[0]}, got {key!r}")
    return key


def whole_number(args: Mapping[str, Any], name: str, default: int, least: int, most: int, path: str = "") -> int:
    value = args.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{path}{name}: expected a whole number from {least} to {most}, got {value!r}")
    return value


def flag(args: Mapping[str, Any], name: str) -> bool:
    """False when it is not there."""
    value = args.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected true or false, got {value!r}")
    return value


T = TypeVar("T", bound=Object)
MOST = 1_000
"""Services that are looked at for one pod: three milliseconds."""
_SPREADING = ("ReplicaSet", "ReplicationController", "StatefulSet")


class Objects(Protocol):
    """What these plugins need of the framework's handle."""

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """As an informer sees them, by "namespace/name" or "name"."""
        ...

    def index(self, resource: Resource[T], by: Callable[[T], str]) -> Index[T]:
        """The same by a key that `by` makes of each."""
        ...


def _anchor(service: Service) -> str:
    """By which a service is found: the label with the longest value, which few others have. "": it selects nothing."""
    label = max(service.spec.selector.items(), key=lambda each: (len(each[1]), each), default=None)
    return _key(service.metadata.namespace, *label) if label is not None else ""


def _key(namespace: str, key: str, value: str) -> str:
    return f"{namespace}/{key}={value}"


class Namespaces:
    needs = (NAMESPACES,)

    def __init__(self, handle: Objects | None) -> None:
        self._handle = handle

    def __len__(self) -> int:
        return len(self._handle.objects(NAMESPACES)) if self._handle is not None else 0

    def labels(self, name: str) -> Mapping[str, str]:
        found = self._handle.objects(NAMESPACES).get(name) if self._handle is not None else None
        return found.metadata.labels if found is not None else {}

    def covered(self, term: Term) -> frozenset[str] | None:
        """The namespaces that a term is about; None: all."""
        selector = term.namespace_selector
        if selector is None:
            return term.namespaces
        if not selector.requirements:
            return None
        namespaces = self._handle.objects(NAMESPACES).items() if self._handle is not None else ()
        return term.namespaces.union(name for name, each in namespaces if selector.matches(each.metadata.labels))


class Siblings:
    """The pods that a pod is to be spread among, if it does not say so itself: those of its ReplicaSet, ReplicationController
    or StatefulSet, and of its services. Pods of other controllers, a Job for one, are spread among those of services only.

    Kubernetes reads the selectors of these controllers; an owner reference says the same. Services are looked up by one label
    that they demand, in the namespace of the pod, and at most MOST of them: any user of a namespace can create 20,000.
    """

    needs = (SERVICES,)

    def __init__(self, handle: Objects | None) -> None:
        self._services = handle.index(SERVICES, _anchor) if handle is not None else Index[Service](_anchor)

    def of(self, pod: PodInfo) -> Selection | None:
        """Without those that are being deleted. None: it is on its own."""
        owner = next((each for each in pod.raw.metadata.ownerReferences if each.controller), None)
        selector = controlled_by(owner.uid) if owner is not None and owner.kind in _SPREADING else LabelSelector()
        labels = pod.raw.metadata.labels
        found = (self._services.under(_key(pod.namespace, *label)).values() for label in labels.items())
        demanded = set[str]()
        for service in islice(chain.from_iterable(found), MOST):
            wanted = service.spec.selector
            if len(wanted) == 1 or wanted.items() <= labels.items():
                demanded.update(wanted)
        if demanded:
            selector = selector.and_also(LabelRequirement(key, frozenset((labels[key],))) for key in demanded)
        return Selection(frozenset((pod.namespace,)), selector, living=True) if selector.requirements else None


Weighted = tuple[str, Selection | Term, float]
"""A topology key; the pods that are counted on each node; what their number is multiplied with."""


def per_domain(numbers: FloatArray, labels: Coded[str | None]) -> FloatArray:
    """For each node, the sum over its domain; 0 for a node without the label."""
    return domain_sums(numbers, labels)[labels.codes]


def domain_sums(numbers: FloatArray | BoolArray, labels: Coded[str | None]) -> FloatArray:
    """By code of the label; 0 for the nodes without."""
    sums = np.bincount(labels.codes, numbers, minlength=1).astype(np.float64, copy=False)
    sums[0] = 0
    return sums


def weighted_sum(nodes: NodeTable, items: Iterable[Weighted]) -> FloatArray:
    """For each node, the sum of the items' sums over its domain in their topology."""
    by_key: dict[str, list[tuple[Selection | Term, float]]] = {}
    for key, pods, weight in items:
        if nodes.has_label(key):
            by_key.setdefault(key, []).append((pods, weight))
    total: FloatArray = np.zeros(len(nodes))
    for key, wanted in by_key.items():
        total += per_domain(nodes.pods.sum(wanted), nodes.label(key))
    return total
