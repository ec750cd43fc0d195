"""The client of one resource, generic over the table of resources.

Every method raises ApiError. Writes that must not be repeated raise OutcomeUnknown if their answer was lost: creates, binds,
patches, updates without a resourceVersion, deletes without a uid or of a collection. Other writes are repeated. If the answer
to an earlier attempt was lost, a write may fail with a Conflict or NotFound that its own earlier attempt caused (`in_doubt`):
read the object to find out.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

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
    WatchEventType,
    WatchRequest,
)
from pinnace.client.channel import Caller, Stream
from pinnace.client.errors import ApiError, Conflict, Expired, NotFound, error_of, unavailable

T = TypeVar("T", bound=Object)
M = TypeVar("M", bound=Message)

Outcomes: TypeAlias = list[BatchItem]
"""One item for each item of the request, in order; see errors.error_of."""
Send: TypeAlias = Callable[[Sequence[M]], Awaitable[Outcomes]]

LIST_ATTEMPTS = 3
"""How often a paged list is started when its snapshot expires between two pages."""
WATCH_SILENCE = 15.0
"""Seconds without a response, even a bookmark, after which a watch counts as broken. Servers send a bookmark every five."""
EXACT = "Exact"
"""resourceVersionMatch: the state at exactly that revision."""
_DRY_RUN = ["All"]


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A snapshot: the objects as they were at one revision. A watch from `resource_version` misses nothing."""

    items: list[T]
    resource_version: int


@dataclass(frozen=True, slots=True)
class WatchBatch(Generic[T]):
    """Whole revisions of changes, in order. Without events it is a bookmark.

    `resource_version`: everything up to it has been sent; resume from there. 0: a part of the initial state, more follows.
    `history`: the fingerprint of the history. The objects belong to one parsed message: do not change them.
    """

    events: list[tuple[WatchEventType, T]]
    resource_version: int
    history: bytes = b""


class ResourceClient(Generic[T]):
    """The standard verbs of one resource. `namespace` is ignored for cluster-scoped resources.

    With `at`, `get` and `list` show the state of exactly that revision. They raise Expired if it is compacted, and Invalid
    (reason ResourceVersionTooLarge) if it is in the future.
    """

    def __init__(self, connection: Caller, resource: Resource[T], at: int = 0) -> None:
        self.resource = resource
        self._connection = connection
        self._at = at

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        request = self._object_request("Create", obj, dry_run)
        return await self._call_for_object("Create", request, retry=False)

    async def create_batch(self, objs: Sequence[T]) -> Outcomes:
        """At most 1,000 objects."""
        return await self._batch("CreateBatch", self.resource.request("Create", "BatchRequest")(items=objs), retry=False)

    async def get(self, name: str, namespace: str = "") -> T:
        if self._at:
            return await self._get_past(name, namespace or DEFAULT_NAMESPACE)
        return await self._call_for_object("Get", GetRequest(namespace=namespace, name=name), retry=True)

    async def list(
        self, namespace: str = "", *, labels: str = "", fields: str = "", page_size: int = 500, resource_version: str = ""
    ) -> Listing[T]:
        """All pages of one snapshot; without a namespace, of all namespaces. `resource_version` as in ListOptions; "": the
        latest."""
        options = ListOptions(labelSelector=labels, fieldSelector=fields, limit=page_size, resourceVersion=resource_version)
        if self._at:
            options.resourceVersion, options.resourceVersionMatch = str(self._at), EXACT
        for attempt in range(1, LIST_ATTEMPTS + 1):
            try:
                return await self._pages(ListRequest(namespace=namespace, options=options))
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
        """The changes after `resource_version`; without one, first the present objects as ADDED events, in parts.

        One stream from one server. It raises ApiError, or returns when the server ends it after its time limit; the caller
        resumes it (see informer.py). A server that is behind `not_before`, or silent, is left for the next one, and Unavailable
        is raised. `history`: the fingerprint of `not_before`, from the batch that ended there; HistoryChanged is raised if the
        store has another history. `announced`: the server sends a bookmark as soon as a leader is elected.
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
                    stream.abandon()
                    raise unavailable(f"API server {stream.endpoint} is at revision {revision}, behind {not_before}")
                yield WatchBatch([(event.type, event.object) for event in response.events], revision, response.history)
        finally:
            stream.cancel()
        if not told:
            raise unavailable(f"API server {stream.endpoint} ended the watch")

    async def update(self, obj: T, *, dry_run: bool = False) -> T:
        """Replaces spec and metadata. With metadata.resourceVersion it is a compare-and-swap; without, the last
        write wins."""
        return await self._update("Update", obj, dry_run)

    async def update_status(self, obj: T) -> T:
        """As `update`, for the status only."""
        return await self._update("UpdateStatus", obj, False)

    async def update_status_batch(self, objs: Sequence[T]) -> Outcomes:
        """At most 1,000 objects."""
        request = self.resource.request("Update", "BatchRequest")(items=objs)
        return await self._batch("UpdateStatusBatch", request, retry=all(map(_says_version, objs)))

    async def patch(
        self,
        name: str,
        namespace: str,
        patch: Mapping[str, Any] | Sequence[Any],
        kind: PatchRequest.Type = PatchRequest.STRATEGIC_MERGE,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Applies `patch` (in Kubernetes' JSON form) to the object; with the subresource "status", to its status."""
        request = PatchRequest(
            namespace=namespace, name=name, type=kind, patch=json.dumps(patch).encode(), subresource=subresource
        )
        if dry_run:
            request.options.dryRun[:] = _DRY_RUN
        return await self._call_for_object("Patch", request, retry=False)

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
        """Deletes an object, and returns its last version. `grace`: seconds; 0 removes it at once, None is the object's
        default. `propagation` to its dependents: Background (the default), Foreground or Orphan."""
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

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> Outcomes:
        """At most 1,000 objects; see `delete_request`."""
        retry = all(request.options.preconditions.uid for request in requests)
        return await self._batch("DeleteBatch", DeleteBatchRequest(items=requests), retry=retry)

    async def delete_collection(
        self, namespace: str = "", *, labels: str = "", fields: str = "", grace: int | None = None, dry_run: bool = False
    ) -> Outcomes:
        """Deletes the objects that are selected now; without a namespace, of all namespaces. Returns one item for each object,
        with its name and uid, also if it failed. Raises Expired if the snapshot expires meanwhile: start again."""
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
        """Reads the object, calls `change` to alter it in place, and updates it; see `retry_on_conflict`. Returns the stored
        object."""
        return await retry_on_conflict(self, await self.get(name, namespace), change)

    async def _get_past(self, name: str, namespace: str) -> T:
        found = (await self.list(namespace, fields=one_of("metadata.name", (name,)), page_size=1)).items
        if found:
            return found[0]
        raise NotFound(Refusal(Code.NOT_FOUND, "NotFound", f'{self.resource.plural} "{name}" not found at revision {self._at}'))

    async def _pages(self, request: ListRequest) -> Listing[T]:
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
        request = self._object_request("Update", obj, dry_run)
        return await self._call_for_object(verb, request, retry=_says_version(obj))

    def _object_request(self, verb: str, obj: T, dry_run: bool) -> Any:
        request: Any = self.resource.request(verb)(object=obj)
        if dry_run:
            request.options.dryRun[:] = _DRY_RUN
        return request

    async def _batch(self, verb: str, request: Any, *, retry: bool) -> Outcomes:
        return list((await self._connection.call(self._method(verb), request, BatchResponse, retry=retry)).items)

    async def _call_for_object(self, verb: str, request: Message, *, retry: bool) -> T:
        message: Any = self.resource.message
        obj: T = await self._connection.call(self._method(verb), request, message, retry=retry)
        return obj

    def _method(self, verb: str) -> str:
        return f"/{self.resource.service}/{verb}"


