"""Victims are deleted, once, and only they, and are told why."""

from collections.abc import AsyncIterator, Sequence

import pytest

from pinnace.api.core_v1_pb2 import Node, Pod
from pinnace.api.status import Code, Refusal, encode
from pinnace.api.verbs_pb2 import BatchItem, DeleteRequest, Disruption
from pinnace.client.errors import from_refusal
from pinnace.scheduler.framework.results import PluginRejection
from pinnace.scheduler.preemption import AGAIN, DEADLINE, Evictions
from tests.builders import make_pod
from tests.clock import FakeClock
from tests.unit.scheduler.pods import cache_of, info
from tests.unit.scheduler.running import running

DOWN = Refusal(Code.UNAVAILABLE, "", "down")
STALE = Refusal(Code.ABORTED, "Conflict", "stale")


class Api:
    def __init__(self) -> None:
        self.events: list[str] = []
        self.deletes: list[list[str]] = []
        self.why: list[Disruption] = []
        self.whole: Refusal | None = None
        self.each: Refusal | None = None

    def event(self, obj: Pod | Node, type_: str, reason: str, message: str) -> None:
        self.events.append(f"{obj.metadata.name} {type_} {reason}: {message}")

    async def delete_batch(self, requests: Sequence[DeleteRequest]) -> list[BatchItem]:
        self.deletes.append([f"{request.name} {request.options.preconditions.uid}" for request in requests])
        self.why += [request.disruption for request in requests]
        if self.whole is not None:
            raise from_refusal(self.whole)
        return [BatchItem(error=encode(self.each)) if self.each else BatchItem() for _ in requests]


class World:
    def __init__(self) -> None:
        self.api, self.clock = Api(), FakeClock()
        self.cache = cache_of(placed=[make_pod(name).node("n") for name in "ab"] + [make_pod("c").node("n").terminating()])
        self.store = {f"default/{name}": make_pod(name).build() for name in "abc"}
        self.activated: list[str] = []
        self.unbound: set[str] = set()
        """Pods that can be called off."""
        self.called_off: dict[str, PluginRejection] = {}
        self.evictions = Evictions(self.api, self, self.store, self.api, self.activated.append, clock=self.clock)

    def cancel_bind(self, uid: str, refused: PluginRejection) -> bool:
        if uid in self.unbound:
            self.called_off[uid] = refused
        return uid in self.unbound

    def is_bind_cancelled(self, uid: str) -> bool:
        return uid in self.called_off

    def submit(self, preemptor: str = "high") -> None:
        self.evictions.evict_victims("Preemptor", info(make_pod(preemptor)), "n", list(self.cache.pods_on("n")))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    async with running(world.evictions):
        yield world


async def test_victims_are_deleted_with_a_reason(world: World) -> None:
    world.submit()
    assert world.evictions.is_pending(info(make_pod("a")).uid)
    await world.clock.advance(0)
    assert world.api.deletes == [["a uid-default-a", "b uid-default-b"]], "c is being deleted anyway"
    assert world.api.events[0] == "a Normal Preempted: Preempted by pod default/high on node n"
    assert world.api.why[0].reason == "PreemptionByScheduler"
    assert world.api.why[0].message == "default-scheduler: preempting to accommodate a higher priority pod"
    assert not world.evictions.is_pending(info(make_pod("a")).uid)


async def test_waiting_victim_is_rejected_instead_of_deleted(world: World) -> None:
    uid = info(make_pod("a")).uid
    world.unbound = {uid}
    world.submit()
    assert world.called_off == {uid: PluginRejection("Preemptor", "preempted")} and world.evictions.is_pending(uid)
    await world.clock.advance(0)
    assert world.api.deletes == [["b uid-default-b"]]
    assert world.api.events[0] == "a Normal Preempted: Preempted by pod default/high on node n"
    world.called_off.clear()
    assert not world.evictions.is_pending(uid)


async def test_pod_that_is_another_by_now_is_left_alone(world: World) -> None:
    world.store["default/a"] = make_pod("a").uid("new").build()
    del world.store["default/b"]
    world.submit()
    await world.clock.advance(0)
    assert world.api.deletes == []


async def test_while_a_webhook_is_away_they_are_tried_again(world: World) -> None:
    world.api.each = Refusal(Code.INTERNAL, "InternalError", "failed calling webhook")
    world.submit()
    await world.clock.advance(0)
    world.api.each = None
    await world.clock.advance(AGAIN)
    assert len(world.api.deletes) == 2 and len(world.api.events) == 2 and not world.activated


@pytest.mark.parametrize("code", [Code.UNAUTHENTICATED, Code.RESOURCE_EXHAUSTED])
async def test_refusal_without_reason_does_not_spare_victims(world: World, code: Code) -> None:
    """A certificate that has ended, or a database that is full."""
    world.api.whole = Refusal(code, "", "not now")
    world.submit()
    await world.clock.advance(0)
    world.api.whole = None
    await world.clock.advance(AGAIN)
    assert len(world.api.deletes) == 2 and len(world.api.events) == 2


async def test_unavailable_server_is_tried_again_until_the_deadline(world: World) -> None:
    world.api.whole = DOWN
    world.submit()
    world.submit("higher")
    await world.clock.advance(0)
    await world.clock.advance(AGAIN)
    assert len(world.api.deletes) == 2 and world.evictions.is_pending(info(make_pod("a")).uid)
    await world.clock.advance(DEADLINE)
    assert not world.evictions.is_pending(info(make_pod("a")).uid) and world.api.events == []
    assert set(world.activated) == {"uid-default-high", "uid-default-higher"}, (
        "their victims stay, so they are to be tried anew"
    )


async def test_refusal_is_not(world: World) -> None:
    world.api.each = STALE
    world.submit()
    await world.clock.advance(AGAIN)
    assert len(world.api.deletes) == 1 and world.api.events == []
    assert not world.activated, "it is another pod by now"


async def test_deposed_leader_deletes_no_victims(world: World) -> None:
    world.submit()
    world.evictions.discard_pending()
    await world.clock.advance(AGAIN)
    assert world.api.deletes == []
