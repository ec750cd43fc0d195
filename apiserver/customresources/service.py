"""The gRPC service of a version of a custom kind. Requests have objects in the version, and responses have them as stored.

If a webhook converts the kind, responses have objects in the version, too (ConvertedObjectService).
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.codec import to_dict
from pinnace.api.customobjects import write_content
from pinnace.api.customobjects_pb2 import CustomObject, CustomObjectList, CustomObjectWatchResponse
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import DeleteCollectionRequest, DeleteRequest, GetRequest, ListRequest, PatchRequest, WatchRequest
from pinnace.api.wire import field
from pinnace.apiextensions.kinds import CustomVersion
from pinnace.apiextensions.subresources import ScaleError, scale_of, set_replicas
from pinnace.apiserver.auth.audit import AuditSink
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.customresources.store import VersionConverter
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.registry.admission import WriteRequest
from pinnace.apiserver.registry.store import Store
from pinnace.apiserver.services.methods import Context
from pinnace.apiserver.services.scale import ScaledService, set_identity


class CustomObjectService(ScaledService[CustomObject]):
    def __init__(
        self,
        version: CustomVersion,
        store: Store[CustomObject],
        cacher: Cacher,
        audit: AuditSink,
        authorizer: Authorizer,
    ) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._custom = version

    def write_request(self, request: Any, context: Context) -> WriteRequest:
        return super().write_request(request, context)._replace(qualified=self._custom.kind.qualified)

    def _scale_of(self, obj: CustomObject) -> Scale:
        scale = Scale()
        set_identity(obj, scale)
        try:
            values = scale_of(self._custom.to_served(obj), self._scale_paths())
        except ScaleError as error:
            raise Rejected(Refusal(Code.INTERNAL, "InternalError", str(error))) from None
        scale.spec.replicas = values["spec"].get("replicas", 0)
        scale.spec.SetInParent()
        scale.status.replicas = values["status"].get("replicas", 0)
        scale.status.selector = values["status"].get("selector", "")
        scale.status.SetInParent()
        return scale

    def _read_scale_for_update(self, obj: CustomObject) -> Scale:
        with_replicas = CustomObject()
        with_replicas.CopyFrom(obj)
        try:
            return self._scale_of(obj)
        except Rejected:  # Kubernetes writes the first replicas, too
            self._set_replicas(with_replicas, 0)
            return self._scale_of(with_replicas)

    def _set_replicas(self, obj: CustomObject, replicas: int) -> None:
        form = to_dict(obj)
        try:
            set_replicas(form, self._scale_paths(), replicas)
        except ScaleError as error:
            raise Rejected(Refusal(Code.INTERNAL, "InternalError", str(error))) from None
        obj.content = write_content(form)

    def _scale_paths(self) -> dict[str, Any]:
        """Raises Rejected if the version has no scale subresource."""
        if not self._custom.has_scale:
            raise Rejected(Refusal(Code.UNIMPLEMENTED, "NotFound", "the kind has no scale subresource"))
        paths: dict[str, Any] = self._custom.form["subresources"]["scale"]
        return paths


class ConvertedObjectService(CustomObjectService):
    """The service of a version of a kind with a conversion webhook."""

    def __init__(
        self,
        version: CustomVersion,
        store: Store[CustomObject],
        form: VersionConverter,
        cacher: Cacher,
        audit: AuditSink,
        authorizer: Authorizer,
    ) -> None:
        super().__init__(version, store, cacher, audit, authorizer)
        self._form = form

    async def create(self, request: Any, context: Context) -> bytes:
        return await self._convert_to_served_version(await super().create(request, context))

    async def get(self, request: GetRequest, context: Context) -> bytes:
        return await self._convert_to_served_version(await super().get(request, context))

    async def list(self, request: ListRequest | DeleteCollectionRequest, context: Context) -> bytes:
        data = await super().list(request, context)
        if isinstance(request, DeleteCollectionRequest):
            return data
        page = CustomObjectList.FromString(data)
        items = await self._form.convert_to_served(page.items)
        return b"".join((field(1, page.metadata.SerializeToString()), *(field(2, obj.SerializeToString()) for obj in items)))

    async def watch(self, request: WatchRequest, context: Context) -> AsyncIterator[bytes]:
        async with aclosing(super().watch(request, context)) as responses:  # type: ignore[type-var]  # an async generator, declared as an iterator
            async for data in responses:
                response = CustomObjectWatchResponse.FromString(data)
                objs = await self._form.convert_to_served([event.object for event in response.events])
                for event, obj in zip(response.events, objs, strict=True):
                    if obj is not event.object:
                        event.object.CopyFrom(obj)
                yield response.SerializeToString()

    async def update(self, request: Any, context: Context) -> bytes:
        return await self._convert_to_served_version(await super().update(request, context))

    async def update_status(self, request: Any, context: Context) -> bytes:
        return await self._convert_to_served_version(await super().update_status(request, context))

    async def patch(self, request: PatchRequest, context: Context) -> bytes:
        return await self._convert_to_served_version(await super().patch(request, context))

    async def delete(self, request: DeleteRequest, context: Context) -> bytes:
        return await self._convert_to_served_version(await super().delete(request, context))

    async def _convert_to_served_version(self, data: bytes) -> bytes:
        (obj,) = await self._form.convert_to_served([CustomObject.FromString(data)])
        data_in_version: bytes = obj.SerializeToString()
        return data_in_version
