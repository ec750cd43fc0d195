"""What all controllers share: the Controller protocol, the work queue, the worker pool and the metrics.

    change of an object --Watch.keys--> keys --queue, each once--> sync(key) --> writes, by what the informers' stores say
                                          ^                          |
                                          +--- again after ... ------+--- an ApiError: again, after the key's back-off

A key names an object, not a change: `sync` compares the wanted state with the actual state, so that missed changes do not
matter. Decisions are pure functions of objects, so that tests need no cluster.

Only the leader's controllers work. At the start of a term every object counts as added. At its end, running syncs are
cancelled. A controller keeps no state that the next leader needs.

Work queue:

             add                          get                         done
    (absent) ----> waiting for a worker -------> being synced ---------------> (absent)
       ^  add_after,        ^                          | add
       |  add_rate_limited  |                          v
       +----> asleep -------+                 being synced, and dirty --done--> waiting for a worker

Guarantees: a key that is added is synced after that moment; two workers never have the same key at a time. The back-off of a
key starts at BASE seconds and doubles with each failure, up to `maximum`, until `forget`. The semantics are client-go's,
https://pkg.go.dev/k8s.io/client-go/util/workqueue.

Worker pool: an API error or a bug sends the key back with its back-off, so that one object does not block others.

    sync --SLOW seconds--> named in the log --DEADLINE--> cancelled, and the key goes back
                                                 '--GRACE: it ignores that--> another worker replaces its worker
"""

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge, Histogram

from controllers.informers import Informers
from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import OwnerReference
from pinnace.api.resources import Object, Resource, store_key
from pinnace.api.scalars import STRING
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Conflict
from pinnace.client.events import EventRecorder, Reporter
from pinnace.client.informer import Delta
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import SyncAbandoned, SyncSlow, SyncTimedOut
from pinnace.runtime.stalls import Culprit
from pinnace.runtime.supervise import EndedEarly, describe, unending
from pinnace.runtime.tasks import TimeSlice, in_slices, race

T = TypeVar("T", bound=Object)

