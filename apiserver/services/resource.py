"""The gRPC services of resources: the standard verbs for all of them, and the special verbs of events, namespaces and tables.

Selectors: only fleets, whose field selectors name all their nodes, and members of system:masters may send long ones. The
parsing of a value takes time, and it uses 200 bytes while a watch is open. One connection may have 250 watches, which hold no
seats.

Namespaces:

    Active --delete--> Terminating: no objects are created in it --empty--> its finalizer `kubernetes` is removed --> removed
                            '--the namespace controller empties it, then deletes it--^     other finalizers are gone --^

The server checks whether a namespace is empty only when it is Terminating, because no objects are added then
(NamespaceLifecycle). Clients remove other finalizers of the spec with Finalize.

Tables: the server prints the rows, so that clients do not receive the objects. This takes longer than sending the objects (see
apiserver.flow.levels), so it is done in slices, and other tasks run in between.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pinnace.api.core_v1_pb2 import Event, Namespace
from pinnace.api.events_pb2 import CreateEventBatchRequest
from pinnace.api.integers import parse_natural
from pinnace.api.meta_v1_pb2 import DeleteOptions, ListOptions, ObjectMeta
from pinnace.api.namespaces_pb2 import UpdateNamespaceRequest
from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, EVENTS, Object, Resource
from pinnace.api.selectors import SelectorError
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.tables_pb2 import ListTableRequest, Table, TableColumnDefinition
from pinnace.api.verbs_pb2 import (
    BatchResponse,
    DeleteBatchRequest,
    DeleteCollectionRequest,
    DeleteRequest,
    GetRequest,
    ListRequest,
    PatchRequest,
    WatchRequest,
)
from pinnace.api.wellknown import NAMESPACE_FINALIZER
from pinnace.api.wire import without_ownership
from pinnace.apiserver import errors
from pinnace.apiserver.admission.defaults import PERMANENT_NAMESPACES
from pinnace.apiserver.auth.audit import AuditEvent, AuditSink
from pinnace.apiserver.auth.authentication import MASTERS, User
from pinnace.apiserver.auth.authorizer import Authorizer
from pinnace.apiserver.auth.permissions import ActionTarget, ResourceAction, resource_action
from pinnace.apiserver.cacher.cacher import Cacher
from pinnace.apiserver.cacher.listing import ListQuery
from pinnace.apiserver.cacher.store import SelectionPredicate
from pinnace.apiserver.errors import Rejected
from pinnace.apiserver.flow.control import current_seat
from pinnace.apiserver.registry.admission import CREATE, UPDATE, WriteAttributes, WriteRequest
from pinnace.apiserver.registry.events import EventRegistry
from pinnace.apiserver.registry.mutation import FINALIZE, Outcome, WriteResult
from pinnace.apiserver.registry.store import Store, require_single_outcome
from pinnace.apiserver.registry.strategy import record_created
from pinnace.apiserver.services.methods import MAX_BATCH, READ_TIMEOUT, Context, read_timeout
from pinnace.printers import COLUMNS
from pinnace.printers.columns import Columns
from pinnace.runtime.clock import Clock
from pinnace.runtime.tasks import apply_in_slices

T = TypeVar("T", bound=Object)
DRY_RUN_ALL = "All"
"""The only valid value of `dryRun`."""
_BY_NAME = re.compile(r"metadata\.name==?[^,=!]+")
"""A field selector for one object, as for SelectionPredicate.key. It estimates the cost of a call before the call has a seat:
selectors may be long, so they are parsed only afterwards."""
APPLY_ATTEMPTS = 8
"""Attempts to apply to an object that other clients create and delete at the same time."""
_GONE = ("NotFound", "UIDMismatch")
"""Reasons for the refusal of a delete of a listed object that is deleted already."""
MAX_LENGTH = 64 << 10
"""Maximum length of a field selector in characters. `kubectl apply` selects 200 objects by name."""
MAX_WATCHED = 1000
"""Maximum number of values in the field and label selectors of a watch."""
_HINT = "select fewer objects at once, or all objects and filter them"
NAME = "NAME"


class NamedObject(Protocol):
    """The metadata of an object, or a request for one object."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class ResourceService(Generic[T]):
    def __init__(self, store: Store[T], cacher: Cacher, audit: AuditSink, authorizer: Authorizer) -> None:
        self.store = store
        self._audit = audit
        self._authorizer = authorizer
        self._cacher = cacher
        self._resource = store.resource
        self._version: Resource[Any] = store.resource
        """The API version of requests and responses."""
        self._cache = cacher.cache_of(store.resource)

    def stored_size(self, request: NamedObject) -> int:
        """Return the size in bytes of the requested object in the cache; 0 if it is not there."""
        entry = self._cache.get(self._key(request))
        return len(entry.value) if entry is not None else 0

    def stored_count(self, request: Any) -> int:
        """Return the number of objects in the requested namespace, or of all objects, in the cache; see KnowsCounts."""
        there = self._cache.count(request.namespace)
        by_name = _BY_NAME.fullmatch(request.options.fieldSelector) and (request.namespace or not self._resource.namespaced)
        return min(there, 1) if by_name else there

    async def create(self, request: Any, context: Context) -> bytes:
        return object_as_seen_by(await self._create([request.object], request, context), context.user)

    async def create_batch(self, request: Any, context: Context) -> BatchResponse:
        return batch_response(await self._create(request.items, request, context))

    async def get(self, request: GetRequest, context: Context) -> bytes:
        if not request.name:
            raise Rejected(errors.bad_request("name: Required value: a get needs the name of an object"))
        await self._wait_for_version(request.options.resourceVersion, context)
        entry = self._cache.get(self._key(request))
        if entry is None:
            self._cache.require_loaded()
            if self._key(request) in self._cache.undecodable_keys:
                raise Rejected(errors.undecodable_object(self._resource, request.name))
            raise Rejected(errors.not_found(self._resource, request.name))
        return hide_ownership(entry.encoded_with_revision, context.user)

    async def list(self, request: ListRequest | DeleteCollectionRequest, context: Context) -> bytes:
        options = request.options
        query = ListQuery(
            selection=parse_selectors(self._resource, request.namespace, options, context.user),
            limit=options.limit,
            continue_token=getattr(options, "continue"),
            resource_version=options.resourceVersion,
            match=options.resourceVersionMatch,
            timeout=read_timeout(context),
        )
        return await self._cache.list(query)

    async def watch(self, request: WatchRequest, context: Context) -> AsyncIterator[bytes]:
        options = request.options
        selection = parse_selectors(self._resource, request.namespace, options, context.user, watched=True)
        since = await self._resume_watch(request)
        budget = current_seat().open_watch_budget(selection, bounded=MASTERS not in context.user.groups, initial=since is None)
        watcher = self._cache.watch(selection, since, announced=request.announceElections, budget=budget)
        try:
            async for response in watcher:
                yield response
        finally:
            watcher.close()

    async def update(self, request: Any, context: Context) -> bytes:
        by = self.write_request(request, context)
        updating = self.store.update([request.object], by)
        outcomes = await self.audit_write(by, "update", "", [request.object.metadata], updating)
        return object_as_seen_by(outcomes, context.user)

    async def update_status(self, request: Any, context: Context) -> bytes:
        return object_as_seen_by(await self._update_status([request.object], request, context), context.user)

    async def update_status_batch(self, request: Any, context: Context) -> BatchResponse:
        return batch_response(await self._update_status(request.items, request, context))

    async def patch(self, request: PatchRequest, context: Context) -> bytes:
        by = self.write_request(request, context)
        patching = self.store.patch(request, by) if request.type != PatchRequest.APPLY else self._apply(request, by)
        outcomes = await self.audit_write(by, "patch", request.subresource, [request], patching)
        return object_as_seen_by(outcomes, context.user)

    async def _apply(self, request: PatchRequest, by: WriteRequest) -> Sequence[Outcome]:
        """Apply to the object, or create it if it does not exist. Other clients may create or delete it concurrently."""
        for _ in range(APPLY_ATTEMPTS):
            outcomes = await self.store.patch(request, by)
            if request.subresource or not _is_refused_with(outcomes, "NotFound"):
                break
            action, target = (
                resource_action(self._version, "create"),
                ActionTarget(self._resource.home(request.namespace), request.name),
            )
            await self._authorizer.authorize(by.user, action, lambda target=target: (target,))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            outcomes = await self.store.create_applied(request, by)
            if not _is_refused_with(outcomes, "AlreadyExists"):
                if isinstance(outcomes[0], WriteResult):
                    record_created()
                break
        return outcomes

    async def delete(self, request: DeleteRequest, context: Context) -> bytes:
        return object_as_seen_by(await self._delete([request], context.user), context.user)

    async def delete_batch(self, request: DeleteBatchRequest, context: Context) -> BatchResponse:
        return batch_response(await self._delete(request.items, context.user))

    async def delete_collection(self, request: DeleteCollectionRequest, context: Context) -> BatchResponse:
        """Delete one page of a list, each object by its uid. Objects that were already deleted are not reported."""
        if request.deleteOptions.HasField("preconditions"):
            raise Rejected(errors.bad_request("deleteOptions.preconditions: not supported: each object is deleted by its uid"))
        page = await self.list_page(request, context)
        deletes = [_delete_request(obj.metadata, request.deleteOptions) for obj in page.items]
        response = BatchResponse()
        for delete, outcome in zip(deletes, await self._delete(deletes, context.user), strict=True):
            if isinstance(outcome, WriteResult):
                _add_write_result(response, outcome)
            elif outcome.reason not in _GONE:
                response.items.add(error=encode(outcome), name=delete.name, uid=delete.options.preconditions.uid)
        setattr(response, "continue", getattr(page.metadata, "continue"))
        return response

    async def list_page(self, request: Any, context: Context) -> Any:
        """Return a list of at most MAX_BATCH objects as a message. `request`: a list request or a similar message."""
        if not 0 < request.options.limit <= MAX_BATCH:
            request.options.limit = MAX_BATCH
        return self._resource.list_message.FromString(await self.list(request, context))

    async def audit_write(
        self, by: WriteRequest, verb: str, subresource: str, named: Iterable[NamedObject], writing: Awaitable[Sequence[Outcome]]
    ) -> Sequence[Outcome]:
        """Return the outcomes of a write after they are in the audit log.

        If the client disconnects first, the audit log contains this as well. The writes are then still sent to etcd. `named` is
        read after the write, when all objects have names.
        """
        try:
            outcomes = await writing
        except asyncio.CancelledError:
            objects = list(named)
            self._audit_outcomes(by, verb, subresource, objects, [errors.client_disconnected()] * len(objects))
            raise
        self._audit_outcomes(by, verb, subresource, named, outcomes)
        return outcomes

    def _audit_outcomes(
        self, by: WriteRequest, verb: str, subresource: str, named: Iterable[NamedObject], outcomes: Sequence[Outcome]
    ) -> None:
        if not self._audit.enabled:
            return
        action = resource_action(self._resource, verb, subresource)
        pairs = () if by.dry_run else zip(named, outcomes, strict=True)
        self._audit.record(by.user, (self._audit_event(action, obj, outcome) for obj, outcome in pairs))

    def _audit_event(self, action: ResourceAction, named: NamedObject, outcome: Outcome) -> AuditEvent:
        namespace = self._resource.home(named.namespace)
        if isinstance(outcome, Refusal):
            return AuditEvent(action, namespace, named.name, refusal=outcome)
        return AuditEvent(action, namespace, outcome.name, outcome.revision)

    async def _create(self, objs: Sequence[T], request: Any, context: Context) -> Sequence[Outcome]:
        by = self.write_request(request, context)
        return await self.audit_write(by, "create", "", (obj.metadata for obj in objs), self.store.create(objs, by))

    async def _update_status(self, objs: Sequence[T], request: Any, context: Context) -> Sequence[Outcome]:
        by = self.write_request(request, context)
        updating = self.store.update_status(objs, by)
        return await self.audit_write(by, "update", "status", (obj.metadata for obj in objs), updating)

    async def _delete(self, requests: Sequence[DeleteRequest], user: User) -> Sequence[Outcome]:
        by = WriteRequest(user, is_batch_dry_run(request.options for request in requests))
        return await self.audit_write(by, "delete", "", requests, self.store.delete(requests, by))

    async def _wait_for_version(self, resource_version: str, context: Context) -> None:
        """Wait until the cache can serve a read with this version (see GetOptions.resourceVersion)."""
        if not resource_version:
            await self._cacher.wait_until_fresh(read_timeout(context))
        elif revision := _parse_revision(resource_version):
            await self._cacher.wait_until_revision(revision, read_timeout(context))

    async def _resume_watch(self, request: WatchRequest) -> int | None:
        """Return the start of a watch by a client that has a state. The watch continues in the client's history, or fails."""
        known = request.known
        while True:
            loads = self._cacher.loads
            if known.history:
                await self._cacher.verify_history(_parse_revision(known.resourceVersion), known.history, READ_TIMEOUT)
            since = await self._watch_start_revision(request.options)
            if loads == self._cacher.loads:  # otherwise, the proof is for a state that the cache has replaced
                return since

    async def _watch_start_revision(self, options: ListOptions) -> int | None:
        """Return the start of a watch, which the cache has reached: a revision, or None for the present state.

        Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists
        """
        has_initial_events = options.HasField("sendInitialEvents")
        if options.resourceVersionMatch != ("NotOlderThan" if has_initial_events else ""):
            raise Rejected(errors.bad_request("resourceVersionMatch: NotOlderThan with sendInitialEvents, none without it"))
        since = _parse_revision(options.resourceVersion)
        initial = options.sendInitialEvents if has_initial_events else not since
        if since:
            await self._cacher.wait_until_revision(since, READ_TIMEOUT)
        else:
            since = await self._cacher.wait_until_fresh(READ_TIMEOUT)
        return None if initial else since

    def write_request(self, request: Any, context: Context) -> WriteRequest:
        """Return the user and options of a write. Raises Rejected."""
        options = request.options
        manager = options.fieldManager or options.defaultManager
        return WriteRequest(context.user, is_dry_run(options), manager, options=options)

    def _key(self, request: NamedObject) -> str:
        return self._resource.key(request.namespace or DEFAULT_NAMESPACE, request.name)


