"""The controller manager: informers and controllers under one election, as a standby (pinnace/client/standby.py).

* The informers and indexes of a standby are up to date. The barrier at the start of a term covers all informers.
* A leader with a stuck controller resigns, as the scheduler does.
* When the leader loses the election, running syncs and writes are cancelled immediately. Writes that were already sent are
  fenced: they commit only while this replica is the leader (pinnace/client/channel.py). Events are not fenced.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pinnace.api.resources import CustomResource
from pinnace.api.wellknown import CONTROLLERS_ELECTION
from pinnace.client.client import Client
from pinnace.client.events import EventRecorder
from pinnace.client.informer import Delta
from pinnace.client.standby import ProgressTimeout, Standby
from pinnace.controllers.informers import Informers
from pinnace.controllers.runtime import (
    Controller,
    ControllerContext,
    CustomController,
    Keys,
    WatchedResource,
    WorkerPool,
)
from pinnace.runtime.clock import SYSTEM_CLOCK, Clock
from pinnace.runtime.http import Check
from pinnace.runtime.supervise import run_unending

log = logging.getLogger(__name__)

COMPONENT = "controllers"
"""The event source component of controllers without their own name."""

Build = Callable[[ControllerContext], Sequence[Controller]]


class ControllerManager:
    """One replica. `name` identifies it in the election."""

    def __init__(
        self, client: Client, name: str, build: Build, *, clock: Clock = SYSTEM_CLOCK, patience: ProgressTimeout | None = None
    ) -> None:
        """`patience` is shared by the consecutive managers of this process."""
        self._clock = clock
        self._informers = Informers(client, clock=clock)
        self._events = EventRecorder(client.events, COMPONENT, name, clock=clock)
        self._standby = Standby(
            client.connection,
            CONTROLLERS_ELECTION,
            name,
            self._informers,
            lead=self._run_controllers,
            on_lost=self._on_stopped_leading,
            find_stall=self._find_stuck_controller,
            progress_timeout=patience,
            clock=clock,
        )
        guarded = client.with_fence(lambda: self._standby.fence)
        self._controllers = build(ControllerContext(guarded, self._informers, self._events, clock, COMPONENT))
        self._worker_pools: Mapping[str, WorkerPool] = {}
        for controller in self._controllers:
            for watch in controller.watches:
                self._add_watch(controller.name, watch)
        self._informers.custom.add_handler(self)

    def handle_added_kind(self, resource: CustomResource) -> None:
        """Implement CustomHandler."""
        for controller in self._controllers:
            if isinstance(controller, CustomController):
                self._add_watch(controller.name, controller.watch_of(resource))

    def handle_removed_kind(self, resource: CustomResource, objects: Iterable[Any]) -> None:
        """Implement CustomHandler."""

    def _add_watch(self, controller: str, watch: WatchedResource[Any]) -> None:
        self._informers.add_handler(watch.resource, partial(self._handle_deltas, controller, watch.keys))

    @property
    def checks(self) -> Mapping[str, Check]:
        return self._standby.checks

    async def run(self) -> None:
        """Run until cancelled. Call `stop` first for a graceful shutdown."""
        async with asyncio.TaskGroup() as group:
            group.create_task(run_unending("informers", self._informers.run))
            group.create_task(run_unending("event recorder", self._events.run))
            group.create_task(self._standby.run())  # ends after resignation

    async def stop(self) -> None:
        """Resign so that another replica is elected immediately, and send the last events."""
        await self._standby.resign()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._events.flush()

    def _on_stopped_leading(self) -> None:
        self._worker_pools = {}

    def _find_stuck_controller(self) -> str | None:
        """Return the problem of the first stuck controller, or None."""
        return next(
            (problem for worker_pool in self._worker_pools.values() if (problem := worker_pool.stuck_problem()) is not None),
            None,
        )

    async def _run_controllers(self, token: int) -> None:
        working = {
            controller.name: WorkerPool(controller, lambda: self._standby.token == token, clock=self._clock)
            for controller in self._controllers
        }
        self._worker_pools = working
        log.info("token %d: %s", token, ", ".join(working))
        async with asyncio.TaskGroup() as group:
            for worker_pool in working.values():
                await worker_pool.enqueue_existing(self._informers.store)
                group.create_task(run_unending(f"controller {worker_pool.name}", worker_pool.run))

    def _handle_deltas(self, controller: str, keys: Keys[Any], deltas: Sequence[Delta[Any]]) -> None:
        if (working := self._worker_pools.get(controller)) is not None:
            working.handle_deltas(keys, deltas)
