"""One controller at work, for one term: its queue and its workers.

A failure of the API sends the key back with its back-off. So does a bug, whatever it raises, which is logged in full: one
object that trips a controller must not keep the others from theirs. Nothing is begun once the term is over.

    look --SLOW seconds--> named in the log --DEADLINE--> cancelled, and the key goes back
                                                 '--GRACE: it ignores that--> another worker takes the place of its worker

`stuck` says what keeps the controller from going on: a look beyond SLOW while all its workers are busy so.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from controllers import metrics
from controllers.controller import Controller, Keys, Unfinished
from controllers.workqueue import WorkQueue
from pinnace.api.resources import Resource
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.errors import ApiError, Conflict
from pinnace.client.informer import Delta
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.log_events import SyncAbandoned, SyncSlow, SyncTimedOut
from pinnace.runtime.stalls import Culprit
from pinnace.runtime.supervise import EndedEarly, describe, unending
from pinnace.runtime.turns import Turn, in_turns

log = logging.getLogger(__name__)

SLOW = 30.0
"""Seconds for one look after which its key is named in the log. No look that goes well takes a tenth of it."""
DEADLINE = 300.0
"""Seconds for one look. Writes of a namespace's end, and of thousands of nodes, take a minute on a slow cluster."""
GRACE = 10.0
"""Seconds for a look to end once it is cancelled."""
WATCH = 1.0
"""Seconds between looks at the workers."""
MOST_LOST = 8
"""Workers that ignore their cancellation; with more, the term is given up."""
NOISY = 3
"""Failures of a key in a row after which they are worth a warning: most are over by then."""


@dataclass(slots=True)
class _Look:
    """At one key, by one worker. Times are monotonic seconds."""

    key: str
    began: float
    told: bool = False
    cancelled: float | None = None


class Working:
    """`leads`: does the term last? Asked before each look."""

    def __init__(self, controller: Controller, leads: Callable[[], bool], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._controller = controller
        self._leads = leads
        self._clock = clock
        self._queue = WorkQueue(clock=clock, maximum=controller.max_backoff)
        self._turn = Turn(clock)
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
            await in_turns(partial(self._added, watch.keys), found, self._clock)

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
        metrics.DEPTH.labels(name).set_function(partial(len, self._queue))
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
                metrics.WORK.labels(self.name).observe(self._clock.monotonic() - look.began)
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
        if len(self._lost) > MOST_LOST:
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
            metrics.SYNCS.labels(name, "done").inc()
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
        metrics.SYNCS.labels(name, result).inc()
        metrics.RETRIES.labels(name).inc()
        level = logging.WARNING if self._queue.failures(key) >= NOISY else logging.DEBUG
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
