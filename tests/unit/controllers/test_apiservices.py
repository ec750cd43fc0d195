"""The objects that list the served versions of API groups."""

from types import SimpleNamespace
from typing import Any

import pytest

from pinnace.api.apiextensions_v1_pb2 import CustomResourceDefinition
from pinnace.api.apiregistration_v1_pb2 import APIService
from pinnace.api.core_v1_pb2 import Service
from pinnace.api.groups import LOCAL, Priorities
from pinnace.api.resources import API_SERVICES, CUSTOM_RESOURCE_DEFINITIONS, SERVICES
from pinnace.controllers.apiservices import AUTOMANAGED_LABEL, APIServiceController
from pinnace.gateway.api_resources import versions_by_group
from tests.clock import FakeClock


class World:
    """The stores of the controller, and the API server that it writes to."""

    def __init__(self) -> None:
        self.api_services: dict[str, APIService] = {}
        self.definitions: dict[str, CustomResourceDefinition] = {}
        self.services: dict[str, Service] = {}
        stores: dict[str, Any] = {
            API_SERVICES.plural: self.api_services,
            CUSTOM_RESOURCE_DEFINITIONS.plural: self.definitions,
            SERVICES.plural: self.services,
        }
        informers = SimpleNamespace(store=lambda resource: stores[resource.plural], wait_for=self.wait_for)
        client = SimpleNamespace(of=lambda resource: self)
        shared: Any = SimpleNamespace(clock=FakeClock(), informers=informers, client=client)
        self.controller = APIServiceController(shared)

    async def wait_for(self, revision: int, timeout: float, among: object) -> None:
        """The stores have every write at once."""

    async def create(self, obj: APIService) -> APIService:
        self.api_services[obj.metadata.name] = obj
        return obj

    async def update_status(self, obj: APIService) -> APIService:
        return await self.create(obj)

    async def delete(self, name: str, *, uid: str) -> APIService:
        return self.api_services.pop(name)


def test_local_versions_are_those_that_the_gateway_serves() -> None:
    served = {f"{version}.{group}" for group, versions in versions_by_group().items() for version in versions}
    assert set(LOCAL) == served - {"v1.apiregistration.k8s.io"}
    assert LOCAL["v1."] == Priorities(18000, 1) and LOCAL["v2.autoscaling"] == Priorities(17500, 30)


async def test_built_in_version_is_created_again_after_its_deletion() -> None:
    world = World()
    await world.controller.sync("v1.apps")
    spec = world.api_services["v1.apps"].spec
    assert (spec.group, spec.version, spec.groupPriorityMinimum, spec.versionPriority) == ("apps", "v1", 17800, 15)
    del world.api_services["v1.apps"]
    await world.controller.sync("v1.apps")
    assert world.api_services["v1.apps"].metadata.labels == {AUTOMANAGED_LABEL: "onstart"}


async def test_version_of_a_definition_comes_and_goes_with_it() -> None:
    world = World()
    definition = world.definitions["widgets.example.com"] = CustomResourceDefinition()
    definition.spec.group = "example.com"
    definition.spec.versions.add(name="v1", served=True)
    definition.spec.versions.add(name="v2", served=False)
    for name in ("v1.example.com", "v2.example.com"):
        await world.controller.sync(name)
    assert [item.metadata.labels for item in world.api_services.values()] == [{AUTOMANAGED_LABEL: "true"}]
    world.definitions.clear()
    await world.controller.sync("v1.example.com")
    assert world.api_services == {}


@pytest.mark.parametrize(
    ("exists", "reason", "message"),
    [
        (False, "ServiceNotFound", 'service/a in "n" is not present'),
        (
            True,
            "FailedDiscoveryCheck",
            'failing or missing response from service/a in "n": this cluster has no aggregation layer',
        ),
    ],
)
async def test_service_of_a_user_is_not_available(exists: bool, reason: str, message: str) -> None:
    world = World()
    mine = world.api_services["v1.example.com"] = APIService()
    mine.metadata.name = "v1.example.com"
    mine.spec.service.namespace, mine.spec.service.name = "n", "a"
    if exists:
        world.services["n/a"] = Service()
    await world.controller.sync("v1.example.com")
    (condition,) = world.api_services["v1.example.com"].status.conditions
    assert (condition.type, condition.status, condition.reason, condition.message) == ("Available", "False", reason, message)
