"""A component that lives for as long as what it keeps can be trusted, and then begins anew, in the same process.

    make --> run --BeginAnew--> run is over, with all its tasks --> make --> run ...

After etcd was restored from a backup, what a component keeps (expectations, assumed pods, what a kubelet has reported) is of a
history that is gone, and its revisions mean something else now. So nothing of it is kept: a new one is made, as a new process
would make it. What is not of the history stays with the process: connections, addresses, metrics, the containers of a kubelet.

So it is after a term that failed, or did not go on (TermFailed in standby.py): another replica leads meanwhile, and this one
stands for election again as a new process would.

An informer: a local copy of one resource that follows the API server, and tells its handlers what changed.

    empty --initial state--> synced --changes--> synced ...
      ^                        |  stream broken: resume at `revision`, on another server
      +------ Expired ---------+  (the store stays as it is; the new state is compared with it)
                               +--HistoryChanged--> raises OtherHistory

Guarantees: handlers see every object that appears, its latest version, and its disappearance, in revision order; changes of one
revision arrive in one call; between a broken stream and its resumption nothing is lost or repeated. After Expired,
intermediate versions may be missed, but the handlers' sum is still the store. `revision` never goes back: a server that is
behind is left for another. All of it is of one history: when etcd was restored from a backup, `run` ends with OtherHistory, for
what the handlers keep (expectations, assumed pods, what a kubelet has reported) is compared by revisions of a history that is
gone. Whoever runs the informer ends with it, and begins anew (pinnace/client/informer.py).

What it does not promise: that it is up to date. `wait_for` a revision where that matters; `healthy` says whether it hears
anything at all.

An index over an informer: its objects by something else than their name.

It hears what the informer's other handlers hear, in the order in which they were added: whoever comes after it finds it up to
date.
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


class BeginAnew(Exception):
    """What the component keeps cannot be trusted any more. No ApiError: trying again does not help."""


class OtherHistory(BeginAnew):
    """What is known is not of the history that the store has."""


class Component(Protocol):
    @property
    def checks(self) -> Mapping[str, Check]:
        """For /readyz. Every one that is made has the same names."""
        ...

    async def run(self) -> None:
        """Until cancelled. Raises BeginAnew, perhaps in a group, when all that it has begun has ended."""
        ...


C = TypeVar("C", bound=Component)


SHORT = 5.0
"""Seconds: who has lived for less waits before he begins anew, or he would go round between two servers of two histories."""


class Lives(Generic[C]):
    """`now`: the component that lives."""

    def __init__(
        self,
        make: Callable[[], C],
        clock: Clock = SYSTEM_CLOCK,
        *,
        causes: tuple[type[Exception], ...] = (BeginAnew, EndedEarly),
    ) -> None:
        """`causes`: for which it begins anew. EndedEarly is one of its parts that has ended, as by a plugin that cancelled its
        task. Others end it, as a bug does."""
        self._make = make
        self._clock = clock
        self._causes = causes
        self._ended: str | None = None
        self.now = make()

    @property
    def checks(self) -> Mapping[str, Check]:
        """Of the one that lives when it is asked."""
        return {name: partial(self._check, name) for name in self.now.checks}

    async def run(self) -> None:
        """Until cancelled. Raises what the component raises, but for the causes."""
        backoff = Backoff(initial=0.1)
        while True:
            born = self._clock.monotonic()
            try:
                await self.now.run()
                return
            except* self._causes as group:
                self._ended = str(_first(group))
                log.warning("beginning anew: %s", self._ended, extra=ComponentRestarted(self._ended).extra)
            if self._clock.monotonic() - born >= SHORT:
                backoff.reset()
            else:
                await self._clock.sleep(backoff.next())
            self.now = self._make()
            self._ended = None

    def _check(self, name: str) -> str | None:
        if self._ended is not None:
            return f"it begins anew: {self._ended}"
        return self.now.checks[name]()


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


T = TypeVar("T", bound=Object)

DEAF = 10.0
"""Seconds for which an informer whose stream broke may be told nothing and still be healthy: another server is found in three,
and a stream that is resumed where nothing happens shows its first bookmark after five."""


@dataclass(slots=True)
class Delta(Generic[T]):
    """One change. `old`: what the store had before, None where it had nothing. A DELETED `obj` is the object as it was last."""

    kind: WatchEventType
    obj: T
    old: T | None


Handler = Callable[[Sequence[Delta[T]]], None]


class Informer(Generic[T]):
    """Objects in `store` belong to it: do not change them. Keys are "namespace/name", or "name" where cluster-scoped."""

    def __init__(
        self,
        client: ResourceClient[T],
        *,
        labels: str = "",
        fields: str = "",
        announced: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`announced`: it hears at once how far it is when somebody is elected, so that a leader can wait for that."""
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
        """Since when there is no stream that tells anything, and why not, by the latest attempt."""
        self.store: Mapping[str, T] = MappingProxyType(self._objects)
        self.revision = 0
        """Everything up to here is in the store. 0: not synced."""

    @property
    def healthy(self) -> str | None:
        """None, or what is wrong, for /readyz: a copy that does not follow is worse than none, as nobody sees it age."""
        plural = self._client.resource.plural
        if self._failing is not None and (silent := self._clock.monotonic() - self._failing[0]) >= DEAF:
            return f"{plural} are not followed for {silent:.0f} s: {self._failing[1]}"
        return None if self.revision else f"{plural} are not synced yet"

    def add_handler(self, handler: Handler[T]) -> None:
        """`handler` runs on the event loop, after the store has changed, once per response; it must not block or raise. It is
        told at once of what is there already."""
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
        """Returns when the store has its first state. Raises TimeoutError."""
        await self.wait_for(1, timeout)

    async def wait_for(self, revision: int, timeout: float) -> None:
        """Returns when everything up to `revision` is in the store and the handlers were told; but not while its stream is
        broken, nor while a new state is told in part, for `revision` may be of another history then. Raises TimeoutError."""
        if self.revision >= revision and self._failing is None and self._resume is not None:
            return
        waiter = (revision, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter[1]
        except TimeoutError:
            resource = self._client.resource.plural
            why = f", and does not follow: {self._failing[1]}" if self._failing is not None else f", not at {revision} yet"
            raise TimeoutError(f"the informer of {resource} is at revision {self.revision}{why}") from None
        finally:
            self._waiters = [each for each in self._waiters if each is not waiter]

    async def _follow(self) -> None:
        """Follows one stream to its end, which may be an ApiError."""
        why = "the watch has ended, and the next one has not told anything yet"
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


def complaint(informers: Iterable[Informer[Any]]) -> str | None:
    """The first that is not healthy, and how many others are not; for /readyz. One line must do for a dozen with one cause."""
    wrong = [each for informer in informers if (each := informer.healthy)]
    return f"{wrong[0]} (and {len(wrong) - 1} more)" if len(wrong) > 1 else next(iter(wrong), None)


def difference(old: Mapping[str, T], new: Mapping[str, T]) -> list[Delta[T]]:
    """What turns one state into the other, deletions first. A namesake (another uid) is a deletion and an addition."""
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
    """`by` says under which key an object stands; empty: under none. It looks at nothing but the object."""

    def __init__(self, by: Callable[[T], str], objects: Iterable[T] = ()) -> None:
        self._by = by
        self._objects: dict[str, dict[str, T]] = {}
        for obj in objects:
            self._put(by(obj), obj)

    def under(self, key: str) -> Mapping[str, T]:
        """The objects with this key, by uid; who has had it longest comes first. Do not change them."""
        return self._objects.get(key, {})

    @property
    def keys(self) -> Set[str]:
        """Those that objects have."""
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