def _is_refused_with(outcomes: Sequence[Outcome], reason: str) -> bool:
    return isinstance(outcomes[0], Refusal) and outcomes[0].reason == reason


def is_dry_run(options: Any) -> bool:
    """Return whether the call is a dry run. Raises Rejected for other values, so that a misspelled one is not ignored."""
    for value in options.dryRun:
        if value != DRY_RUN_ALL:
            raise Rejected(
                errors.bad_request(f'options.dryRun: Unsupported value: "{value[:32]}": supported values: "{DRY_RUN_ALL}"')
            )
    return bool(options.dryRun)


def is_batch_dry_run(options: Iterable[DeleteOptions]) -> bool:
    """Return whether the deletes of a call are a dry run. Raises Rejected if only some are, and as `is_dry_run`."""
    dry_runs = set(map(is_dry_run, options))
    if len(dry_runs) > 1:
        raise Rejected(errors.bad_request("options.dryRun: some items set it and others do not; send them in separate calls"))
    return True in dry_runs


def hide_ownership(encoded: bytes, user: User) -> bytes:
    """Return an encoded object as the user sees it: only gateways, which impersonate users, show the owners of its fields."""
    return encoded if user.impersonator else without_ownership(encoded)


def object_as_seen_by(outcomes: Sequence[Outcome], user: User) -> bytes:
    """Return the object of a single outcome as the user sees it. Raises Rejected."""
    return hide_ownership(require_single_outcome(outcomes).encoded, user)


