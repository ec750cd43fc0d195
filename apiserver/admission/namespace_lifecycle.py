"""NamespaceLifecycle: objects are created only in namespaces that exist and are not ending."""

from apiserver.cacher.resource import ResourceCache
from apiserver.registry.admission import Request
from apiserver.registry.errors import Rejected
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, NAMESPACES, Object
from pinnace.api.status import Code, Refusal


class NamespaceLifecycle:
    resources = tuple(resource for resource in ALL if resource.namespaced)

    def __init__(self, namespaces: ResourceCache[Namespace]) -> None:
        self._namespaces = namespaces

    def admit(self, request: Request, obj: Object) -> None:
        name = obj.metadata.namespace
        entry = self._namespaces.get(NAMESPACES.key("", name))
        if entry is None:
            message = f'namespaces "{name}" not found'
            raise Rejected(Refusal(Code.NOT_FOUND, "NamespaceNotFound", message))
        if entry.obj.metadata.HasField("deletionTimestamp"):
            message = f'namespace "{name}" is being terminated: nothing new can be created in it'
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespaceTerminating", message))
