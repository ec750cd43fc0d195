"""Informers, and the supervisor that restarts a component after its informers detect another history.

An informer is a local copy of one resource. It watches the API server and calls event handlers for changes.

    empty --initial state--> synced --changes--> synced ...
      ^                        |  stream broken: resume at `revision`, on another server
      +------ Expired ---------+  (the store is kept and compared with the new state)
                               +--HistoryChanged--> raises OtherHistory

Guarantees: handlers receive the creation of each object, its latest version, and its deletion, in revision order. All changes
of one revision are delivered in one call. A resumed stream loses and repeats no change. After Expired, intermediate versions
may be missing, but the sum of all changes equals the store. `revision` never decreases: if a server is behind, the informer
switches to another server. Other tasks can run between two calls, also between the revisions of a response with large objects.

All revisions belong to one history. After etcd is restored from a backup, `run` raises OtherHistory, because the state of
handlers (expectations, assumed pods, reported statuses) refers to revisions that no longer exist. RestartSupervisor then
restarts the component that runs the informer.

The copy may be stale. Use `wait_for` if a revision matters. `healthy` reports whether the informer receives data.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from pinnace.api.resources import Object, store_key
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, WatchEventType
from pinnace.client.errors import ApiError, Expired, HistoryChanged, requested_delay
from pinnace.client.resource import ResourceClient, WatchBatch
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import ComponentRestarted
from pinnace.runtime.supervise import EndedEarly, supervise
from pinnace.runtime.tasks import TimeSlice

log = logging.getLogger(__name__)
BACKOFF_BELOW = 5.0
"""Seconds. A component that ran for a shorter time is restarted after a backoff. Otherwise it could alternate between two
servers with different histories without a pause."""
T = TypeVar("T", bound=Object)
STALE_AFTER = 10.0
"""Seconds without a response after which an informer without a working stream is unhealthy. The connection finds another server
within three seconds, and a resumed stream without changes sends its first bookmark after five seconds."""
LARGE_BATCH = 256 << 10
"""Bytes of a response that is delivered in parts."""
LARGE_OBJECTS = 2 << 10
"""Bytes of its average object. The handlers need few milliseconds for hundreds of smaller objects."""


class RestartRequired(Exception):
    """The component's state is invalid and the component must be restarted. Not an ApiError, because a retry does not help."""


class OtherHistory(RestartRequired):
    """The component's state belongs to an earlier history: etcd was restored from a backup."""


class RestartableComponent(Protocol):
    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks of /readyz. All instances must have the same names."""
        ...

    async def run(self) -> None:
        """Run until cancelled. Raises RestartRequired, possibly in an exception group, after all tasks have ended."""
        ...


C = TypeVar("C", bound=RestartableComponent)


class RestartSupervisor(Generic[C]):
    """Runs a component, and replaces it with a new instance in the same process when its state becomes invalid. `now` is the
    current instance.

        make --> run --RestartRequired--> all tasks have ended --> make --> run ...

    After etcd is restored from a backup, the state of a component (expectations, assumed pods, reported statuses) refers to
    revisions of the old history. The new instance starts with the state of a new process. State that does not depend on the
    history is kept: connections, addresses, metrics, and a kubelet's containers.

    A component is also restarted after a term that failed or made no progress (TermFailed in standby.py). Another replica leads
    meanwhile, and this replica becomes a candidate again.
    """

    def __init__(
        self,
        create: Callable[[], C],
        clock: Clock = SYSTEM_CLOCK,
        *,
        causes: tuple[type[Exception], ...] = (RestartRequired, EndedEarly),
    ) -> None:
        """`causes`: the exceptions after which the component is restarted. EndedEarly means that one of its tasks has ended,
        for example because a plugin cancelled it. Other exceptions are raised."""
        self._create = create
        self._clock = clock
        self._causes = causes
        self._ended: str | None = None
        self.now = create()

    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks of the current instance. A check always calls the instance that is current at the time of the call."""
        return {name: partial(self._check, name) for name in self.now.checks}

    async def run(self) -> None:
        """Run until cancelled. Raises the component's exceptions, except for `causes`."""
        backoff = Backoff(initial=0.1)
        while True:
            started_at = self._clock.monotonic()
            try:
                await self.now.run()
                return
            except* self._causes as group:
                self._ended = str(_first_leaf_error(group))
                log.warning("restarting: %s", self._ended, extra=ComponentRestarted(self._ended).extra)
            if self._clock.monotonic() - started_at >= BACKOFF_BELOW:
                backoff.reset()
            else:
                await self._clock.sleep(backoff.next_delay())
            self.now = self._create()
            self._ended = None

    def _check(self, name: str) -> str | None:
        if self._ended is not None:
            return f"restarting: {self._ended}"
        return self.now.checks[name]()


def _first_leaf_error(error: BaseException) -> BaseException:
    return _first_leaf_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


