"""The gRPC service of a resource: the standard verbs, for any of them. Translates messages, decides nothing."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from apiserver import errors
from apiserver.auth.audit import Audit, Deed
from apiserver.auth.authentication import MASTERS, User
from apiserver.auth.permissions import Action, action_on
from apiserver.cacher.cacher import Cacher
from apiserver.cacher.listing import ListQuery
from apiserver.errors import Rejected
from apiserver.flow.control import own
from apiserver.registry.admission import Request
from apiserver.registry.mutation import Outcome, Stored
from apiserver.registry.store import Store, single
from apiserver.services.context import READ_TIMEOUT, Context, patience
from apiserver.services.methods import MAX_BATCH
from apiserver.services.selecting import selected
from pinnace.api.meta_v1_pb2 import DeleteOptions, ListOptions, ObjectMeta
from pinnace.api.resources import DEFAULT_NAMESPACE, Object
from pinnace.api.scalars import natural
from pinnace.api.status import Refusal, encode
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

T = TypeVar("T", bound=Object)
ALL = "All"
"""Stages of a dry run: there are no others."""
_BY_NAME = re.compile(r"metadata\.name==?[^,=!]+")
"""A field selector that means one object of a namespace, as Selection.key does. It may have half a megabyte: so it is parsed by
who has a seat, and not to find how many he needs."""
_GONE = ("NotFound", "UIDMismatch")
"""Why a delete of what a list has shown may be refused: it is not there any more."""


class Named(Protocol):
    """Metadata of an object, or a request about one."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...


