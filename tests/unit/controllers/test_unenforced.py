"""The event that tells users that nothing enforces an ingress or a network policy."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.codec import from_dict
from pinnace.api.resources import INGRESSES, NETWORK_POLICIES, Resource
from pinnace.api.verbs_pb2 import ADDED, MODIFIED
from pinnace.client.informer import Delta
from pinnace.controllers.unenforced import MAX_AGE, UnenforcedKindsController
from tests.clock import FakeClock


class World:
    def __init__(self, resource: Resource[Any]) -> None:
        self.obj: Any = from_dict(resource, {"metadata": {"name": "a", "namespace": "n"}})
        self.clock = FakeClock()
        self.obj.metadata.creationTimestamp.seconds = int(self.clock.time())
        self.events: list[tuple[str, ...]] = []
        stores = {resource.plural: {"n/a": self.obj}}
        informers = SimpleNamespace(store=lambda resource: stores.get(resource.plural, {}))
        shared: Any = SimpleNamespace(clock=self.clock, informers=informers, events=self)
        self.controller = UnenforcedKindsController(shared)

    def event(self, obj: Any, *details: str) -> None:
        self.events.append((obj.metadata.name, *details))

    async def deliver(self, kind: Any) -> None:
        for watch in self.controller.watches:
            if isinstance(self.obj, watch.resource.message):
                for key in watch.keys(Delta(kind, self.obj, None)):
                    await self.controller.sync(key)


@pytest.mark.parametrize(
    ("resource", "text"), [(INGRESSES, "no ingress controller"), (NETWORK_POLICIES, "all traffic is allowed")]
)
async def test_new_object_is_reported(resource: Resource[Any], text: str) -> None:
    world = World(resource)
    await world.deliver(ADDED)
    (event,) = world.events
    assert event[:3] == ("a", "Normal", "NotEnforced") and text in event[3]


async def test_changes_and_old_objects_are_not_reported() -> None:
    world = World(INGRESSES)
    await world.deliver(MODIFIED)
    await world.clock.advance(MAX_AGE + 2)
    await world.deliver(ADDED)
    assert world.events == []
