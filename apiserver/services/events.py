"""Events: the standard verbs, and Record."""

from apiserver.auth.audit import Audit
from apiserver.cacher.cacher import Cacher
from apiserver.registry.admission import Request
from apiserver.registry.events import EventRegistry
from apiserver.registry.store import Store
from apiserver.services.context import Context, patience
from apiserver.services.resource import ResourceService, batch, is_dry_run
from pinnace.api.core_v1_pb2 import Event
from pinnace.api.events_pb2 import CreateEventBatchRequest
from pinnace.api.verbs_pb2 import BatchResponse


class EventService(ResourceService[Event]):
    def __init__(self, store: Store[Event], cacher: Cacher, audit: Audit, events: EventRegistry) -> None:
        super().__init__(store, cacher, audit)
        self._events = events

    async def record(self, request: CreateEventBatchRequest, context: Context) -> BatchResponse:
        by = Request(context.user, is_dry_run(request.options))
        if by.dry_run:
            await self._cacher.fresh(patience(context))
        return batch(await self._events.record(request.items, by))