class ResourceService(Generic[T]):
    def __init__(self, store: Store[T], cacher: Cacher, audit: Audit) -> None:
        self.store = store
        self._audit = audit
        self._cacher = cacher
        self._resource = store.resource
        self._cache = cacher.of(store.resource)

    def stored_size(self, request: Named) -> int:
        """Bytes of the object that the request names, as far as the cache knows; 0: there is none."""
        entry = self._cache.get(self._key(request))
        return len(entry.value) if entry is not None else 0

    def stored_count(self, request: Any) -> int:
        """Objects of the namespace that the request names, or of all, as far as the cache knows; see KnowsCounts."""
        there = self._cache.count(request.namespace)
        by_name = _BY_NAME.fullmatch(request.options.fieldSelector) and (request.namespace or not self._resource.namespaced)
        return min(there, 1) if by_name else there

    async def create(self, request: Any, context: Context) -> bytes:
        return single(await self._create([request.object], request, context)).encoded

    async def create_batch(self, request: Any, context: Context) -> BatchResponse:
        return batch(await self._create(request.items, request, context))

    async def get(self, request: GetRequest, context: Context) -> bytes:
        if not request.name:
            raise Rejected(errors.bad_request("name: which one? A get needs a name"))
        await self._reach(request.options.resourceVersion, context)
        entry = self._cache.get(self._key(request))
        if entry is None:
            self._cache.require()
            if self._key(request) in self._cache.unreadable:
                raise Rejected(errors.unreadable(self._resource, request.name))
            raise Rejected(errors.not_found(self._resource, request.name))
        return entry.stamped

    async def list(self, request: ListRequest | DeleteCollectionRequest, context: Context) -> bytes:
        options = request.options
        query = ListQuery(
            selection=selected(self._resource, request.namespace, options, context.user),
            limit=options.limit,
            continue_token=getattr(options, "continue"),
            resource_version=options.resourceVersion,
            match=options.resourceVersionMatch,
            timeout=patience(context),
        )
        return await self._cache.list(query)

    async def watch(self, request: WatchRequest, context: Context) -> AsyncIterator[bytes]:
        options = request.options
        selection = selected(self._resource, request.namespace, options, context.user, watched=True)
        since = await self._known_since(request)
        account = own().watching(selection, bounded=MASTERS not in context.user.groups, initial=since is None)
        watcher = self._cache.watch(selection, since, announced=request.announceElections, account=account)
        try:
            async for response in watcher:
                yield response
        finally:
            watcher.close()

    async def update(self, request: Any, context: Context) -> bytes:
        by = _by(request, context)
        updating = self.store.update([request.object], by)
        return single(await self.noted(by, "update", "", [request.object.metadata], updating)).encoded

    async def update_status(self, request: Any, context: Context) -> bytes:
        return single(await self._update_status([request.object], request, context)).encoded

    async def update_status_batch(self, request: Any, context: Context) -> BatchResponse:
        return batch(await self._update_status(request.items, request, context))

    async def patch(self, request: PatchRequest, context: Context) -> bytes:
        by = _by(request, context)
        return single(await self.noted(by, "patch", request.subresource, [request], self.store.patch(request, by))).encoded

    async def delete(self, request: DeleteRequest, context: Context) -> bytes:
        return single(await self._delete([request], context.user)).encoded

    async def delete_batch(self, request: DeleteBatchRequest, context: Context) -> BatchResponse:
        return batch(await self._delete(request.items, context.user))

    async def delete_collection(self, request: DeleteCollectionRequest, context: Context) -> BatchResponse:
        """One page of a list, each object by its uid. What somebody else has deleted meanwhile is not told."""
        if request.deleteOptions.HasField("preconditions"):
            raise Rejected(errors.bad_request("deleteOptions.preconditions: of single objects; each is deleted by its own uid"))
        page = await self.page(request, context)
        doomed = [_deletion(obj.metadata, request.deleteOptions) for obj in page.items]
        response = BatchResponse()
        for one, outcome in zip(doomed, await self._delete(doomed, context.user), strict=True):
            if isinstance(outcome, Stored):
                _done(response, outcome)
            elif outcome.reason not in _GONE:
                response.items.add(error=encode(outcome), name=one.name, uid=one.options.preconditions.uid)
        setattr(response, "continue", getattr(page.metadata, "continue"))
        return response

    async def page(self, request: Any, context: Context) -> Any:
        """A list of at most MAX_BATCH objects, as a message. `request`: of a list, or like it."""
        if not 0 < request.options.limit <= MAX_BATCH:
            request.options.limit = MAX_BATCH
        return self._resource.list_message.FromString(await self.list(request, context))

    async def noted(
        self, by: Request, verb: str, subresource: str, named: Iterable[Named], writing: Awaitable[Sequence[Outcome]]
    ) -> Sequence[Outcome]:
        """The outcomes of what is written, once they are in the audit log. Who leaves before there are any is in it, too: what
        is on its way to the store then happens all the same. `named` is looked at afterwards, when all have their names."""
        try:
            outcomes = await writing
        except asyncio.CancelledError:
            left = list(named)
            self._note(by, verb, subresource, left, [errors.caller_left()] * len(left))
            raise
        self._note(by, verb, subresource, named, outcomes)
        return outcomes

    def _note(self, by: Request, verb: str, subresource: str, named: Iterable[Named], outcomes: Sequence[Outcome]) -> None:
        if not self._audit.wanted:
            return
        action = action_on(self._resource, verb, subresource)
        pairs = () if by.dry_run else zip(named, outcomes, strict=True)
        self._audit.note(by.user, (self._deed(action, each, outcome) for each, outcome in pairs))

    def _deed(self, action: Action, named: Named, outcome: Outcome) -> Deed:
        namespace = self._resource.home(named.namespace)
        if isinstance(outcome, Refusal):
            return Deed(action, namespace, named.name, refusal=outcome)
        return Deed(action, namespace, outcome.name, outcome.revision)

    async def _create(self, objs: Sequence[T], request: Any, context: Context) -> Sequence[Outcome]:
        by = _by(request, context)
        return await self.noted(by, "create", "", (obj.metadata for obj in objs), self.store.create(objs, by))

    async def _update_status(self, objs: Sequence[T], request: Any, context: Context) -> Sequence[Outcome]:
        by = _by(request, context)
        updating = self.store.update_status(objs, by)
        return await self.noted(by, "update", "status", (obj.metadata for obj in objs), updating)

    async def _delete(self, requests: Sequence[DeleteRequest], user: User, *, emptied: bool = False) -> Sequence[Outcome]:
        by = Request(user, all_or_none(request.options for request in requests))
        return await self.noted(by, "delete", "", requests, self.store.delete(requests, by, emptied=emptied))

    async def _reach(self, resource_version: str, context: Context) -> None:
        """Waits until the cache may answer a read that asked for this version (see GetOptions.resourceVersion)."""
        if not resource_version:
            await self._cacher.fresh(patience(context))
        elif wanted := _revision(resource_version):
            await self._cacher.wait_for(wanted, patience(context))

    async def _known_since(self, request: WatchRequest) -> int | None:
        """As `_since`, of a caller that knows something already: the watch goes on in its history, or there is none."""
        known = request.known
        while True:
            loads = self._cacher.loads
            if known.history:
                await self._cacher.prove(_revision(known.resourceVersion), known.history, READ_TIMEOUT)
            since = await self._since(request.options)
            if loads == self._cacher.loads:  # else what was proven is of the state that has been replaced meanwhile
                return since

    async def _since(self, options: ListOptions) -> int | None:
        """Where a watch begins, which the cache has reached: after a revision, or (None) with the present state.

        Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#streaming-lists
        """
        said = options.HasField("sendInitialEvents")
        if options.resourceVersionMatch != ("NotOlderThan" if said else ""):
            raise Rejected(errors.bad_request("resourceVersionMatch: NotOlderThan with sendInitialEvents, none without it"))
        since = _revision(options.resourceVersion)
        initial = options.sendInitialEvents if said else not since
        if since:
            await self._cacher.wait_for(since, READ_TIMEOUT)
        else:
            since = await self._cacher.fresh(READ_TIMEOUT)
        return None if initial else since

    def _key(self, request: Named) -> str:
        return self._resource.key(request.namespace or DEFAULT_NAMESPACE, request.name)


