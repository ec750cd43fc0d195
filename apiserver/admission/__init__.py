"""Admission plugins: defaults and checks that depend on other objects of the cluster.

    create  --mutating plugins--> defaults of the resource --> its validation --> validating plugins --> stored
    others  ----------------------------------------------> its validation --> validating plugins --> stored

Plugins read the watch caches and do no I/O. A plugin can be called several times for one write, each time with a newer version
of the object. Each plugin declares its resources and operations. `pinnace.apiserver.admission.plugins` lists them all.

Source: https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from pinnace.api.resources import ALL, CUSTOM_OBJECTS, CustomResource, Object, Resource
from pinnace.apiserver.registry.admission import AdmissionOperation, WriteRequest
from pinnace.apiserver.storage.interface import Guard

_ROWS = (*ALL, CUSTOM_OBJECTS)


def _plugin_resource(resource: Resource[Any]) -> Resource[Any]:
    """Return the resource that plugins name: CUSTOM_OBJECTS for all custom resources."""
    return CUSTOM_OBJECTS if isinstance(resource, CustomResource) else resource


class MutatingPlugin(Protocol):
    """A plugin that sets defaults in new objects."""

    @property
    def resources(self) -> Collection[Resource[Any]]:
        """The resources for which the plugin is called."""
        ...

    def admit(self, request: WriteRequest, obj: Any) -> None:
        """Set the defaults of `obj` in place. Raises Rejected."""
        ...


class ValidatingPlugin(Protocol):
    """A plugin that accepts or refuses writes."""

    @property
    def validated_operations(self) -> Collection[tuple[AdmissionOperation, Resource[Any]]]:
        """The operations and resources for which the plugin is called."""
        ...

    def validate(self, request: WriteRequest, operation: AdmissionOperation, obj: Any, old: Any) -> None:
        """Check a write. `obj` is the new object (None for a delete), and `old` is the stored one (None for a create). Both are
        read-only. Raises Rejected."""
        ...


class GuardingPlugin(Protocol):
    """A plugin whose decision about a new object depends on other keys. The write fails if one of these keys has changed."""

    @property
    def guarded_resources(self) -> Collection[Resource[Any]]:
        """The resources for which the plugin is called."""
        ...

    def guards(self, obj: Any) -> tuple[Guard, ...]:
        """Return the conditions of the write. Raises Rejected if they are not met."""
        ...


class AdmissionChain:
    """All plugins. They are called in the given order."""

    def __init__(
        self,
        mutating: Sequence[MutatingPlugin],
        validating: Sequence[ValidatingPlugin],
        guarding: Sequence[GuardingPlugin] = (),
    ) -> None:
        self._mutating: Mapping[Resource[Any], Sequence[MutatingPlugin]] = {
            resource: tuple(plugin for plugin in mutating if resource in plugin.resources) for resource in _ROWS
        }
        self._validating: Mapping[tuple[AdmissionOperation, Resource[Any]], Sequence[ValidatingPlugin]] = {
            (operation, resource): tuple(
                plugin for plugin in validating if (operation, resource) in plugin.validated_operations
            )
            for operation in AdmissionOperation
            for resource in _ROWS
        }
        self._guarding: Mapping[Resource[Any], Sequence[GuardingPlugin]] = {
            resource: tuple(plugin for plugin in guarding if resource in plugin.guarded_resources) for resource in _ROWS
        }

    def admit(self, request: WriteRequest, resource: Resource[Any], obj: Object) -> None:
        """Set the defaults of a new object. Raises Rejected."""
        for plugin in self._mutating[_plugin_resource(resource)]:
            plugin.admit(request, obj)

    def validate(
        self,
        request: WriteRequest,
        operation: AdmissionOperation,
        resource: Resource[Any],
        obj: Object | None,
        old: Object | None,
    ) -> None:
        """Raise Rejected if the write is not allowed."""
        for plugin in self._validating[operation, _plugin_resource(resource)]:
            plugin.validate(request, operation, obj, old)

    def guards(self, resource: Resource[Any], obj: Object) -> tuple[Guard, ...]:
        """Return the conditions under which a new object is written. Raises Rejected."""
        return tuple(guard for plugin in self._guarding[_plugin_resource(resource)] for guard in plugin.guards(obj))
