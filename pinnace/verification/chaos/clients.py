"""Clients of the API whose calls and watches are recorded in the history.

A client is a `pinnace.client.Client` with a connection that sends each call once, to a random API server, and records its
outcome. Each attempt of any method, including `modify` and paged lists, is a separate record.

    refused   an API server rejected the call (its refusals have a reason), or the call was not sent
    unknown   any other failure: a lost connection, a deadline, a bug of the server, a cancelled call

A watcher follows a resource like an informer: it starts with the current state, resumes broken streams, and starts over if its
revision is compacted. It also switches servers every few seconds. Each server must continue exactly where the previous one
ended.
"""

import asyncio
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from google.protobuf.message import Message

from pinnace.api.resources import ALL, DEFAULT_NAMESPACE, PODS, Object, Resource
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, BatchResponse
from pinnace.client.channel import PresentFence, Stream
from pinnace.client.connection import CallState, Connection, Metadata
from pinnace.client.errors import (
    ApiError,
    Expired,
    HistoryChanged,
    Internal,
    NotFound,
    OutcomeUnknown,
    Unavailable,
    from_status,
)
from pinnace.client.resource import ResourceClient, WatchBatch
from pinnace.history.records import (
    CallItem,
    CallRecord,
    Outcome,
    Record,
    Verb,
    WatchMessage,
    Word,
    encode_record,
    labels_digest,
    object_digest,
)
from pinnace.runtime.tls import TlsFiles
from pinnace.verification.chaos import ChaosError

FLUSH = 0.2
"""The maximum number of seconds for which lines are buffered."""
_RESOURCES: dict[str, Resource[Any]] = {resource.service: resource for resource in ALL}
_VERBS: dict[str, Verb] = {
    "Create": "create",
    "CreateBatch": "create",
    "Get": "get",
    "List": "list",
    "Update": "update",
    "UpdateStatus": "update_status",
    "UpdateStatusBatch": "update_status",
    "Delete": "delete",
    "DeleteBatch": "delete",
    "BindBatch": "bind",
}
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
CALL_TIMEOUT = 3.0
CANCELLED = "CANCELLED"
CONTINUE = "continue"
"""The field with the token of the next page. Its name is a keyword in Python."""
T = TypeVar("T", bound=Object)
STAY = (2.0, 8.0)
"""The minimum and maximum number of seconds on one server."""
PAUSE = 0.05
"""Seconds to wait after a stream has failed."""
MOVED = "CANCELLED"
_WORDS: dict[int, Word] = {ADDED: "added", MODIFIED: "modified", DELETED: "deleted"}