def batch_response(outcomes: Iterable[Outcome]) -> BatchResponse:
    response = BatchResponse()
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            response.items.add(error=encode(outcome))
        else:
            _add_write_result(response, outcome)
    return response


def _add_write_result(response: BatchResponse, outcome: WriteResult) -> None:
    response.items.add(name=outcome.name, uid=outcome.uid, resourceVersion=str(outcome.revision))


def _delete_request(metadata: ObjectMeta, options: DeleteOptions) -> DeleteRequest:
    request = DeleteRequest(namespace=metadata.namespace, name=metadata.name, options=options)
    request.options.preconditions.uid = metadata.uid
    return request


def _parse_revision(text: str) -> int:
    if not text:
        return 0
    if (revision := parse_natural(text)) is None:
        raise Rejected(errors.bad_request(f'resourceVersion: Invalid value: "{text[:32]}"'))
    return revision


def parse_selectors(
    resource: Resource[Any], namespace: str, options: ListOptions, user: User, *, watched: bool = False
) -> SelectionPredicate:
    """Parse the selectors of a list or watch. Raises SelectorError."""
    bounded = user.fleet is None and MASTERS not in user.groups
    if bounded and (length := len(options.fieldSelector)) > MAX_LENGTH:
        raise SelectorError(f"field selector of {length:,} characters: only fleets may send more than {MAX_LENGTH:,}", _HINT)
    selection = SelectionPredicate.parse(
        resource, namespace, options.labelSelector, options.fieldSelector, shows_owners=bool(user.impersonator)
    )
    if bounded and watched:
        values = sum(len(requirement.values) for requirement in selection.fields.requirements)
        values += sum(len(requirement.values or ()) for requirement in selection.labels.requirements)
        if values > MAX_WATCHED:
            raise SelectorError(f"selectors of {values:,} values: only fleets may watch more than {MAX_WATCHED:,}", _HINT)
    return selection