@dataclass(slots=True)
class Delta(Generic[T]):
    """One change. `old`: the previous version in the store, or None. For DELETED, `obj` is the last version of the object."""

    kind: WatchEventType
    obj: T
    old: T | None


Handler = Callable[[Sequence[Delta[T]]], None]


class Informer(Generic[T]):
    """A local copy of one resource. The keys of `store` are "namespace/name", or "name" for cluster-scoped resources. Do not
    modify the objects in `store`."""

    def __init__(
        self,
        client: ResourceClient[T],
        *,
        labels: str = "",
        fields: str = "",
        announced: bool = False,
        transform: Callable[[T], T] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`announced`: the server sends a bookmark when a leader is elected, so that the leader can wait for that revision.
        `transform` returns what is kept of an object."""
        self._transform = transform
        self._client = client
        self._announced = announced
        self._labels = labels
        self._fields = fields
        self._clock = clock
        self._objects: dict[str, T] = {}
        self._handlers: list[Handler[T]] = []
        self._resume_revision: int | None = None
        self._history = b""  # the fingerprint at `revision`
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._failing: tuple[float, str] | None = None
        """The time since when no stream works, and the error of the latest attempt."""
        self.store: Mapping[str, T] = MappingProxyType(self._objects)
        self.revision = 0
        """The store contains all changes up to this revision. 0: not synced."""

    @property
    def healthy(self) -> str | None:
        """None if the informer receives data, otherwise the problem. Used by /readyz, because a stale copy looks like a current
        one."""
        plural = self._client.resource.plural
        if self._failing is not None and (silent := self._clock.monotonic() - self._failing[0]) >= STALE_AFTER:
            return f"{plural}: no watch for {silent:.0f} s: {self._failing[1]}"
        return None if self.revision else f"{plural} are not synced"

    def add_handler(self, handler: Handler[T]) -> None:
        """Register a handler. It runs on the event loop after the store has changed, once per response. It must not block or
        raise. If the store has objects, the handler is called immediately with all of them."""
        self._handlers.append(handler)
        if self._objects:
            handler(diff_stores({}, self._objects))

    async def run(self) -> None:
        """Watch the resource until cancelled. Raises OtherHistory."""
        await supervise(
            f"informer of {self._client.resource.plural}",
            self._run_watch,
            retry_on=(ApiError,),
            backoff=Backoff(initial=0.02, maximum=2.0),
            clock=self._clock,
            asked=requested_delay,
        )

    async def wait_synced(self, timeout: float) -> None:
        """Wait until the store contains the initial state. Raises TimeoutError."""
        await self.wait_for(1, timeout)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Wait until the store contains all changes up to `revision` and the handlers have been called. Does not return while
        the stream is broken or a new state is incomplete, because `revision` may then belong to another history. Raises
        TimeoutError."""
        if self.revision >= revision and self._failing is None and self._resume_revision is not None:
            return
        waiter = (revision, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter[1]
        except TimeoutError:
            resource = self._client.resource.plural
            reason = f" and has no watch: {self._failing[1]}" if self._failing is not None else f", not at {revision}"
            raise TimeoutError(f"the informer of {resource} is at revision {self.revision}{reason}") from None
        finally:
            self._waiters = [item for item in self._waiters if item is not waiter]

    async def _run_watch(self) -> None:
        """Follow one stream until it ends. Raises ApiError."""
        reason = "the watch ended, and the new watch has not received a response"
        try:
            await self._follow_stream()
        except ApiError as error:
            reason = str(error)
            raise
        finally:
            self._failing = self._failing[0] if self._failing is not None else self._clock.monotonic(), reason

    async def _follow_stream(self) -> None:
        initial: dict[str, T] | None = {} if self._resume_revision is None else None
        watch = self._client.watch(
            labels=self._labels,
            fields=self._fields,
            resource_version=self._resume_revision,
            not_before=self.revision,
            history=self._history,
            announced=self._announced,
        )
        async with aclosing(watch) as batches:
            try:
                async for batch in batches:
                    self._failing = None
                    if (transform := self._transform) is not None:
                        batch = replace(batch, events=[(kind, transform(obj)) for kind, obj in batch.events])
                    if initial is None:
                        await self._deliver_batch(batch)
                        continue
                    initial.update((store_key(obj), obj) for _, obj in batch.events)
                    if batch.resource_version:
                        self._history = batch.history
                        self._replace_store(initial, batch.resource_version)
                        initial = None
            except Expired:
                self._resume_revision = None
                raise
            except HistoryChanged as error:
                raise OtherHistory(f"the informer of {self._client.resource.plural}: {error}") from None

    async def _deliver_batch(self, batch: WatchBatch[T]) -> None:
        """Apply the batch and call the handlers. Other tasks run between its parts: a leader that is busy with the pods of one
        user must still renew its lease."""
        parts = split_batch(batch)
        time_slice = TimeSlice(self._clock)
        for revision, events in parts[:-1]:
            self._notify_handlers(self._apply_events(events), revision)
            await time_slice.end()
        self._history = batch.history
        self._notify_handlers(self._apply_events(parts[-1][1]), batch.resource_version)

    def _replace_store(self, state: dict[str, T], revision: int) -> None:
        deltas = diff_stores(self._objects, state)
        self._objects.clear()
        self._objects.update(state)
        self._notify_handlers(deltas, revision)

    def _apply_events(self, events: Sequence[tuple[WatchEventType, T]]) -> list[Delta[T]]:
        objects = self._objects
        deltas = []
        for kind, obj in events:
            key = store_key(obj)
            if kind == DELETED:
                old = objects.pop(key, None)
            else:
                old = objects.get(key)
                objects[key] = obj
            deltas.append(Delta(kind, obj, old))
        return deltas

    def _notify_handlers(self, deltas: Sequence[Delta[T]], revision: int) -> None:
        self.revision = self._resume_revision = revision
        if deltas:
            for handler in self._handlers:
                handler(deltas)
        for wanted, waiter in self._waiters:
            if wanted <= revision and not waiter.done():
                waiter.set_result(None)


def split_batch(batch: WatchBatch[T]) -> Sequence[tuple[int, Sequence[tuple[WatchEventType, T]]]]:
    """Split a batch with large objects into its revisions. Return the revision and the events of each part."""
    events = batch.events
    revisions = [int(obj.metadata.resourceVersion) for _, obj in events] if is_heavy_batch(batch) else []
    if not revisions or revisions != sorted(revisions):
        return [(batch.resource_version, events)]
    groups = groupby(zip(revisions, events, strict=True), key=itemgetter(0))
    return [(revision, [event for _, event in group]) for revision, group in groups]


def is_heavy_batch(batch: WatchBatch[T]) -> bool:
    """Return True if the handlers may need long for the batch: it is large, and so are its objects."""
    return batch.size >= max(LARGE_BATCH, LARGE_OBJECTS * len(batch.events))


def first_problem(informers: Iterable[Informer[Any]]) -> str | None:
    """Return the problem of the first unhealthy informer and the number of other unhealthy informers, for /readyz."""
    problems = [each for informer in informers if (each := informer.healthy)]
    return f"{problems[0]} (and {len(problems) - 1} more)" if len(problems) > 1 else next(iter(problems), None)


def diff_stores(old: Mapping[str, T], new: Mapping[str, T]) -> list[Delta[T]]:
    """Return the changes from one state to another, deletions first. If an object was recreated with a new uid, the changes
    contain a deletion and an addition."""
    gone, deltas = [], []
    for key, before in old.items():
        after = new.get(key)
        if after is None or after.metadata.uid != before.metadata.uid:
            gone.append(Delta(DELETED, before, before))
        elif after.metadata.resourceVersion != before.metadata.resourceVersion:
            deltas.append(Delta(MODIFIED, after, before))
    for key, after in new.items():
        known = old.get(key)
        if known is None or known.metadata.uid != after.metadata.uid:
            deltas.append(Delta(ADDED, after, None))
    return gone + deltas


class Index(Generic[T]):
    """An index over an informer's objects. `by` returns the key of an object, or "" to exclude it. It must depend on the object
    only.

    Add `apply_deltas` as a handler of the informer. Handlers run in the order of registration, so handlers that are registered
    after `apply_deltas` read an updated index."""

    def __init__(self, by: Callable[[T], str], objects: Iterable[T] = ()) -> None:
        self._by = by
        self._objects: dict[str, dict[str, T]] = {}
        for obj in objects:
            self._put(by(obj), obj)

    def under(self, key: str) -> Mapping[str, T]:
        """Return the objects with this key by uid, in the order in which they received the key. Do not modify them."""
        return self._objects.get(key, {})

    @property
    def keys(self) -> Set[str]:
        """The keys that have at least one object."""
        return self._objects.keys()

    def apply_deltas(self, deltas: Sequence[Delta[T]]) -> None:
        """Update the index. Register this method as a handler of the informer."""
        for delta in deltas:
            before = self._by(delta.old) if delta.old is not None else ""
            after = self._by(delta.obj) if delta.kind != DELETED else ""
            if delta.old is not None and before and (before, delta.old.metadata.uid) != (after, delta.obj.metadata.uid):
                self._drop(before, delta.old.metadata.uid)
            self._put(after, delta.obj)

    def _put(self, key: str, obj: T) -> None:
        if key:
            self._objects.setdefault(key, {})[obj.metadata.uid] = obj

    def _drop(self, key: str, uid: str) -> None:
        objects = self._objects[key]
        del objects[uid]
        if not objects:
            del self._objects[key]
