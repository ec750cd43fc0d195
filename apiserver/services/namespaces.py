"""Namespaces: the standard verbs, with a delete that takes care.

Until a controller empties ending namespaces, only an empty one can be deleted: the refusal says what is left in it.
"""

from collections.abc import Mapping
from typing import Any

from apiserver.auth.audit import Audit
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.selection import Selection
from apiserver.registry.errors import Rejected
from apiserver.registry.store import Store
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
        if left := self._left_in(request.name):
            what = ", ".join(f"{count} {plural}" for plural, count in left.items())
            message = f'namespaces "{request.name}" still holds {what}: delete them first'
            raise Rejected(Refusal(Code.ABORTED, "NamespaceNotEmpty", message))
        return await super().delete(request, context)

    def _left_in(self, namespace: str) -> Mapping[str, int]:
        counts = {
            resource.plural: len(self._all.of(resource).select(Selection.parse(resource, namespace, "", "")))
            for resource in ALL
            if resource.namespaced and resource is not EVENTS
        }
        return {plural: count for plural, count in counts.items() if count}