class EventService(ResourceService[Event]):
    def __init__(
        self, store: Store[Event], cacher: Cacher, audit: AuditSink, authorizer: Authorizer, events: EventRegistry
    ) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._events = events

    async def record(self, request: CreateEventBatchRequest, context: Context) -> BatchResponse:
        by = WriteRequest(context.user, is_dry_run(request.options))
        if by.dry_run:
            await self._cacher.wait_until_fresh(read_timeout(context))

        def request_of(event: Event) -> WriteAttributes:
            event.metadata.namespace = event.metadata.namespace or event.involvedObject.namespace
            entry = self._cache.get(self._resource.key_of(event))
            operation = CREATE if entry is None else UPDATE
            return WriteAttributes(by, operation, EVENTS, event, entry.obj if entry is not None else None)

        recording = self.store.write_reviewed(request.items, request_of, lambda events: self._events.record(events, by))
        return batch_response(await recording)


class NamespaceService(ResourceService[Namespace]):
    def __init__(self, store: Store[Namespace], cacher: Cacher, audit: AuditSink, authorizer: Authorizer) -> None:
        super().__init__(store, cacher, audit, authorizer)
        self._all = cacher

    async def delete(self, request: DeleteRequest, context: Context) -> bytes:
        if request.name in PERMANENT_NAMESPACES:
            message = f'namespaces "{request.name}" is forbidden: this namespace may not be deleted'
            raise Rejected(Refusal(Code.PERMISSION_DENIED, "NamespacePermanent", message))
        ending = require_single_outcome(await self._delete([request], context.user))
        await self._all.wait_until_fresh(read_timeout(context))
        namespace = Namespace.FromString(ending.encoded)
        finalizers = namespace.spec.finalizers
        if is_dry_run(request.options) or NAMESPACE_FINALIZER not in finalizers or not self._is_empty(request.name):
            return hide_ownership(ending.encoded, context.user)
        finalizers.remove(NAMESPACE_FINALIZER)
        try:
            return object_as_seen_by(await self._finalize(namespace, WriteRequest(context.user)), context.user)
        except Rejected:  # it has changed: the client that changed it, or the controller, completes the delete
            return hide_ownership(ending.encoded, context.user)

    async def finalize(self, request: UpdateNamespaceRequest, context: Context) -> bytes:
        return object_as_seen_by(await self._finalize(request.object, self.write_request(request, context)), context.user)

    async def _finalize(self, namespace: Namespace, by: WriteRequest) -> Sequence[Outcome]:
        return await self.audit_write(
            by, "update", FINALIZE, [namespace.metadata], self.store.update_finalizers([namespace], by)
        )

    def _is_empty(self, namespace: str) -> bool:
        """Return whether the namespace is empty. Events do not count, because they expire."""
        built_in = any(
            self._all.cache_of(resource).select(SelectionPredicate.parse(resource, namespace, "", ""))
            for resource in ALL
            if resource.namespaced and resource is not EVENTS
        )
        return not built_in and not any(cache.count(namespace) for cache in self._all.custom_caches())


