"""Pods: the standard verbs, and binding."""

from typing import Any

from apiserver.cacher.cacher import Cacher
from apiserver.registry import binding
from apiserver.registry.errors import Rejected
from apiserver.registry.mutation import Mutation
from apiserver.registry.store import Store, single
from apiserver.services.resource import ResourceService, batch, bounded
from pinnace.api.core_v1_pb2 import Binding, Pod
from pinnace.api.pods_pb2 import BindBatchRequest, BindRequest, Fence
from pinnace.api.status import Refusal
from pinnace.api.verbs_pb2 import BatchItem, BatchResponse
from pinnace.runtime.clock import Clock


class PodService(ResourceService[Pod]):
    def __init__(self, store: Store[Pod], cacher: Cacher, clock: Clock) -> None:
        super().__init__(store, cacher)
        self._clock = clock

    async def bind(self, request: BindRequest, context: Any) -> BatchItem:
        stored = single(await self.store.mutate([self._mutation(request.binding, _fence(request))]))
        return BatchItem(name=stored.name, uid=stored.uid, resourceVersion=str(stored.revision))

    async def bind_batch(self, request: BindBatchRequest, context: Any) -> BatchResponse:
        fence = _fence(request)
        return batch(await self.store.mutate([self._mutation(item, fence) for item in bounded(request.items)]))

    def _mutation(self, item: Binding, fence: Fence | None) -> Mutation[Pod] | Refusal:
        try:
            return binding.bind(item, fence, self._clock.time())
        except Rejected as rejected:
            return rejected.refusal


def _fence(request: BindRequest | BindBatchRequest) -> Fence | None:
    return request.fence if request.HasField("fence") else None
