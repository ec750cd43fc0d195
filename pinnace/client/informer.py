"""An informer: a local copy of one resource that follows the API server and calls event handlers for changes; and the
supervisor that restarts a component whose informers met another history.

    empty --initial state--> synced --changes--> synced ...
      ^                        |  stream broken: resume at `revision`, on another server
      +------ Expired ---------+  (the store stays as it is; the new state is compared with it)
                               +--HistoryChanged--> raises OtherHistory

Guarantees: handlers see every object that appears, its latest version, and its disappearance, in revision order. Changes of one
revision arrive in one call. When a broken stream is resumed, nothing is lost or repeated. After Expired, intermediate versions
may be missed, but the sum of all changes still equals the store. `revision` never decreases: the informer leaves a server that
is behind. All revisions are of one history: when etcd is restored from a backup, `run` raises OtherHistory, because the state
of handlers (expectations, assumed pods, reported statuses) refers to revisions of a history that is gone. The component that
runs the informer ends then, and is started again (RestartSupervisor).

The copy may be behind. Use `wait_for` where a revision matters; `healthy` reports whether the informer receives anything.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from pinnace.api.resources import Object, store_key
from pinnace.api.verbs_pb2 import ADDED, DELETED, MODIFIED, WatchEventType
from pinnace.client.errors import ApiError, Expired, HistoryChanged, asked_to_wait
from pinnace.client.resource import ResourceClient
from pinnace.runtime.backoff import Backoff
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.logs import ComponentRestarted
from pinnace.runtime.supervise import EndedEarly, supervise

log = logging.getLogger(__name__)


class RestartRequired(Exception):
    """The state of the component is invalid: start it again. Not an ApiError: a retry does not help."""


class OtherHistory(RestartRequired):
    """The component's state is of another history than the store's: etcd was restored."""


class Component(Protocol):
    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks of /readyz. Every instance has the same names."""
        ...

    async def run(self) -> None:
        """Runs until cancelled. Raises RestartRequired, perhaps in a group, after all of its tasks have ended."""
        ...


C = TypeVar("C", bound=Component)


BACKOFF_BELOW = 5.0
"""Seconds. A component that ran for less is restarted after a backoff; otherwise it could alternate between two servers with
different histories without a pause."""


class RestartSupervisor(Generic[C]):
    """Runs a component, and replaces it by a new instance in the same process when its state is invalid. `now`: the present
    instance.

        make --> run --RestartRequired--> run and all its tasks have ended --> make --> run ...

    After etcd was restored from a backup, the state of a component (expectations, assumed pods, reported statuses) is of a
    history that is gone, and its revisions have another meaning. So a new instance is made, as a new process would make it.
    State that does not depend on the history stays with the process: connections, addresses, metrics, a kubelet's containers.

    The same happens after a term that failed or made no progress (TermFailed in standby.py): another replica leads meanwhile,
    and this one becomes a candidate again.
    """

    def __init__(
        self,
        make: Callable[[], C],
        clock: Clock = SYSTEM_CLOCK,
        *,
        causes: tuple[type[Exception], ...] = (RestartRequired, EndedEarly),
    ) -> None:
        """`causes`: the exceptions after which the component is restarted. EndedEarly means that one of its tasks has ended,
        for example because a plugin cancelled it. Other exceptions are raised."""
        self._make = make
        self._clock = clock
        self._causes = causes
        self._ended: str | None = None
        self.now = make()

    @property
    def checks(self) -> Mapping[str, Check]:
        """The checks of the instance that runs when a check is called."""
        return {name: partial(self._check, name) for name in self.now.checks}

    async def run(self) -> None:
        """Runs until cancelled. Raises what the component raises, except for the causes."""
        backoff = Backoff(initial=0.1)
        while True:
            born = self._clock.monotonic()
            try:
                await self.now.run()
                return
            except* self._causes as group:
                self._ended = str(_first(group))
                log.warning("restarting: %s", self._ended, extra=ComponentRestarted(self._ended).extra)
            if self._clock.monotonic() - born >= BACKOFF_BELOW:
                backoff.reset()
            else:
                await self._clock.sleep(backoff.next())
            self.now = self._make()
            self._ended = None

    def _check(self, name: str) -> str | None:
        if self._ended is not None:
            return f"restarting: {self._ended}"
        return self.now.checks[name]()


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


T = TypeVar("T", bound=Object)

STALE_AFTER = 10.0
"""Seconds without any response after which an informer whose stream broke is unhealthy. Another server is found within three
seconds, and a resumed stream without changes sends its first bookmark after five."""


@dataclass(slots=True)
class Delta(Generic[T]):
    """One change. `old`: the object in the store before, or None. With DELETED, `obj` is the last version of the object."""

    kind: WatchEventType
    obj: T
    old: T | None


Handler = Callable[[Sequence[Delta[T]]], None]


