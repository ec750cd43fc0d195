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
starts at BASE_BACKOFF seconds and doubles with each failure, up to `maximum`, until `forget`. The semantics are client-go's,
https://pkg.go.dev/k8s.io/client-go/util/workqueue.

Worker pool: after an API error or an unexpected exception, the key is retried with its backoff, so that one object does
not block others.

    sync --SLOW seconds--> log line --DEADLINE--> cancelled, and the key is retried
                                         '--GRACE, if it ignores the cancellation--> another worker replaces the worker
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

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
from pinnace.client.workqueue import RateLimitingQueue
from pinnace.controllers.informers import Informers
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.logs import SyncAbandoned, SyncSlow, SyncTimedOut
from pinnace.runtime.stalls import Culprit
from pinnace.runtime.supervise import EndedEarly, describe_error, run_unending
from pinnace.runtime.tasks import TimeSlice, apply_in_slices

log = logging.getLogger(__name__)

SYNCS = Counter("controllers_syncs", "Syncs of keys, by controller and result.", ["controller", "result"])
DEPTH = Gauge("workqueue_depth", "Keys that wait for a worker.", ["name"])
RETRIES = Counter("workqueue_retries", "Retries of keys after a failure.", ["name"])
WORK = Histogram(
    "workqueue_work_duration_seconds",
    "Seconds per sync of a key.",
    ["name"],
    buckets=[0.0001 * 4**step for step in range(10)],  # 0.1 milliseconds to 26 seconds
)


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

T = TypeVar("T", bound=Object)

Keys = Callable[[Delta[T]], Iterable[str]]


@dataclass(frozen=True, slots=True)
class WatchedResource(Generic[T]):
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
    def watches(self) -> Sequence[WatchedResource[Any]]: ...

    async def sync(self, key: str) -> float | None:
        """Sync one key. Return the seconds until the next sync without a change, or None.

        Raise ApiError or Unfinished to sync the key again after its backoff.
        """
        ...


@runtime_checkable
class CustomController(Controller, Protocol):
    """A controller that also watches all custom kinds."""

    def watch_of(self, resource: Resource[Any]) -> WatchedResource[Any]:
        """Return the watch of a custom kind."""
        ...