class TablesService:
    def __init__(self, services: Mapping[Resource[Any], ResourceService[Any]], clock: Clock) -> None:
        self._services = {resource.plural: service for resource, service in services.items()}
        self._clock = clock

    def stored_count(self, request: ListTableRequest) -> int:
        """See ResourceService.stored_count."""
        service = self._services.get(request.resource)
        return service.stored_count(request) if service is not None else 0

    async def list(self, request: ListTableRequest, context: Context) -> Table:
        """Return a page of at most MAX_BATCH rows."""
        service = self._services.get(request.resource)
        if service is None:
            raise Rejected(errors.bad_request(f'resource: the server has no resource "{request.resource[:64]}"'))
        page = await service.list_page(ListRequest(namespace=request.namespace, options=request.options), context)
        columns = COLUMNS[request.resource]
        table = Table(metadata=page.metadata, columnDefinitions=_column_definitions(columns))
        with_metadata, now = request.includeObject == ListTableRequest.METADATA, self._clock.time()

        def print_row(obj: Any) -> None:
            table.rows.add(cells=columns.row(obj, now), object=obj.metadata if with_metadata else None)

        await apply_in_slices(print_row, page.items, self._clock)
        return table


def _column_definitions(columns: Columns[Any]) -> list[TableColumnDefinition]:
    names = [*((name, 0) for name in columns.headers), *((name, 1) for name in columns.wide)]
    return [
        TableColumnDefinition(name=name, type="string", format="name" if name == NAME else "", priority=priority)
        for name, priority in names
    ]