Keys = Callable[[Delta[T]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """`keys`: what is to be looked at after a change. It must not raise, nor wait."""

    resource: Resource[T]
    keys: Keys[T]


class Controller(Protocol):
    @property
    def name(self) -> str:
        """As kube-controller-manager calls it, such as "replicaset"."""
        ...

    @property
    def workers(self) -> int:
        """Keys that are looked at at once."""
        ...

    @property
    def max_backoff(self) -> float:
        """Seconds between two looks at a key that fails, at most: so long may it take to notice that nothing is in its way any
        more."""
        ...

    @property
    def watches(self) -> Sequence[Watch[Any]]: ...

    async def sync(self, key: str) -> float | None:
        """Looks at one key. The seconds after which it is to be looked at again even if nothing changes; None: never. Raises
        ApiError, or Unfinished: it is looked at again after its back-off."""
        ...


class Unfinished(Exception):
    """All of a key is done that could be. `cause`: why the rest could not be; `again`: what `sync` would have returned. The
    key is looked at again after its back-off, or after `again` seconds if that is sooner."""

    def __init__(self, cause: ApiError, again: float | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.again = again


@dataclass(frozen=True, slots=True)
class Shared:
    """What all controllers are made from. Indices and informers are asked for in the constructor, before anything runs."""

    client: Client
    informers: Informers
    recorder: EventRecorder
    clock: Clock
    component: str
    """In whose name events are reported."""

    @property
    def events(self) -> Reporter:
        return self.recorder.of(self.component)

    def reporting(self, component: str) -> "Shared":
        """The same for a controller whose events have its own name."""
        return replace(self, component=component)


def itself(delta: Delta[T]) -> Iterable[str]:
    """A Watch's `keys`: the object that has changed."""
    return (store_key(delta.obj),)


def its_controller(owner: Resource[Any]) -> Callable[[Delta[Any]], Iterable[str]]:
    """A Watch's `keys`: the object of this kind that manages the one that has changed, now or before."""

    def keys(delta: Delta[Any]) -> Iterable[str]:
        found = set()
        for obj in filter(None, (delta.obj, delta.old)):
            reference = controller_of(obj)
            if reference is not None and (reference.kind, reference.apiVersion) == (owner.kind, owner.api_version):
                namespace = obj.metadata.namespace
                found.add(f"{namespace}/{reference.name}" if owner.namespaced else reference.name)
        return found

    return keys


def controller_of(obj: Object) -> OwnerReference | None:
    """Who manages it: at most one."""
    return next((reference for reference in obj.metadata.ownerReferences if reference.controller), None)


def scaled_value(bound: IntOrString, total: int, *, up: bool) -> int:
    """`up`: fractions are rounded up, else down. What is no number (validation lets none through) is 0."""
    if bound.type != STRING:
        return bound.intVal
    digits = bound.strVal.removesuffix("%")
    if not digits.isdecimal():
        return 0
    share = int(digits.lstrip("0") or "0") * total  # validation lets any number of zeros through, Python does not
    return -(-share // 100) if up else share // 100


BASE = 0.005
MAX_BACKOFF = 1000.0
"""Of a controller that has no reason for another."""
_DOUBLINGS = 60
"""More failures make no difference."""


class WorkQueue:
    """`run` wakes the keys that sleep. Times are monotonic, in seconds."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, base: float = BASE, maximum: float = MAX_BACKOFF) -> None:
        self._clock = clock
        self._base = base
        self._maximum = maximum
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: set[str] = set()  # to be looked at: those that wait, and those that will once more
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._asleep: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # with outdated entries: those whose time is not the key's any more
        self._order = count()
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        """Keys that wait for a worker."""
        return self._waiting.qsize()

    def add(self, key: str) -> None:
        if key not in self._wanted:
            self._wanted.add(key)
            if key not in self._busy:
                self._waiting.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """As `add`, in `seconds`; the earliest of several wins."""
        if seconds <= 0:
            self.add(key)
            return
        time = self._clock.monotonic() + seconds
        if time < self._asleep.get(key, math.inf):
            self._asleep[key] = time
            heapq.heappush(self._heap, (time, next(self._order), key))
            if self._heap[0][2] == key:
                self._earlier.set()

    def add_rate_limited(self, key: str) -> float:
        """As `add`, after the key's back-off, which grows; the seconds until then."""
        failures = self._failures.get(key, 0)
        self._failures[key] = min(failures + 1, _DOUBLINGS)
        delay = min(self._maximum, self._base * 2.0**failures)
        self.add_after(key, delay)
        return delay

    def failures(self, key: str) -> int:
        """How often in a row it was added so."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """The key's back-off begins anew."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Waits for a key. It is the caller's alone until `done`."""
        key = await self._waiting.get()
        self._wanted.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._wanted:
            self._waiting.put_nowait(key)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                time, _, key = heapq.heappop(self._heap)
                if self._asleep.get(key) == time:
                    del self._asleep[key]
                    self.add(key)
            self._earlier.clear()
            if self._heap:
                await race(self._earlier.wait(), self._clock.sleep(self._heap[0][0] - now))
            else:
                await self._earlier.wait()


SYNCS = Counter("controllers_syncs", "Keys looked at, by controller and result.", ["controller", "result"])
DEPTH = Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"])
RETRIES = Counter("workqueue_retries", "Keys that are looked at again after a failure.", ["name"])
WORK = Histogram(
    "workqueue_work_duration_seconds",
    "Seconds that a look at a key takes.",
    ["name"],
    buckets=[0.0001 * 4**step for step in range(10)],  # 0.1 milliseconds to 26 seconds
)


log = logging.getLogger(__name__)

SLOW = 30.0
"""Seconds for one look after which its key is named in the log. No look that goes well takes a tenth of it."""
DEADLINE = 300.0
"""Seconds for one look. Writes of a namespace's end, and of thousands of nodes, take a minute on a slow cluster."""
GRACE = 10.0
"""Seconds for a look to end once it is cancelled."""
WATCH = 1.0
"""Seconds between looks at the workers."""
MAX_LOST_WORKERS = 8
"""Workers that ignore their cancellation; with more, the term is given up."""
WARN_FAILURES = 3
"""Failures of a key in a row after which they are worth a warning: most are over by then."""


@dataclass(slots=True)
class _Look:
    """At one key, by one worker. Times are monotonic seconds."""

    key: str
    began: float
    told: bool = False
    cancelled: float | None = None


class WorkerPool:
    """`leads`: does the term last? Asked before each look."""

    def __init__(self, controller: Controller, leads: Callable[[], bool], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._controller = controller
        self._leads = leads
        self._clock = clock
        self._queue = WorkQueue(clock=clock, maximum=controller.max_backoff)
        self._turn = TimeSlice(clock)
        self._looks: dict[asyncio.Task[None], _Look] = {}
        """That are under way."""
        self._lost: set[asyncio.Task[None]] = set()
        """Workers that ignore their cancellation."""

    @property
    def name(self) -> str:
        return self._controller.name

    def stuck(self) -> str | None:
        """What keeps the controller from going on; None: nothing."""
        now = self._clock.monotonic()
        slow = [look for look in self._looks.values() if now - look.began >= SLOW]
        if len(slow) < self._controller.workers:
            return None
        oldest = min(slow, key=lambda look: look.began)
        return f"controller {self.name}: all of its workers are stuck; {oldest.key} for {now - oldest.began:.0f} s"

    async def begin(self, stores: Callable[[Resource[Any]], Mapping[str, Any]]) -> None:
        """All that there is counts as added. In turns: of a hundred thousand pods it takes seconds, in which the lead must be
        kept; what changes meanwhile is for `handle`."""
        for watch in self._controller.watches:
            found = list(stores(watch.resource).values())
            await in_slices(partial(self._added, watch.keys), found, self._clock)

    def _added(self, keys: Keys[Any], obj: Any) -> None:
        self.handle(keys, (Delta(ADDED, obj, None),))

    def handle(self, keys: Keys[Any], deltas: Sequence[Delta[Any]]) -> None:
        """Changes of what is watched."""
        for delta in deltas:
            for key in keys(delta):
                self._queue.add(key)

    async def run(self) -> None:
        """Until cancelled."""
        name = self._controller.name
        DEPTH.labels(name).set_function(partial(len, self._queue))
        async with asyncio.TaskGroup() as group:
            group.create_task(unending(f"queue of {name}", self._queue.run))
            group.create_task(unending(f"watch over {name}", partial(self._watch, group)))
            for _ in range(self._controller.workers):
                self._hire(group)

    def _hire(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._work(), name=self.name)

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            key = await self._queue.get()
            if not self._leads():
                return
            look = self._looks[task] = _Look(key, self._clock.monotonic())
            try:
                await self._look(key, task)
            finally:
                if task not in self._lost:
                    self._queue.done(key)
                self._looks.pop(task, None)
                WORK.labels(self.name).observe(self._clock.monotonic() - look.began)
            if task in self._lost:
                self._lost.discard(task)
                return
            await self._turn.end()  # looks at thousands of objects may have nothing to wait for

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        """Ends looks that do not end by themselves."""
        while True:
            await self._clock.sleep(WATCH)
            now = self._clock.monotonic()
            for task, look in list(self._looks.items()):
                if now - look.began >= SLOW and not look.told:
                    look.told = True
                    lasted = now - look.began
                    slow = SyncSlow(self.name, look.key, lasted).extra
                    log.warning("%s: the look at %s has not ended for %.0f s", self.name, look.key, lasted, extra=slow)
                if look.cancelled is None and now - look.began >= DEADLINE:
                    look.cancelled = now
                    task.cancel()
                elif look.cancelled is not None and now - look.cancelled >= GRACE:
                    self._replace(task, look, group)

    def _replace(self, task: asyncio.Task[None], look: _Look, group: asyncio.TaskGroup) -> None:
        """Of a worker that ignores its cancellation. The key goes to another one, beside the look that goes on."""
        abandoned = SyncAbandoned(self.name, look.key).extra
        log.error("%s: the look at %s ignores its cancellation; another worker goes on", self.name, look.key, extra=abandoned)
        del self._looks[task]
        self._lost.add(task)
        if len(self._lost) > MAX_LOST_WORKERS:
            raise EndedEarly(f"controller {self.name}: {len(self._lost)} workers are lost, the latest with {look.key}")
        self._retry(look.key, "bug", TimeoutError(f"it did not end within {DEADLINE + GRACE:.0f} s"))
        self._queue.done(look.key)
        self._hire(group)

    async def _look(self, key: str, task: asyncio.Task[None]) -> None:
        name, before = self.name, task.cancelling()
        try:
            again = await _sync(self._controller, key)
        except asyncio.CancelledError as error:
            look = self._looks.get(task)
            if look is not None and look.cancelled is not None and task.uncancel() <= before:
                timed_out = SyncTimedOut(name, key).extra
                log.error("%s: the look at %s was ended after %.0f s", name, key, DEADLINE, extra=timed_out)
                self._retry(key, "bug", TimeoutError(f"it did not end within {DEADLINE:.0f} s"))
            elif task.cancelling() > before:
                raise
            else:
                log.exception("%s: %s trips a bug: cancelled by itself", name, key)
                self._retry(key, "bug", error)
        except ApiError as error:
            self._refused(key, error)
        except Unfinished as error:
            self._refused(key, error.cause)
            self._again(key, error.again)
        except BaseException as error:  # SystemExit and the like would end the process without a word
            log.exception("%s: %s trips a bug", name, key)
            self._retry(key, "bug", error)
        else:
            SYNCS.labels(name, "done").inc()
            self._queue.forget(key)
            self._again(key, again)

    def _again(self, key: str, seconds: float | None) -> None:
        if seconds is not None:
            self._queue.add_after(key, seconds)

    def _refused(self, key: str, error: ApiError) -> None:
        self._retry(key, "conflict" if isinstance(error, Conflict) else "error", error)

    def _retry(self, key: str, result: str, error: BaseException) -> None:
        name = self._controller.name
        delay = self._queue.add_rate_limited(key)
        SYNCS.labels(name, result).inc()
        RETRIES.labels(name).inc()
        level = logging.WARNING if self._queue.failures(key) >= WARN_FAILURES else logging.DEBUG
        log.log(level, "%s: %s: %s; again in %.3g s", name, key, describe(error), delay)


async def _sync(controller: Controller, key: str) -> float | None:
    """(`on_stack` reads its arguments.)"""
    return await controller.sync(key)


def on_stack(frame: FrameType | None) -> Culprit | None:
    """The controller that this stack is in, and its key; None: it is in none. Controllers are ours: none is interrupted."""
    while frame is not None:
        if frame.f_code is _sync.__code__:
            return Culprit(f"controller {frame.f_locals['controller'].name} at {frame.f_locals['key']}")
        frame = frame.f_back
    return None