class Informer(Generic[T]):
    """Do not change the objects in `store`. Its keys are "namespace/name", or "name" for cluster-scoped resources."""

    def __init__(
        self,
        client: ResourceClient[T],
        *,
        labels: str = "",
        fields: str = "",
        announced: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`announced`: the server sends a bookmark as soon as a leader is elected, so that a leader can wait for its
        revision."""
        self._client = client
        self._announced = announced
        self._labels = labels
        self._fields = fields
        self._clock = clock
        self._objects: dict[str, T] = {}
        self._handlers: list[Handler[T]] = []
        self._resume: int | None = None
        self._history = b""  # of `revision`
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._failing: tuple[float, str] | None = None
        """Since when there is no working stream, and the error of the latest attempt."""
        self.store: Mapping[str, T] = MappingProxyType(self._objects)
        self.revision = 0
        """Everything up to this revision is in the store. 0: not synced."""

    @property
    def healthy(self) -> str | None:
        """None, or the problem, for /readyz: a stale copy is worse than none, because its age does not show."""
        plural = self._client.resource.plural
        if self._failing is not None and (silent := self._clock.monotonic() - self._failing[0]) >= STALE_AFTER:
            return f"{plural}: no watch for {silent:.0f} s: {self._failing[1]}"
        return None if self.revision else f"{plural} are not synced yet"

    def add_handler(self, handler: Handler[T]) -> None:
        """`handler` runs on the event loop, after the store has changed, once per response; it must not block or raise. It is
        called at once with the objects that the store has already."""
        self._handlers.append(handler)
        if self._objects:
            handler(difference({}, self._objects))

    async def run(self) -> None:
        """Follows until cancelled. Raises OtherHistory."""
        await supervise(
            f"informer of {self._client.resource.plural}",
            self._follow,
            retry_on=(ApiError,),
            backoff=Backoff(initial=0.02, maximum=2.0),
            clock=self._clock,
            asked=asked_to_wait,
        )

    async def wait_synced(self, timeout: float) -> None:
        """Returns when the store has its initial state. Raises TimeoutError."""
        await self.wait_for(1, timeout)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Returns when everything up to `revision` is in the store and the handlers have been called; but not while the stream
        is broken or a new state is incomplete, because `revision` may be of another history then. Raises TimeoutError."""
        if self.revision >= revision and self._failing is None and self._resume is not None:
            return
        waiter = (revision, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter[1]
        except TimeoutError:
            resource = self._client.resource.plural
            why = f" and has no watch: {self._failing[1]}" if self._failing is not None else f", not at {revision} yet"
            raise TimeoutError(f"the informer of {resource} is at revision {self.revision}{why}") from None
        finally:
            self._waiters = [each for each in self._waiters if each is not waiter]

    async def _follow(self) -> None:
        """Follows one stream to its end. Raises ApiError."""
        why = "the watch ended, and the next one has not sent anything yet"
        try:
            await self._follow_one()
        except ApiError as error:
            why = str(error)
            raise
        finally:
            self._failing = self._failing[0] if self._failing is not None else self._clock.monotonic(), why

    async def _follow_one(self) -> None:
        initial: dict[str, T] | None = {} if self._resume is None else None
        watch = self._client.watch(
            labels=self._labels,
            fields=self._fields,
            resource_version=self._resume,
            not_before=self.revision,
            history=self._history,
            announced=self._announced,
        )
        async with aclosing(watch) as batches:
            try:
                async for batch in batches:
                    self._failing = None
                    if initial is None:
                        self._history = batch.history
                        self._tell(self._apply(batch.events), batch.resource_version)
                        continue
                    initial.update((store_key(obj), obj) for _, obj in batch.events)
                    if batch.resource_version:
                        self._history = batch.history
                        self._replace(initial, batch.resource_version)
                        initial = None
            except Expired:
                self._resume = None
                raise
            except HistoryChanged as error:
                raise OtherHistory(f"the informer of {self._client.resource.plural}: {error}") from None

    def _replace(self, state: dict[str, T], revision: int) -> None:
        deltas = difference(self._objects, state)
        self._objects.clear()
        self._objects.update(state)
        self._tell(deltas, revision)

    def _apply(self, events: Sequence[tuple[WatchEventType, T]]) -> list[Delta[T]]:
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

    def _tell(self, deltas: Sequence[Delta[T]], revision: int) -> None:
        self.revision = self._resume = revision
        if deltas:
            for handler in self._handlers:
                handler(deltas)
        for wanted, waiter in self._waiters:
            if wanted <= revision and not waiter.done():
                waiter.set_result(None)


def first_problem(informers: Iterable[Informer[Any]]) -> str | None:
    """The problem of the first unhealthy informer, and how many others are unhealthy, for /readyz."""
    wrong = [each for informer in informers if (each := informer.healthy)]
    return f"{wrong[0]} (and {len(wrong) - 1} more)" if len(wrong) > 1 else next(iter(wrong), None)


def difference(old: Mapping[str, T], new: Mapping[str, T]) -> list[Delta[T]]:
    """The changes from one state to the other, deletions first. An object of the same name with another uid is a deletion and
    an addition."""
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
    """An index over an informer's objects. `by` returns the key of an object, or "" for none; it depends on the object only.

    Add `follow` as a handler of the informer. Handlers run in the order in which they were added: those added later see an
    index that is up to date."""

    def __init__(self, by: Callable[[T], str], objects: Iterable[T] = ()) -> None:
        self._by = by
        self._objects: dict[str, dict[str, T]] = {}
        for obj in objects:
            self._put(by(obj), obj)

    def under(self, key: str) -> Mapping[str, T]:
        """The objects with this key, by uid, in the order in which they got the key. Do not change them."""
        return self._objects.get(key, {})

    @property
    def keys(self) -> Set[str]:
        """All keys of objects."""
        return self._objects.keys()

    def follow(self, deltas: Sequence[Delta[T]]) -> None:
        """A handler of the informer."""
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
