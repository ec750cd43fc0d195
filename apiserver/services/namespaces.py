"""Namespaces: the standard verbs, with a delete that takes care.

Active --delete--> Terminating: nothing new is created in it --it is empty--> gone
                        '--a controller empties it --delete--^

Whether it is empty is looked at when it is Terminating, never before: by then nothing more comes (NamespaceLifecycle).
"""

from apiserver.admission.namespace_lifecycle import PERMANENT
from apiserver.auth.audit import Audit
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.store import Selection
from apiserver.errors import Rejected
from apiserver.registry.store import Store, single
from apiserver.services.context import Context, patience
from apiserver.services.resource import ResourceService
from pinnace.api.core_v1_pb2 import Namespace
from pinnace.api.meta_v1_pb2 import DeleteOptions
from pinnace.api.resources import ALL, EVENTS
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteRequest


class NamespaceService(ResourceService[Namespace]):
    def __init__(self, store: Store[Namespace], cacher: Cacher, audit: Audit) -> None:
        super().__init__(store, cacher, audit)
        self._all = cacher

    async def delete(self, request: DeleteRequest, context: Context) -> bytes:
        if request.name in PERMANENT:
            message = f'namespaces "{request.name}" is forbidden: this namespace may not be deleted'
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespacePermanent", message))
        ending = single(await self._delete([request], context.user))
        await self._all.fresh(patience(context))
        if not self._is_empty(request.name):
            return ending.encoded
        last = DeleteRequest(name=request.name, options=DeleteOptions(dryRun=request.options.dryRun))
        last.options.preconditions.uid = ending.uid
        try:
            return single(await self._delete([last], context.user, emptied=True)).encoded
        except Rejected:  # it has changed: who changed it, or the controller, ends it
            return ending.encoded

    def _is_empty(self, namespace: str) -> bool:
        """Events do not count: they go by themselves."""
        return not any(
            self._all.of(resource).select(Selection.parse(resource, namespace, "", ""))
            for resource in ALL
            if resource.namespaced and resource is not EVENTS
        )
