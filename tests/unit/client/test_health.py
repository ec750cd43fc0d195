"""The health of informers: the /readyz of a replica and a fleet when each API server is behind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pinnace.api.resources import DEPLOYMENTS, NODES, PODS, Resource
from pinnace.client.errors import ApiError, unavailable_error
from pinnace.client.informer import STALE_AFTER, Informer
from pinnace.client.resource import WatchBatch
from pinnace.client.standby import InformerSet, Standby
from pinnace.controllers.informers import Informers as ControllersInformers
from pinnace.scheduler.informers import Informers as SchedulerInformers
from tests.clock import FakeClock

BEHIND = unavailable_error("API server a:1 is at revision 53, behind 107")


class Server:
    """Watches of all resources send revision 107. After `restore`, the server is behind this revision."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self.behind: ApiError | None = None

    def restore(self) -> None:
        self.behind = BEHIND
        self._ended.set()

    def recover(self) -> None:
        self.behind = None
        self._ended.clear()

    async def watch(self, **_: object) -> AsyncIterator[WatchBatch[Any]]:
        if self.behind is None:
            yield WatchBatch([], 107)
            await self._ended.wait()
        raise self.behind or unavailable_error("ended")


class Watched:
    def __init__(self, server: Server, resource: Resource[Any]) -> None:
        self.resource = resource
        self.watch = server.watch


class FakeClient:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.pods, self.nodes = self.of(PODS), self.of(NODES)

    def of(self, resource: Resource[Any]) -> Watched:
        return Watched(self._server, resource)


def of_controllers(client: Any, clock: FakeClock) -> Any:
    informers = ControllersInformers(client, clock=clock)
    informers.store(DEPLOYMENTS)
    informers.store(PODS)
    return informers


def of_scheduler(client: Any, clock: FakeClock) -> Any:
    return SchedulerInformers(client, [], clock=clock)


@pytest.mark.parametrize(("make", "named"), [(of_controllers, "deployments"), (of_scheduler, "pods")])
async def test_replica_is_unready_without_a_watch(make: Callable[..., Any], named: str) -> None:
    """A replica that had been synced once counted as ready. After a restore of etcd it was ready and made no progress."""
    server, clock = Server(), FakeClock()
    informers: InformerSet = make(FakeClient(server), clock)
    nobody: Any = None  # campaigns
    ready = Standby(nobody, "controllers", "a", informers, lead=nobody, on_lost=nobody).checks["informers"]
    assert ready() == f"{named} are not synced (and 1 more)"
    running = asyncio.ensure_future(informers.run())  # type: ignore[attr-defined] # beyond what a standby needs of them
    await clock.advance(0.0)
    assert ready() is None
    server.restore()
    await clock.advance(STALE_AFTER - 1)
    assert ready() is None, "the informer may still find another server"
    await clock.advance(1.0)
    wrong = ready() or ""
    assert wrong.startswith(f"{named}: no watch for 10 s: ") and wrong.endswith(f"{BEHIND} (and 1 more)")
    running.cancel()


async def test_watch_is_healthy_after_the_first_message() -> None:
    server, clock = Server(), FakeClock()
    informer: Informer[Any] = Informer(Watched(server, PODS), clock=clock)  # type: ignore[arg-type] # a stand-in
    running = asyncio.ensure_future(informer.run())
    await clock.advance(0.0)
    server.restore()
    await clock.advance(2 * STALE_AFTER)
    assert informer.healthy
    server.recover()
    await clock.advance(STALE_AFTER)
    assert informer.healthy is None
    running.cancel()
