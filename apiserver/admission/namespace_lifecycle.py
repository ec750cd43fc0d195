"""NamespaceLifecycle: objects are created only in namespaces that exist and are not ending.

    create: the namespace is there, and Active --guard: it is the very version that was seen--> written
    delete: Terminating is written --from now on every such guard fails--> look whether it is empty --> gone

So no object can slip into a namespace between the look at it and its end, whichever servers the two go through. An update of
the namespace makes a guard fail, too: the create is admitted anew.
"""

from collections.abc import Mapping

from apiserver.cacher.resource import ResourceCache
from apiserver.cacher.store import Entry
from apiserver.errors import Rejected
from apiserver.registry.admission import Request
from apiserver.storage.interface import Guard
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, EVENTS, NAMESPACES, NODE_LEASE_NAMESPACE, Object
from pinnace.api.status import Code, Refusal, Violation

PERMANENT = (DEFAULT_NAMESPACE, "kube-system", "kube-public", NODE_LEASE_NAMESPACE)
"""These always exist: made at start-up, never deleted."""
_PLURALS: Mapping[type, str] = {resource.message: resource.plural for resource in ALL}


class NamespaceLifecycle:
    resources = tuple(resource for resource in ALL if resource.namespaced)
    guarded = tuple(resource for resource in resources if resource is not EVENTS)
    """Events go by themselves, and hold no namespace up."""

    def __init__(self, namespaces: ResourceCache[Namespace]) -> None:
        self._namespaces = namespaces

    def admit(self, request: Request, obj: Object) -> None:
        self._active(obj)

    def guards(self, obj: Object) -> tuple[Guard, ...]:
        if obj.metadata.namespace in PERMANENT:
            return ()
        entry = self._active(obj)
        return (Guard(entry.key, entry.create_revision, entry.mod_revision),)

    def _active(self, obj: Object) -> Entry[Namespace]:
        """The namespace of an object that is to be created. Raises Rejected, in Kubernetes' words."""
        name = obj.metadata.namespace
        entry = self._namespaces.get(NAMESPACES.key("", name))
        if entry is None:
            message = f'namespaces "{name}" not found'
            raise Rejected(Refusal(Code.NOT_FOUND, "NamespaceNotFound", message))
        if entry.obj.metadata.HasField("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            message = f'{_PLURALS[type(obj)]} "{obj.metadata.name}" is forbidden: {why}'
            cause = Violation("metadata.namespace", f"namespace {name} is being terminated")
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespaceTerminating", message, (cause,)))
        return entry
