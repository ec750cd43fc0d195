"""The shared code of all controllers: the Controller protocol, the work queue, the worker pool and the metrics.

    change of an object --Watch.keys--> keys --queue, without duplicates--> sync(key) --> writes, from the informers' stores
                                          ^                                    |
                                          +--- again after ... ----------------+--- ApiError: again, after the key's backoff

A key names an object, not a change: `sync` compares the desired state with the actual state, so that missed changes have no
effect. Decisions are pure functions of objects, so that tests need no cluster.

Only the leader's controllers run. At the start of a term every object counts as added. At its end, running syncs are cancelled.
A controller keeps no state that the next leader needs.

Work queue:

             add                          get                         done
    (absent) ----> waiting for a worker -------> being synced ---------------> (absent)
       ^  add_after,        ^                          | add
       |  add_rate_limited  |                          v
       +----> delayed ------+                 being synced, and dirty --done--> waiting for a worker

Guarantees: a key that is added is synced afterwards, and two workers never sync the same key concurrently. The backoff of a key
starts at BASE seconds and doubles with each failure, up to `maximum`, until `forget`. The semantics are client-go's,
https://pkg.go.dev/k8s.io/client-go/util/workqueue.

Worker pool: after an API error or an unexpected exception, the key is retried with its backoff, so that one object does
not block others.

    sync --SLOW seconds--> log line --DEADLINE--> cancelled, and the key is retried
                                         '--GRACE, if it ignores the cancellation--> another worker replaces the worker
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

from pinnace.api.intstr_v1_pb2 import IntOrString
from pinnace.api.meta_v1_pb2 import OwnerReference
from pinnace.api.resources import Object, Resource, store_key
from pinnace.api.scalars import STRING
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.client import Client
from pinnace.client.errors import ApiError, Conflict
from pinnace.client.events import EventRecorder, Reporter
from pinnace.client.informer import Delta
from pinnace.controllers.informers import Informers
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import SyncAbandoned, SyncSlow, SyncTimedOut
from pinnace.runtime.stalls import Culprit
from pinnace.runtime.supervise import EndedEarly, describe, unending
from pinnace.runtime.tasks import TimeSlice, in_slices, race

T = TypeVar("T", bound=Object)

Keys = Callable[[Delta[T]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Watch(Generic[T]):
    """A watched kind. `keys` returns the keys to sync after a change. It must not raise an exception or block."""

    resource: Resource[T]
    keys: Keys[T]


class Controller(Protocol):
    @property
    def name(self) -> str:
        """The name in kube-controller-manager, such as "replicaset"."""
        ...

    @property
    def workers(self) -> int:
        """Number of concurrent syncs."""
        ...

    @property
    def max_backoff(self) -> float:
        """Maximum backoff of a key that fails, in seconds. A resolved problem can go unnoticed for this time."""
        ...

    @property
    def watches(self) -> Sequence[Watch[Any]]: ...

    async def sync(self, key: str) -> float | None:
        """Sync one key. Return the seconds until the next sync without a change, or None.

        Raise ApiError or Unfinished to sync the key again after its backoff.
        """
        ...


class Unfinished(Exception):
    """A sync completed everything except for an error. `cause` is the error, and `again` the intended return value of `sync`.

    The key is synced again after its backoff, or after `again` seconds if this is earlier.
    """

    def __init__(self, cause: ApiError, again: float | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.again = again


@dataclass(frozen=True, slots=True)
class Shared:
    """The dependencies of all controllers. Constructors must request indexes and informers before anything runs."""

    client: Client
    informers: Informers
    recorder: EventRecorder
    clock: Clock
    component: str
    """The event source component."""

    @property
    def events(self) -> Reporter:
        return self.recorder.of(self.component)

    def reporting(self, component: str) -> "Shared":
        """Return a copy for a controller with its own event source component."""
        return replace(self, component=component)


def itself(delta: Delta[T]) -> Iterable[str]:
    """A Watch's `keys`: the key of the changed object."""
    return (store_key(delta.obj),)


