"""An API in memory, with the methods of pinnace.client.Client that verbs use, and with injected errors.

It checks names, revisions and selectors as the server does, and nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from pinnace.api.resources import Resource
from pinnace.api.selectors import FIELDS, parse_fields, parse_labels
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest, WatchEventType
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, from_refusal
from pinnace.client.resource import BatchOutcomes, Listing, WatchBatch

Log = list[tuple[int, WatchEventType, Any]]


def refusal(code: Code, reason: str = "", message: str = "no") -> ApiError:
    return from_refusal(Refusal(code, reason, message))


LOST = refusal(Code.UNAVAILABLE, "OutcomeUnknown", "the answer was lost")
DOWN = refusal(Code.UNAVAILABLE, "", "cannot connect")
STALE = refusal(Code.ABORTED, "Conflict", "stale")
FORBIDDEN = refusal(Code.PERMISSION_DENIED, "Forbidden", "you may not")
EXPIRED = refusal(Code.OUT_OF_RANGE, "Expired", "compacted")


class FakeApi:
    def __init__(self) -> None:
        self.revision = 0
        self.calls: list[str] = []
        """Verbs in the order of the calls, with the plural: "create pods"."""
        self._resources: dict[str, FakeResource] = {}

    def of(self, resource: Resource[Any]) -> "FakeResource":
        return self._resources.setdefault(resource.plural, FakeResource(self, resource))

    def client(self) -> Client:
        return cast(Client, self)


class FakeResource:
    def __init__(self, api: FakeApi, resource: Resource[Any]) -> None:
        self.resource = resource
        self.stored: dict[str, Any] = {}
        self.complete: Callable[[Any], None] = lambda obj: None
        """Sets what a writer has left out, as the server's defaults do."""
        self.history = b"first"
        self.propagations: list[str] = []
        """Of each delete: what was to become of dependents."""
        self._api = api
        self._faults: list[tuple[str, ApiError, bool]] = []
        self._log: Log = []
        self._compacted = 0
        self._ended = False
        self._news = asyncio.Condition()

    def fail(self, verb: str, error: ApiError, *, after: bool = False) -> None:
        """The next call of the verb fails. With `after`, the call is executed first, and its response is lost."""
        self._faults.append((verb, error, after))

    async def put(self, obj: Any) -> Any:
        """Write an object on behalf of another client."""
        return await self._store(obj)

    async def remove(self, name: str, namespace: str = "") -> Any:
        obj = self.stored.pop(self.resource.key(namespace, name))
        self._api.revision += 1
        await self._tell(WatchEventType.DELETED, obj)
        return obj

    async def create(self, obj: Any, *, dry_run: bool = False) -> Any:
        self._begin("create")
        created = await self._create(obj, dry_run)
        self._end("create")
        return created

    async def create_batch(self, objs: Sequence[Any]) -> BatchOutcomes:
        self._begin("create_batch")
        items = []
        for obj in objs:
            try:
                items.append(BatchItem(name=obj.metadata.name, uid=(await self._create(obj, False)).metadata.uid))
            except ApiError as error:
                items.append(BatchItem(error=encode(error.refusal)))
        self._end("create_batch")
        return items

    async def get(self, name: str, namespace: str = "") -> Any:
        self._begin("get")
        result = self.stored.get(self.resource.key(namespace, name))
        if result is None:
            raise refusal(Code.NOT_FOUND, "NotFound", f'{self.resource.plural} "{name}" not found')
        return result

    async def list(self, namespace: str = "", *, labels: str = "", fields: str = "") -> Listing[Any]:
        self._begin("list")
        by_label, by_field = parse_labels(labels), parse_fields(fields, FIELDS[self.resource.plural])
        objs = [
            obj
            for _, obj in sorted(self.stored.items())
            if obj.metadata.namespace in (namespace or obj.metadata.namespace,)
            and by_label.matches(obj.metadata.labels)
            and by_field.matches(obj)
        ]
        return Listing(objs, self._api.revision)

    async def watch(
        self,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        resource_version: int | None = None,
        not_before: int = 0,
        history: bytes = b"",
    ) -> AsyncIterator[WatchBatch[Any]]:
        """All changes after the revision, without selection. Ends with the injected error."""
        self._begin("watch")
        seen = resource_version or 0
        if seen < self._compacted:
            raise EXPIRED
        if history not in (b"", self.history):
            raise refusal(Code.FAILED_PRECONDITION, "HistoryChanged", "begin anew")
        while True:
            async with self._news:
                while not (self._after(seen) or self._due("stream") or self._ended):
                    await self._news.wait()
            if self._ended:
                self._ended = False
                return
            self._raise("stream", after=False)
            seen, kind, obj = self._after(seen)[0]
            yield WatchBatch([(kind, obj)], seen, self.history)

    def _after(self, revision: int) -> Log:
        return [item for item in self._log if item[0] > revision]

    def compact(self) -> None:
        """Drop the changes so far."""
        self._compacted = self._api.revision

    async def break_stream(self, error: ApiError) -> None:
        """End the active watch with an error."""
        async with self._news:
            self.fail("stream", error)
            self._news.notify_all()

    async def end_stream(self) -> None:
        """End the active watch as the server does after its maximum duration."""
        async with self._news:
            self._ended = True
            self._news.notify_all()

    async def update(self, obj: Any, *, dry_run: bool = False) -> Any:
        self._begin("update")
        old = self.stored.get(self.resource.key_of(obj))
        if old is None:
            raise refusal(Code.NOT_FOUND, "NotFound", f'{self.resource.plural} "{obj.metadata.name}" not found')
        if obj.metadata.resourceVersion not in ("", old.metadata.resourceVersion):
            raise STALE
        updated = self._completed(obj)
        updated.metadata.resourceVersion = old.metadata.resourceVersion
        if updated == old:
            updated = old  # nothing is written
        elif not dry_run:
            updated = await self._store(updated)
        self._end("update")
        return updated

    async def delete(
        self,
        name: str,
        namespace: str = "",
        *,
        grace: int | None = None,
        uid: str = "",
        propagation: str = "",
        dry_run: bool = False,
    ) -> Any:
        self._begin("delete")
        self.propagations.append(propagation)
        result = self.stored.get(self.resource.key(namespace, name))
        if result is None:
            raise refusal(Code.NOT_FOUND, "NotFound", f'{self.resource.plural} "{name}" not found')
        if uid and result.metadata.uid != uid:
            raise refusal(Code.ABORTED, "UIDMismatch")
        if dry_run:
            return result
        if grace != 0 and result.metadata.finalizers:  # stands for any object that takes its time to go
            return result
        return await self.remove(name, namespace)

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> BatchOutcomes:
        items = []
        for request in requests:
            options = request.options
            grace = options.gracePeriodSeconds if options.HasField("gracePeriodSeconds") else None
            uid, propagation = options.preconditions.uid, options.propagationPolicy
            try:
                gone = await self.delete(request.name, request.namespace, grace=grace, uid=uid, propagation=propagation)
                items.append(BatchItem(name=request.name, uid=gone.metadata.uid))
            except ApiError as error:
                items.append(BatchItem(error=encode(error.refusal)))
        return items

    async def _create(self, obj: Any, dry_run: bool) -> Any:
        if self.resource.key_of(obj) in self.stored:
            raise refusal(Code.ALREADY_EXISTS, "AlreadyExists")
        if obj.metadata.name.startswith("_"):
            raise refusal(Code.INVALID_ARGUMENT, "Invalid", "metadata.name")
        return obj if dry_run else await self._store(self._completed(obj))

    def _completed(self, obj: Any) -> Any:
        new = type(obj)()
        new.CopyFrom(obj)
        self.complete(new)
        return new

    async def _store(self, obj: Any) -> Any:
        self._api.revision += 1
        new = type(obj)()
        new.CopyFrom(obj)
        key = self.resource.key_of(new)
        old = self.stored.get(key)
        new.metadata.uid = old.metadata.uid if old else new.metadata.uid or f"uid-{self._api.revision}"
        new.metadata.resourceVersion = str(self._api.revision)
        self.stored[key] = new
        await self._tell(WatchEventType.MODIFIED if old else WatchEventType.ADDED, new)
        return new

    async def _tell(self, kind: WatchEventType, obj: Any) -> None:
        async with self._news:
            self._log.append((self._api.revision, kind, obj))
            self._news.notify_all()

    def _begin(self, verb: str) -> None:
        self._api.calls.append(f"{verb} {self.resource.plural}")
        self._raise(verb, after=False)

    def _end(self, verb: str) -> None:
        self._raise(verb, after=True)

    def _due(self, verb: str) -> bool:
        return any(each == verb for each, _, _ in self._faults)

    def _raise(self, verb: str, *, after: bool) -> None:
        for fault in self._faults:
            if (fault[0], fault[2]) == (verb, after):
                self._faults.remove(fault)
                fault[1].in_doubt = after
                raise fault[1]