async def errors_of(send: Send[M], items: Sequence[M]) -> list[ApiError | None]:
    """Sends a batch. Returns the error of each item, in order; None if it succeeded. If the call fails, all items have its
    error."""
    try:
        outcomes = await send(items)
    except ApiError as error:
        return [error] * len(items)
    return list(map(error_of, outcomes))


def _says_version(obj: Object) -> bool:
    """Whether an update names the version that it replaces: then it is safe to repeat."""
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
    """A delete request. With `uid` or `resource_version` it fails with a Conflict unless the object has them. `disruption`: why
    a pod is disrupted."""
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


ATTEMPTS = 10
"""Every lost attempt means that somebody else's write succeeded."""


class Client(Protocol[T]):
    async def get(self, name: str, namespace: str) -> T: ...

    async def update(self, obj: T) -> T: ...


async def retry_on_conflict(client: Client[T], obj: T, change: Callable[[T], object]) -> T:
    """Changes `obj`, as it was read, and updates it: what is stored then. `change` alters an object in place; it may be called
    again with a later version, and what it leaves as it is is not written. Raises ApiError, and what `change` raises."""
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
            if conflict.in_doubt and _stored(before, new, obj):
                return obj
            raise

    return await attempts(attempt)


def _stored(old: T, sent: T, found: T) -> bool:
    """Whether an update that met a conflict is what it met: an answer was lost, and the connection has sent the update again.
    (Where none was lost, it proves nothing that the same is stored: of two who add one, both are to count.) Others may have
    added to it since: what the store counts, the status, labels and annotations that the update left alone."""
    ours, present = _settled(sent), _settled(found)
    for name in ("labels", "annotations"):
        before, mine, theirs = (getattr(obj.metadata, name) for obj in (old, ours, present))
        for key in {*before, *mine, *theirs}:
            if before.get(key) == mine.get(key):
                mine.pop(key, None)
                theirs.pop(key, None)
    return bool(ours == present)


def _settled(obj: T) -> Any:
    """A copy without what a writer of specs does not decide."""
    copy: Any = type(obj)()
    copy.CopyFrom(obj)
    for part, fields in ((copy, ("status",)), (copy.metadata, ("resourceVersion", "generation"))):
        for field in fields:
            if field in part.DESCRIPTOR.fields_by_name:  # not every kind has a status
                part.ClearField(field)
    return copy
