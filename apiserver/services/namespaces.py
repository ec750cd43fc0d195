"""Namespaces: the standard verbs, with a delete that takes care.

Active --delete--> Terminating: nothing new is created in it, a controller empties it --delete, once it is empty--> gone
   '------------------------- delete of one that is empty -------------------------------------------------------^
"""

from typing import Any

from apiserver.auth.audit import Audit
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.selection import Selection
from apiserver.registry.errors import Rejected
from apiserver.registry.store import Store, single
from apiserver.services.resource import ResourceService, patience
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.resources import ALL, EVENTS, NODE_LEASE_NAMESPACE
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteRequest

PERMANENT = ("default", "kube-system", "kube-public", NODE_LEASE_NAMESPACE)
"""These always exist: made at start-up, never deleted."""


class NamespaceService(ResourceService[Namespace]):
    def __init__(self, store: Store[Namespace], cacher: Cacher, audit: Audit) -> None:
        super().__init__(store, cacher, audit)
        self._all = cacher

    async def delete(self, request: DeleteRequest, context: Any) -> bytes:
        if request.name in PERMANENT:
            message = f'namespaces "{request.name}" is forbidden: it may not be deleted'
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespacePermanent", message))
        await self._all.fresh(patience(context))
        return single(await self._delete([request], context.user, emptied=self._is_empty(request.name))).encoded

    def _is_empty(self, namespace: str) -> bool:
        """Events do not count: they go by themselves."""
        return not any(
            self._all.of(resource).select(Selection.parse(resource, namespace, "", ""))
            for resource in ALL
            if resource.namespaced and resource is not EVENTS
        )
