"""Nodes taken over by a newer session are left alone until their leases are gone for two checks."""

import asyncio

import pytest

from pinnace.api.coordination_v1_pb2 import Lease
from pinnace.api.meta_v1_pb2 import ObjectMeta
from pinnace.client.errors import unavailable_error
from pinnace.client.resource import Listing
from pinnace.kubelet.fleet import INTERVAL, NodeOwnership
from tests.clock import FakeClock


class Scene:
    """The existing leases, and the nodes that are reported as free."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.leases: set[str] = set()
        self.ours: set[str] = set()
        self.answering = True
        self.asked = 0
        self.free: set[str] = set()
        self.meanwhile: list[str] = []  # taken during the next check
        self.taken = NodeOwnership(
            self, is_ours=lambda lease: lease.metadata.name in self.ours, on_free=self.free.update, clock=self.clock
        )

    async def list(self, namespace: str = "", *, fields: str = "") -> Listing[Lease]:
        assert namespace == "kube-node-lease" and fields.startswith("metadata.name in (")
        self.asked += 1
        if not self.answering:
            raise unavailable_error("not now")
        self.taken.add_foreign_nodes(self.meanwhile)
        return Listing([Lease(metadata=ObjectMeta(name=name)) for name in self.leases], 7)

    async def checks(self, count: int) -> None:
        for _ in range(count):
            await self.clock.advance(INTERVAL)


@pytest.fixture
async def scene():
    scene = Scene()
    running = asyncio.create_task(scene.taken.run())
    yield scene
    running.cancel()
    await asyncio.wait((running,))


async def test_leases_are_not_listed_without_taken_nodes(scene: Scene) -> None:
    await scene.checks(3)
    assert scene.asked == 0


async def test_node_with_a_lease_is_not_free(scene: Scene) -> None:
    scene.leases = {"a", "b"}
    scene.taken.add_foreign_nodes(["a", "b"])
    await scene.checks(5)
    assert scene.asked
    assert not scene.free
    assert "a" in scene.taken


async def test_node_without_a_lease_is_free_at_the_second_check(scene: Scene) -> None:
    scene.leases = {"a"}
    scene.taken.add_foreign_nodes(["a", "b"])
    await scene.checks(1)
    assert not scene.free
    await scene.checks(1)
    assert scene.free == {"b"}
    assert "a" in scene.taken
    assert "b" not in scene.taken


async def test_node_with_an_own_lease_is_free(scene: Scene) -> None:
    """The session of this fleet keeps the lease alive, so that the wait would never end."""
    scene.leases, scene.ours = {"a", "b"}, {"b"}
    scene.taken.add_foreign_nodes(["a", "b"])
    await scene.checks(2)
    assert scene.free == {"b"}


async def test_reappearing_lease_restarts_the_checks(scene: Scene) -> None:
    scene.taken.add_foreign_nodes(["a"])
    await scene.checks(1)
    scene.leases = {"a"}
    await scene.checks(1)
    scene.leases = set()
    await scene.checks(1)
    assert not scene.free


async def test_node_taken_again_is_checked_again(scene: Scene) -> None:
    scene.taken.add_foreign_nodes(["a"])
    await scene.checks(1)
    scene.taken.add_foreign_nodes(["a"])
    await scene.checks(1)
    assert not scene.free


async def test_node_taken_during_a_check_is_not_covered_by_it(scene: Scene) -> None:
    scene.leases = {"a"}
    scene.taken.add_foreign_nodes(["a"])
    scene.meanwhile = ["b"]
    await scene.checks(1)
    scene.meanwhile = []
    await scene.checks(1)
    assert not scene.free
    await scene.checks(1)
    assert scene.free == {"b"}


async def test_failed_check_does_not_count(scene: Scene) -> None:
    scene.taken.add_foreign_nodes(["a"])
    await scene.checks(1)
    scene.answering = False
    await scene.checks(1)
    assert not scene.free
    scene.answering = True
    await scene.checks(2)
    assert scene.free == {"a"}
