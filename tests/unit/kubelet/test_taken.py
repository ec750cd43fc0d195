"""What a newer session has taken is left to it until its leases are gone, and not a moment longer than two looks."""

import asyncio

import pytest

from kubelet.fleet import INTERVAL, NodeOwnership
from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.client.errors import unavailable
from pinnace.client.resource import Listing
from tests.clock import FakeClock


class Scene:
    """The leases that are there, and which nodes were told to be free."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.leases: set[str] = set()
        self.ours: set[str] = set()
        self.answering = True
        self.asked = 0
        self.free: set[str] = set()
        self.meanwhile: list[str] = []  # taken while the next look is under way
        self.taken = NodeOwnership(
            self, is_ours=lambda lease: lease.metadata.name in self.ours, on_free=self.free.update, clock=self.clock
        )

    async def list(self, namespace: str = "", *, fields: str = "") -> Listing[Lease]:
        assert namespace == "kube-node-lease" and fields.startswith("metadata.name in (")
        self.asked += 1
        if not self.answering:
            raise unavailable("not now")
        self.taken.add(self.meanwhile)
        return Listing([Lease(metadata=ObjectMeta(name=name)) for name in self.leases], 7)

    async def looks(self, count: int) -> None:
        for _ in range(count):
            await self.clock.advance(INTERVAL)


@pytest.fixture
async def scene():
    scene = Scene()
    running = asyncio.create_task(scene.taken.run())
    yield scene
    running.cancel()
    await asyncio.wait((running,))


async def test_no_request_without_taken_nodes(scene: Scene) -> None:
    await scene.looks(3)
    assert scene.asked == 0


async def test_held_lease_is_not_taken(scene: Scene) -> None:
    scene.leases = {"a", "b"}
    scene.taken.add(["a", "b"])
    await scene.looks(5)
    assert scene.asked
    assert not scene.free
    assert "a" in scene.taken


async def test_lease_without_holder_is_free_at_the_second_check(scene: Scene) -> None:
    scene.leases = {"a"}
    scene.taken.add(["a", "b"])
    await scene.looks(1)
    assert not scene.free
    await scene.looks(1)
    assert scene.free == {"b"}
    assert "a" in scene.taken
    assert "b" not in scene.taken


async def test_own_lease_is_free(scene: Scene) -> None:
    """Its session keeps the lease alive: it would wait for ever."""
    scene.leases, scene.ours = {"a", "b"}, {"b"}
    scene.taken.add(["a", "b"])
    await scene.looks(2)
    assert scene.free == {"b"}


async def test_a_session_that_comes_back_keeps_what_it_has(scene: Scene) -> None:
    scene.taken.add(["a"])
    await scene.looks(1)
    scene.leases = {"a"}
    await scene.looks(1)
    scene.leases = set()
    await scene.looks(1)
    assert not scene.free


async def test_node_taken_again_is_checked_again(scene: Scene) -> None:
    scene.taken.add(["a"])
    await scene.looks(1)
    scene.taken.add(["a"])
    await scene.looks(1)
    assert not scene.free


async def test_what_is_taken_while_the_leases_are_listed_has_not_been_looked_at(scene: Scene) -> None:
    scene.leases = {"a"}
    scene.taken.add(["a"])
    scene.meanwhile = ["b"]
    await scene.looks(1)
    scene.meanwhile = []
    await scene.looks(1)
    assert not scene.free
    await scene.looks(1)
    assert scene.free == {"b"}


async def test_no_answer_says_nothing(scene: Scene) -> None:
    scene.taken.add(["a"])
    await scene.looks(1)
    scene.answering = False
    await scene.looks(1)
    assert not scene.free
    scene.answering = True
    await scene.looks(2)
    assert scene.free == {"a"}