def _by(request: Any, context: Context) -> Request:
    return Request(context.user, is_dry_run(request.options))


def is_dry_run(options: Any) -> bool:
    """Of any verb. Raises Rejected: who misspells it is not to guess whether anything was written."""
    for each in options.dryRun:
        if each != ALL:
            raise Rejected(errors.bad_request(f'options.dryRun: Unsupported value: "{each[:32]}": supported values: "{ALL}"'))
    return bool(options.dryRun)


def all_or_none(options: Iterable[DeleteOptions]) -> bool:
    """Are the deletes of one call a dry run? Raises Rejected when only some are, and as `is_dry_run` does."""
    dry_runs = set(map(is_dry_run, options))
    if len(dry_runs) > 1:
        raise Rejected(errors.bad_request("options.dryRun: some items set it and others do not; send them in separate calls"))
    return True in dry_runs


def batch(outcomes: Iterable[Outcome]) -> BatchResponse:
    response = BatchResponse()
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            response.items.add(error=encode(outcome))
        else:
            _done(response, outcome)
    return response


def _done(response: BatchResponse, outcome: Stored) -> None:
    response.items.add(name=outcome.name, uid=outcome.uid, resourceVersion=str(outcome.revision))


def _deletion(metadata: ObjectMeta, options: DeleteOptions) -> DeleteRequest:
    request = DeleteRequest(namespace=metadata.namespace, name=metadata.name, options=options)
    request.options.preconditions.uid = metadata.uid
    return request


def _revision(text: str) -> int:
    if not text:
        return 0
    if (revision := natural(text)) is None:
        raise Rejected(errors.bad_request(f'resourceVersion "{text[:32]}" is not a number that this server gave out'))
    return revision
