"""Typed clients for the standard verbs of a resource.

All methods raise ApiError. If the response to a call that must not be repeated is lost, OutcomeUnknown is raised. These calls
are create, bind, patch, update without a resourceVersion, delete without a uid, and deletecollection. Other calls are retried.
If the response to an earlier attempt was lost, that attempt can cause a Conflict or NotFound (`in_doubt`). Read the object to
find out.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from pinnace.api.autoscaling_v1_pb2 import Scale
from pinnace.api.meta_v1_pb2 import ListOptions
from pinnace.api.resources import DEFAULT_NAMESPACE, UNSAID, Object, Resource
from pinnace.api.selectors import one_of
from pinnace.api.status import Code, Refusal
from pinnace.api.verbs_pb2 import (
    BatchItem,
    BatchResponse,
    DeleteBatchRequest,
    DeleteCollectionRequest,
    DeleteRequest,
    Disruption,
    GetRequest,
    Known,
    ListRequest,
    PatchRequest,
    UpdateScaleRequest,
    WatchEventType,
    WatchRequest,
)
from pinnace.client.channel import Caller, Stream
from pinnace.client.errors import ApiError, Conflict, Expired, NotFound, error_of, unavailable_error

T = TypeVar("T", bound=Object)
RequestT = TypeVar("RequestT", bound=Message)

BatchOutcomes: TypeAlias = list[BatchItem]
"""One item for each item of the request, in the same order; see errors.error_of."""
BatchSend: TypeAlias = Callable[[Sequence[RequestT]], Awaitable[BatchOutcomes]]

LIST_ATTEMPTS = 3
"""The number of times that a paged list is started if its snapshot expires between two pages."""
WATCH_SILENCE = 15.0
"""Seconds without a response or bookmark after which a watch counts as broken. Servers send a bookmark every five seconds."""
EXACT = "Exact"
"""The resourceVersionMatch for the state at exactly one revision."""
_DRY_RUN = ["All"]
ATTEMPTS = 10
"""The maximum number of attempts. A conflict means that another client's write succeeded."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A snapshot of the objects at one revision. A watch that starts at `resource_version` misses no change."""

    items: list[T]
    resource_version: int


@dataclass(frozen=True, slots=True)
class WatchBatch(Generic[T]):
    """Complete revisions of changes, in order. A batch without events is a bookmark.

    `resource_version`: all changes up to this revision have been sent; resume from here. 0 marks a part of the initial state
    that is followed by more parts. `history`: the fingerprint of the store's history. `size`: the size of the message in bytes.
    Do not modify the objects: they share one parsed message.
    """

    events: list[tuple[WatchEventType, T]]
    resource_version: int
    history: bytes = b""
    size: int = 0