class HistoryJournal:
    """Writes records to a file without blocking the caller. The file is complete after the context. If the file cannot be
    written (for example, because the disk is full), later records are dropped, and `check` and the end of the context raise
    ChaosError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._error: OSError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._records.put(None)
        self._thread.join()
        if error is None:
            self.check()

    def write(self, record: Record) -> None:
        if self._error is None:
            self._records.put(record)

    def check(self) -> None:
        """Raise ChaosError if a record was lost."""
        if self._error is not None:
            reason = self._error.strerror or self._error
            raise ChaosError(f"unable to write the history to {self.path}: {reason}") from self._error

    def _run(self) -> None:
        try:
            with self.path.open("a") as file:
                while True:
                    try:
                        record = self._records.get(timeout=FLUSH)
                    except queue.Empty:
                        file.flush()
                        continue
                    if record is None:
                        return
                    file.write(encode_record(record))
        except OSError as error:
            self._error = error


def parse_method(method: str) -> tuple[Verb, Resource[Any]] | None:
    """Return the verb and resource of a method, for example of "/pinnace.v1.Pods/CreateBatch". Return None for other
    methods."""
    service, _, rpc = method.removeprefix("/").partition("/")
    resource, verb = _RESOURCES.get(service), _VERBS.get(rpc)
    return (verb, resource) if resource and verb else None


def classify_outcome(error: ApiError) -> Outcome:
    """Return the outcome of a call that was sent once, or of an item of a batch."""
    if isinstance(error, OutcomeUnknown | Internal):
        return "unknown"
    return "refused" if error.reason or isinstance(error, Unavailable) else "unknown"


def list_requested_items(verb: Verb, resource: Resource[Any], request: Any, outcome: Outcome = "ok") -> tuple[CallItem, ...]:
    """Return the objects of a request."""
    named = _build_item_parser(verb)
    says_labels = resource is PODS and verb in ("create", "update")

    def item(part: Any) -> CallItem:
        namespace, name, uid, version = named(part)
        labels = labels_digest(part.metadata.labels) if says_labels else None
        key = resource.key(namespace or DEFAULT_NAMESPACE, name)
        return CallItem(key, uid=uid, outcome=outcome, expected=int(version or 0), labels=labels)

    return tuple(map(item, _split_batch(verb, request)))


def list_returned_items(verb: Verb, resource: Resource[Any], request: Any, response: Any) -> tuple[CallItem, ...]:
    """Return the objects of a response. Items of a batch contain the name, uid and revision only."""
    if verb == "list":
        return tuple(_build_item(resource, obj) for obj in response.items)
    wanted = list_requested_items(verb, resource, request)
    if not isinstance(response, BatchResponse):
        return (replace(_build_item(resource, response), expected=wanted[0].expected, labels=wanted[0].labels),)
    return tuple(
        CallItem(
            item.key,
            revision=int(told.resourceVersion or 0),
            uid=told.uid or item.uid,
            outcome=classify_outcome(from_status(told.error)) if told.HasField("error") else "ok",
            expected=item.expected,
            labels=item.labels,
        )
        for item, told in zip(wanted, response.items, strict=True)
    )


def _build_item(resource: Resource[Any], obj: Any) -> CallItem:
    metadata = obj.metadata
    return CallItem(resource.key_of(obj), int(metadata.resourceVersion or 0), metadata.uid, object_digest(obj))


def _split_batch(verb: Verb, request: Any) -> Iterable[Message]:
    """Return the parts of a request that identify one object each."""
    if verb == "list":
        return ()
    fields = request.DESCRIPTOR.fields_by_name
    if "items" in fields:
        parts: Iterable[Message] = request.items
        return parts
    return (request.object,) if "object" in fields else (request,)


def _build_item_parser(verb: Verb) -> Callable[[Any], tuple[str, str, str, str]]:
    """Return a function that extracts namespace, name, uid and required resourceVersion from a part."""
    if verb == "get":
        return lambda request: (request.namespace, request.name, "", "")
    if verb == "delete":
        return lambda request: (
            request.namespace,
            request.name,
            request.options.preconditions.uid,
            request.options.preconditions.resourceVersion,
        )
    return lambda obj: (obj.metadata.namespace, obj.metadata.name, obj.metadata.uid, obj.metadata.resourceVersion)


class _SingleAttemptConnection(Connection):
    """A connection that sends each call once."""

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = 10.0,
        retry: bool = True,
        fence: PresentFence | None = None,
        metadata: Metadata = (),
    ) -> R:
        deadline = asyncio.get_running_loop().time() + timeout
        return await self._send_attempt(CallState(method), request, response, deadline, False, fence, metadata)


class RecordingConnection(Connection):
    """Sends each call once, to a random endpoint, and records it. `client`: the name of the client in the history."""

    def __init__(
        self, client: str, endpoints: Sequence[str], journal: HistoryJournal, rng: random.Random, tls: TlsFiles | None = None
    ) -> None:
        super().__init__(endpoints, tls=tls, rng=rng)
        self.client = client
        self.outcomes: Counter[str] = Counter()
        """The number of calls by outcome."""
        self._journal = journal
        self._random = rng
        self._servers = [_SingleAttemptConnection([endpoint], tls=tls) for endpoint in endpoints]
        self._ids = count(1)
        self._lists: dict[str, int] = {}  # continue token -> the ID of the call that fetched the first page
        self._under_way: dict[int, CallAttempt] = {}

    async def call(
        self,
        method: str,
        request: Message,
        response: type[R],
        *,
        timeout: float = CALL_TIMEOUT,
        retry: bool = True,
        fence: PresentFence | None = None,
        metadata: Metadata = (),
    ) -> R:
        server = self._random.choice(self._servers)
        parsed = parse_method(method)
        if parsed is None:
            return await server.call(method, request, response, timeout=timeout, fence=fence, metadata=metadata)
        number = next(self._ids)
        attempt = self._under_way[number] = CallAttempt(self.client, number, server.endpoint, *parsed, request)
        try:
            limit = min(timeout, CALL_TIMEOUT)
            answer = await server.call(method, request, response, timeout=limit, fence=fence, metadata=metadata)
        except ApiError as error:
            self._write(number, attempt.record_failure(error))
            raise
        except asyncio.CancelledError:
            self._write(number, attempt.record_end("unknown", CANCELLED))
            raise
        self._write(number, attempt.record_success(answer, self._lists))
        return answer

    def abandon_pending_calls(self) -> None:
        """Record all pending calls as unknown, because the client is killed."""
        for number, attempt in list(self._under_way.items()):
            self._write(number, attempt.record_end("unknown", CANCELLED))

    async def stream(self, method: str, request: Message, response: type[R], *, metadata: Metadata = ()) -> Stream[R]:
        return await self._random.choice(self._servers).stream(method, request, response, metadata=metadata)

    async def close(self) -> None:
        await asyncio.gather(super().close(), *(server.close() for server in self._servers))

    def _write(self, number: int, call: CallRecord) -> None:
        del self._under_way[number]
        self.outcomes[call.outcome] += 1
        self._journal.write(call)


class CallAttempt:
    """A call that has been sent. When it ends, one of the methods creates its record."""

    def __init__(self, client: str, number: int, server: str, verb: Verb, resource: Resource[Any], request: Any) -> None:
        self._began = time.monotonic()
        self._client = client
        self._number = number
        self._server = server
        self._verb = verb
        self._resource = resource
        self._request = request

    def record_success(self, answer: Any, lists: dict[str, int]) -> CallRecord:
        """Return the record of a successful call. `lists`: the first page of each list by continue token; updated by this
        method."""
        items = list_returned_items(self._verb, self._resource, self._request, answer)
        if self._verb != "list":
            return self.record_end("ok", items=items)
        token, further = getattr(self._request.options, CONTINUE), getattr(answer.metadata, CONTINUE)
        first = lists.pop(token, 0) if token else self._number
        if further:
            lists[further] = first
        namespace = self._request.namespace
        return self.record_end(
            "ok",
            items=items,
            snapshot=int(answer.metadata.resourceVersion),
            prefix=f"{self._resource.prefix}{namespace}/" if namespace else self._resource.prefix,
            selection=self._request.options.labelSelector + self._request.options.fieldSelector,
            of=first,
            more=bool(further),
            stale=bool(token or self._request.options.resourceVersion),
        )

    def record_failure(self, error: ApiError) -> CallRecord:
        if self._verb == "get" and isinstance(error, NotFound) and error.reason:
            return self.record_end("ok", error.code.name, items=list_requested_items(self._verb, self._resource, self._request))
        return self.record_end(classify_outcome(error), error.code.name)

    def record_end(
        self, outcome: Outcome, code: str = "", items: tuple[CallItem, ...] | None = None, **of_a_list: Any
    ) -> CallRecord:
        now = time.monotonic()
        named = list_requested_items(self._verb, self._resource, self._request, outcome) if items is None else items
        return CallRecord(
            self._client, self._number, self._server, self._verb, self._resource.plural, self._began, now,
            outcome, code, named, **of_a_list,
        )  # fmt: skip


class RecordingWatcher(Generic[T]):
    """A recorded watcher. `name`: the name of its client and its stream. `fields`: a field selector. `revision`: the revision
    up to which events have been received. `verified`: send the fingerprint of the history, so that the server detects a
    restore. Clients of Kubernetes do not send one."""

    def __init__(
        self,
        name: str,
        resource: Resource[T],
        endpoints: Sequence[str],
        journal: HistoryJournal,
        rng: random.Random,
        *,
        tls: TlsFiles | None = None,
        fields: str = "",
        verified: bool = True,
    ) -> None:
        self.name = name
        self.revision = 0
        self._verified = verified
        self._resource = resource
        self._fields = fields
        self._journal = journal
        self._random = rng
        self._connections = [Connection([endpoint], tls=tls) for endpoint in endpoints]
        self._resume: int | None = None
        self._history = b""
        self._reached = asyncio.Event()

    async def watch_until_cancelled(self) -> None:
        """Watch until cancelled."""
        turn = self._random.randrange(len(self._connections))
        try:
            while True:
                turn += 1
                await self._watch_one_server(self._connections[turn % len(self._connections)])
        finally:
            await asyncio.gather(*(connection.close() for connection in self._connections))

    async def wait_for_revision(self, revision: int, timeout: float) -> bool:
        """Wait until all events up to the revision have been received. Return False on timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.revision < revision:
                    self._reached.clear()
                    await self._reached.wait()
        return self.revision >= revision

    async def _watch_one_server(self, connection: Connection) -> None:
        """Watch on one server for a limited time."""
        server = connection.endpoint
        self._record_told("began", self._resume or 0, key=self._resource.prefix, selection=self._fields, server=server)
        code = MOVED
        try:
            async with asyncio.timeout(self._random.uniform(*STAY)):
                await self._read_stream(connection)
        except TimeoutError:
            pass
        except ApiError as error:
            code = error.code.name
            if isinstance(error, Expired | HistoryChanged):
                self._resume = None
            if isinstance(error, HistoryChanged):  # etcd was restored: revisions are reused
                self.revision, self._history = 0, b""
        finally:
            self._record_told("ended", server=server, code=code)
        if code != MOVED:
            await asyncio.sleep(PAUSE)

    async def _read_stream(self, connection: Connection) -> None:
        """Watch until the server ends the stream at its time limit. Raises ApiError."""
        client = ResourceClient(connection, self._resource)
        known = self._history if self._verified else b""
        watch = client.watch(fields=self._fields, resource_version=self._resume, not_before=self.revision, history=known)
        last: Word = "synced" if self._resume is None else "bookmark"
        async with aclosing(watch) as batches:
            async for batch in batches:
                self._record_events(batch, last)
                if batch.resource_version:
                    last = "bookmark"

    def _record_events(self, batch: WatchBatch[T], last: Word) -> None:
        for kind, obj in batch.events:
            revision = int(obj.metadata.resourceVersion)
            self._record_told(_WORDS[kind], revision, key=self._resource.key_of(obj), digest=object_digest(obj))
        if batch.resource_version:
            self._record_told(last, batch.resource_version)
            self.revision = self._resume = batch.resource_version
            self._history = batch.history or self._history
            self._reached.set()

    def _record_told(self, kind: Word, revision: int = 0, **more: Any) -> None:
        self._journal.write(WatchMessage(self.name, self.name, time.monotonic(), kind, revision, **more))