class PartialSyncError(Exception):
    """A sync completed everything except for an error. `cause` is the error, and `again` the intended return value of `sync`.

    The key is synced again after its backoff, or after `again` seconds if this is earlier.
    """

    def __init__(self, cause: ApiError, again: float | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.again = again


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The dependencies of all controllers. Constructors must request indexes and informers before anything runs."""

    client: Client
    informers: Informers
    recorder: EventRecorder
    clock: Clock
    component: str
    """The event source component."""

    @property
    def events(self) -> Reporter:
        return self.recorder.for_component(self.component)

    def with_component(self, component: str) -> "ControllerContext":
        """Return a copy for a controller with its own event source component."""
        return replace(self, component=component)


def key_of_object(delta: Delta[T]) -> Iterable[str]:
    """A Watch's `keys`: the key of the changed object."""
    return (store_key(delta.obj),)


def keys_of_controller(owner: Resource[Any]) -> Callable[[Delta[Any]], Iterable[str]]:
    """Return a Watch's `keys`: the controller of the changed object if it has this kind, now and before the change."""

    def keys(delta: Delta[Any]) -> Iterable[str]:
        result = set()
        for obj in filter(None, (delta.obj, delta.old)):
            reference = get_controller_of(obj)
            if reference is not None and (reference.kind, reference.apiVersion) == (owner.kind, owner.api_version):
                namespace = obj.metadata.namespace
                result.add(f"{namespace}/{reference.name}" if owner.namespaced else reference.name)
        return result

    return keys


def get_controller_of(obj: Object) -> OwnerReference | None:
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


@dataclass(slots=True)
class _RunningSync:
    """A running sync of one key. Times are monotonic seconds."""

    key: str
    started: float
    reported: bool = False
    cancelled: float | None = None


class WorkerPool:
    """The workers of one controller. `leads` returns False after the end of the term; it is called before each sync."""

    def __init__(self, controller: Controller, leads: Callable[[], bool], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._controller = controller
        self._leads = leads
        self._clock = clock
        self._queue = RateLimitingQueue(clock=clock, maximum=controller.max_backoff)
        self._time_slice = TimeSlice(clock)
        self._running_syncs: dict[asyncio.Task[None], _RunningSync] = {}
        """Running syncs by worker."""
        self._lost_workers: set[asyncio.Task[None]] = set()
        """Workers that ignore their cancellation."""

    @property
    def name(self) -> str:
        return self._controller.name

    def stuck_problem(self) -> str | None:
        """Return the problem if all workers are stuck, else None."""
        now = self._clock.monotonic()
        slow = [running for running in self._running_syncs.values() if now - running.started >= SLOW]
        if len(slow) < self._controller.workers:
            return None
        oldest = min(slow, key=lambda running: running.started)
        return f"controller {self.name}: all of its workers are stuck; {oldest.key} for {now - oldest.started:.0f} s"

    async def enqueue_existing(self, stores: Callable[[Resource[Any]], Mapping[str, Any]]) -> None:
        """Handle every existing object as added.

        This runs in slices, because a hundred thousand pods take seconds, during which the lease must be renewed.
        Concurrent changes arrive through `handle_deltas`.
        """
        for watch in self._controller.watches:
            result = list(stores(watch.resource).values())
            await apply_in_slices(partial(self._handle_existing, watch.keys), result, self._clock)

    def _handle_existing(self, keys: Keys[Any], obj: Any) -> None:
        self.handle_deltas(keys, (Delta(ADDED, obj, None),))

    def handle_deltas(self, keys: Keys[Any], deltas: Sequence[Delta[Any]]) -> None:
        """Handle changes of a watched kind."""
        for delta in deltas:
            for key in keys(delta):
                self._queue.add(key)

    async def run(self) -> None:
        """Run until cancelled."""
        name = self._controller.name
        DEPTH.labels(name).set_function(partial(len, self._queue))
        async with asyncio.TaskGroup() as group:
            group.create_task(run_unending(f"queue of {name}", self._queue.run))
            group.create_task(run_unending(f"watch over {name}", partial(self._watch_workers, group)))
            for _ in range(self._controller.workers):
                self._start_worker(group)

    def _start_worker(self, group: asyncio.TaskGroup) -> None:
        group.create_task(self._run_worker(), name=self.name)

    async def _run_worker(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            key = await self._queue.get()
            if not self._leads():
                return
            running = self._running_syncs[task] = _RunningSync(key, self._clock.monotonic())
            try:
                await self._sync_key(key, task)
            finally:
                if task not in self._lost_workers:
                    self._queue.done(key)
                self._running_syncs.pop(task, None)
                WORK.labels(self.name).observe(self._clock.monotonic() - running.started)
            if task in self._lost_workers:
                self._lost_workers.discard(task)
                return
            await self._time_slice.end()  # thousands of syncs may complete without waiting

    async def _watch_workers(self, group: asyncio.TaskGroup) -> None:
        """Cancel syncs that exceed DEADLINE."""
        while True:
            await self._clock.sleep(WATCH)
            now = self._clock.monotonic()
            for task, running in list(self._running_syncs.items()):
                if now - running.started >= SLOW and not running.reported:
                    running.reported = True
                    lasted = now - running.started
                    slow = SyncSlow(self.name, running.key, lasted).extra
                    log.warning("%s: the sync of %s has not ended for %.0f s", self.name, running.key, lasted, extra=slow)
                if running.cancelled is None and now - running.started >= DEADLINE:
                    running.cancelled = now
                    task.cancel()
                elif running.cancelled is not None and now - running.cancelled >= GRACE:
                    self._replace_worker(task, running, group)

    def _replace_worker(self, task: asyncio.Task[None], running: _RunningSync, group: asyncio.TaskGroup) -> None:
        """Replace a worker that ignores its cancellation. Its key is retried while the old sync continues."""
        key = running.key
        abandoned = SyncAbandoned(self.name, key).extra
        log.error(
            "%s: the sync of %s ignores its cancellation; the worker is replaced", self.name, running.key, extra=abandoned
        )
        del self._running_syncs[task]
        self._lost_workers.add(task)
        if len(self._lost_workers) > MAX_LOST_WORKERS:
            raise EndedEarly(
                f"controller {self.name}: {len(self._lost_workers)} workers are lost, the latest with {running.key}"
            )
        self._requeue_rate_limited(key, "bug", TimeoutError(f"it did not end within {DEADLINE + GRACE:.0f} s"))
        self._queue.done(key)
        self._start_worker(group)

    async def _sync_key(self, key: str, task: asyncio.Task[None]) -> None:
        name, before = self.name, task.cancelling()
        try:
            again = await _call_sync(self._controller, key)
        except asyncio.CancelledError as error:
            running = self._running_syncs.get(task)
            if running is not None and running.cancelled is not None and task.uncancel() <= before:
                timed_out = SyncTimedOut(name, key).extra
                log.error("%s: the sync of %s was cancelled after %.0f s", name, key, DEADLINE, extra=timed_out)
                self._requeue_rate_limited(key, "bug", TimeoutError(f"it did not end within {DEADLINE:.0f} s"))
            elif task.cancelling() > before:
                raise
            else:
                log.exception("%s: the sync of %s failed unexpectedly: cancelled by itself", name, key)
                self._requeue_rate_limited(key, "bug", error)
        except ApiError as error:
            self._retry_after_api_error(key, error)
        except PartialSyncError as error:
            self._retry_after_api_error(key, error.cause)
            self._requeue_after(key, error.again)
        except BaseException as error:  # SystemExit and similar exceptions would end the process silently
            log.exception("%s: the sync of %s failed unexpectedly", name, key)
            self._requeue_rate_limited(key, "bug", error)
        else:
            SYNCS.labels(name, "done").inc()
            self._queue.forget(key)
            self._requeue_after(key, again)

    def _requeue_after(self, key: str, seconds: float | None) -> None:
        if seconds is not None:
            self._queue.add_after(key, seconds)

    def _retry_after_api_error(self, key: str, error: ApiError) -> None:
        self._requeue_rate_limited(key, "conflict" if isinstance(error, Conflict) else "error", error)

    def _requeue_rate_limited(self, key: str, result: str, error: BaseException) -> None:
        name = self._controller.name
        delay = self._queue.add_rate_limited(key)
        SYNCS.labels(name, result).inc()
        RETRIES.labels(name).inc()
        level = logging.WARNING if self._queue.num_requeues(key) >= WARN_FAILURES else logging.DEBUG
        log.log(level, "%s: %s: %s; retry in %.3g s", name, key, describe_error(error), delay)


async def _call_sync(controller: Controller, key: str) -> float | None:
    """Call the controller's sync. `find_sync_on_stack` reads the arguments of this function."""
    return await controller.sync(key)


def find_sync_on_stack(frame: FrameType | None) -> Culprit | None:
    """Return the controller and key that this stack executes, or None. Controllers are trusted and never interrupted."""
    while frame is not None:
        if frame.f_code is _call_sync.__code__:
            return Culprit(f"controller {frame.f_locals['controller'].name} at {frame.f_locals['key']}")
        frame = frame.f_back
    return None