class ResourceClient(Generic[T]):
    """The standard verbs of one resource. Cluster-scoped resources ignore `namespace`.

    With `at`, `get` and `list` read the state at exactly that revision. They raise Expired if the revision is compacted, and
    Invalid (reason ResourceVersionTooLarge) if it is in the future.
    """

    def __init__(self, connection: Caller, resource: Resource[T], at: int = 0) -> None:
        self.resource = resource
        self._connection = connection
        self._at = at

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        request = self._write_request("Create", obj, dry_run)
        return await self._call_for_object("Create", request, retry=False)

    async def create_batch(self, objs: Sequence[T]) -> BatchOutcomes:
        """Create at most 1,000 objects."""
        return await self._batch("CreateBatch", self.resource.request("Create", "BatchRequest")(items=objs), retry=False)

    async def get(self, name: str, namespace: str = "") -> T:
        if self._at:
            return await self._get_past(name, namespace or DEFAULT_NAMESPACE)
        return await self._call_for_object("Get", GetRequest(namespace=namespace, name=name), retry=True)

    async def list(
        self, namespace: str = "", *, labels: str = "", fields: str = "", page_size: int = 500, resource_version: str = ""
    ) -> Listing[T]:
        """Return all pages of one snapshot. An empty `namespace` selects all namespaces. `resource_version` has the semantics
        of ListOptions; "" reads the latest state."""
        options = ListOptions(labelSelector=labels, fieldSelector=fields, limit=page_size, resourceVersion=resource_version)
        if self._at:
            options.resourceVersion, options.resourceVersionMatch = str(self._at), EXACT
        for attempt in range(1, LIST_ATTEMPTS + 1):
            try:
                return await self._read_pages(ListRequest(namespace=namespace, options=options))
            except Expired:
                if attempt == LIST_ATTEMPTS or self._at:
                    raise
        raise AssertionError("unreachable")

    async def watch(
        self,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: int | None = None,
        not_before: int = 0,
        history: bytes = b"",
        announced: bool = False,
    ) -> AsyncGenerator[WatchBatch[T], None]:
        """Yield the changes after `resource_version`. Without it, yield the current objects as ADDED events first, in parts.

        A watch is one stream from one server. It raises ApiError, or returns when the server ends it at its time limit; the
        caller resumes it (see informer.py). If a server is behind `not_before` or silent, the connection switches to the next
        server and Unavailable is raised. `history`: the fingerprint of revision `not_before`, from the batch that ended there.
        HistoryChanged is raised if the store has a different history. `announced`: the server sends a bookmark when a leader is
        elected.
        """
        options = ListOptions(labelSelector=labels, fieldSelector=fields, allowWatchBookmarks=True)
        if resource_version is not None:
            options.resourceVersion = str(resource_version)
        request = WatchRequest(namespace=namespace, options=options, announceElections=announced)
        if history:
            request.known.CopyFrom(Known(resourceVersion=str(not_before), history=history))
        message: Any = self.resource.watch_response
        stream: Stream[Any] = await self._connection.stream(self._method("Watch"), request, message)
        told = False
        try:
            while (response := await stream.read(WATCH_SILENCE)) is not None:
                told = True
                revision = int(response.resourceVersion or 0)
                if 0 < revision < not_before:
                    stream.cancel_and_switch_server()
                    raise unavailable_error(f"API server {stream.endpoint} is at revision {revision}, behind {not_before}")
                events = [(event.type, event.object) for event in response.events]
                yield WatchBatch(events, revision, response.history, stream.size)
        finally:
            stream.cancel()
        if not told:
            raise unavailable_error(f"API server {stream.endpoint} ended the watch")

    async def update(self, obj: T, *, dry_run: bool = False) -> T:
        """Replace the spec and metadata. With metadata.resourceVersion, the update is a compare-and-swap; without, the last
        write wins."""
        return await self._update("Update", obj, dry_run)

    async def update_status(self, obj: T) -> T:
        """Replace the status only."""
        return await self._update("UpdateStatus", obj, False)

    async def get_scale(self, name: str, namespace: str) -> Scale:
        request = GetRequest(namespace=namespace, name=name)
        return await self._connection.call(self._method("GetScale"), request, Scale, retry=True)

    async def update_scale(self, scale: Scale) -> Scale:
        """Replace the replicas. metadata.uid and metadata.resourceVersion of the Scale are preconditions."""
        request = UpdateScaleRequest(object=scale)
        return await self._connection.call(self._method("UpdateScale"), request, Scale, retry=_has_resource_version(scale))

    async def update_status_batch(self, objs: Sequence[T]) -> BatchOutcomes:
        """Replace the status of at most 1,000 objects."""
        request = self.resource.request("Update", "BatchRequest")(items=objs)
        return await self._batch("UpdateStatusBatch", request, retry=all(map(_has_resource_version, objs)))

    async def patch(
        self,
        name: str,
        namespace: str,
        patch: Mapping[str, Any] | Sequence[Any],
        kind: PatchRequest.Type = PatchRequest.STRATEGIC_MERGE,
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Apply `patch` in Kubernetes' JSON form. With the subresource "status", the patch is applied to the status.

        Of kind APPLY, the patch is the configuration of `field_manager`, and `force` takes fields over from other managers; a
        lost answer is then harmless, and the call is repeated."""
        request = PatchRequest(
            namespace=namespace, name=name, type=kind, patch=json.dumps(patch).encode(), subresource=subresource
        )
        if dry_run:
            request.options.dryRun[:] = _DRY_RUN
        request.options.fieldManager = field_manager
        if force:
            request.options.force = True
        return await self._call_for_object("Patch", request, retry=kind == PatchRequest.APPLY)

    async def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        grace: int | None = None,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        dry_run: bool = False,
    ) -> T:
        """Delete an object and return its last version. `grace`: the grace period in seconds; 0 deletes immediately, None uses
        the default of the object. `propagation`: Background (the default), Foreground or Orphan."""
        request = delete_request(
            name,
            namespace,
            grace=grace,
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            dry_run=dry_run,
        )
        return await self._call_for_object("Delete", request, retry=bool(uid))

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> BatchOutcomes:
        """Delete at most 1,000 objects; see `delete_request`."""
        retry = all(request.options.preconditions.uid for request in requests)
        return await self._batch("DeleteBatch", DeleteBatchRequest(items=requests), retry=retry)

    async def delete_collection(
        self, namespace: str = "", *, labels: str = "", fields: str = "", grace: int | None = None, dry_run: bool = False
    ) -> BatchOutcomes:
        """Delete the objects that currently match. An empty `namespace` selects all namespaces. Return one item for each
        object, with its name and uid, including objects that could not be deleted. Raises Expired if the snapshot expires:
        start again."""
        options = ListOptions(labelSelector=labels, fieldSelector=fields)
        deletion = delete_request("", grace=grace, dry_run=dry_run).options
        request = DeleteCollectionRequest(namespace=namespace, options=options, deleteOptions=deletion)
        method, items = self._method("DeleteCollection"), list[BatchItem]()
        while True:
            page = await self._connection.call(method, request, BatchResponse, retry=False)
            items.extend(page.items)
            token = getattr(page, "continue")
            if not token:
                return items
            setattr(request.options, "continue", token)

    async def modify(self, name: str, namespace: str, change: Callable[[T], object]) -> T:
        """Read the object, call `change` to modify it in place, and update it; see `retry_on_conflict`. Return the stored
        object."""
        return await retry_on_conflict(self, await self.get(name, namespace), change)

    async def _get_past(self, name: str, namespace: str) -> T:
        result = (await self.list(namespace, fields=one_of("metadata.name", (name,)), page_size=1)).items
        if result:
            return result[0]
        raise NotFound(Refusal(Code.NOT_FOUND, "NotFound", f'{self.resource.plural} "{name}" not found at revision {self._at}'))

    async def _read_pages(self, request: ListRequest) -> Listing[T]:
        items = []
        while True:
            page: Any = await self._connection.call(self._method("List"), request, self.resource.list_message)
            items.extend(page.items)
            token = getattr(page.metadata, "continue")
            if not token:
                return Listing(items, int(page.metadata.resourceVersion))
            setattr(request.options, "continue", token)  # the token contains the revision
            request.options.resourceVersion = request.options.resourceVersionMatch = ""

    async def _update(self, verb: str, obj: T, dry_run: bool) -> T:
        request = self._write_request("Update", obj, dry_run)
        return await self._call_for_object(verb, request, retry=_has_resource_version(obj))

    def _write_request(self, verb: str, obj: T, dry_run: bool) -> Any:
        request: Any = self.resource.request(verb)(object=obj)
        if dry_run:
            request.options.dryRun[:] = _DRY_RUN
        return request

    async def _batch(self, verb: str, request: Any, *, retry: bool) -> BatchOutcomes:
        return list((await self._connection.call(self._method(verb), request, BatchResponse, retry=retry)).items)

    async def _call_for_object(self, verb: str, request: Message, *, retry: bool) -> T:
        message: Any = self.resource.message
        obj: T = await self._connection.call(self._method(verb), request, message, retry=retry)
        return obj

    def _method(self, verb: str) -> str:
        return f"/{self.resource.service}/{verb}"


async def batch_errors(send: BatchSend[RequestT], items: Sequence[RequestT]) -> list[ApiError | None]:
    """Send a batch. Return the error of each item in order; None means success. If the call fails, all items have its error."""
    try:
        outcomes = await send(items)
    except ApiError as error:
        return [error] * len(items)
    return list(map(error_of, outcomes))


def _has_resource_version(obj: Object) -> bool:
    """Return whether an update contains a resourceVersion, and is therefore safe to repeat."""
    return obj.metadata.resourceVersion not in UNSAID


def delete_request(
    name: str,
    namespace: str = "",
    *,
    grace: int | None = None,
    uid: str = "",
    resource_version: str = "",
    propagation: str = "",
    dry_run: bool = False,
    disruption: Disruption | None = None,
) -> DeleteRequest:
    """Build a delete request. If `uid` or `resource_version` does not match the object, the request fails with a Conflict.
    `disruption`: the reason for the pod's disruption."""
    request = DeleteRequest(namespace=namespace, name=name, disruption=disruption)
    if grace is not None:
        request.options.gracePeriodSeconds = grace
    if uid:
        request.options.preconditions.uid = uid
    if resource_version:
        request.options.preconditions.resourceVersion = resource_version
    if propagation:
        request.options.propagationPolicy = propagation
    if dry_run:
        request.options.dryRun[:] = _DRY_RUN
    return request


class ObjectClient(Protocol[T]):
    async def get(self, name: str, namespace: str) -> T: ...

    async def update(self, obj: T) -> T: ...


async def retry_on_conflict(client: ObjectClient[T], obj: T, change: Callable[[T], object]) -> T:
    """Apply `change` to a copy of `obj`, update the object, and return the stored object. `change` modifies its argument in
    place. After a conflict, it is called again with the latest version. If it changes nothing, no update is sent. Raises
    ApiError and the exceptions of `change`."""
    attempts = AsyncRetrying(
        retry=retry_if_exception_type(Conflict),
        wait=wait_random_exponential(multiplier=0.01, max=0.5),
        stop=stop_after_attempt(ATTEMPTS),
        reraise=True,
    )

    async def attempt() -> T:
        nonlocal obj
        new = type(obj)()
        new.CopyFrom(obj)
        change(new)
        if new == obj:
            return obj
        try:
            return await client.update(new)
        except Conflict as conflict:
            before, obj = obj, await client.get(obj.metadata.name, obj.metadata.namespace)
            if conflict.in_doubt and _is_own_update(before, new, obj):
                return obj
            raise

    return await attempts(attempt)


def _is_own_update(old: T, sent: T, found: T) -> bool:
    """Return whether the conflict was caused by an earlier attempt of the same update, whose response was lost.

    The caller checks first that a response was lost. Otherwise equality proves nothing: another client may have made the same
    change. Fields that may have changed since the update are ignored: those that the server sets, the status, and labels and
    annotations that the update did not change."""
    ours, present = _without_server_fields(sent), _without_server_fields(found)
    for name in ("labels", "annotations"):
        before, mine, theirs = (getattr(obj.metadata, name) for obj in (old, ours, present))
        for key in {*before, *mine, *theirs}:
            if before.get(key) == mine.get(key):
                mine.pop(key, None)
                theirs.pop(key, None)
    return bool(ours == present)


def _without_server_fields(obj: T) -> Any:
    """Return a copy without the status and the fields that the server sets."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    for part, fields in ((copy, ("status",)), (copy.metadata, ("resourceVersion", "generation", "managedFields"))):
        for field in fields:
            if field in part.DESCRIPTOR.fields_by_name:  # not every kind has a status
                part.ClearField(field)
    return copy
