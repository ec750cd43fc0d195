"""Admission: what the cluster, rather than the object itself, has to say about a write.

    create  --mutating plugins--> defaults of the resource --> its validation --> validating plugins --> stored
    others  ----------------------------------------------> its validation --> validating plugins --> stored

Plugins are small, see the caches, and do no I/O: they may be called several times for one write, each time with a later version
of the object. Each says what it is asked about, so that what concerns nobody costs nothing.

    namespace_lifecycle.py      nothing is created in a namespace that is not there, or is ending: a guard, compared by etcd
    priority.py                 a pod's class becomes a number; one class at most is the default
    limit_ranger.py             what containers do not say is filled in, and what limit ranges forbid refused
    resource_quota.py           what a quota has no room for, as far as the cache knows (apiserver.quota has the last word)
    default_storage_class.py    a claim that names no class gets the default one
    persistent_volume_claim_resize.py
                                a claim grows only if its class lets it
    taint_nodes_by_condition.py a new node takes no pods until somebody plays it
    node_restriction.py         what a fleet may change about its nodes and pods
    role_escalation.py          nobody gives away what he does not have
    election_leases.py          the Lease objects that show elections are read-only
    trace_context.py            a pod says which trace it is a part of

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
