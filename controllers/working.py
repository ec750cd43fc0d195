"""One controller at work, for one term: its queue and its workers.

A failure of the API sends the key back with its back-off. So does a bug, which is logged in full: one object that trips a
controller must not keep the others from theirs. Nothing is begun once the term is over.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from controllers import metrics
from controllers.controller import Controller, Keys, Unfinished
from controllers.workqueue import WorkQueue
from pinnace.api.resources import Resource
from pinnace.api.verbs_pb2 import ADDED
from pinnace.client.errors import ApiError, Conflict
from pinnace.client.informer import Delta
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.supervise import describe
from pinnace.runtime.turns import Turn, in_turns

log = logging.getLogger(__name__)

NOISY = 3
"""Failures of a key in a row after which they are worth a warning: most are over by then."""


class Working:
    """`leads`: does the term last? Asked before each look."""

    def __init__(self, controller: Controller, leads: Callable[[], bool], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._controller = controller
        self._leads = leads
        self._clock = clock
        self._queue = WorkQueue(clock=clock, maximum=controller.max_backoff)
        self._turn = Turn(clock)

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
            group.create_task(self._queue.run())
            for _ in range(self._controller.workers):
                group.create_task(self._work(), name=name)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            if not self._leads():
                return
            began = self._clock.monotonic()
            try:
                await self._look(key)
            finally:
                self._queue.done(key)
                metrics.WORK.labels(self._controller.name).observe(self._clock.monotonic() - began)
            await self._turn.end()  # looks at thousands of objects may have nothing to wait for

    async def _look(self, key: str) -> None:
        name = self._controller.name
        try:
            again = await self._controller.sync(key)
        except ApiError as error:
            self._refused(key, error)
        except Unfinished as error:
            self._refused(key, error.cause)
            self._again(key, error.again)
        except Exception as error:
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

    def _retry(self, key: str, result: str, error: Exception) -> None:
        name = self._controller.name
        delay = self._queue.add_rate_limited(key)
        metrics.SYNCS.labels(name, result).inc()
        metrics.RETRIES.labels(name).inc()
        level = logging.WARNING if self._queue.failures(key) >= NOISY else logging.DEBUG
        log.log(level, "%s: %s: %s; again in %.3g s", name, key, describe(error), delay)