def its_controller(owner: Resource[Any]) -> Callable[[Delta[Any]], Iterable[str]]:
    """Return a Watch's `keys`: the controller of the changed object if it has this kind, now and before the change."""

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
    """Return the controller reference, or None. An object has at most one."""
    return next((reference for reference in obj.metadata.ownerReferences if reference.controller), None)


def scaled_value(bound: IntOrString, total: int, *, up: bool) -> int:
    """Return an absolute value. Fractions are rounded up with `up`, else down. An invalid value counts as 0."""
    if bound.type != STRING:
        return bound.intVal
    digits = bound.strVal.removesuffix("%")
    if not digits.isdecimal():
        return 0
    share = int(digits.lstrip("0") or "0") * total  # int() limits the number of digits, and validation allows leading zeros
    return -(-share // 100) if up else share // 100


BASE = 0.005
MAX_BACKOFF = 1000.0
"""Default maximum backoff of a controller, in seconds."""
_DOUBLINGS = 60
"""Number of failures after which the backoff stops growing."""


class WorkQueue:
    """The work queue. `run` moves delayed keys. Times are monotonic seconds."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, base: float = BASE, maximum: float = MAX_BACKOFF) -> None:
        self._clock = clock
        self._base = base
        self._maximum = maximum
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._wanted: set[str] = set()  # keys that wait for a worker, and dirty keys
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._asleep: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []  # may contain outdated entries, whose time differs from `_asleep`
        self._order = count()
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of keys that wait for a worker."""
        return self._waiting.qsize()

    def add(self, key: str) -> None:
        if key not in self._wanted:
            self._wanted.add(key)
            if key not in self._busy:
                self._waiting.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after `seconds`. Of several calls, the earliest time counts."""
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
        """Add the key after its backoff. Return the backoff in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = min(failures + 1, _DOUBLINGS)
        delay = min(self._maximum, self._base * 2.0**failures)
        self.add_after(key, delay)
        return delay

    def failures(self, key: str) -> int:
        """Return the number of consecutive failures of the key."""
        return self._failures.get(key, 0)

    def forget(self, key: str) -> None:
        """Reset the backoff of the key."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """Wait for a key. No other worker gets it until `done`."""
        key = await self._waiting.get()
        self._wanted.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._wanted:
            self._waiting.put_nowait(key)

    async def run(self) -> None:
        """Run until cancelled."""
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


SYNCS = Counter("controllers_syncs", "Syncs of keys, by controller and result.", ["controller", "result"])
DEPTH = Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"])
RETRIES = Counter("workqueue_retries", "Retries of keys after a failure.", ["name"])
WORK = Histogram(
    "workqueue_work_duration_seconds",
    "Seconds per sync of a key.",
    ["name"],
    buckets=[0.0001 * 4**step for step in range(10)],  # 0.1 milliseconds to 26 seconds
)


log = logging.getLogger(__name__)

SLOW = 30.0
"""Seconds after which a sync is logged as slow. A successful sync takes less than a tenth of it."""
DEADLINE = 300.0
"""Maximum seconds per sync. The deletion of a large namespace, or of thousands of nodes, takes a minute on a slow cluster."""
GRACE = 10.0
"""Seconds for a sync to end after its cancellation."""
WATCH = 1.0
"""Seconds between checks of the workers."""
MAX_LOST_WORKERS = 8
"""Maximum number of workers that ignore their cancellation. Beyond it, the term ends."""
WARN_FAILURES = 3
"""Number of consecutive failures of a key after which they are logged as warnings. Most problems end earlier."""


@dataclass(slots=True)
class _Look:
    """A running sync of one key. Times are monotonic seconds."""

    key: str
    began: float
    told: bool = False
    cancelled: float | None = None


class WorkerPool:
    """The workers of one controller. `leads` returns False after the end of the term; it is called before each sync."""

    def __init__(self, controller: Controller, leads: Callable[[], bool], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._controller = controller
        self._leads = leads
        self._clock = clock
        self._queue = WorkQueue(clock=clock, maximum=controller.max_backoff)
        self._turn = TimeSlice(clock)
        self._looks: dict[asyncio.Task[None], _Look] = {}
        """Running syncs by worker."""
        self._lost: set[asyncio.Task[None]] = set()
        """Workers that ignore their cancellation."""

    @property
    def name(self) -> str:
        return self._controller.name

    def stuck(self) -> str | None:
        """Return the problem if all workers are stuck, else None."""
        now = self._clock.monotonic()
        slow = [look for look in self._looks.values() if now - look.began >= SLOW]
        if len(slow) < self._controller.workers:
            return None
        oldest = min(slow, key=lambda look: look.began)
        return f"controller {self.name}: all of its workers are stuck; {oldest.key} for {now - oldest.began:.0f} s"

    async def begin(self, stores: Callable[[Resource[Any]], Mapping[str, Any]]) -> None:
        """Handle every existing object as added.

        This runs in slices, because a hundred thousand pods take seconds, during which the lease must be renewed.
        Concurrent changes arrive through `handle`.
        """
        for watch in self._controller.watches:
            found = list(stores(watch.resource).values())
            await in_slices(partial(self._added, watch.keys), found, self._clock)

    def _added(self, keys: Keys[Any], obj: Any) -> None:
        self.handle(keys, (Delta(ADDED, obj, None),))

    def handle(self, keys: Keys[Any], deltas: Sequence[Delta[Any]]) -> None:
        """Handle changes of a watched kind."""
        for delta in deltas:
            for key in keys(delta):
                self._queue.add(key)

    async def run(self) -> None:
        """Run until cancelled."""
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
            await self._turn.end()  # thousands of syncs may complete without waiting

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        """Cancel syncs that exceed DEADLINE."""
        while True:
            await self._clock.sleep(WATCH)
            now = self._clock.monotonic()
            for task, look in list(self._looks.items()):
                if now - look.began >= SLOW and not look.told:
                    look.told = True
                    lasted = now - look.began
                    slow = SyncSlow(self.name, look.key, lasted).extra
                    log.warning("%s: the sync of %s has not ended for %.0f s", self.name, look.key, lasted, extra=slow)
                if look.cancelled is None and now - look.began >= DEADLINE:
                    look.cancelled = now
                    task.cancel()
                elif look.cancelled is not None and now - look.cancelled >= GRACE:
                    self._replace(task, look, group)

    def _replace(self, task: asyncio.Task[None], look: _Look, group: asyncio.TaskGroup) -> None:
        """Replace a worker that ignores its cancellation. Its key is retried while the old sync continues."""
        abandoned = SyncAbandoned(self.name, look.key).extra
        log.error("%s: the sync of %s ignores its cancellation; the worker is replaced", self.name, look.key, extra=abandoned)
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
                log.error("%s: the sync of %s was cancelled after %.0f s", name, key, DEADLINE, extra=timed_out)
                self._retry(key, "bug", TimeoutError(f"it did not end within {DEADLINE:.0f} s"))
            elif task.cancelling() > before:
                raise
            else:
                log.exception("%s: the sync of %s failed unexpectedly: cancelled by itself", name, key)
                self._retry(key, "bug", error)
        except ApiError as error:
            self._refused(key, error)
        except Unfinished as error:
            self._refused(key, error.cause)
            self._again(key, error.again)
        except BaseException as error:  # SystemExit and similar exceptions would end the process silently
            log.exception("%s: the sync of %s failed unexpectedly", name, key)
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
        log.log(level, "%s: %s: %s; retry in %.3g s", name, key, describe(error), delay)


async def _sync(controller: Controller, key: str) -> float | None:
    """Call the controller's sync. `on_stack` reads the arguments of this function."""
    return await controller.sync(key)


def on_stack(frame: FrameType | None) -> Culprit | None:
    """Return the controller and key that this stack executes, or None. Controllers are trusted and never interrupted."""
    while frame is not None:
        if frame.f_code is _sync.__code__:
            return Culprit(f"controller {frame.f_locals['controller'].name} at {frame.f_locals['key']}")
        frame = frame.f_back
    return None
