"""The gRPC service of a resource in an API version that is not the stored one.

    request in the version --to_stored--> ResourceService of the stored form --to_served--> response in the version

The rules of the version apply to writes (`Strategy.in_version`). Patches and configurations have its field names.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from pinnace.api.conversion import conversion_of
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.resources import Resource
from pinnace.api.verbs_pb2 import (
    DeleteCollectionRequest,
    DeleteRequest,
    GetRequest,
    ListRequest,
    PatchRequest,
    WatchRequest,
)
from pinnace.api.wire import field
from pinnace.apiserver.auth.audit import AuditSink
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.services.resource import ResourceService
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices


class ConvertingService(ResourceService[Any]):
    def __init__(
        self, resource: Resource[Any], store: Store[Any], cacher: Cacher, audit: AuditSink, authorizer: Authorizer, clock: Clock
    ) -> None:
        """`resource`: the version. `store`: of the stored form."""
        super().__init__(store, cacher, audit, authorizer)
        self._version = resource
        self._conversion = conversion_of(resource)
        self._clock = clock

    async def create(self, request: Any, context: Context) -> bytes:
        return self._convert_to_served(await super().create(self._to_stored("Create", request), context))

    async def get(self, request: GetRequest, context: Context) -> bytes:
        return self._convert_to_served(await super().get(request, context))

    async def list(self, request: ListRequest | DeleteCollectionRequest, context: Context) -> bytes:
        self._convert_selector(request.options)
        data = await super().list(request, context)
        if isinstance(request, DeleteCollectionRequest):
            return data
        page: Any = self._conversion.stored.list_message.FromString(data)
        served = self._conversion.to_served
        items = await apply_in_slices(lambda obj: field(2, served(obj).SerializeToString()), page.items, self._clock)
        return b"".join((field(1, page.metadata.SerializeToString()), *items))

    async def watch(self, request: WatchRequest, context: Context) -> AsyncIterator[bytes]:
        self._convert_selector(request.options)
        async with aclosing(super().watch(request, context)) as responses:  # type: ignore[type-var]  # an async generator, declared as an iterator
            async for data in responses:
                stored: Any = self._conversion.stored.watch_response.FromString(data)
                served: Any = self._version.watch_response(resourceVersion=stored.resourceVersion, history=stored.history)
                for event in stored.events:
                    served.events.add(type=event.type, object=self._conversion.to_served(event.object))
                yield served.SerializeToString()

    async def update(self, request: Any, context: Context) -> bytes:
        return self._convert_to_served(await super().update(self._to_stored("Update", request), context))

    async def update_status(self, request: Any, context: Context) -> bytes:
        return self._convert_to_served(await super().update_status(self._to_stored("Update", request), context))

    async def patch(self, request: PatchRequest, context: Context) -> bytes:
        return self._convert_to_served(await super().patch(request, context))

    async def delete(self, request: DeleteRequest, context: Context) -> bytes:
        return self._convert_to_served(await super().delete(request, context))

    def write_request(self, request: Any, context: Context) -> WriteRequest:
        return super().write_request(request, context)._replace(api_version=self._version.api_version)

    def _to_stored(self, verb: str, request: Any) -> Any:
        obj = self._conversion.to_stored(request.object)
        return self._conversion.stored.request(verb)(object=obj, options=request.options)

    def _convert_to_served(self, data: bytes) -> bytes:
        obj: Any = self._conversion.stored.message.FromString(data)
        encoded: bytes = self._conversion.to_served(obj).SerializeToString()
        return encoded

    def _convert_selector(self, options: ListOptions) -> None:
        """Convert the field selector in place. Raises SelectorError."""
        options.fieldSelector = self._conversion.stored_selector(options.fieldSelector)
