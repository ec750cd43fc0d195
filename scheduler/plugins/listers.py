"""What plugins read of other objects than pods and nodes. A plugin that has no handle finds none."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from pinnace.api.resources import NAMESPACES, Object, Resource
from scheduler.cache.pod_terms import Term

T = TypeVar("T", bound=Object)


class Objects(Protocol):
    """What these plugins need of the framework's handle."""

    def objects(self, resource: Resource[T]) -> Mapping[str, T]:
        """As an informer sees them, by "namespace/name" or "name"."""
        ...


class Namespaces:
    needs = (NAMESPACES,)

    def __init__(self, handle: Objects | None) -> None:
        self._handle = handle

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
