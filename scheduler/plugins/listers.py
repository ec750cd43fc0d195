"""What plugins read of other objects than pods and nodes. A plugin that has no handle finds none."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from pinnace.api.resources import NAMESPACES, SERVICES, Object, Resource
from pinnace.api.selectors import LabelRequirement, LabelSelector
from scheduler.cache.pod_index import Selection, controlled_by
from scheduler.cache.pod_info import PodInfo
from scheduler.cache.pod_terms import Term

T = TypeVar("T", bound=Object)
_SPREADING = ("ReplicaSet", "ReplicationController", "StatefulSet")


class Objects(Protocol):
    """What these plugins need of the framework's handle."""

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """As an informer sees them, by "namespace/name" or "name"."""
        ...


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

    Kubernetes reads the selectors of these controllers; an owner reference says the same.
    """

    needs = (SERVICES,)

    def __init__(self, handle: Objects | None) -> None:
        self._handle = handle

    def of(self, pod: PodInfo) -> Selection | None:
        """Without those that are being deleted. None: it is on its own."""
        owner = next((each for each in pod.raw.metadata.ownerReferences if each.controller), None)
        selector = controlled_by(owner.uid) if owner is not None and owner.kind in _SPREADING else LabelSelector()
        labels = pod.raw.metadata.labels
        if len(labels) and self._handle is not None:
            for service in self._handle.objects(SERVICES).values():
                wanted = service.spec.selector
                if service.metadata.namespace == pod.namespace and wanted and wanted.items() <= labels.items():
                    selector = selector.and_also(LabelRequirement(key, frozenset((wanted[key],))) for key in wanted)
        return Selection(frozenset((pod.namespace,)), selector, living=True) if selector.requirements else None
