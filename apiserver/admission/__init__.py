"""Admission plugins: defaults and checks of a write that depend on other objects of the cluster.

    create  --mutating plugins--> defaults of the resource --> its validation --> validating plugins --> stored
    others  ----------------------------------------------> its validation --> validating plugins --> stored

Plugins read the watch caches and do no I/O. The server may call a plugin several times for one write, each time with a later
version of the object. Each plugin declares the resources and verbs that it handles. `apiserver.assembly` builds the chain.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from apiserver.registry.admission import Operation, Request
from apiserver.storage.interface import Guard
from pinnace.api.resources import ALL, Object, Resource


class Mutating(Protocol):
    """Completes new objects, or refuses them."""

    @property
    def resources(self) -> Collection[Resource[Any]]:
        """Those whose objects it completes."""
        ...

    def admit(self, request: Request, obj: Any) -> None:
        """`obj` may be changed. Raises Rejected."""
        ...


class Validating(Protocol):
    """Refuses writes."""

    @property
    def asked(self) -> Collection[tuple[Operation, Resource[Any]]]:
        """About what."""
        ...

    def validate(self, request: Request, operation: Operation, obj: Any, old: Any) -> None:
        """`obj`: as it is to be (None: deleted), `old`: as it is (None: created); neither may be changed. Raises Rejected."""
        ...


class Guarding(Protocol):
    """Admits new objects for something that may change before they are written: etcd compares whether it has."""

    @property
    def guarded(self) -> Collection[Resource[Any]]:
        """Those whose new objects are guarded."""
        ...

    def guards(self, obj: Any) -> tuple[Guard, ...]:
        """Raises Rejected when it has changed already."""
        ...


class Chain:
    """The plugins, one after another, in the order in which they are given."""

    def __init__(
        self, mutating: Sequence[Mutating], validating: Sequence[Validating], guarding: Sequence[Guarding] = ()
    ) -> None:
        self._mutating: Mapping[Resource[Any], Sequence[Mutating]] = {
            resource: tuple(plugin for plugin in mutating if resource in plugin.resources) for resource in ALL
        }
        self._validating: Mapping[tuple[Operation, Resource[Any]], Sequence[Validating]] = {
            (operation, resource): tuple(plugin for plugin in validating if (operation, resource) in plugin.asked)
            for operation in Operation
            for resource in ALL
        }
        self._guarding: Mapping[Resource[Any], Sequence[Guarding]] = {
            resource: tuple(plugin for plugin in guarding if resource in plugin.guarded) for resource in ALL
        }

    def admit(self, request: Request, resource: Resource[Any], obj: Object) -> None:
        """Completes an object that is to be created. Raises Rejected."""
        for plugin in self._mutating[resource]:
            plugin.admit(request, obj)

    def validate(
        self, request: Request, operation: Operation, resource: Resource[Any], obj: Object | None, old: Object | None
    ) -> None:
        """Raises Rejected."""
        for plugin in self._validating[operation, resource]:
            plugin.validate(request, operation, obj, old)

    def guards(self, resource: Resource[Any], obj: Object) -> tuple[Guard, ...]:
        """What must still hold when a new object is written. Raises Rejected."""
        return tuple(guard for plugin in self._guarding[resource] for guard in plugin.guards(obj))
